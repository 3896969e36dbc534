//! The lock of the cluster, by which one upgrade at a time works on it: taken before anything else is done, and whoever finds it taken says
//! by whom. It is given back with everything else when an upgrade is over, which is the judge's. A group that stands alone takes it too,
//! while it is at work: whoever decides by a ledger of its own must not meet another ledger.

use std::sync::Arc;

use afloat_api::{ObjectRef, Reason, names};

use super::roster::Group;
use super::{Turn, over};
use crate::action::Action;
use crate::gates::Closed;
use crate::hci;
use crate::view::{Lock, View};

impl Turn<'_> {
    /// One upgrade of a cluster at a time: takes the lock where it is free, and says who has it where it is not.
    pub(super) fn lock(&mut self) -> Result<(), Box<Closed>> {
        match &self.view.lock {
            Some(lock) if lock.holder == self.uid => {}
            Some(lock) => return Err(Box::new(taken(self.view, lock))),
            None if self
                .before
                .iter()
                .any(|action| matches!(action, Action::TakeLock { .. })) => {}
            None => {
                // Checked only here: an upgrade that has the lock is the one that others wait for.
                if let Some(closed) = harvesters_upgrade(self.view) {
                    return Err(Box::new(closed));
                }
                self.take_lock();
            }
        }
        Ok(())
    }

    fn take_lock(&mut self) {
        self.before.push(Action::TakeLock {
            namespace: Arc::clone(&self.view.home),
            holder: self.uid.clone(),
            kind: "ClusterUpgrade",
            name: Arc::clone(&self.key.name),
        });
    }

    /// An upgrade that is over gives the lock back, which its watch may not have told yet: it is asked for once more, and refused where
    /// somebody else has it.
    pub(super) fn confirm_lock(&mut self) {
        if self.view.lock.is_some() && over(self.phase()) {
            self.take_lock();
        }
    }
}

/// Why whoever stands alone, a group or the upgrade of a control plane, does not begin: another one has the cluster now.
pub(crate) fn taken_by_another(view: &View, uid: &str) -> Option<Closed> {
    match &view.lock {
        Some(lock) if lock.holder.as_str() == uid => None,
        Some(lock) => Some(taken(view, lock)),
        None => harvesters_upgrade(view),
    }
}

/// Who has the lock, and how that ends.
fn taken(view: &View, lock: &Lock) -> Closed {
    let holder = lock.holder.as_str();
    let upgrade = view.upgrades.values().map(|upgrade| &upgrade.metadata);
    let upgrade = upgrade
        .filter(|meta| meta.uid.as_deref() == Some(holder))
        .map(|meta| ("ClusterUpgrade", meta));
    let planes = view.control_planes.values().map(|group| Group::ControlPlane(group));
    let groups = planes.chain(view.workers.values().map(|group| Group::Workers(group)));
    let group = groups
        .filter(|group| group.uid() == holder)
        .map(|group| (group.word(), group.meta()));
    let planes = view
        .control_plane_nodes()
        .flat_map(|node| view.node_upgrades_of(node.name.as_str()));
    let node = planes
        .map(|(_, upgrade)| ("NodeKubeadmUpgrade", &upgrade.metadata))
        .filter(|(_, meta)| meta.uid.as_deref() == Some(holder));
    let namespace = &view.home;
    let (message, kind, name) = match upgrade.chain(group).chain(node).next() {
        Some((kind @ "ClusterUpgrade", meta)) => {
            let name = meta.name.clone().unwrap_or_default();
            let message = format!("clusterupgrade/{name} is under way; it ends by itself, or: afloat abort {name}");
            (message, kind, name)
        }
        Some((kind, meta)) => {
            let name = meta.name.clone().unwrap_or_default();
            let resource = kind.to_lowercase();
            let message = format!(
                "{resource}/{name} stands alone and is under way; it ends by itself, or: kubectl -n {namespace} delete {resource} {name}"
            );
            (message, kind, name)
        }
        None => (
            format!(
                "the lock is held by an upgrade that is not there any more: kubectl -n {namespace} delete lease {}",
                names::LOCK
            ),
            "ClusterUpgrade",
            names::LOCK.to_owned(),
        ),
    };
    Closed {
        reason: Reason::WaitingForOtherUpgrade,
        message,
        blocked_by: Some(ObjectRef {
            kind: kind.to_owned(),
            namespace: Some(namespace.to_string()),
            name,
            ..ObjectRef::default()
        }),
        until: None,
    }
}

/// One judge a cluster: where an Upgrade of Harvester is under way, Rancher says whose turn it is.
fn harvesters_upgrade(view: &View) -> Option<Closed> {
    let mut upgrades = view.hci.upgrades.iter();
    let (key, how) = upgrades.find_map(|(key, upgrade)| Some((key, hci::preflight::busy(upgrade)?)))?;
    Some(Closed {
        reason: Reason::WaitingForOtherUpgrade,
        message: format!("upgrade/{} of Harvester {how}: afloat status {}", key.name, key.name),
        blocked_by: Some(hci::preflight::object("Upgrade", key)),
        until: None,
    })
}
