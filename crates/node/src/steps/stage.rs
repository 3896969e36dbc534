//! Staging: the machine is checked, and all that the upgrade needs is brought to Afloat's own folder. Nothing that runs is
//! touched, so this goes ahead on every node before its turn comes.

use afloat_api::Reason;
use afloat_api::common::NodeRole;
use afloat_api::node::BUNDLE_KEY;
use serde::Deserialize;

use crate::bundle::{self, Item};
use crate::flags;
use crate::host::{Answer, HostError, Room, UnitOrder, UnitState};
use crate::instruction::{Context, Instruction, Ran, command, failed, is_older, wait_for_step};
use crate::paths;
use crate::signature::PublicKeys;
use crate::steps::{certificates, etcd};

/// Room that must be left beside the bundle and what is kept: for kubeadm's own backups and for images unpacked.
const SPARE_BYTES: u64 = 1 << 30;
const SPARE_INODES: u64 = 10_000;
/// A kubelet may be taken over this many minors at once.
const MINORS_AT_ONCE: u32 = 3;

const UNIT_TEXT: &str = "[Unit]
Description=Afloat: carries on the upgrade of this node, or undoes it
After=network-online.target
ConditionPathExists=/var/lib/afloat/journal
StartLimitIntervalSec=0

[Service]
ExecStart=/var/lib/afloat/bin/afloat node engine
Restart=on-failure
RestartSec=2
KillMode=process

[Install]
WantedBy=multi-user.target
";

pub fn program() -> Vec<Instruction> {
    vec![
        Instruction::CheckMachine,
        Instruction::CopyBundle,
        // Here already, so that what cannot be read is told before a node is taken.
        Instruction::MigrateRuntimeConfig,
        Instruction::InstallUnit,
        Instruction::ImportImages,
    ]
}

/// One thing that is wrong with a machine.
pub(super) type Finding = (Reason, String);

/// Finds all at once what would stop the upgrade half-way.
pub fn check_machine(c: &mut Context<'_>) -> Answer<Ran> {
    let items = match brought(c)? {
        Ok(items) => items,
        Err(refused) => return Ok(refused),
    };
    let mut findings = missing_items(c, &items);
    findings.extend(no_room(c)?);
    findings.extend(sick_units(c)?);
    findings.extend(flags_and_swap(c)?);
    findings.extend(old_cgroups(c)?);
    match kubelet_version(c)? {
        Asked::Running(wait) => return Ok(wait),
        Asked::Answer(found) => findings.extend(found),
    }
    if c.is_control_plane() {
        match certificates::check(c)? {
            Asked::Running(wait) => return Ok(wait),
            Asked::Answer(found) => findings.extend(found),
        }
    }
    let Some((reason, _)) = findings.first() else {
        return Ok(Ran::Done);
    };
    let reason = *reason;
    let messages: Vec<_> = findings.into_iter().map(|(_, message)| message).collect();
    Ok(Ran::Failed {
        reason,
        message: messages.join("; "),
    })
}

/// The bundle that the stage container brings, if it is one and the right one signed it.
fn brought(c: &mut Context<'_>) -> Answer<Result<Vec<Item>, Ran>> {
    let refused = |message: String| {
        Ok(Err(Ran::Failed {
            reason: Reason::BundleUnavailable,
            message,
        }))
    };
    let sums = format!("{}/SHA256SUMS", paths::BROUGHT);
    if let Some(keys) = c.plan().bundle_key.clone() {
        let Ok(keys) = keys.parse::<PublicKeys>() else {
            return refused(format!("{BUNDLE_KEY} holds no public key: help: afloat bundle keygen"));
        };
        let Some(signature) = c.host.read(&format!("{sums}.sig"))? else {
            return refused("the bundle is not signed: help: afloat bundle create --key FILE".to_owned());
        };
        let list = c.host.read(&sums)?.unwrap_or_default();
        if keys.signer(&list, &signature).is_none() {
            return refused(format!("the bundle is not signed by the key {}", keys.names()));
        }
    }
    match bundle::read(c.host, paths::BROUGHT)? {
        Some(items) => Ok(Ok(items)),
        None => refused(format!(
            "the stage container brings no bundle: {sums} is missing or wrong"
        )),
    }
}

fn missing_items(c: &Context<'_>, items: &[Item]) -> Vec<Finding> {
    let plan = c.plan();
    let kubeadm = match plan.role {
        NodeRole::Worker => plan.via.clone(),
        _ => vec![plan.kubernetes_version.clone()],
    };
    let mut names: Vec<_> = kubeadm.iter().map(|v| bundle::kubernetes(v, "kubeadm")).collect();
    names.extend(["kubelet", "kubectl"].map(|program| bundle::kubernetes(&plan.kubelet_version, program)));
    names.push("afloat".to_owned());
    names.retain(|name| !items.iter().any(|item| item.name == *name));
    names
        .into_iter()
        .map(|name| (Reason::BundleUnavailable, format!("the bundle lacks {name}")))
        .collect()
}

fn no_room(c: &mut Context<'_>) -> Answer<Vec<Finding>> {
    let brought = c.host.list(paths::BROUGHT)?;
    let bytes: u64 = brought.iter().map(|file| file.bytes).sum();
    // A single node's etcd is copied whole before its version changes.
    let etcd: u64 = if c.is_control_plane() && c.plan().peers.is_empty() {
        let data = etcd::data_folder(c)?;
        c.host.list(&data)?.iter().map(|file| file.bytes).sum()
    } else {
        0
    };
    // Once for the bundle itself, once for what its files replace.
    let needed = Room {
        bytes: bytes.saturating_mul(2).saturating_add(SPARE_BYTES).saturating_add(etcd),
        inodes: SPARE_INODES,
    };
    let room = c.host.room("/var/lib")?;
    let mut findings = Vec::new();
    if room.bytes < needed.bytes {
        let (free, needed) = (room.bytes >> 20, needed.bytes >> 20);
        findings.push((
            Reason::StepFailed,
            format!("{free} MiB are free on /var/lib, {needed} are needed: help: crictl rmi --prune"),
        ));
    }
    if room.inodes < needed.inodes {
        findings.push((
            Reason::StepFailed,
            format!(
                "{} inodes are free on /var/lib, {} are needed",
                room.inodes, needed.inodes
            ),
        ));
    }
    Ok(findings)
}

fn sick_units(c: &mut Context<'_>) -> Answer<Vec<Finding>> {
    let mut findings = Vec::new();
    for unit in [paths::CONTAINERD_UNIT, paths::KUBELET_UNIT] {
        let state = c.host.unit(unit)?;
        if state != UnitState::Active {
            findings.push((
                Reason::StepFailed,
                format!("{unit} is not active: help: systemctl status {unit}"),
            ));
        }
    }
    Ok(findings)
}

fn flags_and_swap(c: &mut Context<'_>) -> Answer<Vec<Finding>> {
    let target = c.plan().kubelet_version.clone();
    let mut findings = Vec::new();
    for flag in flags::removed_in(&c.text(paths::KUBELET_EXTRA)?, &target) {
        findings.push((
            Reason::StepFailed,
            format!(
                "{} sets {flag}, with which kubelet {target} does not start: help: remove it there",
                paths::KUBELET_EXTRA
            ),
        ));
    }
    let swaps = c.text(paths::SWAPS)?.lines().skip(1).count();
    if swaps > 0 && kubelet_refuses(c, "fail-swap-on", |config| config.fail_swap_on)? {
        findings.push((
            Reason::StepFailed,
            "swap is on, with which the kubelet does not start again: help: swapoff -a".to_owned(),
        ));
    }
    Ok(findings)
}

/// What of the kubelet's configuration is looked at.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfig {
    fail_swap_on: Option<bool>,
    #[serde(rename = "failCgroupV1")]
    fail_cgroup_v1: Option<bool>,
}

/// Whether the kubelet is to fail at something, which is its default: a flag wins over the configuration, a person's over kubeadm's.
fn kubelet_refuses(c: &mut Context<'_>, flag: &str, config: fn(&KubeletConfig) -> Option<bool>) -> Answer<bool> {
    for file in [paths::KUBELET_EXTRA, paths::KUBELET_FLAGS] {
        if let Some(refuses) = flags::switch(&c.text(file)?, flag) {
            return Ok(refuses);
        }
    }
    let read = serde_saphyr::from_str::<KubeletConfig>(&c.text(paths::KUBELET_CONFIG)?);
    Ok(config(&read.unwrap_or_default()).unwrap_or(true))
}

/// Since 1.35 a kubelet does not start on cgroup v1 unless it is told to.
fn old_cgroups(c: &mut Context<'_>) -> Answer<Option<Finding>> {
    let target = c.plan().kubelet_version.clone();
    if flags::minor(&target) < Some(35)
        || c.host.size(paths::CGROUP_V2)?.is_some()
        || !kubelet_refuses(c, "fail-cgroupv1", |config| config.fail_cgroup_v1)?
    {
        return Ok(None);
    }
    Ok(Some((
        Reason::StepFailed,
        format!(
            "this machine has cgroup v1, on which kubelet {target} does not start: help: boot it with cgroup v2, or set \
             failCgroupV1: false in the ConfigMap kubelet-config and in {}",
            paths::KUBELET_CONFIG
        ),
    )))
}

/// What a program said, once it has.
pub(super) enum Asked {
    Running(Ran),
    Answer(Vec<Finding>),
}

fn kubelet_version(c: &mut Context<'_>) -> Answer<Asked> {
    let ask = command(paths::KUBELET, &["--version"], 30);
    let Some((code, said, error)) = c.job("-kubelet", &ask)? else {
        return Ok(Asked::Running(wait_for_step(&ask)));
    };
    if code != 0 {
        return Ok(Asked::Answer(vec![(Reason::StepFailed, failed(&ask, code, &error))]));
    }
    let present = said.trim().trim_start_matches("Kubernetes ").to_owned();
    let target = &c.plan().kubelet_version;
    let mut findings = Vec::new();
    if is_older(target, &present) {
        findings.push((
            Reason::Downgrade,
            format!("the kubelet is at {present}: {target} would be a downgrade"),
        ));
    }
    if let (Some(from), Some(to)) = (flags::minor(&present), flags::minor(target))
        && to > from + MINORS_AT_ONCE
    {
        findings.push((
            Reason::VersionSkew,
            format!("the kubelet is at {present}: {target} is more than {MINORS_AT_ONCE} minors away"),
        ));
    }
    Ok(Asked::Answer(findings))
}

/// Copies what is not there yet, and checks every digest.
pub fn copy_bundle(c: &mut Context<'_>) -> Answer<Ran> {
    // Again: the container may have been started anew since the machine was checked, from an image of the same name.
    let items = match brought(c)? {
        Ok(items) => items,
        Err(refused) => return Ok(refused),
    };
    for item in &items {
        let staged = bundle::staged(&item.name);
        if c.host.digest(&staged)? == Some(item.digest) {
            continue;
        }
        c.host.copy(&format!("{}/{}", paths::BROUGHT, item.name), &staged)?;
        if c.host.digest(&staged)? != Some(item.digest) {
            c.host.remove(&staged)?;
            return Ok(Ran::Failed {
                reason: Reason::BundleUnavailable,
                message: format!("{} in the bundle has not the digest it should have", item.name),
            });
        }
    }
    // What an earlier upgrade brought would fill the disk in the end.
    for file in c.host.list(paths::BUNDLE)? {
        let listed = items.iter().any(|item| bundle::staged(&item.name) == file.path);
        if !listed && file.path != bundle::staged("SHA256SUMS") {
            c.host.remove(&file.path)?;
        }
    }
    // Last, so that a bundle with a list is a whole one.
    c.host
        .copy(&format!("{}/SHA256SUMS", paths::BROUGHT), &bundle::staged("SHA256SUMS"))?;
    Ok(Ran::Done)
}

/// Sees, before the first change of an attempt, that every file it is going to put in place is still the promised one: found out when its
/// turn comes, the runtime and kubeadm would have been changed already. Images were imported when they were staged.
pub fn check_staged(c: &mut Context<'_>) -> Answer<Ran> {
    let refused = |message: String| Ran::Failed {
        reason: Reason::BundleUnavailable,
        message: format!("{message}; nothing was changed"),
    };
    let Some(items) = bundle::read(c.host, paths::BUNDLE)? else {
        return Ok(refused(format!("{} holds no bundle: it was not staged", paths::BUNDLE)));
    };
    let mut others = Vec::new();
    for item in items.iter().filter(|item| !item.name.starts_with("images/")) {
        let staged = bundle::staged(&item.name);
        if c.host.digest(&staged)? != Some(item.digest) {
            others.push(staged);
        }
    }
    Ok(if others.is_empty() {
        Ran::Done
    } else {
        refused(bundle::changed_since(&others.join(", ")))
    })
}

/// Puts Afloat's own binary and unit on the host: it carries on when kubelet, runtime and this pod are gone.
pub fn install_unit(c: &mut Context<'_>) -> Answer<Ran> {
    let placed = c.place("afloat", paths::PROGRAM)?;
    if placed != Ran::Done {
        return Ok(placed);
    }
    c.host.write(paths::UNIT_FILE, UNIT_TEXT.as_bytes(), 0o644)?;
    c.host.reload_units()?;
    c.host.order(paths::UNIT, UnitOrder::Enable)?;
    c.order(paths::UNIT, UnitOrder::Start)
}

/// Takes the unit away again. Called when all is undone, and again after a crash within it.
pub fn remove_unit(host: &mut dyn crate::host::Host) -> Result<(), HostError> {
    if host.size(paths::UNIT_FILE)?.is_some() {
        host.order(paths::UNIT, UnitOrder::Disable)?;
        host.remove(paths::UNIT_FILE)?;
        host.reload_units()?;
    }
    Ok(())
}

/// Imports the images that the bundle brings, one archive after the other.
pub fn import_images(c: &mut Context<'_>) -> Answer<Ran> {
    let items = bundle::read(c.host, paths::BUNDLE)?.unwrap_or_default();
    for item in items.iter().filter(|item| item.name.starts_with("images/")) {
        let archive = bundle::staged(&item.name);
        let import = command("ctr", &["--namespace", "k8s.io", "images", "import", &archive], 600);
        let file = item.name.replace('/', "-");
        match c.job(&format!("-{file}"), &import)? {
            None => return Ok(wait_for_step(&import)),
            Some((0, _, _)) => {}
            Some((code, _, said)) => return Ok(Ran::Tried(failed(&import, code, &said))),
        }
    }
    Ok(Ran::Done)
}
