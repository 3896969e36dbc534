//! What a write sets in motion: the rules look at it, whoever watches the object looks at it a moment later, and what a deleted owner had is
//! collected.

use std::sync::Arc;

use afloat_core::hci::view::{HciKind, HciObject};
use afloat_core::view::{Key, Node, NodeName, Uid};

use super::store::{Note, Shelf};
use super::world::{Event, Look, World};
use crate::store::Writer;
use crate::time::SECOND;

impl World {
    /// Rules first, then actors, whose own writes come later.
    pub(super) fn saw(&mut self, note: &Note) {
        // Longhorn rebuilds replicas long after an upgrade, and kubelets report for ever.
        if !matches!(note.writer, Writer::Kubelet | Writer::Longhorn | Writer::Setup) {
            self.writes += 1;
        }
        if self.trace.is_some() {
            let line = super::trace::line(&self.store, note);
            self.say(&line);
        }
        self.listen(note);
        self.rules.saw(&self.store, note);
        if note.writer == Writer::Setup {
            return;
        }
        self.react(note);
        self.wake(note.place);
    }

    /// Keeps what Upgrades say.
    fn listen(&mut self, note: &Note) {
        let Some(heard) = &mut self.heard else { return };
        let Shelf::Hci(HciKind::Upgrade) = note.place else {
            return;
        };
        if let Some(HciObject::Upgrade(upgrade)) = &self.store.history(HciKind::Upgrade)[note.index].after {
            heard.insert(super::ends::readable(&upgrade.what));
        }
    }

    fn react(&mut self, note: &Note) {
        match note.place {
            Shelf::Node if note.writer != Writer::Kubelet => self.node_changed(note.index),
            Shelf::Workload => {
                let key = self.store.base.workloads.changes()[note.index].key.1.clone();
                self.look_soon(Look::Part(note.place, key));
            }
            Shelf::Hci(kind) => self.hci_changed(kind, note.index),
            _ => {}
        }
    }

    fn node_changed(&mut self, index: usize) {
        let change = &self.store.base.nodes.changes()[index];
        let name = change.key.clone();
        let ready = |node: Option<&Arc<Node>>| node.is_some_and(|node| node.ready.ready);
        let turned = ready(change.before.as_ref()) != ready(change.after.as_ref());
        self.look_soon(Look::Rancher);
        if !turned {
            return;
        }
        let there: Vec<Key> = self
            .store
            .hci
            .vmis_on(&name)
            .map(|vmi| vmi.target.key.clone())
            .collect();
        for key in there {
            self.look_soon(Look::Vmi(key));
        }
        let volumes: Vec<Key> = self.store.hci.volumes.keys().cloned().collect();
        for key in volumes {
            self.look_soon(Look::Volume(key));
        }
    }

    fn hci_changed(&mut self, kind: HciKind, index: usize) {
        let change = &self.store.history(kind)[index];
        let (key, gone) = (change.key.clone(), change.after.is_none());
        let uid = change
            .before
            .as_ref()
            .or(change.after.as_ref())
            .map(|object| object.target().uid.clone());
        match kind {
            HciKind::Plan | HciKind::Cluster => self.look_soon(Look::Rancher),
            HciKind::Upgrade => {
                self.look_soon(Look::Rancher);
                self.look_soon(Look::People);
                for cut in self.power_cuts.clone() {
                    self.look_soon(Look::Machine(NodeName::from(cut.node)));
                }
                for (_, volume, _) in self.script.trouble.volumes.lost.clone() {
                    self.look_soon(Look::Volume(Key::new(super::longhorn::NAMESPACE, volume)));
                }
                if let Some(uid) = uid.filter(|_| gone) {
                    let after = self.some(100, 3 * SECOND);
                    self.later(after, Event::Collect(uid));
                }
            }
            HciKind::Vm => self.look_soon(Look::Vm(key)),
            HciKind::Vmi => {
                let volume = super::longhorn::volume_of(&key);
                self.look_soon(Look::Volume(volume));
                self.look_soon(Look::Vmi(key.clone()));
                self.look_soon(Look::Vm(key));
            }
            HciKind::Migration => {
                self.look_soon(Look::Budget(key.clone()));
                self.look_soon(Look::Migration(key));
            }
            HciKind::Volume => {
                self.look_soon(Look::Engine(key.clone()));
                self.look_soon(Look::Volume(key));
            }
            HciKind::Chart => self.look_soon(Look::Chart(key)),
            HciKind::Bundle => {
                let chart = Key::new(&key.namespace, key.name.trim_start_matches(super::fleet::PREFIX));
                self.look_soon(Look::Chart(chart));
            }
            HciKind::Image | HciKind::UpgradeLog | HciKind::Server | HciKind::Upstream => {
                self.look_soon(Look::Part(Shelf::Hci(kind), key));
            }
            HciKind::Job => self.job_changed(index),
            _ => {}
        }
    }

    /// Something was made that an upgrade owns: where that is gone already, the collector comes by for it too.
    pub(super) fn is_owned(&mut self, upgrade: &Uid) {
        let there = self
            .store
            .hci
            .upgrades
            .values()
            .any(|there| there.target.uid == *upgrade);
        if !there {
            let after = self.some(100, 3 * SECOND);
            self.later(after, Event::Collect(upgrade.clone()));
        }
    }

    /// The garbage collector: what an upgrade owned goes after it.
    pub(super) fn collect(&mut self, upgrade: &Uid) {
        for (place, key) in self.store.owned_by(upgrade) {
            match place {
                Shelf::Workload => self.remove_repo(Writer::Collector, &key),
                Shelf::Hci(kind) => self.remove(Writer::Collector, "collect", kind, &key),
                _ => {}
            }
        }
    }
}
