//! Every action carried out against the embedded API server, and what is there afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

#[path = "../common/mod.rs"]
mod common;
mod pods;

use afloat_api::clusterupgrade::Phase;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{
    ClusterUpgrade, ClusterUpgradeStatus, ControlPlaneKubeadmUpgrade, GroupUpgradeStatus, NodeKubeadmUpgrade,
    NodeKubeadmUpgradeStatus, NodeState, ObjectRef, Reason, StepContainer, WorkersKubeadmUpgrade, annotations, labels,
    names,
};
use afloat_core::action::{Action, Place, Task, TaskPod};
use afloat_core::plan::StageKind;
use afloat_core::view::{Key, NodeName, Revision, Target, Uid};
use afloat_operator::clients::Clients;
use afloat_operator::execute::{Cause, Outcome, Refusal, execute};
use afloat_operator::snapshot::{Kind, Object};
use common::{Cluster, HOME, control_plane_body, node_upgrade_body, target, workers_body};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

async fn run(cluster: &Cluster, action: &Action) -> Result<Outcome, Refusal> {
    execute(&cluster.clients, action).await
}

/// Carries it out and gives the object of the answer.
async fn written(cluster: &Cluster, action: &Action) -> Object {
    match run(cluster, action).await {
        Ok(Outcome::Written(object)) => *object,
        other => panic!("{}: {other:?}", action.name()),
    }
}

fn stale(target: &Target) -> Target {
    Target {
        revision: Revision(target.revision.0 - 1),
        ..target.clone()
    }
}

fn other(target: &Target) -> Target {
    Target {
        uid: Uid::from("another"),
        ..target.clone()
    }
}

#[tokio::test]
async fn a_status_is_replaced_whole_or_refused() {
    let cluster = Cluster::new().await;
    let upgrade = cluster.upgrade().await;
    let first = ClusterUpgradeStatus {
        phase: Some(Phase::Preflight),
        progress: Some("0/3".to_owned()),
        version_path: vec!["v1.36.3".to_owned()],
        ..ClusterUpgradeStatus::default()
    };
    let write = |target: Target, status: &ClusterUpgradeStatus| Action::WriteUpgradeStatus {
        target,
        status: Box::new(status.clone()),
    };
    let Object::Upgrade(answer) = written(&cluster, &write(target(&upgrade), &first)).await else {
        panic!()
    };
    assert_eq!(answer.status.as_ref(), Some(&first));

    let second = ClusterUpgradeStatus {
        phase: Some(Phase::Backup),
        ..ClusterUpgradeStatus::default()
    };
    written(&cluster, &write(target(&*answer), &second)).await;
    let api = cluster.api::<ClusterUpgrade>(HOME);
    let there = api.get("edge-1").await.unwrap();
    assert_eq!(there.status.as_ref(), Some(&second), "what the new one has not is gone");

    let refusal = run(&cluster, &write(stale(&target(&there)), &first)).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    assert_eq!(
        api.get("edge-1").await.unwrap().status,
        Some(second),
        "nothing was written"
    );
    api.delete("edge-1", &DeleteParams::default()).await.unwrap();
    cluster.upgrade().await;
    let refusal = run(&cluster, &write(target(&there), &first)).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "a namesake: {refusal}");
    api.delete("edge-1", &DeleteParams::default()).await.unwrap();
    let refusal = run(&cluster, &write(target(&there), &first)).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Gone), "{refusal}");
}

#[tokio::test]
async fn the_status_of_each_kind_is_written() {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    let (cp, workers, up) = (
        cluster.control_plane().await,
        cluster.workers().await,
        cluster.node_upgrade(&node).await,
    );
    let group = GroupUpgradeStatus {
        require_upgrade: 3,
        ..GroupUpgradeStatus::default()
    };
    let status = Box::new(group.clone());
    let target_of = target(&cp);
    written(
        &cluster,
        &Action::WriteControlPlaneStatus {
            target: target_of,
            status,
        },
    )
    .await;
    let there = cluster
        .api::<ControlPlaneKubeadmUpgrade>(HOME)
        .get("edge-1-cp")
        .await
        .unwrap();
    assert_eq!(there.status.as_ref(), Some(&group));
    let action = Action::WriteWorkersStatus {
        target: target(&workers),
        status: Box::new(group.clone()),
    };
    written(&cluster, &action).await;
    let there = cluster
        .api::<WorkersKubeadmUpgrade>(HOME)
        .get("edge-1-workers")
        .await
        .unwrap();
    assert_eq!(there.status.as_ref(), Some(&group));
    let status = NodeKubeadmUpgradeStatus {
        state: Some(NodeState::Staging),
        ..NodeKubeadmUpgradeStatus::default()
    };
    let action = Action::WriteNodeStatus {
        target: target(&up),
        status: Box::new(status.clone()),
    };
    written(&cluster, &action).await;
    let there = cluster
        .api::<NodeKubeadmUpgrade>(HOME)
        .get("worker-1-up")
        .await
        .unwrap();
    assert_eq!(there.status, Some(status));
}

#[tokio::test]
async fn children_are_made_once_and_never_taken_for_those_of_another_upgrade() {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    let actions = |uid: &str| {
        let marked = |mut body: Value| {
            body["metadata"]["labels"][labels::UPGRADE_UID] = json!(uid);
            body
        };
        [
            Action::CreateControlPlaneUpgrade(Box::new(
                serde_json::from_value(marked(control_plane_body("a"))).unwrap(),
            )),
            Action::CreateWorkersUpgrade(Box::new(serde_json::from_value(marked(workers_body("a"))).unwrap())),
            Action::CreateNodeUpgrade(Box::new(
                serde_json::from_value(marked(node_upgrade_body("a", &node))).unwrap(),
            )),
            Action::CreatePod(Box::new(pods::task_pod(uid))),
        ]
    };
    for action in actions("u-1") {
        let first = written(&cluster, &action).await.target();
        let again = written(&cluster, &action).await.target();
        assert_eq!(first, again, "{}: made twice it is the same one", action.name());
    }
    for action in actions("u-2") {
        let refusal = run(&cluster, &action).await.unwrap_err();
        assert!(matches!(refusal.cause, Cause::Taken), "{refusal}");
    }
}

#[tokio::test]
async fn finalizers_of_others_stay() {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    let upgrade = cluster.upgrade().await;
    let set = |target: Target, present: bool| Action::SetUpgradeFinalizer { target, present };
    let held = written(&cluster, &set(target(&upgrade), true)).await.target();
    let api = cluster.api::<ClusterUpgrade>(HOME);
    assert_eq!(api.get("edge-1").await.unwrap().finalizers(), [names::FINALIZER]);
    let refusal = run(&cluster, &set(target(&upgrade), false)).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    api.delete("edge-1", &DeleteParams::default()).await.unwrap();
    let deleting = api.get("edge-1").await.unwrap();
    assert!(target(&deleting).revision > held.revision);
    let gone = run(&cluster, &set(target(&deleting), false)).await.unwrap();
    assert!(
        matches!(
            gone,
            Outcome::Gone {
                kind: Kind::ClusterUpgrade,
                ..
            }
        ),
        "{gone:?}"
    );
    assert!(api.get_opt("edge-1").await.unwrap().is_none());

    let up = cluster.node_upgrade(&node).await;
    let Object::NodeUpgrade(left) = written(&cluster, &Action::RemoveNodeFinalizer { target: target(&up) }).await
    else {
        panic!()
    };
    assert_eq!(left.finalizers(), ["example.com/other"]);

    let group = cluster.workers().await;
    let of_group = |target: Target| Action::SetGroupFinalizer {
        target,
        of: StageKind::Workers,
        present: true,
    };
    let Object::Workers(held) = written(&cluster, &of_group(target(&group))).await else {
        panic!()
    };
    assert_eq!(held.finalizers(), [names::FINALIZER]);
}

#[tokio::test]
async fn machines_and_wishes_are_set() {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    let machines = vec![ObjectRef {
        kind: "Node".to_owned(),
        name: "worker-1".to_owned(),
        uid: node.metadata.uid.clone(),
        ..ObjectRef::default()
    }];
    let (cp, workers) = (cluster.control_plane().await, cluster.workers().await);
    let set = Action::SetControlPlaneMachines {
        target: target(&cp),
        machines: machines.clone(),
    };
    let Object::ControlPlane(cp) = written(&cluster, &set).await else {
        panic!()
    };
    assert_eq!(cp.spec.machines_require_upgrade, machines);
    let set = Action::SetWorkersMachines {
        target: target(&workers),
        machines: machines.clone(),
    };
    let Object::Workers(workers) = written(&cluster, &set).await else {
        panic!()
    };
    assert_eq!(workers.spec.machines_require_upgrade, machines);

    let mut up = cluster.node_upgrade(&node).await;
    for (desired, because) in [
        (DesiredNodeState::Upgraded, None),
        (DesiredNodeState::RolledBack, Some(Reason::Deferred)),
    ] {
        let set = Action::SetDesired {
            target: target(&up),
            desired,
            attempt: 1,
            because,
        };
        let Object::NodeUpgrade(answer) = written(&cluster, &set).await else {
            panic!()
        };
        assert_eq!((answer.spec.desired, answer.spec.attempt), (desired, 1));
        let said = answer.annotations().get(annotations::BECAUSE).map(String::as_str);
        assert_eq!(said, because.map(|_| "Deferred"));
        up = *answer;
    }
}

#[tokio::test]
async fn the_lock_is_held_by_one() {
    let cluster = Cluster::new().await;
    let take = |holder: &str| Action::TakeLock {
        namespace: Arc::from(HOME),
        holder: Uid::from(holder),
        kind: "ClusterUpgrade",
        name: Arc::from("edge-1"),
    };
    let lock = written(&cluster, &take("one")).await.target();
    assert_eq!(written(&cluster, &take("one")).await.target(), lock, "ours already");
    let refusal = run(&cluster, &take("two")).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Taken), "{refusal}");
    let refusal = run(&cluster, &Action::ReleaseLock { lock: other(&lock) })
        .await
        .unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    run(&cluster, &Action::ReleaseLock { lock: lock.clone() })
        .await
        .unwrap();
    assert!(cluster.api::<Lease>(HOME).get_opt(names::LOCK).await.unwrap().is_none());
    assert!(matches!(
        run(&cluster, &Action::ReleaseLock { lock }).await,
        Ok(Outcome::Gone { .. })
    ));
}

type Make = fn(Target) -> Action;
type Check = fn(&Node) -> bool;

fn has(node: &Node, key: &str, value: &str) -> bool {
    node.annotations().get(key).is_some_and(|there| there == value)
}

#[tokio::test]
async fn a_node_is_cordoned_and_put_back_in_one_write_each() {
    let cluster = Cluster::new().await;
    cluster.node("worker-1", json!({})).await;
    let wish = json!({"metadata": {"annotations": {annotations::WISH: "defer", "example.com/own": "stays"}}});
    let node = cluster
        .nodes()
        .patch("worker-1", &PatchParams::default(), &Patch::Merge(wish))
        .await
        .unwrap();
    let steps: [(Make, Check); 4] = [
        (
            |node| Action::Cordon {
                node,
                by: Uid::from("u-1"),
            },
            |node| {
                node.spec.as_ref().unwrap().unschedulable == Some(true) && has(node, annotations::CORDONED_BY, "u-1")
            },
        ),
        (
            |node| Action::UnpauseNode { node, left: None },
            |node| {
                let left = node.annotations();
                !left.contains_key(annotations::PAUSE) && !left.contains_key(annotations::PAUSED_BY)
            },
        ),
        (
            |node| Action::ClearWish { node },
            |node| !node.annotations().contains_key(annotations::WISH),
        ),
        (
            |node| Action::Uncordon { node },
            |node| {
                node.spec.as_ref().unwrap().unschedulable != Some(true)
                    && !node.annotations().contains_key(annotations::CORDONED_BY)
            },
        ),
    ];
    let mut state = target(&node);
    for (make, check) in steps {
        let action = make(state.clone());
        let refusal = run(&cluster, &make(stale(&state))).await.unwrap_err();
        assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
        assert!(run(&cluster, &make(other(&state))).await.is_err(), "{}", action.name());
        let answer = written(&cluster, &action).await.target();
        let there = cluster.nodes().get("worker-1").await.unwrap();
        assert_eq!(
            target(&there),
            answer,
            "{}: one write, and the answer is what is there",
            action.name()
        );
        assert!(check(&there), "{}: {there:?}", action.name());
        assert!(has(&there, "example.com/own", "stays"), "{}", action.name());
        state = answer;
    }
}

/// Whoever decides on old news pauses no node for an upgrade that nobody will end any more.
#[tokio::test]
async fn a_node_is_paused_only_for_an_upgrade_that_goes_on() {
    let cluster = Cluster::new().await;
    cluster.node("worker-1", json!({})).await;
    let upgrade = cluster
        .make::<ClusterUpgrade>(
            HOME,
            json!({"metadata": {"name": "up", "finalizers": [names::FINALIZER]}, "spec": {"kubernetesVersion": "v1.36.3"}}),
        )
        .await;
    let pause = async |upgrade: Target| {
        let node = target(&cluster.nodes().get("worker-1").await.unwrap());
        run(&cluster, &Action::PauseNode { node, upgrade }).await
    };
    let of = target(&upgrade);
    assert!(pause(other(&of)).await.is_err(), "another one of that name");
    let key = Key::new(HOME, "gone");
    assert!(pause(Target { key, ..of.clone() }).await.is_err(), "one that is gone");
    assert!(!has(
        &cluster.nodes().get("worker-1").await.unwrap(),
        annotations::PAUSE,
        "true"
    ));

    pause(of.clone()).await.unwrap();
    let node = cluster.nodes().get("worker-1").await.unwrap();
    assert!(has(&node, annotations::PAUSE, "true") && has(&node, annotations::PAUSED_BY, of.uid.as_str()));
    let unpause = Action::UnpauseNode {
        node: target(&node),
        left: None,
    };
    run(&cluster, &unpause).await.unwrap();

    let upgrades = cluster.api::<ClusterUpgrade>(HOME);
    upgrades.delete("up", &DeleteParams::default()).await.unwrap();
    let refusal = pause(of).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    assert!(!has(
        &cluster.nodes().get("worker-1").await.unwrap(),
        annotations::PAUSE,
        "true"
    ));
}

/// Where a pod is asked to leave from is looked at before a whole batch of them, not here.
fn somewhere() -> Place {
    Place {
        node: NodeName::from("worker-1"),
        uid: Uid::from("u"),
        cordoned_by: None,
    }
}

#[tokio::test]
async fn a_budget_refuses_an_eviction_and_that_is_an_answer() {
    let cluster = Cluster::new().await;
    let pod = cluster.pod("shop", "web-1", "worker-1").await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = cluster.api::<Pod>("shop");
    pods.patch_status("web-1", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    cluster.make::<PodDisruptionBudget>("shop", budget).await;
    let allow = async |allowed: i32| {
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1}});
        let api = cluster.api::<PodDisruptionBudget>("shop");
        api.patch_status("web", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    };
    let evict = |pod: Target| Action::Evict {
        pod,
        grace_seconds: Some(5),
        from: somewhere(),
    };
    allow(0).await;
    let said = run(&cluster, &evict(target(&pod))).await.unwrap();
    assert!(
        matches!(&said, Outcome::RefusedByBudget { message } if message.contains("budget")),
        "{said:?}"
    );
    allow(1).await;
    let refusal = run(&cluster, &evict(other(&target(&pod)))).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    // The API server had taken the eviction from the budget before it saw that the uid is another.
    allow(1).await;
    let said = run(&cluster, &evict(target(&pod))).await;
    assert!(matches!(said, Ok(Outcome::Evicting { .. })), "{said:?}");
    assert_eq!(
        pods.get("web-1").await.unwrap().metadata.deletion_grace_period_seconds,
        Some(5)
    );
    pods.delete("web-1", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(matches!(
        run(&cluster, &evict(target(&pod))).await,
        Ok(Outcome::Gone { .. })
    ));
}

#[tokio::test]
async fn a_pod_is_deleted_past_its_budget_with_its_grace() {
    let cluster = Cluster::new().await;
    let pod = cluster.pod("shop", "web-1", "worker-1").await;
    let action = |pod: Target| Action::DeletePastBudget {
        pod,
        grace_seconds: Some(7),
        budget: Key::new("shop", "web"),
        from: somewhere(),
    };
    let refusal = run(&cluster, &action(other(&target(&pod)))).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    let Object::Pod(ending) = written(&cluster, &action(target(&pod))).await else {
        panic!()
    };
    assert!(ending.ending.is_some());
    let there = cluster.api::<Pod>("shop").get("web-1").await.unwrap();
    assert_eq!(there.metadata.deletion_grace_period_seconds, Some(7));
}

/// It may end before it hears of the pause: whoever put it there takes it back.
#[tokio::test]
async fn a_pause_does_not_outlive_an_upgrade_that_is_deleted_in_the_same_moment() {
    let mut cluster = Cluster::new().await;
    cluster.node("worker-1", json!({})).await;
    let body = json!({"metadata": {"name": "up"}, "spec": {"kubernetesVersion": "v1.36.3"}});
    let upgrade = cluster.make::<ClusterUpgrade>(HOME, body).await;
    let node = target(&cluster.nodes().get("worker-1").await.unwrap());
    let (inner, upgrades) = (cluster.client.clone(), cluster.api::<ClusterUpgrade>(HOME));
    let patches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&patches);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, upgrades, counted) = (inner.clone(), upgrades.clone(), Arc::clone(&counted));
        async move {
            if request.method() == http::Method::PATCH && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                upgrades.delete("up", &DeleteParams::default()).await?;
            }
            inner.send(request).await
        }
    });
    cluster.clients = Clients::of(kube::Client::new(service, HOME));
    let pause = Action::PauseNode {
        node,
        upgrade: target(&upgrade),
    };
    let refusal = run(&cluster, &pause).await.unwrap_err();
    assert!(matches!(refusal.cause, Cause::Gone), "{refusal}");
    let annotations = cluster.nodes().get("worker-1").await.unwrap().metadata.annotations;
    assert!(annotations.is_none_or(|all| all.is_empty()), "it would stay for ever");
    assert_eq!(patches.load(Ordering::SeqCst), 2);
}
