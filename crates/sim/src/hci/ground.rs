//! The cluster as it is before anybody upgrades it: definitions, machines, Rancher's objects, virtual machines with their volumes.

use std::borrow::Cow;
use std::time::Duration;

use afloat_core::hci::task::RANCHER_NAMESPACE;
use afloat_core::hci::view::HciKind;
use afloat_operator::snapshot::hci::foreign_definitions;
use serde_json::{Value, json};

use afloat_scenes::{Binding, Ground, NEW_RELEASE, OLD_KUBERNETES, OLD_OS, OLD_RELEASE, SYSTEM, VmShape};

use super::people::requests;
use crate::object::Kind;
use crate::request::{Failure, Request, Resource, Verb};
use crate::view::View;

pub(super) const RANCHER: &str = "fleet-local";
const LONGHORN: &str = "longhorn-system";
/// Where virtual machines live.
pub(super) const VMS: &str = "default";

/// When a virtual machine is to run, as its `spec` says it.
pub fn run_of(shape: &VmShape) -> (&'static str, Value) {
    if shape.run_strategy.is_empty() {
        ("running", json!(true))
    } else {
        ("runStrategy", json!(shape.run_strategy))
    }
}

fn template(shape: &VmShape) -> Value {
    match shape.bound {
        None => json!({ "domain": { "devices": {} } }),
        Some(Binding::HostDevice) => {
            let device = json!({ "name": "gpu", "deviceName": "nvidia.com/T4" });
            json!({ "domain": { "devices": { "hostDevices": [device] } } })
        }
        Some(Binding::Selector) => {
            json!({ "domain": { "devices": {} }, "nodeSelector": { "kubernetes.io/hostname": shape.node } })
        }
        Some(Binding::ContainerDisk) => {
            let disk = json!({ "name": "cd", "containerDisk": { "image": "example.org/drivers" } });
            json!({ "domain": { "devices": {} }, "volumes": [disk] })
        }
    }
}

/// A cluster as it is laid.
pub(super) struct Laid<'a>(pub &'a Ground);

impl Laid<'_> {
    /// Makes everything; what is there already stays.
    pub async fn lay(&self, client: &kube::Client) -> Result<(), Failure> {
        for definition in afloat_api::crds::harvester().into_iter().chain(foreign_definitions()) {
            let place = at("apiextensions.k8s.io/v1", "customresourcedefinitions", false);
            make(client, &place, "", json!(definition)).await?;
        }
        for namespace in [
            SYSTEM,
            RANCHER,
            RANCHER_NAMESPACE,
            LONGHORN,
            VMS,
            "kube-system",
            "cattle-monitoring-system",
        ] {
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            make(client, &at("v1", "namespaces", false), "", body).await?;
        }
        for node in self.0.node_names() {
            self.lay_node(client, &node).await?;
        }
        self.lay_rancher(client).await?;
        for vm in &self.0.vms {
            lay_vm(client, vm, self.0.node_names().count()).await?;
        }
        let config = self.0.upgrade_config.as_ref().map(ToString::to_string);
        let settings = [
            ("server-version", Some(OLD_RELEASE.to_owned())),
            ("upgrade-config", config),
        ];
        for (name, value) in settings {
            let Some(value) = value else { continue };
            let body = json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": { "name": name }, "value": value,
            });
            make(client, &at("harvesterhci.io/v1beta1", "settings", false), "", body).await?;
        }
        let nobody = View::default();
        for request in self.0.more.iter().flat_map(|deed| requests(deed, &nobody)) {
            request.send(client).await?;
        }
        Ok(())
    }

    async fn lay_node(&self, client: &kube::Client, name: &str) -> Result<(), Failure> {
        make(client, &at("v1", "nodes", false), "", node(name)).await?;
        for request in is_up(name, !self.0.not_ready.contains(&name), (OLD_OS, OLD_KUBERNETES)) {
            request.send(client).await?;
        }
        make(
            client,
            &at("cluster.x-k8s.io/v1beta1", "machines", true),
            RANCHER,
            machine(name),
        )
        .await?;
        make(client, &at("v1", "secrets", true), RANCHER, plan(name)).await
    }

    /// What is changed for the time of an upgrade, and has to be as it was afterwards.
    async fn lay_settings(&self, client: &kube::Client) -> Result<(), Failure> {
        for (chart, version, namespace) in [
            ("harvester", "1.6.0", SYSTEM),
            ("harvester-crd", "1.6.0", SYSTEM),
            ("rancher-monitoring-crd", "105.1.1+up61.3.2", "cattle-monitoring-system"),
        ] {
            let body = json!({
                "apiVersion": "management.cattle.io/v3", "kind": "ManagedChart", "metadata": { "name": chart },
                "spec": {
                    "chart": chart, "repoName": "harvester-charts", "releaseName": chart, "defaultNamespace": namespace,
                    "paused": false, "version": version, "values": values(chart),
                },
            });
            make(client, &Kind::Hci(HciKind::Chart).resource(), RANCHER, body).await?;
        }
        for (addon, namespace, version) in [
            ("descheduler", "kube-system", "0.33.0"),
            ("rancher-monitoring", "cattle-monitoring-system", "105.1.1+up61.3.2"),
        ] {
            let body = json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": { "name": addon },
                "spec": {
                    "enabled": true, "version": version, "valuesContent": "replicas: 2\n", "chart": addon,
                    "repo": "http://harvester-cluster-repo.cattle-system.svc/charts",
                },
                "status": { "status": "AddonDeploySuccessful" },
            });
            make(client, &Kind::Hci(HciKind::Addon).resource(), namespace, body).await?;
        }
        for (server, image) in [
            ("rancher", "rancher/rancher:v2.11.3"),
            ("harvester-cluster-repo", "rancher/harvester-cluster-repo:v1.6.0"),
        ] {
            let labels = json!({ "app": server });
            let body = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": server },
                "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": server, "image": image }] },
                } },
            });
            make(client, &Kind::Deployment.resource(), RANCHER_NAMESPACE, body).await?;
        }
        let setting = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Setting",
            "metadata": { "name": "replica-replenishment-wait-interval" }, "value": "600",
        });
        make(
            client,
            &Kind::Hci(HciKind::LonghornSetting).resource(),
            LONGHORN,
            setting,
        )
        .await
    }

    async fn lay_rancher(&self, client: &kube::Client) -> Result<(), Failure> {
        let local = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": { "name": "local" },
            "spec": { "kubernetesVersion": OLD_KUBERNETES, "rkeConfig": {
                "provisionGeneration": 3, "upgradeStrategy": { "workerConcurrency": "3" },
            } },
        });
        make(client, &Kind::Hci(HciKind::Cluster).resource(), RANCHER, local).await?;
        let capi = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": { "name": "local" },
            "spec": {}, "status": { "phase": "Provisioned" },
        });
        make(client, &at("cluster.x-k8s.io/v1beta1", "clusters", true), RANCHER, capi).await?;
        self.lay_settings(client).await?;
        let version = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version", "metadata": { "name": NEW_RELEASE },
            "spec": { "isoURL": "https://example.com/harvester.iso" },
        });
        make(
            client,
            &at("harvesterhci.io/v1beta1", "versions", true),
            SYSTEM,
            version,
        )
        .await
    }
}

fn node(name: &str) -> Value {
    let labels = json!({ "kubernetes.io/hostname": name, "harvesterhci.io/managed": "true" });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } })
}

/// A node says with what it runs; a new one is tainted as not ready until somebody has seen that it is.
fn is_up(name: &str, ready: bool, (system, kubernetes): (&str, &str)) -> [Request; 2] {
    let ready = if ready { "True" } else { "False" };
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": ready, "reason": "Kubelet" }],
        "nodeInfo": node_info(system, kubernetes),
    } });
    let untainted = json!({ "spec": { "taints": null } });
    [(Some("status"), status), (None, untainted)].map(|(subresource, body)| {
        let mut request = Request::create_raw(at("v1", "nodes", false), "", body);
        request.verb = Verb::MergePatch;
        name.clone_into(&mut request.name);
        request.subresource = subresource;
        request
    })
}

fn machine(node: &str) -> Value {
    let machine = format!("custom-{node}");
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": { "name": machine },
        "spec": {
            "clusterName": "local", "bootstrap": { "dataSecretName": format!("{machine}-machine-bootstrap") },
            "infrastructureRef": { "apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine", "name": machine },
        },
        "status": { "phase": "Running", "nodeRef": { "name": node } },
    })
}

fn plan(node: &str) -> Value {
    let machine = format!("custom-{node}");
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("{machine}-machine-plan"), "labels": { "rke.cattle.io/machine-name": machine },
            "annotations": { super::rancher::NODE: node },
        },
        "type": "rke.cattle.io/machine-plan",
        "data": { "plan": "c2VjcmV0" },
    })
}

/// A machine that joins later, with its operating system and its Kubernetes.
pub(super) fn joining(name: &str, release: (&str, &str)) -> Vec<Request> {
    let (body, kind) = (machine(name), Kind::Hci(HciKind::Machine));
    let mut says = Request::create_raw(kind.resource(), RANCHER, json!({ "status": body["status"] }));
    says.verb = Verb::MergePatch;
    says.name = format!("custom-{name}");
    says.subresource = Some("status");
    let [status, untainted] = is_up(name, true, release);
    vec![
        Request::create(kind, RANCHER, body),
        says,
        Request::create(Kind::Hci(HciKind::Plan), RANCHER, plan(name)),
        Request::create(Kind::Node, "", node(name)),
        status,
        untainted,
    ]
}

/// What a node says about itself, whole: the API server takes no part of it.
pub(super) fn node_info(os: &str, kubelet: &str) -> Value {
    json!({
        "architecture": "amd64", "operatingSystem": "linux", "bootID": "b", "machineID": "m", "systemUUID": "s",
        "kernelVersion": "6.4.0", "osImage": os, "containerRuntimeVersion": "containerd://2.1.4-k3s1",
        "kubeletVersion": kubelet, "kubeProxyVersion": "",
    })
}

async fn lay_vm(client: &kube::Client, vm: &VmShape, hosts: usize) -> Result<(), Failure> {
    let template = template(vm);
    let (key, value) = run_of(vm);
    let body = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": vm.name },
        "spec": { key: value, "template": { "spec": template } },
    });
    make(client, &Kind::Hci(HciKind::Vm).resource(), VMS, body).await?;
    let instance = super::kubevirt::instance(&vm.name, &vm.node, &template);
    make(client, &Kind::Hci(HciKind::Vmi).resource(), VMS, instance).await?;
    let volume = super::longhorn::volume(&vm.name, &vm.node);
    make(client, &Kind::Hci(HciKind::Volume).resource(), LONGHORN, volume).await?;
    let engine = super::longhorn::engine(&vm.name, &vm.node, hosts);
    make(client, &Kind::Hci(HciKind::Engine).resource(), LONGHORN, engine).await
}

fn at(api_version: &'static str, plural: &'static str, namespaced: bool) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        plural: Cow::Borrowed(plural),
        namespaced,
    }
}

/// A real API server serves a new definition a moment after it took it.
async fn make(client: &kube::Client, resource: &Resource, namespace: &str, body: Value) -> Result<(), Failure> {
    let said = body["status"].clone();
    let mut request = Request::create_raw(resource.clone(), namespace, body);
    let mut tries = 0..100;
    loop {
        match request.send(client).await {
            Err(failure) if failure.code == 404 && tries.next().is_some() => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(failure) if failure.reason != "AlreadyExists" => return Err(failure),
            Err(_) => return Ok(()),
            Ok(_) if said.is_null() => return Ok(()),
            Ok(_) => break,
        }
    }
    // Where the owner of a kind keeps its status apart, what is said when an object is made is not heard.
    let name = request.body.as_ref().and_then(|body| body["metadata"]["name"].as_str());
    request.name = name.unwrap_or_default().to_owned();
    request.verb = Verb::MergePatch;
    request.subresource = Some("status");
    request.body = Some(json!({ "status": said }));
    match request.send(client).await {
        Err(failure) if failure.code != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// What people gave a chart, and keep.
fn values(chart: &str) -> Value {
    if chart == "harvester" {
        let methods = json!({ "workloadUpdateMethods": ["LiveMigrate"] });
        return json!({ "replicas": 3, "kubevirt": { "spec": { "workloadUpdateStrategy": methods } } });
    }
    json!({})
}
