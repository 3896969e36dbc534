//! The commands about an upgrade of Harvester, against a cluster in memory.

use crate::args::Command;
use crate::problem::{Code, Problem};
use crate::testing::{World, command, listening};
use crate::{hold, status};
use afloat_api::harvester::Upgrade;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

const NAME: &str = "hvst-upgrade-x7k2p";
const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";

/// An upgrade with worker-1 paused, cp-1 done and the others to come.
async fn paused() -> World {
    let world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.cluster.client.clone());
    for definition in afloat_api::crds::harvester() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(world.cluster.client.clone());
    for name in ["harvester-system", "fleet-local"] {
        let body = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &body).await.unwrap();
    }
    let state = |state: &str, message: &str| json!({"state": state, "message": message});
    let body = json!({
        "metadata": {"name": NAME, "labels": {"harvesterhci.io/upgradeState": "UpgradingNodes"}},
        "spec": {"version": "v1.7.0"},
        "status": {
            "previousVersion": "v1.6.0",
            "conditions": [{"type": "Completed", "status": "Unknown"}, {"type": "NodesUpgraded", "status": "Unknown"}],
            "nodeStatuses": {
                "cp-1": state("Succeeded", ""),
                "worker-1": state("Node-upgrade paused", "Node upgrade paused as requested by the user. It also holds up worker-2"),
                "worker-2": state("Images preloaded", ""),
            },
        },
    });
    world.make::<Upgrade>("harvester-system", body).await;
    mark(&world, "worker-1", Some(NAME)).await;
    world
}

async fn mark(world: &World, node: &str, value: Option<&str>) {
    let body = Patch::Merge(json!({"metadata": {"annotations": {PAUSE: value}}}));
    world.nodes().patch(node, &PatchParams::default(), &body).await.unwrap();
}

async fn marked(world: &World, node: &str) -> Option<String> {
    let node = world.nodes().get(node).await.unwrap();
    node.metadata.annotations.unwrap_or_default().get(PAUSE).cloned()
}

async fn annotation(world: &World, key: &str) -> Option<String> {
    let upgrade = world.api::<Upgrade>("harvester-system").get(NAME).await.unwrap();
    upgrade.metadata.annotations.unwrap_or_default().get(key).cloned()
}

async fn run(world: &World, line: &str) -> (String, Result<Code, Problem>) {
    let (mut screen, said) = listening();
    let never = std::future::pending();
    let ended = match command(line) {
        Command::Status(arguments) => status::status(&world.cluster, &arguments, &mut screen, never).await,
        Command::Explain(arguments) => status::explain(&world.cluster, &arguments, &mut screen).await,
        Command::Pause(arguments) => hold::pause(&world.cluster, arguments.subject.as_deref(), &mut screen).await,
        Command::Resume(arguments) => hold::resume(&world.cluster, arguments.subject.as_deref(), &mut screen).await,
        Command::Abort(arguments) => hold::abort(&world.cluster, &arguments, &mut screen, never).await,
        other => panic!("{other:?} is not about an upgrade"),
    };
    let said = said.lock().unwrap().clone();
    (said, ended)
}

#[tokio::test]
async fn h8_status_shows_each_node_and_how_to_go_on() {
    let world = paused().await;
    let (said, ended) = run(&world, "afloat status").await;
    assert_eq!(ended.unwrap(), Code::Done);
    assert!(
        said.starts_with("Upgrade hvst-upgrade-x7k2p  v1.6.0 → v1.7.0   UpgradingNodes   1 of 5 nodes"),
        "{said}"
    );
    assert!(
        said.contains("worker-1  Node-upgrade paused") && said.contains("afloat resume worker-1"),
        "{said}"
    );
    let (said, _) = run(&world, "afloat status -o json").await;
    let board: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(board["nodes"][3]["state"], "Node-upgrade paused");
}

async fn change(world: &World, body: serde_json::Value) {
    let upgrades = world.api::<Upgrade>("harvester-system");
    let body = Patch::Merge(body);
    upgrades.patch(NAME, &PatchParams::default(), &body).await.unwrap();
}

#[tokio::test]
async fn whoever_follows_learns_by_the_exit_code_that_only_a_person_can_make_it_go_on() {
    let world = paused().await;
    let (said, ended) = run(&world, "afloat status --watch").await;
    assert_eq!(ended.unwrap(), Code::Paused);
    assert!(
        said.contains("Held until a person lets it go on: afloat resume worker-1"),
        "{said}"
    );

    let whole = json!({"metadata": {"annotations": {"afloat.dev/pause": "mine"}},
        "status": {"nodeStatuses": {"worker-1": {"state": "Images preloaded", "message": ""}}}});
    change(&world, whole).await;
    let (said, ended) = run(&world, "afloat status --watch").await;
    assert_eq!(ended.unwrap(), Code::Paused);
    assert!(said.contains(&format!("afloat resume {NAME}")), "{said}");

    let conditions = json!([{"type": "PreflightPassed", "status": "False", "message": "error node/cp-1: is cordoned"}]);
    change(&world, json!({"status": {"conditions": conditions}})).await;
    let (said, ended) = run(&world, "afloat status --watch").await;
    assert_eq!(ended.unwrap(), Code::Refused);
    assert!(
        said.contains("is cordoned") && said.contains("Nothing was changed"),
        "{said}"
    );

    let report = "3 nodes at the target in 1h02m; each took: worker-1 25m00s";
    let conditions = json!([{"type": "Completed", "status": "True", "message": report}]);
    change(&world, json!({"status": {"conditions": conditions}})).await;
    let (said, ended) = run(&world, "afloat status --watch").await;
    assert_eq!(ended.unwrap(), Code::Done);
    assert!(said.contains(report), "{said}");
}

/// An upgrade that has reached no node: the image is imported, by hours.
fn at(kind: &str, message: &str) -> serde_json::Value {
    let conditions = json!([
        {"type": "Completed", "status": "Unknown"}, {"type": "LogReady", "status": "True"},
        {"type": kind, "status": "Unknown", "message": message},
    ]);
    json!({"status": {"conditions": conditions, "nodeStatuses": null}})
}

#[tokio::test]
async fn h8_status_says_what_is_waited_for_before_a_node_is() {
    let world = paused().await;
    let importing = "waits for image harvester-system/hvst-upgrade-x7k2p: 12 % imported";
    change(&world, at("ImageReady", importing)).await;
    let (said, _) = run(&world, "afloat status").await;
    assert!(
        said.contains(&format!("ImageReady is not reached yet: {importing}\n")),
        "{said}"
    );
    let (said, _) = run(&world, "afloat status -o json").await;
    let board: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&board["phase"], &board["message"]),
        (&json!("ImageReady"), &json!(importing))
    );
    change(&world, at("NodesPrepared", "")).await;
    let (said, _) = run(&world, "afloat status").await;
    assert!(!said.contains("not reached"), "nothing is said of it: {said}");
}

#[tokio::test]
async fn h8_whoever_follows_is_told_of_each_phase_before_the_nodes() {
    let world = paused().await;
    change(&world, at("ImageReady", "12 % imported")).await;
    let events = async {
        let moment = std::time::Duration::from_millis(400);
        tokio::time::sleep(moment).await;
        change(&world, at("RepoReady", "waits for the first answer")).await;
        tokio::time::sleep(moment).await;
        let over = json!([{"type": "Completed", "status": "True", "message": "all done"}]);
        change(&world, json!({"status": {"conditions": over}})).await;
    };
    let ((said, ended), ()) = tokio::join!(run(&world, "afloat status --watch"), events);
    assert_eq!(ended.unwrap(), Code::Done, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let told = [
        "ImageReady  is not reached yet  12 % imported",
        "RepoReady  is not reached yet  waits for the first answer",
    ];
    assert_eq!(lines[..2], told, "{said}");
}

#[tokio::test]
async fn a_node_at_work_is_followed_although_another_is_paused() {
    let world = paused().await;
    let busy = json!({"status": {"nodeStatuses": {"worker-2": {"state": "Post-draining", "message": ""}}}});
    change(&world, busy).await;
    let watching = run(&world, "afloat status --watch");
    let ended = tokio::time::timeout(std::time::Duration::from_secs(4), watching).await;
    assert!(ended.is_err(), "it goes on");
}

#[tokio::test]
async fn the_wide_form_adds_reason_and_times() {
    let world = paused().await;
    let times = r#"{"cp-1":{"begun":"2026-11-18T06:00:00Z","done":"2026-11-18T06:25:10Z","waited":720}}"#;
    change(
        &world,
        json!({"metadata": {"annotations": {"afloat.dev/node-times": times}}}),
    )
    .await;
    let (said, _) = run(&world, "afloat status -o wide").await;
    for word in ["REASON", "TOOK", "WAITED", "25m10s", "12m00s"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let (narrow, _) = run(&world, "afloat status").await;
    assert!(!narrow.contains("WAITED"), "{narrow}");
}

#[tokio::test]
async fn h7_resume_takes_the_annotation_from_the_node() {
    let world = paused().await;
    let (said, ended) = run(&world, "afloat resume worker-1").await;
    assert_eq!((said.as_str(), ended.unwrap()), ("worker-1 goes on now.\n", Code::Done));
    assert_eq!(marked(&world, "worker-1").await, None);
    let (said, _) = run(&world, "afloat resume worker-2").await;
    assert!(said.contains("not held"), "{said}");
}

#[tokio::test]
async fn a_node_can_be_held_until_it_has_begun() {
    let world = paused().await;
    let (said, _) = run(&world, "afloat pause worker-2").await;
    assert!(said.contains("worker-2 is held before it is drained"), "{said}");
    assert!(marked(&world, "worker-2").await.is_some());
    let problem = run(&world, "afloat pause cp-1").await.1.unwrap_err().to_string();
    assert!(problem.contains("has begun (Succeeded)"), "{problem}");
}

#[tokio::test]
async fn the_whole_is_paused_resumed_and_aborted_by_annotations() {
    let world = paused().await;
    let (said, _) = run(&world, "afloat pause").await;
    assert!(said.contains("no further node starts"), "{said}");
    assert!(annotation(&world, "afloat.dev/pause").await.is_some());
    let (said, _) = run(&world, "afloat resume").await;
    assert!(
        said.contains("goes on.") && said.contains("Still held: worker-1"),
        "{said}"
    );
    assert_eq!(annotation(&world, "afloat.dev/pause").await, None);
    let (said, ended) = run(&world, "afloat abort --yes --no-wait").await;
    assert_eq!(ended.unwrap(), Code::Done);
    assert!(said.contains("ends: no node is in flight"), "{said}");
    assert_eq!(annotation(&world, "afloat.dev/abort").await.as_deref(), Some("true"));
}

#[tokio::test]
async fn explain_names_the_paused_node_and_both_ways_on() {
    let world = paused().await;
    let (said, _) = run(&world, "afloat explain").await;
    assert!(said.contains("worker-1 is Node-upgrade paused"), "{said}");
    assert!(
        said.contains("afloat resume worker-1") && said.contains("kubectl annotate node worker-1"),
        "{said}"
    );
}
