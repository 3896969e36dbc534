//! Manifests rendered ahead by kubeadm itself, from the cluster's own configuration, without touching the live ones.

use afloat_api::Reason;
use afloat_api::kubeadm::configuration::{TaggedPart, image_tag, with_image_tag};
use serde_json::{Value, json};

use crate::host::{Answer, Bind, Command};
use crate::instruction::{Context, Ran, Rendering, command, failed, is_older, wait_for_step};
use crate::paths;
use crate::steps::kubeadm::{Machine, SECONDS_ETCD};

/// By this the journal knows that the cluster's configuration may have been written.
pub const NAMES_IMAGES: &str = "names the images of etcd and CoreDNS";

/// The configuration to render from, at the present version and at the next.
fn config_file(which: &str) -> String {
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
fn at_version(config: &str, version: &str) -> String {
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

/// Asks the cluster for its ClusterConfiguration, and writes down what to render from.
pub fn fetch(c: &mut Context<'_>) -> Answer<Ran> {
    let path = "jsonpath={.data.ClusterConfiguration}";
    let ask = kubectl(&["get", "configmap", "kubeadm-config", "--output", path]);
    let Some((code, config, said)) = c.job("", &ask)? else {
        return Ok(wait_for_step(&ask));
    };
    if code != 0 {
        return Ok(Ran::Tried(failed(&ask, code, &said)));
    }
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
    let present = at_version(&config, present);
    let next = at_version(&config, &plan.kubernetes_version);
    // Nothing of an earlier attempt may pass for what is rendered now.
    c.host.remove(paths::RENDER)?;
    for (which, config) in [("present", present), ("next", next)] {
        c.host
            .write(&config_file(which), format!("{head}{config}").as_bytes(), 0o600)?;
    }
    Ok(Ran::Done)
}

/// What of the plan's is to stand in the configuration, where it does not yet; or why it cannot.
fn tags_to_name(c: &Context<'_>, config: &str, running: Option<&str>) -> Result<Option<String>, String> {
    let plan = c.plan();
    let asked = [
        (TaggedPart::Etcd, plan.etcd_version.as_deref()),
        (TaggedPart::CoreDns, plan.core_dns_version.as_deref()),
    ];
    let mut text = config.to_owned();
    for (part, tag) in asked {
        let Some(tag) = tag.filter(|tag| image_tag(&text, part) != Some(tag)) else {
            continue;
        };
        // Neither kubeadm nor etcd's image looks, and etcd may not start with what a newer one has written.
        if let Some(running) = running.filter(|running| part == TaggedPart::Etcd && is_older(tag, running)) {
            return Err(format!("etcd is at {running} here: {tag} would be a downgrade"));
        }
        let named = with_image_tag(&text, part, tag);
        text = named.ok_or_else(|| format!("kubeadm's configuration has no place for the tag of {}", part.word()))?;
    }
    Ok((text != config).then_some(text))
}

/// Names images in the cluster's configuration, under the revision that was read: whoever writes it meanwhile is not overruled. It is written as
/// kubeadm writes it, so that undoing takes it back as it does all that kubeadm wrote.
pub fn name_images(c: &mut Context<'_>) -> Answer<Ran> {
    let ask = kubectl(&["get", "configmap", "kubeadm-config", "--output", "json"]);
    let Some((code, said, error)) = c.job("", &ask)? else {
        return Ok(wait_for_step(&ask));
    };
    let object: Option<Value> = serde_json::from_str(&said).ok().filter(|_| code == 0);
    let text = |pointer: &str| object.as_ref().and_then(|object| object.pointer(pointer)?.as_str());
    let (Some(config), Some(revision)) = (text("/data/ClusterConfiguration"), text("/metadata/resourceVersion")) else {
        return Ok(Ran::Tried(failed(&ask, code, &error)));
    };
    let live = c.text(&paths::manifest("etcd"))?;
    let named = match tags_to_name(c, config, tag(&live)) {
        Ok(named) => named,
        Err(message) => {
            return Ok(Ran::Failed {
                reason: Reason::StepFailed,
                message,
            });
        }
    };
    if let Some(named) = &named {
        let patch =
            json!({"metadata": {"resourceVersion": revision}, "data": {"ClusterConfiguration": named}}).to_string();
        if c.text(paths::NAMED_IMAGES)? != patch {
            c.host.write(paths::NAMED_IMAGES, patch.as_bytes(), 0o600)?;
        }
        let write = kubectl(&[
            "patch",
            "configmap",
            "kubeadm-config",
            "--type=merge",
            "--field-manager=kubeadm",
            "--patch-file",
            paths::NAMED_IMAGES,
        ]);
        match c.job("-named", &write)? {
            None => return Ok(wait_for_step(&write)),
            Some((0, _, _)) => {}
            Some((code, _, said)) => return Ok(Ran::Tried(failed(&write, code, &said))),
        }
    }
    // What is rendered next is rendered from this.
    let file = config_file("next");
    let before = c.text(&file)?;
    let Some((head, _)) = before.split_once("\n---\n") else {
        return Ok(Ran::Failed {
            reason: Reason::StepFailed,
            message: format!("{file} is gone: it was written a moment ago"),
        });
    };
    let next = at_version(named.as_deref().unwrap_or(config), &c.plan().kubernetes_version);
    c.host.write(&file, format!("{head}\n---\n{next}").as_bytes(), 0o600)?;
    Ok(Ran::Done)
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
