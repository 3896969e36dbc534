//! What an installed operator may and may not do, asked of a real API server about the manifests as they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::path::PathBuf;
use std::process::Command;

use afloat_realparts::{Components, ControlPlane, Options};

const ACCOUNT: &str = "system:serviceaccount:afloat-system:afloat";

/// What an upgrade cannot do without: verb, resource (`pods:eviction` is a subresource,
/// `configmaps/coredns` one by name), namespace (`-` for the cluster's own).
const MUST: &[(&str, &str, &str)] = &[
    ("watch", "nodes", "-"),
    ("patch", "nodes", "-"),
    ("watch", "pods", "shop"),
    ("watch", "poddisruptionbudgets.policy", "shop"),
    ("watch", "deployments.apps", "shop"),
    ("watch", "replicasets.apps", "shop"),
    ("watch", "statefulsets.apps", "shop"),
    ("watch", "persistentvolumeclaims", "shop"),
    ("watch", "persistentvolumes", "-"),
    ("create", "pods:eviction", "shop"),
    ("create", "events", "shop"),
    ("watch", "clusterupgrades.afloat.dev", "afloat-system"),
    ("patch", "clusterupgrades.afloat.dev:status", "afloat-system"),
    ("create", "nodekubeadmupgrades.afloat.dev", "afloat-system"),
    ("patch", "nodekubeadmupgrades.afloat.dev:status", "afloat-system"),
    ("create", "workerskubeadmupgrades.afloat.dev", "afloat-system"),
    ("create", "controlplanekubeadmupgrades.afloat.dev", "afloat-system"),
    ("create", "pods", "afloat-system"),
    ("delete", "pods", "afloat-system"),
    ("create", "leases.coordination.k8s.io", "afloat-system"),
    ("update", "leases.coordination.k8s.io", "afloat-system"),
    ("delete", "leases.coordination.k8s.io", "afloat-system"),
    ("watch", "configmaps/afloat-upgrader-images", "afloat-system"),
    ("watch", "configmaps/kubeadm-config", "kube-system"),
    ("watch", "leases.coordination.k8s.io/plndr-cp-lock", "kube-system"),
];

/// What would make a stolen token the cluster's.
const MUST_NOT: &[(&str, &str, &str)] = &[
    ("*", "*", "-"),
    ("get", "secrets", "kube-system"),
    ("list", "secrets", "afloat-system"),
    ("create", "pods", "kube-system"),
    ("create", "pods", "shop"),
    ("delete", "pods", "shop"),
    ("delete", "nodes", "-"),
    ("create", "pods:exec", "afloat-system"),
    ("create", "serviceaccounts:token", "afloat-system"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io", "-"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io", "-"),
    ("impersonate", "users", "-"),
    ("update", "configmaps", "kube-system"),
    ("get", "configmaps/coredns", "kube-system"),
    ("update", "configmaps/afloat-upgrader-images", "afloat-system"),
    ("update", "leases.coordination.k8s.io", "kube-system"),
    ("patch", "deployments.apps", "shop"),
    ("patch", "poddisruptionbudgets.policy", "shop"),
    ("delete", "clusterupgrades.afloat.dev", "afloat-system"),
    ("get", "nodes:proxy", "-"),
];

struct Cluster {
    plane: ControlPlane,
    kubectl: PathBuf,
}

impl Cluster {
    fn installed() -> Self {
        let paths = Components::locate_some(&["etcd", "kube-apiserver", "kubectl"]).unwrap();
        let kubectl = paths.of("kubectl").unwrap().to_owned();
        let plane = ControlPlane::start(&Options::default()).unwrap();
        let cluster = Self { plane, kubectl };
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        for folder in ["crds", "install/afloat.yaml"] {
            let file = root.join(folder);
            let (done, said) = cluster.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
            assert!(done, "{said}");
        }
        cluster
    }

    fn kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig_path())
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn can_i(&self, (verb, resource, namespace): (&str, &str, &str)) -> bool {
        let place = ["--namespace", namespace];
        let place: &[&str] = if namespace == "-" { &[] } else { &place };
        let (resource, part) = resource.split_once(':').unwrap_or((resource, ""));
        let part = format!("--subresource={part}");
        let question = [&["auth", "can-i", verb, resource, &part, "--as", ACCOUNT], place].concat();
        let (yes, said) = self.kubectl(&question);
        assert_eq!(
            yes,
            said.lines().any(|line| line.starts_with("yes")),
            "{question:?}: {said}"
        );
        yes
    }
}

#[test]
fn an_installed_operator_may_do_its_work_and_nothing_beside() {
    let cluster = Cluster::installed();
    let lacks: Vec<_> = MUST.iter().filter(|row| !cluster.can_i(**row)).collect();
    assert!(lacks.is_empty(), "it cannot: {lacks:?}");
    let beside: Vec<_> = MUST_NOT.iter().filter(|row| cluster.can_i(**row)).collect();
    assert!(beside.is_empty(), "it can, and must not: {beside:?}");
}
