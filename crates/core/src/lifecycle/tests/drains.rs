//! Which pods leave, which stay, and what is said of those that cannot leave now.

use std::sync::Arc;

use afloat_api::NodeState::{Draining, RolledBack, Upgrading};
use afloat_api::clusterupgrade::BudgetOverride;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::action::{Action, Task};
use crate::lifecycle::drain;
use crate::lifecycle::turn::Turn;
use crate::settings::Drain;
use crate::testing::{World, at, budget, node, owner, pod, static_pod};
use crate::view::{Claim, Component, Ending, Key, Pod, PodBudget, PodPhase, PodShape};

fn shaped(change: impl FnOnce(&mut PodShape)) -> Pod {
    let mut pod = pod("shop", "cart-1", "worker-1", "cart");
    let mut shape = (*pod.shape).clone();
    change(&mut shape);
    pod.shape = Arc::new(shape);
    pod
}

fn plain() -> Pod {
    shaped(|_| {})
}

/// What becomes of the pods of `worker-1`: how many have to leave, what is done, and why the rest cannot.
fn seen(world: &World, options: &Drain) -> (usize, Vec<&'static str>, Vec<String>) {
    let upgrade = world.upgrade();
    let mut turn = Turn::new(&world.view, &upgrade, world.now);
    turn.settings.drain = options.clone();
    let look = drain::look(&turn, &world.node());
    let reasons = look.blocks.iter().map(|block| block.reason.to_string());
    (
        look.leaving,
        look.go.iter().map(Action::name).collect(),
        reasons.collect(),
    )
}

/// One pod on the node, and what is expected of it.
fn expect(case: &str, pod: Pod, options: &Drain, leaving: usize, go: &[&str], blocks: &[&str]) {
    let mut world = World::worker();
    world.put(pod);
    let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
    assert_eq!(seen(&world, options), (leaving, go.to_vec(), blocks), "{case}");
}

#[test]
fn p27_what_stays_what_goes_and_what_the_policy_keeps() {
    let strict = Drain::default();
    let lenient = Drain {
        evict_unmanaged: true,
        delete_local_data: true,
        ..Drain::default()
    };
    let of_daemon_set = shaped(|shape| shape.owner = Some(owner("DaemonSet", "cni")));
    let mirror = static_pod(Component::Other, "cart", "worker-1", "1");
    let unmanaged = shaped(|shape| shape.owner = None);
    let local = shaped(|shape| shape.local_data = true);
    let finished = |pod: &Pod| Pod {
        phase: PodPhase::Succeeded,
        ..pod.clone()
    };
    expect("plain", plain(), &strict, 1, &["evict"], &[]);
    expect("of a DaemonSet", of_daemon_set, &strict, 0, &[], &[]);
    expect("static", mirror, &strict, 0, &[], &[]);
    expect("finished", finished(&plain()), &strict, 1, &["evict"], &[]);
    expect("finished, local data", finished(&local), &strict, 1, &["evict"], &[]);
    expect("unmanaged", unmanaged.clone(), &strict, 1, &[], &["UnmanagedPod"]);
    expect("unmanaged, allowed", unmanaged, &lenient, 1, &["evict"], &[]);
    expect("local data", local.clone(), &strict, 1, &[], &["LocalData"]);
    expect("local data, allowed", local, &lenient, 1, &["evict"], &[]);
}

#[test]
fn a_pod_that_ends_has_its_grace_and_a_minute_more() {
    let ending = |phase, seconds, held_by_finalizer| {
        let by = at(seconds);
        Pod {
            phase,
            ending: Some(Ending { by, held_by_finalizer }),
            ..plain()
        }
    };
    let (running, options) = (PodPhase::Running, Drain::default());
    let stuck = ["WaitingForPodTermination"];
    expect("in its grace", ending(running, 10, false), &options, 1, &[], &[]);
    expect("a little late", ending(running, -59, false), &options, 1, &[], &[]);
    expect("late", ending(running, -60, false), &options, 1, &[], &stuck);
    expect("held", ending(running, -60, true), &options, 1, &[], &stuck);
    let finished = ending(PodPhase::Succeeded, -60, true);
    expect("finished and held", finished, &options, 0, &[], &[]);
}

#[test]
fn a_budget_is_asked_as_the_api_server_reckons() {
    let unready = Pod {
        ready: false,
        ..plain()
    };
    let starting = Pod {
        phase: PodPhase::Pending,
        ..unready.clone()
    };
    let one_left = budget("shop", "cart", "cart", 1);
    let none_left = budget("shop", "cart", "cart", 0);
    let out_of_date = PodBudget {
        up_to_date: false,
        ..one_left.clone()
    };
    let too_few = PodBudget {
        current_healthy: 1,
        ..none_left.clone()
    };
    let may_go = PodBudget {
        unhealthy_may_go: true,
        ..too_few.clone()
    };
    let table = [
        ("one left", plain(), one_left, true),
        ("none left", plain(), none_left.clone(), false),
        ("status out of date", plain(), out_of_date, false),
        ("not ready, enough others", unready.clone(), none_left, true),
        ("not ready, too few others", unready.clone(), too_few.clone(), false),
        ("not ready, may always go", unready, may_go, true),
        ("not started", starting, too_few, true),
    ];
    for (case, pod, budget, goes) in table {
        let mut world = World::worker();
        world.put(pod);
        world.put_budget(budget);
        let (_, go, blocks) = seen(&world, &Drain::default());
        assert_eq!((go.len() == 1, blocks.is_empty()), (goes, goes), "{case}: {blocks:?}");
    }
}

#[test]
fn a_budget_is_counted_down_within_one_decision() {
    let mut world = World::worker();
    for name in ["cart-1", "cart-2", "cart-3"] {
        world.put(pod("shop", name, "worker-1", "cart"));
    }
    world.put_budget(budget("shop", "cart", "cart", 2));
    world.put_budget(budget("other", "cart", "cart", 0));
    let (leaving, go, blocks) = seen(&world, &Drain::default());
    assert_eq!(
        (leaving, go.len()),
        (3, 2),
        "the budget of another namespace does not count"
    );
    assert_eq!(blocks, ["WaitingForPodDisruptionBudget"]);
}

#[test]
fn past_a_budget_only_while_the_person_allows_it() {
    let mut world = World::worker();
    world.put(plain());
    world.put_budget(budget("shop", "cart", "cart", 0));
    let allowed_until = |seconds| Drain {
        overrides: vec![BudgetOverride {
            namespace: "shop".to_owned(),
            name: "cart".to_owned(),
            until: Time(at(seconds)),
            because: "the shop is closed".to_owned(),
        }],
        ..Drain::default()
    };
    assert_eq!(seen(&world, &allowed_until(1)).1, ["delete-past-budget"]);
    assert_eq!(
        seen(&world, &allowed_until(0)).2,
        ["WaitingForPodDisruptionBudget"],
        "expired"
    );
    // Two budgets, and only one of them may be passed.
    world.put_budget(budget("shop", "every", "cart", 5));
    assert_eq!(seen(&world, &allowed_until(1)).2, ["SeveralPodDisruptionBudgets"]);
    world.view.budgets.remove(&Key::new("shop", "every"));
    world.put_budget(budget("shop", "cart", "cart", 1));
    assert_eq!(
        seen(&world, &allowed_until(1)).1,
        ["evict"],
        "not past a budget that has room"
    );
}

#[test]
fn p32_a_wait_names_the_budget_and_keeps_its_beginning() {
    let mut world = drained_world(&[plain()], &[budget("shop", "cart", "cart", 0)]);
    let first = world.status().waiting_for.unwrap();
    assert_eq!(first.reason, "WaitingForPodDisruptionBudget");
    let by = first.blocked_by.clone().unwrap();
    assert_eq!((by.kind.as_str(), by.name.as_str()), ("PodDisruptionBudget", "cart"));
    assert_eq!(first.until, world.status().deadline);
    let refused = world.status().drain.unwrap().refused;
    assert_eq!(refused[0].pod.name, "cart-1");
    // Another pod comes under it: the wait is the same one.
    world.pass(60);
    world.put(pod("shop", "cart-0", "worker-1", "cart"));
    world.settle();
    assert_eq!(world.status().waiting_for.unwrap().since, first.since);
    world.put_budget(budget("shop", "cart", "cart", 2));
    world.settle();
    assert_eq!(world.waits_for(), "");
    world.end_pods();
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn two_budgets_on_one_pod_are_named_and_stall() {
    let world = drained_world(
        &[plain()],
        &[budget("shop", "cart", "cart", 5), budget("shop", "every", "cart", 5)],
    );
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, "SeveralPodDisruptionBudgets");
    assert!(
        wait.message.contains("pdb/shop/cart") && wait.message.contains("pdb/shop/every"),
        "{}",
        wait.message
    );
    let stalled = world
        .status()
        .conditions
        .into_iter()
        .find(|condition| condition.type_ == "Stalled");
    assert_eq!(stalled.unwrap().status, "True");
}

#[test]
fn p32_a_pod_held_by_a_finalizer_is_named_when_its_time_is_over() {
    let mut world = drained_world(&[plain()], &[]);
    assert_eq!((world.state(), world.waits_for().as_str()), (Draining, ""));
    world.with_pod(&Key::new("shop", "cart-1"), |pod| {
        pod.ending = pod.ending.map(|ending| Ending {
            held_by_finalizer: true,
            ..ending
        });
    });
    let again = world.decide().again.unwrap();
    world.now = again;
    world.settle();
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, "WaitingForPodTermination");
    assert!(wait.message.contains("finalizer"), "{}", wait.message);
    assert_eq!(wait.blocked_by.unwrap().name, "cart-1");
}

#[test]
fn volumes_of_pods_that_left_are_detached_first() {
    let with_claim = shaped(|shape| shape.claims = vec![Arc::from("data")]);
    let mut world = drained_world(&[with_claim], &[]);
    let claim = |volume: &str| {
        Arc::new(Claim {
            volume: Some(Arc::from(volume)),
            node_affinity: Vec::new(),
        })
    };
    world.view.claims.insert(Key::new("shop", "data"), claim("pv-1"));
    world
        .view
        .claims
        .insert(Key::new("kube-system", "agent"), claim("pv-2"));
    let mut agent = shaped(|shape| {
        shape.owner = Some(owner("DaemonSet", "agent"));
        shape.claims = vec![Arc::from("agent")];
    });
    agent.key = Key::new("kube-system", "agent-1");
    world.put(agent);
    world.with_node(|node| node.attached_volumes = vec![Arc::from("pv-1"), Arc::from("pv-2"), Arc::from("foreign")]);
    world.end_pods();
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Draining, "WaitingForVolume")
    );
    assert_eq!(world.status().waiting_for.unwrap().blocked_by.unwrap().name, "pv-1");
    world.with_node(|node| node.attached_volumes.retain(|volume| &**volume != "pv-1"));
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn p37_a_single_node_keeps_its_pods() {
    let mut world = World::new(afloat_api::NodeRole::Worker, "only", &[node("only")]);
    world.put(pod("shop", "cart-1", "only", "cart"));
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Upgrading);
    assert!(world.node().unschedulable);
    assert!(!world.done.contains(&"evict"));
}

#[test]
fn progress_costs_few_writes_however_many_pods_leave() {
    let pods: Vec<Pod> = (0..100)
        .map(|index| pod("shop", &format!("cart-{index:03}"), "worker-1", "cart"))
        .collect();
    let mut world = drained_world(&pods, &[budget("shop", "cart", "cart", 1)]);
    let before = world.done.iter().filter(|name| **name == "write-node-status").count();
    while world.state() == Draining {
        world.end_pods();
        world.pass(1);
        world.settle();
    }
    let writes = world.done.iter().filter(|name| **name == "write-node-status").count() - before;
    assert!(writes <= 7, "{writes} writes");
    assert_eq!(world.done.iter().filter(|name| **name == "evict").count(), 100);
    let progress = world.status().drain.unwrap();
    assert_eq!((progress.total, progress.gone), (100, 100));
}

#[test]
fn a_drain_that_takes_too_long_fails_and_the_node_is_put_back() {
    let mut world = drained_world(&[plain()], &[budget("shop", "cart", "cart", 0)]);
    world.pass(1800);
    world.settle();
    assert_eq!(
        (world.state(), world.failure().as_str()),
        (RolledBack, "DeadlineExceeded")
    );
    let failure = world.status().failure.unwrap();
    assert_eq!(failure.blocked_by.unwrap().name, "cart");
    assert!(!world.node().unschedulable);
    assert!(!world.has_pod(Task::Rollback), "nothing was touched");
}

/// `worker-1` with these pods and budgets, as far as it gets.
fn drained_world(pods: &[Pod], budgets: &[PodBudget]) -> World {
    let mut world = World::worker();
    for pod in pods {
        world.put(pod.clone());
    }
    for budget in budgets {
        world.put_budget(budget.clone());
    }
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Draining);
    world
}
