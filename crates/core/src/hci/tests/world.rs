//! A small cluster of Harvester in memory: decisions are carried out on its view, and Rancher, the Jobs and the people do what a
//! test says. Every write gives its object a new revision, as an API server does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE, MachinePlan};
use afloat_api::harvester::{HarvesterNodeState, NAMESPACE, Upgrade, UpgradeSpec, Version, VersionSpec};
use afloat_api::{annotations, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::action::{Action, Decision, Event};
use crate::hci::action::{HciAction, JobKind};
use crate::hci::view::{
    CapiCluster, Chart, HciObject, Job, LocalCluster, Log, Machine, RepoAnswer, RestoreList, Run, Seen, Server, Vm, Vmi,
};
use crate::objects::target_of;
use crate::subject::{Subject, decide};
use crate::testing::{at, node, uid};
use crate::view::{Key, Node, NodeName, Revision, Taint, TaintEffect, Target, View};

pub const NAME: &str = "hvst-upgrade-x7k2p";
pub const OLD_OS: &str = "Harvester v1.6.0";
pub const NEW_OS: &str = "Harvester v1.7.0";
pub const OLD_RKE2: &str = "v1.33.5+rke2r1";
pub const NEW_RKE2: &str = "v1.34.1+rke2r1";
pub const RELEASE: &str = "harvester: v1.7.0\nos: Harvester v1.7.0\nkubernetes: v1.34.1+rke2r1\nrancher: v2.12.2\nminUpgradableVersion: v1.6.0\n";

pub struct World {
    pub view: View,
    pub now: Timestamp,
    pub revision: u64,
    pub done: Vec<HciAction>,
    pub events: Vec<Event>,
    /// Only the first write of each decision is carried out, as if the process ended after it.
    pub one_by_one: bool,
    /// What Harvester's controller of logs says of a log that was made.
    pub log: &'static [(&'static str, &'static str)],
    /// The Jobs that hold multus and let it go do not end by themselves.
    pub multus_hangs: bool,
}

pub const COLLECTING: &[(&str, &str)] = &[("Started", "True"), ("Stopped", "Unknown")];

pub fn name(number: usize) -> String {
    format!("node-{number}")
}

impl World {
    /// So many nodes at the old release, a Version to go to, and everything in order.
    pub fn new(count: usize) -> Self {
        let mut world = Self {
            view: View::default(),
            now: at(0),
            revision: 100,
            done: Vec::new(),
            events: Vec::new(),
            one_by_one: false,
            log: COLLECTING,
            multus_hangs: false,
        };
        world.view.hci.image = Arc::from("afloat:test");
        for number in 1..=count {
            world.add_node(&name(number));
        }
        let version = Version {
            metadata: meta(NAMESPACE, "v1.7.0", 1),
            spec: VersionSpec {
                iso_url: "https://example.com/harvester.iso".to_owned(),
                min_upgradable_version: "v1.6.0".to_owned(),
                ..VersionSpec::default()
            },
        };
        world.take(NAMESPACE, "v1.7.0", version, HciObject::Version);
        world.take("", "server-version", Arc::from("v1.6.0"), HciObject::Setting);
        let cluster = LocalCluster {
            kubernetes_version: Arc::from(OLD_RKE2),
            provision_generation: 7,
            strategy: serde_json::json!({ "controlPlaneConcurrency": "2" }),
            ..LocalCluster::default()
        };
        world.take(LOCAL_NAMESPACE, LOCAL_CLUSTER, cluster, HciObject::Cluster);
        let provisioned = CapiCluster {
            phase: Arc::from("Provisioned"),
            paused: false,
        };
        world.take(LOCAL_NAMESPACE, LOCAL_CLUSTER, provisioned, HciObject::CapiCluster);
        world.take(LOCAL_NAMESPACE, "harvester", Chart::default(), HciObject::Chart);
        world.take(
            "longhorn-system",
            "replica-replenishment-wait-interval",
            Arc::from("600"),
            HciObject::LonghornSetting,
        );
        world
    }

    pub fn add_node(&mut self, name: &str) {
        let machine_name = format!("custom-{name}");
        let mut new = node(name);
        new.os_image = Arc::from(OLD_OS);
        new.kubelet_version = OLD_RKE2.parse().ok();
        new.control_plane = true;
        self.view.nodes.insert(new.name.clone(), Arc::new(new));
        let machine = Machine {
            phase: Arc::from("Running"),
            node: Some(NodeName::from(name)),
        };
        self.take(LOCAL_NAMESPACE, &machine_name, machine, HciObject::Machine);
        let plan = MachinePlan {
            machine: machine_name.clone(),
            ..MachinePlan::default()
        };
        let secret = format!("{machine_name}-machine-plan");
        self.take(LOCAL_NAMESPACE, &secret, plan, HciObject::Plan);
    }

    /// Puts an object in, as new or in a new state.
    pub fn take<T>(&mut self, namespace: &str, name: &str, what: T, wrap: fn(Arc<Seen<T>>) -> HciObject) {
        self.revision += 1;
        let seen = Seen {
            target: Target {
                key: Key::new(namespace, name),
                uid: uid(name),
                revision: Revision(self.revision),
            },
            deleting: false,
            what,
        };
        self.view.hci.take(wrap(Arc::new(seen)));
    }

    /// What Harvester's controller of logs says of a log.
    pub fn put_log(&mut self, name: &str, says: &[(&str, &str)]) {
        let mut log = Log {
            upgrade: Arc::from(NAME),
            ..Log::default()
        };
        for (kind, status) in says {
            log.conditions = log.with(kind, status, self.now);
        }
        self.take(NAMESPACE, name, log, HciObject::UpgradeLog);
    }

    pub fn setting(&mut self, value: &str) {
        self.take("", "upgrade-config", Arc::from(value), HciObject::Setting);
    }

    /// A person creates the Upgrade.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, pairs: &[(&str, &str)]) {
        let mut upgrade = Upgrade {
            metadata: meta(NAMESPACE, NAME, 0),
            spec: UpgradeSpec {
                version: "v1.7.0".to_owned(),
                ..UpgradeSpec::default()
            },
            status: None,
        };
        let all = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        upgrade.metadata.annotations = Some(all.collect());
        self.put_upgrade(upgrade);
    }

    pub fn key() -> Key {
        Key::new(NAMESPACE, NAME)
    }

    pub fn upgrade(&self) -> Upgrade {
        self.view.hci.upgrades[&Self::key()].what.clone()
    }

    pub fn put_upgrade(&mut self, mut upgrade: Upgrade) {
        self.revision += 1;
        upgrade.metadata.resource_version = Some(self.revision.to_string());
        let deleting = upgrade.metadata.deletion_timestamp.is_some();
        let finalizers = upgrade.metadata.finalizers.as_deref().unwrap_or_default();
        if deleting && finalizers.is_empty() {
            self.view.hci.upgrades.remove(&Self::key());
            return;
        }
        let target = target_of(&upgrade.metadata);
        let seen = Seen {
            target,
            deleting,
            what: upgrade,
        };
        self.view.hci.take(HciObject::Upgrade(Arc::new(seen)));
    }

    pub fn change_upgrade(&mut self, change: impl FnOnce(&mut Upgrade)) {
        let mut upgrade = self.upgrade();
        change(&mut upgrade);
        self.put_upgrade(upgrade);
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        self.change_upgrade(|upgrade| {
            let all = upgrade.metadata.annotations.get_or_insert_default();
            all.insert(key.to_owned(), value.to_owned());
        });
    }

    /// A person deletes it; it stays as long as it has finalizers.
    pub fn delete(&mut self) {
        let now = self.now;
        self.change_upgrade(|upgrade| upgrade.metadata.deletion_timestamp = Some(Time(now)));
    }

    pub fn deleted(&self) -> bool {
        self.view.hci.upgrades.is_empty()
    }

    pub fn node(&self, name: &str) -> Node {
        (*self.view.nodes[name]).clone()
    }

    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(name);
        change(&mut node);
        self.revision += 1;
        node.revision = Revision(self.revision);
        self.view.nodes_as_of = Revision(self.revision);
        self.view.nodes.insert(node.name.clone(), Arc::new(node));
    }

    /// A person lets a paused node go on.
    pub fn unpause(&mut self, name: &str) {
        self.change_node(name, |node| node.hci.pause = None);
    }

    pub fn state(&self, name: &str) -> String {
        let status = self.upgrade().status.unwrap_or_default();
        status
            .node_statuses
            .get(name)
            .map(|status| status.state.clone())
            .unwrap_or_default()
    }

    pub fn told(&self, name: &str) -> String {
        let status = self.upgrade().status.unwrap_or_default();
        status
            .node_statuses
            .get(name)
            .map(|status| status.message.clone())
            .unwrap_or_default()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let status = self.upgrade().status.unwrap_or_default();
        let condition = status.conditions.iter().find(|condition| condition.kind == kind);
        condition
            .map(|condition| (condition.status.clone(), condition.message.clone()))
            .unwrap_or_default()
    }

    pub fn label(&self, key: &str) -> String {
        self.upgrade()
            .metadata
            .labels
            .unwrap_or_default()
            .get(key)
            .cloned()
            .unwrap_or_default()
    }

    pub fn phase(&self) -> String {
        self.label(labels::HARVESTER_UPGRADE_STATE)
    }

    pub fn decide(&self) -> Decision {
        decide(&self.view, &Subject::Hci(Self::key()), self.now)
    }

    /// Decides and carries out until nothing is left to do but wait.
    pub fn settle(&mut self) {
        let most = if self.one_by_one { 1 } else { usize::MAX };
        for _ in 0..400 {
            let decision = self.decide();
            self.events.extend(decision.events);
            if decision.actions.is_empty() {
                return;
            }
            let hci = decision.actions.into_iter().map(|action| match action {
                Action::Hci(action) => action,
                other => panic!("not of an upgrade of Harvester: {other:?}"),
            });
            let writes: Vec<_> = hci.filter(|action| !self.is_a_look(action)).take(most).collect();
            for action in writes {
                self.carry_out(&action);
                self.done.push(*action);
            }
        }
        panic!("no rest: {:?}", self.decide().actions);
    }

    /// Carries out what one decision asks for, where its name is let through.
    pub fn one_decision(&mut self, lets: impl Fn(&str) -> bool) {
        for action in self.decide().actions {
            let through = lets(action.name());
            if let (Action::Hci(action), true) = (action, through) {
                self.carry_out(&action);
            }
        }
    }

    /// Whether it only makes sure that something is as it was seen. Where a crash comes after every write, one that changes nothing is none:
    /// an API server makes no new revision of it either.
    fn is_a_look(&self, action: &HciAction) -> bool {
        let hci = &self.view.hci;
        match action {
            HciAction::Confirm { .. } => true,
            HciAction::SetLonghorn { setting, value } => {
                self.one_by_one && hci.longhorn_settings[&setting.key].what == *value
            }
            HciAction::EnableAddon { addon, enabled } => self.one_by_one && hci.addons[&addon.key].enabled == *enabled,
            _ => false,
        }
    }

    pub fn pass(&mut self, minutes: i64) {
        self.now += SignedDuration::from_mins(minutes);
    }

    pub fn answer(&mut self, release: Result<&str, &str>) {
        let failures = self
            .view
            .hci
            .repos
            .get(&Self::key())
            .map_or(0, |answer| answer.failures);
        let answer = RepoAnswer {
            failures: if release.is_ok() { 0 } else { failures + 1 },
            release: release.map(Arc::from).map_err(Arc::from),
        };
        self.view.hci.repos.insert(Self::key(), answer);
    }

    pub fn job_key(kind: JobKind, node: Option<&str>) -> Key {
        let node = node.map(NodeName::from);
        Key::new(NAMESPACE, &kind.name(NAME, node.as_ref()))
    }

    pub fn has_job(&self, kind: JobKind, node: Option<&str>) -> bool {
        self.view.hci.jobs.contains_key(&Self::job_key(kind, node))
    }

    fn end_job(&mut self, kind: JobKind, node: Option<&str>, change: impl FnOnce(&mut Job)) {
        let key = Self::job_key(kind, node);
        let mut job = self
            .view
            .hci
            .jobs
            .get(&key)
            .unwrap_or_else(|| panic!("no job {key}"))
            .what
            .clone();
        job.completed_at = Some(self.now);
        change(&mut job);
        self.take(&key.namespace, &key.name, job, HciObject::Job);
    }

    pub fn complete(&mut self, kind: JobKind, node: Option<&str>) {
        self.end_job(kind, node, |job| job.complete = true);
        self.settle();
    }

    pub fn fail(&mut self, kind: JobKind, node: Option<&str>, why: &str) {
        self.end_job(kind, node, |job| job.failed = Some(Arc::from(why)));
        self.settle();
    }

    pub fn change_plan(&mut self, node: &str, change: impl FnOnce(&mut MachinePlan)) {
        let secret = format!("custom-{node}-machine-plan");
        let mut plan = self.plan(node);
        change(&mut plan);
        self.take(LOCAL_NAMESPACE, &secret, plan, HciObject::Plan);
    }

    pub fn plan(&self, node: &str) -> MachinePlan {
        let key = Key::new(LOCAL_NAMESPACE, &format!("custom-{node}-machine-plan"));
        self.view.hci.plans[&key].what.clone()
    }

    /// Rancher chooses a node: cordons it and asks.
    pub fn rancher_asks(&mut self, node: &str) {
        self.change_node(node, |node| node.unschedulable = true);
        self.ask_about(node);
        self.settle();
    }

    /// Rancher asks whether it may drain a node.
    pub fn ask_about(&mut self, node: &str) {
        self.change_plan(node, |plan| plan.pre_drain = Some("drain-1".to_owned()));
    }

    /// Rancher has drained it and upgraded RKE2.
    pub fn rancher_upgrades(&mut self, node: &str) {
        assert_eq!(self.plan(node).pre_hook.as_deref(), Some("drain-1"), "not answered");
        self.change_node(node, |node| node.kubelet_version = NEW_RKE2.parse().ok());
        self.change_plan(node, |plan| plan.post_drain = Some("drain-1".to_owned()));
        self.settle();
    }

    /// Rancher was answered after the drain and makes the node schedulable.
    pub fn rancher_ends(&mut self, node: &str) {
        assert_eq!(self.plan(node).post_hook.as_deref(), Some("drain-1"), "not answered");
        self.change_node(node, |node| node.unschedulable = false);
        self.settle();
    }

    pub fn boots(&mut self, node: &str, os: &str) {
        self.change_node(node, |node| node.os_image = Arc::from(os));
        self.settle();
    }

    /// From the creation of the Upgrade until Rancher was asked.
    pub fn reach_nodes(&mut self) {
        self.settle();
        self.preload();
        self.complete(JobKind::ApplyManifests, None);
    }

    pub fn preload(&mut self) {
        let nodes: Vec<String> = self.view.nodes.keys().map(ToString::to_string).collect();
        for _ in 0..nodes.len() {
            for node in &nodes {
                if self.has_job(JobKind::Prepare, Some(node)) && self.state(node) == "Images preloading" {
                    self.complete(JobKind::Prepare, Some(node));
                }
            }
        }
    }

    /// One node from Rancher's question until it is done.
    pub fn take_through(&mut self, node: &str) {
        self.rancher_asks(node);
        self.finish(node);
    }

    /// From the question until the node restarts for its new system.
    pub fn restart(&mut self, node: &str) {
        self.complete(JobKind::PreDrain, Some(node));
        self.rancher_upgrades(node);
        self.complete(JobKind::PostDrain, Some(node));
        assert_eq!(self.state(node), HarvesterNodeState::WaitingReboot.to_string());
    }

    pub fn finish(&mut self, node: &str) {
        self.restart(node);
        self.boots(node, NEW_OS);
        self.rancher_ends(node);
    }

    pub fn clean_up(&mut self) {
        let nodes: Vec<String> = self.view.nodes.keys().map(ToString::to_string).collect();
        for node in &nodes {
            self.complete(JobKind::CleanUp, Some(node));
        }
    }

    /// A virtual machine that runs on a node.
    pub fn add_vm(&mut self, name: &str, node: &str, change: impl FnOnce(&mut Vmi)) {
        let mut vmi = Vmi {
            phase: Arc::from("Running"),
            node: Some(NodeName::from(node)),
            ..Vmi::default()
        };
        change(&mut vmi);
        self.take("shop", name, vmi, HciObject::Vmi);
        let vm = Vm {
            status: Arc::from("Running"),
            run: Run::Switch(true),
            ..Vm::default()
        };
        self.take("shop", name, vm, HciObject::Vm);
    }

    pub fn remove_vmi(&mut self, name: &str) {
        self.view
            .hci
            .remove(crate::hci::view::HciKind::Vmi, &Key::new("shop", name));
    }

    /// The Job's task has asked for a virtual machine to be off, and noted how it was to run.
    pub fn stop_vm(&mut self, name: &str) {
        let mut vm = self.view.hci.vms[&Key::new("shop", name)].what.clone();
        vm.run_before = Some(vm.run.clone());
        vm.run = vm.run.off();
        self.take("shop", name, vm, HciObject::Vm);
    }

    /// Whoever was stopped for a node is to run again, and the Job that did that has ended.
    pub fn complete_restore(&mut self, node: &str) {
        for name in self.recorded(node) {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            let Some(vm) = self.view.hci.vms.get(&Key::new(namespace, name)) else {
                continue;
            };
            let mut vm = vm.what.clone();
            if let Some(before) = vm.run_before.take() {
                vm.run = before;
            }
            self.take(namespace, name, vm, HciObject::Vm);
        }
        self.complete(JobKind::RestoreVm, Some(node));
    }

    pub fn recorded(&self, node: &str) -> BTreeSet<String> {
        let lists: BTreeMap<&Key, RestoreList> = self
            .view
            .hci
            .restore_lists
            .iter()
            .map(|(key, list)| (key, list.what.clone()))
            .collect();
        lists
            .values()
            .filter_map(|list| list.nodes.get(node))
            .flatten()
            .cloned()
            .collect()
    }

    /// Rancher runs at a version.
    pub fn serve_rancher(&mut self, version: &str) {
        let server = Server {
            image: Arc::from(format!("rancher/rancher:{version}")),
            rolled_out: true,
            ..Server::default()
        };
        self.take("cattle-system", "rancher", server, HciObject::Server);
    }

    /// The Job's task has put the taint on.
    pub fn taint(&mut self, node: &str) {
        self.change_node(node, |node| {
            node.taints.push(Taint {
                key: Arc::from(annotations::KUBEVIRT_DRAIN_TAINT),
                value: Arc::from(annotations::KUBEVIRT_DRAIN_TAINT_VALUE),
                effect: TaintEffect::NoSchedule,
            });
        });
    }

    /// Nothing that the upgrade has changed for its own sake is left.
    pub fn assert_nothing_left(&self) {
        for node in self.view.nodes.values() {
            assert_eq!(node.hci.pause, None, "{} is still paused", node.name);
            assert_eq!(node.hci.pending_os_image, None, "{} is still marked", node.name);
            assert!(node.taints.is_empty(), "{} is still tainted", node.name);
        }
        for chart in self.view.hci.charts.values() {
            assert!(!chart.paused, "{} is still paused", chart.target.key);
        }
        for setting in self.view.hci.longhorn_settings.values() {
            assert_eq!(&*setting.what, "600", "{}", setting.target.key);
        }
        assert!(
            self.view.hci.services.is_empty() && self.view.workloads.is_empty(),
            "the repository is still there"
        );
        assert!(self.view.hci.images.is_empty(), "the image is still there");
    }
}

pub fn meta(namespace: &str, name: &str, revision: u64) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid(name).to_string()),
        resource_version: Some(revision.to_string()),
        ..ObjectMeta::default()
    }
}
