//! A simulated machine: what its kubelet says of itself and which static pods lie on its disk. Plain data, made by
//! scenarios and read by the kubelets.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A machine with a kubelet.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub name: String,
    pub control_plane: bool,
    /// Takes ordinary pods; a control plane usually does not.
    pub schedulable: bool,
    pub zone: String,
    pub cpus: u32,
    pub memory_gib: u32,
    /// The kubelet's version, and that of the static pods.
    pub version: String,
    pub address: String,
    /// The first two octets and the third of its pods' addresses: `10.244.3`.
    pub pod_prefix: String,
    pub static_pods: Vec<StaticPod>,
}

/// A pod from the kubelet's manifest folder.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticPod {
    pub component: String,
    pub image: String,
    pub command: Vec<String>,
    pub cpu_request: String,
    pub host_paths: Vec<String>,
}

impl Machine {
    /// The Node as the kubelet registers it.
    pub fn node(&self) -> Value {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("topology.kubernetes.io/zone".to_owned(), self.zone.clone()),
        ]);
        let mut taints = Vec::new();
        if self.control_plane {
            labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
            labels.insert(
                "node.kubernetes.io/exclude-from-external-load-balancers".to_owned(),
                String::new(),
            );
        }
        if !self.schedulable {
            taints.push(json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }));
        }
        let pod_cidr = format!("{}.0/24", self.pod_prefix);
        json!({
            "metadata": {
                "name": self.name,
                "labels": labels,
                "annotations": {
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
            },
            "spec": { "podCIDR": pod_cidr, "podCIDRs": [pod_cidr], "taints": taints },
        })
    }

    /// The parts of the status that do not change while the kubelet runs.
    pub fn status(&self) -> Value {
        let resources = |reserved_cpu: u32, reserved_mib: u32| {
            json!({
                "cpu": format!("{}m", self.cpus * 1000 - reserved_cpu),
                "memory": format!("{}Mi", self.memory_gib * 1024 - reserved_mib),
                "ephemeral-storage": "100Gi",
                "hugepages-2Mi": "0",
                "pods": "110",
            })
        };
        let mut capacity = resources(0, 0);
        capacity["cpu"] = self.cpus.to_string().into();
        let id = stable_id(&self.name);
        json!({
            "capacity": capacity,
            "allocatable": resources(100, 512),
            "addresses": [
                { "type": "InternalIP", "address": self.address },
                { "type": "Hostname", "address": self.name },
            ],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "bootID": id,
                "machineID": id.replace('-', ""),
                "systemUUID": id,
                "kernelVersion": "6.12.57",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "containerRuntimeVersion": "containerd://2.3.7",
                "kubeletVersion": self.version,
                "kubeProxyVersion": "",
            },
        })
    }
}

impl StaticPod {
    /// The pod's name on a machine: the manifest's name and the node's.
    pub fn name_on(&self, machine: &Machine) -> String {
        format!("{}-{}", self.component, machine.name)
    }

    /// The mirror pod the kubelet makes of it; the Node owns it.
    pub fn mirror(&self, machine: &Machine, node_uid: &str, seen: &str) -> Value {
        let hash = stable_id(&format!("{}{self:?}", machine.name)).replace('-', "");
        let volumes: Vec<Value> = self
            .host_paths
            .iter()
            .enumerate()
            .map(|(index, path)| json!({ "name": format!("host-{index}"), "hostPath": { "path": path, "type": "DirectoryOrCreate" } }))
            .collect();
        let mounts: Vec<Value> = self
            .host_paths
            .iter()
            .enumerate()
            .map(|(index, path)| json!({ "name": format!("host-{index}"), "mountPath": path }))
            .collect();
        json!({
            "metadata": {
                "name": self.name_on(machine),
                "namespace": "kube-system",
                "labels": { "component": self.component, "tier": "control-plane" },
                "annotations": {
                    "kubernetes.io/config.hash": hash,
                    "kubernetes.io/config.mirror": hash,
                    "kubernetes.io/config.seen": seen,
                    "kubernetes.io/config.source": "file",
                },
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": node_uid, "controller": true },
                ],
            },
            "spec": {
                "nodeName": machine.name,
                "hostNetwork": true,
                "priorityClassName": "system-node-critical",
                "enableServiceLinks": true,
                "tolerations": [{ "effect": "NoExecute", "operator": "Exists" }],
                "containers": [{
                    "name": self.component,
                    "image": self.image,
                    "command": self.command,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": { "requests": { "cpu": self.cpu_request } },
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        })
    }
}

/// An id in the form of a uuid that only depends on `text`.
fn stable_id(text: &str) -> String {
    let (high, low) = (
        crate::hash::fnv64(text.as_bytes()),
        crate::hash::fnv64(format!("{text}/").as_bytes()),
    );
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
