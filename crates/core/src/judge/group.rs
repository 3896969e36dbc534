//! A group's turn: makes the upgrades of its nodes, lets those go on that hold a slot, hears wishes, and sums up. Under a
//! ClusterUpgrade the slots are that one's; a group that stands alone keeps its own in `status.slots`, under the lock of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::clusterupgrade::{MAX_SLOTS, Phase, Slot};
use afloat_api::kubeadm::{DesiredNodeState, MAX_SLOTS_ALONE};
use afloat_api::{ClusterUpgrade, ConditionType, GroupUpgradeStatus, NodeRole, Reason};
use jiff::Timestamp;

use super::alone::{self, HasCluster};
use super::children::{self, NodeOrder};
use super::roster::{Group, Members, Roster};
use super::slots;
use crate::action::{Action, Decision};
use crate::gates::Closed;
use crate::objects::{Standing, earlier_hop_is_open, set_condition, target_of};
use crate::plan::{self, Stage, StageKind};
use crate::settings::{Invalid, Settings, Staging, upgrade_of};
use crate::version::KubernetesVersion;
use crate::view::{Key, Node, NodeName, UNTIL_SEEN, View};

/// One group's turn.
pub(super) struct Turn<'a> {
    pub(super) view: &'a View,
    pub(super) members: Members<'a>,
    pub(super) upgrade: Option<&'a ClusterUpgrade>,
    pub(super) settings: Settings,
    pub(super) now: Timestamp,
    pub(super) decision: Decision,
}

pub fn decide(view: &View, group: Group<'_>, now: Timestamp) -> Decision {
    let namespace = group.meta().namespace.as_deref().unwrap_or_default();
    let owners = group.meta().owner_references.as_deref();
    let upgrade = upgrade_of(view, namespace, owners).map(Arc::as_ref);
    let owned = crate::settings::controller(owners).is_some();
    let deleted = group.meta().deletion_timestamp.is_some() && (owned || !alone::holds_finalizer(group));
    if deleted || (owned && upgrade.is_none()) {
        // Whoever owns it is not seen (yet, or any more): without a judge nothing starts.
        return Decision::default();
    }
    let settings = match upgrade {
        Some(upgrade) => Settings::read(&upgrade.spec),
        None => settings_alone(group),
    };
    let (Ok(settings), Ok(_)) = (settings, group.version().parse::<KubernetesVersion>()) else {
        return Decision::default();
    };
    let Some(members) = Roster::of_groups(view, vec![group]).groups.pop() else {
        return Decision::default();
    };
    let mut turn = Turn {
        view,
        members,
        upgrade,
        settings,
        now,
        decision: Decision::default(),
    };
    let slots = turn.slots();
    if turn.upgrade.is_none() && slots::may_have_left(view, &slots) {
        turn.see_nodes_since_ledger();
    }
    match turn.has_cluster(&slots) {
        HasCluster::Yes => turn.create_nodes(),
        HasCluster::NotYet => return turn.decision,
        HasCluster::No => {}
    }
    turn.let_go(&slots);
    let recorded = turn.on_record(&slots);
    turn.hear_wishes(&recorded);
    turn.sum_up(&slots);
    turn.decision
}

/// Whether the groups of this upgrade stage their nodes under one bound: while all of it is brought ahead, and a person has named it.
pub(crate) fn stages_by_turns(upgrade: &ClusterUpgrade) -> bool {
    let phase = upgrade.status.as_ref().and_then(|status| status.phase);
    phase == Some(Phase::Prepare) && Staging::read(&upgrade.spec).in_all
}

/// The machines of a group that are there and have no upgrade of their own yet.
pub(super) fn missing<'a>(view: &'a View, members: &Members<'a>) -> impl Iterator<Item = &'a Node> {
    there(view, members.group).filter(|node| {
        let standing = members.nodes.get(node.name.as_str());
        standing.is_none_or(|standing| standing.node_uid() != node.uid.as_str())
    })
}

/// The machines of a group that are there and stay.
fn there<'a>(view: &'a View, group: Group<'a>) -> impl Iterator<Item = &'a Node> {
    let machines = group.machines().iter().filter_map(|machine| {
        let node = view.nodes.get(machine.name.as_str())?;
        let is_meant = machine.uid.as_deref().is_none_or(|uid| uid == node.uid.as_str());
        is_meant.then_some(node.as_ref())
    });
    machines.filter(|node| !node.deleting)
}

/// What counts for a group that no upgrade stands above.
pub(crate) fn settings_alone(group: Group<'_>) -> Result<Settings, Invalid> {
    Settings::alone(group.version(), max_concurrent(group).min(MAX_SLOTS_ALONE))
}

fn max_concurrent(group: Group<'_>) -> usize {
    match group {
        Group::ControlPlane(_) => 1,
        Group::Workers(workers) => workers
            .spec
            .max_concurrent
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1),
    }
}

impl<'a> Turn<'a> {
    pub(super) fn group(&self) -> Group<'a> {
        self.members.group
    }

    /// Its machines that are in the cluster, in the order in which they are listed.
    fn machines_there(&self) -> impl Iterator<Item = &'a Node> {
        there(self.view, self.members.group)
    }

    pub(super) fn stage(&self) -> Option<Stage> {
        let version = self.group().version().parse().ok()?;
        Some(Stage::exact(self.group().kind(), version, Vec::new()))
    }

    /// The ledger that counts for this group.
    fn slots(&self) -> Vec<Slot> {
        if let Some(upgrade) = self.upgrade {
            return upgrade
                .status
                .as_ref()
                .map(|status| status.slots.clone())
                .unwrap_or_default();
        }
        let held = self.group().status().map(|status| status.slots.as_slice());
        let roster = Roster::of_groups(self.view, vec![self.group()]);
        let ledger_as_of = self.group().target().revision;
        slots::still_held(self.view, &roster, held.unwrap_or_default(), ledger_as_of)
    }

    /// As the ledger has them: a slot that is turned into one to undo a node is no leave before it is written, as an old view may still show
    /// the one that the node had.
    fn on_record(&self, slots: &[Slot]) -> Vec<Slot> {
        match self.group().status() {
            Some(status) if self.upgrade.is_none() => status.slots.clone(),
            _ => slots.to_vec(),
        }
    }

    fn aborted(&self) -> bool {
        match self.upgrade {
            Some(upgrade) => upgrade.spec.abort == Some(true) || upgrade.metadata.deletion_timestamp.is_some(),
            None => self.deleting(),
        }
    }

    /// Somebody has it removed: one that stands alone lives on until nothing of it is in hand.
    pub(super) fn deleting(&self) -> bool {
        self.group().meta().deletion_timestamp.is_some()
    }

    /// Nothing new is begun for an upgrade that is over, or not yet in its work.
    pub(super) fn at_work(&self) -> bool {
        self.upgrade.is_none_or(|upgrade| {
            upgrade
                .status
                .as_ref()
                .and_then(|status| status.phase)
                .is_some_and(super::works)
        })
    }

    /// How many more nodes may be staged now. Where one bound counts for all groups they take their turns, control planes first: each
    /// sees what the others have begun, and no two begin at once.
    pub(super) fn room_to_stage(&self) -> usize {
        // To one that is away nothing is brought, for however long: it keeps nobody else waiting.
        let is_there = |standing: &Standing<'_>| {
            self.view
                .nodes
                .get(standing.node())
                .is_some_and(|node| node.ready.ready)
        };
        let staging = |standing: &Standing<'_>| standing.is_brought_things() && is_there(standing);
        let Some(most) = self.settings.staging.at_once else {
            return usize::MAX;
        };
        let all = self.upgrade.filter(|upgrade| stages_by_turns(upgrade));
        let busy = match all {
            None => self.members.nodes.iter().filter(staging).count(),
            Some(upgrade) => {
                let roster = Roster::of_upgrade(self.view, upgrade.metadata.uid.as_deref().unwrap_or_default());
                let next = roster.groups.iter().filter(|members| {
                    let mut missing = missing(self.view, members);
                    missing.next().is_some()
                });
                let next = next.min_by_key(|members| (members.group.kind(), members.group.uid()));
                if next.is_some_and(|next| next.group.uid() != self.group().uid()) {
                    return 0;
                }
                let standings = roster.standings().map(|(_, standing)| standing);
                standings.filter(staging).count()
            }
        };
        most.saturating_sub(busy)
    }

    /// Makes the upgrades of nodes that have none, as many at once as may be staged.
    fn create_nodes(&mut self) {
        if self.aborted() || !self.at_work() {
            return;
        }
        let Some(stage) = self.stage() else { return };
        let missing: Vec<&'a Node> = missing(self.view, &self.members).take(self.room_to_stage()).collect();
        for node in missing {
            if !self.hop_before_is_seen(node, &stage) {
                self.decision.again = Some(self.now + UNTIL_SEEN);
                continue;
            }
            let Some(image) = self.image() else { return };
            if let Some(upgrade) = self.upgrade
                && self.settings.pause.holds(&node.name)
                && node.pause.is_none()
            {
                // Before its object is there, so that a person who lets the node go on later is not overruled.
                let (node, upgrade) = (node.target(), target_of(&upgrade.metadata));
                self.decision.actions.push(Action::PauseNode { node, upgrade });
            }
            let created = children::node_upgrade(&self.order(node, &stage, image));
            self.decision.actions.push(Action::CreateNodeUpgrade(Box::new(created)));
        }
    }

    /// A control plane takes one minor version at a time. What is seen of its API server comes by another watch than what is seen
    /// of its upgrades, and may be from before the hop that has just ended.
    fn hop_before_is_seen(&self, node: &Node, stage: &Stage) -> bool {
        let server = plan::api_server_version(self.view, node);
        let minors = server.and_then(|server| server.minors_to(&stage.version));
        stage.kind == StageKind::Workers || minors.is_none_or(|minors| minors <= 1)
    }

    pub(super) fn image(&self) -> Option<Arc<str>> {
        let version: KubernetesVersion = self.group().version().parse().ok()?;
        // A bundle that a person names is the target's: a hop on the way has its own.
        match &self.settings.bundle_image {
            Some(image) if version == self.settings.to => Some(Arc::clone(image)),
            _ => self.view.images.get(&version).cloned(),
        }
    }

    fn standing_of(&self, node: &Node) -> Option<Standing<'a>> {
        self.members
            .nodes
            .get(node.name.as_str())
            .filter(|standing| standing.node_uid() == node.uid.as_str())
    }

    fn order<'b>(&'b self, node: &'b Node, stage: &Stage, image: Arc<str>) -> NodeOrder<'b> {
        let names = |upgrade: &'b ClusterUpgrade| {
            let meta = &upgrade.metadata;
            (
                meta.name.as_deref().unwrap_or_default(),
                meta.uid.as_deref().unwrap_or_default(),
            )
        };
        NodeOrder {
            view: self.view,
            group: self.members.group,
            node,
            role: self.role(node, stage),
            attempt: 1,
            via: via(self.view, node, &stage.version),
            settings: Some(&self.settings),
            upgrade: self.upgrade.map(names),
            image,
        }
    }

    /// The first control plane of a version changes what the cluster shares; there is one.
    fn role(&self, node: &Node, stage: &Stage) -> NodeRole {
        if stage.kind == StageKind::Workers {
            return NodeRole::Worker;
        }
        let first_taken = self.members.nodes.iter().any(Standing::is_first);
        let someone_there = self
            .view
            .control_plane_nodes()
            .any(|other| !plan::needs(self.view, other, stage, false));
        let names_images = self.members.group.names_images();
        // Of those that are there: one that has left before its turn cannot go first.
        let first = self.machines_there().next().map(|node| &node.name);
        if !first_taken && (!someone_there || names_images) && first == Some(&node.name) {
            NodeRole::FirstControlPlane
        } else {
            NodeRole::ControlPlane
        }
    }

    pub(super) fn set_desired(
        &mut self,
        standing: Standing<'_>,
        desired: DesiredNodeState,
        attempt: i32,
        because: Option<Reason>,
    ) {
        self.decision.actions.push(Action::SetDesired {
            target: target_of(&standing.upgrade.metadata),
            desired,
            attempt,
            because,
        });
    }

    /// Lets nodes go on that hold a slot; puts those back whose turn is over.
    fn let_go(&mut self, slots: &[Slot]) {
        let standings = self.members.nodes.with_nodes(self.view);
        let mut slots_of: BTreeMap<&str, Vec<&Slot>> = BTreeMap::new();
        for slot in slots {
            slots_of.entry(slot.node.as_str()).or_default().push(slot);
        }
        for (standing, node) in standings {
            let attempt = standing.upgrade.spec.attempt;
            let of_node = slots_of.get(standing.node()).into_iter().flatten();
            let holds = of_node.into_iter().any(|slot| standing.holds(slot));
            // A node has an upgrade for each hop and one slot: it is for the first hop that is not over.
            let holds = holds && !earlier_hop_is_open(self.view, standing.upgrade);
            if node.is_some_and(|node| node.wish.is_some() && node.uid.as_str() == standing.node_uid()) {
                continue;
            }
            let paused = node.is_some_and(|node| node.pause.is_some());
            match standing.desired() {
                DesiredNodeState::Staged if holds && self.aborted() => {
                    self.set_desired(standing, DesiredNodeState::RolledBack, attempt, Some(Reason::Aborted));
                }
                DesiredNodeState::Staged if holds && standing.ready_to_go() => {
                    self.set_desired(standing, DesiredNodeState::Upgraded, attempt, None);
                }
                DesiredNodeState::Upgraded if !standing.ended() && self.aborted() => {
                    self.set_desired(standing, DesiredNodeState::RolledBack, attempt, Some(Reason::Aborted));
                }
                DesiredNodeState::Upgraded if standing.ready_to_go() && paused => {
                    // Held before it began: its slot is for another one.
                    self.set_desired(
                        standing,
                        DesiredNodeState::RolledBack,
                        attempt,
                        Some(Reason::NodePaused),
                    );
                }
                _ if standing.deferred() && !self.aborted() && !holds && self.at_work() => {
                    self.set_desired(standing, DesiredNodeState::Staged, attempt + 1, None);
                }
                _ => {}
            }
        }
    }

    /// The group's own status; where the group stands alone, also its ledger.
    fn sum_up(&mut self, slots: &[Slot]) {
        let group = self.group();
        let generation = group.meta().generation;
        let before = group.status().cloned().unwrap_or_default();
        let mut in_flight: BTreeSet<String> = self
            .members
            .nodes
            .iter()
            .filter(|standing| standing.in_flight())
            .map(|standing| standing.node().to_owned())
            .collect();
        let (mut held, mut ledger) = (None, Vec::new());
        if self.upgrade.is_none() {
            ledger.extend_from_slice(slots);
            let granted = self.grant_alone(slots);
            if !granted.slots.is_empty() && !self.is_prepared(slots) {
                return;
            }
            ledger.extend(granted.slots);
            held = granted.held.into_iter().next();
            in_flight.extend(ledger.iter().map(|slot| slot.node.clone()));
        }
        let upgraded = self.count(|standing| standing.succeeded());
        let failed = self.count(|standing| standing.failed());
        let required = i64::try_from(group.machines().len()).unwrap_or(i64::MAX);
        let over = self.machines_over();
        let ready = over && failed == 0;
        let mut conditions = before.conditions.clone();
        let stamp = (self.now, generation);
        // Where an upgrade stands above it, that one says who waits.
        let held = held.filter(|_| in_flight.is_empty());
        let (reason, message) = self.headline((ready, over), (upgraded, failed), held);
        let ready_type: &str = ConditionType::Ready.into();
        let progressing: &str = ConditionType::Progressing.into();
        set_condition(&mut conditions, ready_type, ready, reason, &message, stamp);
        set_condition(&mut conditions, progressing, !over, reason, &message, stamp);
        let status = GroupUpgradeStatus {
            observed_generation: generation,
            require_upgrade: required,
            upgraded,
            failed,
            ready,
            in_flight: in_flight.into_iter().take(MAX_SLOTS).collect(),
            slots: ledger,
            conditions,
        };
        let failed = failed > 0 && !self.is_bringing();
        let nobody_is_to_go = over || failed || self.deleting() || self.is_stuck();
        self.give_back(&status, nobody_is_to_go);
        if status != before {
            self.write_status(status);
        }
    }

    pub(super) fn write_status(&mut self, status: GroupUpgradeStatus) {
        let (group, status) = (self.group(), Box::new(status));
        let target = group.target();
        self.decision.actions.push(match group {
            Group::ControlPlane(_) => Action::WriteControlPlaneStatus { target, status },
            Group::Workers(_) => Action::WriteWorkersStatus { target, status },
        });
    }

    /// The one sentence about the group: how far it is, and who waits for what.
    fn headline(
        &self,
        (ready, over): (bool, bool),
        (upgraded, failed): (i64, i64),
        held: Option<(NodeName, Closed)>,
    ) -> (Reason, String) {
        let required = self.group().machines().len();
        let progress = format!("{upgraded} of {required} at {}", self.group().version());
        let undoing = |(node, closed): &(NodeName, Closed)| format!("; undoing {node} waits: {}", closed.message);
        let waits = held.as_ref().map(undoing).unwrap_or_default();
        match (ready, over, held) {
            (true, ..) => (Reason::Succeeded, format!("{progress}{waits}")),
            (false, false, _) if failed > 0 && !self.deleting() => {
                let message = format!("{progress}; {failed} failed, and no other is begun{waits}");
                (Reason::Failed, message)
            }
            (false, true, _) => {
                let message = format!("{failed} of {required} failed and were set aside{waits}");
                (Reason::Failed, message)
            }
            _ if self.deleting() => {
                let message = "it is being deleted: what it has in hand is put back as it was";
                (Reason::RollingBack, message.to_owned())
            }
            (.., Some((node, closed))) if node.as_str().is_empty() => {
                (closed.reason, format!("{progress}; waits: {}", closed.message))
            }
            (.., Some((node, closed))) => (closed.reason, format!("{progress}; {node} waits: {}", closed.message)),
            (.., None) => (Reason::InProgress, progress),
        }
    }

    fn count(&self, what: impl Fn(&Standing<'_>) -> bool) -> i64 {
        let matching = self.members.nodes.iter().filter(|standing| what(standing)).count();
        i64::try_from(matching).unwrap_or(i64::MAX)
    }

    /// Whether every machine of the group came to its end, or left.
    pub(super) fn machines_over(&self) -> bool {
        self.group().machines().iter().all(|machine| {
            let Some(node) = self.view.nodes.get(machine.name.as_str()) else {
                return true;
            };
            if machine.uid.as_deref().is_some_and(|uid| uid != node.uid.as_str()) {
                return true;
            }
            self.standing_of(node)
                .is_some_and(|standing| standing.ended() && !standing.deferred())
        })
    }

    /// Looks again once nodes are seen as of when this group's own ledger was written.
    pub(super) fn see_nodes_since_ledger(&mut self) {
        let ledger_as_of = self.group().target().revision;
        self.decision.again = Some(self.now + UNTIL_SEEN);
        if self.view.nodes_as_of < ledger_as_of {
            self.decision.nodes_since = Some(ledger_as_of);
        }
    }
}

/// The versions whose migrations run in turn on a node: one for each minor version it passes, the newest there is.
fn via(view: &View, node: &Node, to: &KubernetesVersion) -> Vec<String> {
    let from = node.kubelet_version.as_ref().map(KubernetesVersion::minor_version);
    let mut newest: BTreeMap<_, &KubernetesVersion> = BTreeMap::new();
    for version in view.images.keys() {
        let minor = version.minor_version();
        if from.is_some_and(|from| minor > from) && minor < to.minor_version() {
            newest.insert(minor, version);
        }
    }
    newest.into_values().chain([to]).map(ToString::to_string).collect()
}

/// The group under a key, of either kind.
pub fn control_plane<'a>(view: &'a View, key: &Key) -> Option<Group<'a>> {
    view.control_planes.get(key).map(|group| Group::ControlPlane(group))
}

pub fn workers<'a>(view: &'a View, key: &Key) -> Option<Group<'a>> {
    view.workers.get(key).map(|group| Group::Workers(group))
}
