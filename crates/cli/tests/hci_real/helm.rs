//! The real helm: as a test asks it, as fleet applies the chart of a `ManagedChart` with it, and as the machine of the manifest Job finds it in
//! the installer of Rancher. The code that upgrades Rancher is the one that runs on a node; only `ctr` is played.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use afloat_node::release::rancher_chart;
use afloat_realparts::client::Client;
use afloat_sim::hci::Charts;
use serde_json::Value;

use super::SYSTEM;
use super::charts::{OLD, OLD_RANCHER, Shelf};
use super::machine::{Killer, Machine};

pub const RANCHER_NAMESPACE: &str = "cattle-system";
/// How long a chart may take until all of it is as it has to be.
const WITHIN: &str = "90s";

/// The program, and the cluster it talks to.
#[derive(Clone)]
pub struct Helm {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    /// Where it keeps what it keeps.
    pub home: PathBuf,
}

impl Helm {
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What it prints; what it complains about where it does not succeed.
    pub fn tell(&self, words: &[&str]) -> Result<String, String> {
        let mut command = self.command(&self.program);
        let output = command.args(words).arg("--kubeconfig").arg(&self.kubeconfig).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    pub fn json(&self, line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        serde_json::from_str(&self.tell(&words).unwrap()).unwrap()
    }

    /// How each revision of Rancher's release ended.
    pub fn rancher_revisions(&self) -> Vec<String> {
        let all = self.json(&format!("history rancher --namespace {RANCHER_NAMESPACE}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = all.as_array().unwrap().iter();
        all.map(|one| format!("{} {}", text(&one["app_version"]), text(&one["status"])))
            .collect()
    }

    /// Name and version of every chart that is deployed.
    pub fn deployed(&self) -> Vec<String> {
        let all = self.json("list --all-namespaces --deployed");
        let all = all.as_array().unwrap().iter();
        all.filter_map(|one| one["chart"].as_str()).map(str::to_owned).collect()
    }
}

/// Whoever applies charts by it.
pub struct Applier {
    helm: Helm,
    shelf: Arc<Shelf>,
    /// The next helm that upgrades Rancher is killed half-way.
    kills: Arc<AtomicBool>,
    /// Sees when it is.
    server: Client,
    attempts: AtomicU32,
}

impl Applier {
    pub fn new(helm: Helm, shelf: Arc<Shelf>, server: Client, kills: bool) -> Self {
        Self {
            helm,
            shelf,
            kills: Arc::new(AtomicBool::new(kills)),
            server,
            attempts: AtomicU32::new(0),
        }
    }

    /// Rancher as a cluster has it, with what a person chose for it.
    pub fn install_old_rancher(&self) {
        let chart = self.shelf.rancher(&self.helm, OLD_RANCHER);
        let words = [
            "install",
            "rancher",
            chart.to_str().unwrap(),
            "--namespace",
            RANCHER_NAMESPACE,
            "--create-namespace",
            "--set",
            "hostname=rancher.example.org,replicas=2",
        ];
        self.helm.tell(&words).unwrap();
    }

    /// Harvester's own kinds, as upstream's chart brings them.
    pub fn install_old_kinds(&self) {
        let chart = self.shelf.chart("harvester-crd", OLD);
        let words = [
            "install",
            "harvester-crd",
            chart.to_str().unwrap(),
            "--namespace",
            SYSTEM,
            "--create-namespace",
        ];
        self.helm.tell(&words).unwrap();
    }
}

type Applied = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

fn apply(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Applied {
    Box::pin(async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    })
}

impl Charts for Applier {
    fn upgrade_rancher(&self, version: &str) -> Applied {
        let run = format!("attempt-{}", self.attempts.fetch_add(1, Ordering::Relaxed));
        let chart = self.shelf.rancher(&self.helm, version);
        let killer = Killer {
            armed: Arc::clone(&self.kills),
            server: self.server.another(),
        };
        let mut machine = Machine::new(self.helm.clone(), chart, version, killer);
        let version = version.to_owned();
        apply(move || {
            let said = rancher_chart::upgrade(&mut machine, &run, &version);
            said.map(|said| println!("{said}")).map_err(|error| error.to_string())
        })
    }

    fn roll_out(&self, chart: &Value) -> Applied {
        let spec = chart["spec"].clone();
        let (helm, charts) = (self.helm.clone(), Arc::clone(&self.shelf));
        apply(move || {
            let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
            let archive = charts.chart(&text("chart"), &text("version"));
            let values = helm.home.join(format!("{}-values.json", text("releaseName")));
            std::fs::write(&values, spec["values"].to_string()).map_err(|error| error.to_string())?;
            let [archive, values] = [archive, values].map(|path| path.display().to_string());
            let (release, namespace) = (text("releaseName"), text("defaultNamespace"));
            let words = [
                "upgrade",
                "--install",
                &release,
                &archive,
                "--namespace",
                &namespace,
                "--create-namespace",
                "--values",
                &values,
                "--wait",
                "--timeout",
                WITHIN,
            ];
            helm.tell(&words).map(|_| ())
        })
    }
}
