//! What becomes of this node's etcd member when a control plane is undone. A healthy one stays at its new version; a broken one gets its
//! old binary on its live data, while the etcd cluster has not moved to the new version; else, or where that does not help, it is removed
//! and joined anew (`join`), and where it has no peers, its data goes back to the snapshot of before the change (`snapshot`).

use afloat_api::Reason;
use afloat_api::node::steps;

use crate::flags::numbers;
use crate::host::{Answer, Endpoint, UnitState};
use crate::instruction::{Context, Instruction, Ran, Waiting};
use crate::journal::{Journal, StepState};
use crate::paths;
use crate::steps::{config, kubeadm};

mod join;
mod snapshot;

/// How long a member that does not answer may just be starting.
const STARTING_SECONDS: i64 = 30;

/// The fact that says what was decided before anything was undone.
const DECIDED: &str = "etcd";
/// The member that is removed, and where its data goes; from here on only joining is safe.
const JOINING: &str = "etcdJoining";
/// The members, as `--initial-cluster` wants them.
const CLUSTER: &str = "etcdCluster";
/// When the snapshot was taken.
const SNAPSHOT: &str = "etcdSnapshot";
/// Where the data goes that the snapshot replaces; from here on there is no etcd until it has.
const RETURNING: &str = "etcdReturning";
const RETURNED: &str = "etcdReturned";

const STAYS: &str = "stays ";
/// It was well at its new version, and nobody has started it since: it is, before anything else is thought of.
const TRIES: &str = "tries ";
const BACK: &str = "back";
const JOIN: &str = "join";
const RETURN: &str = "snapshot";
/// The snapshot was put back by an undoing that came no further.
const IS_BACK: &str = "snapshot is back";

/// One thing to do about the member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// Keeps the data of a member without peers before its version changes.
    TakeSnapshot,
    Decide,
    /// Where it is to be joined anew: sees that etcd can do without it, before anything is undone.
    CheckJoin,
    /// Waits until the old binary runs on the live data, or it is clear that it does not.
    AwaitBack,
    Remove,
    Add,
    PlaceManifest,
    MoveAside,
    AwaitJoined,
    Withdraw,
    ReturnSnapshot,
    AwaitReturned,
}

impl Act {
    pub fn what(self) -> &'static str {
        match self {
            Self::TakeSnapshot => "takes a snapshot of etcd's data",
            Self::Decide => "looks at this node's etcd member",
            Self::AwaitBack => "waits for this node's etcd member",
            Self::CheckJoin => "looks whether etcd can do without this node's member",
            Self::Remove => "removes this node's broken member from etcd",
            Self::Add => "adds this node to etcd as a new member",
            Self::PlaceManifest => "puts etcd's manifest for joining in place",
            Self::MoveAside => "moves etcd's former data aside",
            Self::AwaitJoined => "waits until the new etcd member has caught up",
            Self::Withdraw => "takes etcd's manifest away",
            Self::ReturnSnapshot => "puts the snapshot of etcd's data back",
            Self::AwaitReturned => "waits for etcd on its snapshot",
        }
    }

    pub fn run(self, c: &mut Context<'_>) -> Answer<Ran> {
        match self {
            Self::TakeSnapshot => snapshot::take(c),
            Self::Decide => decide(c),
            Self::AwaitBack => await_back(c),
            Self::CheckJoin => check_join(c),
            Self::Remove => join::remove(c),
            Self::Add => join::add(c),
            Self::PlaceManifest => join::place_manifest(c),
            Self::MoveAside => move_aside(c),
            Self::AwaitJoined => join::await_joined(c),
            Self::Withdraw => snapshot::withdraw(c),
            Self::ReturnSnapshot => snapshot::put_back(c),
            Self::AwaitReturned => snapshot::await_returned(c),
        }
    }
}

/// A member that has no data starts a new cluster by any manifest but one made for joining. So that one is in place before the data
/// goes, and the machine may restart anywhere in between.
const JOINS: [Act; 4] = [Act::Remove, Act::Add, Act::PlaceManifest, Act::MoveAside];
/// Without peers there is nothing to join: while the data is not whole there is no manifest at all.
const RETURNS: [Act; 3] = [Act::Withdraw, Act::MoveAside, Act::ReturnSnapshot];

fn joins() -> Vec<Instruction> {
    JOINS.map(Instruction::Etcd).into()
}

fn returns() -> Vec<Instruction> {
    let mut list: Vec<_> = RETURNS.map(Instruction::Etcd).into();
    // The manifest, which is all that is not as it was.
    list.push(Instruction::Restore);
    list
}

/// What follows on the decision, while everything is ended and before the kubelet starts the old parts.
pub fn before_start(journal: &Journal) -> Vec<Instruction> {
    match fact(journal, DECIDED) {
        Some(JOIN) => joins(),
        Some(RETURN) => returns(),
        _ => Vec::new(),
    }
}

/// What follows once the kubelet was started. Where the old binary was tried, it is known by then what has to be done instead.
pub fn after_start(journal: &Journal) -> Vec<Instruction> {
    let (way, last) = match fact(journal, DECIDED) {
        Some(JOIN) => return vec![Instruction::Etcd(Act::AwaitJoined)],
        Some(RETURN | IS_BACK) => return vec![Instruction::Etcd(Act::AwaitReturned)],
        Some(way) if way != BACK && !way.starts_with(TRIES) => return Vec::new(),
        None => return Vec::new(),
        // Of this very undoing: one that finds either from before has decided otherwise.
        _ if fact(journal, JOINING).is_some() => (joins(), Act::AwaitJoined),
        _ if fact(journal, RETURNING).is_some() => (returns(), Act::AwaitReturned),
        _ => return vec![Instruction::Etcd(Act::AwaitBack)],
    };
    let mut program = vec![Instruction::Etcd(Act::AwaitBack)];
    program.extend(kubeadm::end_all());
    program.extend(way);
    program.extend([Instruction::RestartKubelet, Instruction::Etcd(last)]);
    program
}

/// Whether the manifest that is there is not to be replaced by the one of before: the member runs by it, or it would start a new
/// cluster by the other.
pub fn manifest_stays(journal: &Journal) -> bool {
    let decided = fact(journal, DECIDED).unwrap_or_default();
    let returning = fact(journal, RETURNING).is_some() && fact(journal, RETURNED).is_none();
    let at_new = decided.starts_with(STAYS) || decided.starts_with(TRIES) || decided == JOIN;
    at_new || fact(journal, JOINING).is_some() || returning
}

/// What is to be said about the member when all is undone.
pub fn message(journal: &Journal) -> Option<String> {
    if let (Some(joining), Some(_)) = (fact(journal, JOINING), fact(journal, CLUSTER)) {
        let aside = words(joining).skip(1).collect::<Vec<_>>().join(" and ");
        return Some(format!(
            "etcd's member was broken: it was removed and joined anew, and has all that the others have; its former data is in {aside}"
        ));
    }
    if let (Some(since), Some(aside)) = (fact(journal, RETURNED), fact(journal, RETURNING)) {
        return Some(format!(
            "etcd did not start on its data any more and is back at the snapshot of before the change: whatever was written to the \
             cluster since {since} is lost; the data that did not start is in {aside}"
        ));
    }
    let decided = fact(journal, DECIDED)?;
    let tag = decided.strip_prefix(STAYS).or_else(|| decided.strip_prefix(TRIES))?;
    Some(format!(
        "etcd stays at {tag}, healthy, with which the older API server works"
    ))
}

fn fact<'a>(journal: &'a Journal, name: &str) -> Option<&'a str> {
    journal.facts.get(name).map(String::as_str)
}

fn words(fact: &str) -> impl Iterator<Item = &str> {
    fact.split_whitespace()
}

fn found(name: &'static str, value: impl Into<String>) -> Ran {
    Ran::Found {
        fact: (name, value.into()),
    }
}

fn wait(message: impl Into<String>) -> Ran {
    Ran::Wait(Waiting {
        reason: Reason::WaitingForEtcd,
        message: message.into(),
    })
}

fn failed(message: String) -> Ran {
    Ran::Failed {
        reason: Reason::RollbackFailed,
        message,
    }
}

/// Whether the instruction has waited for so many times as long as a node may take to come back.
fn is_late(c: &Context<'_>, times: i64) -> bool {
    c.now.duration_since(c.since).as_secs() >= i64::from(c.plan().undo_after_seconds).saturating_mul(times)
}

/// The member's manifest: the one that is there, or the one of before where it was taken away.
fn manifest(c: &mut Context<'_>) -> Answer<String> {
    let live = paths::manifest("etcd");
    let text = c.text(&live)?;
    let kept = c.journal.kept.iter().find(|kept| kept.path == live);
    match kept.map(crate::journal::Kept::copy) {
        Some(copy) if text.is_empty() => c.text(&copy),
        _ => Ok(text),
    }
}

/// The folder in which the member keeps its data.
pub(super) fn data_folder(c: &mut Context<'_>) -> Answer<String> {
    let text = manifest(c)?;
    let folder = config::flag(&text, "--data-dir=").unwrap_or(paths::ETCD_DATA);
    Ok(folder.trim_end_matches('/').to_owned())
}

/// Decides what becomes of the member, before anything is undone.
fn decide(c: &mut Context<'_>) -> Answer<Ran> {
    let live = paths::manifest("etcd");
    let kept = c.journal.kept.iter().find(|kept| kept.path == live).cloned();
    let Some(kept) = kept.filter(|kept| kept.digest.is_some()) else {
        return Ok(found(DECIDED, "none"));
    };
    let joining = c.fact(JOINING).is_some();
    if c.fact(RETURNING).is_some() {
        let way = c.fact(RETURNED).map_or(RETURN, |_| IS_BACK);
        return Ok(found(DECIDED, way));
    }
    let (old, new) = (c.text(&kept.copy())?, c.text(&live)?);
    let (Some(old), Some(new)) = (config::tag(&old), config::tag(&new)) else {
        return Ok(found(DECIDED, if joining { JOIN } else { BACK }));
    };
    if old == new && !joining {
        return Ok(found(DECIDED, BACK));
    }
    let status = c.host.etcd()?;
    if status.healthy && numbers(&status.version) == numbers(new) {
        return Ok(found(DECIDED, format!("{STAYS}{new}")));
    }
    let minor = |version: &str| numbers(version).into_iter().take(2).collect::<Vec<_>>();
    let moved = minor(&status.cluster_version) > minor(old);
    if c.host.unit(paths::KUBELET_UNIT)? == UnitState::Active {
        // After a boot it needs a while. Where there is nothing to lose by the old binary, not a long one.
        let safe = !moved && !status.peers.is_empty();
        let short = safe || c.state.unasked.is_some();
        let seconds = i64::from(c.plan().undo_after_seconds);
        let seconds = if short { STARTING_SECONDS.min(seconds) } else { seconds };
        if !status.healthy && c.now.duration_since(c.since).as_secs() < seconds {
            return Ok(wait("this node's etcd member does not answer yet"));
        }
    } else if !joining && was_well(c) {
        return Ok(found(DECIDED, format!("{TRIES}{new}")));
    }
    if joining {
        return Ok(found(DECIDED, JOIN));
    }
    if !moved {
        return Ok(found(DECIDED, BACK));
    }
    if status.peers.is_empty() {
        return Ok(failed(format!(
            "this node's etcd member answers at {new} and is not healthy, and has moved to {}, which {old} cannot read: \
             help: see why with crictl logs, and mend it",
            status.cluster_version
        )));
    }
    Ok(found(DECIDED, JOIN))
}

/// Whether the member was seen well at its new version, by this undoing when it began or when the node was upgraded.
fn was_well(c: &Context<'_>) -> bool {
    let decided = c.fact(DECIDED).unwrap_or_default();
    let upgraded = c.journal.step(steps::KUBELET).is_some_and(StepState::succeeded);
    upgraded || decided.starts_with(STAYS) || decided.starts_with(TRIES)
}

/// What was decided to be joined anew may have come up while the others were waited for: then it stays.
fn check_join(c: &mut Context<'_>) -> Answer<Ran> {
    if c.fact(DECIDED) != Some(JOIN) {
        return Ok(Ran::Done);
    }
    if !c.host.etcd()?.healthy {
        return join::check(c);
    }
    let text = manifest(c)?;
    Ok(found(
        DECIDED,
        format!("{STAYS}{}", config::tag(&text).unwrap_or_default()),
    ))
}

/// Waits for the member on its live data. Where it does not come up, the others have what it had, or the snapshot has most of it.
fn await_back(c: &mut Context<'_>) -> Answer<Ran> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(Ran::Done);
    }
    let well = c.host.well(Endpoint::Etcd)?;
    if well || !is_late(c, 1) {
        return Ok(c.in_a_row(well, wait("this node's etcd member does not answer yet")));
    }
    // What does not start it is no proof against it.
    if c.host.unit(paths::KUBELET_UNIT)? != UnitState::Active {
        return Ok(c.not_back(Endpoint::Kubelet));
    }
    if !c.host.well(Endpoint::Runtime)? {
        return Ok(c.not_back(Endpoint::Runtime));
    }
    let status = c.host.etcd()?;
    if !status.peers.is_empty() {
        return join::check(c);
    }
    // Not before the old binary was tried, which an undoing that is asked for again does.
    let tried = c.fact(DECIDED) == Some(BACK);
    if tried && c.fact(SNAPSHOT).is_some() && status.version.is_empty() {
        return snapshot::check(c);
    }
    Ok(c.not_back(Endpoint::Etcd))
}

/// The first free name beside the data: on the same file system, and etcd itself takes no notice of it.
fn free_folder(c: &mut Context<'_>) -> Answer<String> {
    let data = data_folder(c)?;
    let listed = c.host.list(&data)?;
    let taken = |folder: &str| listed.iter().any(|file| file.path.starts_with(&format!("{folder}/")));
    let mut names = (1..=listed.len() + 1).map(|number| format!("{data}/afloat-aside-{number}"));
    Ok(names
        .find(|name| !taken(name))
        .unwrap_or_else(|| format!("{data}/afloat-aside")))
}

/// Moves the data to where it was decided that it goes. Nothing is ever deleted; what lies there was moved before, and what lies in its
/// place since then is the new member's.
fn move_aside(c: &mut Context<'_>) -> Answer<Ran> {
    let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(ended);
    }
    let returning = c.fact(RETURNING).map(str::to_owned);
    let joining = c.fact(JOINING).and_then(|fact| words(fact).nth(1)).map(str::to_owned);
    let Some(aside) = joining.or(returning) else {
        return Ok(failed("the journal does not say where etcd's data goes".to_owned()));
    };
    let data = format!("{}/member", data_folder(c)?);
    if c.host.list(&aside)?.is_empty() && !c.host.list(&data)?.is_empty() {
        c.host.rename(&data, &aside)?;
    }
    Ok(Ran::Done)
}
