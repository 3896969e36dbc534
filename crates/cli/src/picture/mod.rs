//! The state of a cluster as people are shown it: taken from a view, without I/O, the same for the live table, for
//! the change lines and for `-o json`. How it is laid out is in `text`, what changed between two moments in `lines`.

pub mod lines;
pub mod text;

use afloat_sim::object::{label, name, namespace};
use afloat_sim::quantity::{Amount, requested};
use afloat_sim::view::{View, is_active, is_node_ready, is_ready, is_terminal, node_of, phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;

/// A cluster at a moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    pub time: Timestamp,
    pub version: String,
    /// What is still on its way; empty when the cluster has settled.
    pub unsettled: Vec<String>,
    pub nodes: Vec<NodeRow>,
    pub pods: PodCounts,
    pub budgets: Vec<BudgetRow>,
    pub events: Vec<EventRow>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    pub role: &'static str,
    pub version: String,
    pub state: &'static str,
    pub cordoned: bool,
    pub pods: usize,
    /// What pods asked for and what there is, in thousandths of a core and in MiB.
    pub cpu_requested: u64,
    pub cpu_allocatable: u64,
    pub memory_requested: u64,
    pub memory_allocatable: u64,
    pub note: String,
    pub zone: String,
    pub address: String,
    pub runtime: String,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PodCounts {
    pub ready: usize,
    pub starting: usize,
    /// Without a node.
    pub waiting: usize,
    pub ending: usize,
    pub succeeded: usize,
    pub failed: usize,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRow {
    pub namespace: String,
    pub name: String,
    pub allowed: i32,
    pub healthy: i32,
    pub desired: i32,
    pub expected: i32,
    pub note: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRow {
    pub time: Timestamp,
    pub object: String,
    pub reason: String,
    pub message: String,
    pub warning: bool,
}

/// Events kept in a picture.
const EVENTS: usize = 8;

impl Picture {
    pub fn of(view: &View, version: &str, expected_nodes: usize, now: Timestamp) -> Self {
        let mut nodes: Vec<NodeRow> = view.nodes.values().map(|node| node_row(node, view)).collect();
        nodes.sort_by_key(|row| (row.role, natural(&row.name)));
        let mut pods = PodCounts::default();
        for pod in view.pods.values() {
            pods.count(pod);
        }
        let mut budgets: Vec<BudgetRow> = view.budgets.values().map(|budget| budget_row(budget)).collect();
        budgets.sort_by(|a, b| (a.allowed, &a.namespace, &a.name).cmp(&(b.allowed, &b.namespace, &b.name)));
        Self {
            time: now,
            version: version.to_owned(),
            unsettled: unsettled(view, &nodes, &pods, expected_nodes),
            nodes,
            pods,
            budgets,
            events: events(view),
        }
    }

    pub fn ready_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == "Ready").count()
    }
}

impl PodCounts {
    fn count(&mut self, pod: &Pod) {
        let counter = match phase(pod) {
            "Succeeded" => &mut self.succeeded,
            "Failed" => &mut self.failed,
            _ if pod.metadata.deletion_timestamp.is_some() => &mut self.ending,
            _ if is_ready(pod) => &mut self.ready,
            _ if node_of(pod).is_none() => &mut self.waiting,
            _ => &mut self.starting,
        };
        *counter += 1;
    }

    /// Pods that are there to stay, ready or not.
    pub fn meant_to_run(&self) -> usize {
        self.ready + self.starting + self.waiting
    }
}

fn node_row(node: &Node, view: &View) -> NodeRow {
    let meta = &node.metadata;
    let status = node.status.clone().unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let (mut asked, mut pods, mut starting, mut ending) = (Amount::default(), 0, 0, 0);
    for pod in view.pods_on(name(meta)).filter(|pod| !is_terminal(pod)) {
        asked.add(requested(pod));
        pods += 1;
        ending += usize::from(!is_active(pod));
        starting += usize::from(is_active(pod) && !is_ready(pod));
    }
    let have = Amount::of(status.allocatable.as_ref());
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let state = match ready.map(|condition| condition.status.as_str()) {
        Some("True") => "Ready",
        Some("Unknown") => "Unknown",
        Some(_) => "NotReady",
        None => "Starting",
    };
    let mut notes = Vec::new();
    if cordoned {
        notes.push("cordoned".to_owned());
    }
    if state != "Ready" {
        notes.extend(ready.and_then(|condition| condition.message.clone()));
    }
    notes.extend(some(starting, "starting"));
    notes.extend(some(ending, "ending"));
    let control_plane = label(meta, "node-role.kubernetes.io/control-plane").is_some();
    let address = status
        .addresses
        .iter()
        .flatten()
        .find(|address| address.type_ == "InternalIP");
    NodeRow {
        name: name(meta).to_owned(),
        role: if control_plane { "control-plane" } else { "worker" },
        version: info.kubelet_version,
        state,
        cordoned,
        pods,
        cpu_requested: asked.cpu,
        cpu_allocatable: have.cpu,
        memory_requested: mebibytes(asked.memory),
        memory_allocatable: mebibytes(have.memory),
        note: notes.join(", "),
        zone: label(meta, "topology.kubernetes.io/zone")
            .unwrap_or_default()
            .to_owned(),
        address: address.map(|address| address.address.clone()).unwrap_or_default(),
        runtime: info.container_runtime_version,
    }
}

fn mebibytes(milli: u64) -> u64 {
    milli / 1000 / 1_048_576
}

fn some(number: usize, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 pod {what}")),
        number => Some(format!("{number} pods {what}")),
    }
}

fn budget_row(budget: &PodDisruptionBudget) -> BudgetRow {
    let status = budget.status.clone().unwrap_or_default();
    let full = status.expected_pods > 0 && status.disruptions_allowed == 0;
    let note = if full && status.current_healthy >= status.expected_pods {
        "all its pods must stay: their nodes cannot be drained".to_owned()
    } else if full {
        format!("waits for {} healthy", status.desired_healthy + 1)
    } else {
        String::new()
    };
    BudgetRow {
        namespace: namespace(&budget.metadata).to_owned(),
        name: name(&budget.metadata).to_owned(),
        allowed: status.disruptions_allowed,
        healthy: status.current_healthy,
        desired: status.desired_healthy,
        expected: status.expected_pods,
        note,
    }
}

fn event_time(event: &Event) -> Option<Timestamp> {
    event
        .last_timestamp
        .as_ref()
        .map(|time| time.0)
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn events(view: &View) -> Vec<EventRow> {
    let mut recent: Vec<&Event> = view.events.values().map(AsRef::as_ref).collect();
    let revision = |event: &Event| {
        event
            .metadata
            .resource_version
            .as_deref()
            .and_then(|v| v.parse::<u64>().ok())
    };
    let keep = recent.len().saturating_sub(EVENTS);
    recent.sort_by_key(|event| (event_time(event), revision(event)));
    recent
        .into_iter()
        .skip(keep)
        .filter_map(|event| {
            let object = &event.involved_object;
            let kind = object.kind.clone().unwrap_or_default().to_lowercase();
            let place = object
                .namespace
                .as_ref()
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default();
            Some(EventRow {
                time: event_time(event)?,
                object: format!("{kind}/{place}{}", object.name.clone().unwrap_or_default()),
                reason: event.reason.clone().unwrap_or_default(),
                message: event.message.clone().unwrap_or_default(),
                warning: event.type_.as_deref() == Some("Warning"),
            })
        })
        .collect()
}

/// What the cluster still has to do before it is as its objects ask for.
fn unsettled(view: &View, nodes: &[NodeRow], pods: &PodCounts, expected_nodes: usize) -> Vec<String> {
    let mut open = Vec::new();
    let ready = view.nodes.values().filter(|node| is_node_ready(node)).count();
    let all = nodes.len().max(expected_nodes);
    if ready < all {
        open.push(format!("{ready} of {all} nodes ready"));
    }
    let moving = pods.starting + pods.waiting + pods.ending;
    if moving > 0 {
        let names = view.pods.values().filter(|pod| is_moving(pod));
        let first = names
            .map(|pod| format!("{}/{}", namespace(&pod.metadata), name(&pod.metadata)))
            .next();
        open.push(format!(
            "{moving} pods on their way ({} first)",
            first.unwrap_or_default()
        ));
    }
    let short = workloads(view).filter(|workload| workload.have < workload.want);
    open.extend(
        short
            .map(|w| format!("{} has {} of {}", w.name, w.have, w.want))
            .take(3),
    );
    let unseen = view.budgets.values().filter(|budget| {
        let seen = budget.status.as_ref().and_then(|status| status.observed_generation);
        seen != budget.metadata.generation
    });
    open.extend(
        unseen
            .map(|budget| format!("budget {} not counted yet", name(&budget.metadata)))
            .take(1),
    );
    open
}

/// Neither ended nor up: starting, waiting for a place, or on its way out.
fn is_moving(pod: &Pod) -> bool {
    let up = is_active(pod) && is_ready(pod);
    !up && !is_terminal(pod)
}

struct Workload {
    name: String,
    have: i32,
    want: i32,
}

fn workloads(view: &View) -> impl Iterator<Item = Workload> + '_ {
    let named = |kind: &str, meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        format!("{kind}/{}/{}", namespace(meta), name(meta))
    };
    let deployments = view.deployments.values().map(move |deployment| Workload {
        name: named("deploy", &deployment.metadata),
        have: deployment
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0),
        want: deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
    });
    let stateful = view.stateful_sets.values().map(move |set| Workload {
        name: named("sts", &set.metadata),
        have: set
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0),
        want: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
    });
    let daemons = view.daemon_sets.values().map(move |set| {
        let status = set.status.clone().unwrap_or_default();
        Workload {
            name: named("ds", &set.metadata),
            have: status.number_available.unwrap_or(0),
            // A set nobody has counted yet wants at least one.
            want: if status.observed_generation.is_none() {
                1
            } else {
                status.desired_number_scheduled
            },
        }
    });
    deployments.chain(stateful).chain(daemons)
}

/// Sorts `worker-10` after `worker-9`.
fn natural(text: &str) -> (String, u64) {
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = text.split_at(text.len() - digits);
    (stem.to_owned(), number.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests;
