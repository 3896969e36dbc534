//! The cluster as it is before anybody upgrades it, put into the storage at once: machines, Rancher's objects, virtual machines with their
//! volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE, MachinePlan};
use afloat_api::harvester::{Version, VersionSpec};
use afloat_core::hci::task::RANCHER_NAMESPACE;
use afloat_core::hci::view::{Addon, CapiCluster, Chart, HciObject, LocalCluster, Machine, Server, Vm};
use afloat_core::view::{Key, Node, NodeName, Ready};
use afloat_scenes::{NEW_RELEASE, OLD_KUBERNETES, OLD_OS, OLD_RELEASE, SYSTEM};
use serde_json::json;

use super::ends::run_of;
use super::kubevirt::instance;
use super::longhorn::NAMESPACE as LONGHORN;
use super::people::SHOP;
use super::rancher::plan_key;
use super::world::World;
use crate::store::Writer;
use crate::time::stamp;

const SETUP: Writer = Writer::Setup;

impl World {
    /// Makes everything.
    pub fn lay(&mut self) {
        let ground = self.script.ground.clone();
        for node in ground.node_names() {
            let ready = !ground.not_ready.contains(&node.as_str());
            self.lay_node(SETUP, &node, ready, (OLD_OS, OLD_KUBERNETES));
        }
        self.lay_rancher();
        self.lay_settings();
        for vm in &ground.vms {
            let (key, node) = (Key::new(SHOP, &vm.name), NodeName::from(vm.node.as_str()));
            self.shapes.insert(key.clone(), vm.clone());
            let machine = Vm {
                status: Arc::from("Running"),
                run: run_of(vm),
                ..Vm::default()
            };
            self.make(SETUP, (SHOP, &vm.name), machine, HciObject::Vm);
            self.make(SETUP, (SHOP, &vm.name), instance(Some(vm), &node), HciObject::Vmi);
            self.lay_volume(&vm.name, &node);
        }
        let runs: Arc<str> = Arc::from(OLD_RELEASE);
        self.make(SETUP, ("", "server-version"), runs, HciObject::Setting);
        if let Some(config) = &ground.upgrade_config {
            let value: Arc<str> = Arc::from(config.to_string());
            self.make(SETUP, ("", "upgrade-config"), value, HciObject::Setting);
        }
        for deed in &ground.more {
            self.does(deed);
        }
    }

    /// A machine of the cluster, with its operating system and its Kubernetes.
    pub(super) fn lay_node(&mut self, writer: Writer, name: &str, ready: bool, (system, kubernetes): (&str, &str)) {
        let labels = BTreeMap::from([
            (Arc::from("kubernetes.io/hostname"), Arc::from(name)),
            (Arc::from("harvesterhci.io/managed"), Arc::from("true")),
        ]);
        let node = Node {
            name: NodeName::from(name),
            uid: self.store.base.new_uid(),
            created_at: stamp(self.now),
            labels: Arc::new(labels),
            ready: Ready {
                ready,
                since: stamp(self.now),
            },
            kubelet_version: kubernetes.parse().ok(),
            os_image: Arc::from(system),
            ..Node::default()
        };
        self.machines
            .insert(node.name.clone(), super::machines::Machine::default());
        self.store.base.put(writer, "create", node);
        self.settle();
        let machine = format!("custom-{name}");
        let running = Machine {
            phase: Arc::from("Running"),
            node: Some(NodeName::from(name)),
        };
        self.make(writer, (LOCAL_NAMESPACE, &machine), running, HciObject::Machine);
        let plan = MachinePlan {
            machine,
            ..MachinePlan::default()
        };
        let key = plan_key(name);
        self.make(writer, (LOCAL_NAMESPACE, &key.name), plan, HciObject::Plan);
    }

    fn lay_rancher(&mut self) {
        let local = LocalCluster {
            kubernetes_version: Arc::from(OLD_KUBERNETES),
            provision_generation: 3,
            strategy: json!({ "workerConcurrency": "3" }),
            ..LocalCluster::default()
        };
        self.make(SETUP, (LOCAL_NAMESPACE, LOCAL_CLUSTER), local, HciObject::Cluster);
        let capi = CapiCluster {
            phase: Arc::from("Provisioned"),
            paused: false,
        };
        self.make(SETUP, (LOCAL_NAMESPACE, LOCAL_CLUSTER), capi, HciObject::CapiCluster);
        let spec = VersionSpec {
            iso_url: "https://example.com/harvester.iso".to_owned(),
            ..VersionSpec::default()
        };
        let version = Version::new(NEW_RELEASE, spec);
        self.make(SETUP, (SYSTEM, NEW_RELEASE), version, HciObject::Version);
    }

    /// What is changed for the time of an upgrade, and has to be as it was afterwards.
    fn lay_settings(&mut self) {
        for (name, version, methods) in [
            ("harvester", "1.6.0", "[\"LiveMigrate\"]"),
            ("harvester-crd", "1.6.0", "null"),
            ("rancher-monitoring-crd", "105.1.1+up61.3.2", "null"),
        ] {
            let chart = Chart {
                version: Arc::from(version),
                update_methods: Arc::from(methods),
                ..Chart::default()
            };
            self.make(SETUP, (LOCAL_NAMESPACE, name), chart, HciObject::Chart);
        }
        for (name, namespace, version) in [
            ("descheduler", "kube-system", "0.33.0"),
            ("rancher-monitoring", "cattle-monitoring-system", "105.1.1+up61.3.2"),
        ] {
            let addon = Addon {
                enabled: true,
                version: Arc::from(version),
                status: Arc::from("AddonDeploySuccessful"),
            };
            self.make(SETUP, (namespace, name), addon, HciObject::Addon);
        }
        for (name, image) in [
            ("rancher", "rancher/rancher:v2.11.3"),
            ("harvester-cluster-repo", "rancher/harvester-cluster-repo:v1.6.0"),
        ] {
            let server = Server {
                container: Arc::from(name),
                image: Arc::from(image),
                rolled_out: true,
            };
            self.make(SETUP, (RANCHER_NAMESPACE, name), server, HciObject::Server);
        }
        let setting: Arc<str> = Arc::from("600");
        let name = "replica-replenishment-wait-interval";
        self.make(SETUP, (LONGHORN, name), setting, HciObject::LonghornSetting);
    }
}
