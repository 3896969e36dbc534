//! Findings about the images of etcd and CoreDNS, which kubeadm chooses unless its configuration names their tags.

use afloat_api::clusterupgrade::Severity;
use afloat_api::kubeadm::configuration::{TaggedPart, image_tag};
use afloat_api::{ObjectRef, Reason};
use semver::Version;

use super::Look;
use crate::plan::StageKind;
use crate::view::Component;

/// Orders tags that are versions; others say nothing about what is newer.
fn version(tag: &str) -> Option<Version> {
    Version::parse(tag.trim_start_matches('v')).ok()
}

/// Where kubeadm keeps its configuration.
pub(super) fn kubeadm_config() -> ObjectRef {
    ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "ConfigMap".to_owned(),
        namespace: Some("kube-system".to_owned()),
        name: "kubeadm-config".to_owned(),
        uid: None,
    }
}

impl Look<'_> {
    pub(super) fn images(&mut self) {
        let asked = |part| match part {
            TaggedPart::Etcd => self.settings.etcd_version.clone(),
            TaggedPart::CoreDns => self.settings.core_dns_version.clone(),
        };
        let asked = TaggedPart::ALL.map(|part| (part, asked(part)));
        for (part, tag) in asked {
            match tag {
                None => self.stays_pinned(part),
                Some(tag) => self.named(part, &tag),
            }
        }
    }

    /// A tag that somebody wrote stays what it is, also where kubeadm would bring a newer one. One that Afloat wrote for a bundle of another
    /// version is taken out by the first control plane (`afloat-node`, `steps/images.rs`).
    fn stays_pinned(&mut self, part: TaggedPart) {
        let config = self.view.kubeadm_config.clone().unwrap_or_default();
        let (Some(tag), word) = (image_tag(&config, part), part.word()) else {
            return;
        };
        let message = format!(
            "names the image tag {tag} for {word}: it stays, whatever this version of kubeadm would bring, unless Afloat wrote it for another version"
        );
        let remedy = format!("to bring another one: spec.{}", part.field());
        let object = kubeadm_config();
        self.say(Severity::Info, Reason::ImagePinned, object, &message, Some(&remedy));
    }

    fn named(&mut self, part: TaggedPart, tag: &str) {
        let field = part.field();
        let takes_none = |stages: &Vec<_>| {
            !stages
                .iter()
                .any(|stage: &crate::plan::Stage| stage.kind == StageKind::ControlPlane)
        };
        if self.stages.as_ref().is_some_and(takes_none) {
            let to = &self.settings.to;
            let message = format!(
                "spec.{field}: the control plane is at {to}, so that nothing would be done on it, and nothing changed"
            );
            let object = self.itself();
            let remedy = Some("name the bundle that brings the image: spec.bundle, or --bundle IMAGE");
            self.say(Severity::Error, Reason::InvalidSpec, object, &message, remedy);
        } else {
            self.not_for_all(part);
        }
        if part == TaggedPart::Etcd {
            self.etcd_goes_up(tag);
        }
    }

    /// A control plane that is at the target already, as after an upgrade that failed half-way, is not touched again and keeps the image it has.
    fn not_for_all(&mut self, part: TaggedPart) {
        let (to, field) = (self.settings.to.clone(), part.field());
        let nodes = self.view.control_plane_nodes();
        let kept = nodes.filter(|node| !node.deleting && !self.is_taken(node));
        for node in kept.cloned().collect::<Vec<_>>() {
            let message = format!(
                "is at {to} already and would keep its {}: spec.{field} would be true of some only",
                part.word()
            );
            let remedy = format!(
                "upgrade without spec.{field} first, and then with it and with the bundle that brings it: spec.bundle"
            );
            self.say(
                Severity::Error,
                Reason::InvalidSpec,
                crate::gates::node_ref(&node),
                &message,
                Some(&remedy),
            );
        }
    }

    /// etcd cannot read what a newer minor version of it has written, and kubeadm does not look.
    fn etcd_goes_up(&mut self, tag: &str) {
        let Some(to) = version(tag) else { return };
        let nodes: Vec<_> = self.view.control_plane_nodes().cloned().collect();
        for node in nodes {
            let parts = self.view.static_parts(&node.name).map(|(_, part)| part);
            let mut etcd = parts.filter(|part| part.component == Component::Etcd);
            let newer = etcd.find(|part| version(&part.tag).is_some_and(|version| version > to));
            let Some(newer) = newer.map(|part| part.tag.to_string()) else {
                continue;
            };
            let message = format!(
                "etcd of {} is at {newer}: {tag} would be a downgrade, which etcd may not start with",
                node.name
            );
            let object = crate::gates::node_ref(&node);
            let remedy = format!("spec.etcdVersion: {newer}, or a later one");
            self.say(Severity::Error, Reason::Downgrade, object, &message, Some(&remedy));
        }
    }
}
