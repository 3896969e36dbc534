//! RKE2 brings its own multus anew when a server of a new version starts. While nodes of two versions are in one cluster it is kept from that on all of
//! them, before Rancher is asked, and let go in the end. A node that does not answer holds nobody up: it is named.

use afloat_api::Reason;
use afloat_api::harvester::UpgradeCondition as Is;

use super::action::JobKind;
use super::turn::{Tri, Turn, minutes_after, moment};
use super::{flow, nodes};

/// On an Upgrade: multus is held on the nodes.
pub const HELD: &str = "harvesterhci.io/apply-skip-rke2-manifests-plan-completed";
/// On an Upgrade: it is let go again.
pub const LET_GO: &str = "harvesterhci.io/remove-skip-rke2-manifests-plan-completed";
/// What keeps RKE2 from it, on every node.
pub const FILE: &str = "/var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip";
/// How long a node is waited for, in minutes: longer than its Job may take, whose end nobody may see on a node that is away.
const PATIENCE: i64 = 15;

/// What became of a kind of Job on all nodes.
struct Round {
    /// Jobs that go on, and until when they are waited for.
    open: Vec<String>,
    /// Nodes on which it was not done, each with the reason.
    failed: Vec<String>,
}

/// Has the Jobs of a kind made, one for each node and all at once.
fn round(turn: &mut Turn<'_>, kind: JobKind) -> Round {
    let view = turn.view;
    let mut round = Round {
        open: Vec::new(),
        failed: Vec::new(),
    };
    for node in view.nodes.keys() {
        let name = turn.job_key(kind, Some(node)).name;
        let Some(job) = turn.job(kind, Some(node)) else {
            if !turn.job_in_the_way(kind, Some(node)) {
                turn.create_job(kind, Some(node));
            }
            round.open.push(format!("job/{name}"));
            continue;
        };
        let until = minutes_after(job.created_at.unwrap_or(turn.now), PATIENCE);
        if let Some(why) = job.failed.as_ref().filter(|_| !job.complete) {
            round.failed.push(format!("{node} ({why})"));
        } else if !job.complete && turn.now >= until {
            round.failed.push(format!("{node} (not within {PATIENCE} minutes)"));
        } else if !job.complete {
            turn.look_at(until);
            round.open.push(format!("job/{name} (until {})", moment(until)));
        }
    }
    round
}

fn listed(of: &[String]) -> String {
    nodes::some(&of.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Whether multus is held wherever it can be, or need not be.
pub fn held(turn: &mut Turn<'_>) -> bool {
    let alone = !turn.status().single_node.is_empty();
    let asked = turn.condition(Is::NodesUpgraded).is_some();
    if alone || asked || flow::held(turn) || turn.annotation(HELD) == Some("true") {
        return true;
    }
    let round = round(turn, JobKind::HoldMultus);
    if !round.open.is_empty() {
        let message = format!("before the first node, multus is held on all: {}", listed(&round.open));
        turn.set(Is::SystemServicesUpgraded, Tri::True, "", &message);
        return false;
    }
    turn.set(Is::SystemServicesUpgraded, Tri::True, "", "");
    turn.annotate(HELD, Some("true"));
    if !round.failed.is_empty() {
        let nodes = listed(&round.failed);
        let message =
            format!("multus could not be held on {nodes}: RKE2 brings its own there as soon as it starts anew");
        turn.tell(true, Reason::StepFailed, &message);
    }
    true
}

/// Whether multus may have been held: told by what is on record, as a Job may not have been seen.
fn may_be_held(turn: &Turn<'_>) -> bool {
    turn.status().single_node.is_empty() && turn.condition(Is::SystemServicesUpgraded) == Some(Tri::True)
}

/// Whether multus is let go wherever it can be.
pub fn let_go(turn: &mut Turn<'_>) -> bool {
    if !may_be_held(turn) || turn.annotation(LET_GO) == Some("true") {
        return true;
    }
    let round = round(turn, JobKind::LetMultusGo);
    if !round.open.is_empty() {
        return false;
    }
    turn.annotate(LET_GO, Some("true"));
    if let Some(message) = stays(turn) {
        turn.tell(true, Reason::StepFailed, &message);
    }
    true
}

/// Where it is still held after the end, and why; nothing while that is not known.
pub fn stays(turn: &Turn<'_>) -> Option<String> {
    if turn.annotation(LET_GO) != Some("true") {
        return None;
    }
    let left = turn.view.nodes.keys().filter_map(|node| {
        let job = turn.job(JobKind::LetMultusGo, Some(node)).filter(|job| !job.complete)?;
        let why = job.failed.as_deref().unwrap_or("its Job has not ended");
        Some(format!("{node} ({why})"))
    });
    let left: Vec<String> = left.collect();
    (!left.is_empty()).then(|| {
        format!(
            "RKE2 does not bring its multus, until you remove {FILE}, on {}",
            listed(&left)
        )
    })
}

/// Everything of it begins anew.
pub fn forget(turn: &mut Turn<'_>) {
    turn.annotate(HELD, None);
    turn.annotate(LET_GO, None);
}
