//! Secrets of a site stay where they are: passwords and keys that lie in the cluster and on its machines are in no log, event, status or
//! report of Afloat, neither of an upgrade that goes well nor of one that fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_e2e::{Haystack, Site};
use afloat_lab::Spec;
use serde_json::json;

const TO: &str = "v1.36.3";
const CONSERVATIVE: &str =
    "conservative: /etc/kubernetes/manifests/kube-scheduler.yaml is not as kubeadm renders it: a hand has changed it";
const LONG: Duration = Duration::from_mins(15);
const SETTLED: Duration = Duration::from_mins(4);

fn run(site: &Site, machine: &str, script: &str) -> String {
    site.lab.machine(machine).unwrap().exec(["sh", "-c", script]).unwrap()
}

/// Puts a password of its own in every place that Afloat, or a program that it runs, reads.
fn plant(site: &Site) -> BTreeMap<String, String> {
    let mut planted = BTreeMap::new();
    let mut new = |name: &str| {
        let value = format!("canary-{name}-5up3r53cr37");
        planted.insert(format!("the password {name}"), value.clone());
        value
    };
    for namespace in ["default", "afloat-system"] {
        let value = new(&format!("of-{namespace}"));
        let literal = format!("--from-literal=password={value}");
        site.kubectl(&["-n", namespace, "create", "secret", "generic", "canary", &literal])
            .unwrap();
    }
    let variable = format!("PASSWORD={}", new("of-a-pod"));
    site.kubectl(&["set", "env", "deployment/web", &variable]).unwrap();
    site.kubectl(&["rollout", "status", "deployment/web", "--timeout=240s"])
        .unwrap();
    for machine in ["cp-1", "w-1"] {
        let proxy = new(&format!("of-the-proxy-on-{machine}"));
        let registry = new(&format!("of-a-registry-on-{machine}"));
        let containerd = new(&format!("of-containerd-on-{machine}"));
        let folder = "/etc/systemd/system/kubelet.service.d";
        let mirror = "/etc/containerd/certs.d/private.example";
        run(
            site,
            machine,
            &format!(
                "mkdir -p {folder} {mirror}
printf '[Service]\\nEnvironment=NO_PROXY=* HTTPS_PROXY=http://ada:{proxy}@10.77.0.9:3128\\n' > {folder}/20-proxy.conf
printf '[host.\"http://10.77.0.9\"]\\n  [host.\"http://10.77.0.9\".header]\\n    authorization = \"Basic {registry}\"\\n' > {mirror}/hosts.toml
echo '# {containerd}' >> /etc/containerd/config.toml
systemctl daemon-reload && systemctl restart kubelet"
            ),
        );
    }
    // In a manifest: Afloat compares it with what kubeadm would write, and says why it takes the conservative way.
    let token = new("in-a-manifest");
    let edit = format!(
        "sed 's/^    image: .*/&\\n    env: [{{name: VAULT_TOKEN, value: {token}}}]/' /etc/kubernetes/manifests/kube-scheduler.yaml > /root/edited \
         && mv /root/edited /etc/kubernetes/manifests/kube-scheduler.yaml"
    );
    run(site, "cp-1", &edit);
    planted
}

/// A line out of the middle of every private key that is there now, and the tokens that the cluster knows.
fn keys(site: &Site) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    for machine in site.lab.machines() {
        let script = "for file in $(find /etc/kubernetes /var/lib/kubelet/pki -type f); do \
                        sed -n '/PRIVATE KEY/,/END/p' $file | sed -n 3p | sed \"s|^|$file |\"; \
                        sed -n 's/.*key-data: .\\{400\\}\\(.\\{60\\}\\).*/\\1/p' $file | sed \"s|^|$file |\"; done";
        let found = run(site, machine.name(), script);
        for (file, line) in found.lines().filter_map(|line| line.split_once(' ')) {
            if line.len() > 20 {
                keys.insert(format!("{}:{file}", machine.name()), line.to_owned());
            }
        }
    }
    let token = "sed -n 's/.*token: \\([a-z0-9]*[.][a-z0-9]*\\).*/\\1/p' /root/kubeadm.yaml";
    let token = run(site, "w-1", token).trim().to_owned();
    assert!(token.len() > 20, "no token that a machine joined with");
    keys.insert("the token that machines join with".to_owned(), token);
    let secrets = site.object(&["get", "secrets", "--all-namespaces"]).unwrap();
    for secret in secrets["items"].as_array().unwrap() {
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap();
            // What is short is a date or a yes.
            if value.len() >= 20 && !key.starts_with("usage") && key != "description" && key != "auth-extra-groups" {
                let name = format!("{}/{key}", secret["metadata"]["name"].as_str().unwrap());
                keys.insert(name, value.to_owned());
            }
        }
    }
    keys
}

#[test]
fn no_secret_is_in_any_log_event_status_or_report() {
    let spec = Spec {
        name: "e2e-secrets".to_owned(),
        control_planes: 1,
        workers: 2,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    let mut secrets = plant(&site);
    site.settled(SETTLED).unwrap();
    secrets.extend(keys(&site));
    // What fails says more than what goes well.
    site.break_kubeadm("w-1").unwrap();

    site.apply_upgrade("canaries", json!({"budget": {"maxFailed": 1}}))
        .unwrap();
    let mut haystack = Haystack::default();
    let followed = site
        .upgrade(&[], LONG, None, |_| haystack.collect_passing(&site))
        .unwrap();
    println!("{}\nexit code {:?}", followed.said, followed.exit_code);
    haystack.add("afloat upgrade", &followed.said);
    haystack.collect_lasting(&site).unwrap();
    // Keys that were made anew meanwhile.
    for (name, key) in keys(&site) {
        secrets.insert(format!("{name}, the new one"), key);
    }
    println!(
        "{} secrets, {} places with {} bytes: {:?}",
        secrets.len(),
        haystack.places("").len(),
        haystack.size(),
        haystack.places("")
    );

    // Why it took the conservative way is said without what was in the file.
    let account = site.account_to_table(&followed).unwrap();
    let plane = account.nodes.iter().find(|node| node.node == "cp-1").unwrap();
    assert_eq!(plane.way.as_deref(), Some(CONSERVATIVE));
    let states = site.states().unwrap();
    assert_eq!(
        (states["cp-1"].as_str(), states["w-1"].as_str(), states["w-2"].as_str()),
        ("Succeeded", "RolledBack", "Succeeded"),
        "{}",
        site.diagnosis()
    );
    // All that could leak was planted and looked at.
    for file in ["cp-1:/etc/kubernetes/pki/ca.key", "cp-1:/etc/kubernetes/admin.conf"] {
        assert!(secrets.contains_key(file), "no key of {file}: {:?}", secrets.keys());
    }
    for place in [
        "cp-1 afloat-system_cp-1",
        "w-1 afloat-system_w-1",
        "w-1 units",
        "events",
        "objects",
        "described",
        "metrics",
    ] {
        assert!(!haystack.places(place).is_empty(), "nothing of {place}");
    }
    assert_eq!(haystack.holds(&secrets), Vec::<String>::new());
    for machine in site.lab.machines() {
        let mode = machine.exec(["stat", "-c", "%a", "/var/lib/afloat"]).unwrap();
        assert_eq!(mode.trim(), "700", "the kept files of {}", machine.name());
    }
}
