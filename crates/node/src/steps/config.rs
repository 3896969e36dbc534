//! Manifests rendered ahead by kubeadm itself, from the cluster's own configuration, without touching the live ones.

use afloat_api::Reason;
use serde_json::Value;

use crate::host::{Answer, Bind, Command};
use crate::instruction::{Context, Ran, Rendering, command, failed, wait_for_step};
use crate::paths;
use crate::steps::images;
use crate::steps::kubeadm::{Machine, SECONDS_ETCD};

/// The configuration to render from, at the present version and at the next.
pub(super) fn config_file(which: &str) -> String {
    format!("{}/{which}.yaml", paths::RENDER)
}

/// The folder rendered into.
pub fn rendered(which: &str, part: &str) -> String {
    format!("{}/{which}/{part}.yaml", paths::RENDER)
}

/// kubectl as the administrator that a control plane has, in the namespace of all that is kubeadm's.
pub(super) fn kubectl(args: &[&str]) -> Command {
    let mut all = vec!["--kubeconfig", paths::ADMIN_CONF, "--namespace", "kube-system"];
    all.extend_from_slice(args);
    command(paths::KUBECTL, &all, 60)
}

/// The value of a flag in a manifest, as `--advertise-address=10.0.0.1`.
pub(super) fn flag<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let start = manifest.find(name)? + name.len();
    manifest.get(start..)?.split_whitespace().next()
}

/// The line `image: …` of a manifest.
fn image(manifest: &str) -> Option<&str> {
    let lines = manifest.lines().map(str::trim);
    let mut images = lines.filter_map(|line| line.trim_start_matches("- ").strip_prefix("image:"));
    images.next().map(str::trim)
}

/// What of etcd's manifest would show that a hand has changed it. Not its image: a healthy member keeps its newer one when an upgrade is
/// undone. Nor how it found its cluster: kubeadm writes that for a member that joins and leaves it out when it upgrades one, and
/// etcd reads it only while it has no data.
pub fn essence_of_etcd(manifest: &str) -> Vec<&str> {
    let beside = ["image:", "--initial-cluster=", "--initial-cluster-state="];
    let matters = |line: &&str| {
        let line = line.trim().trim_start_matches("- ");
        !beside.iter().any(|start| line.starts_with(start))
    };
    manifest.lines().filter(matters).collect()
}

/// `3.6.8-0` of `image: registry.k8s.io/etcd:3.6.8-0`.
pub fn tag(manifest: &str) -> Option<&str> {
    let (_, tag) = image(manifest)?.rsplit_once(':')?;
    Some(tag)
}

/// A ClusterConfiguration with another version.
pub(super) fn at_version(config: &str, version: &str) -> String {
    let mut text = String::new();
    for line in config.lines() {
        if line.starts_with("kubernetesVersion:") {
            text.push_str("kubernetesVersion: ");
            text.push_str(version);
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// The question for the ConfigMap that has it.
pub(super) fn ask() -> Command {
    kubectl(&["get", "configmap", "kubeadm-config", "--output", "json"])
}

/// The text in an answer to [`ask`].
pub(super) fn configuration(object: &Value) -> Option<&str> {
    object.pointer("/data/ClusterConfiguration")?.as_str()
}

/// Asks the cluster for its ClusterConfiguration, and writes down what to render from.
pub fn fetch(c: &mut Context<'_>) -> Answer<Ran> {
    let ask = ask();
    let Some((code, said, error)) = c.job("", &ask)? else {
        return Ok(wait_for_step(&ask));
    };
    let object: Option<Value> = serde_json::from_str(&said).ok().filter(|_| code == 0);
    let Some((object, config)) = object
        .as_ref()
        .and_then(|object| Some((object, configuration(object)?)))
    else {
        return Ok(Ran::Tried(failed(&ask, code, &error)));
    };
    let manifest = c.text(&paths::manifest("kube-apiserver"))?;
    let (Some(address), Some(present)) = (flag(&manifest, "--advertise-address="), tag(&manifest)) else {
        return Ok(Ran::Failed {
            reason: Reason::StepFailed,
            message: format!("{} names no address or image", paths::manifest("kube-apiserver")),
        });
    };
    // kubeadm's own default, which it leaves out nowhere.
    let port = flag(&manifest, "--secure-port=").unwrap_or("6443");
    let patches = if Machine::look(c.host)?.patched {
        format!("patches:\n  directory: {}\n", paths::PATCHES)
    } else {
        String::new()
    };
    let plan = c.plan();
    let head = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint:\n  advertiseAddress: {address}\n  \
         bindPort: {port}\nnodeRegistration:\n  name: {}\n  criSocket: unix:///run/containerd/containerd.sock\n{patches}---\n",
        plan.node
    );
    // The configuration is the cluster's: after the first control plane it is ahead of this node.
    let present = at_version(config, present);
    let next = at_version(config, &plan.kubernetes_version);
    // Nothing of an earlier attempt may pass for what is rendered now.
    c.host.remove(paths::RENDER)?;
    for (which, config) in [("present", present), ("next", next)] {
        c.host
            .write(&config_file(which), format!("{head}{config}").as_bytes(), 0o600)?;
    }
    Ok(images::of_another_version(object, c.plan()))
}

/// Renders manifests into Afloat's folder, which is bound over the live one for kubeadm alone.
pub fn render(c: &mut Context<'_>, rendering: Rendering) -> Answer<Ran> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() && rendering != Rendering::ControlPlane {
        return Ok(Ran::Done);
    }
    let (which, phases): (_, &[&[&str]]) = match rendering {
        Rendering::Present => ("present", &[&["etcd", "local"], &["control-plane", "all"]]),
        Rendering::Etcd => ("next", &[&["etcd", "local"]]),
        Rendering::ControlPlane => ("next", &[&["control-plane", "all"]]),
    };
    let file = config_file(which);
    for phase in phases {
        let mut args = vec!["init", "phase"];
        args.extend_from_slice(phase);
        args.extend(["--config", &file]);
        let render = Command {
            over: Some(Bind {
                folder: format!("{}/{which}", paths::RENDER),
                over: paths::MANIFESTS.to_owned(),
            }),
            ..command(paths::KUBEADM, &args, 60)
        };
        match c.job(&format!("-{}", phase[0]), &render)? {
            None => return Ok(wait_for_step(&render)),
            Some((0, _, _)) => {}
            // Not being able to render what is there is no failure, but a reason to let kubeadm do it part by part.
            Some((code, _, said)) if rendering == Rendering::Present => {
                return Ok(Ran::Found {
                    fact: ("unrendered", failed(&render, code, &said)),
                });
            }
            Some((code, _, said)) => return Ok(Ran::Tried(failed(&render, code, &said))),
        }
    }
    c.host.sync()?;
    Ok(Ran::Done)
}

/// Puts rendered manifests over the live ones.
pub fn place_manifests(c: &mut Context<'_>, parts: &[&str]) -> Answer<Ran> {
    // A machine that restarted since has started again by the old manifests what was ended: the new kubelet must not meet it.
    let ended = c.end(&["etcd"], SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(ended);
    }
    for part in parts {
        let (from, to) = (rendered("next", part), paths::manifest(part));
        let Some(digest) = c.host.digest(&from)? else {
            // Only etcd can be elsewhere; then there is no manifest of it here either.
            if c.host.size(&to)?.is_none() {
                continue;
            }
            return Ok(Ran::Failed {
                reason: Reason::StepFailed,
                message: format!("{from} is gone: it was rendered a moment ago"),
            });
        };
        if c.host.digest(&to)? != Some(digest) {
            c.host.copy(&from, &to)?;
        }
    }
    Ok(Ran::Done)
}
