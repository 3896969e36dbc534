//! The cluster as it is before anybody upgrades it: how many nodes, which virtual machines, which setting, and the release it goes to.

use serde_json::Value;

use super::people::Deed;

/// Where Harvester lives.
pub const SYSTEM: &str = "harvester-system";
/// The release that is upgraded to, and what is of it.
pub const NEW_RELEASE: &str = "v1.7.0";
pub const NEW_OS: &str = "Harvester v1.7.0";
pub const NEW_KUBERNETES: &str = "v1.34.1+rke2r1";
pub const NEW_RANCHER: &str = "v2.12.2";
/// The release before, and what nodes start with.
pub const OLD_RELEASE: &str = "v1.6.0";
pub const OLD_OS: &str = "Harvester v1.6.0";
pub const OLD_KUBERNETES: &str = "v1.33.5+rke2r1";

/// A virtual machine of the ground.
#[derive(Clone, Debug)]
pub struct VmShape {
    pub name: String,
    /// The node it starts on.
    pub node: String,
    pub bound: Option<Binding>,
    /// The word for when it is to run; the older switch where it is empty.
    pub run_strategy: &'static str,
}

/// Why a virtual machine cannot move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It uses a device of its host.
    HostDevice,
    /// Its selector names the node it starts on.
    Selector,
    /// It has a disk that KubeVirt cannot take along.
    ContainerDisk,
}

/// A cluster to be laid.
#[derive(Clone, Debug)]
pub struct Ground {
    pub nodes: u32,
    pub vms: Vec<VmShape>,
    /// The setting `upgrade-config`, where it is not the default.
    pub upgrade_config: Option<Value>,
    /// Nodes that are not Ready.
    pub not_ready: Vec<&'static str>,
    /// What else is made, or changed, before anybody begins.
    pub more: Vec<Deed>,
}

impl Ground {
    /// So many nodes with so many virtual machines, spread evenly; every tenth uses a device of its host.
    pub fn new(nodes: u32, vms: u32) -> Self {
        let vms = (0..vms).map(|number| VmShape {
            name: format!("vm-{:02}", number + 1),
            node: format!("node-{}", number % nodes.max(1) + 1),
            bound: (number % 10 == 9).then_some(Binding::HostDevice),
            run_strategy: match number % 3 {
                0 => "Always",
                1 => "RerunOnFailure",
                _ => "",
            },
        });
        Self {
            nodes,
            vms: vms.collect(),
            upgrade_config: None,
            not_ready: Vec::new(),
            more: Vec::new(),
        }
    }

    pub fn node_names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(|number| format!("node-{number}"))
    }

    /// The file that describes the release.
    pub fn release(&self) -> String {
        format!(
            "harvester: {NEW_RELEASE}\nos: {NEW_OS}\nkubernetes: {NEW_KUBERNETES}\nrancher: {NEW_RANCHER}\nharvesterChart: 1.7.0\nmonitoringChart: 105.1.2+up61.3.2\nminUpgradableVersion: v1.6.0\n"
        )
    }
}
