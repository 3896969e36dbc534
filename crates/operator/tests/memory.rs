//! What the view costs: 250 MiB at 5,000 nodes and 150,000 pods is the bar; here a tenth of it, in a process of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use afloat_operator::snapshot::{Keeper, reduce};
use serde_json::{Value, json};

const NODES: usize = 500;
const PODS: usize = 15_000;
const LIMIT_MIB: usize = 25;

/// Memory of this process that is in use.
fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn node(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("worker-{number:04}.site.example"), "uid": format!("5f2f4c6e-1111-4222-8333-{number:012}"),
            "resourceVersion": (number + 1).to_string(),
            "labels": {"kubernetes.io/hostname": format!("worker-{number:04}"), "topology.kubernetes.io/zone": format!("z{}", number % 3),
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.35.4", "containerRuntimeVersion": "containerd://2.0.1", "osImage": "Linux"}},
    })
}

/// A pod as a cluster has them: of a Deployment, with what the API server and the kubelet write into it.
fn pod(number: usize) -> Value {
    let app = number % (PODS / 30);
    json!({
        "metadata": {"name": format!("app-{app}-7d9f6c5b4-{number:05}"), "namespace": format!("team-{}", app % 40),
            "uid": format!("0b2f4c6e-1111-4222-8333-{number:012}"), "resourceVersion": (number + 1_000_000).to_string(),
            "labels": {"app": format!("app-{app}"), "pod-template-hash": "7d9f6c5b4", "team": format!("team-{}", app % 40)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{app}-7d9f6c5b4"),
                "uid": format!("{app:036}"), "controller": true}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}]},
        "spec": {"nodeName": format!("worker-{:04}.site.example", number % NODES), "priority": 0,
            "containers": [{"name": "main", "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn a_view_of_many_pods_stays_small() {
    let mut keeper = Keeper::new("afloat");
    let before = resident_mib();
    for number in 0..NODES {
        keeper.answered(reduce::node(serde_json::from_value(node(number)).unwrap()).unwrap());
    }
    for number in 0..PODS {
        keeper.answered(reduce::pod(serde_json::from_value(pod(number)).unwrap()).unwrap());
    }
    let grown = resident_mib() - before;
    println!("{PODS} pods on {NODES} nodes: {grown} MiB");
    assert_eq!((keeper.view().nodes.len(), keeper.view().pods().len()), (NODES, PODS));
    assert!(grown < LIMIT_MIB, "{grown} MiB for {PODS} pods on {NODES} nodes");
}
