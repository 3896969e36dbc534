//! Findings about single nodes: not Ready, cordoned by someone.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::clusterupgrade::Severity;

use super::Look;
use crate::gates;
use crate::objects::uid_of;
use crate::view::{Node, Uid};

impl Look<'_> {
    pub(super) fn nodes(&mut self) {
        let workers = self.view.worker_nodes().count();
        let allowed = self.settings.max_unavailable.of(workers);
        let broken = self.view.worker_nodes().filter(|node| !node.ready.ready).count();
        let itself = self.view.upgrades.get(self.upgrade);
        let own = itself.map(|upgrade| uid_of(&upgrade.metadata));
        let nodes: Vec<Arc<Node>> = self
            .view
            .nodes
            .values()
            .filter(|node| !node.deleting)
            .cloned()
            .collect();
        for node in nodes {
            self.not_ready(&node, broken, allowed);
            self.cordoned(&node, own.as_ref());
        }
    }

    fn not_ready(&mut self, node: &Node, broken: usize, allowed: usize) {
        if node.ready.ready {
            return;
        }
        let remedy = format!("kubectl describe node {}", node.name);
        let (severity, message) = if node.control_plane {
            let message = "is not Ready: a control plane goes only while all the others work";
            (Severity::Error, message.to_owned())
        } else if broken >= allowed {
            let message = format!(
                "is not Ready and counts as out of service ({broken} of {allowed} that may be): no other worker goes until it is back"
            );
            (Severity::Warning, message)
        } else {
            let message = format!("is not Ready and counts as out of service ({broken} of {allowed} that may be)");
            (Severity::Warning, message)
        };
        let object = gates::node_ref(node);
        self.say(severity, Reason::NotReady, object, &message, Some(&remedy));
    }

    fn cordoned(&mut self, node: &Node, own: Option<&Uid>) {
        let ours = node.cordoned_by.is_some() && node.cordoned_by.as_ref() == own;
        if !node.unschedulable || ours {
            return;
        }
        let message = if self.is_taken(node) {
            "cordoned by someone: it is upgraded but stays cordoned"
        } else {
            "cordoned by someone: it takes no pods and stays cordoned"
        };
        let remedy = format!("kubectl uncordon {}", node.name);
        let object = gates::node_ref(node);
        self.say(Severity::Warning, Reason::Cordoned, object, message, Some(&remedy));
    }
}
