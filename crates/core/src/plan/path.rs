//! The versions between what is there and the target. Control planes go one minor version at a time, as kubeadm demands;
//! workers wait as long as the skew policy lets them and then take several in one disruption.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::Reason;

use super::{Stage, StageKind, api_server_version, kubernetes_parts};
use crate::settings::Settings;
use crate::version::{Hop, HopError, KubernetesVersion, MinorVersion};
use crate::view::{Node, NodeName, View};

/// Why there is no way to the target. Each says what helps in [`PathError::remedy`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathError {
    #[error("no control-plane node is to be seen: none has the label node-role.kubernetes.io/control-plane")]
    NoControlPlane,
    #[error("{node} does not say which version of Kubernetes it runs")]
    UnknownVersion { node: NodeName },
    #[error(
        "{node} is at {from}: {to} would be a downgrade; etcd and the API objects may already be stored in forms that {} cannot read",
        to.minor_version()
    )]
    Downgrade {
        node: NodeName,
        from: KubernetesVersion,
        to: KubernetesVersion,
    },
    #[error("{from} and {to} differ in their major version: there is no supported way between them")]
    Major {
        from: KubernetesVersion,
        to: KubernetesVersion,
    },
    #[error("there is no upgrader image for {version}, the target")]
    NoTargetImage { version: KubernetesVersion },
    #[error("there is no upgrader image for any release of {minor}, which lies on the way to {to}")]
    NoMinorImage { minor: MinorVersion, to: KubernetesVersion },
    #[error(
        "the workers have to come to {minor} before the control plane may leave {at}, and there is no upgrader image for any release of {minor}"
    )]
    NoWorkerImage { minor: MinorVersion, at: KubernetesVersion },
}

impl PathError {
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoControlPlane => Reason::NotInPlace,
            Self::UnknownVersion { .. } | Self::Major { .. } => Reason::VersionSkew,
            Self::Downgrade { .. } => Reason::Downgrade,
            Self::NoTargetImage { .. } | Self::NoMinorImage { .. } | Self::NoWorkerImage { .. } => {
                Reason::BundleUnavailable
            }
        }
    }

    /// What helps, as a command where there is one; `home` is the operator's namespace.
    pub fn remedy(&self, home: &str) -> String {
        match self {
            Self::NoControlPlane => "kubectl get nodes --show-labels".to_owned(),
            Self::UnknownVersion { node } => format!("kubectl describe node {node}"),
            Self::Downgrade { .. } => "to undo a node that was upgraded today: afloat rollback NODE".to_owned(),
            Self::Major { from, .. } => format!("choose a version of the same major as {from}"),
            Self::NoTargetImage { version } => add_image(home, &version.to_string()),
            Self::NoMinorImage { minor, .. } | Self::NoWorkerImage { minor, .. } => {
                add_image(home, &format!("{minor}.PATCH"))
            }
        }
    }

    /// The node it is about, where it is about one.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::UnknownVersion { node } | Self::Downgrade { node, .. } => Some(node),
            _ => None,
        }
    }
}

fn add_image(home: &str, version: &str) -> String {
    format!("afloat bundle publish -n {home} REGISTRY/afloat/bundle:{version}")
}

/// The stages that remain between what is there and the target, in their order; none where everything is there already.
///
/// Asked again half-way, also in another upgrade to the same target, it gives the rest of the same way: the control plane
/// starts from its oldest API server, and nodes that are ahead simply do not need a stage.
pub fn path(view: &View, settings: &Settings) -> Result<Vec<Stage>, PathError> {
    let start = Start::read(view, settings)?;
    let hops = start
        .api_server
        .hops(&settings.to)
        .map_err(|error| no_hops(error, &start))?;
    let mut way = Way {
        view,
        settings,
        workers: start.workers,
        control_plane_kubelet: start.control_plane_kubelet,
        stages: Vec::new(),
    };
    let mut at = start.api_server.clone();
    for hop in hops {
        let next = way.release(&hop)?;
        let floor = way.workers_floor(&at, &next);
        if way.workers.iter().any(|version| *version < floor) {
            let version = way.release_beside(&at)?;
            way.take_workers(&version, floor)?;
        }
        way.take_control_planes(&next)?;
        at = next;
    }
    if way.control_planes_left(&at) {
        way.release(&Hop::Exact(at.clone()))?;
        way.take_control_planes(&at)?;
    }
    if way.workers_left(&at) {
        way.release(&Hop::Exact(at.clone()))?;
        way.take_workers(&at, at.clone())?;
    }
    Ok(way.stages)
}

fn no_hops(error: HopError, start: &Start) -> PathError {
    match error {
        HopError::Downgrade { from, to } => PathError::Downgrade {
            node: start.oldest_node.clone(),
            from,
            to,
        },
        HopError::Major { from, to } => PathError::Major { from, to },
    }
}

/// What there is now.
struct Start {
    oldest_node: NodeName,
    api_server: KubernetesVersion,
    control_plane_kubelet: KubernetesVersion,
    /// The versions of the workers' kubelets.
    workers: BTreeSet<KubernetesVersion>,
}

impl Start {
    fn read(view: &View, settings: &Settings) -> Result<Self, PathError> {
        let mut oldest: Option<(&Arc<Node>, &KubernetesVersion)> = None;
        let mut kubelet_of_control_planes: Option<&KubernetesVersion> = None;
        let mut workers: BTreeSet<&KubernetesVersion> = BTreeSet::new();
        let mut last_worker: Option<&KubernetesVersion> = None;
        for node in view.nodes.values() {
            let unknown = || PathError::UnknownVersion {
                node: node.name.clone(),
            };
            let kubelet = node.kubelet_version.as_ref().ok_or_else(unknown)?;
            // There are many workers, of few versions.
            if !node.control_plane && last_worker == Some(kubelet) {
                continue;
            }
            not_down(node, kubelet, settings)?;
            if !node.control_plane {
                workers.insert(kubelet);
                last_worker = Some(kubelet);
                continue;
            }
            let lowest = kubelet_of_control_planes.map_or(kubelet, |lowest| lowest.min(kubelet));
            kubelet_of_control_planes = Some(lowest);
            for version in kubernetes_parts(view, node).filter_map(|part| part.version.as_ref()) {
                not_down(node, version, settings)?;
            }
            let server = api_server_version(view, node).ok_or_else(unknown)?;
            if oldest.is_none_or(|(_, version)| server < version) {
                oldest = Some((node, server));
            }
        }
        let (Some((node, api_server)), Some(control_plane_kubelet)) = (oldest, kubelet_of_control_planes) else {
            return Err(PathError::NoControlPlane);
        };
        Ok(Self {
            oldest_node: node.name.clone(),
            api_server: api_server.clone(),
            control_plane_kubelet: control_plane_kubelet.clone(),
            workers: workers.into_iter().cloned().collect(),
        })
    }
}

fn not_down(node: &Node, version: &KubernetesVersion, settings: &Settings) -> Result<(), PathError> {
    let to = &settings.to;
    if version.minors_to(to).is_some() && version > to {
        return Err(PathError::Downgrade {
            node: node.name.clone(),
            from: version.clone(),
            to: to.clone(),
        });
    }
    Ok(())
}

/// The way as far as it was found.
struct Way<'a> {
    view: &'a View,
    settings: &'a Settings,
    /// The versions of the workers' kubelets at this point of the way.
    workers: BTreeSet<KubernetesVersion>,
    control_plane_kubelet: KubernetesVersion,
    stages: Vec<Stage>,
}

impl Way<'_> {
    /// The release a hop leads to: the target itself, or the newest of a minor version on the way that can be brought.
    fn release(&self, hop: &Hop) -> Result<KubernetesVersion, PathError> {
        match hop {
            Hop::Exact(version) if self.settings.bundle_image.is_some() || self.view.images.contains_key(version) => {
                Ok(version.clone())
            }
            Hop::Exact(version) => Err(PathError::NoTargetImage {
                version: version.clone(),
            }),
            Hop::Minor(minor) => self
                .releases(*minor)
                .next_back()
                .cloned()
                .ok_or_else(|| PathError::NoMinorImage {
                    minor: *minor,
                    to: self.settings.to.clone(),
                }),
        }
    }

    fn releases(&self, minor: MinorVersion) -> impl DoubleEndedIterator<Item = &KubernetesVersion> {
        self.view
            .images
            .keys()
            .filter(move |version| version.minor_version() == minor)
    }

    /// What workers can be brought to while the control plane is at `at`: the same, or what comes nearest below. The skew policy
    /// counts minor versions, so that a later patch will do where there is nothing else.
    fn release_beside(&self, at: &KubernetesVersion) -> Result<KubernetesVersion, PathError> {
        let minor = at.minor_version();
        self.releases(minor)
            .rfind(|version| *version <= at)
            .or_else(|| self.releases(minor).next())
            .cloned()
            .ok_or_else(|| PathError::NoWorkerImage { minor, at: at.clone() })
    }

    /// What workers must be at least before the control plane goes from `at` to `next`.
    fn workers_floor(&self, at: &KubernetesVersion, next: &KubernetesVersion) -> KubernetesVersion {
        if self.settings.every_minor {
            at.minor_version().floor()
        } else {
            next.oldest_kubelet().floor()
        }
    }

    /// A half-finished upgrade may have left kubelets or other parts behind, and a bundle of the same version is an upgrade too.
    fn control_planes_left(&self, at: &KubernetesVersion) -> bool {
        let taken = self.stages.iter().any(|stage| stage.kind == StageKind::ControlPlane);
        let behind = || {
            self.view.control_plane_nodes().any(|node| {
                kubernetes_parts(self.view, node)
                    .filter_map(|part| part.version.as_ref())
                    .any(|version| version < at)
            })
        };
        !taken && (self.settings.bundle_image.is_some() || self.control_plane_kubelet < *at || behind())
    }

    fn workers_left(&self, at: &KubernetesVersion) -> bool {
        let bundle = self.settings.bundle_image.is_some();
        self.workers.iter().any(|version| version < at || bundle)
    }

    fn take_control_planes(&mut self, version: &KubernetesVersion) -> Result<(), PathError> {
        let via = self.via(&self.control_plane_kubelet, version)?;
        let below = if *version == self.settings.to {
            version.clone()
        } else {
            version.minor_version().floor()
        };
        self.stages.push(Stage {
            kind: StageKind::ControlPlane,
            version: version.clone(),
            via,
            below,
        });
        self.control_plane_kubelet = version.clone();
        Ok(())
    }

    /// Takes the workers below a floor to a version; those above stay as they are.
    fn take_workers(&mut self, version: &KubernetesVersion, floor: KubernetesVersion) -> Result<(), PathError> {
        let Some(oldest) = self.workers.first().cloned() else {
            return Ok(());
        };
        let via = self.via(&oldest, version)?;
        self.workers.retain(|kubelet| *kubelet >= floor);
        self.workers.insert(version.clone());
        let kind = StageKind::Workers;
        if self.settings.every_minor {
            let (last, between) = via.split_last().unwrap_or((version, &[]));
            self.stages.extend(between.iter().map(|version| Stage {
                kind,
                version: version.clone(),
                via: vec![version.clone()],
                below: version.minor_version().floor(),
            }));
            let (version, via) = (last.clone(), vec![last.clone()]);
            self.stages.push(Stage {
                kind,
                version,
                via,
                below: floor,
            });
        } else {
            self.stages.push(Stage {
                kind,
                version: version.clone(),
                via,
                below: floor,
            });
        }
        Ok(())
    }

    /// One release for each minor version after `from`, the last being `to` itself.
    fn via(&self, from: &KubernetesVersion, to: &KubernetesVersion) -> Result<Vec<KubernetesVersion>, PathError> {
        let (first, last) = (from.minor_version(), to.minor_version());
        let mut via = Vec::new();
        for minor in first.minor + 1..last.minor {
            via.push(self.release(&Hop::Minor(MinorVersion {
                major: last.major,
                minor,
            }))?);
        }
        via.push(to.clone());
        Ok(via)
    }
}
