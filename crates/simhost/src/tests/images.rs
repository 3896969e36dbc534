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

/// What Afloat notes of both tags.
const NOTE: &str = r#"{"CoreDNS":"v1.13.2","etcd":"3.6.7-0"}"#;

/// A cluster whose configuration names tags, some of them Afloat's.
fn with_tags(case: Case, etcd: &str, core_dns: &str, note: Option<&str>) -> Attempt {
    let attempt = Attempt::new(case);
    {
        let mut shared = attempt.host.shared.get();
        shared.etcd_tag = Some(etcd.to_owned());
        shared.core_dns_tag = Some(core_dns.to_owned());
        core_dns.clone_into(&mut shared.core_dns);
        shared.named_images = note.map(str::to_owned);
    }
    attempt
}

#[test]
fn p46_tags_that_afloat_wrote_go_with_their_version_and_a_persons_stay() {
    let other_bundle = Case {
        from: "v1.36.3",
        ..FIRST
    };
    let named = Case {
        images: Some(("3.6.9-0", "v1.14.3")),
        ..FIRST
    };
    let ahead = r#"{"CoreDNS":"v1.14.3","etcd":"3.6.7-0"}"#;
    let (etcd, core_dns) = ("3.6.7-0", "v1.13.2");
    for (case, (etcd, core_dns, note), expected, note_then) in [
        (FIRST, (etcd, core_dns, Some(NOTE)), (None, None), None),
        (FIRST_SLOW, (etcd, core_dns, Some(NOTE)), (None, None), None),
        (SINGLE, (etcd, core_dns, Some(NOTE)), (None, None), None),
        // A person's, or by now a person's.
        (FIRST, (etcd, core_dns, None), (Some(etcd), Some(core_dns)), None),
        (FIRST, (etcd, "v1.13.3", Some(NOTE)), (None, Some("v1.13.3")), None),
        (
            FIRST,
            (etcd, core_dns, Some("mine")),
            (Some(etcd), Some(core_dns)),
            None,
        ),
        // The next kubeadm would bring an older one.
        (
            FIRST,
            (etcd, "v1.14.3", Some(ahead)),
            (None, Some("v1.14.3")),
            Some(r#"{"CoreDNS":"v1.14.3"}"#),
        ),
        // Another bundle of the same version.
        (
            other_bundle,
            (etcd, core_dns, Some(NOTE)),
            (Some(etcd), Some(core_dns)),
            Some(NOTE),
        ),
        // Others are named.
        (
            named,
            (etcd, core_dns, Some(NOTE)),
            (Some("3.6.9-0"), Some("v1.14.3")),
            Some(r#"{"CoreDNS":"v1.14.3","etcd":"3.6.9-0"}"#),
        ),
    ] {
        let mut attempt = with_tags(case, etcd, core_dns, note);
        let what = format!("{case:?} {etcd} {core_dns} {note:?}");
        assert_eq!(attempt.upgrade().0, exit::DONE, "{what}\n{}", attempt.journal());
        let (etcd, core_dns) = tags(&attempt);
        assert_eq!((etcd.as_deref(), core_dns.as_deref()), expected, "{what}");
        let noted = attempt.host.shared.get().named_images.clone();
        let noted = noted.filter(|noted| noted != "mine");
        assert_eq!(noted.as_deref(), note_then, "{what}");
        let parts = attempt.host.static_parts();
        let runs = parts.iter().find(|part| part.name == "etcd").unwrap();
        assert_eq!(&*runs.version, expected.0.unwrap_or("3.6.8-0"), "{what}");
    }
}

#[test]
fn p46_undoing_puts_back_tags_that_were_taken_out() {
    let mut attempt = with_tags(SINGLE, "3.6.7-0", "v1.13.2", Some(NOTE));
    assert_eq!(attempt.upgrade().0, exit::DONE, "{}", attempt.journal());
    assert_eq!(
        (tags(&attempt), core_dns(&attempt)),
        ((None, None), "v1.14.2".to_owned())
    );
    let ended = attempt.step_patiently(steps::ROLLBACK);
    assert_eq!(outcome(&ended), (exit::DONE, StepOutcome::Done), "{ended:?}");
    assert_eq!(tags(&attempt), (Some("3.6.7-0".to_owned()), Some("v1.13.2".to_owned())));
    assert_eq!(core_dns(&attempt), "v1.13.2");
    assert_eq!(attempt.host.shared.get().named_images.as_deref(), Some(NOTE));
}
