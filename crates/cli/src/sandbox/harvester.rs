//! A Harvester-like cluster in the sandbox: its simulated parts, the real operator, and an Upgrade made as a person of Harvester makes it.
//! How it is followed is in `hci`, as for any cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_core::hci::report::least_moves;
use afloat_core::hci::view::HciKind;
use afloat_core::view::Key;
use afloat_operator::snapshot::hci::served;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{Ground, HciScenario, HciWorld, HciWorldOptions, SYSTEM, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::QUICK;
use super::embedded::Embedded;
use super::upgrade::Operator;
use crate::args::{Output, Sandbox};
use crate::cluster::{Cluster, Scope};
use crate::hci;
use crate::problem::{Code, Problem};
use crate::screen::{Screen, interrupted};
use crate::terminal;

/// The name of the sandbox's Upgrade.
const NAME: &str = "hvst-upgrade-sandbox";
/// Seconds that virtual machines get to be up at the end.
const LAST_STARTS: u32 = 30;
/// The Kubernetes the simulated Harvester has.
const VERSION: &str = "v1.33.5";

pub async fn run(arguments: Sandbox, scenario: HciScenario) -> Result<Code, Problem> {
    check(&arguments, scenario)?;
    let script = scenario.describe();
    let manifest = manifest(&script.annotations());
    let ground = script.ground;
    let server = Embedded::start(VERSION, arguments.seed).await?;
    let client = server.client();
    let clock = Clock::starting_at(jiff::Timestamp::now());
    let speed = arguments.speed.unwrap_or(if arguments.serve { 1.0 } else { QUICK });
    let options = HciWorldOptions {
        seed: arguments.seed,
        clock,
        timings: Timings::default().faster(speed),
        trouble: script.trouble.clone(),
        people: script.people,
        task_client: None,
        charts: None,
    };
    let prepared = |failure| Problem::new(Code::Failed, "the sandbox could not be prepared").source(&failure);
    let _world = HciWorld::start(client.clone(), &ground, options)
        .await
        .map_err(prepared)?;
    tier2::lay_ground(&client, VERSION, &[]).await.map_err(prepared)?;
    let hci = operator_options(&ground, &script.trouble);
    let _operator = Operator::start(client.clone(), clock, HealthBoard::default(), &arguments.faults, hci);
    let mut screen = Screen::stdout();
    screen.say(&format!(
        "{}: {} virtual machines run on {} nodes.",
        scenario.name(),
        ground.vms.len(),
        ground.nodes
    ));
    if arguments.serve {
        let door = server.serve(arguments.listen, arguments.kubeconfig).await?;
        terminal::print(&door.instructions(&commands(&manifest)));
        interrupted().await;
        door.end().await;
        return Ok(Code::Done);
    }
    let code = upgrade(&client, manifest, &mut screen, speed).await?;
    screen.say(&summary(&client, &ground).await?);
    Ok(code)
}

/// Options that say something about a kubeadm cluster say nothing here.
fn check(arguments: &Sandbox, scenario: HciScenario) -> Result<(), Problem> {
    let shaped = arguments.control_planes.is_some() || arguments.workers.is_some() || arguments.nodes.is_some();
    let versioned = arguments.from.is_some() || arguments.to.is_some();
    let printed = arguments.once || arguments.output != Output::Text;
    if !shaped && !versioned && !printed {
        return Ok(());
    }
    Err(Problem::new(
        Code::BadUsage,
        format!(
            "{} has its own nodes and versions, and is followed, not printed",
            scenario.name()
        ),
    )
    .because("--nodes, --from, --to, --once and -o are for clusters of kubeadm")
    .help(format!("afloat sandbox --scenario {}", scenario.name())))
}

fn commands(manifest: &serde_json::Value) -> String {
    format!(
        "kubectl get nodes\n  kubectl get vmi\n  kubectl create -f - <<< '{manifest}'\n  afloat status --watch\n  afloat explain\n  \
         kubectl annotate node node-2 harvesterhci.io/node-upgrade-pause-"
    )
}

fn manifest(annotations: &BTreeMap<String, String>) -> serde_json::Value {
    let mut manifest = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
        "metadata": { "name": NAME, "namespace": SYSTEM }, "spec": { "version": "v1.7.0", "logEnabled": false },
    });
    if !annotations.is_empty() {
        manifest["metadata"]["annotations"] = json!(annotations);
    }
    manifest
}

async fn upgrade(
    client: &kube::Client,
    manifest: serde_json::Value,
    screen: &mut Screen,
    speed: f64,
) -> Result<Code, Problem> {
    screen.say(&format!("Upgrading in place to v1.7.0, {speed} times as quick as life"));
    let gvk = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Upgrade");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), SYSTEM, &ApiResource::from_gvk(&gvk));
    let object = serde_json::from_value(manifest)
        .map_err(|error| Problem::new(Code::Failed, "the sandbox's own Upgrade cannot be read").source(&error))?;
    api.create(&PostParams::default(), &object)
        .await
        .map_err(|error| Problem::new(Code::Failed, "the sandbox refused the upgrade").source(&error))?;
    let cluster = Cluster::of(client.clone(), tier2::HOME);
    let mut live = cluster.look(Scope::Everything).await?;
    hci::follow(
        &mut live,
        &Key::new(SYSTEM, NAME),
        screen,
        hci::Until::Over,
        interrupted(),
    )
    .await
}

/// What became of the virtual machines.
async fn summary(client: &kube::Client, ground: &Ground) -> Result<String, Problem> {
    let list = async |kind: HciKind| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &served(kind).resource);
        let all = api.list(&ListParams::default()).await;
        all.map_err(|error| Problem::new(Code::Failed, "the sandbox does not answer").source(&error))
    };
    let mut alive = 0;
    // Those that were started again last are on their way.
    for _ in 0..LAST_STARTS {
        let running = list(HciKind::Vmi).await?;
        let running = running
            .items
            .iter()
            .filter(|vmi| vmi.data["status"]["phase"] == "Running");
        alive = running.count();
        if alive == ground.vms.len() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let migrations = list(HciKind::Migration).await?;
    let mut moves: BTreeMap<&str, usize> = BTreeMap::new();
    let done = migrations
        .items
        .iter()
        .filter(|migration| migration.data["status"]["phase"] == "Succeeded");
    for migration in done {
        *moves
            .entry(migration.data["spec"]["vmiName"].as_str().unwrap_or_default())
            .or_default() += 1;
    }
    let total: usize = moves.values().sum();
    let movable = ground.vms.iter().filter(|vm| vm.bound.is_none()).count();
    let (once, most) = (
        moves.values().filter(|moved| **moved == 1).count(),
        moves.values().max().copied().unwrap_or_default(),
    );
    Ok(format!(
        "\n{alive} of {} virtual machines run. {total} moves, {} are the least; {once} of {movable} moved once, none more than {most} times.\n\
         Stopped for their node, because they cannot move: {}.",
        ground.vms.len(),
        least(ground),
        ground.vms.len() - movable,
    ))
}

/// How often they have to move in the least.
fn least(ground: &Ground) -> usize {
    let movable = |node: &str| {
        let there = ground.vms.iter().filter(|vm| vm.node == node && vm.bound.is_none());
        there.count()
    };
    let by_node: Vec<usize> = ground.node_names().map(|node| movable(&node)).collect();
    least_moves(&by_node)
}
