//! How an upgrade of Harvester stands, as people are shown it: the headline, what it waits for, and a row for each node.

use crate::board::text::Layout;
use crate::table::{Cell, Tone, plain, table, toned};
use afloat_api::harvester::{HarvesterNodeState as State, NodeUpgradeStatus, Upgrade};
use afloat_api::{annotations, labels};
use afloat_core::hci::release::Release;
use afloat_core::hci::times::Times;
use afloat_core::hci::{PREFLIGHT_PASSED, Tri, condition_of, config, report, running, upstream_at_work};
use afloat_core::view::{Key, View};
use afloat_core::words;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Board {
    pub time: Timestamp,
    pub name: String,
    pub from: String,
    pub to: String,
    /// The label `harvesterhci.io/upgradeState`.
    pub state: String,
    pub over: bool,
    pub succeeded: bool,
    /// The preflight found something; nothing was changed.
    pub refused: bool,
    /// Nothing moves until a person lets it.
    pub held: bool,
    /// The condition that is not reached yet, where the upgrade is under way; `message` says what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub nodes: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    pub state: String,
    pub os_image: String,
    pub kubelet_version: String,
    /// The pause is on it.
    pub held: bool,
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Timestamp>,
    /// How long a volume or another node kept it from its turn.
    pub waited_seconds: i64,
}

/// Something is being done to one of the nodes.
fn at_work(status: &NodeUpgradeStatus) -> bool {
    let works = |state: State| state == State::ImagesPreloading || (State::Paused < state && state < State::Succeeded);
    status.state.parse().is_ok_and(works)
}

/// A person holds the whole, or the node that is next, and nobody is at work.
fn held(upgrade: &Upgrade) -> bool {
    let statuses = upgrade.status.as_ref().map(|status| &status.node_statuses);
    let mut all = statuses.into_iter().flatten().map(|(_, status)| status);
    let paused = all.clone().any(|status| status.state.parse() == Ok(State::Paused));
    let whole = config::annotation(upgrade, annotations::PAUSE).is_some();
    condition_of(upgrade, "Completed") == Some(Tri::Unknown) && (whole || paused) && !all.any(at_work)
}

impl Board {
    pub fn of(view: &View, key: &Key, now: Timestamp) -> Option<Self> {
        let upgrade: &Upgrade = view.hci.upgrades.get(key)?;
        let status = upgrade.status.clone().unwrap_or_default();
        let release = Release::parse(&status.repo_info).ok();
        let asked = if upgrade.spec.image.is_empty() {
            &upgrade.spec.version
        } else {
            &upgrade.spec.image
        };
        let completed = condition_of(upgrade, "Completed");
        let text = |kind: &str| {
            let condition = status.conditions.iter().find(|condition| condition.kind == kind);
            condition.map(|condition| condition.message.clone()).unwrap_or_default()
        };
        let phase = running(upgrade).filter(|_| completed == Some(Tri::Unknown));
        let message = match (upstream_at_work(view, upgrade), completed) {
            (Some(why), _) => why,
            (None, None) => text(PREFLIGHT_PASSED),
            (None, Some(Tri::Unknown)) => phase.map(|phase| phase.message.clone()).unwrap_or_default(),
            (None, Some(_)) => text("Completed"),
        };
        let times = Times::of(upgrade);
        let nodes = view.nodes.values().map(|node| {
            let times = times.0.get(node.name.as_str()).cloned().unwrap_or_default();
            let status = status
                .node_statuses
                .get(node.name.as_str())
                .cloned()
                .unwrap_or_default();
            Row {
                name: node.name.to_string(),
                state: status.state,
                os_image: node.os_image.to_string(),
                kubelet_version: node
                    .kubelet_version
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                held: node.hci.pause.is_some(),
                reason: status.reason,
                message: status.message,
                begun_at: times.begun,
                done_at: times.done,
                waited_seconds: times.waited,
            }
        });
        let state = config::label(upgrade, labels::HARVESTER_UPGRADE_STATE).unwrap_or("not begun");
        Some(Self {
            time: now,
            name: key.name.to_string(),
            from: status.previous_version.clone(),
            to: release.map_or_else(|| asked.clone(), |release| release.harvester),
            state: state.to_owned(),
            over: matches!(completed, Some(Tri::True | Tri::False)),
            succeeded: completed == Some(Tri::True),
            refused: completed.is_none() && condition_of(upgrade, PREFLIGHT_PASSED) == Some(Tri::False),
            held: held(upgrade),
            phase: phase.map(|phase| phase.kind.clone()),
            message,
            started_at: report::begun_at(upgrade),
            nodes: nodes.collect(),
        })
    }

    pub fn headline(&self) -> String {
        let done = self
            .nodes
            .iter()
            .filter(|row| row.state.parse() == Ok(State::Succeeded))
            .count();
        let from = if self.from.is_empty() {
            String::new()
        } else {
            format!("{} → ", self.from)
        };
        let so_far = self.started_at.filter(|_| !self.over);
        let so_far = so_far.map_or_else(String::new, |start| {
            format!(" · {} so far", words::since(start, self.time))
        });
        format!(
            "Upgrade {}  {from}{}   {}   {done} of {} nodes{so_far}",
            self.name,
            self.to,
            self.state,
            self.nodes.len()
        )
    }

    /// Name, state and message of the phase where it says something, and of each node that is anywhere, for those who follow.
    pub fn states(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let phase = self.phase.as_deref().filter(|_| !self.message.is_empty());
        let phase = phase.map(|phase| (phase, "is not reached yet", self.message.as_str()));
        let begun = self.nodes.iter().filter(|row| !row.state.is_empty());
        let nodes = begun.map(|row| (row.name.as_str(), row.state.as_str(), row.message.as_str()));
        phase.into_iter().chain(nodes)
    }

    pub fn lines(&self, layout: &Layout) -> Vec<String> {
        let mut lines = vec![self.headline()];
        let message = match &self.phase {
            Some(phase) if !self.message.is_empty() => format!("{phase} is not reached yet: {}", self.message),
            _ => self.message.clone(),
        };
        lines.extend(message.lines().map(str::to_owned));
        lines.push(String::new());
        let mut heading = vec!["NODE", "STATE", "SYSTEM", "KUBELET"];
        if layout.wide {
            heading.extend(["REASON", "TOOK", "WAITED"]);
        }
        heading.push("NOTE");
        let heading = heading.into_iter().map(|word| toned(word, Tone::Heading));
        let mut rows: Vec<Vec<Cell>> = vec![heading.collect()];
        rows.extend(self.nodes.iter().map(|row| {
            let tone = match row.state.parse() {
                Ok(State::Succeeded) => Tone::Good,
                Ok(State::Failed) => Tone::Bad,
                Ok(State::Paused) => Tone::Careful,
                _ => Tone::Plain,
            };
            let paused = row.state.parse() == Ok(State::Paused);
            let note = match (row.held, paused, row.message.is_empty()) {
                (true, true, _) => format!("afloat resume {}", row.name),
                (true, false, true) => format!("will pause; afloat resume {}", row.name),
                _ => row.message.clone(),
            };
            let mut cells = vec![
                plain(&row.name),
                toned(&row.state, tone),
                plain(&row.os_image),
                plain(&row.kubelet_version),
            ];
            if layout.wide {
                cells.extend([plain(&row.reason), plain(row.took(self.time)), plain(row.waited())]);
            }
            cells.push(plain(note));
            cells
        }));
        lines.extend(table(&rows, layout.width, layout.colour));
        lines
    }
}

impl Row {
    /// From the first thing that was done to it until it was at the target, or until now.
    fn took(&self, now: Timestamp) -> String {
        let until = self.done_at.unwrap_or(now);
        self.begun_at
            .map_or_else(String::new, |begun| words::since(begun, until))
    }

    fn waited(&self) -> String {
        if self.waited_seconds == 0 {
            return String::new();
        }
        words::duration(SignedDuration::from_secs(self.waited_seconds))
    }
}
