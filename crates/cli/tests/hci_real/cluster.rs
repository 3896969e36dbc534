//! A real control plane with kubectl and helm, and what a person asks about an upgrade on it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use afloat_realparts::{Components, ControlPlane, Options};
use serde_json::Value;

use super::helm::Helm;
use super::{SYSTEM, UPGRADE};

/// A control plane, and who is asked about it.
pub struct Cluster {
    pub plane: ControlPlane,
    kubectl: PathBuf,
    pub helm: Helm,
    /// Ends with the cluster.
    pub folder: tempfile::TempDir,
}

impl Cluster {
    pub fn start() -> Self {
        let paths = Components::locate_some(&["kubectl", "helm"]).unwrap();
        let options = Options {
            controller_manager: true,
            // The simulator plays the others, Jobs among them.
            controllers: vec![
                "garbage-collector-controller".to_owned(),
                "deployment-controller".to_owned(),
            ],
            ..Options::default()
        };
        let plane = ControlPlane::start(&options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self {
            kubectl: paths.of("kubectl").unwrap().to_owned(),
            helm: Helm {
                program: paths.of("helm").unwrap().to_owned(),
                kubeconfig: plane.kubeconfig_path(),
                home: folder.path().to_owned(),
            },
            plane,
            folder,
        }
    }

    fn run(&self, program: &mut Command, input: &str) -> Output {
        let mut child = program
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What kubectl prints; an error where it does not succeed.
    pub fn kubectl(&self, line: &str, input: &str) -> Result<String, String> {
        let output = self.run(Command::new(&self.kubectl).args(line.split(' ')), input);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    pub fn get(&self, what: &str) -> Option<Value> {
        let text = self
            .kubectl(&format!("get {what} -o json --ignore-not-found"), "")
            .unwrap();
        serde_json::from_str(&text).ok()
    }

    pub fn afloat(&self, line: &str) -> (i32, String) {
        let output = self.run(Command::new(env!("CARGO_BIN_EXE_afloat")).args(line.split(' ')), "");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    pub fn upgrade(&self) -> Value {
        self.get(&format!("upgrades.harvesterhci.io -n {SYSTEM} {UPGRADE}"))
            .unwrap_or_default()
    }

    pub fn state_of(&self, node: &str) -> String {
        let state = &self.upgrade()["status"]["nodeStatuses"][node]["state"];
        state.as_str().unwrap_or_default().to_owned()
    }

    pub async fn until(&self, seconds: u64, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !holds() {
            let words = || {
                format!(
                    "not reached: {what}\n{:#}\n{}",
                    self.upgrade()["status"],
                    self.afloat("explain").1
                )
            };
            assert!(Instant::now() < deadline, "{}", words());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Status, and message, of a condition of the upgrade.
    pub fn condition(&self, kind: &str) -> Option<(String, String)> {
        let upgrade = self.upgrade();
        let all = upgrade["status"]["conditions"].as_array()?;
        let one = all.iter().find(|one| one["type"] == kind)?;
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("message")))
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|(status, _)| status == "True")
    }

    /// Uids of running machines, by name.
    pub fn running(&self) -> BTreeMap<String, String> {
        let all = self.get("virtualmachineinstances.kubevirt.io -A").unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let alive = all["items"].as_array().into_iter().flatten();
        alive
            .filter(|vmi| vmi["status"]["phase"] == "Running")
            .map(|vmi| (text(&vmi["metadata"]["name"]), text(&vmi["metadata"]["uid"])))
            .collect()
    }

    /// Marks that an upgrade puts on nodes.
    pub fn marks(&self) -> Vec<String> {
        let nodes = self.get("nodes").unwrap_or_default();
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let marks = nodes.iter().flat_map(|node| {
            let annotations = node["metadata"]["annotations"].as_object().into_iter().flatten();
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let marks = annotations
                .map(|(key, _)| key.clone())
                .chain(taints.map(ToString::to_string));
            marks.collect::<Vec<_>>()
        });
        marks.collect()
    }
}
