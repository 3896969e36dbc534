//! How Rancher is asked to roll a release out: once, one node at a time, with our questions before and after each drain; and how
//! everything that was changed for it is put back. What was there before is written down in the same write.

use std::sync::Arc;

use afloat_api::annotations::{HARVESTER_POST_HOOK, HARVESTER_PRE_HOOK, HARVESTER_REPLENISHMENT_WAIT};
use afloat_api::harvester::{UpgradeCondition as Is, UpgradeState};
use afloat_api::{Reason, foreign};
use serde_json::{Value, json};

use super::action::{ClusterChange, HciAction};
use super::turn::{Tri, Turn};
use super::view::LocalCluster;
use super::{cleanup, flow, image, pending, skew};
use crate::view::Key;

/// How long Longhorn waits for a node to come back before it builds replicas elsewhere, while nodes reboot.
const REPLENISHMENT_WAIT: i64 = 1800;
const REPLENISHMENT_SETTING: &str = "replica-replenishment-wait-interval";
const DESCHEDULER: (&str, &str) = ("kube-system", "descheduler");
/// On an Upgrade: the addon was enabled and has to be again.
const REENABLE_DESCHEDULER: &str = "harvesterhci.io/reenable-descheduler-addon";
/// On an Upgrade: Longhorn's setting is as it was.
const LONGHORN_RESTORED: &str = "harvesterhci.io/longhorn-settings-restored";

fn replenishment() -> Key {
    Key::new(foreign::longhorn::NAMESPACE, REPLENISHMENT_SETTING)
}

/// Whether Rancher was asked; asks where it was not.
pub fn begun(turn: &mut Turn<'_>) -> bool {
    match turn.condition(Is::NodesUpgraded) {
        Some(Tri::Unknown) => {
            ask_again(turn);
            return true;
        }
        Some(_) => return true,
        None => {}
    }
    if flow::held(turn) {
        return false;
    }
    let Some(release) = image::release(turn) else {
        return false;
    };
    let Some(cluster) = turn.view.hci.local_cluster().map(Arc::clone) else {
        let message = "clusters.provisioning.cattle.io fleet-local/local is not there: Rancher cannot be asked";
        turn.set(Is::NodesUpgraded, Tri::False, &Reason::ObjectGone.to_string(), message);
        return false;
    };
    settle(turn);
    if !pending::told(turn) {
        return false;
    }
    if cluster.rolled_out_for.as_ref() == Some(&turn.target.uid) {
        turn.state_label(UpgradeState::UpgradingNodes);
        turn.set(Is::NodesUpgraded, Tri::Unknown, "", "");
        return true;
    }
    let version = release.kubernetes.to_string();
    // A node may have joined since the release was looked at.
    if let Err(text) = skew::allows(turn.view, &version) {
        turn.set(Is::NodesUpgraded, Tri::False, &Reason::VersionSkew.to_string(), &text);
        return false;
    }
    let change = ask(&cluster, turn, &version);
    turn.then(HciAction::PatchCluster {
        cluster: cluster.target.clone(),
        change,
    });
    false
}

/// Asks once more where everything was put back when the upgrade had stopped, and whoever resumed it had not seen that yet.
fn ask_again(turn: &mut Turn<'_>) {
    let cluster = turn.view.hci.local_cluster().map(Arc::clone);
    let forgotten = |cluster: &LocalCluster| cluster.rolled_out_for.is_none();
    let (Some(cluster), Some(release)) = (cluster.filter(|cluster| forgotten(cluster)), image::release(turn)) else {
        return;
    };
    if cleanup::ending(turn) {
        return;
    }
    let change = ask(&cluster, turn, &release.kubernetes.to_string());
    turn.then(HciAction::PatchCluster {
        cluster: cluster.target.clone(),
        change,
    });
}

/// What is set for as long as nodes reboot.
fn settle(turn: &mut Turn<'_>) {
    if let Some(setting) = turn.view.hci.longhorn_settings.get(&replenishment()).map(Arc::clone)
        && setting
            .what
            .parse::<i64>()
            .is_ok_and(|seconds| seconds < REPLENISHMENT_WAIT)
    {
        // What is seen now counts, also where another was put back before: a person may have changed it since. A write that is decided on an old view is
        // refused, and what was there is noted with the next one.
        turn.annotate(HARVESTER_REPLENISHMENT_WAIT, Some(&setting.what));
        turn.annotate(LONGHORN_RESTORED, None);
        turn.then(HciAction::SetLonghorn {
            setting: setting.target.clone(),
            value: Arc::from(REPLENISHMENT_WAIT.to_string()),
        });
    }
    let addon = turn
        .view
        .hci
        .addons
        .get(&Key::new(DESCHEDULER.0, DESCHEDULER.1))
        .map(Arc::clone);
    if let Some(addon) = addon.filter(|addon| addon.enabled) {
        turn.annotate(REENABLE_DESCHEDULER, Some("true"));
        turn.then(HciAction::EnableAddon {
            addon: addon.target.clone(),
            enabled: false,
        });
    }
}

fn ask(cluster: &LocalCluster, turn: &Turn<'_>, version: &str) -> ClusterChange {
    // An upgrade that ended half-way left its strategy; what was there before that is what counts.
    let before = cluster.before.clone().unwrap_or_else(|| {
        let before = json!({ "kubernetesVersion": &*cluster.kubernetes_version, "strategy": cluster.strategy });
        Arc::from(before.to_string())
    });
    ClusterChange {
        kubernetes_version: Arc::from(version),
        provision_generation: cluster.provision_generation + 1,
        strategy: strategy(&cluster.strategy),
        strategy_was: cluster.strategy.clone(),
        rolled_out_for: Some(turn.target.uid.clone()),
        before: Some(before),
    }
}

/// One node at a time, drained, with our questions; hooks of others stay.
fn strategy(there: &Value) -> Value {
    let options = |key: &str| {
        let mut options = there
            .get(key)
            .cloned()
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({}));
        for switch in ["enabled", "force", "ignoreDaemonSets", "deleteEmptyDirData"] {
            options[switch] = json!(true);
        }
        for (list, hook) in [
            ("preDrainHooks", HARVESTER_PRE_HOOK),
            ("postDrainHooks", HARVESTER_POST_HOOK),
        ] {
            let ours = json!({ "annotation": hook });
            let mut hooks = options.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
            if !hooks.contains(&ours) {
                hooks.push(ours);
            }
            options[list] = json!(hooks);
        }
        options
    };
    let mut new = if there.is_object() { there.clone() } else { json!({}) };
    new["controlPlaneDrainOptions"] = options("controlPlaneDrainOptions");
    new["workerDrainOptions"] = options("workerDrainOptions");
    new["controlPlaneConcurrency"] = json!("1");
    new["workerConcurrency"] = json!("1");
    new
}

/// How an upgrade has ended, for what becomes of Rancher's part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Every node is at the target.
    AtTarget,
    /// No node was drained.
    Untouched,
    /// Some are at the target and some are not.
    HalfWay,
}

/// What Rancher's cluster was to have before this upgrade asked, or one before it that ended half-way.
fn before(cluster: &LocalCluster) -> Value {
    let before = cluster.before.as_deref();
    before
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Whether a node has got what Rancher's cluster is to have now: one that an attempt before this one has finished would go back to what was before, and nobody
/// would be asked about its drain.
pub fn would_go_back(turn: &Turn<'_>) -> bool {
    let Some(cluster) = turn.view.hci.local_cluster() else {
        return false;
    };
    let before = before(cluster);
    let old = before.get("kubernetesVersion").and_then(Value::as_str);
    cluster.rolled_out_for.as_ref() == Some(&turn.target.uid)
        && old.is_some_and(|old| skew::brought(turn.view, &cluster.kubernetes_version, old).is_some())
}

/// Puts back what [`begun`] has changed. Half-way the questions stay: without them Rancher would go on with the other nodes,
/// and nobody would move their virtual machines.
pub fn put_back(turn: &mut Turn<'_>, ended: Ended) {
    unsettle(turn);
    let Some(cluster) = turn.view.hci.local_cluster().map(Arc::clone) else {
        return;
    };
    if cluster.rolled_out_for.as_ref() != Some(&turn.target.uid) || ended == Ended::HalfWay {
        return;
    }
    let before = before(&cluster);
    let old = before.get("kubernetesVersion").and_then(Value::as_str);
    let kubernetes_version = match (ended, old) {
        (Ended::Untouched, Some(old)) => Arc::from(old),
        _ => Arc::clone(&cluster.kubernetes_version),
    };
    turn.then(HciAction::PatchCluster {
        cluster: cluster.target.clone(),
        change: ClusterChange {
            kubernetes_version,
            provision_generation: cluster.provision_generation,
            strategy: before.get("strategy").cloned().unwrap_or_default(),
            strategy_was: cluster.strategy.clone(),
            rolled_out_for: None,
            before: None,
        },
    });
}

/// Takes back what [`settle`] has set. It is written also where nothing seems to be set: an old view is from before that, and its write is
/// refused.
fn unsettle(turn: &mut Turn<'_>) {
    if turn.annotation(LONGHORN_RESTORED).is_none()
        && let Some(old) = turn.annotation(HARVESTER_REPLENISHMENT_WAIT).map(str::to_owned)
        && let Some(setting) = turn.view.hci.longhorn_settings.get(&replenishment()).map(Arc::clone)
    {
        turn.annotate(LONGHORN_RESTORED, Some("true"));
        let ours = *setting.what == *REPLENISHMENT_WAIT.to_string();
        turn.first(HciAction::SetLonghorn {
            setting: setting.target.clone(),
            // A person who changed it meanwhile keeps their value.
            value: if ours {
                Arc::from(old)
            } else {
                Arc::clone(&setting.what)
            },
        });
    }
    if turn.annotation(REENABLE_DESCHEDULER) == Some("true") {
        let addon = turn
            .view
            .hci
            .addons
            .get(&Key::new(DESCHEDULER.0, DESCHEDULER.1))
            .map(Arc::clone);
        if let Some(addon) = addon {
            turn.first(HciAction::EnableAddon {
                addon: addon.target.clone(),
                enabled: true,
            });
        }
        turn.annotate(REENABLE_DESCHEDULER, None);
    }
}
