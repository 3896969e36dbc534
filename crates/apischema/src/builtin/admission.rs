//! The admission plugins that are on by default and change or refuse what callers send: Priority,
//! DefaultTolerationSeconds, TaintNodesByCondition, StorageObjectInUseProtection, DefaultStorageClass, RuntimeClass.
//! Namespace lifecycle belongs to the server, which knows the namespaces; quotas and limit ranges are not enforced.

use serde_json::{Value, json};

use super::fields::{child, copy, flag, int, list, present, set, set_missing, text};

/// What plugins may look at beside the object itself.
pub trait Lookup {
    fn get(&self, group: &str, kind: &str, name: &str) -> Option<&Value>;
    fn list(&self, group: &str, kind: &str) -> Vec<&Value>;
}

/// Why a plugin refuses: the text that follows `pods "p" is forbidden: ` in the `403 Forbidden` answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub String);

/// Runs the plugins on an object that is about to be created.
pub fn mutate_on_create(group: &str, kind: &str, object: &mut Value, lookup: &dyn Lookup) -> Result<(), Forbidden> {
    match (group, kind) {
        ("", "Pod") => {
            // In the order of the plugin chain.
            taint_tolerations(object);
            pod_priority(object, lookup)?;
            pod_runtime_class(object, lookup)?;
        }
        ("", "Node") => not_ready_taint(object),
        ("", "PersistentVolume") => protection_finalizer(object, "kubernetes.io/pv-protection"),
        ("", "PersistentVolumeClaim") => {
            default_storage_class(object, lookup);
            protection_finalizer(object, "kubernetes.io/pvc-protection");
        }
        ("scheduling.k8s.io", "PriorityClass") => one_default_class(object, lookup, false)?,
        _ => {}
    }
    Ok(())
}

/// Runs the plugins on an object that is about to be replaced.
pub fn mutate_on_update(
    group: &str,
    kind: &str,
    object: &mut Value,
    old: &Value,
    lookup: &dyn Lookup,
) -> Result<(), Forbidden> {
    match (group, kind) {
        ("", "Pod") => {
            taint_tolerations(object);
            for field in ["priority", "preemptionPolicy"] {
                if present(&object["spec"], field).is_none() {
                    copy(&old["spec"], child(object, "spec"), field);
                }
            }
        }
        ("scheduling.k8s.io", "PriorityClass") => one_default_class(object, lookup, true)?,
        _ => {}
    }
    Ok(())
}

/// Pods stay five minutes on nodes that are not ready or cannot be reached, unless they say otherwise.
fn taint_tolerations(pod: &mut Value) {
    let spec = child(pod, "spec");
    let mut missing = Vec::new();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(spec, "tolerations").iter().any(|toleration| {
            (text(toleration, "key") == key || text(toleration, "key").is_empty())
                && matches!(text(toleration, "effect"), "" | "NoExecute")
        });
        if !tolerated {
            missing.push(json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}));
        }
    }
    if missing.is_empty() {
        return;
    }
    match spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        Some(tolerations) => tolerations.extend(missing),
        None => set(spec, "tolerations", missing),
    }
}

struct Priority {
    class: String,
    value: i64,
    preemption: Option<String>,
}

impl Priority {
    fn of_class(class: &Value) -> Self {
        Self {
            class: text(&class["metadata"], "name").to_owned(),
            value: int(class, "value").unwrap_or_default(),
            preemption: present(class, "preemptionPolicy")
                .and_then(Value::as_str)
                .map(str::to_owned),
        }
    }
}

fn pod_priority(pod: &mut Value, lookup: &dyn Lookup) -> Result<(), Forbidden> {
    let spec = child(pod, "spec");
    let priority = priority_of(text(spec, "priorityClassName"), lookup)?;
    if let Some(given) = int(spec, "priority")
        && given != priority.value
    {
        return Err(Forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            priority.value
        )));
    }
    if let Some(computed) = priority.preemption {
        let given = text(spec, "preemptionPolicy");
        if !given.is_empty() && given != computed {
            return Err(Forbidden(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
            )));
        }
        set(spec, "preemptionPolicy", computed);
    }
    set(spec, "priority", priority.value);
    if !priority.class.is_empty() {
        set(spec, "priorityClassName", priority.class);
    }
    Ok(())
}

fn priority_of(class: &str, lookup: &dyn Lookup) -> Result<Priority, Forbidden> {
    const PREEMPT: &str = "PreemptLowerPriority";
    let built_in = |value| Priority {
        class: class.to_owned(),
        value,
        preemption: Some(PREEMPT.to_owned()),
    };
    if class.is_empty() {
        return Ok(match default_class(lookup) {
            Some(default) => Priority::of_class(default),
            None => built_in(0),
        });
    }
    match (lookup.get("scheduling.k8s.io", "PriorityClass", class), class) {
        (Some(found), _) => Ok(Priority::of_class(found)),
        // The server makes these two at start; a cluster without them has only not started fully.
        (None, "system-cluster-critical") => Ok(built_in(2_000_000_000)),
        (None, "system-node-critical") => Ok(built_in(2_000_001_000)),
        (None, _) => Err(Forbidden(format!("no PriorityClass with name {class} was found"))),
    }
}

/// The class that is marked as the default; of several the one with the least value.
fn default_class(lookup: &dyn Lookup) -> Option<&Value> {
    let classes = lookup.list("scheduling.k8s.io", "PriorityClass");
    classes
        .into_iter()
        .filter(|class| flag(class, "globalDefault"))
        .min_by_key(|class| int(class, "value").unwrap_or_default())
}

fn one_default_class(class: &Value, lookup: &dyn Lookup, is_update: bool) -> Result<(), Forbidden> {
    let Some(default) = flag(class, "globalDefault").then(|| default_class(lookup)).flatten() else {
        return Ok(());
    };
    let name = text(&default["metadata"], "name");
    if is_update && name == text(&class["metadata"], "name") {
        return Ok(());
    }
    Err(Forbidden(format!(
        "PriorityClass {name} is already marked as default. Only one default can exist"
    )))
}

fn pod_runtime_class(pod: &Value, lookup: &dyn Lookup) -> Result<(), Forbidden> {
    let name = text(&pod["spec"], "runtimeClassName");
    let class = if name.is_empty() {
        None
    } else {
        lookup.get("node.k8s.io", "RuntimeClass", name)
    };
    if class.is_none() && !name.is_empty() {
        return Err(Forbidden(format!("pod rejected: RuntimeClass {name:?} not found")));
    }
    let has_overhead = class.is_some_and(|class| present(class, "overhead").is_some());
    if present(&pod["spec"], "overhead").is_some() && !has_overhead {
        let reason = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(Forbidden(reason.to_owned()));
    }
    Ok(())
}

/// A new node takes no pods before it has said that it is ready.
fn not_ready_taint(node: &mut Value) {
    let taint = json!({"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"});
    let spec = child(node, "spec");
    let there = list(spec, "taints")
        .iter()
        .any(|known| text(known, "key") == text(&taint, "key") && text(known, "effect") == "NoSchedule");
    match spec.get_mut("taints").and_then(Value::as_array_mut) {
        _ if there => {}
        Some(taints) => taints.push(taint),
        None => set(spec, "taints", vec![taint]),
    }
}

fn protection_finalizer(object: &mut Value, finalizer: &str) {
    let metadata = child(object, "metadata");
    match metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) if finalizers.iter().any(|known| known == finalizer) => {}
        Some(finalizers) => finalizers.push(Value::from(finalizer)),
        None => set(metadata, "finalizers", json!([finalizer])),
    }
}

/// The newest class that is marked as the default; names decide between classes of the same age.
fn default_storage_class(claim: &mut Value, lookup: &dyn Lookup) {
    const LEGACY: &str = "volume.beta.kubernetes.io/storage-class";
    let has_class =
        present(&claim["spec"], "storageClassName").is_some() || claim["metadata"]["annotations"].get(LEGACY).is_some();
    if has_class {
        return;
    }
    let is_default = |class: &Value| {
        [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ]
        .iter()
        .any(|key| class["metadata"]["annotations"][key] == "true")
    };
    let mut classes = lookup.list("storage.k8s.io", "StorageClass");
    classes.retain(|class| is_default(class));
    classes.sort_by(|left, right| {
        let created = |class: &Value| text(&class["metadata"], "creationTimestamp").to_owned();
        let name = |class: &Value| text(&class["metadata"], "name").to_owned();
        created(right)
            .cmp(&created(left))
            .then_with(|| name(left).cmp(&name(right)))
    });
    if let Some(class) = classes.first() {
        let name = text(&class["metadata"], "name").to_owned();
        set_missing(child(claim, "spec"), "storageClassName", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Classes(Vec<Value>);

    impl Lookup for Classes {
        fn get(&self, _: &str, kind: &str, name: &str) -> Option<&Value> {
            self.0
                .iter()
                .find(|class| class["kind"] == kind && class["metadata"]["name"] == name)
        }

        fn list(&self, _: &str, kind: &str) -> Vec<&Value> {
            self.0.iter().filter(|class| class["kind"] == kind).collect()
        }
    }

    #[test]
    fn pods_get_priority_and_tolerations() {
        let none = Classes(Vec::new());
        let mut pod = json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}});
        mutate_on_create("", "Pod", &mut pod, &none).expect("admitted");
        assert_eq!(
            pod["spec"],
            json!({
                "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
                "tolerations": [
                    {"key": "a", "operator": "Exists"},
                    {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                    {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
                ],
            })
        );
        let refused = mutate_on_create("", "Pod", &mut json!({"spec": {"priorityClassName": "x"}}), &none);
        assert_eq!(
            refused,
            Err(Forbidden("no PriorityClass with name x was found".to_owned()))
        );
    }

    #[test]
    fn a_default_class_counts_and_stays_alone() {
        let classes = Classes(vec![json!({
            "kind": "PriorityClass", "metadata": {"name": "d"}, "value": 7, "globalDefault": true, "preemptionPolicy": "Never",
        })]);
        let mut pod = json!({"spec": {}});
        mutate_on_create("", "Pod", &mut pod, &classes).expect("admitted");
        assert_eq!(
            (&pod["spec"]["priority"], &pod["spec"]["priorityClassName"]),
            (&json!(7), &json!("d"))
        );
        assert_eq!(pod["spec"]["preemptionPolicy"], "Never");
        let mut second = json!({"metadata": {"name": "e"}, "globalDefault": true});
        let refused = mutate_on_create("scheduling.k8s.io", "PriorityClass", &mut second, &classes);
        assert_eq!(
            refused.map_err(|refusal| refusal.0),
            Err("PriorityClass d is already marked as default. Only one default can exist".to_owned())
        );
    }

    #[test]
    fn new_nodes_are_tainted_and_volumes_protected_once() {
        let none = Classes(Vec::new());
        let mut machine = json!({"spec": {}});
        let mut volume = json!({"metadata": {}});
        for _ in 0..2 {
            mutate_on_create("", "Node", &mut machine, &none).expect("admitted");
            mutate_on_create("", "PersistentVolume", &mut volume, &none).expect("admitted");
        }
        assert_eq!(
            machine["spec"]["taints"],
            json!([{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}])
        );
        assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    }
}
