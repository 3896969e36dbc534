//! Events for people: what the core wants told becomes objects of `events.k8s.io/v1` on the object it is about. The same thing told
//! again within minutes only counts up (a series). They are help, not truth: one that cannot be written is counted and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afloat_core::action::{Event, EventObject};
use afloat_core::view::Target;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::clients::{CallError, Clients, bounded};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::status::FIELD_MANAGER;

const CONTROLLER: &str = "afloat.dev/operator";
/// What is told again within this time belongs to the same series, as in client-go.
const SERIES: Duration = Duration::from_mins(6);
/// How many different things are remembered; beyond it the oldest are forgotten and would be told anew.
const REMEMBERED: usize = 4096;
/// How many may wait to be written.
const CHANNEL: usize = 1024;
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;
/// Where events about objects without a namespace go, as kubectl expects it.
const NO_NAMESPACE: &str = "default";

/// Where the loop puts events; they are written by another task.
#[derive(Clone)]
pub struct EventSink {
    sender: mpsc::Sender<Event>,
    metrics: Metrics,
}

impl EventSink {
    /// The sink and the task that writes what is put in; it ends with the last sink.
    pub fn new(
        clients: &Clients,
        clock: Arc<dyn Clock>,
        instance: &str,
        metrics: Metrics,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let writer = Writer {
            client: clients.api.clone(),
            clock,
            metrics: metrics.clone(),
            told: Told::new(instance),
        };
        (Self { sender, metrics }, writer.run(receiver))
    }

    pub fn publish(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.metrics.event_lost();
        }
    }
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
enum Write {
    Create {
        namespace: String,
        body: Value,
    },
    Count {
        namespace: String,
        name: String,
        body: Value,
    },
}

/// What was told lately. Pure: time is an argument.
struct Told {
    instance: String,
    known: BTreeMap<String, Series>,
    made: u64,
}

struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Told {
    fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            known: BTreeMap::new(),
            made: 0,
        }
    }

    fn tell(&mut self, event: &Event, now: Timestamp) -> Write {
        let (api_version, kind, target) = regarding(&event.object);
        let namespace = match &*target.key.namespace {
            "" => NO_NAMESPACE.to_owned(),
            namespace => namespace.to_owned(),
        };
        let same = format!("{} {} {} {}", target.uid, event.warning, event.reason, event.message);
        if let Some(series) = self.known.get_mut(&same)
            && now.duration_since(series.last) < SERIES.try_into().unwrap_or_default()
        {
            series.count += 1;
            series.last = now;
            let body = json!({ "series": { "count": series.count, "lastObservedTime": micro(now) } });
            return Write::Count {
                namespace,
                name: series.name.clone(),
                body,
            };
        }
        self.made += 1;
        // Time and number make the name unique between processes and within one.
        let name = format!(
            "{}.{:x}{:04x}",
            target.key.name,
            now.as_nanosecond(),
            self.made & 0xffff
        );
        self.forget(now);
        let series = Series {
            name: name.clone(),
            count: 1,
            last: now,
        };
        self.known.insert(same, series);
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "name": &*target.key.name, "uid": target.uid.as_str(),
        });
        if !target.key.namespace.is_empty() {
            object["namespace"] = json!(&*target.key.namespace);
        }
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "eventTime": micro(now),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason.to_string(),
            "action": "Upgrade",
            "note": short(&event.message),
            "regarding": object,
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
        });
        Write::Create { namespace, body }
    }

    fn forget(&mut self, now: Timestamp) {
        if self.known.len() < REMEMBERED {
            return;
        }
        let limit = SERIES.try_into().unwrap_or_default();
        self.known.retain(|_, series| now.duration_since(series.last) < limit);
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
    }
}

fn regarding(object: &EventObject) -> (String, &'static str, &Target) {
    let ours = || format!("{}/{}", afloat_api::GROUP, afloat_api::VERSION);
    match object {
        EventObject::Upgrade(target) => (ours(), "ClusterUpgrade", target),
        EventObject::ControlPlane(target) => (ours(), "ControlPlaneKubeadmUpgrade", target),
        EventObject::Workers(target) => (ours(), "WorkersKubeadmUpgrade", target),
        EventObject::NodeUpgrade(target) => (ours(), "NodeKubeadmUpgrade", target),
        EventObject::Node(target) => ("v1".to_owned(), "Node", target),
        EventObject::Hci(target) => {
            let version = format!("{}/{}", afloat_api::harvester::GROUP, afloat_api::harvester::VERSION);
            (version, "Upgrade", target)
        }
    }
}

/// Events have microseconds, always six digits.
fn micro(moment: Timestamp) -> String {
    format!("{moment:.6}")
}

fn short(note: &str) -> &str {
    let mut end = note.len().min(LONGEST_NOTE);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    &note[..end]
}

struct Writer {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    told: Told,
}

impl Writer {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        while let Some(event) = events.recv().await {
            let write = self.told.tell(&event, self.clock.now());
            let written = match &write {
                Write::Create { namespace, body } => self.create(namespace, body).await,
                Write::Count { namespace, name, body } => self.count(namespace, name, body).await,
            };
            if let Err(error) = written {
                self.metrics.event_lost();
                tracing::debug!(%error, reason = %event.reason, "an event was not written");
            }
        }
    }

    async fn create(&self, namespace: &str, body: &Value) -> Result<(), CallError> {
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), namespace);
        let event = serde_json::from_value(body.clone()).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        bounded(api.create(&params, &event)).await.map(|_| ())
    }

    async fn count(&self, namespace: &str, name: &str, body: &Value) -> Result<(), CallError> {
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        bounded(api.patch(name, &params, &Patch::Merge(body))).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_api::Reason;
    use afloat_apisim::{ApiServer, Options};
    use afloat_core::view::{Key, Revision, Uid};
    use kube::api::ListParams;

    fn event(message: &str) -> Event {
        Event {
            object: EventObject::Node(Target {
                key: Key::new("", "worker-1"),
                uid: Uid::from("u"),
                revision: Revision(1),
            }),
            warning: true,
            reason: Reason::StepFailed,
            message: Arc::from(message),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_same_thing_told_again_counts_up_for_a_while() {
        let mut told = Told::new("operator-0");
        let Write::Create { namespace, body } = told.tell(&event("a"), at(0)) else {
            panic!("first")
        };
        assert_eq!(
            (namespace.as_str(), &body["regarding"]["kind"]),
            ("default", &json!("Node"))
        );
        for (second, count) in [(10, 2), (300, 3)] {
            let Write::Count { name, body: series, .. } = told.tell(&event("a"), at(second)) else {
                panic!("again")
            };
            assert_eq!(json!(name), body["metadata"]["name"]);
            assert_eq!(series["series"]["count"], count);
        }
        assert!(
            matches!(told.tell(&event("b"), at(301)), Write::Create { .. }),
            "something else"
        );
        assert!(
            matches!(told.tell(&event("a"), at(700)), Write::Create { .. }),
            "too long ago"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded_and_notes_are_cut_between_letters() {
        let mut told = Told::new("operator-0");
        for number in 0..3 * REMEMBERED {
            told.tell(&event(&number.to_string()), at(0));
        }
        assert!(told.known.len() <= REMEMBERED);
        assert_eq!(short(&"ä".repeat(600)).chars().count(), 512);
    }

    #[tokio::test]
    async fn p32_events_are_written_with_the_time_of_the_clock() {
        let clients = Clients::of(ApiServer::new(Options::default()).client());
        let clock = crate::clock::TokioClock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
        let metrics = Metrics::default();
        let (sink, writer) = EventSink::new(&clients, Arc::new(clock), "operator-0", metrics.clone());
        sink.publish(event("kubelet did not start"));
        sink.publish(event("kubelet did not start"));
        drop(sink);
        writer.await;
        let api: Api<KubeEvent> = Api::namespaced(clients.api.clone(), "default");
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let [one] = all.as_slice() else {
            panic!("{all:?} {}", metrics.text())
        };
        assert_eq!(one.note.as_deref(), Some("kubelet did not start"));
        assert_eq!(one.series.as_ref().unwrap().count, 2);
        assert!(
            one.event_time
                .as_ref()
                .unwrap()
                .0
                .to_string()
                .starts_with("2026-01-02T03:04:05")
        );
    }
}
