//! Foreign objects as their projects really write them, cut to what matters: the fields we read are found, the others do no harm,
//! and nothing of what may be absent is demanded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use afloat_api::foreign::{capi, kubevirt, longhorn, rancher};
use k8s_openapi::api::core::v1::Secret;
use kube_core::{NamespaceResourceScope, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn sample<T: DeserializeOwned>(file: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(file);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn cluster_api_objects_tell_version_node_and_owner() {
    let machine: capi::Machine = sample("capi-machine.yaml");
    assert_eq!(machine.spec.version.as_deref(), Some("v1.36.1"));
    assert_eq!(machine.spec.bootstrap.config_ref.unwrap().kind, "KubeadmConfig");
    assert_eq!(machine.status.node_ref.unwrap().name, "shop-cp-x7k2p");
    assert_eq!(machine.status.node_info.unwrap().kubelet_version, "v1.35.4");
    let updating = machine
        .status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Updating")
        .unwrap();
    assert_eq!(updating.reason, "InPlaceUpdating");

    let control_plane: capi::KubeadmControlPlane = sample("capi-kubeadmcontrolplane.yaml");
    assert_eq!(
        (control_plane.spec.replicas, control_plane.spec.version.as_str()),
        (Some(3), "v1.36.1")
    );
    let cluster = control_plane.spec.kubeadm_config_spec.cluster_configuration.unwrap();
    assert_eq!(
        cluster.etcd.unwrap().local.unwrap().image_tag.as_deref(),
        Some("3.6.8-0")
    );
    assert_eq!(cluster.feature_gates.get("ControlPlaneKubeletLocalMode"), Some(&true));
    assert_eq!(control_plane.status.observed_generation, Some(7));

    let deployment: capi::MachineDeployment = sample("capi-machinedeployment.yaml");
    assert_eq!(deployment.spec.template.spec.version.as_deref(), Some("v1.36.1"));
    let rolling = deployment
        .spec
        .rollout
        .unwrap()
        .strategy
        .unwrap()
        .rolling_update
        .unwrap();
    assert_eq!(serde_json::to_value(rolling.max_unavailable).unwrap(), json!("25%"));

    let cluster: capi::Cluster = sample("capi-cluster.yaml");
    assert_eq!(cluster.spec.control_plane_ref.unwrap().name, "shop-cp");
    assert_eq!(cluster.spec.paused, Some(false));
    assert_eq!(cluster.spec.control_plane_endpoint.unwrap().port, 6443);
}

#[test]
fn rancher_cluster_tells_version_and_hooks() {
    let cluster: rancher::Cluster = sample("rancher-cluster.yaml");
    assert_eq!(cluster.spec.kubernetes_version, "v1.35.4+rke2r1");
    let config = cluster.spec.rke_config.unwrap();
    assert_eq!(config.provision_generation, 3);
    assert_eq!(
        config.upgrade_strategy.control_plane_drain_options.pre_drain_hooks[0].annotation,
        "harvesterhci.io/pre-hook"
    );
    assert!(config.upgrade_strategy.worker_drain_options.enabled);
    assert_eq!(cluster.status.conditions[0].kind, "Ready");
    assert_eq!(<rancher::RKEControlPlane as Resource>::kind(&()), "RKEControlPlane");
}

fn plan_secret(annotations: &Value) -> Secret {
    serde_json::from_value(json!({
        "type": "rke.cattle.io/machine-plan",
        "metadata": {"name": "custom-1-machine-plan", "labels": {"rke.cattle.io/machine-name": "custom-1"}, "annotations": annotations},
        "data": {"plan": "c2VjcmV0"},
    }))
    .unwrap()
}

#[test]
fn h45_a_plan_secret_asks_until_its_value_is_copied() {
    let cases = [
        (json!({}), false, false),
        (json!({"rke.cattle.io/pre-drain": "a"}), true, false),
        (
            json!({"rke.cattle.io/pre-drain": "a", "harvesterhci.io/pre-hook": "old"}),
            true,
            false,
        ),
        (
            json!({"rke.cattle.io/pre-drain": "a", "harvesterhci.io/pre-hook": "a"}),
            false,
            false,
        ),
        (
            json!({"rke.cattle.io/post-drain": "a", "rke.cattle.io/pre-drain": ""}),
            false,
            true,
        ),
        (
            json!({"rke.cattle.io/post-drain": "a", "harvesterhci.io/post-hook": "a"}),
            false,
            false,
        ),
    ];
    for (annotations, before, after) in cases {
        let plan = rancher::MachinePlan::from_secret(&plan_secret(&annotations)).unwrap();
        assert_eq!(plan.machine, "custom-1");
        assert_eq!(
            (plan.asks_pre_drain(), plan.asks_post_drain()),
            (before, after),
            "{annotations}"
        );
        assert!(!format!("{plan:?}").contains("c2VjcmV0"));
    }
    let other = Secret {
        type_: Some("Opaque".to_owned()),
        ..plan_secret(&json!({}))
    };
    assert_eq!(rancher::MachinePlan::from_secret(&other), None);
}

#[test]
fn kubevirt_instances_tell_what_ties_them_to_a_node() {
    let instance: kubevirt::VirtualMachineInstance = sample("kubevirt-vmi.yaml");
    assert_eq!(instance.status.node_name, "node2");
    assert_eq!(
        instance
            .spec
            .node_selector
            .get("kubernetes.io/hostname")
            .map(String::as_str),
        Some("node2")
    );
    assert_eq!(instance.spec.domain.devices.host_devices.len(), 1);
    assert_eq!(
        instance.status.condition("LiveMigratable").unwrap().reason.as_deref(),
        Some("HostDeviceNotLiveMigratable")
    );
    assert_eq!(instance.status.condition("Paused"), None);

    let machine: kubevirt::VirtualMachine = sample("kubevirt-vm.yaml");
    assert_eq!(
        (
            machine.spec.run_strategy.as_deref(),
            machine.status.printable_status.as_str()
        ),
        (Some("RerunOnFailure"), "Running")
    );

    let migration: kubevirt::VirtualMachineInstanceMigration = sample("kubevirt-vmim.yaml");
    let state = migration.status.migration_state.unwrap();
    assert_eq!(
        (
            migration.spec.vmi_name.as_str(),
            state.target_node.as_str(),
            state.completed
        ),
        ("db", "node3", false)
    );
    assert!(state.start_timestamp.is_some() && state.end_timestamp.is_none());
}

#[test]
fn longhorn_volumes_tell_robustness_and_where_their_replicas_are() {
    let volume: longhorn::Volume = sample("longhorn-volume.yaml");
    assert_eq!(
        (volume.status.state.as_str(), volume.status.robustness.as_str()),
        ("attached", "degraded")
    );
    assert_eq!(
        (volume.spec.number_of_replicas, volume.spec.node_id.as_str()),
        (3, "node1")
    );
    let claim = serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "db-data"}})).unwrap();
    assert!(volume.status.kubernetes_status.serves(&claim));

    let engine: longhorn::Engine = sample("longhorn-engine.yaml");
    assert_eq!(
        engine
            .status
            .replica_mode_map
            .unwrap()
            .get("pvc-1-r-2")
            .map(String::as_str),
        Some("WO")
    );
    let replica: longhorn::Replica = sample("longhorn-replica.yaml");
    assert_eq!(
        (replica.spec.volume_name.as_str(), replica.spec.failed_at.is_empty()),
        ("pvc-1", false)
    );
    let node: longhorn::Node = sample("longhorn-node.yaml");
    assert!(node.spec.allow_scheduling && !node.spec.eviction_requested);
    assert_eq!(node.status.conditions[0].kind, "Ready");
}

fn reads_empty<T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned>() {
    for object in [
        json!({}),
        json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}),
        json!({"spec": {"unknown": 1}}),
    ] {
        let read = serde_json::from_value::<T>(object.clone());
        assert!(
            read.is_ok(),
            "{} does not read {object}: {:?}",
            T::kind(&()),
            read.err()
        );
    }
}

#[test]
fn an_object_with_nothing_in_it_breaks_no_list() {
    reads_empty::<capi::Cluster>();
    reads_empty::<capi::Machine>();
    reads_empty::<capi::MachineSet>();
    reads_empty::<capi::MachineDeployment>();
    reads_empty::<capi::KubeadmControlPlane>();
    reads_empty::<capi::KubeadmConfig>();
    reads_empty::<capi::MachineHealthCheck>();
    reads_empty::<rancher::Cluster>();
    reads_empty::<rancher::RKEControlPlane>();
    reads_empty::<kubevirt::VirtualMachine>();
    reads_empty::<kubevirt::VirtualMachineInstance>();
    reads_empty::<kubevirt::VirtualMachineInstanceMigration>();
    reads_empty::<longhorn::Volume>();
    reads_empty::<longhorn::Engine>();
    reads_empty::<longhorn::Replica>();
    reads_empty::<longhorn::Node>();
}
