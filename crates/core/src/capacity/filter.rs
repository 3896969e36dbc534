//! What a pod asks of a node by itself, whatever else runs there: labels, taints, volumes.

use std::sync::Arc;

use super::Blocker;
use crate::view::{Key, Node, PodShape, Taint, TaintEffect, Toleration, View};

/// What keeps pods of this shape from a node for good.
pub(super) fn standing_blocker(view: &View, namespace: &Arc<str>, shape: &PodShape, node: &Node) -> Option<Blocker> {
    if !selects(shape, node) {
        return Some(Blocker::NodeSelector);
    }
    if !node.taints.iter().all(|taint| tolerated(shape, taint)) {
        return Some(Blocker::Taint);
    }
    if !volumes_reach(view, namespace, shape, node) {
        return Some(Blocker::Volume);
    }
    None
}

/// Whether the node has the labels that selector and required node affinity ask for.
pub(super) fn selects(shape: &PodShape, node: &Node) -> bool {
    let labels = &node.labels;
    shape
        .node_selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && (shape.node_affinity.is_empty() || shape.node_affinity.iter().any(|term| term.matches(labels)))
}

fn tolerated(shape: &PodShape, taint: &Taint) -> bool {
    taint.effect == TaintEffect::PreferNoSchedule
        || shape.tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.key.as_ref().is_none_or(|key| *key == taint.key)
        && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
        && toleration.effect.is_none_or(|effect| effect == taint.effect)
}

/// A claim that is not bound yet, or not known, binds where its pod goes.
fn volumes_reach(view: &View, namespace: &Arc<str>, shape: &PodShape, node: &Node) -> bool {
    shape.claims.iter().all(|name| {
        let key = Key {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        view.claims.get(&key).is_none_or(|claim| {
            claim.node_affinity.is_empty() || claim.node_affinity.iter().any(|term| term.matches(&node.labels))
        })
    })
}
