//! Seed 000's own test plan on a real kube-apiserver, etcd and garbage collector: three nodes of a Harvester-like cluster whose Rancher, KubeVirt and
//! Longhorn are the simulator's, upgraded by the real operator, with stock kubectl as the person. The tasks of the Jobs are also run as the
//! commands that a Job runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod real;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use afloat_operator::OperatorConfig;
use afloat_realparts::{Components, ControlPlane, Options};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{Ground, HciWorld, HciWorldOptions, Trouble, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use serde_json::{Value, json};

/// How much quicker than life the machines are.
const SPEED: f64 = 60.0;
const UPGRADE: &str = "hvst-upgrade-real";
const SYSTEM: &str = "harvester-system";
const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";

struct Cluster {
    plane: ControlPlane,
    kubectl: PathBuf,
}

impl Cluster {
    fn start() -> Self {
        let paths = Components::locate_some(&["kubectl"]).unwrap();
        let options = Options {
            controller_manager: true,
            // The simulator plays the others, Jobs among them.
            controllers: vec!["garbage-collector-controller".to_owned()],
            ..Options::default()
        };
        Self {
            plane: ControlPlane::start(&options).unwrap(),
            kubectl: paths.of("kubectl").unwrap().to_owned(),
        }
    }

    fn run(&self, program: &mut Command, input: &str) -> Output {
        let mut child = program
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What kubectl prints; an error where it does not succeed.
    fn kubectl(&self, line: &str, input: &str) -> Result<String, String> {
        let output = self.run(Command::new(&self.kubectl).args(line.split(' ')), input);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    fn get(&self, what: &str) -> Option<Value> {
        let text = self
            .kubectl(&format!("get {what} -o json --ignore-not-found"), "")
            .unwrap();
        serde_json::from_str(&text).ok()
    }

    fn afloat(&self, line: &str) -> (i32, String) {
        let output = self.run(Command::new(env!("CARGO_BIN_EXE_afloat")).args(line.split(' ')), "");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    fn upgrade(&self) -> Value {
        self.get(&format!("upgrades.harvesterhci.io -n {SYSTEM} {UPGRADE}"))
            .unwrap_or_default()
    }

    fn state_of(&self, node: &str) -> String {
        let state = &self.upgrade()["status"]["nodeStatuses"][node]["state"];
        state.as_str().unwrap_or_default().to_owned()
    }

    async fn until(&self, seconds: u64, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !holds() {
            let words = || {
                format!(
                    "not reached: {what}\n{:#}\n{}",
                    self.upgrade()["status"],
                    self.afloat("explain").1
                )
            };
            assert!(Instant::now() < deadline, "{}", words());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Uids of running machines, by name.
    fn running(&self) -> BTreeMap<String, String> {
        let all = self.get("virtualmachineinstances.kubevirt.io -A").unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let alive = all["items"].as_array().into_iter().flatten();
        alive
            .filter(|vmi| vmi["status"]["phase"] == "Running")
            .map(|vmi| (text(&vmi["metadata"]["name"]), text(&vmi["metadata"]["uid"])))
            .collect()
    }

    /// Marks that an upgrade puts on nodes.
    fn marks(&self) -> Vec<String> {
        let nodes = self.get("nodes").unwrap_or_default();
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let marks = nodes.iter().flat_map(|node| {
            let annotations = node["metadata"]["annotations"].as_object().into_iter().flatten();
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let marks = annotations
                .map(|(key, _)| key.clone())
                .chain(taints.map(ToString::to_string));
            marks.collect::<Vec<_>>()
        });
        marks.collect()
    }
}

struct Site {
    cluster: Cluster,
    ground: Ground,
    _world: HciWorld,
    operator: tokio::task::JoinHandle<Result<(), afloat_operator::OperatorError>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

impl Site {
    async fn start(config: Value) -> Self {
        let cluster = Cluster::start();
        let client = real::client(&cluster.plane).await;
        let mut ground = Ground::new(3, 10);
        ground.upgrade_config = Some(config);
        let clock = Clock::starting_at(jiff::Timestamp::now());
        let options = HciWorldOptions {
            seed: 5,
            clock,
            timings: Timings::default().faster(SPEED),
            trouble: Trouble::default(),
            people: Vec::new(),
            task_client: None,
        };
        for definition in afloat_api::crds::own() {
            let text = serde_json::to_string(&definition).unwrap();
            cluster.kubectl("apply --server-side -f -", &text).unwrap();
        }
        let world = HciWorld::start(client.clone(), &ground, options).await.unwrap();
        tier2::lay_ground(&client, "v1.33.5", &[]).await.unwrap();
        let config = OperatorConfig {
            hci: operator_options(&ground, &Trouble::default()),
            ..tier2::operator(client, clock, HealthBoard::default(), "afloat-1")
        };
        Self {
            cluster,
            ground,
            _world: world,
            operator: tokio::spawn(afloat_operator::run(config, std::future::pending())),
        }
    }

    fn create_upgrade(&self) {
        let manifest = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
            "metadata": { "name": UPGRADE, "namespace": SYSTEM }, "spec": { "version": "v1.7.0", "logEnabled": false },
        });
        self.cluster.kubectl("create -f -", &manifest.to_string()).unwrap();
    }
}

fn config() -> Value {
    json!({
        "imagePreloadOption": { "strategy": { "type": "sequential" } }, "restoreVM": true, "logReadyTimeout": "5",
        "nodeUpgradeOption": { "strategy": { "mode": "manual", "pauseNodes": ["node-2"] } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_h7_h22_h46_three_nodes_on_a_real_api_server_with_kubectl_as_the_person() {
    let site = Site::start(config()).await;
    let cluster = &site.cluster;
    let before = cluster.running();
    assert_eq!(before.len(), 10);
    site.create_upgrade();

    cluster
        .until(180, "node-2 paused", || {
            cluster.state_of("node-2") == "Node-upgrade paused"
        })
        .await;
    let job = format!("job -n {SYSTEM} {UPGRADE}-pre-drain-node-2");
    assert_eq!(cluster.get(&job), None, "a paused node gets no pre-drain Job");
    let (code, said) = cluster.afloat("explain");
    assert!(code == 0 && said.contains("node-2"), "{said}");

    cluster.kubectl(&format!("annotate node node-2 {PAUSE}-"), "").unwrap();
    cluster
        .until(30, "the Job of node-2", || cluster.get(&job).is_some())
        .await;
    cluster
        .until(240, "the end", || {
            let upgrade = cluster.upgrade();
            let conditions = upgrade["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let done = conditions
                .iter()
                .any(|one| one["type"] == "Completed" && one["status"] == "True");
            done && upgrade["metadata"]["labels"]["harvesterhci.io/upgradeCleanup"] == "Succeeded"
        })
        .await;
    cluster
        .until(60, "everybody runs", || cluster.running().len() == 10)
        .await;
    let after = cluster.running();
    for vm in &site.ground.vms {
        let same = before.get(&vm.name) == after.get(&vm.name);
        assert_eq!(
            same,
            vm.bound.is_none(),
            "{}: moved without being stopped, unless bound",
            vm.name
        );
    }
    assert_eq!(cluster.marks(), Vec::<String>::new());
    println!("{}", cluster.afloat("status").1);

    cluster
        .kubectl(
            &format!("delete upgrades.harvesterhci.io -n {SYSTEM} {UPGRADE} --timeout 60s"),
            "",
        )
        .unwrap();
    let jobs = || cluster.get(&format!("jobs -n {SYSTEM} -l harvesterhci.io/upgrade={UPGRADE}"));
    cluster
        .until(60, "the real garbage collector took its Jobs", || {
            jobs().is_none_or(|jobs| jobs["items"] == json!([]))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_h46_the_command_of_a_job_does_its_work_and_changes_nothing_where_it_may_not() {
    let site = Site::start(config()).await;
    site.operator.abort();
    let cluster = &site.cluster;
    let record = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("{UPGRADE}-restore-vm"), "namespace": SYSTEM, "labels": { "harvesterhci.io/upgrade": UPGRADE } },
        "data": { "node-1": "default/vm-01,default/vm-99" },
    });
    cluster.kubectl("create -f -", &record.to_string()).unwrap();
    let stop = r#"{"metadata":{"annotations":{"afloat.dev/run-before":"Always"}},"spec":{"runStrategy":"Halted"}}"#;
    let line = |name: &str| format!("patch virtualmachines.kubevirt.io -n default {name} --type merge -p {stop}");
    cluster.kubectl(&line("vm-01"), "").unwrap();
    let stopped_by_a_person = r#"{"spec":{"runStrategy":"Halted"}}"#;
    let by_hand = format!("patch virtualmachines.kubevirt.io -n default vm-04 --type merge -p {stopped_by_a_person}");
    cluster.kubectl(&by_hand, "").unwrap();

    for _ in 0..2 {
        let (code, said) = cluster.afloat(&format!("hci restore-vm --upgrade {UPGRADE} --node node-1"));
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("not there any more: default/vm-99"), "{said}");
        let vm = |name: &str| {
            cluster
                .get(&format!("virtualmachines.kubevirt.io -n default {name}"))
                .unwrap()
        };
        assert_eq!(vm("vm-01")["spec"]["runStrategy"], "Always");
        assert_eq!(
            vm("vm-01")["metadata"]["annotations"]["afloat.dev/run-before"],
            Value::Null
        );
        assert_eq!(vm("vm-04")["spec"]["runStrategy"], "Halted", "a person's");
    }

    // This machine is not Rancher's: the first thing on the host fails, before anything in the cluster is touched.
    let (code, said) = cluster.afloat(&format!("hci pre-drain --upgrade {UPGRADE} --node node-1"));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("recovers Rancher's agent on the host"), "{said}");
    assert_eq!(cluster.marks(), Vec::<String>::new());
    println!("{said}");
}
