//! The way of a cluster to its target: which versions in which order ([`path`]), which node after which ([`order`]), and
//! what is out of step already ([`skew_violations`]). Who may go at this moment is for gates and judge; nothing here looks
//! at a clock or at what was granted.

mod order;
mod path;
mod skew;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use crate::version::KubernetesVersion;
use crate::view::{Component, Node, StaticPart, View};

pub use order::{first_control_plane, order};
pub use path::{PathError, path};
pub use skew::{SkewKind, SkewViolation, skew_violations};

/// One stretch of the way: all control planes, or all workers, to one version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stage {
    pub kind: StageKind,
    /// The version every node of the stage has afterwards.
    pub version: KubernetesVersion,
    /// The minors on the way with the release whose kubeadm migrates the node's configuration, in turn; the last one is
    /// `version`.
    pub via: Vec<KubernetesVersion>,
    /// Nodes below this need the stage. At the target that is `version` itself; on the way only who would otherwise be too far
    /// behind is disrupted, and a later patch of the same minor version is no reason.
    pub below: KubernetesVersion,
}

impl Stage {
    /// A stage that every node needs until it is at this very version.
    pub fn exact(kind: StageKind, version: KubernetesVersion, via: Vec<KubernetesVersion>) -> Self {
        Self {
            kind,
            below: version.clone(),
            version,
            via,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StageKind {
    ControlPlane,
    Workers,
}

impl StageKind {
    /// Whether a node is taken in stages of this kind.
    pub fn takes(self, node: &Node) -> bool {
        node.control_plane == (self == Self::ControlPlane)
    }
}

/// Whether a node still needs a stage. A node that is ahead of it, as after a later hop, does not: no stage leads down.
///
/// `bundle_pending` says that the stage brings a bundle of the version that is there already (P46) and that nothing yet says
/// the node has it. Versions cannot tell then.
pub fn needs(view: &View, node: &Node, stage: &Stage, bundle_pending: bool) -> bool {
    if !stage.kind.takes(node) {
        return false;
    }
    let behind = |version: Option<&KubernetesVersion>| version.is_none_or(|version| *version < stage.below);
    bundle_pending
        || behind(node.kubelet_version.as_ref())
        || (node.control_plane
            && kubernetes_parts(view, node).any(|part| part.version.is_some() && behind(part.version.as_ref())))
}

/// The group of workers a node belongs to.
pub fn group_of(node: &Node) -> &str {
    node.labels
        .get(afloat_api::labels::GROUP)
        .map_or(DEFAULT_GROUP, AsRef::as_ref)
}

const DEFAULT_GROUP: &str = "workers";

/// The parts of a control plane that carry the version of Kubernetes.
fn kubernetes_parts<'a>(view: &'a View, node: &Node) -> impl Iterator<Item = &'a StaticPart> {
    view.static_parts(&node.name)
        .map(|(_, part)| part)
        .filter(|part| is_of_kubernetes(part.component))
}

fn is_of_kubernetes(component: Component) -> bool {
    matches!(
        component,
        Component::ApiServer | Component::ControllerManager | Component::Scheduler
    )
}

/// The version of a control plane's API server. While its mirror pod is away, as during a restart, the kubelet's: kubeadm
/// never brings a kubelet ahead of its API server, so that is at worst too low.
pub fn api_server_version<'a>(view: &'a View, node: &'a Node) -> Option<&'a KubernetesVersion> {
    kubernetes_parts(view, node)
        .filter(|part| part.component == Component::ApiServer)
        .find_map(|part| part.version.as_ref())
        .or(node.kubelet_version.as_ref())
}
