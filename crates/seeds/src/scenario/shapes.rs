//! Scenarios of distances, budgets, pauses and gates.

use super::Scenario;
use super::setup::{FROM, TO, at_once, node};
use super::words::{PREFLIGHT, SUCCEEDED, gated, manual, preload, scenario, usual};
use crate::time::{HOUR, MINUTE, SECOND};
use crate::world::Act;
use afloat_api::NodeState;
use afloat_api::clusterupgrade::{Budget, Bundle, ImagePreloadType, WorkersOption};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(super) static SHAPES: &[Scenario] = &[
    scenario(
        "two-upgrades",
        "two upgrades of one cluster at once",
        SUCCEEDED,
        MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade_named("first", TO, 0, |_| {});
            setup.upgrade_named("second", TO, 3, |_| {});
        },
    ),
    scenario(
        "far",
        "three minor versions: control planes hop by hop, workers once",
        SUCCEEDED,
        0,
        |setup| {
            setup.world.far = true;
            setup.cluster(3, 3, FROM);
            setup.workloads();
            setup.upgrade("v1.38.1", |_| {});
        },
    ),
    scenario(
        "every-minor",
        "two minor versions, workers stop at each",
        SUCCEEDED,
        0,
        |setup| {
            setup.world.far = true;
            setup.cluster(3, 3, FROM);
            setup.workloads();
            setup.upgrade("v1.37.2", |spec| {
                spec.workers = Some(WorkersOption {
                    every_minor: Some(true),
                });
            });
        },
    ),
    scenario(
        "staged-in-turn",
        "files and images are brought to one node at a time",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| preload(spec, ImagePreloadType::Sequential));
        },
    ),
    scenario(
        "staged-when-needed",
        "nobody waits for files and images but the node they are brought to",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| preload(spec, ImagePreloadType::Skip));
        },
    ),
    scenario("patch", "a patch release", SUCCEEDED, 0, |setup| {
        setup.cluster(3, 3, "v1.36.1");
        setup.workloads();
        setup.upgrade(TO, |_| {});
    }),
    scenario(
        "new-bundle",
        "the same version from another bundle",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 3, TO);
            setup.workloads();
            setup.upgrade(TO, |spec| {
                spec.bundle = Some(Bundle {
                    image: "mirror/bundle:v1.36.3-2".to_owned(),
                    digest: None,
                });
            });
        },
    ),
    scenario(
        "nothing-to-do",
        "everything is at the target already",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 3, TO);
            setup.workloads();
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario("downgrade", "an older version: refused", PREFLIGHT, 0, |setup| {
        setup.cluster(3, 3, TO);
        setup.workloads();
        setup.upgrade("v1.36.1", |_| {});
    }),
    scenario(
        "manual",
        "every node waits for a person, who lets them go one by one",
        SUCCEEDED,
        2 * HOUR,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| manual(spec, &[]));
            for name in ["cp-1", "cp-2", "cp-3", "w-1", "w-2", "w-3", "w-4", "w-5"] {
                setup.when(
                    NodeState::Paused,
                    Some(name),
                    20 * SECOND,
                    Act::Unpause(Some(node(name))),
                );
            }
        },
    ),
    scenario(
        "manual-forgotten",
        "two nodes wait for a person who never comes",
        "Workers: NodePaused",
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| manual(spec, &["w-1", "w-3"]));
        },
    ),
    scenario(
        "paused-resumed",
        "paused in the midst, resumed later",
        SUCCEEDED,
        20 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, at_once(2));
            setup.when(NodeState::Draining, Some("w-2"), 300, Act::Pause(key.clone()));
            setup.at(20 * MINUTE, Act::Resume(key));
        },
    ),
    scenario(
        "paused-for-ever",
        "paused in the midst and forgotten",
        "ControlPlane: PausedByUser",
        0,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, |_| {});
            setup.when(NodeState::Succeeded, Some("cp-2"), 10, Act::Pause(key));
        },
    ),
    scenario(
        "deleted",
        "the upgrade is deleted in the midst: everything is put back",
        "nothing",
        30 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, |_| {});
            setup.when(NodeState::Upgrading, Some("w-2"), SECOND, Act::Delete(key));
        },
    ),
    scenario(
        "node-upgrade-deleted",
        "a person deletes the object of one node",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.when(
                NodeState::Upgrading,
                Some("w-2"),
                SECOND,
                Act::DeleteNodeUpgrade(node("w-2")),
            );
        },
    ),
    scenario(
        "three-at-once",
        "three workers at once, one of each zone",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 7, FROM);
            setup.workloads();
            setup.upgrade(TO, |spec| {
                spec.budget = Some(Budget {
                    max_unavailable: Some(IntOrString::Int(3)),
                    per_failure_domain: Some(1),
                    ..Budget::default()
                });
            });
        },
    ),
    scenario("share", "a share of all workers at once", SUCCEEDED, 0, |setup| {
        setup.cluster(3, 7, FROM);
        setup.workloads();
        setup.upgrade(TO, |spec| {
            spec.budget = Some(Budget {
                max_unavailable: Some(IntOrString::String("50%".to_owned())),
                ..Budget::default()
            });
        });
    }),
    scenario(
        "cordoned-by-hand",
        "a person has cordoned a worker and wants it so",
        SUCCEEDED,
        SECOND,
        |setup| {
            usual(setup);
            setup.at(0, Act::Cordon(node("w-4")));
            setup.upgrade_named("up", TO, SECOND, |spec| {
                at_once(2)(spec);
                spec.accept = vec!["node/w-4:Cordoned".to_owned()];
            });
        },
    ),
    scenario(
        "cordoned-is-too-many",
        "the same, but none else may be away then",
        "Workers: WaitingForBudget",
        SECOND,
        |setup| {
            usual(setup);
            setup.at(0, Act::Cordon(node("w-4")));
            setup.upgrade_named("up", TO, SECOND, |spec| {
                spec.accept = vec!["node/w-4:Cordoned".to_owned()];
            });
        },
    ),
    scenario(
        "clock-skew",
        "the operator's clock is two minutes off",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.world.plan.skew = 120_000;
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "gate-opens",
        "a gate of the person's own is closed for a while",
        SUCCEEDED,
        20 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, gated);
            setup.at(0, Act::Gate(key.clone(), "shop-is-quiet".into(), true));
            setup.when(
                NodeState::Verifying,
                Some("w-1"),
                10,
                Act::Gate(key.clone(), "shop-is-quiet".into(), false),
            );
            setup.at(20 * MINUTE, Act::Gate(key, "shop-is-quiet".into(), true));
        },
    ),
    scenario(
        "gate-never-opens",
        "a gate that stays closed",
        "ControlPlane: WaitingForGate",
        0,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, gated);
            setup.at(0, Act::Gate(key, "shop-is-quiet".into(), false));
        },
    ),
];
