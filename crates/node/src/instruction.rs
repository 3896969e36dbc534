//! The instructions that steps are made of. Each can be carried out again after a crash at any point within it, and then
//! finishes or finds nothing to do; which ones make up a step is in `steps`, how they are journalled in `engine`.

use std::time::Duration;

use afloat_api::Reason;
use afloat_api::common::NodeRole;
use afloat_api::node::{NodePlan, steps};
use jiff::Timestamp;

use crate::host::{Answer, Command, Endpoint, Host, HostError, Job, UnitOrder, UnitState};
use crate::journal::{Journal, Kept, StepState};
use crate::steps::{cluster, config, etcd, grace, images, kubeadm, runtime, runtime_config, stage, stand_aside, undo};
use crate::{bundle, flags, paths};

/// Between two looks at something that is waited for.
pub const LOOK: Duration = Duration::from_millis(500);
/// How often in a row a gate must be seen open.
const IN_A_ROW: u32 = 3;

/// One thing to do on a machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Instruction {
    CheckMachine,
    CopyBundle,
    InstallUnit,
    ImportImages,
    /// Sees that what was staged is still what was promised.
    CheckStaged,
    CheckEtcd,
    /// Waits until etcd can go on without this node's member.
    AwaitPeers,
    Forward,
    EndForwarding,
    HandOverEtcd,
    /// Copies what a step is going to change to where it can be put back from.
    Keep(Group),
    /// Puts all files of the group that the bundle brings in their places.
    Change(Group),
    /// Lets the new containerd write the configuration anew that it is going to read, where it would read another form of it.
    MigrateRuntimeConfig,
    RestartRuntime,
    FetchConfig,
    KeepCluster,
    /// Writes the tags that a person named for etcd and CoreDNS into kubeadm's configuration.
    NameImages,
    /// Renders manifests by the kubeadm that is in place.
    Render(Rendering),
    ChooseMethod,
    PlaceKubeadm {
        version: String,
    },
    RenewCertificates,
    /// Remembers which process is the API server.
    MarkApiServer,
    /// `kubeadm upgrade …`
    Kubeadm(kubeadm::Call),
    MigrateFlags,
    StopKubelet,
    End(&'static [&'static str], u32),
    PlaceManifests(&'static [&'static str]),
    PlaceKubelet,
    RestartKubelet,
    Gate(Gate),
    /// Ends what an earlier step has started and nobody waits for any more.
    EndJobs,
    /// What becomes of this node's etcd member.
    Etcd(etcd::Act),
    Restore,
    RestoreCluster,
    Prove,
}

/// Files that belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Group {
    Runtime,
    Cni,
    /// Everything kubeadm changes, and kubeadm itself.
    Kubeadm,
    /// kubelet, kubectl and the kubelet's flags.
    Kubelet,
}

/// What is rendered, and by whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rendering {
    /// As things are, by the kubeadm that was there: to see whether a hand has changed the manifests.
    Present,
    Etcd,
    ControlPlane,
}

/// What has to be well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    Runtime,
    /// Kubelet, and all parts of a control plane on this node.
    Node,
}

/// What came of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    Done,
    Found {
        fact: (&'static str, String),
    },
    Kept {
        kept: Vec<Kept>,
        fact: Option<(&'static str, String)>,
    },
    /// Not yet: look again.
    Wait(Waiting),
    /// A gate was seen open or closed.
    Seen {
        open: bool,
    },
    /// Not now, and it may take long: the step container is started again later.
    Later {
        reason: Reason,
        message: String,
    },
    /// It did not work; another try may.
    Tried(String),
    /// No other try will help.
    Failed {
        reason: Reason,
        message: String,
    },
    /// The step has nothing to do here.
    Skip(String),
}

/// What is waited for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    pub reason: Reason,
    pub message: String,
}

/// What an instruction has to work with.
pub struct Context<'a> {
    pub host: &'a mut dyn Host,
    pub journal: &'a Journal,
    pub state: &'a StepState,
    pub step: &'a str,
    /// When this instruction was first about to be carried out, or the machine was started since.
    pub since: Timestamp,
    pub now: Timestamp,
}

impl Instruction {
    /// Whether it changes anything outside Afloat's own folder, so that its intent must be known before, or takes long enough that people
    /// want to know what goes on.
    pub fn has_intent(&self) -> bool {
        !matches!(
            self,
            Self::CheckMachine
                | Self::CheckEtcd
                | Self::Keep(_)
                | Self::MigrateRuntimeConfig
                | Self::ChooseMethod
                | Self::Prove
        )
    }

    /// Whether the node may be away from here on, until a gate was seen open.
    pub fn disrupts(&self) -> bool {
        match self {
            Self::RestartRuntime | Self::StopKubelet | Self::RestartKubelet => true,
            Self::Kubeadm(call) => call.disrupts(),
            _ => false,
        }
    }

    /// For people, and to know that a journal was written by the same program.
    pub fn what(&self) -> String {
        match self {
            Self::CheckMachine => "checks the machine".to_owned(),
            Self::CopyBundle => "copies the bundle to the host".to_owned(),
            Self::InstallUnit => "puts the host unit in place".to_owned(),
            Self::ImportImages => "imports images".to_owned(),
            Self::CheckStaged => "compares what was brought with what was promised".to_owned(),
            Self::CheckEtcd => "looks at the other etcd members".to_owned(),
            Self::AwaitPeers => "waits until etcd can go on without this node".to_owned(),
            Self::Forward => "sends new API connections to the other control planes".to_owned(),
            Self::EndForwarding => "takes API connections again".to_owned(),
            Self::HandOverEtcd => "hands over etcd's leadership".to_owned(),
            Self::Keep(group) => format!("keeps what {} is going to replace", group.word()),
            Self::Change(group) => format!("puts the new {} in place", group.word()),
            Self::MigrateRuntimeConfig => "lets the new containerd read its configuration".to_owned(),
            Self::RestartRuntime => "restarts containerd".to_owned(),
            Self::FetchConfig => "reads the cluster's configuration".to_owned(),
            Self::KeepCluster => "keeps the cluster's configuration and add-ons".to_owned(),
            Self::NameImages => images::NAMES_IMAGES.to_owned(),
            Self::Render(Rendering::Present) => "renders the manifests as they should be now".to_owned(),
            Self::Render(Rendering::Etcd) => "renders etcd's new manifest".to_owned(),
            Self::Render(Rendering::ControlPlane) => "renders the new manifests".to_owned(),
            Self::ChooseMethod => "chooses the way".to_owned(),
            Self::PlaceKubeadm { version } => format!("puts kubeadm {version} in place"),
            Self::RenewCertificates => "renews certificates".to_owned(),
            Self::MarkApiServer => "remembers the API server's process".to_owned(),
            Self::Kubeadm(call) => call.what(),
            Self::MigrateFlags => "migrates the kubelet's flags".to_owned(),
            Self::StopKubelet => "stops the kubelet".to_owned(),
            Self::End(parts, _) => format!("ends {}", parts.join(" and ")),
            Self::PlaceManifests(parts) => format!("puts the manifests of {} in place", parts.join(", ")),
            Self::PlaceKubelet => "puts the new kubelet and kubectl in place".to_owned(),
            Self::RestartKubelet => "starts the kubelet".to_owned(),
            Self::Gate(Gate::Runtime) => "waits for containerd".to_owned(),
            Self::Gate(Gate::Node) => "waits until all parts of the node are well".to_owned(),
            Self::EndJobs => "ends what still runs".to_owned(),
            Self::Etcd(act) => act.what().to_owned(),
            Self::Restore => "puts every file back".to_owned(),
            Self::RestoreCluster => "puts the cluster's configuration and add-ons back".to_owned(),
            Self::Prove => "compares every file with what it was".to_owned(),
        }
    }

    /// Does it.
    pub fn run(&self, c: &mut Context<'_>) -> Answer<Ran> {
        match self {
            Self::CheckMachine => stage::check_machine(c),
            Self::CopyBundle => stage::copy_bundle(c),
            Self::InstallUnit => stage::install_unit(c),
            Self::ImportImages => stage::import_images(c),
            Self::CheckStaged => stage::check_staged(c),
            Self::CheckEtcd => stand_aside::check_etcd(c),
            Self::AwaitPeers => stand_aside::await_peers(c),
            Self::Forward => stand_aside::forward(c),
            Self::EndForwarding => stand_aside::end_forwarding(c),
            Self::HandOverEtcd => stand_aside::hand_over(c),
            Self::Keep(group) => runtime::keep(c, *group),
            Self::Change(group) => runtime::change(c, *group),
            Self::MigrateRuntimeConfig => runtime_config::migrate(c),
            Self::RestartRuntime => c.order(paths::CONTAINERD_UNIT, UnitOrder::Restart),
            Self::FetchConfig => config::fetch(c),
            Self::KeepCluster => cluster::keep(c),
            Self::NameImages => images::name(c),
            Self::Render(rendering) => config::render(c, *rendering),
            Self::ChooseMethod => kubeadm::choose(c),
            Self::PlaceKubeadm { version } => c.place(&bundle::kubernetes(version, "kubeadm"), paths::KUBEADM),
            Self::RenewCertificates => c.change_by(&command(paths::KUBEADM, &["certs", "renew", "all"], 120)),
            Self::MarkApiServer => grace::mark(c),
            Self::Kubeadm(call) => kubeadm::call(c, *call),
            Self::MigrateFlags => kubeadm::migrate_flags(c),
            Self::StopKubelet => c.order(paths::KUBELET_UNIT, UnitOrder::Stop),
            Self::End(parts, seconds) => c.end(parts, *seconds),
            Self::PlaceManifests(parts) => config::place_manifests(c, parts),
            Self::PlaceKubelet => kubeadm::place_kubelet(c),
            Self::RestartKubelet => {
                c.host.reload_units()?;
                c.order(paths::KUBELET_UNIT, UnitOrder::Restart)
            }
            Self::Gate(gate) => c.gate(*gate),
            Self::EndJobs => c.host.end_jobs().map(|()| Ran::Done),
            Self::Etcd(act) => act.run(c),
            Self::Restore => undo::restore(c),
            Self::RestoreCluster => cluster::restore(c),
            Self::Prove => undo::prove(c),
        }
    }
}

impl Group {
    pub fn word(self) -> &'static str {
        match self {
            Self::Runtime => "containerd",
            Self::Cni => "CNI plugins",
            Self::Kubeadm => "kubeadm",
            Self::Kubelet => "kubelet",
        }
    }
}

/// A command without a mount of its own.
pub fn command(program: &str, args: &[&str], seconds: u32) -> Command {
    Command {
        program: program.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        over: None,
        seconds,
    }
}

/// What has to be well for a node to be back, each after what it needs itself: the first that is not is the one to name.
pub fn endpoints(host: &mut dyn Host, plan: &NodePlan) -> Answer<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    if plan.role != NodeRole::Worker {
        if host.size(&paths::manifest("etcd"))?.is_some() {
            endpoints.push(Endpoint::Etcd);
        }
        endpoints.extend([Endpoint::ApiServer, Endpoint::ControllerManager, Endpoint::Scheduler]);
    }
    endpoints.push(Endpoint::Kubelet);
    Ok(endpoints)
}

/// The first of them that is not well.
pub fn first_unwell(host: &mut dyn Host, plan: &NodePlan) -> Answer<Option<Endpoint>> {
    // Without it nothing else is started either.
    if host.unit(paths::KUBELET_UNIT)? != UnitState::Active {
        return Ok(Some(Endpoint::Kubelet));
    }
    for endpoint in endpoints(host, plan)? {
        if !host.well(endpoint)? {
            return Ok(Some(endpoint));
        }
    }
    Ok(None)
}

impl Context<'_> {
    pub fn plan(&self) -> &NodePlan {
        &self.journal.plan
    }

    pub fn is_control_plane(&self) -> bool {
        self.plan().role != NodeRole::Worker
    }

    /// Whether something was found in this attempt.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.journal.facts.get(name).map(String::as_str)
    }

    pub fn order(&mut self, unit: &str, order: UnitOrder) -> Answer<Ran> {
        self.host.order(unit, order).map(|()| Ran::Done)
    }

    /// The whole text of a file, or an empty one.
    pub fn text(&mut self, path: &str) -> Answer<String> {
        let content = self.host.read(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// Puts a staged file of the bundle in its place, and sees that it is the promised one.
    pub fn place(&mut self, name: &str, target: &str) -> Answer<Ran> {
        let items = bundle::read(self.host, paths::BUNDLE)?.unwrap_or_default();
        let Some(item) = items.iter().find(|item| item.name == name) else {
            return Ok(Ran::Failed {
                reason: Reason::BundleUnavailable,
                message: format!("{name} is not in the bundle on the host: it was not staged"),
            });
        };
        self.place_item(item, target)
    }

    /// The same, of a file whose entry in the bundle was read already.
    pub fn place_item(&mut self, item: &bundle::Item, target: &str) -> Answer<Ran> {
        let staged = bundle::staged(&item.name);
        if self.host.digest(target)? == Some(item.digest) {
            return Ok(Ran::Done);
        }
        if self.host.digest(&staged)? != Some(item.digest) {
            return Ok(Ran::Failed {
                reason: Reason::BundleUnavailable,
                message: bundle::changed_since(&staged),
            });
        }
        self.host.copy(&staged, target)?;
        Ok(Ran::Done)
    }

    /// Runs a command; nothing while it runs, else its exit code and what it said.
    pub fn job(&mut self, name: &str, command: &Command) -> Answer<Option<(i32, String, String)>> {
        let plan = &self.journal.plan;
        // Each try is a job of its own: asking for one that ended tells how it ended, for ever.
        let job = format!(
            "afloat-{}-{}-{}-{}-{}-{}{name}",
            plan.upgrade, plan.attempt, self.step, self.state.done, self.state.begun, self.state.tries
        );
        match self.host.run(&job, command)? {
            Job::Running => Ok(None),
            Job::Ended {
                exit_code,
                stdout,
                stderr,
            } => Ok(Some((exit_code, stdout, stderr))),
        }
    }

    /// Runs a command that changes files, and syncs them: what it wrote must not be lost after its end was journalled.
    pub fn change_by(&mut self, command: &Command) -> Answer<Ran> {
        Ok(match self.job("", command)? {
            None => wait_for_step(command),
            Some((0, _, _)) => {
                self.host.sync()?;
                Ran::Done
            }
            Some((code, _, said)) => Ran::Tried(failed(command, code, &said)),
        })
    }

    fn gate(&mut self, gate: Gate) -> Answer<Ran> {
        let unwell = match gate {
            Gate::Runtime if self.host.well(Endpoint::Runtime)? => None,
            Gate::Runtime => Some(Endpoint::Runtime),
            Gate::Node => first_unwell(self.host, &self.journal.plan)?,
        };
        let open = unwell.is_none();
        // There is nothing further back to go to: say what is left rather than wait for ever.
        let waited = self.now.duration_since(self.since).as_secs();
        if let Some(endpoint) = unwell
            && self.step == steps::ROLLBACK
            && waited >= i64::from(self.plan().undo_after_seconds)
        {
            return Ok(self.not_back(endpoint));
        }
        Ok(self.in_a_row(open, Ran::Wait(gate.waiting())))
    }

    /// Done when something was seen open several times in a row. What was closed and still is need not be journalled: the wait is
    /// what there is to say.
    pub fn in_a_row(&self, open: bool, waits: Ran) -> Ran {
        match (open, self.state.open) {
            (true, seen) if seen + 1 >= IN_A_ROW => Ran::Done,
            (false, 0) => waits,
            _ => Ran::Seen { open },
        }
    }

    /// All is undone and it did not help.
    pub fn not_back(&self, endpoint: Endpoint) -> Ran {
        let waited = self.now.duration_since(self.since).as_secs();
        Ran::Failed {
            reason: Reason::RollbackFailed,
            message: format!(
                "every file is as it was, but {} did not come back within {waited} seconds",
                endpoint.word()
            ),
        }
    }
}

impl Gate {
    fn waiting(self) -> Waiting {
        match self {
            Self::Runtime => Waiting {
                reason: Reason::WaitingForStep,
                message: "containerd does not answer yet".to_owned(),
            },
            Self::Node => Waiting {
                reason: Reason::WaitingForNode,
                message: "not all parts of the node are well yet".to_owned(),
            },
        }
    }
}

/// Waits for a command to end.
pub fn wait_for_step(command: &Command) -> Ran {
    Ran::Wait(Waiting {
        reason: Reason::WaitingForStep,
        message: format!("{} runs", said_short(command)),
    })
}

/// kubeadm's last words after every error.
const NO_CAUSE: &str = "To see the stack trace of this error";

/// A command that failed, in one sentence: its last words, with the error that they end where it was told on several lines. What such an
/// error quotes in between is left out.
pub fn failed(command: &Command, code: i32, said: &str) -> String {
    let spoken = |line: &&str| !line.trim().is_empty() && !line.starts_with(NO_CAUSE);
    let last = said.lines().rev().find(spoken).unwrap_or_default();
    let begins = |line: &&str| line.starts_with("error:");
    let why = match said.lines().rev().find(begins) {
        Some(first) if first != last => {
            let (first, last) = (first.trim_end_matches([':', ' ']), last.trim_start_matches([':', ' ']));
            format!("{first}: {last}")
        }
        _ => last.to_owned(),
    };
    format!("{} ended with {code}: {why}", said_short(command))
}

fn said_short(command: &Command) -> String {
    let program = command.program.rsplit('/').next().unwrap_or_default();
    let args: Vec<_> = command.args.iter().take(3).map(String::as_str).collect();
    format!("{program} {}", args.join(" ")).trim_end().to_owned()
}

/// An error as something to try again.
pub fn tried(error: HostError) -> Result<Ran, HostError> {
    match error {
        HostError::Crashed => Err(error),
        other => Ok(Ran::Tried(other.to_string())),
    }
}

/// The version a program in the bundle's folder of versions has; numbers alone compare.
pub fn is_older(one: &str, other: &str) -> bool {
    flags::numbers(one) < flags::numbers(other)
}
