//! What the tasks of Jobs write, as requests: taints, virtual machines, migrations, volumes, charts.

use afloat_api::annotations;
use afloat_core::hci::action::TaskWrite;
use afloat_core::hci::view::{HciKind, Run};
use afloat_core::view::{Key, NodeName};
use serde_json::{Value, json};

use super::hci::{annotation, taint, update_methods, with};
use super::request::{JSON_PATCH, Request, create, delete, merge};
use crate::snapshot::Kind;

/// What a write asks of the API server.
pub fn of(write: &TaskWrite) -> Request {
    match write {
        TaskWrite::TaintForDrain { node, taints } => {
            let taints: Vec<Value> = taints.iter().map(taint).collect();
            merge(Kind::Node, node, json!({ "spec": { "taints": taints } }))
        }
        TaskWrite::StopVm { vm, off, before } => {
            let notes = run_notes(Some(before), None);
            merge(Kind::Hci(HciKind::Vm), vm, with(notes, run(off)))
        }
        TaskWrite::StartVm { vm, run: to_run, after } => {
            let notes = run_notes(None, after.as_ref());
            merge(Kind::Hci(HciKind::Vm), vm, with(notes, run(to_run)))
        }
        TaskWrite::Migrate { key, vmi, to } => {
            let body = migration(key, vmi, to.as_ref());
            create(Kind::Hci(HciKind::Migration), key.clone(), body)
        }
        TaskWrite::NoteCancelled { job, all } => {
            let note = annotation(annotations::CANCELLED_MIGRATIONS, Some(&all.to_text()));
            merge(Kind::Hci(HciKind::Job), job, note)
        }
        TaskWrite::CancelMigration { migration } => delete(Kind::Hci(HciKind::Migration), migration, None),
        TaskWrite::DetachVolume { volume } => {
            let body = json!({ "spec": { "nodeID": "" } });
            merge(Kind::Hci(HciKind::Volume), volume, body)
        }
        TaskWrite::AskForKubernetes { cluster, version } => {
            let body = json!({ "spec": { "kubernetesVersion": &**version } });
            merge(Kind::Hci(HciKind::Cluster), cluster, body)
        }
        TaskWrite::SetImage {
            server,
            container,
            image,
        } => Request {
            content_type: JSON_PATCH,
            body: json!([
                { "op": "add", "path": "/metadata/resourceVersion", "value": server.revision.to_string() },
                { "op": "test", "path": "/spec/template/spec/containers/0/name", "value": &**container },
                { "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": &**image },
            ]),
            ..merge(Kind::Hci(HciKind::Server), server, Value::Null)
        },
        TaskWrite::RollOutChart {
            chart,
            version,
            update_methods_before,
        } => merge(
            Kind::Hci(HciKind::Chart),
            chart,
            roll_out(version.as_deref(), update_methods_before.as_deref()),
        ),
        TaskWrite::UpdateAddon { addon, version } => {
            let body = json!({ "spec": { "version": &**version } });
            merge(Kind::Hci(HciKind::Addon), addon, body)
        }
    }
}

/// What a chart needs to go on: the pause and its sign go, the version and the values that are not the release's stay.
fn roll_out(version: Option<&str>, update_methods_before: Option<&str>) -> Value {
    let mut body = annotation(annotations::PAUSED_BY, None);
    body["spec"] = json!({ "paused": false });
    if let Some(version) = version {
        body["spec"]["version"] = json!(version);
    }
    let Some(before) = update_methods_before else {
        return body;
    };
    body["metadata"]["annotations"][annotations::UPDATE_METHODS_BEFORE] = json!(before);
    body["spec"]["values"] = update_methods(&json!([]));
    body
}

/// Only one of both is there: a machine is off, or is being started.
fn run_notes(before: Option<&Run>, after: Option<&Run>) -> Value {
    json!({ "metadata": { "annotations": {
        annotations::RUN_BEFORE: before.map(Run::to_text),
        annotations::RUN_AFTER: after.map(Run::to_text),
    } } })
}

fn run(run: &Run) -> Value {
    match run {
        Run::Strategy(word) => json!({ "spec": { "runStrategy": &**word } }),
        Run::Switch(on) => json!({ "spec": { "running": on } }),
    }
}

fn migration(key: &Key, vmi: &str, to: Option<&NodeName>) -> Value {
    let mut spec = json!({ "vmiName": vmi });
    if let Some(node) = to {
        spec["addedNodeSelector"] = json!({ "kubernetes.io/hostname": node.as_str() });
    }
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": &*key.name, "namespace": &*key.namespace },
        "spec": spec,
    })
}
