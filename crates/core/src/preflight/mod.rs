//! What could stop an upgrade, looked for before anything is changed: every finding at once, each with its object, what
//! follows, and what helps. Waiting for things that pass by themselves is the gates' part, later; certificates and disks are
//! looked at on the nodes, while they are staged.

mod cluster;
mod images;
mod nodes;
mod pods;
#[cfg(test)]
mod tests;

use afloat_api::clusterupgrade::{Finding, Severity};
use afloat_api::{ObjectRef, Reason};
use jiff::Timestamp;

use crate::plan::{self, Stage};
use crate::settings::Settings;
use crate::view::{Key, Node, View};

pub use cluster::{downtime_accepted, downtime_word};

/// What the CRD lets a message and a remedy have.
const LONGEST: usize = 512;

/// Everything there is to say before an upgrade, errors first.
pub fn findings(view: &View, upgrade: &Key, settings: &Settings, now: Timestamp) -> Vec<Finding> {
    let (stages, no_path) = match plan::path(view, settings) {
        Ok(stages) => (Some(stages), None),
        Err(error) => (None, Some(error)),
    };
    let mut look = Look {
        view,
        upgrade,
        settings,
        now,
        stages,
        found: Vec::new(),
    };
    if let Some(error) = no_path {
        look.no_path(&error);
    }
    look.cluster();
    look.nodes();
    look.pods();
    let mut found = look.found;
    found.sort_by(|left, right| {
        let order = |finding: &Finding| (finding.severity, finding.reason.clone(), finding.object.clone());
        order(left).cmp(&order(right))
    });
    found
}

/// Whether an upgrade may start: no error, and every warning accepted.
pub fn passes(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| match finding.severity {
        Severity::Error => false,
        Severity::Warning => finding.accepted,
        Severity::Info => true,
    })
}

/// The word by which a person accepts a warning: `node/worker-5:Cordoned`, `deploy/shop/checkout:NoCapacity`.
pub fn accept_key(finding: &Finding) -> String {
    word(&finding.object, &finding.reason)
}

pub(crate) fn accept_word(object: &ObjectRef, reason: Reason) -> String {
    word(object, reason.into())
}

fn word(object: &ObjectRef, reason: &str) -> String {
    format!("{}:{reason}", short(object))
}

/// An object as `kubectl` takes it, with its namespace: `pdb/shop/checkout`.
fn short(object: &ObjectRef) -> String {
    let kind = short_kind(&object.kind);
    match &object.namespace {
        Some(namespace) => format!("{kind}/{namespace}/{}", object.name),
        None => format!("{kind}/{}", object.name),
    }
}

fn short_kind(kind: &str) -> String {
    match kind {
        "Deployment" => "deploy".to_owned(),
        "StatefulSet" => "sts".to_owned(),
        "ReplicaSet" => "rs".to_owned(),
        "PodDisruptionBudget" => "pdb".to_owned(),
        other => other.to_lowercase(),
    }
}

/// One look at everything.
struct Look<'a> {
    view: &'a View,
    upgrade: &'a Key,
    settings: &'a Settings,
    now: Timestamp,
    /// The way, where there is one.
    stages: Option<Vec<Stage>>,
    found: Vec<Finding>,
}

impl Look<'_> {
    fn say(&mut self, severity: Severity, reason: Reason, object: ObjectRef, message: &str, remedy: Option<&str>) {
        let accepted = severity == Severity::Warning && self.settings.accept.contains(&accept_word(&object, reason));
        self.found.push(Finding {
            severity,
            reason: reason.to_string(),
            object,
            message: cut(message),
            remedy: remedy.map(cut),
            accepted,
        });
    }

    /// Whether a node will be disrupted. Without a way all of them count, so that nothing is left to be found later.
    fn is_taken(&self, node: &Node) -> bool {
        let bundle = self.settings.bundle_image.is_some() && self.is_at_target();
        !node.deleting
            && self.stages.as_ref().is_none_or(|stages| {
                let mut stages = stages.iter();
                stages.any(|stage| plan::needs(self.view, node, stage, bundle && stage.version == self.settings.to))
            })
    }

    /// Whether every API server is at the target's version: what is brought then is a bundle of that version (P46).
    fn is_at_target(&self) -> bool {
        let mut nodes = self.view.control_plane_nodes();
        nodes.all(|node| plan::api_server_version(self.view, node) == Some(&self.settings.to))
    }

    /// The upgrade itself.
    fn itself(&self) -> ObjectRef {
        cluster::upgrade_ref(self.view, self.upgrade)
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let head: String = text.chars().take(LONGEST - 1).collect();
    format!("{head}…")
}
