//! Carrying out one action on the storage, as the real executor does it over HTTP: the preconditions of the action go with
//! the request, and that a child is there already is no refusal where it is ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::{
    ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, annotations, labels, names,
};
use afloat_core::action::{Action, Place, Task, TaskPod};
use afloat_core::plan::StageKind;
use afloat_core::view::{
    Key, Lock, Node, NodeName, Owner, Pod, PodPhase, PodShape, Revision, Target, TaskReport, Toleration,
};

use super::bugs::Bug;
use crate::store::{Custom, Meant, PodMore, Refused, Store, Writer};
use crate::time::{Millis, SECOND};

/// What a write left in the storage, to be taken into the writer's own view at once.
#[derive(Clone, Debug)]
pub enum Answer {
    Nothing,
    Node(Arc<Node>),
    Upgrade(Arc<ClusterUpgrade>),
    ControlPlane(Arc<ControlPlaneKubeadmUpgrade>),
    Workers(Arc<WorkersKubeadmUpgrade>),
    NodeUpgrade(Arc<NodeKubeadmUpgrade>),
    Pod(Arc<Pod>),
    Lock(Arc<Lock>),
}

type NodeChange = Box<dyn FnOnce(&mut Node)>;

/// Carries out actions for one replica.
pub struct Executor<'a> {
    pub store: &'a mut Store,
    pub writer: Writer,
    pub bug: Option<Bug>,
}

impl Executor<'_> {
    fn meant<'a>(&self, target: &'a Target) -> Meant<'a, Key> {
        Meant {
            key: &target.key,
            uid: (self.bug != Some(Bug::IgnoreUid)).then(|| target.uid.as_str()),
            revision: (!matches!(self.bug, Some(Bug::DropRevision | Bug::IgnoreUid))).then_some(target.revision.0),
        }
    }

    pub fn execute(&mut self, action: Action) -> Result<Answer, Refused> {
        let verb = action.name();
        match action {
            // The list is a map by node: the API server refuses two of one key.
            Action::WriteUpgradeStatus { status, .. } if twice(&status.slots) => Err(Refused::Invalid),
            Action::WriteUpgradeStatus { target, status } => self
                .store
                .update_status::<ClusterUpgrade>(self.writer, verb, &self.meant(&target), *status)
                .map(Answer::Upgrade),
            Action::WriteControlPlaneStatus { target, status } => self
                .store
                .update_status::<ControlPlaneKubeadmUpgrade>(self.writer, verb, &self.meant(&target), *status)
                .map(Answer::ControlPlane),
            Action::WriteWorkersStatus { target, status } => self
                .store
                .update_status::<WorkersKubeadmUpgrade>(self.writer, verb, &self.meant(&target), *status)
                .map(Answer::Workers),
            Action::WriteNodeStatus { target, status } => self
                .store
                .update_status::<NodeKubeadmUpgrade>(self.writer, verb, &self.meant(&target), *status)
                .map(Answer::NodeUpgrade),
            Action::CreateControlPlaneUpgrade(object) => self.child(verb, *object).map(Answer::ControlPlane),
            Action::CreateWorkersUpgrade(object) => self.child(verb, *object).map(Answer::Workers),
            Action::CreateNodeUpgrade(object) => self.child(verb, *object).map(Answer::NodeUpgrade),
            Action::SetUpgradeFinalizer { target, present } => {
                let finalizers = present.then(|| vec![names::FINALIZER.to_owned()]);
                self.custom::<ClusterUpgrade>(verb, &target, |upgrade| upgrade.metadata.finalizers = finalizers)
                    .map(|written| written.map_or(Answer::Nothing, Answer::Upgrade))
            }
            Action::SetGroupFinalizer { .. } => self.group_finalizer(&action),
            Action::RemoveNodeFinalizer { target } => self
                .custom::<NodeKubeadmUpgrade>(verb, &target, |upgrade| upgrade.metadata.finalizers = None)
                .map(|written| written.map_or(Answer::Nothing, Answer::NodeUpgrade)),
            Action::SetControlPlaneMachines { target, machines } => self
                .custom::<ControlPlaneKubeadmUpgrade>(verb, &target, |group| {
                    group.spec.machines_require_upgrade = machines;
                })
                .map(|written| written.map_or(Answer::Nothing, Answer::ControlPlane)),
            Action::SetWorkersMachines { target, machines } => self
                .custom::<WorkersKubeadmUpgrade>(verb, &target, |group| {
                    group.spec.machines_require_upgrade = machines;
                })
                .map(|written| written.map_or(Answer::Nothing, Answer::Workers)),
            Action::SetDesired { .. } => self.set_desired(&action),
            Action::TakeLock { namespace, holder, .. } => self.take_lock(&namespace, &holder),
            Action::ReleaseLock { lock } => self.release_lock(&lock),
            Action::CreatePod(task) => self.create_pod(*task),
            Action::Cordon { .. }
            | Action::Uncordon { .. }
            | Action::PauseNode { .. }
            | Action::UnpauseNode { .. }
            | Action::ClearWish { .. } => self.node_action(&action),
            Action::DeletePod { pod } => self.delete(verb, &pod, None),
            Action::Evict { .. } | Action::DeletePastBudget { .. } => self.let_go(&action),
            // Nobody makes an Upgrade of Harvester in this world.
            Action::Hci(_) => Err(Refused::NotFound),
        }
    }

    fn group_finalizer(&mut self, action: &Action) -> Result<Answer, Refused> {
        let Action::SetGroupFinalizer { target, of, present } = action else {
            return Ok(Answer::Nothing);
        };
        let (verb, finalizers) = (action.name(), present.then(|| vec![names::FINALIZER.to_owned()]));
        match of {
            StageKind::ControlPlane => self
                .custom::<ControlPlaneKubeadmUpgrade>(verb, target, |group| group.metadata.finalizers = finalizers)
                .map(|written| written.map_or(Answer::Nothing, Answer::ControlPlane)),
            StageKind::Workers => self
                .custom::<WorkersKubeadmUpgrade>(verb, target, |group| group.metadata.finalizers = finalizers)
                .map(|written| written.map_or(Answer::Nothing, Answer::Workers)),
        }
    }

    fn let_go(&mut self, action: &Action) -> Result<Answer, Refused> {
        let verb = action.name();
        match action {
            Action::Evict { pod, grace_seconds, .. } if self.bug == Some(Bug::EvictPastBudget) => {
                self.delete(verb, pod, *grace_seconds)
            }
            Action::Evict {
                pod,
                grace_seconds,
                from,
            } => {
                self.see_that_it_is_cordoned(from)?;
                let meant = Meant {
                    revision: None,
                    ..self.meant(pod)
                };
                match self.store.evict(self.writer, &meant, grace(*grace_seconds)) {
                    // It is gone, or counted: an answer, not an error.
                    Ok(()) | Err(Refused::NotFound | Refused::TooManyRequests) => Ok(Answer::Nothing),
                    Err(refused) => Err(refused),
                }
            }
            Action::DeletePastBudget {
                pod,
                grace_seconds,
                from,
                ..
            } => {
                self.see_that_it_is_cordoned(from)?;
                self.delete(verb, pod, *grace_seconds)
            }
            _ => Err(Refused::Invalid),
        }
    }

    /// Looked at as it is: the view may be of long ago.
    fn see_that_it_is_cordoned(&self, from: &Place) -> Result<(), Refused> {
        let node = self.store.nodes.get(&from.node).ok_or(Refused::NotFound)?;
        let same_hand = from.cordoned_by.is_none() || node.cordoned_by == from.cordoned_by;
        if node.uid == from.uid && node.unschedulable && same_hand {
            Ok(())
        } else {
            Err(Refused::Conflict)
        }
    }

    fn release_lock(&mut self, lock: &Target) -> Result<Answer, Refused> {
        let there = self.store.meant::<Lock>(&self.meant(lock)).map(|_| ());
        match there {
            Ok(()) => {
                self.store.remove::<Lock>(self.writer, &lock.key);
                Ok(Answer::Nothing)
            }
            Err(Refused::NotFound) => Ok(Answer::Nothing),
            Err(refused) => Err(refused),
        }
    }

    fn set_desired(&mut self, action: &Action) -> Result<Answer, Refused> {
        let Action::SetDesired {
            target,
            desired,
            attempt,
            because,
        } = action
        else {
            return Ok(Answer::Nothing);
        };
        let before = self.store.meant::<NodeKubeadmUpgrade>(&self.meant(target))?;
        // The CRD's own rules: attempts count up, and within one what is desired only moves on.
        let spec = &before.spec;
        let moves_on = *attempt > spec.attempt
            || *desired == spec.desired
            || spec.desired == afloat_api::kubeadm::DesiredNodeState::Staged
            || *desired == afloat_api::kubeadm::DesiredNodeState::RolledBack;
        if *attempt < spec.attempt || !moves_on {
            return Err(Refused::Invalid);
        }
        let written = self.custom::<NodeKubeadmUpgrade>(action.name(), target, |upgrade| {
            upgrade.spec.desired = *desired;
            upgrade.spec.attempt = *attempt;
            let notes = upgrade.metadata.annotations.get_or_insert_default();
            match because {
                Some(because) => {
                    notes.insert(annotations::BECAUSE.to_owned(), because.to_string());
                }
                None => {
                    notes.remove(annotations::BECAUSE);
                }
            }
        });
        written.map(|written| written.map_or(Answer::Nothing, Answer::NodeUpgrade))
    }

    fn take_lock(&mut self, namespace: &Arc<str>, holder: &afloat_core::view::Uid) -> Result<Answer, Refused> {
        let key = Key {
            namespace: Arc::clone(namespace),
            name: Arc::from(names::LOCK),
        };
        if let Some(lock) = self.store.locks.get(&key) {
            return if lock.holder == *holder {
                Ok(Answer::Lock(Arc::clone(lock)))
            } else {
                Err(Refused::AlreadyExists)
            };
        }
        let lock = Lock {
            target: Target {
                key,
                uid: self.store.new_uid(),
                revision: Revision(0),
            },
            holder: holder.clone(),
        };
        self.store.create(self.writer, "take-lock", lock).map(Answer::Lock)
    }

    /// Makes a child; one that is there already is fine where it has the same owner.
    fn child<T: Custom>(&mut self, verb: &'static str, object: T) -> Result<Arc<T>, Refused> {
        let owner = |object: &T| {
            let owners = object.meta().owner_references.as_ref();
            owners.and_then(|owners| owners.first()).map(|owner| owner.uid.clone())
        };
        if let Some(there) = T::table(self.store).get(&object.key()) {
            return if owner(there) == owner(&object) {
                Ok(Arc::clone(there))
            } else {
                Err(Refused::AlreadyExists)
            };
        }
        self.store.create_custom(self.writer, verb, object)
    }

    fn custom<T: Custom>(
        &mut self,
        verb: &'static str,
        target: &Target,
        change: impl FnOnce(&mut T),
    ) -> Result<Option<Arc<T>>, Refused> {
        let meant = self.meant(target);
        self.store.update_custom(self.writer, verb, &meant, change)
    }

    fn node_action(&mut self, action: &Action) -> Result<Answer, Refused> {
        let (target, change): (&Target, NodeChange) = match action {
            Action::Cordon { node, by } => {
                let by = by.clone();
                (
                    node,
                    Box::new(move |node| {
                        node.unschedulable = true;
                        node.cordoned_by = Some(by);
                    }),
                )
            }
            Action::Uncordon { node } if self.bug == Some(Bug::LeaveAnnotation) => {
                (node, Box::new(|node| node.unschedulable = false))
            }
            Action::Uncordon { node } => (
                node,
                Box::new(|node| {
                    node.unschedulable = false;
                    node.cordoned_by = None;
                }),
            ),
            Action::PauseNode { node, upgrade } => {
                let meant = Meant {
                    revision: None,
                    ..self.meant(upgrade)
                };
                let there = self.store.meant::<ClusterUpgrade>(&meant)?;
                if there.metadata.deletion_timestamp.is_some() {
                    return Err(Refused::Conflict);
                }
                let by = upgrade.uid.clone();
                (
                    node,
                    Box::new(move |node| {
                        node.pause = Some(Arc::from("true"));
                        node.paused_by = Some(by);
                    }),
                )
            }
            Action::UnpauseNode { node, left } => {
                let left = left.clone();
                (
                    node,
                    Box::new(move |node| {
                        node.pause = left;
                        node.paused_by = None;
                    }),
                )
            }
            Action::ClearWish { node } => (node, Box::new(|node| node.wish = None)),
            _ => return Ok(Answer::Nothing),
        };
        let name = NodeName::from(Arc::clone(&target.key.name));
        let meant = self.meant(target);
        let meant = Meant {
            key: &name,
            uid: meant.uid,
            revision: meant.revision,
        };
        self.store
            .update::<Node>(self.writer, action.name(), &meant, change)
            .map(Answer::Node)
    }

    fn delete(&mut self, verb: &'static str, pod: &Target, grace_seconds: Option<i64>) -> Result<Answer, Refused> {
        let meant = Meant {
            revision: None,
            ..self.meant(pod)
        };
        match self.store.delete_pod(self.writer, verb, &meant, grace(grace_seconds)) {
            Ok(()) | Err(Refused::NotFound) => Ok(Answer::Nothing),
            Err(refused) => Err(refused),
        }
    }

    fn create_pod(&mut self, task: TaskPod) -> Result<Answer, Refused> {
        if let Some(pod) = self.store.pods.get(&task.key) {
            let owner = self.store.pods_more.get(&pod.uid).and_then(|more| more.owner.as_ref());
            return if owner == Some(&task.owner.uid) {
                Ok(Answer::Pod(Arc::clone(pod)))
            } else {
                Err(Refused::AlreadyExists)
            };
        }
        if task.task != Task::Stage {
            // As the real executor, which reads the node before it makes the pod.
            let node = self.store.nodes.get(&task.node).ok_or(Refused::NotFound)?;
            if node.uid != task.node_uid || !node.unschedulable {
                return Err(Refused::Conflict);
            }
        }
        let left = |pod: &Arc<Pod>| afloat_core::lifecycle::has_to_leave(pod);
        if task.emptied && self.store.pods_on(&task.node).any(left) {
            return Err(Refused::Conflict);
        }
        // The real one is bound by name: the API server takes it also where no such node is.
        let uid = self.store.new_uid();
        let pod = Pod {
            key: task.key.clone(),
            uid: uid.clone(),
            revision: Revision(0),
            node: Some(task.node.clone()),
            phase: PodPhase::Pending,
            ready: false,
            started_at: None,
            ending: None,
            shape: Arc::new(shape(&task)),
            static_part: None,
            task: Some(Arc::new(TaskReport {
                task: Arc::from(task.task.word()),
                attempt: task.attempt,
                containers: BTreeMap::new(),
                image_problem: None,
            })),
        };
        let more = PodMore {
            grace: 10 * SECOND,
            owner: Some(task.owner.uid.clone()),
            task: Some(Arc::new(task)),
        };
        self.store.pods_more.insert(uid, more);
        self.store.create(self.writer, "create-pod", pod).map(Answer::Pod)
    }
}

/// Whether a node has two slots.
fn twice(slots: &[afloat_api::clusterupgrade::Slot]) -> bool {
    let nodes: std::collections::BTreeSet<&str> = slots.iter().map(|slot| slot.node.as_str()).collect();
    nodes.len() < slots.len()
}

fn grace(seconds: Option<i64>) -> Option<Millis> {
    seconds.map(|seconds| u64::try_from(seconds).unwrap_or_default() * SECOND)
}

fn shape(task: &TaskPod) -> PodShape {
    let mut pod_labels = BTreeMap::new();
    for (key, value) in [
        (labels::TASK, task.task.word()),
        (labels::NODE, task.node.as_str()),
        (labels::UPGRADE_UID, task.upgrade_uid.as_str()),
    ] {
        pod_labels.insert(Arc::from(key), Arc::from(value));
    }
    PodShape {
        labels: pod_labels,
        owner: Some(Owner {
            kind: Arc::from("NodeKubeadmUpgrade"),
            name: Arc::clone(&task.owner.key.name),
            uid: task.owner.uid.clone(),
        }),
        tolerations: vec![Toleration {
            key: None,
            value: None,
            effect: None,
        }],
        ..PodShape::default()
    }
}
