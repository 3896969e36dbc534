//! A server of RKE2 as far as bringing Rancher's chart needs one: a folder with its files, and `ctr` played. Helm is the real one, as a program
//! that runs and can be killed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afloat_node::digest::Digest;
use afloat_node::host::{
    Answer, Command, Endpoint, EtcdMember, EtcdStatus, Forward, Host, HostError, Job, Listed, Room, Signal, UnitOrder,
    UnitState,
};
use afloat_realparts::client::{Client, Request};
use serde_json::{Value, json};

use super::helm::Helm;

const NOT_HERE: HostError = HostError::Unsupported("do that: nothing of Rancher's chart asks for it");
/// The account of a server.
const ACCOUNT: &str = "/etc/rancher/rke2/rke2.yaml";
const INSTALLER: &str = "docker.io/rancher/system-agent-installer-rancher";
const KILLED: i32 = 137;
/// Secrets of a release of Rancher that a helm works on.
const PENDING: &str =
    "/api/v1/namespaces/cattle-system/secrets?labelSelector=owner%3Dhelm%2Cname%3Drancher%2Cstatus%3Dpending-upgrade";

pub struct Machine {
    root: tempfile::TempDir,
    helm: Helm,
    chart: PathBuf,
    image: String,
    killer: Killer,
}

/// Kills a helm that upgrades Rancher, once, as soon as it has begun. It waits for new replicas by then: there is time for that.
pub struct Killer {
    pub armed: Arc<AtomicBool>,
    /// Asking helm itself would take too long.
    pub server: Client,
}

impl Killer {
    fn wait_until_begun(&mut self) {
        let request = Request {
            method: "GET".to_owned(),
            path: PENDING.to_owned(),
            ..Request::default()
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let answer = self.server.send(&request).unwrap();
            let found: Value = serde_json::from_slice(&answer.body).unwrap();
            if found["items"] != json!([]) {
                return;
            }
            assert!(Instant::now() < deadline, "no helm began: {found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Machine {
    pub fn new(helm: Helm, chart: PathBuf, version: &str, killer: Killer) -> Self {
        let machine = Self {
            root: tempfile::tempdir().unwrap(),
            image: format!("{INSTALLER}:{version}"),
            helm,
            chart,
            killer,
        };
        let account = machine.at(ACCOUNT);
        fs::create_dir_all(account.parent().unwrap()).unwrap();
        fs::copy(&machine.helm.kubeconfig, account).unwrap();
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Containerd's: what is mounted are the files of the installer.
    fn ctr(&self, args: &[String]) -> std::io::Result<String> {
        let place = || self.at(args.last().map_or("", String::as_str));
        if args.iter().any(|word| word == "list") {
            return Ok(format!("{}\n", self.image));
        }
        if args.iter().any(|word| word == "unmount") {
            fs::remove_dir_all(place())?;
            return Ok(String::new());
        }
        assert!(args.contains(&self.image), "{args:?}");
        fs::create_dir_all(place())?;
        symlink(&self.helm.program, place().join("helm"))?;
        fs::copy(&self.chart, place().join(self.chart.file_name().unwrap()))?;
        Ok(String::new())
    }

    fn start(&mut self, command: &Command) -> std::io::Result<Job> {
        let mut program = self.helm.command(&self.at(&command.program));
        // The machine's paths, from here.
        for word in &command.args {
            match word.strip_prefix('/') {
                Some(_) => program.arg(self.at(word)),
                None => program.arg(word),
            };
        }
        let mut child = program.spawn()?;
        if command.args[0] == "upgrade" && self.killer.armed.swap(false, Ordering::Relaxed) {
            self.killer.wait_until_begun();
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        Ok(Job::Ended {
            exit_code: output.status.code().unwrap_or(KILLED),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

impl Host for Machine {
    fn list(&mut self, folder: &str) -> Answer<Vec<Listed>> {
        let files = files_in(&self.at(folder)).into_iter().map(|path| Listed {
            path: format!("{folder}/{}", path.file_name().unwrap().display()),
            bytes: fs::metadata(&path).unwrap().len(),
        });
        Ok(files.collect())
    }
    fn write(&mut self, path: &str, content: &[u8], _: u32) -> Answer<()> {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        Ok(())
    }
    fn run(&mut self, _: &str, command: &Command) -> Answer<Job> {
        if !command.program.ends_with("/ctr") {
            return Ok(self.start(command).unwrap());
        }
        let (exit_code, stdout, stderr) = match self.ctr(&command.args) {
            Ok(said) => (0, said, String::new()),
            Err(error) => (1, String::new(), error.to_string()),
        };
        Ok(Job::Ended {
            exit_code,
            stdout,
            stderr,
        })
    }
    /// None outlives whoever asked for it here.
    fn end_jobs(&mut self) -> Answer<()> {
        Ok(())
    }
    fn read(&mut self, _: &str) -> Answer<Option<Vec<u8>>> {
        Err(NOT_HERE)
    }
    fn size(&mut self, _: &str) -> Answer<Option<u64>> {
        Err(NOT_HERE)
    }
    fn digest(&mut self, _: &str) -> Answer<Option<Digest>> {
        Err(NOT_HERE)
    }
    fn rewrite(&mut self, _: &str, _: &[u8]) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn copy(&mut self, _: &str, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn append(&mut self, _: &str, _: &[u8]) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn rename(&mut self, _: &str, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn remove(&mut self, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn sync(&mut self) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn room(&mut self, _: &str) -> Answer<Room> {
        Err(NOT_HERE)
    }
    fn boot(&mut self) -> Answer<String> {
        Err(NOT_HERE)
    }
    fn unit(&mut self, _: &str) -> Answer<UnitState> {
        Err(NOT_HERE)
    }
    fn order(&mut self, _: &str, _: UnitOrder) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn command_line(&mut self, _: &str) -> Answer<Vec<String>> {
        Err(NOT_HERE)
    }
    fn reload_units(&mut self) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn runs(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn signal(&mut self, _: &str, _: Signal) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn process(&mut self, _: &str) -> Answer<Option<String>> {
        Err(NOT_HERE)
    }
    fn lives(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn kill(&mut self, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn takes_connections(&mut self) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn forward(&mut self, _: Option<&Forward>) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn forwarding(&mut self) -> Answer<Option<Forward>> {
        Err(NOT_HERE)
    }
    fn serving(&mut self, _: &[String]) -> Answer<Vec<String>> {
        Err(NOT_HERE)
    }
    fn well(&mut self, _: Endpoint) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn etcd(&mut self) -> Answer<EtcdStatus> {
        Err(NOT_HERE)
    }
    fn hand_over_etcd(&mut self) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn etcd_members(&mut self) -> Answer<Vec<EtcdMember>> {
        Err(NOT_HERE)
    }
    fn remove_etcd_member(&mut self, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn add_etcd_learner(&mut self, _: &str) -> Answer<Vec<EtcdMember>> {
        Err(NOT_HERE)
    }
    fn promote_etcd_learner(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
}
