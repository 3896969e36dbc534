//! Kinds as their owners define them, on a real API server: what their schemas do not know is refused, be it written by Afloat or by whoever plays
//! Rancher, KubeVirt or Longhorn. Without asking for that a server drops it and says nothing.

use std::process::Command;

use afloat_core::hci::view::HciKind;
use afloat_operator::snapshot::hci::{foreign_definitions, names};
use afloat_realparts::{Components, ControlPlane, Definitions};
use http::{Method, Request, Uri};
use kube::client::{Body, Client, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tower::util::MapRequestLayer;

use super::cluster::Cluster;

/// Owners that have their definitions as files, and those that have them as code.
const FILES: [&str; 3] = ["longhorn", "fleet", "cluster-api"];
const PRINTED: [&str; 2] = ["kubevirt-crds", "rancher-crds"];

/// What is read of kinds that are not Afloat's, in the words of `snapshot::hci`. A field that its owner does not have would be missing for ever,
/// and nobody would be told.
const READ: &[(HciKind, &[&str])] = &[
    (HciKind::Setting, &["value", "default"]),
    (HciKind::UpgradeLog, &["spec.upgradeName", "status.conditions"]),
    (HciKind::Image, &["status.conditions"]),
    (HciKind::Addon, &["spec.enabled", "spec.version", "status.status"]),
    (HciKind::Backup, &["spec.type", "status.readyToUse", "status.error"]),
    (HciKind::Schedule, &["spec.suspend", "status.suspended"]),
    (HciKind::Restore, &["status.complete", "status.conditions"]),
    (
        HciKind::Cluster,
        &[
            "spec.kubernetesVersion",
            "spec.rkeConfig.provisionGeneration",
            "spec.rkeConfig.upgradeStrategy",
            "status.conditions",
        ],
    ),
    (HciKind::CapiCluster, &["spec.paused", "status.phase"]),
    (HciKind::Machine, &["status.phase", "status.nodeRef.name"]),
    (
        HciKind::Chart,
        &["spec.paused", "spec.version", "spec.values", "status.conditions"],
    ),
    (
        HciKind::Vm,
        &[
            "spec.running",
            "spec.runStrategy",
            "spec.template.spec.volumes",
            "status.printableStatus",
            "status.volumeRequests",
        ],
    ),
    (
        HciKind::Vmi,
        &[
            "spec.nodeSelector",
            "spec.affinity",
            "spec.domain.devices.hostDevices",
            "spec.domain.devices.gpus",
            "spec.volumes",
            "status.phase",
            "status.nodeName",
            "status.conditions",
        ],
    ),
    (
        HciKind::Migration,
        &[
            "spec.vmiName",
            "status.phase",
            "status.migrationState.sourceNode",
            "status.migrationState.failureReason",
            "status.migrationState.endTimestamp",
        ],
    ),
    (
        HciKind::Volume,
        &[
            "spec.nodeID",
            "spec.numberOfReplicas",
            "status.state",
            "status.robustness",
            "status.currentNodeID",
            "status.kubernetesStatus.pvcName",
            "status.kubernetesStatus.namespace",
            "status.kubernetesStatus.workloadsStatus",
        ],
    ),
    (
        HciKind::Engine,
        &[
            "spec.nodeID",
            "spec.volumeName",
            "status.currentState",
            "status.replicaModeMap",
        ],
    ),
    (HciKind::Attachment, &["spec.volume", "spec.attachmentTickets"]),
    (HciKind::LonghornSetting, &["value"]),
];

/// Fails where something is read that the owner of a kind does not know.
pub fn assert_readable(cluster: &Cluster) {
    for (kind, paths) in READ {
        let (group, version, _, plural) = names(*kind);
        let definition = cluster.get(&format!("crd {plural}.{group}")).unwrap();
        let mut versions = definition["spec"]["versions"].as_array().unwrap().iter();
        let served = versions.find(|one| one["name"] == version && one["served"] == true);
        assert!(served.is_some(), "{plural}.{group} has no {version}");
        let schema = &served.unwrap()["schema"];
        for path in *paths {
            let mut fields = path.split('.');
            let field = fields.try_fold(&schema["openAPIV3Schema"], |at, name| {
                Some(&at["properties"][name]).filter(|field| !field.is_null())
            });
            assert!(field.is_some(), "{plural}.{group} {version} knows no {path}");
        }
    }
}

/// Installs every kind that Harvester's own chart does not bring.
pub fn install(cluster: &Cluster) {
    for name in FILES {
        let folder = Definitions::locate(name).unwrap();
        let apply = format!("apply --server-side -f {}", folder.display());
        cluster.kubectl(&apply, "").unwrap();
    }
    let paths = Components::locate_some(&PRINTED).unwrap();
    for program in PRINTED {
        let output = Command::new(paths.of(program).unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        cluster.kubectl("apply --server-side -f -", &printed).unwrap();
    }
}

/// Fails where a kind of the cluster is left to the definitions that Afloat brings along.
pub fn assert_complete(cluster: &Cluster) {
    let there = cluster.get("crds").unwrap();
    let there: Vec<&Value> = there["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["metadata"]["name"])
        .collect();
    for definition in afloat_api::crds::harvester().into_iter().chain(foreign_definitions()) {
        let name = definition.metadata.name.unwrap();
        assert!(there.iter().any(|one| **one == *name), "nobody brought {name}");
    }
}

/// A client whose every write is refused where a schema does not know a part of it.
pub async fn strict_client(plane: &ControlPlane) -> Client {
    let config = Kubeconfig::read_from(plane.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    let layer = MapRequestLayer::new(strictly as fn(Request<Body>) -> Request<Body>);
    ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
}

/// Fails where such a client is not refused what its owner does not know.
pub async fn assert_strict(client: &Client) {
    let body = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": { "name": "odd" }, "spec": { "nodeIDs": ["a"] },
    });
    let request = Request::post("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes");
    let request = request.header("Content-Type", "application/json");
    let refused = client
        .request::<Value>(request.body(body.to_string().into_bytes()).unwrap())
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("unknown field \"spec.nodeIDs\""), "{refused}");
}

fn strictly(mut request: Request<Body>) -> Request<Body> {
    if [Method::POST, Method::PUT, Method::PATCH].contains(request.method()) {
        let uri = request.uri().to_string();
        let and = if uri.contains('?') { '&' } else { '?' };
        *request.uri_mut() = format!("{uri}{and}fieldValidation=Strict").parse::<Uri>().unwrap();
    }
    request
}
