//! The collecting of logs. Harvester's own controller does it: here it is asked for, waited for, and told that it is enough. Until then it goes on, and
//! what it has set up for it can keep the next upgrade from beginning.

use std::sync::Arc;

use afloat_api::harvester::{NAMESPACE, Upgrade, UpgradeCondition as Is, UpgradeState};
use afloat_api::{Reason, labels};

use super::action::HciAction;
use super::config;
use super::turn::{Tri, Turn, minutes_after};
use super::upstream_at_work;
use super::view::{Log, Seen};
use crate::view::{Key, View};

/// Logs are collected as well as can be; an upgrade never fails for want of them, as upstream's does.
pub fn ready(turn: &mut Turn<'_>) -> bool {
    match turn.condition(Is::LogReady) {
        Some(Tri::True | Tri::False) => return true,
        None if !turn.after.spec.log_enabled => {
            turn.set(Is::LogReady, Tri::False, "Disabled", "spec.logEnabled is false");
            turn.state_label(UpgradeState::LoggingInfraPrepared);
            return true;
        }
        _ => {}
    }
    let name = format!("{}-upgradelog", turn.name());
    let key = Key::new(NAMESPACE, &name);
    let log = turn.view.hci.logs.get(&key);
    if log.is_some_and(|log| log.started()) {
        turn.set(Is::LogReady, Tri::True, "", "");
        turn.state_label(UpgradeState::LoggingInfraPrepared);
        return true;
    }
    if turn.condition(Is::LogReady).is_none() {
        turn.set(Is::LogReady, Tri::Unknown, "", "");
        turn.status_mut().upgrade_log.clone_from(&name);
    }
    let minutes = config::config(turn.view, &turn.after).map_or(5, |config| config.log_ready_minutes);
    let since = turn.since(Is::LogReady).unwrap_or(turn.now);
    let until = minutes_after(since, minutes.into());
    if turn.now < until {
        // Again where it is not there: whoever asked first may have ended before, or been refused.
        if log.is_none() {
            let upgrade = turn.target.clone();
            turn.then(HciAction::CreateLog { key, upgrade });
        }
        turn.look_at(until);
        return false;
    }
    let what = if log.is_some() {
        format!("did not start within {minutes} minutes")
    } else {
        format!(
            "could not be made within {minutes} minutes, or was deleted (Harvester's own webhook, where it is there, lets nobody make one but Harvester)"
        )
    };
    let message = format!("upgradelog/{name} {what}: the upgrade goes on without logs");
    turn.set(Is::LogReady, Tri::False, "Timeout", &message);
    turn.state_label(UpgradeState::LoggingInfraPrepared);
    turn.tell(true, Reason::DeadlineExceeded, &message);
    true
}

/// A person has taken note of how an upgrade ended, and wants its logs no longer.
fn is_dismissed(upgrade: &Upgrade) -> bool {
    config::label(upgrade, labels::HARVESTER_READ_MESSAGE) == Some("true")
}

/// Logs of an upgrade that has ended about which something is to be done. Those of one that is being deleted go with it.
fn left<'a>(view: &'a View, upgrade: &'a Upgrade) -> impl Iterator<Item = &'a Arc<Seen<Log>>> {
    let name = upgrade.metadata.name.as_deref();
    let stays = upgrade.metadata.deletion_timestamp.is_none();
    let logs = view.hci.logs.values().filter(move |log| {
        let ours = stays && Some(&*log.upgrade) == name && !log.deleting;
        ours && (is_dismissed(upgrade) || !log.started() || log.can_be_stopped())
    });
    // A cheap look first: few upgrades that are over have any.
    logs.filter(move |_| upstream_at_work(view, upgrade).is_none())
}

/// Whether something is to be done about the logs of an upgrade that is over.
pub fn linger(view: &View, upgrade: &Upgrade) -> bool {
    left(view, upgrade).next().is_some()
}

/// Lets the collecting end. What was collected stays, until a person dismisses it. A log whose collecting never began holds nothing, and goes: its
/// controller heeds no other word about it.
pub fn end(turn: &mut Turn<'_>) {
    let (view, upgrade) = (turn.view, Arc::clone(&turn.before));
    for log in left(view, &upgrade) {
        let target = log.target.clone();
        turn.first(if log.can_be_stopped() && !is_dismissed(&upgrade) {
            HciAction::StopLog {
                log: target,
                conditions: log.with(Log::STOPPED, "True", turn.now),
            }
        } else {
            HciAction::DeleteLog { log: target }
        });
    }
}

/// An upgrade whose logs were dismissed does not name them any more.
pub fn forget_dismissed(turn: &mut Turn<'_>) {
    if is_dismissed(&turn.before) && !turn.status().upgrade_log.is_empty() {
        turn.status_mut().upgrade_log.clear();
    }
}
