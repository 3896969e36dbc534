//! What could stop an upgrade, looked for before anything is changed: every finding at once, each with its object, what
//! follows, and what helps. Waiting for things that pass by themselves is the gates' part, later.

use afloat_api::clusterupgrade::Finding;
use afloat_api::{ObjectRef, Reason};

/// The word by which a person accepts a warning: `node/worker-5:Cordoned`, `deploy/shop/checkout:NoCapacity`.
pub fn accept_key(finding: &Finding) -> String {
    word(&finding.object, &finding.reason)
}

pub(crate) fn accept_word(object: &ObjectRef, reason: Reason) -> String {
    word(object, reason.into())
}

fn word(object: &ObjectRef, reason: &str) -> String {
    let kind = match object.kind.as_str() {
        "Deployment" => "deploy".to_owned(),
        "StatefulSet" => "sts".to_owned(),
        "ReplicaSet" => "rs".to_owned(),
        "PodDisruptionBudget" => "pdb".to_owned(),
        other => other.to_lowercase(),
    };
    match &object.namespace {
        Some(namespace) => format!("{kind}/{namespace}/{}:{reason}", object.name),
        None => format!("{kind}/{}:{reason}", object.name),
    }
}
