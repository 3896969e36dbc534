//! The command lines of the parts of a throw-away control plane, and ports for them. What a flag is for is said beside it.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
};

use crate::Error;

/// A loopback port that was free a moment ago. Another process may take it first: callers start again with another one then.
pub(crate) fn free_port() -> Result<SocketAddr, Error> {
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    TcpListener::bind(anywhere)
        .and_then(|listener| listener.local_addr())
        .map_err(|source| Error::Http {
            address: anywhere.to_string(),
            message: source.to_string(),
        })
}

pub(crate) fn etcd(folder: &Path, client: SocketAddr, peer: SocketAddr) -> Vec<String> {
    let data = folder.join("etcd");
    [
        format!("--data-dir={}", data.display()),
        "--name=throwaway".to_owned(),
        format!("--listen-client-urls=http://{client}"),
        format!("--advertise-client-urls=http://{client}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=throwaway=http://{peer}"),
        // The data is thrown away: no reason to wait for the disk, nor to elect slowly among one.
        "--unsafe-no-fsync".to_owned(),
        "--heartbeat-interval=10".to_owned(),
        "--election-timeout=100".to_owned(),
        "--log-level=warn".to_owned(),
    ]
    .into()
}

pub(crate) fn apiserver(folder: &Path, etcd: SocketAddr, secure: SocketAddr) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    vec![
        format!("--etcd-servers=http://{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", secure.port()),
        file("tls-cert-file", "serving.crt"),
        file("tls-private-key-file", "serving.key"),
        file("cert-dir", "certificates"),
        file("client-ca-file", "ca.crt"),
        file("token-auth-file", "tokens.csv"),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default".to_owned(),
        file("service-account-key-file", "service-account.pub"),
        file("service-account-signing-key-file", "service-account.key"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
        // The endpoint of the `kubernetes` Service must not be a loopback address; nothing here uses it.
        "--endpoint-reconciler-type=none".to_owned(),
    ]
}

pub(crate) fn controller(folder: &Path, secure: SocketAddr) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", folder.join("kubeconfig").display()),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", secure.port()),
        format!("--tls-cert-file={}", folder.join("serving.crt").display()),
        format!("--tls-private-key-file={}", folder.join("serving.key").display()),
    ]
}

pub(crate) fn controller_manager(folder: &Path, secure: SocketAddr, controllers: &[String]) -> Vec<String> {
    let mut arguments = controller(folder, secure);
    arguments.push("--use-service-account-credentials=false".to_owned());
    arguments.push(format!(
        "--service-account-private-key-file={}",
        folder.join("service-account.key").display()
    ));
    arguments.push(format!("--root-ca-file={}", folder.join("ca.crt").display()));
    if !controllers.is_empty() {
        arguments.push(format!("--controllers={}", controllers.join(",")));
    }
    arguments
}

pub(crate) fn kubeconfig(server: &str, authority_pem: &str, token: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let authority = STANDARD.encode(authority_pem);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: throwaway\n\
         clusters:\n- name: throwaway\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
         users:\n- name: admin\n  user:\n    token: {token}\n\
         contexts:\n- name: throwaway\n  context:\n    cluster: throwaway\n    user: admin\n"
    )
}
