//! The steps of a node as lists of instructions, and what each instruction of them does. A list follows from the plan and from
//! what the attempt found so far, and only ever grows: a number in the journal means the same instruction for ever.

use afloat_api::common::NodeRole;
use afloat_api::node::{NodePlan, StepOutcome, StepReport, steps};

use crate::instruction::{Gate, Group, Instruction};
use crate::journal::Journal;

mod certificates;
pub mod cluster;
pub mod config;
mod core_dns;
mod ending;
pub mod etcd;
pub mod grace;
pub mod images;
pub mod kubeadm;
pub mod runtime;
pub mod runtime_config;
pub mod stage;
pub mod stand_aside;
pub mod undo;

/// All steps, in the order in which a node takes them.
pub const ORDER: [&str; 7] = [
    steps::STAGE,
    steps::STAND_ASIDE,
    steps::CONTAINERD,
    steps::CNI,
    steps::KUBEADM,
    steps::KUBELET,
    steps::COME_BACK,
];

/// A list of instructions.
pub enum Program {
    Instructions(Vec<Instruction>),
    /// Nothing to do on this node, and why.
    Skipped(&'static str),
    /// There is no step of this name.
    Unknown,
}

/// What a step consists of on this node.
pub fn program(step: &str, journal: &Journal) -> Program {
    let plan = &journal.plan;
    let control_plane = plan.role != NodeRole::Worker;
    Program::Instructions(match step {
        steps::STAGE => stage::program(),
        steps::STAND_ASIDE | steps::COME_BACK if !control_plane => {
            return Program::Skipped("a worker serves no API: there is nothing to stand aside from");
        }
        steps::STAND_ASIDE if plan.peers.is_empty() => {
            return Program::Skipped("there is no other control plane that could serve meanwhile");
        }
        steps::STAND_ASIDE => vec![
            Instruction::CheckStaged,
            Instruction::CheckEtcd,
            Instruction::Forward,
            Instruction::HandOverEtcd,
        ],
        steps::CONTAINERD => containerd(plan),
        steps::CNI => vec![Instruction::Keep(Group::Cni), Instruction::Change(Group::Cni)],
        steps::KUBEADM if control_plane => kubeadm::control_plane(journal),
        steps::KUBEADM => kubeadm::worker(plan),
        steps::KUBELET => match kubeadm::kubelet(journal) {
            Some(instructions) => instructions,
            None => return Program::Skipped("the kubelet was swapped together with the control plane"),
        },
        steps::COME_BACK => vec![Instruction::Gate(Gate::Node), Instruction::EndForwarding],
        steps::ROLLBACK => undo::program(journal),
        _ => return Program::Unknown,
    })
}

fn containerd(plan: &NodePlan) -> Vec<Instruction> {
    let mut program = Vec::new();
    // Where no other step comes before this one.
    if plan.role == NodeRole::Worker || plan.peers.is_empty() {
        program.push(Instruction::CheckStaged);
    }
    program.extend([
        Instruction::MigrateRuntimeConfig,
        Instruction::Keep(Group::Runtime),
        Instruction::Change(Group::Runtime),
        Instruction::RestartRuntime,
        Instruction::Gate(Gate::Runtime),
    ]);
    program
}

/// What is said of a step that went well.
pub fn report(step: &str, journal: &Journal) -> StepReport {
    let plan = &journal.plan;
    let fact = |name: &str| journal.facts.get(name).cloned();
    let message = match step {
        steps::STAGE => "binaries, images and the host unit are in place".to_owned(),
        steps::STAND_ASIDE => match fact("aside").as_deref() {
            Some("yes") => "new API connections go to the other control planes".to_owned(),
            _ => "this machine cannot forward connections: requests may be lost meanwhile".to_owned(),
        },
        steps::CONTAINERD => runtime_config::message(journal),
        steps::CNI => "the new CNI plugins are in place".to_owned(),
        steps::KUBEADM => format!("kubeadm is at {}", last_kubeadm(plan)),
        steps::KUBELET => format!("the kubelet is at {}", plan.kubelet_version),
        steps::COME_BACK => "all parts are well; API connections are taken again".to_owned(),
        _ => undo::message(journal),
    };
    StepReport {
        outcome: StepOutcome::Done,
        message,
        method: fact("method").filter(|_| step == steps::KUBEADM),
        ..StepReport::default()
    }
}

fn last_kubeadm(plan: &NodePlan) -> &str {
    match plan.role {
        NodeRole::Worker => &plan.kubelet_version,
        _ => &plan.kubernetes_version,
    }
}
