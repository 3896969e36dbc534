//! People of a Harvester-like cluster: what they do while it is upgraded, as requests, each at a moment that can be seen from the cluster.

use std::collections::VecDeque;

use afloat_api::{annotations, labels};
use afloat_core::hci::view::HciKind;
use afloat_scenes::{Act, Deed, Moment, NEW_KUBERNETES, NEW_OS, NEW_RELEASE, SECOND_UPGRADE, SYSTEM};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::ground::{RANCHER, joining};
use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::object::{Key, Kind, ObjectRef, label, name};
use crate::queue::Queue;
use crate::request::{Request, Verb};
use crate::view::{Change, View};

const UPGRADE: Kind = Kind::Hci(HciKind::Upgrade);
const LATEST: &str = labels::HARVESTER_LATEST_UPGRADE;
/// On Harvester's Deployment: `off` where its upgrade controller leaves upgrades alone.
const UPSTREAM_OFF: &str = "afloat.dev/harvester-upgrades";

/// Whether a moment has come, as far as can be seen.
pub(super) fn has_come(moment: Moment, view: &View) -> bool {
    let Some(upgrade) = upgrade_of(view) else {
        return moment == Moment::Gone;
    };
    let status = &upgrade.data["status"];
    match moment {
        Moment::Asked => true,
        Moment::Phase(word) => label(&upgrade.metadata, "harvesterhci.io/upgradeState") == Some(word),
        Moment::Node(node, state) => status["nodeStatuses"][node]["state"] == state,
        Moment::Condition(kind, word) => {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == kind && condition["status"] == word)
        }
        Moment::Over => label(&upgrade.metadata, "harvesterhci.io/upgradeCleanup") == Some("Succeeded"),
        Moment::Gone => false,
    }
}

/// The Upgrade that everything is about: the one that was begun last, or else the first that was asked for.
pub(super) fn upgrade_of(view: &View) -> Option<&DynamicObject> {
    let all = || view.all_of(HciKind::Upgrade).map(|upgrade| &**upgrade);
    let born = |upgrade: &&DynamicObject| {
        let time = upgrade.metadata.creation_timestamp.as_ref();
        (time.map(|time| time.0), upgrade.metadata.name.clone())
    };
    let is_latest = |upgrade: &&DynamicObject| label(&upgrade.metadata, LATEST) == Some("true");
    all()
        .filter(is_latest)
        .max_by_key(born)
        .or_else(|| all().min_by_key(born))
}

fn to(verb: Verb, kind: Kind, namespace: &str, name: &str, body: Option<Value>) -> Request {
    Request {
        verb,
        resource: kind.resource(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: None,
        body,
        best_effort: false,
    }
}

fn change(kind: Kind, namespace: &str, name: &str, body: Value) -> Request {
    to(Verb::MergePatch, kind, namespace, name, Some(body))
}

fn change_status(kind: Kind, namespace: &str, name: &str, status: &Value) -> Request {
    Request {
        subresource: Some("status"),
        ..change(kind, namespace, name, json!({ "status": status }))
    }
}

fn annotate(kind: Kind, namespace: &str, name: &str, key: &str, value: Option<&str>) -> Request {
    change(
        kind,
        namespace,
        name,
        json!({ "metadata": { "annotations": { key: value } } }),
    )
}

/// How a deed is done; nothing where there is no Upgrade to do it to.
pub(super) fn requests(deed: &Deed, view: &View) -> Vec<Request> {
    let hci = Kind::Hci;
    let one = match deed {
        Deed::AnnotateUpgrade(..) | Deed::DeleteUpgrade | Deed::DeleteJob(_) | Deed::DeleteRepo => {
            return upgrade_of(view)
                .and_then(|upgrade| about_upgrade(deed, name(&upgrade.metadata)))
                .into_iter()
                .collect();
        }
        Deed::AskOnceMore => {
            let spec = json!({ "version": NEW_RELEASE, "logEnabled": false });
            let body = json!({ "metadata": { "name": SECOND_UPGRADE }, "spec": spec });
            Request::create(UPGRADE, SYSTEM, body)
        }
        Deed::DeleteSecond => to(Verb::Delete, UPGRADE, SYSTEM, SECOND_UPGRADE, None),
        Deed::Pause(node) => {
            let key = annotations::HARVESTER_NODE_PAUSE;
            annotate(Kind::Node, "", node, key, Some("a person"))
        }
        Deed::Unpause(node) => annotate(Kind::Node, "", node, annotations::HARVESTER_NODE_PAUSE, None),
        Deed::Untaint(node) => change(Kind::Node, "", node, json!({ "spec": { "taints": null } })),
        Deed::Cordon(node) => change(Kind::Node, "", node, json!({ "spec": { "unschedulable": true } })),
        Deed::ReportReady(node) => {
            let ready = json!({ "type": "Ready", "status": "True", "reason": "Kubelet" });
            change_status(Kind::Node, "", node, &json!({ "conditions": [ready] }))
        }
        Deed::RemoveNode(node) => {
            let machine = format!("custom-{node}");
            let plan = format!("{machine}-machine-plan");
            return vec![
                to(Verb::Delete, hci(HciKind::Machine), RANCHER, &machine, None),
                to(Verb::Delete, hci(HciKind::Plan), RANCHER, &plan, None),
                to(Verb::Delete, Kind::Node, "", node, None),
            ];
        }
        Deed::JoinUpgraded(node) => return joining(node, (NEW_OS, NEW_KUBERNETES)),
        Deed::MigrateVm(vm) => {
            let body = json!({ "metadata": { "name": format!("{vm}-by-hand") }, "spec": { "vmiName": vm } });
            Request::create(hci(HciKind::Migration), "default", body)
        }
        Deed::StopVm(vm) => {
            let body = json!({ "spec": { "runStrategy": "Halted" } });
            change(hci(HciKind::Vm), "default", vm, body)
        }
        Deed::PauseChart(paused) => {
            let body = json!({ "spec": { "paused": paused } });
            change(hci(HciKind::Chart), RANCHER, "harvester", body)
        }
        Deed::PauseCluster => {
            let body = json!({ "spec": { "paused": true } });
            change(hci(HciKind::CapiCluster), RANCHER, "local", body)
        }
        Deed::BeginBackup => {
            let body = json!({ "metadata": { "name": "nightly" }, "spec": { "type": "backup" } });
            Request::create(hci(HciKind::Backup), "default", body)
        }
        Deed::RunOwnController => Request::create(Kind::Deployment, SYSTEM, own_controller()),
        Deed::LeaveUpgrades => annotate(Kind::Deployment, SYSTEM, "harvester", UPSTREAM_OFF, Some("off")),
        Deed::Guard(node, budgets) => return guard(node, budgets),
        Deed::Unguard(budget) => to(Verb::Delete, Kind::PodDisruptionBudget, "default", budget, None),
    };
    vec![one]
}

fn about_upgrade(deed: &Deed, upgrade: &str) -> Option<Request> {
    match deed {
        Deed::AnnotateUpgrade(key, value) => Some(annotate(UPGRADE, SYSTEM, upgrade, key, value.as_deref())),
        Deed::DeleteUpgrade => Some(to(Verb::Delete, UPGRADE, SYSTEM, upgrade, None)),
        Deed::DeleteJob(end) => {
            let job = format!("{upgrade}-{end}");
            let options = json!({ "propagationPolicy": "Background" });
            Some(to(Verb::Delete, Kind::Job, SYSTEM, &job, Some(options)))
        }
        Deed::DeleteRepo => {
            let repo = format!("upgrade-repo-{upgrade}");
            Some(to(Verb::Delete, Kind::Deployment, SYSTEM, &repo, None))
        }
        _ => None,
    }
}

/// Harvester's own controller, as far as it can be seen.
fn own_controller() -> Value {
    let labels = json!({ "app": "harvester" });
    let container = json!({ "name": "harvester", "image": "example.org/harvester" });
    json!({
        "metadata": { "name": "harvester" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    })
}

/// A pod on a node, and the budgets it is under; none of them lets it go.
fn guard(node: &str, budgets: &[&'static str]) -> Vec<Request> {
    let labels = json!({ "app": "db" });
    let container = json!({ "name": "db", "image": "example.org/db" });
    let pod = json!({
        "metadata": { "name": "db-0", "labels": labels },
        "spec": { "nodeName": node, "containers": [container] },
    });
    let ready = json!({ "type": "Ready", "status": "True" });
    let running = json!({ "phase": "Running", "conditions": [ready] });
    let mut requests = vec![
        Request::create(Kind::Pod, "default", pod),
        change_status(Kind::Pod, "default", "db-0", &running),
    ];
    for budget in budgets {
        let body = json!({
            "metadata": { "name": budget },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } },
        });
        let counted = json!({
            "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1,
        });
        requests.push(Request::create(Kind::PodDisruptionBudget, "default", body));
        requests.push(change_status(Kind::PodDisruptionBudget, "default", budget, &counted));
    }
    requests
}

/// People who look at the cluster and do one act after the other.
#[derive(Debug)]
pub struct People {
    acts: VecDeque<Act>,
    /// When the next act's moment was seen.
    seen: Option<Timestamp>,
}

impl People {
    pub fn new(acts: Vec<Act>) -> Self {
        Self {
            acts: acts.into(),
            seen: None,
        }
    }

    fn themselves() -> ObjectRef {
        ObjectRef::new(UPGRADE, Key::new("", "people"))
    }
}

impl Actor for People {
    fn name(&self) -> &'static str {
        "people"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        if change.kind() == Some(UPGRADE) && !self.acts.is_empty() {
            queue.add(Self::themselves());
        }
    }

    fn decide(&mut self, _: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(act) = self.acts.front() else {
            return Decision::nothing();
        };
        if self.seen.is_none() && !has_come(act.when, turn.view) {
            return Decision::nothing();
        }
        let seen = *self.seen.get_or_insert(turn.now);
        let due = after(seen, act.after.div_f64(turn.timings.pace));
        if due > turn.now {
            return Decision::at(due);
        }
        let wanted = act.what.iter().flat_map(|deed| requests(deed, turn.view));
        // One whose request is refused lets it be: it came too late.
        let wanted = wanted.map(Request::best_effort).collect();
        self.acts.pop_front();
        self.seen = None;
        Decision::requests(wanted).and_at(Some(turn.now))
    }
}
