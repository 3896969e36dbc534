//! What a lab is made of: how many machines of which version, their names and addresses. Plain data; every lab has a network of its own, so
//! all labs use the same addresses.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{Error, release::Release, systems::Systems};

/// Addresses inside a lab's network.
pub(crate) const BRIDGE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The load balancer that is the cluster's endpoint.
pub(crate) const PLAIN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The load balancer that notices late and never tries twice.
pub(crate) const HARSH: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// Of whichever control plane is elected, where the stand-in for kube-vip runs.
pub(crate) const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 5);
pub(crate) const REGISTRY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 4);
pub(crate) const API_PORT: u16 = 6443;
pub(crate) const REGISTRY_PORT: u16 = 5000;
pub(crate) const SERVICES: &str = "10.96.0.0/12";
pub(crate) const PODS: &str = "10.244.0.0/16";

/// How a lab is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Labs of different names do not see each other.
    pub name: String,
    pub control_planes: u8,
    pub workers: u8,
    /// Such as `v1.35.4`.
    pub version: String,
    /// `iptables`, as kubeadm has it, or `nftables`.
    pub proxy_mode: String,
    /// Whether the test workload is started.
    pub workload: bool,
    /// Whether the control planes elect one of them to have a virtual address.
    #[serde(default)]
    pub virtual_address: bool,
    /// Whether machines have one system, or two slots for it.
    #[serde(default)]
    pub systems: Systems,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            name: "main".to_owned(),
            control_planes: 3,
            workers: 2,
            version: "v1.35.4".to_owned(),
            proxy_mode: "iptables".to_owned(),
            workload: true,
            virtual_address: false,
            systems: Systems::One,
        }
    }
}

impl Spec {
    /// The smallest lab: one control plane that runs everything.
    pub fn single(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            control_planes: 1,
            workers: 0,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<Release, Error> {
        let fine = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if self.name.is_empty() || self.name.len() > 20 || !self.name.chars().all(fine) {
            return Err(Error::Name(self.name.clone()));
        }
        if !(1..=9).contains(&self.control_planes) || self.workers > 9 {
            return Err(Error::Size);
        }
        Release::of(&self.version)
    }

    /// All machines, control planes first.
    pub(crate) fn hosts(&self) -> Vec<HostSpec> {
        let control_planes = (1..=self.control_planes).map(|number| HostSpec::new(Role::ControlPlane, number));
        let workers = (1..=self.workers).map(|number| HostSpec::new(Role::Worker, number));
        control_planes.chain(workers).collect()
    }
}

/// What a machine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    ControlPlane,
    Worker,
}

/// One machine's name and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostSpec {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Last part of its address, and the third of its pods'.
    number: u8,
}

impl HostSpec {
    pub(crate) fn new(role: Role, number: u8) -> Self {
        match role {
            Role::ControlPlane => Self {
                name: format!("cp-{number}"),
                role,
                number: 10 + number,
            },
            Role::Worker => Self {
                name: format!("w-{number}"),
                role,
                number: 100 + number,
            },
        }
    }

    /// Every machine that a lab could have: routes and names are there before a machine is.
    pub(crate) fn possible() -> Vec<Self> {
        let of = |role| (1..=9).map(move |number| Self::new(role, number));
        of(Role::ControlPlane).chain(of(Role::Worker)).collect()
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.number)
    }

    pub(crate) fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        let spec = Spec {
            control_planes: 2,
            workers: 1,
            ..Spec::default()
        };
        let seen: Vec<String> = spec
            .hosts()
            .iter()
            .map(|host| format!("{} {} {}", host.name, host.address(), host.pods()))
            .collect();
        assert_eq!(
            seen,
            [
                "cp-1 10.77.0.11 10.244.11.0/24",
                "cp-2 10.77.0.12 10.244.12.0/24",
                "w-1 10.77.0.101 10.244.101.0/24"
            ]
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |spec: Spec| spec.check().unwrap_err().to_string();
        assert!(
            refused(Spec {
                name: "No/Way".to_owned(),
                ..Spec::default()
            })
            .contains("No/Way")
        );
        assert!(
            refused(Spec {
                control_planes: 0,
                ..Spec::default()
            })
            .contains("1 to 9")
        );
        assert!(
            refused(Spec {
                version: "v1.2.3".to_owned(),
                ..Spec::default()
            })
            .contains("v1.36.3")
        );
    }
}
