//! The rules that must never break, looked at once more from an action about an Upgrade of Harvester alone, before it leaves the
//! core. Each should hold by the way decisions are made; here a mistake in a decision stops the upgrade instead of a cluster.

use afloat_api::harvester::{HarvesterNodeState as State, Upgrade};
use afloat_api::{annotations, harvester};

use super::action::{ClusterChange, HciAction, HciJob, Hook, JobKind, TaskWrite};
use super::config::{self, ABORT};
use super::view::Seen;
use super::{skew, vms, waits};
use crate::invariants::Violation;
use crate::view::{Key, NodeName, Target, View};

fn broken(rule: u8, what: String) -> Result<(), Violation> {
    Err(Violation { rule, what })
}

/// Whether one action keeps the rules.
pub fn check(view: &View, action: &HciAction) -> Result<(), Violation> {
    match action {
        HciAction::CreateJob(job) => create_job(view, job),
        HciAction::Answer { secret, hook, .. } => answer(view, secret, *hook),
        HciAction::DeleteJob { job } => {
            let ours = view
                .hci
                .jobs
                .get(&job.key)
                .is_none_or(|seen| seen.upgrade_uid.is_some());
            ours.then_some(())
                .map_or_else(|| broken(10, format!("job {} is not Afloat's", job.key)), Ok)
        }
        HciAction::DeleteImage { image } => match view.hci.images.get(&image.key) {
            Some(seen) if seen.upgrade.is_none() => broken(7, format!("image {} is not of an upgrade", image.key)),
            _ => Ok(()),
        },
        HciAction::PatchCluster { cluster, change } => {
            let seen = view.hci.clusters.get(&cluster.key);
            let again = change.rolled_out_for.is_some()
                && seen.is_some_and(|seen| seen.rolled_out_for == change.rolled_out_for);
            if again {
                return broken(12, "Rancher would be asked twice".to_owned());
            }
            versions(view, seen.map(|seen| &*seen.kubernetes_version), change)
        }
        HciAction::Task(TaskWrite::AskForKubernetes { version, .. }) => {
            skew::allows(view, version).or_else(|why| broken(3, why))
        }
        _ => Ok(()),
    }
}

/// Rule 3: no node is brought too far or back. One that is too old for where Rancher was keeps nobody from putting that back.
fn versions(view: &View, was: Option<&str>, change: &ClusterChange) -> Result<(), Violation> {
    let version = &change.kubernetes_version;
    if change.rolled_out_for.is_some() {
        return skew::allows(view, version).or_else(|why| broken(3, why));
    }
    match was.and_then(|was| skew::brought(view, was, version)) {
        Some(node) => broken(3, format!("Rancher would take node {} back to {version}", node.name)),
        None => Ok(()),
    }
}

fn create_job(view: &View, job: &HciJob) -> Result<(), Violation> {
    let Some(upgrade) = view.hci.upgrades.get(&job.upgrade.key) else {
        return Ok(());
    };
    if upgrade.target.uid != job.upgrade.uid {
        return broken(
            10,
            format!("{} is another upgrade under the same name", job.upgrade.key),
        );
    }
    match (job.kind, &job.node) {
        (JobKind::PreDrain | JobKind::SingleNodeUpgrade, Some(node)) => disrupt(view, upgrade, job, node),
        _ => Ok(()),
    }
}

fn state(upgrade: &Upgrade, node: &str) -> Option<State> {
    let statuses = &upgrade.status.as_ref()?.node_statuses;
    statuses.get(node)?.state.parse().ok()
}

/// Rules 1, 2, 5, 6 and 9: the first Job that takes something away from a node.
fn disrupt(view: &View, upgrade: &Seen<Upgrade>, job: &HciJob, name: &NodeName) -> Result<(), Violation> {
    let Some(node) = view.nodes.get(name) else {
        return Ok(());
    };
    let statuses = upgrade.status.as_ref().map(|status| &status.node_statuses);
    let others = statuses
        .into_iter()
        .flatten()
        .filter(|(other, _)| other.as_str() != name.as_str());
    for (other, status) in others {
        if status.state.parse().is_ok_and(waits::in_flight) {
            return broken(1, format!("{name} would go while {other} is {}", status.state));
        }
    }
    // A Job that was lost is made again: its node was begun before.
    let begun = match state(upgrade, name.as_str()) {
        Some(State::PreDraining) => true,
        // All of its work is that of one Job.
        Some(State::PostDraining | State::WaitingReboot) => job.kind == JobKind::SingleNodeUpgrade,
        _ => false,
    };
    if !begun {
        let held = config::annotation(upgrade, annotations::PAUSE).is_some()
            || config::annotation(upgrade, ABORT).is_some_and(|value| value == "true")
            || upgrade.deleting;
        if held || node.hci.pause.is_some() {
            return broken(
                6,
                format!("{name} would start while it or the upgrade is paused, or after an abort"),
            );
        }
    }
    if job.kind == JobKind::PreDrain && !view.hci.plan_of(name).is_some_and(|plan| plan.asks_pre_drain()) {
        return broken(5, format!("Rancher has not asked for {name}"));
    }
    recorded(view, &job.upgrade.key, name)
}

/// Rule 9: whoever will be stopped is on record.
fn recorded(view: &View, upgrade: &Key, node: &NodeName) -> Result<(), Violation> {
    let list = view.hci.restore_list_of(upgrade);
    let known = list.and_then(|list| list.nodes.get(node.as_str()));
    let missing = vms::bound(view, node)
        .into_iter()
        .filter(|bound| !bound.lacks_room_alone())
        .find(|bound| !known.is_some_and(|known| known.contains(&bound.vm.to_string())));
    match missing {
        Some(bound) => broken(9, format!("{} would be stopped without being on record", bound.vm)),
        None => Ok(()),
    }
}

/// The work was seen to be done, and that was written down: its Job may be gone since.
fn is_on_record(upgrade: &Upgrade, node: &NodeName, hook: Hook) -> bool {
    let state = state(upgrade, node.as_str());
    match hook {
        Hook::PreDrain => state.is_some_and(|state| (State::PreDrained..=State::Succeeded).contains(&state)),
        Hook::PostDrain => state == Some(State::Succeeded),
    }
}

/// Rule 5: Rancher is answered only after the work before or after the drain was done for this upgrade.
fn answer(view: &View, secret: &Target, hook: Hook) -> Result<(), Violation> {
    let Some(plan) = view.hci.plans.get(&secret.key) else {
        return Ok(());
    };
    if plan.target.uid != secret.uid {
        return broken(10, format!("{} is another secret under the same name", secret.key));
    }
    let machine = view
        .hci
        .machines
        .values()
        .find(|machine| *machine.target.key.name == *plan.machine);
    let Some(node) = machine.and_then(|machine| machine.node.clone()) else {
        return broken(5, format!("{} belongs to no node", secret.key));
    };
    let kind = match hook {
        Hook::PreDrain => JobKind::PreDrain,
        Hook::PostDrain => JobKind::PostDrain,
    };
    let done = view.hci.upgrades.values().any(|upgrade| {
        let name = kind.name(&upgrade.target.key.name, Some(&node));
        let job = view.hci.jobs.get(&Key::new(harvester::NAMESPACE, &name));
        let ended = job.is_some_and(|job| job.complete && job.upgrade_uid.as_ref() == Some(&upgrade.target.uid));
        ended || is_on_record(upgrade, &node, hook)
    });
    if done && hook == Hook::PreDrain && !vms::left(view, &node) {
        broken(9, format!("{node} would be drained with virtual machines on it"))
    } else if done {
        Ok(())
    } else {
        broken(5, format!("the {} Job of {node} has not ended well", kind.word()))
    }
}
