//! Clients of the cluster: load balancers look at its API servers, and what they lose is judged when one of them changes.

use super::World;
use crate::traffic::Clients;

impl World {
    /// API servers may have changed.
    pub(crate) fn clients_look(&mut self) {
        let before = self.traffic.clients;
        let majority = self.etcd_has_majority();
        let ours = self.traffic.look(self.now, self.machines.values(), majority);
        self.judge_clients(before, ours);
    }

    /// Nothing changes any more.
    pub(crate) fn clients_end(&mut self) {
        let before = self.traffic.clients;
        let ours = self.traffic.end(self.now);
        self.judge_clients(before, ours);
    }

    fn judge_clients(&mut self, before: Clients, ours: Option<String>) {
        let after = self.traffic.clients;
        if after == before {
            return;
        }
        self.rules.judged[11] += 1;
        if after.lost > before.lost && self.trace.is_some() {
            let (lost, sent) = (after.lost - before.lost, after.sent - before.sent);
            self.say(&format!("clients   lost {lost} of the last {sent} requests"));
        }
        if let Some(what) = ours {
            self.rules.breaks(11, what);
        }
    }
}
