//! What other nodes have for a virtual machine: its data, a processor like the one it runs on, and room. Only what is seen for certain
//! counts: where KubeVirt's labels are missing, or a node does not say what it has, it is taken to fit.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Why;
use crate::hci::view::{Seen, Vmi};
use crate::view::{Key, Node, NodeName, Resources, View};

/// KubeVirt's labels of nodes, each followed by a name.
const MODEL: &str = "cpu-model.node.kubevirt.io/";
const MODEL_FOR_MIGRATION: &str = "cpu-model-migration.node.kubevirt.io/";
const FEATURE: &str = "cpu-feature.node.kubevirt.io/";
const HOST_MODEL: &str = "host-model-cpu.node.kubevirt.io/";
const HOST_MODEL_FEATURE: &str = "host-model-required-features.node.kubevirt.io/";
/// The model that means: like the host. Of `host-passthrough` KubeVirt itself says where it may go.
const LIKE_THE_HOST: &str = "host-model";
const MIB: i64 = 1 << 20;

/// What there is on all nodes, whoever asks.
pub struct Stock<'a> {
    view: &'a View,
    /// Volumes with one replica, by the claim they serve.
    single: BTreeMap<&'a Key, &'a str>,
    /// What is left on each node, worked out when the first asks.
    free: OnceCell<BTreeMap<NodeName, Resources>>,
}

impl<'a> Stock<'a> {
    pub fn new(view: &'a View) -> Self {
        let volumes = view.hci.volumes.values();
        let single = volumes.filter(|volume| volume.replicas == 1 && volume.attached());
        Self {
            view,
            single: single
                .filter_map(|volume| Some((volume.claim.as_ref()?, &*volume.target.key.name)))
                .collect(),
            free: OnceCell::new(),
        }
    }

    fn free(&self) -> &BTreeMap<NodeName, Resources> {
        self.free.get_or_init(|| {
            let left = |node: &Arc<Node>| {
                let mut left = node.allocatable.clone();
                for vmi in self.view.hci.vmis_on(&node.name) {
                    left.subtract(&vmi.requests);
                }
                (node.name.clone(), left)
            };
            self.view.nodes.values().map(left).collect()
        })
    }
}

/// The other nodes, as the virtual machines of one node find them.
pub struct Elsewhere<'a> {
    stock: &'a Stock<'a>,
    from: Option<&'a Arc<Node>>,
}

impl<'a> Elsewhere<'a> {
    pub fn new(stock: &'a Stock<'a>, node: &NodeName) -> Self {
        Self {
            stock,
            from: stock.view.nodes.get(node),
        }
    }

    pub fn single_replicas(&self, vmi: &Seen<Vmi>) -> Option<Why> {
        let single = &self.stock.single;
        if single.is_empty() {
            return None;
        }
        let namespace = &vmi.target.key.namespace;
        let of_it = vmi.claims.iter();
        let of_it = of_it.filter_map(|claim| single.get(&Key::new(namespace, claim)).copied());
        let names: Vec<&str> = of_it.collect();
        (!names.is_empty()).then(|| Why::SingleReplica(names.join(", ")))
    }

    /// Why none of the nodes will do that its rules let it go to.
    pub fn unfit(&self, vmi: &Vmi, nodes: &[&Arc<Node>]) -> Option<Why> {
        let wanted = self.processor(vmi);
        let has = |node: &Node, label: &str| node.labels.get(label).is_some_and(|value| &**value == "true");
        let runs: Vec<&&Arc<Node>> = nodes
            .iter()
            .filter(|node| wanted.iter().all(|(label, _)| has(node, label)))
            .collect();
        if runs.is_empty() {
            // Named by what no node has; where each has something, by all of it.
            let missing = wanted
                .iter()
                .filter(|(label, _)| !nodes.iter().any(|node| has(node, label)));
            let missing: Vec<&str> = missing.map(|(_, word)| word.as_str()).collect();
            let words = if missing.is_empty() {
                wanted.iter().map(|(_, word)| word.as_str()).collect()
            } else {
                missing
            };
            return Some(Why::Processor(format!("has {}", words.join(", "))));
        }
        self.no_room(vmi, &runs)
    }

    /// The labels a node must have to run it, each with a word for people; none where KubeVirt has not labelled the nodes.
    fn processor(&self, vmi: &Vmi) -> Vec<(String, String)> {
        let Some(from) = self.from else {
            return Vec::new();
        };
        let named = |prefix: &'static str| {
            let keys = from.labels.keys().filter_map(move |key| key.strip_prefix(prefix));
            keys.map(str::to_owned)
        };
        let labelled = |prefix: &'static str| named(prefix).next().is_some();
        let mut wanted = Vec::new();
        let mut want = |prefix: &str, kind: &str, name: &str| {
            wanted.push((format!("{prefix}{name}"), format!("the processor {kind} {name}")));
        };
        match &*vmi.cpu_model {
            // KubeVirt lets it go nowhere but to the same model.
            "" | LIKE_THE_HOST => {
                if labelled(MODEL_FOR_MIGRATION) {
                    named(HOST_MODEL).for_each(|model| want(MODEL_FOR_MIGRATION, "model", &model));
                }
                if labelled(FEATURE) {
                    named(HOST_MODEL_FEATURE).for_each(|feature| want(FEATURE, "feature", &feature));
                }
            }
            "host-passthrough" => {}
            model if labelled(MODEL) => want(MODEL, "model", model),
            _ => {}
        }
        if labelled(FEATURE) {
            for feature in &vmi.cpu_features {
                want(FEATURE, "feature", feature);
            }
        }
        wanted
    }

    /// By virtual machines alone: pods come on top, so that whoever finds no room here finds none.
    fn no_room(&self, vmi: &Vmi, nodes: &[&&Arc<Node>]) -> Option<Why> {
        let asks = &vmi.requests;
        if asks.memory == 0 && asks.cpu_milli == 0 {
            return None;
        }
        let lacks = |asked: i64, left: i64, whole: i64| asked > 0 && whole > 0 && asked > left;
        let mut most = (0, 0);
        for node in nodes {
            let left = self.stock.free().get(&node.name)?;
            let memory = lacks(asks.memory, left.memory, node.allocatable.memory);
            let cpu = lacks(asks.cpu_milli, left.cpu_milli, node.allocatable.cpu_milli);
            if !memory && !cpu {
                return None;
            }
            most = (most.0.max(left.memory), most.1.max(left.cpu_milli));
        }
        Some(Why::NoRoom(format!(
            "it asks for {} MiB and {}m CPU, and at most {} MiB and {}m are left",
            asks.memory / MIB,
            asks.cpu_milli,
            most.0 / MIB,
            most.1
        )))
    }
}
