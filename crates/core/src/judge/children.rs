//! The objects an upgrade creates: groups and the upgrades of single nodes, with the steps a node of that role takes.

use std::sync::Arc;

use afloat_api::common::StepEnv;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{NodePlan, steps};
use afloat_api::{
    ClusterUpgrade, ControlPlaneKubeadmUpgrade, ControlPlaneKubeadmUpgradeSpec, NodeKubeadmUpgrade,
    NodeKubeadmUpgradeSpec, NodeRef, NodeRole, ObjectRef, StepContainer, WorkersKubeadmUpgrade,
    WorkersKubeadmUpgradeSpec, labels, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::roster::Group;
use crate::plan::Stage;
use crate::settings::Settings;
use crate::view::{Node, View};

const API_VERSION: &str = "afloat.dev/v1alpha1";
/// After so long without an API server and a kubelet a node undoes its work by itself.
const UNDO_AFTER_SECONDS: i32 = 900;
/// How long one step may take.
const STEP_SECONDS: i32 = 900;

fn owner(kind: &str, meta: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A Node as groups list it.
pub fn machine(node: &Node) -> ObjectRef {
    ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "Node".to_owned(),
        namespace: None,
        name: node.name.to_string(),
        uid: Some(node.uid.to_string()),
    }
}

fn group_meta(upgrade: &ClusterUpgrade, group: &str, stage: &Stage) -> ObjectMeta {
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    let uid = upgrade.metadata.uid.as_deref().unwrap_or_default();
    ObjectMeta {
        name: Some(names::group(name, uid, group, &stage.version.to_string())),
        namespace: upgrade.metadata.namespace.clone(),
        labels: Some(
            [
                (labels::CLUSTER_UPGRADE.to_owned(), name.to_owned()),
                (labels::UPGRADE_UID.to_owned(), uid.to_owned()),
                (labels::GROUP.to_owned(), group.to_owned()),
            ]
            .into(),
        ),
        owner_references: Some(vec![owner("ClusterUpgrade", &upgrade.metadata)]),
        ..ObjectMeta::default()
    }
}

/// The control plane at one version.
pub fn control_plane(
    view: &View,
    upgrade: &ClusterUpgrade,
    stage: &Stage,
    machines: Vec<ObjectRef>,
) -> ControlPlaneKubeadmUpgrade {
    let config = view.kubeadm_config.as_ref();
    // On the way there kubeadm's own will do: the bundle of a hop has those.
    let asked = Some(&upgrade.spec).filter(|spec| spec.kubernetes_version == stage.version.to_string());
    ControlPlaneKubeadmUpgrade {
        metadata: group_meta(upgrade, "cp", stage),
        spec: ControlPlaneKubeadmUpgradeSpec {
            machines_require_upgrade: machines,
            kubernetes_version: stage.version.to_string(),
            kubelet_version: stage.version.to_string(),
            etcd_version: asked.and_then(|spec| spec.etcd_version.clone()),
            core_dns_version: asked.and_then(|spec| spec.core_dns_version.clone()),
            kubeadm_cluster_config: config.map_or_else(String::new, ToString::to_string),
            ..ControlPlaneKubeadmUpgradeSpec::default()
        },
        status: None,
    }
}

/// One group of workers at one version.
pub fn workers(
    upgrade: &ClusterUpgrade,
    stage: &Stage,
    group: &str,
    machines: Vec<ObjectRef>,
    concurrent: usize,
) -> WorkersKubeadmUpgrade {
    WorkersKubeadmUpgrade {
        metadata: group_meta(upgrade, group, stage),
        spec: WorkersKubeadmUpgradeSpec {
            machines_require_upgrade: machines,
            kubernetes_version: stage.version.to_string(),
            kubelet_version: stage.version.to_string(),
            max_concurrent: i32::try_from(concurrent).ok().map(|count| count.clamp(1, 500)),
            ..WorkersKubeadmUpgradeSpec::default()
        },
        status: None,
    }
}

/// What a node's upgrade is made from.
pub struct NodeOrder<'a> {
    pub view: &'a View,
    pub group: Group<'a>,
    pub node: &'a Node,
    pub role: NodeRole,
    pub attempt: i32,
    /// Versions whose migrations run in turn.
    pub via: Vec<String>,
    pub settings: Option<&'a Settings>,
    /// Name and uid of the ClusterUpgrade, where the group has one.
    pub upgrade: Option<(&'a str, &'a str)>,
    pub image: Arc<str>,
}

/// The upgrade of one node.
pub fn node_upgrade(order: &NodeOrder<'_>) -> NodeKubeadmUpgrade {
    let group_uid = order.group.uid();
    let plan = plan(order);
    let env: Arc<Vec<StepEnv>> = Arc::new(
        plan.to_env()
            .into_iter()
            .map(|(name, value)| StepEnv {
                name: name.to_owned(),
                value,
            })
            .collect(),
    );
    let step = |name: &str| StepContainer {
        name: name.to_owned(),
        image: order.image.to_string(),
        command: Vec::new(),
        args: vec!["node".to_owned(), name.to_owned()],
        env: Arc::clone(&env),
        timeout_seconds: Some(STEP_SECONDS),
    };
    let group_kind = match order.group {
        Group::ControlPlane(_) => "ControlPlaneKubeadmUpgrade",
        Group::Workers(_) => "WorkersKubeadmUpgrade",
    };
    NodeKubeadmUpgrade {
        metadata: ObjectMeta {
            name: Some(names::node_upgrade(
                order.node.name.as_str(),
                group_uid,
                order.node.uid.as_str(),
            )),
            namespace: order.group.meta().namespace.clone(),
            labels: Some(node_labels(order)),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            owner_references: Some(vec![owner(group_kind, order.group.meta())]),
            ..ObjectMeta::default()
        },
        spec: NodeKubeadmUpgradeSpec {
            cluster: None,
            machine: None,
            node: NodeRef {
                name: order.node.name.to_string(),
                uid: order.node.uid.to_string(),
            },
            role: order.role,
            kubernetes_version: order.group.kubernetes_version().to_owned(),
            kubelet_version: order.group.version().to_owned(),
            etcd_version: plan.etcd_version.clone(),
            stage: Some(Arc::new(step(steps::STAGE))),
            steps: Arc::new(
                steps_of(order.role, !plan.peers.is_empty())
                    .iter()
                    .map(|name| step(name))
                    .collect(),
            ),
            attempt: order.attempt,
            desired: DesiredNodeState::Staged,
            undo_after_seconds: Some(undo_after_seconds(order)),
        },
        status: None,
    }
}

fn node_labels(order: &NodeOrder<'_>) -> std::collections::BTreeMap<String, String> {
    let (name, uid) = order.upgrade.unwrap_or_else(|| {
        (
            order.group.meta().name.as_deref().unwrap_or_default(),
            order.group.uid(),
        )
    });
    let mut labels = std::collections::BTreeMap::from([
        (labels::UPGRADE_UID.to_owned(), uid.to_owned()),
        (labels::NODE.to_owned(), order.node.name.to_string()),
    ]);
    if order.upgrade.is_some() {
        labels.insert(labels::CLUSTER_UPGRADE.to_owned(), name.to_owned());
    }
    labels
}

fn undo_after_seconds(order: &NodeOrder<'_>) -> i32 {
    let asked = order.settings.and_then(|settings| settings.undo_after_seconds);
    asked.unwrap_or(UNDO_AFTER_SECONDS)
}

fn plan(order: &NodeOrder<'_>) -> NodePlan {
    let peers = if order.role == NodeRole::Worker {
        Vec::new()
    } else {
        order
            .view
            .control_plane_nodes()
            .filter(|peer| peer.name != order.node.name)
            .filter_map(|peer| peer.internal_ip.as_ref().map(ToString::to_string))
            .collect()
    };
    let (etcd, core_dns) = order.group.image_tags();
    NodePlan {
        upgrade: order.group.uid().to_owned(),
        attempt: order.attempt,
        node: order.node.name.to_string(),
        role: order.role,
        kubernetes_version: order.group.kubernetes_version().to_owned(),
        kubelet_version: order.group.version().to_owned(),
        via: order.via.clone(),
        method: order.settings.and_then(|settings| settings.method),
        peers,
        etcd_version: etcd.cloned(),
        core_dns_version: core_dns.cloned(),
        undo_after_seconds: undo_after_seconds(order).unsigned_abs(),
        // The operator's own: it adds them to every pod, whoever wrote the object.
        bundle_key: None,
    }
}

/// The steps of a role, in their order.
fn steps_of(role: NodeRole, has_peers: bool) -> Vec<&'static str> {
    let work = [steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET];
    if role == NodeRole::Worker || !has_peers {
        return work.to_vec();
    }
    let mut all = vec![steps::STAND_ASIDE];
    all.extend(work);
    all.push(steps::COME_BACK);
    all
}
