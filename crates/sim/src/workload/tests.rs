use super::*;
use crate::request::{Request, Verb};
use crate::testing::{Stage, pod};

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } })
}

fn created(requests: &[Request]) -> usize {
    requests
        .iter()
        .filter(|r| r.verb == Verb::Create && !r.best_effort)
        .count()
}

fn deleted(requests: &[Request]) -> Vec<&str> {
    requests
        .iter()
        .filter(|r| r.verb == Verb::Delete)
        .map(|r| r.name.as_str())
        .collect()
}

fn replicas_written<'a>(requests: &'a [Request], name: &str) -> Option<&'a Value> {
    let patch = requests
        .iter()
        .find(|r| r.verb == Verb::MergePatch && r.name == name && r.subresource.is_none())?;
    patch.body.as_ref()?.pointer("/spec/replicas")
}

#[test]
fn shares_are_rounded_as_asked() {
    let percent = |text: &str| IntOrString::String(text.to_owned());
    assert_eq!(scaled(Some(&percent("25%")), 4, false, "0"), 1);
    assert_eq!(scaled(Some(&percent("25%")), 3, false, "0"), 0);
    assert_eq!(scaled(Some(&percent("25%")), 3, true, "0"), 1);
    assert_eq!(scaled(Some(&IntOrString::Int(2)), 3, true, "0"), 2);
    assert_eq!(scaled(None, 5000, true, "1"), 1);
}

fn replica_set(replicas: i32) -> Value {
    json!({
        "metadata": { "name": "rs", "namespace": "shop" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template() },
    })
}

#[test]
fn a_replica_set_makes_what_is_missing_and_ends_the_least_useful() {
    let mut stage = Stage::new(ReplicaSets);
    stage.put(Kind::ReplicaSet, replica_set(3));
    stage.put(Kind::Pod, pod("rs-ready", "n1", true, Some(("ReplicaSet", "rs"))));
    let mut leaving = pod("rs-leaving", "n1", true, Some(("ReplicaSet", "rs")));
    leaving["metadata"]["deletionTimestamp"] = "2026-11-15T11:59:59Z".into();
    stage.put(Kind::Pod, leaving);
    let requests = stage.look(Kind::ReplicaSet, "shop", "rs").requests;
    assert_eq!(created(&requests), 2, "one on its way out does not count");

    stage.put(Kind::Pod, pod("rs-unready", "n2", false, Some(("ReplicaSet", "rs"))));
    stage.put(Kind::Pod, pod("rs-nowhere", "", false, Some(("ReplicaSet", "rs"))));
    stage.put(Kind::ReplicaSet, replica_set(1));
    let requests = stage.look(Kind::ReplicaSet, "shop", "rs").requests;
    assert_eq!(deleted(&requests), ["rs-nowhere", "rs-unready"]);
}

fn deployment(image: &str) -> Value {
    let mut template = template();
    template["spec"]["containers"][0]["image"] = image.into();
    json!({
        "metadata": { "name": "web", "namespace": "shop", "annotations": { "deployment.kubernetes.io/revision": "1" } },
        "spec": {
            "replicas": 4, "selector": { "matchLabels": { "app": "web" } }, "template": template,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } },
        },
    })
}

/// The ReplicaSet the controller asked for, with a status.
fn made(requests: &[Request], asked: i32, available: i32) -> Value {
    let mut set = requests
        .iter()
        .find(|r| r.verb == Verb::Create && !r.best_effort)
        .unwrap()
        .body
        .clone()
        .unwrap();
    set["spec"]["replicas"] = asked.into();
    set["status"] = json!({ "replicas": asked, "readyReplicas": available, "availableReplicas": available });
    set
}

#[test]
fn a_rollout_stays_within_surge_and_unavailability() {
    let mut stage = Stage::new(Deployments);
    stage.put(Kind::Deployment, deployment("i:1"));
    let first = stage.look(Kind::Deployment, "shop", "web").requests;
    let old = made(&first, 4, 4);
    assert_eq!(first[0].body.as_ref().unwrap()["spec"]["replicas"], 4);
    stage.put(Kind::ReplicaSet, old.clone());
    assert!(
        replicas_written(
            &stage.look(Kind::Deployment, "shop", "web").requests,
            old["metadata"]["name"].as_str().unwrap()
        )
        .is_none()
    );

    stage.put(Kind::Deployment, deployment("i:2"));
    let second = stage.look(Kind::Deployment, "shop", "web").requests;
    let new = made(&second, 1, 0);
    assert_ne!(new["metadata"]["name"], old["metadata"]["name"]);
    assert_eq!(
        second[0].body.as_ref().unwrap()["spec"]["replicas"],
        1,
        "one more than asked for, no more"
    );
    assert_eq!(
        second[0].body.as_ref().unwrap()["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    stage.put(Kind::ReplicaSet, new);
    let third = stage.look(Kind::Deployment, "shop", "web").requests;
    let old_name = old["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        replicas_written(&third, old_name),
        Some(&json!(3)),
        "three of four must go on serving"
    );
}

#[test]
fn a_paused_deployment_starts_no_rollout() {
    let mut stage = Stage::new(Deployments);
    let mut paused = deployment("i:1");
    paused["spec"]["paused"] = true.into();
    stage.put(Kind::Deployment, paused);
    assert_eq!(created(&stage.look(Kind::Deployment, "shop", "web").requests), 0);
}

fn node(name: &str, taints: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "taints": taints } })
}

fn daemon_set() -> Value {
    json!({
        "metadata": { "name": "agent", "namespace": "shop" },
        "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template() },
    })
}

#[test]
fn daemons_run_on_every_node_that_takes_them_and_stay_on_one_that_turned_bad() {
    let control_plane = json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    let mut stage = Stage::new(DaemonSets);
    stage.put(Kind::Node, node("cp-1", &control_plane));
    stage.put(Kind::Node, node("w1", &json!([])));
    let cordon = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
    stage.put(Kind::Node, node("w2", &cordon));
    stage.put(Kind::DaemonSet, daemon_set());
    let requests = stage.look(Kind::DaemonSet, "shop", "agent").requests;
    assert_eq!(
        created(&requests),
        2,
        "not on the control plane, but on the cordoned worker"
    );

    stage.put(Kind::Pod, pod("agent-1", "w1", true, Some(("DaemonSet", "agent"))));
    stage.put(
        Kind::Node,
        node(
            "w1",
            &json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" }]),
        ),
    );
    let requests = stage.look(Kind::DaemonSet, "shop", "agent").requests;
    assert_eq!(deleted(&requests), [""; 0]);
    stage.put(Kind::Pod, pod("agent-2", "cp-1", true, Some(("DaemonSet", "agent"))));
    let stray = stage.look(Kind::DaemonSet, "shop", "agent").requests;
    assert_eq!(
        deleted(&stray),
        [""; 0],
        "a NoSchedule taint that came later ends nobody"
    );
}

fn stateful_set(replicas: i32, image: &str) -> Value {
    let mut template = template();
    template["spec"]["containers"][0]["image"] = image.into();
    json!({
        "metadata": { "name": "db", "namespace": "shop" },
        "spec": { "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": { "app": "web" } }, "template": template },
    })
}

#[test]
fn stateful_pods_come_one_by_one_and_are_renewed_from_the_last() {
    let mut stage = Stage::new(StatefulSets);
    stage.put(Kind::StatefulSet, stateful_set(2, "i:1"));
    let first = stage.look(Kind::StatefulSet, "shop", "db").requests;
    assert_eq!(created(&first), 1);
    let hash = first[0].body.as_ref().unwrap()["metadata"]["labels"]["controller-revision-hash"].clone();
    let member = |ordinal: usize, ready: bool| {
        let mut member = pod(&format!("db-{ordinal}"), "n1", ready, Some(("StatefulSet", "db")));
        member["metadata"]["labels"]["controller-revision-hash"] = hash.clone();
        member
    };
    stage.put(Kind::Pod, member(0, false));
    assert_eq!(
        created(&stage.look(Kind::StatefulSet, "shop", "db").requests),
        0,
        "the first is not up yet"
    );
    stage.put(Kind::Pod, member(0, true));
    assert_eq!(created(&stage.look(Kind::StatefulSet, "shop", "db").requests), 1);
    stage.put(Kind::Pod, member(1, true));
    assert!(deleted(&stage.look(Kind::StatefulSet, "shop", "db").requests).is_empty());
    stage.put(Kind::StatefulSet, stateful_set(2, "i:2"));
    assert_eq!(deleted(&stage.look(Kind::StatefulSet, "shop", "db").requests), ["db-1"]);
}

#[test]
fn a_job_runs_until_enough_succeeded() {
    let mut stage = Stage::new(Jobs);
    let job = json!({
        "metadata": { "name": "import", "namespace": "shop" },
        "spec": { "completions": 2, "parallelism": 1, "template": template() },
    });
    stage.put(Kind::Job, job);
    assert_eq!(created(&stage.look(Kind::Job, "shop", "import").requests), 1);
    for name in ["import-1", "import-2"] {
        let mut ended = pod(name, "n1", false, Some(("Job", "import")));
        ended["status"]["phase"] = "Succeeded".into();
        stage.put(Kind::Pod, ended);
    }
    let requests = stage.look(Kind::Job, "shop", "import").requests;
    assert_eq!(created(&requests), 0);
    let conditions = &requests[0].body.as_ref().unwrap()["status"]["conditions"];
    assert_eq!(
        (&conditions[0]["type"], &conditions[1]["type"]),
        (&json!("SuccessCriteriaMet"), &json!("Complete"))
    );
}
