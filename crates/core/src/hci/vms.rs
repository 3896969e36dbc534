//! Virtual machines that cannot leave their node by live migration, each with every reason. Upstream looks at four rules and
//! stops at the first that fits; the reasons KubeVirt itself gives, taints, disks that stay behind, processors and room elsewhere count too.

mod elsewhere;

use std::fmt;
use std::sync::Arc;

use afloat_api::{annotations, labels};

use self::elsewhere::{Elsewhere, Stock};
use super::view::{Seen, Vmi};
use crate::view::{Key, Node, NodeName, TaintEffect, View};

/// Why a virtual machine cannot be migrated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Why {
    /// There is no other node.
    OnlyNode,
    /// Its node selector names labels that no other node in service has.
    Selector(String),
    /// Its affinity allows no other node in service.
    Affinity,
    /// It uses a device of its host.
    HostDevice,
    /// KubeVirt says so, as for CD-ROMs, container disks and volumes that one node alone may use.
    KubeVirt(Arc<str>),
    /// A disk of it has one replica, which does not move with it: it is without its data while a node is away.
    SingleReplica(String),
    /// Every node it could go to is cordoned, tainted or not Ready.
    NobodyInService,
    /// No other node has the processor it was started with, or asks for.
    Processor(String),
    /// It asks for more than any other node has left, by the virtual machines there alone.
    NoRoom(String),
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyNode => formatter.write_str("there is no other node"),
            Self::Selector(labels) => write!(formatter, "its nodeSelector ({labels}) fits no other node in service"),
            Self::Affinity => formatter.write_str("its node affinity allows no other node in service"),
            Self::HostDevice => formatter.write_str("it uses a device of its host"),
            Self::KubeVirt(text) => write!(formatter, "KubeVirt says: {text}"),
            Self::SingleReplica(volumes) => {
                write!(
                    formatter,
                    "its data is in one place only: {volumes} has a single replica"
                )
            }
            Self::Processor(what) => write!(formatter, "no other node in service {what}"),
            Self::NoRoom(what) => write!(formatter, "no other node in service has room for it: {what}"),
            Self::NobodyInService => formatter.write_str("every other node is cordoned, tainted or not Ready"),
        }
    }
}

/// A virtual machine that cannot be migrated.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    pub vm: Key,
    pub node: NodeName,
    pub whys: Vec<Why>,
}

impl Bound {
    /// Waiting will not change it: something of its own binds it, not that other nodes are out of service.
    pub fn lasts(&self) -> bool {
        let passes = |why: &Why| matches!(why, Why::NobodyInService | Why::NoRoom(_));
        !self.whys.iter().all(passes)
    }

    /// Room is all it lacks. That comes and goes while others move: it is stopped only if that was so, and on record, when its node began.
    pub fn lacks_room_alone(&self) -> bool {
        self.whys.iter().all(|why| matches!(why, Why::NoRoom(_)))
    }

    /// `vm/ns/name: because; because`
    pub fn reasons(&self) -> String {
        let words: Vec<String> = self.whys.iter().map(ToString::to_string).collect();
        words.join("; ")
    }
}

/// Nodes a virtual machine may be on at all: a witness runs etcd only.
pub fn hosts(view: &View) -> impl Iterator<Item = &Arc<Node>> {
    view.nodes
        .values()
        .filter(|node| !node.labels.contains_key(labels::HARVESTER_WITNESS))
}

/// The virtual machines on a node that cannot leave it by migration, by name.
pub fn bound(view: &View, node: &NodeName) -> Vec<Bound> {
    bound_on(view, &Stock::new(view), node)
}

fn bound_on(view: &View, stock: &Stock<'_>, node: &NodeName) -> Vec<Bound> {
    let others: Vec<&Arc<Node>> = hosts(view).filter(|other| other.name != *node).collect();
    let in_service: Vec<&Arc<Node>> = others.iter().copied().filter(|other| takes_vms(other)).collect();
    let elsewhere = Elsewhere::new(stock, node);
    let bound = |vmi: &Arc<Seen<Vmi>>| {
        let whys = whys(vmi, &others, &in_service, &elsewhere);
        (!whys.is_empty()).then(|| Bound {
            vm: vmi.target.key.clone(),
            node: node.clone(),
            whys,
        })
    };
    view.hci
        .vmis_on(node)
        .filter(|vmi| !vmi.of_upgrade)
        .filter_map(bound)
        .collect()
}

/// The same for all nodes.
pub fn all_bound(view: &View) -> Vec<Bound> {
    let stock = Stock::new(view);
    view.nodes
        .keys()
        .flat_map(|node| bound_on(view, &stock, node))
        .collect()
}

/// Whether everybody has left a node.
pub fn left(view: &View, node: &NodeName) -> bool {
    view.hci.vmis_on(node).all(|vmi| vmi.of_upgrade)
}

/// Whether virtual machines may move to a node now.
fn takes_vms(node: &Node) -> bool {
    let kept_away = |taint: &crate::view::Taint| {
        &*taint.key == annotations::KUBEVIRT_DRAIN_TAINT
            || (taint.effect == TaintEffect::NoExecute && taint.key.starts_with("node.kubernetes.io/"))
    };
    node.available() && !node.taints.iter().any(kept_away)
}

fn whys(vmi: &Seen<Vmi>, others: &[&Arc<Node>], in_service: &[&Arc<Node>], elsewhere: &Elsewhere<'_>) -> Vec<Why> {
    if others.is_empty() {
        return vec![Why::OnlyNode];
    }
    let mut whys = Vec::new();
    if vmi.host_devices {
        whys.push(Why::HostDevice);
    }
    if let Some(text) = &vmi.not_migratable {
        whys.push(Why::KubeVirt(Arc::clone(text)));
    }
    whys.extend(elsewhere.single_replicas(vmi));
    let selects = |node: &Node| {
        let mut wanted = vmi.node_selector.iter();
        wanted.all(|(key, value)| node.labels.get(key) == Some(value))
    };
    let allows = |node: &Node| {
        vmi.node_affinity.is_empty() || vmi.node_affinity.iter().any(|selector| selector.matches(&node.labels))
    };
    if in_service.is_empty() {
        whys.push(Why::NobodyInService);
        return whys;
    }
    let selected: Vec<&&Arc<Node>> = in_service.iter().filter(|node| selects(node)).collect();
    if selected.is_empty() {
        let words: Vec<String> = vmi
            .node_selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        whys.push(Why::Selector(words.join(",")));
        return whys;
    }
    let allowed: Vec<&Arc<Node>> = selected.into_iter().filter(|node| allows(node)).copied().collect();
    if allowed.is_empty() {
        whys.push(Why::Affinity);
    } else {
        whys.extend(elsewhere.unfit(vmi, &allowed));
    }
    whys
}

/// What KubeVirt calls the budgets that guard a machine while it moves, before the name of the migration.
const EVACUATION_BUDGET: &str = "kubevirt-migration-pdb-";

/// Budgets of migrations that would keep a drain of a node waiting: those of machines that are on it, or that are just leaving it. One of a machine
/// that moves elsewhere in the cluster is none of its business.
pub fn evacuation_budgets<'a>(view: &'a View, node: &NodeName) -> Vec<&'a str> {
    let concerns = |budget: &Key| {
        let name = budget.name.strip_prefix(EVACUATION_BUDGET)?;
        let migration = view.hci.migrations.get(&Key::new(&budget.namespace, name))?;
        let vm = Key::new(&budget.namespace, &migration.vmi);
        let here = view
            .hci
            .vmis
            .get(&vm)
            .is_some_and(|vmi| vmi.node.as_ref() == Some(node));
        Some(here || migration.source.as_ref() == Some(node))
    };
    let budgets = view.budgets.keys().filter(|budget| concerns(budget) == Some(true));
    budgets.map(|budget| &*budget.name).collect()
}
