//! Small clusters for the tests of decisions: builders with defaults that work. Tests change what they are about.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{StepOutcome, StepReport, steps};
use afloat_api::{NodeKubeadmUpgrade, NodeKubeadmUpgradeSpec, NodeRef, NodeRole, StepContainer, labels, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::action::TaskPod;
use crate::view::{
    Component, ContainerReport, Key, Labels, Node, NodeName, Operator, Owner, Pod, PodBudget, PodPhase, PodShape,
    Ready, Requirement, Resources, Revision, Selector, StaticPart, TaskReport, Uid,
};

pub use world::World;

pub const HOME: &str = "afloat-system";
pub const OLD: &str = "v1.35.4";
pub const NEW: &str = "v1.36.3";
pub const UPGRADE: &str = "0b2f4c6e-1111-4222-8333-444455556666";

/// So many seconds after the beginning of all tests.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

pub fn uid(name: &str) -> Uid {
    Uid::from(format!("uid-of-{name}"))
}

/// A worker that is in service.
pub fn node(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        uid: uid(name),
        revision: Revision(1),
        created_at: at(-1_000_000),
        ready: Ready {
            ready: true,
            since: at(-1_000_000),
        },
        kubelet_version: OLD.parse().ok(),
        container_runtime_version: Arc::from("containerd://2.2.1"),
        os_image: Arc::from("Debian GNU/Linux 13"),
        allocatable: Resources {
            cpu_milli: 4000,
            memory: 8 << 30,
            pods: 110,
            others: BTreeMap::new(),
        },
        ..Node::default()
    }
}

pub fn control_plane(name: &str) -> Node {
    Node {
        control_plane: true,
        labels: Arc::new(map(&[(labels::CONTROL_PLANE_NODE, "")])),
        ..node(name)
    }
}

pub fn map(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value)));
    pairs.collect()
}

/// A pod of a Deployment, running and ready, with the label `app`.
pub fn pod(namespace: &str, name: &str, node: &str, app: &str) -> Pod {
    Pod {
        key: Key::new(namespace, name),
        uid: uid(name),
        revision: Revision(1),
        node: Some(NodeName::from(node)),
        phase: PodPhase::Running,
        ready: true,
        started_at: Some(at(-1000)),
        ending: None,
        shape: Arc::new(PodShape {
            labels: map(&[("app", app)]),
            owner: Some(owner("ReplicaSet", app)),
            ..PodShape::default()
        }),
        static_part: None,
        task: None,
    }
}

pub fn owner(kind: &str, name: &str) -> Owner {
    Owner {
        kind: Arc::from(kind),
        name: Arc::from(name),
        uid: uid(name),
    }
}

/// The mirror of a static pod, Ready.
pub fn static_pod(component: Component, word: &str, node: &str, tag: &str) -> Pod {
    let mut pod = pod("kube-system", &format!("{word}-{node}"), node, word);
    pod.shape = Arc::new(PodShape {
        owner: Some(owner("Node", node)),
        ..(*pod.shape).clone()
    });
    pod.static_part = Some(StaticPart {
        component,
        version: tag.parse().ok(),
        tag: Arc::from(tag),
    });
    pod
}

/// A budget over the pods with the label `app`.
pub fn budget(namespace: &str, name: &str, app: &str, allowed: i64) -> PodBudget {
    PodBudget {
        key: Key::new(namespace, name),
        uid: uid(name),
        revision: Revision(1),
        selector: Selector {
            requirements: vec![Requirement {
                key: Arc::from("app"),
                operator: Operator::In,
                values: vec![Arc::from(app)],
            }],
        },
        up_to_date: true,
        disruptions_allowed: allowed,
        current_healthy: 2,
        desired_healthy: 2 - allowed,
        expected_pods: 2,
        unhealthy_may_go: false,
    }
}

pub fn step(name: &str) -> StepContainer {
    StepContainer {
        name: name.to_owned(),
        image: "upgrader:v1.36.3".to_owned(),
        args: vec!["node".to_owned(), name.to_owned()],
        ..StepContainer::default()
    }
}

/// The upgrade of a node to [`NEW`], labelled with [`UPGRADE`], with staging and all steps of its role.
pub fn node_upgrade(node: &str, role: NodeRole) -> NodeKubeadmUpgrade {
    let name = names::node_upgrade(node, UPGRADE, uid(node).as_str());
    let mut words = vec![steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET];
    if role != NodeRole::Worker {
        words.insert(0, steps::STAND_ASIDE);
        words.push(steps::COME_BACK);
    }
    NodeKubeadmUpgrade {
        metadata: ObjectMeta {
            namespace: Some(HOME.to_owned()),
            uid: Some(uid(&name).to_string()),
            name: Some(name),
            resource_version: Some("1".to_owned()),
            generation: Some(1),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            labels: Some(BTreeMap::from([(labels::UPGRADE_UID.to_owned(), UPGRADE.to_owned())])),
            owner_references: (role != NodeRole::Worker).then(|| vec![owned_by_somebody()]),
            ..ObjectMeta::default()
        },
        spec: NodeKubeadmUpgradeSpec {
            cluster: None,
            machine: None,
            node: NodeRef {
                name: node.to_owned(),
                uid: uid(node).to_string(),
            },
            role,
            kubernetes_version: NEW.to_owned(),
            kubelet_version: NEW.to_owned(),
            etcd_version: None,
            stage: Some(Arc::new(step(steps::STAGE))),
            steps: Arc::new(words.into_iter().map(step).collect()),
            attempt: 1,
            desired: DesiredNodeState::Upgraded,
            undo_after_seconds: None,
        },
        status: None,
    }
}

/// Whose judge it is that lets a control plane go does not matter to its life, but that there is one.
fn owned_by_somebody() -> OwnerReference {
    OwnerReference {
        kind: "Somebody".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

pub fn said(outcome: StepOutcome, message: &str) -> StepReport {
    StepReport {
        outcome,
        message: message.to_owned(),
        ..StepReport::default()
    }
}

/// The pod the operator makes of a task; its first container runs.
fn made(task: &TaskPod, now: Timestamp) -> Pod {
    let mut containers: BTreeMap<Arc<str>, ContainerReport> = BTreeMap::new();
    for (index, step) in task.steps.iter().enumerate() {
        let report = ContainerReport {
            running_since: (index == 0).then_some(now),
            ..ContainerReport::default()
        };
        containers.insert(Arc::from(step.name.as_str()), report);
    }
    let attempt = task.attempt.to_string();
    Pod {
        key: task.key.clone(),
        uid: uid(&task.key.name),
        revision: Revision(1),
        node: Some(task.node.clone()),
        phase: PodPhase::Pending,
        ready: false,
        started_at: Some(now),
        ending: None,
        shape: Arc::new(PodShape {
            labels: map(&[
                (labels::TASK, task.task.word()),
                (labels::ATTEMPT, &attempt),
                (labels::UPGRADE_UID, task.upgrade_uid.as_str()),
            ]),
            owner: Some(Owner {
                kind: Arc::from("NodeKubeadmUpgrade"),
                name: Arc::clone(&task.owner.key.name),
                uid: task.owner.uid.clone(),
            }),
            ..PodShape::default()
        }),
        static_part: None,
        task: Some(Arc::new(TaskReport {
            task: Arc::from(task.task.word()),
            attempt: task.attempt,
            containers,
            image_problem: None,
        })),
    }
}
