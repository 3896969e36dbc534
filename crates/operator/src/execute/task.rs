//! What the tasks of Jobs write, as requests: taints, virtual machines, migrations, volumes.

use afloat_api::annotations;
use afloat_core::hci::action::TaskWrite;
use afloat_core::hci::view::{HciKind, Run};
use afloat_core::view::Key;
use serde_json::{Value, json};

use super::hci::{annotation, taint, with};
use super::request::{Request, create, merge};
use crate::snapshot::Kind;

/// What a write asks of the API server.
pub fn of(write: &TaskWrite) -> Request {
    match write {
        TaskWrite::TaintForDrain { node, taints } => {
            let taints: Vec<Value> = taints.iter().map(taint).collect();
            merge(Kind::Node, node, json!({ "spec": { "taints": taints } }))
        }
        TaskWrite::StopVm { vm, off, before } => {
            let note = annotation(annotations::RUN_BEFORE, Some(&before.to_text()));
            merge(Kind::Hci(HciKind::Vm), vm, with(note, run(off)))
        }
        TaskWrite::StartVm { vm, run: as_before } => {
            let forgets = annotation(annotations::RUN_BEFORE, None);
            merge(Kind::Hci(HciKind::Vm), vm, with(forgets, run(as_before)))
        }
        TaskWrite::Migrate { key, vmi } => create(Kind::Hci(HciKind::Migration), key.clone(), migration(key, vmi)),
        TaskWrite::DetachVolume { volume } => {
            let body = json!({ "spec": { "nodeID": "" } });
            merge(Kind::Hci(HciKind::Volume), volume, body)
        }
        TaskWrite::AskForKubernetes { cluster, version } => {
            let body = json!({ "spec": { "kubernetesVersion": &**version } });
            merge(Kind::Hci(HciKind::Cluster), cluster, body)
        }
    }
}

fn run(run: &Run) -> Value {
    match run {
        Run::Strategy(word) => json!({ "spec": { "runStrategy": &**word } }),
        Run::Switch(on) => json!({ "spec": { "running": on } }),
    }
}

fn migration(key: &Key, vmi: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": &*key.name, "namespace": &*key.namespace },
        "spec": { "vmiName": vmi },
    })
}
