//! One machine as the world sees it: the simulated host, the real engine that works on it by itself, and Afloat's containers
//! there. What a step does to the host is in `afloat-node`, what the host answers in [`afloat_simhost`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use afloat_api::NodeRole;
use afloat_api::node::{NodePlan, StepOutcome, StepReport, exit};
use afloat_core::KubernetesVersion;
use afloat_core::action::TaskPod;
use afloat_core::view::{Component, ContainerReport, Key, NodeName, Uid};

use afloat_node::engine::{Engine, EngineError, Followed, Next};
use afloat_node::host::EtcdPeer;

use super::time::{Millis, SECOND, millis, stamp};
use afloat_simhost::{self as host, Bundle, Crash, Moment, Shared, SimHost};

/// What can be seen of a machine from outside.
#[allow(clippy::struct_excessive_bools, reason = "each is seen by itself")]
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub powered: bool,
    /// The kubelet runs and talks to the API server.
    pub kubelet: bool,
    /// It runs: containers that end are followed by the next.
    pub kubelet_runs: bool,
    pub kubelet_version: KubernetesVersion,
    pub runtime_version: Arc<str>,
    pub parts: Vec<Part>,
    /// The addresses that new API connections are sent to, where it stands aside.
    pub forwards_to: Option<Arc<[String]>>,
    /// Work was begun that may disturb the node, and is neither finished nor undone.
    pub working: bool,
}

/// One static pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub component: Component,
    pub tag: Arc<str>,
    pub version: Option<KubernetesVersion>,
    pub running: bool,
    pub ready: bool,
    pub started_at: Millis,
}

impl Facts {
    pub fn part(&self, component: Component) -> Option<&Part> {
        self.parts.iter().find(|part| part.component == component)
    }

    /// New API connections are sent to the others.
    pub fn aside(&self) -> bool {
        self.forwards_to.is_some()
    }

    /// Whether an API server here answers by itself: it is ready, and so is the etcd that it asks.
    pub fn serves_api(&self) -> bool {
        self.serves(Component::ApiServer) && self.serves(Component::Etcd)
    }

    /// Whether a part runs and answers.
    pub fn serves(&self, component: Component) -> bool {
        self.powered && self.part(component).is_some_and(|part| part.ready)
    }
}

/// One of Afloat's pods on a machine.
#[derive(Clone, Debug)]
pub struct TaskRun {
    pub key: Key,
    pub task: Arc<TaskPod>,
    /// The init container that runs or is to be started.
    pub current: usize,
    pub running_since: Option<Millis>,
    pub containers: BTreeMap<Arc<str>, ContainerReport>,
    pub image_problem: Option<Arc<str>>,
    pub finished: bool,
}

/// A member of etcd that is behind the leader.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    pub since: Millis,
    pub until: Millis,
    pub entries: u64,
}

/// How a followed step ended.
pub struct Ended {
    pub exit_code: i32,
    pub message: String,
}

/// How long systemd waits before it starts the engine again.
const RESTART: Millis = SECOND;

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: NodeName,
    pub node_uid: Uid,
    pub control_plane: bool,
    /// Counts boots: what was planned before one is void after it.
    pub epoch: u32,
    pub tasks: BTreeMap<Uid, TaskRun>,
    /// What is seen of it.
    pub facts: Facts,
    /// How many more pulls of an image fail.
    pub pull_fails: u32,
    /// Its etcd member has what was written while it was away yet to read.
    pub lag: Option<Lag>,
    /// The version of its kubelet as it was last read.
    kubelet_text: String,
    host: SimHost,
    engine: Engine,
    engine_down_until: Millis,
    /// When it wants to be called next.
    pub wake_at: Option<Millis>,
}

/// What machines are upgraded with here; made once, shared by all.
fn bundle(far: bool) -> &'static Bundle {
    static NEAR: OnceLock<Bundle> = OnceLock::new();
    static FAR: OnceLock<Bundle> = OnceLock::new();
    if far {
        FAR.get_or_init(|| Bundle::of(&["v1.36.3", "v1.37.2", "v1.38.1"]))
    } else {
        NEAR.get_or_init(|| Bundle::of(&["v1.36.3"]))
    }
}

impl Machine {
    pub fn new(name: NodeName, node_uid: Uid, control_plane: bool, version: &KubernetesVersion, place: Place) -> Self {
        let machine = host::Machine {
            name: name.as_str().to_owned(),
            role: if control_plane {
                NodeRole::ControlPlane
            } else {
                NodeRole::Worker
            },
            address: place.address,
            version: version.to_string(),
        };
        let host = SimHost::new(machine, bundle(place.far), place.shared, stamp(place.now));
        let facts = Facts {
            powered: true,
            kubelet: true,
            kubelet_runs: true,
            kubelet_version: version.clone(),
            runtime_version: Arc::from(""),
            parts: Vec::new(),
            forwards_to: None,
            working: false,
        };
        let mut machine = Self {
            name,
            node_uid,
            control_plane,
            epoch: 0,
            tasks: BTreeMap::new(),
            facts,
            pull_fails: 0,
            lag: None,
            kubelet_text: String::new(),
            host,
            engine: Engine::default(),
            engine_down_until: 0,
            wake_at: None,
        };
        machine.observe();
        machine
    }

    /// Looks at the host anew. Work counts as begun from the first thing that is disturbed.
    pub fn observe(&mut self) {
        let host = &self.host;
        let powered = !host.is_down();
        let version = host.kubelet_version().filter(|version| *version != self.kubelet_text);
        let version = version.map(|version| {
            version.clone_into(&mut self.kubelet_text);
            version.parse().ok()
        });
        let version = version.flatten();
        let runtime = host.runtime_version().unwrap_or_default();
        let known = &self.facts.parts;
        let mut parts: Vec<Part> = host.static_parts().iter().map(|part| seen_part(part, known)).collect();
        for part in &self.facts.parts {
            if !parts.iter().any(|here| here.component == part.component) {
                // Ended: what it was is known, and that it is not there.
                parts.push(Part {
                    running: false,
                    ready: false,
                    ..part.clone()
                });
            }
        }
        parts.sort_by_key(|part| part.component);
        let after = Facts {
            powered,
            kubelet: powered && host.kubelet_ready(),
            kubelet_runs: powered && host.kubelet_running(),
            kubelet_version: version.unwrap_or_else(|| self.facts.kubelet_version.clone()),
            runtime_version: if *self.facts.runtime_version == *runtime {
                Arc::clone(&self.facts.runtime_version)
            } else {
                Arc::from(runtime)
            },
            parts,
            forwards_to: host
                .forwarding_to()
                .map(|peers| seen_peers(peers, self.facts.forwards_to.as_ref())),
            working: self.facts.working,
        };
        let before = &self.facts;
        let known = !before.runtime_version.is_empty();
        let disturbed = known
            && powered
            && before.powered
            && (before.kubelet_runs && !after.kubelet_runs
                || before.kubelet_version != after.kubelet_version
                || before.runtime_version != after.runtime_version
                || before
                    .parts
                    .iter()
                    .any(|part| part.running && !after.part(part.component).is_some_and(|after| after.running)));
        self.facts = after;
        self.facts.working |= disturbed;
    }

    /// All that was begun is done, or undone.
    pub fn rests(&mut self) {
        self.facts.working = false;
    }

    /// A step container starts and tells the engine what to do.
    pub fn begin(&mut self, plan: &NodePlan, step: &str, now: Millis) -> Option<Ended> {
        self.host.tick(stamp(now));
        let begun = self.engine.begin(&mut self.host, plan, step, stamp(now));
        let ended = begun.err().map(|error| self.failed(&error, now));
        self.observe();
        ended
    }

    /// How a step stands: `None` while it goes on.
    pub fn follow(&mut self, step: &str, now: Millis) -> Option<Ended> {
        match self.engine.follow(&mut self.host, step) {
            Ok(Followed::Running { .. }) => None,
            Ok(Followed::Ended { exit_code, report }) => Some(Ended {
                exit_code,
                message: serde_json::to_string(&report).unwrap_or_default(),
            }),
            Err(error) => Some(self.failed(&error, now)),
        }
    }

    /// A container that cannot go on: killed with the machine, or with something to say.
    fn failed(&mut self, error: &EngineError, now: Millis) -> Ended {
        if error.is_crash() {
            self.crashed(now);
            return Ended {
                exit_code: 137,
                message: String::new(),
            };
        }
        let report = StepReport {
            outcome: StepOutcome::Failed,
            message: error.to_string(),
            ..StepReport::default()
        };
        Ended {
            exit_code: exit::FAILED,
            message: serde_json::to_string(&report).unwrap_or_default(),
        }
    }

    fn crashed(&mut self, now: Millis) {
        self.engine = Engine::default();
        self.host.faults.crash = None;
        self.engine_down_until = now + RESTART;
    }

    /// Time passes on the machine, and its engine does one instruction. Says when it wants to be called next.
    pub fn advance(&mut self, now: Millis) -> Option<Millis> {
        self.host.tick(stamp(now));
        let mut next = None;
        let follows = self.tasks.values().any(|run| run.running_since.is_some());
        if now < self.engine_down_until {
            next = Some(self.engine_down_until);
        } else if !self.host.is_down() && (self.host.engine_running() || follows) {
            match self.engine.advance(&mut self.host, stamp(now)) {
                Ok(Next::Again { after, .. }) => {
                    let after = u64::try_from(after.as_millis()).unwrap_or(Millis::MAX / 2);
                    next = Some(now + after.max(1));
                }
                Ok(Next::Idle) => {}
                Err(error) if error.is_crash() => {
                    self.crashed(now);
                    next = Some(self.engine_down_until);
                }
                Err(_) => next = Some(now + 5 * RESTART),
            }
        }
        self.observe();
        let by_itself = self.host.next_change().map(|at| millis(at).max(now + 1));
        [next, by_itself].into_iter().flatten().min()
    }

    /// Entries its etcd member is behind the leader.
    pub fn behind(&self, now: Millis) -> u64 {
        self.lag.filter(|lag| now < lag.until).map_or(0, |lag| lag.entries)
    }

    /// What the machine's etcd member hears of the others.
    pub fn hear(&mut self, peers: &[EtcdPeer], leads: bool, cluster_version: Option<&str>, now: Millis) {
        self.host.member.behind = self.behind(now);
        let name = self.name.as_str();
        let others = peers.iter().filter(|peer| peer.name != name).cloned();
        self.host.member.peers = others.collect();
        self.host.member.leads = leads;
        if let Some(version) = cluster_version {
            version.clone_into(&mut self.host.member.cluster_version);
        }
    }

    /// Which other control planes do not answer it when it stands aside.
    pub fn hear_of_servers(&mut self, silent: &[String]) {
        let others = silent.iter().filter(|address| **address != self.host.machine.address);
        self.host.silent_peers = others.cloned().collect();
    }

    /// Where its API server is to be found.
    pub fn address(&self) -> &str {
        &self.host.machine.address
    }

    pub fn leads_etcd(&self) -> bool {
        self.host.member.leads
    }

    /// The power goes; `boot` brings it back.
    pub fn lose_power(&mut self) {
        self.epoch += 1;
        self.wake_at = None;
        self.host.lose_power();
        self.engine = Engine::default();
        self.observe();
    }

    pub fn boot(&mut self, now: Millis) {
        self.host.tick(stamp(now));
        self.host.boot();
        for run in self.tasks.values_mut() {
            run.running_since = None;
            if !run.finished {
                // The pod's sandbox is another one: all its containers run again.
                run.current = 0;
            }
        }
        self.observe();
    }

    /// The engine is killed some operations from now, within one of them.
    pub fn kill_engine(&mut self, operations: u64) {
        self.host.faults.crash = Some(Crash {
            operation: self.host.operations() + operations,
            moment: [Moment::Before, Moment::Within, Moment::After][usize::try_from(operations % 3).unwrap_or(0)],
            power: false,
        });
    }

    /// So many calls of kubeadm fail from now on.
    pub fn fail_kubeadm(&mut self, times: u32) {
        let failures = &mut self.host.faults.kubeadm_failures;
        *failures = (*failures).max(times);
    }
}

/// Where a machine stands.
pub struct Place {
    pub address: String,
    pub shared: Shared,
    pub now: Millis,
    /// Its bundle brings versions beyond the next.
    pub far: bool,
}

fn seen_peers(peers: &[String], known: Option<&Arc<[String]>>) -> Arc<[String]> {
    // Looked at thousands of times, and others a few times.
    known
        .filter(|known| known[..] == *peers)
        .map_or_else(|| Arc::from(peers), Arc::clone)
}

fn seen_part(part: &host::StaticPart, known: &[Part]) -> Part {
    let component = match part.name {
        "etcd" => Component::Etcd,
        "kube-apiserver" => Component::ApiServer,
        "kube-controller-manager" => Component::ControllerManager,
        "kube-scheduler" => Component::Scheduler,
        "kube-vip" => Component::KubeVip,
        _ => Component::Other,
    };
    // Looked at thousands of times, and another one a few times.
    let same = known
        .iter()
        .find(|known| known.component == component && known.tag == part.version);
    let (tag, version) = match same {
        Some(known) => (Arc::clone(&known.tag), known.version.clone()),
        None => (Arc::clone(&part.version), part.version.parse().ok()),
    };
    Part {
        component,
        tag,
        version,
        running: true,
        ready: part.ready,
        started_at: millis(part.started_at),
    }
}
