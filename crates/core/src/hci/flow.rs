//! The phases of an upgrade, in the order of the contract: the first step that has something to do does it and ends the turn.
//! Every step is safe to repeat: a crash between any two writes leads back to it.

use afloat_api::harvester::{ImagePreload, UpgradeCondition as Is, UpgradeState};
use afloat_api::{Reason, annotations, labels};

use super::action::HciAction;
use super::config::{self, ABORT, CONFIG_AS_STARTED, SKIPPED, Skips};
use super::turn::{PREFLIGHT_PASSED, Tri, Turn};
use super::{cleanup, image, logs, multus, nodes, pause, preflight, release, skew, task, upstream_at_work};
use crate::view::NodeName;

/// What is done about an Upgrade now.
pub fn go(turn: &mut Turn<'_>) {
    if let Some(why) = upstream_at_work(turn.view, &turn.before) {
        turn.tell(true, Reason::ControllerPaused, &why);
        return;
    }
    if turn.before.metadata.deletion_timestamp.is_some() {
        return cleanup::deleted(turn);
    }
    match turn.condition(Is::Completed) {
        None => return begin(turn),
        Some(Tri::True) => return cleanup::succeeded(turn),
        Some(Tri::False) => return cleanup::failed(turn),
        Some(Tri::Unknown) => {}
    }
    if config::label(&turn.before, labels::HARVESTER_LATEST_UPGRADE) == Some("true") {
        alone_latest(turn);
    }
    if pause::carry_over(turn) {
        return;
    }
    if turn.annotation(ABORT).is_some_and(|value| value == "true") {
        return cleanup::abort(turn);
    }
    advance(turn);
    judge(turn);
}

/// Looks, and begins where nothing stops it.
fn begin(turn: &mut Turn<'_>) {
    if cleanup::ending(turn) {
        return cleanup::never_begun(turn);
    }
    let findings = preflight::findings(turn.view, &turn.key, &turn.before);
    let told = preflight::told(&findings);
    let stopping = preflight::errors(&findings);
    if stopping > 0 {
        let word = Reason::PreflightFailed.to_string();
        if turn
            .after
            .status
            .as_ref()
            .is_none_or(|status| status.conditions.is_empty())
        {
            turn.tell(
                true,
                Reason::PreflightFailed,
                &format!("not begun, nothing was changed:\n{told}"),
            );
        }
        turn.set_any(PREFLIGHT_PASSED, Tri::False, &word, &told);
        return;
    }
    let Ok(settings) = config::config(turn.view, &turn.before) else {
        return;
    };
    turn.set_any(PREFLIGHT_PASSED, Tri::True, &Reason::Succeeded.to_string(), &told);
    turn.set(Is::Completed, Tri::Unknown, "", "");
    turn.finalizer(true);
    turn.label(labels::HARVESTER_LATEST_UPGRADE, Some("true"));
    turn.state_label(UpgradeState::PreparingLoggingInfra);
    let started_with = turn.view.hci.setting(afloat_api::harvester::UPGRADE_CONFIG).to_owned();
    turn.annotate(CONFIG_AS_STARTED, Some(&started_with));
    let skipped = Skips::read(&turn.before).unwrap_or_default().recorded();
    if !skipped.is_empty() {
        turn.tell(
            true,
            Reason::InProgress,
            &format!("checks skipped as the annotations ask: {skipped}"),
        );
        turn.annotate(SKIPPED, Some(&skipped));
    }
    let map = pause::initial(turn, &settings.pause);
    if !map.is_empty() {
        turn.annotate(annotations::HARVESTER_PAUSE_MAP, Some(&config::written(&map)));
    }
    let previous = turn.view.hci.setting(afloat_api::harvester::SERVER_VERSION).to_owned();
    turn.status_mut().previous_version = previous;
    alone_latest(turn);
    turn.tell(false, Reason::InProgress, "the upgrade has begun");
}

/// Takes the label of the latest Upgrade from all others, before this one has it: whoever ends between the two writes finds this one not begun, and
/// begins again. One under way looks once more: the others may have been seen only since.
fn alone_latest(turn: &mut Turn<'_>) {
    let view = turn.view;
    for (key, other) in &view.hci.upgrades {
        let latest = config::label(&other.what, labels::HARVESTER_LATEST_UPGRADE);
        if *key != turn.key && latest == Some("true") {
            turn.first(HciAction::NotLatest {
                target: other.target.clone(),
            });
        }
    }
}

fn advance(turn: &mut Turn<'_>) {
    if !logs::ready(turn)
        || !image::ready(turn)
        || !image::repo_ready(turn)
        || !prepared(turn)
        || !services(turn)
        || !multus::held(turn)
    {
        return;
    }
    nodes::go(turn);
}

/// Nothing new begins while a person holds the whole.
pub fn held(turn: &Turn<'_>) -> bool {
    turn.annotation(annotations::PAUSE).is_some()
}

/// Images are brought to the nodes before the first of them is disrupted.
fn prepared(turn: &mut Turn<'_>) -> bool {
    if turn.condition(Is::NodesPrepared) == Some(Tri::True) {
        return true;
    }
    if held(turn) {
        return false;
    }
    if turn.condition(Is::NodesPrepared).is_none() && !guard(turn) {
        return false;
    }
    let preload = config::config(turn.view, &turn.after).map_or(ImagePreload::Sequential, |config| config.preload);
    let total = turn.view.nodes.len();
    let at_once = match preload {
        ImagePreload::Skip => 0,
        ImagePreload::Sequential => 1,
        ImagePreload::Parallel(None) => total,
        ImagePreload::Parallel(Some(count)) => usize::try_from(count).unwrap_or(total).clamp(1, total.max(1)),
    };
    turn.state_label(UpgradeState::PreparingNodes);
    nodes::preload(turn, at_once)
}

/// The version guard, once the release is known.
fn guard(turn: &mut Turn<'_>) -> bool {
    let Some(release) = image::release(turn) else {
        return false;
    };
    let skip = Skips::read(&turn.after).is_ok_and(|skips| skips.version);
    let from = turn.status().previous_version.clone();
    let refused = release::guard(&from, &release.harvester, &release.min_upgradable);
    let refused = refused.err().filter(|_| !skip).map(|problem| problem.to_string());
    // Nobody may skip this one: what follows would break the cluster (rule 3).
    let refused = refused.or_else(|| skew::allows(turn.view, &release.kubernetes.to_string()).err());
    if let Some(text) = refused {
        turn.set(Is::NodesPrepared, Tri::False, &Reason::VersionSkew.to_string(), &text);
        fail(turn, &text);
        return false;
    }
    let single: Vec<String> = turn.view.nodes.keys().map(ToString::to_string).collect();
    if let [only] = single.as_slice() {
        turn.status_mut().single_node.clone_from(only);
    }
    turn.status_mut().repo_info = release.recorded();
    turn.set(Is::NodesPrepared, Tri::Unknown, "", "");
    true
}

/// Rancher, charts and addons: one Job, while fleet leaves the charts alone.
fn services(turn: &mut Turn<'_>) -> bool {
    use super::action::JobKind::ApplyManifests;
    if turn.condition(Is::SystemServicesUpgraded) == Some(Tri::True) {
        return true;
    }
    if turn.condition(Is::SystemServicesUpgraded).is_none() {
        if held(turn) {
            return false;
        }
        turn.state_label(UpgradeState::UpgradingSystemServices);
        turn.set(Is::SystemServicesUpgraded, Tri::Unknown, "", "");
        return false;
    }
    // The Job lets fleet go on with one chart after the other.
    if turn.job(ApplyManifests, None).is_none() && cleanup::pause_charts(turn) {
        return false;
    }
    match turn.job(ApplyManifests, None) {
        None if turn.job_in_the_way(ApplyManifests, None) => {}
        None => turn.create_job(ApplyManifests, None),
        Some(job) if job.complete => {
            turn.set(Is::SystemServicesUpgraded, Tri::True, "", "");
            turn.tell(false, Reason::Succeeded, "Rancher, charts and addons are at the target");
        }
        Some(job) => {
            if let Some(why) = &job.failed {
                let message = format!("job/{} failed: {why}", job.target.key.name);
                turn.set(
                    Is::SystemServicesUpgraded,
                    Tri::False,
                    &Reason::StepFailed.to_string(),
                    &message,
                );
            } else {
                say_what_services_wait_for(turn);
            }
        }
    }
    false
}

/// What the Job waits for, by the same look at the same objects.
fn say_what_services_wait_for(turn: &mut Turn<'_>) {
    let errand = task::Errand {
        upgrade: turn.target.key.clone(),
        node: NodeName::from(""),
    };
    let look = task::apply_manifests(turn.view, &errand, &task::HostDone::new(), turn.now);
    if matches!(look, task::Look::Wait { .. } | task::Look::Host(_)) {
        let reason = Reason::WaitingForRancher.to_string();
        turn.set(Is::SystemServicesUpgraded, Tri::Unknown, &reason, look.words());
    }
}

/// What the conditions make of the whole.
fn judge(turn: &mut Turn<'_>) {
    use strum::IntoEnumIterator as _;
    if turn.condition(Is::Completed) != Some(Tri::Unknown) {
        return;
    }
    let all_done = [Is::SystemServicesUpgraded, Is::NodesUpgraded]
        .iter()
        .all(|kind| turn.condition(*kind) == Some(Tri::True));
    if all_done {
        turn.label(labels::HARVESTER_UPGRADE_CLEANUP, Some("Pending"));
        turn.set(Is::Completed, Tri::True, "", "");
        turn.state_label(UpgradeState::Succeeded);
        return;
    }
    let broken = Is::iter().find(|kind| kind.fails_the_upgrade() && turn.condition(*kind) == Some(Tri::False));
    if let Some(kind) = broken {
        let message = turn.message(kind);
        fail(turn, &message);
    }
}

/// Ends the upgrade short of its target.
pub fn fail(turn: &mut Turn<'_>, message: &str) {
    turn.label(labels::HARVESTER_UPGRADE_CLEANUP, Some("Pending"));
    turn.set(Is::Completed, Tri::False, &Reason::Failed.to_string(), message);
    turn.state_label(UpgradeState::Failed);
    turn.tell(true, Reason::Failed, message);
}
