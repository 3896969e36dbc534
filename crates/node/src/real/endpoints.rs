//! Whether the parts on a real machine are well: each is asked at its own health endpoint, where its manifest says that it listens.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use crate::host::{Answer, Endpoint};
use crate::paths;
use crate::real::https::{self, Request, Trust, ask};
use crate::real::manifests::{address, first_url, host_and_port, port};
use crate::real::units::{self, property};
use crate::real::{RealHost, containers, files, wrong_file};

/// Asks a part. One that does not answer, or says no, is not well; an error is only what keeps from asking.
pub fn well(host: &mut RealHost, endpoint: Endpoint) -> Answer<bool> {
    Ok(match endpoint {
        Endpoint::ApiServer => {
            let manifest = host.manifest("kube-apiserver")?;
            let own = address(&manifest, "advertise-address");
            says_ok(&own, port(&manifest, 6443), "/readyz", &host.anybody()?)
        }
        Endpoint::ControllerManager => part(host, "kube-controller-manager", 10257)?,
        Endpoint::Scheduler => part(host, "kube-scheduler", 10259)?,
        Endpoint::Etcd => {
            let manifest = host.manifest("etcd")?;
            let place = first_url(&manifest, "listen-metrics-urls");
            let (own, port) = place.unwrap_or_else(|| ("127.0.0.1".to_owned(), 2381));
            says_ok(&own, port, "/readyz", &Trust::Plain)
        }
        Endpoint::Runtime => containers::runtime_is_well()?,
        Endpoint::Kubelet => kubelet(host)?,
    })
}

/// Whether the API server's port is open to this machine itself, which no forwarding concerns.
pub fn takes_connections(host: &mut RealHost) -> Answer<bool> {
    let manifest = host.manifest("kube-apiserver")?;
    let own = address(&manifest, "advertise-address");
    Ok(!https::is_refused(&own, port(&manifest, 6443)))
}

fn part(host: &mut RealHost, name: &str, otherwise: u16) -> Answer<bool> {
    let manifest = host.manifest(name)?;
    let own = address(&manifest, "bind-address");
    Ok(says_ok(&own, port(&manifest, otherwise), "/healthz", &host.anybody()?))
}

fn says_ok(host: &str, port: u16, path: &str, trust: &Trust) -> bool {
    let request = Request {
        host,
        port,
        path,
        body: None,
    };
    ask(&request, trust).is_ok_and(|answered| answered.is_ok())
}

/// The kubelet says so, and has renewed its node's lease since it was started: the proof that it speaks to an API server.
fn kubelet(host: &mut RealHost) -> Answer<bool> {
    let port = healthz_port(&host.text(paths::KUBELET_CONFIG)?);
    if !says_ok("127.0.0.1", port, "/healthz", &Trust::Plain) {
        return Ok(false);
    }
    let Some(started) = started(paths::KUBELET_UNIT)? else {
        return Ok(false);
    };
    let renewed = lease_renewed(host)?;
    Ok(renewed.is_some_and(|renewed| renewed >= started))
}

fn healthz_port(config: &str) -> u16 {
    let mut ports = config.lines().filter_map(|line| line.strip_prefix("healthzPort:"));
    ports.next().and_then(|port| port.trim().parse().ok()).unwrap_or(10248)
}

/// When the main process of a unit was started.
fn started(unit: &str) -> Answer<Option<Timestamp>> {
    let shown = units::show(unit, "ExecMainStartTimestampMonotonic")?;
    let since_boot = property(&shown, "ExecMainStartTimestampMonotonic").parse::<i64>();
    let Some(since_boot) = since_boot.ok().filter(|since_boot| *since_boot > 0) else {
        return Ok(None);
    };
    let now = clock_gettime(ClockId::Monotonic);
    let now = SignedDuration::new(now.tv_sec, i32::try_from(now.tv_nsec).unwrap_or(0));
    let ago = now - SignedDuration::from_micros(since_boot);
    Ok(Timestamp::now().checked_sub(ago).ok())
}

/// A kubeconfig file, as far as a kubelet's goes.
#[derive(Debug, Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Debug, Deserialize)]
struct User {
    #[serde(rename = "client-certificate")]
    certificate: Option<String>,
    #[serde(rename = "client-certificate-data")]
    certificate_data: Option<String>,
    #[serde(rename = "client-key")]
    key: Option<String>,
    #[serde(rename = "client-key-data")]
    key_data: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<Timestamp>,
}

/// When this node's lease was renewed last, asked for as the kubelet itself, which may see its own.
fn lease_renewed(host: &mut RealHost) -> Answer<Option<Timestamp>> {
    let text = host.text(paths::KUBELET_CONF)?;
    let config = serde_saphyr::from_str::<Kubeconfig>(&text).ok();
    let Some(config) = config else { return Ok(None) };
    let (Some(cluster), Some(user)) = (config.clusters.first(), config.users.first()) else {
        return Ok(None);
    };
    let (cluster, user) = (&cluster.cluster, &user.user);
    let authority = host.pem(
        cluster.certificate_authority.as_deref(),
        cluster.certificate_authority_data.as_deref(),
    )?;
    let certificate = host.pem(user.certificate.as_deref(), user.certificate_data.as_deref())?;
    let key = host.pem(user.key.as_deref(), user.key_data.as_deref())?;
    let place = Path::new(paths::KUBELET_CONF);
    let trust = https::known(&authority, &certificate, &key).map_err(wrong_file(place))?;
    let Some((server, port)) = host_and_port(&cluster.server) else {
        return Ok(None);
    };
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}",
        host.node
    );
    let request = Request {
        host: &server,
        port,
        path: &path,
        body: None,
    };
    let answered = ask(&request, &trust).ok().filter(https::Answered::is_ok);
    let lease = answered.and_then(|answered| serde_json::from_slice::<Lease>(&answered.body).ok());
    Ok(lease.and_then(|lease| lease.spec.renew_time))
}

impl RealHost {
    /// A PEM text, in a file or in the kubeconfig itself.
    fn pem(&self, file: Option<&str>, data: Option<&str>) -> Answer<Vec<u8>> {
        use base64::Engine as _;
        if let Some(data) = data {
            let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
            return Ok(decoded.unwrap_or_default());
        }
        let Some(file) = file else { return Ok(Vec::new()) };
        Ok(files::read(&self.at(file))?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_kubeconfig_is_read_with_files_and_with_data() {
        let text = "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority-data: YWJj\n    \
                    server: https://10.0.0.1:6443\n  name: c\ncontexts:\n- context: {cluster: c, user: u}\n  name: x\n\
                    current-context: x\nusers:\n- name: u\n  user:\n    client-certificate: /var/lib/kubelet/pki/c.pem\n    \
                    client-key: /var/lib/kubelet/pki/c.pem\n";
        let config: Kubeconfig = serde_saphyr::from_str(text).unwrap();
        assert_eq!(config.clusters[0].cluster.server, "https://10.0.0.1:6443");
        assert_eq!(config.users[0].user.key.as_deref(), Some("/var/lib/kubelet/pki/c.pem"));
        let host = RealHost::new("node-1");
        assert_eq!(
            host.pem(None, config.clusters[0].cluster.certificate_authority_data.as_deref())
                .unwrap(),
            b"abc"
        );
    }

    #[test]
    fn a_lease_is_read_as_an_api_server_writes_it() {
        let text = r#"{"kind":"Lease","spec":{"holderIdentity":"cp-1","leaseDurationSeconds":40,"renewTime":"2026-11-16T05:00:01.123456Z"}}"#;
        let lease: Lease = serde_json::from_str(text).unwrap();
        assert_eq!(
            lease.spec.renew_time,
            Some("2026-11-16T05:00:01.123456Z".parse().unwrap())
        );
    }

    #[test]
    fn the_kubelets_port_is_the_configured_one() {
        assert_eq!(healthz_port("kind: KubeletConfiguration\nhealthzPort: 11248\n"), 11248);
        assert_eq!(healthz_port("healthzBindAddress: 127.0.0.1\n"), 10248);
    }
}
