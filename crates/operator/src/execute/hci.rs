//! The actions of upgrades of Harvester as requests, and the objects they make: Jobs, the repository, the image, the list of virtual
//! machines. Every object carries the labels of the front door and the uid of its upgrade.

use std::collections::BTreeMap;

use afloat_api::harvester::Upgrade;
use afloat_api::{annotations, harvester, labels};
use afloat_core::hci::action::{ClusterChange, HciAction, HciJob, Hook, NodeMark, Repo};
use afloat_core::hci::view::HciKind;
use afloat_core::view::{Key, TaintEffect, Target, Uid};
use serde_json::{Value, json};

use super::request::{JSON_PATCH, Request, create, delete, merge};
use super::task;
use crate::snapshot::Kind;
use crate::snapshot::hci::{ROLLED_OUT_FOR, STRATEGY_BEFORE};

/// How long a Job that has ended is kept, as upstream does.
const KEPT_SECONDS: i64 = 604_800;
/// How often the pod of a Job is tried.
const RETRIES: i64 = 3;
const PORT: i64 = 8080;
/// User and group of what CDI imports: it leaves disk.img readable to them alone, and a root without capabilities is not among them.
const IMPORTER: i64 = 107;
/// The longest value a label may have.
const LONGEST_LABEL: usize = 63;

/// What an action asks of the API server.
pub fn of(action: &HciAction) -> Request {
    use HciKind as Is;
    let change = |kind: HciKind, target: &Target, body: Value| merge(Kind::Hci(kind), target, body);
    let make = |kind: HciKind, key: &Key, body: Value| create(Kind::Hci(kind), key.clone(), body);
    match action {
        HciAction::WriteUpgrade { target, before, after } => write_upgrade(target, before, after),
        HciAction::NotLatest { target } => change(Is::Upgrade, target, label(labels::HARVESTER_LATEST_UPGRADE, None)),
        HciAction::MarkNode { node, mark, value } => {
            merge(Kind::Node, node, annotation(marked(*mark), value.as_deref()))
        }
        HciAction::Untaint { node, keep } => {
            let keep: Vec<Value> = keep.iter().map(taint).collect();
            merge(Kind::Node, node, spec(&json!({ "taints": keep })))
        }
        HciAction::CreateJob(wanted) => make(Is::Job, &wanted.key, job(wanted)),
        HciAction::DeleteJob { job } => with_children(delete(Kind::Hci(Is::Job), job, None)),
        HciAction::CreateLog { key, upgrade } => make(Is::UpgradeLog, key, log(key, upgrade)),
        HciAction::CreateImage {
            key,
            upgrade,
            url,
            checksum,
        } => make(Is::Image, key, image(key, upgrade, url, checksum)),
        HciAction::LabelImage { image, upgrade } => {
            change(Is::Image, image, label(labels::HARVESTER_UPGRADE, upgrade.as_deref()))
        }
        HciAction::DeleteImage { image } => delete(Kind::Hci(Is::Image), image, None),
        HciAction::CreateRepo(wanted) => create(Kind::Deployment, wanted.key.clone(), repo(wanted)),
        HciAction::CreateRepoService { key, upgrade } => make(Is::Service, key, service(key, upgrade)),
        HciAction::RestartRepo { deployment, at } => {
            let template = annotation("kubectl.kubernetes.io/restartedAt", Some(&at.to_string()));
            merge(Kind::Deployment, deployment, spec(&json!({ "template": template })))
        }
        HciAction::DeleteRepo { deployment } => with_children(delete(Kind::Deployment, deployment, None)),
        HciAction::DeleteRepoService { service } => delete(Kind::Hci(Is::Service), service, None),
        HciAction::PatchCluster { cluster, change: new } => change(Is::Cluster, cluster, cluster_change(new)),
        HciAction::Answer { secret, hook, value } => {
            change(Is::Plan, secret, annotation(answered(*hook), Some(&**value)))
        }
        HciAction::PauseChart { chart, by } => {
            let mut body = annotation(annotations::PAUSED_BY, by.as_ref().map(Uid::as_str));
            body["spec"] = json!({ "paused": by.is_some() });
            change(Is::Chart, chart, body)
        }
        HciAction::RecordVms {
            list,
            key,
            upgrade,
            node,
            vms,
        } => {
            let names = vms.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            let data = json!({ "data": { node.as_str(): names } });
            match list {
                Some(list) => change(Is::RestoreList, list, data),
                None => make(
                    Is::RestoreList,
                    key,
                    with(object("v1", "ConfigMap", key, upgrade, None), data),
                ),
            }
        }
        HciAction::SetLonghorn { setting, value } => change(Is::LonghornSetting, setting, json!({ "value": &**value })),
        HciAction::EnableAddon { addon, enabled } => change(Is::Addon, addon, spec(&json!({ "enabled": enabled }))),
        HciAction::Task(write) => task::of(write),
    }
}

fn spec(fields: &Value) -> Value {
    json!({ "spec": fields })
}

pub(super) fn annotation(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn label(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "labels": { key: value } } })
}

fn marked(mark: NodeMark) -> &'static str {
    match mark {
        NodeMark::Pause => annotations::HARVESTER_NODE_PAUSE,
        NodeMark::PendingOsImage => annotations::HARVESTER_PENDING_OS_IMAGE,
    }
}

fn answered(hook: Hook) -> &'static str {
    match hook {
        Hook::PreDrain => annotations::HARVESTER_PRE_HOOK,
        Hook::PostDrain => annotations::HARVESTER_POST_HOOK,
    }
}

/// Without it the API server leaves the pods of a Job behind.
fn with_children(mut request: Request) -> Request {
    request.body["propagationPolicy"] = json!("Background");
    request
}

fn log(key: &Key, upgrade: &Target) -> Value {
    let body = object("harvesterhci.io/v1beta1", "UpgradeLog", key, upgrade, None);
    with(body, json!({ "spec": { "upgradeName": &*upgrade.key.name } }))
}

/// Labels, annotations, finalizers and status in one JSON patch: the revision is put in, so that a difference is a conflict, and
/// what else the object holds, in fields this code does not know, stays.
fn write_upgrade(target: &Target, before: &Upgrade, after: &Upgrade) -> Request {
    let add = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    let mut operations = vec![add("/metadata/resourceVersion", json!(target.revision.to_string()))];
    let maps = [
        ("labels", &before.metadata.labels, &after.metadata.labels),
        ("annotations", &before.metadata.annotations, &after.metadata.annotations),
    ];
    for (name, old, new) in maps {
        if old == new {
            continue;
        }
        let empty = BTreeMap::new();
        let (had, new) = (old.as_ref().unwrap_or(&empty), new.as_ref().unwrap_or(&empty));
        if old.as_ref().is_none_or(BTreeMap::is_empty) {
            operations.push(add(&format!("/metadata/{name}"), json!(new)));
            continue;
        }
        let path = |key: &str| format!("/metadata/{name}/{}", key.replace('~', "~0").replace('/', "~1"));
        let changed = new.iter().filter(|(key, value)| had.get(*key) != Some(value));
        operations.extend(changed.map(|(key, value)| add(&path(key), json!(value))));
        let gone = had.keys().filter(|key| !new.contains_key(*key));
        operations.extend(gone.map(|key| json!({ "op": "remove", "path": path(key) })));
    }
    if before.metadata.finalizers != after.metadata.finalizers {
        let finalizers = after.metadata.finalizers.clone().unwrap_or_default();
        operations.push(add("/metadata/finalizers", json!(finalizers)));
    }
    if before.status != after.status {
        operations.push(add("/status", json!(after.status)));
    }
    Request {
        content_type: JSON_PATCH,
        body: json!(operations),
        ..merge(Kind::Hci(HciKind::Upgrade), target, json!({}))
    }
}

pub(super) fn taint(taint: &afloat_core::view::Taint) -> Value {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    let mut body = json!({ "key": &*taint.key, "effect": effect });
    if !taint.value.is_empty() {
        body["value"] = json!(&*taint.value);
    }
    body
}

fn cluster_change(change: &ClusterChange) -> Value {
    json!({
        "metadata": { "annotations": {
            ROLLED_OUT_FOR: change.rolled_out_for.as_ref().map(Uid::as_str),
            STRATEGY_BEFORE: change.before.as_deref(),
        } },
        "spec": {
            "kubernetesVersion": &*change.kubernetes_version,
            "rkeConfig": {
                "provisionGeneration": change.provision_generation,
                "upgradeStrategy": difference(&change.strategy_was, &change.strategy),
            },
        },
    })
}

/// What a merge needs to make `old` into `new`: fields that are no longer there have to be said.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut merged: serde_json::Map<String, Value> = new
        .iter()
        .map(|(key, value)| (key.clone(), difference(old.get(key).unwrap_or(&Value::Null), value)))
        .collect();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        merged.insert(key.clone(), Value::Null);
    }
    Value::Object(merged)
}

/// The beginning of every object that belongs to an upgrade.
fn object(api_version: &str, kind: &str, key: &Key, upgrade: &Target, component: Option<&str>) -> Value {
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

pub(super) fn with(mut body: Value, more: Value) -> Value {
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body
}

fn image(key: &Key, upgrade: &Target, url: &str, checksum: &str) -> Value {
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

fn service(key: &Key, upgrade: &Target) -> Value {
    let body = object("v1", "Service", key, upgrade, Some("repo"));
    let selector = labels_of(upgrade, Some("repo"));
    with(
        body,
        json!({ "spec": { "selector": selector, "ports": [{ "name": "http", "port": 80, "targetPort": PORT }] } }),
    )
}

/// The repository: our own server on the ISO, which needs no mount and no privilege.
fn repo(repo: &Repo) -> Value {
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

fn job(job: &HciJob) -> Value {
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
        plain("AFLOAT_HCI_RESTORE_VM", if job.restore_vm { "true" } else { "false" }),
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
    if !node.is_empty() {
        container["securityContext"] = json!({ "privileged": true });
        container["volumeMounts"] =
            json!([{ "name": "host-root", "mountPath": "/host", "mountPropagation": "HostToContainer" }]);
        spec["volumes"] = json!([{ "name": "host-root", "hostPath": { "path": "/", "type": "Directory" } }]);
        for switch in ["hostNetwork", "hostPID", "hostIPC"] {
            spec[switch] = json!(true);
        }
        spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
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
    use afloat_core::hci::action::JobKind;
    use afloat_core::view::{NodeName, Revision};

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
            restore_vm: true,
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

    #[test]
    fn an_upgrade_is_written_field_by_field_and_only_in_the_state_it_was_seen_in() {
        let mut before = Upgrade::new("u", afloat_api::harvester::UpgradeSpec::default());
        before.metadata.labels = Some(BTreeMap::from([
            ("a/b".to_owned(), "1".to_owned()),
            ("gone".to_owned(), "x".to_owned()),
        ]));
        let mut after = before.clone();
        after.metadata.labels = Some(BTreeMap::from([("a/b".to_owned(), "2".to_owned())]));
        after.metadata.finalizers = Some(vec!["afloat.dev/cleanup".to_owned()]);
        let request = write_upgrade(&target("u"), &before, &after);
        let expected = json!([
            { "op": "add", "path": "/metadata/resourceVersion", "value": "7" },
            { "op": "add", "path": "/metadata/labels/a~1b", "value": "2" },
            { "op": "remove", "path": "/metadata/labels/gone" },
            { "op": "add", "path": "/metadata/finalizers", "value": ["afloat.dev/cleanup"] },
        ]);
        assert_eq!((request.content_type, request.body), (JSON_PATCH, expected));
    }

    #[test]
    fn a_merge_says_what_is_no_longer_there() {
        let (old, new) = (json!({ "a": { "b": 1, "c": 2 }, "d": 3 }), json!({ "a": { "c": 2 } }));
        assert_eq!(difference(&old, &new), json!({ "a": { "b": null, "c": 2 }, "d": null }));
        assert_eq!(difference(&old, &Value::Null), Value::Null);
    }
}
