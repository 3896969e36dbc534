//! What a person may want of an upgrade that is under way: pause, resume, defer, rollback, abort. Each writes one field or one
//! annotation, says what follows, and leaves the rest to the operator.

use crate::args::people::{Abort, Hold, Wish};
use crate::board::{Board, over};
use crate::cluster::{Cluster, Live, Scope, because_of};
use crate::follow::{self, Manner, WhenHeld};
use crate::hci;
use crate::problem::{Code, Problem};
use crate::screen::{Screen, consent, interrupted};
use crate::upgrade::FIELD_MANAGER;
use crate::which;
use afloat_api::{ClusterUpgrade, NodeState, annotations};
use afloat_core::objects::{Standing, key_of};
use afloat_core::view::{Node, View};
use afloat_core::{judge, words};
use afloat_operator::clients::bounded;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

/// An operator that works has heard a wish by then.
const HEARD: Duration = Duration::from_secs(10);
/// The value of the annotation that holds a node: whoever reads it learns why.
const BY_HAND: &str = "held by afloat pause";

pub async fn run_pause(arguments: Hold) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    pause(&cluster, arguments.subject.as_deref(), &mut Screen::stdout()).await
}

pub async fn run_resume(arguments: Hold) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    resume(&cluster, arguments.subject.as_deref(), &mut Screen::stdout()).await
}

pub async fn run_defer(arguments: Wish) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    defer(&cluster, &arguments, &mut Screen::stdout()).await
}

pub async fn run_rollback(arguments: Wish) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    rollback(&cluster, &arguments, &mut Screen::stdout()).await
}

pub async fn run_abort(arguments: Abort) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    abort(&cluster, &arguments, &mut Screen::stdout(), interrupted()).await
}

/// A node or an upgrade, as one word on the command line may mean either.
enum Subject<'a> {
    Node(&'a Node),
    Upgrade(&'a ClusterUpgrade),
}

fn subject<'a>(view: &'a View, word: Option<&str>) -> Result<Subject<'a>, Problem> {
    match word {
        Some(word) if view.nodes.contains_key(word) => Ok(Subject::Node(which::node(view, word)?)),
        Some(word) => {
            let upgrade = which::to_change(view, Some(word));
            let upgrade =
                upgrade.map_err(|problem| problem.because(format!("the nodes are {}", which::nodes(view))))?;
            Ok(Subject::Upgrade(upgrade))
        }
        None => Ok(Subject::Upgrade(which::to_change(view, None)?)),
    }
}

pub async fn pause(cluster: &Cluster, word: Option<&str>, screen: &mut Screen) -> Result<Code, Problem> {
    let live = cluster.look(Scope::Upgrades).await?;
    if let Some(subject) = hci::subject(live.view(), word) {
        return hci::hold(cluster, live.view(), subject, screen).await;
    }
    match subject(live.view(), word)? {
        Subject::Node(node) => {
            if let Some(why) = &node.pause {
                screen.say(&format!(
                    "{} is held already ({why}). To let it go on: afloat resume {0}",
                    node.name
                ));
                return Ok(Code::Done);
            }
            annotate(cluster, node, annotations::PAUSE, Some(BY_HAND)).await?;
            let busy = latest(live.view(), node).filter(|standing| standing.in_flight());
            let busy = busy.map_or_else(String::new, |standing| {
                format!(" It has begun ({}) and is finished first.", standing.state())
            });
            screen.say(&format!(
                "{} is held before it begins; the others go on.{busy}\nTo let it go on: afloat resume {0}",
                node.name
            ));
        }
        Subject::Upgrade(upgrade) => {
            let board = board(&live, upgrade);
            if upgrade.spec.paused == Some(true) {
                screen.say(&format!(
                    "{} is paused already. To let it go on: afloat resume",
                    name(upgrade)
                ));
                return Ok(Code::Done);
            }
            patch(cluster, upgrade, &json!({ "paused": true })).await?;
            let busy = board.map(|board| busy(&board)).unwrap_or_default();
            let busy = if busy.is_empty() {
                busy
            } else {
                format!(" Finished first: {busy}.")
            };
            screen.say(&format!(
                "{} is paused: no further node starts.{busy}\nTo let it go on: afloat resume",
                name(upgrade)
            ));
        }
    }
    Ok(Code::Done)
}

pub async fn resume(cluster: &Cluster, word: Option<&str>, screen: &mut Screen) -> Result<Code, Problem> {
    let live = cluster.look(Scope::Upgrades).await?;
    if let Some(subject) = hci::subject(live.view(), word) {
        return hci::resume(cluster, live.view(), subject, screen).await;
    }
    match subject(live.view(), word)? {
        Subject::Node(node) => {
            if node.pause.is_none() {
                screen.say(&format!("{} is not held: there is nothing to resume.", node.name));
                return Ok(Code::Done);
            }
            annotate(cluster, node, annotations::PAUSE, None).await?;
            screen.say(&format!("{} goes on when its turn comes.", node.name));
        }
        Subject::Upgrade(upgrade) => {
            let held = live.view().nodes.values().filter(|node| node.pause.is_some());
            let held: Vec<&str> = held.map(|node| node.name.as_str()).collect();
            let nodes = held.first().map_or_else(String::new, |first| {
                format!(
                    "\nStill held: {}. To let one go on: afloat resume {first}",
                    held.join(", ")
                )
            });
            if upgrade.spec.paused == Some(true) {
                patch(cluster, upgrade, &json!({ "paused": null })).await?;
                screen.say(&format!("{} goes on.{nodes}", name(upgrade)));
            } else {
                screen.say(&format!("{} is not paused as a whole.{nodes}", name(upgrade)));
            }
        }
    }
    Ok(Code::Done)
}

pub async fn defer(cluster: &Cluster, arguments: &Wish, screen: &mut Screen) -> Result<Code, Problem> {
    let mut live = cluster.look(Scope::Upgrades).await?;
    let node = which::node(live.view(), &arguments.node)?.clone();
    let name = &node.name;
    let standing = latest(live.view(), &node).filter(|standing| !standing.ended());
    let Some(standing) = standing else {
        let state =
            latest(live.view(), &node).map_or_else(String::new, |standing| format!(": it is {}", standing.state()));
        return Err(
            Problem::new(Code::Failed, format!("there is nothing to defer on {name}"))
                .because(format!("it is not being upgraded{state}"))
                .help("afloat status"),
        );
    };
    let follows = if standing.in_flight() {
        format!("{name} ({}) is put back as it was and taken last.", standing.state())
    } else {
        format!("{name} was not begun; it is taken last.")
    };
    annotate(cluster, &node, annotations::WISH, Some("defer")).await?;
    screen.say(&follows);
    heard(&mut live, name.as_str(), screen).await
}

pub async fn rollback(cluster: &Cluster, arguments: &Wish, screen: &mut Screen) -> Result<Code, Problem> {
    let mut live = cluster.look(Scope::Upgrades).await?;
    let node = which::node(live.view(), &arguments.node)?.clone();
    let name = &node.name;
    let Some(standing) = latest(live.view(), &node) else {
        return Err(
            Problem::new(Code::Failed, format!("there is nothing to undo on {name}"))
                .because("no upgrade of it is on record")
                .help("afloat status"),
        );
    };
    if standing.state() == NodeState::RolledBack {
        screen.say(&format!("{name} is as it was before the upgrade already."));
        return Ok(Code::Done);
    }
    if let Some(why) = judge::undo_refused(live.view(), standing) {
        return Err(Problem::new(Code::Failed, why)
            .help("its kubelets would have to go back first: afloat rollback NODE, a worker each"));
    }
    let before = standing
        .upgrade
        .status
        .as_ref()
        .and_then(|status| status.before.as_ref());
    let to = before.map_or_else(String::new, |before| format!(" to {}", before.kubelet_version));
    let drained = if standing.succeeded() { "is drained and " } else { "" };
    let question = format!("{name} {drained}goes back{to}, as it was before the upgrade.");
    if !consent(&question, arguments.yes)? {
        screen.say("Nothing was changed.");
        return Ok(Code::Done);
    }
    annotate(cluster, &node, annotations::WISH, Some("rollback")).await?;
    screen.say(&question);
    heard(&mut live, name.as_str(), screen).await
}

/// Waits until the operator has taken the wish from the node.
async fn heard(live: &mut Live, node: &str, screen: &mut Screen) -> Result<Code, Problem> {
    let taken = async {
        // The view is from before the wish: it has to come before it can go.
        let mut seen = false;
        loop {
            let wish = live.view().nodes.get(node).and_then(|node| node.wish);
            if seen && wish.is_none() {
                return;
            }
            seen |= wish.is_some();
            if !live.changed().await {
                return;
            }
        }
    };
    if tokio::time::timeout(HEARD, taken).await.is_ok() {
        screen.say("The operator has taken it up. Follow it: afloat status --watch");
        return Ok(Code::Done);
    }
    screen.say(&format!(
        "The operator has not taken it up within {}s: it waits for its turn, or no operator is running.\n\
         It stays asked for (annotation {} of the node). Look: afloat status",
        HEARD.as_secs(),
        annotations::WISH
    ));
    Ok(Code::StillGoingOn)
}

pub async fn abort(
    cluster: &Cluster,
    arguments: &Abort,
    screen: &mut Screen,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    let mut live = cluster.look(Scope::Upgrades).await?;
    if let Some(upgrade) = hci::to_look_at(live.view(), arguments.name.as_deref()).cloned() {
        return hci::abort(cluster, &mut live, upgrade, arguments, screen, stop).await;
    }
    let upgrade = which::to_change(live.view(), arguments.name.as_deref())?.clone();
    let key = key_of(&upgrade.metadata);
    if upgrade.spec.abort != Some(true) {
        let question = board(&live, &upgrade).map(|board| fate(&board)).unwrap_or_default();
        if !consent(&question, arguments.yes)? {
            screen.say("Nothing was changed.");
            return Ok(Code::Done);
        }
        patch(cluster, &upgrade, &json!({ "abort": true })).await?;
        screen.say(&question);
    }
    if arguments.no_wait {
        return Ok(Code::Done);
    }
    let manner = Manner {
        limit: None,
        when_held: WhenHeld::Stays,
        wide: false,
        silent: false,
    };
    let code = follow::follow(&mut live, &key, screen, manner, stop).await?;
    let ended = board(&live, &upgrade).is_some_and(|board| over(board.phase));
    Ok(if ended { Code::Done } else { code })
}

/// What an abort does, node by node where it matters.
fn fate(board: &Board) -> String {
    let busy = busy(board);
    let busy = if busy.is_empty() {
        "nothing is in flight".to_owned()
    } else {
        format!("put back as it was: {busy}")
    };
    let done = words::count(board.nodes_done(), "node stays", "nodes stay");
    format!(
        "{} ends: {busy}; {done} at {}. It cannot be taken back.",
        board.name, board.to
    )
}

fn busy(board: &Board) -> String {
    let nodes = board.in_flight().map(|node| format!("{} ({})", node.name, node.state));
    nodes.collect::<Vec<_>>().join(", ")
}

fn board(live: &Live, upgrade: &ClusterUpgrade) -> Option<Board> {
    Board::of(live.view(), &key_of(&upgrade.metadata), Timestamp::now())
}

fn name(upgrade: &ClusterUpgrade) -> String {
    upgrade.metadata.name.clone().unwrap_or_default()
}

/// The youngest upgrade of a node: wishes are about that one.
fn latest<'a>(view: &'a View, node: &Node) -> Option<Standing<'a>> {
    let born = |standing: &Standing<'_>| {
        let meta = &standing.upgrade.metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (
            created,
            standing.upgrade.spec.kubelet_version.clone(),
            meta.name.clone(),
        )
    };
    let all = view
        .node_upgrades_of(node.name.as_str())
        .map(|(_, upgrade)| upgrade.as_ref());
    all.filter(|upgrade| upgrade.spec.node.uid == node.uid.as_str())
        .map(Standing::of)
        .max_by_key(born)
}

/// Changes the spec of this very object, whatever happened to its name meanwhile.
async fn patch(cluster: &Cluster, upgrade: &ClusterUpgrade, spec: &Value) -> Result<(), Problem> {
    let body = json!({ "metadata": { "uid": upgrade.metadata.uid }, "spec": spec });
    let name = name(upgrade);
    let api = cluster.upgrades();
    let patched = bounded(api.patch(&name, &parameters(), &Patch::Merge(body))).await;
    patched.map(drop).map_err(|error| {
        let problem = Problem::new(Code::Failed, format!("clusterupgrade/{name} was not changed"));
        because_of(problem, &error).help("run it again: it is safe to")
    })
}

pub(crate) async fn annotate(cluster: &Cluster, node: &Node, key: &str, value: Option<&str>) -> Result<(), Problem> {
    let body = json!({ "metadata": { "uid": node.uid.as_str(), "annotations": { key: value } } });
    let api: Api<KubeNode> = Api::all(cluster.client.clone());
    let patched = bounded(api.patch_metadata(node.name.as_str(), &parameters(), &Patch::Merge(body))).await;
    patched.map(drop).map_err(|error| {
        let problem = Problem::new(Code::Failed, format!("node/{} was not changed", node.name));
        because_of(problem, &error).help("run it again: it is safe to")
    })
}

pub(crate) fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
