//! Small parts of Harvester that answer what an upgrade asks for: the image is imported, the logs are collected, the repository, Rancher and
//! its charts are served.

use std::sync::Arc;

use afloat_core::hci::view::{HciKind, HciObject, Log};
use afloat_core::view::{Key, Workload};

use super::store::Shelf;
use super::world::{Look, World};
use crate::store::Writer;
use crate::time::{Millis, SECOND, second};

const TAKES: Millis = 30 * SECOND;

impl World {
    /// Does what is to be done about an object, once it has taken its time.
    pub(super) fn part(&mut self, place: Shelf, key: &Key) {
        if self.is_served(place, key) || !self.takes(&(Look::Part(place, key.clone()), 0), TAKES) {
            return;
        }
        let writer = Writer::Harvester;
        match place {
            Shelf::Workload => {
                if let Some(repo) = self.store.repo(key) {
                    let mut served = Workload::clone(repo);
                    served.ready = served.replicas;
                    self.store.base.put(writer, "serve", served);
                    self.settle();
                }
            }
            Shelf::Hci(HciKind::Image) => {
                let why = self.script.trouble.parts.no_images;
                if let Some(image) = self.store.hci.images.get(key).cloned() {
                    self.change(writer, HciObject::Image, &image, |image| {
                        image.imported = why.is_none();
                        image.gave_up = why.map(Arc::from);
                        image.message = Arc::from(why.unwrap_or_default());
                    });
                }
            }
            Shelf::Hci(HciKind::UpgradeLog) => {
                if let Some(log) = self.store.hci.logs.get(key).cloned() {
                    // First it starts what collects; only then it can be told to stop.
                    let (kind, status) = if log.started() {
                        (Log::STOPPED, "Unknown")
                    } else {
                        (Log::STARTED, "True")
                    };
                    let now = second(self.now);
                    self.change(writer, HciObject::UpgradeLog, &log, |log| {
                        log.conditions = log.with(kind, status, now);
                    });
                }
            }
            Shelf::Hci(HciKind::Server) => {
                if let Some(server) = self.store.hci.servers.get(key).cloned() {
                    self.change(writer, HciObject::Server, &server, |server| server.rolled_out = true);
                }
            }
            _ => {
                if let Some(upstream) = self.store.hci.upstream.get(key).cloned() {
                    self.change(writer, HciObject::Upstream, &upstream, |upstream| {
                        upstream.server.rolled_out = true;
                    });
                }
            }
        }
    }

    /// There is nothing to do about it, or never will be.
    fn is_served(&self, place: Shelf, key: &Key) -> bool {
        let hci = &self.store.hci;
        match place {
            Shelf::Workload => self.store.repo(key).is_none_or(|repo| repo.ready == repo.replicas),
            Shelf::Hci(HciKind::Image) => hci
                .images
                .get(key)
                .is_none_or(|image| image.imported || image.gave_up.is_some()),
            Shelf::Hci(HciKind::UpgradeLog) => {
                let done = hci
                    .logs
                    .get(key)
                    .is_none_or(|log| log.can_be_stopped() || log.stopped());
                done || self.script.trouble.parts.no_logs
            }
            Shelf::Hci(HciKind::Server) => hci.servers.get(key).is_none_or(|server| server.rolled_out),
            _ => hci.upstream.get(key).is_none_or(|upstream| upstream.server.rolled_out),
        }
    }
}
