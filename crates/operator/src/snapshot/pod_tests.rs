use super::*;
use serde_json::{Value, json};

fn read(object: Value) -> Pod {
    pod(serde_json::from_value(object).unwrap()).unwrap()
}

fn meta(labels: &Value) -> Value {
    json!({"name": "web-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "labels": labels})
}

#[test]
fn a_pod_asks_for_the_larger_of_its_start_and_its_run() {
    let container = |cpu: &str, policy: Option<&str>| json!({"resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}, "restartPolicy": policy});
    for (what, spec, milli) in [
        (
            "containers add up",
            json!({"containers": [container("100m", None), container("0.2", None)]}),
            300,
        ),
        (
            "the largest init container counts",
            json!({"containers": [container("100m", None)],
                   "initContainers": [container("1", None), container("500m", None)]}),
            1000,
        ),
        (
            "sidecars go on beside containers and later init containers",
            json!({"containers": [container("100m", None)],
                   "initContainers": [container("50m", Some("Always")), container("1", None)]}),
            1050,
        ),
        (
            "the pod as a whole has precedence, the overhead is on top",
            json!({"containers": [container("3", None)], "resources": {"requests": {"cpu": "2"}},
                   "overhead": {"cpu": "10m"}}),
            2010,
        ),
    ] {
        let pod = read(json!({"metadata": meta(&json!({})), "spec": spec}));
        assert_eq!(pod.shape.requests.cpu_milli, milli, "{what}");
        assert_eq!(pod.shape.requests.pods, 1, "{what}");
    }
}

#[test]
fn what_a_drain_must_know_is_kept() {
    let pod = read(json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["example.com/hold"],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "nodeName": "worker-1", "priority": 5, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}],
            "volumes": [
                {"name": "scratch", "emptyDir": {"medium": "Memory"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
                {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "settings", "configMap": {"name": "settings"}},
            ],
            "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running", "startTime": "2026-01-02T03:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 1,
                "state": {"running": {"startedAt": "2026-01-02T03:02:00Z"}}}],
        },
    }));
    assert_eq!(pod.node, Some(NodeName::from("worker-1")));
    assert!(pod.ready && pod.shape.local_data && pod.static_part.is_none() && pod.task.is_none());
    assert_eq!(
        pod.started_at,
        Some("2026-01-02T03:02:00Z".parse().unwrap()),
        "the later of the two"
    );
    let ending = pod.ending.unwrap();
    assert!(ending.held_by_finalizer && ending.by == "2026-01-02T03:04:05Z".parse().unwrap());
    assert_eq!(*pod.shape.host_ports, [Arc::from("TCP/8080")]);
    assert_eq!(*pod.shape.claims, [Arc::from("data-web-1"), Arc::from("web-1-own")]);
    let [any, gpu] = pod.shape.tolerations.as_slice() else {
        panic!("{:?}", pod.shape.tolerations)
    };
    assert!(any.key.is_none() && any.value.is_none() && any.effect.is_none());
    assert_eq!(gpu.value.as_deref(), Some("yes"));
}

#[test]
fn p36_terms_say_into_which_namespaces_they_look_and_spreads_how_many_domains_they_want() {
    let term = |more: Value| {
        let mut term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"});
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spread =
            json!({"maxSkew": 1, "minDomains": 3, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let pod = read(
            json!({"metadata": meta(&json!({})), "spec": {"topologySpreadConstraints": [spread],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}),
        );
        assert_eq!(pod.shape.spread[0].min_domains, 3);
        pod.shape.pod_anti_affinity[0].clone()
    };
    let own = term(json!({}));
    assert!(own.is_local());
    let all = term(json!({"namespaceSelector": {}}));
    assert_eq!(all.namespace_selector.unwrap().requirements, []);
    let both = term(json!({"namespaces": ["shop"], "namespaceSelector": {"matchLabels": {"team": "a"}}}));
    assert_eq!(both.namespaces, [Arc::from("shop")]);
    assert_eq!(&*both.namespace_selector.unwrap().requirements[0].key, "team");
}

#[test]
fn pods_of_a_daemon_set_share_a_shape_although_each_is_pinned() {
    let of_daemon_set = |node: &str| {
        let mut meta = meta(&json!({"app": "agent"}));
        meta["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true}]);
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        read(json!({"metadata": meta, "spec": {"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}}))
    };
    assert_eq!(of_daemon_set("a").shape, of_daemon_set("b").shape);
}

#[test]
fn static_parts_are_told_by_label_or_image() {
    for (labels, image, component, version) in [
        (
            json!({"component": "etcd"}),
            "registry.k8s.io/etcd:3.6.8-0",
            Component::Etcd,
            None,
        ),
        (
            json!({"component": "kube-apiserver"}),
            "mirror.example:5000/kube-apiserver:v1.36.3@sha256:00",
            Component::ApiServer,
            Some("v1.36.3"),
        ),
        (
            json!({"component": "kube-scheduler"}),
            "kube-scheduler:v1.36.3_build1",
            Component::Scheduler,
            Some("v1.36.3+build1"),
        ),
        (json!({}), "ghcr.io/kube-vip/kube-vip:v1.0.1", Component::KubeVip, None),
        (json!({}), "example/own", Component::Other, None),
    ] {
        let mut meta = meta(&labels);
        meta["annotations"] = json!({MIRROR: "digest"});
        let pod = read(json!({"metadata": meta, "spec": {"containers": [{"image": image}]}}));
        let part = pod.static_part.unwrap();
        assert_eq!(part.component, component, "{image}");
        assert_eq!(
            part.version.map(|version| version.to_string()).as_deref(),
            version,
            "{image}"
        );
    }
}

#[test]
fn p24_a_task_pod_reports_each_of_its_steps() {
    let status = |name: &str, state: Value, last: Value, restarts: i32| {
        json!({"name": name, "image": "upgrader:1", "imageID": "", "ready": false, "restartCount": restarts,
               "state": state, "lastState": last})
    };
    let ended = |code: i32, message: &str| {
        json!({"terminated": {"exitCode": code, "message": message,
               "startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:01:00Z"}})
    };
    let pod = read(json!({
        "metadata": meta(&json!({"afloat.dev/task": "upgrade", "afloat.dev/attempt": "2"})),
        "status": {
            "initContainerStatuses": [
                status("containerd", ended(0, "{\"outcome\":\"Done\"}"), json!({}), 0),
                status("kubeadm", json!({"running": {"startedAt": "2026-01-02T03:02:00Z"}}), ended(10, "later"), 3),
                status("kubelet", json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}), json!({}), 0),
            ],
            "containerStatuses": [status("done", json!({"waiting": {"reason": "PodInitializing"}}), json!({}), 0)],
        },
    }));
    let task = pod.task.unwrap();
    assert_eq!((&*task.task, task.attempt, task.containers.len()), ("upgrade", 2, 4));
    assert_eq!(task.containers["containerd"].ended.as_ref().unwrap().exit_code, 0);
    let kubeadm = &task.containers["kubeadm"];
    assert_eq!(kubeadm.restarts, 3);
    assert!(kubeadm.running_since.is_some(), "it runs again");
    assert_eq!(
        &*kubeadm.ended.as_ref().unwrap().message,
        "later",
        "and its last end is not forgotten"
    );
    assert_eq!(
        task.image_problem.as_deref(),
        Some("upgrader:1 (ImagePullBackOff): no such host")
    );
}

#[test]
fn p32_of_an_image_that_cannot_be_pulled_the_cause_is_told() {
    let long = "Back-off pulling image \"mirror:5000/bundle@sha256:3c91\": ErrImagePull: failed to pull and unpack image \"mirror:5000/bundle@sha256:3c91\": \
                failed to resolve image: failed to do request: Head \"http://mirror:5000/v2/bundle/manifests/sha256:3c91\": dial tcp: no route to host";
    for (message, expected) in [
        (long, "dial tcp: no route to host"),
        (
            "rpc error: mirror:5000/bundle:v1: not found",
            "rpc error: mirror:5000/bundle:v1: not found",
        ),
    ] {
        assert_eq!(cause(message), expected);
    }
}

#[test]
fn a_pod_that_cannot_be_read_says_what_is_wrong() {
    let odd =
        json!({"metadata": meta(&json!({})), "spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}});
    let problem = pod(serde_json::from_value(odd).unwrap()).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "shop/web-1 cannot be read: \"much\" is no amount of a resource"
    );
    let nameless = pod(serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u"}})).unwrap());
    assert!(nameless.unwrap_err().problem.contains("resourceVersion"));
}
