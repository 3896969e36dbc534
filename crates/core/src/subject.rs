//! Which object is decided on, and which objects a change concerns. Deciding goes one subject at a time; a change that
//! concerns nobody wakes nobody.

use std::collections::BTreeSet;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{GroupUpgradeStatus, NodeKubeadmUpgrade};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::action::Decision;
use crate::changed::{self, Changed};
use crate::hci::view::HciKind;
use crate::objects::{Standing, key_of};
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

/// Decides on one object. A subject that is gone leads to nothing; what would break a rule does not leave the core.
pub fn decide(view: &View, subject: &Subject, now: Timestamp) -> Decision {
    let decision = match subject {
        Subject::Upgrade(key) => judge::decide_upgrade(view, key, now),
        Subject::ControlPlane(key) => judge::decide_control_plane(view, key, now),
        Subject::Workers(key) => judge::decide_workers(view, key, now),
        Subject::Node(key) => lifecycle::decide_node(view, key, now),
        Subject::Hci(key) => hci::decide(view, key, now),
    };
    let kept = invariants::guard(view, decision, now);
    match subject {
        Subject::Hci(key) => hci::confirmed(view, key, kept),
        _ => kept,
    }
}

/// The subjects to decide on because of a change, as the view is after it.
pub fn affected(view: &View, changed: &Changed) -> BTreeSet<Subject> {
    let mut subjects = BTreeSet::new();
    match changed {
        Changed::Node(node) => {
            nodes_at_work(view, node, &mut subjects);
            who_looks_at_planes(view, node, &mut subjects);
            judges(view, |_| true, &mut subjects);
            who_hears_a_wish(view, node, &mut subjects);
            hci_upgrades(view, &mut subjects);
        }
        Changed::Health(node) => who_looks_at_health(view, node, &mut subjects),
        Changed::Hci(kind) => {
            hci_upgrades(view, &mut subjects);
            // Whoever waits for one of Harvester's to end.
            if *kind == HciKind::Upgrade {
                judges(view, |_| true, &mut subjects);
                planes_alone(view, &mut subjects);
            }
        }
        Changed::Pod(node) => who_looks_at_pods(view, node.as_ref(), &mut subjects),
        Changed::Budget(_) => who_looks_at_budgets(view, &mut subjects),
        Changed::Surroundings | Changed::Lock => {
            judges(view, |_| true, &mut subjects);
            planes_alone(view, &mut subjects);
            hci_upgrades(view, &mut subjects);
        }
        Changed::Workload => who_looks_at_workloads(view, &mut subjects),
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
        Changed::Told(key) | Changed::Held(key) => {
            subjects.insert(Subject::Upgrade(key.clone()));
        }
        Changed::Counted(group) => {
            subjects.insert(group.clone());
        }
        Changed::Waits(key) => {
            subjects.insert(Subject::Node(key.clone()));
            let owners = view.node_upgrade(key).and_then(|upgrade| group_above(view, upgrade));
            subjects.extend(owners.and_then(|(_, upgrade)| upgrade));
        }
        Changed::Steps(key) => {
            subjects.insert(Subject::Node(key.clone()));
        }
        Changed::ControlPlane(key) => {
            subjects.insert(Subject::ControlPlane(key.clone()));
            let group = view.control_planes.get(key);
            around_group(view, key, group.map(|group| &group.metadata), &mut subjects);
        }
        Changed::Workers(key) => {
            subjects.insert(Subject::Workers(key.clone()));
            let group = view.workers.get(key);
            around_group(view, key, group.map(|group| &group.metadata), &mut subjects);
        }
        Changed::NodeUpgrade(key) => {
            subjects.insert(Subject::Node(key.clone()));
            match view.node_upgrade(key) {
                Some(upgrade) => around_node(view, upgrade, &mut subjects),
                None => around_lost_node(view, &mut subjects),
            }
        }
    }
    subjects
}

/// Whoever works on a node or waits for it to be well.
fn who_looks_at_health(view: &View, node: &NodeName, subjects: &mut BTreeSet<Subject>) {
    nodes_at_work(view, node, subjects);
    // Of groups only those grant that stand alone.
    judges(view, stands_alone, subjects);
    who_looks_at_planes(view, node, subjects);
    // But what is not brought to this one may be brought to another.
    for (_, upgrade) in view.node_upgrades_of(node.as_str()) {
        if Standing::of(upgrade).is_brought_things() {
            above_node(view, upgrade, subjects);
        }
    }
    hci_upgrades(view, subjects);
}

/// Whose the upgrade of a node was that is gone is not known any more; also a group that was done may have to make it again.
fn around_lost_node(view: &View, subjects: &mut BTreeSet<Subject>) {
    judges(view, |_| true, subjects);
    subjects.extend(view.control_planes.keys().cloned().map(Subject::ControlPlane));
    subjects.extend(view.workers.keys().cloned().map(Subject::Workers));
}

type Owners<'a> = Option<&'a [k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]>;

fn above(view: &View, key: &Key, owners: Owners<'_>) -> Option<Subject> {
    let upgrade = settings::upgrade_of(view, &key.namespace, owners)?;
    Some(Subject::Upgrade(key_of(&upgrade.metadata)))
}

/// The upgrade that a group belongs to, and its nodes.
fn around_group(view: &View, key: &Key, group: Option<&ObjectMeta>, subjects: &mut BTreeSet<Subject>) {
    if let Some(group) = group {
        subjects.extend(above(view, key, group.owner_references.as_deref()));
        unfinished_nodes(view, key, subjects);
    }
}

/// Whom a node's upgrade belongs to; and the next hop of the same machine, which waits for this one and is let go by a group of its own.
fn around_node(view: &View, upgrade: &NodeKubeadmUpgrade, subjects: &mut BTreeSet<Subject>) {
    above_node(view, upgrade, subjects);
    for (key, hop) in view.node_upgrades_of(&upgrade.spec.node.name) {
        subjects.insert(Subject::Node(key.clone()));
        above_node(view, hop, subjects);
    }
}

fn above_node(view: &View, upgrade: &NodeKubeadmUpgrade, subjects: &mut BTreeSet<Subject>) {
    if let Some((group, upgrade)) = group_above(view, upgrade) {
        if let Some(Subject::Upgrade(key)) = &upgrade
            && view
                .upgrades
                .get(key)
                .is_some_and(|upgrade| judge::stages_by_turns(upgrade))
        {
            // Another group may stage its next node now.
            groups_of(view, key, |group, _| {
                subjects.insert(group);
            });
        }
        subjects.insert(group);
        subjects.extend(upgrade);
    }
}

/// The group of a node's upgrade, and the upgrade that owns it, where it is seen.
fn group_above(view: &View, upgrade: &NodeKubeadmUpgrade) -> Option<(Subject, Option<Subject>)> {
    let owner = controller(upgrade.metadata.owner_references.as_deref())?;
    let namespace = upgrade.metadata.namespace.as_deref().unwrap_or_default();
    let key = Key::new(namespace, &owner.name);
    let (group, meta) = match owner.kind.as_str() {
        "ControlPlaneKubeadmUpgrade" => {
            let group = view.control_planes.get(&key).map(|group| &group.metadata);
            (Subject::ControlPlane(key.clone()), group)
        }
        "WorkersKubeadmUpgrade" => {
            let group = view.workers.get(&key).map(|group| &group.metadata);
            (Subject::Workers(key.clone()), group)
        }
        _ => return None,
    };
    let upgrade = meta.and_then(|meta| above(view, &key, meta.owner_references.as_deref()));
    Some((group, upgrade))
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
        let standing = Standing::of(upgrade);
        let owner = controller(upgrade.metadata.owner_references.as_deref());
        if owner.is_some_and(|owner| *owner.name == *group.name)
            && (standing.in_flight() || standing.desired() != afloat_api::kubeadm::DesiredNodeState::Staged)
            && !standing.ended()
        {
            subjects.insert(Subject::Node(key.clone()));
        }
    }
}

fn nodes_at_work(view: &View, node: &NodeName, subjects: &mut BTreeSet<Subject>) {
    subjects.extend(
        view.node_upgrades_of(node.as_str())
            .map(|(key, _)| Subject::Node(key.clone())),
    );
}

/// Whoever waits for the control plane on this node to be well, without a judge that would let it go.
fn who_looks_at_planes(view: &View, node: &NodeName, subjects: &mut BTreeSet<Subject>) {
    if view.nodes.get(node).is_none_or(|node| node.control_plane) {
        planes_alone(view, subjects);
    }
}

/// Upgrades of control planes that nobody owns.
fn planes_alone(view: &View, subjects: &mut BTreeSet<Subject>) {
    for node in view.control_plane_nodes() {
        let upgrades = view.node_upgrades_of(node.name.as_str());
        let alone = upgrades.filter(|(_, upgrade)| stands_alone(&upgrade.metadata));
        subjects.extend(alone.map(|(key, _)| Subject::Node(key.clone())));
    }
}

/// The groups of nodes that a person wishes something of, also those that are done: a wish that comes too late is taken back, or the next
/// upgrade would hear it. Whether a control plane can be undone yet hangs on any other node: one may have joined with a newer kubelet.
fn who_hears_a_wish(view: &View, node: &NodeName, subjects: &mut BTreeSet<Subject>) {
    let changed = view.nodes.get(node);
    let planes = view.control_plane_nodes().filter(|plane| plane.name != *node);
    for wished in changed.into_iter().chain(planes).filter(|node| node.wish.is_some()) {
        for (_, upgrade) in view.node_upgrades_of(wished.name.as_str()) {
            subjects.extend(group_above(view, upgrade).map(|(group, _)| group));
        }
    }
}

/// Whoever is held by pods, and upgrades of a node that pods on it concern: those that empty it or look at its parts, and all while a
/// pod of Afloat's is there.
fn who_looks_at_pods(view: &View, node: Option<&NodeName>, subjects: &mut BTreeSet<Subject>) {
    use afloat_api::NodeState::{Paused, Pending, RolledBack, Staged, Succeeded};
    held_by_pods(view, subjects);
    let Some(node) = node else { return };
    who_looks_at_planes(view, node, subjects);
    hci_draining(view, Some(node), subjects);
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

/// Whoever evicts, would evict, or looks whether it could.
fn who_looks_at_budgets(view: &View, subjects: &mut BTreeSet<Subject>) {
    hci_draining(view, None, subjects);
    in_preflight(view, subjects);
    held_by_pods(view, subjects);
    for (key, upgrade) in view.node_upgrades() {
        let state = Standing::of(upgrade).state();
        if matches!(
            state,
            afloat_api::NodeState::Draining | afloat_api::NodeState::RollingBack
        ) {
            subjects.insert(Subject::Node(key.clone()));
        }
    }
}

/// Upgrades that have not begun, and those of Harvester: their repository is a Deployment.
fn who_looks_at_workloads(view: &View, subjects: &mut BTreeSet<Subject>) {
    in_preflight(view, subjects);
    hci_upgrades(view, subjects);
}

fn in_preflight(view: &View, subjects: &mut BTreeSet<Subject>) {
    let in_preflight = view.upgrades.iter().filter(|(_, upgrade)| {
        let phase = upgrade.status.as_ref().and_then(|status| status.phase);
        matches!(phase.unwrap_or_default(), Phase::Pending | Phase::Preflight)
    });
    subjects.extend(in_preflight.map(|(key, _)| Subject::Upgrade(key.clone())));
}

/// Whoever says that pods or budgets hold a node back, and groups that grant by themselves and do not say so.
fn held_by_pods(view: &View, subjects: &mut BTreeSet<Subject>) {
    let held = view.upgrades.iter().filter(|(_, upgrade)| {
        let status = upgrade.status.as_ref();
        status.is_some_and(changed::held_by_pods)
    });
    subjects.extend(held.map(|(key, _)| Subject::Upgrade(key.clone())));
    unfinished_groups(view, stands_alone, subjects);
}

fn stands_alone(group: &ObjectMeta) -> bool {
    controller(group.owner_references.as_deref()).is_none()
}

/// Upgrades of Harvester that say of a node, or of this one, which pod or budget keeps it from being emptied or drained.
fn hci_draining(view: &View, node: Option<&NodeName>, subjects: &mut BTreeSet<Subject>) {
    use afloat_api::harvester::HarvesterNodeState::{PreDrained, PreDraining};
    for (key, upgrade) in &view.hci.upgrades {
        let statuses = upgrade.status.iter().flat_map(|status| &status.node_statuses);
        let mut concerned = statuses.filter(|(name, _)| node.is_none_or(|node| node.as_str() == name.as_str()));
        let waits = concerned.any(|(_, status)| matches!(status.state.parse(), Ok(PreDraining | PreDrained)));
        if waits && !hci::over(upgrade) {
            subjects.insert(Subject::Hci(key.clone()));
        }
    }
}

/// Upgrades of Harvester that something is left to do about.
fn hci_upgrades(view: &View, subjects: &mut BTreeSet<Subject>) {
    let open = view
        .hci
        .upgrades
        .iter()
        .filter(|(_, upgrade)| !hci::over(upgrade) || hci::wished(upgrade) || hci::lingers(view, upgrade));
    subjects.extend(open.map(|(key, _)| Subject::Hci(key.clone())));
}

/// Everyone who grants: upgrades, and the groups among `which` that are not done.
fn judges(view: &View, which: impl Fn(&ObjectMeta) -> bool, subjects: &mut BTreeSet<Subject>) {
    subjects.extend(view.upgrades.keys().cloned().map(Subject::Upgrade));
    unfinished_groups(view, which, subjects);
}

fn unfinished_groups(view: &View, which: impl Fn(&ObjectMeta) -> bool, subjects: &mut BTreeSet<Subject>) {
    let wishes = std::cell::OnceCell::new();
    // Taken by whoever had not seen that it was done: nobody else gives it back.
    let holder = view.lock.as_ref().map(|lock| lock.holder.as_str());
    let holds_lock = |meta: &ObjectMeta| holder.is_some() && meta.uid.as_deref() == holder;
    // One that stands alone gives the slot to undo a node, also when it is done.
    let unfinished = |meta: &ObjectMeta, status: Option<&GroupUpgradeStatus>| {
        let asked = || *wishes.get_or_init(|| view.nodes.values().any(|node| node.wish.is_some()));
        status.is_none_or(|status| !status.ready)
            || meta.deletion_timestamp.is_some()
            || holds_lock(meta)
            || (stands_alone(meta) && asked())
    };
    for (key, group) in &view.control_planes {
        if which(&group.metadata) && unfinished(&group.metadata, group.status.as_ref()) {
            subjects.insert(Subject::ControlPlane(key.clone()));
        }
    }
    for (key, group) in &view.workers {
        if which(&group.metadata) && unfinished(&group.metadata, group.status.as_ref()) {
            subjects.insert(Subject::Workers(key.clone()));
        }
    }
}
