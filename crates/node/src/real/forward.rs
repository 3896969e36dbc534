//! Forwarding by netfilter: new API connections go to other control planes, as a table of our own that nobody else writes to. Its port
//! and address sit in sets with a timeout, the dead man's switch: if everything on the node dies, the kernel ends the forwarding.
//!
//! Refusing connections instead would break the `kubernetes` Service, which lists this node for as long as its lease lasts. And the
//! Service's address is forwarded too: pods of this very node are otherwise translated to the API server here.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::host::{Answer, Forward, HostError};
use crate::real::programs::{self, Said};
use crate::real::units::refused;

const TABLE: &str = "afloat";
/// Of the `kubernetes` Service.
const SERVICE_PORT: u16 = 443;
const LIMIT: Duration = Duration::from_secs(30);
const NO_PROGRAM: &str = "forward connections: it has no nft program";
const NO_KERNEL: &str = "forward connections: its kernel has no nftables address translation";

/// What the node's own API server says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Served {
    pub port: u16,
    /// Addresses of the `kubernetes` Service.
    pub service: Vec<IpAddr>,
}

/// One family of addresses in words of nft.
struct Family {
    word: &'static str,
    kind: &'static str,
    peers: Vec<IpAddr>,
    service: Vec<IpAddr>,
}

/// The table as nft reads it, in place of what there was of it, at once.
fn text(forward: &Forward, served: &Served) -> Option<String> {
    let peers: Vec<IpAddr> = forward.peers.iter().filter_map(|peer| peer.parse().ok()).collect();
    let of = |addresses: &[IpAddr], v4: bool| addresses.iter().copied().filter(|a| a.is_ipv4() == v4).collect();
    let families = [("ip", "ipv4_addr", true), ("ip6", "ipv6_addr", false)].map(|(word, kind, v4)| Family {
        word,
        kind,
        peers: of(&peers, v4),
        service: of(&served.service, v4),
    });
    let families: Vec<_> = families.into_iter().filter(|family| !family.peers.is_empty()).collect();
    if families.is_empty() {
        return None;
    }
    let (port, seconds) = (served.port, forward.seconds);
    let mut sets =
        format!(" set ports {{ type inet_service; flags timeout; elements = {{ {port} timeout {seconds}s }}; }}\n");
    let (mut chains, mut before, mut output, mut after) = Default::default();
    for family in &families {
        write_family(
            family,
            served,
            seconds,
            [&mut sets, &mut chains, &mut before, &mut output, &mut after],
        );
    }
    Some(format!(
        "table inet {TABLE} {{}}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{sets}{chains}\
         chain before {{\n  type nat hook prerouting priority -110; policy accept;\n{before} }}\n \
         chain output {{\n  type nat hook output priority -110; policy accept;\n{output} }}\n \
         chain after {{\n  type nat hook postrouting priority 90; policy accept;\n{after} }}\n}}\n"
    ))
}

fn write_family(family: &Family, served: &Served, seconds: u32, parts: [&mut String; 5]) {
    let [sets, chains, before, output, after] = parts;
    let Family {
        word,
        kind,
        peers,
        service,
    } = family;
    let port = served.port;
    let elements = service.iter().map(|address| format!("{address} timeout {seconds}s"));
    let elements: Vec<_> = elements.collect();
    let elements = if elements.is_empty() {
        String::new()
    } else {
        format!(" elements = {{ {} }};", elements.join(", "))
    };
    // Writing to a text cannot fail.
    let _ = writeln!(sets, " set service_{word} {{ type {kind}; flags timeout;{elements} }}");
    let mut choices = Vec::new();
    for (number, peer) in peers.iter().enumerate() {
        let address = if peer.is_ipv6() {
            format!("[{peer}]")
        } else {
            peer.to_string()
        };
        let _ = writeln!(
            chains,
            " chain peer_{word}_{number} {{ meta l4proto tcp dnat {word} to {address}:{port}; }}"
        );
        choices.push(format!("{number} : goto peer_{word}_{number}"));
    }
    let _ = writeln!(
        chains,
        " chain peers_{word} {{ numgen inc mod {} vmap {{ {} }}; }}",
        peers.len(),
        choices.join(", ")
    );
    let nfproto = if *word == "ip" { "ipv4" } else { "ipv6" };
    // Programs of this machine that speak to its own address mean its own API server: the kubelet, health checks, kubeadm.
    let _ = writeln!(
        before,
        "  iif != \"lo\" meta nfproto {nfproto} fib daddr type local tcp dport @ports goto peers_{word}"
    );
    for chain in [before, output] {
        let _ = writeln!(
            chain,
            "  {word} daddr @service_{word} tcp dport {SERVICE_PORT} goto peers_{word}"
        );
    }
    let peers: Vec<_> = peers.iter().map(IpAddr::to_string).collect();
    let _ = writeln!(
        after,
        "  {word} daddr {{ {} }} tcp dport {port} ct status dnat masquerade",
        peers.join(", ")
    );
}

pub fn set(forward: &Forward, served: &Served) -> Answer<()> {
    let Some(text) = text(forward, served) else {
        return Err(HostError::Unsupported(
            "forward connections: no other control plane has an address it knows",
        ));
    };
    let said = nft(&["-f", "-"], text.as_bytes())?;
    if said.is_fine() {
        return Ok(());
    }
    let complaint = said.complaint();
    if is_unsupported(&said.stderr) {
        return Err(HostError::Unsupported(NO_KERNEL));
    }
    Err(refused("set the table", TABLE, complaint))
}

/// Kernels without the modules say it in one of these ways.
fn is_unsupported(complaint: &str) -> bool {
    let ways = [
        "Operation not supported",
        "Protocol not supported",
        "No such file or directory",
    ];
    ways.iter().any(|way| complaint.contains(way))
}

pub fn end() -> Answer<()> {
    if programs::find("nft").is_none() {
        return Ok(());
    }
    let text = format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n");
    let said = nft(&["-f", "-"], text.as_bytes())?;
    if said.is_fine() || is_unsupported(&said.stderr) {
        Ok(())
    } else {
        Err(refused("remove the table", TABLE, said.complaint()))
    }
}

/// What the table forwards to, and for how many seconds more.
pub fn present() -> Answer<Option<Forward>> {
    if programs::find("nft").is_none() {
        return Ok(None);
    }
    let said = nft(&["list", "table", "inet", TABLE], b"")?;
    Ok(if said.is_fine() { read(&said.stdout) } else { None })
}

/// A table as nft tells it; nothing once its time is over.
fn read(table: &str) -> Option<Forward> {
    let ports = table.split("set ports").nth(1)?.split('}').next()?;
    let targets = table.lines().filter_map(|line| {
        let (_, target) = line.split_once("dnat ip")?;
        let (_, target) = target.split_once("to ")?;
        Some(target.parse::<SocketAddr>().ok()?.ip().to_string())
    });
    Some(Forward {
        peers: targets.collect(),
        seconds: expires(ports)?,
    })
}

fn nft(args: &[&str], input: &[u8]) -> Answer<Said> {
    if programs::find("nft").is_none() {
        return Err(HostError::Unsupported(NO_PROGRAM));
    }
    programs::run("nft", args, input, LIMIT)
}

/// The seconds in `6443 timeout 10m expires 9m58s996ms`.
fn expires(set: &str) -> Option<u32> {
    let mut words = set.split([' ', ',', '\n', '\t']).skip_while(|word| *word != "expires");
    seconds(words.nth(1)?)
}

fn seconds(text: &str) -> Option<u32> {
    let mut total = 0_u32;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let factor = match unit {
            "d" => 86_400,
            "h" => 3_600,
            "m" => 60,
            "s" => 1,
            _ => 0,
        };
        total = total.checked_add(number.parse::<u32>().ok()?.checked_mul(factor)?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        Served {
            port: 6443,
            service: vec!["10.96.0.1".parse().unwrap()],
        }
    }

    #[test]
    fn the_table_sends_the_port_and_the_service_to_every_peer_and_ends_by_itself() {
        let forward = Forward {
            peers: vec![
                "192.168.7.12".to_owned(),
                "192.168.7.13".to_owned(),
                "fd00::13".to_owned(),
            ],
            seconds: 720,
        };
        let text = text(&forward, &served()).unwrap();
        for expected in [
            "set ports { type inet_service; flags timeout; elements = { 6443 timeout 720s }; }",
            "set service_ip { type ipv4_addr; flags timeout; elements = { 10.96.0.1 timeout 720s }; }",
            "set service_ip6 { type ipv6_addr; flags timeout; }",
            "chain peer_ip_1 { meta l4proto tcp dnat ip to 192.168.7.13:6443; }",
            "chain peer_ip6_0 { meta l4proto tcp dnat ip6 to [fd00::13]:6443; }",
            "chain peers_ip { numgen inc mod 2 vmap { 0 : goto peer_ip_0, 1 : goto peer_ip_1 }; }",
            "iif != \"lo\" meta nfproto ipv4 fib daddr type local tcp dport @ports goto peers_ip\n",
            "ip daddr { 192.168.7.12, 192.168.7.13 } tcp dport 6443 ct status dnat masquerade",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert_eq!(
            text.matches("ip daddr @service_ip tcp dport 443 goto peers_ip\n")
                .count(),
            2,
            "{text}"
        );
        let names = Forward {
            peers: vec!["a-name".to_owned()],
            seconds: 1,
        };
        assert_eq!(super::text(&names, &served()), None);
    }

    #[test]
    fn a_table_is_read_as_nft_tells_it() {
        // As nft 1.0.6 lists what the text above has made.
        let table = |elements: &str| {
            format!(
                "table inet afloat {{\n\tset ports {{\n\t\ttype inet_service\n\t\tflags timeout\n\t\t{elements}\n\t}}\n\n\
                 \tset service_ip {{\n\t\ttype ipv4_addr\n\t\tflags timeout\n\t\telements = {{ 10.96.0.1 timeout 12m expires 3m }}\n\t}}\n\n\
                 \tchain peer_ip_0 {{\n\t\tmeta l4proto tcp dnat ip to 192.168.7.12:6443\n\t}}\n\n\
                 \tchain peer_ip6_0 {{\n\t\tmeta l4proto tcp dnat ip6 to [fd00::13]:6443\n\t}}\n\n\
                 \tchain peers_ip {{\n\t\tnumgen inc mod 1 vmap {{ 0 : goto peer_ip_0 }}\n\t}}\n\n\
                 \tchain after {{\n\t\ttype nat hook postrouting priority 90; policy accept;\n\
                 \t\tip daddr 192.168.7.12 tcp dport 6443 ct status dnat masquerade\n\t}}\n}}\n"
            )
        };
        for (elements, left) in [
            ("elements = { 6443 timeout 12m expires 11m58s996ms }", Some(718)),
            ("elements = { 6443 timeout 1h expires 1h2s }", Some(3602)),
            ("elements = { 6443 timeout 1m expires 40ms }", Some(0)),
            ("", None),
        ] {
            let expected = left.map(|seconds| Forward {
                peers: vec!["192.168.7.12".to_owned(), "fd00::13".to_owned()],
                seconds,
            });
            assert_eq!(read(&table(elements)), expected, "{elements}");
        }
    }
}
