//! People of a Harvester-like cluster: what they do while it is upgraded, as writes, each at a moment that can be seen from the cluster; and
//! what they do by chance, where their part in the scenario leaves room for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::foreign::rancher::LOCAL_NAMESPACE;
use afloat_api::harvester::{Upgrade, UpgradeSpec};
use afloat_api::labels;
use afloat_core::hci::view::{Backup, HciKind, HciObject, Migration, Run, Seen, Server, Upstream, Vm};
use afloat_core::hci::{Tri, condition_of, config};
use afloat_core::view::{Key, NodeName, Operator, Pod, PodBudget, PodPhase, PodShape, Requirement, Revision, Selector};
use afloat_scenes::{Deed, End, Moment, NEW_KUBERNETES, NEW_OS, NEW_RELEASE, SECOND_UPGRADE, SYSTEM};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::longhorn::millis;
use super::world::{Event, Look, World};
use crate::store::Writer;
use crate::time::{MINUTE, Millis, second, stamp};

const PERSON: Writer = Writer::Person;
/// Where the virtual machines and pods of people are.
pub const SHOP: &str = "default";

impl World {
    /// The Upgrade that everything is about: the one that was begun last, or else the first that was asked for.
    pub fn upgrade(&self) -> Option<&Arc<Seen<Upgrade>>> {
        let born = |upgrade: &&Arc<Seen<Upgrade>>| {
            let time = upgrade.what.metadata.creation_timestamp.as_ref();
            (time.map(|time| time.0), upgrade.target.key.name.clone())
        };
        let is_latest = |upgrade: &&Arc<Seen<Upgrade>>| {
            config::label(&upgrade.what, labels::HARVESTER_LATEST_UPGRADE) == Some("true")
        };
        let all = || self.store.hci.upgrades.values();
        all()
            .filter(is_latest)
            .max_by_key(born)
            .or_else(|| all().min_by_key(born))
    }

    /// Whether a moment has come, as far as can be seen.
    pub(super) fn has_come(&self, moment: Moment) -> bool {
        let Some(upgrade) = self.upgrade().map(|upgrade| &upgrade.what) else {
            return moment == Moment::Gone;
        };
        match moment {
            Moment::Asked => true,
            Moment::Phase(word) => config::label(upgrade, labels::HARVESTER_UPGRADE_STATE) == Some(word),
            Moment::Node(node, state) => {
                let statuses = upgrade.status.as_ref().map(|status| &status.node_statuses);
                statuses.is_some_and(|statuses| statuses.get(node).is_some_and(|status| status.state == state))
            }
            Moment::Condition(kind, word) => condition_of(upgrade, kind).map(Tri::word) == Some(word),
            Moment::Over => config::label(upgrade, labels::HARVESTER_UPGRADE_CLEANUP) == Some("Succeeded"),
            Moment::Gone => false,
        }
    }

    /// The next act of the scenario's people, where its moment has come.
    pub(super) fn people(&mut self) {
        let Some(act) = self.acts.front() else { return };
        if self.act_seen.is_none() && !self.has_come(act.when) {
            return;
        }
        let due = *self.act_seen.get_or_insert(self.now) + millis(act.after);
        if due > self.now {
            return self.look_at(due, Look::People);
        }
        self.act_seen = None;
        if let Some(act) = self.acts.pop_front() {
            for deed in &act.what {
                self.does(deed);
            }
        }
        self.look_soon(Look::People);
    }

    pub(super) fn does(&mut self, deed: &Deed) {
        if self.trace.is_some() {
            self.say(&format!("person         {deed:?}"));
        }
        match deed {
            Deed::AnnotateUpgrade(key, value) => self.annotate(key, value.as_deref()),
            Deed::DeleteUpgrade => {
                if let Some(key) = self.upgrade().map(|upgrade| upgrade.target.key.clone()) {
                    self.delete_upgrade(&key);
                }
            }
            Deed::AskOnceMore => self.ask(SECOND_UPGRADE, false, BTreeMap::new()),
            Deed::DeleteSecond => self.delete_upgrade(&Key::new(SYSTEM, SECOND_UPGRADE)),
            Deed::DeleteJob(end) => {
                if let Some(upgrade) = self.upgrade() {
                    let key = Key::new(SYSTEM, &format!("{}-{end}", upgrade.target.key.name));
                    self.remove(PERSON, "delete", HciKind::Job, &key);
                }
            }
            Deed::DeleteRepo => {
                if let Some(upgrade) = self.upgrade() {
                    let key = Key::new(SYSTEM, &format!("upgrade-repo-{}", upgrade.target.key.name));
                    self.remove_repo(PERSON, &key);
                }
            }
            Deed::Pause(node) => self.person_changes(node, |node| node.hci.pause = Some(Arc::from("a person"))),
            Deed::Unpause(node) => self.person_changes(node, |node| node.hci.pause = None),
            Deed::Untaint(node) => self.person_changes(node, |node| node.taints.clear()),
            Deed::Cordon(node) => self.person_changes(node, |node| node.unschedulable = true),
            Deed::ReportReady(node) => self.person_changes(node, |node| node.ready.ready = true),
            Deed::RemoveNode(node) => self.remove_node(node),
            Deed::JoinUpgraded(node) => self.lay_node(PERSON, node, true, (NEW_OS, NEW_KUBERNETES)),
            Deed::MigrateVm(vm) => self.migrate_by_hand(vm),
            Deed::StopVm(vm) => {
                if let Some(vm) = self.store.hci.vms.get(&Key::new(SHOP, vm)).cloned() {
                    self.change(PERSON, HciObject::Vm, &vm, |vm: &mut Vm| {
                        vm.run = Run::Strategy(Arc::from(Run::HALTED));
                    });
                }
            }
            _ => self.lays(deed),
        }
    }

    /// What is mostly done before anybody begins.
    fn lays(&mut self, deed: &Deed) {
        match deed {
            Deed::PauseChart(paused) => {
                let key = Key::new(LOCAL_NAMESPACE, "harvester");
                if let Some(chart) = self.store.hci.charts.get(&key).cloned() {
                    self.change(PERSON, HciObject::Chart, &chart, |chart| chart.paused = *paused);
                }
            }
            Deed::PauseCluster => {
                let key = Key::new(LOCAL_NAMESPACE, "local");
                if let Some(cluster) = self.store.hci.capi_clusters.get(&key).cloned() {
                    self.change(PERSON, HciObject::CapiCluster, &cluster, |cluster| {
                        cluster.paused = true;
                    });
                }
            }
            Deed::BeginBackup => {
                let backup = Backup {
                    snapshot: false,
                    under_way: true,
                };
                self.make(PERSON, (SHOP, "nightly"), backup, HciObject::Backup);
            }
            Deed::RunOwnController => {
                let server = Server {
                    container: Arc::from("harvester"),
                    image: Arc::from("example.org/harvester"),
                    rolled_out: true,
                };
                let upstream = Upstream {
                    replicas: 1,
                    off: false,
                    server,
                };
                self.make(PERSON, (SYSTEM, "harvester"), upstream, HciObject::Upstream);
            }
            Deed::LeaveUpgrades => {
                let key = Key::new(SYSTEM, "harvester");
                if let Some(upstream) = self.store.hci.upstream.get(&key).cloned() {
                    self.change(PERSON, HciObject::Upstream, &upstream, |upstream| upstream.off = true);
                }
            }
            Deed::Guard(node, budgets) => self.guard(node, budgets),
            Deed::Unguard(budget) => {
                self.store.base.remove::<PodBudget>(PERSON, &Key::new(SHOP, budget));
                self.settle();
            }
            _ => {}
        }
    }

    fn person_changes(&mut self, node: &str, change: impl FnOnce(&mut afloat_core::view::Node)) {
        self.change_node(PERSON, "change", &NodeName::from(node), change);
    }

    /// Asks for an upgrade.
    pub fn ask(&mut self, name: &str, logs: bool, annotations: BTreeMap<String, String>) {
        let spec = UpgradeSpec {
            version: NEW_RELEASE.to_owned(),
            log_enabled: logs,
            ..UpgradeSpec::default()
        };
        let mut upgrade = Upgrade::new(name, spec);
        upgrade.metadata.namespace = Some(SYSTEM.to_owned());
        upgrade.metadata.generation = Some(1);
        upgrade.metadata.creation_timestamp = Some(Time(second(self.now)));
        upgrade.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
        self.make(PERSON, (SYSTEM, name), upgrade, HciObject::Upgrade);
    }

    fn annotate(&mut self, key: &str, value: Option<&str>) {
        let Some(upgrade) = self.upgrade().cloned() else { return };
        self.change(PERSON, HciObject::Upgrade, &upgrade, |upgrade| {
            let all = upgrade.metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => all.insert(key.to_owned(), value.to_owned()),
                None => all.remove(key),
            };
        });
    }

    /// At once, or with a mark while finalizers hold it.
    fn delete_upgrade(&mut self, key: &Key) {
        let Some(upgrade) = self.store.hci.upgrades.get(key).cloned() else {
            return;
        };
        let finalizers = upgrade.what.metadata.finalizers.as_ref();
        if finalizers.is_none_or(Vec::is_empty) {
            return self.remove(PERSON, "delete", HciKind::Upgrade, key);
        }
        let mut after = Seen::clone(&upgrade);
        after.deleting = true;
        after.what.metadata.deletion_timestamp = Some(Time(second(self.now)));
        self.write(PERSON, "delete", HciObject::Upgrade(Arc::new(after)));
    }

    fn remove_node(&mut self, node: &str) {
        let machine = Key::new(LOCAL_NAMESPACE, &format!("custom-{node}"));
        self.remove(PERSON, "delete", HciKind::Machine, &machine);
        self.remove(PERSON, "delete", HciKind::Plan, &super::rancher::plan_key(node));
        let name = NodeName::from(node);
        self.machines.remove(&name);
        self.kill_tasks(|task| task.runs_on(&name));
        self.store.base.remove::<afloat_core::view::Node>(PERSON, &name);
        self.settle();
    }

    fn migrate_by_hand(&mut self, vm: &str) {
        let name = format!("{vm}-by-hand");
        if self.store.hci.migrations.contains_key(&Key::new(SHOP, &name)) {
            return;
        }
        let migration = Migration {
            vmi: Arc::from(vm),
            created_at: Some(second(self.now)),
            ..Migration::default()
        };
        self.make(PERSON, (SHOP, &name), migration, HciObject::Migration);
    }

    /// A pod on a node, and the budgets it is under; none of them lets it go.
    fn guard(&mut self, node: &str, budgets: &[&'static str]) {
        let selector = Selector {
            requirements: vec![Requirement {
                key: Arc::from("app"),
                operator: Operator::In,
                values: vec![Arc::from("db")],
            }],
        };
        let pod = Pod {
            key: Key::new(SHOP, "db-0"),
            uid: self.store.base.new_uid(),
            revision: Revision(0),
            node: Some(NodeName::from(node)),
            phase: PodPhase::Running,
            ready: true,
            started_at: Some(stamp(self.now)),
            ending: None,
            shape: Arc::new(PodShape {
                labels: BTreeMap::from([(Arc::from("app"), Arc::from("db"))]),
                ..PodShape::default()
            }),
            static_part: None,
            task: None,
        };
        self.store.base.put(PERSON, "create", pod);
        for budget in budgets {
            let budget = PodBudget {
                key: Key::new(SHOP, budget),
                uid: self.store.base.new_uid(),
                revision: Revision(0),
                selector: selector.clone(),
                up_to_date: true,
                disruptions_allowed: 0,
                current_healthy: 1,
                desired_healthy: 1,
                expected_pods: 1,
                unhealthy_may_go: false,
            };
            self.store.base.put(PERSON, "create", budget);
        }
        self.settle();
    }

    /// People do by chance what spoils nobody's part: they hold the whole, pause a node, delete a Job, and let go again.
    pub fn invent_acts(&mut self, rng: &mut fastrand::Rng) {
        let calm_at = self.plan.calm_at;
        let jobs = [
            "prepare-node-1",
            "apply-manifests",
            "pre-drain-node-1",
            "post-drain-node-1",
            "pre-drain-node-2",
        ];
        if rng.bool() {
            let deed = Deed::DeleteJob(jobs[rng.usize(0..jobs.len())]);
            self.queue.push(rng.u64(0..calm_at), Event::Chance(deed));
        }
        // Where people have their part already, one more would spoil it.
        if !self.script.people.is_empty() || self.script.end == End::Waits {
            return;
        }
        let from: Millis = rng.u64(0..calm_at);
        let until = (from + rng.u64(MINUTE..30 * MINUTE)).min(calm_at - 1);
        let all = ["node-1", "node-2", "node-3"];
        let most = usize::try_from(self.script.ground.nodes)
            .unwrap_or(1)
            .clamp(1, all.len());
        let node = all[rng.usize(0..most)];
        match rng.u32(0..3) {
            0 => {
                self.queue.push(from, Event::Chance(Deed::hold(true)));
                self.queue.push(until, Event::Chance(Deed::hold(false)));
            }
            1 => {
                self.queue.push(from, Event::Chance(Deed::Pause(node)));
                self.queue.push(until, Event::Chance(Deed::Unpause(node)));
            }
            _ => {}
        }
    }
}
