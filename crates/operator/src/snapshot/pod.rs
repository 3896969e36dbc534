//! Pods as the core sees them: where one runs, how it is, what it shares with others of its template, and what Afloat's
//! own pods report from their nodes.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use afloat_api::labels;
use afloat_core::KubernetesVersion;
use afloat_core::view::{
    Component, ContainerEnd, ContainerReport, Ending, NodeName, Pod, PodPhase, PodShape, StaticPart, TaskReport,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::raw::{PodSpec, PodStatus, RawPod};
use super::scheduling::{self, owner};
use super::{Unreadable, identity};

/// The kubelet puts it on the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// What the kubelet calls an image it cannot get; it goes on trying.
const IMAGE_PROBLEMS: [&str; 5] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
];

pub fn pod(raw: RawPod) -> Result<Pod, Unreadable> {
    let target = identity(&raw.metadata)?;
    let (spec, status) = (raw.spec.unwrap_or_default(), raw.status.unwrap_or_default());
    Ok(Pod {
        key: target.key,
        uid: target.uid,
        revision: target.revision,
        node: spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .map(NodeName::from),
        phase: phase(status.phase.as_deref()),
        ready: ready(&status),
        started_at: started_at(&status),
        ending: raw.metadata.deletion_timestamp.as_ref().map(|by| Ending {
            by: by.0,
            held_by_finalizer: raw.metadata.finalizers.as_ref().is_some_and(|held| !held.is_empty()),
        }),
        static_part: static_part(&raw.metadata, &spec),
        task: task(&raw.metadata, &status),
        shape: Arc::new(shape(&raw.metadata, &spec)?),
    })
}

fn phase(word: Option<&str>) -> PodPhase {
    match word {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

fn ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.r#type.as_deref() == Some("Ready") && condition.status.as_deref() == Some("True"))
}

fn started_at(status: &PodStatus) -> Option<Timestamp> {
    let containers = status.container_statuses.iter().flatten().filter_map(running_since);
    containers.chain(status.start_time.as_ref().map(|time| time.0)).max()
}

fn running_since(status: &ContainerStatus) -> Option<Timestamp> {
    Some(status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn shape(meta: &ObjectMeta, spec: &PodSpec) -> Result<PodShape, Unreadable> {
    let empty = BTreeMap::new();
    let own = meta.labels.as_ref().unwrap_or(&empty);
    let (affinity, owner) = (spec.affinity.as_ref(), owner(meta));
    // A DaemonSet pins each of its pods to its node, and nobody asks where else it could go: without the pin they share a shape.
    let pinned = owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet");
    let containers = || {
        spec.containers
            .iter()
            .flatten()
            .chain(spec.init_containers.iter().flatten())
    };
    let mut host_ports: Vec<Arc<str>> = containers()
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number != 0)?;
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            Some(Arc::from(format!("{protocol}/{number}")))
        })
        .collect();
    host_ports.sort();
    host_ports.dedup();
    Ok(PodShape {
        labels: scheduling::labels(meta.labels.as_ref()),
        requests: scheduling::requests(spec).map_err(|problem| Unreadable::new(meta, &problem))?,
        node_selector: scheduling::labels(spec.node_selector.as_ref()),
        node_affinity: if pinned {
            Vec::new()
        } else {
            scheduling::node_affinity(affinity)
        },
        pod_affinity: scheduling::pod_affinity(affinity, own),
        pod_anti_affinity: scheduling::pod_anti_affinity(affinity, own),
        spread: scheduling::spread(spec.topology_spread_constraints.as_ref(), own),
        tolerations: scheduling::tolerations(spec.tolerations.as_ref()),
        host_ports,
        claims: claims(meta, spec),
        local_data: spec.volumes.iter().flatten().any(|volume| volume.empty_dir.is_some()),
        priority: spec.priority.unwrap_or_default(),
        owner,
    })
}

/// Names of claims; a generic ephemeral volume's is made of the pod's name and its own.
fn claims(meta: &ObjectMeta, spec: &PodSpec) -> Vec<Arc<str>> {
    let pod = meta.name.as_deref().unwrap_or_default();
    spec.volumes
        .iter()
        .flatten()
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => claim.claim_name.as_deref().map(Arc::from),
            (None, Some(_)) => volume.name.as_deref().map(|name| Arc::from(format!("{pod}-{name}"))),
            (None, None) => None,
        })
        .collect()
}

fn static_part(meta: &ObjectMeta, spec: &PodSpec) -> Option<StaticPart> {
    meta.annotations.as_ref()?.get(MIRROR)?;
    let image = spec
        .containers
        .iter()
        .flatten()
        .find_map(|container| container.image.as_deref());
    let (name, tag) = name_and_tag(image.unwrap_or_default());
    let label = meta.labels.as_ref().and_then(|labels| labels.get("component"));
    let component = match label.map_or(name, String::as_str) {
        "etcd" => Component::Etcd,
        "kube-apiserver" => Component::ApiServer,
        "kube-controller-manager" => Component::ControllerManager,
        "kube-scheduler" => Component::Scheduler,
        "kube-vip" => Component::KubeVip,
        _ => Component::Other,
    };
    let of_kubernetes = matches!(
        component,
        Component::ApiServer | Component::ControllerManager | Component::Scheduler
    );
    // A tag cannot hold the `+` of a distribution's build: kubeadm writes `_` for it.
    let version = of_kubernetes.then(|| KubernetesVersion::from_str(&tag.replace('_', "+")).ok());
    Some(StaticPart {
        component,
        version: version.flatten(),
        tag: Arc::from(tag),
    })
}

/// The last part of an image's name, and its tag; both empty where there is none.
fn name_and_tag(image: &str) -> (&str, &str) {
    let image = image.split('@').next().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').unwrap_or((last, ""))
}

fn task(meta: &ObjectMeta, status: &PodStatus) -> Option<Arc<TaskReport>> {
    let labels = meta.labels.as_ref()?;
    let task = labels.get(labels::TASK)?;
    let statuses = || {
        let steps = status.init_container_statuses.iter().flatten();
        steps.chain(status.container_statuses.iter().flatten())
    };
    Some(Arc::new(TaskReport {
        task: Arc::from(task.as_str()),
        attempt: labels
            .get(labels::ATTEMPT)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        containers: statuses()
            .map(|status| (Arc::from(status.name.as_str()), report(status)))
            .collect(),
        image_problem: statuses().find_map(image_problem),
    }))
}

fn report(status: &ContainerStatus) -> ContainerReport {
    let terminated = |state: Option<&ContainerState>| state.and_then(|state| state.terminated.as_ref()).map(end);
    ContainerReport {
        restarts: status.restart_count,
        running_since: running_since(status),
        ended: terminated(status.state.as_ref()).or_else(|| terminated(status.last_state.as_ref())),
    }
}

fn end(terminated: &ContainerStateTerminated) -> ContainerEnd {
    // A container that was lost with its node has no times: it ended at the beginning of time rather than not at all.
    let time = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    };
    ContainerEnd {
        exit_code: terminated.exit_code,
        started_at: time(terminated.started_at.as_ref()),
        finished_at: time(terminated.finished_at.as_ref()),
        message: Arc::from(terminated.message.as_deref().unwrap_or_default()),
    }
}

fn image_problem(status: &ContainerStatus) -> Option<Arc<str>> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| IMAGE_PROBLEMS.contains(reason))?;
    let message = waiting.message.as_deref().unwrap_or("the kubelet gives no cause");
    Some(Arc::from(format!("{} ({reason}): {}", status.image, cause(message))))
}

/// What is at the bottom of it. Kubelet and containerd each put the image's whole name before what the next one said, and the cause, which
/// comes last, would be what is cut off.
fn cause(message: &str) -> &str {
    message.rsplit_once("\": ").map_or(message, |(_, cause)| cause)
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
