//! A Node, reduced to what decisions need. What a person or a scheduler could further read of it is not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ids::{Key, NodeName, Revision, Target, Uid};
use super::scheduling::{Labels, Resources, Taint};
use crate::gates::READY_IN_A_ROW;
use crate::hci::view::NodeMarks;
use crate::version::KubernetesVersion;

/// A machine of the cluster as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Uid,
    pub revision: Revision,
    pub created_at: Timestamp,
    /// The node is being deleted.
    pub deleting: bool,
    pub labels: Arc<Labels>,
    /// Has the label of a control plane.
    pub control_plane: bool,
    /// A person holds the node (`afloat.dev/pause`); the value says why, `true` where the upgrade's own option put it there.
    pub pause: Option<Arc<str>>,
    /// Uid of the upgrade whose option put the pause there (`afloat.dev/paused-by`).
    pub paused_by: Option<Uid>,
    /// Uid of the upgrade that cordoned the node (`afloat.dev/cordoned-by`).
    pub cordoned_by: Option<Uid>,
    /// What a person asks for this node (`afloat.dev/wish`), until it was heard.
    pub wish: Option<Wish>,
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
    pub ready: Ready,
    /// `None` where the node reports something that is no version.
    pub kubelet_version: Option<KubernetesVersion>,
    pub container_runtime_version: Arc<str>,
    pub os_image: Arc<str>,
    pub internal_ip: Option<Arc<str>>,
    pub allocatable: Resources,
    /// Volumes attached to the node, by the name of the PersistentVolume.
    pub attached_volumes: Vec<Arc<str>>,
    /// What the front door of Harvester has written on it.
    pub hci: NodeMarks,
}

/// What a person may ask for one node, through an annotation that the operator removes once it has recorded it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wish {
    /// Put it back as it was and take it last.
    Defer,
    /// Undo its upgrade.
    Rollback,
}

/// What a node says about itself, and since when.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ready {
    pub ready: bool,
    pub since: Timestamp,
}

impl Node {
    pub fn target(&self) -> Target {
        Target {
            key: Key {
                namespace: Arc::from(""),
                name: Arc::from(self.name.as_str()),
            },
            uid: self.uid.clone(),
            revision: self.revision,
        }
    }

    /// In service: able to run what is there and to take more.
    pub fn available(&self) -> bool {
        self.ready.ready && !self.unschedulable && !self.deleting
    }

    /// The failure domain, by the label that names it.
    pub fn failure_domain(&self, label: &str) -> Option<&str> {
        self.labels.get(label).map(AsRef::as_ref)
    }
}

/// The control-plane parts that Afloat looks at beyond the API objects: probed by the operator, told by the node's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlPlaneHealth {
    /// How often in a row `/readyz` of this node's own API server answered ok.
    pub readyz_in_a_row: u32,
    /// This node's etcd member, where it has one.
    pub etcd: Option<EtcdMember>,
}

impl ControlPlaneHealth {
    /// Whether nobody decides otherwise by the one than by the other: between the first answer of an API server and the one that is
    /// relied on, they are only counted.
    pub fn says_the_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        let read = |health: Option<&Self>| {
            health.map(|health| {
                let answers = health.readyz_in_a_row;
                (answers > 0, answers >= READY_IN_A_ROW, health.etcd.clone())
            })
        };
        read(one) == read(other)
    }
}

/// One etcd member.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdMember {
    pub healthy: bool,
}

/// Health by node; a control plane that is not listed was not probed yet and counts as not healthy.
pub type Health = BTreeMap<NodeName, ControlPlaneHealth>;
