//! How long decisions take on large clusters: a view of so many nodes with thirty pods each, in the middle of its workers,
//! and the turns an operator takes on it. Time of the core alone; what an API server adds is measured elsewhere. Fails where a decision takes longer
//! than its bar.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afloat_api::clusterupgrade::Budget;
use afloat_api::kubeadm::NodeKubeadmUpgradeStatus;
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade, NodeState};
use afloat_bench::figures::{self, Document, Figure, tell};
use afloat_core::action::{Action, Decision};
use afloat_core::objects::key_of;
use afloat_core::view::{
    Component, ControlPlaneHealth, EtcdMember, Key, Lock, Node, NodeName, Owner, Pod, PodPhase, PodShape, Ready,
    Resources, Revision, StaticPart, Target, Uid, View,
};
use afloat_core::{Changed, Subject, affected, decide};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

/// How often each decision is taken.
const SAMPLES: usize = 15;
const PODS: usize = 30;
const GIB: i64 = 1 << 30;
const FROM: &str = "v1.35.4";
const TO: &str = "v1.36.3";
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// No decision may take longer, in milliseconds, however large the cluster.
const BAR: f64 = 10.0;
/// No object may come near to what etcd takes (1.5 MiB), in KiB.
const LARGEST: f64 = 512.0;

fn main() -> ExitCode {
    let mut figures = Vec::new();
    println!("  NODES    PODS  UPGRADE'S TURN  GROUP'S TURN  NODE'S TURN  WHO IS CONCERNED  LARGEST OBJECT");
    for nodes in [10_usize, 100, 1000, 5000] {
        let (view, largest) = half_way(nodes);
        let upgrade = Subject::Upgrade(Key::new("afloat-system", "edge-1"));
        let group = view.workers.keys().next().cloned().map(Subject::Workers);
        let node = view.node_upgrades().keys().last().cloned().map(Subject::Node);
        let timed = |subject: Option<&Subject>| {
            subject.map_or(Duration::ZERO, |subject| median(|| decide(&view, subject, NOW)))
        };
        let turns = [timed(Some(&upgrade)), timed(group.as_ref()), timed(node.as_ref())];
        let concerned = median(|| affected(&view, &Changed::Pod(Some(NodeName::from("worker-1")))));
        println!(
            "  {nodes:>5}  {:>6}  {:>14}  {:>12}  {:>11}  {:>16}  {:>10} KiB",
            view.pods().len(),
            micros(turns[0]),
            micros(turns[1]),
            micros(turns[2]),
            micros(concerned),
            largest / 1024,
        );
        for (whose, took) in ["an upgrade", "a group", "a node"].into_iter().zip(turns) {
            let name = format!("decision about {whose}, {nodes} nodes, half of {SAMPLES}");
            figures.push(Figure::new(name, took.as_secs_f64() * 1e3, "ms").below(BAR));
        }
        let size = figures::number(u64::try_from(largest).unwrap_or(u64::MAX)) / 1024.0;
        figures.push(Figure::new(format!("largest of our objects, {nodes} nodes"), size, "KiB").below(LARGEST));
    }
    let figures = tell(figures);
    let mut document = Document::open(&figures::default_output());
    document.put("decisions", json!(figures.iter().map(Figure::json).collect::<Vec<_>>()));
    if let Err(error) = document.write() {
        eprintln!("error: {error:#}");
        return ExitCode::from(2);
    }
    if figures.iter().all(Figure::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn micros(length: Duration) -> String {
    format!("{:.3} ms", length.as_secs_f64() * 1000.0)
}

fn median<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Played by the core itself until its workers are at work: half of them done, the rest staged. Also the size of the largest
/// of our own objects, as JSON.
fn half_way(nodes: usize) -> (View, usize) {
    let mut view = cluster(nodes);
    let upgrade = Subject::Upgrade(Key::new("afloat-system", "edge-1"));
    for _ in 0..nodes * 2 + 40 {
        let mut moved = apply_all(&mut view, &upgrade);
        let groups: Vec<Subject> = view
            .control_planes
            .keys()
            .cloned()
            .map(Subject::ControlPlane)
            .chain(view.workers.keys().cloned().map(Subject::Workers))
            .collect();
        for group in &groups {
            moved |= apply_all(&mut view, group);
        }
        moved |= advance_nodes(&mut view, nodes / 2);
        if !moved {
            break;
        }
    }
    let largest = [
        view.upgrades.values().map(|object| json_size(object.as_ref())).max(),
        view.workers.values().map(|object| json_size(object.as_ref())).max(),
        view.node_upgrades()
            .values()
            .map(|object| json_size(object.as_ref()))
            .max(),
    ];
    (view, largest.into_iter().flatten().max().unwrap_or_default())
}

fn json_size(object: &impl serde::Serialize) -> usize {
    serde_json::to_vec(object).map_or(0, |bytes| bytes.len())
}

/// Nodes that were let go are done at once, all others staged; `most` workers and every control plane get that far.
fn advance_nodes(view: &mut View, most: usize) -> bool {
    let all: Vec<(Key, Arc<NodeKubeadmUpgrade>)> = view
        .node_upgrades()
        .iter()
        .map(|(key, upgrade)| (key.clone(), Arc::clone(upgrade)))
        .collect();
    let done = all
        .iter()
        .filter(|(_, upgrade)| state(upgrade) == NodeState::Succeeded)
        .count();
    let mut moved = false;
    for (key, upgrade) in all {
        let next = match (state(&upgrade), upgrade.spec.desired) {
            (NodeState::Pending, _) => NodeState::Staged,
            (NodeState::Staged, afloat_api::kubeadm::DesiredNodeState::Upgraded) if done < most => NodeState::Succeeded,
            _ => continue,
        };
        moved = true;
        let mut changed = NodeKubeadmUpgrade::clone(&upgrade);
        changed.status = Some(NodeKubeadmUpgradeStatus {
            state: Some(next),
            state_since: Some(Time(NOW)),
            attempt: Some(changed.spec.attempt),
            ..NodeKubeadmUpgradeStatus::default()
        });
        if next == NodeState::Succeeded {
            arrive(view, &changed.spec.node.name);
        }
        view.put_node_upgrade(key, Arc::new(changed));
    }
    moved
}

fn state(upgrade: &NodeKubeadmUpgrade) -> NodeState {
    upgrade
        .status
        .as_ref()
        .and_then(|status| status.state)
        .unwrap_or_default()
}

fn arrive(view: &mut View, name: &str) {
    if let Some(node) = view.nodes.get_mut(name) {
        Arc::make_mut(node).kubelet_version = TO.parse().ok();
    }
    let name = NodeName::from(name);
    let parts: Vec<Pod> = view.static_parts(&name).map(|(pod, _)| Pod::clone(pod)).collect();
    for mut pod in parts {
        if let Some(part) = pod.static_part.as_mut().filter(|part| part.version.is_some()) {
            part.version = TO.parse().ok();
            part.tag = TO.into();
        }
        view.put_pod(Arc::new(pod));
    }
}

/// Carries a decision out on the view, as far as this measurement needs it.
fn apply_all(view: &mut View, subject: &Subject) -> bool {
    let Decision { actions, .. } = decide(view, subject, NOW);
    let moved = !actions.is_empty();
    for (number, action) in actions.into_iter().enumerate() {
        apply(view, action, number);
    }
    moved
}

fn apply(view: &mut View, action: Action, number: usize) {
    let born = |meta: &mut ObjectMeta| {
        meta.uid = Some(format!("uid-{}-{number}", meta.name.clone().unwrap_or_default()));
        meta.resource_version = Some("1".to_owned());
        meta.creation_timestamp = Some(Time(NOW));
    };
    match action {
        Action::SetUpgradeFinalizer { target, .. } => {
            if let Some(upgrade) = view.upgrades.get_mut(&target.key) {
                Arc::make_mut(upgrade).metadata.finalizers = Some(vec![afloat_api::names::FINALIZER.to_owned()]);
            }
        }
        Action::WriteUpgradeStatus { target, status } => {
            if let Some(upgrade) = view.upgrades.get_mut(&target.key) {
                Arc::make_mut(upgrade).status = Some(*status);
            }
        }
        Action::WriteControlPlaneStatus { target, status } => {
            if let Some(group) = view.control_planes.get_mut(&target.key) {
                Arc::make_mut(group).status = Some(*status);
            }
        }
        Action::WriteWorkersStatus { target, status } => {
            if let Some(group) = view.workers.get_mut(&target.key) {
                Arc::make_mut(group).status = Some(*status);
            }
        }
        Action::CreateControlPlaneUpgrade(mut group) => {
            born(&mut group.metadata);
            view.control_planes.insert(key_of(&group.metadata), Arc::from(group));
        }
        Action::CreateWorkersUpgrade(mut group) => {
            born(&mut group.metadata);
            view.workers.insert(key_of(&group.metadata), Arc::from(group));
        }
        Action::CreateNodeUpgrade(mut upgrade) => {
            born(&mut upgrade.metadata);
            view.put_node_upgrade(key_of(&upgrade.metadata), Arc::from(upgrade));
        }
        Action::SetDesired { target, desired, .. } => {
            if let Some(upgrade) = view.node_upgrade(&target.key) {
                let mut changed = NodeKubeadmUpgrade::clone(upgrade);
                changed.spec.desired = desired;
                view.put_node_upgrade(target.key, Arc::new(changed));
            }
        }
        Action::TakeLock { namespace, holder, .. } => {
            let target = Target {
                key: Key::new(&namespace, afloat_api::names::LOCK),
                uid: "lock".into(),
                revision: Revision(1),
            };
            view.lock = Some(Lock { target, holder });
        }
        _ => {}
    }
}

fn cluster(nodes: usize) -> View {
    let mut view = View::default();
    view.home = Arc::from("afloat-system");
    view.kubeadm_config = Some(Arc::from("etcd:\n  local: {}\n"));
    view.nodes_as_of = Revision(1);
    view.images
        .extend(TO.parse().ok().map(|version| (version, Arc::from("upgrader"))));
    for number in 1..=3 {
        let name = format!("cp-{number}");
        add_node(&mut view, &name, true);
        for (component, versioned) in [
            (Component::Etcd, false),
            (Component::ApiServer, true),
            (Component::ControllerManager, true),
            (Component::Scheduler, true),
        ] {
            add_part(&mut view, &name, component, versioned);
        }
        let etcd = Some(EtcdMember { healthy: true });
        let health = ControlPlaneHealth {
            readyz_in_a_row: 5,
            etcd,
        };
        view.health.insert(NodeName::from(name), health);
    }
    for number in 1..=nodes.saturating_sub(3) {
        let name = format!("worker-{number}");
        add_node(&mut view, &name, false);
        for pod in 0..PODS {
            add_pod(&mut view, &name, pod);
        }
    }
    let spec = ClusterUpgradeSpec {
        kubernetes_version: TO.to_owned(),
        budget: Some(Budget {
            max_unavailable: Some(IntOrString::String("5%".to_owned())),
            ..Budget::default()
        }),
        ..ClusterUpgradeSpec::default()
    };
    let mut upgrade = ClusterUpgrade::new("edge-1", spec);
    upgrade.metadata.namespace = Some("afloat-system".to_owned());
    upgrade.metadata.uid = Some("uid-edge-1".to_owned());
    upgrade.metadata.resource_version = Some("1".to_owned());
    view.upgrades.insert(key_of(&upgrade.metadata), Arc::new(upgrade));
    view
}

fn add_node(view: &mut View, name: &str, control_plane: bool) {
    let node = Node {
        name: name.into(),
        uid: Uid::from(format!("uid-{name}")),
        revision: Revision(1),
        created_at: NOW,
        labels: Arc::new([("kubernetes.io/hostname".into(), name.into())].into()),
        control_plane,
        ready: Ready {
            ready: true,
            since: NOW,
        },
        kubelet_version: FROM.parse().ok(),
        container_runtime_version: "containerd://2.3.7".into(),
        os_image: "Linux".into(),
        internal_ip: Some("10.0.0.1".into()),
        allocatable: Resources {
            cpu_milli: 16_000,
            memory: 64 * GIB,
            pods: 110,
            ..Resources::default()
        },
        ..Node::default()
    };
    view.nodes.insert(name.into(), Arc::new(node));
}

fn bare(namespace: &str, name: &str, node: &str, shape: Arc<PodShape>) -> Pod {
    Pod {
        key: Key::new(namespace, name),
        uid: Uid::from(format!("uid-{name}")),
        revision: Revision(1),
        node: Some(node.into()),
        phase: PodPhase::Running,
        ready: true,
        started_at: Some(NOW),
        ending: None,
        shape,
        static_part: None,
        task: None,
    }
}

fn add_part(view: &mut View, node: &str, component: Component, versioned: bool) {
    let name = format!("{component:?}-{node}").to_lowercase();
    let version = if versioned { FROM.parse().ok() } else { None };
    let part = StaticPart {
        component,
        version,
        tag: FROM.into(),
    };
    let pod = Pod {
        static_part: Some(part),
        ..bare("kube-system", &name, node, Arc::default())
    };
    view.put_pod(Arc::new(pod));
}

fn add_pod(view: &mut View, node: &str, number: usize) {
    let owner = format!("app-{number}");
    let shape = PodShape {
        labels: [("app".into(), owner.as_str().into())].into(),
        owner: Some(Owner {
            kind: "ReplicaSet".into(),
            name: owner.as_str().into(),
            uid: Uid::from(format!("uid-{owner}")),
        }),
        requests: Resources {
            cpu_milli: 200,
            memory: GIB,
            pods: 1,
            ..Resources::default()
        },
        ..PodShape::default()
    };
    let pod = bare("shop", &format!("{owner}-{node}"), node, Arc::new(shape));
    view.put_pod(Arc::new(pod));
}
