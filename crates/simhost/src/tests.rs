//! The steps of `afloat-node` on simulated machines: every role both ways, a crash at every operation, every failure, and what is left on
//! the disk afterwards.

use std::time::Duration;

use afloat_api::clusterupgrade::ControlPlaneMethod;
use afloat_api::common::NodeRole;
use afloat_api::node::{NodePlan, StepOutcome, StepReport, exit, steps};
use afloat_node::engine::{Engine, Followed, Next};
use afloat_node::host::{EtcdPeer, Host as _};
use afloat_node::touches::may_touch;
use afloat_node::{paths, steps as node_steps};
use jiff::{SignedDuration, Timestamp};

use super::{Bundle, Machine, Shared, SimHost, Tree};

mod control_planes;
mod crashes;
mod etcd;
mod failures;
mod happy;
mod images;
mod rancher;
mod refusals;
mod runtime;
mod systems;
mod undoing;

/// An attempt at one machine: what the kubelet, the pods and the host unit do together.
#[derive(Clone)]
pub struct Attempt {
    pub host: SimHost,
    pub plan: NodePlan,
    pub engine: Engine,
    pub before: Tree,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub role: NodeRole,
    pub peers: usize,
    pub from: &'static str,
    pub via: &'static [&'static str],
    pub method: Option<ControlPlaneMethod>,
    /// Image tags of etcd and CoreDNS, where they are to be others than kubeadm's.
    pub images: Option<(&'static str, &'static str)>,
}

pub const WORKER: Case = Case {
    role: NodeRole::Worker,
    peers: 0,
    from: "v1.35.4",
    via: &["v1.36.3"],
    method: None,
    images: None,
};
pub const FAR_WORKER: Case = Case {
    from: "v1.33.2",
    via: &["v1.34.4", "v1.35.4", "v1.36.3"],
    ..WORKER
};
pub const FIRST: Case = Case {
    role: NodeRole::FirstControlPlane,
    peers: 2,
    ..WORKER
};
pub const OTHER: Case = Case {
    role: NodeRole::ControlPlane,
    ..FIRST
};
pub const SINGLE: Case = Case { peers: 0, ..FIRST };
pub const FIRST_SLOW: Case = Case {
    method: Some(ControlPlaneMethod::Conservative),
    ..FIRST
};
pub const OTHER_SLOW: Case = Case {
    method: Some(ControlPlaneMethod::Conservative),
    ..OTHER
};
/// Over the version that takes a kubelet flag away.
pub const OVER_FLAG: Case = Case {
    from: "v1.34.4",
    via: &["v1.35.4"],
    ..FIRST
};
/// Another bundle of the version that is there.
pub const SAME_VERSION: Case = Case {
    from: "v1.36.3",
    images: Some(("3.6.9-0", "v1.14.3")),
    ..FIRST
};
pub const SAME_VERSION_SLOW: Case = Case {
    method: Some(ControlPlaneMethod::Conservative),
    ..SAME_VERSION
};
pub const CASES: [Case; 10] = [
    WORKER,
    FAR_WORKER,
    FIRST,
    OTHER,
    SINGLE,
    FIRST_SLOW,
    OTHER_SLOW,
    OVER_FLAG,
    SAME_VERSION,
    SAME_VERSION_SLOW,
];

fn start() -> Timestamp {
    "2026-11-15T20:00:00Z".parse().unwrap()
}

impl Attempt {
    pub fn new(case: Case) -> Self {
        let target = *case.via.last().unwrap();
        // A control plane that follows, and a worker, find the cluster at the target already.
        let cluster = if case.role == NodeRole::FirstControlPlane {
            case.from
        } else {
            target
        };
        let machine = Machine {
            name: "node-1".to_owned(),
            role: case.role,
            address: "10.0.0.1".to_owned(),
            version: case.from.to_owned(),
        };
        let shared = Shared::new(cluster);
        let peers: Vec<_> = (2..2 + case.peers).map(|n| format!("10.0.0.{n}")).collect();
        // The others have what the cluster has, so that one which follows is the last: with it come the add-ons.
        let servers = peers.iter().map(|peer| (peer.clone(), cluster.to_owned()));
        shared.get().api_servers = servers.collect();
        shared.get().set_add_ons(case.from);
        let mut host = SimHost::new(machine, &Bundle::of(case.via), shared, start());
        host.member.leads = true;
        // As there always are on a real machine.
        host.faults.open_watches = true;
        host.member.peers = peers
            .iter()
            .map(|name| EtcdPeer {
                name: name.clone(),
                healthy: true,
                behind: 3,
            })
            .collect();
        let plan = NodePlan {
            upgrade: "0b2f".to_owned(),
            attempt: 1,
            node: "node-1".to_owned(),
            role: case.role,
            kubernetes_version: target.to_owned(),
            kubelet_version: target.to_owned(),
            via: case.via.iter().map(|version| (*version).to_owned()).collect(),
            method: case.method,
            peers,
            etcd_version: case.images.map(|(etcd, _)| etcd.to_owned()),
            core_dns_version: case.images.map(|(_, core_dns)| core_dns.to_owned()),
            undo_after_seconds: 600,
            bundle_key: None,
        };
        Self {
            before: host.tree().clone(),
            host,
            plan,
            engine: Engine::default(),
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let time = SignedDuration::try_from(time).unwrap();
        let now = self.host.now() + time;
        self.host.tick(now);
    }

    /// At least so long; where the engine waits, until something changes.
    fn pass_to_change(&mut self, least: Duration) {
        let change = self.host.next_change().filter(|_| !least.is_zero());
        let change = change.map(|at| at.duration_since(self.host.now()));
        let change = change
            .and_then(|time| Duration::try_from(time).ok())
            .unwrap_or_default();
        self.pass(least.max(change).min(Duration::from_secs(30).max(least)));
    }

    /// A call of the engine; after a crash the machine boots, and another engine goes on.
    fn turn(&mut self) -> Next {
        let now = self.host.now();
        let next = match self.engine.advance(&mut self.host, now) {
            Ok(next) => next,
            Err(error) => self.after_crash(error.is_crash(), &error.to_string()),
        };
        self.assert_kubelet_is_not_newer();
        next
    }

    /// Rule 3, also on a machine that restarted in the middle and has started again what was ended there.
    fn assert_kubelet_is_not_newer(&self) {
        let Some(kubelet) = self.host.kubelet_version() else {
            return;
        };
        let parts = self.host.static_parts();
        let server = parts.iter().find(|part| part.name == "kube-apiserver");
        if let Some(server) = server {
            let newer = afloat_node::instruction::is_older(&server.version, kubelet);
            assert!(!newer, "kubelet {kubelet} beside {server:?}\n{}", self.journal());
        }
    }

    fn after_crash(&mut self, is_crash: bool, error: &str) -> Next {
        assert!(is_crash, "{error}");
        self.engine = Engine::default();
        if self.host.is_down() {
            self.pass(Duration::from_secs(15));
            self.host.boot();
        }
        Next::Again {
            after: Duration::from_secs(1),
            waiting: None,
        }
    }

    /// A step container: begins the step and follows it until it ends.
    pub fn step(&mut self, step: &str) -> (i32, StepReport) {
        let mut begun = false;
        for _ in 0..20_000 {
            let now = self.host.now();
            if !begun {
                match self.engine.begin(&mut self.host, &self.plan, step, now) {
                    Ok(()) => begun = true,
                    Err(error) => {
                        self.after_crash(error.is_crash(), &error.to_string());
                        continue;
                    }
                }
            }
            match self.engine.follow(&mut self.host, step) {
                Ok(Followed::Ended { exit_code, report }) => return (exit_code, report),
                Ok(Followed::Running { .. }) => {}
                Err(error) => {
                    self.after_crash(error.is_crash(), &error.to_string());
                    begun = false;
                    continue;
                }
            }
            match self.turn() {
                Next::Again { after, .. } => self.pass_to_change(after),
                Next::Idle => self.pass(Duration::from_millis(500)),
            }
        }
        panic!("{step} never ends; the journal:\n{}", self.journal());
    }

    /// The same, started again for as long as it says `LATER`.
    pub fn step_patiently(&mut self, step: &str) -> (i32, StepReport) {
        loop {
            match self.step(step) {
                (exit::LATER, _) => self.pass(Duration::from_secs(5)),
                ended => return ended,
            }
        }
    }

    /// All steps, until one does not end well.
    pub fn upgrade(&mut self) -> (i32, StepReport) {
        let mut ended = (exit::DONE, StepReport::default());
        for step in node_steps::ORDER {
            ended = self.step_patiently(step);
            if ended.0 != exit::DONE {
                break;
            }
        }
        self.quiet();
        ended
    }

    /// The engine runs on until it has nothing to do but to watch over the node.
    pub fn quiet(&mut self) {
        for _ in 0..2_000 {
            match self.turn() {
                // One that has work says what it waits for, or looks again at once; after a crash it is back within a second.
                Next::Again { after, waiting } if waiting.is_some() || after <= Duration::from_secs(1) => {
                    self.pass(after.max(Duration::from_millis(100)));
                }
                _ => return self.pass(Duration::from_secs(30)),
            }
        }
        panic!("the engine never rests; the journal:\n{}", self.journal());
    }

    /// The engine is called until the journal says this.
    pub fn until(&mut self, said: &str) {
        for _ in 0..20_000 {
            if self.journal().contains(said) {
                return;
            }
            self.turn();
            self.pass(Duration::from_millis(250));
        }
        panic!("it never {said}; the journal:\n{}", self.journal());
    }

    pub fn text(&self, path: &str) -> Option<String> {
        let file = self.host.tree().get(path)?;
        Some(String::from_utf8_lossy(file.bytes()).into_owned())
    }

    pub fn journal(&self) -> String {
        let file = self.host.tree().get(paths::JOURNAL);
        file.map(|file| String::from_utf8_lossy(file.bytes()).into_owned())
            .unwrap_or_default()
    }

    /// Paths that are not as they were before.
    pub fn changed(&self) -> Vec<String> {
        let after = self.host.tree();
        let all = self
            .before
            .keys()
            .chain(after.keys())
            .collect::<std::collections::BTreeSet<_>>();
        let changed = all
            .into_iter()
            .filter(|path| self.before.get(*path) != after.get(*path));
        changed.cloned().collect()
    }

    /// The same without Afloat's own folder.
    pub fn changed_outside(&self) -> Vec<String> {
        let mut changed = self.changed();
        changed.retain(|path| !path.starts_with(paths::HOME));
        changed
    }

    pub fn assert_at_target(&self, case: Case) {
        let target = self.plan.kubelet_version.as_str();
        assert_eq!(
            self.host.kubelet_version(),
            Some(target),
            "{case:?}\n{}",
            self.journal()
        );
        assert!(self.host.kubelet_ready(), "{case:?}\n{}", self.journal());
        assert_eq!(self.host.runtime_version(), Some("v2.3.7"), "{case:?}");
        assert_eq!(self.host.forwarding_to(), None, "{case:?}");
        if case.role != NodeRole::Worker {
            assert!(self.host.api_server_ready(), "{case:?}\n{}", self.journal());
            for part in self.host.static_parts() {
                let tag = match part.name {
                    "etcd" => case.images.map_or_else(|| super::etcd_tag(target), |(etcd, _)| etcd),
                    _ => target,
                };
                assert_eq!(&*part.version, tag, "{case:?} {}", part.name);
                assert!(part.ready, "{case:?} {}", part.name);
            }
            assert_eq!(self.host.shared.get().kubernetes_version, target, "{case:?}");
            let last = case.role == NodeRole::ControlPlane || case.peers == 0;
            self.assert_add_ons_at(if last { target } else { case.from }, case);
        }
        for path in self.changed() {
            assert!(may_touch(&path), "{case:?} touched {path}");
        }
    }

    /// All is as it was; only etcd, where its version changed and it is healthy, stays at the new one.
    pub fn assert_put_back(&self, case: Case) {
        let mut changed = self.changed_outside();
        if self.journal().contains("etcd stays at") {
            changed.retain(|path| *path != paths::manifest("etcd"));
        }
        assert_eq!(changed, [""; 0], "{case:?}\n{}", self.journal());
        assert_eq!(self.host.kubelet_version(), Some(case.from), "{case:?}");
        assert!(self.host.kubelet_ready(), "{case:?}\n{}", self.journal());
        assert_eq!(self.host.forwarding_to(), None, "{case:?}");
        if case.role == NodeRole::FirstControlPlane {
            let shared = self.host.shared.get();
            assert_eq!(shared.kubernetes_version, case.from, "{case:?}");
            assert_eq!((&shared.etcd_tag, &shared.core_dns_tag), (&None, &None), "{case:?}");
            assert_eq!(shared.named_images, None, "{case:?}");
        }
        self.assert_add_ons_at(case.from, case);
    }

    fn assert_add_ons_at(&self, version: &str, case: Case) {
        let add_ons = self.host.shared.get().add_ons.clone();
        assert_eq!(add_ons.len(), 12, "{case:?} {add_ons:?}");
        let others: Vec<_> = add_ons.iter().filter(|(_, at)| *at != version).collect();
        assert!(
            others.is_empty(),
            "{case:?} not {version}: {others:?}\n{}",
            self.journal()
        );
    }
}

pub fn outcome(ended: &(i32, StepReport)) -> (i32, StepOutcome) {
    (ended.0, ended.1.outcome)
}

pub fn method(attempt: &mut Attempt) -> String {
    let (_, report) = attempt.step(steps::KUBEADM);
    report.method.unwrap_or_default()
}

/// Undoes the attempt; the machine is then as it was.
fn put_back(attempt: &mut Attempt, case: Case) {
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(
        outcome(&ended),
        (exit::DONE, StepOutcome::Done),
        "{ended:?}\n{}",
        attempt.journal()
    );
    attempt.quiet();
    attempt.assert_put_back(case);
}
