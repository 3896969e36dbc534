//! Pods of steps: none starts where it must not, and each is removed by its uid.

use super::*;

pub fn task_pod(uid: &str) -> TaskPod {
    TaskPod {
        key: Key::new(HOME, "worker-1-up-stage-1"),
        node: NodeName::from("worker-1"),
        node_uid: Uid::from("n"),
        task: Task::Stage,
        attempt: 1,
        upgrade_uid: Uid::from(uid),
        owner: Target {
            key: Key::new(HOME, "worker-1-up"),
            uid: Uid::from("owner"),
            revision: Revision(1),
        },
        steps: vec![StepContainer {
            name: "stage".to_owned(),
            image: "registry.example/afloat:1".to_owned(),
            args: vec!["node".to_owned(), "stage".to_owned()],
            ..StepContainer::default()
        }],
        emptied: false,
    }
}

#[tokio::test]
async fn p24_no_step_starts_on_a_node_with_a_pod_on_it_that_no_watch_told_of() {
    let cluster = Cluster::new().await;
    cluster.pod("shop", "elsewhere", "worker-2").await;
    let late = cluster.pod("shop", "late", "worker-1").await;
    let node = cluster.node("worker-1", json!({})).await;
    cordon(&cluster).await;
    let action = Action::CreatePod(Box::new(work_pod(&node)));
    let refusal = run(&cluster, &action).await.unwrap_err();
    assert!(
        matches!(&refusal.cause, Cause::Conflict(why) if why.contains("shop/late")),
        "{refusal}"
    );
    let now = DeleteParams::default().grace_period(0);
    cluster.api::<Pod>("shop").delete(&late.name_any(), &now).await.unwrap();
    written(&cluster, &action).await;
}

async fn cordon(cluster: &Cluster) {
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let params = PatchParams::default();
    cluster.nodes().patch("worker-1", &params, &patch).await.unwrap();
}

fn work_pod(node: &Node) -> TaskPod {
    TaskPod {
        task: Task::Upgrade,
        node_uid: Uid::from(node.uid().unwrap_or_default().as_str()),
        emptied: true,
        ..task_pod("u-1")
    }
}

/// A person has uncordoned it, or replaced the machine, and no watch has told of it.
#[tokio::test]
async fn no_step_starts_on_a_node_that_is_not_cordoned_any_more_or_another_one() {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    let task = work_pod(&node);
    let another = TaskPod {
        node_uid: Uid::from("another"),
        ..task.clone()
    };
    let refused = async |task: &TaskPod| {
        let action = Action::CreatePod(Box::new(task.clone()));
        run(&cluster, &action).await.unwrap_err().to_string()
    };
    let said = refused(&task).await;
    assert!(said.contains("is not cordoned any more"), "{said}");
    cordon(&cluster).await;
    let said = refused(&another).await;
    assert!(said.contains("is another machine by now"), "{said}");
    written(&cluster, &Action::CreatePod(Box::new(task))).await;
}

#[tokio::test]
async fn p24_p27_a_task_pod_is_accepted_and_removed_by_its_uid() {
    let cluster = Cluster::new().await;
    let Object::Pod(pod) = written(&cluster, &Action::CreatePod(Box::new(task_pod("u-1")))).await else {
        panic!()
    };
    assert_eq!(pod.task.as_ref().map(|task| &*task.task), Some("stage"));
    let spec = cluster
        .api::<Pod>(HOME)
        .get("worker-1-up-stage-1")
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(
        (spec.node_name.as_deref(), spec.automount_service_account_token),
        (Some("worker-1"), Some(false))
    );

    let refusal = run(
        &cluster,
        &Action::DeletePod {
            pod: other(&pod.target()),
        },
    )
    .await
    .unwrap_err();
    assert!(matches!(refusal.cause, Cause::Conflict(_)), "{refusal}");
    // The pod is bound, so that the kubelet has to let it go: the answer shows it ending.
    let Object::Pod(ending) = written(&cluster, &Action::DeletePod { pod: pod.target() }).await else {
        panic!()
    };
    assert!(ending.ending.is_some());
    let delete = DeleteParams::default().grace_period(0);
    cluster
        .api::<Pod>(HOME)
        .delete("worker-1-up-stage-1", &delete)
        .await
        .unwrap();
    let gone = run(&cluster, &Action::DeletePod { pod: pod.target() }).await.unwrap();
    assert!(matches!(gone, Outcome::Gone { kind: Kind::Pod, .. }), "{gone:?}");
}
