//! A Pod, reduced as it is decoded to the few fields decisions need, and what Afloat's own pods on nodes report.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ids::{Key, NodeName, Revision, Target, Uid};
use super::scheduling::PodShape;
use crate::version::KubernetesVersion;

#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub key: Key,
    pub uid: Uid,
    pub revision: Revision,
    pub node: Option<NodeName>,
    pub phase: PodPhase,
    pub ready: bool,
    /// When the kubelet that runs it first saw it (`status.startTime`), or its containers were last started, whichever is later.
    pub started_at: Option<Timestamp>,
    /// Set once it was asked to end: until when it has.
    pub ending: Option<Ending>,
    pub shape: Arc<PodShape>,
    /// A mirror of a static pod.
    pub static_part: Option<StaticPart>,
    /// The containers of one of Afloat's own pods; `None` for all others.
    pub task: Option<Arc<TaskReport>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodPhase {
    pub fn finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ending {
    /// `metadata.deletionTimestamp`: the end of the grace period.
    pub by: Timestamp,
    /// A finalizer holds it even after its containers ended.
    pub held_by_finalizer: bool,
}

/// A part of the control plane that runs as a static pod.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticPart {
    pub component: Component,
    /// Version in the tag of its image, where it is one of Kubernetes.
    pub version: Option<KubernetesVersion>,
    /// Tag of its image, as it is.
    pub tag: Arc<str>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Component {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    KubeVip,
    Other,
}

/// The containers of one of Afloat's pods, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskReport {
    /// The task: `stage`, `upgrade` or `rollback` (label `afloat.dev/task`).
    pub task: Arc<str>,
    /// The attempt it belongs to (label `afloat.dev/attempt`).
    pub attempt: i32,
    pub containers: BTreeMap<Arc<str>, ContainerReport>,
    /// An image that cannot be pulled: what the kubelet says.
    pub image_problem: Option<Arc<str>>,
}

/// One container: where it is, and what it said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerReport {
    pub restarts: i32,
    pub running_since: Option<Timestamp>,
    /// The last end, also one that was followed by a restart.
    pub ended: Option<ContainerEnd>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ContainerEnd {
    pub exit_code: i32,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// The termination message: a [`afloat_api::node::StepReport`] as JSON where the step could say something.
    pub message: Arc<str>,
}

impl Pod {
    pub fn target(&self) -> Target {
        Target {
            key: self.key.clone(),
            uid: self.uid.clone(),
            revision: self.revision,
        }
    }
}
