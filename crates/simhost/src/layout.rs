//! What lies on a machine at the start, as image-builder and kubeadm leave it, with some files of a person's among it; and the
//! bundle that a stage container brings. Programs are their name and version; everything is as short as it can be.

use std::fmt::Write as _;
use std::sync::Arc;

use afloat_api::common::NodeRole;
use afloat_node::flags::minor;
use afloat_node::{bundle, paths};

use super::etcd;
use super::files::{File, Tree};

/// Which machine it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Machine {
    pub name: String,
    pub role: NodeRole,
    pub address: String,
    /// Version of everything on it at the start.
    pub version: String,
}

impl Machine {
    pub fn is_control_plane(&self) -> bool {
        self.role != NodeRole::Worker
    }
}

/// The files of a bundle, shared by all machines.
#[derive(Clone, Debug)]
pub struct Bundle(Arc<Tree>);

impl Bundle {
    /// Brings these versions of Kubernetes, and a newer runtime and CNI plugins.
    pub fn of(versions: &[&str]) -> Self {
        let mut items = vec![
            ("afloat".to_owned(), "afloat v0.1.0".to_owned()),
            ("containerd/containerd".to_owned(), "containerd v2.3.7".to_owned()),
            ("containerd/runc".to_owned(), "runc v1.5.2".to_owned()),
            ("cni/bridge".to_owned(), "bridge v1.9.1".to_owned()),
        ];
        for version in versions {
            for program in ["kubeadm", "kubelet", "kubectl"] {
                items.push((bundle::kubernetes(version, program), format!("{program} {version}")));
            }
            items.push((format!("images/{version}.tar"), format!("images {version}")));
        }
        let mut tree = Tree::new();
        let mut sums = String::new();
        for (name, content) in items {
            let file = File::new(content.as_bytes(), 0o755);
            let digest = file.digest().to_string();
            let hex = digest.trim_start_matches("sha256:");
            let _ = writeln!(sums, "{hex}  {name}");
            tree.insert(format!("{}/{name}", paths::BROUGHT), file);
        }
        let sums = File::new(sums.as_bytes(), 0o644);
        tree.insert(format!("{}/SHA256SUMS", paths::BROUGHT), sums);
        Self(Arc::new(tree))
    }

    /// The same with a signature of its list.
    #[must_use]
    pub fn with_signature(&self, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        let mut tree = (*self.0).clone();
        let list = format!("{}/SHA256SUMS", paths::BROUGHT);
        let signature = tree.get(&list).map(|sums| sign(sums.bytes())).unwrap_or_default();
        tree.insert(format!("{list}.sig"), File::new(&signature, 0o644));
        Self(Arc::new(tree))
    }

    /// The same with one file that is not what its digest says.
    #[must_use]
    pub fn with_tampered(&self, name: &str) -> Self {
        let mut tree = (*self.0).clone();
        tree.insert(format!("{}/{name}", paths::BROUGHT), File::new(b"tampered with", 0o755));
        Self(Arc::new(tree))
    }
}

/// The image tag of etcd that goes with a version of Kubernetes.
pub fn etcd_tag(version: &str) -> &'static str {
    match minor(version) {
        Some(..=32) => "3.5.16-0",
        Some(33) => "3.5.21-0",
        Some(34) => "3.6.4-0",
        Some(35) => "3.6.6-0",
        _ => "3.6.8-0",
    }
}

/// The image tag of CoreDNS that goes with a version of Kubernetes.
pub fn core_dns_tag(version: &str) -> &'static str {
    match minor(version) {
        Some(..=32) => "v1.11.3",
        Some(33) => "v1.12.0",
        Some(34) => "v1.12.1",
        Some(35) => "v1.13.1",
        _ => "v1.14.2",
    }
}

/// Where the other members find the one at an address.
pub fn peer_url(address: &str) -> String {
    format!("https://{address}:2380")
}

/// A manifest as kubeadm renders it where nobody has named another image.
pub fn manifest(part: &str, version: &str, address: &str) -> String {
    manifest_with(part, version, address, None)
}

/// The same where its configuration names a tag for etcd.
pub fn manifest_with(part: &str, version: &str, address: &str, etcd: Option<&str>) -> String {
    let tag = match (part, etcd) {
        ("etcd", Some(tag)) => tag,
        ("etcd", None) => etcd_tag(version),
        _ => version,
    };
    let flag = match part {
        "kube-apiserver" => format!("- --advertise-address={address}\n"),
        "etcd" => format!(
            "- --data-dir={}\n- --initial-advertise-peer-urls={}\n- --name={address}\n",
            paths::ETCD_DATA,
            peer_url(address)
        ),
        _ => String::new(),
    };
    format!("image: registry.k8s.io/{part}:{tag}\n{flag}")
}

/// Certificates that kubeadm renews; the files of the cluster's authority are not among them.
pub const CERTIFICATES: [&str; 5] = [
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/scheduler.conf",
    "/etc/kubernetes/pki/apiserver.crt",
    "/etc/kubernetes/pki/etcd/server.crt",
];

/// The flags kubeadm wrote for a kubelet when the machine joined.
fn kubelet_flags(version: &str) -> &'static str {
    if minor(version) < Some(35) {
        "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=registry.k8s.io/pause:3.10 --v=2\"\n"
    } else {
        "KUBELET_KUBEADM_ARGS=\"--v=2\"\n"
    }
}

/// All files of a machine at the start.
pub fn tree(machine: &Machine, bundle: &Bundle) -> Tree {
    let version = machine.version.as_str();
    let mut tree = (*bundle.0).clone();
    let mut put = |path: &str, content: String, mode| {
        tree.insert(path.to_owned(), File::new(content.as_bytes(), mode));
    };
    for (path, program) in [
        (paths::KUBEADM, "kubeadm"),
        (paths::KUBELET, "kubelet"),
        (paths::KUBECTL, "kubectl"),
    ] {
        put(path, format!("{program} {version}"), 0o755);
    }
    put("/usr/local/bin/containerd", "containerd v2.2.1".to_owned(), 0o755);
    put("/usr/local/sbin/runc", "runc v1.4.0".to_owned(), 0o755);
    put("/opt/cni/bin/bridge", "bridge v1.8.0".to_owned(), 0o755);
    put(paths::KUBELET_CONFIG, format!("kubelet-config {version}\n"), 0o644);
    put(paths::KUBELET_FLAGS, kubelet_flags(version).to_owned(), 0o644);
    put("/etc/kubernetes/kubelet.conf", "kubelet".to_owned(), 0o600);
    put(paths::SWAPS, "Filename Type Size\n".to_owned(), 0o444);
    put(paths::CGROUP_V2, "cpu memory pids\n".to_owned(), 0o444);
    // A person's own.
    let config = "version = 3\nimports = ['conf.d/*.toml'] # mine\n[plugins]\n";
    put(paths::CONTAINERD_CONFIG, config.to_owned(), 0o640);
    put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--v=4\n".to_owned(), 0o644);
    put("/etc/motd", "mine\n".to_owned(), 0o644);
    put("/usr/bin/htop", "htop 3.4 from apt\n".to_owned(), 0o755);
    if machine.is_control_plane() {
        for part in paths::PARTS {
            let mut text = manifest(part, version, &machine.address);
            if part == "etcd" && machine.role == NodeRole::ControlPlane {
                // As kubeadm writes it for a member that joins, and never again.
                text.push_str("- --initial-cluster=a=https://10.0.0.1:2380,b=https://10.0.0.2:2380\n- --initial-cluster-state=existing\n");
            }
            put(&paths::manifest(part), text, 0o600);
        }
        put(etcd::DATABASE, etcd::data_of(etcd::FIRST), 0o600);
        for path in CERTIFICATES {
            put(path, "certificate 0".to_owned(), 0o600);
        }
        put("/etc/kubernetes/pki/ca.crt", "authority".to_owned(), 0o600);
        put(
            "/etc/kubernetes/manifests/kube-vip.yaml",
            "image: kube-vip:v1\n".to_owned(),
            0o600,
        );
        put("/etc/kubernetes/audit-policy.yaml", "mine\n".to_owned(), 0o600);
    }
    tree
}
