//! A broken etcd member of a control plane that is undone: the old binary on its live data, joined anew where that does not help, the
//! snapshot where there is nobody to join; and never a quorum lost, a cluster begun, or data deleted.

use super::super::{Own, etcd_tag};
use super::crashes::at_every_operation;
use super::undoing::off_at;
use super::*;
use afloat_node::host::{Signal, UnitOrder};

const DATABASE: &str = "/var/lib/etcd/member/snap/db";
const ASIDE: &str = "/var/lib/etcd/afloat-aside-1/snap/db";
/// As short as kubeadm's own waits allow: hundreds of crashes take their time.
const SOON: u32 = 150;
/// Over a minor version of etcd.
const OVER_MINOR: Case = Case {
    from: "v1.33.2",
    via: &["v1.34.4"],
    ..FIRST
};
const OTHER_OVER_MINOR: Case = Case {
    role: NodeRole::ControlPlane,
    ..OVER_MINOR
};
const SINGLE_SLOW: Case = Case {
    method: Some(ControlPlaneMethod::Conservative),
    ..SINGLE
};

fn new_tag(attempt: &Attempt) -> String {
    etcd_tag(&attempt.plan.kubelet_version).to_owned()
}

/// The new etcd damages its data: no etcd starts on it any more.
fn damaged(attempt: &mut Attempt) {
    let tag = new_tag(attempt);
    attempt.host.faults.damaging_etcds.insert(tag);
}

/// The others were upgraded before: with this one the cluster moves.
fn damaged_and_moved(attempt: &mut Attempt) {
    damaged(attempt);
    let tag = new_tag(attempt);
    attempt.host.faults.moving_etcds.insert(tag);
}

fn undone(attempt: &mut Attempt) -> StepReport {
    let ended = attempt.upgrade();
    let journal = attempt.journal();
    assert_eq!(
        outcome(&ended),
        (exit::UNDONE, StepOutcome::Undone),
        "{ended:?}\n{journal}"
    );
    ended.1
}

/// All is as it was but for etcd, which is a member anew; its former data is beside the new.
fn assert_joined_anew(attempt: &Attempt, case: Case) {
    let journal = attempt.journal();
    let own = Own { id: 2, ..Own::first() };
    assert_eq!(attempt.host.member.own, Some(own), "{case:?}\n{journal}");
    assert_eq!(attempt.host.member.new_clusters, 0, "{case:?}\n{journal}");
    assert!(attempt.host.etcd_healthy(), "{case:?}\n{journal}");
    assert!(attempt.host.kubelet_ready(), "{case:?}\n{journal}");
    assert_eq!(attempt.host.kubelet_version(), Some(case.from), "{case:?}");
    assert_eq!(attempt.host.forwarding_to(), None, "{case:?}");
    assert_eq!(attempt.text(ASIDE).as_deref(), Some("damaged"), "{case:?}");
    assert_eq!(attempt.text(DATABASE).as_deref(), Some("member 2\n"), "{case:?}");
    let manifest = attempt.text(&paths::manifest("etcd")).unwrap();
    let cluster = "--initial-cluster=10.0.0.2=https://10.0.0.2:2380,10.0.0.3=https://10.0.0.3:2380,10.0.0.1=https://10.0.0.1:2380\n";
    assert!(manifest.contains(cluster), "{manifest}");
    assert!(manifest.contains("--initial-cluster-state=existing\n"), "{manifest}");
    assert_eq!(manifest.matches("--initial-cluster=").count(), 1, "{manifest}");
    assert_eq!(
        attempt.changed_outside(),
        [paths::manifest("etcd").as_str(), ASIDE, DATABASE],
        "{case:?}"
    );
    assert!(attempt.changed_outside().iter().all(|path| may_touch(path)));
}

fn etcd_runs_at(attempt: &Attempt) -> String {
    let parts = attempt.host.static_parts();
    let etcd = parts.iter().find(|part| part.name == "etcd");
    etcd.map(|part| part.version.to_string()).unwrap_or_default()
}

#[test]
fn k2_a_member_that_starts_on_its_data_no_more_is_joined_anew_at_its_old_version() {
    for case in [FIRST, OTHER, FIRST_SLOW, OTHER_SLOW, OVER_MINOR] {
        let mut attempt = Attempt::new(case);
        damaged(&mut attempt);
        let report = undone(&mut attempt);
        assert_joined_anew(&attempt, case);
        assert_eq!(etcd_runs_at(&attempt), etcd_tag(case.from), "{case:?}");
        assert!(report.message.contains("removed and joined anew"), "{report:?}");
        assert!(report.message.contains("afloat-aside-1"), "{report:?}");
        // The next attempt finds nothing odd about it.
        attempt.host.faults.damaging_etcds.clear();
        attempt.plan.attempt = 2;
        let ended = attempt.upgrade();
        assert_eq!(ended.0, exit::DONE, "{case:?} {ended:?}");
        if case.method.is_none() {
            assert_eq!(method(&mut attempt), "swift", "{case:?}");
        }
        attempt.assert_at_target(case);
    }
}

#[test]
fn k2_a_member_whose_cluster_has_moved_is_joined_anew_at_its_new_version_at_once() {
    for case in [OVER_MINOR, OTHER_OVER_MINOR] {
        let mut attempt = Attempt::new(case);
        damaged_and_moved(&mut attempt);
        undone(&mut attempt);
        assert_joined_anew(&attempt, case);
        assert_eq!(etcd_runs_at(&attempt), "3.6.4-0", "3.5 cannot join a cluster of 3.6");
        let journal = attempt.journal();
        assert!(!journal.contains("waits for this node's etcd member"), "{journal}");
    }
}

#[test]
fn k2_a_crash_at_any_operation_of_the_joining_changes_nothing_about_its_end() {
    let run = |attempt: &mut Attempt| {
        attempt.plan.undo_after_seconds = SOON;
        damaged(attempt);
        undone(attempt);
    };
    for case in [FIRST, OTHER_SLOW] {
        at_every_operation(case, run, assert_joined_anew);
    }
    let run = |attempt: &mut Attempt| {
        attempt.plan.undo_after_seconds = SOON;
        damaged_and_moved(attempt);
        undone(attempt);
    };
    at_every_operation(OVER_MINOR, run, assert_joined_anew);
}

#[test]
fn rule_2_of_two_members_none_is_removed() {
    let mut attempt = Attempt::new(Case { peers: 1, ..FIRST });
    damaged(&mut attempt);
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert_eq!(ended.1.reason.as_deref(), Some("RollbackFailed"));
    assert!(
        ended.1.message.contains("the other one alone is no quorum"),
        "{ended:?}"
    );
    assert_eq!(attempt.host.member.own, Some(Own::first()));
    assert_eq!(attempt.text(DATABASE).as_deref(), Some("damaged"), "it was not moved");
}

/// Upgrades as far as the journal says this, in the undoing of a damaged member; then another one goes, and it ends without success.
fn another_goes(said: &str) -> (Attempt, StepReport) {
    let mut attempt = Attempt::new(OTHER);
    damaged(&mut attempt);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    attempt.until(said);
    attempt.host.member.peers[1].healthy = false;
    let ended = attempt.step(steps::KUBEADM);
    assert_eq!(
        outcome(&ended),
        (exit::FAILED, StepOutcome::Failed),
        "{said} {ended:?}\n{}",
        attempt.journal()
    );
    // Whoever brings it back asks again, which takes a kubelet; and no restart may begin a cluster.
    assert!(attempt.host.kubelet_running(), "{said}");
    attempt.host.reboot();
    attempt.pass(Duration::from_mins(1));
    assert_eq!(attempt.host.member.new_clusters, 0, "{said}");
    (attempt, ended.1)
}

/// The other one is back, and somebody asks again.
fn asked_again(attempt: &mut Attempt) -> StepReport {
    attempt.host.member.peers[1].healthy = true;
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(ended.0, exit::DONE, "{ended:?}\n{}", attempt.journal());
    attempt.quiet();
    ended.1
}

#[test]
fn rule_2_no_member_is_removed_while_another_is_not_healthy() {
    for said in [
        "waits for this node's etcd member",
        "ends etcd\",\"at\":\"2026-11-15T20:20",
    ] {
        let (mut attempt, report) = another_goes(said);
        assert_eq!(attempt.host.member.own, Some(Own::first()), "{}", attempt.journal());
        assert!(report.message.contains("10.0.0.3 is not healthy"), "{report:?}");
        assert!(report.message.contains("help: bring that one back"), "{report:?}");
        assert_eq!(attempt.text(DATABASE).as_deref(), Some("damaged"));
        asked_again(&mut attempt);
        assert_joined_anew(&attempt, OTHER);
    }
}

#[test]
fn k2_what_was_removed_and_not_yet_added_is_added_when_somebody_asks_again() {
    let (mut attempt, _) = another_goes("removes this node's broken member");
    assert_eq!(attempt.host.member.own, None, "{}", attempt.journal());
    assert_eq!(attempt.text(DATABASE).as_deref(), Some("damaged"), "it goes last");
    asked_again(&mut attempt);
    assert_joined_anew(&attempt, OTHER);
}

#[test]
fn k2_a_new_member_that_never_catches_up_is_removed_and_joined_once_more() {
    let (mut attempt, report) = another_goes("adds this node to etcd");
    assert!(
        report.message.contains("is not healthy after 600 seconds"),
        "{report:?}"
    );
    let report = asked_again(&mut attempt);
    let own = Own { id: 3, ..Own::first() };
    assert_eq!(attempt.host.member.own, Some(own), "{}", attempt.journal());
    assert!(attempt.host.etcd_healthy() && attempt.host.kubelet_ready());
    assert_eq!(attempt.host.member.new_clusters, 0);
    // What each of them had is still there, and named.
    assert_eq!(attempt.text(ASIDE).as_deref(), Some("damaged"));
    let second = "/var/lib/etcd/afloat-aside-2";
    assert_eq!(
        attempt.text(&format!("{second}/snap/db")).as_deref(),
        Some("member 2\n")
    );
    assert!(
        report.message.contains(second) && report.message.contains("afloat-aside-1"),
        "{report:?}"
    );
}

#[test]
fn a_kubelet_that_does_not_start_is_no_proof_against_etcd() {
    let mut attempt = Attempt::new(FIRST);
    attempt.host.faults.broken_kubelets = ["v1.36.3", "v1.35.4"].map(str::to_owned).into();
    attempt.step(steps::STAGE);
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert!(ended.1.message.contains("the kubelet did not come back"), "{ended:?}");
    assert_eq!(attempt.host.member.own, Some(Own::first()));
    attempt.host.faults.broken_kubelets.clear();
    put_back(&mut attempt, FIRST);
}

/// All is as it was, the data of etcd that of its snapshot.
fn assert_returned(attempt: &Attempt, case: Case) {
    assert_eq!(attempt.host.member.new_clusters, 0, "{case:?}\n{}", attempt.journal());
    assert_eq!(attempt.text(ASIDE).as_deref(), Some("damaged"), "{case:?}");
    let mut rest = attempt.clone();
    rest.host.remove("/var/lib/etcd/afloat-aside-1").unwrap();
    rest.assert_put_back(case);
}

#[test]
fn k2_a_single_node_whose_etcd_starts_no_more_goes_back_to_its_snapshot_and_says_what_is_lost() {
    for case in [SINGLE, SINGLE_SLOW] {
        let mut attempt = Attempt::new(case);
        damaged(&mut attempt);
        let report = undone(&mut attempt);
        assert_returned(&attempt, case);
        assert_eq!(etcd_runs_at(&attempt), etcd_tag(case.from));
        assert!(
            report.message.contains("written to the cluster since 2026-11-15T20:"),
            "{report:?}"
        );
        assert!(report.message.contains("is lost"), "{report:?}");
        assert!(report.message.contains("/var/lib/etcd/afloat-aside-1"), "{report:?}");
    }
}

#[test]
fn k2_a_crash_at_any_operation_of_the_return_to_the_snapshot_changes_nothing_about_its_end() {
    let run = |attempt: &mut Attempt| {
        attempt.plan.undo_after_seconds = SOON;
        damaged(attempt);
        undone(attempt);
    };
    for case in [SINGLE, SINGLE_SLOW] {
        at_every_operation(case, run, assert_returned);
    }
}

#[test]
fn k2_a_single_node_whose_old_etcd_starts_on_its_data_loses_nothing() {
    let mut attempt = Attempt::new(SINGLE);
    let broken = ("etcd".to_owned(), "3.6.8-0".to_owned());
    attempt.host.faults.broken_parts.insert(broken);
    let report = undone(&mut attempt);
    attempt.assert_put_back(SINGLE);
    assert!(!report.message.contains("lost"), "{report:?}");
    // With peers none is taken: old data is never put over a member that has any.
    let mut attempt = Attempt::new(FIRST);
    attempt.upgrade();
    assert!(!attempt.journal().contains("snapshot"), "{}", attempt.journal());
}

#[test]
fn k2_a_snapshot_that_cannot_be_put_back_begins_no_cluster_and_is_put_back_later() {
    let mut attempt = Attempt::new(SINGLE);
    damaged(&mut attempt);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    attempt.until("moves etcd's former data aside");
    attempt.host.faults.copy_failures = u32::MAX;
    let ended = attempt.step(steps::KUBEADM);
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    attempt.host.reboot();
    attempt.pass(Duration::from_mins(1));
    assert_eq!(attempt.host.member.new_clusters, 0);
    attempt.host.faults.copy_failures = 0;
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(ended.0, exit::DONE, "{ended:?}\n{}", attempt.journal());
    assert!(ended.1.message.contains("is lost"), "{ended:?}");
    attempt.quiet();
    assert_returned(&attempt, SINGLE);
}

/// A member that nobody has started is not a broken one: the new version is started on its data, which the old one could not read.
#[test]
fn k2_a_member_that_was_well_and_is_only_stopped_stays_at_its_new_version() {
    let single = Case { peers: 0, ..OVER_MINOR };
    for case in [OVER_MINOR, single] {
        let mut attempt = Attempt::new(case);
        let tag = new_tag(&attempt);
        attempt.host.faults.moving_etcds.insert(tag);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}");
        attempt.host.order(paths::KUBELET_UNIT, UnitOrder::Stop).unwrap();
        for part in paths::PARTS {
            attempt.host.signal(part, Signal::Kill).unwrap();
        }
        attempt.pass(Duration::from_mins(1));
        assert!(!attempt.host.etcd_healthy());
        put_back(&mut attempt, case);
        assert_eq!(etcd_runs_at(&attempt), "3.6.4-0", "{case:?}");
        assert_eq!(attempt.host.member.own, Some(Own::first()), "{case:?}");
        assert_eq!(attempt.text(DATABASE).as_deref(), Some("member 1\n"), "{case:?}");
    }
}

const OUTAGE: Duration = Duration::from_hours(1);
/// The upgrade has waited for the others too.
const WAITS: &str = "\"step\":\"rollback\",\"number\":2,\"what\":\"waits until etcd can go on";

/// A node that was upgraded over a minor version of etcd, whose etcd takes a while to start from now on, and that is to be undone.
fn undone_with_a_slow_etcd(case: Case) -> Attempt {
    let mut attempt = Attempt::new(case);
    let tag = new_tag(&attempt);
    attempt.host.faults.moving_etcds.insert(tag);
    assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}");
    attempt.host.faults.slow_parts.insert("etcd".to_owned(), 25);
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin_rollback(host, plan, now).unwrap();
    attempt
}

/// Before anything is undone nothing is armed, and the time without power counts as little as later on.
#[test]
fn k2_a_member_that_only_starts_after_a_long_time_without_power_is_not_taken_for_a_broken_one() {
    let single = Case { peers: 0, ..OVER_MINOR };
    for case in [OVER_MINOR, OTHER_OVER_MINOR, single] {
        let mut attempt = undone_with_a_slow_etcd(case);
        // It is starting when the undoing first looks at it, and again after the outage.
        attempt.host.reboot();
        attempt.engine = Engine::default();
        off_at(&mut attempt, "looks at this node's etcd member", OUTAGE);
        put_back(&mut attempt, case);
        assert_eq!(etcd_runs_at(&attempt), "3.6.4-0", "{case:?}\n{}", attempt.journal());
        assert_eq!(attempt.host.member.own, Some(Own::first()), "{case:?}");
        assert_eq!(attempt.text(DATABASE).as_deref(), Some("member 1\n"), "{case:?}");
    }
}

/// A member that is away gets its time anew when this machine was off, as does this node's own.
#[test]
fn rule_2_a_member_that_is_away_is_waited_for_after_a_long_time_without_power_as_before_it() {
    for up_by_then in [true, false] {
        let mut attempt = undone_with_a_slow_etcd(OTHER_OVER_MINOR);
        attempt.host.member.peers[1].healthy = false;
        off_at(&mut attempt, WAITS, OUTAGE);
        if up_by_then {
            attempt.pass(Duration::from_secs(40));
        }
        for _ in 0..120 {
            attempt.turn();
            attempt.pass(Duration::from_millis(500));
        }
        attempt.host.member.peers[1].healthy = true;
        put_back(&mut attempt, OTHER_OVER_MINOR);
        assert!(!attempt.journal().contains("RollbackFailed"), "{}", attempt.journal());
        assert_eq!(attempt.host.member.own, Some(Own::first()));
    }
}

/// What the way forward has used up of it is not missed on the way back.
#[test]
fn an_undoing_waits_after_boots_however_often_the_machine_was_started_before() {
    let mut attempt = Attempt::new(OVER_MINOR);
    let tag = new_tag(&attempt);
    attempt.host.faults.moving_etcds.insert(tag);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    attempt.until("lets kubeadm finish the upgrade");
    for _ in 0..4 {
        attempt.host.reboot();
        attempt.engine = Engine::default();
        attempt.turn();
    }
    attempt.host.faults.slow_parts.insert("etcd".to_owned(), 25);
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin_rollback(host, plan, now).unwrap();
    attempt.host.reboot();
    attempt.engine = Engine::default();
    off_at(&mut attempt, "looks at this node's etcd member", OUTAGE);
    put_back(&mut attempt, OVER_MINOR);
    assert_eq!(etcd_runs_at(&attempt), "3.6.4-0", "{}", attempt.journal());
}
