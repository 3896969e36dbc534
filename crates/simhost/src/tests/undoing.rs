//! Back to how it was: by the step that undoes, and by the host itself where a node does not come back.

use super::super::Own;
use super::*;

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
fn k2_add_ons_that_kubeadm_brought_with_the_last_control_plane_go_back_with_it() {
    for case in [SINGLE, OTHER, OTHER_SLOW] {
        let mut attempt = Attempt::new(case);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}");
        let proxy = attempt.host.shared.get().add_ons.get("daemonset/kube-proxy").cloned();
        assert_eq!(proxy.as_deref(), Some("v1.36.3"), "{case:?}");
        put_back(&mut attempt, case);
    }
}

#[test]
fn p42_add_ons_that_kubeadm_did_not_touch_are_not_put_back() {
    let mut attempt = Attempt::new(FIRST);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    // A person has changed it meanwhile; the others are not upgraded yet, so kubeadm has left it alone.
    let mine = ("daemonset/kube-proxy".to_owned(), "mine".to_owned());
    attempt.host.shared.get().add_ons.extend([mine]);
    assert_eq!(attempt.step_patiently(steps::ROLLBACK).0, exit::DONE);
    let shared = attempt.host.shared.get();
    assert_eq!(
        shared.add_ons.get("daemonset/kube-proxy").map(String::as_str),
        Some("mine")
    );
    assert_eq!(shared.kubernetes_version, FIRST.from);
}

/// Takes a node as far as the journal says this of its `kubeadm`, with nothing in the cluster reachable from then on.
fn cut_off_at(case: Case, said: &str) -> Attempt {
    let mut attempt = Attempt::new(case);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    attempt.until(said);
    attempt.host.faults.endpoint_away = true;
    attempt
}

#[test]
fn k2_a_node_from_which_kubeadm_has_not_written_to_the_cluster_is_undone_without_it() {
    for (case, said) in [
        (FIRST, "starts the kubelet"),
        (OTHER, "starts the kubelet"),
        (SINGLE, "renews certificates"),
        (FIRST_SLOW, "remembers the API server's process"),
    ] {
        let mut attempt = cut_off_at(case, said);
        assert!(attempt.journal().contains("[\"cluster\",\"kept\"]"), "{case:?}");
        put_back(&mut attempt, case);
    }
}

#[test]
fn k2_what_kubeadm_may_have_written_to_the_cluster_is_not_taken_for_put_back_without_it() {
    for (case, said) in [
        (SINGLE, "lets kubeadm finish the upgrade"),
        (FIRST_SLOW, "runs kubeadm upgrade without etcd"),
    ] {
        let mut attempt = cut_off_at(case, said);
        let ended = attempt.step_patiently(steps::ROLLBACK);
        assert_eq!(
            outcome(&ended),
            (exit::FAILED, StepOutcome::Failed),
            "{case:?} {ended:?}"
        );
        assert!(ended.1.message.contains("kubectl"), "{ended:?}");
        attempt.host.faults.endpoint_away = false;
        put_back(&mut attempt, case);
    }
}

#[test]
fn p42_a_file_beside_kubeadms_own_that_a_person_changed_since_stays() {
    let files = ["/etc/kubernetes/cloud.conf", "/etc/kubernetes/pki/webhook.crt"];
    let mut attempt = Attempt::new(FIRST);
    for file in files {
        attempt.host.put(file, "before");
    }
    assert_eq!(attempt.upgrade().0, exit::DONE);
    for file in files {
        attempt.host.put(file, "changed since");
    }
    assert_eq!(attempt.step_patiently(steps::ROLLBACK).0, exit::DONE);
    for file in files {
        assert_eq!(attempt.text(file).as_deref(), Some("changed since"), "{file}");
    }
}

#[test]
fn an_add_on_that_was_not_there_before_goes_again() {
    let mut attempt = Attempt::new(SINGLE);
    let lacks = |name: &str| name.ends_with("kube-proxy");
    attempt.host.shared.get().add_ons.retain(|name, _| !lacks(name));
    let before = attempt.host.shared.get().add_ons.clone();
    assert_eq!(attempt.upgrade().0, exit::DONE);
    assert!(attempt.host.shared.get().add_ons.keys().any(|name| lacks(name)));
    assert_eq!(attempt.step_patiently(steps::ROLLBACK).0, exit::DONE);
    assert_eq!(attempt.host.shared.get().add_ons, before);
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
fn containers_of_an_attempt_that_is_over_change_nothing_once_another_has_begun() {
    let mut attempt = Attempt::new(WORKER);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    let over = attempt.plan.clone();
    attempt.plan.upgrade = "the-next-hop".to_owned();
    assert_eq!(attempt.step(steps::STAGE).0, exit::DONE);
    let staged = attempt.journal();
    // After a restart of the machine the kubelet runs all containers of a pod again that it has not yet heard the end of.
    let now = attempt.host.now();
    for step in node_steps::ORDER.into_iter().chain([steps::ROLLBACK]) {
        let refused = attempt.engine.begin(&mut attempt.host, &over, step, now);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("another has begun since"), "{step}: {message}");
    }
    assert_eq!(attempt.journal(), staged);
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

/// Cuts the power for so long as soon as the journal says this, and starts another engine with the machine.
pub(super) fn off_at(attempt: &mut Attempt, said: &str, time: Duration) {
    attempt.until(said);
    off_for(attempt, time);
}

fn off_for(attempt: &mut Attempt, time: Duration) {
    attempt.host.lose_power();
    attempt.engine = Engine::default();
    attempt.pass(time);
    attempt.host.boot();
}

const LONG: Duration = Duration::from_hours(3);

#[test]
fn a_node_that_was_long_without_power_is_given_time_to_come_up() {
    for (case, step) in [
        (WORKER, steps::KUBELET),
        (OTHER, steps::KUBEADM),
        (SINGLE, steps::KUBEADM),
    ] {
        let mut attempt = Attempt::new(case);
        for earlier in node_steps::ORDER.into_iter().take_while(|name| *name != step) {
            assert_eq!(attempt.step_patiently(earlier).0, exit::DONE, "{case:?} {earlier}");
        }
        let now = attempt.host.now();
        attempt
            .engine
            .begin(&mut attempt.host, &attempt.plan, step, now)
            .unwrap();
        off_at(&mut attempt, "starts the kubelet", LONG);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}\n{}", attempt.journal());
        attempt.assert_at_target(case);
    }
}

#[test]
fn an_undoing_that_was_long_without_power_is_given_time_too() {
    let mut attempt = Attempt::new(WORKER);
    assert_eq!(attempt.upgrade().0, exit::DONE);
    let now = attempt.host.now();
    attempt
        .engine
        .begin_rollback(&mut attempt.host, &attempt.plan, now)
        .unwrap();
    off_at(&mut attempt, "waits until all parts of the node are well", LONG);
    put_back(&mut attempt, WORKER);
}

#[test]
fn k2_a_broken_kubelet_is_put_back_also_where_the_machine_restarts_again_and_again() {
    let mut attempt = Attempt::new(WORKER);
    attempt.host.faults.broken_kubelets.insert("v1.36.3".to_owned());
    for step in [steps::STAGE, steps::CONTAINERD, steps::CNI, steps::KUBEADM] {
        assert_eq!(attempt.step_patiently(step).0, exit::DONE);
    }
    let now = attempt.host.now();
    attempt
        .engine
        .begin(&mut attempt.host, &attempt.plan, steps::KUBELET, now)
        .unwrap();
    off_at(&mut attempt, "starts the kubelet", LONG);
    // As by something that restarts machines whose node is not ready.
    for _ in 0..20 {
        for _ in 0..100 {
            attempt.turn();
            attempt.pass(Duration::from_secs(2));
        }
        off_for(&mut attempt, Duration::from_secs(20));
    }
    attempt.quiet();
    attempt.assert_put_back(WORKER);
}

/// As a machine boots without a clock of its own, or one set to local time: by how much it is wrong in the boot in which the kubelet is
/// swapped, and in the next one.
const CLOCKS: [(i64, i64); 5] = [(0, 3), (3, 0), (0, -3), (-3, 0), (3, -3)];

/// The kubelet is swapped, the power goes, and the engine looks again and again for twenty minutes after the boot.
fn swapped_by_wrong_clocks(attempt: &mut Attempt, (before, after): (i64, i64)) {
    for step in [steps::STAGE, steps::CONTAINERD, steps::CNI, steps::KUBEADM] {
        assert_eq!(attempt.step_patiently(step).0, exit::DONE);
    }
    let by = |attempt: &Attempt, hours| attempt.host.now() + SignedDuration::from_hours(hours);
    let now = by(attempt, before);
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBELET, now).unwrap();
    while !attempt.journal().contains("starts the kubelet") {
        let now = by(attempt, before);
        attempt.engine.advance(&mut attempt.host, now).unwrap();
        attempt.pass(Duration::from_millis(250));
    }
    off_for(attempt, Duration::from_secs(20));
    let booted = attempt.host.now();
    while attempt.host.now().duration_since(booted).as_mins() < 20 {
        let now = by(attempt, after);
        match attempt.engine.advance(&mut attempt.host, now) {
            Ok(Next::Again { after, .. }) => attempt.pass(after.max(Duration::from_millis(100))),
            Ok(Next::Idle) => attempt.pass(Duration::from_mins(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn k2_whatever_clock_a_boot_finds_a_broken_node_is_put_back_and_a_good_one_is_not() {
    for clocks in CLOCKS {
        let mut attempt = Attempt::new(WORKER);
        attempt.host.faults.broken_kubelets.insert("v1.36.3".to_owned());
        swapped_by_wrong_clocks(&mut attempt, clocks);
        attempt.assert_put_back(WORKER);

        let mut attempt = Attempt::new(WORKER);
        swapped_by_wrong_clocks(&mut attempt, clocks);
        let journal = attempt.journal();
        assert!(!journal.contains("\"step\":\"rollback\""), "{clocks:?}: {journal}");
        let (code, _) = attempt.step_patiently(steps::KUBELET);
        assert_eq!(code, exit::DONE, "{clocks:?}");
    }
}

/// A machine may boot another kernel than it ran before.
#[test]
fn k2_a_node_that_cannot_stand_aside_any_more_is_put_back_all_the_same() {
    let mut attempt = Attempt::new(OTHER);
    let broken = ("kube-apiserver".to_owned(), "v1.36.3".to_owned());
    attempt.host.faults.broken_parts.insert(broken);
    for step in node_steps::ORDER.into_iter().take_while(|name| *name != steps::KUBEADM) {
        assert_eq!(attempt.step_patiently(step).0, exit::DONE, "{step}");
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    off_at(&mut attempt, "starts the kubelet", Duration::from_secs(20));
    attempt.host.faults.no_netfilter = true;
    for _ in 0..4_000 {
        if attempt.journal().contains("\"step\":\"rollback\"") && attempt.turn() == Next::Idle {
            break;
        }
        attempt.turn();
        attempt.pass(Duration::from_secs(1));
    }
    attempt.assert_put_back(OTHER);
}

#[test]
fn a_boot_that_cannot_be_told_from_others_is_no_new_one() {
    let mut attempt = Attempt::new(OTHER);
    attempt.host.faults.boot_failures = u32::MAX;
    assert_eq!(attempt.upgrade().0, exit::DONE);
    attempt.assert_at_target(OTHER);
    assert!(
        !attempt.journal().contains("\"is\":\"booted\""),
        "{}",
        attempt.journal()
    );
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
    attempt.host.faults.broken_parts.insert(broken);
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::UNDONE, StepOutcome::Undone), "{ended:?}");
    assert_eq!(attempt.changed_outside(), [""; 0]);
    assert_eq!(attempt.host.member.own, Some(Own::first()), "it is the same member");
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
