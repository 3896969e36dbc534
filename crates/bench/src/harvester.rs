//! What an upgrade of a Harvester-like cluster costs, on the embedded server in one process: every node pauses before its turn and a person lets
//! it go at once. Measured are the time until its Job is there, the time of every decision, the operator's requests and the largest object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use afloat_api::harvester::{HarvesterNodeState, UpgradeState};
use afloat_api::{annotations, labels};
use afloat_apisim::hooks::WriteObserver;
use afloat_apisim::store::{Change, ChangeKind, TableKey};
use afloat_bench::figures::{Figure, number, times};
use afloat_core::action::Decision;
use afloat_core::hci::view::HciKind;
use afloat_core::view::View;
use afloat_core::{Changed, Subject};
use afloat_operator::OperatorConfig;
use afloat_operator::mind::{Core, Mind};
use afloat_operator::snapshot::hci::served;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{Ground, HciWorld, HciWorldOptions, SYSTEM, Trouble, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::operator::Counters;
use crate::server::{Embedded, define};

const NAME: &str = "hvst-upgrade-bench";
/// The Kubernetes below the simulated Harvester.
const VERSION: &str = "v1.33.5";
/// Nodes of the clusters, each with thirty virtual machines.
const SIZES: [u32; 4] = [3, 10, 30, 100];
const VMS: u32 = 30;
/// How much quicker than life the machines are.
const SPEED: f64 = 600.0;
const WITHIN: Duration = Duration::from_mins(12);
/// The bars of the design, in milliseconds.
const RESUME: f64 = 50.0;
const DECISION: f64 = 10.0;

/// What an upgrade cost.
pub struct Row {
    nodes: u32,
    vms: u32,
    counters: Counters,
    resumes: Vec<Duration>,
    decisions: Vec<Duration>,
    largest: (String, usize),
    took: Duration,
}

impl Row {
    fn requests_per_node(&self) -> f64 {
        number(self.counters.others()) / f64::from(self.nodes)
    }

    pub fn json(&self) -> Value {
        json!({
            "nodes": self.nodes, "vms": self.vms, "requestsPerNode": self.requests_per_node(),
            "requests": self.counters.requests, "actions": self.counters.actions,
            "decisions": self.decisions.len(), "largestObject": self.largest.0, "largestBytes": self.largest.1,
            "seconds": self.took.as_secs_f64(),
        })
    }
}

/// The core, with a stopwatch.
struct Timed(Arc<Mutex<Vec<Duration>>>);

impl Mind for Timed {
    fn affected(&self, view: &View, changed: &Changed) -> std::collections::BTreeSet<Subject> {
        Core.affected(view, changed)
    }

    fn decide(&self, view: &View, subject: &Subject, now: Timestamp) -> Decision {
        let begun = Instant::now();
        let decision = Core.decide(view, subject, now);
        let took = begun.elapsed();
        if in_node_phase(view, subject) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(took);
        }
        decision
    }
}

fn in_node_phase(view: &View, subject: &Subject) -> bool {
    let Subject::Hci(key) = subject else { return false };
    let upgrade = view.hci.upgrades.get(key);
    let labels = upgrade.and_then(|upgrade| upgrade.what.metadata.labels.as_ref());
    let state = labels.and_then(|labels| labels.get(labels::HARVESTER_UPGRADE_STATE));
    state.is_some_and(|state| *state == UpgradeState::UpgradingNodes.to_string())
}

#[derive(Default)]
struct Seen {
    resumed: BTreeMap<String, Instant>,
    resumes: Vec<Duration>,
    largest: (String, usize),
}

/// Sees every write: who is paused, who was let go, which Job was made, what is large.
struct Clerk {
    seen: Mutex<Seen>,
    paused: mpsc::UnboundedSender<String>,
}

impl WriteObserver for Clerk {
    fn on_write(&self, table: &TableKey, change: &Change) {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, nothing) = (change.object.value(), Value::Null);
        let before = change.previous.as_ref().map_or(&nothing, |before| before.value());
        match table.plural.as_str() {
            "nodes" => {
                let held = |node: &Value| !node["metadata"]["annotations"][annotations::HARVESTER_NODE_PAUSE].is_null();
                if held(before) && !held(value) {
                    seen.resumed.insert(change.object.name().to_owned(), now);
                }
            }
            "jobs" if change.kind == ChangeKind::Added && change.object.name().contains("-pre-drain-") => {
                let node = value["metadata"]["labels"][labels::HARVESTER_NODE]
                    .as_str()
                    .unwrap_or_default();
                let resumed = seen.resumed.remove(node);
                seen.resumes.extend(resumed.map(|resumed| now.duration_since(resumed)));
            }
            "upgrades" => {
                let paused = HarvesterNodeState::Paused.to_string();
                let states = value["status"]["nodeStatuses"].as_object().into_iter().flatten();
                for (node, status) in states {
                    if status["state"] == paused && before["status"]["nodeStatuses"][node]["state"] != paused {
                        let _sent = self.paused.send(node.clone());
                    }
                }
            }
            // As large as somebody else made them.
            "customresourcedefinitions" => return,
            _ => {}
        }
        let size = change.object.body().len();
        if size > seen.largest.1 {
            seen.largest = (format!("{} {}", table.plural, change.object.name()), size);
        }
    }
}

pub async fn measure(most: u32) -> anyhow::Result<Vec<Row>> {
    println!(
        "\n{:>6} {:>6} {:>9} {:>10} {:>16} {:>16} {:>10}",
        "NODES", "VMS", "REQ/NODE", "DECISIONS", "LONGEST DECISION", "LARGEST OBJECT", "UPGRADED"
    );
    let mut rows = Vec::new();
    for nodes in SIZES.into_iter().filter(|nodes| *nodes <= most) {
        let row = run(nodes, nodes * VMS).await?;
        let longest = row.decisions.iter().max().copied().unwrap_or_default();
        println!(
            "{:>6} {:>6} {:>9.1} {:>10} {:>13.2} ms {:>12} KiB {:>8.1} s",
            row.nodes,
            row.vms,
            row.requests_per_node(),
            row.decisions.len(),
            longest.as_secs_f64() * 1e3,
            row.largest.1 / 1024,
            row.took.as_secs_f64(),
        );
        rows.push(row);
    }
    Ok(rows)
}

pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let resumes = rows.iter().flat_map(|row| row.resumes.clone()).collect();
    let mut figures = times("a node let go → its pre-drain Job", resumes, RESUME);
    for row in rows {
        let place = format!("{} nodes, {} virtual machines", row.nodes, row.vms);
        let name = format!("decision in the node phase, {place}");
        figures.extend(times(&name, row.decisions.clone(), DECISION));
        let name = format!("requests per node, {place}");
        // Without a bar: a node of thirty virtual machines takes as many moves, which are requests of its Jobs. Flat is what counts.
        figures.push(Figure::new(name, row.requests_per_node(), "requests"));
    }
    figures
}

async fn run(nodes: u32, vms: u32) -> anyhow::Result<Row> {
    let embedded = Embedded::start();
    let (paused, letting_go) = mpsc::unbounded_channel();
    let clerk = Arc::new(Clerk {
        seen: Mutex::default(),
        paused,
    });
    embedded.server.observe(Arc::clone(&clerk) as Arc<dyn WriteObserver>);
    let client = embedded.server.client();
    define(&client).await?;
    let mut ground = Ground::new(nodes, vms);
    ground.upgrade_config = Some(json!({
        "imagePreloadOption": { "strategy": { "type": "parallel", "concurrency": 0 } }, "restoreVM": true, "logReadyTimeout": "5",
        "nodeUpgradeOption": { "strategy": { "mode": "manual" } },
    }));
    let clock = Clock::starting_at(Timestamp::now());
    let options = HciWorldOptions {
        seed: 1,
        clock,
        timings: Timings::default().faster(SPEED),
        trouble: Trouble::default(),
        people: Vec::new(),
        task_client: None,
        charts: None,
    };
    let _world = HciWorld::start(client.clone(), &ground, options).await?;
    tier2::lay_ground(&client, VERSION, &[]).await?;
    let decisions = Arc::<Mutex<Vec<Duration>>>::default();
    let config = OperatorConfig {
        hci: operator_options(&ground, &Trouble::default()),
        mind: Arc::new(Timed(Arc::clone(&decisions))),
        ..tier2::operator(client.clone(), clock, HealthBoard::default(), "bench")
    };
    let metrics = config.metrics.clone();
    let operator = tokio::spawn(afloat_operator::run(config, std::future::pending()));
    let person = tokio::spawn(let_go(client.clone(), letting_go));
    let begun = Instant::now();
    let ended = upgraded(&client).await;
    operator.abort();
    person.abort();
    ended?;
    let took = begun.elapsed();
    let mut seen = clerk.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let decisions = decisions.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Row {
        nodes,
        vms,
        counters: Counters::read(&metrics.text()),
        resumes: std::mem::take(&mut seen.resumes),
        decisions,
        largest: std::mem::take(&mut seen.largest),
        took,
    })
}

/// A person who takes the pause off a node as soon as it is said to be paused.
async fn let_go(client: kube::Client, mut paused: mpsc::UnboundedReceiver<String>) {
    let nodes: Api<Node> = Api::all(client);
    let free = json!({ "metadata": { "annotations": { annotations::HARVESTER_NODE_PAUSE: null } } });
    while let Some(node) = paused.recv().await {
        // A moment, so that what is measured begins in quiet.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let patched = nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&free)).await;
        if let Err(error) = patched {
            eprintln!("{node} was not let go: {error}");
        }
    }
}

async fn upgraded(client: &kube::Client) -> anyhow::Result<()> {
    let resource = served(HciKind::Upgrade).resource;
    let upgrades: Api<DynamicObject> = Api::namespaced_with(client.clone(), SYSTEM, &resource);
    let spec = json!({ "spec": { "version": "v1.7.0", "logEnabled": false } });
    let upgrade = DynamicObject::new(NAME, &resource).data(spec);
    upgrades.create(&PostParams::default(), &upgrade).await?;
    let deadline = Instant::now() + WITHIN;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let upgrade = upgrades.get(NAME).await?;
        let mut conditions = upgrade.data["status"]["conditions"].as_array().into_iter().flatten();
        let completed = conditions.find(|condition| condition["type"] == "Completed");
        let cleaned = upgrade
            .metadata
            .labels
            .as_ref()
            .and_then(|all| all.get(labels::HARVESTER_UPGRADE_CLEANUP));
        match completed.map(|condition| &condition["status"]) {
            Some(status) if status == "True" && cleaned.is_some_and(|word| word == "Succeeded") => return Ok(()),
            Some(status) if status == "False" => bail!("the upgrade failed: {}", upgrade.data["status"]["conditions"]),
            _ => {}
        }
        if Instant::now() > deadline {
            bail!(
                "not done in {}s: {}",
                WITHIN.as_secs(),
                upgrade.data["status"]["conditions"]
            );
        }
    }
}
