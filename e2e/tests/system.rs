//! The operating system of a real node replaced as a whole, by the task of Harvester's post-drain Job on a machine with two slots: written, its power cut
//! meanwhile, booted and kept; put back; and a system that does not come up, from which the machine falls back by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use afloat_lab::{FIRST_SYSTEM, Lab, Machine, Release, Spec, Systems, write_system};
use serde_json::Value;

const VERSION: &str = "v1.36.3";
const NODE: &str = "cp-1";
const NEW: &str = "Lab system 2";
const BROKEN: &str = "Lab system 3";
/// On the part of the machine that lasts.
const AFLOAT: &str = "/var/lib/site/afloat";
const LONG: Duration = Duration::from_mins(5);

/// Asks until it is so; the last answer is in the failure.
fn until<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(last) => assert!(
                begun.elapsed() < within,
                "{what} did not come about within {within:?}: {last}"
            ),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A release that is served to the lab; it ends when this is dropped.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Site {
    lab: Lab,
    afloat: PathBuf,
    machine: Machine,
    /// What must not change: the machine's name, identity and keys.
    identity: String,
}

impl Site {
    fn up() -> Self {
        let afloat = PathBuf::from(std::env::var_os("AFLOAT_STATIC").unwrap_or_default());
        assert!(afloat.is_file(), "{}", afloat_e2e::Error::NoBinary);
        let spec = Spec {
            version: VERSION.to_owned(),
            systems: Systems::Ab,
            ..Spec::single("e2e-system")
        };
        let lab = Lab::up(&spec).unwrap();
        let machine = lab.machine(NODE).unwrap();
        let mut site = Self {
            lab,
            afloat,
            machine,
            identity: String::new(),
        };
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds/upgrades.harvesterhci.io.yaml");
        site.kubectl(&["apply", "--server-side", "-f", &crds.display().to_string()]);
        site.kubectl(&["create", "namespace", "harvester-system"]);
        site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"]);
        site.machine.copy_in(&site.afloat, AFLOAT).unwrap();
        site.machine
            .exec(["sh", "-c", "echo key > /etc/ssh/ssh_host_key; echo notes > /root/notes"])
            .unwrap();
        site.identity = site.identity_now();
        assert!(site.identity.starts_with("cp-1\n"), "{}", site.identity);
        site
    }

    fn kubectl(&self, words: &[&str]) -> String {
        self.lab.kubectl(words.iter().copied()).unwrap()
    }

    fn node(&self) -> Result<Value, String> {
        let text = self
            .lab
            .kubectl(["get", "node", NODE, "-o", "json", "--request-timeout=5s"]);
        serde_json::from_str(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }

    /// Makes a release whose system is called so, serves it, and lets an Upgrade go to it.
    fn release(&self, os: &str, change: impl FnOnce(&Path) -> std::io::Result<()>) -> Served {
        let folder = self.lab.folder().join("release");
        fs::create_dir_all(folder.join("bundle")).unwrap();
        let file = format!("harvester: v1.7.0\nos: {os}\nkubernetes: {VERSION}\nrancher: v2.12.2\n");
        fs::write(folder.join("harvester-release.yaml"), &file).unwrap();
        let archives =
            "images:\n  common: [{list: a.txt, archive: a.tar.zst}]\n  rke2: [{list: b.txt, archive: b.tar.zst}]\n";
        fs::write(folder.join("bundle/metadata.yaml"), archives).unwrap();
        write_system(&Release::of(VERSION).unwrap(), os, &folder.join("rootfs.tar"), change).unwrap();

        let upgrade = format!(
            "apiVersion: harvesterhci.io/v1beta1\nkind: Upgrade\nmetadata: {{name: systems, namespace: harvester-system}}\n\
             spec: {{version: v1.7.0}}\nstatus:\n  repoInfo: |\n    release:\n      {}\n",
            file.trim_end().replace('\n', "\n      ")
        );
        let path = self.lab.folder().join("upgrade.yaml");
        fs::write(&path, upgrade).unwrap();
        self.kubectl(&["apply", "-f", &path.display().to_string()]);

        let mut serve = self.lab.command(&self.afloat.display().to_string());
        serve.args(["repo", "serve", &folder.display().to_string(), "--listen", &self.repo()]);
        Served(serve.spawn().unwrap())
    }

    /// Where the release is served.
    fn repo(&self) -> String {
        format!("{}:8090", self.lab.gateway())
    }

    fn on_machine(&self, words: &[&str]) -> Command {
        let mut command = self.machine.command(AFLOAT).unwrap();
        command.args(words);
        command
    }

    fn post_drain(&self) -> Command {
        let repo = format!("http://{}", self.repo());
        let mut command = self.on_machine(&["hci", "post-drain", "--upgrade", "systems", "--node", NODE]);
        command.args(["--repo", &repo]);
        command
    }

    /// A file of the boot chooser, also while the machine is off.
    fn boot(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.machine.root().join("../boot").join(name)).ok()
    }

    /// Waits until the node has booted since, and tells the cluster that this system runs.
    fn runs(&self, os: &str, booted_before: &str) -> Value {
        let node = until(&format!("{NODE} running {os}"), LONG, || {
            let node = self.node()?;
            let info = &node["status"]["nodeInfo"];
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True");
            if info["osImage"] == os && info["bootID"] != booted_before && ready {
                return Ok(node);
            }
            Err(format!("{} of boot {}, ready {ready}", info["osImage"], info["bootID"]))
        });
        until("the workload ready again", LONG, || {
            let web = ["rollout", "status", "deployment/web", "--timeout=20s"];
            self.lab.kubectl(web).map_err(|error| error.to_string())
        });
        assert_eq!(
            self.kubectl(&["get", "configmap", "kept", "-o", "jsonpath={.data.since}"]),
            "before"
        );
        assert_eq!(self.identity_now(), self.identity);
        node
    }

    fn identity_now(&self) -> String {
        let files =
            "cat /etc/hostname /etc/machine-id /etc/ssh/ssh_host_key /root/notes; sha256sum /etc/kubernetes/*.conf";
        self.machine.exec(["sh", "-c", files]).unwrap()
    }

    fn booted(&self) -> String {
        self.node().unwrap()["status"]["nodeInfo"]["bootID"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

/// Runs to the end, shows what was said, and gives it back with how it ended.
fn ran(mut command: Command) -> (bool, String) {
    let begun = Instant::now();
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    println!("{said}({} after {:.1?})\n", output.status, begun.elapsed());
    (output.status.success(), said)
}

/// The power goes while the slot is being written, and everything is as it was.
fn cut_off_while_it_writes(site: &Site) {
    let mut writing = site.post_drain().spawn().unwrap();
    let slot = site.machine.root().join("../b");
    until("a slot half written", LONG, || {
        let begun = slot.join("usr").is_dir();
        begun.then_some(()).ok_or_else(|| "nothing is in it".to_owned())
    });
    site.machine.kill_power().unwrap();
    writing.wait().unwrap();
    assert_eq!(
        (site.boot("b.image"), site.boot("next")),
        (None, None),
        "it was written before the power went"
    );
    site.machine.start().unwrap();
}

#[test]
fn h47_h48_the_system_of_a_real_node_is_replaced_put_back_and_fallen_back_to() {
    let site = Site::up();
    assert_eq!(site.node().unwrap()["status"]["nodeInfo"]["osImage"], FIRST_SYSTEM);

    let served = site.release(NEW, |_| Ok(()));
    let booted = site.booted();
    cut_off_while_it_writes(&site);
    site.runs(FIRST_SYSTEM, &booted);

    let booted = site.booted();
    let (went_well, said) = ran(site.post_drain());
    assert!(went_well && said.contains("slot b has the new system"), "{said}");
    site.runs(NEW, &booted);
    until("the new system kept", LONG, || {
        let default = site.boot("default").unwrap_or_default();
        (default == "b\n").then_some(()).ok_or(default)
    });
    until("its trial over", LONG, || site.boot("trial").map_or(Ok(()), Err));

    // Again: there is nothing to do, and nothing is done.
    let (booted, before) = (site.booted(), site.boot("b.image"));
    let (went_well, said) = ran(site.post_drain());
    assert!(went_well && said.contains("runs Lab system 2 already"), "{said}");
    assert_eq!(
        (site.boot("next"), site.boot("b.image"), site.booted()),
        (None, before, booted.clone())
    );

    // A person wants the system before back.
    let (went_well, said) = ran(site.on_machine(&["hci", "host", "put-system-back", "a", NODE]));
    assert!(went_well, "{said}");
    site.runs(FIRST_SYSTEM, &booted);
    until("the old system kept", LONG, || {
        let default = site.boot("default").unwrap_or_default();
        (default == "a\n").then_some(()).ok_or(default)
    });
    drop(served);

    // One that does not come up.
    let _served = site.release(BROKEN, |root| {
        fs::write(root.join("usr/local/sbin/machine-init"), "#!/bin/sh\nexit 1\n")
    });
    let booted = site.booted();
    let (went_well, said) = ran(site.post_drain());
    assert!(went_well, "{said}");
    let failed = until("the fall back", LONG, || {
        site.boot("failed").ok_or_else(|| "it has not failed yet".to_owned())
    });
    assert!(
        failed.starts_with("b\n") && failed.contains("its first process ended with 1"),
        "{failed}"
    );
    site.runs(FIRST_SYSTEM, &booted);
    assert_eq!(site.boot("default").as_deref(), Some("a\n"));
    let booted = site.booted();
    let (went_well, said) = ran(site.post_drain());
    assert!(!went_well, "a system that failed is not tried again");
    for words in [
        "slot b was booted with it and not kept",
        "its first process ended with 1",
        "rm /systems/boot/failed",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!((site.booted(), site.boot("next")), (booted, None));
}
