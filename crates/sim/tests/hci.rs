//! Whole upgrades of a Harvester-like cluster by the real operator, its Jobs' real tasks included, under paused time: nobody's virtual
//! machine is lost, whoever was stopped runs again as before, and nothing is left behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afloat_apisim::gc::Collector;
use afloat_apisim::hooks::WriteObserver;
use afloat_apisim::store::{Change, Object, TableKey};
use afloat_apisim::{ApiServer, Clock as ServerClock, Options};
use afloat_core::hci::task::HostWork;
use afloat_core::hci::view::HciKind;
use afloat_operator::snapshot::hci::served;
use afloat_operator::{OperatorConfig, OperatorError};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{Ground, HciWorld, HciWorldOptions, SYSTEM, Trouble, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

const UPGRADE: &str = "hvst-upgrade-1";
const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";

struct Shared(Clock);

impl ServerClock for Shared {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

/// Watches every write for what must never happen: a machine stopped without being on record (rule 9), two nodes away at once.
#[derive(Default)]
struct Watchman(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    recorded: BTreeSet<String>,
    away: BTreeSet<String>,
    stops: usize,
    broken: Vec<String>,
}

impl WriteObserver for Watchman {
    fn on_write(&self, table: &TableKey, change: &Change) {
        let mut seen = self.0.lock().unwrap();
        let (value, name) = (change.object.value(), change.object.name().to_owned());
        let is_off = |object: &Object| object.value()["spec"]["runStrategy"] == "Halted";
        match table.plural.as_str() {
            "configmaps" if name.ends_with("-restore-vm") => {
                let lists = value["data"].as_object().into_iter().flatten();
                let names = lists
                    .filter_map(|(_, list)| list.as_str())
                    .flat_map(|list| list.split(','));
                seen.recorded = names.map(str::to_owned).collect();
            }
            "virtualmachines" if is_off(&change.object) && change.previous.as_ref().is_some_and(|old| !is_off(old)) => {
                seen.stops += 1;
                let key = format!("{}/{name}", change.object.namespace());
                if !seen.recorded.contains(&key) {
                    seen.broken.push(format!("{key} was stopped without being on record"));
                }
            }
            "nodes" => {
                let ready = value["status"]["conditions"][0]["status"] == "True";
                if ready || value["status"]["conditions"].is_null() {
                    seen.away.remove(&name);
                } else {
                    seen.away.insert(name);
                }
                if seen.away.len() > 1 {
                    let words = format!("away at once: {:?}", seen.away);
                    seen.broken.push(words);
                }
            }
            _ => {}
        }
    }
}

struct Play {
    client: Client,
    clock: Clock,
    ground: Ground,
    watchman: Arc<Watchman>,
    world: HciWorld,
    operator: tokio::task::JoinHandle<Result<(), OperatorError>>,
    collector: tokio::task::JoinHandle<()>,
}

impl Drop for Play {
    fn drop(&mut self) {
        self.operator.abort();
        self.collector.abort();
    }
}

impl Play {
    async fn new(ground: &Ground, trouble: Trouble) -> Self {
        let clock = Clock::starting_at(jiff::Timestamp::from_second(1_800_000_000).unwrap());
        let server = ApiServer::new(Options {
            clock: Arc::new(Shared(clock)),
            seed: 7,
            ..Options::default()
        });
        let watchman = Arc::new(Watchman::default());
        server.observe(Arc::clone(&watchman) as Arc<dyn WriteObserver>);
        let client = server.client();
        for definition in afloat_api::crds::own() {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &crd());
            let object = serde_json::from_value(serde_json::to_value(&definition).unwrap()).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
        let options = HciWorldOptions {
            seed: 7,
            clock,
            timings: Timings::default(),
            trouble,
        };
        let world = HciWorld::start(client.clone(), ground, options).await.unwrap();
        tier2::lay_ground(&client, "v1.33.5", &[]).await.unwrap();
        let operator = operator(&client, clock, ground);
        let collector = tokio::spawn(Collector::new(server).run(Duration::from_millis(500)));
        Self {
            client,
            clock,
            ground: ground.clone(),
            watchman,
            world,
            operator,
            collector,
        }
    }

    /// The operator and every task end wherever they are, and begin anew.
    fn kill(&mut self) {
        self.operator.abort();
        self.operator = operator(&self.client, self.clock, &self.ground);
        self.world.kill_tasks();
    }

    /// How many machines were stopped; nothing that must never happen has.
    fn stops(&self) -> usize {
        let seen = self.watchman.0.lock().unwrap();
        assert_eq!(seen.broken, Vec::<String>::new());
        seen.stops
    }

    fn api(&self, kind: HciKind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &served(kind).resource)
    }

    fn upgrades(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Upgrade");
        Api::namespaced_with(self.client.clone(), SYSTEM, &ApiResource::from_gvk(&gvk))
    }

    async fn create(&self) {
        let body = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
            "metadata": { "name": UPGRADE }, "spec": { "version": "v1.7.0", "logEnabled": true },
        });
        let object = serde_json::from_value(body).unwrap();
        self.upgrades().create(&PostParams::default(), &object).await.unwrap();
    }

    async fn upgrade(&self) -> Value {
        serde_json::to_value(self.upgrades().get(UPGRADE).await.unwrap()).unwrap()
    }

    async fn state_of(&self, node: &str) -> String {
        let upgrade = self.upgrade().await;
        let state = &upgrade["status"]["nodeStatuses"][node]["state"];
        state.as_str().unwrap_or_default().to_owned()
    }

    /// Lets up to so many minutes of the world pass until something is so.
    async fn until(&self, minutes: u32, what: &str, holds: impl AsyncFn() -> bool) {
        for _ in 0..minutes * 12 {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let status = &self.upgrade().await["status"];
        let said = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|condition| condition["status"] != "True");
        panic!(
            "not reached: {what}; {:#?}\n{:#}",
            said.collect::<Vec<_>>(),
            status["nodeStatuses"]
        );
    }

    async fn completed(&self) -> Option<String> {
        let upgrade = self.upgrade().await;
        let conditions = upgrade["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let done = conditions.iter().find(|condition| condition["type"] == "Completed")?;
        done["status"].as_str().map(str::to_owned)
    }

    async fn all(&self, kind: HciKind) -> Vec<DynamicObject> {
        self.api(kind).list(&ListParams::default()).await.unwrap().items
    }

    async fn nodes(&self) -> Vec<Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// The upgrade has ended well, and what it had put aside is cleared away.
    async fn finished(&self) -> bool {
        let cleaned = &self.upgrade().await["metadata"]["labels"]["harvesterhci.io/upgradeCleanup"];
        self.completed().await.as_deref() == Some("True") && cleaned == "Succeeded"
    }

    /// Uids of running machines, by name.
    async fn running(&self) -> BTreeMap<String, String> {
        let all = self.all(HciKind::Vmi).await;
        let alive = all.into_iter().filter(|vmi| vmi.data["status"]["phase"] == "Running");
        alive.map(|vmi| (vmi.name_any(), vmi.uid().unwrap())).collect()
    }

    async fn assert_clean(&self) {
        for node in self.nodes().await {
            let spec = node.spec.clone().unwrap_or_default();
            assert!(!spec.unschedulable.unwrap_or_default(), "{}", node.name_any());
            assert_eq!(spec.taints.clone().unwrap_or_default(), [], "{}", node.name_any());
            let marks: Vec<&String> = node.annotations().keys().collect();
            assert!(marks.is_empty(), "{}: {marks:?}", node.name_any());
            let info = node.status.unwrap().node_info.unwrap();
            assert_eq!(info.os_image, "Harvester v1.7.0");
            assert_eq!(info.kubelet_version, "v1.34.1+rke2r1");
        }
    }
}

fn operator(client: &Client, clock: Clock, ground: &Ground) -> tokio::task::JoinHandle<Result<(), OperatorError>> {
    let config = OperatorConfig {
        hci: operator_options(ground),
        ..tier2::operator(client.clone(), clock, HealthBoard::default(), "afloat-1")
    };
    tokio::spawn(afloat_operator::run(config, std::future::pending()))
}

fn crd() -> ApiResource {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk(&gvk)
}

fn restoring() -> Value {
    json!({
        "imagePreloadOption": { "strategy": { "type": "sequential" } }, "restoreVM": true, "logReadyTimeout": "5",
    })
}

#[tokio::test(start_paused = true)]
async fn h22_h27_h46_three_nodes_with_thirty_machines_lose_none() {
    let mut ground = Ground::new(3, 30);
    ground.upgrade_config = Some(restoring());
    let play = Play::new(&ground, Trouble::default()).await;
    let before = play.running().await;
    assert_eq!(before.len(), 30);
    play.create().await;
    play.until(600, "the end", async || play.finished().await).await;
    play.until(10, "everybody runs", async || play.running().await.len() == 30)
        .await;
    let after = play.running().await;
    let bound: BTreeSet<&str> = ground
        .vms
        .iter()
        .filter(|vm| vm.host_device)
        .map(|vm| vm.name.as_str())
        .collect();
    for (name, uid) in &before {
        let moved = after.get(name) == Some(uid);
        assert_eq!(
            moved,
            !bound.contains(name.as_str()),
            "{name} was stopped without need, or not at all"
        );
    }
    let lost = play.all(HciKind::Vmi).await;
    assert!(lost.iter().all(|vmi| vmi.data["status"]["phase"] == "Running"));
    for vm in play.all(HciKind::Vm).await {
        let shape = ground.vms.iter().find(|shape| shape.name == vm.name_any()).unwrap();
        assert_eq!(vm.data["spec"]["runStrategy"], shape.run_strategy, "{}", shape.name);
        assert!(vm.annotations().is_empty(), "{}: {:?}", shape.name, vm.annotations());
    }
    let migrations = play.all(HciKind::Migration).await;
    // Every machine that can move has to leave its node once; those that went to a node not done yet move again.
    println!(
        "{} migrations; at least {} are needed",
        migrations.len(),
        30 - bound.len()
    );
    assert!(migrations.len() <= 2 * (30 - bound.len()), "{}", migrations.len());
    play.assert_clean().await;
    let works: Vec<HostWork> = play.world.host.all().into_iter().map(|(_, work)| work).collect();
    assert_eq!(works.len(), 9, "each host was prepared once: {works:?}");
    assert_eq!(play.stops(), bound.len());
}

#[tokio::test(start_paused = true)]
async fn an_operator_and_tasks_that_are_killed_again_and_again_lose_nobody_and_stop_nobody_twice() {
    let mut ground = Ground::new(3, 12);
    ground.upgrade_config = Some(restoring());
    let mut play = Play::new(&ground, Trouble::default()).await;
    let before = play.running().await;
    play.create().await;
    let mut kills = 0;
    while !play.finished().await {
        assert!(kills < 600, "{:#}", play.upgrade().await["status"]["nodeStatuses"]);
        // Odd, so that it meets every moment of the work.
        tokio::time::sleep(Duration::from_secs(37)).await;
        play.kill();
        kills += 1;
    }
    play.until(10, "everybody runs", async || play.running().await.len() == 12)
        .await;
    let after = play.running().await;
    for vm in &ground.vms {
        assert_eq!(before[&vm.name] == after[&vm.name], !vm.host_device, "{}", vm.name);
    }
    assert_eq!(play.stops(), 1, "the one that cannot move");
    assert!(kills > 10, "{kills}");
    play.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn h6_h7_a_paused_node_waits_and_goes_on_when_the_annotation_is_gone() {
    let mut ground = Ground::new(3, 6);
    let mut config = restoring();
    config["nodeUpgradeOption"] = json!({ "strategy": { "mode": "manual", "pauseNodes": ["node-2"] } });
    ground.upgrade_config = Some(config);
    let play = Play::new(&ground, Trouble::default()).await;
    play.create().await;
    play.until(300, "node-2 paused", async || {
        play.state_of("node-2").await == "Node-upgrade paused"
    })
    .await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(
        play.state_of("node-2").await,
        "Node-upgrade paused",
        "for as long as the person wants"
    );
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(play.client.clone(), SYSTEM);
    let name = format!("{UPGRADE}-pre-drain-node-2");
    assert!(jobs.get_opt(&name).await.unwrap().is_none());
    let nodes: Api<Node> = Api::all(play.client.clone());
    let unpause = json!({ "metadata": { "annotations": { PAUSE: null } } });
    nodes
        .patch("node-2", &PatchParams::default(), &Patch::Merge(unpause))
        .await
        .unwrap();
    play.until(1, "the Job", async || jobs.get_opt(&name).await.unwrap().is_some())
        .await;
    play.until(300, "the end", async || play.finished().await).await;
    play.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn h43_a_volume_that_never_detaches_is_named_while_its_node_waits() {
    let mut ground = Ground::new(3, 10);
    ground.upgrade_config = Some(restoring());
    let trouble = Trouble {
        stuck_volumes: vec!["pvc-vm-10".to_owned()],
        ..Trouble::default()
    };
    let play = Play::new(&ground, trouble).await;
    play.create().await;
    let says = async || {
        let upgrade = play.upgrade().await;
        upgrade["status"]["nodeStatuses"]["node-1"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    play.until(300, "the volume is named", async || says().await.contains("pvc-vm-10"))
        .await;
    assert_eq!(play.state_of("node-1").await, "Pre-draining");
    assert!(play.running().await.len() >= 9, "the others run on");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_migration_fails_is_tried_again_and_moves() {
    let mut ground = Ground::new(3, 3);
    ground.upgrade_config = Some(restoring());
    let trouble = Trouble {
        failing_migrations: [("default/vm-01".to_owned(), 2)].into(),
        ..Trouble::default()
    };
    let play = Play::new(&ground, trouble).await;
    let before = play.running().await;
    play.create().await;
    play.until(600, "the end", async || play.finished().await).await;
    assert_eq!(play.running().await, before);
    assert_eq!(play.stops(), 0);
    play.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_moves_fails_its_node_with_the_reason_and_is_left_running() {
    let mut ground = Ground::new(3, 3);
    ground.upgrade_config = Some(restoring());
    let trouble = Trouble {
        failing_migrations: [("default/vm-01".to_owned(), 99)].into(),
        ..Trouble::default()
    };
    let play = Play::new(&ground, trouble).await;
    let before = play.running().await;
    play.create().await;
    play.until(600, "Completed", async || {
        play.completed().await.as_deref() == Some("False")
    })
    .await;
    let upgrade = play.upgrade().await;
    let told = upgrade["status"].to_string();
    for word in ["default/vm-01", "the guest writes faster than it can be copied"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert_eq!(play.running().await, before);
}
