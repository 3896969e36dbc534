//! How an upgrade has to end: as its scenario says, every virtual machine as it was, nothing left behind, and silence.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_core::hci::task::HostWork;
use afloat_core::hci::view::HciKind;
use afloat_sim::hci::{End, HciScenario, LOG_STATE, SYSTEM, VmShape, run_of};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::play::{HciPlay, is_over};
use crate::play::PlayError;

/// Every upgrade has to be over within this, with everything a scenario makes it wait for.
pub const PATIENCE: Duration = Duration::from_hours(24);
/// What is waited for without end is waited for at least so long.
const ENDURES: Duration = Duration::from_hours(2);
/// Until the last virtual machine runs again.
const SETTLES: Duration = Duration::from_mins(10);
/// Nothing is written for so long then.
const SILENCE: Duration = Duration::from_mins(20);
const NEW_OS: &str = "Harvester v1.7.0";
const OLD_KUBERNETES: &str = "v1.33.5+rke2r1";
const NEW_KUBERNETES: &str = "v1.34.1+rke2r1";

/// Plays a scenario to its end; what was broken.
pub async fn tried(scenario: HciScenario, seed: u64) -> Result<Vec<String>, PlayError> {
    let play = HciPlay::start(scenario.describe(), seed).await?;
    let before = running(&play).await?;
    play.ask().await?;
    reached(&play, PATIENCE).await?;
    judged(&play, &before).await
}

/// Waits for the end that the script names.
pub async fn reached(play: &HciPlay, within: Duration) -> Result<bool, PlayError> {
    let says = play.script.says.clone();
    match play.script.end {
        End::Succeeded => play.until(within, |upgrade| is_over(upgrade, true)).await,
        End::Failed => play.until(within, |upgrade| is_over(upgrade, false)).await,
        End::Gone => play.until(within, Value::is_null).await,
        End::Waits => {
            let said = |upgrade: &Value| {
                let told = readable(upgrade);
                says.iter().all(|words| told.contains(words))
            };
            let come = play.until(within, said).await?;
            tokio::time::sleep(ENDURES).await;
            Ok(come)
        }
    }
}

/// Looks at everything when the end should have come; what was broken.
pub async fn judged(play: &HciPlay, before: &BTreeMap<String, String>) -> Result<Vec<String>, PlayError> {
    tokio::time::sleep(SETTLES).await;
    let writes = play.watchman.writes();
    tokio::time::sleep(SILENCE).await;
    let mut broken = play.watchman.broken();
    let more = play.watchman.writes() - writes;
    if more > 0 {
        broken.push(format!("rule 12: {more} writes after the end"));
    }
    broken.extend(ended(play).await?);
    broken.extend(nodes(play).await?);
    broken.extend(machines(play, before).await?);
    if play.script.end != End::Waits {
        broken.extend(left(play).await?);
    }
    if play.script.end == End::Succeeded {
        broken.extend(services(play).await?);
    }
    if !broken.is_empty() {
        broken.push(format!("in the end: {}", readable(&play.upgrade().await?)));
    }
    Ok(broken)
}

/// What an Upgrade says, in one text.
fn readable(upgrade: &Value) -> String {
    let status = &upgrade["status"];
    let line = |words: [&Value; 3], name: &str| {
        let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
        format!("{name} {}\n", words.join(" "))
    };
    let nodes = status["nodeStatuses"].as_object().into_iter().flatten();
    let nodes = nodes.map(|(name, node)| line([&node["state"], &node["reason"], &node["message"]], name));
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.map(|condition| {
        let name = condition["type"].as_str().unwrap_or_default();
        line(
            [&condition["status"], &condition["reason"], &condition["message"]],
            name,
        )
    });
    nodes.chain(conditions).collect()
}

async fn ended(play: &HciPlay) -> Result<Vec<String>, PlayError> {
    let upgrade = play.upgrade().await?;
    let script = &play.script;
    let as_said = match script.end {
        End::Succeeded => is_over(&upgrade, true),
        End::Failed => is_over(&upgrade, false),
        End::Gone => upgrade.is_null(),
        End::Waits => !is_over(&upgrade, true) && !is_over(&upgrade, false) && !upgrade.is_null(),
    };
    let mut broken = Vec::new();
    if !as_said {
        broken.push(format!("it did not end as it has to: {:?}", script.end));
    }
    let told = readable(&upgrade);
    for words in &script.says {
        let said = match script.end {
            End::Failed | End::Waits => told.contains(words),
            End::Succeeded | End::Gone => play.watchman.heard(words),
        };
        if !said {
            broken.push(format!("it was not said: {words}"));
        }
    }
    Ok(broken)
}

/// Uids of running virtual machines, by name.
pub async fn running(play: &HciPlay) -> Result<BTreeMap<String, String>, PlayError> {
    let all = play.all(HciKind::Vmi).await?;
    let alive = all.into_iter().filter(|vmi| vmi.data["status"]["phase"] == "Running");
    Ok(alive
        .map(|vmi| (vmi.name_any(), vmi.uid().unwrap_or_default()))
        .collect())
}

async fn nodes(play: &HciPlay) -> Result<Vec<String>, PlayError> {
    let plans = play.all(HciKind::Plan).await?;
    let mut broken = Vec::new();
    for node in play.nodes().await? {
        let name = node.name_any();
        let wanted = play.script.upgraded.as_ref();
        let wanted = wanted.is_none_or(|names| names.contains(&name.as_str()));
        let info = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.clone())
            .unwrap_or_default();
        let there = info.os_image == NEW_OS && info.kubelet_version == NEW_KUBERNETES;
        if there != wanted {
            let (os, kubelet) = (info.os_image, info.kubelet_version);
            broken.push(format!(
                "{name} has {os} and {kubelet}, and should have the new ones: {wanted}"
            ));
        }
        if play.script.end != End::Waits {
            broken.extend(marks(&node, &plans));
        }
    }
    Ok(broken)
}

/// What is left on a node.
fn marks(node: &Node, plans: &[DynamicObject]) -> Vec<String> {
    let (name, spec) = (node.name_any(), node.spec.clone().unwrap_or_default());
    let mut left: Vec<String> = node.annotations().keys().cloned().collect();
    left.extend(
        spec.taints
            .into_iter()
            .flatten()
            .filter(|taint| !taint.key.starts_with("node.kubernetes.io/"))
            .map(|taint| taint.key),
    );
    // Half-way Rancher waits for an answer about a node it has cordoned; nobody gives one until the next Upgrade.
    let asked = plans.iter().any(|plan| {
        let annotation = |key: &str| plan.annotations().get(key).cloned();
        let ours = annotation("afloat.dev/sim-node").as_deref() == Some(&name);
        ours && annotation("rke.cattle.io/pre-drain").is_some()
            && annotation("harvesterhci.io/post-hook") != annotation("rke.cattle.io/pre-drain")
    });
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let done = info.is_some_and(|info| info.os_image == NEW_OS);
    if spec.unschedulable == Some(true) && (done || !asked) {
        left.push("its cordon".to_owned());
    }
    left.into_iter()
        .map(|what| format!("rule 7: {name} is left with {what}"))
        .collect()
}

async fn machines(play: &HciPlay, before: &BTreeMap<String, String>) -> Result<Vec<String>, PlayError> {
    let after = running(play).await?;
    let vms: BTreeMap<String, DynamicObject> = play
        .all(HciKind::Vm)
        .await?
        .into_iter()
        .map(|vm| (vm.name_any(), vm))
        .collect();
    let mut broken = Vec::new();
    if play.script.comes_back {
        broken.extend(strangers(play).await?);
    }
    for shape in &play.script.ground.vms {
        let off = play.script.off.contains(&shape.name.as_str());
        let (was, is) = (before.get(&shape.name), after.get(&shape.name));
        if is.is_some() == off {
            broken.push(format!("{} runs: {}", shape.name, is.is_some()));
        }
        let movable = shape.bound.is_none() && play.script.ground.nodes > 1;
        let lost = play.script.trouble.post_copies.get(&format!("default/{}", shape.name)) == Some(&true);
        if !off && movable && was != is && !lost {
            broken.push(format!("{} was stopped without need", shape.name));
        }
        let vm = vms.get(&shape.name);
        if !off && vm.is_none_or(|vm| !as_it_was(shape, vm)) && play.script.end != End::Waits {
            broken.push(format!(
                "{} is not as it was: {:?}",
                shape.name,
                vm.map(|vm| &vm.data["spec"])
            ));
        }
    }
    Ok(broken)
}

/// Virtual machines that are not where they were in the beginning.
async fn strangers(play: &HciPlay) -> Result<Vec<String>, PlayError> {
    let instances = play.all(HciKind::Vmi).await?;
    let at: BTreeMap<String, &Value> = instances
        .iter()
        .map(|vmi| (vmi.name_any(), &vmi.data["status"]["nodeName"]))
        .collect();
    let movable = play.script.ground.vms.iter().filter(|shape| shape.bound.is_none());
    let strange = movable.filter(|shape| at.get(&shape.name).is_none_or(|node| **node != shape.node));
    Ok(strange
        .map(|shape| {
            format!(
                "{} is at {:?} and was at {}",
                shape.name,
                at.get(&shape.name),
                shape.node
            )
        })
        .collect())
}

fn as_it_was(shape: &VmShape, vm: &DynamicObject) -> bool {
    let (key, value) = run_of(shape);
    vm.data["spec"][key] == value && vm.annotations().is_empty()
}

/// What is left of the upgrade beside the nodes.
async fn left(play: &HciPlay) -> Result<Vec<String>, PlayError> {
    let mut left = Vec::new();
    let mut kinds = vec![HciKind::Service, HciKind::Image];
    if play.script.end == End::Gone {
        kinds.extend([HciKind::Job, HciKind::RestoreList, HciKind::UpgradeLog]);
    }
    for kind in kinds {
        for object in play.in_namespace(kind, SYSTEM).list(&of_upgrade(kind)).await? {
            left.push(format!("{} {}", kind.word(), object.name_any()));
        }
    }
    for repo in play
        .in_namespace(HciKind::Upstream, SYSTEM)
        .list(&kube::api::ListParams::default())
        .await?
    {
        if repo.name_any().starts_with("upgrade-repo-") {
            left.push(format!("deployment {}", repo.name_any()));
        }
    }
    let nodes = play.nodes().await?;
    left.extend(holds_multus(play, &nodes));
    // Whoever collects has taken down what it had set up for it.
    for log in play.all(HciKind::UpgradeLog).await? {
        if log.annotations().get(LOG_STATE).is_none_or(|state| state != "Stopped") {
            left.push(format!("upgradelog {}, which goes on", log.name_any()));
        }
    }
    for chart in play.all(HciKind::Chart).await? {
        left.extend(chart_is_not_as_it_was(&chart));
    }
    for setting in play.all(HciKind::LonghornSetting).await? {
        if setting.data["value"] != "600" {
            left.push(format!("setting {} is {}", setting.name_any(), setting.data["value"]));
        }
    }
    for addon in play.all(HciKind::Addon).await? {
        if addon.data["spec"]["enabled"] != true {
            left.push(format!("addon {} is off", addon.name_any()));
        }
    }
    for cluster in play.all(HciKind::Cluster).await? {
        left.extend(rancher(&nodes, &cluster));
    }
    Ok(left.into_iter().map(|what| format!("rule 7: left: {what}")).collect())
}

/// Nodes on which RKE2 is still kept from bringing its multus; what has left the cluster nobody can reach.
fn holds_multus(play: &HciPlay, nodes: &[Node]) -> Vec<String> {
    let mut held = BTreeMap::new();
    for (node, work) in play.world.host.all() {
        if matches!(work, HostWork::HoldMultus | HostWork::LetMultusGo) {
            held.insert(node, work == HostWork::HoldMultus);
        }
    }
    let there = |name: &str| nodes.iter().any(|node| node.name_any() == name);
    let held = held.into_iter().filter(|(node, held)| *held && there(node));
    held.map(|(node, _)| format!("multus held on {node}")).collect()
}

/// Fleet has its charts back, with the values that people gave.
fn chart_is_not_as_it_was(chart: &DynamicObject) -> Vec<String> {
    let (name, spec) = (chart.name_any(), &chart.data["spec"]);
    let mut left: Vec<String> = chart
        .annotations()
        .keys()
        .map(|key| format!("annotation {key} on chart {name}"))
        .collect();
    if spec["paused"] == true {
        left.push(format!("chart {name} is paused"));
    }
    let methods = &spec["values"]["kubevirt"]["spec"]["workloadUpdateStrategy"]["workloadUpdateMethods"];
    if name == "harvester" && (*methods != serde_json::json!(["LiveMigrate"]) || spec["values"]["replicas"] != 3) {
        left.push(format!("chart {name} with the values {}", spec["values"]));
    }
    left
}

/// Charts and addons of the release, in the versions it names.
async fn services(play: &HciPlay) -> Result<Vec<String>, PlayError> {
    let mut broken = Vec::new();
    for (kind, name, version) in [
        (HciKind::Chart, "harvester-crd", "1.7.0"),
        (HciKind::Chart, "harvester", "1.7.0"),
        (HciKind::Chart, "rancher-monitoring-crd", "105.1.2+up61.3.2"),
        (HciKind::Addon, "rancher-monitoring", "105.1.2+up61.3.2"),
        (HciKind::Addon, "descheduler", "0.33.0"),
    ] {
        let all = play.all(kind).await?;
        let found = all.iter().find(|object| object.name_any() == name);
        let is = found.map(|object| object.data["spec"]["version"].clone());
        if is.as_ref().is_none_or(|is| is != version) {
            broken.push(format!("{} {name} is at {is:?}", kind.word()));
        }
    }
    Ok(broken)
}

fn of_upgrade(kind: HciKind) -> kube::api::ListParams {
    match kind {
        HciKind::UpgradeLog => kube::api::ListParams::default(),
        _ => kube::api::ListParams::default().labels("harvesterhci.io/upgrade"),
    }
}

/// Half-way the questions stay; otherwise Rancher's part is as it was, but for the version.
fn rancher(nodes: &[Node], cluster: &DynamicObject) -> Vec<String> {
    let info = |node: &Node| {
        let info = node.status.as_ref().and_then(|status| status.node_info.clone());
        info.map(|info| (info.os_image, info.kubelet_version))
            .unwrap_or_default()
    };
    let touched = nodes.iter().any(|node| info(node).1 == NEW_KUBERNETES);
    let half_way = touched && nodes.iter().any(|node| info(node).0 != NEW_OS);
    let strategy = &cluster.data["spec"]["rkeConfig"]["upgradeStrategy"];
    let as_it_was = *strategy == serde_json::json!({ "workerConcurrency": "3" });
    let mut left = Vec::new();
    if as_it_was == half_way {
        left.push(format!("the strategy of Rancher is {strategy}"));
    }
    let wanted = if touched { NEW_KUBERNETES } else { OLD_KUBERNETES };
    let version = &cluster.data["spec"]["kubernetesVersion"];
    if nodes.len() > 1 && version != wanted {
        left.push(format!("Rancher is to bring {version} and not {wanted}"));
    }
    left
}
