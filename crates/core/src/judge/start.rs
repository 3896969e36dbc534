//! What keeps a group that stands alone from beginning until a person acts. A ClusterUpgrade is told such things by its preflight, before it
//! has the lock; nobody looks ahead for a group, which would hold the lock of the cluster and never come to give it back.

use afloat_api::Reason;

use super::children;
use super::group::{Turn, missing};
use crate::gates::Closed;
use crate::objects::Standing;
use crate::plan::{self, PathError, Stage, StageKind};
use crate::version::{KubeletSkew, KubernetesVersion, MinorVersion};
use crate::view::{Node, View};

impl Turn<'_> {
    /// Why no upgrade of a node can be made for the machines that have none yet. Asked before the cluster is taken.
    pub(super) fn cannot_start(&self, stage: &Stage) -> Option<Closed> {
        missing(self.view, &self.members).next()?;
        self.downgrade(stage)
            .or_else(|| self.too_new(stage))
            .or_else(|| self.too_far(stage))
            .or_else(|| self.too_old(stage))
            .or_else(|| self.no_image(stage))
    }

    /// Whether it can begin no other machine and those that have begun are at their end: it would have the lock for nothing, for as long as
    /// nobody looks.
    pub(super) fn is_stuck(&self) -> bool {
        let closes = |standing: Standing<'_>| standing.ended() && !standing.deferred();
        self.upgrade.is_none()
            && self.members.nodes.iter().all(closes)
            && self.stage().is_some_and(|stage| self.cannot_start(&stage).is_some())
    }

    fn downgrade(&self, stage: &Stage) -> Option<Closed> {
        let newer = |node: &&Node| versions_of(self.view, node, stage).any(|version| *version > stage.version);
        let node = missing(self.view, &self.members).find(newer)?;
        let from = versions_of(self.view, node, stage).max()?.clone();
        let error = PathError::Downgrade {
            node: node.name.clone(),
            from,
            to: stage.version.clone(),
        };
        Some(self.no_way(&error, Some(node)))
    }

    /// A kubelet must not be newer than an API server it may talk to; an upgrade of the whole cluster brings those first.
    pub(super) fn too_new(&self, stage: &Stage) -> Option<Closed> {
        let (oldest, node) = self.oldest_server()?;
        let newer = stage.kind == StageKind::Workers && stage.version.kubelet_skew(oldest) == KubeletSkew::Newer;
        newer.then(|| Closed {
            reason: Reason::VersionSkew,
            message: format!(
                "kubelets at {} would be newer than the API server of {}, which is at {oldest}: upgrade the control plane first",
                stage.version, node.name
            ),
            blocked_by: Some(children::machine(node)),
            until: None,
        })
    }

    /// kubeadm takes a control plane one minor version at a time, and API servers must not be further apart: those that the group does not
    /// list count too.
    fn too_far(&self, stage: &Stage) -> Option<Closed> {
        let (oldest, node) = self.oldest_server()?;
        if stage.kind == StageKind::Workers {
            return None;
        }
        let (from, to, at) = (oldest.clone(), stage.version.clone(), oldest.minor_version());
        match oldest.minors_to(&stage.version) {
            None => Some(self.no_way(&PathError::Major { from, to }, Some(node))),
            Some(..=1) => None,
            Some(_) => Some(Closed {
                reason: Reason::VersionSkew,
                message: format!(
                    "{} is at {from}: a control plane takes one minor version at a time, and {to} is further; help: afloat upgrade --to {to} \
                     takes the versions between in turn, or bring the control plane to {} first",
                    node.name,
                    MinorVersion {
                        minor: at.minor + 1,
                        ..at
                    }
                ),
                blocked_by: Some(children::machine(node)),
                until: None,
            }),
        }
    }

    /// Kubelets that stay behind must not be too old for the API servers that come.
    fn too_old(&self, stage: &Stage) -> Option<Closed> {
        let too_old = |node: &&Node| {
            let kubelet = node.kubelet_version.as_ref();
            kubelet.is_some_and(|kubelet| matches!(kubelet.kubelet_skew(&stage.version), KubeletSkew::TooOld { .. }))
        };
        let mut nodes = self.view.nodes.values().map(AsRef::as_ref);
        let node = nodes.find(|node| stage.kind == StageKind::ControlPlane && too_old(node))?;
        let kubelet = node.kubelet_version.as_ref()?;
        Some(Closed {
            reason: Reason::VersionSkew,
            message: format!(
                "the kubelet of {} is at {kubelet}, too old for an API server at {}: upgrade it first",
                node.name, stage.version
            ),
            blocked_by: Some(children::machine(node)),
            until: None,
        })
    }

    fn no_image(&self, stage: &Stage) -> Option<Closed> {
        if self.image().is_some() {
            return None;
        }
        let version = stage.version.clone();
        Some(self.no_way(&PathError::NoTargetImage { version }, None))
    }

    fn oldest_server(&self) -> Option<(&KubernetesVersion, &Node)> {
        let servers = self.view.control_plane_nodes().filter_map(|node| {
            let server = plan::api_server_version(self.view, node)?;
            Some((server, node.as_ref()))
        });
        servers.min_by_key(|(server, _)| *server)
    }

    fn no_way(&self, error: &PathError, node: Option<&Node>) -> Closed {
        Closed {
            reason: error.reason(),
            message: format!("{error}; help: {}", error.remedy(&self.view.home)),
            blocked_by: node.map(children::machine),
            until: None,
        }
    }
}

/// The versions of a node that a stage changes.
fn versions_of<'a>(
    view: &'a View,
    node: &'a Node,
    stage: &Stage,
) -> impl Iterator<Item = &'a KubernetesVersion> + use<'a> {
    let server = plan::api_server_version(view, node).filter(|_| stage.kind == StageKind::ControlPlane);
    node.kubelet_version.as_ref().into_iter().chain(server)
}
