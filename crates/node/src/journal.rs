//! The truth about an attempt, on the host itself: what was asked, what was about to be done, what was done, and what was
//! kept to undo it. Lines are only ever added, each with a checksum and synced; a last line that a power loss tore is
//! dropped. What follows from the lines is worked out here; what to do next is the engine's to say.

use std::collections::{BTreeMap, BTreeSet};

use afloat_api::node::{NodePlan, NotAPlan, StepReport, exit, steps};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::host::{Answer, Host, HostError};
use crate::paths;

/// A line of the journal.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Entry {
    /// The first line: which attempt at which upgrade this is, and the plan as the environment of the step containers.
    Opened { plan: BTreeMap<String, String> },
    /// A step was asked for, the first time or again after it said `LATER`.
    Begun {
        step: String,
        at: Timestamp,
        /// Of the undoing: why the host began it by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unasked: Option<String>,
    },
    /// The instruction is about to be carried out.
    Intent {
        step: String,
        number: usize,
        what: String,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disrupts: bool,
    },
    /// It was carried out, and this was found or kept on the way.
    Done {
        step: String,
        number: usize,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<Kept>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fact: Option<(String, String)>,
    },
    /// It did not work this time.
    Tried { step: String, message: String },
    /// A gate was seen open or closed.
    Seen {
        step: String,
        open: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The step is over, or over for now.
    Ended {
        step: String,
        exit_code: i32,
        report: StepReport,
    },
    /// The node was seen alive when its time was up: the time begins anew.
    Alive { at: Timestamp },
    /// The machine runs since another boot than what is written above.
    Booted { id: String, at: Timestamp },
}

impl Entry {
    /// When it was written, where it says so.
    fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Begun { at, .. } | Self::Intent { at, .. } | Self::Alive { at } | Self::Booted { at, .. } => {
                Some(*at)
            }
            Self::Seen { at, .. } => *at,
            Self::Opened { .. } | Self::Done { .. } | Self::Tried { .. } | Self::Ended { .. } => None,
        }
    }
}

/// A file as it was before the attempt.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub path: String,
    /// Nothing where there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl Kept {
    /// Where the copy lies.
    pub fn copy(&self) -> String {
        format!("{}{}", paths::KEPT, self.path)
    }
}

/// How long a machine has after a boot to bring its node back, where it has not less for any disruption.
const MOST_AFTER_BOOT: u32 = 300;
/// So many boots give it that time. A machine that restarts again and again is not on its way back.
const BOOTS_WAITED_FOR: u32 = 3;

/// Where a step is.
#[derive(Clone, Debug, Default)]
pub struct StepState {
    /// How often it was asked for.
    pub begun: u32,
    pub ended: Option<(i32, StepReport)>,
    /// How many of its instructions are done.
    pub done: usize,
    /// The one that was about to be carried out, and since when.
    pub intent: Option<(String, Timestamp)>,
    pub tries: u32,
    /// How often in a row a gate was seen open, and since when.
    pub open: u32,
    pub open_since: Option<Timestamp>,
    /// It has begun something that may take the node away.
    pub disrupted: bool,
    /// Why the host began it by itself.
    pub unasked: Option<String>,
}

impl StepState {
    pub fn runs(&self) -> bool {
        self.begun > 0 && self.ended.is_none()
    }

    pub fn succeeded(&self) -> bool {
        matches!(self.ended, Some((exit::DONE, _)))
    }
}

/// The journal of one attempt, as read.
#[derive(Clone, Debug)]
pub struct Journal {
    pub plan: NodePlan,
    pub steps: BTreeMap<String, StepState>,
    pub kept: Vec<Kept>,
    pub facts: BTreeMap<String, String>,
    /// Everything that was about to be carried out, now or before.
    pub intended: BTreeSet<String>,
    /// Since when the node may be away by our doing.
    pub armed: Option<Timestamp>,
    /// The boot that the machine runs since, as far as was written.
    pub boot: Option<String>,
    /// When it was found booted while a step ran or the node was away, and how often since the node was last seen alive, its time began, or
    /// its undoing.
    booted: Option<Timestamp>,
    boots: u32,
    /// When the last line was written that says so.
    latest: Option<Timestamp>,
    /// Length of the file when it was read.
    pub length: u64,
}

/// Why a journal cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(
        "line {line} of {} is damaged, which no power loss does: help: look at it, and remove it to begin anew",
        paths::JOURNAL
    )]
    Damaged { line: usize },
    #[error("{} does not begin with a plan", paths::JOURNAL)]
    NoPlan,
    #[error("the journal's plan cannot be read: {0}")]
    Plan(#[from] NotAPlan),
    #[error("cannot write {entry} into the journal: {message}")]
    Unwritable { entry: &'static str, message: String },
}

impl Journal {
    /// Reads the journal, if there is one; a torn last line is cut off for good.
    pub fn read(host: &mut dyn Host) -> Result<Option<Self>, JournalError> {
        let Some(content) = host.read(paths::JOURNAL)? else {
            return Ok(None);
        };
        let (entries, valid) = parse(&content)?;
        if valid < content.len() {
            let whole = content.get(..valid).unwrap_or_default();
            host.write(paths::JOURNAL, whole, 0o600)?;
        }
        let mut entries = entries.into_iter();
        let plan = match entries.next() {
            Some(Entry::Opened { plan }) => NodePlan::from_env(|name| plan.get(name).cloned())?,
            Some(_) => return Err(JournalError::NoPlan),
            // Torn before its first line was whole: as if it had never been opened.
            None => {
                host.remove(paths::JOURNAL)?;
                return Ok(None);
            }
        };
        let mut journal = Self::empty(plan, valid as u64);
        for entry in entries {
            journal.take(&entry);
        }
        Ok(Some(journal))
    }

    /// Begins the journal of an attempt.
    pub fn open(host: &mut dyn Host, plan: &NodePlan) -> Result<Self, JournalError> {
        let env = plan.to_env();
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let line = to_line(&Entry::Opened { plan: env })?;
        host.write(paths::JOURNAL, &line, 0o600)?;
        Ok(Self::empty(plan.clone(), line.len() as u64))
    }

    fn empty(plan: NodePlan, length: u64) -> Self {
        Self {
            plan,
            steps: BTreeMap::new(),
            kept: Vec::new(),
            facts: BTreeMap::new(),
            intended: BTreeSet::new(),
            armed: None,
            boot: None,
            booted: None,
            boots: 0,
            latest: None,
            length,
        }
    }

    /// Whether this is another file by now, or a longer one.
    pub fn is_stale(&self, host: &mut dyn Host) -> Answer<bool> {
        Ok(host.size(paths::JOURNAL)? != Some(self.length))
    }

    /// Adds a line; it is on the disk when this returns.
    pub fn add(&mut self, host: &mut dyn Host, entry: &Entry) -> Result<(), JournalError> {
        let line = to_line(entry)?;
        host.append(paths::JOURNAL, &line)?;
        self.length += line.len() as u64;
        self.take(entry);
        Ok(())
    }

    pub fn step(&self, step: &str) -> Option<&StepState> {
        self.steps.get(step)
    }

    /// The undoing, if it was begun.
    pub fn undoing(&self) -> Option<&StepState> {
        self.step(steps::ROLLBACK).filter(|state| state.begun > 0)
    }

    /// The step that is to be carried on now.
    pub fn running(&self) -> Option<(&String, &StepState)> {
        match self.undoing() {
            Some(_) => self
                .steps
                .get_key_value(steps::ROLLBACK)
                .filter(|(_, state)| state.runs()),
            None => self.steps.iter().find(|(_, state)| state.runs()),
        }
    }

    /// When the host undoes everything by itself, if the node is not well by then.
    pub fn undo_at(&self) -> Option<Timestamp> {
        let after = |at: Timestamp, seconds: u32| at.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok();
        let seconds = self.plan.undo_after_seconds;
        let at = after(self.armed?, seconds)?;
        // A machine without power is no node that does not come back: it has not begun to.
        let up = self
            .booted
            .and_then(|booted| after(booted, seconds.min(MOST_AFTER_BOOT)));
        Some(up.map_or(at, |up| at.max(up)))
    }

    /// Since when something is waited for that was begun then: not while the machine was off.
    pub fn waited_since(&self, begun: Timestamp) -> Timestamp {
        self.booted.map_or(begun, |booted| begun.max(booted))
    }

    /// Whether anything but Afloat's own folder may have been changed.
    pub fn has_changed_anything(&self) -> bool {
        !self.kept.is_empty() || self.steps.values().any(|state| state.disrupted)
    }

    /// Whether all that was begun was brought to an end, one way or the other.
    pub fn is_over(&self) -> bool {
        match self.undoing() {
            Some(undoing) => undoing.succeeded(),
            None => !self.has_changed_anything() || self.step(steps::KUBELET).is_some_and(StepState::succeeded),
        }
    }

    fn take(&mut self, entry: &Entry) {
        if let Some(at) = entry.at() {
            self.set_clock(at);
        }
        match entry {
            Entry::Opened { .. } => {}
            Entry::Begun { step, at, unasked } => self.take_begun(step, *at, unasked.as_ref()),
            Entry::Intent {
                step,
                what,
                at,
                disrupts,
                ..
            } => {
                let state = self.steps.entry(step.clone()).or_default();
                state.intent = Some((what.clone(), *at));
                state.disrupted |= disrupts;
                self.intended.insert(what.clone());
                if *disrupts {
                    self.arm(*at);
                }
            }
            Entry::Done {
                step,
                number,
                kept,
                fact,
            } => {
                let state = self.steps.entry(step.clone()).or_default();
                state.done = number + 1;
                (state.intent, state.tries) = (None, 0);
                (state.open, state.open_since) = (0, None);
                self.kept.extend_from_slice(kept);
                self.facts.extend(fact.clone());
            }
            Entry::Tried { step, .. } => {
                let state = self.steps.entry(step.clone()).or_default();
                state.tries += 1;
                state.intent = None;
            }
            Entry::Seen { step, open, at } => {
                let state = self.steps.entry(step.clone()).or_default();
                (state.open, state.open_since) = if *open {
                    (state.open + 1, state.open_since.or(*at))
                } else {
                    (0, None)
                };
            }
            Entry::Ended {
                step,
                exit_code,
                report,
            } => {
                let last = [steps::KUBELET, steps::COME_BACK, steps::ROLLBACK].contains(&step.as_str());
                let state = self.steps.entry(step.clone()).or_default();
                state.ended = Some((*exit_code, report.clone()));
                if last && *exit_code == exit::DONE {
                    self.is_back(None);
                }
            }
            Entry::Alive { at } => self.is_back(Some(*at)),
            Entry::Booted { id, at } => self.take_boot(id, *at),
        }
    }

    fn take_begun(&mut self, step: &str, at: Timestamp, unasked: Option<&String>) {
        let state = self.steps.entry(step.to_owned()).or_default();
        state.begun += 1;
        // An undoing that did not help begins anew: whatever stood in its way may be another thing now.
        if step == steps::ROLLBACK && matches!(state.ended, Some((exit::FAILED, _))) {
            state.done = 0;
        }
        (state.ended, state.intent) = (None, None);
        state.unasked = unasked.cloned();
        if step == steps::COME_BACK {
            self.arm(at);
        }
        // What it waits for is given time of its own, however often the machine was started on the way forward.
        if step == steps::ROLLBACK {
            (self.booted, self.boots) = (None, 0);
        }
    }

    /// From here on the node may be away. Boots of before have kept nobody from coming back.
    fn arm(&mut self, at: Timestamp) {
        if self.armed.is_none() {
            self.armed = Some(at);
            (self.booted, self.boots) = (None, 0);
        }
    }

    fn take_boot(&mut self, id: &str, at: Timestamp) {
        // An undoing waits for much before it takes the node away, and a step that runs for things that begin with the boot.
        let waits = self.armed.is_some() || self.running().is_some();
        let another = self.boot.as_deref().is_some_and(|boot| boot != id);
        if another && waits && self.boots < BOOTS_WAITED_FOR {
            self.boots += 1;
            self.booted = Some(at);
        }
        self.boot = Some(id.to_owned());
    }

    /// Lines are written in the order of time. What was written before and is later than this was written in a boot whose clock was ahead:
    /// it counts from here, else what was to happen by then would be put off for as long.
    fn set_clock(&mut self, now: Timestamp) {
        if self.latest.is_some_and(|latest| latest > now) {
            let steps = self.steps.values_mut();
            let steps = steps.flat_map(|state| [state.intent.as_mut().map(|(_, at)| at), state.open_since.as_mut()]);
            let moments = [self.armed.as_mut(), self.booted.as_mut()].into_iter().chain(steps);
            for moment in moments.flatten() {
                *moment = now.min(*moment);
            }
        }
        self.latest = Some(now);
    }

    /// The node is well, or out of our hands: neither its time nor its boots count any more.
    fn is_back(&mut self, armed: Option<Timestamp>) {
        self.armed = armed;
        (self.booted, self.boots) = (None, 0);
    }
}

/// A checksum against torn and decayed lines; nobody is to be kept from forging them, the folder is root's alone.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// How many digits a checksum has.
const SUM: usize = 16;

fn to_line(entry: &Entry) -> Result<Vec<u8>, JournalError> {
    // Room for the checksum, which is known once the rest is written.
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(b"0000000000000000 ");
    serde_json::to_writer(&mut line, entry).map_err(|error| JournalError::Unwritable {
        entry: "an entry",
        message: error.to_string(),
    })?;
    let (head, json) = line.split_at_mut(SUM + 1);
    let sum = checksum(json);
    for (place, digit) in head.iter_mut().take(SUM).zip((0..16).rev()) {
        *place = b"0123456789abcdef"[usize::try_from(sum >> (4 * digit) & 15).unwrap_or_default()];
    }
    line.push(b'\n');
    Ok(line)
}

fn from_line(line: &[u8]) -> Option<Entry> {
    let (sum, rest) = line.split_at_checked(SUM)?;
    let json = rest.strip_prefix(b" ")?;
    let sum = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != checksum(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// The entries, and how much of the content they make up: what follows is a torn last line.
fn parse(content: &[u8]) -> Result<(Vec<Entry>, usize), JournalError> {
    let mut entries = Vec::new();
    let mut valid = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let entry = line.strip_suffix(b"\n").and_then(from_line);
        let Some(entry) = entry else {
            // Lines are synced one by one, so only the last can be torn.
            return if valid + line.len() == content.len() {
                Ok((entries, valid))
            } else {
                Err(JournalError::Damaged {
                    line: entries.len() + 1,
                })
            };
        };
        entries.push(entry);
        valid += line.len();
    }
    Ok((entries, valid))
}
