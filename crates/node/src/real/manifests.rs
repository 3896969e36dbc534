//! What the manifests of a control plane's parts say about where they listen, read from their flags as kubeadm writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::real::forward::Served;

/// The value of a flag (`- --secure-port=6443`), if the manifest sets it.
pub fn flag<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let flags = manifest.lines().map(|line| line.trim().trim_start_matches("- "));
    let mut values = flags.filter_map(|flag| {
        let value = flag.trim_matches(['"', '\'']).strip_prefix("--")?.strip_prefix(name)?;
        value.strip_prefix('=')
    });
    values.next()
}

/// Where a part can be asked: an address of its own if it listens on one, else the loopback.
pub fn address(manifest: &str, flag_name: &str) -> String {
    match flag(manifest, flag_name).and_then(|text| text.parse::<IpAddr>().ok()) {
        Some(address) if !address.is_unspecified() => address.to_string(),
        _ => "127.0.0.1".to_owned(),
    }
}

pub fn port(manifest: &str, otherwise: u16) -> u16 {
    let port = flag(manifest, "secure-port").and_then(|port| port.parse().ok());
    port.unwrap_or(otherwise)
}

/// What the API server serves. The `kubernetes` Service has the first address of each range.
pub fn served(manifest: &str) -> Served {
    let ranges = flag(manifest, "service-cluster-ip-range")
        .unwrap_or_default()
        .split(',');
    Served {
        port: port(manifest, 6443),
        service: ranges.filter_map(first_address).collect(),
    }
}

fn first_address(range: &str) -> Option<IpAddr> {
    let (address, _) = range.trim().split_once('/')?;
    Some(match address.parse().ok()? {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().checked_add(1)?).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().checked_add(1)?).into(),
    })
}

/// `http://127.0.0.1:2381` of a flag that may list several.
pub fn first_url(manifest: &str, name: &str) -> Option<(String, u16)> {
    let url = flag(manifest, name)?.split(',').next()?;
    host_and_port(url)
}

/// Host and port of a URL.
pub fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let place = rest.split('/').next()?;
    let standard = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, standard),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_SERVER: &str = "
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=192.168.7.11
    - --secure-port=7443
    - --service-cluster-ip-range=10.96.0.0/12,fd00:1::/108
    - --service-account-issuer=https://kubernetes.default
";

    #[test]
    fn flags_are_read_as_kubeadm_writes_them() {
        assert_eq!(flag(API_SERVER, "advertise-address"), Some("192.168.7.11"));
        assert_eq!(flag(API_SERVER, "service"), None);
        let served = served(API_SERVER);
        assert_eq!(served.port, 7443);
        assert_eq!(
            served.service,
            ["10.96.0.1".parse::<IpAddr>().unwrap(), "fd00:1::1".parse().unwrap()]
        );
        assert_eq!(address("- --bind-address=0.0.0.0", "bind-address"), "127.0.0.1");
        assert_eq!(address("- --bind-address=10.0.0.5", "bind-address"), "10.0.0.5");
    }

    #[test]
    fn urls_are_read_with_and_without_a_port() {
        for (url, expected) in [
            ("https://10.0.0.1:2379", Some(("10.0.0.1", 2379))),
            ("https://lb.example/", Some(("lb.example", 443))),
            ("http://[fd00::1]:2381/x", Some(("fd00::1", 2381))),
            ("https://[fd00::1]", Some(("fd00::1", 443))),
            ("10.0.0.1:2379", None),
        ] {
            let found = host_and_port(url);
            assert_eq!(
                found.as_ref().map(|(host, port)| (host.as_str(), *port)),
                expected,
                "{url}"
            );
        }
    }
}
