//! The releases that the lab can run: which line of each component belongs together, and the image tags that this kubeadm asks for.

use std::path::PathBuf;

use afloat_realparts::{Component, Components};

use crate::Error;

/// Everything of one Kubernetes version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Such as `v1.35.4`.
    pub version: &'static str,
    /// Of Kubernetes' components in the catalogue.
    line: &'static str,
    /// Image tags as kubeadm of this version has them built in, and the lines of the binaries in them.
    etcd: (&'static str, &'static str),
    coredns: (&'static str, &'static str),
    pub(crate) pause: &'static str,
    containerd: &'static str,
    runc: &'static str,
}

const RELEASES: &[Release] = &[
    Release {
        version: "v1.34.4",
        line: "1.34",
        etcd: ("3.6.5-0", "3.6.5"),
        coredns: ("v1.12.1", "1.12"),
        pause: "3.10.1",
        containerd: "2.2",
        runc: "1.4",
    },
    Release {
        version: "v1.35.4",
        line: "1.35",
        etcd: ("3.6.6-0", "3.6.6"),
        coredns: ("v1.13.1", "1.13"),
        pause: "3.10.1",
        containerd: "2.2",
        runc: "1.4",
    },
    Release {
        version: "v1.36.1",
        line: "1.36.1",
        etcd: ("3.6.8-0", "3.6.8"),
        coredns: ("v1.14.2", "1.14"),
        pause: "3.10.2",
        containerd: "2.3",
        runc: "1.5",
    },
    Release {
        version: "v1.36.3",
        line: "1.36",
        etcd: ("3.6.8-0", "3.6.8"),
        coredns: ("v1.14.2", "1.14"),
        pause: "3.10.2",
        containerd: "2.3",
        runc: "1.5",
    },
];

/// Where a file of a machine comes from and goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    pub from: PathBuf,
    /// On the machine, as image-builder lays it out.
    pub to: &'static str,
}

/// An image that is one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramImage {
    pub(crate) reference: String,
    pub(crate) program: PathBuf,
    /// Where the program lies in the image.
    pub(crate) to: String,
}

impl Release {
    pub fn all() -> &'static [Self] {
        RELEASES
    }

    pub fn of(version: &str) -> Result<Self, Error> {
        RELEASES
            .iter()
            .find(|release| release.version == version)
            .copied()
            .ok_or_else(|| Error::UnknownRelease {
                version: version.to_owned(),
                known: RELEASES
                    .iter()
                    .map(|release| release.version)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The image tag that each part of a cluster has at this version, by the part's name.
    pub fn tags(&self) -> [(&'static str, &'static str); 6] {
        [
            ("kube-apiserver", self.version),
            ("kube-controller-manager", self.version),
            ("kube-scheduler", self.version),
            ("kube-proxy", self.version),
            ("etcd", self.etcd.0),
            ("coredns", self.coredns.0),
        ]
    }

    /// The same version of Kubernetes with runtime, etcd and CoreDNS of another release: what a later bundle of one version brings.
    #[must_use]
    pub fn with_parts_of(self, other: &Self) -> Self {
        Self {
            etcd: other.etcd,
            coredns: other.coredns,
            containerd: other.containerd,
            runc: other.runc,
            ..self
        }
    }

    /// Whether everything of it is in the cache.
    pub fn is_built(&self) -> bool {
        self.binaries().is_ok() && self.images().is_ok()
    }

    /// The version of its containerd, such as `v2.3.7`.
    pub fn containerd_version(&self) -> Result<String, Error> {
        let component = Component::named(&format!("containerd@{}", self.containerd))?;
        Ok(component.recipe()?.version)
    }

    pub fn kubectl(&self) -> Result<PathBuf, Error> {
        located(&format!("kubectl@{}", self.line))
    }

    /// What lies on a machine of this version.
    pub fn binaries(&self) -> Result<Vec<Binary>, Error> {
        let (containerd, runc) = (self.containerd, self.runc);
        [
            (format!("kubeadm@{}", self.line), "/usr/bin/kubeadm"),
            (format!("kubelet@{}", self.line), "/usr/bin/kubelet"),
            (format!("kubectl@{}", self.line), "/usr/bin/kubectl"),
            (format!("containerd@{containerd}"), "/usr/local/bin/containerd"),
            (
                format!("containerd-shim-runc-v2@{containerd}"),
                "/usr/local/bin/containerd-shim-runc-v2",
            ),
            (format!("ctr@{containerd}"), "/usr/local/bin/ctr"),
            (format!("runc@{runc}"), "/usr/local/sbin/runc"),
            ("bridge@1.9".to_owned(), "/opt/cni/bin/bridge"),
            ("host-local@1.9".to_owned(), "/opt/cni/bin/host-local"),
            ("loopback@1.9".to_owned(), "/opt/cni/bin/loopback"),
            ("portmap@1.9".to_owned(), "/opt/cni/bin/portmap"),
        ]
        .into_iter()
        .map(|(component, to)| {
            Ok(Binary {
                from: located(&component)?,
                to,
            })
        })
        .collect()
    }

    /// The images that this kubeadm asks for and that are one program each.
    pub(crate) fn images(&self) -> Result<Vec<ProgramImage>, Error> {
        let kubernetes = |name: &str| (name.to_owned(), self.version, format!("{name}@{}", self.line));
        let all = [
            kubernetes("kube-apiserver"),
            kubernetes("kube-controller-manager"),
            kubernetes("kube-scheduler"),
            kubernetes("kube-proxy"),
            ("etcd".to_owned(), self.etcd.0, format!("etcd@{}", self.etcd.1)),
            (
                "coredns/coredns".to_owned(),
                self.coredns.0,
                format!("coredns@{}", self.coredns.1),
            ),
        ];
        all.into_iter()
            .map(|(repository, tag, component)| {
                let program = located(&component)?;
                let name = component.split('@').next().unwrap_or_default();
                // CoreDNS' Deployment names no command: its image has the program at the root.
                let folder = if name == "coredns" { "" } else { "usr/local/bin/" };
                Ok(ProgramImage {
                    reference: format!("registry.k8s.io/{repository}:{tag}"),
                    to: format!("{folder}{name}"),
                    program,
                })
            })
            .collect()
    }

    pub(crate) fn pause_image(&self) -> String {
        format!("registry.k8s.io/pause:{}", self.pause)
    }
}

/// The program that stands in for kube-vip; it belongs to no release.
pub(crate) fn kube_vip_stand_in() -> Result<PathBuf, Error> {
    located("kube-vip-stand-in")
}

fn located(component: &str) -> Result<PathBuf, Error> {
    Ok(Components::locate_some(&[component])?.of(component)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_is_made_of_components_of_the_catalogue() {
        for release in Release::all() {
            for (name, line) in [
                ("kubeadm", release.line),
                ("kube-proxy", release.line),
                ("etcd", release.etcd.1),
                ("coredns", release.coredns.1),
                ("containerd", release.containerd),
                ("runc", release.runc),
            ] {
                let component = Component::named(&format!("{name}@{line}")).unwrap();
                let version = component.recipe().unwrap().version;
                let wanted = match name {
                    "kubeadm" | "kube-proxy" => release.version.to_owned(),
                    "etcd" => format!("v{}", release.etcd.0.trim_end_matches("-0")),
                    "coredns" => release.coredns.0.to_owned(),
                    _ => continue,
                };
                assert_eq!(version, wanted, "{name} of {}", release.version);
            }
        }
    }
}
