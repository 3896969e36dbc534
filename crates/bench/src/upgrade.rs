//! A whole upgrade of a simulated cluster by the operator in its own process, and what that process counted and took. A cluster that is not
//! done in time is measured as far as it came, and the row says how far that is.

use std::path::Path;
use std::time::{Duration, Instant};

use afloat_api::clusterupgrade::{
    Budget, ClusterUpgradeStatus, DrainOption, ImagePreloadOption, ImagePreloadStrategy, ImagePreloadType, Phase,
};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec};
use afloat_bench::figures::{Figure, number};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::Cluster;
use afloat_sim::tier2;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use anyhow::{Context as _, bail};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::load;
use crate::operator::{Counters, Operator};
use crate::server::{Server, Which};

pub const TO: &str = "v1.36.3";
const NAME: &str = "bench";
/// How much quicker than life the machines are.
const SPEED: f64 = 60.0;
/// How often somebody looks how far it is: each look is a request that the operator has no part in.
const LOOK: Duration = Duration::from_millis(500);
/// The time that events of the end get to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// One cluster to measure.
#[derive(Clone, Copy, Debug)]
struct Size {
    nodes: u32,
    pods_per_worker: u32,
    /// Until it has come up, and after that until it is upgraded.
    load_within: Duration,
    upgrade_within: Duration,
}

/// From here on a cluster is large: more than a default meant for hundreds is asked for.
const LARGE: u32 = 1_000;

impl Size {
    /// How many nodes are staged at once; ten of a group where nobody says.
    fn staged_at_once(self) -> Option<i32> {
        (self.nodes > LARGE).then_some(250)
    }

    /// All machines are one thread of this process: the more there are, the less often it looks at each. Of thousands the heartbeats, which the
    /// operator has no part in, are slower.
    fn timings(self) -> Timings {
        let mut timings = quick();
        timings.rest = Duration::from_micros(10).saturating_mul(self.nodes);
        if self.nodes > LARGE {
            timings.lease_renewal = Duration::from_mins(1);
            timings.node_grace = Duration::from_mins(5);
        }
        timings
    }
}

fn sizes(which: Which) -> Vec<Size> {
    let size = |nodes, pods_per_worker, load, upgrade| Size {
        nodes,
        pods_per_worker,
        load_within: Duration::from_secs(load),
        upgrade_within: Duration::from_secs(upgrade),
    };
    match which {
        Which::Embedded => vec![
            size(10, 30, 120, 300),
            size(100, 30, 180, 300),
            size(1000, 30, 300, 600),
            size(5000, 31, 1200, 1800),
        ],
        // Every pod is some ten requests to load and as many to move: on two cores that is minutes for ten a worker.
        Which::Real => vec![
            size(10, 30, 120, 300),
            size(100, 30, 300, 600),
            size(1000, 10, 600, 900),
        ],
    }
}

/// What an upgrade cost.
#[derive(Clone, Debug)]
pub struct Row {
    which: Which,
    nodes: u32,
    pods: u64,
    /// Nodes that were done in the end.
    done: u32,
    /// As of the end of the preparations, which all nodes take part in.
    prepared: Counters,
    counters: Counters,
    peak_kib: u64,
    loaded: Duration,
    took: Duration,
}

impl Row {
    fn whole(&self) -> bool {
        self.done >= self.nodes
    }

    /// Requests beside the evictions, for one node from its first to its last.
    fn requests_per_node(&self) -> f64 {
        let before = number(self.prepared.others());
        let after = number(self.counters.others()) - before;
        before / f64::from(self.nodes.max(1)) + after / f64::from(self.done.max(1))
    }

    fn peak_mib(&self) -> f64 {
        number(self.peak_kib) / 1024.0
    }

    fn tell(&self) {
        let part = if self.whole() {
            String::new()
        } else {
            format!("of the first {} nodes", self.done)
        };
        println!(
            "{:<9} {:>6} {:>7} {:>9.1} {:>10} {:>9.1} MiB {:>8.1} s {:>8.1} s {part}",
            self.which.word(),
            self.nodes,
            self.pods,
            self.requests_per_node(),
            self.counters.evictions(),
            self.peak_mib(),
            self.loaded.as_secs_f64(),
            self.took.as_secs_f64(),
        );
    }

    pub fn json(&self) -> Value {
        json!({
            "server": self.which.word(), "nodes": self.nodes, "pods": self.pods, "done": self.done,
            "requestsPerNode": self.requests_per_node(), "evictions": self.counters.evictions(),
            "requests": self.counters.requests, "actions": self.counters.actions,
            "peakMiB": self.peak_mib(), "loadSeconds": self.loaded.as_secs_f64(), "seconds": self.took.as_secs_f64(),
        })
    }
}

pub async fn measure(which: Which, afloat: &Path, most: u32) -> anyhow::Result<Vec<Row>> {
    println!(
        "\n{:<9} {:>6} {:>7} {:>9} {:>10} {:>13} {:>10} {:>10}",
        "SERVER", "NODES", "PODS", "REQ/NODE", "EVICTIONS", "PEAK RSS", "LOADED", "UPGRADED"
    );
    let mut rows = Vec::new();
    for size in sizes(which).into_iter().filter(|size| size.nodes <= most) {
        let row = run(which, afloat, size).await.with_context(|| {
            let nodes = size.nodes;
            format!("{nodes} nodes on the {} API server", which.word())
        })?;
        row.tell();
        rows.push(row);
    }
    Ok(rows)
}

pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for row in rows {
        let place = format!("{} nodes, {} API server", row.nodes, row.which.word());
        let requests = Figure::new(
            format!("requests per node beside evictions, {place}"),
            row.requests_per_node(),
            "requests",
        );
        figures.push(requests.below(60.0).goal(25.0));
        let peak = Figure::new(format!("peak memory of the operator, {place}"), row.peak_mib(), "MiB");
        figures.push(peak.below(250.0).goal(150.0));
    }
    figures
}

async fn run(which: Which, afloat: &Path, size: Size) -> anyhow::Result<Row> {
    let server = Server::start(which).await?;
    let client = server.client.clone();
    let shape = load::shape(size.nodes);
    let begun = Instant::now();
    let cluster = load::cluster(&shape, size.pods_per_worker);
    let _world = world(&client, cluster, size.load_within, size.timings()).await?;
    let loaded = begun.elapsed();
    let pods = load::pods(&client).await?;
    let mut operator = Operator::start(afloat, &server.kubeconfig())?;
    // A tenth of the workers at once.
    let at_once = i32::try_from(shape.workers / 10).unwrap_or(i32::MAX).clamp(2, 250);
    let staged_at_once = size.staged_at_once();
    ask(
        &client,
        Wish {
            at_once,
            staged_at_once,
        },
    )
    .await?;
    let begun = Instant::now();
    let end = follow(&client, &mut operator, size.upgrade_within).await?;
    let took = begun.elapsed();
    tokio::time::sleep(LAST_WORDS).await;
    Ok(Row {
        which,
        nodes: size.nodes,
        pods,
        done: end.done,
        prepared: end.prepared,
        counters: operator.counters().await?,
        peak_kib: operator.peak_memory()?,
        loaded,
        took,
    })
}

/// How quick everything is where that matters to nobody.
pub fn quick() -> Timings {
    Timings::default().faster(SPEED)
}

/// A simulated cluster that has come up, and its clock.
pub async fn world(
    client: &kube::Client,
    cluster: Cluster,
    within: Duration,
    timings: Timings,
) -> anyhow::Result<(World, Clock)> {
    let clock = Clock::starting_at(jiff::Timestamp::now());
    let version = cluster.machines.first().map(|machine| machine.version.clone());
    let version = version.context("a cluster has machines")?;
    let versions = tier2::releases(&version, TO);
    let options = WorldOptions {
        seed: 1,
        clock,
        timings,
        cast: Cast::default(),
        machines: Machines {
            versions: versions.clone(),
            ..Machines::default()
        },
    };
    let world = World::start(client.clone(), cluster, options);
    let filled = tokio::time::timeout(within, world.populate()).await;
    filled.context("the cluster was not filled in time")??;
    load::settled(client, within).await?;
    tier2::lay_ground(client, &version, &versions).await?;
    Ok((world, clock))
}

/// What a person chooses.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Workers that may be away at once.
    pub at_once: i32,
    /// Nodes that are staged at once, where not the default.
    pub staged_at_once: Option<i32>,
}

/// Asks for the upgrade, as a person would who accepts what a simulated cluster loses.
pub async fn ask(client: &kube::Client, wish: Wish) -> anyhow::Result<()> {
    let spec = ClusterUpgradeSpec {
        kubernetes_version: TO.to_owned(),
        drain: Some(DrainOption {
            delete_empty_dir_data: Some(true),
            evict_unmanaged_pods: Some(true),
            ..DrainOption::default()
        }),
        budget: Some(Budget {
            max_unavailable: Some(IntOrString::Int(wish.at_once)),
            ..Budget::default()
        }),
        image_preload_option: wish.staged_at_once.map(|concurrency| ImagePreloadOption {
            strategy: Some(ImagePreloadStrategy {
                kind: ImagePreloadType::Parallel,
                concurrency: Some(concurrency),
            }),
        }),
        ..ClusterUpgradeSpec::default()
    };
    let upgrades: Api<ClusterUpgrade> = Api::namespaced(client.clone(), tier2::HOME);
    upgrades
        .create(&PostParams::default(), &ClusterUpgrade::new(NAME, spec))
        .await?;
    Ok(())
}

struct End {
    done: u32,
    prepared: Counters,
}

/// Looks until the upgrade has ended, or until the time is over and some workers are done.
async fn follow(client: &kube::Client, operator: &mut Operator, within: Duration) -> anyhow::Result<End> {
    let deadline = Instant::now() + within;
    let mut prepared = None;
    loop {
        tokio::time::sleep(LOOK).await;
        operator.is_up()?;
        let (phase, status) = look(client).await?;
        if prepared.is_none() && phase > Phase::Prepare {
            prepared = Some(operator.counters().await?);
        }
        let over = Instant::now() > deadline;
        let measurable = phase == Phase::Succeeded || (phase == Phase::Workers && over);
        if let Some(prepared) = prepared.as_ref().filter(|_| measurable) {
            let done = status.nodes.as_ref().map_or(0, |nodes| nodes.succeeded);
            return Ok(End {
                done: u32::try_from(done).unwrap_or_default(),
                prepared: prepared.clone(),
            });
        }
        if over {
            bail!("still in {phase} after {}s: {}", within.as_secs(), words(&status));
        }
    }
}

/// Waits until the upgrade has succeeded.
pub async fn until_succeeded(client: &kube::Client, within: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    loop {
        tokio::time::sleep(LOOK).await;
        let (phase, status) = look(client).await?;
        if phase == Phase::Succeeded {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("still in {phase} after {}s: {}", within.as_secs(), words(&status));
        }
    }
}

/// Where the upgrade is; an error where it has ended badly.
async fn look(client: &kube::Client) -> anyhow::Result<(Phase, ClusterUpgradeStatus)> {
    let upgrades: Api<ClusterUpgrade> = Api::namespaced(client.clone(), tier2::HOME);
    let status = upgrades.get(NAME).await?.status.unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    if matches!(phase, Phase::Failed | Phase::Aborted) {
        bail!("the upgrade ended as {phase}: {}", words(&status));
    }
    Ok((phase, status))
}

fn words(status: &ClusterUpgradeStatus) -> String {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.message.clone()).unwrap_or_default()
}
