//! Scenarios of clusters where something is wrong or goes wrong, and of those where nothing does.

use super::Scenario;
use super::setup::{FROM, TO, at_once, budget_key, drain_for, node, workload};
use super::words::{DOWNTIME, FAILED, PREFLIGHT, SUCCEEDED, frozen, no_failures, scenario, small, stuck, usual};
use crate::build::WorkloadPlan;
use crate::store::BudgetSpec;
use crate::time::{HOUR, MINUTE, SECOND, stamp};
use crate::world::{Act, KeeperKind};
use afloat_api::NodeState;
use afloat_api::clusterupgrade::{Budget, BudgetOverride, DrainOption, OnDrainTimeout, Window};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) static FAULTY: &[Scenario] = &[
    scenario(
        "ha",
        "three control planes and five workers, one minor version",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "ten-nodes",
        "three and seven, two workers at once",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 7, FROM);
            setup.workloads();
            setup.upgrade(TO, at_once(2));
        },
    ),
    scenario(
        "single-node",
        "one machine is everything: no drain, the API is away meanwhile",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(1, 0, FROM);
            setup.upgrade(TO, |spec| spec.accept = vec![DOWNTIME.to_owned()]);
        },
    ),
    scenario(
        "single-control-plane",
        "one control plane, two workers: an API outage in the midst",
        SUCCEEDED,
        0,
        |setup| {
            small(setup);
            setup.upgrade(TO, |spec| spec.accept = vec![DOWNTIME.to_owned()]);
        },
    ),
    scenario(
        "two-control-planes",
        "each restart loses quorum: refused",
        PREFLIGHT,
        0,
        |setup| {
            setup.cluster(2, 3, FROM);
            setup.workloads();
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "two-control-planes-accepted",
        "the same, and a person accepts it",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(2, 3, FROM);
            setup.workloads();
            setup.upgrade(TO, |spec| {
                spec.accept = vec![DOWNTIME.to_owned()];
            });
        },
    ),
    scenario(
        "stuck-pdb",
        "a budget that never frees: found before anything starts",
        PREFLIGHT,
        0,
        |setup| {
            stuck(setup);
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "stuck-pdb-later",
        "a budget whose controller is gone: whoever has its pods is held back after the first",
        "Workers: WaitingForPodDisruptionBudget",
        0,
        |setup| {
            frozen(setup, 5);
            setup.upgrade(TO, |spec| spec.drain = Some(drain_for(600)));
        },
    ),
    scenario(
        "stuck-pdb-in-drain",
        "the same with two pods a node: the drain of the first runs into its limit",
        FAILED,
        0,
        |setup| {
            frozen(setup, 10);
            setup.upgrade(TO, |spec| spec.drain = Some(drain_for(600)));
        },
    ),
    scenario(
        "stuck-pdb-freed",
        "the same, and a person frees it in time",
        SUCCEEDED,
        15 * MINUTE,
        |setup| {
            frozen(setup, 5);
            setup.upgrade(TO, |_| {});
            setup.at(15 * MINUTE, Act::FreeBudget(budget_key("till")));
        },
    ),
    scenario(
        "pdb-overridden",
        "a person says for this upgrade that a budget may be passed",
        SUCCEEDED,
        0,
        |setup| {
            stuck(setup);
            setup.upgrade(TO, |spec| {
                spec.drain = Some(DrainOption {
                    override_budgets: vec![BudgetOverride {
                        namespace: "shop".to_owned(),
                        name: "till".to_owned(),
                        until: Time(stamp(12 * HOUR)),
                        because: "the till is closed at night".to_owned(),
                    }],
                    ..DrainOption::default()
                });
            });
        },
    ),
    scenario(
        "two-pdbs",
        "a pod under two budgets: the eviction API refuses it for ever",
        PREFLIGHT,
        0,
        |setup| {
            usual(setup);
            setup.workload(&workload(
                KeeperKind::ReplicaSet,
                "twice",
                2,
                Some(BudgetSpec::MaxUnavailable(1)),
            ));
            setup.second_budget("twice");
            setup.upgrade(TO, |spec| spec.drain = Some(drain_for(600)));
        },
    ),
    scenario(
        "drain-deferred",
        "a drain that takes too long puts the node last",
        SUCCEEDED,
        15 * MINUTE,
        |setup| {
            // Two on each worker: one may leave, and the drain has begun when the budget closes.
            frozen(setup, 10);
            setup.upgrade(TO, |spec| {
                spec.drain = Some(DrainOption {
                    on_timeout: Some(OnDrainTimeout::Defer),
                    ..drain_for(120)
                });
            });
            setup.at(15 * MINUTE, Act::FreeBudget(budget_key("till")));
        },
    ),
    scenario(
        "dead-node",
        "a worker without power: it counts against the budget",
        PREFLIGHT,
        2 * MINUTE,
        |setup| {
            usual(setup);
            setup.at(0, Act::PowerLoss(node("w-2"), None));
            setup.upgrade_named("up", TO, 2 * MINUTE, at_once(2));
        },
    ),
    scenario(
        "dead-node-accepted",
        "the same, accepted: the others are upgraded within the budget",
        "Workers: WaitingForNode",
        2 * MINUTE,
        |setup| {
            usual(setup);
            setup.at(0, Act::PowerLoss(node("w-2"), None));
            setup.upgrade_named("up", TO, 2 * MINUTE, |spec| {
                at_once(2)(spec);
                spec.accept = vec!["node/w-2:NotReady".to_owned()];
            });
        },
    ),
    scenario(
        "dies-half-way",
        "a worker loses its power for good in the midst of its steps",
        FAILED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.when(
                NodeState::Upgrading,
                Some("w-2"),
                3 * SECOND,
                Act::PowerLoss(node("w-2"), None),
            );
        },
    ),
    Scenario {
        allows: no_failures,
        ..scenario(
            "kubeadm-fails",
            "a step fails on a worker: rolled back, and the upgrade stops",
            FAILED,
            0,
            |setup| {
                usual(setup);
                setup.upgrade(TO, |_| {});
                setup.at(0, Act::KubeadmFails(node("w-2"), 100));
            },
        )
    },
    scenario(
        "quarantine",
        "a worker always fails and is set aside within the budget",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| {
                spec.budget = Some(Budget {
                    max_failed: Some(1),
                    ..Budget::default()
                });
            });
            setup.at(0, Act::KubeadmFails(node("w-2"), 100));
        },
    ),
    scenario(
        "control-plane-fails",
        "a control plane fails: rolled back, and the upgrade stops",
        FAILED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| {
                spec.budget = Some(Budget {
                    max_failed: Some(3),
                    ..Budget::default()
                });
            });
            setup.at(0, Act::KubeadmFails(node("cp-2"), 100));
        },
    ),
    scenario("no-image", "an image that cannot be pulled", FAILED, 0, |setup| {
        usual(setup);
        setup.upgrade(TO, |_| {});
        setup.at(0, Act::PullFails(node("w-3"), u32::MAX));
    }),
    scenario(
        "no-capacity",
        "the pods of a node fit nowhere else",
        PREFLIGHT,
        0,
        |setup| {
            setup.cluster(3, 3, FROM);
            setup.workload(&WorkloadPlan {
                cpu_milli: 3500,
                ..workload(KeeperKind::ReplicaSet, "big", 3, None)
            });
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "spread-apart",
        "pods that must not share a node, one node to spare",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.workload(&WorkloadPlan {
                apart: true,
                ..workload(KeeperKind::ReplicaSet, "apart", 4, Some(BudgetSpec::MaxUnavailable(1)))
            });
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "window",
        "the window closes half-way; the rest waits for the next one",
        "Workers: OutsideWindow",
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| {
                spec.window = Some(Window {
                    start: "07:57".to_owned(),
                    duration_minutes: 5,
                    ..Window::default()
                });
            });
        },
    ),
    scenario(
        "operator-evicted",
        "the operator's own pod is on a worker that is drained",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            let keeper = setup.workload(&workload(KeeperKind::ReplicaSet, "afloat", 1, None));
            setup.world.operator_keeper = Some(keeper);
            setup.upgrade(TO, |_| {});
        },
    ),
];
