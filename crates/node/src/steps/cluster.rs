//! What `kubeadm upgrade` changes in the cluster itself, kept so that it can be put back: the configuration that the first control plane
//! writes, and the add-ons, which kubeadm brings to its version on whichever control plane is the last to have it. Without them an API
//! server that was put back would serve a kube-proxy newer than itself.

use std::collections::BTreeMap;

use afloat_api::Reason;
use afloat_api::common::NodeRole;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::host::{Answer, Command};
use crate::instruction::{Context, Ran, failed, wait_for_step};
use crate::paths;
use crate::steps::config::kubectl;

/// Written by `kubeadm upgrade apply` alone.
const CONFIGURATION: [&str; 2] = ["configmap/kubeadm-config", "configmap/kubelet-config"];
/// Everything that kubeadm writes for its two add-ons (`phases/addons` of kubeadm), in the order in which it goes back: what a pod reads
/// and may do before the pods themselves.
const ADD_ONS: [&str; 12] = [
    "serviceaccount/kube-proxy",
    "clusterrolebinding/kubeadm:node-proxier",
    "role/kube-proxy",
    "rolebinding/kube-proxy",
    "configmap/kube-proxy",
    "daemonset/kube-proxy",
    "serviceaccount/coredns",
    "clusterrole/system:coredns",
    "clusterrolebinding/system:coredns",
    "configmap/coredns",
    "deployment/coredns",
    "service/kube-dns",
];
/// As whom kubeadm's writes are known to the API server.
const KUBEADM: &str = "kubeadm";

/// Objects as they were, in a form that `kubectl replace` takes.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    api_version: String,
    kind: String,
    items: Vec<Value>,
    /// When kubeadm had last written to each of them, by what the API server remembers of it.
    written: BTreeMap<String, String>,
}

/// What has to be done to the live objects.
#[derive(Debug, Default, PartialEq)]
struct Back {
    replaced: Vec<Value>,
    /// Not there before: kubeadm has made them.
    removed: Vec<String>,
}

/// `daemonset/kube-proxy`, as kubectl is asked for it.
pub(super) fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/kind").to_lowercase(), text("/metadata/name"))
}

/// An object without what the API server writes: with its revision it could not be put back once it has changed. Labels and
/// annotations stay: by one of them kubeadm knows a configuration that nobody has changed.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(fields) = bare.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
    }
    bare
}

/// When kubeadm last wrote to an object, where the API server remembers who wrote.
fn written(object: &Value) -> Option<&str> {
    let managers = object.pointer("/metadata/managedFields")?.as_array()?;
    let by_kubeadm = managers
        .iter()
        .filter(|manager| manager.get("manager").and_then(Value::as_str) == Some(KUBEADM));
    by_kubeadm.filter_map(|manager| manager.get("time")?.as_str()).max()
}

fn remembers(object: &Value) -> bool {
    object.pointer("/metadata/managedFields").is_some()
}

pub(super) fn ask(names: &[&str]) -> Command {
    let mut args = vec!["get"];
    args.extend_from_slice(names);
    args.extend(["--ignore-not-found", "--show-managed-fields", "--output", "json"]);
    kubectl(&args)
}

fn names(role: NodeRole) -> Vec<&'static str> {
    let configuration: &[_] = if role == NodeRole::FirstControlPlane {
        &CONFIGURATION
    } else {
        &[]
    };
    configuration.iter().chain(&ADD_ONS).copied().collect()
}

/// What kubectl answered, once it has.
enum Asked {
    Objects(Vec<Value>),
    NotYet(Ran),
}

fn objects(c: &mut Context<'_>, job: &str) -> Answer<Asked> {
    let ask = ask(&names(c.plan().role));
    let Some((code, said, error)) = c.job(job, &ask)? else {
        return Ok(Asked::NotYet(wait_for_step(&ask)));
    };
    Ok(match items(code, &said) {
        Some(items) => Asked::Objects(items),
        None => Asked::NotYet(Ran::Tried(failed(&ask, code, &error))),
    })
}

/// The objects in an answer to [`ask`], if it is one.
pub(super) fn items(code: i32, said: &str) -> Option<Vec<Value>> {
    if code != 0 {
        return None;
    }
    // Nothing at all is said where none of them is there.
    if said.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut list: Value = serde_json::from_str(said).ok()?;
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

/// Keeps what kubeadm is going to change.
pub fn keep(c: &mut Context<'_>) -> Answer<Ran> {
    let objects = match objects(c, "")? {
        Asked::Objects(objects) => objects,
        Asked::NotYet(ran) => return Ok(ran),
    };
    let kept = json!(Kept {
        api_version: "v1".to_owned(),
        kind: "List".to_owned(),
        items: objects.iter().map(bare).collect(),
        written: objects
            .iter()
            .filter_map(|object| Some((name_of(object), written(object)?.to_owned())))
            .collect(),
    });
    c.host.write(paths::KEPT_CLUSTER, kept.to_string().as_bytes(), 0o600)?;
    Ok(Ran::Found {
        fact: ("cluster", "kept".to_owned()),
    })
}

/// What goes back, of what kubeadm has written since: everything else that has changed was changed by others.
fn back(kept: &Kept, live: &[Value]) -> Back {
    let mut back = Back::default();
    let kept_as = |name: &str| kept.items.iter().find(|item| name_of(item) == name);
    for object in live {
        let name = name_of(object);
        let last = kept.written.get(&name).map(String::as_str);
        // Nothing of kubeadm's is left on what a person has made anew.
        if remembers(object) && written(object) <= last {
            continue;
        }
        match kept_as(&name) {
            None => back.removed.push(name),
            Some(item) if *item == bare(object) => {}
            Some(item) => back.replaced.push(as_others_have(object, item)),
        }
    }
    let order = |item: &Value| ADD_ONS.iter().position(|name| *name == name_of(item));
    back.replaced.sort_by_key(order);
    back
}

/// kubeadm leaves it to others how many there are, who owns an object and who waits for its end, and so does this.
fn as_others_have(live: &Value, kept: &Value) -> Value {
    let mut item = kept.clone();
    for field in ["ownerReferences", "finalizers"] {
        if let Some(value) = live.get("metadata").and_then(|metadata| metadata.get(field))
            && let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if let (Some(count), Some(place)) = (live.pointer("/spec/replicas"), item.pointer_mut("/spec/replicas")) {
        *place = count.clone();
    }
    item
}

/// Puts it back.
pub fn restore(c: &mut Context<'_>) -> Answer<Ran> {
    let live = match objects(c, "-live")? {
        Asked::Objects(live) => live,
        Asked::NotYet(ran) => return Ok(ran),
    };
    let Ok(kept) = serde_json::from_str::<Kept>(&c.text(paths::KEPT_CLUSTER)?) else {
        return Ok(Ran::Failed {
            reason: Reason::RollbackFailed,
            message: format!(
                "{} cannot be read: what kubeadm changed in the cluster stays",
                paths::KEPT_CLUSTER
            ),
        });
    };
    let Back { replaced, removed } = back(&kept, &live);
    if !removed.is_empty() {
        let mut args = vec!["delete", "--ignore-not-found"];
        args.extend(removed.iter().map(String::as_str));
        let delete = kubectl(&args);
        match c.job("-removed", &delete)? {
            None => return Ok(wait_for_step(&delete)),
            Some((0, _, _)) => {}
            Some((code, _, said)) => return Ok(Ran::Tried(failed(&delete, code, &said))),
        }
    }
    if replaced.is_empty() {
        return Ok(Ran::Done);
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": replaced}).to_string();
    if c.text(paths::CLUSTER_BACK)? != list {
        c.host.write(paths::CLUSTER_BACK, list.as_bytes(), 0o600)?;
    }
    c.change_by(&kubectl(&["replace", "--filename", paths::CLUSTER_BACK]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "2026-11-15T20:00:00Z";

    fn object(kind: &str, name: &str, version: &str, managers: &Value) -> Value {
        json!({"kind": kind, "metadata": {"name": name, "uid": "7", "annotations": {"mine": "yes"}, "managedFields": managers},
            "spec": {"image": version, "replicas": 2}, "status": {"ready": 2}})
    }

    fn by(manager: &str, time: &str) -> Value {
        json!([{"manager": manager, "time": time}, {"manager": "kube-controller-manager", "time": NOW}])
    }

    fn kept() -> Kept {
        let objects = ["kube-proxy", "other"].map(|name| object("DaemonSet", name, "old", &by(KUBEADM, LONG_AGO)));
        Kept {
            api_version: "v1".to_owned(),
            kind: "List".to_owned(),
            items: objects.iter().map(bare).collect(),
            written: objects
                .iter()
                .map(|object| (name_of(object), LONG_AGO.to_owned()))
                .collect(),
        }
    }

    #[test]
    fn what_kubeadm_wrote_since_goes_back_with_its_annotations_and_without_what_the_server_wrote() {
        let mut live = object("DaemonSet", "kube-proxy", "new", &by(KUBEADM, NOW));
        live["spec"]["replicas"] = json!(5);
        let back = back(&kept(), &[live]);
        let expected = json!({"kind": "DaemonSet", "metadata": {"name": "kube-proxy", "annotations": {"mine": "yes"}},
            "spec": {"image": "old", "replicas": 5}});
        assert_eq!(back.replaced, [expected]);
        assert_eq!(back.removed, [""; 0]);
    }

    #[test]
    fn p42_what_a_person_changed_since_stays() {
        let mut managers = by(KUBEADM, LONG_AGO);
        managers[1]["manager"] = json!("kubectl-edit");
        let live = object("DaemonSet", "kube-proxy", "mine", &managers);
        assert_eq!(back(&kept(), &[live]), Back::default());
    }

    #[test]
    fn p42_what_a_person_made_anew_stays_though_kubeadm_had_written_to_it_before() {
        let live = object("DaemonSet", "kube-proxy", "mine", &by("kubectl-replace", NOW));
        assert_eq!(back(&kept(), &[live]), Back::default());
    }

    #[test]
    fn who_owns_an_object_and_who_waits_for_its_end_is_left_to_the_live_one() {
        let mut live = object("DaemonSet", "kube-proxy", "new", &by(KUBEADM, NOW));
        let (owners, finalizers) = (json!([{"kind": "Addon", "name": "mine"}]), json!(["example.com/waits"]));
        live["metadata"]["ownerReferences"] = owners.clone();
        live["metadata"]["finalizers"] = finalizers.clone();
        let back = back(&kept(), &[live]);
        assert_eq!(back.replaced[0]["metadata"]["ownerReferences"], owners);
        assert_eq!(back.replaced[0]["metadata"]["finalizers"], finalizers);
        assert_eq!(back.replaced[0]["spec"]["image"], "old");
    }

    #[test]
    fn what_kubeadm_has_made_goes_and_what_others_made_stays() {
        let live = [
            object("ConfigMap", "kube-proxy", "new", &by(KUBEADM, NOW)),
            object("ConfigMap", "mine", "new", &by("kubectl-create", NOW)),
        ];
        assert_eq!(back(&kept(), &live).removed, ["configmap/kube-proxy"]);
    }

    #[test]
    fn where_nobody_remembers_who_wrote_what_differs_goes_back() {
        let mut live = [
            object("DaemonSet", "kube-proxy", "new", &json!([])),
            object("DaemonSet", "other", "old", &json!([])),
        ];
        for object in &mut live {
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
        }
        let back = back(&kept(), &live);
        assert_eq!(
            back.replaced.iter().map(name_of).collect::<Vec<_>>(),
            ["daemonset/kube-proxy"]
        );
    }
}
