//! The programs of a simulated machine: kubeadm with the refusals and effects of the real one, and the little of kubectl, kubelet and
//! ctr that steps call. What kubeadm writes is not synced, as the real one does not either.

use afloat_api::kubeadm::configuration::{TaggedPart, image_tag};
use afloat_node::flags::{migrate, minor, numbers};
use afloat_node::host::{Command, Job};
use afloat_node::paths;
use jiff::Timestamp;
use serde_json::json;

use super::layout::{CERTIFICATES, core_dns_tag, etcd_tag, manifest_with};
use super::{SimHost, seconds};

/// A job that was started.
#[derive(Clone, Debug)]
pub struct SimJob {
    ends: Timestamp,
    /// When it gives up waiting for static pods, if it waits for any.
    waits_until: Option<Timestamp>,
    output: Output,
    /// What it does at its end.
    then: Option<Finish>,
}

impl SimJob {
    pub fn ends_at(&self) -> Option<Timestamp> {
        Some(self.waits_until.unwrap_or(self.ends)).filter(|_| self.then.is_some())
    }
}

#[derive(Clone, Debug)]
struct Output {
    exit_code: i32,
    stdout: String,
    stderr: String,
}

/// The end of `kubeadm upgrade`.
#[derive(Clone, Debug)]
enum Finish {
    Nothing,
    /// Of `apply`: what all nodes read then, and the add-ons.
    Publish(String, AddOns),
    /// Of `node` on a control plane.
    AddOns(String, AddOns),
    Restore(Vec<(String, String)>, Box<Finish>),
}

/// Which of the two are brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AddOns {
    Both,
    WithoutCoreDns,
}

/// What a program says, or the error it ends with.
pub(super) type Said = Result<String, String>;

impl SimHost {
    pub(super) fn run_job(&mut self, name: &str, command: &Command) -> Job {
        if !self.jobs.contains_key(name) {
            let job = self.start_job(command);
            self.jobs.insert(name.to_owned(), job);
            self.settle();
        }
        match self.jobs.get(name) {
            Some(job) if job.then.is_none() => Job::Ended {
                exit_code: job.output.exit_code,
                stdout: job.output.stdout.clone(),
                stderr: job.output.stderr.clone(),
            },
            _ => Job::Running,
        }
    }

    /// Jobs whose time has come end, whether or not anybody asks; tells whether one did.
    pub(super) fn end_due_jobs(&mut self) -> bool {
        if self.jobs.values().all(|job| job.then.is_none()) {
            return false;
        }
        let (now, ready) = (self.now, self.all_parts_ready());
        let due = |job: &SimJob| {
            let waits = job.waits_until.is_some_and(|until| !ready && now < until);
            job.then.is_some() && now >= job.ends && !waits
        };
        let due = self.jobs.iter().find(|(_, job)| due(job)).map(|(name, _)| name.clone());
        let Some((name, job)) = due.and_then(|name| Some((name.clone(), self.jobs.get_mut(&name)?))) else {
            return false;
        };
        let gave_up = job.waits_until.is_some() && !ready;
        if gave_up {
            job.output = failure("[upgrade/staticpods] timed out waiting: the old manifests are back");
        }
        let published = match job.then.take() {
            Some(Finish::Restore(manifests, _)) if gave_up => {
                for (path, text) in manifests {
                    self.disk.write_unsynced(&path, text.as_bytes(), 0o600);
                }
                Ok(())
            }
            Some(Finish::Restore(_, then)) => self.publish(*then),
            Some(then) => self.publish(then),
            None => Ok(()),
        };
        if let (Err(message), Some(job)) = (published, self.jobs.get_mut(&name)) {
            job.output = failure(&message);
        }
        true
    }

    /// What they were about to do at their end is not done; what they wrote so far stays.
    pub(super) fn end_jobs_that_run(&mut self) {
        self.jobs.retain(|_, job| job.then.is_none());
    }

    fn publish(&self, then: Finish) -> Result<(), String> {
        let (version, add_ons) = match then {
            Finish::Nothing | Finish::Restore(..) => return Ok(()),
            Finish::AddOns(version, add_ons) => (version, add_ons),
            Finish::Publish(version, add_ons) => {
                self.publish_config(&version);
                (version, add_ons)
            }
        };
        self.publish_add_ons(&version, add_ons == AddOns::Both)
    }

    fn start_job(&mut self, command: &Command) -> SimJob {
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        let program = command.program.rsplit('/').next().unwrap_or_default();
        let over = command.over.as_ref().map(|bind| bind.folder.as_str());
        match (program, args.as_slice()) {
            ("kubeadm", ["upgrade", rest @ ..]) => return self.kubeadm_upgrade(rest),
            ("ctr", _) => return self.ended_after(2, Ok(String::new())),
            _ => {}
        }
        let output = match (program, args.as_slice()) {
            ("containerd", ["--config", file, "config", verb]) => self.containerd_config(command, file, verb),
            ("kubelet", ["--version"]) => Ok(format!(
                "Kubernetes {}",
                self.version_of(paths::KUBELET).unwrap_or_default()
            )),
            ("kubectl", [_, _, _, _, "get", "configmap", "kubeadm-config", _, "json"]) => self.get_config_object(),
            (
                "kubectl",
                [
                    _,
                    _,
                    _,
                    _,
                    "patch",
                    "configmap",
                    "kubeadm-config",
                    ..,
                    "--patch-file",
                    file,
                ],
            ) => self.patch_config(file),
            (
                "kubectl",
                [
                    _,
                    _,
                    _,
                    _,
                    "get",
                    names @ ..,
                    "--ignore-not-found",
                    "--show-managed-fields",
                    _,
                    "json",
                ],
            ) => self.get_objects(names),
            ("kubectl", [_, _, _, _, "delete", "--ignore-not-found", names @ ..]) => self.delete_objects(names),
            ("kubectl", [_, _, _, _, "replace", "--filename", file]) => self.replace_objects(file),
            ("kubeadm", ["config", "images", "list", "--kubernetes-version", version]) => Ok(format!(
                "registry.k8s.io/kube-apiserver:{version}\nregistry.k8s.io/coredns/coredns:{}\nregistry.k8s.io/etcd:{}\n",
                core_dns_tag(version),
                etcd_tag(version)
            )),
            ("kubeadm", ["certs", "check-expiration", ..]) => Ok(self.expirations()),
            ("kubeadm", ["certs", "renew", "all"]) => {
                self.renew_certificates();
                Ok(String::new())
            }
            ("kubeadm", ["init", "phase", "etcd", "local", "--config", config]) => {
                self.render(&["etcd"], config, over.unwrap_or(paths::MANIFESTS))
            }
            ("kubeadm", ["init", "phase", "control-plane", "all", "--config", config]) => {
                self.render(&paths::PARTS[..3], config, over.unwrap_or(paths::MANIFESTS))
            }
            _ => self.run_for_systems(program, &args),
        };
        self.ended_after(0, output)
    }

    fn ended_after(&self, count: i64, said: Said) -> SimJob {
        SimJob {
            ends: self.now + seconds(count),
            waits_until: None,
            output: match said {
                Ok(stdout) => Output {
                    exit_code: 0,
                    stdout,
                    stderr: String::new(),
                },
                Err(message) => failure(&message),
            },
            then: Some(Finish::Nothing),
        }
    }

    /// Whether programs here reach an API server.
    pub(super) fn reaches_api(&self) -> Result<(), String> {
        let alone = self.machine.is_control_plane() && self.member.peers.is_empty();
        let answers = self.api_server_ready() || (!alone && self.shared.get().api_reachable);
        if answers && !self.faults.endpoint_away {
            Ok(())
        } else {
            Err("the connection to the server was refused - did you specify the right host or port?".to_owned())
        }
    }

    /// As the real one prints it (`output.kubeadm.k8s.io/v1alpha3`); only one control plane has a `super-admin.conf`.
    fn expirations(&self) -> String {
        let known = |name: &str| {
            let expired = self.faults.expired_certificate.as_deref() == Some(name);
            let (date, left) = if expired {
                ("2026-11-15T19:59:00Z", -60)
            } else {
                ("2027-11-09T15:06:40Z", 31_000_000)
            };
            json!({"name": name, "expirationDate": date, "residualTime": left, "externallyManaged": false, "missing": false})
        };
        let missing = json!({"name": "super-admin.conf", "expirationDate": null, "residualTime": 0,
            "externallyManaged": false, "missing": true});
        let certificates: Vec<_> = ["admin.conf", "apiserver"]
            .into_iter()
            .map(known)
            .chain([missing])
            .collect();
        let authorities: Vec<_> = ["ca", "etcd-ca", "front-proxy-ca"].into_iter().map(known).collect();
        json!({"kind": "CertificateExpirationInfo", "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
            "certificates": certificates, "certificateAuthorities": authorities})
        .to_string()
    }

    fn renew_certificates(&mut self) {
        self.renewals += 1;
        for path in CERTIFICATES {
            let text = format!("certificate {}", self.renewals);
            self.disk.write_unsynced(path, text.as_bytes(), 0o600);
        }
    }

    fn render(&mut self, parts: &[&str], config: &str, folder: &str) -> Said {
        let own = self.version_of(paths::KUBEADM).unwrap_or_default().to_owned();
        let text = self.disk.text(config).ok_or("unable to read the config file")?;
        let version = text.lines().find_map(|line| line.strip_prefix("kubernetesVersion: "));
        let version = version.ok_or("no kubernetesVersion")?.to_owned();
        let etcd = image_tag(text, TaggedPart::Etcd).map(str::to_owned);
        if minor(&version) > minor(&own) {
            return Err(format!("kubeadm {own} cannot render {version}"));
        }
        for part in parts {
            let text = manifest_with(part, &version, &self.machine.address, etcd.as_deref());
            let path = format!("{folder}/{part}.yaml");
            self.disk.write_unsynced(&path, text.as_bytes(), 0o600);
        }
        Ok(String::new())
    }

    fn kubeadm_upgrade(&mut self, args: &[&str]) -> SimJob {
        if self.faults.kubeadm_failures > 0 {
            self.faults.kubeadm_failures = self.faults.kubeadm_failures.saturating_sub(1);
            return self.ended_after(3, Err("[upgrade] FATAL: etcdserver: request timed out".to_owned()));
        }
        let own = self.version_of(paths::KUBEADM).unwrap_or_default().to_owned();
        let allowed = self.reaches_api().and_then(|()| match args {
            ["apply", "phase", "preflight", version, ..] | ["apply", version, ..] => self
                .may_apply(&own, version)
                .and_then(|()| self.checks_core_dns(&own, args)),
            _ => self.may_follow(&own),
        });
        if let Err(message) = allowed {
            return self.ended_after(1, Err(message));
        }
        match args {
            ["apply", "phase", "preflight", ..] => self.ended_after(1, Ok(String::new())),
            ["node", "phase", "kubelet-config", ..] => {
                self.write_kubelet_config(&own);
                self.ended_after(1, Ok(String::new()))
            }
            _ => self.upgrade_whole(&own, args),
        }
    }

    fn upgrade_whole(&mut self, own: &str, args: &[&str]) -> SimJob {
        let mut before = Vec::new();
        if self.machine.is_control_plane() {
            let with_etcd = !args.contains(&"--etcd-upgrade=false");
            let etcd = self.shared.get().etcd_tag.clone();
            for part in paths::PARTS.into_iter().filter(|part| with_etcd || *part != "etcd") {
                let path = paths::manifest(part);
                let (Some(old), new) = (
                    self.disk.text(&path),
                    manifest_with(part, own, &self.machine.address, etcd.as_deref()),
                ) else {
                    continue;
                };
                if old != new {
                    before.push((path.clone(), old.to_owned()));
                    self.disk.write_unsynced(&path, new.as_bytes(), 0o600);
                }
            }
            if !before.is_empty() {
                self.renew_certificates();
            }
        }
        self.write_kubelet_config(own);
        let add_ons = if lists(args, "--skip-phases=", "addon/coredns") {
            AddOns::WithoutCoreDns
        } else {
            AddOns::Both
        };
        let then = match args {
            ["apply", version, ..] => Finish::Publish((*version).to_owned(), add_ons),
            _ if self.machine.is_control_plane() => Finish::AddOns(own.to_owned(), add_ons),
            _ => Finish::Nothing,
        };
        let mut job = self.ended_after(3, Ok(String::new()));
        if before.is_empty() {
            job.then = Some(then);
        } else {
            // kubeadm takes the parts one after the other, and waits for each.
            job.ends = self.now + seconds(60);
            job.waits_until = Some(self.now + seconds(300));
            job.then = Some(Finish::Restore(before, Box::new(then)));
        }
        job
    }

    fn may_apply(&self, own: &str, version: &str) -> Result<(), String> {
        let present = self.shared.get().kubernetes_version.clone();
        if numbers(version) > numbers(own) {
            return Err(format!(
                "the version to upgrade to, {version}, is higher than the kubeadm version {own}"
            ));
        }
        if numbers(version) < numbers(&present) {
            return Err(format!("{version} is lower than the cluster's {present}"));
        }
        if minor(version) > minor(&present).map(|minor| minor + 1) {
            return Err(format!("{version} is more than one minor away from {present}"));
        }
        Ok(())
    }

    /// Made also where the add-on itself is skipped.
    fn checks_core_dns(&self, own: &str, args: &[&str]) -> Result<(), String> {
        let flag = "--ignore-preflight-errors=";
        let made = !lists(args, "--skip-phases=", "preflight");
        let ignores = ["CoreDNSMigration", "CoreDNSUnsupportedPlugins"].map(|check| lists(args, flag, check));
        if made && ignores != [true, true] {
            let migrates = self.shared.get().core_dns_migrates(own);
            return migrates.map_err(|why| format!("[ERROR CoreDNSMigration]: CoreDNS will not be upgraded: {why}"));
        }
        Ok(())
    }

    fn may_follow(&self, own: &str) -> Result<(), String> {
        let cluster = self.shared.get().kubernetes_version.clone();
        if self.machine.is_control_plane() {
            return if minor(own) == minor(&cluster) {
                Ok(())
            } else {
                Err(format!(
                    "the cluster is at {cluster}, this kubeadm at {own}: upgrade apply must run first"
                ))
            };
        }
        let config = self.disk.text(paths::KUBELET_CONFIG).unwrap_or_default();
        let config = config.split_whitespace().nth(1).and_then(minor);
        if minor(own) > minor(&cluster) {
            return Err(format!("kubeadm {own} is newer than the cluster's {cluster}"));
        }
        if minor(own) > config.map(|minor| minor + 1) {
            return Err(format!("kubeadm {own} cannot migrate a kubelet configuration that old"));
        }
        Ok(())
    }

    fn write_kubelet_config(&mut self, own: &str) {
        let before = self.disk.text(paths::KUBELET_CONFIG).unwrap_or_default().to_owned();
        let backup = format!("{}/kubeadm-kubelet-config-{own}/config.yaml", paths::KUBEADM_TMP);
        self.disk.write_unsynced(&backup, before.as_bytes(), 0o600);
        let config = format!("kubelet-config {own}\n");
        self.disk
            .write_unsynced(paths::KUBELET_CONFIG, config.as_bytes(), 0o644);
        let flags = self.disk.text(paths::KUBELET_FLAGS).unwrap_or_default();
        let flags = migrate(flags, own);
        self.disk.write_unsynced(paths::KUBELET_FLAGS, flags.as_bytes(), 0o644);
    }
}

/// Whether a flag of many values has this one.
fn lists(args: &[&str], flag: &str, value: &str) -> bool {
    let mut lists = args.iter().filter_map(|arg| arg.strip_prefix(flag));
    lists.any(|list| list.split(',').any(|one| one == value))
}

fn failure(message: &str) -> Output {
    Output {
        exit_code: 1,
        stdout: String::new(),
        stderr: message.to_owned(),
    }
}
