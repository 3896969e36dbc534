//! The trace: one line for every write, move of a machine, fault and act of a person. Nothing is said unless it is asked for.

use std::fmt::Write as _;

use afloat_core::view::NodeName;

use super::World;
use crate::machine::Facts;
use crate::store::{Change, KindName, Written};
use crate::time::clock;
use crate::trace;

impl World {
    pub(super) fn note(&mut self, written: &Written) {
        let line = match written.kind {
            KindName::Node => line_of(self.store.nodes.changes(), written, ToString::to_string, trace::node),
            KindName::Pod => line_of(self.store.pods.changes(), written, ToString::to_string, trace::pod),
            KindName::Budget => line_of(
                self.store.budgets.changes(),
                written,
                ToString::to_string,
                trace::budget,
            ),
            KindName::Workload => line_of(
                self.store.workloads.changes(),
                written,
                |(kind, key)| format!("{}/{key}", kind.short()),
                trace::workload,
            ),
            KindName::Upgrade => line_of(
                self.store.upgrades.changes(),
                written,
                ToString::to_string,
                trace::upgrade,
            ),
            KindName::ControlPlane => line_of(
                self.store.control_planes.changes(),
                written,
                ToString::to_string,
                |group| trace::group(group.status.as_ref()),
            ),
            KindName::Workers => line_of(self.store.workers.changes(), written, ToString::to_string, |group| {
                trace::group(group.status.as_ref())
            }),
            KindName::NodeUpgrade => line_of(
                self.store.node_upgrades.changes(),
                written,
                ToString::to_string,
                trace::node_upgrade,
            ),
            KindName::Lock => line_of(self.store.locks.changes(), written, ToString::to_string, |lock| {
                format!("holder={}", lock.holder)
            }),
        };
        self.say(&line);
    }

    pub(super) fn note_machine(&mut self, name: &NodeName, before: &Facts, after: &Facts) {
        let mut line = format!("machine   {name}");
        if before.powered != after.powered {
            let _ = write!(line, " powered={}", after.powered);
        }
        if before.kubelet != after.kubelet || before.kubelet_version != after.kubelet_version {
            let _ = write!(line, " kubelet={} {}", after.kubelet, after.kubelet_version);
        }
        if before.forwards_to != after.forwards_to {
            let to = after.forwards_to.as_deref().unwrap_or_default();
            let _ = write!(line, " aside={}", after.aside());
            if !to.is_empty() {
                let _ = write!(line, " to={}", to.join(","));
            }
        }
        if before.working != after.working {
            let _ = write!(line, " working={}", after.working);
        }
        for part in &after.parts {
            if before.part(part.component) != Some(part) {
                let _ = write!(line, " {:?}={} {}", part.component, part.ready, part.tag);
            }
        }
        self.say(&line);
    }

    /// Adds a line to the trace.
    pub fn say(&mut self, line: &str) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>12} {line}", clock(now));
        }
    }
}

fn line_of<K, O>(
    changes: &[Change<K, O>],
    written: &Written,
    key: impl Fn(&K) -> String,
    what: impl Fn(&O) -> String,
) -> String {
    let Some(change) = changes.get(written.index) else {
        return String::new();
    };
    let said = change
        .after
        .as_ref()
        .map_or_else(|| "gone".to_owned(), |object| what(object));
    format!(
        "{:<14} r{:<5} {} {}/{} {said}",
        written.writer.word(),
        change.revision,
        written.verb,
        written.kind.word(),
        key(&change.key),
    )
}
