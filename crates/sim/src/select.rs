//! Who matches whom: label selectors, node selectors, taints and tolerations, with the semantics of
//! `k8s.io/component-helpers`. Pure functions.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

fn requirement(labels: Option<&Labels>, key: &str, operator: &str, values: &[String]) -> bool {
    let value = labels.and_then(|labels| labels.get(key));
    let number = |text: &String| text.parse::<i64>().ok();
    let compare = |test: fn(i64, i64) -> bool| {
        value
            .and_then(number)
            .zip(values.first().and_then(number))
            .is_some_and(|(have, want)| test(have, want))
    };
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|have, want| have > want),
        "Lt" => compare(|have, want| have < want),
        _ => false,
    }
}

/// Whether labels satisfy a selector; the empty selector takes all.
pub fn selects(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value));
    equal
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|r| requirement(labels, &r.key, &r.operator, r.values.as_deref().unwrap_or_default()))
}

fn node_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let holds = |labels: Option<&Labels>, r: &NodeSelectorRequirement| {
        requirement(labels, &r.key, &r.operator, r.values.as_deref().unwrap_or_default())
    };
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let names = Labels::from([(
        "metadata.name".to_owned(),
        node.metadata.name.clone().unwrap_or_default(),
    )]);
    expressions.iter().all(|r| holds(node.metadata.labels.as_ref(), r)) && fields.iter().all(|r| holds(Some(&names), r))
}

fn required_terms(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    Some(
        &affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()?
            .node_selector_terms,
    )
}

/// Node selector and required node affinity.
pub fn wants_node(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    spec.node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value))
        && required_terms(spec).is_none_or(|terms| terms.iter().any(|term| node_term(term, node)))
}

/// The only node a pod may go to, when its affinity names it: what the DaemonSet controller writes.
pub fn pinned_node(spec: &PodSpec) -> Option<&str> {
    let [term] = required_terms(spec)? else { return None };
    let [field] = term.match_fields.as_deref()? else {
        return None;
    };
    let [name] = field.values.as_deref()? else { return None };
    (field.key == "metadata.name" && field.operator == "In").then_some(name)
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" | "" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// The first taint that keeps a pod away. A cordoned node counts as tainted even before its taint is written.
pub fn repelling_taint(tolerations: &[Toleration], node: &Node) -> Option<Taint> {
    let spec = node.spec.as_ref();
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let cordoned = spec
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false)
        .then_some(cordon);
    let taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    cordoned
        .into_iter()
        .chain(taints)
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn label_selectors() {
        let labels = Labels::from([("app".into(), "web".into()), ("n".into(), "5".into())]);
        let cases = [
            (json!({}), true),
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "db" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "web"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web"] }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "x", "operator": "NotIn", "values": ["web"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "x", "operator": "Exists" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "x", "operator": "DoesNotExist" }] }),
                true,
            ),
        ];
        for (selector, expected) in cases {
            assert_eq!(selects(&read(selector.clone()), Some(&labels)), expected, "{selector}");
        }
    }

    #[test]
    fn taints_and_cordons_repel() {
        let node = |spec: Value| read::<Node>(json!({ "metadata": { "name": "n" }, "spec": spec }));
        let tainted = json!({ "taints": [{ "key": "a", "value": "1", "effect": "NoSchedule" }] });
        let cases = [
            (json!({}), json!([]), false),
            (json!({ "unschedulable": true }), json!([]), true),
            (
                json!({ "unschedulable": true }),
                json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]),
                false,
            ),
            (tainted.clone(), json!([]), true),
            (tainted.clone(), json!([{ "key": "a", "value": "1" }]), false),
            (tainted.clone(), json!([{ "key": "a", "value": "2" }]), true),
            (tainted.clone(), json!([{ "operator": "Exists" }]), false),
            (tainted, json!([{ "operator": "Exists", "effect": "NoExecute" }]), true),
            (
                json!({ "taints": [{ "key": "a", "effect": "PreferNoSchedule" }] }),
                json!([]),
                false,
            ),
        ];
        for (spec, tolerations, repelled) in cases {
            let tolerations: Vec<Toleration> = read(tolerations);
            assert_eq!(
                repelling_taint(&tolerations, &node(spec.clone())).is_some(),
                repelled,
                "{spec} {tolerations:?}"
            );
        }
    }

    #[test]
    fn affinity_by_label_and_by_name() {
        let node: Node = read(json!({ "metadata": { "name": "n1", "labels": { "zone": "a", "cores": "8" } } }));
        let spec = |term: Value| {
            read::<PodSpec>(json!({ "containers": [], "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } } }))
        };
        let by_name =
            |name: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
        assert!(wants_node(&spec(by_name("n1")), &node) && !wants_node(&spec(by_name("n2")), &node));
        assert_eq!(pinned_node(&spec(by_name("n2"))), Some("n2"));
        let cores =
            |operator: &str| json!({ "matchExpressions": [{ "key": "cores", "operator": operator, "values": ["4"] }] });
        assert!(wants_node(&spec(cores("Gt")), &node) && !wants_node(&spec(cores("Lt")), &node));
        assert!(!wants_node(&spec(json!({})), &node), "an empty term matches nothing");
    }
}
