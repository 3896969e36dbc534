//! Who may come in at the front door: pure answers to what the API server asks before it writes an object. Everything that is wrong is
//! told at once, each with its object and what to do; what is only surprising is a warning.

use std::collections::BTreeSet;

use afloat_api::clusterupgrade::Severity;
use afloat_api::harvester::{HarvesterNodeState as State, PauseMapValue, Upgrade, UpgradeConfig, UpgradeLog, Version};
use afloat_api::{annotations, harvester};
use serde_json::Value;

use super::config::{self, AnnotationError, Skips};
use super::turn::{Tri, condition_of};
use super::{preflight, release, upstream_at_work, waits};
use crate::objects::key_of;
use crate::view::{Key, View};

/// What is asked.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    CreateUpgrade(&'a Upgrade),
    UpdateUpgrade {
        old: &'a Upgrade,
        new: &'a Upgrade,
    },
    DeleteUpgrade(&'a Upgrade),
    /// Created or updated.
    WriteVersion(&'a Version),
    /// A setting, by name and value.
    WriteSetting {
        name: &'a str,
        value: &'a str,
    },
    CreateNode(&'a str),
    CreateUpgradeLog(&'a UpgradeLog),
}

/// Something that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wrong {
    /// The object, as `kubectl` takes it.
    pub object: String,
    pub problem: String,
    pub help: String,
}

/// The answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Empty: it may come in.
    pub wrong: Vec<Wrong>,
    pub warnings: Vec<String>,
}

impl Verdict {
    pub fn allowed(&self) -> bool {
        self.wrong.is_empty()
    }

    fn refuse(&mut self, object: &str, problem: &str, help: &str) {
        self.wrong.push(Wrong {
            object: object.to_owned(),
            problem: problem.to_owned(),
            help: help.to_owned(),
        });
    }

    /// The refusal as a person reads it.
    pub fn message(&self) -> String {
        let line = |wrong: &Wrong| format!("{}: {}; help: {}", wrong.object, wrong.problem, wrong.help);
        self.wrong.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Whether it may come in. While Harvester's own controller upgrades, its own webhook judges.
pub fn admit(view: &View, request: &Request<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    match request {
        Request::CreateUpgrade(upgrade) if upstream_at_work(view, upgrade).is_none() => {
            create(view, upgrade, &mut verdict);
        }
        Request::UpdateUpgrade { old, new } if upstream_at_work(view, new).is_none() => {
            update(view, old, new, &mut verdict);
        }
        Request::DeleteUpgrade(upgrade) if upstream_at_work(view, upgrade).is_none() => delete(upgrade, &mut verdict),
        Request::WriteVersion(version) => write_version(version, &mut verdict),
        Request::WriteSetting { name, value } => setting(view, name, value, &mut verdict),
        Request::CreateNode(name) => create_node(view, name, &mut verdict),
        Request::CreateUpgradeLog(log) => create_log(view, log, &mut verdict),
        _ => {}
    }
    verdict
}

/// An Upgrade before the API server has given it a name.
fn key(upgrade: &Upgrade) -> Key {
    let key = key_of(&upgrade.metadata);
    let generated = upgrade.metadata.generate_name.as_deref().unwrap_or("new");
    if key.name.is_empty() {
        Key::new(&key.namespace, generated)
    } else {
        key
    }
}

fn create(view: &View, upgrade: &Upgrade, verdict: &mut Verdict) {
    for finding in preflight::findings(view, &key(upgrade), upgrade) {
        let object = preflight::object_word(&finding.object);
        let help = finding.remedy.unwrap_or_default();
        if finding.severity == Severity::Error {
            verdict.refuse(&object, &finding.message, &help);
        } else {
            verdict.warnings.push(format!("{object}: {}", finding.message));
        }
    }
    let skipped = Skips::read(upgrade).unwrap_or_default().recorded();
    if !skipped.is_empty() {
        verdict
            .warnings
            .push(format!("skipped, and written down on the Upgrade: {skipped}"));
    }
}

/// Only what changes is judged: else a word that was let in once would block every later write, the removal of finalizers too.
fn update(view: &View, old: &Upgrade, new: &Upgrade, verdict: &mut Verdict) {
    let object = format!("upgrade/{}", key(new));
    let begun = condition_of(old, "Completed").is_some();
    if begun && old.spec != new.spec {
        let help = "create another Upgrade, or delete this one first";
        verdict.refuse(&object, "spec cannot change once the upgrade has begun", help);
    }
    let changed = |key: &str| config::annotation(old, key) != config::annotation(new, key);
    let mut problems: Vec<AnnotationError> = Vec::new();
    if changed(annotations::HARVESTER_PAUSE_MAP) {
        match config::pause_map(new) {
            Err(problem) => problems.push(problem),
            Ok(map) => {
                let unknown = map.keys().filter(|node| !view.nodes.contains_key(node.as_str()));
                problems.extend(unknown.cloned().map(AnnotationError::UnknownNode));
                late_pauses(old, &map, verdict);
            }
        }
    }
    for key in [
        annotations::HARVESTER_SKIP_WEBHOOK,
        annotations::HARVESTER_SKIP_VERSION_CHECK,
        annotations::HARVESTER_SKIP_SINGLE_REPLICA,
        annotations::HARVESTER_SKIP_DISK_CHECK,
        annotations::HARVESTER_ALLOW_NODE_JOIN,
        annotations::MIGRATE_BACK,
        config::ABORT,
    ] {
        if changed(key) {
            problems.extend(config::flag(new, key).err());
        }
    }
    if changed(annotations::HARVESTER_MIN_CERTS_DAYS) {
        problems.extend(config::certificate_days(new).err());
    }
    if changed(annotations::WAIT_MINUTES) {
        problems.extend(config::wait_minutes(new).err());
    }
    if changed(annotations::DRAIN_MINUTES) {
        problems.extend(config::drain_minutes(new).err());
    }
    if changed(config::REPO_URL) {
        problems.extend(config::repo_url(new).err());
        if begun {
            let help = "delete the Upgrade and create another";
            verdict.refuse(&object, "the repository cannot change once the upgrade has begun", help);
        }
    }
    for problem in problems {
        verdict.refuse(&object, &problem.to_string(), "correct the annotation, or remove it");
    }
}

fn late_pauses(old: &Upgrade, map: &config::PauseMap, verdict: &mut Verdict) {
    let before = config::pause_map(old).unwrap_or_default();
    for (node, value) in map {
        let begun = node_state(old, node).is_some_and(|state| state > State::Paused);
        if *value == PauseMapValue::Pause && before.get(node) != Some(value) && begun {
            verdict
                .warnings
                .push(format!("node {node} has begun: a pause has no effect on it any more"));
        }
    }
}

fn node_state(upgrade: &Upgrade, node: &str) -> Option<State> {
    upgrade.status.as_ref()?.node_statuses.get(node)?.state.parse().ok()
}

/// An upgrade may be deleted at any time but while a node is drained: then its node is finished first.
fn delete(upgrade: &Upgrade, verdict: &mut Verdict) {
    if Skips::read(upgrade).is_ok_and(|skips| skips.webhook) || condition_of(upgrade, "Completed") != Some(Tri::Unknown)
    {
        return;
    }
    let statuses = upgrade.status.as_ref().map(|status| &status.node_statuses);
    let drained = |state: State| waits::in_flight(state) && state != State::PreDraining;
    let name = key(upgrade).name;
    for (node, status) in statuses.into_iter().flatten() {
        if status.state.parse().is_ok_and(drained) {
            let problem = format!(
                "node {node} is {}: it cannot be put back any more, only finished",
                status.state
            );
            let help = format!(
                "afloat abort {name} finishes this node and stops there; or wait; or annotate {}=true",
                annotations::HARVESTER_SKIP_WEBHOOK
            );
            verdict.refuse(&format!("upgrade/{}", key(upgrade)), &problem, &help);
        }
    }
}

fn write_version(version: &Version, verdict: &mut Verdict) {
    let object = format!("version/{}", key_of(&version.metadata));
    let (url, checksum) = (&version.spec.iso_url, &version.spec.iso_checksum);
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/') || host.contains(' ')) {
        let problem = format!("spec.isoURL is {url:?}, which is no address");
        verdict.refuse(
            &object,
            &problem,
            "write where the ISO is, as https://example.com/harvester.iso",
        );
    }
    let hexadecimal = checksum.len() == 128 && checksum.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if !checksum.is_empty() && !hexadecimal {
        let problem = "spec.isoChecksum is no SHA-512 in 128 lower-case hexadecimal digits";
        verdict.refuse(&object, problem, "sha512sum FILE, or leave it empty");
    }
    let min = &version.spec.min_upgradable_version;
    let readable = min
        .strip_prefix('v')
        .is_some_and(|rest| semver::Version::parse(rest).is_ok());
    if !min.is_empty() && !readable {
        let problem = format!("spec.minUpgradableVersion is {min:?}, which is no version");
        verdict.refuse(&object, &problem, "write it as v1.6.0, or leave it empty");
    }
}

const FIELDS: [&str; 4] = [
    "imagePreloadOption",
    "nodeUpgradeOption",
    "restoreVM",
    "logReadyTimeout",
];

fn setting(view: &View, name: &str, value: &str, verdict: &mut Verdict) {
    let object = format!("setting/{name}");
    // A warning: Harvester writes it itself when it starts, and must not be kept from that by a build of somebody's own.
    if name == harvester::SERVER_VERSION && !value.is_empty() && !release::is_readable(value) {
        verdict.warnings.push(format!(
            "{object}: {value:?} is no release of Harvester, as v1.6.0 is: upgrades are refused until it is one"
        ));
    }
    if name != harvester::UPGRADE_CONFIG {
        return;
    }
    let help = "kubectl explain and the defaults: kubectl get settings.harvesterhci.io upgrade-config -o yaml";
    if let Err(problem) = UpgradeConfig::parse(value) {
        return verdict.refuse(&object, &problem.to_string(), help);
    }
    let raw: Value = serde_json::from_str(value).unwrap_or_default();
    for node in paused_nodes(&raw) {
        if !view.nodes.contains_key(node.as_str()) {
            let problem = format!("pauseNodes names {node:?}, and there is no such node");
            verdict.refuse(&object, &problem, "kubectl get nodes");
        }
    }
    let known = |field: &&String| FIELDS.contains(&field.as_str());
    for field in raw
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .filter(|field| !known(field))
    {
        verdict.warnings.push(format!(
            "{object}: {field:?} means nothing; fields are {}",
            FIELDS.join(", ")
        ));
    }
    if view
        .hci
        .upgrades
        .values()
        .any(|upgrade| condition_of(upgrade, "Completed") == Some(Tri::Unknown))
    {
        verdict.warnings.push(format!(
            "{object}: it counts from the next upgrade on, not for the one under way"
        ));
    }
}

/// The names in either spelling, also where the mode ignores them.
fn paused_nodes(raw: &Value) -> BTreeSet<String> {
    let option = &raw["nodeUpgradeOption"];
    let lists = [&option["strategy"]["pauseNodes"], &option["pauseNodes"]];
    let names = lists.into_iter().filter_map(Value::as_array).flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn create_node(view: &View, name: &str, verdict: &mut Verdict) {
    // A kubelet whose Node was deleted registers again: its machine is of the cluster, has its images and may be amid its turn.
    let mut machines = view.hci.machines.values();
    let comes_back = machines.any(|machine| machine.node.as_ref().is_some_and(|node| node.as_str() == name));
    if comes_back || view.nodes.contains_key(name) {
        return;
    }
    for (key, upgrade) in &view.hci.upgrades {
        let joins = config::flag(upgrade, annotations::HARVESTER_ALLOW_NODE_JOIN).unwrap_or(false);
        if condition_of(upgrade, "Completed") == Some(Tri::Unknown)
            && !joins
            && upstream_at_work(view, upgrade).is_none()
        {
            let problem = format!("upgrade/{key} is under way, and a node that joins now would miss its images");
            let help = format!(
                "wait, or: kubectl -n {} annotate upgrade {} {}=true",
                key.namespace,
                key.name,
                annotations::HARVESTER_ALLOW_NODE_JOIN
            );
            verdict.refuse(&format!("node/{name}"), &problem, &help);
        }
    }
}

/// Logs are collected for an upgrade that begins and asks for that, once.
fn create_log(view: &View, log: &UpgradeLog, verdict: &mut Verdict) {
    let (key, name) = (key_of(&log.metadata), log.spec.upgrade_name.as_str());
    let object = format!("upgradelog/{key}");
    let namespace = harvester::NAMESPACE;
    if *key.namespace != *namespace {
        let problem = format!("UpgradeLogs are heeded in the namespace {namespace} only");
        verdict.refuse(&object, &problem, "create it there");
    }
    let Some(upgrade) = view.hci.upgrades.get(&Key::new(namespace, name)) else {
        let problem = format!("spec.upgradeName is {name:?}, and there is no such Upgrade");
        return verdict.refuse(&object, &problem, &format!("kubectl -n {namespace} get upgrades"));
    };
    if upstream_at_work(view, upgrade).is_some() {
        return;
    }
    let help = "none is needed: an upgrade makes its own when it begins, where spec.logEnabled asks for it";
    if !upgrade.spec.log_enabled {
        let problem = format!("upgrade/{namespace}/{name} wants no logs: its spec.logEnabled is false");
        verdict.refuse(&object, &problem, help);
    }
    if matches!(condition_of(upgrade, "LogReady"), Some(Tri::True | Tri::False)) {
        let problem = format!("upgrade/{namespace}/{name} has got beyond its logs");
        verdict.refuse(&object, &problem, help);
    }
    let other = view
        .hci
        .logs
        .values()
        .find(|log| *log.upgrade == *name && log.target.key != key);
    if let Some(other) = other {
        let problem = format!("upgradelog/{} collects the logs of {name} already", other.target.key);
        verdict.refuse(&object, &problem, help);
    }
}
