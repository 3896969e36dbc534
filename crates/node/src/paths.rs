//! Where things lie on a machine: as image-builder lays them out (kubelet under systemd, containerd, kubeadm's folders),
//! and Afloat's own folder. What may be changed there is listed in `touches`.

/// Afloat's own folder, for root alone: journal, bundle, and what was kept.
pub const HOME: &str = "/var/lib/afloat";
pub const JOURNAL: &str = "/var/lib/afloat/journal";
/// Journals of attempts that are over.
pub const ARCHIVE: &str = "/var/lib/afloat/archive";
/// What was replaced, to put it back.
pub const KEPT: &str = "/var/lib/afloat/kept";
/// What `kubeadm upgrade` changes in the cluster itself.
pub const KEPT_CLUSTER: &str = "/var/lib/afloat/kept/cluster.json";
/// What of it goes back.
pub const CLUSTER_BACK: &str = "/var/lib/afloat/kept/cluster-back.json";
/// The data of a single node's etcd as it was before its version changed.
pub const ETCD_SNAPSHOT: &str = "/var/lib/afloat/kept/etcd-snapshot";
/// containerd's configuration as its new version writes it.
pub const MIGRATED: &str = "/var/lib/afloat/runtime/config.toml";
/// The bundle on the host.
pub const BUNDLE: &str = "/var/lib/afloat/bundle";
/// The bundle as the stage container brings it.
pub const BROUGHT: &str = "/bundle";
/// Where kubeadm renders manifests to.
pub const RENDER: &str = "/var/lib/afloat/render";
/// What kubeadm's configuration is patched with.
pub const NAMED_IMAGES: &str = "/var/lib/afloat/render/named-images.json";
/// Held by whoever carries on: the engine of the host, or a step container before there is one.
pub const LOCK: &str = "/var/lib/afloat/lock";
/// What the time of the journal goes by since the machine was started; gone when it is started again.
pub const CLOCK: &str = "/run/afloat/clock";
/// Where the other etcd members are, for when this one cannot say.
pub const ETCD_MEMBERS: &str = "/var/lib/afloat/etcd-members";
pub const PROGRAM: &str = "/var/lib/afloat/bin/afloat";
pub const UNIT: &str = "afloat-node.service";
pub const UNIT_FILE: &str = "/etc/systemd/system/afloat-node.service";

pub const KUBELET_UNIT: &str = "kubelet.service";
pub const CONTAINERD_UNIT: &str = "containerd.service";
pub const KUBEADM: &str = "/usr/bin/kubeadm";
pub const KUBELET: &str = "/usr/bin/kubelet";
pub const KUBECTL: &str = "/usr/bin/kubectl";
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
pub const KUBERNETES: &str = "/etc/kubernetes";
/// Where people put patches for kubeadm, by the custom of Cluster API and kubeadm's own examples.
pub const PATCHES: &str = "/etc/kubernetes/patches";
pub const PKI: &str = "/etc/kubernetes/pki";
pub const ADMIN_CONF: &str = "/etc/kubernetes/admin.conf";
/// Where kubeadm puts backups of its own; it never removes them.
pub const KUBEADM_TMP: &str = "/etc/kubernetes/tmp";
/// As whom the kubelet speaks to the API server.
pub const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
pub const KUBELET_CONFIG: &str = "/var/lib/kubelet/config.yaml";
/// What kubeadm lays over the config for this node alone (since 1.35).
pub const KUBELET_INSTANCE_CONFIG: &str = "/var/lib/kubelet/instance-config.yaml";
pub const KUBELET_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";
/// Flags a person added: theirs, never written.
pub const KUBELET_EXTRA: &str = "/etc/default/kubelet";
/// Where containerd looks for its configuration unless it is told otherwise.
pub const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// Where kubeadm has etcd keep its data unless it is told otherwise.
pub const ETCD_DATA: &str = "/var/lib/etcd";
pub const CNI: &str = "/opt/cni/bin";
pub const SWAPS: &str = "/proc/swaps";
/// There where the machine has cgroup v2.
pub const CGROUP_V2: &str = "/sys/fs/cgroup/cgroup.controllers";

/// Folders a runtime binary may lie in; the first is where it goes if it lies in none.
pub const RUNTIME_FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];

/// The parts of a control plane, by the names of their manifests and containers, in the order in which they end.
pub const PARTS: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd"];

/// The manifest of a part.
pub fn manifest(part: &str) -> String {
    format!("{MANIFESTS}/{part}.yaml")
}
