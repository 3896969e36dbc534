//! What an installed operator may and may not do, asked of a real API server about the manifests as they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use afloat_realparts::{Components, ControlPlane, Options};
use serde_json::{Value, json};

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
    ("watch", "namespaces", "-"),
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

/// What upgrades of Harvester need beside, from `harvester.yaml`.
const MUST_AT_HARVESTER: &[(&str, &str, &str)] = &[
    ("watch", "upgrades.harvesterhci.io", "harvester-system"),
    ("patch", "upgrades.harvesterhci.io", "harvester-system"),
    ("create", "jobs.batch", "harvester-system"),
    ("list", "secrets", "fleet-local"),
    ("patch", "secrets", "fleet-local"),
    ("create", "secrets", "afloat-system"),
    ("get", "secrets/afloat-webhook", "afloat-system"),
    ("update", "secrets/afloat-webhook", "afloat-system"),
    ("patch", "pods", "afloat-system"),
    (
        "patch",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/afloat-harvester",
        "-",
    ),
];

/// What it watches there of others' kinds, which `kubectl auth can-i` knows only where they are defined.
const WATCHED_AT_HARVESTER: &[(&str, &str)] = &[
    ("longhorn.io", "volumeattachments"),
    ("harvesterhci.io", "virtualmachinebackups"),
    ("harvesterhci.io", "schedulevmbackups"),
];

/// What it must not even there.
const MUST_NOT_AT_HARVESTER: &[(&str, &str, &str)] = &[
    ("get", "secrets", "fleet-local"),
    ("get", "secrets", "harvester-system"),
    ("list", "secrets", "afloat-system"),
    ("get", "secrets/afloat-bundle-key", "afloat-system"),
    ("delete", "secrets/afloat-webhook", "afloat-system"),
    ("patch", "pods", "harvester-system"),
    (
        "create",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "-",
    ),
    (
        "patch",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/another",
        "-",
    ),
    (
        "delete",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/afloat-harvester",
        "-",
    ),
];

/// What `past-budgets.yaml` adds, for pods that an eviction cannot move.
const MUST_PAST_BUDGETS: &[(&str, &str, &str)] = &[("delete", "pods", "shop"), ("delete", "pods", "kube-system")];

/// What it does not.
const MUST_NOT_PAST_BUDGETS: &[(&str, &str, &str)] = &[
    ("deletecollection", "pods", "shop"),
    ("patch", "pods", "shop"),
    ("update", "pods", "shop"),
    ("delete", "poddisruptionbudgets.policy", "shop"),
    ("delete", "deployments.apps", "shop"),
    ("delete", "persistentvolumeclaims", "shop"),
    ("delete", "namespaces", "-"),
];

struct Cluster {
    plane: ControlPlane,
    kubectl: PathBuf,
}

impl Cluster {
    fn installed(options: &Options) -> Self {
        let paths = Components::locate_some(&["etcd", "kube-apiserver", "kubectl"]).unwrap();
        let kubectl = paths.of("kubectl").unwrap().to_owned();
        let plane = ControlPlane::start(options).unwrap();
        let cluster = Self { plane, kubectl };
        cluster.apply(&["crds", "install/afloat.yaml"]);
        cluster
    }

    /// Files of `deploy`, as they are.
    fn apply(&self, files: &[&str]) {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        for file in files {
            let file = root.join(file);
            let (done, said) = self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
            assert!(done, "{said}");
        }
    }

    /// As on a Harvester-like cluster, where these namespaces are.
    fn with_harvester(&self) {
        for namespace in ["harvester-system", "fleet-local"] {
            let (done, said) = self.kubectl(&["create", "namespace", namespace]);
            assert!(done, "{said}");
        }
        self.apply(&["install/harvester.yaml"]);
    }

    fn kubectl(&self, arguments: &[&str]) -> (bool, String) {
        self.kubectl_with(arguments, "")
    }

    fn kubectl_with(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut child = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig_path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn create(&self, object: &Value) -> (bool, String) {
        self.kubectl_with(&["create", "-f", "-"], &object.to_string())
    }

    /// The same as `can_i` in all namespaces, asked without kubectl's knowledge of kinds.
    fn may(&self, verb: &str, (group, resource): (&str, &str)) -> bool {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": ACCOUNT,
                "resourceAttributes": { "verb": verb, "group": group, "resource": resource },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (done, said) = self.kubectl_with(&["create", "--raw", path, "-f", "-"], &review.to_string());
        assert!(done, "{said}");
        let review: Value = serde_json::from_str(&said).unwrap();
        review["status"]["allowed"] == true
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
    let cluster = Cluster::installed(&Options::default());
    let lacks: Vec<_> = MUST.iter().filter(|row| !cluster.can_i(**row)).collect();
    assert!(lacks.is_empty(), "it cannot: {lacks:?}");
    let beside: Vec<_> = MUST_NOT.iter().filter(|row| cluster.can_i(**row)).collect();
    assert!(beside.is_empty(), "it can, and must not: {beside:?}");
}

#[test]
fn where_it_upgrades_harvester_it_may_do_that_and_nothing_beside() {
    let cluster = Cluster::installed(&Options::default());
    cluster.with_harvester();
    let lacks: Vec<_> = MUST_AT_HARVESTER.iter().filter(|row| !cluster.can_i(**row)).collect();
    assert!(lacks.is_empty(), "it cannot: {lacks:?}");
    for kind in WATCHED_AT_HARVESTER {
        assert!(cluster.may("watch", *kind), "it cannot watch {kind:?}");
        assert!(!cluster.may("delete", *kind), "it can delete {kind:?}, and must not");
    }
    let rows = MUST_NOT.iter().chain(MUST_NOT_AT_HARVESTER);
    let beside: Vec<_> = rows.filter(|row| cluster.can_i(**row)).collect();
    assert!(beside.is_empty(), "it can, and must not: {beside:?}");
}

#[test]
fn past_budgets_it_may_delete_pods_and_nothing_beside() {
    let cluster = Cluster::installed(&Options::default());
    cluster.apply(&["install/past-budgets.yaml"]);
    let rows = MUST.iter().chain(MUST_PAST_BUDGETS);
    let lacks: Vec<_> = rows.filter(|row| !cluster.can_i(**row)).collect();
    assert!(lacks.is_empty(), "it cannot: {lacks:?}");
    let rows = MUST_NOT.iter().chain(MUST_NOT_PAST_BUDGETS);
    let rows = rows.filter(|row| !MUST_PAST_BUDGETS.contains(row));
    let beside: Vec<_> = rows.filter(|row| cluster.can_i(**row)).collect();
    assert!(beside.is_empty(), "it can, and must not: {beside:?}");
}

/// An operator as the Deployment starts it: its arguments and rights are those of the manifests, and its pod is there for the controllers of
/// the cluster; only the container is a process of this machine.
struct Replica {
    name: &'static str,
    process: Child,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// An address of this machine that an EndpointSlice may name: none of loopback. Nothing is sent.
fn address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip().to_string()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Cluster {
    fn replica(&self, name: &'static str) -> Replica {
        let port = free_port();
        let (_, deployment) = self.kubectl(&["-n", "afloat-system", "get", "deployment", "afloat", "-o", "json"]);
        let deployment: Value = serde_json::from_str(&deployment).unwrap();
        let template = &deployment["spec"]["template"];
        let mut pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!("afloat-system");
        pod["spec"]["nodeName"] = json!("node-1");
        let container = &mut pod["spec"]["containers"][0];
        let ports = container["ports"].as_array_mut().unwrap();
        let webhook = ports.iter_mut().find(|one| one["name"] == "webhook").unwrap();
        assert_eq!(webhook["containerPort"], 9443, "the port that it is told to listen on");
        webhook["containerPort"] = json!(port);
        let arguments = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap());
        let arguments: Vec<String> = arguments
            .map(|one| match one {
                "0.0.0.0:8080" => "127.0.0.1:0".to_owned(),
                "0.0.0.0:9443" => format!("0.0.0.0:{port}"),
                other => other.to_owned(),
            })
            .collect();
        let (done, said) = self.create(&pod);
        assert!(done, "{said}");
        let status = json!({ "status": { "phase": "Running", "podIP": address(), "podIPs": [{ "ip": address() }],
            "conditions": [{ "type": "Ready", "status": "True" }] } });
        let patch = [
            "patch",
            "pod",
            name,
            "-n",
            "afloat-system",
            "--subresource",
            "status",
            "-p",
        ];
        let (done, said) = self.kubectl(&[&patch[..], &[&status.to_string()]].concat());
        assert!(done, "{said}");

        let (_, token) = self.kubectl(&["create", "token", "afloat", "-n", "afloat-system"]);
        let kubeconfig = self.plane.folder().join(format!("{name}.kubeconfig"));
        std::fs::write(
            &kubeconfig,
            self.plane.kubeconfig().replace(self.plane.token(), token.trim()),
        )
        .unwrap();
        let log = std::fs::File::create(self.plane.folder().join(format!("{name}.log"))).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_afloat"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env("POD_NAME", name)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Replica { name, process }
    }

    /// The pod that is marked as the one to ask.
    fn marked(&self) -> String {
        let list = ["get", "pods", "-n", "afloat-system", "-l", "afloat.dev/leads=true"];
        self.kubectl(&[&list[..], &["-o", "jsonpath={.items[*].metadata.name}"]].concat())
            .1
    }

    fn until(&self, seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !holds() {
            let logs = || {
                let log = |name: &str| std::fs::read_to_string(self.plane.folder().join(format!("{name}.log")));
                let operators = ["afloat-1", "afloat-2"].map(|name| log(name).unwrap_or_default());
                let slices = self
                    .kubectl(&["get", "endpointslices", "-n", "afloat-system", "-o", "yaml"])
                    .1;
                let server = self.plane.log_tail("kube-apiserver", 400);
                let server = server
                    .lines()
                    .rfind(|line| line.contains("webhook"))
                    .unwrap_or_default();
                format!("{}\n{slices}\n{server}", operators.join("\n"))
            };
            assert!(Instant::now() < deadline, "not reached: {what}\n{}", logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Until the API server refuses what it let in before, since nobody was there to ask; then its words.
    fn refused(&self, object: &Value) -> String {
        let mut words = String::new();
        self.until(60, "the API server asks, and refuses", || {
            let (done, said) = self.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &object.to_string());
            words = said;
            !done
        });
        words
    }
}

#[test]
fn h14_an_installed_webhook_answers_the_real_api_server_and_a_second_replica_takes_over() {
    let controllers = ["endpointslice-controller", "garbage-collector-controller"];
    let cluster = Cluster::installed(&Options {
        controller_manager: true,
        controllers: controllers.map(str::to_owned).into(),
        // Without kube-proxy a Service is reached by its endpoints.
        apiserver_arguments: vec!["--enable-aggregator-routing=true".to_owned()],
        ..Options::default()
    });
    // A pod on a node that is not there is no endpoint of a Service.
    let (done, said) = cluster.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } }));
    assert!(done, "{said}");
    cluster.with_harvester();
    let upgrade = |name: &str| {
        json!({ "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
            "metadata": { "name": name, "namespace": "harvester-system" }, "spec": { "version": "v1.7.0" } })
    };
    let (done, said) = cluster.create(&upgrade("hvst-upgrade-1"));
    assert!(done, "{said}");

    let mut replicas = vec![cluster.replica("afloat-1"), cluster.replica("afloat-2")];
    cluster.until(60, "one is marked", || !cluster.marked().is_empty());
    let said = cluster.refused(&upgrade("hvst-upgrade-2"));
    println!("{said}");
    assert!(
        said.contains("admission webhook \"harvester.afloat.dev\" denied the request"),
        "{said}"
    );
    assert!(
        said.contains("upgrade/harvester-system/hvst-upgrade-1") && said.contains("is under way"),
        "{said}"
    );
    let setting = json!({ "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": { "name": "upgrade-config" },
        "value": r#"{"imagePreloadOption":{"strategy":{"type":"sometimes"}}}"# });
    let said = cluster.refused(&setting);
    println!("{said}");
    assert!(
        said.contains("setting/upgrade-config") && said.contains("sometimes"),
        "{said}"
    );

    // Its pod goes with the process, and the other one takes over: the lease, the mark and the questions.
    let leader = cluster.marked();
    replicas.retain(|replica| replica.name != leader);
    assert_eq!(replicas.len(), 1);
    let (done, said) = cluster.kubectl(&[
        "delete",
        "pod",
        &leader,
        "-n",
        "afloat-system",
        "--grace-period=0",
        "--force",
    ]);
    assert!(done, "{said}");
    cluster.until(60, "the other one is marked", || cluster.marked() == replicas[0].name);
    let said = cluster.refused(&upgrade("hvst-upgrade-3"));
    assert!(said.contains("is under way"), "{said}");
}
