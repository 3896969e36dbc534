//! One trial: a cluster, an upgrade, and what a seed makes go wrong with it, to the end. While it storms the rules must hold;
//! afterwards the upgrade must end, leave nothing behind, and fall silent.

use std::sync::Arc;
use std::time::Duration;

use afloat_api::clusterupgrade::{Budget, Phase};
use afloat_api::{ClusterUpgradeSpec, annotations};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::tier2::HOME;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::play::{Play, PlayError, Setting, UPGRADE, spec};
use crate::record::{Record, Said};
use crate::weather::{Rates, Weather};

const FROM: &str = "v1.35.4";
const TO: &str = "v1.36.3";
/// How long it storms.
const STORM: Duration = Duration::from_mins(8);
/// Afterwards everything has to be over within this.
const PATIENCE: Duration = Duration::from_hours(3);
/// And then quiet for so long.
const SILENCE: Duration = Duration::from_mins(5);
/// When a person looks at what the preflight found.
const LOOK: Duration = Duration::from_secs(20);

/// What somebody does at some moment of the storm.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    KillOperator(usize),
    DropWatches,
    Compact,
    Pause,
    Resume,
    PauseNode(usize),
    Wish(usize, &'static str),
    Cordon(usize),
    Abort,
    Delete,
    /// Another target half-way, which the definition of the kind refuses: the upgrade goes on to its own.
    Retarget,
}

/// How a trial ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub said: Said,
    /// The phase the upgrade ended in, or nothing where it was deleted.
    pub phase: Option<Phase>,
    /// Simulated time from the first wish to the end.
    pub took: Duration,
    /// What the seed chose, in words.
    pub chosen: String,
}

struct Trial {
    play: Play,
    record: Arc<Record>,
    weather: Arc<Weather>,
    nodes: Vec<String>,
    rng: fastrand::Rng,
    /// What a person has put on nodes and takes off again.
    by_hand: Vec<(String, Value)>,
}

/// Tries a seed.
pub async fn run(seed: u64, keep_trace: bool) -> Result<Outcome, PlayError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let setting = drawn(seed, &mut rng);
    let budget = rng.usize(1..=2);
    let rates = Rates::drawn(&mut rng);
    let mut play = Play::start(&setting).await?;
    let record = Arc::new(Record::new(play.clock, keep_trace, budget, FROM));
    let nodes = names(&play).await?;
    let storm = fastrand::Rng::with_seed(rng.u64(..));
    let weather = Arc::new(Weather::new(rates, storm, play.health(), Arc::clone(&record) as _));
    play.server.observe(Arc::clone(&record) as _);
    play.server.inject(Some(Arc::clone(&weather) as _));
    for index in 0..play.operators() {
        play.start_operator(index);
    }
    let chosen = format!(
        "{} {}+{} budget {budget} operators {} {rates:?}",
        setting.scenario.name(),
        setting.shape.control_planes,
        setting.shape.workers,
        play.operators()
    );
    play.ask(wanted(budget)).await?;
    play.accept_warnings(LOOK).await?;
    let mut trial = Trial {
        play,
        record,
        weather,
        nodes,
        rng,
        by_hand: Vec::new(),
    };
    let begun = tokio::time::Instant::now();
    trial.storm().await?;
    let phase = trial.calm().await?;
    let took = begun.elapsed();
    if !trial.play.health().api_is_away() {
        trial.silence(phase).await?;
    }
    Ok(Outcome {
        said: trial.record.said(),
        phase,
        took,
        chosen,
    })
}

fn drawn(seed: u64, rng: &mut fastrand::Rng) -> Setting {
    let scenario = if rng.u32(..5) == 0 {
        Scenario::SingleNode
    } else {
        Scenario::Default
    };
    let mut setting = Setting::new(scenario, FROM, TO);
    setting.seed = seed;
    setting.operators = rng.usize(1..=2);
    // Heartbeats are most of what a quiet cluster writes: as rare as the node's grace allows.
    setting.timings.lease_renewal = Duration::from_secs(25);
    if scenario == Scenario::Default {
        setting.shape = Shape {
            control_planes: [1, 3, 3][rng.usize(..3)],
            workers: rng.u32(2..=4),
            version: FROM.to_owned(),
        };
        // Failures of kubeadm itself: none, one that goes away, one that stays.
        let failures = [0, 0, 1, u32::MAX][rng.usize(..4)];
        setting
            .machines
            .trouble
            .kubeadm_failures
            .insert("worker-1".to_owned(), failures);
    }
    setting
}

fn wanted(budget: usize) -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        budget: Some(Budget {
            max_unavailable: Some(IntOrString::Int(i32::try_from(budget).unwrap_or(1))),
            max_failed: Some(1),
            ..Budget::default()
        }),
        ..spec(TO)
    }
}

async fn names(play: &Play) -> Result<Vec<String>, PlayError> {
    let nodes: Api<Node> = Api::all(play.client.clone());
    let all = nodes.list(&ListParams::default()).await?;
    Ok(all.items.iter().map(kube::ResourceExt::name_any).collect())
}

impl Trial {
    /// What happens, and when, in the order of time.
    fn deeds(&mut self) -> Vec<(Duration, Deed)> {
        let rng = &mut self.rng;
        let mut deeds = Vec::new();
        let at =
            |rng: &mut fastrand::Rng| Duration::from_millis(rng.u64(..u64::try_from(STORM.as_millis()).unwrap_or(1)));
        for _ in 0..rng.usize(..6) {
            deeds.push((at(rng), Deed::KillOperator(rng.usize(..self.play.operators()))));
        }
        for _ in 0..rng.usize(..3) {
            deeds.push((at(rng), if rng.bool() { Deed::DropWatches } else { Deed::Compact }));
        }
        let nodes = self.nodes.len();
        match rng.u32(..10) {
            0 => {
                let from = at(rng);
                deeds.push((from, Deed::Pause));
                deeds.push((from + Duration::from_mins(2), Deed::Resume));
            }
            1 => deeds.push((at(rng), Deed::PauseNode(rng.usize(..nodes)))),
            2 => deeds.push((at(rng), Deed::Wish(rng.usize(..nodes), "defer"))),
            3 => deeds.push((at(rng), Deed::Wish(rng.usize(..nodes), "rollback"))),
            4 => deeds.push((at(rng), Deed::Cordon(rng.usize(..nodes)))),
            5 => deeds.push((at(rng), Deed::Abort)),
            6 => deeds.push((at(rng), Deed::Delete)),
            7 => deeds.push((at(rng), Deed::Retarget)),
            _ => {}
        }
        deeds.sort_by_key(|(at, _)| *at);
        deeds
    }

    async fn storm(&mut self) -> Result<(), PlayError> {
        let start = tokio::time::Instant::now();
        for (at, deed) in self.deeds() {
            tokio::time::sleep_until(start + at).await;
            self.does(deed).await?;
        }
        tokio::time::sleep_until(start + STORM).await;
        self.weather.calm_down();
        Ok(())
    }

    async fn does(&mut self, deed: Deed) -> Result<(), PlayError> {
        match deed {
            Deed::KillOperator(index) => {
                self.play.kill_operator(index);
                tokio::time::sleep(Duration::from_millis(self.rng.u64(1..20_000))).await;
                self.play.start_operator(index);
            }
            Deed::DropWatches => self.play.server.drop_watches(),
            Deed::Compact => self.play.server.compact(u64::MAX),
            Deed::Pause => self.change(&json!({ "spec": { "paused": true } })).await?,
            Deed::Resume => self.change(&json!({ "spec": { "paused": false } })).await?,
            Deed::Abort => self.change(&json!({ "spec": { "abort": true } })).await?,
            Deed::Retarget => {
                let other = json!({ "spec": { "kubernetesVersion": "v1.37.1" } });
                self.change(&other).await?;
            }
            Deed::Delete => {
                let gone = self.play.upgrades().delete(UPGRADE, &DeleteParams::default()).await;
                passing(gone.map(drop))?;
            }
            Deed::PauseNode(index) => {
                let annotation =
                    json!({ "metadata": { "annotations": { annotations::PAUSE: "a person looks at it" } } });
                let off = json!({ "metadata": { "annotations": { annotations::PAUSE: null } } });
                self.change_node(index, &annotation, Some(off)).await?;
            }
            Deed::Wish(index, wish) => {
                let annotation = json!({ "metadata": { "annotations": { annotations::WISH: wish } } });
                self.change_node(index, &annotation, None).await?;
            }
            Deed::Cordon(index) => {
                let off = json!({ "spec": { "unschedulable": null } });
                self.change_node(index, &json!({ "spec": { "unschedulable": true } }), Some(off))
                    .await?;
            }
        }
        Ok(())
    }

    async fn change(&self, patch: &Value) -> Result<(), PlayError> {
        let changed = self
            .play
            .upgrades()
            .patch(UPGRADE, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        passing(changed.map(drop))
    }

    async fn change_node(&mut self, index: usize, patch: &Value, off: Option<Value>) -> Result<(), PlayError> {
        let Some(name) = self.nodes.get(index).cloned() else {
            return Ok(());
        };
        let nodes: Api<Node> = Api::all(self.play.client.clone());
        // A node that is cordoned already is somebody's: the person leaves it.
        let free = |node: Node| node.spec.is_none_or(|spec| spec.unschedulable != Some(true));
        if !patch["spec"].is_null() && !nodes.get(&name).await.is_ok_and(free) {
            return Ok(());
        }
        passing(
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop),
        )?;
        self.by_hand.extend(off.map(|off| (name, off)));
        Ok(())
    }

    /// People take back what they did, and wait for the end.
    async fn calm(&mut self) -> Result<Option<Phase>, PlayError> {
        let nodes: Api<Node> = Api::all(self.play.client.clone());
        for (name, off) in std::mem::take(&mut self.by_hand) {
            passing(
                nodes
                    .patch(&name, &PatchParams::default(), &Patch::Merge(&off))
                    .await
                    .map(drop),
            )?;
        }
        let end = match self.play.ended(PATIENCE).await {
            Err(PlayError::Refused(kube::Error::Api(answer))) => {
                let health = self.play.health();
                self.record.breaks(format!(
                    "rule 12: after {PATIENCE:?} the API is still away ({answer}): {health:?}"
                ));
                return Ok(None);
            }
            other => other?,
        };
        let phase = end.as_ref().map(|(phase, _)| *phase);
        if let Some((phase, message)) = end.filter(|(phase, _)| !crate::play::is_over(*phase)) {
            self.record
                .breaks(format!("rule 12: after {PATIENCE:?} it is still {phase}: {message}"));
        }
        Ok(phase)
    }

    /// When it is over nothing is left, every node is where the end says, and nothing is written any more.
    async fn silence(&mut self, phase: Option<Phase>) -> Result<(), PlayError> {
        tokio::time::sleep(Duration::from_mins(2)).await;
        let before = self.record.writes_asked();
        tokio::time::sleep(SILENCE).await;
        let written = self.record.writes_asked() - before;
        if written > 0 {
            self.record.breaks(format!("rule 12: {written} writes after the end"));
        }
        self.record.assert_nothing_left();
        let pods: Api<Pod> = Api::namespaced(self.play.client.clone(), HOME);
        for pod in pods.list(&ListParams::default()).await? {
            self.record.breaks(format!("rule 7: pod {} is left", pod.name_any()));
        }
        for (node, version) in self.record.versions() {
            let at_an_end = version == TO || (version == FROM && phase != Some(Phase::Succeeded));
            // Within `maxFailed` an upgrade succeeds without the node that was set aside, or that a person wanted undone.
            if !at_an_end && !node.starts_with("worker-") {
                self.record
                    .breaks(format!("{node} is at {version} when the upgrade is {phase:?}"));
            }
        }
        if !self.record.said().broken.is_empty() {
            let told = self.play.told().await?;
            self.record.breaks(format!("how the nodes stood in the end:\n{told}"));
        }
        Ok(())
    }
}

/// A person whose request does not get through, or comes too late, lets it be.
fn passing(answer: kube::Result<()>) -> Result<(), PlayError> {
    match answer {
        Err(kube::Error::Api(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
