use super::*;
use crate::clock::TokioClock;
use afloat_apisim::{ApiServer, Options};

const HOME: &str = "afloat-system";

fn secret(made: Made, renew: &str) -> Secret {
    let bytes = |text: String| ByteString(text.into_bytes());
    Secret {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([(
                annotations::RENEW_AFTER.to_owned(),
                renew.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            ("ca.crt".to_owned(), bytes(made.authority)),
            ("tls.crt".to_owned(), bytes(made.certificate)),
            ("tls.key".to_owned(), bytes(made.key)),
        ])),
        ..Secret::default()
    }
}

fn fresh() -> Made {
    make(
        vec!["afloat-webhook.afloat-system.svc".to_owned()],
        at("2026-11-18T06:00:00Z"),
    )
    .unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

type Damage = (&'static str, fn(&mut Secret));

#[test]
fn what_is_damaged_or_old_is_made_anew() {
    let now = at("2026-11-18T06:00:00Z");
    let later = "2027-01-01T00:00:00Z";
    assert!(kept(&secret(fresh(), later), now).is_some());
    let table: [Damage; 5] = [
        ("its time has come", |secret| {
            let marks = secret.metadata.annotations.as_mut().unwrap();
            marks.insert(annotations::RENEW_AFTER.to_owned(), "2026-11-18T05:59:59Z".to_owned());
        }),
        ("nobody knows its age", |secret| secret.metadata.annotations = None),
        ("no authority", |secret| {
            secret.data.as_mut().unwrap().remove("ca.crt");
        }),
        ("no certificate", |secret| {
            let data = secret.data.as_mut().unwrap();
            data.insert("tls.crt".to_owned(), ByteString(b"rubbish".to_vec()));
        }),
        ("the key of another", |secret| {
            let data = secret.data.as_mut().unwrap();
            data.insert("tls.key".to_owned(), ByteString(fresh().key.into_bytes()));
        }),
    ];
    for (name, damage) in table {
        let mut secret = secret(fresh(), later);
        damage(&mut secret);
        assert!(kept(&secret, now).is_none(), "{name}");
    }
}

#[test]
fn the_authority_before_is_trusted_beside_the_new_one_and_none_older() {
    let (first, second, third) = (fresh().authority, fresh().authority, fresh().authority);
    let two = authorities(&second, first.as_bytes());
    assert!(two.contains(first.trim()) && two.starts_with(&second), "{two}");
    let three = authorities(&third, two.as_bytes());
    assert_eq!(three.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(
        three.contains(second.trim()) && !three.contains(first.trim()),
        "{three}"
    );
    assert_eq!(authorities(&first, b""), first);
}

struct Two {
    client: kube::Client,
    clock: TokioClock,
}

impl Two {
    async fn new(with_configuration: bool) -> Self {
        let client = ApiServer::new(Options::default()).client();
        let clock = TokioClock::starting_at(at("2026-11-18T06:00:00Z"));
        let all = |group: &str, path: &str, object: serde_json::Value| {
            http::Request::post(format!("/{group}/{path}"))
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
                .unwrap()
        };
        let mut objects = vec![
            all("api/v1", "namespaces", json!({ "metadata": { "name": HOME } })),
            all(
                "api/v1",
                &format!("namespaces/{HOME}/pods"),
                json!({
                    "metadata": { "name": "afloat-1", "labels": { labels::LEADS: "true" } },
                    "spec": { "containers": [{ "name": "operator", "image": "afloat" }] },
                }),
            ),
        ];
        if with_configuration {
            let hook = json!({
                "name": "harvester.afloat.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "clientConfig": { "service": { "namespace": HOME, "name": SECRET, "path": "/admit" } },
            });
            let path = "validatingwebhookconfigurations";
            let object = json!({ "metadata": { "name": CONFIGURATION }, "webhooks": [hook] });
            objects.push(all("apis/admissionregistration.k8s.io/v1", path, object));
        }
        for request in objects {
            let _made: serde_json::Value = client.request(request).await.unwrap();
        }
        Self { client, clock }
    }

    fn keeper(&self) -> Keeper {
        let clients = Clients::of(self.client.clone());
        Keeper::new(
            &clients,
            HOME,
            Some("afloat-1".to_owned()),
            Arc::new(self.clock),
            Shown::default(),
        )
    }

    async fn bundle(&self) -> Option<Vec<u8>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let hook = api.get(CONFIGURATION).await.unwrap().webhooks.unwrap().remove(0);
        assert!(hook.client_config.service.is_some(), "what stood there stays");
        hook.client_config.ca_bundle.map(|bundle| bundle.0)
    }

    async fn mark(&self) -> Option<String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), HOME);
        api.get("afloat-1").await.unwrap().labels().get(labels::LEADS).cloned()
    }

    async fn secret(&self) -> Option<Secret> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), HOME);
        api.get_opt(SECRET).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_replica_shows_what_the_first_one_made_and_only_who_leads_is_found_and_trusted() {
    let two = Two::new(true).await;
    let (mut first, mut second) = (two.keeper(), two.keeper());
    first.round(false).await.unwrap();
    assert_eq!((two.bundle().await, two.mark().await), (None, None));
    second.round(true).await.unwrap();
    let (one, other) = (first.shown.now().unwrap(), second.shown.now().unwrap());
    assert_eq!(one.cert, other.cert);
    assert_eq!(
        two.bundle().await.unwrap(),
        part(&two.secret().await.unwrap(), "ca.crt")
    );
    assert_eq!(two.mark().await.as_deref(), Some("true"));

    // Long after: renewed once, with the authority before still trusted.
    let long = Duration::from_hours(24 * 271);
    tokio::time::advance(long).await;
    second.round(true).await.unwrap();
    first.round(false).await.unwrap();
    let renewed = first.shown.now().unwrap();
    assert_ne!(renewed.cert, one.cert);
    assert_eq!(renewed.cert, second.shown.now().unwrap().cert);
    let bundle = String::from_utf8(two.bundle().await.unwrap()).unwrap();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    let revision = two.secret().await.unwrap().metadata.resource_version;
    second.round(true).await.unwrap();
    assert_eq!(
        two.secret().await.unwrap().metadata.resource_version,
        revision,
        "then nothing is written"
    );
}

#[tokio::test(start_paused = true)]
async fn where_nobody_asks_nothing_is_made() {
    let two = Two::new(false).await;
    let mut keeper = two.keeper();
    keeper.round(true).await.unwrap();
    assert!(two.secret().await.is_none() && keeper.shown.now().is_none());
}
