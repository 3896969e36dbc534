//! The actions of upgrades of Harvester as requests. The objects they make are in `hci_objects`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use afloat_api::harvester::Upgrade;
use afloat_api::{annotations, labels};
use afloat_core::hci::action::{ClusterChange, HciAction, Hook, NodeMark};
use afloat_core::hci::view::HciKind;
use afloat_core::view::{Key, TaintEffect, Target, Uid};
use serde_json::{Value, json};

use super::hci_objects::{image, job, log, object, repo, service};
use super::request::{JSON_PATCH, Request, create, delete, merge};
use super::task;
use crate::snapshot::Kind;
use crate::snapshot::hci::{ROLLED_OUT_FOR, STRATEGY_BEFORE};

/// What an action asks of the API server.
pub fn of(action: &HciAction) -> Request {
    use HciKind as Is;
    let change = |kind: HciKind, target: &Target, body: Value| merge(Kind::Hci(kind), target, body);
    let make = |kind: HciKind, key: &Key, body: Value| create(Kind::Hci(kind), key.clone(), body);
    match action {
        HciAction::Confirm { target } => change(Is::Upgrade, target, json!({})).reading(),
        HciAction::WriteUpgrade { target, before, after } => write_upgrade(target, before, after),
        HciAction::NotLatest { target } => change(Is::Upgrade, target, label(labels::HARVESTER_LATEST_UPGRADE, None)),
        HciAction::MarkNode { node, mark, value } => {
            merge(Kind::Node, node, annotation(marked(*mark), value.as_deref()))
        }
        HciAction::TaintPending { node, taints } | HciAction::Untaint { node, keep: taints } => {
            let taints: Vec<Value> = taints.iter().map(taint).collect();
            merge(Kind::Node, node, spec(&json!({ "taints": taints })))
        }
        HciAction::CreateJob(wanted) => make(Is::Job, &wanted.key, job(wanted)),
        HciAction::DeleteJob { job } => with_children(delete(Kind::Hci(Is::Job), job, None)),
        HciAction::CreateLog { key, upgrade } => make(Is::UpgradeLog, key, log(key, upgrade)),
        HciAction::StopLog { log, conditions } => {
            change(Is::UpgradeLog, log, json!({ "status": { "conditions": conditions } }))
        }
        HciAction::DeleteLog { log } => delete(Kind::Hci(Is::UpgradeLog), log, None),
        HciAction::CreateImage {
            key,
            upgrade,
            url,
            checksum,
        } => make(Is::Image, key, image(key, upgrade, url, checksum)),
        HciAction::LabelImage { image, upgrade } => {
            change(Is::Image, image, label(labels::HARVESTER_UPGRADE, upgrade.as_deref()))
        }
        HciAction::DeleteImage { image } => delete(Kind::Hci(Is::Image), image, None),
        HciAction::CreateRepo(wanted) => create(Kind::Deployment, wanted.key.clone(), repo(wanted)),
        HciAction::CreateRepoService { key, upgrade } => make(Is::Service, key, service(key, upgrade)),
        HciAction::RestartRepo { deployment, at } => {
            let template = annotation("kubectl.kubernetes.io/restartedAt", Some(&at.to_string()));
            merge(Kind::Deployment, deployment, spec(&json!({ "template": template })))
        }
        HciAction::DeleteRepo { deployment } => with_children(delete(Kind::Deployment, deployment, None)),
        HciAction::DeleteRepoService { service } => delete(Kind::Hci(Is::Service), service, None),
        HciAction::PatchCluster { cluster, change: new } => change(Is::Cluster, cluster, cluster_change(new)),
        HciAction::Answer { secret, hook, value } => {
            change(Is::Plan, secret, annotation(answered(*hook), Some(&**value)))
        }
        HciAction::PauseChart { chart, by } => {
            let mut body = annotation(annotations::PAUSED_BY, by.as_ref().map(Uid::as_str));
            body["spec"] = json!({ "paused": by.is_some() });
            change(Is::Chart, chart, body)
        }
        HciAction::RestoreUpdateMethods { chart, methods } => change(Is::Chart, chart, restore_update_methods(methods)),
        HciAction::RecordVms {
            list,
            key,
            upgrade,
            node,
            vms,
        } => {
            let data = recorded(node.as_str(), vms);
            match list {
                Some(list) => change(Is::RestoreList, list, data),
                None => make(
                    Is::RestoreList,
                    key,
                    with(object("v1", "ConfigMap", key, upgrade, None), data),
                ),
            }
        }
        HciAction::SetLonghorn { setting, value } => change(Is::LonghornSetting, setting, json!({ "value": &**value })),
        HciAction::EnableAddon { addon, enabled } => change(Is::Addon, addon, spec(&json!({ "enabled": enabled }))),
        HciAction::Task(write) => task::of(write),
    }
}

/// The machines that were stopped for a node.
fn recorded(node: &str, vms: &BTreeSet<String>) -> Value {
    let names = vms.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    json!({ "data": { node: names } })
}

fn spec(fields: &Value) -> Value {
    json!({ "spec": fields })
}

pub(super) fn annotation(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn label(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "labels": { key: value } } })
}

fn marked(mark: NodeMark) -> &'static str {
    match mark {
        NodeMark::Pause => annotations::HARVESTER_NODE_PAUSE,
        NodeMark::PendingOsImage => annotations::HARVESTER_PENDING_OS_IMAGE,
    }
}

fn answered(hook: Hook) -> &'static str {
    match hook {
        Hook::PreDrain => annotations::HARVESTER_PRE_HOOK,
        Hook::PostDrain => annotations::HARVESTER_POST_HOOK,
    }
}

/// Without it the API server leaves the pods of a Job behind.
fn with_children(mut request: Request) -> Request {
    request.body["propagationPolicy"] = json!("Background");
    request
}

/// Labels, annotations, finalizers and status in one JSON patch: the revision is put in, so that a difference is a conflict, and
/// what else the object holds, in fields this code does not know, stays.
fn write_upgrade(target: &Target, before: &Upgrade, after: &Upgrade) -> Request {
    let add = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    let mut operations = vec![add("/metadata/resourceVersion", json!(target.revision.to_string()))];
    let maps = [
        ("labels", &before.metadata.labels, &after.metadata.labels),
        ("annotations", &before.metadata.annotations, &after.metadata.annotations),
    ];
    for (name, old, new) in maps {
        if old == new {
            continue;
        }
        let empty = BTreeMap::new();
        let (had, new) = (old.as_ref().unwrap_or(&empty), new.as_ref().unwrap_or(&empty));
        if old.as_ref().is_none_or(BTreeMap::is_empty) {
            operations.push(add(&format!("/metadata/{name}"), json!(new)));
            continue;
        }
        let path = |key: &str| format!("/metadata/{name}/{}", key.replace('~', "~0").replace('/', "~1"));
        let changed = new.iter().filter(|(key, value)| had.get(*key) != Some(value));
        operations.extend(changed.map(|(key, value)| add(&path(key), json!(value))));
        let gone = had.keys().filter(|key| !new.contains_key(*key));
        operations.extend(gone.map(|key| json!({ "op": "remove", "path": path(key) })));
    }
    if before.metadata.finalizers != after.metadata.finalizers {
        let finalizers = after.metadata.finalizers.clone().unwrap_or_default();
        operations.push(add("/metadata/finalizers", json!(finalizers)));
    }
    if before.status != after.status {
        operations.push(add("/status", json!(after.status)));
    }
    Request {
        content_type: JSON_PATCH,
        body: json!(operations),
        ..merge(Kind::Hci(HciKind::Upgrade), target, json!({}))
    }
}

fn restore_update_methods(methods: &str) -> Value {
    let methods = serde_json::from_str(methods).unwrap_or(Value::Null);
    let mut body = annotation(annotations::UPDATE_METHODS_BEFORE, None);
    body["spec"] = json!({ "values": update_methods(&methods) });
    body
}

/// How KubeVirt renews running machines, as values of Harvester's chart.
pub(super) fn update_methods(methods: &Value) -> Value {
    json!({ "kubevirt": { "spec": { "workloadUpdateStrategy": { "workloadUpdateMethods": methods } } } })
}

pub(super) fn taint(taint: &afloat_core::view::Taint) -> Value {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    let mut body = json!({ "key": &*taint.key, "effect": effect });
    if !taint.value.is_empty() {
        body["value"] = json!(&*taint.value);
    }
    body
}

fn cluster_change(change: &ClusterChange) -> Value {
    json!({
        "metadata": { "annotations": {
            ROLLED_OUT_FOR: change.rolled_out_for.as_ref().map(Uid::as_str),
            STRATEGY_BEFORE: change.before.as_deref(),
        } },
        "spec": {
            "kubernetesVersion": &*change.kubernetes_version,
            "rkeConfig": {
                "provisionGeneration": change.provision_generation,
                "upgradeStrategy": difference(&change.strategy_was, &change.strategy),
            },
        },
    })
}

/// What a merge needs to make `old` into `new`: fields that are no longer there have to be said.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut merged: serde_json::Map<String, Value> = new
        .iter()
        .map(|(key, value)| (key.clone(), difference(old.get(key).unwrap_or(&Value::Null), value)))
        .collect();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        merged.insert(key.clone(), Value::Null);
    }
    Value::Object(merged)
}

pub(super) fn with(mut body: Value, more: Value) -> Value {
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_api::harvester::HarvesterCondition;
    use afloat_core::view::Revision;

    fn target(name: &str) -> Target {
        Target {
            key: Key::new("harvester-system", name),
            uid: Uid::from("u-1"),
            revision: Revision(7),
        }
    }

    #[test]
    fn an_upgrade_is_written_field_by_field_and_only_in_the_state_it_was_seen_in() {
        let mut before = Upgrade::new("u", afloat_api::harvester::UpgradeSpec::default());
        before.metadata.labels = Some(BTreeMap::from([
            ("a/b".to_owned(), "1".to_owned()),
            ("gone".to_owned(), "x".to_owned()),
        ]));
        let mut after = before.clone();
        after.metadata.labels = Some(BTreeMap::from([("a/b".to_owned(), "2".to_owned())]));
        after.metadata.finalizers = Some(vec!["afloat.dev/cleanup".to_owned()]);
        let request = write_upgrade(&target("u"), &before, &after);
        let expected = json!([
            { "op": "add", "path": "/metadata/resourceVersion", "value": "7" },
            { "op": "add", "path": "/metadata/labels/a~1b", "value": "2" },
            { "op": "remove", "path": "/metadata/labels/gone" },
            { "op": "add", "path": "/metadata/finalizers", "value": ["afloat.dev/cleanup"] },
        ]);
        assert_eq!((request.content_type, request.body), (JSON_PATCH, expected));
    }

    #[test]
    fn a_log_is_stopped_with_all_it_says_and_only_in_the_state_it_was_seen_in() {
        let says = |kind: &str, status: &str| HarvesterCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            ..HarvesterCondition::default()
        };
        let (log, conditions) = (
            target("u-upgradelog"),
            vec![says("Started", "True"), says("Stopped", "True")],
        );
        let stop = of(&HciAction::StopLog {
            log: log.clone(),
            conditions,
        });
        assert_eq!(
            stop.path,
            "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/upgradelogs/u-upgradelog"
        );
        let expected = json!({
            "metadata": { "resourceVersion": "7", "uid": "u-1" },
            "status": { "conditions": [{ "type": "Started", "status": "True" }, { "type": "Stopped", "status": "True" }] },
        });
        assert_eq!(stop.body, expected);
        let deleted = of(&HciAction::DeleteLog { log });
        assert_eq!(
            (deleted.path, &deleted.body["preconditions"]["uid"]),
            (stop.path, &json!("u-1"))
        );
    }

    #[test]
    fn a_merge_says_what_is_no_longer_there() {
        let (old, new) = (json!({ "a": { "b": 1, "c": 2 }, "d": 3 }), json!({ "a": { "c": 2 } }));
        assert_eq!(difference(&old, &new), json!({ "a": { "b": null, "c": 2 }, "d": null }));
        assert_eq!(difference(&old, &Value::Null), Value::Null);
    }
}
