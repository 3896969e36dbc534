//! What is heeded on control planes only: the other members of etcd, clients of the API, the swift way and the conservative one.

use super::*;

#[test]
fn a_member_that_joined_is_taken_the_swift_way_too() {
    let mut attempt = Attempt::new(OTHER);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        assert_eq!(attempt.step(step).0, exit::DONE);
    }
    assert_eq!(method(&mut attempt), "swift");
    // An etcd that a person changed is another matter.
    let mut attempt = Attempt::new(OTHER);
    let path = paths::manifest("etcd");
    let text = attempt
        .host
        .tree()
        .get(&path)
        .map(|file| String::from_utf8_lossy(file.bytes()).into_owned());
    attempt
        .host
        .put(&path, &format!("{}- --quota-backend-bytes=8\n", text.unwrap()));
    attempt.pass(Duration::from_secs(30));
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        assert_eq!(attempt.step(step).0, exit::DONE);
    }
    assert!(method(&mut attempt).starts_with("conservative: "));
}

#[test]
fn no_node_stands_aside_while_another_etcd_member_is_behind() {
    let mut attempt = Attempt::new(OTHER);
    attempt.step(steps::STAGE);
    attempt.host.member.peers[0].behind = 812;
    let later = attempt.step(steps::STAND_ASIDE);
    assert_eq!(outcome(&later), (exit::LATER, StepOutcome::Later));
    assert_eq!(later.1.reason.as_deref(), Some("WaitingForEtcd"));
    assert_eq!(later.1.etcd_behind, Some(812));
    assert_eq!(attempt.host.forwarding_to(), None);
    attempt.host.member.peers[0].behind = 0;
    assert_eq!(attempt.upgrade().0, exit::DONE);
}

#[test]
fn etcd_is_not_ended_while_another_member_is_away() {
    for case in [OTHER, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
            attempt.step_patiently(step);
        }
        if case.method.is_some() {
            attempt.step_patiently(steps::KUBEADM);
        }
        attempt.host.member.peers[0].healthy = false;
        let step = if case.method.is_some() {
            steps::KUBELET
        } else {
            steps::KUBEADM
        };
        let later = attempt.step(step);
        assert_eq!(outcome(&later), (exit::LATER, StepOutcome::Later), "{case:?} {later:?}");
        assert!(attempt.host.etcd_healthy() && attempt.host.kubelet_ready());
        attempt.host.member.peers[0].healthy = true;
        assert_eq!(attempt.upgrade().0, exit::DONE);
        attempt.assert_at_target(case);
    }
}

/// A member goes at the last moment, with the kubelet stopped: nobody but the host can go on or back.
#[test]
fn a_member_that_goes_at_the_last_moment_is_waited_for_and_the_node_put_back_if_it_stays_away() {
    for comes_back in [true, false] {
        let mut attempt = Attempt::new(OTHER);
        for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
            attempt.step_patiently(step);
        }
        let now = attempt.host.now();
        attempt
            .engine
            .begin(&mut attempt.host, &attempt.plan, steps::KUBEADM, now)
            .unwrap();
        while !attempt.journal().contains("ends kube-apiserver") {
            attempt.turn();
            attempt.pass(Duration::from_millis(100));
        }
        attempt.host.member.peers[0].healthy = false;
        for _ in 0..100 {
            attempt.turn();
            attempt.pass(Duration::from_secs(1));
        }
        assert!(attempt.host.etcd_healthy(), "{}", attempt.journal());
        if comes_back {
            attempt.host.member.peers[0].healthy = true;
            assert_eq!(attempt.upgrade().0, exit::DONE);
            attempt.assert_at_target(OTHER);
        } else {
            let ended = attempt.step(steps::KUBEADM);
            assert_eq!(outcome(&ended), (exit::UNDONE, StepOutcome::Undone), "{ended:?}");
            assert!(attempt.host.etcd_healthy(), "it was never ended");
            attempt.quiet();
            attempt.assert_put_back(OTHER);
        }
    }
}

#[test]
fn the_conservative_way_is_taken_with_its_reason_where_swift_does_not_fit() {
    type Change = fn(&mut Attempt);
    let cases: [(Change, &str); 4] = [
        (|_| {}, "swift"),
        (
            |a| a.plan.method = Some(ControlPlaneMethod::Conservative),
            "conservative: asked for",
        ),
        (
            |a| a.host.faults.no_netfilter = true,
            "conservative: this machine cannot forward connections",
        ),
        (
            |a| {
                a.host.put(
                    "/etc/kubernetes/manifests/kube-scheduler.yaml",
                    "image: s:v1.35.4\n- --mine\n",
                );
            },
            "conservative: /etc/kubernetes/manifests/kube-scheduler.yaml is not as kubeadm renders it: a hand has changed it",
        ),
    ];
    for (change, expected) in cases {
        let mut attempt = Attempt::new(FIRST);
        change(&mut attempt);
        attempt.pass(Duration::from_secs(30));
        for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
            assert_eq!(attempt.step(step).0, exit::DONE, "{expected}");
        }
        assert_eq!(method(&mut attempt), expected);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{expected}");
        attempt.assert_at_target(FIRST);
    }
}

#[test]
fn nothing_is_touched_on_a_control_plane_while_clients_could_reach_it() {
    for case in [FIRST, OTHER, FIRST_SLOW, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        for step in [steps::STAGE, steps::STAND_ASIDE] {
            attempt.step(step);
        }
        assert!(!attempt.host.member.leads, "leadership was handed over");
        for step in [steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET] {
            let now = attempt.host.now();
            attempt
                .engine
                .begin(&mut attempt.host, &attempt.plan, step, now)
                .unwrap();
            while let Ok(Followed::Running { .. }) = attempt.engine.follow(&mut attempt.host, step) {
                assert!(attempt.host.forwarding_to().is_some(), "{case:?} {step}");
                attempt.turn();
                attempt.pass(Duration::from_millis(500));
            }
        }
        attempt.upgrade();
        assert_eq!(attempt.host.forwarding_to(), None);
    }
}

#[test]
fn the_forwarding_ends_by_itself_when_everything_on_the_node_is_dead() {
    let mut attempt = Attempt::new(OTHER);
    attempt.step(steps::STAGE);
    attempt.step(steps::STAND_ASIDE);
    assert!(attempt.host.forwarding_to().is_some());
    attempt.pass(Duration::from_secs(721));
    assert_eq!(attempt.host.forwarding_to(), None);
}

#[test]
fn p36_a_single_node_is_upgraded_in_place_and_keeps_its_etcd() {
    let mut attempt = Attempt::new(SINGLE);
    let aside = attempt.step(steps::STAND_ASIDE);
    assert_eq!(outcome(&aside), (exit::DONE, StepOutcome::Skipped));
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(SINGLE);
}
