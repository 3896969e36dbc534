//! What was written, in order, and the rules that must never break, looked at after every write. It knows nothing of how the
//! operator decides: it has its own small memory of the nodes, from what the API server holds. The rules that need more than
//! that (what an operator could have known, what a machine did) are in tier 1.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use afloat_api::{annotations, labels};
use afloat_apisim::Verb;
use afloat_apisim::hooks::{RequestInfo, WriteObserver};
use afloat_apisim::store::{Change, ChangeKind, TableKey};
use afloat_sim::clock::Clock;
use afloat_sim::tier2::HOME;
use serde_json::Value;

use crate::weather::Hears;

/// Writes that are not about the upgrade: who leads, and what is told about it.
const BESIDE: [&str; 2] = ["leases", "events"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Machine {
    control_plane: bool,
    version: String,
    unschedulable: bool,
    cordoned_by_us: bool,
}

#[derive(Default)]
struct Memory {
    nodes: BTreeMap<String, Machine>,
    broken: Vec<String>,
    trace: String,
    digest: u64,
    writes: u64,
    asked: u64,
    writes_asked: u64,
    evictions: u64,
}

/// The record of a trial.
pub struct Record {
    clock: Clock,
    keep: bool,
    max_unavailable: usize,
    from: String,
    memory: Mutex<Memory>,
}

/// What a record says in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub broken: Vec<String>,
    /// Line by line, where it was asked for.
    pub trace: String,
    /// Of the trace: the same for the same seed.
    pub digest: u64,
    pub writes: u64,
    /// Requests of the operator that reached the server.
    pub asked: u64,
    pub evictions: u64,
}

impl Record {
    pub fn new(clock: Clock, keep_trace: bool, max_unavailable: usize, from: &str) -> Self {
        Self {
            clock,
            keep: keep_trace,
            max_unavailable,
            from: from.to_owned(),
            memory: Mutex::new(Memory::default()),
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn said(&self) -> Said {
        let memory = self.memory();
        Said {
            broken: memory.broken.clone(),
            trace: memory.trace.clone(),
            digest: memory.digest,
            writes: memory.writes,
            asked: memory.asked,
            evictions: memory.evictions,
        }
    }

    /// So many writes the operator has asked for, but for those that are not about the upgrade.
    pub fn writes_asked(&self) -> u64 {
        self.memory().writes_asked
    }

    /// A rule was broken that only the whole can show.
    pub fn breaks(&self, what: String) {
        self.memory().broken.push(what);
    }

    fn node_written(&self, memory: &mut Memory, name: &str, node: &Value) {
        let now = machine(node);
        let before = memory.nodes.insert(name.to_owned(), now.clone()).unwrap_or_default();
        let cordoned = |control_plane: bool| {
            let held = memory.nodes.values();
            held.filter(|machine| machine.control_plane == control_plane && machine.cordoned_by_us)
                .count()
        };
        if now.cordoned_by_us && !before.cordoned_by_us {
            let most = if now.control_plane { 1 } else { self.max_unavailable };
            let rule = if now.control_plane { 2 } else { 1 };
            let out = cordoned(now.control_plane);
            if out > most {
                memory.broken.push(format!(
                    "rule {rule}: {name} makes {out} that are cordoned; {most} may be"
                ));
            }
        }
        let moved = !before.version.is_empty() && before.version != now.version;
        if moved && !now.unschedulable {
            memory.broken.push(format!(
                "rule 5: {name} moves from {} to {} while it takes pods",
                before.version, now.version
            ));
        }
        let up = moved && before.version == self.from;
        let behind = memory
            .nodes
            .iter()
            .find(|(_, machine)| machine.control_plane && machine.version == self.from)
            .map(|(name, _)| name.clone());
        if let Some(plane) = behind.filter(|_| up && !now.control_plane) {
            memory
                .broken
                .push(format!("rule 4: worker {name} goes before control plane {plane}"));
        }
    }

    /// Nothing of ours is left on the nodes.
    pub fn assert_nothing_left(&self) {
        let mut memory = self.memory();
        let left: Vec<String> = memory
            .nodes
            .iter()
            .filter(|(_, machine)| machine.cordoned_by_us)
            .map(|(name, _)| format!("rule 7: {name} is left cordoned"))
            .collect();
        memory.broken.extend(left);
    }

    /// The version of each node.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let memory = self.memory();
        let version = |(name, machine): (&String, &Machine)| (name.clone(), machine.version.clone());
        memory.nodes.iter().map(version).collect()
    }
}

impl Hears for Record {
    /// The operator asked for something, and the server does it.
    fn asked(&self, request: &RequestInfo<'_>) {
        let mut memory = self.memory();
        memory.asked += 1;
        let plural = request.resource.plural.as_str();
        let reads = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        if reads || BESIDE.contains(&plural) {
            return;
        }
        memory.writes_asked += 1;
        if plural != "pods" {
            return;
        }
        if request.subresource == "eviction" {
            memory.evictions += 1;
        } else if request.verb == Verb::Delete && request.namespace != HOME {
            let what = format!(
                "rule 8: pod {}/{} is deleted past its budgets",
                request.namespace, request.name
            );
            memory.broken.push(what);
        }
    }
}

fn machine(node: &Value) -> Machine {
    let text = |pointer: &str| node.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let metadata = |part: &str, key: &str| !node["metadata"][part][key].is_null();
    Machine {
        control_plane: metadata("labels", labels::CONTROL_PLANE_NODE),
        version: text("/status/nodeInfo/kubeletVersion").to_owned(),
        unschedulable: node["spec"]["unschedulable"].as_bool().unwrap_or(false),
        cordoned_by_us: metadata("annotations", annotations::CORDONED_BY),
    }
}

/// FNV-1a, carried on.
fn mixed(digest: u64, bytes: &[u8]) -> u64 {
    let start = if digest == 0 { 0xcbf2_9ce4_8422_2325 } else { digest };
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl WriteObserver for Record {
    fn on_write(&self, table: &TableKey, change: &Change) {
        let word = match change.kind {
            ChangeKind::Added => "+",
            ChangeKind::Modified => "~",
            ChangeKind::Deleted => "-",
        };
        let mut memory = self.memory();
        let mut line = String::with_capacity(80);
        let _ = writeln!(
            line,
            "{} {} {word} {} {} {:016x}",
            change.revision,
            self.clock.now(),
            table.plural,
            change.key,
            mixed(0, change.object.body()),
        );
        memory.digest = mixed(memory.digest, line.as_bytes());
        memory.writes += 1;
        if self.keep {
            memory.trace.push_str(&line);
        }
        if table.plural == "nodes" {
            match change.kind {
                ChangeKind::Deleted => {
                    memory.nodes.remove(change.object.name());
                }
                ChangeKind::Added | ChangeKind::Modified => {
                    self.node_written(&mut memory, change.object.name(), change.object.value());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_apisim::store::Object;
    use serde_json::json;

    fn record() -> Record {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        Record::new(clock, false, 1, "v1.35.4")
    }

    /// A Node is written: its name tells what it is, `ours` that Afloat cordoned it.
    fn written(record: &Record, name: &str, version: &str, cordoned: bool, ours: bool) {
        let labels = if name.starts_with("cp-") {
            json!({ labels::CONTROL_PLANE_NODE: "" })
        } else {
            json!({})
        };
        let annotations = if ours {
            json!({ annotations::CORDONED_BY: "uid" })
        } else {
            json!({})
        };
        let value = json!({
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "unschedulable": cordoned },
            "status": { "nodeInfo": { "kubeletVersion": version } },
        });
        let table = TableKey {
            group: String::new(),
            plural: "nodes".to_owned(),
        };
        let change = Change {
            revision: 1,
            kind: ChangeKind::Modified,
            key: name.into(),
            object: Object::new(value, 1),
            previous: None,
        };
        record.on_write(&table, &change);
    }

    fn broken(record: &Record) -> Vec<String> {
        let words = |text: String| text.split(':').next().unwrap_or_default().to_owned();
        record.said().broken.into_iter().map(words).collect()
    }

    #[tokio::test]
    async fn each_rule_is_seen_to_break() {
        const OLD: &str = "v1.35.4";
        const NEW: &str = "v1.36.3";
        /// Nodes as written: name, version, cordoned, by us.
        type Written = &'static [(&'static str, &'static str, bool, bool)];
        let cases: [(&[&str], Written); 6] = [
            (
                &[],
                &[
                    ("w-1", OLD, true, true),
                    ("w-1", OLD, false, false),
                    ("w-2", OLD, true, true),
                ],
            ),
            (&["rule 1"], &[("w-1", OLD, true, true), ("w-2", OLD, true, true)]),
            (&["rule 2"], &[("cp-1", OLD, true, true), ("cp-2", OLD, true, true)]),
            (&["rule 5"], &[("cp-1", OLD, false, false), ("cp-1", NEW, false, false)]),
            (
                &["rule 4"],
                &[
                    ("cp-1", OLD, false, false),
                    ("w-1", OLD, true, true),
                    ("w-1", NEW, true, true),
                ],
            ),
            (
                &[],
                &[
                    ("cp-1", OLD, true, true),
                    ("cp-1", NEW, true, true),
                    ("w-1", OLD, true, true),
                    ("w-1", NEW, true, true),
                ],
            ),
        ];
        for (rules, writes) in cases {
            let record = record();
            for (name, version, cordoned, ours) in writes {
                written(&record, name, version, *cordoned, *ours);
            }
            assert_eq!(broken(&record), rules, "{writes:?}");
        }
        let record = record();
        written(&record, "w-1", OLD, true, true);
        record.assert_nothing_left();
        assert_eq!(broken(&record), ["rule 7"]);
    }
}
