//! Seed 000's own test plan on a real kube-apiserver, etcd, garbage collector and controller of Deployments: three nodes of a Harvester-like
//! cluster whose Rancher, KubeVirt and Longhorn are the simulator's, upgraded by the real operator, with stock kubectl as the person. Charts are
//! applied by a real helm: Rancher's by the code that runs on a node, the others by whoever plays fleet. The tasks of the Jobs are also run as
//! the commands that a Job runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod charts;
mod cluster;
mod helm;
mod machine;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::harvester::UPGRADE_CONFIG_DEFAULT;
use afloat_operator::OperatorConfig;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{Ground, HciWorld, HciWorldOptions, Trouble, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use serde_json::{Value, json};

use charts::Shelf;
use cluster::Cluster;
use helm::{Applier, RANCHER_NAMESPACE};

/// How much quicker than life the machines are.
const SPEED: f64 = 60.0;
const UPGRADE: &str = "hvst-upgrade-real";
const SYSTEM: &str = "harvester-system";
const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";

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
    async fn start() -> Self {
        Self::with_helm_killed(false).await
    }

    /// With the first helm that upgrades Rancher killed half-way, or not.
    async fn with_helm_killed(kills: bool) -> Self {
        let cluster = Cluster::start();
        let shelf = Arc::new(Shelf::fill(cluster.folder.path(), &cluster.helm));
        let applier = Applier::new(cluster.helm.clone(), shelf, cluster.plane.client().unwrap(), kills);
        applier.install_old_rancher();
        applier.install_old_kinds();
        upstream::install(&cluster);
        upstream::assert_complete(&cluster);
        let client = upstream::strict_client(&cluster.plane).await;
        let mut ground = Ground::new(3, 10);
        // What Harvester has there until somebody changes it.
        ground.upgrade_config = serde_json::from_str(UPGRADE_CONFIG_DEFAULT).unwrap();
        let clock = Clock::starting_at(jiff::Timestamp::now());
        let options = HciWorldOptions {
            seed: 5,
            clock,
            timings: Timings::default().faster(SPEED),
            trouble: Trouble::default(),
            people: Vec::new(),
            task_client: None,
            charts: Some(Arc::new(applier)),
        };
        for definition in afloat_api::crds::own() {
            let text = serde_json::to_string(&definition).unwrap();
            cluster.kubectl("apply --server-side -f -", &text).unwrap();
        }
        upstream::assert_strict(&client).await;
        let world = HciWorld::start(client.clone(), &ground, options).await.unwrap();
        tier2::lay_ground(&client, "v1.33.5", &[]).await.unwrap();
        let config = OperatorConfig {
            hci: operator_options(&ground, &Trouble::default()),
            ..tier2::operator(client, clock, HealthBoard::default(), "afloat-1")
        };
        let site = Self {
            cluster,
            ground,
            _world: world,
            operator: tokio::spawn(afloat_operator::run(config, std::future::pending())),
        };
        site.hand_over().await;
        site
    }

    /// Waits for the charts of the old release, and says that Harvester's own controller leaves upgrades alone.
    async fn hand_over(&self) {
        let is_deployed = |chart: &str| self.cluster.helm.deployed().iter().any(|one| one == chart);
        for chart in ["harvester-1.6.0", "rancher-monitoring-crd-105.1.1+up61.3.2"] {
            self.cluster.until(120, chart, || is_deployed(chart)).await;
        }
        let off = format!("annotate deployment -n {SYSTEM} harvester afloat.dev/harvester-upgrades=off");
        self.cluster.kubectl(&off, "").unwrap();
    }

    /// How KubeVirt is told to renew running machines.
    fn update_methods(&self) -> Value {
        let kubevirt = self.cluster.get(&format!("kubevirts.kubevirt.io -n {SYSTEM} kubevirt"));
        kubevirt.unwrap_or_default()["spec"]["workloadUpdateStrategy"]["workloadUpdateMethods"].clone()
    }

    /// Rancher is the one of the release by its chart, with what a person chose, and what only the new chart knows.
    fn assert_rancher_upgraded(&self) {
        let values = self
            .cluster
            .helm
            .json(&format!("get values rancher -n {RANCHER_NAMESPACE}"));
        assert_eq!(
            values,
            json!({ "hostname": "rancher.example.org", "replicas": 2, "rancherImageTag": "v2.12.2" })
        );
        let server = self
            .cluster
            .get(&format!("deployment -n {RANCHER_NAMESPACE} rancher"))
            .unwrap();
        let container = &server["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "rancher/rancher:v2.12.2");
        assert_eq!(container["args"], json!(["--hostname=rancher.example.org"]));
        assert_eq!(container["env"], json!([{ "name": "AUDIT_LEVEL", "value": "0" }]));
        assert_eq!(server["status"]["updatedReplicas"], 2);
        let kind = self.cluster.get("crd projects.rancher.example.org").unwrap();
        let fields = &kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        assert!(fields["quota"].is_object(), "the chart inside it came along: {fields}");
    }

    /// The person's first command.
    fn configure(&self) {
        let setting = json!({ "value": test_plan().to_string() }).to_string();
        let line = format!("patch settings.harvesterhci.io upgrade-config --type merge -p {setting}");
        self.cluster.kubectl(&line, "").unwrap();
    }

    /// A paused node has no pre-drain Job and is explained; the person takes the pause away, and the Job is there.
    async fn consent_to(&self, node: &str) {
        let cluster = &self.cluster;
        let paused = || cluster.state_of(node) == "Node-upgrade paused";
        cluster.until(240, &format!("{node} paused"), paused).await;
        let job = format!("job -n {SYSTEM} {UPGRADE}-pre-drain-{node}");
        assert_eq!(cluster.get(&job), None, "a paused node gets no pre-drain Job");
        let (code, said) = cluster.afloat("explain");
        assert!(code == 0 && said.contains(node), "{said}");
        cluster.kubectl(&format!("annotate node {node} {PAUSE}-"), "").unwrap();
        cluster
            .until(30, &format!("the Job of {node}"), || cluster.get(&job).is_some())
            .await;
    }

    /// Whoever could move has moved, the others were stopped and started.
    async fn assert_everybody_runs(&self, before: &BTreeMap<String, String>) {
        let cluster = &self.cluster;
        cluster
            .until(60, "everybody runs", || cluster.running().len() == before.len())
            .await;
        let after = cluster.running();
        for vm in &self.ground.vms {
            let same = before.get(&vm.name) == after.get(&vm.name);
            assert_eq!(
                same,
                vm.bound.is_none(),
                "{}: moved without being stopped, unless bound",
                vm.name
            );
        }
    }

    async fn assert_as_it_was(&self) {
        let cluster = &self.cluster;
        assert_eq!(cluster.marks(), Vec::<String>::new());
        cluster
            .until(60, "machines are renewed as before", || {
                self.update_methods() == json!(["LiveMigrate"])
            })
            .await;
        // Giving that back is one more revision of Harvester's own chart, which helm may still be at.
        cluster
            .until(60, "every chart of the release is deployed", || {
                let deployed = cluster.helm.deployed();
                CHARTS.iter().all(|chart| deployed.iter().any(|one| one == chart))
            })
            .await;
    }

    async fn delete_upgrade(&self) {
        let cluster = &self.cluster;
        let delete = format!("delete upgrades.harvesterhci.io -n {SYSTEM} {UPGRADE} --timeout 60s");
        cluster.kubectl(&delete, "").unwrap();
        let jobs = || cluster.get(&format!("jobs -n {SYSTEM} -l harvesterhci.io/upgrade={UPGRADE}"));
        cluster
            .until(60, "the real garbage collector took its Jobs", || {
                jobs().is_none_or(|jobs| jobs["items"] == json!([]))
            })
            .await;
    }

    fn create_upgrade(&self) {
        let manifest = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
            "metadata": { "name": UPGRADE, "namespace": SYSTEM }, "spec": { "version": "v1.7.0", "logEnabled": false },
        });
        self.cluster.kubectl("create -f -", &manifest.to_string()).unwrap();
    }
}

/// The setting of the test plan, in its own spelling. The plan shows what it is about and no more; the webhook of Harvester takes no setting
/// without a way to preload images, so that this is here too, and that machines which cannot migrate run again.
fn test_plan() -> Value {
    json!({
        "imagePreloadOption": { "strategy": { "type": "sequential" } }, "restoreVM": true,
        "nodeUpgradeOption": { "mode": "manual", "pauseNodes": ["node-2", "node-3"] },
    })
}

const CHARTS: [&str; 4] = [
    "rancher-2.12.2",
    "harvester-1.7.0",
    "harvester-crd-1.7.0",
    "rancher-monitoring-crd-105.1.2+up61.3.2",
];

#[tokio::test(flavor = "multi_thread")]
async fn h3_h6_h7_h22_h46_three_nodes_on_a_real_api_server_with_kubectl_as_the_person() {
    let site = Site::start().await;
    let cluster = &site.cluster;
    let before = cluster.running();
    assert_eq!(before.len(), 10);
    upstream::assert_readable(cluster);
    site.configure();
    site.create_upgrade();
    site.consent_to("node-2").await;
    // While the next one is held.
    cluster
        .until(180, "node-3 paused", || {
            cluster.state_of("node-3") == "Node-upgrade paused"
        })
        .await;
    site.assert_rancher_upgraded();
    let revisions = cluster.helm.rancher_revisions();
    assert_eq!(revisions, ["v2.11.3 superseded", "v2.12.2 deployed"]);
    assert_eq!(site.update_methods(), json!([]), "nobody is moved a second time");
    site.consent_to("node-3").await;
    cluster
        .until(240, "the end", || {
            let cleaned_up = cluster.upgrade()["metadata"]["labels"]["harvesterhci.io/upgradeCleanup"] == "Succeeded";
            cleaned_up && cluster.is_true("Completed")
        })
        .await;
    site.assert_everybody_runs(&before).await;
    site.assert_as_it_was().await;
    println!("{}", cluster.afloat("status").1);
    site.delete_upgrade().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h23_a_helm_that_was_killed_half_way_is_undone_by_the_next_attempt() {
    let site = Site::with_helm_killed(true).await;
    let cluster = &site.cluster;
    site.configure();
    site.create_upgrade();
    cluster
        .until(120, "the upgrade failed", || {
            cluster
                .condition("SystemServicesUpgraded")
                .is_some_and(|(status, _)| status == "False")
        })
        .await;
    let (_, says) = cluster.condition("SystemServicesUpgraded").unwrap();
    assert!(says.contains("brings Rancher to the release"), "{says}");
    assert_eq!(
        cluster.helm.rancher_revisions(),
        ["v2.11.3 deployed", "v2.12.2 pending-upgrade"]
    );

    let (code, said) = cluster.afloat(&format!("resume {UPGRADE}"));
    assert_eq!(code, 0, "{said}");
    cluster
        .until(120, "the services of the release", || {
            cluster.is_true("SystemServicesUpgraded")
        })
        .await;
    let revisions = cluster.helm.rancher_revisions();
    assert_eq!(
        revisions,
        [
            "v2.11.3 superseded",
            "v2.12.2 pending-upgrade",
            "v2.11.3 superseded",
            "v2.12.2 deployed"
        ]
    );
    site.assert_rancher_upgraded();
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_h46_the_command_of_a_job_does_its_work_and_changes_nothing_where_it_may_not() {
    let site = Site::start().await;
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
