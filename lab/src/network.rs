//! The network of a lab: a network namespace of its own with a bridge in it. No default route, no name server: nothing leaves. Who wants to
//! talk to the lab from outside runs inside its namespace (`Network::command`, `Network::enter`).

use std::{
    fs::File,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use crate::{
    Error,
    shell::{self, sh},
    spec::{BRIDGE, HARSH, HostSpec, PLAIN, REGISTRY},
};

pub(crate) const BRIDGE_NAME: &str = "lab";

#[derive(Debug, Clone)]
pub(crate) struct Network {
    name: String,
}

impl Network {
    pub(crate) fn of(lab: &str) -> Self {
        Self {
            name: format!("afloat-{lab}"),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    pub(crate) fn make(&self) -> Result<(), Error> {
        sh("ip", &["netns", "add", &self.name])?;
        let ip = |words: &str| self.ip(words);
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE_NAME} type bridge"))?;
        ip(&format!("link set {BRIDGE_NAME} up"))?;
        for address in [BRIDGE, PLAIN, HARSH, REGISTRY] {
            self.set_address(address, true)?;
        }
        for host in HostSpec::possible() {
            ip(&format!("route add {} via {}", host.pods(), host.address()))?;
        }
        Ok(())
    }

    /// Whether one can be made here at all: it is, and is gone again.
    pub(crate) fn can_be_made() -> Result<(), Error> {
        let trial = Self::of(&format!("able-{}", std::process::id()));
        let made = trial.make();
        made.and(trial.remove())
    }

    fn ip(&self, words: &str) -> Result<String, Error> {
        let mut arguments = vec!["-n", &self.name];
        arguments.extend(words.split(' '));
        sh("ip", &arguments)
    }

    /// Gives the bridge an address, or takes it away.
    pub(crate) fn set_address(&self, address: Ipv4Addr, there: bool) -> Result<(), Error> {
        let verb = if there { "replace" } else { "delete" };
        self.ip(&format!("address {verb} {address}/24 dev {BRIDGE_NAME}"))
            .map(drop)
    }

    /// Gone afterwards, also when it never was.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        if self.path().exists() {
            sh("ip", &["netns", "delete", &self.name])?;
        }
        Ok(())
    }

    /// A program that sees the lab's network, and the machine's own files. (`ip netns exec` would also hide /sys/fs/cgroup.)
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program);
        command
    }

    /// Moves the calling thread, and only it, into the lab's network.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        enter(&self.path())
    }
}

/// Moves the calling thread into a network namespace, such as `/proc/7/ns/net`.
pub(crate) fn enter(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| Error::file(path)(error.into()))
}

/// The script that gives a machine its addresses and routes when it boots.
pub(crate) fn machine_script(own: &HostSpec) -> String {
    let mut lines = vec![
        "#!/bin/sh".to_owned(),
        format!("# The network of {}. There is no default route on purpose.", own.name),
        "set -e".to_owned(),
        "ip link set lo up".to_owned(),
        format!("ip address replace {}/24 dev host0", own.address()),
        "ip link set host0 up".to_owned(),
        "# So that a program of the machine itself gets as far as kube-proxy's rules when it asks a Service."
            .to_owned(),
        format!("ip route replace {} dev host0", crate::spec::SERVICES),
    ];
    let others = HostSpec::possible();
    lines.extend(
        others
            .iter()
            .filter(|host| host.name != own.name)
            .map(|host| format!("ip route replace {} via {}", host.pods(), host.address())),
    );
    lines.extend(
        [
            "echo 1 >/proc/sys/net/ipv4/ip_forward",
            "echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables",
            "# Pods that mount the host's folders see what is mounted there later.",
            "mount --make-rshared /",
            "",
        ]
        .map(str::to_owned),
    );
    lines.join("\n")
}

/// The file `/etc/hosts` of every machine.
pub(crate) fn hosts_file() -> String {
    let named = |(address, name): (std::net::Ipv4Addr, String)| format!("{address} {name}");
    std::iter::once("127.0.0.1 localhost".to_owned())
        .chain(
            HostSpec::possible()
                .iter()
                .map(|host| (host.address(), host.name.clone()))
                .chain([(REGISTRY, "registry.lab".to_owned())])
                .map(named),
        )
        .chain([String::new()])
        .collect::<Vec<_>>()
        .join("\n")
}

/// What every pod on a machine gets its address from.
pub(crate) fn cni_config(own: &HostSpec) -> String {
    let plugins = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": own.pods()}]], "routes": [{"dst": "0.0.0.0/0"}]},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    format!("{plugins:#}\n")
}

/// The devices of ended machines go with their namespaces; one that stays would keep the next machine of that name from starting.
pub(crate) fn remove_device(network: &Network, machine: &str) {
    let device = format!("vb-{machine}");
    let _ = shell::run(network.command("ip").args(["link", "delete", &device]), shell::SOON);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Role;

    #[test]
    fn a_machine_has_routes_to_all_others_and_none_to_the_world() {
        let script = machine_script(&HostSpec::new(Role::ControlPlane, 1));
        assert!(script.contains("ip address replace 10.77.0.11/24 dev host0"));
        assert!(script.contains("10.244.12.0/24 via 10.77.0.12") && script.contains("10.244.101.0/24 via 10.77.0.101"));
        assert!(
            !script.contains("10.244.11.0/24") && !script.contains("default via"),
            "{script}"
        );
    }
}
