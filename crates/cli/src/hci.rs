//! Upgrades of Harvester on the command line: the same verbs as for a ClusterUpgrade, for the object people of Harvester know. What is
//! written are the annotations of the front door; the operator does the rest.

mod board;

use crate::args::people::{Abort, Explain, Form, Status, StatusOutput};
use crate::cluster::{Cluster, Live, because_of};
use crate::hold::{annotate, parameters};
use crate::problem::{Code, Problem};
use crate::screen::{Screen, consent};
use crate::status;
use crate::upgrade::printed;
use crate::which;
use afloat_api::annotations;
use afloat_api::harvester::{HarvesterNodeState as State, NAMESPACE, Upgrade};
use afloat_core::hci::{self, Tri, condition_of, config, pause, upstream_at_work};
use afloat_core::objects::key_of;
use afloat_core::view::{Key, Node, View};
use afloat_operator::clients::bounded;
use board::Board;
use jiff::Timestamp;
use kube::Api;
use kube::api::Patch;
use serde_json::json;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// The value of the annotation that holds a node or an upgrade: whoever reads it learns why.
const BY_HAND: &str = "held by afloat pause";

/// What a word on the command line means among upgrades of Harvester.
pub enum Subject<'a> {
    Node { node: &'a Node, upgrade: &'a Upgrade },
    Upgrade(&'a Upgrade),
}

fn name(upgrade: &Upgrade) -> String {
    upgrade.metadata.name.clone().unwrap_or_default()
}

/// Upgrades that something is under way of, or that could go on.
fn open(view: &View) -> Option<&Upgrade> {
    let all = view.hci.upgrades.values().map(|upgrade| &upgrade.what);
    all.filter(|upgrade| !hci::over(upgrade))
        .max_by_key(|upgrade| born(upgrade))
}

fn born(upgrade: &Upgrade) -> Option<Timestamp> {
    upgrade.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn named<'a>(view: &'a View, word: &str) -> Option<&'a Upgrade> {
    view.hci
        .upgrades
        .get(&Key::new(NAMESPACE, word))
        .map(|upgrade| &upgrade.what)
}

/// The upgrade of Harvester a person means to look at; `None` where they mean a ClusterUpgrade.
pub fn to_look_at<'a>(view: &'a View, word: Option<&str>) -> Option<&'a Upgrade> {
    match word {
        Some(word) => named(view, word),
        None if which::to_look_at(view, None)
            .is_ok_and(|upgrade| !crate::board::over(crate::board::phase_of(upgrade))) =>
        {
            None
        }
        None => {
            let last = || {
                view.hci
                    .upgrades
                    .values()
                    .map(|upgrade| &upgrade.what)
                    .max_by_key(|upgrade| born(upgrade))
            };
            open(view).or_else(last)
        }
    }
}

/// What a person means to change; `None` where it is about a ClusterUpgrade.
pub fn subject<'a>(view: &'a View, word: Option<&str>) -> Option<Subject<'a>> {
    match word {
        Some(word) => match (view.nodes.get(word), open(view)) {
            (Some(node), Some(upgrade)) => Some(Subject::Node { node, upgrade }),
            _ => named(view, word).map(Subject::Upgrade),
        },
        None => to_look_at(view, None).map(Subject::Upgrade),
    }
}

fn state(upgrade: &Upgrade, node: &str) -> Option<State> {
    upgrade.status.as_ref()?.node_statuses.get(node)?.state.parse().ok()
}

/// Somebody else's controller upgrades: nothing we write would be heeded.
fn ours(view: &View, upgrade: &Upgrade) -> Result<(), Problem> {
    match upstream_at_work(view, upgrade) {
        Some(why) => {
            Err(Problem::new(Code::Failed, format!("{} is not Afloat's to change", name(upgrade))).because(why))
        }
        None => Ok(()),
    }
}

pub async fn hold(cluster: &Cluster, view: &View, subject: Subject<'_>, screen: &mut Screen) -> Result<Code, Problem> {
    match subject {
        Subject::Node { node, upgrade } => {
            ours(view, upgrade)?;
            let begun = state(upgrade, node.name.as_str()).filter(|state| *state > State::Paused);
            if let Some(state) = begun {
                return Err(Problem::new(Code::Failed, format!("{} has begun ({state})", node.name))
                    .because("a node can be held before its pre-drain Job, not after")
                    .help(format!("to stop after this node: afloat abort {}", name(upgrade))));
            }
            if node.hci.pause.is_none() {
                annotate(cluster, node, annotations::HARVESTER_NODE_PAUSE, Some(BY_HAND)).await?;
            }
            screen.say(&format!(
                "{} is held before it is drained.\nTo let it go on: afloat resume {0}",
                node.name
            ));
        }
        Subject::Upgrade(upgrade) => {
            ours(view, upgrade)?;
            write(cluster, upgrade, annotations::PAUSE, Some(BY_HAND)).await?;
            let name = name(upgrade);
            screen.say(&format!(
                "{name} is paused: no further node starts.\nTo let it go on: afloat resume {name}"
            ));
        }
    }
    Ok(Code::Done)
}

pub async fn resume(
    cluster: &Cluster,
    view: &View,
    subject: Subject<'_>,
    screen: &mut Screen,
) -> Result<Code, Problem> {
    match subject {
        Subject::Node { node, upgrade } => {
            ours(view, upgrade)?;
            if node.hci.pause.is_none() {
                screen.say(&format!("{} is not held: there is nothing to resume.", node.name));
                return Ok(Code::Done);
            }
            annotate(cluster, node, annotations::HARVESTER_NODE_PAUSE, None).await?;
            let asked = state(upgrade, node.name.as_str()) == Some(State::Paused);
            let when = if asked {
                "goes on now"
            } else {
                "goes on when Rancher takes it"
            };
            screen.say(&format!("{} {when}.", node.name));
        }
        Subject::Upgrade(upgrade) => {
            ours(view, upgrade)?;
            resume_whole(cluster, view, upgrade, screen).await?;
        }
    }
    Ok(Code::Done)
}

async fn resume_whole(cluster: &Cluster, view: &View, upgrade: &Upgrade, screen: &mut Screen) -> Result<(), Problem> {
    let name = name(upgrade);
    let held = view.nodes.values().find(|node| node.hci.pause.is_some());
    let nodes = held.map_or_else(String::new, |node| {
        format!(
            "\nStill held: {}. To let it go on: {}",
            node.name,
            pause::way_on(node.name.as_str())
        )
    });
    if condition_of(upgrade, "Completed") == Some(Tri::False) {
        write(cluster, upgrade, annotations::WISH, Some("resume")).await?;
        screen.say(&format!(
            "{name} goes on where it stopped. Follow it: afloat status {name} --watch"
        ));
    } else if config::annotation(upgrade, annotations::PAUSE).is_some() {
        write(cluster, upgrade, annotations::PAUSE, None).await?;
        screen.say(&format!("{name} goes on.{nodes}"));
    } else {
        screen.say(&format!("{name} is not paused as a whole.{nodes}"));
    }
    Ok(())
}

pub async fn abort(
    cluster: &Cluster,
    live: &mut Live,
    upgrade: Upgrade,
    arguments: &Abort,
    screen: &mut Screen,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    ours(live.view(), &upgrade)?;
    let (name, key) = (name(&upgrade), key_of(&upgrade.metadata));
    if matches!(condition_of(&upgrade, "Completed"), Some(Tri::True | Tri::False)) {
        return Err(Problem::new(Code::Failed, format!("{name} is over")).help(format!("afloat status {name}")));
    }
    let statuses = upgrade.status.clone().unwrap_or_default().node_statuses;
    let busy = |wanted: fn(State) -> bool| {
        let found = statuses
            .iter()
            .find(|(_, status)| status.state.parse().is_ok_and(wanted));
        found.map(|(node, status)| format!("{node} ({})", status.state))
    };
    let fate = if let Some(node) = busy(|state| state > State::PreDraining && state < State::Succeeded) {
        format!("{node} was drained and is finished first, the others stay as they are")
    } else if let Some(node) = busy(|state| state == State::PreDraining) {
        format!("{node} is put back, the others stay as they are")
    } else {
        "no node is in flight".to_owned()
    };
    let question = format!("{name} ends: {fate}.");
    if !consent(&question, arguments.yes)? {
        screen.say("Nothing was changed.");
        return Ok(Code::Done);
    }
    write(cluster, &upgrade, config::ABORT, Some("true")).await?;
    screen.say(&question);
    if arguments.no_wait {
        return Ok(Code::Done);
    }
    // What is held ends as well once it was told to.
    follow(live, &key, screen, Until::Over, stop)
        .await
        .map(|code| if code == Code::Failed { Code::Done } else { code })
}

pub async fn status(
    live: &mut Live,
    key: &Key,
    arguments: &Status,
    screen: &mut Screen,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    if arguments.watch {
        return follow(live, key, screen, Until::Held, stop).await;
    }
    let Some(board) = Board::of(live.view(), key, Timestamp::now()) else {
        return Err(gone(key));
    };
    match arguments.output {
        StatusOutput::Json => screen.say(printed(&board, Form::Json)?.trim_end()),
        StatusOutput::Yaml => screen.say(printed(&board, Form::Yaml)?.trim_end()),
        StatusOutput::Text | StatusOutput::Wide => {
            let layout = screen.layout(arguments.output == StatusOutput::Wide);
            screen.say(&board.lines(&layout).join("\n"));
        }
    }
    Ok(Code::Done)
}

fn gone(key: &Key) -> Problem {
    Problem::new(Code::Failed, format!("upgrade/{} was deleted", key.name))
}

/// How long a node's message stands before the next one is told; a new state is told at once.
const MESSAGES_APART: Duration = Duration::from_secs(10);

/// What was told of a node last.
struct Told {
    state: String,
    message: String,
    at: Instant,
}

/// A pause counts when it has lasted so long: between two nodes it may look like one.
const CALM: Duration = Duration::from_secs(2);

/// Until when an upgrade is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is over, or goes on only when a person does something: whoever waits for it in a script learns that.
    Held,
    /// It is over.
    Over,
}

/// The exit code where only a person can make it go on, with the words that say how.
fn needs_somebody(board: &Board, held_since: &mut Option<Instant>) -> Option<(Code, String)> {
    if board.refused {
        let rest = "Nothing was changed. It begins by itself once they are gone; to give it up:";
        let give_up = format!("kubectl -n {NAMESPACE} delete upgrade {}", board.name);
        let words = format!("{}\n{}\n{rest} {give_up}", board.headline(), board.message);
        return Some((Code::Refused, words));
    }
    if !board.held {
        *held_since = None;
        return None;
    }
    let since = *held_since.get_or_insert_with(Instant::now);
    let paused = board.nodes.iter().find(|row| row.state.parse() == Ok(State::Paused));
    let who = paused.map_or(board.name.as_str(), |row| row.name.as_str());
    let words = format!(
        "{}\nHeld until a person lets it go on: afloat resume {who}",
        board.headline()
    );
    (since.elapsed() >= CALM).then_some((Code::Paused, words))
}

/// One line per change, until it ends or the person has seen enough.
pub async fn follow(
    live: &mut Live,
    key: &Key,
    screen: &mut Screen,
    until: Until,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    let mut stop = std::pin::pin!(stop);
    let mut told: BTreeMap<String, Told> = BTreeMap::new();
    let mut held_since = None;
    loop {
        let Some(board) = Board::of(live.view(), key, Timestamp::now()) else {
            return Err(gone(key));
        };
        let mut withheld = false;
        for (node, state, message) in board.states() {
            let now = Instant::now();
            match told.get(node) {
                Some(last) if last.state == state && last.message == message => continue,
                Some(last) if last.state == state && now < last.at + MESSAGES_APART => {
                    withheld = true;
                    continue;
                }
                _ => {}
            }
            screen.say(format!("{node}  {state}  {message}").trim_end());
            let (state, message) = (state.to_owned(), message.to_owned());
            told.insert(
                node.to_owned(),
                Told {
                    state,
                    message,
                    at: now,
                },
            );
        }
        if board.over {
            screen.say(&board.headline());
            if !board.message.is_empty() {
                screen.say(&board.message);
            }
            return Ok(if board.succeeded { Code::Done } else { Code::Failed });
        }
        if until == Until::Held
            && let Some((code, words)) = needs_somebody(&board, &mut held_since)
        {
            screen.say(&words);
            return Ok(code);
        }
        tokio::select! {
            () = &mut stop => return Ok(Code::Detached),
            () = tokio::time::sleep(MESSAGES_APART), if withheld => {}
            () = tokio::time::sleep(CALM), if held_since.is_some() => {}
            more = live.changed() => {
                if !more {
                    return Err(Problem::new(Code::Failed, "the cluster stopped answering"));
                }
            }
        }
    }
}

pub fn explain(live: &Live, key: &Key, arguments: &Explain, screen: &mut Screen) -> Result<Code, Problem> {
    let explanation = hci::explain(live.view(), key).unwrap_or_default();
    status::tell(&explanation, key, arguments.output, screen)
}

/// Writes an annotation of this very Upgrade, whatever happened to its name meanwhile.
async fn write(cluster: &Cluster, upgrade: &Upgrade, key: &str, value: Option<&str>) -> Result<(), Problem> {
    let body = json!({ "metadata": { "uid": upgrade.metadata.uid, "annotations": { key: value } } });
    let api: Api<Upgrade> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let name = name(upgrade);
    let patched = bounded(api.patch_metadata(&name, &parameters(), &Patch::Merge(body))).await;
    patched.map(drop).map_err(|error| {
        let problem = Problem::new(Code::Failed, format!("upgrade/{name} was not changed"));
        because_of(problem, &error).help("run it again: it is safe to")
    })
}
