//! Files that are kept and replaced by groups: containerd with its shim and runc, the CNI plugins, and what kubeadm and the
//! kubelet swap change. Of the runtime's configuration only the form changes, by the runtime itself (`runtime_config`).

use afloat_api::Reason;

use crate::bundle::{self, Item};
use crate::host::{Answer, Listed};
use crate::instruction::{Context, Group, Ran};
use crate::journal::Kept;
use crate::paths;
use crate::steps::runtime_config;
use crate::touches::{is_kubeadms, is_runtime};

/// What the bundle brings for a group: the name within it, and where it goes.
fn files(c: &mut Context<'_>, group: Group) -> Answer<Vec<(Item, String)>> {
    let folder = match group {
        Group::Runtime => "containerd/",
        Group::Cni => "cni/",
        Group::Kubeadm | Group::Kubelet => return Ok(Vec::new()),
    };
    let items = bundle::read(c.host, paths::BUNDLE)?.unwrap_or_default();
    let mut files = Vec::new();
    for item in items {
        let Some(program) = item.name.strip_prefix(folder).map(str::to_owned) else {
            continue;
        };
        if group == Group::Runtime && !is_runtime(&program) {
            continue;
        }
        let target = match group {
            Group::Runtime => bundle::runtime_target(c.host, &program)?,
            _ => format!("{}/{program}", paths::CNI),
        };
        files.push((item, target));
    }
    Ok(files)
}

/// Every path a group is going to change.
fn targets(c: &mut Context<'_>, group: Group) -> Answer<Vec<String>> {
    let own = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let kubelet = [paths::KUBELET, paths::KUBECTL, paths::KUBELET_FLAGS];
    Ok(match group {
        Group::Runtime | Group::Cni => {
            let mut targets = Vec::new();
            for (item, target) in files(c, group)? {
                if c.host.digest(&target)? != Some(item.digest) {
                    targets.push(target);
                }
            }
            // Last, so that it goes back first: an older runtime does not start with it.
            if group == Group::Runtime {
                targets.extend(runtime_config::target(c.journal).map(str::to_owned));
            }
            targets
        }
        Group::Kubelet => own(&kubelet),
        Group::Kubeadm => {
            let mut targets = own(&[
                paths::KUBEADM,
                paths::KUBELET_CONFIG,
                paths::KUBELET_INSTANCE_CONFIG,
                paths::KUBELET_FLAGS,
            ]);
            if c.is_control_plane() {
                targets.extend(own(&kubelet[..2]));
                // kubeadm renews certificates as it upgrades, and writes kubeconfig files anew for them.
                let listed = c.host.list(paths::KUBERNETES)?;
                targets.extend(
                    listed
                        .into_iter()
                        .map(|file| file.path)
                        .filter(|path| is_kubeadms(path)),
                );
            }
            targets
        }
    })
}

/// Copies all that a group is going to change. What an earlier step of the attempt has kept stays: it is what undoing leads
/// back to.
pub fn keep(c: &mut Context<'_>, group: Group) -> Answer<Ran> {
    let targets = targets(c, group)?;
    if targets.is_empty() {
        let word = group.word();
        return Ok(Ran::Skip(format!(
            "the bundle brings no other {word} than what is here"
        )));
    }
    let mut kept = Vec::new();
    for path in targets {
        if c.journal.kept.iter().any(|before| before.path == path) {
            continue;
        }
        let digest = c.host.digest(&path)?;
        let before = Kept { path, digest };
        // Interrupted in the middle, it goes on with what it has not kept yet.
        if digest.is_some() && c.host.digest(&before.copy())? != digest {
            c.host.copy(&before.path, &before.copy())?;
        }
        kept.push(before);
    }
    // What lies there already is not kubeadm's leavings of this attempt.
    let tmp = |file: Listed| file.path;
    let fact = match group {
        Group::Kubeadm => {
            let names: Vec<_> = c.host.list(paths::KUBEADM_TMP)?.into_iter().map(tmp).collect();
            Some(("tmp", names.join("\n")))
        }
        _ => None,
    };
    Ok(Ran::Kept { kept, fact })
}

/// Puts all files of a group in their places.
pub fn change(c: &mut Context<'_>, group: Group) -> Answer<Ran> {
    for (item, target) in files(c, group)? {
        let placed = c.place_item(&item, &target)?;
        if placed != Ran::Done {
            return Ok(placed);
        }
    }
    let config = runtime_config::target(c.journal).filter(|_| group == Group::Runtime);
    if let Some(config) = config
        && c.host.digest(config)? != c.host.digest(paths::MIGRATED)?
    {
        let Some(migrated) = c.host.read(paths::MIGRATED)? else {
            return Ok(Ran::Failed {
                reason: Reason::StepFailed,
                message: format!("{} is gone: it was made a moment ago", paths::MIGRATED),
            });
        };
        c.host.rewrite(config, &migrated)?;
    }
    Ok(Ran::Done)
}
