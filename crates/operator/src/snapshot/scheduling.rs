//! Selectors, affinities, tolerations and requests of pods, turned into the core's plain forms. What the scheduler only
//! prefers is left out: decisions need what must hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_core::view::{
    Labels, Operator, Owner, PodTerm, Requirement, Resources, Selector, Spread, Taint, TaintEffect, Toleration, Uid,
};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::quantity::{NotAnAmount, Rounding, resources};
use super::raw::{Container, PodSpec};

pub fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter()
        .flatten()
        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
        .collect()
}

/// The controller of an object.
pub fn owner(meta: &ObjectMeta) -> Option<Owner> {
    let controller = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))?;
    Some(Owner {
        kind: Arc::from(controller.kind.as_str()),
        name: Arc::from(controller.name.as_str()),
        uid: Uid::from(controller.uid.as_str()),
    })
}

fn texts(values: Option<&Vec<String>>) -> Vec<Arc<str>> {
    let mut values: Vec<Arc<str>> = values
        .into_iter()
        .flatten()
        .map(|text| Arc::from(text.as_str()))
        .collect();
    values.sort();
    values
}

fn operator(word: &str) -> Option<Operator> {
    Some(match word {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return None,
    })
}

fn requirement(key: &str, word: &str, values: Option<&Vec<String>>) -> Requirement {
    Requirement {
        key: Arc::from(key),
        // An operator of a later Kubernetes: nothing meets it, which errs on the careful side.
        operator: operator(word).unwrap_or(Operator::In),
        values: if operator(word).is_some() {
            texts(values)
        } else {
            Vec::new()
        },
    }
}

/// A selector that nothing meets, as an absent one in a budget.
pub fn nothing() -> Selector {
    Selector {
        requirements: vec![Requirement {
            key: Arc::from(""),
            operator: Operator::In,
            values: Vec::new(),
        }],
    }
}

/// A label selector; absent it selects nothing, empty everything.
pub fn selector(selector: Option<&LabelSelector>) -> Selector {
    selector.map_or_else(nothing, selector_of)
}

fn selector_of(selector: &LabelSelector) -> Selector {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: Arc::from(key.as_str()),
        operator: Operator::In,
        values: vec![Arc::from(value.as_str())],
    });
    let further = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|expression| requirement(&expression.key, &expression.operator, expression.values.as_ref()));
    Selector {
        requirements: equal.chain(further).collect(),
    }
}

/// A node selector: one of the terms must hold. A term without any requirement selects no node, as upstream has it.
pub fn node_selector(selector: Option<&k8s::NodeSelector>) -> Vec<Selector> {
    let Some(selector) = selector else { return Vec::new() };
    selector.node_selector_terms.iter().map(node_term).collect()
}

fn node_term(term: &k8s::NodeSelectorTerm) -> Selector {
    let requirements: Vec<Requirement> = term
        .match_expressions
        .iter()
        .flatten()
        .chain(term.match_fields.iter().flatten())
        .map(|expression| requirement(&expression.key, &expression.operator, expression.values.as_ref()))
        .collect();
    if requirements.is_empty() {
        return nothing();
    }
    Selector { requirements }
}

pub fn node_affinity(affinity: Option<&k8s::Affinity>) -> Vec<Selector> {
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    node_selector(required)
}

pub fn pod_affinity(affinity: Option<&k8s::Affinity>, own: &BTreeMap<String, String>) -> Vec<PodTerm> {
    let terms = affinity
        .and_then(|affinity| affinity.pod_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().map(|term| pod_term(term, own)).collect()
}

pub fn pod_anti_affinity(affinity: Option<&k8s::Affinity>, own: &BTreeMap<String, String>) -> Vec<PodTerm> {
    let terms = affinity
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().map(|term| pod_term(term, own)).collect()
}

fn pod_term(term: &k8s::PodAffinityTerm, own: &BTreeMap<String, String>) -> PodTerm {
    let mut selector = selector(term.label_selector.as_ref());
    selector
        .requirements
        .extend(own_values(term.match_label_keys.as_ref(), own, Operator::In));
    selector
        .requirements
        .extend(own_values(term.mismatch_label_keys.as_ref(), own, Operator::NotIn));
    PodTerm {
        selector,
        namespaces: texts(term.namespaces.as_ref()),
        // Absent it is none, and not one that selects nothing.
        namespace_selector: term.namespace_selector.as_ref().map(selector_of),
        topology_key: Arc::from(term.topology_key.as_str()),
    }
}

/// `matchLabelKeys`: requirements with the pod's own values, as the API server adds them.
fn own_values<'a>(
    keys: Option<&'a Vec<String>>,
    own: &'a BTreeMap<String, String>,
    operator: Operator,
) -> impl Iterator<Item = Requirement> + 'a {
    keys.into_iter().flatten().filter_map(move |key| {
        Some(Requirement {
            key: Arc::from(key.as_str()),
            operator,
            values: vec![Arc::from(own.get(key)?.as_str())],
        })
    })
}

pub fn spread(constraints: Option<&Vec<k8s::TopologySpreadConstraint>>, own: &BTreeMap<String, String>) -> Vec<Spread> {
    constraints
        .into_iter()
        .flatten()
        .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
        .map(|constraint| {
            let mut selector = selector(constraint.label_selector.as_ref());
            let keys = constraint.match_label_keys.as_ref();
            selector.requirements.extend(own_values(keys, own, Operator::In));
            Spread {
                max_skew: i64::from(constraint.max_skew),
                min_domains: constraint
                    .min_domains
                    .and_then(|count| usize::try_from(count).ok())
                    .unwrap_or(1),
                topology_key: Arc::from(constraint.topology_key.as_str()),
                selector,
            }
        })
        .collect()
}

fn effect(word: &str) -> Option<TaintEffect> {
    Some(match word {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => return None,
    })
}

pub fn taints(taints: Option<&Vec<k8s::Taint>>) -> Vec<Taint> {
    taints
        .into_iter()
        .flatten()
        .filter_map(|taint| {
            Some(Taint {
                key: Arc::from(taint.key.as_str()),
                value: Arc::from(taint.value.as_deref().unwrap_or_default()),
                effect: effect(&taint.effect)?,
            })
        })
        .collect()
}

pub fn tolerations(tolerations: Option<&Vec<k8s::Toleration>>) -> Vec<Toleration> {
    let filled = |text: Option<&String>| {
        text.filter(|text| !text.is_empty())
            .map(|text| Arc::from(text.as_str()))
    };
    tolerations
        .into_iter()
        .flatten()
        .map(|toleration| Toleration {
            key: filled(toleration.key.as_ref()),
            value: match toleration.operator.as_deref() {
                Some("Exists") => None,
                _ => Some(Arc::from(toleration.value.as_deref().unwrap_or_default())),
            },
            effect: toleration.effect.as_deref().and_then(effect),
        })
        .collect()
}

/// What a pod asks for, as the scheduler counts it: containers together with sidecars, or the largest init container
/// with the sidecars before it, whichever is more, and the overhead; what is said for the pod as a whole has precedence.
pub fn requests(spec: &PodSpec) -> Result<Resources, NotAnAmount> {
    let mut running = Resources::default();
    for container in spec.containers.iter().flatten() {
        running.add(&requests_of(container)?);
    }
    let (mut sidecars, mut peak) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let own = requests_of(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            peak = larger(&peak, &sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            with_sidecars.add(&own);
            peak = larger(&peak, &with_sidecars);
        }
    }
    running.add(&sidecars);
    let mut all = larger(&running, &peak);
    let whole = spec.resources.as_ref().and_then(|whole| whole.requests.as_ref());
    for (name, quantity) in whole.into_iter().flatten() {
        let one = resources(&BTreeMap::from([(name.clone(), quantity.clone())]), Rounding::Up)?;
        match name.as_str() {
            "cpu" => all.cpu_milli = one.cpu_milli,
            "memory" => all.memory = one.memory,
            _ => all.others.extend(one.others),
        }
    }
    if let Some(overhead) = &spec.overhead {
        all.add(&resources(overhead, Rounding::Up)?);
    }
    all.pods = 1;
    Ok(all)
}

fn requests_of(container: &Container) -> Result<Resources, NotAnAmount> {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    requests.map_or_else(
        || Ok(Resources::default()),
        |requests| resources(requests, Rounding::Up),
    )
}

fn larger(one: &Resources, other: &Resources) -> Resources {
    let mut others = one.others.clone();
    for (name, amount) in &other.others {
        let entry = others.entry(Arc::clone(name)).or_default();
        *entry = (*entry).max(*amount);
    }
    Resources {
        cpu_milli: one.cpu_milli.max(other.cpu_milli),
        memory: one.memory.max(other.memory),
        pods: one.pods.max(other.pods),
        others,
    }
}
