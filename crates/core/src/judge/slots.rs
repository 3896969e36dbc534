//! Who may be disrupted next: the ledger. Decided for the whole cluster in one fixed order, and recorded before anything
//! starts; a stale view then picks the same nodes, and its write is refused.

use std::collections::{BTreeMap, BTreeSet};

use afloat_api::clusterupgrade::{MAX_SLOTS, Slot};
use afloat_api::{NodeRole, ObjectRef, Reason};
use jiff::Timestamp;

use super::roster::Roster;
use super::undoing::{is_wished, undo_refused};
use crate::capacity::Room;
use crate::gates::{self, Closed};
use crate::lifecycle::drain;
use crate::objects::{Standing, target_of};
use crate::plan::{self, Stage, StageKind};
use crate::settings::{Settings, Share, upgrade_uid};
use crate::view::{Key, Node, NodeName, Revision, View};

/// How many nodes without room for their pods are looked at before a turn gives up: each costs a search over all others, so in a large
/// cluster it is fewer.
fn searches(nodes: usize) -> usize {
    (20_000 / nodes.max(1)).max(8)
}

/// What a granting turn works on.
pub struct Granting<'a> {
    pub view: &'a View,
    pub roster: &'a Roster<'a>,
    pub stage: &'a Stage,
    pub settings: &'a Settings,
    /// The ClusterUpgrade, where there is one: its custom gates count.
    pub upgrade: Option<&'a Key>,
    /// The loss of quorum while a control plane restarts was accepted.
    pub downtime_accepted: bool,
    /// When the ledger was written that is granted upon.
    pub ledger_as_of: Revision,
    pub now: Timestamp,
}

/// Who got a slot, and who is held back by what.
#[derive(Debug, Default)]
pub struct Granted {
    pub slots: Vec<Slot>,
    pub held: Vec<(NodeName, Closed)>,
    /// Somebody may be held back only because nodes were not seen since the ledger was written.
    pub behind: bool,
}

/// A node that could go.
struct Candidate<'a> {
    node: &'a Node,
    standing: Standing<'a>,
}

impl<'a> Granting<'a> {
    /// Grants what the budget allows beyond the slots that are held.
    pub fn grant(&self, held: &[Slot]) -> Granted {
        match self.stage.kind {
            StageKind::ControlPlane => self.grant_control_plane(held),
            StageKind::Workers => self.grant_workers(held),
        }
    }

    /// Nodes that are ready to go, those of a later attempt last, else in the order of the plan.
    fn candidates(&self) -> Vec<Candidate<'a>> {
        let view = self.view;
        let nodes = view.nodes.values().map(AsRef::as_ref);
        let order = plan::order(view, nodes, self.stage.kind, self.settings);
        let of_stage = self.roster.of_stage(self.stage);
        let mut candidates: Vec<Candidate<'a>> = order
            .into_iter()
            .filter_map(|node| {
                let standing = of_stage.get(node.name.as_str())?;
                (standing.node_uid() == node.uid.as_str()).then_some(Candidate { node, standing })
            })
            .filter(|candidate| candidate.standing.ready_to_go() && !candidate.standing.in_flight())
            .collect();
        candidates.sort_by_key(|candidate| candidate.standing.upgrade.spec.attempt);
        candidates
    }

    fn grant_control_plane(&self, held: &[Slot]) -> Granted {
        let mut granted = Granted::default();
        if !held.is_empty() {
            return granted;
        }
        let serving = || self.roster.serving(self.stage);
        let there_before = || {
            let mut nodes = self.view.control_plane_nodes();
            nodes.any(|node| !plan::needs(self.view, node, self.stage, false))
                && !serving().any(|members| members.group.names_images())
        };
        let first_done = serving()
            .flat_map(|members| members.nodes.iter())
            .any(Standing::succeeded)
            || there_before();
        for candidate in self.candidates() {
            let role = candidate.standing.upgrade.spec.role;
            let closed = paused(candidate.node).or_else(|| {
                let waits = role != NodeRole::FirstControlPlane && !first_done;
                waits.then(|| self.first_goes_before(candidate.standing))
            });
            let closed = closed
                .or_else(|| self.keeps_the_address(candidate.node, &granted.held))
                .or_else(|| {
                    gates::control_plane(self.view, candidate.node, self.downtime_accepted)
                        .and_then(|()| self.custom())
                        .err()
                        .map(|closed| *closed)
                })
                .or_else(|| self.no_place_for_pods(candidate.node));
            let Some(closed) = closed else {
                granted.slots.push(self.slot(&candidate));
                break;
            };
            granted.held.push((candidate.node.name.clone(), closed));
        }
        granted
    }

    /// The others wait for the first control plane; where that one has left before its turn, for a person who makes another one the first.
    fn first_goes_before(&self, standing: Standing<'_>) -> Closed {
        let mut standings = self.roster.serving(self.stage).flat_map(|members| members.nodes.iter());
        let target = target_of(&standing.upgrade.metadata);
        let (message, blocked_by) = if standings.any(Standing::is_first) {
            (
                "the first control plane changes what the cluster shares; it goes before the others".to_owned(),
                None,
            )
        } else {
            let (namespace, name) = (&target.key.namespace, &target.key.name);
            let message = format!(
                "the control plane that was to go first has left: kubectl -n {namespace} delete nodekubeadmupgrade {name} lets {} go in its place",
                standing.node()
            );
            let object = ObjectRef {
                kind: "NodeKubeadmUpgrade".to_owned(),
                namespace: Some(namespace.to_string()),
                name: name.to_string(),
                ..ObjectRef::default()
            };
            (message, Some(object))
        };
        Closed {
            reason: Reason::WaitingForEarlierNode,
            message,
            blocked_by,
            until: None,
        }
    }

    /// Whoever holds the virtual address does not overtake those that are held by their pods: it would move onto one of them, and again.
    fn keeps_the_address(&self, node: &Node, held: &[(NodeName, Closed)]) -> Option<Closed> {
        let by_pods = |reason| {
            matches!(
                reason,
                Reason::WaitingForCapacity | Reason::WaitingForPodDisruptionBudget
            )
        };
        let holds = self.view.vip_holder.as_ref() == Some(&node.name);
        let (earlier, _) = held.iter().find(|(_, closed)| holds && by_pods(closed.reason))?;
        Some(Closed {
            reason: Reason::WaitingForEarlierNode,
            message: format!("it holds the virtual address, which moves once: {earlier} goes first"),
            blocked_by: None,
            until: None,
        })
    }

    /// Control planes may carry workloads too: what cannot leave or finds no place keeps them as it keeps a worker.
    fn no_place_for_pods(&self, node: &Node) -> Option<Closed> {
        if drain::waived(self.view, node) {
            return None;
        }
        // For a group that stands alone nobody could accept that a replica waits.
        let room = || {
            self.upgrade
                .and_then(|_| no_room(&mut Room::new(self.view, &self.settings.accept), node))
        };
        self.no_headroom(node).or_else(room)
    }

    fn no_headroom(&self, node: &Node) -> Option<Closed> {
        let block = drain::no_headroom(self.view, node, &self.settings.drain, self.now)?;
        Some(Closed {
            reason: block.reason,
            message: block.message,
            blocked_by: Some(block.by),
            until: None,
        })
    }

    fn custom(&self) -> Result<(), Box<Closed>> {
        match self.upgrade {
            Some(key) => gates::custom(self.view, key, self.settings),
            None => Ok(()),
        }
    }

    fn grant_workers(&self, held: &[Slot]) -> Granted {
        let mut granted = Granted::default();
        let mut out = Out::of(self.view, held, self.settings, self.ledger_as_of);
        let mut room: Option<Room<'a>> = None;
        let mut without_room = 0;
        // A node whose slot is recorded may not have been let go yet: it is no candidate for a second one. Nor is its predecessor, which an
        // old view still shows: the ledger has one entry for a name.
        let has_slot = |node: &Node| held.iter().any(|slot| slot.node == node.name.as_str());
        for candidate in self
            .candidates()
            .into_iter()
            .filter(|candidate| !has_slot(candidate.node))
        {
            if held.len() + granted.slots.len() >= MAX_SLOTS || without_room >= searches(self.view.nodes.len()) {
                break;
            }
            let closed = paused(candidate.node)
                .or_else(|| not_ready(candidate.node))
                .or_else(|| out.refuses(candidate.node, candidate.standing, self.settings))
                .or_else(|| {
                    gates::api_server(self.view)
                        .and_then(|()| self.custom())
                        .err()
                        .map(|closed| *closed)
                })
                .or_else(|| self.no_headroom(candidate.node))
                .or_else(|| no_room(room.get_or_insert_with(|| self.room(&out)), candidate.node));
            let Some(closed) = closed else {
                let node = candidate.node;
                out.take(&node.name, node.failure_domain(&self.settings.failure_domain_label));
                granted.slots.push(self.slot(&candidate));
                continue;
            };
            let full = closed.reason == Reason::WaitingForBudget;
            without_room += usize::from(closed.reason == Reason::WaitingForCapacity);
            granted.behind |= full && out.may_be_back(candidate.node);
            granted.held.push((candidate.node.name.clone(), closed));
            if full && self.settings.per_failure_domain.is_none() {
                break;
            }
        }
        granted
    }

    /// The room there is beside the nodes that hold a slot: what is put there in thought for one is not there for the next.
    fn room(&self, out: &Out) -> Room<'a> {
        let mut room = Room::new(self.view, &self.settings.accept);
        room.without(out.slots.iter().cloned());
        room
    }

    fn slot(&self, candidate: &Candidate<'_>) -> Slot {
        let domain = candidate.node.failure_domain(&self.settings.failure_domain_label);
        Slot {
            failure_domain: domain.map(str::to_owned),
            ..candidate.standing.slot(self.now)
        }
    }
}

fn no_room(room: &mut Room<'_>, node: &Node) -> Option<Closed> {
    let example = room.take(&node.name).err()?;
    Some(Closed {
        reason: Reason::WaitingForCapacity,
        message: example.to_string(),
        blocked_by: Some(example.workload),
        until: None,
    })
}

/// Nothing can be done on a node whose kubelet does not answer: a slot would only keep others from going.
fn not_ready(node: &Node) -> Option<Closed> {
    (!node.ready.ready).then(|| Closed {
        reason: Reason::WaitingForNode,
        message: format!("node {} is not Ready: it is taken once it is", node.name),
        blocked_by: Some(super::children::machine(node)),
        until: None,
    })
}

fn paused(node: &Node) -> Option<Closed> {
    node.pause.as_ref().map(|_| Closed {
        reason: Reason::NodePaused,
        message: format!("held by a person; afloat resume {} lets it go on", node.name),
        blocked_by: Some(super::children::machine(node)),
        until: None,
    })
}

/// The workers that are out of service, or may be soon.
struct Out {
    /// Those that hold a slot.
    slots: BTreeSet<NodeName>,
    /// All, the broken and the cordoned included.
    all: BTreeSet<NodeName>,
    /// Failure domain of each, with its count.
    domains: BTreeMap<String, usize>,
    /// The same of those that hold a slot.
    slot_domains: BTreeMap<String, usize>,
    allowed: usize,
    nodes_as_of: Revision,
    ledger_as_of: Revision,
}

impl Out {
    fn of(view: &View, held: &[Slot], settings: &Settings, ledger_as_of: Revision) -> Self {
        let away = view.worker_nodes().filter(|node| !node.available());
        let mut out = Self {
            slots: BTreeSet::new(),
            all: BTreeSet::new(),
            domains: BTreeMap::new(),
            slot_domains: BTreeMap::new(),
            allowed: settings.max_unavailable.of(view.worker_nodes().count()),
            nodes_as_of: view.nodes_as_of,
            ledger_as_of,
        };
        for node in away {
            out.count(&node.name, node.failure_domain(&settings.failure_domain_label));
        }
        // A slot counts also where its machine is not seen: an old view may be from before it joined. Of one that has left it is
        // given back first.
        for slot in held {
            let node = view.nodes.get(slot.node.as_str());
            let domain = match node {
                Some(node) => node.failure_domain(&settings.failure_domain_label),
                None => slot.failure_domain.as_deref(),
            };
            out.take(&NodeName::from(slot.node.as_str()), domain);
        }
        out
    }

    fn count(&mut self, name: &NodeName, domain: Option<&str>) {
        if self.all.insert(name.clone())
            && let Some(domain) = domain
        {
            *self.domains.entry(domain.to_owned()).or_default() += 1;
        }
    }

    fn take(&mut self, name: &NodeName, domain: Option<&str>) {
        self.count(name, domain);
        if self.slots.insert(name.clone())
            && let Some(domain) = domain
        {
            *self.slot_domains.entry(domain.to_owned()).or_default() += 1;
        }
    }

    /// Whether a node was out of service before the ledger was written, and was not seen since: whoever wrote it may have seen
    /// the node come back, and given its place to another.
    fn may_be_back(&self, node: &Node) -> bool {
        self.all.contains(&node.name) && node.revision < self.ledger_as_of && self.nodes_as_of < self.ledger_as_of
    }

    /// Why one more node would be too many. A node that is out of service already adds nothing, where that is certain, unless
    /// it is so by our own hand: what we cordoned is given back by whoever has done so, and an old view may show the cordon of
    /// an earlier attempt.
    fn refuses(&self, node: &Node, standing: Standing<'_>, settings: &Settings) -> Option<Closed> {
        // But it may come back while it is held: no more slots than may be away, in all and in its domain, whatever they are
        // given to.
        let domain = node.failure_domain(&settings.failure_domain_label);
        let in_domain = domain.and_then(|domain| self.slot_domains.get(domain)).copied();
        let room_in_domain = in_domain.unwrap_or_default() < settings.per_failure_domain.unwrap_or(usize::MAX);
        let ours = node.cordoned_by == Some(upgrade_uid(standing.upgrade));
        let out_already = self.all.contains(&node.name) && !ours && !self.may_be_back(node);
        if out_already && self.slots.len() < self.allowed && room_in_domain {
            return None;
        }
        let others = self.all.iter().filter(|name| **name != node.name).count();
        let limit = |what: String| Closed {
            reason: Reason::WaitingForBudget,
            message: what,
            blocked_by: None,
            until: None,
        };
        if others >= self.allowed {
            let broken = self.all.difference(&self.slots).count();
            let slots = self.slots.len();
            let share = match settings.max_unavailable {
                Share::Count(count) => count.to_string(),
                Share::Percent(percent) => format!("{percent}% = {}", self.allowed),
            };
            return Some(limit(format!(
                "budget.maxUnavailable is {share}: {slots} being upgraded, {broken} out of service otherwise"
            )));
        }
        let domain = domain?;
        let (most, out) = (settings.per_failure_domain?, self.domains.get(domain).copied()?);
        let out = out - usize::from(self.all.contains(&node.name));
        (out >= most).then(|| {
            limit(format!(
                "budget.perFailureDomain is {most}: {out} out of service in {domain}"
            ))
        })
    }
}

/// What keeps one more node from being away, for its upgrade to be undone.
pub fn keeps_from_undoing(
    view: &View,
    node: &Node,
    standing: Standing<'_>,
    settings: &Settings,
    ledger_as_of: Revision,
) -> Option<Closed> {
    if node.control_plane {
        return gates::control_plane(view, node, true).err().map(|closed| *closed);
    }
    let out = Out::of(view, &[], settings, ledger_as_of);
    let closed = gates::api_server(view).err().map(|closed| *closed);
    closed.or_else(|| out.refuses(node, standing, settings))
}

/// Whether the machine of a slot is not seen: it has left, or an old view is from before it joined.
pub fn may_have_left(view: &View, held: &[Slot]) -> bool {
    held.iter().any(|slot| !is_there(view, slot))
}

fn is_there(view: &View, slot: &Slot) -> bool {
    let node = view.nodes.get(slot.node.as_str());
    node.is_some_and(|node| node.uid.as_str() == slot.node_uid)
}

/// The slots that are still needed. One is given back only on evidence: the attempt it was for is over, or the machine is
/// gone. That an object is not in the view proves nothing about a moment the view has not reached.
pub fn still_held(view: &View, roster: &Roster<'_>, held: &[Slot], ledger_as_of: Revision) -> Vec<Slot> {
    let turned = |slot: &Slot| {
        // The slot of an undoing is there before the node is told; that of the upgrade itself says nothing about it, as an
        // old view still shows it when the place is another's.
        let undoing = roster.holder(slot).is_some_and(|standing| {
            standing.holds(slot)
                && standing.succeeded()
                && is_wished(view, standing)
                && undo_refused(view, standing).is_none()
        });
        Slot {
            undoing: slot.undoing || undoing,
            ..slot.clone()
        }
    };
    held.iter()
        .filter(|slot| {
            let standing = roster.holder(slot);
            let there = is_there(view, slot);
            let left = !there && view.nodes_as_of >= ledger_as_of;
            match standing {
                Some(standing) if standing.upgrade.spec.attempt == slot.attempt => {
                    // That a wish is gone proves nothing: it goes once the node was told, which an old view does not show. But one that
                    // was not told before its machine left is told no more.
                    let undoing = || slot.undoing && !left && undo_refused(view, standing).is_none();
                    !standing.ended() || (standing.succeeded() && (undoing() || is_wished(view, standing)))
                }
                Some(standing) => standing.upgrade.spec.attempt < slot.attempt,
                None => {
                    // Its object was there when the slot was given: missed in a later view, somebody has deleted it.
                    // (Not seen among the members, it may only be that its group is not seen yet.)
                    let given_on = slot.holder_revision.and_then(|revision| u64::try_from(revision).ok());
                    let mut of_node = view.node_upgrades_of(&slot.node);
                    let seen = of_node.any(|(_, upgrade)| upgrade.metadata.uid.as_deref() == Some(&slot.holder));
                    let deleted = !seen && given_on.is_some_and(|given_on| view.node_upgrades_as_of.0 >= given_on);
                    (there && !deleted) || (!there && !left)
                }
            }
        })
        .map(turned)
        .collect()
}
