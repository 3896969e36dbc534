//! What goes wrong, and what is left then.

use super::*;
use afloat_node::host::Host as _;
use afloat_node::signature::PublicKey;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

fn put_back(attempt: &mut Attempt, case: Case) {
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(
        outcome(&ended),
        (exit::DONE, StepOutcome::Done),
        "{ended:?}\n{}",
        attempt.journal()
    );
    attempt.quiet();
    attempt.assert_put_back(case);
}

#[test]
fn k2_a_rollback_after_any_step_restores_every_byte() {
    for case in CASES {
        for last in node_steps::ORDER {
            let mut attempt = Attempt::new(case);
            for step in node_steps::ORDER {
                assert_eq!(attempt.step_patiently(step).0, exit::DONE, "{case:?} {step}");
                if step == last {
                    break;
                }
            }
            put_back(&mut attempt, case);
        }
    }
}

#[test]
fn an_undone_attempt_is_followed_by_another() {
    for case in [WORKER, FIRST, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        attempt.upgrade();
        put_back(&mut attempt, case);
        attempt.plan.attempt = 2;
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}");
        attempt.assert_at_target(case);
    }
}

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
fn an_etcd_that_stayed_at_its_new_version_does_not_make_the_next_attempt_slow() {
    let mut attempt = Attempt::new(FIRST);
    attempt.upgrade();
    put_back(&mut attempt, FIRST);
    assert!(attempt.journal().contains("etcd stays at"), "{}", attempt.journal());
    attempt.plan.attempt = 2;
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        assert_eq!(attempt.step(step).0, exit::DONE);
    }
    assert_eq!(method(&mut attempt), "swift");
}

#[test]
fn an_attempt_that_was_neither_finished_nor_undone_blocks_the_next() {
    let mut attempt = Attempt::new(WORKER);
    for step in [steps::STAGE, steps::CONTAINERD] {
        attempt.step(step);
    }
    attempt.plan.attempt = 2;
    let now = attempt.host.now();
    let refused = attempt
        .engine
        .begin(&mut attempt.host, &attempt.plan, steps::STAGE, now);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("neither finished nor undone"), "{message}");
    put_back(&mut attempt, WORKER);
}

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
fn k2_a_control_plane_whose_new_api_server_is_broken_puts_itself_back() {
    for case in [FIRST, OTHER, SINGLE] {
        let mut attempt = Attempt::new(case);
        let broken = ("kube-apiserver".to_owned(), "v1.36.3".to_owned());
        attempt.host.faults.broken_parts.insert(broken);
        let ended = attempt.upgrade();
        assert_eq!(
            outcome(&ended),
            (exit::UNDONE, StepOutcome::Undone),
            "{case:?} {ended:?}"
        );
        assert_eq!(ended.1.reason.as_deref(), Some("UndoneByHost"));
        assert!(
            ended.1.message.contains("the API server did not come back"),
            "{ended:?}"
        );
        attempt.assert_put_back(case);
    }
}

#[test]
fn a_worker_whose_new_kubelet_never_comes_up_puts_itself_back() {
    for case in [WORKER, FAR_WORKER, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        attempt.host.faults.broken_kubelets.insert("v1.36.3".to_owned());
        let began = attempt.host.now();
        let ended = attempt.upgrade();
        assert_eq!(
            outcome(&ended),
            (exit::UNDONE, StepOutcome::Undone),
            "{case:?} {ended:?}"
        );
        assert!(
            ended
                .1
                .message
                .contains("the kubelet did not come back within 600 seconds"),
            "{ended:?}"
        );
        assert!(attempt.host.now().duration_since(began).as_secs() < 1000, "{case:?}");
        attempt.assert_put_back(case);
    }
}

#[test]
fn a_runtime_that_does_not_come_up_is_put_back() {
    for case in [WORKER, FIRST] {
        let mut attempt = Attempt::new(case);
        attempt.host.faults.broken_runtimes.insert("v2.3.7".to_owned());
        let ended = attempt.upgrade();
        assert_eq!(
            outcome(&ended),
            (exit::UNDONE, StepOutcome::Undone),
            "{case:?} {ended:?}"
        );
        attempt.assert_put_back(case);
    }
}

#[test]
fn an_undoing_that_does_not_help_says_what_is_left() {
    let mut attempt = Attempt::new(WORKER);
    attempt.step(steps::STAGE);
    attempt.host.faults.broken_kubelets = ["v1.36.3", "v1.35.4"].map(str::to_owned).into();
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert_eq!(ended.1.reason.as_deref(), Some("RollbackFailed"));
    assert!(ended.1.message.contains("the kubelet did not come back"), "{ended:?}");
    // The cause is gone, and somebody asks again.
    attempt.host.faults.broken_kubelets.clear();
    put_back(&mut attempt, WORKER);
}

#[test]
fn k2_etcd_stays_where_it_is_healthy_and_goes_back_where_it_is_broken() {
    let mut attempt = Attempt::new(FIRST);
    attempt.upgrade();
    let ended = attempt.step(steps::ROLLBACK);
    assert!(ended.1.message.contains("etcd stays at 3.6.8-0"), "{ended:?}");
    assert_eq!(
        attempt.changed_outside(),
        [paths::manifest("etcd"), paths::UNIT_FILE.to_owned()]
    );

    let broken = ("etcd".to_owned(), "3.6.8-0".to_owned());
    let mut attempt = Attempt::new(FIRST);
    attempt.host.faults.broken_parts.insert(broken.clone());
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::UNDONE, StepOutcome::Undone), "{ended:?}");
    assert_eq!(attempt.changed_outside(), [""; 0]);

    let mut attempt = Attempt::new(FIRST);
    attempt.host.faults.broken_parts.insert(broken);
    attempt.host.member.cluster_version = "3.7.0".to_owned();
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert!(ended.1.message.contains("join anew"), "{ended:?}");
}

#[test]
fn a_machine_that_does_not_fit_is_found_out_before_anything_changes() {
    type Break = fn(&mut Attempt);
    let cases: [(Break, &str); 7] = [
        (|a| a.host.room.bytes = 1000, "MiB are free on /var/lib"),
        (|a| a.host.room.inodes = 1000, "inodes are free"),
        (
            |a| a.host.put(paths::SWAPS, "Filename\n/dev/sda2 partition 1\n"),
            "swap is on",
        ),
        (
            |a| a.host.remove(paths::CGROUP_V2).unwrap(),
            "this machine has cgroup v1",
        ),
        (
            |a| {
                a.host.put(
                    "/etc/default/kubelet",
                    "KUBELET_EXTRA_ARGS=--pod-infra-container-image=x\n",
                );
            },
            "sets --pod-infra-container-image",
        ),
        (|a| a.plan.kubelet_version = "v1.34.4".to_owned(), "downgrade"),
        (
            |a| a.host.faults.expired_certificate = Some("apiserver".to_owned()),
            "has expired",
        ),
    ];
    for (wrong, said) in cases {
        let mut attempt = Attempt::new(FIRST);
        wrong(&mut attempt);
        attempt.before = attempt.host.tree().clone();
        let ended = attempt.upgrade();
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{said}");
        assert!(ended.1.message.contains(said), "{said}: {}", ended.1.message);
        assert_eq!(attempt.changed_outside(), [""; 0], "{said}");
    }
}

#[test]
fn k2_a_kubeadm_that_still_runs_is_ended_before_its_work_is_undone() {
    let mut attempt = Attempt::new(FIRST_SLOW);
    attempt.plan.undo_after_seconds = 20;
    let broken = ("kube-scheduler".to_owned(), "v1.36.3".to_owned());
    attempt.host.faults.broken_parts.insert(broken);
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::UNDONE, StepOutcome::Undone), "{ended:?}");
    // With the old parts well again it would go on, and write the new version for the whole cluster.
    attempt.pass(Duration::from_secs(400));
    attempt.assert_put_back(FIRST_SLOW);
}

#[test]
fn p40_a_bundle_that_was_tampered_with_is_refused() {
    let mut attempt = Attempt::new(WORKER);
    let bundle = Bundle::of(WORKER.via).with_tampered("kubernetes/v1.36.3/kubelet");
    let (machine, shared, now) = (
        attempt.host.machine.clone(),
        attempt.host.shared.clone(),
        attempt.host.now(),
    );
    attempt.host = SimHost::new(machine, &bundle, shared, now);
    attempt.before = attempt.host.tree().clone();
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert_eq!(ended.1.reason.as_deref(), Some("BundleUnavailable"));
    assert_eq!(attempt.changed_outside(), [""; 0]);
}

#[test]
fn p29_a_node_that_was_told_keys_takes_only_what_they_signed() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let mut bytes = [0; 32];
    bytes.copy_from_slice(pair.public_key().as_ref());
    let (ours, other) = (PublicKey::new(bytes).to_base64(), PublicKey::new([7; 32]).to_base64());
    let plain = Bundle::of(WORKER.via);
    let signed = plain.with_signature(|list| pair.sign(list).as_ref().to_vec());
    let elsewhere = plain.with_signature(|_| pair.sign(b"another list").as_ref().to_vec());
    for (what, key, bundle, said) in [
        ("signed", Some(&ours), &signed, ""),
        (
            "signed, and two keys while one goes",
            Some(&format!("{other} {ours}")),
            &signed,
            "",
        ),
        ("no key, no signature", None, &plain, ""),
        ("not signed", Some(&ours), &plain, "the bundle is not signed"),
        (
            "another key",
            Some(&other),
            &signed,
            "the bundle is not signed by the key",
        ),
        (
            "the signature of another list",
            Some(&ours),
            &elsewhere,
            "the bundle is not signed by the key",
        ),
        (
            "no key at all",
            Some(&"nonsense".to_owned()),
            &signed,
            "AFLOAT_BUNDLE_KEY holds no public key",
        ),
    ] {
        let mut attempt = Attempt::new(WORKER);
        let host = &attempt.host;
        attempt.host = SimHost::new(host.machine.clone(), bundle, host.shared.clone(), host.now());
        attempt.before = attempt.host.tree().clone();
        attempt.plan.bundle_key = key.cloned();
        let ended = attempt.upgrade();
        if said.is_empty() {
            assert_eq!(ended.0, exit::DONE, "{what}: {ended:?}");
            continue;
        }
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{what}");
        assert_eq!(ended.1.reason.as_deref(), Some("BundleUnavailable"), "{what}");
        assert!(ended.1.message.starts_with(said), "{what}: {}", ended.1.message);
        assert_eq!(attempt.changed_outside(), [""; 0], "{what}");
    }
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

/// Undoing ends parts as well: it does not begin what it could not finish, and says who is missed.
#[test]
fn an_undoing_waits_for_the_other_members_before_it_touches_anything() {
    let mut attempt = Attempt::new(OTHER);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.host.member.peers[1].healthy = false;
    let ended = attempt.step(steps::ROLLBACK);
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert_eq!(ended.1.reason.as_deref(), Some("RollbackFailed"));
    assert!(ended.1.message.contains("10.0.0.3"), "{}", ended.1.message);
    attempt.assert_at_target(OTHER);
    attempt.host.member.peers[1].healthy = true;
    put_back(&mut attempt, OTHER);
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
fn a_part_that_does_not_end_is_killed() {
    let mut attempt = Attempt::new(OTHER);
    attempt.host.faults.stubborn_parts.insert("kube-apiserver".to_owned());
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER);
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

#[test]
fn a_journal_that_was_damaged_is_not_guessed_at() {
    let mut attempt = Attempt::new(WORKER);
    attempt.step(steps::STAGE);
    let damaged = attempt.journal().replace("copies the bundle", "copies a bundle");
    attempt.host.put(paths::JOURNAL, &damaged);
    let now = attempt.host.now();
    let refused = Engine::default().advance(&mut attempt.host, now);
    let message = refused.unwrap_err().to_string();
    assert!(
        message.starts_with("line 4 of /var/lib/afloat/journal is damaged"),
        "{message}"
    );
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
