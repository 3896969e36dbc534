//! Which printer a built-in kind has.

use serde_json::{Value, json};

use super::column::{CREATED_AT, Column, NAME};
use super::view::View;
use super::{cluster, network, pod, policy, storage, workload};

/// The columns of a kind, and how an object fills them.
#[derive(Clone, Copy)]
pub struct Printer {
    pub columns: &'static [Column],
    pub row: fn(View<'_>) -> Vec<Value>,
    /// An empty list has `rows: null` instead of an empty list: a slip of the printer that kinds without their own
    /// share.
    pub null_when_empty: bool,
}

type Entry = (&'static [Column], fn(View<'_>) -> Vec<Value>);

/// Kinds without a printer of their own show when they were made, not how old they are.
const DEFAULT: Printer = Printer {
    columns: &[NAME, CREATED_AT],
    row: name_and_creation,
    null_when_empty: true,
};

fn name_and_creation(object: View<'_>) -> Vec<Value> {
    vec![
        json!(object.name()),
        json!(object.text_or("/metadata/creationTimestamp", "0001-01-01T00:00:00Z")),
    ]
}

pub fn printer_of(group: &str, kind: &str) -> Printer {
    let (columns, row): Entry = match group {
        "" => return core(kind),
        "apps" | "batch" | "autoscaling" | "policy" => return workloads(group, kind),
        "storage.k8s.io" | "networking.k8s.io" | "discovery.k8s.io" => return storage_and_network(group, kind),
        _ => match (group, kind) {
            ("events.k8s.io", "Event") => (cluster::EVENT_COLUMNS, cluster::group_event),
            ("coordination.k8s.io", "Lease") => (policy::LEASE_COLUMNS, policy::lease),
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
                (policy::BINDING_COLUMNS, policy::role_binding)
            }
            ("scheduling.k8s.io", "PriorityClass") => (policy::PRIORITY_CLASS_COLUMNS, policy::priority_class),
            ("node.k8s.io", "RuntimeClass") => (policy::RUNTIME_CLASS_COLUMNS, policy::runtime_class),
            ("apiregistration.k8s.io", "APIService") => (policy::API_SERVICE_COLUMNS, policy::api_service),
            ("certificates.k8s.io", "CertificateSigningRequest") => {
                (policy::SIGNING_REQUEST_COLUMNS, policy::signing_request)
            }
            ("flowcontrol.apiserver.k8s.io", "FlowSchema") => (policy::FLOW_SCHEMA_COLUMNS, policy::flow_schema),
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
                (policy::PRIORITY_LEVEL_COLUMNS, policy::priority_level)
            }
            ("admissionregistration.k8s.io", _) => return admission(kind),
            ("resource.k8s.io", "ResourceClaim") => (policy::RESOURCE_CLAIM_COLUMNS, policy::resource_claim),
            ("resource.k8s.io", "ResourceSlice") => (policy::RESOURCE_SLICE_COLUMNS, policy::resource_slice),
            ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => {
                (cluster::NAME_AND_AGE_COLUMNS, cluster::name_and_age)
            }
            _ => return DEFAULT,
        },
    };
    Printer {
        columns,
        row,
        null_when_empty: false,
    }
}

fn core(kind: &str) -> Printer {
    let (columns, row): Entry = match kind {
        "Pod" => (pod::COLUMNS, pod::row),
        "Node" => (cluster::NODE_COLUMNS, cluster::node),
        "Namespace" => (cluster::NAMESPACE_COLUMNS, cluster::namespace),
        "Event" => (cluster::EVENT_COLUMNS, cluster::core_event),
        "ConfigMap" => (cluster::CONFIG_MAP_COLUMNS, cluster::config_map),
        "Secret" => (cluster::SECRET_COLUMNS, cluster::secret),
        "ServiceAccount" => (cluster::NAME_AND_AGE_COLUMNS, cluster::name_and_age),
        "ComponentStatus" => (cluster::COMPONENT_STATUS_COLUMNS, cluster::component_status),
        "ResourceQuota" => (cluster::QUOTA_COLUMNS, cluster::quota),
        "Service" => (network::SERVICE_COLUMNS, network::service),
        "Endpoints" => (network::ENDPOINTS_COLUMNS, network::endpoints),
        "PersistentVolume" => (storage::VOLUME_COLUMNS, storage::volume),
        "PersistentVolumeClaim" => (storage::CLAIM_COLUMNS, storage::claim),
        "ReplicationController" => (workload::REPLICA_COLUMNS, workload::replication_controller),
        "PodTemplate" => (workload::POD_TEMPLATE_COLUMNS, workload::pod_template),
        _ => return DEFAULT,
    };
    Printer {
        columns,
        row,
        null_when_empty: false,
    }
}

fn workloads(group: &str, kind: &str) -> Printer {
    let (columns, row): Entry = match (group, kind) {
        ("apps", "Deployment") => (workload::DEPLOYMENT_COLUMNS, workload::deployment),
        ("apps", "ReplicaSet") => (workload::REPLICA_COLUMNS, workload::replica_set),
        ("apps", "StatefulSet") => (workload::STATEFUL_SET_COLUMNS, workload::stateful_set),
        ("apps", "DaemonSet") => (workload::DAEMON_SET_COLUMNS, workload::daemon_set),
        ("apps", "ControllerRevision") => (workload::CONTROLLER_REVISION_COLUMNS, workload::controller_revision),
        ("batch", "Job") => (workload::JOB_COLUMNS, workload::job),
        ("batch", "CronJob") => (workload::CRON_JOB_COLUMNS, workload::cron_job),
        ("autoscaling", "HorizontalPodAutoscaler") => (workload::AUTOSCALER_COLUMNS, workload::autoscaler),
        ("autoscaling", "Scale") => (workload::SCALE_COLUMNS, workload::scale),
        ("policy", "PodDisruptionBudget") => (workload::DISRUPTION_BUDGET_COLUMNS, workload::disruption_budget),
        _ => return DEFAULT,
    };
    Printer {
        columns,
        row,
        null_when_empty: false,
    }
}

fn storage_and_network(group: &str, kind: &str) -> Printer {
    let (columns, row): Entry = match (group, kind) {
        ("storage.k8s.io", "StorageClass") => (storage::STORAGE_CLASS_COLUMNS, storage::storage_class),
        ("storage.k8s.io", "VolumeAttributesClass") => (storage::ATTRIBUTES_CLASS_COLUMNS, storage::attributes_class),
        ("storage.k8s.io", "VolumeAttachment") => (storage::ATTACHMENT_COLUMNS, storage::attachment),
        ("storage.k8s.io", "CSINode") => (storage::CSI_NODE_COLUMNS, storage::csi_node),
        ("storage.k8s.io", "CSIDriver") => (storage::CSI_DRIVER_COLUMNS, storage::csi_driver),
        ("networking.k8s.io", "Ingress") => (network::INGRESS_COLUMNS, network::ingress),
        ("networking.k8s.io", "IngressClass") => (network::INGRESS_CLASS_COLUMNS, network::ingress_class),
        ("networking.k8s.io", "NetworkPolicy") => (network::NETWORK_POLICY_COLUMNS, network::network_policy),
        ("networking.k8s.io", "ServiceCIDR") => (network::SERVICE_CIDR_COLUMNS, network::service_cidr),
        ("networking.k8s.io", "IPAddress") => (network::IP_ADDRESS_COLUMNS, network::ip_address),
        ("discovery.k8s.io", "EndpointSlice") => (network::ENDPOINT_SLICE_COLUMNS, network::endpoint_slice),
        _ => return DEFAULT,
    };
    Printer {
        columns,
        row,
        null_when_empty: false,
    }
}

fn admission(kind: &str) -> Printer {
    let (columns, row): Entry = match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            (policy::WEBHOOK_COLUMNS, policy::webhooks)
        }
        "ValidatingAdmissionPolicy" => (policy::VALIDATING_POLICY_COLUMNS, policy::validating_policy),
        "MutatingAdmissionPolicy" => (policy::MUTATING_POLICY_COLUMNS, policy::mutating_policy),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            (policy::POLICY_BINDING_COLUMNS, policy::policy_binding)
        }
        _ => return DEFAULT,
    };
    Printer {
        columns,
        row,
        null_when_empty: false,
    }
}
