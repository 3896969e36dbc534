//! What a line of a trace says about a write.

use std::fmt::Write as _;

use afloat_api::harvester::Upgrade;
use afloat_core::hci::view::HciObject;
use afloat_core::view::{Node, Workload};

use super::store::{Note, Shelf, Store};
use crate::store::Change;

pub fn line(store: &Store, note: &Note) -> String {
    let (revision, key, what) = match note.place {
        Shelf::Node => of(store.base.nodes.changes(), note, ToString::to_string, node),
        Shelf::Pod => of(store.base.pods.changes(), note, ToString::to_string, |pod| {
            format!("{:?} on={:?}", pod.phase, pod.node)
        }),
        Shelf::Budget => of(store.base.budgets.changes(), note, ToString::to_string, |budget| {
            format!("allowed={}", budget.disruptions_allowed)
        }),
        Shelf::Workload => of(store.base.workloads.changes(), note, |key| key.1.to_string(), workload),
        Shelf::Hci(kind) => {
            let change = &store.history(kind)[note.index];
            let what = change.after.as_ref().map_or_else(|| "gone".to_owned(), object);
            (change.revision, change.key.to_string(), what)
        }
    };
    format!(
        "{:<14} r{revision:<5} {} {}/{key} {what}",
        note.writer.word(),
        note.verb,
        note.place.word(),
    )
}

fn of<K, O>(
    changes: &[Change<K, O>],
    note: &Note,
    key: impl Fn(&K) -> String,
    what: impl Fn(&O) -> String,
) -> (u64, String, String) {
    let Some(change) = changes.get(note.index) else {
        return (0, String::new(), String::new());
    };
    let said = change.after.as_ref();
    let said = said.map_or_else(|| "gone".to_owned(), |object| what(object));
    (change.revision, key(&change.key), said)
}

fn node(node: &Node) -> String {
    let mut line = format!("ready={} {:?}", node.ready.ready, &*node.os_image);
    if let Some(version) = &node.kubelet_version {
        let _ = write!(line, " {version}");
    }
    if node.unschedulable {
        line.push_str(" cordoned");
    }
    for taint in &node.taints {
        let _ = write!(line, " taint={}", taint.key);
    }
    if let Some(pause) = &node.hci.pause {
        let _ = write!(line, " pause={pause}");
    }
    if let Some(image) = &node.hci.pending_os_image {
        let _ = write!(line, " pending={image:?}");
    }
    line
}

fn workload(workload: &Workload) -> String {
    format!("ready={}/{}", workload.ready, workload.replicas)
}

fn object(object: &HciObject) -> String {
    match object {
        HciObject::Upgrade(seen) => upgrade(&seen.what),
        HciObject::Version(seen) => seen.what.spec.iso_url.clone(),
        HciObject::Setting(seen) | HciObject::LonghornSetting(seen) => seen.what.to_string(),
        HciObject::UpgradeLog(seen) => format!("{:?}", seen.what),
        HciObject::Image(seen) => format!("{:?}", seen.what),
        HciObject::Addon(seen) => format!("{:?}", seen.what),
        HciObject::Backup(seen) | HciObject::Restore(seen) => format!("{:?}", seen.what),
        HciObject::Schedule(seen) => format!("{:?}", seen.what),
        HciObject::Cluster(seen) => format!("{:?}", seen.what),
        HciObject::CapiCluster(seen) => format!("{:?}", seen.what),
        HciObject::Machine(seen) => format!("{:?}", seen.what),
        HciObject::Plan(seen) => format!("{:?}", seen.what),
        HciObject::Chart(seen) => format!("{:?}", seen.what),
        HciObject::Bundle(seen) => format!("{:?}", seen.what),
        HciObject::Job(seen) => format!("complete={} failed={:?}", seen.complete, seen.failed),
        HciObject::Service(_) => String::new(),
        HciObject::RestoreList(seen) => format!("{:?}", seen.nodes),
        HciObject::Vm(seen) => format!(
            "{} {:?} before={:?} after={:?}",
            seen.status, seen.run, seen.run_before, seen.run_after
        ),
        HciObject::Vmi(seen) => format!("{} on={:?}", seen.phase, seen.node),
        HciObject::Migration(seen) => format!("{} of={} {:?}", seen.phase, seen.vmi, seen.message),
        HciObject::Volume(seen) => format!(
            "{} {} at={:?} wanted={:?} users={}",
            seen.state,
            seen.robustness,
            seen.node,
            seen.wanted,
            seen.users.len()
        ),
        HciObject::Engine(seen) => format!("{:?}", seen.what),
        HciObject::Attachment(seen) => format!("{:?}", seen.what),
        HciObject::Upstream(seen) => format!("{:?}", seen.what),
        HciObject::Server(seen) => format!("{} rolled-out={}", seen.image, seen.rolled_out),
        HciObject::HelmRelease(seen) => format!("{:?}", seen.what),
    }
}

fn upgrade(upgrade: &Upgrade) -> String {
    let mut line = String::new();
    if upgrade.metadata.deletion_timestamp.is_some() {
        line.push_str("deleting ");
    }
    for (key, value) in upgrade.metadata.labels.iter().flatten() {
        let _ = write!(line, "{}={value} ", key.trim_start_matches("harvesterhci.io/"));
    }
    let Some(status) = &upgrade.status else { return line };
    for condition in &status.conditions {
        let message = condition.message.lines().next().unwrap_or_default();
        let _ = write!(line, "{}={} ", condition.kind, condition.status);
        if !message.is_empty() {
            let _ = write!(line, "({message}) ");
        }
    }
    for (node, status) in &status.node_statuses {
        let _ = write!(line, "[{node} {} {} {}] ", status.state, status.reason, status.message);
    }
    line
}
