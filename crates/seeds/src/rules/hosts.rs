//! Rules about what happens on machines: quorum, skew, drained before touched, out of traffic before touched.

use std::collections::BTreeMap;

use afloat_core::view::{Component, NodeName};

use super::Rules;
use super::writes::daemon;
use crate::machine::{Facts, Machine};
use crate::store::Store;
use crate::time::{Millis, SECOND};

/// How many minor versions a kubelet may be older than an API server.
const SKEW: i64 = 3;

impl Rules {
    /// A machine did something; `before` is how it was.
    pub fn machine_moved(
        &mut self,
        store: &Store,
        machines: &BTreeMap<NodeName, Machine>,
        name: &NodeName,
        before: &Facts,
    ) {
        let Some(machine) = machines.get(name) else { return };
        let after = &machine.facts;
        if before.powered != after.powered {
            self.powerless.remove(name);
            return;
        }
        if after.working && !before.working {
            self.touched(store, machines, machine);
        }
        if before.parts != after.parts || before.kubelet_version != after.kubelet_version {
            self.skew_holds(machines, name, before);
        }
        if after.aside() && !before.aside() {
            self.others_have_caught_up(store, machines, machine);
        }
        if machine.control_plane && before.parts != after.parts {
            self.quorum_holds(store, machines, name, before);
        }
        if machine.control_plane && (before.parts != after.parts || before.forwards_to != after.forwards_to) {
            self.traffic_is_served(machines, name, before);
        }
    }

    /// Rules 2 and 5: work that may disturb the node begins.
    fn touched(&mut self, store: &Store, machines: &BTreeMap<NodeName, Machine>, machine: &Machine) {
        let name = &machine.name;
        self.judge(5);
        if machine.control_plane {
            let others = machines
                .values()
                .filter(|other| other.control_plane && other.name != *name && other.facts.working);
            if others.count() > 0 {
                self.breaks(2, format!("{name} is touched while another control plane is"));
            }
        }
        let Some(node) = store.nodes.get(name).filter(|node| node.uid == machine.node_uid) else {
            return;
        };
        let meddled = self.nodes.get(name).is_some_and(|memory| memory.person_meddled);
        if !node.unschedulable && !meddled {
            self.breaks(5, format!("{name} is touched although it is not cordoned"));
        }
        let elsewhere = store
            .nodes
            .values()
            .any(|other| other.name != *name && !other.unschedulable);
        if meddled || !elsewhere {
            return;
        }
        let left = store
            .pods_on(name)
            .find(|pod| pod.static_part.is_none() && pod.task.is_none() && !daemon(pod) && !pod.phase.finished());
        if let Some(pod) = left {
            self.breaks(5, format!("{name} is touched while {} is still there", pod.key));
        }
    }

    /// Rule 2: none stands aside, and is ended then, while another member of etcd has yet to read what was written. One that fell behind
    /// between the look and the act could not be seen.
    fn others_have_caught_up(&mut self, store: &Store, machines: &BTreeMap<NodeName, Machine>, machine: &Machine) {
        self.judge(2);
        let behind = |other: &&Machine| {
            let known = other.lag.is_some_and(|lag| lag.since + LOOKED_AT <= store.now);
            other.control_plane && other.name != machine.name && known && other.behind(store.now) > CAUGHT_UP
        };
        if let Some(other) = machines.values().find(behind) {
            let entries = other.behind(store.now);
            self.breaks(
                2,
                format!(
                    "{} stands aside while the etcd of {} is {entries} entries behind",
                    machine.name, other.name
                ),
            );
        }
    }

    /// Rule 3.
    fn skew_holds(&mut self, machines: &BTreeMap<NodeName, Machine>, name: &NodeName, before: &Facts) {
        self.judge(3);
        let Some(machine) = machines.get(name) else { return };
        let mine = api_version(&machine.facts);
        if let (Some(old), Some(new)) = (api_version(before), mine)
            && old.minors_to(new).is_none_or(|minors| minors.abs() > 1)
        {
            self.breaks(3, format!("the API server of {name} goes from {old} to {new}"));
            return;
        }
        let servers: Vec<_> = machines
            .values()
            .filter_map(|other| running_api_version(&other.facts))
            .collect();
        for other in machines.values() {
            let kubelet = &other.facts.kubelet_version;
            let own = running_api_version(&other.facts);
            for server in &servers {
                let distance = kubelet.minors_to(server).unwrap_or(i64::MAX);
                // A control plane's kubelet talks to the API server beside it, and to nobody while that is away.
                let of_its_kubeconfig = !other.control_plane || own == Some(*server);
                if distance < 0 && of_its_kubeconfig {
                    self.breaks(
                        3,
                        format!("the kubelet of {} ({kubelet}) is newer than {server}", other.name),
                    );
                }
                if distance > SKEW {
                    self.breaks(
                        3,
                        format!("the kubelet of {} ({kubelet}) is too old for {server}", other.name),
                    );
                }
            }
        }
    }

    /// Rule 2: etcd never loses its majority by our hand, but where one of two has to go and a person accepted that. A single member has no
    /// other to go on without it.
    fn quorum_holds(&mut self, store: &Store, machines: &BTreeMap<NodeName, Machine>, name: &NodeName, before: &Facts) {
        let Some(machine) = machines.get(name) else { return };
        if !before.serves(Component::Etcd) || machine.facts.serves(Component::Etcd) {
            return;
        }
        self.judge(2);
        let members: Vec<_> = machines.values().filter(|other| other.control_plane).collect();
        let up = members
            .iter()
            .filter(|other| other.facts.serves(Component::Etcd))
            .count();
        let accepted = || {
            let mut words = store.upgrades.values().flat_map(|upgrade| &upgrade.spec.accept);
            words.any(|word| word.ends_with(":ApiDowntime"))
        };
        let costs = match members.len() {
            1 => false,
            2 => !accepted(),
            _ => true,
        };
        if costs && up <= members.len() / 2 {
            self.breaks(
                2,
                format!("etcd of {name} is ended while {up} of {} members are up", members.len()),
            );
        }
    }

    /// Rule 11, as a client sees it that asks the cluster's address at this moment: whoever takes its request answers it or hands it on to one
    /// that does. The load balancer sends some to a control plane for as long as its health checks were answered, by itself or by those it
    /// forwards to.
    pub(super) fn traffic_is_served(
        &mut self,
        machines: &BTreeMap<NodeName, Machine>,
        name: &NodeName,
        before: &Facts,
    ) {
        let Some(machine) = machines.get(name) else { return };
        let after = &machine.facts;
        if !takes(machines, before) || takes(machines, after) {
            return;
        }
        self.judge(11);
        let another = machines
            .values()
            .any(|other| other.name != *name && answers(&other.facts));
        if another {
            let what = if after.aside() {
                "is sent aside to servers that do not answer, while another one does"
            } else if before.aside() {
                "hands no requests on any more, and does not answer them"
            } else {
                "is ended while requests are sent to it"
            };
            self.breaks(11, format!("the API server of {name} {what}"));
        }
    }
}

/// Whether it answers what is sent to it, and hands nothing on.
fn answers(facts: &Facts) -> bool {
    facts.serves_api() && !facts.aside()
}

/// Whether a request that is sent to it finds an API server: itself, or where it stands aside one of those it forwards to. One that stands
/// aside as well would only hand it on.
fn takes(machines: &BTreeMap<NodeName, Machine>, facts: &Facts) -> bool {
    let Some(peers) = &facts.forwards_to else {
        return facts.serves_api();
    };
    let is_one = |other: &Machine| peers.iter().any(|peer| peer == other.address());
    machines.values().any(|other| is_one(other) && answers(&other.facts))
}

/// Entries a member of etcd may be behind.
const CAUGHT_UP: u64 = 100;
/// Between the look at the members and what follows from it.
const LOOKED_AT: Millis = 10 * SECOND;

/// The version of an API server that runs.
fn running_api_version(facts: &Facts) -> Option<&afloat_core::KubernetesVersion> {
    let part = facts.part(Component::ApiServer).filter(|part| part.running)?;
    part.version.as_ref()
}

fn api_version(facts: &Facts) -> Option<&afloat_core::KubernetesVersion> {
    facts.part(Component::ApiServer).and_then(|part| part.version.as_ref())
}
