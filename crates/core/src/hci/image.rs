//! Where the release comes from: the ISO as an image, and the repository that serves it, or one outside the cluster. Served means
//! that its release file was read, not that a Deployment says so.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::harvester::{NAMESPACE, UpgradeCondition as Is, UpgradeState};

use super::action::{HciAction, Repo};
use super::config;
use super::release::Release;
use super::turn::{Tri, Turn, minutes_after, moment};
use super::view::{Image, Seen};
use super::vms;
use crate::view::{Key, WorkloadKind};

/// Answers that may fail in a row before the repository is started anew.
const PATIENCE: u32 = 3;
/// On an Upgrade: how often its repository was started anew since it last answered.
const REPO_RESTARTS: &str = "afloat.dev/repo-restarts";
/// How long an ISO may take to be imported: one of 7 GB at half a megabyte a second.
const IMAGE_MINUTES: i64 = 240;
/// How long a repository may take to serve before the upgrade stops.
const REPO_MINUTES: i64 = 30;

fn external(turn: &Turn<'_>) -> bool {
    config::repo_url(&turn.after).is_ok_and(|url| url.is_some())
}

/// Namespace and name of the image in use.
fn image_key(turn: &Turn<'_>) -> Key {
    let own = turn.after.spec.image.split_once('/');
    own.map_or_else(
        || Key::new(NAMESPACE, turn.name()),
        |(namespace, name)| Key::new(namespace, name),
    )
}

/// Whether the ISO is there.
pub fn ready(turn: &mut Turn<'_>) -> bool {
    if turn.condition(Is::ImageReady) == Some(Tri::True) {
        return true;
    }
    if external(turn) {
        turn.set(
            Is::ImageReady,
            Tri::True,
            "External",
            "the release is served outside the cluster",
        );
        return true;
    }
    let key = image_key(turn);
    turn.status_mut().image_id = key.to_string();
    let image = turn.view.hci.images.get(&key).map(Arc::clone);
    // That of an earlier upgrade of this name goes when Harvester lets it: its finalizers are not ours.
    if image.as_ref().is_some_and(|image| image.deleting) {
        is_waited_for(turn, &key, "another one of that name is being deleted");
        return false;
    }
    if let Some(image) = image {
        return imported(turn, &image);
    }
    ask_for(turn, key);
    false
}

fn imported(turn: &mut Turn<'_>, image: &Seen<Image>) -> bool {
    if image.upgrade.as_deref() != Some(turn.name()) {
        let upgrade = Some(Arc::from(turn.name()));
        turn.then(HciAction::LabelImage {
            image: image.target.clone(),
            upgrade,
        });
    }
    if let Some(why) = &image.gave_up {
        let message = format!("virtualmachineimage/{} was not imported: {why}", image.target.key);
        turn.set(
            Is::ImageReady,
            Tri::False,
            &Reason::BundleUnavailable.to_string(),
            &message,
        );
        return false;
    }
    if image.imported {
        turn.set(Is::ImageReady, Tri::True, "", "");
        return true;
    }
    let key = image.target.key.clone();
    is_waited_for(turn, &key, &image.message);
    false
}

/// An image that is not there yet: it is said since when and until when it is waited for.
fn is_waited_for(turn: &mut Turn<'_>, image: &Key, says: &str) {
    if turn.condition(Is::ImageReady).is_none() {
        turn.set(Is::ImageReady, Tri::Unknown, "", "");
    }
    let since = turn.since(Is::ImageReady).unwrap_or(turn.now);
    let until = minutes_after(since, IMAGE_MINUTES);
    let says = if says.is_empty() {
        String::new()
    } else {
        format!(": {says}")
    };
    if turn.now >= until {
        let message = format!(
            "virtualmachineimage/{image} was not imported within {IMAGE_MINUTES} minutes{says}. Mend that, then: afloat resume {}",
            turn.name()
        );
        let reason = Reason::DeadlineExceeded.to_string();
        return turn.set(Is::ImageReady, Tri::False, &reason, &message);
    }
    turn.look_at(until);
    let (since, until) = (moment(since), moment(until));
    let message = format!("waits until virtualmachineimage/{image} is imported (since {since}, until {until}){says}");
    let reason = Reason::InProgress.to_string();
    turn.set(Is::ImageReady, Tri::Unknown, &reason, &message);
}

fn ask_for(turn: &mut Turn<'_>, key: Key) {
    if !turn.after.spec.image.is_empty() {
        let message = format!("virtualmachineimage/{key} is gone");
        turn.set(Is::ImageReady, Tri::False, &Reason::ObjectGone.to_string(), &message);
        return;
    }
    let version = Key::new(NAMESPACE, &turn.after.spec.version);
    let Some(version) = turn.view.hci.versions.get(&version) else {
        let message = format!("version/{} is gone", turn.after.spec.version);
        turn.set(Is::ImageReady, Tri::False, &Reason::ObjectGone.to_string(), &message);
        return;
    };
    let (url, checksum) = (version.spec.iso_url.clone(), version.spec.iso_checksum.clone());
    is_waited_for(turn, &key, "");
    let upgrade = turn.target.clone();
    turn.then(HciAction::CreateImage {
        key,
        upgrade,
        url: Arc::from(url),
        checksum: Arc::from(checksum),
    });
}

/// Whether the release is served. Looked at for as long as nodes need it, not once.
pub fn repo_ready(turn: &mut Turn<'_>) -> bool {
    let serves = serving(turn);
    if turn.condition(Is::RepoReady) == Some(Tri::True) {
        return true;
    }
    if turn.condition(Is::RepoReady).is_none() {
        turn.state_label(UpgradeState::PreparingRepo);
        turn.set(Is::RepoReady, Tri::Unknown, "", "");
        return false;
    }
    if serves {
        if release(turn).is_some() {
            turn.set(Is::RepoReady, Tri::True, "", "");
            turn.state_label(UpgradeState::RepoPrepared);
            return true;
        }
        let answer = turn.view.hci.repos.get(&turn.key);
        if let Some(problem) = answer.and_then(|answer| broken(answer.release.as_deref())) {
            turn.set(
                Is::RepoReady,
                Tri::Unknown,
                &Reason::BundleUnavailable.to_string(),
                &problem,
            );
        }
    }
    let since = turn.since(Is::RepoReady).unwrap_or(turn.now);
    let until = minutes_after(since, REPO_MINUTES);
    if turn.now >= until {
        let message = format!(
            "{} did not serve the release within {REPO_MINUTES} minutes",
            turn.repo_url()
        );
        turn.set(
            Is::RepoReady,
            Tri::False,
            &Reason::DeadlineExceeded.to_string(),
            &message,
        );
    } else {
        turn.look_at(until);
    }
    false
}

fn broken(release: Result<&str, &Arc<str>>) -> Option<String> {
    match release {
        Err(problem) => Some(problem.to_string()),
        Ok(text) => Release::parse(text).err().map(|problem| problem.to_string()),
    }
}

/// Has the repository made, whole, and started anew where it does not answer. Whether it stands.
pub fn serving(turn: &mut Turn<'_>) -> bool {
    if external(turn) {
        return true;
    }
    let key = Key::new(NAMESPACE, &turn.repo_name());
    let upgrade = turn.target.clone();
    if !turn.view.hci.services.contains_key(&key) {
        let upgrade = upgrade.clone();
        turn.then(HciAction::CreateRepoService {
            key: key.clone(),
            upgrade,
        });
    }
    let deployment = turn
        .view
        .workloads
        .get(&(WorkloadKind::Deployment, key.clone()))
        .map(Arc::clone);
    let Some(deployment) = deployment else {
        let hosts = vms::hosts(turn.view).count();
        let repo = Repo {
            key,
            upgrade,
            image: turn.image(),
            claim: Arc::clone(&image_key(turn).name),
            replicas: if hosts > 1 { 2 } else { 1 },
        };
        turn.then(HciAction::CreateRepo(Box::new(repo)));
        return false;
    };
    let failures = turn.view.hci.repos.get(&turn.key).map_or(0, |answer| answer.failures);
    let times = failures / PATIENCE;
    let told: u32 = turn
        .annotation(REPO_RESTARTS)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if failures == 0 && told > 0 {
        turn.annotate(REPO_RESTARTS, None);
    }
    if deployment.ready > 0 && times > told {
        turn.annotate(REPO_RESTARTS, Some(&times.to_string()));
        let target = crate::view::Target {
            key: deployment.key.clone(),
            uid: deployment.uid.clone(),
            revision: deployment.revision,
        };
        turn.tell(
            true,
            Reason::BundleUnavailable,
            "the repository does not answer: it is started anew",
        );
        turn.then(HciAction::RestartRepo {
            deployment: target,
            at: turn.now,
        });
    }
    deployment.ready > 0
}

/// The release that is served, or was when the nodes were prepared.
pub fn release(turn: &Turn<'_>) -> Option<Release> {
    let recorded = &turn.status().repo_info;
    if !recorded.is_empty() {
        return Release::parse(recorded).ok();
    }
    let answer = turn.view.hci.repos.get(&turn.key)?;
    Release::parse(answer.release.as_ref().ok()?).ok()
}
