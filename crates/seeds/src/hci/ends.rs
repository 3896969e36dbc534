//! How a run has to end: as its scenario says, every virtual machine as it was, nothing left behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use afloat_api::harvester::Upgrade;
use afloat_api::labels;
use afloat_core::hci::view::{HciKind, HciObject, Run};
use afloat_core::hci::{Tri, condition_of, config};
use afloat_core::view::{Key, Node};
use afloat_scenes::{Act, Deed, End, NEW_KUBERNETES, NEW_OS, OLD_KUBERNETES, SYSTEM, VmShape};
use serde_json::json;

use super::people::SHOP;
use super::rancher::plan_key;
use super::world::World;

/// What an Upgrade says, in one text.
pub fn readable(upgrade: &Upgrade) -> String {
    let mut text = String::new();
    let Some(status) = &upgrade.status else { return text };
    for (node, status) in &status.node_statuses {
        let _ = writeln!(text, "{node} {} {} {}", status.state, status.reason, status.message);
    }
    for condition in &status.conditions {
        let (kind, word) = (&condition.kind, &condition.status);
        let _ = writeln!(text, "{kind} {word} {} {}", condition.reason, condition.message);
    }
    text
}

/// It has ended, well or not, and is cleaned up after.
fn is_over(upgrade: &Upgrade, well: bool) -> bool {
    let cleaned = config::label(upgrade, labels::HARVESTER_UPGRADE_CLEANUP) == Some("Succeeded");
    condition_of(upgrade, "Completed") == Some(if well { Tri::True } else { Tri::False }) && cleaned
}

impl World {
    /// Whether the end has come that the script names.
    pub fn has_ended(&self) -> bool {
        let upgrade = self.upgrade().map(|upgrade| &upgrade.what);
        match self.script.end {
            End::Succeeded => upgrade.is_some_and(|upgrade| is_over(upgrade, true)),
            End::Failed => upgrade.is_some_and(|upgrade| is_over(upgrade, false)) && self.acts.is_empty(),
            End::Gone => upgrade.is_none(),
            End::Waits => upgrade.is_some_and(|upgrade| {
                let told = readable(upgrade);
                let over = is_over(upgrade, true) || is_over(upgrade, false);
                !over && self.script.says.iter().all(|words| told.contains(words))
            }),
        }
    }

    /// It has failed once more, although people have resumed it: old news of what had failed was taken for new.
    pub fn failed_again(&self) -> bool {
        let goes_on = |act: &Act| act.what.contains(&Deed::resume());
        let resumed = self.acts.is_empty() && self.script.people.iter().any(goes_on);
        let failed = self.upgrade().is_some_and(|upgrade| is_over(&upgrade.what, false));
        self.script.end == End::Succeeded && resumed && failed
    }

    /// How it ended, in a word.
    pub fn end_word(&self) -> String {
        let Some(upgrade) = self.upgrade() else {
            return "gone".to_owned();
        };
        config::label(&upgrade.what, labels::HARVESTER_UPGRADE_STATE)
            .unwrap_or("not begun")
            .to_owned()
    }

    /// Looks at everything when the end has come.
    pub fn check_end(&mut self) {
        let told = self
            .upgrade()
            .map(|upgrade| readable(&upgrade.what))
            .unwrap_or_default();
        if !self.has_ended() {
            let end = self.script.end;
            self.rules
                .breaks(12, format!("it did not end as it has to ({end:?}):\n{told}"));
            return;
        }
        let mut unsaid = self
            .script
            .says
            .iter()
            .filter(|words| match (self.script.end, &self.heard) {
                (End::Failed | End::Waits, _) => !told.contains(**words),
                (_, Some(heard)) => !heard.iter().any(|said| said.contains(**words)),
                (_, None) => false,
            });
        let unsaid = unsaid.next().copied();
        self.rules
            .judge(12, unsaid.is_none(), || format!("it was not said: {unsaid:?}\n{told}"));
        let nodes = self.nodes_are_wrong();
        self.rules.judge(12, nodes.is_none(), || nodes.unwrap_or_default());
        let machines = self.machines_are_wrong();
        self.rules.judge(9, machines.is_none(), || machines.unwrap_or_default());
        if self.script.end != End::Waits {
            let left = self.left_on_nodes().or_else(|| self.left_behind());
            self.rules
                .judge(7, left.is_none(), || format!("left: {}", left.unwrap_or_default()));
        }
        if self.script.end == End::Succeeded && self.heard.is_some() && !self.deaf {
            let restless = self.moves_in_vain();
            self.rules.judge(9, restless.is_none(), || restless.unwrap_or_default());
        }
        if self.script.end == End::Succeeded {
            let behind = self.services_are_behind();
            self.rules.judge(12, behind.is_none(), || behind.unwrap_or_default());
        }
    }

    fn nodes_are_wrong(&self) -> Option<String> {
        let aborts = |act: &Act| act.what.contains(&Deed::abort());
        let ended_by_hand = self.script.end == End::Gone || self.script.people.iter().any(aborts);
        self.store.base.nodes.values().find_map(|node| {
            let wanted = self.script.upgraded.as_ref();
            let wanted = wanted.is_none_or(|names| names.contains(&node.name.as_str()));
            let there = *node.os_image == *NEW_OS && kubelet(node) == NEW_KUBERNETES;
            // One that was emptied by the time a late operator heard of the end is finished.
            let finished = there && ended_by_hand && self.heard.is_none();
            (there != wanted && !finished).then(|| {
                let (os, kubelet) = (&node.os_image, kubelet(node));
                format!(
                    "{} has {os} and {kubelet}, and should have the new ones: {wanted}",
                    node.name
                )
            })
        })
    }

    /// How often each virtual machine was moved.
    pub fn moves(&self) -> BTreeMap<Arc<str>, usize> {
        let history = self.store.history(HciKind::Migration).iter();
        let mut moves = BTreeMap::new();
        for change in history {
            if let (Some(HciObject::Migration(before)), Some(HciObject::Migration(after))) =
                (&change.before, &change.after)
                && &*after.phase == "Succeeded"
                && before.phase != after.phase
            {
                *moves.entry(Arc::clone(&after.vmi)).or_default() += 1;
            }
        }
        moves
    }

    /// Where nothing goes wrong and no person has a hand in it, a virtual machine is moved once: to a node that is done. Only from the node that goes
    /// first there is none yet. A Rancher that hurries has not let go of the one that is done when the next one is taken.
    fn moves_in_vain(&self) -> Option<String> {
        let script = &self.script;
        let alone = script.people.is_empty()
            && !script.comes_back
            && !script.trouble.rancher_hurries
            && script.ground.nodes > 2;
        let first = self.script.ground.node_names().next()?;
        let moves = self.moves();
        let mut shapes = self.script.ground.vms.iter().filter(|_| alone);
        shapes.find_map(|shape| {
            let times = moves.get(shape.name.as_str()).copied().unwrap_or_default();
            let least = if shape.node == first { 2 } else { 1 };
            (times > least).then(|| format!("{} of {} was moved {times} times", shape.name, shape.node))
        })
    }

    fn machines_are_wrong(&self) -> Option<String> {
        let hci = &self.store.hci;
        self.script.ground.vms.iter().find_map(|shape| {
            let (name, key) = (&shape.name, Key::new(SHOP, &shape.name));
            let off = self.script.off.contains(&name.as_str()) || self.stays_off(shape);
            let vmi = hci.vmis.get(&key).filter(|vmi| vmi.alive());
            if vmi.is_some() == off {
                return Some(format!("{name} runs: {}", vmi.is_some()));
            }
            let movable = shape.bound.is_none() && self.script.ground.nodes > 1;
            let made = hci_births(self, &key);
            if !off && movable && made > 1 && !self.rules.may_be_lost.contains(&key.to_string()) {
                return Some(format!("{name} was stopped without need"));
            }
            let vm = hci.vms.get(&key);
            let as_it_was =
                vm.is_some_and(|vm| vm.run == run_of(shape) && vm.run_before.is_none() && vm.run_after.is_none());
            if !off && !as_it_was && self.script.end != End::Waits {
                return Some(format!("{name} is not as it was: {:?}", vm.map(|vm| &vm.run)));
            }
            let strange = vmi.is_some_and(|vmi| vmi.node.as_ref().is_none_or(|node| node.as_str() != shape.node));
            // Whoever was moved a second time on the way, by what went wrong, is brought back to where that was.
            let comes_back = self.script.comes_back && self.heard.is_some();
            (comes_back && shape.bound.is_none() && strange)
                .then(|| format!("{name} has not come back to {}", shape.node))
        })
    }

    /// Somebody was stopped for a node that was finished because the word to end it came late, and the setting asks for nobody to be started again.
    fn stays_off(&self, shape: &VmShape) -> bool {
        let config = self.script.ground.upgrade_config.as_ref();
        let restores = config.is_some_and(|config| config["restoreVM"] == true);
        let node = self.store.base.nodes.get(shape.node.as_str());
        let upgraded = node.is_some_and(|node| *node.os_image == *NEW_OS);
        let key = Key::new(SHOP, &shape.name);
        let told = self.upgrade().map(|upgrade| readable(&upgrade.what));
        let named = told.is_none_or(|told| told.contains(&key.to_string()));
        let off = self.store.hci.vms.get(&key).is_some_and(|vm| vm.run.is_off());
        self.heard.is_none() && !restores && shape.bound.is_some() && upgraded && named && off
    }

    fn left_on_nodes(&self) -> Option<String> {
        let told = self
            .upgrade()
            .map(|upgrade| readable(&upgrade.what))
            .unwrap_or_default();
        let mut machines = self.machines.iter();
        // A node that was away is named, with what to do.
        let held = machines.find(|(name, machine)| {
            machine.holds_multus
                && self.store.base.nodes.get(name.as_str()).is_some()
                && !told.contains("rke2-multus.yaml.skip")
        });
        if let Some((name, _)) = held {
            return Some(format!("multus held on {name}"));
        }
        self.store.base.nodes.values().find_map(|node| {
            let name = &node.name;
            if node.hci.pause.is_some() || node.hci.pending_os_image.is_some() {
                return Some(format!("marks on {name}"));
            }
            if let Some(taint) = node.taints.first() {
                return Some(format!("taint {} on {name}", taint.key));
            }
            // Half-way Rancher waits for an answer about a node it has cordoned; nobody gives one until the next Upgrade.
            let plan = self.store.hci.plans.get(&plan_key(name.as_str()));
            let asked = plan.is_some_and(|plan| plan.pre_drain.is_some() && plan.post_hook != plan.pre_drain);
            let done = *node.os_image == *NEW_OS;
            (node.unschedulable && (done || !asked)).then(|| format!("the cordon of {name}"))
        })
    }

    fn left_behind(&self) -> Option<String> {
        let hci = &self.store.hci;
        let mut kinds = vec![HciKind::Service, HciKind::Image];
        if self.script.end == End::Gone {
            kinds.extend([HciKind::Job, HciKind::RestoreList, HciKind::UpgradeLog]);
        }
        let objects = kinds.into_iter().find_map(|kind| {
            let key = hci.keys(kind).into_iter().find(|key| *key.namespace == *SYSTEM)?;
            Some(format!("{} {key}", kind.word()))
        });
        let mut logs = hci.logs.values();
        let collected = logs.find(|log| !log.stopped());
        let repo = self.store.base.workloads.values().next();
        let mut jobs = hci.jobs.values();
        let going_on = jobs.find(|job| !job.complete && job.failed.is_none());
        objects
            .or_else(|| going_on.map(|job| format!("job {}, which goes on", job.target.key)))
            .or_else(|| collected.map(|log| format!("upgradelog {}, which is not stopped", log.target.key)))
            .or_else(|| repo.map(|repo| format!("deployment {}", repo.key)))
            .or_else(|| self.charts_are_wrong())
            .or_else(|| {
                let mut settings = hci.longhorn_settings.values();
                let setting = settings.find(|setting| *setting.what != *"600")?;
                Some(format!("setting {} is {}", setting.target.key, setting.what))
            })
            .or_else(|| {
                let addon = hci.addons.values().find(|addon| !addon.enabled)?;
                Some(format!("addon {} is off", addon.target.key))
            })
            .or_else(|| self.rancher_is_wrong())
    }

    /// Fleet has its charts back, with the values that people gave.
    fn charts_are_wrong(&self) -> Option<String> {
        self.store.hci.charts.values().find_map(|chart| {
            let name = &chart.target.key.name;
            let values = if &**name == "harvester" {
                "[\"LiveMigrate\"]"
            } else {
                "null"
            };
            let noted = chart.paused_by.is_some() || chart.update_methods_before.is_some();
            let wrong = chart.paused || noted || *chart.update_methods != *values;
            wrong.then(|| format!("chart {name} as {:?}", chart.what))
        })
    }

    /// Half-way the questions stay; otherwise Rancher's part is as it was, but for the version.
    fn rancher_is_wrong(&self) -> Option<String> {
        let nodes: Vec<&Arc<Node>> = self.store.base.nodes.values().collect();
        let touched = nodes.iter().any(|node| kubelet(node) == NEW_KUBERNETES);
        let half_way = touched && nodes.iter().any(|node| *node.os_image != *NEW_OS);
        self.store.hci.clusters.values().find_map(|cluster| {
            let as_it_was = cluster.strategy == json!({ "workerConcurrency": "3" });
            if as_it_was == half_way {
                return Some(format!("the strategy of Rancher is {}", cluster.strategy));
            }
            let wanted = if touched { NEW_KUBERNETES } else { OLD_KUBERNETES };
            let version = &cluster.kubernetes_version;
            (nodes.len() > 1 && **version != *wanted).then(|| format!("Rancher is to bring {version} and not {wanted}"))
        })
    }

    /// Charts and addons of the release, in the versions it names.
    fn services_are_behind(&self) -> Option<String> {
        let hci = &self.store.hci;
        let charts = hci
            .charts
            .values()
            .map(|chart| (&chart.target.key.name, &chart.version));
        let addons = hci
            .addons
            .values()
            .map(|addon| (&addon.target.key.name, &addon.version));
        let wanted = |name: &str| match name {
            "harvester" | "harvester-crd" => "1.7.0",
            "descheduler" => "0.33.0",
            _ => "105.1.2+up61.3.2",
        };
        let behind = charts.chain(addons).find(|(name, version)| ***version != *wanted(name));
        behind.map(|(name, version)| format!("{name} is at {version}"))
    }
}

/// How often a virtual machine was started, that it ran in the beginning included.
fn hci_births(world: &World, key: &Key) -> usize {
    let history = world.store.history(HciKind::Vmi).iter();
    history
        .filter(|change| change.key == *key && change.before.is_none())
        .count()
}

/// When a virtual machine was to run in the beginning.
pub fn run_of(shape: &VmShape) -> Run {
    if shape.run_strategy.is_empty() {
        Run::Switch(true)
    } else {
        Run::Strategy(Arc::from(shape.run_strategy))
    }
}

fn kubelet(node: &Node) -> String {
    let version = node.kubelet_version.as_ref();
    version.map(ToString::to_string).unwrap_or_default()
}
