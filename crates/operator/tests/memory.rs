//! What the view costs: 250 MiB at 5,000 nodes and 150,000 pods is the bar; here a tenth of its pods and all
//! of its upgrades of nodes, in a process of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use afloat_api::NodeRole;
use afloat_api::node::NodePlan;
use afloat_operator::snapshot::{Keeper, reduce};
use serde_json::{Value, json};

const NODES: usize = 500;
const PODS: usize = 15_000;
const LIMIT_MIB: usize = 25;
/// As many as the largest cluster has nodes: all of them are there from the beginning of its upgrade to the end.
const UPGRADES: usize = 5_000;
const UPGRADES_LIMIT_MIB: usize = 40;

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

/// The upgrade of a node as the operator makes it and as it stands when its steps have ended: each step is told the same.
fn node_upgrade(number: usize) -> Value {
    let name = format!("worker-{number:04}.site.example");
    let plan = NodePlan {
        upgrade: "7c2f4c6e-1111-4222-8333-000000000001".to_owned(),
        attempt: 1,
        node: name.clone(),
        role: NodeRole::Worker,
        kubernetes_version: "v1.36.3".to_owned(),
        kubelet_version: "v1.36.3".to_owned(),
        via: Vec::new(),
        method: None,
        peers: Vec::new(),
        etcd_version: None,
        core_dns_version: None,
        undo_after_seconds: 900,
        bundle_key: None,
    };
    let env: Vec<Value> = plan
        .to_env()
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let words = ["containerd", "cni", "kubeadm", "kubelet"];
    let step = |step: &str| json!({"name": step, "image": "registry.example/afloat/upgrader:v1.36.3", "args": ["node", step], "env": env, "timeoutSeconds": 1200});
    let done = |step: &str| json!({"name": step, "state": "Succeeded", "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:25Z"});
    json!({
        "metadata": {"name": format!("{name}-7c2f4c6e"), "namespace": "afloat", "uid": format!("9d2f4c6e-1111-4222-8333-{number:012}"),
            "resourceVersion": (number + 2_000_000).to_string(), "generation": 2, "finalizers": ["afloat.dev/upgrade"],
            "labels": {"afloat.dev/upgrade-uid": plan.upgrade, "afloat.dev/node": name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "WorkersKubeadmUpgrade", "name": "edge-workers", "uid": "g", "controller": true}]},
        "spec": {"node": {"name": name, "uid": format!("5f2f4c6e-1111-4222-8333-{number:012}")}, "role": "Worker",
            "kubernetesVersion": "v1.36.3", "kubeletVersion": "v1.36.3", "desired": "Upgraded", "undoAfterSeconds": 900,
            "stage": step("stage"), "steps": words.map(step)},
        "status": {"state": "Succeeded", "stateSince": "2026-01-02T03:06:05Z", "attempt": 1, "steps": words.map(done),
            "drain": {"total": 30, "gone": 30}},
    })
}

#[test]
fn a_view_of_many_pods_and_upgrades_of_nodes_stays_small() {
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

    let before = resident_mib();
    for number in 0..UPGRADES {
        keeper.answered(reduce::node_upgrade(serde_json::from_value(node_upgrade(number)).unwrap()).unwrap());
    }
    let grown = resident_mib() - before;
    println!("{UPGRADES} upgrades of nodes: {grown} MiB");
    assert_eq!(keeper.view().node_upgrades().len(), UPGRADES);
    assert!(
        grown < UPGRADES_LIMIT_MIB,
        "{grown} MiB for {UPGRADES} upgrades of nodes"
    );
}
