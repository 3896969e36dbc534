//! How soon the operator goes on when a step has ended: from the write of whoever ended it to the operator's own next write, as the API server
//! sees them. In one process on the embedded server, as in the sandbox, one worker after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use afloat_api::labels;
use afloat_apisim::hooks::WriteObserver;
use afloat_apisim::store::{Change, ChangeKind, TableKey};
use afloat_bench::figures::{Figure, times};
use afloat_sim::tier2;
use anyhow::bail;
use serde_json::Value;

use crate::load;
use crate::server::{Embedded, define};
use crate::upgrade::{self, Wish};

const NODES: u32 = 36;
const WITHIN: Duration = Duration::from_mins(6);
/// What follows a step at once, in milliseconds; the bar of the design.
const BAR: f64 = 50.0;

/// What ends, and what begins then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handover {
    /// Everything is on the node: it is recorded as staged.
    Staged,
    /// The last pod has left, or there was none after the cordon: the pod with the steps is made.
    Drained,
    /// The last step has ended: the node is verified.
    Worked,
    /// A worker is done: the next one begins.
    Done,
}

impl Handover {
    fn words(self) -> &'static str {
        match self {
            Self::Staged => "brought to the node → staged",
            Self::Drained => "last pod gone → steps begin",
            Self::Worked => "last step ended → verifying",
            Self::Done => "worker done → the next begins",
        }
    }
}

#[derive(Default)]
struct Seen {
    /// When a task's pod had succeeded, by node and task.
    ended: BTreeMap<(String, String), Instant>,
    /// When a node was cordoned, or the last pod left it.
    emptied: BTreeMap<String, Instant>,
    worker_done: Option<Instant>,
    times: Vec<(Handover, Duration)>,
}

/// Sees every write, and takes the times between those that belong together.
#[derive(Default)]
struct Clerk(Mutex<Seen>);

impl Clerk {
    fn times(&self) -> Vec<(Handover, Duration)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).times.clone()
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn label<'a>(value: &'a Value, key: &str) -> &'a str {
    value["metadata"]["labels"][key].as_str().unwrap_or_default()
}

impl Seen {
    fn add(&mut self, handover: Handover, since: Option<Instant>, now: Instant) {
        if let Some(since) = since {
            self.times.push((handover, now.duration_since(since)));
        }
    }

    fn pod(&mut self, kind: ChangeKind, pod: &Value, before: &Value, now: Instant) {
        let (task, node) = (label(pod, labels::TASK), text(pod, "/spec/nodeName"));
        if task.is_empty() {
            if kind == ChangeKind::Deleted {
                self.emptied.insert(node.to_owned(), now);
            }
            return;
        }
        let node = label(pod, labels::NODE).to_owned();
        if kind == ChangeKind::Added && task == "upgrade" {
            let since = self.emptied.get(&node).copied();
            self.add(Handover::Drained, since, now);
        }
        let succeeded = |pod: &Value| text(pod, "/status/phase") == "Succeeded";
        if succeeded(pod) && !succeeded(before) {
            self.ended.insert((node, task.to_owned()), now);
        }
    }

    fn node_upgrade(&mut self, upgrade: &Value, before: &Value, now: Instant) {
        let state = text(upgrade, "/status/state");
        if state == text(before, "/status/state") {
            return;
        }
        let node = text(upgrade, "/spec/node/name");
        let worker = text(upgrade, "/spec/role") == "Worker";
        let ended = |seen: &Self, task: &str| seen.ended.get(&(node.to_owned(), task.to_owned())).copied();
        match state {
            "Staged" => self.add(Handover::Staged, ended(self, "stage"), now),
            "Verifying" => self.add(Handover::Worked, ended(self, "upgrade"), now),
            "Succeeded" if worker => self.worker_done = Some(now),
            "Draining" if worker => {
                let since = self.worker_done.take();
                self.add(Handover::Done, since, now);
            }
            _ => {}
        }
    }
}

impl WriteObserver for Clerk {
    fn on_write(&self, table: &TableKey, change: &Change) {
        let now = Instant::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, nothing) = (change.object.value(), Value::Null);
        let before = change.previous.as_ref().map_or(&nothing, |before| before.value());
        match table.plural.as_str() {
            "pods" => seen.pod(change.kind, value, before, now),
            "nodekubeadmupgrades" => seen.node_upgrade(value, before, now),
            "nodes" => {
                let cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
                if cordoned(value) && !cordoned(before) {
                    seen.emptied.insert(change.object.name().to_owned(), now);
                }
            }
            _ => {}
        }
    }
}

pub async fn measure() -> anyhow::Result<Vec<Figure>> {
    let embedded = Embedded::start();
    let clerk = Arc::new(Clerk::default());
    embedded.server.observe(Arc::clone(&clerk) as Arc<dyn WriteObserver>);
    let client = embedded.server.client();
    define(&client).await?;
    let shape = load::shape(NODES);
    let cluster = load::cluster(&shape, 10);
    let (world, clock) = upgrade::world(&client, cluster, Duration::from_mins(2), upgrade::quick()).await?;
    let config = tier2::operator(client.clone(), clock, world.health(), "bench");
    let operator = tokio::spawn(afloat_operator::run(config, std::future::pending()));
    let wish = Wish {
        at_once: 1,
        staged_at_once: None,
    };
    upgrade::ask(&client, wish).await?;
    let ended = upgrade::until_succeeded(&client, WITHIN).await;
    operator.abort();
    ended?;
    let all = clerk.times();
    if all.len() < 100 {
        bail!("only {} handovers were seen", all.len());
    }
    let mut figures = Vec::new();
    for handover in [Handover::Staged, Handover::Drained, Handover::Worked, Handover::Done] {
        let of = all.iter().filter(|(one, _)| *one == handover).map(|(_, time)| *time);
        figures.extend(times(handover.words(), of.collect(), BAR));
    }
    let every = all.iter().map(|(_, time)| *time).collect();
    figures.extend(times("a step's end → the next step's start, all of these", every, BAR));
    Ok(figures)
}
