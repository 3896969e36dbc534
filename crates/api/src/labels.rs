//! Label keys that Afloat writes or reads. Annotation keys are in [`crate::annotations`], values with a fixed set of words
//! are enumerations beside the kind they belong to.

/// Name of the ClusterUpgrade an object belongs to.
pub const CLUSTER_UPGRADE: &str = "afloat.dev/cluster-upgrade";
/// Uid of the upgrade an object belongs to: tells today's children from yesterday's.
pub const UPGRADE_UID: &str = "afloat.dev/upgrade-uid";
/// Name of the node an object is about.
pub const NODE: &str = "afloat.dev/node";
/// Which attempt at its node a pod belongs to.
pub const ATTEMPT: &str = "afloat.dev/attempt";
/// On a Node, written by people: the group of workers it belongs to; `workers` where absent.
pub const GROUP: &str = "afloat.dev/group";
/// What a pod on a node does: `stage`, `upgrade` or `rollback`.
pub const TASK: &str = "afloat.dev/task";

/// On the operator's pod that leads: the Service of the webhook finds it by this, since only who leads can answer.
pub const LEADS: &str = "afloat.dev/leads";

/// Marks a Node as a control plane (kubeadm).
pub const CONTROL_PLANE_NODE: &str = "node-role.kubernetes.io/control-plane";
/// Names the failure domain of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Cluster API: name of the cluster an object belongs to.
pub const CAPI_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// Cluster API: marks a control-plane Machine.
pub const CAPI_CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Cluster API: name of the control-plane object that owns a Machine.
pub const CAPI_CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
/// Cluster API: name of the MachineDeployment a Machine belongs to.
pub const CAPI_DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";
/// Cluster API: name of the MachineSet a Machine belongs to.
pub const CAPI_SET: &str = "cluster.x-k8s.io/set-name";

/// Rancher: name of the Machine a plan secret belongs to.
pub const RANCHER_MACHINE: &str = "rke.cattle.io/machine-name";

/// Harvester: state of an Upgrade, a word of [`crate::harvester::UpgradeState`].
pub const HARVESTER_UPGRADE_STATE: &str = "harvesterhci.io/upgradeState";
/// Harvester: `true` on the newest Upgrade, and on no other.
pub const HARVESTER_LATEST_UPGRADE: &str = "harvesterhci.io/latestUpgrade";
/// Harvester: `Pending` or `Succeeded`, how the cleaning up after an Upgrade is.
pub const HARVESTER_UPGRADE_CLEANUP: &str = "harvesterhci.io/upgradeCleanup";
/// Harvester: `true` on an Upgrade whose end a person has taken note of.
pub const HARVESTER_READ_MESSAGE: &str = "harvesterhci.io/read-message";
/// Harvester: name of the Upgrade a Job, Plan, Pod or image belongs to.
pub const HARVESTER_UPGRADE: &str = "harvesterhci.io/upgrade";
/// Harvester: part of the upgrade, a word of [`crate::harvester::UpgradeComponent`].
pub const HARVESTER_UPGRADE_COMPONENT: &str = "harvesterhci.io/upgradeComponent";
/// Harvester: what a Job on a node does, as `pre-drain`.
pub const HARVESTER_UPGRADE_JOB_TYPE: &str = "harvesterhci.io/upgradeJobType";
/// Harvester: name of the node a Job works on.
pub const HARVESTER_NODE: &str = "harvesterhci.io/node";
/// Harvester: `true` on nodes that Harvester manages.
pub const HARVESTER_MANAGED: &str = "harvesterhci.io/managed";
/// Harvester: marks a witness node, which runs etcd only.
pub const HARVESTER_WITNESS: &str = "node-role.harvesterhci.io/witness";

/// KubeVirt: name of the node a virtual machine instance runs on.
pub const KUBEVIRT_NODE: &str = "kubevirt.io/nodeName";
