//! What a kubelet tells of its machine once somebody works on it: its own version, and the static pods as they really are. A
//! static pod whose image changed gets a new mirror, as upstream; one that restarted gets a new start time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::Kubelet;
use crate::actor::Turn;
use crate::events::second;
use crate::object::{Key, Kind};
use crate::request::Request;
use afloat_simhost::StaticPart;

/// What was last told of each static pod, and the state of the object it was told about.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Key, (Condition, Option<String>)>);

/// Whether a part is ready, and since when it runs.
type Condition = (bool, Option<Timestamp>);

impl Told {
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn reported_version(node: &Node) -> Option<&str> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    Some(&info.kubelet_version)
}

impl Kubelet {
    /// The requests that bring the API server's picture of the machine up to date.
    pub(super) fn reflect(&mut self, turn: &Turn<'_>) -> Vec<Request> {
        let Some(hosted) = self.hosted.as_ref().filter(|hosted| hosted.host.kubelet_running()) else {
            return Vec::new();
        };
        let mut requests = Vec::new();
        let version = hosted.host.kubelet_version().map(str::to_owned);
        let mut parts = hosted.host.static_parts();
        for part in &mut parts {
            part.started_at = hosted.outside(part.started_at);
        }
        // As long as the API server does not show it: a report may be lost, and the next would come minutes later.
        if let Some(node) = turn.view.node(&self.machine.name)
            && let Some(version) = version.filter(|version| reported_version(node) != Some(version.as_str()))
        {
            self.machine.version = version;
            requests.push(self.report(node, true, turn.now));
        }
        for index in 0..self.machine.static_pods.len() {
            requests.extend(self.reflect_part(index, &parts, turn));
        }
        requests
    }

    fn reflect_part(&mut self, index: usize, parts: &[StaticPart], turn: &Turn<'_>) -> Option<Request> {
        let static_pod = self.machine.static_pods.get(index)?;
        let key = Key::new("kube-system", static_pod.name_on(&self.machine));
        let part = parts.iter().find(|part| part.name == static_pod.component);
        let image = part.map(|part| with_tag(&static_pod.image, &part.version));
        let pod = turn.view.pods.get(&key)?;
        if let Some(image) = image.filter(|image| image_of(pod) != Some(image.as_str())) {
            self.machine.static_pods.get_mut(index)?.image = image;
            self.told.forget(&key);
            return Some(Request::delete(Kind::Pod, &pod.metadata, Some(0)).best_effort());
        }
        let now = (part.is_some_and(|part| part.ready), part.map(|part| part.started_at));
        let seen = &pod.metadata.resource_version;
        // Reports of two looks may overtake each other on their way: what the API server shows in the end counts.
        let told = |(told, about): &(Condition, Option<String>)| *told == now && (about == seen || shows(pod, now));
        if self.told.0.get(&key).is_some_and(told) {
            return None;
        }
        self.told.0.insert(key, (now, seen.clone()));
        let status = part_status(pod, &self.machine.address, now, turn.now);
        Some(Request::patch_status(Kind::Pod, &pod.metadata, &status))
    }
}

fn shows(pod: &Pod, (ready, started): Condition) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).is_some_and(|container| {
        let state = container.state.as_ref().and_then(|state| state.running.as_ref());
        let since = state.and_then(|running| running.started_at.as_ref());
        container.ready == ready && since.map(|time| time.0.as_second()) == started.map(Timestamp::as_second)
    })
}

fn image_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

fn with_tag(image: &str, tag: &str) -> String {
    let name = image.rsplit_once(':').map_or(image, |(name, _)| name);
    format!("{name}:{tag}")
}

fn part_status(pod: &Pod, address: &str, (ready, started): Condition, now: Timestamp) -> Value {
    let word = if ready { "True" } else { "False" };
    let conditions: Vec<Value> = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .iter()
    .map(|kind| {
        let holds = if kind.ends_with("Ready") { word } else { "True" };
        json!({ "type": kind, "status": holds, "lastProbeTime": null, "lastTransitionTime": second(now) })
    })
    .collect();
    let state = match started {
        Some(started) => json!({ "running": { "startedAt": second(started) } }),
        None => json!({ "waiting": { "reason": "ContainerCreating" } }),
    };
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "restartCount": 0,
                "ready": ready,
                "started": started.is_some(),
                "state": state,
            })
        })
        .collect();
    let running = if started.is_some() { "Running" } else { "Pending" };
    json!({
        "phase": running,
        "hostIP": address,
        "podIP": address,
        "startTime": second(started.unwrap_or(now)),
        "conditions": conditions,
        "containerStatuses": containers,
    })
}
