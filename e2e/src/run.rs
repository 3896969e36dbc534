//! An upgrade followed from its first word to its last while other things happen: machines reboot, operators die, probers count. What it
//! cost is asked afterwards (`account`).

use std::collections::BTreeMap;
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use afloat_lab::Running;

use crate::account::{Account, NodeAccount, ready_since};
use crate::read::{of_the_newest_upgrade, text};
use crate::site::HOME;
use crate::{Error, Site};
use serde_json::{Value, json};

/// Where a node's journal lies.
const JOURNAL: &str = "/var/lib/afloat/journal";
/// Between two looks at the nodes.
const LOOK: Duration = Duration::from_secs(1);

/// How `afloat upgrade` ended, and all it said.
#[derive(Debug)]
pub struct Followed {
    pub exit_code: Option<i32>,
    pub said: String,
    pub took: Duration,
    /// Requests that failed while a node was in service's way, by node; `-` while none was.
    lost: BTreeMap<String, u64>,
    pages_lost: BTreeMap<String, u64>,
}

/// The state of every node's upgrade.
pub type States = BTreeMap<String, String>;

impl Site {
    /// The upgrade as an object, which whoever keeps such things in Git would apply; `afloat upgrade` then follows it. Machines are staged
    /// one by one: all of them share one disk and two cores here.
    pub fn apply_upgrade(&self, name: &str, further: Value) -> Result<(), Error> {
        let mut spec = json!({
            "kubernetesVersion": self.to(),
            "imagePreloadOption": {"strategy": {"type": "sequential"}},
            "drain": {"deleteEmptyDirData": true, "evictUnmanagedPods": true},
        });
        if let (Some(spec), Value::Object(further)) = (spec.as_object_mut(), further) {
            spec.extend(further);
        }
        let object = json!({
            "apiVersion": "afloat.dev/v1alpha1", "kind": "ClusterUpgrade",
            "metadata": {"name": name, "namespace": HOME}, "spec": spec,
        });
        let path = self.lab.folder().join("upgrade.json");
        std::fs::write(&path, object.to_string()).map_err(Error::file(&path))?;
        self.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])
            .map(drop)
    }

    /// `afloat upgrade`, followed to its end, whatever that is. `meanwhile` sees the states of the nodes about once a second.
    pub fn upgrade(
        &self,
        further: &[&str],
        within: Duration,
        probers: Option<&Running>,
        mut meanwhile: impl FnMut(&States) -> Result<(), Error>,
    ) -> Result<Followed, Error> {
        let begun = Instant::now();
        let limit = format!("{}s", within.as_secs());
        let fixed = ["upgrade", "--to", self.to(), "--yes", "--timeout", &limit];
        let path = self.lab.folder().join("upgrade.log");
        let log = File::create(&path).map_err(Error::file(&path))?;
        let errors = log.try_clone().map_err(Error::file(&path))?;
        let mut child = self
            .command(&[&fixed[..], further].concat())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(Error::file(&path))?;
        let mut ledger = Ledger::default();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(Error::file(&path))? {
                break status;
            }
            // It has a limit of its own, which it may not keep.
            if begun.elapsed() > within + LOOK * 60 {
                let _ = child.kill();
            }
            let states = self.states().unwrap_or_default();
            ledger.note(probers, &states);
            if let Err(error) = meanwhile(&states) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
            thread::sleep(LOOK);
        };
        let took = begun.elapsed();
        ledger.note(probers, &self.states().unwrap_or_default());
        Ok(Followed {
            exit_code: status.code(),
            said: std::fs::read_to_string(&path).map_err(Error::file(&path))?,
            took,
            lost: ledger.lost,
            pages_lost: ledger.pages_lost,
        })
    }

    /// The same, held until every machine has what it needs: whoever begins to count then has begun before the first cordon.
    pub fn stage(&self, name: &str, mut further: Value, within: Duration) -> Result<(), Error> {
        further["paused"] = json!(true);
        self.apply_upgrade(name, further)?;
        self.await_staged(within)
    }

    /// Lets go on what was held.
    pub fn let_go(&self, name: &str) -> Result<(), Error> {
        let patch = r#"{"spec": {"paused": false}}"#;
        let words = ["-n", HOME, "patch", "clusterupgrade", name, "--type=merge", "-p", patch];
        self.kubectl(&words).map(drop)
    }

    /// Waits until every machine has what it needs.
    fn await_staged(&self, within: Duration) -> Result<(), Error> {
        let (begun, machines) = (Instant::now(), self.lab.machines().len());
        loop {
            let states = self.states().unwrap_or_default();
            let staged = |state: &String| !["", "Pending", "Staging"].contains(&state.as_str());
            if states.values().filter(|state| staged(state)).count() == machines {
                return Ok(());
            }
            if begun.elapsed() > within {
                return Err(Error::Waited {
                    what: "every machine staged".to_owned(),
                    seconds: within.as_secs(),
                    last: format!("{states:?}"),
                });
            }
            thread::sleep(LOOK / 2);
        }
    }

    /// The state of every node of the newest upgrade.
    pub fn states(&self) -> Result<States, Error> {
        let upgrades = self.objects("nodekubeadmupgrades")?;
        Ok(of_the_newest_upgrade(&upgrades)
            .into_iter()
            .map(|one| (text(one, "/spec/node/name"), text(one, "/status/state")))
            .collect())
    }

    /// What the newest upgrade cost, node by node.
    pub fn account(&self, followed: &Followed) -> Result<Account, Error> {
        let (upgrades, nodes) = (self.objects("nodekubeadmupgrades")?, self.object(&["get", "nodes"])?);
        let pods = self.object(&["-n", "kube-system", "get", "pods"])?;
        let mut accounts = Vec::new();
        for upgrade in of_the_newest_upgrade(&upgrades) {
            let node = text(upgrade, "/spec/node/name");
            let journal = self.lab.machine(&node)?.seen_from_outside(JOURNAL);
            // A node that was put back keeps none.
            let journal = std::fs::read_to_string(journal).unwrap_or_default();
            accounts.push(NodeAccount::of(upgrade, &journal, ready_since(&node, &pods, &nodes)));
        }
        Ok(Account {
            nodes: accounts,
            lost: followed.lost.clone(),
            pages_lost: followed.pages_lost.clone(),
        })
    }
}

/// Who was worked on when requests failed.
#[derive(Default)]
struct Ledger {
    lost: BTreeMap<String, u64>,
    pages_lost: BTreeMap<String, u64>,
    last: (u64, u64),
    in_flight: Vec<String>,
}

impl Ledger {
    /// What failed since the last look is put down to whoever was in flight then or is now.
    fn note(&mut self, probers: Option<&Running>, states: &States) {
        let in_flight: Vec<String> = states
            .iter()
            .filter(|(_, state)| {
                [
                    "Draining",
                    "StandingAside",
                    "Upgrading",
                    "Verifying",
                    "RollingBack",
                    "Failed",
                ]
                .contains(&state.as_str())
            })
            .map(|(node, _)| node.clone())
            .collect();
        let Some(probers) = probers else { return };
        let counts = probers.counts();
        let now = (counts.failed(), counts.pages_failed());
        let mut named: Vec<String> = self.in_flight.iter().chain(&in_flight).cloned().collect();
        named.sort();
        named.dedup();
        if named.is_empty() {
            named.push("-".to_owned());
        }
        for node in named {
            *self.lost.entry(node.clone()).or_default() += now.0 - self.last.0;
            *self.pages_lost.entry(node).or_default() += now.1 - self.last.1;
        }
        (self.last, self.in_flight) = (now, in_flight);
    }
}
