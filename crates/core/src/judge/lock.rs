//! The lock of the cluster, by which one upgrade at a time works on it: taken before anything else is done, and whoever finds it taken says
//! by whom. It is given back with everything else when an upgrade is over, which is the judge's.

use std::sync::Arc;

use afloat_api::{ObjectRef, Reason, names};

use super::Turn;
use crate::action::Action;
use crate::gates::Closed;
use crate::hci;
use crate::view::Uid;

impl Turn<'_> {
    /// One upgrade of a cluster at a time: takes the lock where it is free, and says who has it where it is not.
    pub(super) fn lock(&mut self) -> Result<(), Box<Closed>> {
        match &self.view.lock {
            Some(lock) if lock.holder == self.uid => {}
            Some(lock) => return Err(Box::new(self.other_upgrade(&lock.holder))),
            None if self
                .before
                .iter()
                .any(|action| matches!(action, Action::TakeLock { .. })) => {}
            None => {
                // Checked only here: an upgrade that has the lock is the one that others wait for.
                if let Some(closed) = self.harvesters_upgrade() {
                    return Err(Box::new(closed));
                }
                self.before.push(Action::TakeLock {
                    namespace: Arc::clone(&self.view.home),
                    holder: self.uid.clone(),
                    upgrade: Arc::clone(&self.key.name),
                });
            }
        }
        Ok(())
    }

    fn other_upgrade(&self, holder: &Uid) -> Closed {
        let other = self
            .view
            .upgrades
            .values()
            .find(|other| other.metadata.uid.as_deref() == Some(holder.as_str()));
        let namespace = &self.view.home;
        let (message, name) = match other {
            Some(other) => {
                let name = other.metadata.name.clone().unwrap_or_default();
                (
                    format!("clusterupgrade/{name} is under way; it ends by itself, or: afloat abort {name}"),
                    name,
                )
            }
            None => (
                format!(
                    "the lock is held by an upgrade that is not there any more: kubectl -n {namespace} delete lease {}",
                    names::LOCK
                ),
                names::LOCK.to_owned(),
            ),
        };
        Closed {
            reason: Reason::WaitingForOtherUpgrade,
            message,
            blocked_by: Some(ObjectRef {
                kind: "ClusterUpgrade".to_owned(),
                namespace: Some(namespace.to_string()),
                name,
                ..ObjectRef::default()
            }),
            until: None,
        }
    }

    /// One judge a cluster: where an Upgrade of Harvester is under way, Rancher says whose turn it is.
    fn harvesters_upgrade(&self) -> Option<Closed> {
        let mut upgrades = self.view.hci.upgrades.iter();
        let (key, how) = upgrades.find_map(|(key, upgrade)| Some((key, hci::preflight::busy(upgrade)?)))?;
        Some(Closed {
            reason: Reason::WaitingForOtherUpgrade,
            message: format!("upgrade/{} of Harvester {how}: afloat status {}", key.name, key.name),
            blocked_by: Some(hci::preflight::object("Upgrade", key)),
            until: None,
        })
    }
}
