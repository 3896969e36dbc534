//! Defaults that typed code fills in when an object is read (`SetDefaults_*` upstream), kind by kind. They run on create
//! and on update, after decoding. Defaults that custom resources declare in their schemas live in `structural`.

mod cluster;
mod pod;
mod workloads;

use serde_json::Value;

/// Fills in the defaults of a built-in kind.
pub fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "ConfigMap" | "Node" | "Namespace" | "Secret" | "Service" | "Endpoints" | "LimitRange") => {
            cluster::core(kind, object);
        }
        ("", "PersistentVolume") => cluster::persistent_volume(object),
        ("", "PersistentVolumeClaim") => cluster::persistent_volume_claim(object),
        ("", "ReplicationController") => workloads::replication_controller(object),
        ("", "PodTemplate") => pod::template(object, "template"),
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "ReplicaSet") => workloads::replica_set(object),
        ("batch", "Job") => workloads::job(object),
        ("batch", "CronJob") => workloads::cron_job(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::role_binding(object),
        ("storage.k8s.io", "StorageClass") => cluster::storage_class(object),
        ("storage.k8s.io", "CSIDriver") => cluster::csi_driver(object),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(object),
        ("networking.k8s.io", "NetworkPolicy") => cluster::network_policy(object),
        ("networking.k8s.io", "IngressClass") => cluster::ingress_class(object),
        ("discovery.k8s.io", "EndpointSlice") => cluster::endpoint_slice(object),
        ("autoscaling", "HorizontalPodAutoscaler") => workloads::autoscaler(object),
        ("admissionregistration.k8s.io", _) => cluster::admission_registration(kind, object),
        _ => {}
    }
}
