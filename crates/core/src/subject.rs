//! Which object is decided on, and which objects a change concerns. Deciding goes one subject at a time; a change that
//! concerns nobody wakes nobody.

use std::collections::BTreeSet;

use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::action::Decision;
use crate::hci::view::HciKind;
use crate::objects::key_of;
use crate::settings::{self, controller};
use crate::view::{Key, NodeName, View};
use crate::{hci, invariants, judge, lifecycle};

/// An object a decision is made on.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    Upgrade(Key),
    ControlPlane(Key),
    Workers(Key),
    Node(Key),
    /// An Upgrade of Harvester.
    Hci(Key),
}

/// What changed in a view.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Changed {
    Node(NodeName),
    /// A pod; with the node it is or was on.
    Pod(Option<NodeName>),
    Budget(Key),
    /// Deployments, claims, the kubeadm configuration, images, gates, the virtual address: concerns upgrades only.
    Surroundings,
    /// Health of a control plane.
    Health(NodeName),
    Lock,
    Upgrade(Key),
    /// How far an upgrade has come: its phase, or who may go.
    Ledger(Key),
    /// What an upgrade says about itself otherwise. Another replica may have said it from an older view.
    Told(Key),
    ControlPlane(Key),
    Workers(Key),
    NodeUpgrade(Key),
    /// How far the work on a node has come, which its group and its upgrade do not look at.
    Steps(Key),
    /// Something of the HCI part of the view.
    Hci(HciKind),
}

impl Changed {
    /// What a ClusterUpgrade that is seen anew means.
    pub fn upgrade(key: &Key, before: Option<&ClusterUpgrade>, after: &ClusterUpgrade) -> Self {
        let told = before
            .filter(|before| same_but_status(&before.metadata, &after.metadata))
            .and_then(|before| before.status.as_ref())
            .zip(after.status.as_ref());
        match told {
            None => Self::Upgrade(key.clone()),
            Some((old, new)) if old.phase == new.phase && old.slots == new.slots => Self::Told(key.clone()),
            Some(_) => Self::Ledger(key.clone()),
        }
    }

    /// What the upgrade of a node that is seen anew means.
    pub fn node_upgrade(key: &Key, before: Option<&NodeKubeadmUpgrade>, after: &NodeKubeadmUpgrade) -> Self {
        let told_alike = before
            .filter(|before| same_but_status(&before.metadata, &after.metadata))
            .and_then(|before| before.status.as_ref())
            .zip(after.status.as_ref())
            .is_some_and(|(old, new)| {
                let of = |status: &NodeKubeadmUpgradeStatus| (status.state, status.attempt, status.state_since.clone());
                of(old) == of(new)
                    && old.waiting_for == new.waiting_for
                    && old.failure == new.failure
                    && old.before == new.before
                    && old.history == new.history
            });
        if told_alike {
            Self::Steps(key.clone())
        } else {
            Self::NodeUpgrade(key.clone())
        }
    }
}

/// Whether at most the status differs: a spec that is changed, and a deletion, raise the generation.
fn same_but_status(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    before.uid == after.uid
        && before.generation == after.generation
        && before.deletion_timestamp == after.deletion_timestamp
        && before.finalizers == after.finalizers
        && before.owner_references == after.owner_references
        && before.labels == after.labels
        && before.annotations == after.annotations
}

/// Decides on one object. A subject that is gone leads to nothing; what would break a rule does not leave the core.
pub fn decide(view: &View, subject: &Subject, now: Timestamp) -> Decision {
    let decision = match subject {
        Subject::Upgrade(key) => judge::decide_upgrade(view, key, now),
        Subject::ControlPlane(key) => judge::decide_control_plane(view, key, now),
        Subject::Workers(key) => judge::decide_workers(view, key, now),
        Subject::Node(key) => lifecycle::decide_node(view, key, now),
        Subject::Hci(key) => hci::decide(view, key, now),
    };
    invariants::guard(view, decision, now)
}

/// The subjects to decide on because of a change, as the view is after it.
pub fn affected(view: &View, changed: &Changed) -> BTreeSet<Subject> {
    let mut subjects = BTreeSet::new();
    match changed {
        Changed::Node(node) | Changed::Health(node) => {
            nodes_at_work(view, Some(node), &mut subjects);
            judges(view, &mut subjects);
            hci_upgrades(view, &mut subjects);
        }
        Changed::Hci(kind) => {
            hci_upgrades(view, &mut subjects);
            // Whoever waits for one of Harvester's to end.
            if *kind == HciKind::Upgrade {
                judges(view, &mut subjects);
            }
        }
        Changed::Pod(node) => who_looks_at_pods(view, node.as_ref(), &mut subjects),
        Changed::Budget(_) => draining(view, &mut subjects),
        Changed::Surroundings | Changed::Lock => {
            judges(view, &mut subjects);
            hci_upgrades(view, &mut subjects);
        }
        Changed::Upgrade(key) => {
            subjects.insert(Subject::Upgrade(key.clone()));
            below_upgrade(view, key, &mut subjects);
            // Whoever waits for this one to end.
            subjects.extend(view.upgrades.keys().cloned().map(Subject::Upgrade));
        }
        Changed::Ledger(key) => {
            groups_of(view, key, |group, _| {
                subjects.insert(group);
            });
            subjects.extend(view.upgrades.keys().cloned().map(Subject::Upgrade));
        }
        Changed::Told(key) => {
            subjects.insert(Subject::Upgrade(key.clone()));
        }
        Changed::Steps(key) => {
            subjects.insert(Subject::Node(key.clone()));
        }
        Changed::ControlPlane(key) => {
            subjects.insert(Subject::ControlPlane(key.clone()));
            if let Some(group) = view.control_planes.get(key) {
                above(view, key, group.metadata.owner_references.as_deref(), &mut subjects);
                below_group(view, key, &mut subjects);
            }
        }
        Changed::Workers(key) => {
            subjects.insert(Subject::Workers(key.clone()));
            if let Some(group) = view.workers.get(key) {
                above(view, key, group.metadata.owner_references.as_deref(), &mut subjects);
                below_group(view, key, &mut subjects);
            }
        }
        Changed::NodeUpgrade(key) => {
            subjects.insert(Subject::Node(key.clone()));
            match view.node_upgrade(key) {
                Some(upgrade) => {
                    above_node(view, upgrade, &mut subjects);
                    // The next hop of the same machine waits for this one, and is let go by a group of its own.
                    for (key, hop) in view.node_upgrades_of(&upgrade.spec.node.name) {
                        subjects.insert(Subject::Node(key.clone()));
                        above_node(view, hop, &mut subjects);
                    }
                }
                None => judges(view, &mut subjects),
            }
        }
    }
    subjects
}

type Owners<'a> = Option<&'a [k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]>;

fn above(view: &View, key: &Key, owners: Owners<'_>, subjects: &mut BTreeSet<Subject>) {
    if let Some(upgrade) = settings::upgrade_of(view, &key.namespace, owners) {
        subjects.insert(Subject::Upgrade(key_of(&upgrade.metadata)));
    }
}

fn above_node(view: &View, upgrade: &NodeKubeadmUpgrade, subjects: &mut BTreeSet<Subject>) {
    let Some(owner) = controller(upgrade.metadata.owner_references.as_deref()) else {
        return;
    };
    let namespace = upgrade.metadata.namespace.as_deref().unwrap_or_default();
    let key = Key::new(namespace, &owner.name);
    let owners = match owner.kind.as_str() {
        "ControlPlaneKubeadmUpgrade" => {
            subjects.insert(Subject::ControlPlane(key.clone()));
            view.control_planes.get(&key).map(|group| &group.metadata)
        }
        "WorkersKubeadmUpgrade" => {
            subjects.insert(Subject::Workers(key.clone()));
            view.workers.get(&key).map(|group| &group.metadata)
        }
        _ => None,
    };
    if let Some(meta) = owners {
        above(view, &key, meta.owner_references.as_deref(), subjects);
    }
}

fn below_upgrade(view: &View, key: &Key, subjects: &mut BTreeSet<Subject>) {
    groups_of(view, key, |group, key| {
        subjects.insert(group);
        unfinished_nodes(view, key, subjects);
    });
}

/// The groups of an upgrade, as subjects and by their keys.
fn groups_of(view: &View, key: &Key, mut take: impl FnMut(Subject, &Key)) {
    let owned = |meta: &ObjectMeta| {
        meta.namespace.as_deref() == Some(&key.namespace)
            && controller(meta.owner_references.as_deref()).is_some_and(|owner| *owner.name == *key.name)
    };
    for (group, object) in &view.control_planes {
        if owned(&object.metadata) {
            take(Subject::ControlPlane(group.clone()), group);
        }
    }
    for (group, object) in &view.workers {
        if owned(&object.metadata) {
            take(Subject::Workers(group.clone()), group);
        }
    }
}

/// Nodes of a group that a pause, an abort or a changed drain option concerns: those at work or about to be.
fn unfinished_nodes(view: &View, group: &Key, subjects: &mut BTreeSet<Subject>) {
    for (key, upgrade) in view.node_upgrades() {
        let standing = crate::objects::Standing::of(upgrade);
        let owner = controller(upgrade.metadata.owner_references.as_deref());
        if owner.is_some_and(|owner| *owner.name == *group.name)
            && (standing.in_flight() || standing.desired() != afloat_api::kubeadm::DesiredNodeState::Staged)
            && !standing.ended()
        {
            subjects.insert(Subject::Node(key.clone()));
        }
    }
}

fn below_group(view: &View, group: &Key, subjects: &mut BTreeSet<Subject>) {
    unfinished_nodes(view, group, subjects);
}

fn nodes_at_work(view: &View, node: Option<&NodeName>, subjects: &mut BTreeSet<Subject>) {
    let Some(node) = node else { return };
    subjects.extend(
        view.node_upgrades_of(node.as_str())
            .map(|(key, _)| Subject::Node(key.clone())),
    );
}

/// Upgrades of a node that pods on it concern: those that empty it or look at its parts, and all while a pod of Afloat's is there.
fn who_looks_at_pods(view: &View, node: Option<&NodeName>, subjects: &mut BTreeSet<Subject>) {
    use afloat_api::NodeState::{Paused, Pending, RolledBack, Staged, Succeeded};
    let Some(node) = node else { return };
    let tasks = view.tasks_on(node.as_str()).next().is_some();
    for (key, upgrade) in view.node_upgrades_of(node.as_str()) {
        let state = upgrade
            .status
            .as_ref()
            .and_then(|status| status.state)
            .unwrap_or_default();
        if tasks || !matches!(state, Pending | Staged | Paused | Succeeded | RolledBack) {
            subjects.insert(Subject::Node(key.clone()));
        }
    }
}

fn draining(view: &View, subjects: &mut BTreeSet<Subject>) {
    for (key, upgrade) in view.node_upgrades() {
        let state = crate::objects::Standing::of(upgrade).state();
        if matches!(
            state,
            afloat_api::NodeState::Draining | afloat_api::NodeState::RollingBack
        ) {
            subjects.insert(Subject::Node(key.clone()));
        }
    }
}

/// Upgrades of Harvester that something is left to do about.
fn hci_upgrades(view: &View, subjects: &mut BTreeSet<Subject>) {
    let open = view
        .hci
        .upgrades
        .iter()
        .filter(|(_, upgrade)| !hci::over(upgrade) || hci::wished(upgrade));
    subjects.extend(open.map(|(key, _)| Subject::Hci(key.clone())));
}

/// Everyone who grants.
fn judges(view: &View, subjects: &mut BTreeSet<Subject>) {
    subjects.extend(view.upgrades.keys().cloned().map(Subject::Upgrade));
    for (key, group) in &view.control_planes {
        if group.status.as_ref().is_none_or(|status| !status.ready) {
            subjects.insert(Subject::ControlPlane(key.clone()));
        }
    }
    for (key, group) in &view.workers {
        if group.status.as_ref().is_none_or(|status| !status.ready) {
            subjects.insert(Subject::Workers(key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Standing;
    use crate::testing::World;
    use afloat_api::clusterupgrade::Phase;
    use afloat_api::kubeadm::DrainProgress;
    use afloat_api::{ClusterUpgradeSpec, ClusterUpgradeStatus, NodeState};

    fn key() -> Key {
        Key::new("afloat-system", "edge-1")
    }

    fn told(change: impl FnOnce(&mut ClusterUpgrade)) -> Changed {
        let mut before = ClusterUpgrade::new("edge-1", ClusterUpgradeSpec::default());
        before.status = Some(ClusterUpgradeStatus::default());
        let mut after = before.clone();
        change(&mut after);
        Changed::upgrade(&key(), Some(&before), &after)
    }

    #[test]
    fn what_an_upgrade_says_of_itself_wakes_no_node_and_what_it_grants_its_groups_only() {
        let with_status =
            |change: fn(&mut ClusterUpgradeStatus)| told(|upgrade| change(upgrade.status.get_or_insert_default()));
        let counted = with_status(|status| status.progress = Some("2/3".to_owned()));
        assert_eq!(counted, Changed::Told(key()));
        let granted = with_status(|status| {
            let slot = Standing::of(&World::worker().upgrade()).slot(Timestamp::UNIX_EPOCH);
            status.slots.push(slot);
        });
        assert_eq!(granted, Changed::Ledger(key()));
        let gone_on = with_status(|status| status.phase = Some(Phase::Workers));
        assert_eq!(gone_on, Changed::Ledger(key()));
        let given_away = told(|upgrade| upgrade.metadata.owner_references = Some(Vec::new()));
        assert_eq!(given_away, Changed::Upgrade(key()));
        let asked = told(|upgrade| upgrade.metadata.generation = Some(2));
        assert_eq!(
            asked,
            Changed::Upgrade(key()),
            "a spec that was changed concerns all below it"
        );
        let after = ClusterUpgrade::new("edge-1", ClusterUpgradeSpec::default());
        assert_eq!(Changed::upgrade(&key(), None, &after), Changed::Upgrade(key()));
    }

    #[test]
    fn how_far_the_work_on_a_node_is_concerns_that_node_alone() {
        let mut before = World::worker().upgrade();
        before.status = Some(NodeKubeadmUpgradeStatus::default());
        let changed = |change: fn(&mut NodeKubeadmUpgradeStatus)| {
            let mut after = before.clone();
            change(after.status.get_or_insert_default());
            Changed::node_upgrade(&key(), Some(&before), &after)
        };
        let step = changed(|status| status.current_step = Some("kubeadm".to_owned()));
        assert_eq!(step, Changed::Steps(key()));
        let drain = changed(|status| status.drain = Some(DrainProgress::default()));
        assert_eq!(drain, Changed::Steps(key()));
        let state = changed(|status| status.state = Some(NodeState::Staged));
        assert_eq!(
            state,
            Changed::NodeUpgrade(key()),
            "its group and its upgrade count states"
        );
    }
}
