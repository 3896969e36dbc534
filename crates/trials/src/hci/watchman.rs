//! The rules of a Harvester-like cluster that must never break, looked at with every write. It has its own small memory of nodes,
//! machines and Jobs, and knows nothing of how anybody decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use afloat_apisim::hooks::{RequestInfo, WriteObserver};
use afloat_apisim::store::{Change, ChangeKind, TableKey};
use afloat_sim::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::weather::Hears;

const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";
const RUN_BEFORE: &str = "afloat.dev/run-before";
/// On a plan secret: its node, as the simulated Rancher writes it down.
const SIM_NODE: &str = "afloat.dev/sim-node";
const IN_FLIGHT: [&str; 4] = ["Pre-draining", "Pre-drained", "Post-draining", "Waiting Reboot"];
/// Writes that are not about the upgrade; Longhorn rebuilds replicas long after one.
const BESIDE: [&str; 4] = ["leases", "events", "volumes", "engines"];

const PENDING: &str = "afloat.dev/upgrade-pending";
/// The budget that guards a machine while it moves, before the name of its migration.
const GUARD: &str = "kubevirt-migration-pdb-";
/// How long it may take until everybody has seen what was written.
const UNTIL_SEEN: SignedDuration = SignedDuration::from_secs(30);

/// How long a request may be under way: one that was sent before a person ended an upgrade comes all the same, as nothing that is made can name
/// the state of another object as its condition. (`weather` delays by up to three seconds.)
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(4);

#[derive(Clone, Debug, Default)]
struct Node {
    ready: bool,
    paused: bool,
    os: String,
    /// It says that it is not done.
    pending: bool,
}

#[derive(Default)]
struct Memory {
    nodes: BTreeMap<String, Node>,
    /// States of nodes by the Upgrade that says so.
    states: BTreeMap<String, BTreeMap<String, String>>,
    /// Upgrades after which nothing new may begin, deleted or aborted, and since when.
    ending: BTreeMap<String, Timestamp>,
    /// When what is written now is written.
    now: Timestamp,
    /// Nodes that have ever said that they are not done.
    told: BTreeSet<String>,
    /// Volumes that have not all their replicas, and engines that have not two whole ones, since when.
    degraded: BTreeMap<String, Timestamp>,
    thin: BTreeMap<String, Timestamp>,
    /// Budgets of migrations: the node that is left, and since when.
    guards: BTreeMap<String, (String, Timestamp)>,
    recorded: BTreeMap<String, BTreeSet<String>>,
    stops: BTreeMap<String, usize>,
    /// Nodes by Jobs before a drain that have ended well, as `kind/node`.
    complete: BTreeSet<String>,
    begun: BTreeSet<String>,
    asked_for: BTreeSet<String>,
    words: BTreeSet<String>,
    writes: u64,
    broken: Vec<String>,
}

/// Sees every write.
pub struct Watchman {
    clock: Clock,
    memory: Mutex<Memory>,
}

impl Watchman {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was broken so far.
    pub fn broken(&self) -> Vec<String> {
        self.memory().broken.clone()
    }

    /// How many virtual machines were stopped for their node.
    pub fn stops(&self) -> usize {
        self.memory().stops.values().sum()
    }

    /// Whether something was said by any Upgrade or event so far.
    pub fn heard(&self, words: &str) -> bool {
        self.memory().words.iter().any(|said| said.contains(words))
    }

    /// So many writes of anybody's, but for those that are not about the upgrade.
    pub fn writes(&self) -> u64 {
        self.memory().writes
    }
}

impl Hears for Watchman {
    fn asked(&self, _: &RequestInfo<'_>) {}
}

impl Memory {
    fn node(&mut self, name: &str, value: &Value) {
        let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let mut taints = value["spec"]["taints"].as_array().into_iter().flatten();
        let node = Node {
            ready: conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
            paused: !value["metadata"]["annotations"][PAUSE].is_null(),
            os: text(&value["status"]["nodeInfo"]["osImage"]),
            pending: taints.any(|taint| taint["key"] == PENDING),
        };
        if node.pending {
            self.told.insert(name.to_owned());
        }
        self.nodes.insert(name.to_owned(), node);
    }

    fn upgrade(&mut self, name: &str, value: &Value) {
        let statuses = value["status"]["nodeStatuses"].as_object().into_iter().flatten();
        let mut states = BTreeMap::new();
        for (node, status) in statuses {
            let state = text(&status["state"]);
            self.words.insert(format!("{state} {}", text(&status["message"])));
            states.insert(node.clone(), state);
        }
        let flying: Vec<&String> = states
            .iter()
            .filter(|(_, state)| IN_FLIGHT.contains(&state.as_str()))
            .map(|(node, _)| node)
            .collect();
        if flying.len() > 1 {
            self.broken.push(format!("rule 1: at work at once: {flying:?}"));
        }
        self.states.insert(name.to_owned(), states);
        for condition in value["status"]["conditions"].as_array().into_iter().flatten() {
            self.words.insert(text(&condition["message"]));
        }
        let aborted = value["metadata"]["annotations"]["afloat.dev/abort"] == "true";
        if aborted || !value["metadata"]["deletionTimestamp"].is_null() {
            self.ending.entry(name.to_owned()).or_insert(self.now);
        } else {
            self.ending.remove(name);
        }
    }

    /// The list of who is stopped only ever grows.
    fn recorded(&mut self, list: &str, value: &Value) {
        let lists = value["data"].as_object().into_iter().flatten();
        let names = lists
            .filter_map(|(_, list)| list.as_str())
            .flat_map(|list| list.split(','));
        let now: BTreeSet<String> = names.map(str::to_owned).collect();
        let before = self.recorded.insert(list.to_owned(), now.clone()).unwrap_or_default();
        if let Some(lost) = before.difference(&now).next() {
            self.broken.push(format!("rule 9: {lost} is taken off the record"));
        }
    }

    /// Whoever is stopped by a task was on record before.
    fn machine(&mut self, key: &str, before: Option<&Value>, value: &Value) {
        let noted = |value: &Value| !value["metadata"]["annotations"][RUN_BEFORE].is_null();
        if !noted(value) || before.is_some_and(noted) {
            return;
        }
        *self.stops.entry(key.to_owned()).or_default() += 1;
        if !self.recorded.values().any(|list| list.contains(key)) {
            self.broken
                .push(format!("rule 9: {key} was stopped without being on record"));
        }
    }

    fn job(&mut self, kind: ChangeKind, value: &Value) {
        let labels = &value["metadata"]["labels"];
        let (work, node) = (
            text(&labels["harvesterhci.io/upgradeJobType"]),
            text(&labels["harvesterhci.io/node"]),
        );
        let upgrade = text(&labels["harvesterhci.io/upgrade"]);
        let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        if conditions.any(|condition| condition["type"] == "Complete" && condition["status"] == "True") {
            self.complete.insert(format!("{work}/{node}"));
        }
        if kind == ChangeKind::Added && matches!(work.as_str(), "pre-drain" | "single-node-upgrade") {
            self.begins(&upgrade, &node);
            self.may_lose_a_node(1, &format!("{node} begins"));
        }
        if kind == ChangeKind::Added && work == "pre-drain" {
            self.asks_for_places(&upgrade, &node);
        }
    }

    /// Whoever is about to leave a node finds a place by who says that they are not done: all of those do, and nobody else.
    fn asks_for_places(&mut self, upgrade: &str, leaving: &str) {
        let states = self.states.get(upgrade);
        let done = |name: &str| {
            states
                .and_then(|states| states.get(name))
                .is_some_and(|state| state == "Succeeded")
        };
        let many = self.nodes.len() > 2;
        let mut others = self.nodes.iter().filter(|(name, _)| *name != leaving);
        let wrong = others.find(|(name, node)| {
            if done(name) {
                node.pending
            } else {
                many && !self.told.contains(*name)
            }
        });
        if let Some((wrong, _)) = wrong {
            self.broken.push(format!(
                "rule 9: virtual machines leave {leaving}, and {wrong} does not say whether it is done"
            ));
        }
    }

    /// Data has to be elsewhere too before a node is emptied. On two hosts no volume is whole in Longhorn's own words, and its engine counts.
    fn may_lose_a_node(&mut self, rule: u8, what: &str) {
        let lacking = match self.nodes.len() {
            0 | 1 => return,
            2 => &self.thin,
            _ => &self.degraded,
        };
        let seen = |since: &Timestamp| self.now.duration_since(*since) > UNTIL_SEEN;
        if let Some((volume, _)) = lacking.iter().find(|(_, since)| seen(since)) {
            self.broken
                .push(format!("rule {rule}: {what} while {volume} has not all its replicas"));
        }
    }

    fn since(kept: &mut BTreeMap<String, Timestamp>, name: &str, on: bool, now: Timestamp) {
        if on {
            kept.entry(name.to_owned()).or_insert(now);
        } else {
            kept.remove(name);
        }
    }

    fn engine(&mut self, name: &str, value: &Value) {
        let status = &value["status"];
        let modes = status["replicaModeMap"].as_object().into_iter().flatten();
        let whole = modes.filter(|(_, mode)| **mode == "RW").count();
        let thin = status["currentState"] == "running" && whole < 2;
        Self::since(&mut self.thin, name, thin, self.now);
    }

    /// A task asks for a machine to leave its node.
    fn migration(&mut self, name: &str, value: &Value) {
        if name.starts_with(super::play::UPGRADE) && value["spec"]["addedNodeSelector"].is_null() {
            self.may_lose_a_node(9, &format!("{name} is asked for"));
        }
    }

    /// The first Job that takes something away from a node.
    fn begins(&mut self, upgrade: &str, name: &str) {
        // A Job that was lost is made again: its node was begun before.
        let again = !self.begun.insert(format!("{upgrade}/{name}"));
        let node = self.nodes.get(name).cloned().unwrap_or_default();
        if node.paused && !again {
            self.broken
                .push(format!("rule 6: {name} begins while a person holds it"));
        }
        let ended = self.ending.get(upgrade);
        if ended.is_some_and(|ended| self.now.duration_since(*ended) > ON_ITS_WAY) {
            self.broken
                .push(format!("rule 6: {name} begins after {upgrade} was ended"));
        }
        let away = self.nodes.iter().find(|(other, node)| *other != name && !node.ready);
        if let Some((away, _)) = away {
            self.broken
                .push(format!("rule 1: {name} begins while {away} is not Ready"));
        }
        let others = self.states.values().flatten();
        let flying = others
            .filter(|(other, state)| *other != name && IN_FLIGHT.contains(&state.as_str()))
            .map(|(other, state)| format!("{other} is {state}"))
            .next();
        if let Some(flying) = flying {
            self.broken.push(format!("rule 1: {name} begins while {flying}"));
        }
    }

    /// Rancher is answered when the work was done, and the node is back.
    fn plan(&mut self, before: Option<&Value>, value: &Value) {
        let annotation = |value: &Value, key: &str| text(&value["metadata"]["annotations"][key]);
        let node = annotation(value, SIM_NODE);
        for (hook, work) in [
            ("harvesterhci.io/pre-hook", "pre-drain"),
            ("harvesterhci.io/post-hook", "post-drain"),
        ] {
            let now = annotation(value, hook);
            if now.is_empty() || before.is_some_and(|before| annotation(before, hook) == now) {
                continue;
            }
            let seen = |since: &Timestamp| self.now.duration_since(*since) > UNTIL_SEEN;
            let mut guards = self
                .guards
                .iter()
                .filter(|(_, (left, since))| *left == node && seen(since));
            if work == "pre-drain"
                && let Some((guard, _)) = guards.next()
            {
                self.broken
                    .push(format!("rule 8: Rancher is told to drain {node} under {guard}"));
            }
            if !self.complete.contains(&format!("{work}/{node}")) {
                self.broken
                    .push(format!("rule 5: {hook} of {node} is answered before the Job has ended"));
            }
            let back = self
                .nodes
                .get(&node)
                .is_some_and(|node| node.ready && node.os.ends_with("v1.7.0"));
            if work == "post-drain" && !back {
                self.broken.push(format!("rule 5: {node} is let go before it is back"));
            }
        }
    }

    /// Rancher is asked once for an upgrade.
    fn cluster(&mut self, before: Option<&Value>, value: &Value) {
        let generation = |value: &Value| value["spec"]["rkeConfig"]["provisionGeneration"].as_i64();
        let Some(before) = before.filter(|before| generation(before) != generation(value)) else {
            return;
        };
        let asked = text(&value["metadata"]["annotations"]["afloat.dev/rolled-out-for"]);
        let told = text(&before["metadata"]["annotations"]["afloat.dev/rolled-out-for"]);
        // Resumed after everything was put back, it is asked again.
        if told == asked && !self.asked_for.insert(asked) {
            self.broken.push("rule 12: Rancher is asked twice".to_owned());
        }
    }

    /// A volume that is used is not taken off.
    fn volume(&mut self, name: &str, before: Option<&Value>, value: &Value) {
        let degraded = value["status"]["state"] == "attached" && value["status"]["robustness"] == "degraded";
        Self::since(&mut self.degraded, name, degraded, self.now);
        let wanted = |value: &Value| text(&value["spec"]["nodeID"]);
        let users = |value: &Value| {
            value["status"]["kubernetesStatus"]["workloadsStatus"]
                .as_array()
                .map_or(0, Vec::len)
        };
        let taken = before.is_some_and(|before| !wanted(before).is_empty() && wanted(value).is_empty());
        if taken && users(value) > 0 {
            self.broken
                .push(format!("rule 8: volume {name} is taken off while it is used"));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl WriteObserver for Watchman {
    fn on_write(&self, table: &TableKey, change: &Change) {
        let mut memory = self.memory();
        memory.now = self.clock.now();
        let (value, name) = (change.object.value(), change.object.name());
        let before = change.previous.as_ref().map(|object| object.value());
        let gone = change.kind == ChangeKind::Deleted;
        let known = memory.broken.len();
        if !BESIDE.contains(&table.plural.as_str()) {
            memory.writes += 1;
        }
        match (table.group.as_str(), table.plural.as_str()) {
            ("", "nodes") if gone => drop(memory.nodes.remove(name)),
            ("", "nodes") => memory.node(name, value),
            ("harvesterhci.io", "upgrades") if gone => drop(memory.states.remove(name)),
            ("harvesterhci.io", "upgrades") => memory.upgrade(name, value),
            ("", "configmaps") if name.ends_with("-restore-vm") && gone => drop(memory.recorded.remove(name)),
            ("", "configmaps") if name.ends_with("-restore-vm") => memory.recorded(name, value),
            ("kubevirt.io", "virtualmachines") => {
                let key = format!("{}/{name}", change.object.namespace());
                memory.machine(&key, before, value);
            }
            // One that KubeVirt loses on its way is KubeVirt's doing.
            ("kubevirt.io", "virtualmachineinstances")
                if value["status"]["phase"] == "Failed"
                    && !gone
                    && value["status"]["migrationState"]["mode"] != "PostCopy" =>
            {
                memory.broken.push(format!("rule 9: virtual machine {name} is lost"));
            }
            ("batch", "jobs") => memory.job(change.kind, value),
            ("", "secrets") => memory.plan(before, value),
            ("provisioning.cattle.io", "clusters") => memory.cluster(before, value),
            ("longhorn.io", "volumes") => memory.volume(name, before, value),
            ("longhorn.io", "engines") => memory.engine(name, value),
            ("kubevirt.io", "virtualmachineinstancemigrations") if change.kind == ChangeKind::Added => {
                memory.migration(name, value);
            }
            ("policy", "poddisruptionbudgets") if gone => drop(memory.guards.remove(name)),
            ("policy", "poddisruptionbudgets") if name.starts_with(GUARD) => {
                let (node, now) = (text(&value["metadata"]["annotations"][SIM_NODE]), memory.now);
                memory.guards.entry(name.to_owned()).or_insert((node, now));
            }
            (_, "events") => {
                let said = format!("{}{}", text(&value["note"]), text(&value["message"]));
                memory.words.insert(said);
            }
            _ => {}
        }
        let now = memory.now;
        for broken in &mut memory.broken[known..] {
            *broken = format!("{now:.0} {broken}");
        }
    }
}
