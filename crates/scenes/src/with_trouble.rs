//! Scenarios in which something goes wrong that people of Harvester have met: it passes, is mended by a person, or is said.

use std::time::Duration;

use super::people::{Deed, Moment};
use super::script::{End, HciScenario, Script};

const FAILED: Moment = Moment::Over;

fn fails(job: &str, times: u32) -> Script {
    let job = job.to_owned();
    Script::small().with(|trouble| {
        trouble.failing_jobs.insert(job, times);
    })
}

fn refuses_to_move(times: u32) -> Script {
    Script::small().with(|trouble| {
        trouble.failing_migrations.insert("default/vm-01".to_owned(), times);
    })
}

/// Migrations of two machines of node-1 begin and never end: as many as go at once.
fn never_arrives(times: u32) -> Script {
    Script::small().with(|trouble| {
        for vm in ["default/vm-01", "default/vm-04"] {
            trouble.endless_migrations.insert(vm.to_owned(), times);
        }
    })
}

fn holds_on(minutes: Option<u64>) -> Script {
    Script::small().with(|trouble| {
        let stuck = &mut trouble.volumes.stuck;
        stuck.insert("pvc-vm-10".to_owned(), minutes.map(Duration::from_mins));
    })
}

fn boots_old(script: Script, times: u32) -> Script {
    script.with(|trouble| {
        trouble.machines.old_system.insert("node-1".to_owned(), times);
    })
}

pub(super) const LIST: &[HciScenario] = &[
    HciScenario::new(
        "harvester-chart-paused",
        "a person had paused Harvester's chart: it is said, the person lets it go on and resumes",
        || {
            Script::small()
                .laid(vec![Deed::PauseChart(true)])
                .says(&["managedchart fleet-local/harvester is paused, and not by this upgrade"])
                .then(FAILED, 10, vec![Deed::PauseChart(false), Deed::resume()])
        },
    ),
    HciScenario::new(
        "harvester-node-not-ready",
        "node-3 is not Ready at the start: it is said, nothing is changed, and the upgrade begins when it is",
        || {
            let mut script = Script::new(3, 0);
            script.ground.not_ready.push("node-3");
            script
                .then(
                    Moment::Condition("PreflightPassed", "False"),
                    30,
                    vec![Deed::ReportReady("node-3")],
                )
                .says(&["node/node-3: is not Ready"])
        },
    ),
    HciScenario::new(
        "harvester-findings",
        "a cordoned node, a backup under way and a paused cluster: all of it is said at once, and nothing is changed",
        || {
            Script::small()
                .laid(vec![Deed::Cordon("node-2"), Deed::BeginBackup, Deed::PauseCluster])
                .says(&[
                    "node/node-2: is cordoned",
                    "a backup is under way",
                    "is paused: nothing would happen",
                ])
                .ends(End::Waits, &[])
        },
    ),
    HciScenario::new(
        "harvester-node-away",
        "node-3 loses its power for 40 minutes between the nodes: the next one waits for it",
        || {
            Script::new(3, 0)
                .power_cut("node-3", Moment::Node("node-1", "Succeeded"), 0, 40)
                .says(&["waits for node node-3, which is not Ready"])
        },
    ),
    HciScenario::new(
        "harvester-node-removed",
        "node-3 dies and is removed from the cluster amid the upgrade, which goes on without it",
        || {
            let mut script = Script::new(3, 0);
            script.upgraded = Some(vec!["node-1", "node-2"]);
            script
                .then(
                    Moment::Node("node-1", "Pre-drained"),
                    1,
                    vec![Deed::RemoveNode("node-3")],
                )
                .says(&["node node-3 is gone; the upgrade goes on without it"])
        },
    ),
    HciScenario::new(
        "harvester-rebooted-by-hand",
        "a person reboots node-1 while it gets its operating system",
        || Script::small().power_cut("node-1", Moment::Node("node-1", "Post-draining"), 0, 5),
    ),
    HciScenario::new(
        "harvester-hangs",
        "node-1 does not restart by itself; half an hour later a person switches it off and on",
        || {
            Script::small()
                .with(|trouble| {
                    trouble.machines.hanging.insert("node-1".to_owned());
                })
                .power_cut("node-1", Moment::Node("node-1", "Waiting Reboot"), 30, 5)
                .says(&["it reports \"Harvester v1.6.0\" and has to come back with \"Harvester v1.7.0\""])
        },
    ),
    HciScenario::new(
        "harvester-old-system",
        "node-1 boots the old system again and again: the upgrade stops and says so",
        || {
            boots_old(Script::small(), u32::MAX)
                .says(&[
                    "node node-1: did not come back at the target within 60 minutes",
                    "Harvester v1.6.0",
                ])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-old-system-once",
        "node-1 boots the old system once; a person resumes, and the work is done again",
        || boots_old(Script::small(), 1).then(FAILED, 10, vec![Deed::resume()]),
    ),
    HciScenario::new(
        "harvester-single-old-system-once",
        "the only node boots the old system once and starts its virtual machines again; a person resumes, and it is emptied once more",
        || boots_old(Script::new(1, 4), 1).then(FAILED, 10, vec![Deed::resume()]),
    ),
    HciScenario::new(
        "harvester-stuck-volume",
        "a volume that never detaches holds node-1: it is named while the node waits, and when it gives up",
        || {
            holds_on(None)
                .says(&[
                    "pre-drain-node-1 failed",
                    "in the end it waits until these volumes can be detached: pvc-vm-10",
                ])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new("harvester-slow-volume", "a volume takes its time to detach", || {
        holds_on(Some(90)).says(&["waits until these volumes can be detached: pvc-vm-10"])
    }),
    HciScenario::new(
        "harvester-slow-rebuild",
        "replicas are rebuilt slowly after each node: the next one waits for them",
        || {
            Script::small()
                .with(|trouble| trouble.volumes.rebuild = Some(Duration::from_mins(50)))
                .says(&["waits for volumes that have not all their replicas"])
        },
    ),
    HciScenario::new(
        "harvester-rebuild-too-slow",
        "replicas are rebuilt for six hours: the next node gives up after four, and goes on when a person resumes",
        || {
            Script::small()
                .with(|trouble| trouble.volumes.rebuild = Some(Duration::from_hours(6)))
                .then(FAILED, 180, vec![Deed::resume()])
                .then(FAILED, 180, vec![Deed::resume()])
                .says(&["did not get its turn within 240 minutes: it waits for volumes"])
        },
    ),
    HciScenario::new(
        "harvester-slow-engine",
        "two nodes; engines say late that replicas are rebuilt, and the second node waits for them",
        || {
            Script::new(2, 8)
                .with(|trouble| trouble.volumes.engines_behind = Some(Duration::from_mins(50)))
                .says(&["waits for volumes that have not all their replicas"])
        },
    ),
    HciScenario::new(
        "harvester-replica-fails",
        "a replica fails when node-2 has just begun: nobody moves before it is rebuilt",
        || {
            Script::small()
                .with(|trouble| {
                    let rebuild = Duration::from_mins(40);
                    let begun = Moment::Node("node-2", "Pre-draining");
                    trouble.volumes.lost.push((begun, "pvc-vm-02", rebuild));
                })
                .says(&["waits for volumes that have not all their replicas: pvc-vm-02"])
        },
    ),
    HciScenario::new(
        "harvester-lingering-budgets",
        "budgets of migrations stay long after these have ended: Rancher is not let drain a node before they are gone",
        || {
            Script::small()
                .with(|trouble| trouble.budgets_linger = Some(Duration::from_mins(40)))
                .says(&["waits until the budgets of migrations are gone: kubevirt-migration-pdb-"])
        },
    ),
    HciScenario::new(
        "harvester-stubborn-vm",
        "a virtual machine whose migrations fail twice is tried again, and moves",
        || refuses_to_move(2).says(&["the guest writes faster than it can be copied"]),
    ),
    HciScenario::new(
        "harvester-refusing-vm",
        "a virtual machine that never moves: its node fails with the reason, and it runs on",
        || {
            refuses_to_move(u32::MAX)
                .says(&[
                    "default/vm-01 does not leave",
                    "the guest writes faster than it can be copied",
                ])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-refusing-vm-stopped",
        "a virtual machine that never moves is stopped by a person, who then resumes",
        || {
            refuses_to_move(u32::MAX)
                .then(FAILED, 10, vec![Deed::StopVm("vm-01")])
                .then(FAILED, 10, vec![Deed::resume()])
                .says(&["default/vm-01 does not leave"])
                .leaves_off("vm-01")
        },
    ),
    HciScenario::new(
        "harvester-endless-migrations",
        "migrations of two virtual machines never end and keep all others from moving: they are cancelled in time, and tried again",
        || never_arrives(1).says(&["1 migration did not end in time and was cancelled"]),
    ),
    HciScenario::new(
        "harvester-endless-migrations-fail",
        "migrations of two virtual machines never end, however often they are tried: the node fails with the reason, and they run on",
        || {
            never_arrives(u32::MAX)
                .says(&["does not leave: 3 migrations failed", "it did not end in time"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-post-copy",
        "two migrations go over to post-copy: one arrives, the other one loses its virtual machine, which KubeVirt starts again elsewhere",
        || {
            Script::small().with(|trouble| {
                trouble.post_copies.insert("default/vm-01".to_owned(), false);
                trouble.post_copies.insert("default/vm-04".to_owned(), true);
            })
        },
    ),
    HciScenario::new(
        "harvester-budget",
        "a pod under a budget of minAvailable 1 keeps Rancher from draining node-1 until a person removes the budget",
        || {
            Script::small()
                .laid(vec![Deed::Guard("node-1", &["db"])])
                .then(Moment::Node("node-1", "Pre-drained"), 30, vec![Deed::Unguard("db")])
                .says(&["pod default/db-0 cannot be evicted: pdb/default/db allows no disruption"])
        },
    ),
    HciScenario::new(
        "harvester-budget-overdue",
        "a budget keeps Rancher from draining node-1 for two hours: the drain is overdue, and goes on by itself",
        || {
            Script::small()
                .laid(vec![Deed::Guard("node-1", &["db"])])
                .then(Moment::Node("node-1", "Pre-drained"), 120, vec![Deed::Unguard("db")])
                .says(&[
                    "Rancher has not drained it and upgraded RKE2 within 60 minutes. pod default/db-0 cannot be evicted",
                ])
        },
    ),
    HciScenario::new(
        "harvester-two-budgets",
        "a pod under two budgets, which the eviction API refuses for ever",
        || {
            Script::small()
                .laid(vec![Deed::Guard("node-1", &["db", "db-too"])])
                .then(
                    Moment::Node("node-1", "Pre-drained"),
                    30,
                    vec![Deed::Unguard("db"), Deed::Unguard("db-too")],
                )
                .says(&["it is under pdb/default/db and pdb/default/db-too"])
        },
    ),
    HciScenario::new(
        "harvester-rancher-restarts",
        "Rancher is restarted while it drains node-1 and after it has asked about node-2, and is away for half an hour each time",
        || {
            Script::small().with(|trouble| {
                let away = Duration::from_mins(30);
                trouble.rancher_restarts = vec![
                    (Moment::Node("node-1", "Pre-drained"), away),
                    (Moment::Node("node-2", "Pre-draining"), away),
                ];
            })
        },
    ),
    HciScenario::new(
        "harvester-rancher-hurries",
        "Rancher cordons and asks about two nodes at once: the second one waits until the first is done",
        || {
            Script::small()
                .with(|trouble| trouble.rancher_hurries = true)
                .says(&["waits for node-1, which is Pre-draining", "waits for node-2, which is"])
        },
    ),
    HciScenario::new(
        "harvester-repo-gone",
        "the repository never serves the release: the upgrade stops and says so",
        || {
            Script::small()
                .with(|trouble| trouble.repo_silent = u32::MAX)
                .says(&["did not serve the release within 30 minutes"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-repo-silent",
        "the repository does not answer for a while, and is started anew",
        || {
            Script::small()
                .with(|trouble| trouble.repo_silent = 5)
                .says(&["the repository does not answer: it is started anew"])
        },
    ),
    HciScenario::new(
        "harvester-repo-deleted",
        "somebody deletes the repository while images are brought to the nodes: it is made again",
        || Script::small().then(Moment::Node("node-1", "Images preloading"), 0, vec![Deed::DeleteRepo]),
    ),
    HciScenario::new("harvester-no-image", "the image cannot be imported", || {
        Script::small()
            .with(|trouble| trouble.parts.no_images = Some("checksum mismatch"))
            .says(&["was not imported: checksum mismatch"])
            .ends(End::Failed, &[])
    }),
    HciScenario::new(
        "harvester-no-logs",
        "logs are never collected: the upgrade goes on without them",
        || {
            Script::small()
                .with(|trouble| trouble.parts.no_logs = true)
                .says(&["the upgrade goes on without logs"])
        },
    ),
    HciScenario::new(
        "harvester-preload-fails",
        "images cannot be brought to node-2: the upgrade stops before any node is touched",
        || {
            fails("prepare/node-2", u32::MAX)
                .says(&[
                    "prepare-node-2 failed: brings the images of the release to the host: prepare was made to fail",
                ])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-preload-fails-once",
        "images cannot be brought to node-2 once; a person resumes",
        || fails("prepare/node-2", 1).then(FAILED, 10, vec![Deed::resume()]),
    ),
    HciScenario::new(
        "harvester-chart-fails-once",
        "a chart fails once; a person resumes",
        || {
            fails("apply-manifests", 1)
                .then(FAILED, 10, vec![Deed::resume()])
                .says(&["apply-manifests was made to fail"])
        },
    ),
    HciScenario::new(
        "harvester-system-fails-once",
        "the operating system of node-2 cannot be written once; a person resumes",
        || {
            fails("post-drain/node-2", 1)
                .then(FAILED, 10, vec![Deed::resume()])
                .says(&["post-drain was made to fail"])
        },
    ),
];
