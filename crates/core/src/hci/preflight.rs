//! What stops an upgrade of Harvester before anything is changed, and what a person should know: everything at once, each with
//! its object and what helps. Room on disks and certificates are not looked at here: nothing that the API server tells shows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::clusterupgrade::{Finding, Severity};
use afloat_api::harvester::{NodePause, Upgrade, UpgradeConfig, UpgradeState};
use afloat_api::{ObjectRef, Reason, annotations, harvester, labels, names};

use super::config::{self, Skips};
use super::release;
use super::view::{Seen, Volume};
use super::vms;
use crate::view::{Key, Node, View};

/// Volumes are asked for three replicas only where there are three nodes to hold them.
const NODES_FOR_REDUNDANCY: usize = 3;
/// Findings that are told in one text before the rest is counted: an object must stay small.
const TOLD: usize = 40;

/// Everything there is to say before this upgrade starts, errors first.
pub fn findings(view: &View, key: &Key, upgrade: &Upgrade) -> Vec<Finding> {
    let mut look = Look {
        view,
        key,
        found: Vec::new(),
    };
    look.asked_for(upgrade);
    let skips = look.annotations(upgrade);
    look.other_upgrades();
    look.release(upgrade, skips);
    let config = look.setting(upgrade);
    if !skips.webhook {
        look.nodes();
        look.clusters();
        look.machines();
        look.volumes(skips);
        look.backups();
        look.charts();
        look.virtual_machines(config.as_ref());
    }
    let mut found = look.found;
    found.sort_by(|one, other| {
        let order = |finding: &Finding| (finding.severity, finding.reason.clone(), finding.object.clone());
        order(one).cmp(&order(other))
    });
    found
}

/// Findings in one text, for a refusal and for a condition.
pub fn told(findings: &[Finding]) -> String {
    let hidden = findings.len().saturating_sub(TOLD);
    let lines = findings.iter().take(TOLD).map(|finding| {
        let severity = if finding.severity == Severity::Error {
            "error"
        } else {
            "warning"
        };
        let help = finding.remedy.as_ref();
        let help = help.map_or_else(String::new, |remedy| format!("; help: {remedy}"));
        format!("{severity} {}: {}{help}", object_word(&finding.object), finding.message)
    });
    let more = (hidden > 0).then(|| format!("and {hidden} more"));
    lines.chain(more).collect::<Vec<_>>().join("\n")
}

/// An object as `kubectl` takes it.
pub fn object_word(object: &ObjectRef) -> String {
    let kind = object.kind.to_lowercase();
    match &object.namespace {
        Some(namespace) => format!("{kind}/{namespace}/{}", object.name),
        None => format!("{kind}/{}", object.name),
    }
}

/// How many findings stop the upgrade.
pub fn errors(findings: &[Finding]) -> usize {
    let stops = |finding: &&Finding| finding.severity == Severity::Error;
    findings.iter().filter(stops).count()
}

/// An upgrade that is under way, or not cleaned up after.
pub fn busy(upgrade: &Upgrade) -> Option<&'static str> {
    let state = config::label(upgrade, labels::HARVESTER_UPGRADE_STATE);
    let state: Option<UpgradeState> = state.and_then(|word| word.parse().ok());
    if !matches!(state, Some(UpgradeState::Succeeded | UpgradeState::Failed)) {
        return Some("is under way");
    }
    let cleanup = config::label(upgrade, labels::HARVESTER_UPGRADE_CLEANUP);
    (cleanup == Some("Pending")).then_some("has ended and is not cleaned up after")
}

struct Look<'a> {
    view: &'a View,
    key: &'a Key,
    found: Vec<Finding>,
}

impl Look<'_> {
    fn say(&mut self, severity: Severity, reason: Reason, object: ObjectRef, message: &str, remedy: &str) {
        self.found.push(Finding {
            severity,
            reason: reason.to_string(),
            object,
            message: message.to_owned(),
            remedy: (!remedy.is_empty()).then(|| remedy.to_owned()),
            accepted: false,
        });
    }

    fn error(&mut self, reason: Reason, object: ObjectRef, message: &str, remedy: &str) {
        self.say(Severity::Error, reason, object, message, remedy);
    }

    fn itself(&self) -> ObjectRef {
        object("Upgrade", self.key)
    }

    fn asked_for(&mut self, upgrade: &Upgrade) {
        let (spec, itself) = (&upgrade.spec, self.itself());
        let namespace = harvester::NAMESPACE;
        if *self.key.namespace != *namespace {
            let message = format!("Upgrades are heeded in the namespace {namespace} only");
            self.error(Reason::InvalidSpec, itself.clone(), &message, "create it there");
        }
        if self.key.name.len() > names::LONGEST {
            let message = format!(
                "its name has {} characters: what belongs to it is labelled with it, and a label holds {} characters",
                self.key.name.len(),
                names::LONGEST
            );
            let help = "delete it, and create one with a shorter name";
            self.error(Reason::InvalidSpec, itself.clone(), &message, help);
        }
        let versions = format!("kubectl -n {namespace} get versions, and name one in spec.version");
        let external = config::repo_url(upgrade).is_ok_and(|url| url.is_some());
        if !spec.image.is_empty() {
            self.image(&spec.image, itself);
        } else if external {
        } else if spec.version.is_empty() {
            let message = "names neither a version nor an image";
            self.error(Reason::InvalidSpec, itself, message, &versions);
        } else if !self.view.hci.versions.contains_key(&Key::new(namespace, &spec.version)) {
            let message = format!("spec.version is {:?}, and there is no such Version", spec.version);
            self.error(Reason::InvalidSpec, itself, &message, &versions);
        }
    }

    fn image(&mut self, image: &str, itself: ObjectRef) {
        let parts = image.split_once('/');
        let parts = parts.filter(|(one, two)| !one.is_empty() && !two.is_empty() && !two.contains('/'));
        let help = "kubectl get virtualmachineimages -A";
        let Some((namespace, name)) = parts else {
            let message = format!("spec.image is {image:?}: write namespace/name of a VirtualMachineImage");
            return self.error(Reason::InvalidSpec, itself, &message, help);
        };
        if namespace != harvester::NAMESPACE {
            let message = format!(
                "spec.image is {image:?}: the release is served from the claim of the image, and a pod sees only those of its own namespace"
            );
            let help = format!(
                "upload the image into the namespace {}, and name that one",
                harvester::NAMESPACE
            );
            self.error(Reason::InvalidSpec, itself, &message, &help);
        } else if !self.view.hci.images.contains_key(&Key::new(namespace, name)) {
            let message = format!("spec.image is {image:?}, and there is no such VirtualMachineImage");
            self.error(Reason::InvalidSpec, itself, &message, help);
        }
    }

    /// The words on the object itself.
    fn annotations(&mut self, upgrade: &Upgrade) -> Skips {
        let itself = self.itself();
        let problems = [
            Skips::read(upgrade).err(),
            config::migrate_back(upgrade).err(),
            config::certificate_days(upgrade).err(),
            config::wait_minutes(upgrade).err(),
            config::drain_minutes(upgrade).err(),
            config::repo_url(upgrade).err(),
            config::pause_map(upgrade).err(),
        ];
        for problem in problems.into_iter().flatten() {
            let help = "correct the annotation, or remove it";
            self.error(Reason::InvalidSpec, itself.clone(), &problem.to_string(), help);
        }
        for node in config::pause_map(upgrade).unwrap_or_default().keys() {
            if !self.view.nodes.contains_key(node.as_str()) {
                let problem = config::AnnotationError::UnknownNode(node.clone());
                self.error(
                    Reason::InvalidSpec,
                    itself.clone(),
                    &problem.to_string(),
                    "kubectl get nodes",
                );
            }
        }
        let skips = Skips::read(upgrade).unwrap_or_default();
        self.checks_that_there_are_not(upgrade, skips);
        skips
    }

    /// Whoever switches a check off, or sharpens it, is told where there is none.
    fn checks_that_there_are_not(&mut self, upgrade: &Upgrade, skips: Skips) {
        let days = config::annotation(upgrade, annotations::HARVESTER_MIN_CERTS_DAYS).is_some();
        for (there, key, what) in [
            (
                skips.disk,
                annotations::HARVESTER_SKIP_DISK_CHECK,
                "how full the disks are",
            ),
            (
                days,
                annotations::HARVESTER_MIN_CERTS_DAYS,
                "how long certificates are valid",
            ),
        ] {
            if there {
                let message = format!("{key} changes nothing: Afloat's preflight has no such check");
                let help = format!("look at the nodes yourself: {what}");
                self.say(Severity::Warning, Reason::InvalidSpec, self.itself(), &message, &help);
            }
        }
    }

    fn other_upgrades(&mut self) {
        let others = self.view.hci.upgrades.iter().filter(|(key, _)| *key != self.key);
        let others = others.filter_map(|(key, other)| Some((key.clone(), busy(&other.what)?)));
        for (key, how) in others.collect::<Vec<_>>() {
            let help = format!(
                "wait for it, or end it: kubectl -n {} delete upgrade {}",
                key.namespace, key.name
            );
            self.error(Reason::OtherUpgrade, object("Upgrade", &key), how, &help);
        }
        if let Some(lock) = &self.view.lock {
            let object = object("Lease", &lock.target.key);
            let message = "a ClusterUpgrade is at work on this cluster";
            let help = "afloat status, then wait or afloat abort";
            self.error(Reason::OtherUpgrade, object, message, help);
        }
    }

    /// The versions as far as they are known before the release was read.
    fn release(&mut self, upgrade: &Upgrade, skips: Skips) {
        let key = Key::new(harvester::NAMESPACE, &upgrade.spec.version);
        let from = self.view.hci.setting(harvester::SERVER_VERSION).to_owned();
        if !release::is_readable(&from) {
            return self.unknown_release(&from, skips);
        }
        let (Some(version), false) = (self.view.hci.versions.get(&key), skips.version) else {
            return;
        };
        let min = version.spec.min_upgradable_version.clone();
        if let Err(problem) = release::guard(&from, &upgrade.spec.version, &min) {
            let help = "kubectl -n harvester-system get versions";
            self.error(Reason::Downgrade, self.itself(), &problem.to_string(), help);
        }
    }

    /// Nobody can tell a downgrade then, nor which images were those of the release before.
    fn unknown_release(&mut self, from: &str, skips: Skips) {
        let severity = if skips.version {
            Severity::Warning
        } else {
            Severity::Error
        };
        let setting = object("Setting", &Key::new("", harvester::SERVER_VERSION));
        let is = if from.is_empty() {
            "is not set".to_owned()
        } else {
            format!("is {from:?}, which is no release of Harvester")
        };
        let message = format!(
            "{is}: nobody can tell whether the upgrade would be a downgrade, nor which images may go afterwards"
        );
        let help = "write the release that runs, by the tag of: kubectl -n harvester-system get deployment harvester -o wide, as: \
                    kubectl patch settings.harvesterhci.io server-version --type merge -p '{\"value\":\"v1.6.0\"}'";
        self.say(severity, Reason::InvalidSpec, setting, &message, help);
    }

    fn setting(&mut self, upgrade: &Upgrade) -> Option<UpgradeConfig> {
        let setting = object("Setting", &Key::new("", harvester::UPGRADE_CONFIG));
        let help = "kubectl edit settings.harvesterhci.io upgrade-config";
        let config = match config::config(self.view, upgrade) {
            Ok(config) => config,
            Err(problem) => {
                self.error(Reason::InvalidSpec, setting, &problem.to_string(), help);
                return None;
            }
        };
        if let NodePause::Some(names) = &config.pause {
            for name in names {
                if !self.view.nodes.contains_key(name.as_str()) {
                    let message = format!("pauseNodes names {name:?}, and there is no such node");
                    self.error(Reason::InvalidSpec, setting.clone(), &message, help);
                }
            }
        }
        Some(config)
    }

    fn nodes(&mut self) {
        let nodes: Vec<Arc<Node>> = self.view.nodes.values().cloned().collect();
        for node in nodes {
            let (name, object) = (node.name.as_str(), crate::gates::node_ref(&node));
            if !node.ready.ready {
                let help = format!("kubectl describe node {name}");
                self.error(Reason::NotReady, object.clone(), "is not Ready", &help);
            }
            if node.unschedulable && self.is_taken_over(&node) {
                let message = "is cordoned by Rancher, which asks about it since an upgrade before ended half-way: this one goes on with it";
                self.say(Severity::Warning, Reason::Cordoned, object.clone(), message, "");
            } else if node.unschedulable {
                let help = format!("kubectl uncordon {name}");
                self.error(Reason::Cordoned, object.clone(), "is cordoned", &help);
            }
            if node.hci.maintenance.is_some() {
                let help = format!("take {name} out of maintenance in Harvester's dashboard");
                self.error(Reason::InMaintenance, object, "is in maintenance", &help);
            }
        }
    }

    /// Rancher waits for an answer about a node, for an upgrade that had begun and did not come to its end.
    fn is_taken_over(&self, node: &Node) -> bool {
        let hci = &self.view.hci;
        let begun = hci
            .local_cluster()
            .is_some_and(|cluster| cluster.rolled_out_for.is_some());
        begun && hci.plan_of(&node.name).is_some_and(|plan| plan.asks_pre_drain())
    }

    fn clusters(&mut self) {
        for (key, cluster) in &self.view.hci.capi_clusters {
            let (object, namespace, name) = (object("Cluster", key), &key.namespace, &key.name);
            if &*cluster.phase != "Provisioned" {
                let message = format!("is {:?}, not Provisioned: Rancher would not begin", &*cluster.phase);
                let help = format!("kubectl -n {namespace} describe clusters.cluster.x-k8s.io {name}");
                self.error(Reason::WaitingForRancher, object.clone(), &message, &help);
            }
            if cluster.paused {
                let patch = r#"{"spec":{"paused":false}}"#;
                let help =
                    format!("kubectl -n {namespace} patch clusters.cluster.x-k8s.io {name} --type merge -p '{patch}'");
                let message = "is paused: nothing would happen after the start";
                self.error(Reason::ControllerPaused, object, message, &help);
            }
        }
    }

    fn machines(&mut self) {
        if self.view.hci.machines.is_empty() {
            return;
        }
        let mut served = BTreeSet::new();
        for (key, machine) in &self.view.hci.machines {
            let object = object("Machine", key);
            let help = format!("kubectl -n {} describe machine {}", key.namespace, key.name);
            if &*machine.phase != "Running" {
                let message = format!("is {:?}, not Running", &*machine.phase);
                self.error(Reason::WaitingForRancher, object.clone(), &message, &help);
            }
            match &machine.node {
                None => self.error(Reason::ObjectGone, object, "has no node", &help),
                Some(node) if !self.view.nodes.contains_key(node) => {
                    let message = format!("points to node {node}, which is not there");
                    self.error(Reason::ObjectGone, object, &message, &help);
                }
                Some(node) => {
                    served.insert(node.clone());
                }
            }
        }
        let orphans = self.view.nodes.values().filter(|node| !served.contains(&node.name));
        for node in orphans.cloned().collect::<Vec<_>>() {
            let message = "belongs to no Machine: Rancher would never take it";
            let help = "remove it from the cluster and let it join again";
            self.error(Reason::ObjectGone, crate::gates::node_ref(&node), message, help);
        }
    }

    fn volumes(&mut self, skips: Skips) {
        let nodes = vms::hosts(self.view).count();
        if nodes < 2 {
            return;
        }
        let volumes: Vec<Arc<Seen<Volume>>> = self.view.hci.volumes.values().cloned().collect();
        for volume in volumes {
            let (object, name) = (object("Volume", &volume.target.key), &volume.target.key.name);
            let claim = volume.claim.as_ref();
            let claim = claim.map_or_else(String::new, |claim| format!(" (claim {claim})"));
            if nodes >= NODES_FOR_REDUNDANCY && matches!(&*volume.robustness, "degraded" | "faulted") {
                let message = format!("is {}{claim}: a node more away could lose it", volume.robustness);
                let help = format!("kubectl -n longhorn-system describe volume {name}");
                self.error(Reason::VolumeDegraded, object.clone(), &message, &help);
            }
            if volume.replicas == 1 && (volume.attached() || !skips.single_replica) {
                let message = format!("has one replica{claim}: it is away while its node is upgraded");
                let help = format!("raise numberOfReplicas of {name}, or shut down and detach what uses it");
                self.error(Reason::SingleReplica, object, &message, &help);
            }
        }
    }

    fn backups(&mut self) {
        let word = |snapshot: bool| if snapshot { "a snapshot" } else { "a backup" };
        let hci = &self.view.hci;
        let backups = hci.backups.iter().filter(|(_, backup)| backup.under_way);
        let backups = backups.map(|(key, backup)| {
            let message = format!("{} is under way", word(backup.snapshot));
            (object("VirtualMachineBackup", key), message)
        });
        let restores = hci.restores.iter().filter(|(_, restore)| restore.under_way);
        let restores = restores.map(|(key, restore)| {
            let message = format!("the restore of {} is under way", word(restore.snapshot));
            (object("VirtualMachineRestore", key), message)
        });
        for (object, message) in backups.chain(restores).collect::<Vec<_>>() {
            let help = "wait until it has ended, or delete it";
            self.error(Reason::BackupInProgress, object, &message, help);
        }
        let schedules = hci.schedules.iter().filter(|(_, schedule)| !schedule.suspended);
        for key in schedules.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let message = "makes backups by the clock: one could begin at any time meanwhile";
            let help = format!(
                "kubectl -n {} patch schedulevmbackups {} --type merge -p '{{\"spec\":{{\"suspend\":true}}}}', until the upgrade is over",
                key.namespace, key.name
            );
            self.error(
                Reason::BackupInProgress,
                object("ScheduleVMBackup", &key),
                message,
                &help,
            );
        }
    }

    fn charts(&mut self) {
        let hci = &self.view.hci;
        let charts = hci.charts.iter().filter_map(|(key, chart)| {
            let why = chart.not_ready.as_ref()?;
            Some((object("ManagedChart", key), format!("is not ready: {why}")))
        });
        let addons = hci.addons.iter().filter(|(_, addon)| addon.busy());
        let addons = addons.map(|(key, addon)| (object("Addon", key), format!("is being changed ({})", addon.status)));
        for (object, message) in charts.chain(addons).collect::<Vec<_>>() {
            let namespace = object.namespace.clone().unwrap_or_default();
            let help = format!(
                "kubectl -n {namespace} describe {} {}",
                object.kind.to_lowercase(),
                object.name
            );
            self.error(Reason::InProgress, object, &message, &help);
        }
    }

    /// Who cannot migrate: a refusal where nothing would be done about it, a warning where a person will be asked or the
    /// machine will be started again.
    fn virtual_machines(&mut self, config: Option<&UpgradeConfig>) {
        let alone = vms::hosts(self.view).count() < 2;
        let handled = config.is_none_or(|config| config.restore_vm || config.pause != NodePause::None);
        let severity = if handled || alone {
            Severity::Warning
        } else {
            Severity::Error
        };
        for bound in vms::all_bound(self.view) {
            let message = format!("cannot leave {}: {}", bound.node, bound.reasons());
            let help = if severity == Severity::Warning {
                format!(
                    "it is shut down when {} has its turn, unless you move or stop it before",
                    bound.node
                )
            } else {
                "shut it down, or set restoreVM or mode manual in upgrade-config".to_owned()
            };
            let object = object("VirtualMachine", &bound.vm);
            self.say(severity, Reason::NotMigratable, object, &message, &help);
        }
        self.plugged(severity);
        let busy = self.view.hci.vms.iter().filter(|(_, vm)| vm.volume_requests);
        for key in busy.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let message = "a volume is being added to it or taken away";
            let help = "wait until that has ended";
            self.error(Reason::InProgress, object("VirtualMachine", &key), message, help);
        }
    }

    /// What was plugged in while a machine ran, and is not among what it starts with, is missing once it was stopped and started.
    fn plugged(&mut self, severity: Severity) {
        for (key, names) in plugged_in(self.view) {
            let message =
                format!("volume {names} was plugged in and is not written down: it is missing after the next start");
            let help = format!(
                "virtctl addvolume {} -n {} --volume-name=NAME --persist, or virtctl removevolume",
                key.name, key.namespace
            );
            self.say(
                severity,
                Reason::NotMigratable,
                object("VirtualMachine", &key),
                &message,
                &help,
            );
        }
    }
}

/// Volumes of those that run which their virtual machine does not start with, by name.
fn plugged_in(view: &View) -> Vec<(Key, String)> {
    let running = view.hci.vmis.values().filter(|vmi| vmi.alive());
    let unwritten = running.filter_map(|vmi| {
        let vm = view.hci.vms.get(&vmi.target.key)?;
        let unwritten = vmi.plugged.iter().filter(|name| !vm.volumes.contains(name));
        let names: Vec<&str> = unwritten.map(|name| &**name).collect();
        (!names.is_empty()).then(|| (vmi.target.key.clone(), names.join(", ")))
    });
    unwritten.collect()
}

pub fn object(kind: &str, key: &Key) -> ObjectRef {
    ObjectRef {
        kind: kind.to_owned(),
        namespace: (!key.namespace.is_empty()).then(|| key.namespace.to_string()),
        name: key.name.to_string(),
        ..ObjectRef::default()
    }
}
