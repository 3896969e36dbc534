//! kubeadm and the kubelet. A worker's migrations run version by version without a kubelet being started in between. A control plane
//! is taken the swift way (all parts ended in order, swapped at once, started once, kubeadm having the last word) where nothing
//! speaks against it, else the conservative one (kubeadm part by part), and the report says why.

use afloat_api::clusterupgrade::ControlPlaneMethod;
use afloat_api::common::NodeRole;
use afloat_api::node::NodePlan;

use crate::bundle;
use crate::flags;
use crate::host::{Answer, Command, Host};
use crate::instruction::{Context, Gate, Group, Instruction, Ran, Rendering, command};
use crate::journal::Journal;
use crate::paths;
use crate::steps::etcd::Act;
use crate::steps::{config, core_dns, grace, images};

/// The word that stands for the swift way in the journal and the report.
const SWIFT: &str = "swift";
/// Seconds until a part that does not end is killed.
const SECONDS_OTHERS: u32 = 10;
pub(super) const SECONDS_ETCD: u32 = 12;

/// What kubeadm must be told about a machine, and its cluster.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Machine {
    /// A person lets it patch what it renders.
    pub patched: bool,
    pub old_cgroups: bool,
    /// CoreDNS runs by the tag that was named for it.
    pub core_dns_stays: bool,
}

impl Machine {
    pub fn look(host: &mut dyn Host) -> Answer<Self> {
        Ok(Self {
            patched: !host.list(paths::PATCHES)?.is_empty(),
            old_cgroups: host.size(paths::CGROUP_V2)?.is_none(),
            core_dns_stays: false,
        })
    }
}

/// A call of `kubeadm upgrade`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// The checks of the first control plane's upgrade, alone.
    Preflight,
    /// The kubelet's configuration, alone.
    KubeletConfig,
    /// All of it.
    Whole,
    /// All but etcd: kubeadm's own way back from a failed etcd copies old data over a member that has peers.
    WithoutEtcd,
    /// What is left when all parts were swapped: configuration, rules and add-ons. The checks were made before the swap; made again
    /// they would wait for a pod, and so for the new scheduler to become leader. With etcd it would copy its data once more.
    Rest,
}

impl Call {
    /// Whether the node may be away from here on. The kubelet's files change under the old kubelet, which may not start with them.
    pub fn disrupts(self) -> bool {
        self != Self::Preflight
    }

    fn brings_add_ons(self) -> bool {
        matches!(self, Self::Whole | Self::WithoutEtcd | Self::Rest)
    }

    pub fn what(self) -> String {
        let part = match self {
            Self::Preflight => "lets kubeadm check the cluster",
            Self::KubeletConfig => "lets kubeadm write the kubelet's configuration",
            Self::Whole => "runs kubeadm upgrade",
            Self::WithoutEtcd => "runs kubeadm upgrade without etcd",
            Self::Rest => "lets kubeadm finish the upgrade",
        };
        part.to_owned()
    }

    /// The command on a node of this plan: one control plane applies, all others follow.
    pub fn command(self, plan: &NodePlan, machine: Machine) -> Command {
        let version = plan.kubernetes_version.as_str();
        let first = plan.role == NodeRole::FirstControlPlane;
        let mut args = match (self, first) {
            (Self::Preflight, _) => vec!["upgrade", "apply", "phase", "preflight", version, "--yes"],
            (Self::KubeletConfig, _) => vec!["upgrade", "node", "phase", "kubelet-config"],
            (Self::Whole | Self::WithoutEtcd | Self::Rest, true) => vec!["upgrade", "apply", version, "--yes"],
            (Self::Whole | Self::WithoutEtcd | Self::Rest, false) => vec!["upgrade", "node"],
        };
        if matches!(self, Self::WithoutEtcd | Self::Rest) {
            args.push("--etcd-upgrade=false");
        }
        let mut skipped = Vec::new();
        if self == Self::Rest && first {
            skipped.push("preflight");
        }
        if machine.core_dns_stays && self.brings_add_ons() {
            skipped.push("addon/coredns");
        }
        let skipped = format!("--skip-phases={}", skipped.join(","));
        if !skipped.ends_with('=') {
            args.push(&skipped);
        }
        // kubeadm keeps nowhere that it was given patches once: without them it would render them away.
        if machine.patched && self != Self::Preflight {
            args.extend(["--patches", paths::PATCHES]);
        }
        let mut ignored = Vec::new();
        // The check starts a pod, and the only node is cordoned.
        if first && plan.peers.is_empty() {
            ignored.push("CreateJob");
        }
        // Checked also where the add-on is not touched.
        if first && machine.core_dns_stays && !matches!(self, Self::KubeletConfig | Self::Rest) {
            ignored.extend(["CoreDNSMigration", "CoreDNSUnsupportedPlugins"]);
        }
        // kubeadm refuses cgroup v1 since kubelet 1.35, also where a person has allowed it to the kubelet: "you must also explicitly
        // skip this validation". What else is in it was looked at when the node was staged.
        if machine.old_cgroups && self != Self::KubeletConfig {
            ignored.push("SystemVerification");
        }
        let ignored = format!("--ignore-preflight-errors={}", ignored.join(","));
        if !ignored.ends_with('=') {
            args.push(&ignored);
        }
        command(paths::KUBEADM, &args, 900)
    }
}

/// Whether kubeadm may have written to the cluster from this node: without that there is nothing to put back there, and no need of it.
pub fn wrote_to_cluster(journal: &Journal) -> bool {
    let calls = [Call::Whole, Call::WithoutEtcd, Call::Rest];
    calls.iter().any(|call| journal.intended.contains(&call.what())) || journal.intended.contains(images::NAMES_IMAGES)
}

/// Runs it.
pub fn call(c: &mut Context<'_>, call: Call) -> Answer<Ran> {
    let mut machine = Machine::look(c.host)?;
    if c.is_control_plane() && (call.brings_add_ons() || call == Call::Preflight) {
        match core_dns::look(c)? {
            core_dns::Seen::Stays(stays) => machine.core_dns_stays = stays,
            core_dns::Seen::NotYet(ran) => return Ok(ran),
        }
    }
    match c.change_by(&call.command(c.plan(), machine))? {
        Ran::Wait(waiting) if call == Call::WithoutEtcd => grace::shorten(c, waiting),
        ran => Ok(ran),
    }
}

/// A worker: every minor's own migrations, in turn.
pub fn worker(plan: &NodePlan) -> Vec<Instruction> {
    let mut program = vec![Instruction::Keep(Group::Kubeadm)];
    let last = std::slice::from_ref(&plan.kubelet_version);
    let via = if plan.via.is_empty() { last } else { &plan.via };
    for version in via {
        program.push(Instruction::PlaceKubeadm {
            version: version.clone(),
        });
        program.push(Instruction::Kubeadm(Call::Whole));
    }
    program
}

/// A control plane: what is the same both ways, then the way that was chosen.
pub fn control_plane(journal: &Journal) -> Vec<Instruction> {
    let plan = &journal.plan;
    let mut program = vec![
        Instruction::Keep(Group::Kubeadm),
        Instruction::FetchConfig,
        Instruction::KeepCluster,
    ];
    if plan.role == NodeRole::FirstControlPlane && images::has_to_name(journal) {
        program.push(Instruction::NameImages);
    }
    program.extend([
        Instruction::Render(Rendering::Present),
        Instruction::ChooseMethod,
        Instruction::PlaceKubeadm {
            version: plan.kubernetes_version.clone(),
        },
        Instruction::Render(Rendering::Etcd),
    ]);
    match journal.facts.get("method").map(String::as_str) {
        Some(SWIFT) => program.extend(swift(plan)),
        Some(_) => program.extend([
            Instruction::HandOverEtcd,
            Instruction::MarkApiServer,
            Instruction::Kubeadm(Call::WithoutEtcd),
            Instruction::Gate(Gate::Node),
        ]),
        None => {}
    }
    program
}

fn swift(plan: &NodePlan) -> Vec<Instruction> {
    let first = plan.role == NodeRole::FirstControlPlane;
    let early = if first { Call::Preflight } else { Call::KubeletConfig };
    let mut program = vec![
        Instruction::Render(Rendering::ControlPlane),
        Instruction::RenewCertificates,
        Instruction::Kubeadm(early),
        Instruction::MigrateFlags,
        // Since the node stood aside a member may have gone: while the kubelet runs, the step can still be put off.
        Instruction::CheckEtcd,
    ];
    program.extend(end_all());
    program.extend(snapshot(plan));
    program.extend([
        Instruction::PlaceManifests(&paths::PARTS),
        Instruction::PlaceKubelet,
        Instruction::RestartKubelet,
        Instruction::Gate(Gate::Node),
        Instruction::Kubeadm(Call::Rest),
    ]);
    // kubeadm has written the kubelet's flags and configuration once more.
    program.extend([
        Instruction::MigrateFlags,
        Instruction::RestartKubelet,
        Instruction::Gate(Gate::Node),
    ]);
    program
}

/// Ends the kubelet and every part in order, so that each starts once, by the next kubelet, and none is killed by surprise.
pub fn end_all() -> [Instruction; 6] {
    [
        Instruction::StopKubelet,
        Instruction::End(&["kube-controller-manager", "kube-scheduler"], SECONDS_OTHERS),
        Instruction::End(&["kube-apiserver"], grace::SECONDS),
        Instruction::AwaitPeers,
        Instruction::HandOverEtcd,
        Instruction::End(&["etcd"], SECONDS_ETCD),
    ]
}

/// Of a single node's etcd, before its version changes: nobody else has what it has.
fn snapshot(plan: &NodePlan) -> Option<Instruction> {
    plan.peers.is_empty().then_some(Instruction::Etcd(Act::TakeSnapshot))
}

/// The kubelet, where it was not swapped together with the control plane.
pub fn kubelet(journal: &Journal) -> Option<Vec<Instruction>> {
    let control_plane = journal.plan.role != NodeRole::Worker;
    if control_plane && journal.facts.get("method").map(String::as_str) == Some(SWIFT) {
        return None;
    }
    let mut program = vec![Instruction::Keep(Group::Kubelet), Instruction::MigrateFlags];
    if control_plane {
        // A kubelet of another minor restarts every static pod a while after its start: a gate would see the old ones
        // and be wrong. Ended before, they can only be seen as new ones.
        program.push(Instruction::CheckEtcd);
        program.extend(end_all());
        program.extend(snapshot(&journal.plan));
        program.push(Instruction::PlaceManifests(&["etcd"]));
    } else {
        program.push(Instruction::StopKubelet);
    }
    program.extend([
        Instruction::PlaceKubelet,
        Instruction::RestartKubelet,
        Instruction::Gate(Gate::Node),
    ]);
    Some(program)
}

/// Swift, unless something speaks against it.
pub fn choose(c: &mut Context<'_>) -> Answer<Ran> {
    let against = against_swift(c)?;
    let method = against.map_or_else(|| SWIFT.to_owned(), |why| format!("conservative: {why}"));
    Ok(Ran::Found {
        fact: ("method", method),
    })
}

fn against_swift(c: &mut Context<'_>) -> Answer<Option<String>> {
    if c.plan().method == Some(ControlPlaneMethod::Conservative) {
        return Ok(Some("asked for".to_owned()));
    }
    if c.fact("aside") == Some("cannot") {
        return Ok(Some("this machine cannot forward connections".to_owned()));
    }
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(Some("etcd is not one of this node's static pods".to_owned()));
    }
    if let Some(why) = c.fact("unrendered") {
        return Ok(Some(why.to_owned()));
    }
    for part in paths::PARTS {
        let live = paths::manifest(part);
        let present = config::rendered("present", part);
        let same = if part == "etcd" {
            config::essence_of_etcd(&c.text(&present)?) == config::essence_of_etcd(&c.text(&live)?)
        } else {
            c.host.digest(&present)? == c.host.digest(&live)?
        };
        if !same {
            return Ok(Some(format!(
                "{live} is not as kubeadm renders it: a hand has changed it"
            )));
        }
    }
    Ok(None)
}

/// Takes flags out that the new kubelet no longer knows.
pub fn migrate_flags(c: &mut Context<'_>) -> Answer<Ran> {
    let before = c.text(paths::KUBELET_FLAGS)?;
    let after = flags::migrate(&before, &c.plan().kubelet_version);
    if !flags::removed_in(&before, &c.plan().kubelet_version).is_empty() {
        c.host.write(paths::KUBELET_FLAGS, after.as_bytes(), 0o644)?;
    }
    Ok(Ran::Done)
}

pub fn place_kubelet(c: &mut Context<'_>) -> Answer<Ran> {
    let version = c.plan().kubelet_version.clone();
    for (program, target) in [("kubelet", paths::KUBELET), ("kubectl", paths::KUBECTL)] {
        let placed = c.place(&bundle::kubernetes(&version, program), target)?;
        if placed != Ran::Done {
            return Ok(placed);
        }
    }
    Ok(Ran::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(role: NodeRole, peers: &[&str]) -> NodePlan {
        NodePlan {
            upgrade: "0b2f".to_owned(),
            attempt: 1,
            node: "cp-1".to_owned(),
            role,
            kubernetes_version: "v1.36.3".to_owned(),
            kubelet_version: "v1.36.3".to_owned(),
            via: Vec::new(),
            method: None,
            peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
            etcd_version: None,
            core_dns_version: None,
            undo_after_seconds: 600,
            bundle_key: None,
        }
    }

    #[test]
    fn p32_what_kubeadm_complained_about_is_said_and_not_how_to_trace_it() {
        let machine = Machine::default();
        let command = Call::Whole.command(&plan(NodeRole::Worker, &[]), machine);
        let said = "[upgrade] Reading configuration\nerror: error execution phase kubelet-config: testing path /maxPods failed\n\
                    To see the stack trace of this error execute with --v=5 or higher\n";
        assert_eq!(
            crate::instruction::failed(&command, 1, said),
            "kubeadm upgrade node ended with 1: error: error execution phase kubelet-config: testing path /maxPods failed"
        );
        // What it quotes in between is a person's, and not for everybody who reads a status.
        let said = "error: error execution phase kubelet-config: could not apply the following patch to target \"kubeletconfiguration\":\n\
                    [{\"op\":\"test\",\"path\":\"/maxPods\",\"value\":42}]\n: testing value /maxPods failed: test failed\n\
                    To see the stack trace of this error execute with --v=5 or higher\n";
        assert_eq!(
            crate::instruction::failed(&command, 1, said),
            "kubeadm upgrade node ended with 1: error: error execution phase kubelet-config: could not apply the following patch to target \
             \"kubeletconfiguration\": testing value /maxPods failed: test failed"
        );
    }

    #[test]
    fn kubeadm_is_told_what_it_cannot_know_and_nothing_it_does_not_understand() {
        let plain = Machine::default();
        let special = Machine {
            patched: true,
            old_cgroups: true,
            ..plain
        };
        let (first, other) = (NodeRole::FirstControlPlane, NodeRole::ControlPlane);
        for (call, role, peers, machine, expected) in [
            (
                Call::Whole,
                first,
                &["10.0.0.2"][..],
                plain,
                "upgrade apply v1.36.3 --yes",
            ),
            (
                Call::Whole,
                first,
                &[],
                special,
                "upgrade apply v1.36.3 --yes --patches /etc/kubernetes/patches --ignore-preflight-errors=CreateJob,SystemVerification",
            ),
            (
                Call::Preflight,
                first,
                &["10.0.0.2"],
                special,
                "upgrade apply phase preflight v1.36.3 --yes --ignore-preflight-errors=SystemVerification",
            ),
            (
                Call::KubeletConfig,
                other,
                &["10.0.0.2"],
                special,
                "upgrade node phase kubelet-config --patches /etc/kubernetes/patches",
            ),
            (
                Call::Rest,
                first,
                &["10.0.0.2"],
                plain,
                "upgrade apply v1.36.3 --yes --etcd-upgrade=false --skip-phases=preflight",
            ),
            (
                Call::WithoutEtcd,
                other,
                &["10.0.0.2"],
                plain,
                "upgrade node --etcd-upgrade=false",
            ),
        ] {
            let command = call.command(&plan(role, peers), machine);
            assert_eq!(command.args.join(" "), expected);
        }
    }

    #[test]
    fn p46_kubeadm_is_kept_from_a_core_dns_that_stays() {
        let machine = Machine {
            core_dns_stays: true,
            ..Machine::default()
        };
        let (first, other) = (NodeRole::FirstControlPlane, NodeRole::ControlPlane);
        for (call, role, expected) in [
            (
                Call::Preflight,
                first,
                "upgrade apply phase preflight v1.36.3 --yes --ignore-preflight-errors=CoreDNSMigration,CoreDNSUnsupportedPlugins",
            ),
            (
                Call::Rest,
                first,
                "upgrade apply v1.36.3 --yes --etcd-upgrade=false --skip-phases=preflight,addon/coredns",
            ),
            (
                Call::WithoutEtcd,
                first,
                "upgrade apply v1.36.3 --yes --etcd-upgrade=false --skip-phases=addon/coredns \
                 --ignore-preflight-errors=CoreDNSMigration,CoreDNSUnsupportedPlugins",
            ),
            (
                Call::Rest,
                other,
                "upgrade node --etcd-upgrade=false --skip-phases=addon/coredns",
            ),
        ] {
            let command = call.command(&plan(role, &["10.0.0.2"]), machine);
            assert_eq!(command.args.join(" "), expected);
        }
    }
}
