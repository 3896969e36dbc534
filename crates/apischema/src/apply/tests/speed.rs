//! What tracking one write costs. Not a check: run it in release, alone, and read the figures
//! (`cargo test --release -p afloat-apischema speed -- --ignored --nocapture`).

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};

use crate::apply::{FieldSet, Manager, apply, track_update};

use super::recorded::kind_schema;

fn node() -> Value {
    let conditions: Vec<Value> = [
        "NetworkUnavailable",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "Ready",
    ]
    .iter()
    .map(|name| {
        json!({
            "type": name, "status": "False", "reason": format!("KubeletHas{name}"), "message": "kubelet says so",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    })
    .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "worker-1", "uid": "0b7f2a5e-0000-4000-8000-000000000001", "resourceVersion": "1234",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": "worker-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": "",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed": "true"},
        },
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "kind://docker/worker-1"},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "8", "memory": "31Gi", "pods": "110", "ephemeral-storage": "90Gi"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.11"}, {"type": "Hostname", "address": "worker-1"}],
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "containerd://2.3.7",
                "kernelVersion": "6.18.0", "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "m",
                "operatingSystem": "linux", "osImage": "Debian GNU/Linux 12 (bookworm)", "systemUUID": "s",
            },
        },
    })
}

fn manager(name: &'static str, subresource: Option<&'static str>) -> Manager<'static> {
    let time = "2026-01-01T00:00:00Z";
    Manager {
        name,
        api_version: "v1",
        kind: "Node",
        subresource,
        time,
        other_versions: &[],
    }
}

/// A node with four managers: who created it, its kubelet's status, and two controllers.
fn managed_node() -> Value {
    let schema = kind_schema("Node");
    let status = FieldSet::from_paths(&["status"]);
    let mut object = node();
    track_update(
        schema.root(),
        None,
        &mut object,
        &manager("kubeadm", None),
        Some(&status),
    );
    let steps = [
        ("kubelet", Some("status"), "/status/nodeInfo/kubeletVersion"),
        (
            "kube-controller-manager",
            None,
            "/metadata/annotations/node.alpha.kubernetes.io~1ttl",
        ),
        ("kubectl-label", None, "/metadata/labels/kubernetes.io~1os"),
    ];
    for (name, subresource, pointer) in steps {
        let mut new = object.clone();
        *new.pointer_mut(pointer).unwrap() = json!("changed");
        if subresource.is_some() {
            new["status"]["capacity"]["cpu"] = json!("9");
            new["status"]["conditions"][4]["status"] = json!("True");
        }
        track_update(
            schema.root(),
            Some(&object),
            &mut new,
            &manager(name, subresource),
            None,
        );
        object = new;
    }
    object
}

fn measure(what: &str, mut run: impl FnMut() -> std::time::Duration) {
    const ROUNDS: u32 = 5_000;
    for _ in 0..500 {
        run();
    }
    let mut times: Vec<std::time::Duration> = (0..ROUNDS).map(|_| run()).collect();
    times.sort();
    let total: std::time::Duration = times.iter().sum();
    println!("{what}: mean {:?}, median {:?}", total / ROUNDS, times[times.len() / 2]);
}

#[test]
#[ignore = "measures; does not check"]
fn speed() {
    let schema = kind_schema("Node");
    let live = managed_node();
    let reset = FieldSet::from_paths(&["status"]);
    let entries = live["metadata"]["managedFields"].as_array().unwrap().len();
    println!("node of {} bytes with {entries} managers", live.to_string().len());
    let track = |live: Option<&Value>, new: &Value, name: &'static str| {
        let mut new = new.clone();
        let start = Instant::now();
        track_update(schema.root(), live, &mut new, &manager(name, None), Some(&reset));
        let taken = start.elapsed();
        black_box(new);
        taken
    };
    let mut labelled = live.clone();
    labelled["metadata"]["labels"]["upgrade"] = json!("now");
    measure("one label, new manager", || track(Some(&live), &labelled, "afloat"));
    measure("one label, known manager", || {
        track(Some(&live), &labelled, "kubectl-label")
    });
    let mut relabelled = live.clone();
    relabelled["metadata"]["labels"]["kubernetes.io/os"] = json!("linux");
    measure("value of an own label", || {
        track(Some(&live), &relabelled, "kubectl-label")
    });
    let mut bare = labelled.clone();
    bare["metadata"].as_object_mut().unwrap().remove("managedFields");
    measure("one label, put without managedFields", || {
        track(Some(&live), &bare, "afloat")
    });
    measure("nothing changed", || track(Some(&live), &live, "afloat"));
    measure("create", || track(None, &node(), "kubeadm"));
    let applied = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1", "labels": {"upgrade": "now"}},
    });
    measure("apply one label", || {
        let start = Instant::now();
        black_box(
            apply(
                schema.root(),
                Some(&live),
                &applied,
                &manager("afloat", None),
                false,
                Some(&reset),
            )
            .is_ok(),
        );
        start.elapsed()
    });
}
