//! The image tags of etcd and CoreDNS in kubeadm's configuration. kubeadm takes what is written there for its own, at every version to
//! come: so a tag that Afloat wrote, for a bundle of one version, goes again with that version. Which are Afloat's an annotation says,
//! which kubeadm leaves where it is; a person's stay.

use std::collections::BTreeMap;

use afloat_api::Reason;
use afloat_api::annotations;
use afloat_api::kubeadm::configuration::{TaggedPart, image_tag, with_image_tag, without_image_tag};
use afloat_api::node::NodePlan;
use serde_json::{Value, json};

use crate::bundle;
use crate::host::Answer;
use crate::instruction::{Context, Ran, command, failed, is_older, wait_for_step};
use crate::journal::Journal;
use crate::paths;
use crate::steps::config::{self, kubectl};

/// By this the journal knows that the cluster's configuration may have been written.
pub const NAMES_IMAGES: &str = "names the images of etcd and CoreDNS";
/// The fact that there are tags of Afloat's for another version than this one.
const OF_ANOTHER: &str = "imagesOfAnotherVersion";

/// Tags that Afloat wrote, by the word for the part.
type Own = BTreeMap<String, String>;

fn own(object: &Value) -> Own {
    let annotations = object.pointer("/metadata/annotations");
    let note = annotations.and_then(|all| all.get(annotations::NAMED_IMAGES)?.as_str());
    // Whatever a person made of it: what cannot be read is nothing of Afloat's.
    note.and_then(|note| serde_json::from_str(note).ok())
        .unwrap_or_default()
}

fn is_another_version(config: &str, plan: &NodePlan) -> bool {
    let mut versions = config
        .lines()
        .filter_map(|line| line.strip_prefix("kubernetesVersion:"));
    versions
        .next()
        .is_some_and(|version| version.trim() != plan.kubernetes_version)
}

/// Finds out whether the cluster's configuration has tags that may have to go.
pub fn of_another_version(object: &Value, plan: &NodePlan) -> Ran {
    let config = config::configuration(object).unwrap_or_default();
    let own = own(object);
    if own.is_empty() || !is_another_version(config, plan) {
        return Ran::Done;
    }
    Ran::Found {
        fact: (OF_ANOTHER, own.into_keys().collect::<Vec<_>>().join(" and ")),
    }
}

/// Whether anything is to be written, on the control plane that may.
pub fn has_to_name(journal: &Journal) -> bool {
    let plan = &journal.plan;
    plan.etcd_version.is_some() || plan.core_dns_version.is_some() || journal.facts.contains_key(OF_ANOTHER)
}

/// The tag of a part in what `kubeadm config images list` says.
fn brought(images: &str, part: TaggedPart) -> Option<&str> {
    let name = part.word().to_lowercase();
    let named = images
        .lines()
        .filter_map(|line| line.trim().rsplit('/').next()?.split_once(':'));
    named.into_iter().find(|(image, _)| *image == name).map(|(_, tag)| tag)
}

/// What is to stand there: the configuration, and which of its tags are Afloat's. `images` are those of the next kubeadm where it is of another
/// version, `running` is the tag of this node's etcd.
fn next(
    plan: &NodePlan,
    config: &str,
    own: &Own,
    images: &str,
    running: Option<&str>,
) -> Result<(String, Own), String> {
    let (mut text, mut own) = (config.to_owned(), own.clone());
    for part in TaggedPart::ALL {
        let asked = match part {
            TaggedPart::Etcd => plan.etcd_version.as_deref(),
            TaggedPart::CoreDns => plan.core_dns_version.as_deref(),
        };
        let (word, there) = (part.word(), image_tag(config, part));
        // What is another one by now is a person's.
        if own.get(word).map(String::as_str) != there {
            own.remove(word);
        }
        match asked {
            Some(tag) if there == Some(tag) => {}
            Some(tag) => {
                // Neither kubeadm nor etcd's image looks, and etcd may not start with what a newer one has written.
                if let Some(running) = running.filter(|running| part == TaggedPart::Etcd && is_older(tag, running)) {
                    return Err(format!("etcd is at {running} here: {tag} would be a downgrade"));
                }
                let named = with_image_tag(&text, part, tag);
                text = named.ok_or_else(|| format!("kubeadm's configuration has no place for the tag of {word}"))?;
                own.insert(word.to_owned(), tag.to_owned());
            }
            None => {
                let newer = |tag: &str| brought(images, part).is_some_and(|brought| !is_older(brought, tag));
                if own.get(word).is_some_and(|tag| newer(tag)) {
                    text = without_image_tag(&text, part);
                    own.remove(word);
                }
            }
        }
    }
    Ok((text, own))
}

/// Names images in the cluster's configuration, under the revision that was read: whoever writes it meanwhile is not overruled. It is written as
/// kubeadm writes it, so that undoing takes it back as it does all that kubeadm wrote.
pub fn name(c: &mut Context<'_>) -> Answer<Ran> {
    let ask = config::ask();
    let Some((code, said, error)) = c.job("", &ask)? else {
        return Ok(wait_for_step(&ask));
    };
    let object: Value = serde_json::from_str(&said).unwrap_or_default();
    let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let (Some(config), Some(revision), 0) = (config::configuration(&object), revision, code) else {
        return Ok(Ran::Tried(failed(&ask, code, &error)));
    };
    let before = own(&object);
    let mut images = String::new();
    if !before.is_empty() && is_another_version(config, c.plan()) {
        let version = &c.plan().kubernetes_version;
        let next = bundle::staged(&bundle::kubernetes(version, "kubeadm"));
        let list = command(
            &next,
            &["config", "images", "list", "--kubernetes-version", version],
            60,
        );
        match c.job("-images", &list)? {
            None => return Ok(wait_for_step(&list)),
            Some((0, said, _)) => images = said,
            Some((code, _, said)) => return Ok(Ran::Tried(failed(&list, code, &said))),
        }
    }
    let live = c.text(&paths::manifest("etcd"))?;
    let (named, own) = match next(c.plan(), config, &before, &images, config::tag(&live)) {
        Ok(next) => next,
        Err(message) => {
            return Ok(Ran::Failed {
                reason: Reason::StepFailed,
                message,
            });
        }
    };
    if (config, &before) != (named.as_str(), &own) {
        let ran = write(c, revision, &named, &own)?;
        if ran != Ran::Done {
            return Ok(ran);
        }
    }
    render_from(c, &named)
}

fn write(c: &mut Context<'_>, revision: &str, config: &str, own: &Own) -> Answer<Ran> {
    let note = (!own.is_empty()).then(|| json!(own).to_string());
    let patch = json!({
        "metadata": {"resourceVersion": revision, "annotations": {annotations::NAMED_IMAGES: note}},
        "data": {"ClusterConfiguration": config},
    })
    .to_string();
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
    Ok(match c.job("-named", &write)? {
        None => wait_for_step(&write),
        Some((0, _, _)) => Ran::Done,
        Some((code, _, said)) => Ran::Tried(failed(&write, code, &said)),
    })
}

/// What is rendered next is rendered from this.
fn render_from(c: &mut Context<'_>, config: &str) -> Answer<Ran> {
    let file = config::config_file("next");
    let before = c.text(&file)?;
    let Some((head, _)) = before.split_once("\n---\n") else {
        return Ok(Ran::Failed {
            reason: Reason::StepFailed,
            message: format!("{file} is gone: it was written a moment ago"),
        });
    };
    let next = config::at_version(config, &c.plan().kubernetes_version);
    c.host.write(&file, format!("{head}\n---\n{next}").as_bytes(), 0o600)?;
    Ok(Ran::Done)
}
