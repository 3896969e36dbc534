//! Admission for the front door of Harvester: the API server asks, the loop answers from its view, purely. Only the process that leads
//! has a view; where nobody answers, the API server goes on (`failurePolicy: Ignore`), and the preflight looks again at the start.

mod own;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use afloat_api::harvester::{Upgrade, UpgradeLog, Version};
use afloat_core::hci::{Request, Verdict, admit};
use afloat_core::view::View;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clients::Clients;
use crate::clock::Clock;

/// Questions that may wait.
const WAITING: usize = 64;
/// How long a question may wait for the loop; the API server gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest object the API server stores, twice (old and new), and some.
const LARGEST_BODY: usize = 4 << 20;

/// Where admission is served.
#[derive(Clone, Debug)]
pub struct Door {
    pub listen: SocketAddr,
    pub identity: Identity,
}

/// By which certificate it is known to the API server.
#[derive(Clone, Debug)]
pub enum Identity {
    /// One that the operators make, keep in a Secret, renew, and let the API server trust.
    Own {
        /// The pod of this process, which the Service finds by a mark while it leads; nobody finds it where absent.
        pod: Option<String>,
    },
    /// A person's, as PEM; the configuration is theirs to keep as well.
    Files { certificate: PathBuf, key: PathBuf },
}

/// Why admission is not served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("cannot listen on {address} ({cause})")]
    Listen { address: SocketAddr, cause: std::io::Error },
    #[error("{path}: {problem}")]
    Certificate { path: String, problem: String },
    #[error("TLS cannot be set up ({0})")]
    Tls(rustls::Error),
}

/// A question, and where its answer goes.
pub struct Question {
    asked: Asked,
    answer: oneshot::Sender<Verdict>,
}

/// What is asked, owned.
enum Asked {
    CreateUpgrade(Box<Upgrade>),
    UpdateUpgrade { old: Box<Upgrade>, new: Box<Upgrade> },
    DeleteUpgrade(Box<Upgrade>),
    WriteVersion(Box<Version>),
    WriteSetting { name: String, value: String },
    CreateNode(String),
    CreateUpgradeLog(Box<UpgradeLog>),
}

impl Question {
    /// Answers from a view.
    pub fn answer(self, view: &View) {
        let request = match &self.asked {
            Asked::CreateUpgrade(upgrade) => Request::CreateUpgrade(upgrade),
            Asked::UpdateUpgrade { old, new } => Request::UpdateUpgrade { old, new },
            Asked::DeleteUpgrade(upgrade) => Request::DeleteUpgrade(upgrade),
            Asked::WriteVersion(version) => Request::WriteVersion(version),
            Asked::WriteSetting { name, value } => Request::WriteSetting { name, value },
            Asked::CreateNode(name) => Request::CreateNode(name),
            Asked::CreateUpgradeLog(log) => Request::CreateUpgradeLog(log),
        };
        // Whoever asked may have given up meanwhile.
        let _given_up = self.answer.send(admit(view, &request));
    }
}

/// The next question, where there are any.
pub(crate) async fn asked(questions: Option<&mut mpsc::Receiver<Question>>) -> Option<Question> {
    match questions {
        Some(questions) => questions.recv().await,
        None => None,
    }
}

/// The two ends of the queue of questions.
pub fn desk() -> (mpsc::Sender<Question>, mpsc::Receiver<Question>) {
    mpsc::channel(WAITING)
}

/// The pages of admission.
pub fn router(desk: mpsc::Sender<Question>) -> Router {
    Router::new()
        .route("/admit", post(review))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(desk)
}

async fn review(State(desk): State<mpsc::Sender<Question>>, Json(body): Json<Value>) -> Response {
    let request = &body["request"];
    let uid = request["uid"].clone();
    let verdict = match read(request) {
        Ok(Some(asked)) => {
            let (answer, answered) = oneshot::channel();
            let told = async {
                desk.send(Question { asked, answer }).await.ok()?;
                answered.await.ok()
            };
            match tokio::time::timeout(PATIENCE, told).await {
                Ok(Some(verdict)) => verdict,
                _ => return (StatusCode::SERVICE_UNAVAILABLE, "this process does not lead\n").into_response(),
            }
        }
        Ok(None) => Verdict::default(),
        Err(problem) => return Json(answer(&uid, false, &problem, &[])).into_response(),
    };
    Json(answer(&uid, verdict.allowed(), &verdict.message(), &verdict.warnings)).into_response()
}

fn answer(uid: &Value, allowed: bool, message: &str, warnings: &[String]) -> Value {
    let mut response = json!({ "uid": uid, "allowed": allowed, "warnings": warnings });
    if !allowed {
        response["status"] = json!({ "code": 422, "reason": "Invalid", "message": message });
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}

/// What an `AdmissionReview` asks; nothing where it is not about the front door.
fn read(request: &Value) -> Result<Option<Asked>, String> {
    fn typed<T: DeserializeOwned>(value: &Value) -> Result<Box<T>, String> {
        serde_json::from_value(value.clone())
            .map(Box::new)
            .map_err(|error| format!("it cannot be read: {error}"))
    }
    let (object, old) = (&request["object"], &request["oldObject"]);
    // A subresource is written by controllers, and says nothing a person chose.
    if request["subResource"].as_str().is_some_and(|part| !part.is_empty()) {
        return Ok(None);
    }
    let name = || request["name"].as_str().unwrap_or_default().to_owned();
    let kind = request["kind"]["kind"].as_str().unwrap_or_default();
    let asked = match (kind, request["operation"].as_str().unwrap_or_default()) {
        ("Upgrade", "CREATE") => {
            let mut upgrade = typed::<Upgrade>(object)?;
            if upgrade.metadata.namespace.is_none() {
                upgrade.metadata.namespace = request["namespace"].as_str().map(str::to_owned);
            }
            Asked::CreateUpgrade(upgrade)
        }
        ("Upgrade", "UPDATE") => Asked::UpdateUpgrade {
            old: typed(old)?,
            new: typed(object)?,
        },
        ("Upgrade", "DELETE") => Asked::DeleteUpgrade(typed(old)?),
        ("Version", "CREATE" | "UPDATE") => Asked::WriteVersion(typed(object)?),
        ("Setting", "CREATE" | "UPDATE") => Asked::WriteSetting {
            name: name(),
            value: object["value"].as_str().unwrap_or_default().to_owned(),
        },
        ("Node", "CREATE") => Asked::CreateNode(name()),
        ("UpgradeLog", "CREATE") => Asked::CreateUpgradeLog(typed(object)?),
        _ => return Ok(None),
    };
    Ok(Some(asked))
}

/// Serves until this is dropped.
pub struct Serving {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    leads: watch::Sender<bool>,
}

impl Serving {
    /// This process leads from now on: it is the one to ask.
    pub fn leads(&self) {
        self.leads.send_replace(true);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Serves admission.
pub async fn serve(
    door: &Door,
    desk: mpsc::Sender<Question>,
    clients: &Clients,
    home: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Serving, WebhookError> {
    let address = door.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|cause| WebhookError::Listen { address, cause })?;
    let shown = tls::Shown::default();
    let (leads, led) = watch::channel(false);
    let mut tasks = Vec::new();
    match &door.identity {
        Identity::Files { certificate, key } => shown.show(tls::files(certificate, key)?),
        Identity::Own { pod } => {
            let keeper = own::Keeper::new(clients, home, pod.clone(), Arc::clone(clock), shown.clone());
            tasks.push(tokio::spawn(keeper.keep(led)));
        }
    }
    tasks.push(tokio::spawn(tls::serve(listener, tls::acceptor(shown)?, router(desk))));
    Ok(Serving { tasks, leads })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn ask(router: Router, body: &Value) -> (StatusCode, Value) {
        let request = http::Request::post("/admit")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn review(kind: &str, operation: &str, object: &Value) -> Value {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "r-1", "kind": { "kind": kind }, "operation": operation, "name": object["metadata"]["name"],
            "namespace": "harvester-system", "object": object, "oldObject": null,
        } })
    }

    #[tokio::test]
    async fn h14_the_api_server_gets_every_reason_at_once_and_may_not_create_the_upgrade() {
        let (desk, mut questions) = desk();
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                question.answer(&View::default());
            }
        });
        let upgrade = json!({ "metadata": { "generateName": "hvst-upgrade-", "annotations": {
            "harvesterhci.io/skipWebhook": "perhaps",
        } }, "spec": { "version": "v1.7.0" } });
        let (status, answer) = ask(router(desk.clone()), &review("Upgrade", "CREATE", &upgrade)).await;
        assert_eq!(status, StatusCode::OK);
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("r-1"), &json!(false)));
        let message = response["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("no such Version") && message.contains("write true or false"),
            "{message}"
        );
        let other = json!({ "metadata": { "name": "ui-source" }, "value": "anything" });
        let (_, answer) = ask(router(desk), &review("Setting", "UPDATE", &other)).await;
        assert_eq!(answer["response"]["allowed"], true);
    }

    #[tokio::test]
    async fn a_process_that_does_not_lead_says_so_instead_of_guessing() {
        let (desk, questions) = desk();
        drop(questions);
        let node = json!({ "metadata": { "name": "node-4" } });
        let (status, _) = ask(router(desk), &review("Node", "CREATE", &node)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
