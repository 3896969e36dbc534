//! Whatever happens in whatever order, with the operator dying after any write: the rules hold, and it comes to an end.

use std::sync::Arc;

use afloat_api::NodeState;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{StepOutcome, exit, steps};
use proptest::prelude::*;

use crate::action::{Action, Task};
use crate::testing::{NEW, OLD, World, budget, pod, said};
use crate::view::Key;

#[derive(Clone, Copy, Debug)]
enum Happening {
    Turn,
    /// The operator dies after so many writes.
    Crash(usize),
    PodsEnd,
    PodComes(u8),
    BudgetAllows(i64),
    Step(Task, u8, i32),
    LosePod(Task),
    Kubelet(bool),
    NodeReady(bool),
    PersonCordons,
    PersonUncordons,
    Pause(bool),
    Desire(DesiredNodeState),
    NewAttempt,
    Pass(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let task = prop_oneof![Just(Task::Stage), Just(Task::Upgrade), Just(Task::Rollback)];
    let code = prop_oneof![8 => Just(exit::DONE), 2 => Just(exit::LATER), 1 => Just(exit::FAILED), 1 => Just(exit::UNDONE), 1 => Just(137)];
    let desired = prop_oneof![3 => Just(DesiredNodeState::Upgraded), 1 => Just(DesiredNodeState::RolledBack)];
    prop_oneof![
        20 => Just(Happening::Turn),
        6 => (0..4_usize).prop_map(Happening::Crash),
        6 => Just(Happening::PodsEnd),
        2 => (0..3_u8).prop_map(Happening::PodComes),
        2 => (0..2_i64).prop_map(Happening::BudgetAllows),
        20 => (task.clone(), 0..7_u8, code).prop_map(|(task, step, code)| Happening::Step(task, step, code)),
        1 => task.prop_map(Happening::LosePod),
        4 => any::<bool>().prop_map(Happening::Kubelet),
        2 => any::<bool>().prop_map(Happening::NodeReady),
        1 => Just(Happening::PersonCordons),
        1 => Just(Happening::PersonUncordons),
        1 => any::<bool>().prop_map(Happening::Pause),
        2 => desired.prop_map(Happening::Desire),
        1 => Just(Happening::NewAttempt),
        2 => prop_oneof![Just(1_i64), Just(60), Just(600), Just(2000)].prop_map(Happening::Pass),
    ]
}

fn happen(world: &mut World, happening: Happening) {
    match happening {
        Happening::Turn => act(world, usize::MAX),
        Happening::Crash(after) => act(world, after),
        Happening::PodsEnd => world.end_pods(),
        Happening::PodComes(index) => {
            if !world.node().unschedulable {
                world.put(pod("shop", &format!("cart-{index}"), "worker-1", "cart"));
            }
        }
        Happening::BudgetAllows(allowed) => world.put_budget(budget("shop", "cart", "cart", allowed)),
        Happening::Step(task, index, code) => end_next_step(world, task, index, code),
        Happening::LosePod(task) => {
            let key = world.task_key(task);
            world.view.remove_pod(&key);
        }
        Happening::Kubelet(new) => world.kubelet(if new { NEW } else { OLD }),
        Happening::NodeReady(ready) => world.with_node(|node| node.ready.ready = ready),
        Happening::PersonCordons => world.with_node(|node| node.unschedulable = true),
        Happening::PersonUncordons => world.with_node(|node| node.unschedulable = false),
        Happening::Pause(pause) => world.with_node(|node| node.pause = pause.then(|| Arc::from("true"))),
        Happening::Desire(desired) => world.with_upgrade(|upgrade| {
            // As the CRD has it: back only to undo.
            if upgrade.spec.desired != DesiredNodeState::RolledBack {
                upgrade.spec.desired = desired;
            }
        }),
        Happening::NewAttempt => world.with_upgrade(|upgrade| {
            upgrade.spec.attempt += 1;
            upgrade.spec.desired = DesiredNodeState::Upgraded;
        }),
        Happening::Pass(seconds) => world.pass(seconds),
    }
}

fn end_next_step(world: &mut World, task: Task, index: u8, code: i32) {
    if !world.has_pod(task) {
        return;
    }
    let all = [steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET];
    let step = match task {
        Task::Stage => steps::STAGE,
        Task::Rollback => steps::ROLLBACK,
        Task::Upgrade => all[usize::from(index) % all.len()],
    };
    world.end_step(task, step, code, &said(StepOutcome::Done, "said"));
}

/// One turn, of which only so many actions are carried out, each under the rules.
fn act(world: &mut World, most: usize) {
    let decision = world.decide();
    for action in decision.actions.iter().take(most) {
        check(world, action);
        assert!(world.apply(action), "refused: {action:?}");
    }
}

fn check(world: &World, action: &Action) {
    let node = world.node();
    let status = world.status();
    match action {
        Action::CreatePod(task) if task.task != Task::Stage => {
            assert!(node.unschedulable, "the machine is touched while it is in service");
            let other = if task.task == Task::Upgrade {
                Task::Rollback
            } else {
                Task::Upgrade
            };
            assert!(!world.has_pod(other), "two pods work on one machine");
        }
        Action::Cordon { .. } => {
            assert!(!node.unschedulable);
            assert!(status.cordoned_by_afloat, "recorded before it is made");
        }
        Action::Uncordon { .. } => {
            assert!(
                status.cordoned_by_afloat && node.cordoned_by.is_some(),
                "only what is ours is taken back"
            );
        }
        Action::Evict { .. } => {
            assert!(node.unschedulable, "evicted from a node in service");
            let allows = world
                .view
                .budgets
                .get(&Key::new("shop", "cart"))
                .is_none_or(|budget| budget.disruptions_allowed > 0);
            assert!(allows, "a budget is passed");
        }
        _ => {}
    }
}

/// Nothing goes wrong any more: it must come to its end, and then rest.
fn calm(world: &mut World) {
    world.with_node(|node| {
        node.ready.ready = true;
        node.pause = None;
    });
    world.put_budget(budget("shop", "cart", "cart", 5));
    for _ in 0..200 {
        act(world, usize::MAX);
        world.end_pods();
        match world.state() {
            NodeState::Verifying => world.kubelet(NEW),
            NodeState::RollingBack => world.kubelet(&world.status().before.unwrap().kubelet_version),
            _ => {}
        }
        for task in [Task::Stage, Task::Upgrade, Task::Rollback] {
            if world.has_pod(task) {
                world.finish(task);
            }
        }
        if world.decide().actions.is_empty() {
            return;
        }
    }
    panic!("no end: {:?}\n{:#?}", world.decide().actions, world.status());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn whatever_happens_the_rules_hold_and_it_ends(happenings in proptest::collection::vec(happening(), 0..120)) {
        let mut world = World::worker();
        world.put(pod("shop", "cart-0", "worker-1", "cart"));
        for happening in happenings {
            happen(&mut world, happening);
        }
        calm(&mut world);
        let (state, status, node) = (world.state(), world.status(), world.node());
        let failed = state == NodeState::Failed && world.failure() == "RollbackFailed";
        prop_assert!(failed || matches!(state, NodeState::Succeeded | NodeState::RolledBack), "{state}");
        if !failed {
            prop_assert_eq!(node.cordoned_by, None, "our cordon is left behind");
            prop_assert!(!status.cordoned_by_afloat);
        }
        // And at rest it stays, whatever the clock says.
        world.pass(1_000_000);
        let decision = world.decide();
        prop_assert!(decision.actions.is_empty() && decision.events.is_empty() && decision.again.is_none(), "{decision:?}");
    }
}
