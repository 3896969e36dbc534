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
    assert!(
        later
            .1
            .message
            .contains("is 812 entries behind the leader; needs ≤ 100")
    );
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

/// How long the API server goes on that kubeadm replaces, and for how long nobody serves here.
fn replaced(attempt: &mut Attempt) -> (SignedDuration, SignedDuration) {
    let now = attempt.host.now();
    attempt
        .engine
        .begin(&mut attempt.host, &attempt.plan, steps::KUBEADM, now)
        .unwrap();
    let old = attempt.host.process("kube-apiserver").unwrap().unwrap();
    let mut told = None;
    let mut ended = None;
    for _ in 0..2_000 {
        attempt.turn();
        attempt.pass(Duration::from_millis(500));
        let (now, listens) = (attempt.host.now(), attempt.host.takes_connections().unwrap());
        if !listens {
            told.get_or_insert(now);
        }
        if !attempt.host.lives(&old).unwrap() {
            ended.get_or_insert(now);
        }
        if let (Some(told), Some(ended), true) = (told, ended, listens) {
            return (ended.duration_since(told), now.duration_since(told));
        }
    }
    panic!("it is never replaced; the journal:\n{}", attempt.journal());
}

#[test]
fn an_api_server_that_kubeadm_replaces_gets_as_long_as_it_needs_and_its_successor_all_it_wants() {
    let alone = Case {
        method: Some(ControlPlaneMethod::Conservative),
        ..SINGLE
    };
    for case in [FIRST_SLOW, OTHER_SLOW, alone] {
        let mut attempt = Attempt::new(case);
        for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
            attempt.step_patiently(step);
        }
        let (went_on, away) = replaced(&mut attempt);
        // It needs some seconds for what it has begun, and would wait 30 for its watches.
        assert!((4..=6).contains(&went_on.as_secs()), "{case:?} {went_on:?}");
        // The next one takes no connections for 5 seconds: it is not the one that was marked.
        assert!(away.as_secs() <= 12, "{case:?} {away:?}");
        let serves = attempt.host.process("kube-apiserver").unwrap();
        let ended = attempt.step(steps::KUBEADM);
        assert_eq!(outcome(&ended), (exit::DONE, StepOutcome::Done), "{ended:?}");
        assert_eq!(attempt.host.process("kube-apiserver").unwrap(), serves, "{case:?}");
        assert_eq!(attempt.upgrade().0, exit::DONE);
        attempt.assert_at_target(case);
    }
}

#[test]
fn an_api_server_that_still_takes_connections_is_left_alone() {
    let mut attempt = Attempt::new(OTHER_SLOW);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    // It is told nothing: kubeadm waits for something else.
    attempt.host.faults.kubeadm_failures = 1;
    let serves = attempt.host.process("kube-apiserver").unwrap();
    let ended = attempt.step(steps::KUBEADM);
    assert_eq!(outcome(&ended), (exit::LATER, StepOutcome::Later), "{ended:?}");
    assert_eq!(attempt.host.process("kube-apiserver").unwrap(), serves);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER_SLOW);
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
fn what_is_forwarded_goes_to_peers_that_serve() {
    let mut attempt = Attempt::new(OTHER);
    let [one, other] = ["10.0.0.2", "10.0.0.3"].map(str::to_owned);
    attempt.step(steps::STAGE);
    // There is nobody yet to stand aside for.
    attempt.host.silent_peers = [one.clone(), other.clone()].into();
    let later = attempt.step(steps::STAND_ASIDE);
    assert_eq!(later.0, exit::LATER, "{later:?}");
    assert_eq!(later.1.reason.as_deref(), Some("WaitingForApiServer"));
    assert_eq!(attempt.host.forwarding_to(), None);
    attempt.host.silent_peers.clear();
    assert_eq!(attempt.step(steps::STAND_ASIDE).0, exit::DONE);
    assert_eq!(attempt.host.forwarding_to(), Some(&[one.clone(), other.clone()][..]));
    let now = attempt.host.now();
    attempt
        .engine
        .begin(&mut attempt.host, &attempt.plan, steps::CONTAINERD, now)
        .unwrap();
    let silent: [(&[&String], &[&String]); 4] = [
        (&[&one], &[&other]),
        // Where nobody is heard, it stays as it was.
        (&[&one, &other], &[&other]),
        (&[&other], &[&one]),
        (&[], &[&one, &other]),
    ];
    for (silent, expected) in silent {
        attempt.host.silent_peers = silent.iter().copied().cloned().collect();
        attempt.turn();
        let to = attempt.host.forwarding_to().unwrap_or_default();
        assert_eq!(to.iter().collect::<Vec<_>>(), expected, "without {silent:?}");
    }
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER);
}

#[test]
fn rule_11_a_peer_that_dies_while_nothing_else_happens_is_left_out_within_seconds() {
    let mut attempt = Attempt::new(OTHER);
    for step in [steps::STAGE, steps::STAND_ASIDE] {
        assert_eq!(attempt.step(step).0, exit::DONE);
    }
    attempt.quiet();
    let journal = attempt.journal();
    let Next::Again { after, .. } = attempt.turn() else {
        panic!("nobody looks any more");
    };
    assert!(after <= Duration::from_secs(3), "{after:?}");
    attempt.host.silent_peers = ["10.0.0.2".to_owned()].into();
    attempt.pass(after);
    attempt.turn();
    assert_eq!(attempt.host.forwarding_to(), Some(&["10.0.0.3".to_owned()][..]));
    assert_eq!(attempt.journal(), journal, "a look is not written down");
}

#[test]
fn after_a_boot_it_is_forwarded_at_once_and_then_only_to_those_that_serve() {
    let mut attempt = Attempt::new(OTHER);
    for step in [steps::STAGE, steps::STAND_ASIDE] {
        assert_eq!(attempt.step(step).0, exit::DONE);
    }
    attempt.host.silent_peers = ["10.0.0.2".to_owned()].into();
    attempt.host.reboot();
    attempt.engine = Engine::default();
    assert_eq!(attempt.host.forwarding_to(), None);
    // A peer without power takes seconds to be known as such.
    attempt.turn();
    let both = ["10.0.0.2", "10.0.0.3"].map(str::to_owned);
    assert_eq!(attempt.host.forwarding_to(), Some(&both[..]));
    attempt.turn();
    assert_eq!(attempt.host.forwarding_to(), Some(&both[1..]));
}

#[test]
fn a_control_plane_that_is_undone_stands_aside_also_when_it_hears_nobody() {
    let mut attempt = Attempt::new(OTHER);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.host.silent_peers = ["10.0.0.2", "10.0.0.3"].map(str::to_owned).into();
    put_back(&mut attempt, OTHER);
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
