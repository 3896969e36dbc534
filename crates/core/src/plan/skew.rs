//! Versions that are further apart than Kubernetes supports, as they are now
//! (<https://kubernetes.io/releases/version-skew-policy/>). Serves the preflight, and the rule that Afloat never makes one.

use super::{api_server_version, kubernetes_parts};
use crate::version::{KubeletSkew, KubernetesVersion};
use crate::view::{Component, Node, NodeName, View};

/// One node that is out of step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SkewViolation {
    pub node: NodeName,
    pub kind: SkewKind,
    /// The version that is out of step.
    pub version: KubernetesVersion,
    /// The version of the API server it is measured by.
    pub api_server: KubernetesVersion,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum SkewKind {
    /// An API server more than one minor version behind the newest.
    ApiServersApart,
    /// A kubelet newer than an API server it may talk to.
    KubeletNewer,
    /// A kubelet more minor versions behind the newest API server than is supported.
    KubeletTooOld,
    /// A controller manager or scheduler newer than its API server.
    PartNewer,
    /// A controller manager or scheduler more than one minor version behind its API server.
    PartTooOld,
}

/// Everything that is out of step, by node.
pub fn skew_violations(view: &View) -> Vec<SkewViolation> {
    let servers = || {
        view.control_plane_nodes()
            .filter_map(|node| api_server_version(view, node))
    };
    let (Some(oldest), Some(newest)) = (servers().min(), servers().max()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for node in view.nodes.values() {
        let own = if node.control_plane {
            api_server_version(view, node)
        } else {
            None
        };
        if let Some(own) = own {
            if minors(own, newest) > 1 {
                found.push(violation(node, SkewKind::ApiServersApart, own, newest));
            }
            parts(view, node, own, &mut found);
        }
        let Some(kubelet) = &node.kubelet_version else { continue };
        // A worker's kubeconfig names the load balancer: it may talk to any of them.
        let lowest = own.unwrap_or(oldest);
        if kubelet.kubelet_skew(lowest) == KubeletSkew::Newer {
            found.push(violation(node, SkewKind::KubeletNewer, kubelet, lowest));
        }
        if matches!(kubelet.kubelet_skew(newest), KubeletSkew::TooOld { .. }) {
            found.push(violation(node, SkewKind::KubeletTooOld, kubelet, newest));
        }
    }
    found
}

/// kubeadm points controller manager and scheduler at the API server of their own node.
fn parts(view: &View, node: &Node, own: &KubernetesVersion, found: &mut Vec<SkewViolation>) {
    let followers = kubernetes_parts(view, node).filter(|part| part.component != Component::ApiServer);
    for version in followers.filter_map(|part| part.version.as_ref()) {
        match minors(version, own) {
            ..0 => found.push(violation(node, SkewKind::PartNewer, version, own)),
            0..=1 => {}
            2.. => found.push(violation(node, SkewKind::PartTooOld, version, own)),
        }
    }
}

fn minors(from: &KubernetesVersion, to: &KubernetesVersion) -> i64 {
    from.minors_to(to).unwrap_or(i64::MAX)
}

fn violation(
    node: &Node,
    kind: SkewKind,
    version: &KubernetesVersion,
    api_server: &KubernetesVersion,
) -> SkewViolation {
    SkewViolation {
        node: node.name.clone(),
        kind,
        version: version.clone(),
        api_server: api_server.clone(),
    }
}

impl std::fmt::Display for SkewViolation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            node,
            version,
            api_server,
            ..
        } = self;
        match self.kind {
            SkewKind::ApiServersApart => write!(
                formatter,
                "the API server of {node} is at {version}, more than one minor version behind {api_server}"
            ),
            SkewKind::KubeletNewer => write!(
                formatter,
                "the kubelet of {node} is at {version}, newer than an API server at {api_server}"
            ),
            SkewKind::KubeletTooOld => write!(
                formatter,
                "the kubelet of {node} is at {version}, too old for an API server at {api_server}"
            ),
            SkewKind::PartNewer => write!(
                formatter,
                "a part of the control plane on {node} is at {version}, newer than its API server at {api_server}"
            ),
            SkewKind::PartTooOld => write!(
                formatter,
                "a part of the control plane on {node} is at {version}, too old for its API server at {api_server}"
            ),
        }
    }
}
