//! The commands against a cluster in memory: what they say, what they write, and what they end with.

use crate::args::Command;
use crate::problem::{Code, Problem};
use crate::testing::{HOME, World, ago, command, listening};
use crate::{hold, status, upgrade};
use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, annotations};
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use std::time::Duration;

/// Runs a command; what it said, and how it ended.
async fn run(world: &World, line: &str) -> (String, Result<Code, Problem>) {
    let (mut screen, said) = listening();
    let cluster = &world.cluster;
    let never = std::future::pending();
    let ended = match command(line) {
        Command::Upgrade(arguments) => upgrade::upgrade(cluster, &arguments, &mut screen, never).await,
        Command::Status(arguments) => status::status(cluster, &arguments, &mut screen, never).await,
        Command::Explain(arguments) => status::explain(cluster, &arguments, &mut screen).await,
        Command::Pause(arguments) => hold::pause(cluster, arguments.subject.as_deref(), &mut screen).await,
        Command::Resume(arguments) => hold::resume(cluster, arguments.subject.as_deref(), &mut screen).await,
        Command::Defer(arguments) => hold::defer(cluster, &arguments, &mut screen).await,
        Command::Rollback(arguments) => hold::rollback(cluster, &arguments, &mut screen).await,
        Command::Abort(arguments) => hold::abort(cluster, &arguments, &mut screen, never).await,
        other => panic!("{other:?} is not about a cluster"),
    };
    let said = said.lock().unwrap().clone();
    (said, ended)
}

async fn code(world: &World, line: &str) -> (String, Code) {
    let (said, ended) = run(world, line).await;
    (said, ended.unwrap())
}

async fn problem(world: &World, line: &str) -> String {
    run(world, line).await.1.unwrap_err().to_string()
}

async fn upgrades(world: &World) -> Vec<ClusterUpgrade> {
    world
        .api::<ClusterUpgrade>(HOME)
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
}

#[tokio::test]
async fn k4_upgrade_validates_then_writes_the_object() {
    let world = World::new().await;
    let line = "afloat upgrade --to 1.36.3 --max-unavailable 25% --pause-nodes worker-1 --yes --no-wait";
    let (said, ended) = code(&world, line).await;
    assert_eq!(ended, Code::Done, "{said}");
    assert!(said.starts_with("  Checking 5 nodes, 0 pods, 0 budgets ... "), "{said}");
    assert!(said.contains("  0 errors, 0 warnings. Nothing stops it.\n"), "{said}");
    assert!(said.ends_with(
        "  clusterupgrade/to-v1-36-3 created in afloat-system\n  Follow it: afloat status to-v1-36-3 --watch\n"
    ));
    let made = upgrades(&world).await;
    let spec = serde_json::to_value(&made[0].spec).unwrap();
    let wanted = json!({
        "kubernetesVersion": "v1.36.3",
        "budget": {"maxUnavailable": "25%"},
        "nodeUpgradeOption": {"strategy": {"mode": "manual", "pauseNodes": ["worker-1"]}},
    });
    assert_eq!(spec, wanted);
}

#[tokio::test]
async fn a_refused_preflight_changes_nothing_and_ends_with_3() {
    let world = World::new().await;
    world.cordon("worker-2").await;
    let (said, ended) = code(&world, "afloat upgrade --to v1.36.3 --yes").await;
    assert_eq!(ended, Code::Refused);
    assert!(said.contains("warning node/worker-2  cordoned by someone"), "{said}");
    assert!(said.contains("0 errors, 1 warning. Nothing was changed."), "{said}");
    assert!(
        said.contains("running it again with:\n    --accept node/worker-2:Cordoned"),
        "{said}"
    );
    assert!(upgrades(&world).await.is_empty());
    let accepted = "afloat upgrade --to v1.36.3 --accept node/worker-2:Cordoned --yes --no-wait";
    assert_eq!(code(&world, accepted).await.1, Code::Done);
    assert_eq!(upgrades(&world).await[0].spec.accept, ["node/worker-2:Cordoned"]);
}

#[tokio::test]
async fn what_is_accepted_later_is_added_to_what_was_said_before() {
    let world = World::new().await;
    let first =
        "afloat upgrade --to v1.36.3 --max-failed 1 --pause-nodes worker-1 --delete-emptydir-data --yes --no-wait";
    assert_eq!(code(&world, first).await.1, Code::Done);
    world.cordon("worker-2").await;
    let later = "afloat upgrade --to v1.36.3 --accept node/worker-2:Cordoned --max-unavailable 2 --yes --no-wait";
    assert_eq!(code(&world, later).await.1, Code::Done);
    let spec = serde_json::to_value(&upgrades(&world).await[0].spec).unwrap();
    let wanted = json!({
        "kubernetesVersion": "v1.36.3",
        "accept": ["node/worker-2:Cordoned"],
        "budget": {"maxUnavailable": 2, "maxFailed": 1},
        "drain": {"deleteEmptyDirData": true},
        "nodeUpgradeOption": {"strategy": {"mode": "manual", "pauseNodes": ["worker-1"]}},
    });
    assert_eq!(spec, wanted);
}

/// As with one that was made by kubectl, or comes from Git.
#[tokio::test]
async fn what_others_have_written_counts_when_a_warning_is_accepted() {
    let world = World::new().await;
    for node in ["worker-1", "worker-2"] {
        world.cordon(node).await;
    }
    let made = json!({
        "apiVersion": "afloat.dev/v1alpha1", "kind": "ClusterUpgrade",
        "metadata": {"name": "theirs", "namespace": HOME},
        "spec": {"kubernetesVersion": "v1.36.3", "accept": ["node/worker-1:Cordoned"]},
    });
    let theirs: ClusterUpgrade = serde_json::from_value(made).unwrap();
    world
        .api::<ClusterUpgrade>(HOME)
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    let accept = "afloat upgrade --to v1.36.3 --accept node/worker-2:Cordoned --yes --no-wait";
    let (said, end) = code(&world, accept).await;
    assert_eq!(end, Code::Done, "{said}");
    assert_eq!(
        upgrades(&world).await[0].spec.accept,
        ["node/worker-1:Cordoned", "node/worker-2:Cordoned"]
    );
}

#[tokio::test]
async fn a_downgrade_and_a_blocked_budget_are_found_together() {
    let world = World::new().await;
    world.stuck_budget().await;
    let (said, ended) = code(&world, "afloat upgrade --to v1.34.1 --yes").await;
    assert_eq!(ended, Code::Refused);
    assert!(
        said.contains("  error   ") && said.contains("pdb/shop/checkout"),
        "{said}"
    );
    assert!(said.contains("help: "), "{said}");
}

#[tokio::test]
async fn k9_the_same_command_again_changes_nothing_and_follows() {
    let world = World::new().await;
    let line = "afloat upgrade --to v1.36.3 --max-failed 1 --yes --no-wait";
    code(&world, line).await;
    let first = upgrades(&world).await;
    code(&world, line).await;
    let second = upgrades(&world).await;
    assert_eq!(second.len(), 1);
    assert_eq!(first[0].resource_version(), second[0].resource_version());
    // The version alone means the same upgrade and takes nothing back.
    code(&world, "afloat upgrade --to v1.36.3 --no-wait").await;
    let budget = upgrades(&world).await[0].spec.budget.clone();
    assert_eq!(budget.unwrap().max_failed, Some(1));
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let world = World::new().await;
    let (said, ended) = code(&world, "afloat upgrade --to v1.36.3 --dry-run").await;
    assert_eq!(ended, Code::Done);
    assert!(said.ends_with("Would create clusterupgrade/to-v1-36-3 in afloat-system. Nothing was changed.\n"));
    assert!(upgrades(&world).await.is_empty());
}

#[tokio::test]
async fn a_cluster_at_the_target_needs_nothing() {
    let world = World::new().await;
    for node in crate::testing::NODES {
        world.kubelet(node, "v1.36.3").await;
    }
    let (said, ended) = code(&world, "afloat upgrade --to v1.36.3").await;
    assert_eq!(ended, Code::Done);
    assert!(
        said.ends_with("Every node is at v1.36.3 already: there is nothing to do.\n"),
        "{said}"
    );
    assert!(upgrades(&world).await.is_empty());
}

#[tokio::test]
async fn an_upgrade_that_failed_is_followed_by_one_of_another_name() {
    let world = World::new().await;
    world.upgrade("to-v1-36-3").await;
    world
        .say::<ClusterUpgrade>("to-v1-36-3", json!({"phase": "Failed"}))
        .await;
    let (said, _) = code(&world, "afloat upgrade --to v1.36.3 --yes --no-wait").await;
    assert!(said.contains("clusterupgrade/to-v1-36-3-2 created"), "{said}");
    let named = problem(&world, "afloat upgrade --to v1.36.3 --name to-v1-36-3").await;
    assert!(
        named.starts_with("error: to-v1-36-3 is over (Failed) and cannot begin again"),
        "{named}"
    );
}

/// Writes, one after the other, what an operator would.
async fn lead_to(world: &World, phases: &[serde_json::Value]) {
    for status in phases {
        tokio::time::sleep(Duration::from_millis(60)).await;
        world.say::<ClusterUpgrade>("to-v1-36-3", status.clone()).await;
    }
}

#[tokio::test]
async fn k7_following_blocks_until_the_status_says_how_it_ended() {
    for (phase, wanted, words) in [
        (
            "Succeeded",
            Code::Done,
            "to-v1-36-3 is at v1.36.3.   0 of 5 nodes, 2m00s, 0 pods moved\nNot at v1.36.3: cp-1 (Pending), ",
        ),
        ("Failed", Code::Failed, "to-v1-36-3 stopped short of v1.36.3."),
        ("Aborted", Code::Failed, "to-v1-36-3 was ended before v1.36.3."),
    ] {
        let world = World::new().await;
        let steps = [
            json!({"phase": "Prepare", "startedAt": ago(120), "fromVersion": "v1.35.4"}),
            json!({"phase": "ControlPlane"}),
            json!({"phase": phase, "finishedAt": ago(0)}),
        ];
        let following = code(&world, "afloat upgrade --to v1.36.3 --yes");
        let leading = async {
            while upgrades(&world).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            lead_to(&world, &steps).await;
        };
        let ((said, ended), ()) = tokio::join!(following, leading);
        assert_eq!(ended, wanted, "{said}");
        assert!(said.contains(words), "{said}");
        assert!(said.contains("Prepare → Control plane"), "{said}");
    }
}

#[tokio::test]
async fn k7_the_last_words_wait_until_the_nodes_are_heard_of_too() {
    let world = World::new().await;
    let upgrade = world.upgrade("to-v1-36-3").await;
    let goes_on = json!({"state": "Upgrading", "stateSince": ago(30)});
    world.node_upgrade(&upgrade, "cp-1", "Upgraded", goes_on).await;
    let following = code(&world, "afloat upgrade --to v1.36.3 --yes");
    let leading = async {
        let done = json!({"phase": "Succeeded", "startedAt": ago(60), "finishedAt": ago(0)});
        lead_to(&world, &[json!({"phase": "ControlPlane"}), done]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        world
            .say::<NodeKubeadmUpgrade>("cp-1-up", json!({"state": "Succeeded"}))
            .await;
    };
    let ((said, ended), ()) = tokio::join!(following, leading);
    assert_eq!(ended, Code::Done, "{said}");
    assert!(said.contains("1 of 5 nodes"), "{said}");
    assert!(!said.contains("cp-1 (Upgrading)"), "{said}");
}

#[tokio::test]
async fn a_pause_ends_the_following_with_5_and_the_time_limit_with_4() {
    let world = World::new().await;
    world.upgrade("to-v1-36-3").await;
    world
        .say::<ClusterUpgrade>("to-v1-36-3", json!({"phase": "Prepare", "startedAt": ago(5)}))
        .await;
    let (said, ended) = code(&world, "afloat upgrade --to v1.36.3 --timeout 1s").await;
    assert_eq!(ended, Code::StillGoingOn);
    assert!(
        said.ends_with("It goes on: afloat status to-v1-36-3 --watch\n"),
        "{said}"
    );
    code(&world, "afloat pause").await;
    let (said, ended) = code(&world, "afloat upgrade --to v1.36.3").await;
    assert_eq!(ended, Code::Paused);
    assert!(
        said.ends_with("Paused: no further node starts. To let it go on: afloat resume\n"),
        "{said}"
    );
}

#[tokio::test]
async fn looking_ends_without_ending_the_upgrade() {
    let world = World::new().await;
    world.upgrade("edge-1").await;
    let (mut screen, said) = listening();
    let Command::Status(arguments) = command("afloat status --watch") else {
        panic!("not status")
    };
    let stop = tokio::time::sleep(Duration::from_millis(50));
    let ended = status::status(&world.cluster, &arguments, &mut screen, stop)
        .await
        .unwrap();
    assert_eq!(ended, Code::Detached);
    assert!(
        said.lock()
            .unwrap()
            .contains("Detached; edge-1 goes on. Look again: afloat status edge-1 --watch")
    );
}

/// worker-2 drains and a budget blocks it; worker-1 is held; cp-1 is done.
async fn stuck(world: &World) {
    let upgrade = world.upgrade("edge-1").await;
    world.stuck_budget().await;
    world.kubelet("cp-1", "v1.36.3").await;
    let done = json!({"state": "Succeeded", "stateSince": ago(300), "history": [
        {"state": "Draining", "at": ago(461), "attempt": 1}, {"state": "Succeeded", "at": ago(300), "attempt": 1}]});
    world.node_upgrade(&upgrade, "cp-1", "Upgraded", done).await;
    let draining = json!({"state": "Draining", "stateSince": ago(700), "drain": {"total": 9, "gone": 7}});
    world.node_upgrade(&upgrade, "worker-2", "Upgraded", draining).await;
    let paused = json!({"state": "Paused", "stateSince": ago(242)});
    world.node_upgrade(&upgrade, "worker-1", "Staged", paused).await;
    code(world, "afloat pause worker-1").await;
    let uid = world.nodes().get("worker-2").await.unwrap().uid();
    world
        .say::<ClusterUpgrade>(
            "edge-1",
            json!({"phase": "Workers", "startedAt": ago(370), "fromVersion": "v1.35.4",
                "slots": [{"node": "worker-2", "nodeUid": uid, "role": "Worker", "attempt": 1, "takenAt": ago(700)}],
                "waiting": [{"node": "worker-2", "state": "Draining", "reason": "WaitingForPodDisruptionBudget",
                    "message": "pdb/shop/checkout allows 0 disruptions", "since": ago(700),
                    "blockedBy": {"kind": "PodDisruptionBudget", "namespace": "shop", "name": "checkout"}}],
            }),
        )
        .await;
}

#[tokio::test]
async fn p32_status_answers_in_its_first_line_and_names_what_is_waited_for() {
    let world = World::new().await;
    stuck(&world).await;
    let (said, _) = code(&world, "afloat status").await;
    let wanted = "\
Upgrade edge-1  v1.35.4 → v1.36.3   Workers   0 of 2   6m10s so far
Waiting on worker-2: pdb/shop/checkout allows 0 disruptions   since 11m40s

  NODE      ROLE           VERSION            STATE      STEP              FOR     NOTE
  cp-1      control-plane  v1.36.3            Succeeded                    2m41s
  cp-2      control-plane  v1.35.4            Pending
  cp-3      control-plane  v1.35.4            Pending
  worker-1  worker         v1.35.4            Paused                       4m02s   afloat resume worker-1
  worker-2  worker         v1.35.4 → v1.36.3  Draining   7 of 9 pods gone  11m40s

pods moved: 7 · budget: 1 of 1 in use
";
    assert_eq!(said, wanted);
    let (said, _) = code(&world, "afloat status edge-1 -o json").await;
    let board: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(board["waits"][0]["reason"], "WaitingForPodDisruptionBudget");
    assert_eq!(board["nodes"][4]["state"], "Draining");
}

#[tokio::test]
async fn status_tells_a_cordon_of_ours_from_one_of_somebody_else() {
    let world = World::new().await;
    let upgrade = world.upgrade("edge-1").await;
    let staged = json!({"state": "Staged", "stateSince": ago(5)});
    for node in ["worker-1", "worker-2"] {
        world.node_upgrade(&upgrade, node, "Staged", staged.clone()).await;
    }
    world.cordon("worker-1").await;
    // Seen before the state of the node follows.
    let uid = upgrade.metadata.uid.unwrap();
    world.cordon_by_afloat("worker-2", &uid).await;
    let (said, _) = code(&world, "afloat status").await;
    let row = |node: &str| said.lines().find(|line| line.contains(node)).unwrap().to_owned();
    assert!(row("worker-1").ends_with("cordoned by someone: stays so"), "{said}");
    assert!(!row("worker-2").contains("cordoned"), "{said}");
}

#[tokio::test]
async fn p32_explain_leads_down_to_the_budget_and_the_command_that_frees_it() {
    let world = World::new().await;
    stuck(&world).await;
    let (said, _) = code(&world, "afloat explain").await;
    let wanted = "\
edge-1 waits, because
  worker-2 is Draining since 11m40s, because
    pod shop/checkout-7d9f-aaaaa cannot be evicted, because
      pdb/shop/checkout allows 0 disruptions (2 required, 2 healthy), because
        deploy/shop/checkout has 2 replicas and both are on worker-2
Any one of these frees it:
  kubectl -n shop scale deploy/checkout --replicas=3      adds a spare; it goes on by itself
  afloat defer worker-2                                   puts it back as it was and takes it last
  afloat abort                                            stops after putting worker-2 back
";
    assert_eq!(said, wanted);
    let (said, _) = code(&world, "afloat explain -o json").await;
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(value["remedies"][1]["command"], "afloat defer worker-2");
}

#[tokio::test]
async fn pause_and_resume_hold_the_whole_or_one_node() {
    let world = World::new().await;
    stuck(&world).await;
    let (said, _) = code(&world, "afloat pause").await;
    let wanted = "edge-1 is paused: no further node starts. Finished first: worker-2 (Draining).\nTo let it go on: afloat resume\n";
    assert_eq!(said, wanted);
    assert_eq!(upgrades(&world).await[0].spec.paused, Some(true));
    let (said, _) = code(&world, "afloat resume").await;
    assert_eq!(
        said,
        "edge-1 goes on.\nStill held: worker-1. To let one go on: afloat resume worker-1\n"
    );
    assert_eq!(upgrades(&world).await[0].spec.paused, None);
    assert!(world.annotation("worker-1", annotations::PAUSE).await.is_some());
    let (said, _) = code(&world, "afloat resume worker-1").await;
    assert_eq!(said, "worker-1 goes on when its turn comes.\n");
    assert_eq!(world.annotation("worker-1", annotations::PAUSE).await, None);
}

/// Takes a wish from a node, as the operator does once it has recorded it.
async fn hear(world: &World, node: &str, wish: &str) {
    while world.annotation(node, annotations::WISH).await.as_deref() != Some(wish) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {annotations::WISH: null}}}));
    world
        .nodes()
        .patch(node, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn wishes_are_written_on_the_node_and_waited_for() {
    let world = World::new().await;
    stuck(&world).await;
    let ((said, ended), ()) = tokio::join!(code(&world, "afloat defer worker-2"), hear(&world, "worker-2", "defer"));
    assert_eq!(ended, Code::Done);
    let wanted = "worker-2 (Draining) is put back as it was and taken last.\n\
                  The operator has taken it up. Follow it: afloat status --watch\n";
    assert_eq!(said, wanted);
    let ((said, _), ()) = tokio::join!(
        code(&world, "afloat rollback worker-2 --yes"),
        hear(&world, "worker-2", "rollback")
    );
    assert!(
        said.starts_with("worker-2 goes back, as it was before the upgrade.\n"),
        "{said}"
    );
}

#[tokio::test]
async fn what_cannot_be_wished_for_is_refused_with_the_reason() {
    let world = World::new().await;
    stuck(&world).await;
    let late = problem(&world, "afloat rollback cp-1 --yes").await;
    assert!(
        late.contains("a kubelet must not be newer than its API server"),
        "{late}"
    );
    let done = problem(&world, "afloat defer cp-1").await;
    let wanted =
        "error: there is nothing to defer on cp-1\n  it is not being upgraded: it is Succeeded\n  help: afloat status";
    assert_eq!(done, wanted);
    let unknown = problem(&world, "afloat defer worker-9").await;
    assert_eq!(
        unknown,
        "error: there is no node worker-9\n  there are cp-1, cp-2, cp-3, worker-1, worker-2"
    );
}

#[tokio::test]
async fn abort_says_what_happens_and_waits_for_the_end() {
    let world = World::new().await;
    stuck(&world).await;
    let ending = async {
        while upgrades(&world).await[0].spec.abort != Some(true) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world
            .say::<ClusterUpgrade>("edge-1", json!({"phase": "Aborted", "finishedAt": ago(0)}))
            .await;
    };
    let ((said, ended), ()) = tokio::join!(code(&world, "afloat abort --yes"), ending);
    assert_eq!(ended, Code::Done);
    let first =
        "edge-1 ends: put back as it was: worker-2 (Draining); 1 node stays at v1.36.3. It cannot be taken back.\n";
    assert!(said.starts_with(first), "{said}");
    assert!(said.contains("edge-1 was ended before v1.36.3."), "{said}");
    let again = problem(&world, "afloat abort --yes").await;
    assert!(
        again.starts_with("error: no upgrade is under way\n  there are edge-1 (Aborted, to v1.36.3)"),
        "{again}"
    );
}

#[tokio::test]
async fn which_upgrade_is_meant_is_clear_or_asked() {
    let world = World::new().await;
    let none = problem(&world, "afloat status").await;
    assert!(
        none.starts_with("error: there is no upgrade in afloat-system"),
        "{none}"
    );
    world.upgrade("edge-1").await;
    world.upgrade("edge-2").await;
    let several = problem(&world, "afloat pause").await;
    assert!(
        several.starts_with("error: several upgrades are there: name one\n  edge-1 (Pending, to v1.36.3), edge-2"),
        "{several}"
    );
    world
        .say::<ClusterUpgrade>("edge-2", json!({"phase": "Prepare", "startedAt": ago(5)}))
        .await;
    let (said, _) = code(&world, "afloat pause").await;
    assert!(said.starts_with("edge-2 is paused"), "{said}");
    let unknown = problem(&world, "afloat status edge-3").await;
    assert!(
        unknown.contains("there is no upgrade edge-3 in afloat-system\n  there are edge-1"),
        "{unknown}"
    );
}
