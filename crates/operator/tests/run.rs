//! The operator as a whole, with a mind of few thoughts: what it reads, writes, repeats and leaves alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ClusterUpgrade, ClusterUpgradeStatus, Reason};
use afloat_core::action::{Action, Decision, Event, EventObject};
use afloat_core::objects::target_of;
use afloat_core::view::View;
use afloat_core::{Changed, Subject};
use afloat_operator::metrics::Metrics;
use afloat_operator::mind::{Mind, told};
use afloat_operator::{LEADER_LEASE, OperatorConfig, OperatorError, run};
use common::{Cluster, HOME};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::oneshot;

/// Puts the finalizer on an upgrade, then writes one phase after the other, a write a turn.
#[derive(Default)]
struct Simple {
    decisions: AtomicUsize,
    /// Decisions that saw an upgrade in a state this mind had already written over.
    behind: AtomicUsize,
    newest: std::sync::Mutex<u64>,
}

const PHASES: [Phase; 3] = [Phase::Preflight, Phase::Backup, Phase::Succeeded];

impl Mind for Simple {
    fn affected(&self, _: &View, changed: &Changed) -> BTreeSet<Subject> {
        match changed {
            Changed::Upgrade(key) | Changed::Ledger(key) | Changed::Told(key) => {
                BTreeSet::from([Subject::Upgrade(key.clone())])
            }
            _ => BTreeSet::new(),
        }
    }

    fn decide(&self, view: &View, subject: &Subject, now: Timestamp) -> Decision {
        let Some(upgrade) = view.upgrades.get(told(subject).1) else {
            return Decision::default();
        };
        self.decisions.fetch_add(1, Ordering::SeqCst);
        let target = target_of(&upgrade.metadata);
        let mut newest = self.newest.lock().unwrap();
        if target.revision.0 < *newest {
            self.behind.fetch_add(1, Ordering::SeqCst);
        }
        *newest = target.revision.0;
        if upgrade.finalizers().is_empty() {
            return Decision {
                actions: vec![Action::SetUpgradeFinalizer { target, present: true }],
                ..Decision::default()
            };
        }
        let phase = upgrade.status.as_ref().and_then(|status| status.phase);
        let at = PHASES
            .iter()
            .position(|known| Some(*known) == phase)
            .map_or(0, |at| at + 1);
        let Some(next) = PHASES.get(at) else {
            return Decision::default();
        };
        let status = ClusterUpgradeStatus {
            phase: Some(*next),
            finished_at: (*next == Phase::Succeeded).then_some(Time(now)),
            ..ClusterUpgradeStatus::default()
        };
        Decision {
            actions: vec![Action::WriteUpgradeStatus {
                target: target.clone(),
                status: Box::new(status),
            }],
            events: vec![Event {
                object: EventObject::Upgrade(target),
                warning: false,
                reason: Reason::InProgress,
                message: Arc::from(next.to_string()),
            }],
            ..Decision::default()
        }
    }
}

/// Writes once it knows which nodes there are, as of the upgrade it sees.
struct Careful;

impl Mind for Careful {
    fn affected(&self, view: &View, changed: &Changed) -> BTreeSet<Subject> {
        Simple::default().affected(view, changed)
    }

    fn decide(&self, view: &View, subject: &Subject, _: Timestamp) -> Decision {
        let Some(upgrade) = view.upgrades.get(told(subject).1) else {
            return Decision::default();
        };
        let target = target_of(&upgrade.metadata);
        if upgrade.status.is_some() {
            return Decision::default();
        }
        if view.nodes_as_of < target.revision {
            return Decision {
                nodes_since: Some(target.revision),
                ..Decision::default()
            };
        }
        let status = ClusterUpgradeStatus {
            phase: Some(Phase::Succeeded),
            ..ClusterUpgradeStatus::default()
        };
        Decision {
            actions: vec![Action::WriteUpgradeStatus {
                target,
                status: Box::new(status),
            }],
            ..Decision::default()
        }
    }
}

struct Running {
    mind: Arc<Simple>,
    metrics: Metrics,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), OperatorError>>,
}

fn start(cluster: &Cluster, identity: &str, listen: Option<SocketAddr>) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let (mind, metrics) = (Arc::new(Simple::default()), Metrics::default());
    let config = OperatorConfig {
        identity: identity.to_owned(),
        mind: mind.clone(),
        listen,
        leader_election: true,
        metrics: metrics.clone(),
        ..cluster.operator()
    };
    let task = tokio::spawn(run(config, async {
        let _told = stopped.await;
    }));
    Running {
        mind,
        metrics,
        stop,
        task,
    }
}

async fn until_phase(cluster: &Cluster, phase: Phase) -> ClusterUpgrade {
    let api = cluster.api::<ClusterUpgrade>(HOME);
    for _ in 0..400 {
        let upgrade = api.get("edge-1").await.unwrap();
        if upgrade.status.as_ref().and_then(|status| status.phase) == Some(phase) {
            return upgrade;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{phase} was not reached");
}

#[tokio::test]
async fn p32_decisions_are_carried_out_told_and_then_nothing_is_written() {
    let cluster = Cluster::new().await;
    cluster.upgrade().await;
    let operator = start(&cluster, "operator-0", None);
    let done = until_phase(&cluster, Phase::Succeeded).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let quiet = cluster.api::<ClusterUpgrade>(HOME).get("edge-1").await.unwrap();
    assert_eq!(quiet.resource_version(), done.resource_version());
    let decisions = operator.mind.decisions.load(Ordering::SeqCst);
    assert!((5..=10).contains(&decisions), "{decisions} decisions for four writes");
    assert_eq!(
        operator.mind.behind.load(Ordering::SeqCst),
        0,
        "every decision knew of the writes before it"
    );

    operator.stop.send(()).unwrap();
    operator.task.await.unwrap().unwrap();
    let events = cluster
        .api::<KubeEvent>(HOME)
        .list(&ListParams::default())
        .await
        .unwrap();
    let mut notes: Vec<String> = events.items.into_iter().filter_map(|event| event.note).collect();
    notes.sort();
    assert_eq!(notes, ["Backup", "Preflight", "Succeeded"]);
    let lease = cluster.api::<Lease>(HOME).get(LEADER_LEASE).await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""), "given back");
    let text = operator.metrics.text();
    assert!(
        text.contains(r#"afloat_actions_total{name="write-upgrade-status"} 3"#),
        "{text}"
    );
}

/// Nothing happens to any node here: their watch is silent.
#[tokio::test]
async fn p32_whoever_has_to_know_which_nodes_there_are_waits_for_no_kubelet() {
    let cluster = Cluster::new().await;
    cluster.node("worker-1", json!({})).await;
    cluster.upgrade().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let config = OperatorConfig {
        mind: Arc::new(Careful),
        ..cluster.operator()
    };
    let task = tokio::spawn(run(config, async {
        let _told = stopped.await;
    }));
    until_phase(&cluster, Phase::Succeeded).await;
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn two_operators_on_one_cluster_do_the_work_once() {
    let cluster = Cluster::new().await;
    let (first, second) = (start(&cluster, "first", None), start(&cluster, "second", None));
    cluster.upgrade().await;
    until_phase(&cluster, Phase::Succeeded).await;
    let worked: Vec<usize> = [&first, &second]
        .iter()
        .map(|one| one.mind.decisions.load(Ordering::SeqCst))
        .collect();
    assert!(worked.contains(&0) && worked.iter().sum::<usize>() > 0, "{worked:?}");
    for operator in [first, second] {
        operator.stop.send(()).unwrap();
        operator.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_operator_that_lost_its_lease_ends_with_an_error() {
    let cluster = Cluster::new().await;
    cluster.upgrade().await;
    let operator = start(&cluster, "operator-0", None);
    until_phase(&cluster, Phase::Succeeded).await;
    let thief = json!({"spec": {"holderIdentity": "another"}});
    let leases = cluster.api::<Lease>(HOME);
    leases
        .patch(LEADER_LEASE, &PatchParams::default(), &Patch::Merge(thief))
        .await
        .unwrap();
    let ended = operator.task.await.unwrap().unwrap_err();
    assert!(matches!(ended, OperatorError::Lost(_)), "{ended}");
    assert!(ended.to_string().contains("taken by another"), "{ended}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_said() {
    let cluster = Cluster::new().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let operator = start(&cluster, "operator-0", Some(taken.local_addr().unwrap()));
    let ended = operator.task.await.unwrap().unwrap_err();
    assert!(matches!(ended, OperatorError::Listen { .. }), "{ended}");
}

#[tokio::test]
async fn the_core_itself_is_plugged_in() {
    let cluster = Cluster::new().await;
    cluster.node("worker-1", json!({})).await;
    cluster.upgrade().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(run(cluster.operator(), async {
        let _told = stopped.await;
    }));
    let api = cluster.api::<ClusterUpgrade>(HOME);
    let mut upgrade = api.get("edge-1").await.unwrap();
    for _ in 0..400 {
        if upgrade.status.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        upgrade = api.get("edge-1").await.unwrap();
    }
    let status = upgrade.status.expect("the core has said something");
    assert!(status.phase.is_some(), "{status:?}");
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}
