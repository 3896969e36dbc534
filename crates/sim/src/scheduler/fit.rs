//! Whether a node can take a pod, and in which words it is said when none can. Rules about other pods (required
//! anti-affinity, hard topology spread) are judged on the candidates the others left.

use super::Books;
use crate::object::label;
use crate::quantity::requested;
use crate::select::{repelling_taint, selects, wants_node};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a node cannot take a pod, in kube-scheduler's words.
pub(super) type Reason = String;

pub(super) fn fits(pod: &Pod, node: &Node, books: &Books) -> Option<Reason> {
    let spec = pod.spec.as_ref()?;
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if let Some(taint) = repelling_taint(tolerations, node) {
        return Some(if taint.key == "node.kubernetes.io/unschedulable" {
            "node(s) were unschedulable".to_owned()
        } else {
            format!(
                "node(s) had untolerated taint(s) {{{}: {}}}",
                taint.key,
                taint.value.unwrap_or_default()
            )
        });
    }
    if !wants_node(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if books.pods >= books.max_pods {
        return Some("Too many pods".to_owned());
    }
    let asked = requested(pod);
    if asked.cpu > 0 && books.promised.cpu.saturating_add(asked.cpu) > books.allocatable.cpu {
        return Some("Insufficient cpu".to_owned());
    }
    if asked.memory > 0 && books.promised.memory.saturating_add(asked.memory) > books.allocatable.memory {
        return Some("Insufficient memory".to_owned());
    }
    None
}

/// A rule about other pods: who counts, per which topology, and how many more than the emptiest domain may be there.
struct Rule<'a> {
    selector: Option<&'a LabelSelector>,
    topology: &'a str,
    /// Nothing for anti-affinity: none at all.
    skew: Option<i32>,
}

fn rules(pod: &Pod) -> Vec<Rule<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let anti = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_deref());
    let apart = terms.unwrap_or_default().iter().map(|term| Rule {
        selector: term.label_selector.as_ref(),
        topology: &term.topology_key,
        skew: None,
    });
    let spread = spec
        .topology_spread_constraints
        .iter()
        .flatten()
        .filter(|c| c.when_unsatisfiable == "DoNotSchedule");
    let spread = spread.map(|constraint| Rule {
        selector: constraint.label_selector.as_ref(),
        topology: &constraint.topology_key,
        skew: Some(constraint.max_skew),
    });
    apart.chain(spread).collect()
}

pub(super) fn minds_other_pods(pod: &Pod) -> bool {
    !rules(pod).is_empty()
}

/// Takes out the candidates that rules about other pods forbid; says how many, and why.
pub(super) fn spread_reason(
    pod: &Pod,
    candidates: &mut Vec<&Arc<Node>>,
    view: &crate::view::View,
    others: &[(Arc<Pod>, String)],
) -> Option<(Reason, usize)> {
    let before = candidates.len();
    let mut reason = None;
    for rule in rules(pod) {
        let mut counts: BTreeMap<&str, i32> = candidates
            .iter()
            .filter_map(|node| label(&node.metadata, rule.topology))
            .map(|domain| (domain, 0))
            .collect();
        for (other, node) in others {
            let counted = rule
                .selector
                .is_some_and(|selector| selects(selector, other.metadata.labels.as_ref()));
            let domain = view.node(node).and_then(|node| label(&node.metadata, rule.topology));
            if counted && let Some(domain) = domain {
                *counts.entry(domain).or_default() += 1;
            }
        }
        let emptiest = counts.values().copied().min().unwrap_or(0);
        let left = candidates.len();
        candidates.retain(|node| {
            let domain = label(&node.metadata, rule.topology);
            let there = domain.and_then(|domain| counts.get(domain)).copied().unwrap_or(0);
            match rule.skew {
                None => there == 0,
                Some(skew) => domain.is_some() && there + 1 - emptiest <= skew,
            }
        });
        if candidates.len() < left {
            reason = Some(if rule.skew.is_some() {
                "node(s) didn't match pod topology spread constraints".to_owned()
            } else {
                "node(s) didn't match pod anti-affinity rules".to_owned()
            });
        }
    }
    reason.map(|reason| (reason, before - candidates.len()))
}

/// The sentence kube-scheduler writes for a pod without a place.
pub(super) fn explain(reasons: &BTreeMap<Reason, usize>, nodes: usize) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let parts: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}
