//! What a person asked for, read once: defaults filled in, words turned into values. After this nothing looks at a raw
//! spec again.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::clusterupgrade::{
    BudgetOverride, Bundle, ControlPlaneMethod, ImagePreloadType, NodeUpgradeMode, OnDrainTimeout, ProceedAfter, Window,
};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::version::{KubernetesVersion, VersionError};
use crate::view::{Key, NodeName, Uid, View};

const DRAIN_TIMEOUT: i32 = 1800;
const ZONE: &str = afloat_api::labels::ZONE;

/// A ClusterUpgrade's spec after validation.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own in the spec")]
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub to: KubernetesVersion,
    /// Image of the bundle, where the person named one.
    pub bundle_image: Option<Arc<str>>,
    /// Tags of etcd and CoreDNS, where the person named some.
    pub etcd_version: Option<Arc<str>>,
    pub core_dns_version: Option<Arc<str>>,
    pub method: Option<ControlPlaneMethod>,
    pub proceed_after_first: bool,
    pub pause: PausePolicy,
    pub staging: Staging,
    pub drain: Drain,
    pub max_unavailable: Share,
    pub per_failure_domain: Option<usize>,
    pub failure_domain_label: Arc<str>,
    pub max_failed: usize,
    pub window: Option<Window>,
    pub every_minor: bool,
    /// When a node undoes its work by itself, where a person said so.
    pub undo_after_seconds: Option<i32>,
    /// Names of custom gates.
    pub gates: Vec<Arc<str>>,
    pub accept: BTreeSet<String>,
    pub paused: bool,
    pub abort: bool,
}

/// Which nodes wait for a person before they are disrupted.
#[derive(Clone, Debug, PartialEq)]
pub enum PausePolicy {
    None,
    All,
    Named(BTreeSet<String>),
}

impl PausePolicy {
    pub fn holds(&self, node: &NodeName) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(names) => names.contains(node.as_str()),
        }
    }
}

/// A number of nodes, or a share of all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Share {
    Count(usize),
    Percent(usize),
}

impl Share {
    /// Rounded down, at least one.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count.max(1),
            Self::Percent(percent) => (total * percent / 100).max(1),
        }
    }
}

/// How nodes are drained.
#[derive(Clone, Debug, PartialEq)]
pub struct Drain {
    pub timeout: SignedDuration,
    pub defer_on_timeout: bool,
    pub grace_seconds: Option<i64>,
    pub delete_local_data: bool,
    pub evict_unmanaged: bool,
    pub overrides: Vec<BudgetOverride>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout: SignedDuration::from_secs(DRAIN_TIMEOUT.into()),
            defer_on_timeout: false,
            grace_seconds: None,
            delete_local_data: false,
            evict_unmanaged: false,
            overrides: Vec::new(),
        }
    }
}

/// Why a spec cannot be followed. The CRD's own rules refuse most of this before; an older CRD may not.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("spec.{field}: {problem}")]
pub struct Invalid {
    pub field: &'static str,
    pub problem: String,
}

impl Settings {
    pub fn read(spec: &ClusterUpgradeSpec) -> Result<Self, Invalid> {
        let to = spec.kubernetes_version.parse().map_err(|error: VersionError| Invalid {
            field: "kubernetesVersion",
            problem: error.to_string(),
        })?;
        let strategy = spec
            .node_upgrade_option
            .as_ref()
            .and_then(|option| option.strategy.as_ref());
        let pause = match strategy {
            Some(strategy) if strategy.mode == Some(NodeUpgradeMode::Manual) => {
                if strategy.pause_nodes.is_empty() {
                    PausePolicy::All
                } else {
                    PausePolicy::Named(strategy.pause_nodes.iter().cloned().collect())
                }
            }
            _ => PausePolicy::None,
        };
        let budget = spec.budget.clone().unwrap_or_default();
        Ok(Self {
            to,
            bundle_image: spec.bundle.as_ref().map(|bundle| image_of(bundle).into()),
            etcd_version: spec.etcd_version.as_deref().map(Arc::from),
            core_dns_version: spec.core_dns_version.as_deref().map(Arc::from),
            method: spec.control_plane.as_ref().and_then(|option| option.method),
            proceed_after_first: spec.control_plane.as_ref().and_then(|option| option.proceed_after)
                == Some(ProceedAfter::FirstNode),
            pause,
            staging: Staging::read(spec),
            drain: drain(spec),
            max_unavailable: max_unavailable(budget.max_unavailable.as_ref())?,
            per_failure_domain: budget.per_failure_domain.and_then(|count| usize::try_from(count).ok()),
            failure_domain_label: Arc::from(budget.failure_domain_label.as_deref().unwrap_or(ZONE)),
            max_failed: budget
                .max_failed
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(0),
            window: spec.window.clone(),
            every_minor: spec.workers.as_ref().and_then(|option| option.every_minor) == Some(true),
            undo_after_seconds: spec.undo_after_seconds,
            gates: spec.gates.iter().map(|gate| Arc::from(gate.name.as_str())).collect(),
            accept: spec.accept.iter().cloned().collect(),
            paused: spec.paused == Some(true),
            abort: spec.abort == Some(true),
        })
    }
}

impl Settings {
    /// What counts for a group that no ClusterUpgrade stands behind.
    pub fn alone(version: &str, max_concurrent: usize) -> Result<Self, Invalid> {
        let spec = ClusterUpgradeSpec {
            kubernetes_version: version.to_owned(),
            ..ClusterUpgradeSpec::default()
        };
        let mut settings = Self::read(&spec)?;
        settings.max_unavailable = Share::Count(max_concurrent);
        Ok(settings)
    }
}

/// The reference that nodes get: with the digest no registry can give them another image.
fn image_of(bundle: &Bundle) -> String {
    match &bundle.digest {
        Some(digest) if !bundle.image.contains('@') => format!("{}@{digest}", bundle.image),
        _ => bundle.image.clone(),
    }
}

/// How files and images are brought to the nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Staging {
    /// How many nodes are staged at once; all of them where there is no bound.
    pub at_once: Option<usize>,
    /// Whether the bound is one for the whole upgrade; each group has its own otherwise.
    pub in_all: bool,
    /// Whether no node is disrupted before all are staged.
    pub ahead: bool,
}

impl Staging {
    /// Left out, several nodes of a group are staged at once: enough to keep a mirror busy, few enough not to drown it.
    const DEFAULT: Self = Self {
        at_once: Some(DEFAULT_STAGING),
        in_all: false,
        ahead: true,
    };

    pub fn read(spec: &ClusterUpgradeSpec) -> Self {
        let option = spec.image_preload_option.as_ref();
        let Some(strategy) = option.and_then(|option| option.strategy.as_ref()) else {
            return Self::DEFAULT;
        };
        let count = strategy.concurrency.and_then(|count| usize::try_from(count).ok());
        match strategy.kind {
            ImagePreloadType::Skip => Self {
                at_once: Some(1),
                in_all: false,
                ahead: false,
            },
            ImagePreloadType::Sequential => Self {
                at_once: Some(1),
                in_all: true,
                ahead: true,
            },
            ImagePreloadType::Parallel => Self {
                at_once: count.filter(|count| *count > 0),
                in_all: true,
                ahead: true,
            },
        }
    }
}

const DEFAULT_STAGING: usize = 10;

fn max_unavailable(value: Option<&IntOrString>) -> Result<Share, Invalid> {
    let invalid = |text: String| Invalid {
        field: "budget.maxUnavailable",
        problem: format!("{text} is neither a number from 1 up nor a share as \"25%\""),
    };
    match value {
        None => Ok(Share::Count(1)),
        Some(IntOrString::Int(count)) => usize::try_from(*count)
            .ok()
            .filter(|count| *count > 0)
            .map(Share::Count)
            .ok_or_else(|| invalid(count.to_string())),
        Some(IntOrString::String(text)) => text
            .strip_suffix('%')
            .and_then(|digits| digits.parse::<usize>().ok())
            .filter(|percent| (1..=100).contains(percent))
            .map(Share::Percent)
            .ok_or_else(|| invalid(format!("{text:?}"))),
    }
}

fn drain(spec: &ClusterUpgradeSpec) -> Drain {
    let option = spec.drain.clone().unwrap_or_default();
    Drain {
        timeout: SignedDuration::from_secs(option.timeout_seconds.unwrap_or(DRAIN_TIMEOUT).into()),
        defer_on_timeout: option.on_timeout == Some(OnDrainTimeout::Defer),
        grace_seconds: option.grace_period_seconds.map(i64::from),
        delete_local_data: option.delete_empty_dir_data == Some(true),
        evict_unmanaged: option.evict_unmanaged_pods == Some(true),
        overrides: option.override_budgets,
    }
}

/// What counts for one node's upgrade.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    pub drain: Drain,
    /// No new disruption may start: the upgrade or its group is paused.
    pub paused: bool,
    /// The upgrade was aborted, or is being deleted.
    pub aborted: bool,
    /// The upgrade this node belongs to, where it has one.
    pub upgrade: Option<Key>,
    /// It belongs to a group or an upgrade that is not seen (yet): nobody knows what a person wants of it.
    pub unknown: bool,
}

impl NodeSettings {
    fn unknown() -> Self {
        Self {
            unknown: true,
            ..Self::default()
        }
    }
}

/// The settings of a node's upgrade, through its owners; the defaults for one that stands alone.
pub fn of_node(view: &View, node_upgrade: &NodeKubeadmUpgrade) -> NodeSettings {
    let namespace = node_upgrade.metadata.namespace.as_deref().unwrap_or_default();
    let Some(owner) = controller(node_upgrade.metadata.owner_references.as_deref()) else {
        return NodeSettings::default();
    };
    let key = Key::new(namespace, &owner.name);
    let (group_paused, meta) = match owner.kind.as_str() {
        "ControlPlaneKubeadmUpgrade" => match view.control_planes.get(&key) {
            Some(group) if group.metadata.uid.as_deref() == Some(&owner.uid) => (group.spec.paused, &group.metadata),
            _ => return NodeSettings::unknown(),
        },
        "WorkersKubeadmUpgrade" => match view.workers.get(&key) {
            Some(group) if group.metadata.uid.as_deref() == Some(&owner.uid) => (group.spec.paused, &group.metadata),
            _ => return NodeSettings::unknown(),
        },
        _ => return NodeSettings::default(),
    };
    let owners = meta.owner_references.as_deref();
    let paused = group_paused == Some(true);
    let Some(upgrade) = upgrade_of(view, namespace, owners) else {
        return NodeSettings {
            paused,
            aborted: meta.deletion_timestamp.is_some(),
            unknown: controller(owners).is_some_and(|owner| owner.kind == "ClusterUpgrade"),
            ..NodeSettings::default()
        };
    };
    NodeSettings {
        drain: drain(&upgrade.spec),
        paused: paused || upgrade.spec.paused == Some(true),
        aborted: upgrade.spec.abort == Some(true) || upgrade.metadata.deletion_timestamp.is_some(),
        upgrade: Some(Key::new(
            namespace,
            upgrade.metadata.name.as_deref().unwrap_or_default(),
        )),
        unknown: false,
    }
}

/// The ClusterUpgrade among the owners of a group.
pub fn upgrade_of<'a>(
    view: &'a View,
    namespace: &str,
    owners: Option<&[OwnerReference]>,
) -> Option<&'a Arc<ClusterUpgrade>> {
    let owner = controller(owners).filter(|owner| owner.kind == "ClusterUpgrade")?;
    view.upgrades
        .get(&Key::new(namespace, &owner.name))
        .filter(|upgrade| upgrade.metadata.uid.as_deref() == Some(&owner.uid))
}

/// The owner that controls an object.
pub fn controller(owners: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    owners?.iter().find(|owner| owner.controller == Some(true))
}

/// Uid of the upgrade a node's upgrade is labelled with: what its cordon is signed with.
pub fn upgrade_uid(node_upgrade: &NodeKubeadmUpgrade) -> Uid {
    let labels = node_upgrade.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(afloat_api::labels::UPGRADE_UID));
    Uid::from(labelled.map_or_else(
        || node_upgrade.metadata.uid.as_deref().unwrap_or_default(),
        String::as_str,
    ))
}
