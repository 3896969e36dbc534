//! Why an Upgrade of Harvester does not move: from the whole down to the object that blocks, and the commands that free it.

use afloat_api::Reason;
use afloat_api::harvester::{HarvesterCondition, HarvesterNodeState as State, NodeUpgradeStatus, Upgrade};

use super::turn::{PREFLIGHT_PASSED, Tri, condition_of};
use super::view::Ticket;
use super::{pause, upstream_at_work, vms, volumes, waits};
use crate::explain::{self, Explanation};
use crate::view::{Key, NodeName, View};

/// Explains how an Upgrade stands. `None` where there is no such Upgrade.
pub fn explain(view: &View, key: &Key) -> Option<Explanation> {
    let upgrade = view.hci.upgrades.get(key)?;
    let mut said = Explanation::default();
    let name = &*key.name;
    if let Some(why) = upstream_at_work(view, upgrade) {
        said.say(format!("{name} is not Afloat's to move"));
        said.say(why);
        return Some(said);
    }
    match condition_of(upgrade, "Completed") {
        None => not_begun(&mut said, name, upgrade),
        Some(Tri::True) => said.say(format!("{name} is done: {}", message(upgrade, "Completed"))),
        Some(Tri::False) => {
            said.say(format!("{name} stopped"));
            said.say(message(upgrade, "Completed"));
            said.offer(
                format!("afloat resume {name}"),
                "goes on where it stopped, once the cause is gone",
            );
        }
        Some(Tri::Unknown) => under_way(view, &mut said, name, upgrade),
    }
    Some(said)
}

fn message(upgrade: &Upgrade, kind: &str) -> String {
    let status = upgrade.status.as_ref();
    let condition = status.and_then(|status| status.conditions.iter().find(|condition| condition.kind == kind));
    condition.map(|condition| condition.message.clone()).unwrap_or_default()
}

fn not_begun(said: &mut Explanation, name: &str, upgrade: &Upgrade) {
    if condition_of(upgrade, PREFLIGHT_PASSED) == Some(Tri::False) {
        said.say(format!("{name} was not begun, nothing was changed"));
        for line in message(upgrade, PREFLIGHT_PASSED).lines() {
            said.say(line.to_owned());
        }
    } else {
        said.say(format!("{name} was not begun yet"));
    }
}

fn under_way(view: &View, said: &mut Explanation, name: &str, upgrade: &Upgrade) {
    let statuses = upgrade
        .status
        .as_ref()
        .map(|status| status.node_statuses.clone())
        .unwrap_or_default();
    let in_flight = |status: &NodeUpgradeStatus| status.state.parse().is_ok_and(waits::in_flight);
    let paused = |status: &NodeUpgradeStatus| status.state.parse() == Ok(State::Paused);
    let waiting = |status: &NodeUpgradeStatus| !status.reason.is_empty();
    let first = |wanted: &dyn Fn(&NodeUpgradeStatus) -> bool| {
        statuses
            .iter()
            .find(|(_, status)| wanted(status))
            .map(|(node, status)| (node.clone(), status.clone()))
    };
    let Some((node, status)) = first(&in_flight).or_else(|| first(&paused)).or_else(|| first(&waiting)) else {
        return phase(said, name, upgrade);
    };
    said.say(format!("{name} waits"));
    said.say(format!("{node} is {}", status.state));
    if !status.message.is_empty() {
        said.say(status.message.clone());
    }
    let node_name = NodeName::from(node.as_str());
    match status.state.parse() {
        Ok(State::Paused) => {
            said.offer(format!("afloat resume {node}"), "lets the node go on");
            said.offer(pause::way_on(&node), "the same, with kubectl");
        }
        Ok(State::PreDraining) => emptying(view, said, &node_name),
        Ok(State::PreDrained) => draining(view, said, &node_name),
        _ => {}
    }
    if status.reason.parse() == Ok(Reason::WaitingForVolume) {
        said.offer(
            "kubectl -n longhorn-system get volumes".to_owned(),
            "shows which replica is missing, and on which node",
        );
    }
    said.offer(
        format!("afloat abort {name}"),
        "puts back what was not drained, finishes what was, and ends",
    );
}

/// A node that is being emptied: each virtual machine with why it does not go, each volume with who holds it.
fn emptying(view: &View, said: &mut Explanation, node: &NodeName) {
    for bound in vms::bound(view, node).iter().take(5) {
        said.say(format!(
            "virtual machine {} cannot leave by itself: {}",
            bound.vm,
            bound.reasons()
        ));
        let (namespace, name) = (&bound.vm.namespace, &bound.vm.name);
        said.offer(
            format!("virtctl stop {name} -n {namespace}"),
            "it is started again afterwards, if restoreVM says so",
        );
    }
    for volume in volumes::unused_on(view, node).take(5) {
        said.say(format!("volume {}", volumes::why_attached(view, volume)));
        let unknown = Ticket::default();
        let held = volumes::tickets(view, volume).next().unwrap_or(&unknown);
        let (command, does) = volumes::way_out(volume, held);
        said.offer(command, does);
    }
}

/// A node that Rancher drains: the pod that its budget keeps there, as for any other drain, or how to see what Rancher is at.
fn draining(view: &View, said: &mut Explanation, node: &NodeName) {
    let Some((pod, budgets)) = waits::guarded(view, node) else {
        return said.offer(
            "kubectl -n cattle-system logs deployment/rancher --tail=50".to_owned(),
            "shows what Rancher is at; the node's own part: journalctl -u rancher-system-agent, on the node",
        );
    };
    let namespace = &pod.key.namespace;
    if let [only] = budgets.as_slice() {
        if !explain::guarded_pod(view, said, pod, only) {
            said.offer(
                format!("kubectl -n {namespace} delete pod {}", pod.key.name),
                "ends the pod in spite of its budget, as no drain may; the drain goes on by itself",
            );
        }
        return;
    }
    said.say(format!("pod {} cannot be evicted", pod.key));
    let names: Vec<String> = budgets.iter().map(|budget| format!("pdb/{}", budget.key)).collect();
    said.say(format!(
        "it is under {}, and the eviction API takes no pod that is under more than one",
        names.join(" and ")
    ));
    for budget in budgets {
        said.offer(
            format!("kubectl -n {namespace} delete pdb {}", budget.key.name),
            "leaves the others in force; the drain goes on by itself",
        );
    }
}

/// What an upgrade that is under way is at: the last phase that was begun and is not reached.
pub fn running(upgrade: &Upgrade) -> Option<&HarvesterCondition> {
    let conditions = &upgrade.status.as_ref()?.conditions;
    conditions
        .iter()
        .rev()
        .find(|condition| condition.status == "Unknown" && condition.kind != "Completed")
}

/// No node waits: the phase does.
fn phase(said: &mut Explanation, name: &str, upgrade: &Upgrade) {
    match running(upgrade) {
        Some(condition) if !condition.message.is_empty() => {
            said.say(format!("{name} waits"));
            said.say(format!("{} is not reached yet", condition.kind));
            said.say(condition.message.clone());
        }
        Some(condition) => said.say(format!("{name} is under way ({}); nothing blocks it", condition.kind)),
        None => said.say(format!("{name} is under way; nothing blocks it")),
    }
}
