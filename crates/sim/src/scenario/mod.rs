//! Clusters described as data: machines and the objects people put on them. Nothing here acts; `world` brings a
//! scenario to an API server.

mod machines;
mod workloads;

use crate::machine::Machine;
use crate::request::{Request, Resource};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The version a cluster starts with unless told otherwise.
pub const DEFAULT_VERSION: &str = "v1.35.4";

/// How big a cluster is, and how old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub control_planes: u32,
    pub workers: u32,
    pub version: String,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            control_planes: 3,
            workers: 5,
            version: DEFAULT_VERSION.to_owned(),
        }
    }
}

/// A kind of cluster that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Default,
    SingleNode,
    StuckPdb,
    Crowded,
    TwoControlPlanes,
    TwoControlPlanesAccepted,
    DeadNode,
    KubeadmFailsOnce,
    KubeadmFails,
}

/// What is wrong with single machines of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// So many calls of `kubeadm upgrade` fail, by machine.
    pub kubeadm_failures: BTreeMap<String, u32>,
    /// Machines that lose their power once the cluster is there.
    pub without_power: BTreeSet<String>,
}

impl Scenario {
    pub const ALL: &[Scenario] = &[
        Scenario::Default,
        Scenario::SingleNode,
        Scenario::StuckPdb,
        Scenario::Crowded,
        Scenario::TwoControlPlanes,
        Scenario::TwoControlPlanesAccepted,
        Scenario::DeadNode,
        Scenario::KubeadmFailsOnce,
        Scenario::KubeadmFails,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::SingleNode => "single-node",
            Self::StuckPdb => "stuck-pdb",
            Self::Crowded => "crowded",
            Self::TwoControlPlanes => "two-control-planes",
            Self::TwoControlPlanesAccepted => "two-control-planes-accepted",
            Self::DeadNode => "dead-node",
            Self::KubeadmFailsOnce => "kubeadm-fails-once",
            Self::KubeadmFails => "kubeadm-fails",
        }
    }

    pub fn summary(self) -> &'static str {
        match self {
            Self::Default => "a healthy cluster: a shop, its data, monitoring; every budget has room",
            Self::SingleNode => "one machine that is control plane and worker at once",
            Self::StuckPdb => "the default cluster, and a budget that never allows a disruption",
            Self::Crowded => "the default cluster with so little room that a drained worker's pods find no place",
            Self::TwoControlPlanes => {
                "two control planes: etcd loses its quorum whichever goes, and the upgrade is refused"
            }
            Self::TwoControlPlanesAccepted => "the same, and a person accepts the moments without an API server",
            Self::DeadNode => "worker-2 has lost its power: it is said before anything begins",
            Self::KubeadmFailsOnce => "kubeadm fails once on worker-2, and is tried again",
            Self::KubeadmFails => {
                "kubeadm always fails on worker-2: it is put back and set aside, and the others go on"
            }
        }
    }

    /// What is wrong with its machines.
    pub fn trouble(self) -> Trouble {
        let second = || "worker-2".to_owned();
        let mut trouble = Trouble::default();
        match self {
            Self::KubeadmFailsOnce => trouble.kubeadm_failures = [(second(), 1)].into(),
            Self::KubeadmFails => trouble.kubeadm_failures = [(second(), u32::MAX)].into(),
            Self::DeadNode => trouble.without_power = [second()].into(),
            _ => {}
        }
        trouble
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.name() == name)
    }

    /// The size the scenario has unless told otherwise.
    pub fn default_shape(self) -> Shape {
        match self {
            Self::SingleNode => Shape {
                control_planes: 1,
                workers: 0,
                ..Shape::default()
            },
            Self::TwoControlPlanes | Self::TwoControlPlanesAccepted => Shape {
                control_planes: 2,
                ..Shape::default()
            },
            _ => Shape::default(),
        }
    }

    /// The cluster in full.
    pub fn describe(self, shape: &Shape) -> Cluster {
        let mut machines = machines::machines(shape);
        if shape.workers == 0 {
            // Nowhere else to go: kubeadm users remove the taint by hand then, and take a bigger machine.
            for machine in &mut machines {
                machine.schedulable = true;
                machine.cpus *= 2;
                machine.memory_gib *= 2;
            }
        }
        let mut objects = workloads::system(&shape.version);
        let homes = machines.iter().filter(|machine| machine.schedulable).count();
        objects.extend(workloads::shop(homes));
        match self {
            Self::StuckPdb => objects.extend(workloads::stuck()),
            Self::Crowded => objects.extend(workloads::crowd(shape.workers)),
            _ => {}
        }
        Cluster { machines, objects }
    }
}

/// Machines and objects of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub machines: Vec<Machine>,
    /// In the order they are to be made: namespaces first.
    pub objects: Vec<Value>,
}

/// The request that makes an object of a scenario; nothing for a kind that scenarios do not use.
pub fn creation(object: &Value) -> Option<Request> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (plural, namespaced) = match object["kind"].as_str()? {
        "Namespace" => ("namespaces", false),
        "Pod" => ("pods", true),
        "Service" => ("services", true),
        "ConfigMap" => ("configmaps", true),
        "Deployment" => ("deployments", true),
        "StatefulSet" => ("statefulsets", true),
        "DaemonSet" => ("daemonsets", true),
        "Job" => ("jobs", true),
        "PodDisruptionBudget" => ("poddisruptionbudgets", true),
        _ => return None,
    };
    let resource = Resource {
        group: Cow::Owned(group.to_owned()),
        version: Cow::Owned(version.to_owned()),
        plural: Cow::Borrowed(plural),
        namespaced,
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    Some(Request::create_raw(resource, namespace, object.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_every_scenario_can_be_made_once() {
        for scenario in Scenario::ALL {
            let cluster = scenario.describe(&scenario.default_shape());
            assert!(
                cluster.machines.iter().any(|machine| machine.schedulable),
                "{}",
                scenario.name()
            );
            let mut paths = BTreeSet::new();
            let mut namespaces = BTreeSet::from(["kube-system".to_owned(), "default".to_owned()]);
            for object in &cluster.objects {
                let request = creation(object).unwrap_or_else(|| panic!("{object}"));
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(
                    paths.insert((request.path(), name.clone())),
                    "{name} twice in {}",
                    scenario.name()
                );
                if object["kind"] == "Namespace" {
                    namespaces.insert(name);
                } else {
                    assert!(
                        namespaces.contains(&request.namespace),
                        "{name} comes before its namespace"
                    );
                }
            }
            assert_eq!(Scenario::by_name(scenario.name()), Some(*scenario));
        }
    }

    #[test]
    fn pods_that_keep_apart_are_no_more_than_the_machines() {
        for (control_planes, workers, members) in [(3, 5, 3), (3, 2, 2), (1, 0, 1), (3, 0, 3)] {
            let shape = Shape {
                control_planes,
                workers,
                ..Shape::default()
            };
            let objects = Scenario::Default.describe(&shape).objects;
            let database = objects.iter().find(|object| object["kind"] == "StatefulSet");
            assert_eq!(
                database.map(|set| &set["spec"]["replicas"]),
                Some(&serde_json::json!(members)),
                "{shape:?}"
            );
        }
    }

    #[test]
    fn machines_have_names_addresses_and_pod_ranges_of_their_own() {
        let shape = Shape {
            control_planes: 3,
            workers: 5000,
            ..Shape::default()
        };
        let machines = Scenario::Default.describe(&shape).machines;
        assert_eq!(machines.len(), 5003);
        for field in [
            |m: &Machine| m.name.clone(),
            |m: &Machine| m.address.clone(),
            |m: &Machine| m.pod_prefix.clone(),
        ] {
            assert_eq!(machines.iter().map(field).collect::<BTreeSet<_>>().len(), 5003);
        }
        let zones: BTreeSet<_> = machines
            .iter()
            .filter(|m| m.control_plane)
            .map(|m| m.zone.clone())
            .collect();
        assert_eq!(zones.len(), 3, "control planes are spread over the zones");
    }
}
