//! What the tasks of Jobs write, as requests: taints, virtual machines, migrations, volumes.

use afloat_api::annotations;
use afloat_core::hci::action::TaskWrite;
use afloat_core::hci::view::{HciKind, Run};
use afloat_core::view::{Key, NodeName};
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
        TaskWrite::Migrate { key, vmi, to } => {
            let body = migration(key, vmi, to.as_ref());
            create(Kind::Hci(HciKind::Migration), key.clone(), body)
        }
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
