//! Longhorn: a volume for every virtual machine, attached where it runs, with a replica on every node. A replica that was away is rebuilt
//! when its node is back; a volume that nobody uses stays attached until somebody takes it off.

use std::sync::Arc;
use std::time::Duration;

use afloat_core::hci::view::{Engine, HciObject, Volume};
use afloat_core::view::{Key, NodeName};

use super::world::{Look, World};
use crate::store::Writer;
use crate::time::{MINUTE, Millis, SECOND};
use afloat_scenes::Moment;

pub const NAMESPACE: &str = "longhorn-system";
const PREFIX: &str = "pvc-";
const REBUILD: Millis = MINUTE;
const DETACH: Millis = 5 * SECOND;
/// How long an engine takes to say what has become of its replicas.
const ENGINE: Millis = 10 * SECOND;
/// Two kinds of work on one volume.
const REBUILDS: u8 = 0;
const DETACHES: u8 = 1;

/// The volume of a virtual machine.
pub fn volume_of(vm: &Key) -> Key {
    Key::new(NAMESPACE, &format!("{PREFIX}{}", vm.name))
}

/// The engine of a volume.
fn engine_of(volume: &Key) -> Key {
    Key::new(NAMESPACE, &format!("{}-e-0", volume.name))
}

fn launcher(vm: &str) -> Arc<str> {
    Arc::from(format!("virt-launcher-{vm}"))
}

pub fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// A volume that is attached where its machine runs.
pub fn attached(vm: &str, node: &NodeName) -> Volume {
    Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("healthy"),
        node: Some(node.clone()),
        wanted: Some(node.clone()),
        replicas: 3,
        claim: None,
        users: vec![launcher(vm)],
    }
}

impl World {
    /// A volume that is attached where its machine runs, with its engine.
    pub(super) fn lay_volume(&mut self, vm: &str, node: &NodeName) {
        let key = Key::new(NAMESPACE, &format!("{PREFIX}{vm}"));
        let volume = attached(vm, node);
        let engine = self.engine_for(&key, &volume);
        self.make(Writer::Setup, (NAMESPACE, &key.name), volume, HciObject::Volume);
        self.make(
            Writer::Setup,
            (NAMESPACE, &engine_of(&key).name),
            engine,
            HciObject::Engine,
        );
    }

    /// What an engine says once it has looked.
    fn engine_for(&self, key: &Key, volume: &Volume) -> Engine {
        let replicas = usize::try_from(volume.replicas).unwrap_or_default();
        let all = replicas.min(self.store.base.nodes.values().count());
        let lost = usize::from(&*volume.robustness == "degraded");
        let whole = all.saturating_sub(lost).max(1);
        Engine {
            volume: Arc::clone(&key.name),
            node: volume.node.clone(),
            running: volume.attached(),
            whole: if volume.attached() { whole } else { 0 },
        }
    }

    /// That a replica is lost it says at once; that one is whole again, later than its volume does.
    pub(super) fn engine(&mut self, key: &Key) {
        let hci = &self.store.hci;
        let (Some(volume), Some(engine)) = (hci.volumes.get(key), hci.engines.get(&engine_of(key)).cloned()) else {
            return;
        };
        let (next, work) = (self.engine_for(key, &volume.what), (Look::Engine(key.clone()), 0));
        if next == engine.what {
            return self.forget(&work);
        }
        let upper = self.script.trouble.volumes.engines_behind.map_or(ENGINE, millis);
        if next.whole < engine.whole || self.takes(&work, upper) {
            self.forget(&work);
            self.change(Writer::Longhorn, HciObject::Engine, &engine, |engine| *engine = next);
        }
    }

    pub(super) fn volume(&mut self, key: &Key) {
        let Some(volume) = self.store.hci.volumes.get(key).cloned() else {
            return;
        };
        let vm = key.name.trim_start_matches(PREFIX).to_owned();
        let mut instances = self.store.hci.vmis.values();
        let user = instances
            .find(|vmi| *vmi.target.key.name == *vm && &*vmi.phase == "Running")
            .and_then(|vmi| vmi.node.clone());
        let detaching = (Look::Volume(key.clone()), DETACHES);
        let stuck = self.script.trouble.volumes.stuck.get(&*key.name).copied();
        let mut next = Volume::clone(&volume.what);
        if let Some(node) = user {
            self.forget(&detaching);
            next.robustness = self.robustness(key, &volume.robustness);
            next.state = Arc::from("attached");
            next.node = Some(node.clone());
            next.wanted = Some(node);
            next.users = vec![launcher(&vm)];
        } else if volume.wanted.is_none() && stuck != Some(None) {
            if &*volume.state == "detached" {
                return;
            }
            let upper = stuck.flatten().map_or(DETACH, millis);
            next.users = Vec::new();
            if self.takes(&detaching, upper) {
                next.state = Arc::from("detached");
                next.robustness = Arc::from("unknown");
                next.node = None;
            }
        } else {
            next.robustness = self.robustness(key, &volume.robustness);
            next.state = Arc::from("attached");
            next.users = Vec::new();
        }
        self.change(Writer::Longhorn, HciObject::Volume, &volume, |volume| *volume = next);
    }

    fn robustness(&mut self, key: &Key, is: &str) -> Arc<str> {
        let rebuilding = (Look::Volume(key.clone()), REBUILDS);
        if self.store.base.nodes.values().any(|node| !node.ready.ready) {
            self.forget(&rebuilding);
            return Arc::from("degraded");
        }
        let lost = &self.script.trouble.volumes.lost;
        let fails = |(when, volume, _): &(Moment, &str, Duration)| *volume == &*key.name && self.has_come(*when);
        if let Some(index) = lost.iter().position(fails) {
            let (_, _, rebuild) = self.script.trouble.volumes.lost.remove(index);
            self.slow_rebuilds.insert(key.clone(), millis(rebuild));
            self.forget(&rebuilding);
            return Arc::from("degraded");
        }
        let usual = self.script.trouble.volumes.rebuild.map_or(REBUILD, millis);
        let upper = self.slow_rebuilds.get(key).copied().unwrap_or(usual);
        if is == "degraded" && !self.takes(&rebuilding, upper) {
            return Arc::from("degraded");
        }
        self.slow_rebuilds.remove(key);
        Arc::from("healthy")
    }
}
