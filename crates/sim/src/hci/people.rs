//! What people do to a Harvester-like cluster while it is upgraded: each deed at a moment that can be seen from the cluster, in order.
//! The moments are also those at which machines and Rancher are made to go wrong.

use std::collections::VecDeque;
use std::time::Duration;

use afloat_core::hci::view::HciKind;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::ground::SYSTEM;
use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::object::{Key, Kind, ObjectRef, label, name};
use crate::queue::Queue;
use crate::request::{Request, Verb};
use crate::view::{Change, View};

const UPGRADE: Kind = Kind::Hci(HciKind::Upgrade);

/// A moment that can be seen from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// There is an Upgrade.
    Asked,
    /// Its label says this phase.
    Phase(&'static str),
    /// A node is in this state.
    Node(&'static str, &'static str),
    /// A condition of the Upgrade has this status.
    Condition(&'static str, &'static str),
    /// It has ended and is cleaned up after.
    Over,
}

impl Moment {
    pub(super) fn holds(self, view: &View) -> bool {
        let Some(upgrade) = upgrade_of(view) else { return false };
        let status = &upgrade.data["status"];
        match self {
            Self::Asked => true,
            Self::Phase(word) => label(&upgrade.metadata, "harvesterhci.io/upgradeState") == Some(word),
            Self::Node(node, state) => status["nodeStatuses"][node]["state"] == state,
            Self::Condition(kind, word) => {
                let mut conditions = status["conditions"].as_array().into_iter().flatten();
                conditions.any(|condition| condition["type"] == kind && condition["status"] == word)
            }
            Self::Over => label(&upgrade.metadata, "harvesterhci.io/upgradeCleanup") == Some("Succeeded"),
        }
    }
}

/// The Upgrade that everything is about: the first that was asked for.
pub(super) fn upgrade_of(view: &View) -> Option<&DynamicObject> {
    let first = view.all_of(HciKind::Upgrade).min_by_key(|upgrade| {
        let time = upgrade.metadata.creation_timestamp.as_ref();
        (time.map(|time| time.0), name(&upgrade.metadata))
    });
    first.map(AsRef::as_ref)
}

/// What somebody does.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Changes the Upgrade.
    ChangeUpgrade(Value),
    DeleteUpgrade,
    /// Deletes a Job of the Upgrade, by the end of its name.
    DeleteJob(&'static str),
    /// Deletes the Deployment that serves the release.
    DeleteRepo,
    Change(Kind, &'static str, &'static str, Value),
    ChangeStatus(Kind, &'static str, &'static str, Value),
    Create(Kind, &'static str, Value),
    Delete(Kind, &'static str, &'static str),
}

impl Deed {
    fn annotate_upgrade(key: &str, value: Option<&str>) -> Self {
        Self::ChangeUpgrade(json!({ "metadata": { "annotations": { key: value } } }))
    }

    pub fn abort() -> Self {
        Self::annotate_upgrade("afloat.dev/abort", Some("true"))
    }

    /// Goes on after a failure.
    pub fn resume() -> Self {
        Self::annotate_upgrade("afloat.dev/wish", Some("resume"))
    }

    /// Holds the whole upgrade, or lets it go.
    pub fn hold(on: bool) -> Self {
        Self::annotate_upgrade("afloat.dev/pause", on.then_some("a person looks at it"))
    }

    pub fn pause_map(map: &Value) -> Self {
        Self::annotate_upgrade("harvesterhci.io/node-upgrade-pause-map", Some(&map.to_string()))
    }

    /// Lets a paused node go on, as people of Harvester do it.
    pub fn unpause(node: &'static str) -> Self {
        let body = json!({ "metadata": { "annotations": { "harvesterhci.io/node-upgrade-pause": null } } });
        Self::Change(Kind::Node, "", node, body)
    }

    /// Asks KubeVirt to move a virtual machine.
    pub fn migrate(vm: &'static str) -> Self {
        let body = json!({ "metadata": { "name": format!("{vm}-by-hand") }, "spec": { "vmiName": vm } });
        Self::Create(Kind::Hci(HciKind::Migration), "default", body)
    }

    pub fn stop(vm: &'static str) -> Self {
        let body = json!({ "spec": { "runStrategy": "Halted" } });
        Self::Change(Kind::Hci(HciKind::Vm), "default", vm, body)
    }

    pub(super) fn request(&self, view: &View) -> Option<Request> {
        let to = |verb, kind: Kind, namespace: &str, name: &str, body| Request {
            verb,
            resource: kind.resource(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
            body,
            best_effort: false,
        };
        let upgrade = || upgrade_of(view).map(|upgrade| name(&upgrade.metadata).to_owned());
        Some(match self {
            Self::ChangeUpgrade(body) => to(Verb::MergePatch, UPGRADE, SYSTEM, &upgrade()?, Some(body.clone())),
            Self::DeleteUpgrade => to(Verb::Delete, UPGRADE, SYSTEM, &upgrade()?, None),
            Self::DeleteJob(end) => {
                let job = format!("{}-{end}", upgrade()?);
                let options = json!({ "propagationPolicy": "Background" });
                to(Verb::Delete, Kind::Job, SYSTEM, &job, Some(options))
            }
            Self::DeleteRepo => {
                let repo = format!("upgrade-repo-{}", upgrade()?);
                to(Verb::Delete, Kind::Deployment, SYSTEM, &repo, None)
            }
            Self::Change(kind, namespace, name, body) => {
                to(Verb::MergePatch, *kind, namespace, name, Some(body.clone()))
            }
            Self::ChangeStatus(kind, namespace, name, status) => {
                let body = json!({ "status": status });
                Request {
                    subresource: Some("status"),
                    ..to(Verb::MergePatch, *kind, namespace, name, Some(body))
                }
            }
            Self::Create(kind, namespace, body) => Request::create(*kind, namespace, body.clone()),
            Self::Delete(kind, namespace, name) => to(Verb::Delete, *kind, namespace, name, None),
        })
    }
}

/// Deeds at a moment, or so long after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    pub when: Moment,
    pub after: Duration,
    pub what: Vec<Deed>,
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
        if self.seen.is_none() && !act.when.holds(turn.view) {
            return Decision::nothing();
        }
        let seen = *self.seen.get_or_insert(turn.now);
        let due = after(seen, act.after.div_f64(turn.timings.pace));
        if due > turn.now {
            return Decision::at(due);
        }
        let requests = act.what.iter().filter_map(|deed| deed.request(turn.view));
        // One whose request is refused lets it be: it came too late.
        let requests = requests.map(Request::best_effort).collect();
        self.acts.pop_front();
        self.seen = None;
        Decision::requests(requests).and_at(Some(turn.now))
    }
}
