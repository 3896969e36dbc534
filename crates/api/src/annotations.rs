//! Annotation and taint keys that Afloat writes or reads. Label keys are in [`crate::labels`].

/// On a Node: holds it back before it is disrupted. Removing it lets the node go on.
pub const PAUSE: &str = "afloat.dev/pause";
/// On a Node: `defer` or `rollback`, what a person asks for it. The operator removes it once it has recorded it.
pub const WISH: &str = "afloat.dev/wish";
/// On a NodeKubeadmUpgrade: a [`crate::Reason`], why it is put back.
pub const BECAUSE: &str = "afloat.dev/because";
/// On a Node: uid of the upgrade that cordoned it. Only a node with it is uncordoned at the end.
pub const CORDONED_BY: &str = "afloat.dev/cordoned-by";
/// On an object or a Node that was paused for an upgrade: uid of the upgrade. Only one with it is resumed at the end.
pub const PAUSED_BY: &str = "afloat.dev/paused-by";
/// On kubeadm's configuration: the image tags there that Afloat wrote, as JSON. They go with the version of Kubernetes that they were written for.
pub const NAMED_IMAGES: &str = "afloat.dev/named-images";
/// On the Secret with the webhook's certificate: when the next one is made.
pub const RENEW_AFTER: &str = "afloat.dev/renew-after";
/// On Harvester's ManagedChart: how KubeVirt was to renew running machines before an upgrade took that from it, as JSON.
pub const UPDATE_METHODS_BEFORE: &str = "afloat.dev/workload-update-methods-before";
/// On a ClusterUpgrade: only the CLI may start it.
pub const MANAGED_BY_CLI: &str = "afloat.dev/managed-by-cli";

/// Cluster API: pauses the controllers of an object.
pub const CAPI_PAUSED: &str = "cluster.x-k8s.io/paused";
/// Cluster API: a MachineHealthCheck leaves the Machine alone.
pub const CAPI_SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Cluster API: the Machine is to be remediated.
pub const CAPI_REMEDIATE: &str = "cluster.x-k8s.io/remediate-machine";
/// Cluster API: the Machine is deleted first at the next scaling down.
pub const CAPI_DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// Cluster API: the Machine, or one of its objects, is being updated in place.
pub const CAPI_UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
/// Cluster API: hooks that have to be called for an object, as a list with commas.
pub const CAPI_PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";

/// Rancher asks, on a plan secret: may the node be drained?
pub const RANCHER_PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
/// Rancher asks, on a plan secret: is the work after the drain done?
pub const RANCHER_POST_DRAIN: &str = "rke.cattle.io/post-drain";
/// The answer to [`RANCHER_PRE_DRAIN`]: the value copied.
pub const HARVESTER_PRE_HOOK: &str = "harvesterhci.io/pre-hook";
/// The answer to [`RANCHER_POST_DRAIN`]: the value copied.
pub const HARVESTER_POST_HOOK: &str = "harvesterhci.io/post-hook";

/// Harvester, on a Node: holds it back before its pre-drain Job. The one truth about a node's pause.
pub const HARVESTER_NODE_PAUSE: &str = "harvesterhci.io/node-upgrade-pause";
/// Harvester, on an Upgrade: JSON map from node to `pause` or `unpause`; honoured as another way to write the node's annotation.
pub const HARVESTER_PAUSE_MAP: &str = "harvesterhci.io/node-upgrade-pause-map";
/// Harvester, on a Node: the operating system it has to come back with.
pub const HARVESTER_PENDING_OS_IMAGE: &str = "harvesterhci.io/pendingOSImage";
/// Harvester, on an Upgrade: Longhorn's `replica-replenishment-wait-interval` as it was before.
pub const HARVESTER_REPLENISHMENT_WAIT: &str = "harvesterhci.io/replica-replenishment-wait-interval";
/// Harvester, on an Upgrade: `true` skips the check of versions.
pub const HARVESTER_SKIP_VERSION_CHECK: &str = "harvesterhci.io/skip-version-check";
/// Harvester, on an Upgrade: `true` skips the checks of the webhook.
pub const HARVESTER_SKIP_WEBHOOK: &str = "harvesterhci.io/skipWebhook";
/// Harvester, on an Upgrade: not empty, detached volumes with one replica are no finding.
pub const HARVESTER_SKIP_SINGLE_REPLICA: &str = "harvesterhci.io/skipSingleReplicaDetachedVol";
/// Harvester, on an Upgrade: `true` skips the check of disk space.
pub const HARVESTER_SKIP_DISK_CHECK: &str = "harvesterhci.io/skipGarbageCollectionThresholdCheck";
/// Harvester, on an Upgrade: how many days certificates must still be valid, 7 where absent.
pub const HARVESTER_MIN_CERTS_DAYS: &str = "harvesterhci.io/minCertsExpirationInDay";
/// Harvester, on an Upgrade: `true` lets nodes join during it.
pub const HARVESTER_ALLOW_NODE_JOIN: &str = "harvesterhci.io/allow-node-join";

/// Taint that makes KubeVirt move virtual machines away.
pub const KUBEVIRT_DRAIN_TAINT: &str = "kubevirt.io/drain";
/// Value of [`KUBEVIRT_DRAIN_TAINT`]; its effect is `NoSchedule`.
pub const KUBEVIRT_DRAIN_TAINT_VALUE: &str = "draining";
/// Taint of nodes that an upgrade has yet to take out of service: where there is a choice, virtual machines and pods go elsewhere, and are not moved
/// once more. Its value names the upgrade; its effect is `PreferNoSchedule`.
pub const UPGRADE_PENDING_TAINT: &str = "afloat.dev/upgrade-pending";
/// On an Upgrade: the revision up to which nodes have to be seen to find every [`UPGRADE_PENDING_TAINT`] of it.
pub const PENDING_AS_OF: &str = "afloat.dev/upgrade-pending-as-of";
/// On a VirtualMachine that a task has stopped: when it was to run before.
pub const RUN_BEFORE: &str = "afloat.dev/run-before";
/// On a VirtualMachine that a task starts by another word than its own: when it is to run once it does.
pub const RUN_AFTER: &str = "afloat.dev/run-after";
/// On a Job that empties a node: migrations that did not end in time and were cancelled, by virtual machine.
pub const CANCELLED_MIGRATIONS: &str = "afloat.dev/cancelled-migrations";
/// On an Upgrade, `true`: virtual machines that were moved for a node come back to it when it is done.
pub const MIGRATE_BACK: &str = "afloat.dev/migrate-back";
/// On an Upgrade, by a person: how many minutes a node may be kept from its turn, by a volume or a node that is not Ready.
pub const WAIT_MINUTES: &str = "afloat.dev/wait-minutes";
/// On an Upgrade, by a person: after how many minutes Rancher's drain of a node is overdue.
pub const DRAIN_MINUTES: &str = "afloat.dev/drain-minutes";
/// On an Upgrade: when its nodes began, were drained and were done, and how long they were kept waiting, as JSON.
pub const NODE_TIMES: &str = "afloat.dev/node-times";
