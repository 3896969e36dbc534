//! Carries out one action: one request, and what its answer means. Never decides and never tries again: a refusal goes back,
//! and the next turn decides from what the API server then says.

mod hci;
mod hci_objects;
mod render;
mod request;
mod task;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, labels};
use afloat_core::action::{Action, Place, Task, TaskPod};
use afloat_core::hci::action::HciAction;
use afloat_core::lifecycle::has_to_leave;
use afloat_core::view::{Key, Target};
use kube::core::{DynamicObject, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use request::{Request, Verb};

use crate::clients::{CallError, Clients, bounded};
use crate::snapshot::lean::without_managers;
use crate::snapshot::raw::{RawDeployment, RawLease, RawNode, RawPod};
use crate::snapshot::{Kind, Object, Unreadable, reduce};
use crate::status::FIELD_MANAGER;

/// How the API server says that a budget refused an eviction, and not that it is too busy: both are a 429.
const BUDGET_CAUSE: &str = "DisruptionBudget";

/// What became of an action.
#[derive(Debug)]
pub enum Outcome {
    /// The object as it is now.
    Written(Box<Object>),
    /// The object is gone, or was before.
    Gone { kind: Kind, target: Target },
    /// The pod was asked to end.
    Evicting { pod: Target, grace_seconds: Option<i64> },
    /// A budget allows no eviction now.
    RefusedByBudget { message: String },
}

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{action} of {object} was refused: {cause}")]
pub struct Refusal {
    pub action: &'static str,
    pub object: Key,
    pub cause: Cause,
}

/// The cause of a refusal.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The object is no longer as it was decided on.
    #[error("it has changed meanwhile ({0})")]
    Conflict(String),
    /// The object decided on is gone.
    #[error("it is gone")]
    Gone,
    /// Something of the same name belongs to somebody else.
    #[error("one of this name is there already and belongs to another upgrade")]
    Taken,
    /// The API server says no, whatever is done.
    #[error("{message} ({code})")]
    Denied { code: u16, message: String },
    /// Nothing, or nothing that could be understood, came back.
    #[error("{0}")]
    NoAnswer(String),
}

impl Cause {
    /// Ordinary between a decision and its carrying out; nobody has to read of it.
    pub fn is_expected(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Gone)
    }
}

/// Carries out `action`.
pub async fn execute(clients: &Clients, action: &Action) -> Result<Outcome, Refusal> {
    let executor = Executor { clients, action };
    let request = request::of(action, clients.bundle_key.as_deref()).map_err(|error| Refusal {
        action: action.name(),
        object: Key::new("", ""),
        cause: Cause::NoAnswer(error.to_string()),
    })?;
    let object = request.key.clone();
    executor.carry_out(request).await.map_err(|cause| Refusal {
        action: action.name(),
        object,
        cause,
    })
}

/// Looks at the node that pods are asked to leave, once for all of them that one turn asks: it is still the machine that was decided on, and still
/// cordoned as it was.
pub async fn look_before(clients: &Clients, action: &Action) -> Result<(), Refusal> {
    let Some(place) = action.empties() else { return Ok(()) };
    let executor = Executor { clients, action };
    let seen = executor.see_that_it_is_cordoned(place).await;
    seen.map_err(|cause| Refusal {
        action: action.name(),
        object: Key::new("", place.node.as_str()),
        cause,
    })
}

struct Executor<'a> {
    clients: &'a Clients,
    action: &'a Action,
}

/// What a request brought: a body, or the refusal of the server.
type Answer = Result<String, Problem>;

enum Problem {
    Status(Box<Status>),
    Other(String),
}

impl From<Problem> for Cause {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Status(status) if status.code == 409 => Self::Conflict(status.message),
            Problem::Status(status) if status.code == 404 => Self::Gone,
            Problem::Status(status) => Self::Denied {
                code: status.code,
                message: status.message,
            },
            Problem::Other(message) => Self::NoAnswer(message),
        }
    }
}

impl Executor<'_> {
    async fn carry_out(&self, request: Request) -> Result<Outcome, Cause> {
        match self.action {
            Action::SetUpgradeFinalizer { target, present } | Action::SetGroupFinalizer { target, present, .. } => {
                self.finalizer(&request, target, *present).await
            }
            Action::RemoveNodeFinalizer { target } => self.finalizer(&request, target, false).await,
            Action::ReleaseLock { lock: target }
            | Action::DeletePod { pod: target }
            | Action::DeletePastBudget { pod: target, .. } => self.delete(&request, target).await,
            Action::Evict { pod, grace_seconds, .. } => self.evict(&request, pod, *grace_seconds).await,
            Action::CreatePod(task) if task.task != Task::Stage => {
                self.see_that_it_is_ready(task).await?;
                self.create(&request).await
            }
            Action::PauseNode { upgrade, .. } => self.pause(&request, upgrade).await,
            Action::Hci(action) => self.carry_out_hci(action, &request).await,
            _ if request.verb == Verb::Create => self.create(&request).await,
            _ => written(&request, &self.send(&request).await?),
        }
    }

    async fn carry_out_hci(&self, action: &HciAction, request: &Request) -> Result<Outcome, Cause> {
        match action {
            HciAction::Confirm { target } => self.confirm(request, target).await,
            HciAction::WriteUpgrade { target, .. } => self.last_finalizer(request, target).await,
            HciAction::DeleteJob { job: target }
            | HciAction::DeleteImage { image: target }
            | HciAction::DeleteRepo { deployment: target }
            | HciAction::DeleteRepoService { service: target } => self.delete(request, target).await,
            _ if request.verb == Verb::Create => self.create(request).await,
            _ => written(request, &self.send(request).await?),
        }
    }

    async fn create(&self, request: &Request) -> Result<Outcome, Cause> {
        match self.send(request).await {
            Ok(body) => written(request, &body),
            // Made by an earlier turn whose answer got lost, or by somebody else: its label tells.
            Err(Problem::Status(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                let reading = request.reading();
                let there = self.send(&reading).await?;
                if same_upgrade(request, &there) {
                    written(request, &there)
                } else {
                    Err(Cause::Taken)
                }
            }
            Err(problem) => Err(problem.into()),
        }
    }

    /// The object is as it was decided on.
    async fn confirm(&self, request: &Request, target: &Target) -> Result<Outcome, Cause> {
        let body = self.send(request).await?;
        let meta = parsed::<Metadata>(&body)?.metadata;
        if meta.resource_version != target.revision.to_string() {
            return Err(Cause::Conflict("it is newer than what was decided on".to_owned()));
        }
        written(request, &body)
    }

    /// The request is about the node in the very state that was decided on. The upgrade may be deleted between the look at it and the pause:
    /// it may then end without knowing of one, so that it is looked at once more, and the pause taken back by whoever has put it there. Where this
    /// process ends in between, the next upgrade takes it back.
    async fn pause(&self, request: &Request, upgrade: &Target) -> Result<Outcome, Cause> {
        self.see_that_it_goes_on(upgrade).await?;
        let paused = written(request, &self.send(request).await?)?;
        match self.see_that_it_goes_on(upgrade).await {
            Err(gone @ (Cause::Gone | Cause::Conflict(_))) => {
                if let Outcome::Written(node) = &paused {
                    self.send(&request::unpause(&node.target(), None)).await?;
                }
                Err(gone)
            }
            // No answer says nothing against the pause.
            _ => Ok(paused),
        }
    }

    /// What is put on a node for an upgrade is taken back when that ends: it is still there, and nobody has it removed.
    async fn see_that_it_goes_on(&self, upgrade: &Target) -> Result<(), Cause> {
        let body = self
            .send(&request::get(Kind::ClusterUpgrade, upgrade.key.clone()))
            .await?;
        let there = parsed::<Metadata>(&body)?.metadata;
        if there.uid != upgrade.uid.as_str() || there.deletion_timestamp.is_some() {
            let name = &upgrade.key.name;
            return Err(Cause::Conflict(format!("clusterupgrade/{name} is gone, or goes")));
        }
        Ok(())
    }

    /// What is done to a node is done to the pods on it: it is still the machine that was decided on, no pod can come to it, and
    /// none is left that the decision had not seen.
    async fn see_that_it_is_ready(&self, task: &TaskPod) -> Result<(), Cause> {
        let place = Place {
            node: task.node.clone(),
            uid: task.node_uid.clone(),
            cordoned_by: None,
        };
        self.see_that_it_is_cordoned(&place).await?;
        if task.emptied {
            self.see_that_it_is_empty(task.node.as_str()).await?;
        }
        Ok(())
    }

    async fn see_that_it_is_cordoned(&self, place: &Place) -> Result<(), Cause> {
        let Place { node, uid, cordoned_by } = place;
        let body = self
            .send(&request::get(Kind::Node, Key::new("", node.as_str())))
            .await?;
        let there = object(Kind::Node, &body)?.map_err(|problem| Cause::NoAnswer(problem.to_string()))?;
        if let Object::Node(there) = there {
            if there.uid != *uid {
                return Err(Cause::Conflict(format!("node {node} is another machine by now")));
            }
            if !there.unschedulable {
                return Err(Cause::Conflict(format!("node {node} is not cordoned any more")));
            }
            if cordoned_by.is_some() && there.cordoned_by != *cordoned_by {
                return Err(Cause::Conflict(format!(
                    "node {node} is cordoned by somebody else by now"
                )));
            }
        }
        Ok(())
    }

    async fn see_that_it_is_empty(&self, node: &str) -> Result<(), Cause> {
        let body = self.send(&request::pods_of(node)).await?;
        for raw in parsed::<Pods>(&body)?.items {
            // One that cannot be read is none of those the drain could have asked to go.
            let Ok(Object::Pod(pod)) = reduce::pod(raw) else {
                continue;
            };
            if has_to_leave(&pod) {
                return Err(Cause::Conflict(format!("pod {} is still on {node}", pod.key)));
            }
        }
        Ok(())
    }

    async fn finalizer(&self, request: &Request, target: &Target, present: bool) -> Result<Outcome, Cause> {
        let there = match self.send(&request.reading()).await {
            Err(Problem::Status(status)) if status.code == 404 && !present => {
                return Ok(Outcome::Gone {
                    kind: request.kind,
                    target: target.clone(),
                });
            }
            answer => answer?,
        };
        let meta = parsed::<Metadata>(&there)?.metadata;
        let request = request::finalizer(request.kind, target, &meta.finalizers, present);
        self.last_finalizer(&request, target).await
    }

    /// The last finalizer of an object that is being deleted: the answer shows it once more, and it is gone.
    async fn last_finalizer(&self, request: &Request, target: &Target) -> Result<Outcome, Cause> {
        let body = self.send(request).await?;
        let meta = parsed::<Metadata>(&body)?.metadata;
        if meta.deletion_timestamp.is_some() && meta.finalizers.is_empty() {
            return Ok(Outcome::Gone {
                kind: request.kind,
                target: target.clone(),
            });
        }
        written(request, &body)
    }

    async fn delete(&self, request: &Request, target: &Target) -> Result<Outcome, Cause> {
        let gone = || Outcome::Gone {
            kind: request.kind,
            target: target.clone(),
        };
        match self.send(request).await {
            Err(Problem::Status(status)) if status.code == 404 => Ok(gone()),
            Err(problem) => Err(problem.into()),
            Ok(body) => {
                let meta = parsed::<Metadata>(&body)?.metadata;
                // With a grace period or a finalizer the object stays a while, and the answer is the object.
                let stays = meta.deletion_timestamp.is_some()
                    && (meta.deletion_grace_period_seconds.unwrap_or_default() > 0 || !meta.finalizers.is_empty());
                if stays { written(request, &body) } else { Ok(gone()) }
            }
        }
    }

    async fn evict(&self, request: &Request, pod: &Target, grace_seconds: Option<i64>) -> Result<Outcome, Cause> {
        match self.send(request).await {
            Ok(_) => Ok(Outcome::Evicting {
                pod: pod.clone(),
                grace_seconds,
            }),
            Err(Problem::Status(status)) if status.code == 404 => Ok(Outcome::Gone {
                kind: Kind::Pod,
                target: pod.clone(),
            }),
            Err(Problem::Status(status)) if status.code == 429 && by_budget(&status) => Ok(Outcome::RefusedByBudget {
                message: status.message,
            }),
            Err(problem) => Err(problem.into()),
        }
    }

    async fn send(&self, request: &Request) -> Answer {
        let client = match request.verb {
            Verb::Evict => &self.clients.evictions,
            _ => &self.clients.api,
        };
        let answer = match request.to_http(FIELD_MANAGER) {
            Ok(http) => bounded(client.request_text(http)).await,
            Err(error) => return Err(Problem::Other(error.to_string())),
        };
        answer.map_err(|error| match error {
            CallError::Refused(kube::Error::Api(status)) => Problem::Status(status),
            error => Problem::Other(error.to_string()),
        })
    }
}

#[derive(serde::Deserialize)]
struct Pods {
    items: Vec<RawPod>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Metadata {
    metadata: Few,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Few {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Vec<String>,
}

fn by_budget(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    causes
        .unwrap_or_default()
        .iter()
        .any(|cause| cause.reason == BUDGET_CAUSE)
}

/// What is there already under the name was made for the same upgrade; a lock for the same holder.
fn same_upgrade(request: &Request, there: &str) -> bool {
    let Ok(there) = serde_json::from_str::<Value>(there) else {
        return false;
    };
    let mark = |object: &Value| match request.kind {
        Kind::UpgradeLock => object["spec"]["holderIdentity"].clone(),
        _ => object["metadata"]["labels"][labels::UPGRADE_UID].clone(),
    };
    let ours = mark(&request.body);
    !ours.is_null() && ours == mark(&there) && there["metadata"]["deletionTimestamp"].is_null()
}

fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, Cause> {
    serde_json::from_str(&without_managers(body))
        .map_err(|error| Cause::NoAnswer(format!("the answer cannot be read: {error}")))
}

fn written(request: &Request, body: &str) -> Result<Outcome, Cause> {
    let object = object(request.kind, body)?;
    let object = object.map_err(|problem| Cause::NoAnswer(problem.to_string()))?;
    Ok(Outcome::Written(Box::new(object)))
}

fn object(kind: Kind, body: &str) -> Result<Result<Object, Unreadable>, Cause> {
    Ok(match kind {
        Kind::Node => reduce::node(parsed::<RawNode>(body)?),
        Kind::ClusterUpgrade => reduce::upgrade(parsed::<ClusterUpgrade>(body)?),
        Kind::ControlPlaneKubeadmUpgrade => reduce::control_plane(parsed::<ControlPlaneKubeadmUpgrade>(body)?),
        Kind::WorkersKubeadmUpgrade => reduce::workers(parsed::<WorkersKubeadmUpgrade>(body)?),
        Kind::NodeKubeadmUpgrade => reduce::node_upgrade(parsed::<NodeKubeadmUpgrade>(body)?),
        Kind::UpgradeLock => reduce::lock(parsed::<RawLease>(body)?),
        Kind::Deployment => reduce::deployment(parsed::<RawDeployment>(body)?),
        Kind::Hci(kind) => {
            let object = parsed::<DynamicObject>(body)?;
            crate::snapshot::hci::reduce(kind, &object).map(|object| Object::Hci(Box::new(object)))
        }
        _ => reduce::pod(parsed::<RawPod>(body)?),
    })
}
