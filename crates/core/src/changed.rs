//! What a view that has changed means for decisions: as little as can be told from what was there before. Whom it concerns is in
//! [`crate::subject`].

use afloat_api::{
    ClusterUpgrade, ClusterUpgradeStatus, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus,
    Reason, WorkersKubeadmUpgrade,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::hci::view::HciKind;
use crate::settings::controller;
use crate::subject::Subject;
use crate::view::{Key, Node, NodeName};

/// What changed in a view.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Changed {
    Node(NodeName),
    /// A pod; with the node it is or was on.
    Pod(Option<NodeName>),
    Budget(Key),
    /// Claims, the kubeadm configuration, images, gates, the virtual address: concerns upgrades only.
    Surroundings,
    /// How many pods a Deployment and its like want and have: preflights count them, and an upgrade of Harvester waits for its repository. They change all
    /// the time, and concern nobody else.
    Workload,
    /// Whether a node, or the control plane on it, can be relied on: concerns whoever grants, and the work on that node.
    Health(NodeName),
    Lock,
    Upgrade(Key),
    /// How far an upgrade has come: its phase, or who may go.
    Ledger(Key),
    /// An upgrade says anew that pods or budgets hold somebody back. Those that have changed since that was decided woke nobody: it is
    /// looked at once more, by whoever said it too.
    Held(Key),
    /// What an upgrade says about itself otherwise. Another replica may have said it from an older view.
    Told(Key),
    ControlPlane(Key),
    Workers(Key),
    /// What a group says about itself, where an upgrade keeps its ledger: nobody else looks at that.
    Counted(Subject),
    NodeUpgrade(Key),
    /// What the work on a node waits for, which is told in its upgrade.
    Waits(Key),
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
            Some((old, new)) if old.phase != new.phase || old.slots != new.slots => Self::Ledger(key.clone()),
            Some((old, new)) if held_by_pods(new) && !held_by_pods(old) => Self::Held(key.clone()),
            Some(_) => Self::Told(key.clone()),
        }
    }

    /// What a group of control planes that is seen anew means.
    pub fn control_plane(
        key: &Key,
        before: Option<&ControlPlaneKubeadmUpgrade>,
        after: &ControlPlaneKubeadmUpgrade,
    ) -> Self {
        if counted(before.map(|group| &group.metadata), &after.metadata) {
            Self::Counted(Subject::ControlPlane(key.clone()))
        } else {
            Self::ControlPlane(key.clone())
        }
    }

    /// What a group of workers that is seen anew means.
    pub fn workers(key: &Key, before: Option<&WorkersKubeadmUpgrade>, after: &WorkersKubeadmUpgrade) -> Self {
        if counted(before.map(|group| &group.metadata), &after.metadata) {
            Self::Counted(Subject::Workers(key.clone()))
        } else {
            Self::Workers(key.clone())
        }
    }

    /// Whether whoever made this change by a write of its own has nothing to learn from it: it said what it had seen, and would
    /// say the same again.
    pub fn is_known_to_its_writer(&self) -> bool {
        matches!(self, Self::Told(_) | Self::Counted(_))
    }

    /// What the upgrade of a node that is seen anew means.
    pub fn node_upgrade(key: &Key, before: Option<&NodeKubeadmUpgrade>, after: &NodeKubeadmUpgrade) -> Self {
        let told = before
            .filter(|before| same_but_status(&before.metadata, &after.metadata))
            .and_then(|before| before.status.as_ref())
            .zip(after.status.as_ref())
            .filter(|(old, new)| {
                let of = |status: &NodeKubeadmUpgradeStatus| (status.state, status.attempt, status.state_since.clone());
                of(old) == of(new)
                    && old.failure == new.failure
                    && old.before == new.before
                    && old.history == new.history
            });
        match told {
            None => Self::NodeUpgrade(key.clone()),
            Some((old, new)) if old.waiting_for == new.waiting_for => Self::Steps(key.clone()),
            Some(_) => Self::Waits(key.clone()),
        }
    }

    /// What a Node that is seen anew means.
    pub fn node(before: Option<&Node>, after: &Node) -> Self {
        // What groups look at, too: which machine it is, and what people want of it.
        let of = |node: &Node| {
            let machine = (node.uid.clone(), node.deleting, node.control_plane);
            let wanted = (node.pause.clone(), node.wish);
            (machine, wanted, node.kubelet_version.clone())
        };
        if before.is_some_and(|before| of(before) == of(after)) {
            Self::Health(after.name.clone())
        } else {
            Self::Node(after.name.clone())
        }
    }
}

/// Whether an upgrade says that somebody without a slot is held back by what a pod or a budget may end: no room, a budget that allows
/// nothing, a part of a control plane that is not well.
pub(crate) fn held_by_pods(status: &ClusterUpgradeStatus) -> bool {
    let by_pods = |reason: &str| {
        let reason = reason.parse();
        matches!(
            reason,
            Ok(Reason::WaitingForCapacity
                | Reason::WaitingForPodDisruptionBudget
                | Reason::WaitingForNode
                | Reason::WaitingForEtcd
                | Reason::WaitingForApiServer
                | Reason::WaitingForVirtualIp)
        )
    };
    let has_slot = |node: &str| status.slots.iter().any(|slot| slot.node == node);
    let mut waiting = status.waiting.iter();
    waiting.any(|wait| by_pods(&wait.wait.reason) && !has_slot(&wait.node))
}

/// Whether only the status of a group differs, and an upgrade keeps its ledger: one that stands alone keeps it there itself.
fn counted(before: Option<&ObjectMeta>, after: &ObjectMeta) -> bool {
    controller(after.owner_references.as_deref()).is_some()
        && before.is_some_and(|before| same_but_status(before, after))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::objects::Standing;
    use crate::subject::affected;
    use crate::testing::World;
    use crate::view::View;
    use crate::view::Wish;
    use afloat_api::clusterupgrade::Phase;
    use afloat_api::kubeadm::DrainProgress;
    use afloat_api::{ClusterUpgradeSpec, ClusterUpgradeStatus, NodeState, Wait, WorkersKubeadmUpgradeSpec};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

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
    fn what_a_group_counts_concerns_itself_alone_unless_it_keeps_its_own_ledger() {
        let mut before = WorkersKubeadmUpgrade::new("edge-1", WorkersKubeadmUpgradeSpec::default());
        let counted = |before: &WorkersKubeadmUpgrade| {
            let mut after = before.clone();
            after.status.get_or_insert_default().in_flight = vec!["worker-1".to_owned()];
            Changed::workers(&key(), Some(before), &after)
        };
        assert_eq!(counted(&before), Changed::Workers(key()), "an upgrade waits for it");
        before.metadata.owner_references = Some(vec![OwnerReference {
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        let told = counted(&before);
        assert_eq!(told, Changed::Counted(Subject::Workers(key())));
        assert_eq!(affected(&View::default(), &told), [Subject::Workers(key())].into());
        assert!(told.is_known_to_its_writer());
        let mut asked = before.clone();
        asked.metadata.generation = Some(2);
        assert_eq!(Changed::workers(&key(), Some(&before), &asked), Changed::Workers(key()));
    }

    #[test]
    fn how_well_a_node_is_concerns_no_group_that_an_upgrade_grants_for() {
        let before = World::worker().node();
        let changed = |change: fn(&mut Node)| {
            let mut after = before.clone();
            change(&mut after);
            Changed::node(Some(&before), &after)
        };
        let name = before.name.clone();
        assert_eq!(changed(|node| node.ready.ready = false), Changed::Health(name.clone()));
        assert_eq!(changed(|node| node.unschedulable = true), Changed::Health(name.clone()));
        for concerns_all in [
            changed(|node| node.pause = Some("a person looks at it".into())),
            changed(|node| node.wish = Some(Wish::Defer)),
            changed(|node| node.uid = "another machine".into()),
            changed(|node| node.kubelet_version = None),
            Changed::node(None, &before),
        ] {
            assert_eq!(concerns_all, Changed::Node(name.clone()));
        }
    }

    #[test]
    fn how_many_pods_a_workload_has_concerns_those_alone_that_have_not_begun() {
        let mut view = View::default();
        for (name, phase) in [
            ("new", None),
            ("looks", Some(Phase::Preflight)),
            ("works", Some(Phase::Workers)),
        ] {
            let mut upgrade = ClusterUpgrade::new(name, ClusterUpgradeSpec::default());
            upgrade.status.get_or_insert_default().phase = phase;
            view.upgrades.insert(Key::new("afloat-system", name), Arc::new(upgrade));
        }
        let concerned = ["looks", "new"].map(|name| Subject::Upgrade(Key::new("afloat-system", name)));
        assert_eq!(affected(&view, &Changed::Workload), concerned.into());
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
        let wait = changed(|status| {
            status.waiting_for = Some(Wait {
                reason: "WaitingForStep".to_owned(),
                message: "kubeadm runs".to_owned(),
                since: Time(Timestamp::UNIX_EPOCH),
                until: None,
                blocked_by: None,
            });
        });
        assert_eq!(wait, Changed::Waits(key()), "its upgrade tells what it waits for");
        let state = changed(|status| status.state = Some(NodeState::Staged));
        assert_eq!(
            state,
            Changed::NodeUpgrade(key()),
            "its group and its upgrade count states"
        );
    }

    #[test]
    fn an_upgrade_of_a_node_that_is_gone_concerns_also_groups_that_were_done() {
        let mut done = WorkersKubeadmUpgrade::new("edge-1", WorkersKubeadmUpgradeSpec::default());
        done.status.get_or_insert_default().ready = true;
        let mut view = View::default();
        view.workers.insert(key(), Arc::new(done));
        let gone = Changed::NodeUpgrade(Key::new("afloat-system", "worker-2-x"));
        assert!(affected(&view, &gone).contains(&Subject::Workers(key())));
    }
}
