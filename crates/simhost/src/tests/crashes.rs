//! A crash at every operation of the port, in every role, forwards and backwards: what comes of it must be what comes without.

use super::super::{Crash, Moment};
use super::*;

/// Ways to die at an operation: killed, or without power.
const DEATHS: [(Moment, bool); 4] = [
    (Moment::Before, false),
    (Moment::Within, true),
    (Moment::After, false),
    (Moment::After, true),
];

/// What is there at the end, but for Afloat's own folder.
fn outside(attempt: &Attempt) -> Tree {
    let mut tree = attempt.host.tree().clone();
    // kubeadm's own backups tell how often it ran.
    tree.retain(|path, _| !path.starts_with(paths::HOME) && !path.starts_with(paths::KUBEADM_TMP));
    // A certificate that was renewed twice is as good as one renewed once.
    tree.retain(|_, file| !file.bytes().starts_with(b"certificate"));
    tree
}

/// Runs it with a crash at each operation it takes without one.
pub fn at_every_operation(case: Case, run: fn(&mut Attempt), check: fn(&Attempt, Case)) {
    let start = Attempt::new(case);
    let mut clean = start.clone();
    clean.host.shared = start.host.shared.apart();
    run(&mut clean);
    check(&clean, case);
    let (last, expected) = (clean.host.operations(), outside(&clean));
    for operation in 1..=last {
        for (moment, power) in DEATHS {
            let mut attempt = start.clone();
            attempt.host.shared = start.host.shared.apart();
            attempt.host.faults.crash = Some(Crash {
                operation,
                moment,
                power,
            });
            run(&mut attempt);
            let here = format!("{case:?} operation {operation} {moment:?} power {power}");
            let found = outside(&attempt);
            let all = found.keys().chain(expected.keys());
            let differ: Vec<_> = all.filter(|path| found.get(*path) != expected.get(*path)).collect();
            assert_eq!(differ, [""; 0], "{here}\n{}", attempt.journal());
            check(&attempt, case);
        }
    }
}

fn forwards(attempt: &mut Attempt) {
    let ended = attempt.upgrade();
    assert_eq!(ended.0, exit::DONE, "{ended:?}\n{}", attempt.journal());
}

fn and_back(attempt: &mut Attempt) {
    forwards(attempt);
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(ended.0, exit::DONE, "{ended:?}\n{}", attempt.journal());
    attempt.quiet();
}

#[test]
fn p28_a_crash_at_any_operation_changes_nothing_about_the_end() {
    for case in CASES {
        at_every_operation(case, forwards, Attempt::assert_at_target);
    }
}

#[test]
fn k2_a_crash_at_any_operation_of_the_undoing_changes_nothing_about_its_end() {
    for case in [FAR_WORKER, FIRST, OTHER_SLOW, SINGLE] {
        at_every_operation(case, and_back, Attempt::assert_put_back);
    }
}

#[test]
fn an_orderly_reboot_between_any_two_steps_is_made_good() {
    for case in CASES {
        for before in node_steps::ORDER {
            let mut attempt = Attempt::new(case);
            for step in node_steps::ORDER {
                if step == before {
                    attempt.host.reboot();
                    attempt.pass(Duration::from_secs(20));
                }
                let ended = attempt.step_patiently(step);
                assert_eq!(ended.0, exit::DONE, "{case:?} {step} {ended:?}");
            }
            attempt.quiet();
            attempt.assert_at_target(case);
        }
    }
}
