//! The rules of a Harvester-like cluster that must never break, looked at after every write. They know nothing of how anybody decides:
//! they have their own small memory, built from what is written, and judge a write of the operator by what it could have known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::annotations::{KUBEVIRT_DRAIN_TAINT, PAUSE, UPGRADE_PENDING_TAINT};
use afloat_api::harvester::Upgrade;
use afloat_core::KubernetesVersion;
use afloat_core::hci::action::{HciAction, TaskWrite};
use afloat_core::hci::config::{self, ABORT};
use afloat_core::hci::view::{HciKind, HciObject, Job};
use afloat_core::hci::{Tri, condition_of};
use afloat_core::view::{Key, Node, NodeName, PodBudget, Taint, Target, Uid};
use afloat_scenes::NEW_OS;

use super::store::{HciChange, Note, Shelf, Store};
use crate::rules::Broken;
use crate::store::Writer;
use crate::suite::RULES;

const IN_FLIGHT: [&str; 4] = ["Pre-draining", "Pre-drained", "Post-draining", "Waiting Reboot"];

/// What the operator or a task is about to write.
#[derive(Clone, Debug, Default)]
pub struct Doing {
    /// Nodes were seen up to this revision.
    pub nodes_seen: u64,
    /// Volumes and engines were.
    pub storage_seen: u64,
    /// The object that is meant.
    pub target: Option<Target>,
}

/// The rules and their memory.
#[derive(Default)]
pub struct Rules {
    doing: Option<Doing>,
    /// Since which revision a node is held by a person, or away.
    paused_since: BTreeMap<NodeName, u64>,
    away_since: BTreeMap<NodeName, u64>,
    /// Since which revision a node says that it is not done yet, and which have ever said so.
    pending_since: BTreeMap<NodeName, u64>,
    told: BTreeSet<NodeName>,
    /// Since which revision there is a node.
    born: BTreeMap<NodeName, u64>,
    /// Since which revision a volume has not all its replicas, and an engine not two that are whole.
    degraded_since: BTreeMap<Arc<str>, u64>,
    thin_since: BTreeMap<Arc<str>, u64>,
    /// Virtual machines that KubeVirt loses on their way.
    pub may_be_lost: BTreeSet<String>,
    /// Budgets of migrations that go on, or have ended, are judged where nothing else goes wrong.
    pub plain: bool,
    /// Who is on the list of an upgrade, by its name.
    recorded: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Jobs that have ended well, as `kind/node`, of whichever upgrade.
    complete: BTreeSet<String>,
    asked_for: BTreeSet<Uid>,
    broken: Option<Broken>,
    /// How often each rule had something to judge: one that never has is not tested.
    pub judged: [u64; RULES],
}

impl Rules {
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// The first one counts.
    pub fn breaks(&mut self, rule: u8, what: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken {
                rule,
                what: what.into(),
            });
        }
    }

    pub fn judge(&mut self, rule: u8, holds: bool, what: impl FnOnce() -> String) {
        self.judged[usize::from(rule)] += 1;
        if !holds {
            self.breaks(rule, what());
        }
    }

    pub fn about_to(&mut self, doing: Doing) {
        self.doing = Some(doing);
    }

    pub fn has_done(&mut self) {
        self.doing = None;
    }

    /// Something was written.
    pub fn saw(&mut self, store: &Store, note: &Note) {
        match note.place {
            Shelf::Node => self.node(store, note),
            Shelf::Hci(kind) => {
                let change = &store.history(kind)[note.index];
                if matches!(note.writer, Writer::Operator(_) | Writer::Task) {
                    let before = change.before.as_ref().map(|object| object.target().uid.clone());
                    self.is_the_one(before.as_ref(), &change.key.to_string());
                }
                self.hci(store, kind, change);
            }
            _ => {}
        }
    }

    /// No write to an object whose uid is not the one decided on.
    fn is_the_one(&mut self, before: Option<&Uid>, name: &str) {
        let meant = self.doing.as_ref().and_then(|doing| doing.target.as_ref());
        if let (Some(meant), Some(before)) = (meant.map(|target| target.uid.clone()), before) {
            self.judge(10, meant == *before, || {
                format!("{name} is another one by now, and is written all the same")
            });
        }
    }

    fn node(&mut self, store: &Store, note: &Note) {
        let change = &store.base.nodes.changes()[note.index];
        let name = change.key.clone();
        let ours = matches!(note.writer, Writer::Operator(_) | Writer::Task);
        if ours {
            self.is_the_one(change.before.as_ref().map(|node| &node.uid), name.as_str());
        }
        let held = |node: &Node| node.hci.pause.is_some();
        let away = |node: &Node| !node.ready.ready;
        let after = change.after.as_deref();
        keep(&mut self.born, &name, after.is_some(), change.revision);
        keep(&mut self.paused_since, &name, after.is_some_and(held), change.revision);
        keep(&mut self.away_since, &name, after.is_some_and(away), change.revision);
        let says = after.is_some_and(|node| node.taints.iter().any(is_pending));
        keep(&mut self.pending_since, &name, says, change.revision);
        if says {
            self.told.insert(name.clone());
        }
        let (Some(before), Some(after), true) = (change.before.as_deref(), after, ours) else {
            return;
        };
        let others = |node: &Node| -> Vec<Taint> {
            let is_ours = |taint: &&Taint| &*taint.key == KUBEVIRT_DRAIN_TAINT || is_pending(taint);
            let others = node.taints.iter().filter(|taint| !is_ours(taint));
            others.cloned().collect()
        };
        let kept = others(before) == others(after) && before.unschedulable == after.unschedulable;
        self.judge(7, kept, || {
            format!("taints or cordon of {name} that are somebody else's are changed")
        });
    }

    fn hci(&mut self, store: &Store, kind: HciKind, change: &HciChange) {
        match (kind, &change.after) {
            (HciKind::Upgrade, Some(HciObject::Upgrade(after))) => {
                let before = match &change.before {
                    Some(HciObject::Upgrade(before)) => Some(&before.what),
                    _ => None,
                };
                self.upgrade(store, before, &after.what);
            }
            (HciKind::RestoreList, None) => drop(self.recorded.remove(&change.key.name)),
            (HciKind::RestoreList, Some(HciObject::RestoreList(list))) => {
                let now: BTreeSet<String> = list.nodes.values().flatten().cloned().collect();
                let before = self.recorded.insert(Arc::clone(&change.key.name), now.clone());
                let missing = before.unwrap_or_default().difference(&now).next().cloned();
                self.judge(9, missing.is_none(), || format!("{missing:?} is taken off the record"));
            }
            (HciKind::Vmi, Some(HciObject::Vmi(vmi))) => {
                let key = &vmi.target.key;
                let runs = &*vmi.phase != "Failed" || self.may_be_lost.contains(&key.to_string());
                self.judge(9, runs, || format!("virtual machine {key} is lost"));
            }
            (HciKind::Engine, Some(HciObject::Engine(engine))) => {
                let thin = engine.running && engine.whole < 2;
                keep(&mut self.thin_since, &engine.volume, thin, change.revision);
            }
            // One that goes to a certain node brings a machine back.
            (HciKind::Migration, Some(HciObject::Migration(migration)))
                if change.before.is_none() && self.doing.is_some() && migration.to.is_none() =>
            {
                let name = &migration.vmi;
                self.may_lose_a_node(store, 9, &format!("{name} is asked to move"));
            }
            (HciKind::Job, Some(HciObject::Job(job))) => {
                if change.before.is_none() {
                    self.asks_for_places(store, &change.key.name);
                }
                self.job(&job.what, &change.key.name);
            }
            (HciKind::Vm | HciKind::Plan | HciKind::Cluster | HciKind::Volume, Some(after)) => {
                if let HciObject::Volume(volume) = after {
                    let degraded = volume.attached() && &*volume.robustness == "degraded";
                    keep(&mut self.degraded_since, &change.key.name, degraded, change.revision);
                }
                if let Some(before) = &change.before {
                    self.moved_on(store, before, after);
                }
            }
            _ => {}
        }
    }

    fn moved_on(&mut self, store: &Store, before: &HciObject, after: &HciObject) {
        match (before, after) {
            // Whoever is stopped by a task was on record before.
            (HciObject::Vm(before), HciObject::Vm(after))
                if after.run_before.is_some() && before.run_before.is_none() =>
            {
                let key = after.target.key.to_string();
                let known = self.recorded.values().any(|list| list.contains(&key));
                self.judge(9, known, || format!("{key} is stopped without being on record"));
            }
            (HciObject::Plan(before), HciObject::Plan(after)) => {
                let node = after.machine.trim_start_matches("custom-").to_owned();
                if after.pre_hook.is_some() && after.pre_hook != before.pre_hook {
                    self.answered_before(store, &node);
                }
                if after.post_hook.is_some() && after.post_hook != before.post_hook {
                    self.answered_after(store, &node);
                }
            }
            (HciObject::Cluster(before), HciObject::Cluster(after)) => {
                if before.kubernetes_version != after.kubernetes_version {
                    self.keeps_skew(store, &after.kubernetes_version);
                }
                let again = before.provision_generation != after.provision_generation;
                if let Some(asked) = after.rolled_out_for.clone().filter(|_| again) {
                    // Resumed after everything was put back, it is asked again.
                    let twice = before.rolled_out_for.as_ref() == Some(&asked) && !self.asked_for.insert(asked);
                    self.judge(12, !twice, || "Rancher is asked twice".to_owned());
                } else if before.rolled_out_for.is_none()
                    && after.rolled_out_for.is_none()
                    && before.kubernetes_version != after.kubernetes_version
                {
                    let let_go = store.hci.upgrades.values().any(|upgrade| {
                        let status = upgrade.status.as_ref();
                        status.is_some_and(|status| {
                            let node = status.node_statuses.get(&status.single_node);
                            node.is_some_and(|node| node.state == "Post-draining")
                        })
                    });
                    self.judge(6, let_go, || {
                        "the only node is changed while the upgrade may still be ended".to_owned()
                    });
                } else if again {
                    self.breaks(12, "Rancher is asked, and nobody notes for whom");
                }
            }
            (HciObject::Volume(before), HciObject::Volume(after))
                if before.wanted.is_some() && after.wanted.is_none() =>
            {
                let name = &after.target.key.name;
                self.judge(8, after.users.is_empty(), || {
                    format!("volume {name} is taken off while it is used")
                });
            }
            _ => {}
        }
    }

    /// No node is asked to go back, or more than one minor version up.
    fn keeps_skew(&mut self, store: &Store, version: &str) {
        let Ok(wanted) = version.parse::<KubernetesVersion>() else {
            return self.breaks(3, format!("Rancher is to bring {version:?}, which is no version"));
        };
        let nodes = store.base.nodes.values();
        let mut kubelets = nodes.filter_map(|node| Some((&node.name, node.kubelet_version.as_ref()?)));
        let wrong =
            kubelets.find(|(_, kubelet)| **kubelet > wanted || kubelet.minors_to(&wanted).is_none_or(|up| up > 1));
        let wrong = wrong.map(|(name, kubelet)| format!("{name} at {kubelet}"));
        self.judge(3, wrong.is_none(), || {
            format!("Rancher is to bring {wanted}, and there is {wrong:?}")
        });
    }

    /// Rancher may drain a node when its Job has ended, and nobody is on it.
    fn answered_before(&mut self, store: &Store, node: &str) {
        let done = self.complete.contains(&format!("pre-drain/{node}"));
        self.judge(5, done, || {
            format!("Rancher is told to drain {node} before its Job has ended")
        });
        let here = NodeName::from(node);
        self.unguarded(store, &here);
        let there = store.hci.vmis_on(&here).next().map(|vmi| vmi.target.key.to_string());
        self.judge(9, there.is_none(), || {
            format!("Rancher is told to drain {node}, and {there:?} is on it")
        });
    }

    /// Rancher may let a node go when the work was done, and the node is back.
    fn answered_after(&mut self, store: &Store, node: &str) {
        let done = self.complete.contains(&format!("post-drain/{node}"));
        self.judge(5, done, || {
            format!("Rancher is told that {node} is done before its Job has ended")
        });
        let there = store.base.nodes.get(node);
        let back = there.is_some_and(|node| node.ready.ready && *node.os_image == *NEW_OS);
        self.judge(5, back, || format!("{node} is let go before it is back"));
    }

    /// Data has to be elsewhere too before a node is emptied. On two hosts no volume is whole in Longhorn's own words, and its engine counts.
    fn may_lose_a_node(&mut self, store: &Store, rule: u8, what: &str) {
        let lacking = match store.base.nodes.values().count() {
            0 | 1 => return,
            2 => &self.thin_since,
            _ => &self.degraded_since,
        };
        let seen = self.doing.as_ref().map(|doing| doing.storage_seen).unwrap_or_default();
        let volume = lacking
            .iter()
            .find(|(_, since)| **since <= seen)
            .map(|(volume, _)| volume.clone());
        self.judge(rule, volume.is_none(), || {
            format!("{what} while {volume:?} has not all its replicas")
        });
    }

    /// Budgets of machines that have left a node would keep its drain waiting.
    fn unguarded(&mut self, store: &Store, node: &NodeName) {
        let of_it = |budget: &&PodBudget| {
            let name = budget.key.name.strip_prefix("kubevirt-migration-pdb-");
            let migration = name.and_then(|name| store.hci.migrations.get(&Key::new(&budget.key.namespace, name)));
            migration.is_some_and(|migration| migration.source.as_ref() == Some(node))
        };
        let mut budgets = store.base.budgets.values().map(AsRef::as_ref).filter(|_| self.plain);
        let budget = budgets.find(of_it).map(|budget| budget.key.to_string());
        self.judge(8, budget.is_none(), || {
            format!("Rancher is told to drain {node} under {budget:?}")
        });
    }

    /// Whoever is about to leave a node finds a place by who says that they are not done: all of those do, and nobody else, as far as was seen.
    fn asks_for_places(&mut self, store: &Store, job: &str) {
        let Some((_, leaving)) = job.split_once("-pre-drain-") else {
            return;
        };
        let nodes = store.base.nodes.values();
        let others: Vec<&NodeName> = nodes
            .map(|node| &node.name)
            .filter(|name| name.as_str() != leaving)
            .collect();
        let statuses = store
            .hci
            .upgrades
            .values()
            .filter_map(|upgrade| upgrade.status.as_ref());
        let states: BTreeMap<&str, &str> = statuses
            .flat_map(|status| &status.node_statuses)
            .map(|(node, status)| (node.as_str(), status.state.as_str()))
            .collect();
        let done = |name: &NodeName| states.get(name.as_str()) == Some(&"Succeeded");
        let seen = self.doing.as_ref().map(|doing| doing.nodes_seen).unwrap_or_default();
        let wrong = others.iter().find(|name| {
            let says = self.pending_since.get(**name).is_some_and(|since| *since <= seen);
            let known = self.born.get(**name).is_some_and(|since| *since <= seen);
            let silent = others.len() > 1 && known && !self.told.contains(**name);
            if done(name) { says } else { silent }
        });
        let wrong = wrong.map(ToString::to_string);
        self.judge(9, wrong.is_none(), || {
            format!("virtual machines leave {leaving}, and {wrong:?} does not say whether it is done")
        });
    }

    fn job(&mut self, job: &Job, name: &str) {
        if !job.complete {
            return;
        }
        for kind in ["pre-drain", "post-drain"] {
            if let Some((_, node)) = name.split_once(&format!("-{kind}-")) {
                self.complete.insert(format!("{kind}/{node}"));
            }
        }
    }

    fn upgrade(&mut self, store: &Store, before: Option<&Upgrade>, after: &Upgrade) {
        let flying: Vec<&str> = in_flight(after).collect();
        self.judge(1, flying.len() <= 1, || format!("at work at once: {flying:?}"));
        let begun = |upgrade: &Upgrade, node: &str| in_flight(upgrade).any(|other| other == node);
        let state = |upgrade: &Upgrade, node: &str| {
            let status = upgrade.status.as_ref()?.node_statuses.get(node)?;
            Some(status.state.clone())
        };
        let starts = flying.iter().copied().filter(|node| {
            let fresh = before.is_none_or(|before| !begun(before, node));
            // One that failed goes on in the midst of its work when it is resumed.
            fresh && state(after, node).as_deref() == Some("Pre-draining")
        });
        for node in starts {
            self.begins(store, before.unwrap_or(after), after, node);
        }
    }

    /// The first thing that takes something away from a node.
    fn begins(&mut self, store: &Store, before: &Upgrade, after: &Upgrade, name: &str) {
        let seen = self.doing.as_ref().map(|doing| doing.nodes_seen).unwrap_or_default();
        let known = |since: Option<&u64>| since.is_some_and(|since| *since <= seen);
        let held = known(self.paused_since.get(name));
        self.judge(6, !held, || format!("{name} begins while a person holds it"));
        let whole = config::annotation(before, PAUSE).is_some();
        self.judge(6, !whole, || format!("{name} begins while a person holds the upgrade"));
        let ended = before.metadata.deletion_timestamp.is_some() || config::annotation(before, ABORT) == Some("true");
        self.judge(6, !ended, || format!("{name} begins after the upgrade was ended"));
        let away = self
            .away_since
            .iter()
            .find(|(other, since)| other.as_str() != name && known(Some(*since)));
        let away = away.map(|(other, _)| other.clone());
        self.judge(1, away.is_none(), || {
            format!("{name} begins while {away:?} is not Ready")
        });
        let others = store.hci.upgrades.values().map(|upgrade| &upgrade.what);
        let others = others.filter(|other| other.metadata.uid != after.metadata.uid);
        let flying = others.flat_map(in_flight).next().map(str::to_owned);
        self.judge(1, flying.is_none(), || {
            format!("{name} begins while {flying:?} is at work for another upgrade")
        });
        self.may_lose_a_node(store, 1, &format!("{name} begins"));
        let served = condition_of(before, "SystemServicesUpgraded") == Some(Tri::True);
        self.judge(4, served, || {
            format!("{name} begins before Rancher and charts are at the target")
        });
    }
}

/// Our taint of nodes that are not done yet.
pub fn is_pending(taint: &Taint) -> bool {
    &*taint.key == UPGRADE_PENDING_TAINT
}

fn keep<K: Clone + Ord>(since: &mut BTreeMap<K, u64>, key: &K, on: bool, revision: u64) {
    if on {
        since.entry(key.clone()).or_insert(revision);
    } else {
        since.remove(key);
    }
}

fn in_flight(upgrade: &Upgrade) -> impl Iterator<Item = &str> {
    let statuses = upgrade.status.iter().flat_map(|status| &status.node_statuses);
    statuses
        .filter(|(_, status)| IN_FLIGHT.contains(&status.state.as_str()))
        .map(|(node, _)| node.as_str())
}

/// The object an action is about, where it is about one that must be the very one.
pub fn target_of(action: &HciAction) -> Option<&Target> {
    match action {
        HciAction::WriteUpgrade { target, .. } | HciAction::NotLatest { target } => Some(target),
        HciAction::MarkNode { node, .. } | HciAction::TaintPending { node, .. } | HciAction::Untaint { node, .. } => {
            Some(node)
        }
        HciAction::DeleteJob { job } => Some(job),
        HciAction::StopLog { log, .. } | HciAction::DeleteLog { log } => Some(log),
        HciAction::LabelImage { image, .. } | HciAction::DeleteImage { image } => Some(image),
        HciAction::RestartRepo { deployment, .. } | HciAction::DeleteRepo { deployment } => Some(deployment),
        HciAction::DeleteRepoService { service } => Some(service),
        HciAction::PatchCluster { cluster, .. } => Some(cluster),
        HciAction::Answer { secret, .. } => Some(secret),
        HciAction::PauseChart { chart, .. } | HciAction::RestoreUpdateMethods { chart, .. } => Some(chart),
        HciAction::RecordVms { list, .. } => list.as_ref(),
        HciAction::SetLonghorn { setting, .. } => Some(setting),
        HciAction::EnableAddon { addon, .. } => Some(addon),
        HciAction::Task(write) => match write {
            TaskWrite::TaintForDrain { node, .. } => Some(node),
            TaskWrite::StopVm { vm, .. } | TaskWrite::StartVm { vm, .. } => Some(vm),
            TaskWrite::Migrate { .. } => None,
            TaskWrite::NoteCancelled { job, .. } => Some(job),
            TaskWrite::CancelMigration { migration } => Some(migration),
            TaskWrite::DetachVolume { volume } => Some(volume),
            TaskWrite::AskForKubernetes { cluster, .. } => Some(cluster),
            TaskWrite::SetImage { server, .. } => Some(server),
            TaskWrite::RollOutChart { chart, .. } => Some(chart),
            TaskWrite::UpdateAddon { addon, .. } => Some(addon),
        },
        HciAction::Confirm { .. }
        | HciAction::CreateJob(_)
        | HciAction::CreateLog { .. }
        | HciAction::CreateImage { .. }
        | HciAction::CreateRepo(_)
        | HciAction::CreateRepoService { .. } => None,
    }
}
