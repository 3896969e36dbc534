//! Endpoint slices and network policies, and the forms of addresses and address ranges.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::common::{
    Errors, IP_ADDRESS, PORT_RANGE, complain, dns_label, dns_subdomain, immutable, label_selector, one_of, port_name,
    qualified_name,
};
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{FieldError, Path};
use crate::structural::names;

pub const IP_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An IPv4 address without the zeros that may lead its numbers: Go used to read those, so they have a refusal of their
/// own.
fn without_leading_zeros(address: &str) -> String {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    address.split('.').map(plain).collect::<Vec<_>>().join(".")
}

/// What is wrong with the form of an address.
pub fn address_complaint(value: &str) -> Option<&'static str> {
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => None,
        Err(_) if without_leading_zeros(value).parse::<IpAddr>().is_ok() => Some("must not have leading 0s"),
        Err(_) => Some(IP_ADDRESS),
    }
}

/// Checks the form of an address, and says whether it is fine.
pub fn address(errors: &mut Errors, path: &Path, value: &str) -> bool {
    match address_complaint(value) {
        Some(complaint) => {
            errors.push(FieldError::invalid(path, value, complaint));
            false
        }
        None => true,
    }
}

/// A range of addresses: the first one and the length of the prefix.
#[derive(Clone, Copy)]
struct Range {
    address: IpAddr,
    bits: u32,
}

/// An address as a number, aligned so that prefixes of both families count from the top.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Range {
    fn parse(value: &str) -> Option<Self> {
        let (address, bits) = value.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = bits.parse().ok().filter(|bits| digits && *bits <= most)?;
        Some(Self { address, bits })
    }

    fn first(self) -> u128 {
        number(self.address) & (u128::MAX.checked_shl(128 - self.bits).unwrap_or_default())
    }

    fn holds(self, other: Self) -> bool {
        let same_prefix = Self {
            address: other.address,
            bits: self.bits,
        }
        .first()
            == self.first();
        self.address.is_ipv4() == other.address.is_ipv4() && same_prefix
    }
}

fn range_complaint(value: &str) -> Option<&'static str> {
    let Some((address, bits)) = value.split_once('/') else {
        return Some(IP_RANGE);
    };
    let leading_zero = bits.len() > 1 && bits.starts_with('0');
    match Range::parse(value) {
        Some(_) if leading_zero => Some("must not have leading 0s in IP or prefix length"),
        Some(Range {
            address: IpAddr::V6(address),
            ..
        }) if address.to_ipv4_mapped().is_some() => Some("must not have an IPv4-mapped IPv6 address"),
        Some(range) if range.first() != number(range.address) => {
            Some("must not have bits set beyond the prefix length")
        }
        Some(_) => None,
        None if Range::parse(&format!("{}/{bits}", without_leading_zeros(address))).is_some() => {
            Some("must not have leading 0s in IP or prefix length")
        }
        None => Some(IP_RANGE),
    }
}

pub fn endpoint_slice(errors: &mut Errors, slice: &Value, old: Option<&Value>) {
    let kind = text(slice, "addressType");
    let at = Path::new("addressType");
    if kind.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        one_of(errors, slice, &Path::root(), "addressType", &["FQDN", "IPv4", "IPv6"]);
    }
    slice_ports(errors, slice, &Path::new("ports"));
    // What an older server accepted may stay.
    if old.is_none_or(|old| list(old, "endpoints") != list(slice, "endpoints")) {
        endpoints(errors, list(slice, "endpoints"), kind, &Path::new("endpoints"));
    }
    if let Some(old) = old {
        immutable(errors, slice.get("addressType"), old.get("addressType"), &at);
    }
}

fn slice_ports(errors: &mut Errors, slice: &Value, path: &Path) {
    const MOST: usize = 20_000;
    let ports = list(slice, "ports");
    if ports.len() > MOST {
        errors.push(FieldError::too_many(path, ports.len() as u64, MOST as u64));
        return;
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            dns_label(errors, &at.child("name"), name);
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        one_of(errors, port, &at, "protocol", &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = present(port, "appProtocol").and_then(Value::as_str) {
            qualified_name(errors, &at.child("appProtocol"), protocol);
        }
    }
}

fn endpoints(errors: &mut Errors, endpoints: &[Value], kind: &str, path: &Path) {
    const MOST: usize = 1000;
    const MOST_ADDRESSES: usize = 100;
    if endpoints.len() > MOST {
        errors.push(FieldError::too_many(path, endpoints.len() as u64, MOST as u64));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = path.index(index);
        let addresses = list(endpoint, "addresses");
        let here = at.child("addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(&here, "must contain at least 1 address"));
        } else if addresses.len() > MOST_ADDRESSES {
            let count = addresses.len() as u64;
            errors.push(FieldError::too_many(&here, count, MOST_ADDRESSES as u64));
        }
        for (position, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
            endpoint_address(errors, address, kind, &here, position);
        }
        if let Some(node) = present(endpoint, "nodeName").and_then(Value::as_str) {
            dns_subdomain(errors, &at.child("nodeName"), node);
        }
        if let Some(name) = present(endpoint, "hostname").and_then(Value::as_str) {
            dns_label(errors, &at.child("hostname"), name);
        }
        if let Some(hints) = present(endpoint, "hints") {
            self::hints(errors, hints, &at.child("hints"));
        }
    }
}

fn endpoint_address(errors: &mut Errors, value: &str, kind: &str, path: &Path, position: usize) {
    let at = path.index(position);
    match kind {
        "FQDN" => domain_name(errors, &at, value),
        "IPv4" | "IPv6" if address(errors, &at, value) => {
            let Ok(parsed) = value.parse::<IpAddr>() else { return };
            let canonical = parsed.to_string();
            if kind == "IPv6" && canonical != value {
                let detail = format!("must be in canonical form (\"{canonical}\")");
                errors.push(FieldError::invalid(&at, value, detail));
                return;
            }
            if parsed.is_ipv4() != (kind == "IPv4") {
                errors.push(FieldError::invalid(path, value, format!("must be an {kind} address")));
            }
            reachable(errors, &at, value, parsed);
        }
        _ => {}
    }
}

fn domain_name(errors: &mut Errors, path: &Path, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = value.strip_suffix('.').unwrap_or(value);
    let complaints = names::dns_subdomain(name);
    if !complaints.is_empty() {
        errors.push(FieldError::invalid(path, name, complaints.join(",")));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    } else if let Some((label, complaints)) = name
        .split('.')
        .map(|label| (label, names::dns_label(label)))
        .find(|(_, complaints)| !complaints.is_empty())
    {
        errors.push(FieldError::invalid(path, label, complaints.join(",")));
    }
}

/// Endpoints are elsewhere: not on this machine, not on this link.
fn reachable(errors: &mut Errors, path: &Path, value: &str, address: IpAddr) {
    let (local, local_group) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (
            address.is_unicast_link_local(),
            address.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    for (is_so, detail) in [
        (address.is_unspecified(), format!("may not be unspecified ({value})")),
        (
            address.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
        ),
        (
            local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned(),
        ),
        (
            local_group,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ] {
        if is_so {
            errors.push(FieldError::invalid(path, value, detail));
        }
    }
}

fn hints(errors: &mut Errors, hints: &Value, path: &Path) {
    const MOST: usize = 8;
    for field in ["forZones", "forNodes"] {
        let at = path.child(field);
        let targets = list(hints, field);
        if targets.len() > MOST {
            errors.push(FieldError::too_many(&at, targets.len() as u64, MOST as u64));
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, target) in targets.iter().enumerate() {
            let (here, name) = (at.index(index).child("name"), text(target, "name"));
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&here, name));
            }
            let complaints = if field == "forZones" {
                names::label_value(name)
            } else {
                names::dns_subdomain(name)
            };
            complain(errors, &here, name, complaints);
        }
    }
}

pub fn network_policy(errors: &mut Errors, policy: &Value, old: Option<&Value>) {
    let (spec, path) = (&policy["spec"], Path::new("spec"));
    label_selector(errors, &spec["podSelector"], &path.child("podSelector"));
    let known: BTreeSet<&str> = old.map(|old| ranges_of(&old["spec"])).unwrap_or_default();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(spec, direction).iter().enumerate() {
            let at = path.child(direction).index(index);
            for (position, port) in list(rule, "ports").iter().enumerate() {
                policy_port(errors, port, &at.child("ports").index(position));
            }
            for (position, peer) in list(rule, peers).iter().enumerate() {
                policy_peer(errors, peer, &at.child(peers).index(position), &known);
            }
        }
    }
    let (types, at) = (list(spec, "policyTypes"), path.child("policyTypes"));
    if types.len() > 2 {
        errors.push(FieldError::invalid(
            &at,
            types.to_vec(),
            "may not specify more than two policyTypes",
        ));
        return;
    }
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        let known = ["Ingress", "Egress"];
        if !known.contains(&kind) {
            errors.push(FieldError::not_supported(&at.index(index), kind, &known));
        }
    }
}

/// The ranges that a policy names already: they may stay, whatever an older server let pass.
fn ranges_of(spec: &Value) -> BTreeSet<&str> {
    let rules = |direction: &str, peers: &'static str| {
        let rules = list(spec, direction).iter();
        rules.flat_map(move |rule| list(rule, peers))
    };
    let blocks = rules("ingress", "from")
        .chain(rules("egress", "to"))
        .map(|peer| &peer["ipBlock"]);
    let named = blocks.flat_map(|block| list(block, "except").iter().chain(block.get("cidr")));
    named.filter_map(Value::as_str).collect()
}

fn policy_port(errors: &mut Errors, port: &Value, path: &Path) {
    one_of(errors, port, path, "protocol", &["TCP", "UDP", "SCTP"]);
    let end = int(port, "endPort");
    let at_end = path.child("endPort");
    match present(port, "port") {
        None => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.push(FieldError::invalid(&at_end, end, detail));
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(&at_end, end, detail));
            }
            complain(errors, &path.child("port"), name, port_name(name));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            if !(1..=65535).contains(&number) {
                errors.push(FieldError::invalid(&path.child("port"), number, PORT_RANGE));
            }
            if let Some(end) = end {
                if end < number {
                    // Upstream shows the start of the range here.
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(&at_end, number, detail));
                }
                if !(1..=65535).contains(&end) {
                    errors.push(FieldError::invalid(&at_end, end, PORT_RANGE));
                }
            }
        }
    }
}

fn policy_peer(errors: &mut Errors, peer: &Value, path: &Path, known: &BTreeSet<&str>) {
    let mut kinds = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = present(peer, field) {
            kinds += 1;
            label_selector(errors, selector, &path.child(field));
        }
    }
    let block = present(peer, "ipBlock");
    if let Some(block) = block {
        kinds += 1;
        ip_block(errors, block, &path.child("ipBlock"), known);
    }
    if kinds == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if kinds > 1 && block.is_some() {
        errors.push(FieldError::forbidden(
            path,
            "may not specify both ipBlock and another peer",
        ));
    }
}

fn ip_block(errors: &mut Errors, block: &Value, path: &Path, known: &BTreeSet<&str>) {
    let check = |errors: &mut Errors, path: &Path, value: &str| {
        if let Some(complaint) = range_complaint(value).filter(|_| !known.contains(value)) {
            errors.push(FieldError::invalid(path, value, complaint));
        }
    };
    let whole = text(block, "cidr");
    if whole.is_empty() {
        errors.push(FieldError::required(&path.child("cidr"), ""));
        return;
    }
    check(errors, &path.child("cidr"), whole);
    let Some(whole) = Range::parse(whole) else { return };
    for (index, part) in list(block, "except").iter().filter_map(Value::as_str).enumerate() {
        let at = path.child("except").index(index);
        check(errors, &at, part);
        let is_subset = |part: Range| whole.holds(part) && whole.bits < part.bits;
        if Range::parse(part).is_some_and(|part| !is_subset(part)) {
            errors.push(FieldError::invalid(&at, part, "must be a strict subset of `cidr`"));
        }
    }
}
