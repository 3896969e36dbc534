//! What is kept of the objects of a Harvester-like cluster. They are watched only where discovery shows their kinds (`kinds`); the data of
//! secrets is never asked for.

mod kinds;

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::foreign::rancher::{MachinePlan, PLAN_SECRET_TYPE};
use afloat_api::harvester::{HarvesterCondition, Upgrade, Version};
use afloat_api::{annotations, labels};
use afloat_core::hci::view::{
    Addon, Attachment, Backup, Bundle, Cancelled, CapiCluster, Chart, Engine, HciKind, HciObject, HelmRelease, Image,
    Job, LocalCluster, Log, Machine, Migration, RestoreList, Run, Schedule, Seen, Server, Ticket, Upstream, Vm, Vmi,
    Volume,
};
use afloat_core::view::{Key, NodeName, Resources, Uid};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Secret};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::DynamicObject;
use serde_json::Value;

use super::quantity::{self, Rounding};
use super::scheduling;
use super::{Unreadable, identity};

pub use kinds::{Served, built_in, for_tasks_alone, foreign_definitions, has_status, is_secret, names, served};

/// Uid of the upgrade the provisioning cluster was last changed for.
pub const ROLLED_OUT_FOR: &str = "afloat.dev/rolled-out-for";
/// Version and strategy of the provisioning cluster before that.
pub const STRATEGY_BEFORE: &str = "afloat.dev/upgrade-strategy-before";
/// On Harvester's Deployment: `off` where its upgrade controller leaves upgrades alone.
const UPSTREAM_OFF: &str = "afloat.dev/harvester-upgrades";

/// How KubeVirt renews running machines, among the values of Harvester's chart.
const UPDATE_METHODS: &str = "/spec/values/kubevirt/spec/workloadUpdateStrategy/workloadUpdateMethods";

/// Conditions in which Rancher says what it waits for. Its own clusters have the latter, into which it copies what its control plane says.
const CHECKPOINTS: [&str; 2] = ["ControlPlaneReady", "Updated"];

/// Reads of an object that was decoded without a type.
struct Read<'a> {
    object: &'a DynamicObject,
}

impl<'a> Read<'a> {
    fn at(&self, path: &str) -> &'a Value {
        static NULL: Value = Value::Null;
        self.object.data.pointer(path).unwrap_or(&NULL)
    }

    fn text(&self, path: &str) -> Arc<str> {
        Arc::from(self.at(path).as_str().unwrap_or_default())
    }

    fn some_text(&self, path: &str) -> Option<Arc<str>> {
        self.at(path).as_str().filter(|text| !text.is_empty()).map(Arc::from)
    }

    /// Whether the status is about the newest generation.
    fn is_observed(&self) -> bool {
        let generation = self.object.metadata.generation.unwrap_or_default();
        self.number("/status/observedGeneration") >= generation
    }

    fn yes(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }

    fn number(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn label(&self, key: &str) -> Option<&'a str> {
        self.object.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn node(&self, path: &str) -> Option<NodeName> {
        self.some_text(path).map(NodeName::from)
    }

    /// Status, and reason or message, of a condition.
    fn condition(&self, kind: &str) -> Option<(&'a str, Arc<str>)> {
        let conditions = self.at("/status/conditions").as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        let word = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
        let text = word("message").or_else(|| word("reason")).unwrap_or_default();
        Some((condition["status"].as_str().unwrap_or_default(), Arc::from(text)))
    }

    /// All conditions, but those of a form that nobody knows.
    fn conditions(&self) -> Vec<HarvesterCondition> {
        let all = self.at("/status/conditions").as_array().into_iter().flatten();
        all.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
    }

    fn time(&self, path: &str) -> Option<Timestamp> {
        self.at(path).as_str()?.parse().ok()
    }
}

/// What is kept of an object.
pub fn reduce(kind: HciKind, object: &DynamicObject) -> Result<HciObject, Unreadable> {
    let read = Read { object };
    let typed = |problem: kube::core::dynamic::ParseDynamicObjectError| Unreadable::new(&object.metadata, &problem);
    Ok(match kind {
        HciKind::Upgrade => {
            let upgrade: Upgrade = object.clone().try_parse().map_err(typed)?;
            HciObject::Upgrade(seen(object, upgrade)?)
        }
        HciKind::Version => {
            let version: Version = object.clone().try_parse().map_err(typed)?;
            HciObject::Version(seen(object, version)?)
        }
        HciKind::Setting => HciObject::Setting(seen(object, setting(&read))?),
        HciKind::UpgradeLog => {
            let log = Log {
                upgrade: read.text("/spec/upgradeName"),
                conditions: read.conditions(),
            };
            HciObject::UpgradeLog(seen(object, log)?)
        }
        HciKind::Image => HciObject::Image(seen(object, image(&read))?),
        HciKind::Addon => {
            let addon = Addon {
                enabled: read.yes("/spec/enabled"),
                version: read.text("/spec/version"),
                status: read.text("/status/status"),
            };
            HciObject::Addon(seen(object, addon)?)
        }
        HciKind::Backup => HciObject::Backup(seen(object, backup(&read, "/status/readyToUse"))?),
        HciKind::Schedule => {
            let suspended = read.yes("/status/suspended");
            HciObject::Schedule(seen(object, Schedule { suspended })?)
        }
        HciKind::Restore => HciObject::Restore(seen(object, backup(&read, "/status/complete"))?),
        HciKind::Cluster => HciObject::Cluster(seen(object, cluster(&read))?),
        HciKind::CapiCluster => {
            let cluster = CapiCluster {
                phase: read.text("/status/phase"),
                paused: read.yes("/spec/paused"),
            };
            HciObject::CapiCluster(seen(object, cluster)?)
        }
        HciKind::Machine => {
            let machine = Machine {
                phase: read.text("/status/phase"),
                node: read.node("/status/nodeRef/name"),
            };
            HciObject::Machine(seen(object, machine)?)
        }
        HciKind::Plan => return plan(object),
        HciKind::Chart => HciObject::Chart(seen(object, chart(&read))?),
        HciKind::Bundle => HciObject::Bundle(seen(object, bundle(&read))?),
        HciKind::Job => HciObject::Job(seen(object, job(&read))?),
        HciKind::Service => HciObject::Service(seen(object, ())?),
        HciKind::RestoreList => HciObject::RestoreList(seen(object, restore_list(&read))?),
        _ => return reduce_more(kind, object, &read),
    })
}

fn reduce_more(kind: HciKind, object: &DynamicObject, read: &Read<'_>) -> Result<HciObject, Unreadable> {
    Ok(match kind {
        HciKind::Vm => {
            let vm = Vm {
                status: read.text("/status/printableStatus"),
                volume_requests: read
                    .at("/status/volumeRequests")
                    .as_array()
                    .is_some_and(|list| !list.is_empty()),
                volumes: names_of(read.at("/spec/template/spec/volumes"), |_| true),
                run: run(read),
                run_before: read.annotation(annotations::RUN_BEFORE).map(Run::from_text),
                run_after: read.annotation(annotations::RUN_AFTER).map(Run::from_text),
            };
            HciObject::Vm(seen(object, vm)?)
        }
        HciKind::Vmi => HciObject::Vmi(seen(object, vmi(read))?),
        HciKind::Migration => {
            let migration = Migration {
                vmi: read.text("/spec/vmiName"),
                phase: read.text("/status/phase"),
                source: read
                    .some_text("/status/migrationState/sourceNode")
                    .map(|node| NodeName::from(&*node)),
                to: read.node("/spec/addedNodeSelector/kubernetes.io~1hostname"),
                message: read.some_text("/status/migrationState/failureReason"),
                created_at: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
                ended_at: read.time("/status/migrationState/endTimestamp"),
            };
            HciObject::Migration(seen(object, migration)?)
        }
        HciKind::Volume => HciObject::Volume(seen(object, volume(read))?),
        HciKind::Engine => {
            let modes = read.at("/status/replicaModeMap").as_object();
            let engine = Engine {
                volume: read.text("/spec/volumeName"),
                node: read.node("/spec/nodeID"),
                running: &*read.text("/status/currentState") == "running",
                whole: modes.map_or(0, |modes| modes.values().filter(|mode| *mode == "RW").count()),
            };
            HciObject::Engine(seen(object, engine)?)
        }
        HciKind::Attachment => HciObject::Attachment(seen(object, attachment(read))?),
        HciKind::LonghornSetting => HciObject::LonghornSetting(seen(object, read.text("/value"))?),
        HciKind::Server => HciObject::Server(seen(object, server(read))?),
        HciKind::HelmRelease => {
            let release = HelmRelease {
                revision: read
                    .label("version")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default(),
                status: Arc::from(read.label("status").unwrap_or_default()),
            };
            HciObject::HelmRelease(seen(object, release)?)
        }
        _ => {
            let upstream = Upstream {
                replicas: read.at("/spec/replicas").as_i64().unwrap_or(1),
                off: read.annotation(UPSTREAM_OFF) == Some("off"),
                server: server(read),
            };
            HciObject::Upstream(seen(object, upstream)?)
        }
    })
}

fn seen<T>(object: &DynamicObject, what: T) -> Result<Arc<Seen<T>>, Unreadable> {
    Ok(Arc::new(Seen {
        target: identity(&object.metadata)?,
        deleting: object.metadata.deletion_timestamp.is_some(),
        what,
    }))
}

fn setting(read: &Read<'_>) -> Arc<str> {
    read.some_text("/value").unwrap_or_else(|| read.text("/default"))
}

fn image(read: &Read<'_>) -> Image {
    let is = |kind: &str| read.condition(kind).filter(|(status, _)| *status == "True");
    let progress = read.condition("Imported").map(|(_, text)| text).unwrap_or_default();
    let broken = read.condition("Imported").filter(|(status, _)| *status == "False");
    let gave_up = is("RetryLimitExceeded").or(broken).map(|(_, text)| text);
    Image {
        upgrade: read.label(labels::HARVESTER_UPGRADE).map(Arc::from),
        imported: is("Imported").is_some(),
        gave_up,
        message: progress,
    }
}

/// A backup that failed says so in a field, a restore only in its conditions.
fn backup(read: &Read<'_>, done: &str) -> Backup {
    let conditions = read.at("/status/conditions").as_array().into_iter().flatten();
    let failed = |condition: &Value| condition["status"] == "False" && condition["reason"] == "Error";
    let broken = !read.at("/status/error").is_null() || conditions.into_iter().any(failed);
    Backup {
        snapshot: &*read.text("/spec/type") == "snapshot",
        under_way: !read.yes(done) && !broken,
    }
}

fn cluster(read: &Read<'_>) -> LocalCluster {
    let told = CHECKPOINTS
        .iter()
        .filter_map(|kind| read.condition(kind))
        .find(|(status, _)| *status != "True");
    LocalCluster {
        kubernetes_version: read.text("/spec/kubernetesVersion"),
        provision_generation: read.number("/spec/rkeConfig/provisionGeneration"),
        strategy: read.at("/spec/rkeConfig/upgradeStrategy").clone(),
        rolled_out_for: read.annotation(ROLLED_OUT_FOR).map(Uid::from),
        before: read.annotation(STRATEGY_BEFORE).map(Arc::from),
        checkpoint: told.map(|(_, text)| text).filter(|text| !text.is_empty()),
    }
}

/// A plan secret: its metadata says all; the type was asked for by the watch.
fn plan(object: &DynamicObject) -> Result<HciObject, Unreadable> {
    let secret = Secret {
        metadata: object.metadata.clone(),
        type_: Some(PLAN_SECRET_TYPE.to_owned()),
        ..Secret::default()
    };
    let plan =
        MachinePlan::from_secret(&secret).ok_or_else(|| Unreadable::new(&object.metadata, &"it names no machine"))?;
    Ok(HciObject::Plan(seen(object, plan)?))
}

fn chart(read: &Read<'_>) -> Chart {
    let not_ready = read.condition("Ready").filter(|(status, _)| *status != "True");
    Chart {
        paused: read.yes("/spec/paused"),
        paused_by: read.annotation(annotations::PAUSED_BY).map(Uid::from),
        version: read.text("/spec/version"),
        not_ready: not_ready.map(|(_, text)| text),
        update_methods: Arc::from(read.at(UPDATE_METHODS).to_string()),
        update_methods_before: read.annotation(annotations::UPDATE_METHODS_BEFORE).map(Arc::from),
    }
}

fn bundle(read: &Read<'_>) -> Bundle {
    let not_ready = read.condition("Ready").filter(|(status, _)| *status != "True");
    Bundle {
        paused: read.yes("/spec/paused"),
        version: read.text("/spec/helm/version"),
        observed: read.is_observed(),
        not_ready: not_ready.map(|(_, text)| text),
    }
}

fn server(read: &Read<'_>) -> Server {
    let wanted = read.at("/spec/replicas").as_i64().unwrap_or(1);
    let counted = ["replicas", "updatedReplicas", "availableReplicas"];
    let mut counted = counted.iter().map(|count| read.number(&format!("/status/{count}")));
    Server {
        container: read.text("/spec/template/spec/containers/0/name"),
        image: read.text("/spec/template/spec/containers/0/image"),
        rolled_out: read.is_observed() && counted.all(|count| count == wanted),
    }
}

fn job(read: &Read<'_>) -> Job {
    let is = |kind: &str| read.condition(kind).filter(|(status, _)| *status == "True");
    let failed = is("Failed");
    let created = read.object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Job {
        upgrade_uid: read.label(labels::UPGRADE_UID).map(Uid::from),
        complete: is("Complete").is_some(),
        failed: failed.map(|(_, text)| text),
        created_at: created,
        completed_at: read.time("/status/completionTime"),
        cancelled: read
            .annotation(annotations::CANCELLED_MIGRATIONS)
            .map(Cancelled::from_text)
            .unwrap_or_default(),
    }
}

fn restore_list(read: &Read<'_>) -> RestoreList {
    let data = read.at("/data").as_object().into_iter().flatten();
    let nodes = data.map(|(node, list)| {
        let names = list
            .as_str()
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        (node.clone(), names.map(str::to_owned).collect())
    });
    RestoreList {
        upgrade_uid: read.label(labels::UPGRADE_UID).map(Uid::from),
        nodes: nodes.collect(),
    }
}

fn vmi(read: &Read<'_>) -> Vmi {
    let selector = read.at("/spec/nodeSelector").as_object().into_iter().flatten();
    let selector: BTreeMap<Arc<str>, Arc<str>> = selector
        .filter_map(|(key, value)| Some((Arc::from(key.as_str()), Arc::from(value.as_str()?))))
        .collect();
    let affinity: Option<Affinity> = serde_json::from_value(read.at("/spec/affinity").clone()).ok();
    let some = |path: &str| read.at(path).as_array().is_some_and(|list| !list.is_empty());
    let bound = read
        .condition("LiveMigratable")
        .filter(|(status, _)| *status == "False");
    Vmi {
        phase: read.text("/status/phase"),
        node: read.node("/status/nodeName"),
        node_selector: selector,
        node_affinity: scheduling::node_affinity(affinity.as_ref()),
        host_devices: some("/spec/domain/devices/hostDevices") || some("/spec/domain/devices/gpus"),
        not_migratable: bound.map(|(_, text)| text),
        of_upgrade: read.label(labels::HARVESTER_UPGRADE).is_some(),
        cpu_model: read.text("/spec/domain/cpu/model"),
        cpu_features: cpu_features(read),
        requests: vmi_requests(read),
        claims: vmi_claims(read),
        plugged: names_of(read.at("/spec/volumes"), is_pluggable),
    }
}

/// Names of the volumes that are so.
fn names_of(volumes: &Value, wanted: impl Fn(&Value) -> bool) -> Vec<Arc<str>> {
    let volumes = volumes.as_array().into_iter().flatten();
    let wanted = volumes.filter(|volume| wanted(volume));
    wanted
        .filter_map(|volume| volume["name"].as_str())
        .map(Arc::from)
        .collect()
}

fn is_pluggable(volume: &Value) -> bool {
    let sources = ["persistentVolumeClaim", "dataVolume"];
    sources.iter().any(|source| volume[*source]["hotpluggable"] == true)
}

/// Those without which it cannot run; what is optional or forbidden binds nobody.
fn cpu_features(read: &Read<'_>) -> Vec<Arc<str>> {
    let all = read.at("/spec/domain/cpu/features").as_array().into_iter().flatten();
    let required = all.filter(|one| matches!(one["policy"].as_str(), None | Some("" | "require")));
    required.filter_map(|one| one["name"].as_str()).map(Arc::from).collect()
}

/// What is asked of the node; where that is not said, KubeVirt asks for the memory of the guest.
fn vmi_requests(read: &Read<'_>) -> Resources {
    let mut asked: BTreeMap<String, Quantity> =
        serde_json::from_value(read.at("/spec/domain/resources/requests").clone()).unwrap_or_default();
    let guest = read.some_text("/spec/domain/memory/guest");
    if let (Some(guest), false) = (guest, asked.contains_key("memory")) {
        asked.insert("memory".to_owned(), Quantity(guest.to_string()));
    }
    // What cannot be read binds nobody.
    quantity::resources(&asked, Rounding::Up).unwrap_or_default()
}

fn vmi_claims(read: &Read<'_>) -> Vec<Arc<str>> {
    let disks = read.at("/spec/volumes").as_array().into_iter().flatten();
    let claims = disks.filter_map(|disk| {
        let claim = disk["persistentVolumeClaim"]["claimName"].as_str();
        // A claim of a DataVolume is called like it.
        claim.or_else(|| disk["dataVolume"]["name"].as_str())
    });
    claims.map(Arc::from).collect()
}

/// The word counts where there is one; the switch is from before it.
fn run(read: &Read<'_>) -> Run {
    read.some_text("/spec/runStrategy")
        .map_or_else(|| Run::Switch(read.yes("/spec/running")), Run::Strategy)
}

fn volume(read: &Read<'_>) -> Volume {
    let workloads = read.at("/status/kubernetesStatus/workloadsStatus").as_array();
    let running = |status: &&Value| matches!(status["podStatus"].as_str(), Some("Running" | "Pending"));
    let users = workloads.into_iter().flatten().filter(running);
    let claim = read.some_text("/status/kubernetesStatus/pvcName");
    let namespace = read.text("/status/kubernetesStatus/namespace");
    Volume {
        state: read.text("/status/state"),
        robustness: read.text("/status/robustness"),
        node: read.node("/status/currentNodeID"),
        wanted: read.node("/spec/nodeID"),
        replicas: i32::try_from(read.number("/spec/numberOfReplicas")).unwrap_or_default(),
        claim: claim.map(|name| Key::new(&namespace, &name)),
        users: users
            .filter_map(|status| status["podName"].as_str())
            .map(Arc::from)
            .collect(),
    }
}

fn attachment(read: &Read<'_>) -> Attachment {
    let tickets = read.at("/spec/attachmentTickets").as_object().into_iter().flatten();
    let text = |ticket: &Value, key: &str| -> Arc<str> { Arc::from(ticket[key].as_str().unwrap_or_default()) };
    let ticket = |(id, ticket): (&String, &Value)| Ticket {
        id: Arc::from(id.as_str()),
        kind: text(ticket, "type"),
        node: ticket["nodeID"]
            .as_str()
            .filter(|node| !node.is_empty())
            .map(NodeName::from),
    };
    Attachment {
        volume: read.text("/spec/volume"),
        tickets: tickets.map(ticket).collect(),
    }
}

#[cfg(test)]
mod tests;
