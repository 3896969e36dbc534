//! What is stored: the core's own view types and Afloat's API types, as they are. What the world has to know beyond a view
//! (a pod's containers, a budget's spec) is kept beside them under the object's uid: it never changes.

use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::view::{Key, Lock, Node, NodeName, Pod, PodBudget, Revision, Workload, WorkloadKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Store;
use super::table::Table;

/// A kind that can be stored.
pub trait Kind: Clone + PartialEq + Sized {
    type Key: Ord + Clone;
    const NAME: KindName;
    fn key(&self) -> Self::Key;
    fn uid(&self) -> &str;
    fn revision(&self) -> u64;
    fn set_revision(&mut self, revision: u64);
    fn table(store: &Store) -> &Table<Self::Key, Self>;
    fn table_mut(store: &mut Store) -> &mut Table<Self::Key, Self>;
}

/// The kinds, in the order in which an operator's caches are looked at.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum KindName {
    Node,
    Pod,
    Budget,
    Workload,
    Upgrade,
    ControlPlane,
    Workers,
    NodeUpgrade,
    Lock,
}

impl KindName {
    pub const ALL: [Self; 9] = [
        Self::Node,
        Self::Pod,
        Self::Budget,
        Self::Workload,
        Self::Upgrade,
        Self::ControlPlane,
        Self::Workers,
        Self::NodeUpgrade,
        Self::Lock,
    ];

    pub fn index(self) -> usize {
        self as usize
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Budget => "pdb",
            Self::Workload => "workload",
            Self::Upgrade => "cu",
            Self::ControlPlane => "cpku",
            Self::Workers => "wku",
            Self::NodeUpgrade => "nku",
            Self::Lock => "lease",
        }
    }
}

macro_rules! view_kind {
    ($type:ty, $name:ident, $field:ident, $key:ty, $key_of:expr) => {
        impl Kind for $type {
            type Key = $key;
            const NAME: KindName = KindName::$name;
            fn key(&self) -> Self::Key {
                let key_of: fn(&$type) -> $key = $key_of;
                key_of(self)
            }
            fn uid(&self) -> &str {
                self.uid.as_str()
            }
            fn revision(&self) -> u64 {
                self.revision.0
            }
            fn set_revision(&mut self, revision: u64) {
                self.revision = Revision(revision);
            }
            fn table(store: &Store) -> &Table<Self::Key, Self> {
                &store.$field
            }
            fn table_mut(store: &mut Store) -> &mut Table<Self::Key, Self> {
                &mut store.$field
            }
        }
    };
}

view_kind!(Node, Node, nodes, NodeName, |node| node.name.clone());
view_kind!(Pod, Pod, pods, Key, |pod| pod.key.clone());
view_kind!(PodBudget, Budget, budgets, Key, |budget| budget.key.clone());
view_kind!(Workload, Workload, workloads, (WorkloadKind, Key), |workload| (
    workload.kind,
    workload.key.clone()
));

impl Kind for Lock {
    type Key = Key;
    const NAME: KindName = KindName::Lock;
    fn key(&self) -> Key {
        self.target.key.clone()
    }
    fn uid(&self) -> &str {
        self.target.uid.as_str()
    }
    fn revision(&self) -> u64 {
        self.target.revision.0
    }
    fn set_revision(&mut self, revision: u64) {
        self.target.revision = Revision(revision);
    }
    fn table(store: &Store) -> &Table<Key, Self> {
        &store.locks
    }
    fn table_mut(store: &mut Store) -> &mut Table<Key, Self> {
        &mut store.locks
    }
}

/// A kind of Afloat's own: metadata, spec and status as the API has them.
pub trait Custom: Kind<Key = Key> {
    type Spec: Clone + PartialEq;
    type Status: Clone + PartialEq;
    fn meta(&self) -> &ObjectMeta;
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    fn spec(&self) -> &Self::Spec;
    fn status(&self) -> Option<&Self::Status>;
    /// The same object with another status.
    #[must_use]
    fn with_status(&self, status: Option<Self::Status>) -> Self;
    fn status_mut(&mut self) -> &mut Option<Self::Status>;
}

macro_rules! custom_kind {
    ($type:ident, $name:ident, $field:ident, $spec:ty, $status:ty) => {
        impl Kind for $type {
            type Key = Key;
            const NAME: KindName = KindName::$name;
            fn key(&self) -> Key {
                Key {
                    namespace: Arc::from(self.metadata.namespace.as_deref().unwrap_or_default()),
                    name: Arc::from(self.metadata.name.as_deref().unwrap_or_default()),
                }
            }
            fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }
            fn revision(&self) -> u64 {
                let text = self.metadata.resource_version.as_deref();
                text.and_then(|text| text.parse().ok()).unwrap_or_default()
            }
            fn set_revision(&mut self, revision: u64) {
                self.metadata.resource_version = Some(revision.to_string());
            }
            fn table(store: &Store) -> &Table<Key, Self> {
                &store.$field
            }
            fn table_mut(store: &mut Store) -> &mut Table<Key, Self> {
                &mut store.$field
            }
        }

        impl Custom for $type {
            type Spec = $spec;
            type Status = $status;
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
            fn spec(&self) -> &Self::Spec {
                &self.spec
            }
            fn status(&self) -> Option<&Self::Status> {
                self.status.as_ref()
            }
            fn with_status(&self, status: Option<Self::Status>) -> Self {
                Self {
                    metadata: self.metadata.clone(),
                    spec: self.spec.clone(),
                    status,
                }
            }
            fn status_mut(&mut self) -> &mut Option<Self::Status> {
                &mut self.status
            }
        }
    };
}

custom_kind!(
    ClusterUpgrade,
    Upgrade,
    upgrades,
    afloat_api::ClusterUpgradeSpec,
    afloat_api::ClusterUpgradeStatus
);
custom_kind!(
    ControlPlaneKubeadmUpgrade,
    ControlPlane,
    control_planes,
    afloat_api::kubeadm::ControlPlaneKubeadmUpgradeSpec,
    afloat_api::GroupUpgradeStatus
);
custom_kind!(
    WorkersKubeadmUpgrade,
    Workers,
    workers,
    afloat_api::kubeadm::WorkersKubeadmUpgradeSpec,
    afloat_api::GroupUpgradeStatus
);
custom_kind!(
    NodeKubeadmUpgrade,
    NodeUpgrade,
    node_upgrades,
    afloat_api::kubeadm::NodeKubeadmUpgradeSpec,
    afloat_api::NodeKubeadmUpgradeStatus
);
