//! From the API server to the core's view: what is watched ([`feed`]), how it is reduced as it is decoded, and how the view
//! is kept up to date ([`Keeper`]). Nothing here decides, and nothing here writes.

pub mod feed;
pub mod hci;
mod keeper;
pub mod lean;
mod node;
mod pod;
mod quantity;
pub mod raw;
pub mod reduce;
pub mod roll;
mod scheduling;
mod shapes;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::KubernetesVersion;
use afloat_core::hci::view::{HciKind, HciObject};
use afloat_core::objects::{key_of, target_of};
use afloat_core::view::{Key, Labels, Lock, Node, NodeName, Pod, PodBudget, Target, Workload, WorkloadKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use keeper::Keeper;
pub use workload::Volume;

/// What is watched, a watch each.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, strum::EnumIter, strum::IntoStaticStr)]
pub enum Kind {
    Node,
    Pod,
    PodDisruptionBudget,
    Deployment,
    ReplicaSet,
    StatefulSet,
    PersistentVolumeClaim,
    PersistentVolume,
    /// For its labels: pods say by them with whose pods they share a node.
    Namespace,
    ClusterUpgrade,
    ControlPlaneKubeadmUpgrade,
    WorkersKubeadmUpgrade,
    NodeKubeadmUpgrade,
    /// The lease by which kube-vip says who holds the virtual address.
    VirtualIpLease,
    /// The lease that lets one upgrade work on the cluster.
    UpgradeLock,
    /// The ConfigMap with the upgrader images.
    UpgraderImages,
    /// The ConfigMap of kubeadm.
    KubeadmConfig,
    /// A kind of a Harvester-like cluster, watched where it is served.
    #[strum(disabled)]
    Hci(HciKind),
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Hci(kind) => kind.word(),
            other => other.into(),
        }
    }
}

/// One watched object, reduced.
#[derive(Clone, Debug)]
pub enum Object {
    Node(Box<Node>),
    Pod(Box<Pod>),
    Budget(Box<PodBudget>),
    Workload(Box<Workload>),
    Claim {
        target: Target,
        volume: Option<Arc<str>>,
    },
    Volume {
        target: Target,
        volume: Box<Volume>,
    },
    Namespace {
        target: Target,
        labels: Labels,
    },
    Upgrade(Box<ClusterUpgrade>),
    ControlPlane(Box<ControlPlaneKubeadmUpgrade>),
    Workers(Box<WorkersKubeadmUpgrade>),
    NodeUpgrade(Box<NodeKubeadmUpgrade>),
    VirtualIp {
        target: Target,
        holder: Option<NodeName>,
    },
    Lock(Box<Lock>),
    Images {
        target: Target,
        images: BTreeMap<KubernetesVersion, Arc<str>>,
    },
    KubeadmConfig {
        target: Target,
        config: Option<Arc<str>>,
    },
    Hci(Box<HciObject>),
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::Budget(_) => Kind::PodDisruptionBudget,
            Self::Workload(workload) => match workload.kind {
                WorkloadKind::Deployment => Kind::Deployment,
                WorkloadKind::ReplicaSet => Kind::ReplicaSet,
                WorkloadKind::StatefulSet => Kind::StatefulSet,
            },
            Self::Claim { .. } => Kind::PersistentVolumeClaim,
            Self::Volume { .. } => Kind::PersistentVolume,
            Self::Namespace { .. } => Kind::Namespace,
            Self::Upgrade(_) => Kind::ClusterUpgrade,
            Self::ControlPlane(_) => Kind::ControlPlaneKubeadmUpgrade,
            Self::Workers(_) => Kind::WorkersKubeadmUpgrade,
            Self::NodeUpgrade(_) => Kind::NodeKubeadmUpgrade,
            Self::VirtualIp { .. } => Kind::VirtualIpLease,
            Self::Lock(_) => Kind::UpgradeLock,
            Self::Images { .. } => Kind::UpgraderImages,
            Self::KubeadmConfig { .. } => Kind::KubeadmConfig,
            Self::Hci(object) => Kind::Hci(object.kind()),
        }
    }

    /// Which object it is, in which state.
    pub fn target(&self) -> Target {
        match self {
            Self::Node(node) => node.target(),
            Self::Pod(pod) => pod.target(),
            Self::Budget(budget) => Target {
                key: budget.key.clone(),
                uid: budget.uid.clone(),
                revision: budget.revision,
            },
            Self::Workload(workload) => Target {
                key: workload.key.clone(),
                uid: workload.uid.clone(),
                revision: workload.revision,
            },
            Self::Upgrade(upgrade) => target_of(&upgrade.metadata),
            Self::ControlPlane(group) => target_of(&group.metadata),
            Self::Workers(group) => target_of(&group.metadata),
            Self::NodeUpgrade(upgrade) => target_of(&upgrade.metadata),
            Self::Lock(lock) => lock.target.clone(),
            Self::Hci(object) => object.target().clone(),
            Self::Claim { target, .. }
            | Self::Volume { target, .. }
            | Self::Namespace { target, .. }
            | Self::VirtualIp { target, .. }
            | Self::Images { target, .. }
            | Self::KubeadmConfig { target, .. } => target.clone(),
        }
    }
}

/// What a watch said.
#[derive(Debug)]
pub enum News {
    /// A list begins.
    Listing(Kind),
    /// An object in a list, or one that was added or changed.
    Seen {
        object: Object,
        listed: bool,
    },
    /// The list is complete: what was not in it is gone.
    Listed(Kind),
    Gone {
        kind: Kind,
        target: Target,
    },
    /// An object that cannot be read: it is left as it was last understood.
    Unreadable {
        kind: Kind,
        problem: Unreadable,
        listed: bool,
    },
    /// The watch broke off; it begins again by itself, later each time.
    Interrupted {
        kind: Kind,
        problem: String,
    },
}

/// Why an object is left out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} cannot be read: {problem}")]
pub struct Unreadable {
    pub key: Key,
    pub problem: String,
}

impl Unreadable {
    pub fn new(meta: &ObjectMeta, problem: &dyn std::fmt::Display) -> Self {
        Self {
            key: key_of(meta),
            problem: problem.to_string(),
        }
    }
}

/// Name, uid and revision of an object, each of which every object of an API server has.
fn identity(meta: &ObjectMeta) -> Result<Target, Unreadable> {
    let target = target_of(meta);
    let missing = if target.key.name.is_empty() {
        "name"
    } else if target.uid.as_str().is_empty() {
        "uid"
    } else if target.revision.0 == 0 {
        "resourceVersion"
    } else {
        return Ok(target);
    };
    Err(Unreadable::new(meta, &format!("it has no {missing} that can be used")))
}
