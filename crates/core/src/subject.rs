//! Which object is decided on, and which objects a change concerns. Deciding goes one subject at a time; a change that
//! concerns nobody wakes nobody.

use std::collections::BTreeSet;

use afloat_api::NodeKubeadmUpgrade;
use jiff::Timestamp;

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
    ControlPlane(Key),
    Workers(Key),
    NodeUpgrade(Key),
    /// Something of the HCI part of the view.
    Hci(HciKind),
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
        Changed::Pod(node) => nodes_at_work(view, node.as_ref(), &mut subjects),
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
    let owned = |owners: Owners<'_>, namespace: Option<&str>| {
        namespace == Some(&key.namespace) && controller(owners).is_some_and(|owner| *owner.name == *key.name)
    };
    for (group, object) in &view.control_planes {
        let meta = &object.metadata;
        if owned(meta.owner_references.as_deref(), meta.namespace.as_deref()) {
            subjects.insert(Subject::ControlPlane(group.clone()));
            unfinished_nodes(view, group, subjects);
        }
    }
    for (group, object) in &view.workers {
        let meta = &object.metadata;
        if owned(meta.owner_references.as_deref(), meta.namespace.as_deref()) {
            subjects.insert(Subject::Workers(group.clone()));
            unfinished_nodes(view, group, subjects);
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
