//! Setting up a site and asking it how it is: bundle, registry, manifests; then `afloat` as a person would use it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use afloat_lab::{Lab, Progress, Release, Spec, write_parts};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::read::{is_ending, list, ready, text};

/// The namespace Afloat runs in.
pub(crate) const HOME: &str = "afloat-system";
/// The lease of whoever works.
const LEADER: &str = "afloat-operator";
/// An operator is up by then, also on two busy cores.
const INSTALLED_WITHIN: Duration = Duration::from_mins(4);

/// Staging that has begun is gone through with, also when the upgrade is ended meanwhile.
const PODS_GONE_WITHIN: Duration = Duration::from_mins(2);

/// A lab with Afloat in it; it ends when this is dropped.
#[derive(Debug)]
pub struct Site {
    pub lab: Lab,
    afloat: PathBuf,
    to: String,
    /// Every version in the bundle: the target, and those on the way to it.
    versions: Vec<String>,
}

/// Pods that are not what they are to be yet, or that have not gone yet; and whose keepers were not heard of since they were changed: their
/// pods are ready while nobody has begun to replace them.
fn unsettled(objects: &Value) -> Vec<String> {
    let unsettled = list(objects).iter().filter(|object| match object["kind"].as_str() {
        Some("DaemonSet") => !is_rolled_out(
            object,
            "/status/updatedNumberScheduled",
            "/status/desiredNumberScheduled",
        ),
        Some("Deployment") => !is_rolled_out(object, "/status/updatedReplicas", "/spec/replicas"),
        _ => is_ending(object) || !ready(object),
    });
    unsettled.map(|object| text(object, "/metadata/name")).collect()
}

/// Whether its controller has seen the newest of it, and all its pods are of that.
fn is_rolled_out(keeper: &Value, updated: &str, wanted: &str) -> bool {
    let number = |pointer| keeper.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    number("/status/observedGeneration") >= number("/metadata/generation") && number(updated) >= number(wanted)
}

/// A part that lacks is no part at its version, and one that ends is none at all.
fn parts_not_at(pods: &Value, release: &Release) -> Vec<String> {
    let mut wrong = Vec::new();
    for (part, tag) in release.tags() {
        let own = |container: &&Value| container["name"] == part;
        let stays = list(pods).iter().filter(|pod| !is_ending(pod));
        let containers = stays.filter_map(|pod| {
            let container = pod["spec"]["containers"].as_array()?.iter().find(own)?;
            Some((text(pod, "/metadata/name"), text(container, "/image")))
        });
        let containers: Vec<_> = containers.collect();
        if containers.is_empty() {
            wrong.push(format!("no {part} runs"));
        }
        let others = containers
            .iter()
            .filter(|(_, image)| !image.ends_with(&format!(":{tag}")));
        wrong.extend(others.map(|(pod, image)| format!("{pod} runs {image}, not {tag}")));
    }
    wrong
}

impl Site {
    /// Brings up the machines, makes and pushes the bundle of `to`, and installs Afloat.
    pub fn up(spec: &Spec, to: &str) -> Result<Self, Error> {
        Self::up_through(spec, &[], to)
    }

    /// The same with what there is of earlier minors in the bundle, for a target that is more than one away.
    pub fn up_through(spec: &Spec, through: &[&str], to: &str) -> Result<Self, Error> {
        let afloat = std::env::var_os("AFLOAT_STATIC")
            .map(PathBuf::from)
            .filter(|path| path.is_file());
        let afloat = afloat.ok_or(Error::NoBinary)?;
        let site = Self {
            lab: Lab::up(spec)?,
            afloat,
            to: to.to_owned(),
            versions: through
                .iter()
                .chain([&to])
                .map(|version| (*version).to_owned())
                .collect(),
        };
        site.apply_manifests()?;
        let image = site.publish()?;
        site.start_operator(&image)?;
        Ok(site)
    }

    /// From now on it goes to another version: the next bundle is made with the same key and published as the first was.
    pub fn publish_next(&mut self, to: &str) -> Result<(), Error> {
        to.clone_into(&mut self.to);
        self.versions = vec![to.to_owned()];
        self.push_bundle().map(drop)
    }

    /// Another bundle, of any parts, under a tag of its own. Answers with its image.
    pub fn publish_as(&self, release: Release, tag: &str) -> Result<String, Error> {
        self.push(&[release], tag)
    }

    /// Makes the key of this site's bundles and tells the operator of it; makes and pushes the first bundle. Answers with its image.
    fn publish(&self) -> Result<String, Error> {
        let folder = self.bundle_folder();
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let key = folder.join("release").display().to_string();
        self.afloat(&["bundle", "keygen", &key])?;
        let public = format!("--from-file=key={key}.pub");
        self.kubectl(&["-n", HOME, "create", "configmap", "afloat-bundle-key", &public])?;
        self.push_bundle()
    }

    fn bundle_folder(&self) -> PathBuf {
        self.lab.folder().join("bundle")
    }

    /// Makes the bundle, checks it and pushes it. Answers with the image.
    fn push_bundle(&self) -> Result<String, Error> {
        let releases = self.versions.iter().map(|version| Release::of(version));
        self.push(&releases.collect::<Result<Vec<_>, _>>()?, &self.to)
    }

    fn push(&self, releases: &[Release], tag: &str) -> Result<String, Error> {
        let folder = self.bundle_folder();
        let parts = folder.join("parts");
        write_parts(releases, &parts, &Progress::new(true))?;
        let text = |path: &Path| path.display().to_string();
        let (layout, key) = (text(&folder.join("layout")), text(&folder.join("release")));
        let (private, public) = (format!("{key}.key"), format!("{key}.pub"));
        let image = format!("{}/afloat/bundle:{tag}", self.lab.registry());
        let (from, afloat) = (text(&parts), text(&self.afloat));
        let create = [
            "bundle", "create", "-d", &layout, "--from", &from, "--afloat", &afloat, "--key", &private,
        ];
        let verify = ["bundle", "verify", &layout, "--key", &public];
        let push = [
            "bundle",
            "push",
            &layout,
            &image,
            "--plain-http",
            "--key",
            &public,
            "--publish",
        ];
        for words in [&create[..], &verify, &push] {
            self.afloat(words)?;
        }
        // Two gigabytes that the registry has by now.
        for folder in [parts, folder.join("layout")] {
            fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
        }
        Ok(image)
    }

    /// Applies the kinds and the manifests as they are; the image that they name is not there yet.
    fn apply_manifests(&self) -> Result<(), Error> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        for part in ["crds", "install/afloat.yaml"] {
            let part = deploy.join(part).display().to_string();
            self.kubectl(&["apply", "--server-side", "-f", &part])?;
        }
        Ok(())
    }

    fn start_operator(&self, image: &str) -> Result<(), Error> {
        let operator = format!("operator={image}");
        self.kubectl(&["-n", HOME, "set", "image", "deployment/afloat", &operator])?;
        let within = format!("--timeout={}s", INSTALLED_WITHIN.as_secs());
        let rollout = ["-n", HOME, "rollout", "status", "deployment/afloat", &within];
        self.kubectl(&rollout).map(drop)
    }

    pub fn kubectl(&self, words: &[&str]) -> Result<String, Error> {
        Ok(self.lab.kubectl(words.iter().copied())?)
    }

    pub fn object(&self, words: &[&str]) -> Result<Value, Error> {
        let text = self.kubectl(&[words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| Error::Unexpected(words.join(" "), error.to_string()))
    }

    /// All objects of a kind of ours.
    pub fn objects(&self, kind: &str) -> Result<Value, Error> {
        self.object(&["-n", HOME, "get", kind])
    }

    /// The version it goes to.
    pub fn to(&self) -> &str {
        &self.to
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.lab.command(&self.afloat.display().to_string());
        command.args(words);
        command
    }

    /// `afloat` as a person at this site; what it says when it ends well.
    pub fn afloat(&self, words: &[&str]) -> Result<String, Error> {
        let output = self.command(words).output().map_err(Error::file(&self.afloat))?;
        finished(&words.join(" "), &output)
    }

    /// Ends the operator that works, as a power cut would: nobody is told. Answers with its name.
    pub fn kill_leader(&self) -> Result<String, Error> {
        let lease = self.object(&["-n", HOME, "get", "lease", LEADER])?;
        // The name of its pod, and the number of the process in it.
        let holder = text(&lease, "/spec/holderIdentity");
        let leader = holder.rsplit_once('-').map(|(pod, _)| pod.to_owned());
        let leader =
            leader.ok_or_else(|| Error::Unexpected(format!("lease {LEADER}"), format!("held by {holder:?}")))?;
        self.kubectl(&["-n", HOME, "delete", "pod", &leader, "--grace-period=0", "--force"])?;
        Ok(leader)
    }

    /// The phase of an upgrade.
    pub fn phase(&self, upgrade: &str) -> Result<String, Error> {
        let upgrade = self.object(&["-n", HOME, "get", "clusterupgrade", upgrade])?;
        Ok(text(&upgrade, "/status/phase"))
    }

    /// The version of a node's kubelet.
    pub fn version(&self, node: &str) -> Result<String, Error> {
        let node = self.object(&["get", "node", node])?;
        Ok(text(&node, "/status/nodeInfo/kubeletVersion"))
    }

    /// What is wrong with the nodes now that all is over and they should be at `version`. Pods get a while to end.
    pub fn left_behind(&self, version: &str) -> Result<Vec<String>, Error> {
        let begun = Instant::now();
        loop {
            let wrong = self.wrong_now(version)?;
            if !wrong.iter().any(|one| one.starts_with("pod ")) || begun.elapsed() > PODS_GONE_WITHIN {
                return Ok(wrong);
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    fn wrong_now(&self, version: &str) -> Result<Vec<String>, Error> {
        let mut wrong = Vec::new();
        for node in list(&self.object(&["get", "nodes"])?) {
            let name = text(node, "/metadata/name");
            let now = text(node, "/status/nodeInfo/kubeletVersion");
            if now != version {
                wrong.push(format!("{name} is at {now}"));
            }
            if node["spec"]["unschedulable"] == true {
                wrong.push(format!("{name} is cordoned"));
            }
            let taints = node["spec"]["taints"].as_array();
            let ours = |taint: &&Value| text(taint, "/key").contains("afloat.dev/");
            wrong.extend(
                taints
                    .into_iter()
                    .flatten()
                    .filter(ours)
                    .map(|taint| format!("{name} keeps {taint}")),
            );
            let annotations = node["metadata"]["annotations"].as_object();
            let ours = annotations
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.contains("afloat.dev/"));
            wrong.extend(ours.map(|(key, _)| format!("{name} keeps {key}")));
            let tables = self.lab.machine(&name)?.exec(["nft", "list", "tables"])?;
            if tables.contains("afloat") {
                wrong.push(format!("{name} still forwards"));
            }
        }
        for pod in list(&self.object(&["-n", HOME, "get", "pods"])?) {
            if text(pod, "/metadata/labels/app.kubernetes.io~1name") != "afloat-operator" {
                wrong.push(format!("pod {} is left", text(pod, "/metadata/name")));
            }
        }
        Ok(wrong)
    }

    /// What of the control planes and add-ons runs at another version than a release has it, or does not run at all.
    pub fn parts_not_at(&self, release: &Release) -> Result<Vec<String>, Error> {
        let pods = self.object(&["-n", "kube-system", "get", "pods"])?;
        Ok(parts_not_at(&pods, release))
    }

    /// Waits until everything in `kube-system` is ready as it is wanted now, and what was replaced there is gone.
    pub fn settled(&self, within: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let pods = self.object(&["-n", "kube-system", "get", "pods,daemonsets.apps,deployments.apps"]);
            let unready: Vec<String> = match &pods {
                Ok(pods) => unsettled(pods),
                Err(error) => vec![error.to_string()],
            };
            if unready.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > within {
                return Err(Error::Waited {
                    what: "every pod of kube-system ready".to_owned(),
                    seconds: within.as_secs(),
                    last: unready.join(", "),
                });
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// The digest of a file inside a machine.
    pub fn digest(&self, machine: &str, path: &str) -> Result<String, Error> {
        let outside = self.lab.machine(machine)?.seen_from_outside(path);
        let content = fs::read(&outside).map_err(Error::file(&outside))?;
        Ok(Sha256::digest(content).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    /// Everything that an upgrade changes on a machine and an undoing puts back, with owners and modes, and what a unit is by all its files.
    /// Only etcd's manifest is left out: a healthy etcd stays at its new version.
    pub fn fingerprint(&self, machine: &str) -> Result<String, Error> {
        let files = "for file in /usr/bin/kube* /usr/local/bin/c* /usr/local/sbin/runc /opt/cni/bin/* /var/lib/kubelet/*.yaml \
                     /var/lib/kubelet/kubeadm-flags.env /etc/containerd/config.toml /etc/kubernetes/manifests/kube-* /etc/kubernetes/*.conf \
                     $(find /etc/kubernetes/pki -type f | sort); do \
                     if [ -f $file ]; then echo $(sha256sum <$file) $(stat -L -c '%u:%g %a' $file) $file; fi; done; \
                     for unit in containerd kubelet; do echo $(systemctl cat $unit.service | sha256sum) $unit.service; done";
        Ok(self.lab.machine(machine)?.exec(["sh", "-c", files])?)
    }

    /// What would help to find out why a run failed.
    pub fn diagnosis(&self) -> String {
        let ask = |words: &[&str]| self.kubectl(words).unwrap_or_else(|error| error.to_string());
        [
            ask(&["get", "nodes", "-o", "wide"]),
            ask(&[
                "-n",
                HOME,
                "get",
                "clusterupgrades,nodekubeadmupgrades,pods",
                "-o",
                "wide",
            ]),
            ask(&["-n", HOME, "logs", "deployment/afloat", "--all-pods=true", "--tail=60"]),
            self.afloat(&["explain"]).unwrap_or_else(|error| error.to_string()),
        ]
        .join("\n")
    }
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn finished(words: &str, output: &Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Failed {
        words: words.to_owned(),
        status: output.status.to_string(),
        said: said(output),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_at_another_version_and_a_part_that_lacks_are_named() {
        let release = Release::of("v1.36.3").unwrap();
        let pod = |part: &str, tag: &str| {
            json!({"metadata": {"name": format!("{part}-cp-1")},
                "spec": {"containers": [{"name": part, "image": format!("registry.k8s.io/{part}:{tag}")}]}})
        };
        let pods: Vec<Value> = release.tags().iter().map(|(part, tag)| pod(part, tag)).collect();
        assert_eq!(parts_not_at(&json!({"items": pods}), &release), [""; 0]);
        let mut behind = pods.clone();
        behind[3] = pod("kube-proxy", "v1.35.4");
        behind.remove(4);
        assert_eq!(
            parts_not_at(&json!({"items": behind}), &release),
            [
                "kube-proxy-cp-1 runs registry.k8s.io/kube-proxy:v1.35.4, not v1.36.3",
                "no etcd runs"
            ]
        );
    }

    #[test]
    fn what_was_changed_and_is_not_replaced_yet_is_waited_for() {
        let keeper = |kind: &str, generation: i64, status: Value| {
            json!({"items": [{"kind": kind, "metadata": {"name": "one", "generation": generation},
                "spec": {"replicas": 2}, "status": status}]})
        };
        let set = |seen, updated| json!({"observedGeneration": seen, "desiredNumberScheduled": 3, "updatedNumberScheduled": updated});
        let deployment = |seen, updated| json!({"observedGeneration": seen, "updatedReplicas": updated});
        for (objects, settled) in [
            (keeper("DaemonSet", 2, set(2, 3)), true),
            (keeper("DaemonSet", 2, set(1, 3)), false),
            (keeper("DaemonSet", 2, set(2, 2)), false),
            (keeper("Deployment", 2, deployment(2, 2)), true),
            (keeper("Deployment", 2, deployment(1, 2)), false),
            (keeper("Deployment", 2, deployment(2, 1)), false),
        ] {
            assert_eq!(unsettled(&objects).is_empty(), settled, "{objects}");
        }
    }

    #[test]
    fn a_pod_that_ends_is_no_part_of_the_cluster_and_is_waited_for() {
        let release = Release::of("v1.36.3").unwrap();
        let pod = |part: &str, tag: &str| {
            json!({"metadata": {"name": format!("{part}-{tag}")},
                "spec": {"containers": [{"name": part, "image": format!("registry.k8s.io/{part}:{tag}")}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        };
        let ending = |mut pod: Value| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            pod
        };
        let mut pods: Vec<Value> = release.tags().iter().map(|(part, tag)| pod(part, tag)).collect();
        assert_eq!(unsettled(&json!({"items": pods})), [""; 0]);
        // The old one goes while the new one runs.
        pods.push(ending(pod("kube-proxy", "v1.35.4")));
        assert_eq!(unsettled(&json!({"items": pods})), ["kube-proxy-v1.35.4"]);
        assert_eq!(parts_not_at(&json!({"items": pods}), &release), [""; 0]);
        // One that goes at the right version is none that runs there.
        pods[3] = ending(pods[3].clone());
        assert_eq!(parts_not_at(&json!({"items": pods}), &release), ["no kube-proxy runs"]);
    }
}
