//! What goes wrong on the way and is got over: kubeadm, parts that do not end, copies that fail.

use super::*;

#[test]
fn a_kubeadm_that_fails_once_is_tried_again() {
    for case in [WORKER, FIRST, OTHER, FIRST_SLOW] {
        let mut attempt = Attempt::new(case);
        attempt.host.faults.kubeadm_failures = 1;
        for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
            assert_eq!(attempt.step(step).0, exit::DONE, "{case:?}");
        }
        let later = attempt.step(steps::KUBEADM);
        assert_eq!(outcome(&later), (exit::LATER, StepOutcome::Later), "{case:?} {later:?}");
        assert!(later.1.message.contains("request timed out"), "{later:?}");
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}");
        attempt.assert_at_target(case);
    }
}

#[test]
fn a_kubeadm_that_always_fails_ends_the_step_and_can_be_undone() {
    for case in [WORKER, FIRST, OTHER, FIRST_SLOW, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        attempt.host.faults.kubeadm_failures = u32::MAX;
        let ended = attempt.upgrade();
        assert_eq!(
            outcome(&ended),
            (exit::FAILED, StepOutcome::Failed),
            "{case:?} {ended:?}"
        );
        assert_eq!(ended.1.reason.as_deref(), Some("StepFailed"), "{case:?}");
        assert_eq!(attempt.journal().matches("\"is\":\"tried\"").count(), 4, "{case:?}");
        attempt.host.faults.kubeadm_failures = 0;
        put_back(&mut attempt, case);
    }
}

#[test]
fn a_part_that_does_not_end_is_killed() {
    let mut attempt = Attempt::new(OTHER);
    attempt.host.faults.stubborn_parts.insert("kube-apiserver".to_owned());
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER);
}

#[test]
fn a_copy_that_fails_while_the_parts_are_down_is_tried_again_by_the_host_itself() {
    let mut attempt = Attempt::new(OTHER);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step(step);
    }
    let now = attempt.host.now();
    attempt
        .engine
        .begin(&mut attempt.host, &attempt.plan, steps::KUBEADM, now)
        .unwrap();
    for _ in 0..200 {
        if attempt.host.kubelet_running() {
            attempt.turn();
            attempt.pass(Duration::from_millis(100));
        }
    }
    assert!(!attempt.host.kubelet_running(), "{}", attempt.journal());
    attempt.host.faults.copy_failures = 2;
    assert_eq!(attempt.step(steps::KUBEADM).0, exit::DONE, "{}", attempt.journal());
    assert_eq!(attempt.journal().matches("input/output error").count(), 2);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER);
}
