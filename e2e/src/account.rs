//! What an upgrade cost, node by node: the time between its cordon and its end, cut into pieces, each with what filled it. The pieces
//! come from the node's object (states, steps) and from the journal on the machine. Nothing here asks a cluster.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::read::{list, text, time};

/// What fills a piece of time. All but `Overhead` is work that every upgrade of a node has to do.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Filling {
    /// Evicted pods end.
    PodShutdown,
    Kubeadm,
    Images,
    /// Kubelet, containerd and static pods end, start and become well.
    Parts,
    /// The node and its static pods become Ready in the eyes of the cluster.
    Ready,
    /// Everything else: Afloat's own.
    Overhead,
}

impl Filling {
    fn of(what: &str) -> Self {
        let begins = |words: &[&str]| words.iter().any(|word| what.starts_with(word));
        if begins(&["runs kubeadm", "lets kubeadm", "renders ", "renews certificates"]) {
            Self::Kubeadm
        } else if begins(&["imports images"]) {
            Self::Images
        } else if begins(&[
            "ends kube",
            "ends etcd",
            "stops the kubelet",
            "starts the kubelet",
            "restarts containerd",
            "waits for containerd",
            "waits until all parts",
            "waits for this node's etcd",
            "waits until the new etcd",
        ]) {
            Self::Parts
        } else if what == DRAIN {
            Self::PodShutdown
        } else if what == READY {
            Self::Ready
        } else {
            Self::Overhead
        }
    }
}

const DRAIN: &str = "pods leave";
const READY: &str = "the node becomes Ready";

/// One step of a node, as its object tells it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepTime {
    pub name: String,
    pub state: String,
    pub seconds: Option<f64>,
    pub message: String,
}

/// One node of an upgrade.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAccount {
    pub node: String,
    pub state: String,
    pub attempt: i64,
    pub steps: Vec<StepTime>,
    pub failure: String,
    /// From the cordon to the end of the attempt, in seconds: how long the node was out of service.
    pub window: Option<f64>,
    pub filled: BTreeMap<Filling, f64>,
    /// What the overhead is made of, longest first.
    pub overhead: Vec<(String, f64)>,
    /// The way a control plane was really taken, and why, as its machine wrote it down.
    pub way: Option<String>,
    /// Whether the machine has written anything down: without a journal neither the way nor the overhead is known.
    pub journalled: bool,
}

impl NodeAccount {
    /// The account of a node from its NodeKubeadmUpgrade, its journal, and the moment at which its parts were Ready again.
    pub fn of(upgrade: &Value, journal: &str, ready: Option<Timestamp>) -> Self {
        let status = &upgrade["status"];
        let attempt = status["attempt"].as_i64().unwrap_or(1);
        let mut account = Self {
            node: text(upgrade, "/spec/node/name"),
            state: text(upgrade, "/status/state"),
            attempt,
            steps: status["steps"].as_array().into_iter().flatten().map(step).collect(),
            failure: text(upgrade, "/status/failure/message"),
            window: None,
            filled: BTreeMap::new(),
            overhead: Vec::new(),
            way: way(journal),
            journalled: entries(journal).next().is_some(),
        };
        let history = history(status, attempt);
        let begun = history.iter().find(|(state, _)| state == "Draining");
        let ended = history.iter().rev().find(|(state, _)| over(state));
        if let (Some((_, begun)), Some((_, ended))) = (begun, ended) {
            account.window = Some(seconds(*begun, *ended));
            let mut marks = marks(&history, status, journal, ready);
            marks.retain(|(at, _)| at >= begun && at < ended);
            account.fill(&marks, *ended);
        }
        account
    }

    fn fill(&mut self, marks: &[(Timestamp, String)], ended: Timestamp) {
        let mut overhead: BTreeMap<&str, f64> = BTreeMap::new();
        let ends = marks.iter().skip(1).map(|(at, _)| *at).chain([ended]);
        for ((at, what), end) in marks.iter().zip(ends) {
            let filling = Filling::of(what);
            *self.filled.entry(filling).or_default() += seconds(*at, end);
            if filling == Filling::Overhead {
                *overhead.entry(what).or_default() += seconds(*at, end);
            }
        }
        self.overhead = overhead
            .into_iter()
            .map(|(what, took)| (what.to_owned(), took))
            .collect();
        self.overhead.sort_by(|one, other| other.1.total_cmp(&one.1));
    }

    pub fn seconds(&self, filling: Filling) -> f64 {
        self.filled.get(&filling).copied().unwrap_or_default()
    }

    /// The five longest pieces of the overhead.
    pub fn longest(&self) -> String {
        let longest = self.overhead.iter().take(5);
        let parts: Vec<String> = longest.map(|(what, took)| format!("{what} {took:.1}s")).collect();
        parts.join(", ")
    }
}

/// Whether an attempt is over with this state.
fn over(state: &str) -> bool {
    ["Succeeded", "RolledBack", "Failed"].contains(&state)
}

fn history(status: &Value, attempt: i64) -> Vec<(String, Timestamp)> {
    let records = status["history"].as_array().into_iter().flatten();
    let own = records.filter(|record| record["attempt"] == attempt);
    own.filter_map(|record| Some((text(record, "/state"), time(record, "/at")?)))
        .collect()
}

fn step(step: &Value) -> StepTime {
    let (begun, ended) = (time(step, "/startedAt"), time(step, "/finishedAt"));
    StepTime {
        name: text(step, "/name"),
        state: text(step, "/state"),
        seconds: begun.zip(ended).map(|(begun, ended)| seconds(begun, ended)),
        message: text(step, "/message"),
    }
}

/// Every moment at which something else began, in order.
fn marks(
    history: &[(String, Timestamp)],
    status: &Value,
    journal: &str,
    ready: Option<Timestamp>,
) -> Vec<(Timestamp, String)> {
    let mut marks = Vec::new();
    let written = written(journal);
    for step in status["steps"].as_array().into_iter().flatten() {
        let name = text(step, "/name");
        let own: Vec<_> = written.iter().filter(|line| line.step == name).collect();
        marks.extend(own.iter().map(|line| (line.at, line.what.clone())));
        // Kubernetes cuts off fractions: a step has not ended before the last thing it began.
        let last = own.iter().map(|line| line.at).max();
        if let Some(ended) = time(step, "/finishedAt") {
            let ended = last.map_or(ended, |last| ended.max(last));
            marks.push((ended, "from one step to the next".to_owned()));
        }
    }
    // The same fractions: the work of that second has ended before it is verified.
    let work: Vec<Timestamp> = marks.iter().map(|(at, _)| *at).collect();
    let after_work = |at: Timestamp| {
        let within = |work: &&Timestamp| **work >= at && seconds(at, **work) < 1.0;
        work.iter().filter(within).max().copied().unwrap_or(at)
    };
    for (state, at) in history {
        let (at, what) = match state.as_str() {
            "Draining" => (*at, DRAIN),
            "Verifying" => (after_work(*at), READY),
            _ => (*at, "the pod of the steps starts"),
        };
        marks.push((at, what.to_owned()));
        if let Some(ready) = ready.filter(|_| state == "Verifying") {
            marks.push((ready.max(at), "the end is seen and written down".to_owned()));
        }
    }
    marks.sort_by_key(|(at, _)| *at);
    marks
}

struct Line {
    step: String,
    what: String,
    at: Timestamp,
}

/// Each line of a journal is a checksum and an object.
fn entries(journal: &str) -> impl Iterator<Item = Value> {
    let lines = journal.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(_, json)| serde_json::from_str::<Value>(json).ok())
}

/// The way that was chosen, as `swift`.
fn way(journal: &str) -> Option<String> {
    let chosen = entries(journal).filter(|entry| entry["fact"][0] == "method");
    chosen.last().map(|entry| text(&entry, "/fact/1"))
}

/// What the journal says was begun, and when.
fn written(journal: &str) -> Vec<Line> {
    entries(journal)
        .filter_map(|entry| {
            let what = match entry["is"].as_str()? {
                "intent" => text(&entry, "/what"),
                "begun" => "a step is asked for".to_owned(),
                _ => return None,
            };
            Some(Line {
                step: text(&entry, "/step"),
                what,
                at: time(&entry, "/at")?,
            })
        })
        .collect()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// When everything on a node was Ready, as its pods of `kube-system` and the node itself say.
pub fn ready_since(node: &str, pods: &Value, nodes: &Value) -> Option<Timestamp> {
    let own = list(pods).iter().filter(|pod| pod["spec"]["nodeName"] == node);
    let itself = list(nodes).iter().filter(|one| one["metadata"]["name"] == node);
    own.chain(itself)
        .filter_map(|object| {
            let conditions = object["status"]["conditions"].as_array()?;
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
            time(ready, "/lastTransitionTime")
        })
        .max()
}

/// The whole run, as a table.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    pub nodes: Vec<NodeAccount>,
    /// API requests that failed while a node was worked on, by node.
    pub lost: BTreeMap<String, u64>,
    pub pages_lost: BTreeMap<String, u64>,
}

impl Account {
    /// What is not known of these nodes: what is said of all nodes says nothing of one that is not there.
    pub fn lacks(&self, nodes: &[&str]) -> Vec<String> {
        let mut lacks = Vec::new();
        for name in nodes {
            let Some(node) = self.nodes.iter().find(|node| node.node == *name) else {
                lacks.push(format!("{name} has no account"));
                continue;
            };
            if node.window.is_none() {
                lacks.push(format!("{name} has no time out of service"));
            }
            if !node.journalled {
                lacks.push(format!("{name} has no journal"));
            }
        }
        lacks
    }
}

impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            writeln!(out, "{} {} (attempt {})", node.node, node.state, node.attempt)?;
            for step in &node.steps {
                let took = step.seconds.map(|took| format!("{took:.0}s")).unwrap_or_default();
                writeln!(
                    out,
                    "    {:<12} {:<10} {took:>5}  {}",
                    step.name, step.state, step.message
                )?;
            }
            if !node.failure.is_empty() {
                writeln!(out, "    failed: {}", node.failure)?;
            }
        }
        writeln!(
            out,
            "\n{:<8} {:<11} {:>8} {:>9} {:>8} {:>7} {:>6} {:>6} {:>9} {:>5} {:>6}",
            "NODE", "STATE", "WINDOW", "POD-END", "KUBEADM", "IMAGES", "PARTS", "READY", "OVERHEAD", "LOST", "PAGES"
        )?;
        for node in &self.nodes {
            let cell = |filling| format!("{:.1}", node.seconds(filling));
            let lost = |of: &BTreeMap<String, u64>| of.get(&node.node).copied().unwrap_or_default();
            writeln!(
                out,
                "{:<8} {:<11} {:>8} {:>9} {:>8} {:>7} {:>6} {:>6} {:>9} {:>5} {:>6}",
                node.node,
                node.state,
                node.window.map(|took| format!("{took:.1}s")).unwrap_or_default(),
                cell(Filling::PodShutdown),
                cell(Filling::Kubeadm),
                cell(Filling::Images),
                cell(Filling::Parts),
                cell(Filling::Ready),
                cell(Filling::Overhead),
                lost(&self.lost),
                lost(&self.pages_lost),
            )?;
        }
        for node in self.nodes.iter().filter(|node| !node.overhead.is_empty()) {
            writeln!(out, "overhead of {}: {}", node.node, node.longest())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_second_between_cordon_and_end_is_accounted_for() {
        let at = |second: u32| format!("2026-01-02T03:04:{second:02}Z");
        let record = |state: &str, second| json!({"state": state, "at": at(second), "attempt": 1});
        let step = |name: &str, begun, ended| json!({"name": name, "state": "Succeeded", "startedAt": at(begun), "finishedAt": at(ended)});
        let upgrade = json!({
            "spec": {"node": {"name": "w-1"}},
            "status": {
                "state": "Succeeded", "attempt": 1,
                "history": [record("Staged", 0), record("Draining", 5), record("Upgrading", 9), record("Verifying", 22), record("Succeeded", 27)],
                "steps": [step("stage", 1, 3), step("kubeadm", 10, 15), step("kubelet", 16, 21)],
            },
        });
        let line = |entry: Value| format!("0123456789abcdef {entry}\n");
        let intent = |step: &str, what: &str, second| {
            line(json!({"is": "intent", "step": step, "what": what, "at": at(second)}))
        };
        let journal = [
            line(json!({"is": "done", "step": "kubeadm", "number": 4, "fact": ["method", "conservative: asked for"]})),
            line(json!({"is": "begun", "step": "kubeadm", "at": at(11)})),
            intent("kubeadm", "runs kubeadm upgrade", 12),
            intent("kubelet", "waits until all parts of the node are well", 17),
            "torn".to_owned(),
        ]
        .concat();
        let account = NodeAccount::of(&upgrade, &journal, Some(at(25).parse().unwrap()));
        assert_eq!(account.way.as_deref(), Some("conservative: asked for"));
        assert_eq!(account.window, Some(22.0));
        let filled: Vec<(Filling, f64)> = account.filled.clone().into_iter().collect();
        assert_eq!(
            filled,
            [
                (Filling::PodShutdown, 4.0),
                (Filling::Kubeadm, 3.0),
                (Filling::Parts, 4.0),
                (Filling::Ready, 3.0),
                (Filling::Overhead, 8.0)
            ]
        );
        assert_eq!(account.overhead[0], ("from one step to the next".to_owned(), 3.0));
        let table = Account {
            nodes: vec![account],
            ..Account::default()
        };
        assert!(table.to_string().contains("overhead of w-1: from one step"), "{table}");
    }

    #[test]
    fn the_wait_for_ready_parts_is_no_overhead_where_the_last_step_ended_within_its_second() {
        let upgrade = json!({
            "spec": {"node": {"name": "cp-2"}},
            "status": {
                "state": "Succeeded", "attempt": 1,
                "history": [
                    {"state": "Draining", "at": "2026-01-02T03:04:05Z", "attempt": 1},
                    {"state": "Verifying", "at": "2026-01-02T03:04:10Z", "attempt": 1},
                    {"state": "Succeeded", "at": "2026-01-02T03:04:25Z", "attempt": 1},
                ],
                "steps": [{"name": "come-back", "state": "Succeeded",
                    "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:10Z"}],
            },
        });
        let journal = "0123456789abcdef {\"is\":\"intent\",\"step\":\"come-back\",\"what\":\"takes connections\",\"at\":\"2026-01-02T03:04:10.4Z\"}\n";
        let account = NodeAccount::of(&upgrade, journal, Some("2026-01-02T03:04:24Z".parse().unwrap()));
        assert!((account.seconds(Filling::Ready) - 13.6).abs() < 0.01, "{account:?}");
        assert!((account.seconds(Filling::Overhead) - 1.0).abs() < 0.01, "{account:?}");
    }

    #[test]
    fn what_an_account_does_not_tell_is_named() {
        let upgrade = |node: &str, last: &str| {
            json!({"spec": {"node": {"name": node}}, "status": {"state": last, "attempt": 1, "history": [
                {"state": "Draining", "at": "2026-01-02T03:04:05Z", "attempt": 1},
                {"state": last, "at": "2026-01-02T03:04:25Z", "attempt": 1},
            ]}})
        };
        let journal = "0123456789abcdef {\"is\":\"opened\",\"plan\":{}}\n";
        let account = Account {
            nodes: vec![
                NodeAccount::of(&upgrade("cp-1", "Succeeded"), journal, None),
                NodeAccount::of(&upgrade("cp-2", "Succeeded"), "", None),
                NodeAccount::of(&upgrade("w-1", "Upgrading"), journal, None),
            ],
            ..Account::default()
        };
        assert_eq!(
            account.lacks(&["cp-1", "cp-2", "w-1", "w-2"]),
            [
                "cp-2 has no journal",
                "w-1 has no time out of service",
                "w-2 has no account"
            ]
        );
    }

    #[test]
    fn an_attempt_that_did_not_end_has_no_window() {
        let upgrade = json!({"spec": {"node": {"name": "w-1"}}, "status": {"state": "Draining", "attempt": 1}});
        let account = NodeAccount::of(&upgrade, "", None);
        assert_eq!((account.window, account.filled.len()), (None, 0));
    }
}
