//! What the operator and a node say to each other: the plan goes to the node as environment of its step containers, the
//! report comes back as their termination message and exit code. Both are data; what a step does is in `afloat-node`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use crate::clusterupgrade::ControlPlaneMethod;
use crate::common::NodeRole;

/// The step containers of a node, by the names they have in `spec.steps`.
pub mod steps {
    /// Copies binaries to the host, pulls images, puts the host unit in place. Its own pod, before the slot.
    pub const STAGE: &str = "stage";
    /// Control planes with peers: new API connections go to the others.
    pub const STAND_ASIDE: &str = "stand-aside";
    pub const CONTAINERD: &str = "containerd";
    pub const CNI: &str = "cni";
    pub const KUBEADM: &str = "kubeadm";
    pub const KUBELET: &str = "kubelet";
    /// Control planes with peers: back in traffic, after the local gate.
    pub const COME_BACK: &str = "come-back";
    /// Undoes what the journal says. Its own pod.
    pub const ROLLBACK: &str = "rollback";
}

/// Exit codes of a step container.
pub mod exit {
    pub const DONE: i32 = 0;
    /// Not now; the kubelet starts the container again, and it goes on where it was.
    pub const LATER: i32 = 10;
    /// Will not work however often it is tried.
    pub const FAILED: i32 = 20;
    /// The host has undone its work by itself (the dead man's switch).
    pub const UNDONE: i32 = 30;
}

/// What a node has to become, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePlan {
    /// Uid of the NodeKubeadmUpgrade; with the attempt it tells one journal from another, also when the object was deleted and
    /// made anew under the same name.
    pub upgrade: String,
    pub attempt: i32,
    pub node: String,
    pub role: NodeRole,
    /// Version of the control plane.
    pub kubernetes_version: String,
    /// Version of the kubelet to arrive at.
    pub kubelet_version: String,
    /// Versions whose kubeadm migrations run in turn, the last one being `kubelet_version`'s minor; one entry where the
    /// node moves by at most one minor.
    pub via: Vec<String>,
    pub method: Option<ControlPlaneMethod>,
    /// Addresses of the other control planes, to stand aside to.
    pub peers: Vec<String>,
    /// Image tags that kubeadm's configuration is to have, where a person named some.
    pub etcd_version: Option<String>,
    pub core_dns_version: Option<String>,
    /// Seconds after which the host undoes its work if API server or kubelet have not come back.
    pub undo_after_seconds: u32,
    /// Public keys, of which one must have signed the bundle; without any, whatever the image brings is taken.
    pub bundle_key: Option<String>,
}

/// The environment variable by which a step container, and the operator, learn the keys of bundles.
pub const BUNDLE_KEY: &str = "AFLOAT_BUNDLE_KEY";

/// Why an environment is no plan.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the environment variable {name} {problem}: step containers get it from their NodeKubeadmUpgrade")]
pub struct NotAPlan {
    pub name: &'static str,
    pub problem: String,
}

impl NodePlan {
    /// As environment of a step container.
    pub fn to_env(&self) -> BTreeMap<&'static str, String> {
        let mut env = BTreeMap::from([
            ("AFLOAT_UPGRADE", self.upgrade.clone()),
            ("AFLOAT_ATTEMPT", self.attempt.to_string()),
            ("AFLOAT_NODE", self.node.clone()),
            ("AFLOAT_ROLE", self.role.to_string()),
            ("AFLOAT_KUBERNETES_VERSION", self.kubernetes_version.clone()),
            ("AFLOAT_KUBELET_VERSION", self.kubelet_version.clone()),
            ("AFLOAT_VIA", self.via.join(",")),
            ("AFLOAT_PEERS", self.peers.join(",")),
            ("AFLOAT_UNDO_AFTER_SECONDS", self.undo_after_seconds.to_string()),
        ]);
        if let Some(method) = self.method {
            env.insert("AFLOAT_METHOD", method.to_string());
        }
        if let Some(tag) = &self.etcd_version {
            env.insert("AFLOAT_ETCD_VERSION", tag.clone());
        }
        if let Some(tag) = &self.core_dns_version {
            env.insert("AFLOAT_CORE_DNS_VERSION", tag.clone());
        }
        if let Some(key) = &self.bundle_key {
            env.insert(BUNDLE_KEY, key.clone());
        }
        env
    }

    /// From the environment of a step container.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, NotAPlan> {
        let must = |name: &'static str| {
            lookup(name).filter(|value| !value.is_empty()).ok_or_else(|| NotAPlan {
                name,
                problem: "is not set".to_owned(),
            })
        };
        let list = |name: &str| -> Vec<String> {
            let text = lookup(name).unwrap_or_default();
            text.split(',')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        Ok(Self {
            upgrade: must("AFLOAT_UPGRADE")?,
            attempt: read("AFLOAT_ATTEMPT", &must("AFLOAT_ATTEMPT")?)?,
            node: must("AFLOAT_NODE")?,
            role: read("AFLOAT_ROLE", &must("AFLOAT_ROLE")?)?,
            kubernetes_version: must("AFLOAT_KUBERNETES_VERSION")?,
            kubelet_version: must("AFLOAT_KUBELET_VERSION")?,
            via: list("AFLOAT_VIA"),
            method: lookup("AFLOAT_METHOD")
                .map(|text| read("AFLOAT_METHOD", &text))
                .transpose()?,
            peers: list("AFLOAT_PEERS"),
            etcd_version: lookup("AFLOAT_ETCD_VERSION").filter(|tag| !tag.is_empty()),
            core_dns_version: lookup("AFLOAT_CORE_DNS_VERSION").filter(|tag| !tag.is_empty()),
            undo_after_seconds: read("AFLOAT_UNDO_AFTER_SECONDS", &must("AFLOAT_UNDO_AFTER_SECONDS")?)?,
            bundle_key: lookup(BUNDLE_KEY).filter(|key| !key.is_empty()),
        })
    }
}

fn read<T: std::str::FromStr>(name: &'static str, text: &str) -> Result<T, NotAPlan> {
    text.parse().map_err(|_| NotAPlan {
        name,
        problem: format!("says {text:?}, which is no value it can have"),
    })
}

/// What a step has to say when its container ends: its termination message, as JSON, at most 4096 bytes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    pub outcome: StepOutcome,
    /// For people: what was done, or what is wrong and what helps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A stable word for what went wrong or is waited for, as `WaitingForEtcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The way the control plane was taken, and why, where the step chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, EnumString, Eq, IntoStaticStr, PartialEq, Serialize)]
pub enum StepOutcome {
    #[default]
    Done,
    /// There was nothing to do.
    Skipped,
    /// Not now; tried again.
    Later,
    Failed,
    /// The host has undone its work.
    Undone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_way_to_the_node() {
        let plan = NodePlan {
            upgrade: "0b2f4c6e-1111-4222-8333-444455556666".to_owned(),
            attempt: 2,
            node: "cp-1".to_owned(),
            role: NodeRole::FirstControlPlane,
            kubernetes_version: "v1.36.3".to_owned(),
            kubelet_version: "v1.36.3".to_owned(),
            via: vec!["v1.35.4".to_owned(), "v1.36.3".to_owned()],
            method: Some(ControlPlaneMethod::Swift),
            peers: vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()],
            etcd_version: Some("3.6.8-0".to_owned()),
            core_dns_version: Some("v1.14.2".to_owned()),
            undo_after_seconds: 900,
            bundle_key: Some("MCowBQYDK2VwAyEA".to_owned()),
        };
        let env = plan.to_env();
        assert_eq!(NodePlan::from_env(|name| env.get(name).cloned()), Ok(plan));
        let missing = NodePlan::from_env(|name| env.get(name).filter(|_| name != "AFLOAT_ROLE").cloned());
        assert_eq!(missing.unwrap_err().name, "AFLOAT_ROLE");
    }
}
