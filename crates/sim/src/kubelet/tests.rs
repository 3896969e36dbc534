use super::*;
use crate::request::Verb;
use crate::scenario::{Scenario, Shape};
use crate::testing::{Stage, pod};
use std::time::Duration;

fn machine(control_plane: bool) -> Machine {
    let machines = Scenario::Default.describe(&Shape::default()).machines;
    machines
        .into_iter()
        .find(|machine| machine.control_plane == control_plane)
        .unwrap()
}

fn status(requests: &[Request]) -> Option<&Value> {
    requests
        .iter()
        .find(|r| r.subresource == Some("status"))?
        .body
        .as_ref()?
        .get("status")
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == kind).unwrap()["status"]
        .as_str()
        .unwrap()
}

/// Looks until something is written, moving time along.
fn next_write(stage: &mut Stage<Kubelets>, name: &str) -> Vec<Request> {
    for _ in 0..20 {
        let decision = stage.look(Kind::Pod, "shop", name);
        if !decision.requests.is_empty() {
            return decision.requests;
        }
        stage.now = decision.again.expect("something is still to come");
    }
    panic!("nothing was written");
}

#[test]
fn a_kubelet_registers_once_brings_its_static_pods_and_renews_its_lease() {
    let machine = machine(true);
    let mut stage = Stage::new(Kubelets::new([machine.clone()], Site::new("v1.35.4", &[], 1.0)));
    let first = stage.look(Kind::Node, "", "cp-1");
    assert_eq!((first.requests.len(), &first.requests[0].verb), (1, &Verb::Create));

    stage.put(Kind::Node, first.requests[0].body.clone().unwrap());
    let second = stage.look(Kind::Node, "", "cp-1");
    assert_eq!(
        condition(status(&second.requests).unwrap(), "Ready"),
        "False",
        "it boots"
    );
    let mirrors: Vec<&Value> = second
        .requests
        .iter()
        .filter_map(|r| r.body.as_ref())
        .filter(|b| b["kind"] == "Pod")
        .collect();
    assert_eq!(mirrors.len(), 4);
    assert!(
        mirrors
            .iter()
            .all(|pod| pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string())
    );
    for mirror in mirrors {
        stage.put(Kind::Pod, mirror.clone());
    }
    let lease = second.requests.iter().find(|r| r.resource.plural == "leases").unwrap();
    assert_eq!(lease.verb, Verb::Create);
    stage.put(Kind::Lease, lease.body.clone().unwrap());

    stage.now = second.again.unwrap();
    let third = stage.look(Kind::Node, "", "cp-1");
    let node_status = status(&third.requests).unwrap();
    assert_eq!(condition(node_status, "Ready"), "True");
    assert_eq!(node_status["nodeInfo"]["kubeletVersion"], "v1.35.4");

    stage.now = third.again.unwrap();
    let fourth = stage.look(Kind::Node, "", "cp-1");
    assert_eq!(fourth.requests.len(), 1, "a heartbeat is one small write");
    assert_eq!(
        (fourth.requests[0].resource.plural.as_ref(), &fourth.requests[0].verb),
        ("leases", &Verb::MergePatch)
    );

    let gone = ObjectRef::cluster(Kind::Node, "cp-1");
    stage.view.remove(&gone, "cp-1");
    assert!(
        stage.look(Kind::Node, "", "cp-1").requests.is_empty(),
        "a deleted node stays away"
    );
}

#[test]
fn a_pod_sets_up_runs_its_init_containers_in_order_and_gets_ready() {
    let mut stage = Stage::new(Kubelets::new([machine(false)], Site::new("v1.35.4", &[], 1.0)));
    let mut value = pod("web-0", "worker-1", false, None);
    value["spec"]["initContainers"] = json!([{ "name": "one", "image": "i" }, { "name": "two", "image": "i" }]);
    value["status"] = json!({ "phase": "Pending" });
    stage.put(Kind::Pod, value);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let requests = next_write(&mut stage, "web-0");
        let status = status(&requests).unwrap().clone();
        let init = |index: usize| {
            status["initContainerStatuses"][index]["state"]
                .as_object()
                .unwrap()
                .keys()
                .next()
                .cloned()
                .unwrap()
        };
        seen.push(format!(
            "{} {}/{} {}",
            status["phase"].as_str().unwrap(),
            init(0),
            init(1),
            condition(&status, "Ready")
        ));
    }
    let expected = [
        "Pending waiting/waiting False",
        "Pending running/waiting False",
        "Pending terminated/running False",
        "Running terminated/terminated True",
    ];
    assert_eq!(seen, expected);
    assert!(
        stage.look(Kind::Pod, "shop", "web-0").requests.is_empty(),
        "then it has nothing more to say"
    );
}

#[test]
fn a_deleted_pod_gets_its_time_and_then_goes() {
    let mut stage = Stage::new(Kubelets::new([machine(false)], Site::new("v1.35.4", &[], 1.0)));
    let mut value = pod("web-0", "worker-1", true, None);
    value["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:30Z".into();
    value["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    stage.put(Kind::Pod, value);
    let started = stage.now;
    let killing = next_write(&mut stage, "web-0");
    assert!(killing.iter().all(|request| request.best_effort), "only an event yet");
    let last = next_write(&mut stage, "web-0");
    assert!(stage.now.duration_since(started).unsigned_abs() > Duration::from_millis(500));
    assert_eq!(status(&last).unwrap()["phase"], "Succeeded");
    assert_eq!(last[1].verb, Verb::Delete);
    let options = last[1].body.as_ref().unwrap();
    assert_eq!(
        (&options["gracePeriodSeconds"], &options["preconditions"]["uid"]),
        (&json!(0), &json!("web-0"))
    );
}

#[test]
fn a_pod_held_by_a_finalizer_is_left_alone_after_its_last_word() {
    let mut stage = Stage::new(Kubelets::new([machine(false)], Site::new("v1.35.4", &[], 1.0)));
    let mut value = pod("web-0", "worker-1", false, None);
    value["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z".into();
    value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    value["metadata"]["finalizers"] = json!(["example.org/hold"]);
    value["status"]["phase"] = "Succeeded".into();
    stage.put(Kind::Pod, value);
    assert!(stage.look(Kind::Pod, "shop", "web-0").requests.is_empty());
}

#[test]
fn batch_work_ends_and_a_mirror_pod_comes_back() {
    let mut stage = Stage::new(Kubelets::new([machine(true)], Site::new("v1.35.4", &[], 1.0)));
    let mut value = pod("import-1", "cp-1", true, None);
    value["spec"]["restartPolicy"] = "Never".into();
    stage.put(Kind::Pod, value);
    assert_eq!(
        status(&next_write(&mut stage, "import-1")).unwrap()["phase"],
        "Succeeded"
    );

    stage.put(Kind::Node, json!({ "metadata": { "name": "cp-1" } }));
    let again = stage.look(Kind::Pod, "kube-system", "etcd-cp-1").requests;
    assert_eq!((again.len(), &again[0].verb), (1, &Verb::Create));
    assert!(
        stage
            .look(Kind::Pod, "kube-system", "anything-else")
            .requests
            .is_empty()
    );
}

#[test]
fn a_report_that_was_overtaken_on_its_way_is_made_good() {
    let site = Site::new("v1.35.4", &[], 1.0);
    let mut stage = Stage::new(Kubelets::new([machine(true)], site.clone()));
    stage.put(Kind::Node, json!({ "metadata": { "name": "cp-1" } }));
    let mut mirror = stage.look(Kind::Pod, "kube-system", "etcd-cp-1").requests[0]
        .body
        .clone()
        .unwrap();
    stage.put(Kind::Pod, mirror.clone());
    let (now, kubelet) = (stage.now, stage.actor.by_machine.get_mut("cp-1").unwrap());
    kubelet.hosted = Some(Hosted::new(&kubelet.machine, &site, now));
    let told = |stage: &mut Stage<Kubelets>| {
        let requests = stage.look(Kind::Node, "", "cp-1").requests;
        let of_etcd = |request: &&Request| request.subresource == Some("status") && request.resource.plural == "pods";
        let found = requests.iter().find(of_etcd);
        found.map(|request| request.body.as_ref().unwrap()["status"].clone())
    };
    let status = told(&mut stage).expect("somebody works on it: it is looked at");
    assert_eq!(told(&mut stage), None, "the report is on its way");
    mirror["status"] = status.clone();
    stage.put(Kind::Pod, mirror.clone());
    assert_eq!(told(&mut stage), None, "it has arrived");
    // An earlier one comes after it.
    mirror["status"]["containerStatuses"][0]["ready"] =
        (!status["containerStatuses"][0]["ready"].as_bool().unwrap()).into();
    stage.put(Kind::Pod, mirror);
    assert_eq!(told(&mut stage), Some(status));
}

#[test]
fn a_mirror_that_was_lost_on_its_way_is_made_again() {
    let mut stage = Stage::new(Kubelets::new([machine(true)], Site::new("v1.35.4", &[], 1.0)));
    stage.put(Kind::Node, json!({ "metadata": { "name": "cp-1" } }));
    let mirrors = |stage: &mut Stage<Kubelets>| {
        let requests = stage.look(Kind::Node, "", "cp-1").requests;
        let made = requests
            .iter()
            .filter(|request| request.verb == Verb::Create && request.resource.plural == "pods");
        made.filter_map(|request| Some(request.body.as_ref()?["metadata"]["name"].as_str()?.to_owned()))
            .collect::<Vec<_>>()
    };
    let first = mirrors(&mut stage);
    assert!(first.contains(&"etcd-cp-1".to_owned()), "{first:?}");
    assert_eq!(mirrors(&mut stage), [""; 0], "they are on their way");
    stage.now = stage.now.checked_add(jiff::SignedDuration::from_mins(1)).unwrap();
    assert_eq!(mirrors(&mut stage), first);
}

#[test]
fn a_pod_address_is_free_again_when_its_pod_is_gone() {
    let mut stage = Stage::new(Kubelets::new([machine(false)], Site::new("v1.35.4", &[], 1.0)));
    let address = |stage: &mut Stage<Kubelets>, name: &str| {
        let mut value = pod(name, "worker-1", false, None);
        value["status"] = json!({ "phase": "Pending" });
        stage.put(Kind::Pod, value);
        next_write(stage, name);
        status(&next_write(stage, name)).unwrap()["podIP"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = address(&mut stage, "a");
    assert_ne!(first, address(&mut stage, "b"));
    let gone = stage
        .view
        .remove(&ObjectRef::new(Kind::Pod, Key::new("shop", "a")), "a")
        .unwrap();
    let (view, now) = (View::default(), stage.now);
    stage.actor.observe(&gone, &view, now, &mut stage.queue);
    assert_eq!(address(&mut stage, "c"), first);
}

/// One of Afloat's pods; its step has no plan, so that it fails and is told so.
fn task(name: &str, node: &str) -> Value {
    let mut value = pod(name, node, false, None);
    value["metadata"]["labels"] = json!({ afloat_api::labels::TASK: "stage" });
    value["spec"]["initContainers"] = json!([{ "name": "stage", "image": "i", "args": ["node", "stage"] }]);
    value["status"] = json!({ "phase": "Pending" });
    value
}

#[test]
fn what_was_refused_is_said_again_and_nothing_of_other_machines() {
    let machines = Scenario::Default.describe(&Shape::default()).machines;
    let workers: Vec<Machine> = machines.into_iter().filter(|machine| !machine.control_plane).collect();
    let names: Vec<String> = workers.iter().take(2).map(|machine| machine.name.clone()).collect();
    let mut stage = Stage::new(Kubelets::new(workers, Site::new("v1.35.4", &[], 1.0)));
    for (number, node) in names.iter().enumerate() {
        stage.put(Kind::Pod, task(&format!("stage-{number}"), node));
    }
    let told = |stage: &mut Stage<Kubelets>| {
        [0, 1].map(|number| {
            !stage
                .look(Kind::Pod, "shop", &format!("stage-{number}"))
                .requests
                .is_empty()
        })
    };
    assert_eq!(told(&mut stage), [true, true]);
    assert_eq!(told(&mut stage), [false, false], "it is on its way");
    let refusal = Failure {
        code: 409,
        reason: "Conflict".to_owned(),
        message: String::new(),
    };
    let item = ObjectRef::new(Kind::Pod, Key::new("shop", "stage-1"));
    stage.actor.refused(&item, &refusal);
    assert_eq!(told(&mut stage), [false, true]);
}

#[test]
fn work_that_is_quicker_than_a_look_may_be_is_looked_at_after_a_rest() {
    let mut site = Site::new("v1.35.4", &[], 600.0);
    site.rest = Duration::from_millis(50);
    let machine = machine(false);
    let mut hosted = Hosted::new(&machine, &site, crate::testing::noon());
    let plan = afloat_api::node::NodePlan {
        upgrade: "u".to_owned(),
        attempt: 1,
        node: machine.name.clone(),
        role: afloat_api::NodeRole::Worker,
        kubernetes_version: "v1.35.4".to_owned(),
        kubelet_version: "v1.35.4".to_owned(),
        via: Vec::new(),
        method: None,
        peers: Vec::new(),
        etcd_version: None,
        core_dns_version: None,
        undo_after_seconds: 900,
        bundle_key: None,
    };
    let mut now = crate::testing::noon();
    let inside = hosted.host.now();
    hosted.engine.begin(&mut hosted.host, &plan, "stage", inside).unwrap();
    hosted.attended = true;
    hosted.wake(now);
    let mut looks = 0;
    while let Some(next) = hosted.advance(now) {
        looks += 1;
        assert!(looks < 100, "it ends");
        now = next.max(after(now, Duration::from_millis(2)));
    }
    assert!(
        looks < 40,
        "{looks} looks at {} of work",
        now.duration_since(crate::testing::noon())
    );
}
