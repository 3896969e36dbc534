//! Every path outside Afloat's own folder that an upgrade may change: the runtime, CNI plugins, kubeadm, kubelet, kubectl, static
//! pods and what belongs to them. All else on the host is the user's and stays as it is; tests compare whole file trees.

use crate::paths;

/// Programs of a runtime that a bundle may bring.
const RUNTIME: [&str; 7] = [
    "containerd",
    "containerd-shim-runc-v2",
    "containerd-stress",
    "crictl",
    "critest",
    "ctr",
    "runc",
];

const SINGLE: [&str; 8] = [
    paths::KUBEADM,
    paths::KUBELET,
    paths::KUBECTL,
    paths::KUBELET_CONFIG,
    paths::KUBELET_INSTANCE_CONFIG,
    paths::KUBELET_FLAGS,
    // Only where its form is older than the one of the containerd that an upgrade brings.
    paths::CONTAINERD_CONFIG,
    paths::UNIT_FILE,
];

/// The kubeconfig files that kubeadm writes; any other `.conf` there is a person's, as the one of a cloud provider.
const KUBECONFIGS: [&str; 5] = [
    "admin.conf",
    "super-admin.conf",
    "controller-manager.conf",
    "scheduler.conf",
    "kubelet.conf",
];

/// The certificates that kubeadm renews, without their endings. Authorities and what else lies beside them it leaves alone.
const CERTIFICATES: [&str; 7] = [
    "pki/apiserver",
    "pki/apiserver-etcd-client",
    "pki/apiserver-kubelet-client",
    "pki/front-proxy-client",
    "pki/etcd/healthcheck-client",
    "pki/etcd/peer",
    "pki/etcd/server",
];

/// Whether kubeadm writes this file of its folder when it upgrades: manifests, certificates, and the kubeconfig files they are in.
pub fn is_kubeadms(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/etc/kubernetes/") else {
        return false;
    };
    let certificate = name.strip_suffix(".crt").or_else(|| name.strip_suffix(".key"));
    KUBECONFIGS.contains(&name)
        || certificate.is_some_and(|certificate| CERTIFICATES.contains(&certificate))
        || paths::PARTS.iter().any(|part| path == paths::manifest(part))
}

/// Whether an upgrade may change, add or remove this path.
pub fn may_touch(path: &str) -> bool {
    let within = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let is_runtime = paths::RUNTIME_FOLDERS.iter().any(|folder| {
        let program = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        program.is_some_and(|program| RUNTIME.contains(&program))
    });
    SINGLE.contains(&path)
        || is_runtime
        || is_kubeadms(path)
        || within(paths::CNI)
        || within(paths::KUBEADM_TMP)
        // Only where an undoing finds a member that does not start: its data is moved aside then.
        || within(paths::ETCD_DATA)
        || within(paths::HOME)
}

/// Whether a program of the bundle belongs to the runtime: anything else would be put over a user's file.
pub fn is_runtime(program: &str) -> bool {
    RUNTIME.contains(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p41_p42_only_listed_components_may_be_touched() {
        for path in [
            "/usr/bin/kubelet",
            "/usr/local/bin/containerd",
            "/opt/cni/bin/bridge",
            "/etc/kubernetes/manifests/etcd.yaml",
            "/etc/kubernetes/pki/etcd/peer.crt",
            "/etc/kubernetes/pki/apiserver-kubelet-client.key",
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/kubelet.conf",
            "/etc/containerd/config.toml",
            "/var/lib/etcd/afloat-aside-1/snap/db",
            "/var/lib/afloat/journal",
        ] {
            assert!(may_touch(path), "{path}");
        }
        for path in [
            "/etc/containerd/conf.d/mine.toml",
            "/etc/containerd/certs.d/_default/hosts.toml",
            "/etc/default/kubelet",
            "/etc/kubernetes/manifests/kube-vip.yaml",
            "/etc/kubernetes/audit-policy.yaml",
            "/etc/kubernetes/cloud.conf",
            "/etc/kubernetes/pki/ca.crt",
            "/etc/kubernetes/pki/sa.key",
            "/etc/kubernetes/pki/webhook.crt",
            "/etc/systemd/system/kubelet.service.d/20-mine.conf",
            "/usr/bin/bash",
            "/etc/fstab",
            "/var/lib/afloated",
        ] {
            assert!(!may_touch(path), "{path}");
        }
    }
}
