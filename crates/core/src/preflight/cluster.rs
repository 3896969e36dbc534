//! Findings about the cluster as a whole: the way to the target, the control plane, other upgrades, the spec itself.

use std::sync::Arc;

use afloat_api::clusterupgrade::{Phase, Severity};
use afloat_api::kubeadm::configuration::has_external_etcd;
use afloat_api::{ClusterUpgrade, ObjectRef, Reason};

use super::images::kubeadm_config;
use super::{Look, accept_word};
use crate::gates;
use crate::objects::uid_of;
use crate::plan::{PathError, skew_violations};
use crate::settings::{PausePolicy, Settings};
use crate::view::{Key, View};
use crate::window;

/// Whether the person takes the moments without an API server that two control planes cost: what the gate asks.
pub fn downtime_accepted(view: &View, upgrade: &Key, settings: &Settings) -> bool {
    settings.accept.contains(&downtime_word(view, upgrade))
}

/// The word by which a person accepts it.
pub fn downtime_word(view: &View, upgrade: &Key) -> String {
    accept_word(&upgrade_ref(view, upgrade), Reason::ApiDowntime)
}

pub(super) fn upgrade_ref(view: &View, upgrade: &Key) -> ObjectRef {
    let uid = view.upgrades.get(upgrade).and_then(|found| found.metadata.uid.clone());
    ObjectRef {
        api_version: Some(format!("{}/{}", afloat_api::GROUP, afloat_api::VERSION)),
        kind: "ClusterUpgrade".to_owned(),
        namespace: Some(upgrade.namespace.to_string()),
        name: upgrade.name.to_string(),
        uid,
    }
}

impl Look<'_> {
    pub(super) fn no_path(&mut self, error: &PathError) {
        let node = error.node().and_then(|name| self.view.nodes.get(name));
        let object = node.map_or_else(|| self.itself(), |node| gates::node_ref(node));
        self.say(
            Severity::Error,
            error.reason(),
            object,
            &error.to_string(),
            Some(&error.remedy(&self.view.home)),
        );
    }

    pub(super) fn cluster(&mut self) {
        self.kubeadm();
        self.images();
        self.other_upgrade();
        self.spec();
        self.downtime();
        self.unhealthy();
        self.skew();
    }

    fn kubeadm(&mut self) {
        let (message, remedy) = match &self.view.kubeadm_config {
            None => (
                "is not there: nodes are upgraded by kubeadm, and this cluster does not say how kubeadm made it",
                "kubectl -n kube-system get configmap kubeadm-config",
            ),
            Some(config) if has_external_etcd(config) => (
                "says that etcd is external: it would have to be upgraded on its own hosts, which is not done in place",
                "upgrade with kubeadm by hand, or move etcd onto the control planes",
            ),
            Some(_) => return,
        };
        self.say(
            Severity::Error,
            Reason::NotInPlace,
            kubeadm_config(),
            message,
            Some(remedy),
        );
    }

    fn other_upgrade(&mut self) {
        let Some(own) = self.view.upgrades.get(self.upgrade) else {
            return;
        };
        let others = self.view.upgrades.iter().filter(|(key, other)| {
            *key != self.upgrade && same_cluster(self.upgrade, own, key, other) && self.goes_first(own, other)
        });
        let others: Vec<Key> = others.map(|(key, _)| key.clone()).collect();
        for key in others {
            let message = "is another upgrade of this cluster and not done yet: two would undo each other's work";
            let remedy = format!("wait for it, or end it: afloat abort {}", key.name);
            let object = upgrade_ref(self.view, &key);
            self.say(Severity::Error, Reason::OtherUpgrade, object, message, Some(&remedy));
        }
    }

    /// Of two that have both not begun the older one goes first, lest each waits for the other.
    fn goes_first(&self, own: &ClusterUpgrade, other: &ClusterUpgrade) -> bool {
        let holds = |upgrade: &ClusterUpgrade| {
            let lock = self.view.lock.as_ref();
            lock.is_some_and(|lock| lock.holder == uid_of(&upgrade.metadata))
        };
        match phase(other) {
            Phase::Succeeded | Phase::Failed | Phase::Aborted => false,
            Phase::Pending | Phase::Preflight => !holds(own) && (holds(other) || older(other, own)),
            _ => true,
        }
    }

    fn spec(&mut self) {
        if let Some(window) = &self.settings.window
            && let Err(error) = window::state(window, self.now)
        {
            let object = self.itself();
            let message = format!("spec.window: {error}");
            self.say(Severity::Error, Reason::InvalidSpec, object, &message, None);
        }
        let PausePolicy::Named(names) = &self.settings.pause else {
            return;
        };
        let unknown = names.iter().filter(|name| !self.view.nodes.contains_key(name.as_str()));
        let unknown: Vec<&str> = unknown.map(String::as_str).collect();
        if !unknown.is_empty() {
            let message = format!(
                "spec.nodeUpgradeOption.strategy.pauseNodes names what is no node: {}; it would never be held",
                unknown.join(", ")
            );
            let object = self.itself();
            let remedy = Some("kubectl get nodes");
            self.say(Severity::Error, Reason::InvalidSpec, object, &message, remedy);
        }
    }

    fn downtime(&mut self) {
        let taken = self.view.control_plane_nodes().any(|node| self.is_taken(node));
        let object = self.itself();
        match (taken, self.view.control_plane_nodes().count()) {
            (true, 1) => {
                let message = "there is one control plane: the API is away while it restarts; what runs goes on";
                self.say(Severity::Info, Reason::ApiDowntime, object, message, None);
            }
            (true, 2) if gates::stacked_etcd(self.view) => {
                let message = "there are two control planes: etcd loses its quorum while either restarts, and the API is away; what runs goes on";
                let remedy = format!("accept it: --accept {}", accept_word(&object, Reason::ApiDowntime));
                self.say(Severity::Warning, Reason::ApiDowntime, object, message, Some(&remedy));
            }
            _ => {}
        }
    }

    /// A control plane that was not probed yet says nothing; the gate waits for it.
    fn unhealthy(&mut self) {
        let probed = self.view.control_plane_nodes().filter(|node| {
            // Those that are not Ready are named as such.
            node.ready.ready && self.view.health.contains_key(&node.name)
        });
        let closed: Vec<_> = probed
            .filter_map(|node| Some((gates::node_ref(node), gates::healthy(self.view, node).err()?)))
            .collect();
        for (node, closed) in closed {
            let message = format!(
                "{}; a control plane goes only while all the others work",
                closed.message
            );
            let remedy = match &closed.blocked_by {
                Some(pod) if pod.kind == "Pod" => format!(
                    "kubectl -n {} describe pod {}",
                    pod.namespace.as_deref().unwrap_or_default(),
                    pod.name
                ),
                _ => format!("kubectl describe node {}", node.name),
            };
            let reason = Reason::ControlPlaneUnhealthy;
            self.say(Severity::Error, reason, node, &message, Some(&remedy));
        }
    }

    fn skew(&mut self) {
        for violation in skew_violations(self.view) {
            let Some(node) = self.view.nodes.get(&violation.node) else {
                continue;
            };
            let message = format!("{violation}: that is not supported, and lasts until the upgrade has passed it");
            self.say(
                Severity::Warning,
                Reason::VersionSkew,
                gates::node_ref(node),
                &message,
                None,
            );
        }
    }
}

fn same_cluster(own_key: &Key, own: &ClusterUpgrade, key: &Key, other: &Arc<ClusterUpgrade>) -> bool {
    own_key.namespace == key.namespace && own.spec.cluster_ref == other.spec.cluster_ref
}

fn phase(upgrade: &ClusterUpgrade) -> Phase {
    let status = upgrade.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

fn older(one: &ClusterUpgrade, two: &ClusterUpgrade) -> bool {
    let age = |upgrade: &ClusterUpgrade| {
        let meta = &upgrade.metadata;
        (meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.clone())
    };
    age(one) < age(two)
}
