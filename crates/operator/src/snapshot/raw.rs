//! What is decoded of the objects the operator watches: the few fields decisions need, so that a list of 150,000 pods is
//! never held whole. Every field may be absent; what they mean is said where they are turned into the core's view.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, ContainerStatus, NodeAddress, NodeCondition, NodeSelector, ResourceRequirements, Taint,
    Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Decodes metadata without `managedFields`, which is the larger half of many objects.
fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Few {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        finalizers: Option<Vec<String>>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let few = Few::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: few.name,
        namespace: few.namespace,
        uid: few.uid,
        resource_version: few.resource_version,
        generation: few.generation,
        creation_timestamp: few.creation_timestamp,
        deletion_timestamp: few.deletion_timestamp,
        deletion_grace_period_seconds: few.deletion_grace_period_seconds,
        finalizers: few.finalizers,
        labels: few.labels,
        annotations: few.annotations,
        owner_references: few.owner_references,
        ..ObjectMeta::default()
    })
}

/// A kind reduced to what is read of it. There is no `Serialize` on purpose: writing one back whole would drop the rest.
macro_rules! reduced {
    ($name:ident is $kind:literal of $group:literal / $version:literal, $plural:literal, $scope:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            #[serde(deserialize_with = "few")]
            pub metadata: ObjectMeta,
            $(pub $field: Option<$type>,)*
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A part of an object: every field may be absent.
macro_rules! part {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $(pub $field: Option<$type>,)*
        }
    };
}

reduced!(RawPod is "Pod" of "" / "v1", "pods", NamespaceResourceScope { spec: PodSpec, status: PodStatus });

part!(PodSpec {
    node_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: BTreeMap<String, Quantity>,
    resources: ResourceRequirements,
    node_selector: BTreeMap<String, String>,
    affinity: Affinity,
    topology_spread_constraints: Vec<TopologySpreadConstraint>,
    tolerations: Vec<Toleration>,
    volumes: Vec<Volume>,
    priority: i32,
});

part!(Container {
    image: String,
    resources: ResourceRequirements,
    ports: Vec<ContainerPort>,
    restart_policy: String,
});

part!(Volume {
    name: String,
    empty_dir: Present,
    ephemeral: Present,
    persistent_volume_claim: ClaimSource,
});

part!(ClaimSource { claim_name: String });

/// Something whose being there is all that counts.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Present {}

part!(PodStatus {
    phase: String,
    start_time: Time,
    conditions: Vec<PodCondition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
});

part!(PodCondition {
    r#type: String,
    status: String,
});

reduced!(RawNode is "Node" of "" / "v1", "nodes", ClusterResourceScope { spec: NodeSpec, status: NodeStatus });

part!(NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
});

part!(NodeStatus {
    allocatable: BTreeMap<String, Quantity>,
    conditions: Vec<NodeCondition>,
    addresses: Vec<NodeAddress>,
    node_info: NodeInfo,
    volumes_attached: Vec<AttachedVolume>,
});

part!(NodeInfo {
    kubelet_version: String,
    container_runtime_version: String,
    os_image: String,
});

part!(AttachedVolume { name: String });

reduced!(RawBudget is "PodDisruptionBudget" of "policy" / "v1", "poddisruptionbudgets", NamespaceResourceScope {
    spec: BudgetSpec, status: BudgetStatus
});

part!(BudgetSpec {
    selector: LabelSelector,
    unhealthy_pod_eviction_policy: String,
});

part!(BudgetStatus {
    observed_generation: i64,
    disruptions_allowed: i64,
    current_healthy: i64,
    desired_healthy: i64,
    expected_pods: i64,
});

reduced!(RawDeployment is "Deployment" of "apps" / "v1", "deployments", NamespaceResourceScope {
    spec: WorkloadSpec, status: WorkloadStatus
});
reduced!(RawReplicaSet is "ReplicaSet" of "apps" / "v1", "replicasets", NamespaceResourceScope {
    spec: WorkloadSpec, status: WorkloadStatus
});
reduced!(RawStatefulSet is "StatefulSet" of "apps" / "v1", "statefulsets", NamespaceResourceScope {
    spec: WorkloadSpec, status: WorkloadStatus
});

part!(WorkloadSpec { replicas: i64 });

part!(WorkloadStatus { ready_replicas: i64 });

reduced!(RawClaim is "PersistentVolumeClaim" of "" / "v1", "persistentvolumeclaims", NamespaceResourceScope {
    spec: ClaimSpec
});

part!(ClaimSpec { volume_name: String });

reduced!(RawVolume is "PersistentVolume" of "" / "v1", "persistentvolumes", ClusterResourceScope { spec: VolumeSpec });

part!(VolumeSpec {
    node_affinity: VolumeAffinity,
    csi: CsiVolume,
    claim_ref: ClaimRef,
});

part!(ClaimRef {
    namespace: String,
    name: String,
});

part!(VolumeAffinity { required: NodeSelector });

part!(CsiVolume {
    driver: String,
    volume_handle: String,
});

reduced!(RawNamespace is "Namespace" of "" / "v1", "namespaces", ClusterResourceScope {});

reduced!(RawLease is "Lease" of "coordination.k8s.io" / "v1", "leases", NamespaceResourceScope { spec: LeaseSpec });

part!(LeaseSpec {
    holder_identity: String
});

reduced!(RawConfigMap is "ConfigMap" of "" / "v1", "configmaps", NamespaceResourceScope {
    data: BTreeMap<String, String>
});
