//! Another bundle of the version that is there: tags of etcd and CoreDNS that kubeadm would not choose.

use super::*;

fn tags(attempt: &Attempt) -> (Option<String>, Option<String>) {
    let shared = attempt.host.shared.get();
    (shared.etcd_tag.clone(), shared.core_dns_tag.clone())
}

#[test]
fn p22_p46_tags_that_a_person_names_are_written_into_kubeadms_configuration_and_nothing_else_is() {
    for case in [SAME_VERSION, SAME_VERSION_SLOW] {
        let mut attempt = Attempt::new(case);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}\n{}", attempt.journal());
        let (etcd, core_dns) = case.images.unwrap();
        assert_eq!(
            tags(&attempt),
            (Some(etcd.to_owned()), Some(core_dns.to_owned())),
            "{case:?}"
        );
        attempt.assert_at_target(case);
    }
    // Where none is named kubeadm has the last word, and a tag of a person's stays.
    let mut attempt = Attempt::new(FIRST);
    attempt.host.shared.get().core_dns_tag = Some("mine".to_owned());
    assert_eq!(attempt.upgrade().0, exit::DONE);
    assert_eq!(tags(&attempt), (None, Some("mine".to_owned())));
}

#[test]
fn p46_one_that_follows_takes_the_tags_that_the_first_has_named() {
    let case = Case {
        role: NodeRole::ControlPlane,
        ..SAME_VERSION
    };
    let mut attempt = Attempt::new(case);
    {
        let mut shared = attempt.host.shared.get();
        shared.etcd_tag = Some("3.6.9-0".to_owned());
        shared.core_dns_tag = Some("v1.14.3".to_owned());
        "v1.14.3".clone_into(&mut shared.core_dns);
    }
    assert_eq!(attempt.upgrade().0, exit::DONE, "{}", attempt.journal());
    attempt.assert_at_target(case);
    assert!(!attempt.journal().contains("names the images"), "{}", attempt.journal());
}

#[test]
fn p46_an_etcd_older_than_the_one_that_runs_is_refused_before_anything_is_touched() {
    let case = Case {
        images: Some(("3.5.21-0", "v1.14.3")),
        ..SAME_VERSION
    };
    let mut attempt = Attempt::new(case);
    let (code, report) = attempt.upgrade();
    assert_eq!(code, exit::FAILED, "{report:?}");
    let said = "etcd is at 3.6.8-0 here: 3.5.21-0 would be a downgrade";
    assert!(report.message.contains(said), "{report:?}");
    assert_eq!(tags(&attempt), (None, None));
    put_back(&mut attempt, case);
}

#[test]
fn what_somebody_else_writes_meanwhile_is_not_overruled() {
    let mut attempt = Attempt::new(SAME_VERSION);
    for step in [steps::STAGE, steps::STAND_ASIDE, steps::CONTAINERD, steps::CNI] {
        attempt.step_patiently(step);
    }
    let now = attempt.host.now();
    let (host, plan) = (&mut attempt.host, &attempt.plan);
    attempt.engine.begin(host, plan, steps::KUBEADM, now).unwrap();
    attempt.until("names the images");
    // Read by now or not: a write under an old revision is refused, and the next try sees this.
    attempt.host.shared.get().write_config("mine");
    assert_eq!(attempt.upgrade().0, exit::DONE, "{}", attempt.journal());
    assert_eq!(attempt.host.shared.get().cluster_name, "mine");
    attempt.assert_at_target(SAME_VERSION);
}

/// What CoreDNS runs.
fn core_dns(attempt: &Attempt) -> String {
    attempt.host.shared.get().core_dns.clone()
}

#[test]
fn p46_a_core_dns_that_is_newer_than_kubeadms_own_is_brought_once_and_stays_for_the_next_control_planes() {
    for case in [SAME_VERSION, SAME_VERSION_SLOW] {
        let mut shared = None;
        for role in [
            NodeRole::FirstControlPlane,
            NodeRole::ControlPlane,
            NodeRole::ControlPlane,
        ] {
            let mut attempt = Attempt::new(Case { role, ..case });
            if let Some(shared) = shared {
                attempt.host.shared = shared;
            }
            assert_eq!(attempt.upgrade().0, exit::DONE, "{role:?}\n{}", attempt.journal());
            assert_eq!(core_dns(&attempt), "v1.14.3", "{role:?}");
            shared = Some(attempt.host.shared.clone());
        }
    }
}

#[test]
fn p7_p46_a_patch_release_follows_where_core_dns_is_newer_than_kubeadms_own() {
    for case in [FIRST, FIRST_SLOW, SINGLE, OTHER, OTHER_SLOW] {
        let case = Case {
            from: "v1.36.1",
            ..case
        };
        let mut attempt = Attempt::new(case);
        {
            let mut shared = attempt.host.shared.get();
            shared.core_dns_tag = Some("v1.14.3".to_owned());
            "v1.14.3".clone_into(&mut shared.core_dns);
        }
        assert_eq!(attempt.upgrade().0, exit::DONE, "{case:?}\n{}", attempt.journal());
        assert_eq!(core_dns(&attempt), "v1.14.3", "{case:?}");
        let proxy = attempt.host.shared.get().add_ons["daemonset/kube-proxy"].clone();
        let last = case.role == NodeRole::ControlPlane || case.peers == 0;
        assert_eq!(proxy, if last { "v1.36.3" } else { "v1.36.1" }, "{case:?}");
    }
}

#[test]
fn p46_with_a_new_minor_the_last_control_plane_brings_the_core_dns_that_was_named() {
    let case = Case {
        images: Some(("3.6.9-0", "v1.14.3")),
        ..OTHER
    };
    let mut attempt = Attempt::new(case);
    {
        let mut shared = attempt.host.shared.get();
        shared.etcd_tag = Some("3.6.9-0".to_owned());
        shared.core_dns_tag = Some("v1.14.3".to_owned());
    }
    assert_eq!(core_dns(&attempt), "v1.13.1");
    assert_eq!(attempt.upgrade().0, exit::DONE, "{}", attempt.journal());
    assert_eq!(core_dns(&attempt), "v1.14.3");
    attempt.assert_at_target(case);
}
