//! A scenario in full, and the list of them. That each ends as it says is tried in `crates/trials`, and by seed in `crates/seeds`.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_api::annotations;
use serde_json::{Value, json};

use super::ground::{Binding, Ground};
use super::people::{Act, Deed, Moment};
use super::trouble::{PowerCut, Trouble};
use super::{again, deleted, with_people, with_trouble};

/// How an upgrade must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the target.
    Succeeded,
    /// Stopped short, everything put back.
    Failed,
    /// It goes on when somebody does something, and not before.
    Waits,
    /// The Upgrade was deleted, everything put back.
    Gone,
}

/// A scenario in full.
#[derive(Clone, Debug)]
pub struct Script {
    pub ground: Ground,
    pub trouble: Trouble,
    pub people: Vec<Act>,
    pub end: End,
    /// What must have been said on the way. Where it fails or waits, it is what is said in the end.
    pub says: Vec<&'static str>,
    /// Nodes that are at the target in the end; all of them where it is nothing.
    pub upgraded: Option<Vec<&'static str>>,
    /// Virtual machines that are off in the end, because a person wants it so.
    pub off: Vec<&'static str>,
    /// The Upgrade asks for virtual machines to come back, and they are where they were in the end.
    pub comes_back: bool,
    /// The release is served outside of the cluster, and the Upgrade says where.
    pub external_repo: bool,
}

impl Script {
    /// Nodes with virtual machines of which every tenth cannot move, upgraded without a person's help.
    pub(super) fn new(nodes: u32, vms: u32) -> Self {
        let mut ground = Ground::new(nodes, vms);
        ground.upgrade_config = Some(json!({
            "imagePreloadOption": { "strategy": { "type": "sequential" } }, "restoreVM": true, "logReadyTimeout": "5",
        }));
        Self {
            ground,
            trouble: Trouble::default(),
            people: Vec::new(),
            end: End::Succeeded,
            says: Vec::new(),
            upgraded: None,
            off: Vec::new(),
            comes_back: false,
            external_repo: false,
        }
    }

    /// What a person writes on the Upgrade.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let back = self
            .comes_back
            .then(|| (annotations::MIGRATE_BACK.to_owned(), "true".to_owned()));
        let repo = self
            .external_repo
            .then(|| ("afloat.dev/repo-url".to_owned(), "http://repo.example.com".to_owned()));
        back.into_iter().chain(repo).collect()
    }

    /// Three nodes with a few virtual machines, as most scenarios have.
    pub(super) fn small() -> Self {
        Self::new(3, 10)
    }

    pub(super) fn setting(mut self, key: &str, value: Value) -> Self {
        if let Some(config) = &mut self.ground.upgrade_config {
            config[key] = value;
        }
        self
    }

    /// Nodes pause before their turn; all of them where none is named.
    pub(super) fn pausing(self, nodes: &[&str]) -> Self {
        let mut strategy = json!({ "mode": "manual" });
        if !nodes.is_empty() {
            strategy["pauseNodes"] = json!(nodes);
        }
        self.setting("nodeUpgradeOption", json!({ "strategy": strategy }))
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Trouble)) -> Self {
        change(&mut self.trouble);
        self
    }

    pub(super) fn laid(mut self, more: Vec<Deed>) -> Self {
        self.ground.more.extend(more);
        self
    }

    pub(super) fn binds(mut self, vm: &str, bound: Binding) -> Self {
        for shape in self.ground.vms.iter_mut().filter(|shape| shape.name == vm) {
            shape.bound = Some(bound);
        }
        self
    }

    pub(super) fn runs_by(mut self, vm: &str, strategy: &'static str) -> Self {
        for shape in self.ground.vms.iter_mut().filter(|shape| shape.name == vm) {
            shape.run_strategy = strategy;
        }
        self
    }

    /// Virtual machines that KubeVirt does not start by their run strategy alone: one can move, the others are stopped for their node.
    pub(super) fn by_hand() -> Self {
        Self::small()
            .runs_by("vm-01", "Manual")
            .runs_by("vm-10", "Manual")
            .binds("vm-02", Binding::Selector)
    }

    /// Somebody does something so many minutes after a moment.
    pub(super) fn then(mut self, when: Moment, minutes: u64, what: Vec<Deed>) -> Self {
        let after = Duration::from_mins(minutes);
        self.people.push(Act { when, after, what });
        self
    }

    /// A machine is without power for so many minutes, so many minutes after a moment.
    pub(super) fn power_cut(mut self, node: &str, when: Moment, minutes: u64, away: u64) -> Self {
        self.trouble.machines.power_cuts.push(PowerCut {
            node: node.to_owned(),
            when,
            after: Duration::from_mins(minutes),
            away: Duration::from_mins(away),
        });
        self
    }

    pub(super) fn says(mut self, words: &[&'static str]) -> Self {
        self.says.extend(words);
        self
    }

    pub(super) fn ends(mut self, end: End, upgraded: &[&'static str]) -> Self {
        self.end = end;
        self.upgraded = Some(upgraded.to_vec());
        self
    }

    pub(super) fn leaves_off(mut self, vm: &'static str) -> Self {
        self.off.push(vm);
        self
    }
}

/// A Harvester-like cluster that can be made.
#[derive(Clone, Copy)]
pub struct HciScenario {
    name: &'static str,
    summary: &'static str,
    make: fn() -> Script,
}

impl std::fmt::Debug for HciScenario {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl PartialEq for HciScenario {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for HciScenario {}

impl HciScenario {
    pub(super) const fn new(name: &'static str, summary: &'static str, make: fn() -> Script) -> Self {
        Self { name, summary, make }
    }

    pub fn all() -> impl Iterator<Item = Self> {
        let lists = [PLAIN, with_people::LIST, with_trouble::LIST, deleted::LIST, again::LIST];
        lists.into_iter().flatten().copied()
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|scenario| scenario.name == name)
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    pub fn summary(self) -> &'static str {
        self.summary
    }

    /// The cluster in full, what goes wrong on it, and how it must end.
    pub fn describe(self) -> Script {
        (self.make)()
    }
}

/// Nothing goes wrong.
const PLAIN: &[HciScenario] = &[
    HciScenario::new(
        "harvester-three-nodes",
        "three nodes of a Harvester-like cluster with 30 virtual machines, 3 of which cannot move",
        || Script::new(3, 30),
    ),
    HciScenario::new(
        "harvester-single-node",
        "one node alone: its virtual machines are off meanwhile, and run again afterwards",
        || Script::new(1, 4).says(&["there is no other node"]),
    ),
    HciScenario::new(
        "harvester-two-nodes",
        "two nodes, so that every virtual machine has one place to go",
        || Script::new(2, 8),
    ),
    HciScenario::new("harvester-at-once", "images are brought to all nodes at once", || {
        Script::small().setting("imagePreloadOption", json!({ "strategy": { "type": "parallel" } }))
    }),
    HciScenario::new(
        "harvester-back",
        "virtual machines that were moved come back to their nodes: afloat.dev/migrate-back on the Upgrade",
        || Script {
            comes_back: true,
            ..Script::small()
        },
    ),
    HciScenario::new(
        "harvester-external-repo",
        "the release is served outside of the cluster: afloat.dev/repo-url on the Upgrade",
        || Script {
            external_repo: true,
            ..Script::small()
        },
    ),
    HciScenario::new(
        "harvester-bound-vms",
        "virtual machines that cannot move for three different reasons are stopped for their node and run again",
        || {
            Script::small()
                .binds("vm-01", Binding::Selector)
                .binds("vm-02", Binding::ContainerDisk)
                .says(&[
                    "nodeSelector",
                    "its container disk is on its node alone",
                    "a device of its host",
                ])
        },
    ),
    HciScenario::new(
        "harvester-started-by-hand",
        "virtual machines that KubeVirt does not start by their run strategy alone: those that are stopped for their node run again, by the same strategy",
        Script::by_hand,
    ),
];
