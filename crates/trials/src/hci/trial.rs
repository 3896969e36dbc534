//! One trial of a Harvester-like cluster: a scenario, and what a seed makes go wrong with it besides. While it storms the rules must
//! hold; afterwards it must end as its scenario says, lose nobody, leave nothing behind, and fall silent.

use std::sync::Arc;
use std::time::Duration;

use afloat_sim::hci::{End, HciScenario};
use afloat_sim::kubelet::HealthBoard;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::play::{HciPlay, UPGRADE};
use super::verdict::{PATIENCE, judged, reached, running};
use crate::play::PlayError;
use crate::weather::{Rates, Weather};

/// How long it storms: most upgrades of three nodes are over by then.
const STORM: Duration = Duration::from_mins(70);
/// How long an operator that was killed may be away.
const AWAY: Duration = Duration::from_mins(2);

/// What somebody does at some moment of the storm, beside what the scenario's people do.
#[derive(Clone, Copy, Debug)]
enum Deed {
    KillOperator,
    KillTasks,
    DropWatches,
    Compact,
    /// Holds the whole upgrade, or lets it go.
    Hold(bool),
    /// Pauses a node, or lets it go.
    PauseNode(u32, bool),
}

/// How a trial ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub broken: Vec<String>,
    /// Simulated time from the first wish to the end.
    pub took: Duration,
    pub writes: u64,
    /// What the seed chose, in words.
    pub chosen: String,
}

/// Tries a seed.
pub async fn run(seed: u64, named: Option<HciScenario>) -> Result<Outcome, PlayError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let all: Vec<HciScenario> = HciScenario::all().collect();
    let drawn = all.get(rng.usize(..all.len())).copied();
    let Some(scenario) = named.or(drawn) else {
        return Ok(none());
    };
    let rates = Rates::drawn(&mut rng);
    let mut script = scenario.describe();
    // What is said on the way may be missed by an operator that is killed; what is said in the end may not.
    if matches!(script.end, End::Succeeded | End::Gone) {
        script.says.clear();
    }
    let mut play = HciPlay::start(script, seed).await?;
    let before = running(&play).await?;
    let storm = fastrand::Rng::with_seed(rng.u64(..));
    let weather = Weather::new(rates, storm, HealthBoard::default(), Arc::clone(&play.watchman) as _);
    let weather = Arc::new(weather);
    play.server.inject(Some(Arc::clone(&weather) as _));
    let deeds = deeds(&mut rng, &play);
    let chosen = format!("{} {rates:?} {}", scenario.name(), told(&deeds));
    let begun = tokio::time::Instant::now();
    play.ask().await?;
    for (at, deed) in deeds {
        tokio::time::sleep_until(begun + at).await;
        does(&mut play, &mut rng, deed).await?;
    }
    tokio::time::sleep_until(begun + STORM).await;
    weather.calm_down();
    reached(&play, PATIENCE).await?;
    let took = begun.elapsed();
    let broken = judged(&play, &before).await?;
    Ok(Outcome {
        broken,
        took,
        writes: play.watchman.writes(),
        chosen,
    })
}

fn none() -> Outcome {
    Outcome {
        broken: vec!["there is no scenario".to_owned()],
        took: Duration::ZERO,
        writes: 0,
        chosen: String::new(),
    }
}

fn told(deeds: &[(Duration, Deed)]) -> String {
    let words: Vec<String> = deeds
        .iter()
        .map(|(at, deed)| format!("{}s {deed:?}", at.as_secs()))
        .collect();
    words.join(", ")
}

/// What happens, and when, in the order of time.
fn deeds(rng: &mut fastrand::Rng, play: &HciPlay) -> Vec<(Duration, Deed)> {
    let mut deeds = Vec::new();
    let at = |rng: &mut fastrand::Rng| Duration::from_secs(rng.u64(1..STORM.as_secs()));
    for _ in 0..rng.usize(..8) {
        deeds.push((at(rng), Deed::KillOperator));
    }
    for _ in 0..rng.usize(..6) {
        deeds.push((at(rng), Deed::KillTasks));
    }
    for _ in 0..rng.usize(..3) {
        deeds.push((at(rng), if rng.bool() { Deed::DropWatches } else { Deed::Compact }));
    }
    // Where people have their part already, one more would spoil it.
    let alone = play.script.people.is_empty() && play.script.end != End::Waits;
    if alone {
        let (from, node) = (at(rng), rng.u32(1..=play.script.ground.nodes));
        let until = from + Duration::from_mins(rng.u64(1..30));
        match rng.u32(..4) {
            0 => deeds.extend([(from, Deed::Hold(true)), (until, Deed::Hold(false))]),
            1 => deeds.extend([
                (from, Deed::PauseNode(node, true)),
                (until, Deed::PauseNode(node, false)),
            ]),
            _ => {}
        }
    }
    deeds.sort_by_key(|(at, _)| *at);
    deeds
}

async fn does(play: &mut HciPlay, rng: &mut fastrand::Rng, deed: Deed) -> Result<(), PlayError> {
    match deed {
        Deed::KillOperator => {
            play.stop_operator();
            tokio::time::sleep(Duration::from_millis(
                rng.u64(1..u64::try_from(AWAY.as_millis()).unwrap_or(2)),
            ))
            .await;
            play.kill_operator();
        }
        Deed::KillTasks => play.world.kill_tasks(),
        Deed::DropWatches => play.server.drop_watches(),
        Deed::Compact => play.server.compact(u64::MAX),
        Deed::Hold(on) => {
            let hold = json!({ "metadata": { "annotations": { "afloat.dev/pause": on.then_some("a person") } } });
            let changed = play
                .upgrades()
                .patch(UPGRADE, &PatchParams::default(), &Patch::Merge(&hold))
                .await;
            passing(changed.map(drop))?;
        }
        Deed::PauseNode(number, on) => {
            let key = "harvesterhci.io/node-upgrade-pause";
            let patch: Value = json!({ "metadata": { "annotations": { key: on.then_some("a person") } } });
            let nodes: Api<Node> = Api::all(play.client.clone());
            let name = format!("node-{number}");
            let changed = nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            passing(changed.map(drop))?;
        }
    }
    Ok(())
}

/// A person whose request comes too late lets it be.
fn passing(answer: kube::Result<()>) -> Result<(), PlayError> {
    match answer {
        Err(kube::Error::Api(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
