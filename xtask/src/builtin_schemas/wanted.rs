//! Which kinds the embedded API server knows, and where their Go types live.

/// Group version → its kinds, in the order of discovery.
pub const WANTED: &[(&str, &[&str])] = &[
    (
        "v1",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "ServiceAccount",
            "Service",
        ],
    ),
    ("apiregistration.k8s.io/v1", &["APIService"]),
    (
        "apps/v1",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
        ],
    ),
    ("events.k8s.io/v1", &["Event"]),
    ("authentication.k8s.io/v1", &["SelfSubjectReview", "TokenReview"]),
    (
        "authorization.k8s.io/v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("networking.k8s.io/v1", &["IngressClass", "Ingress", "NetworkPolicy"]),
    ("policy/v1", &["PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io/v1",
        &["ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role"],
    ),
    (
        "storage.k8s.io/v1",
        &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"],
    ),
    (
        "admissionregistration.k8s.io/v1",
        &[
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io/v1", &["CustomResourceDefinition"]),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    ("coordination.k8s.io/v1", &["Lease"]),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
];

/// Components that bodies use without being a resource.
pub const EXTRA_COMPONENTS: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
];

/// OpenAPI prefix of the components, Go module, folder in it.
pub const GO_PACKAGES: &[(&str, &str, &str)] = &[
    ("io.k8s.api.core.v1", "k8s.io/api", "core/v1"),
    ("io.k8s.api.apps.v1", "k8s.io/api", "apps/v1"),
    ("io.k8s.api.events.v1", "k8s.io/api", "events/v1"),
    ("io.k8s.api.authentication.v1", "k8s.io/api", "authentication/v1"),
    ("io.k8s.api.authorization.v1", "k8s.io/api", "authorization/v1"),
    ("io.k8s.api.autoscaling.v1", "k8s.io/api", "autoscaling/v1"),
    ("io.k8s.api.autoscaling.v2", "k8s.io/api", "autoscaling/v2"),
    ("io.k8s.api.batch.v1", "k8s.io/api", "batch/v1"),
    ("io.k8s.api.networking.v1", "k8s.io/api", "networking/v1"),
    ("io.k8s.api.policy.v1", "k8s.io/api", "policy/v1"),
    ("io.k8s.api.rbac.v1", "k8s.io/api", "rbac/v1"),
    ("io.k8s.api.storage.v1", "k8s.io/api", "storage/v1"),
    (
        "io.k8s.api.admissionregistration.v1",
        "k8s.io/api",
        "admissionregistration/v1",
    ),
    ("io.k8s.api.scheduling.v1", "k8s.io/api", "scheduling/v1"),
    ("io.k8s.api.coordination.v1", "k8s.io/api", "coordination/v1"),
    ("io.k8s.api.node.v1", "k8s.io/api", "node/v1"),
    ("io.k8s.api.discovery.v1", "k8s.io/api", "discovery/v1"),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1",
        "k8s.io/apimachinery",
        "pkg/apis/meta/v1",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        "k8s.io/apiextensions-apiserver",
        "pkg/apis/apiextensions/v1",
    ),
    (
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
        "k8s.io/kube-aggregator",
        "pkg/apis/apiregistration/v1",
    ),
];
