//! KubeVirt: virtual machines, their running instances, and their migrations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;

use crate::resource::foreign_kind;

foreign_kind! {
    /// A virtual machine, running or not.
    VirtualMachine in "kubevirt.io" / "v1", "virtualmachines", NamespaceResourceScope, spec: VirtualMachineSpec, status: VirtualMachineStatus
}

foreign_kind! {
    /// A virtual machine that runs.
    VirtualMachineInstance in "kubevirt.io" / "v1", "virtualmachineinstances", NamespaceResourceScope, spec: VirtualMachineInstanceSpec, status: VirtualMachineInstanceStatus
}

foreign_kind! {
    /// A migration of a virtual machine to another node.
    VirtualMachineInstanceMigration in "kubevirt.io" / "v1", "virtualmachineinstancemigrations", NamespaceResourceScope, spec: MigrationSpec, status: MigrationStatus
}

/// What is asked for of a virtual machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// `Always`, `Halted`, `Manual`, `RerunOnFailure` or `Once`.
    pub run_strategy: Option<String>,
    /// The older form of it.
    pub running: Option<bool>,
}

/// What is true of a virtual machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// What a person sees, as `Running`.
    pub printable_status: String,
    /// Whether there is an instance.
    pub created: bool,
    /// Whether the instance is ready.
    pub ready: bool,
}

/// What is asked for of an instance.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceSpec {
    /// Labels its node must have; pins it where there is one such node.
    pub node_selector: BTreeMap<String, String>,
    /// Where it wants to be.
    pub affinity: Option<Affinity>,
    /// What happens when its node is drained, as `LiveMigrate`.
    pub eviction_strategy: Option<String>,
    /// The machine itself.
    pub domain: Domain,
}

/// The machine itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Domain {
    /// Its devices.
    pub devices: Devices,
}

/// Devices that tie a machine to a host. Looked at for being there, not for what they are.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Devices {
    /// PCI, USB and vGPU devices.
    pub host_devices: Vec<Value>,
    /// GPUs.
    pub gpus: Vec<Value>,
}

/// What is true of an instance.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceStatus {
    /// `Running`, `Scheduling`, `Succeeded`, `Failed` and so on.
    pub phase: String,
    /// The node it runs on.
    pub node_name: String,
    /// The node it is to leave, while it is being evicted.
    pub evacuation_node_name: String,
    /// Its migration, under way or last.
    pub migration_state: Option<MigrationState>,
    /// Conditions, `LiveMigratable` and `Paused` among them.
    pub conditions: Vec<VmCondition>,
}

impl VirtualMachineInstanceStatus {
    /// The status of a condition; `None` where it is absent.
    pub fn condition(&self, kind: &str) -> Option<&VmCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// A condition as KubeVirt writes it: the time may be null.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct VmCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub message: Option<String>,
}

/// A migration as the instance reports it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationState {
    /// From where.
    pub source_node: String,
    /// To where.
    pub target_node: String,
    /// Whether it has ended.
    pub completed: bool,
    /// Whether it ended without success.
    pub failed: bool,
    /// When it began.
    pub start_timestamp: Option<Time>,
    /// When it ended.
    pub end_timestamp: Option<Time>,
}

/// What is asked for of a migration.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationSpec {
    /// Name of the instance.
    pub vmi_name: String,
}

/// What is true of a migration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationStatus {
    /// `Pending`, `Scheduling`, `Running`, `Succeeded`, `Failed` and so on.
    pub phase: String,
    /// From where to where.
    pub migration_state: Option<MigrationState>,
}
