//! The objects that upgrades of Harvester make: Jobs, the repository, the image, the list of logs. Every one carries the labels of the front door
//! and the uid of its upgrade. Which action makes which is in `hci`.

use std::collections::BTreeMap;

use afloat_api::{annotations, harvester, labels};
use afloat_core::hci::action::{HciJob, JobKind, Repo};
use afloat_core::view::{Key, Target};
use serde_json::{Value, json};

use super::hci::with;

/// How long a Job that has ended is kept, as upstream does.
const KEPT_SECONDS: i64 = 604_800;
/// How often the pod of a Job is tried.
const RETRIES: i64 = 3;
const PORT: i64 = 8080;
/// User and group of what CDI imports: it leaves disk.img readable to them alone, and a root without capabilities is not among them.
const IMPORTER: i64 = 107;
/// The longest value a label may have.
const LONGEST_LABEL: usize = 63;

pub(super) fn log(key: &Key, upgrade: &Target) -> Value {
    let body = object("harvesterhci.io/v1beta1", "UpgradeLog", key, upgrade, None);
    with(body, json!({ "spec": { "upgradeName": &*upgrade.key.name } }))
}

/// The beginning of every object that belongs to an upgrade.
pub(super) fn object(api_version: &str, kind: &str, key: &Key, upgrade: &Target, component: Option<&str>) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "labels": labels_of(upgrade, component),
            "ownerReferences": [{
                "apiVersion": format!("{}/{}", harvester::GROUP, harvester::VERSION),
                "kind": "Upgrade",
                "name": &*upgrade.key.name,
                "uid": upgrade.uid.as_str(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
    })
}

fn labels_of(upgrade: &Target, component: Option<&str>) -> BTreeMap<&'static str, String> {
    let mut all = BTreeMap::from([
        (labels::HARVESTER_UPGRADE, upgrade.key.name.to_string()),
        (labels::UPGRADE_UID, upgrade.uid.to_string()),
    ]);
    if let Some(component) = component {
        all.insert(labels::HARVESTER_UPGRADE_COMPONENT, component.to_owned());
    }
    all
}

pub(super) fn image(key: &Key, upgrade: &Target, url: &str, checksum: &str) -> Value {
    let mut body = object("harvesterhci.io/v1beta1", "VirtualMachineImage", key, upgrade, None);
    body["metadata"]["annotations"] = json!({ "harvesterhci.io/os-upgrade-image": "True" });
    let spec = json!({
        "displayName": &*key.name,
        "sourceType": "download",
        "url": url,
        "checksum": checksum,
        "retry": 3,
        "backend": "cdi",
        "targetStorageClassName": "longhorn-static",
    });
    with(body, json!({ "spec": spec }))
}

pub(super) fn service(key: &Key, upgrade: &Target) -> Value {
    let body = object("v1", "Service", key, upgrade, Some("repo"));
    let selector = labels_of(upgrade, Some("repo"));
    with(
        body,
        json!({ "spec": { "selector": selector, "ports": [{ "name": "http", "port": 80, "targetPort": PORT }] } }),
    )
}

/// The repository: our own server on the ISO, which needs no mount and no privilege.
pub(super) fn repo(repo: &Repo) -> Value {
    let body = object("apps/v1", "Deployment", &repo.key, &repo.upgrade, Some("repo"));
    let selector = labels_of(&repo.upgrade, Some("repo"));
    let probe =
        json!({ "httpGet": { "path": "/harvester-iso/harvester-release.yaml", "port": PORT }, "periodSeconds": 10 });
    let container = json!({
        "name": "repo",
        "image": &*repo.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["repo", "serve", "/iso/disk.img", "--listen", format!("0.0.0.0:{PORT}")],
        "ports": [{ "containerPort": PORT }],
        "readinessProbe": probe,
        "livenessProbe": { "httpGet": { "path": "/healthz", "port": PORT }, "periodSeconds": 10, "failureThreshold": 6 },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{ "name": "iso", "mountPath": "/iso", "readOnly": true }],
    });
    let apart = json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": selector } },
    }] } });
    let spec = json!({
        "replicas": repo.replicas,
        "selector": { "matchLabels": selector },
        "template": {
            "metadata": { "labels": selector },
            "spec": {
                "affinity": apart,
                "automountServiceAccountToken": false,
                "containers": [container],
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": IMPORTER,
                    "runAsGroup": IMPORTER,
                    "fsGroup": IMPORTER,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "volumes": [{ "name": "iso", "persistentVolumeClaim": { "claimName": &*repo.claim, "readOnly": true } }],
            },
        },
    });
    with(body, json!({ "spec": spec }))
}

pub(super) fn job(job: &HciJob) -> Value {
    let component = job.kind.component();
    let mut body = object("batch/v1", "Job", &job.key, &job.upgrade, Some(component.into()));
    let mut labels = labels_of(&job.upgrade, Some(component.into()));
    labels.insert(labels::HARVESTER_UPGRADE_JOB_TYPE, job.kind.word().to_owned());
    if let Some(node) = job.node.as_ref().filter(|node| node.as_str().len() <= LONGEST_LABEL) {
        labels.insert(labels::HARVESTER_NODE, node.to_string());
    }
    body["metadata"]["labels"] = json!(labels);
    let spec = json!({
        "backoffLimit": RETRIES,
        "activeDeadlineSeconds": job.kind.limit(),
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": { "metadata": { "labels": labels }, "spec": pod(job) },
    });
    with(body, json!({ "spec": spec }))
}

fn pod(job: &HciJob) -> Value {
    let plain = |name: &str, value: &str| json!({ "name": name, "value": value });
    let node = job.node.as_ref().map_or("", |node| node.as_str());
    let env = json!([
        plain("HARVESTER_UPGRADE_NAME", &job.upgrade.key.name),
        plain("HARVESTER_UPGRADE_NAMESPACE", &job.upgrade.key.namespace),
        plain("HARVESTER_UPGRADE_NODE_NAME", node),
        { "name": "HARVESTER_UPGRADE_POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        plain("AFLOAT_HCI_REPO", &job.repo),
        plain("AFLOAT_HCI_PREVIOUS", &job.previous),
    ]);
    let mut container = json!({
        "name": "apply",
        "image": &*job.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["hci", job.kind.word()],
        "env": env,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "serviceAccountName": "harvester",
        "tolerations": tolerations(),
    });
    let on_a_host = !node.is_empty() || job.kind == JobKind::ApplyManifests;
    if on_a_host {
        container["securityContext"] = json!({ "privileged": true });
        container["volumeMounts"] =
            json!([{ "name": "host-root", "mountPath": "/host", "mountPropagation": "HostToContainer" }]);
        spec["volumes"] = json!([{ "name": "host-root", "hostPath": { "path": "/", "type": "Directory" } }]);
        for switch in ["hostNetwork", "hostPID", "hostIPC"] {
            spec[switch] = json!(true);
        }
        spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        let here = match &job.node {
            Some(_) => json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }),
            // Where helm finds an account.
            None => json!({ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists" }),
        };
        spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [here] }],
        } } });
    }
    spec["containers"] = json!([container]);
    spec
}

/// Those of upstream, and of a node that is not ready: it is upgraded all the same.
fn tolerations() -> Value {
    json!([
        { "key": "node.kubernetes.io/unschedulable", "operator": "Exists" },
        { "key": "node.kubernetes.io/not-ready", "operator": "Exists" },
        { "key": "node.kubernetes.io/unreachable", "operator": "Exists" },
        { "key": "node-role.kubernetes.io/control-plane", "operator": "Exists" },
        { "key": "node-role.kubernetes.io/etcd", "operator": "Exists" },
        { "key": "CriticalAddonsOnly", "operator": "Exists" },
        { "key": annotations::KUBEVIRT_DRAIN_TAINT, "operator": "Exists" },
        { "key": "kubernetes.io/arch", "operator": "Exists" },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_core::hci::action::HciAction;
    use afloat_core::view::{NodeName, Revision, Uid};

    use crate::execute::hci::of;

    fn target(name: &str) -> Target {
        Target {
            key: Key::new("harvester-system", name),
            uid: Uid::from("u-1"),
            revision: Revision(7),
        }
    }

    #[test]
    fn h44_h46_a_job_carries_the_name_the_labels_and_the_task_of_the_document() {
        let node = NodeName::from("nogal01");
        let wanted = HciJob {
            key: Key::new(
                "harvester-system",
                &JobKind::PreDrain.name("hvst-upgrade-bcq9d", Some(&node)),
            ),
            kind: JobKind::PreDrain,
            node: Some(node),
            upgrade: target("hvst-upgrade-bcq9d"),
            image: "afloat:test".into(),
            repo: "http://upgrade-repo-hvst-upgrade-bcq9d.harvester-system".into(),
            previous: "v1.6.0".into(),
        };
        let request = of(&HciAction::CreateJob(Box::new(wanted)));
        assert_eq!(request.path, "/apis/batch/v1/namespaces/harvester-system/jobs");
        let job = request.body;
        assert_eq!(job["metadata"]["name"], "hvst-upgrade-bcq9d-pre-drain-nogal01");
        for (key, value) in [
            ("harvesterhci.io/node", "nogal01"),
            ("harvesterhci.io/upgrade", "hvst-upgrade-bcq9d"),
            ("harvesterhci.io/upgradeComponent", "node"),
            ("harvesterhci.io/upgradeJobType", "pre-drain"),
        ] {
            assert_eq!(job["metadata"]["labels"][key], value);
            assert_eq!(job["spec"]["template"]["metadata"]["labels"][key], value);
        }
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["args"], json!(["hci", "pre-drain"]));
        assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "u-1");
    }

    #[test]
    fn h21_h51_the_repository_serves_the_image_by_our_own_command() {
        let wanted = Repo {
            key: Key::new("harvester-system", "upgrade-repo-hvst-upgrade-bcq9d"),
            upgrade: target("hvst-upgrade-bcq9d"),
            image: "afloat:test".into(),
            claim: "hvst-upgrade-bcq9d".into(),
            replicas: 2,
        };
        let deployment = repo(&wanted);
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        // The command line's own tests read the same words.
        let words = json!(["repo", "serve", "/iso/disk.img", "--listen", "0.0.0.0:8080"]);
        assert_eq!(container["args"], words);
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        let release = "/harvester-iso/harvester-release.yaml";
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], release);
        assert_eq!(pod["securityContext"]["runAsUser"], 107);
        assert_eq!(
            pod["volumes"][0]["persistentVolumeClaim"]["claimName"],
            "hvst-upgrade-bcq9d"
        );
        let service = service(&wanted.key, &wanted.upgrade);
        assert_eq!(
            service["spec"]["selector"],
            deployment["spec"]["template"]["metadata"]["labels"]
        );
        assert_eq!(
            service["spec"]["ports"][0]["targetPort"],
            container["ports"][0]["containerPort"]
        );
    }
}
