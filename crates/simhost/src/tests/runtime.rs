//! containerd and its configuration: written anew by the containerd that comes where its form is older, refused before anything was changed
//! where that does not work, and put back with everything else.

use super::super::{Crash, Moment};
use super::*;

const PROGRAM: &str = "/usr/local/bin/containerd";

fn config(attempt: &Attempt) -> String {
    attempt.text(paths::CONTAINERD_CONFIG).unwrap_or_default()
}

#[test]
fn the_configuration_gets_the_form_of_the_new_containerd_and_keeps_all_else() {
    for (program, before) in [
        (
            "containerd v2.2.1",
            "version = 3\nimports = ['conf.d/*.toml'] # mine\n[plugins]\n",
        ),
        (
            "containerd v1.7.27",
            "version = 2\nimports = ['conf.d/*.toml'] # mine\n[plugins]\n",
        ),
    ] {
        let mut attempt = Attempt::new(WORKER);
        attempt.host.put(PROGRAM, program);
        attempt
            .host
            .rewrite(paths::CONTAINERD_CONFIG, before.as_bytes())
            .unwrap();
        attempt.before = attempt.host.tree().clone();
        attempt.step(steps::STAGE);
        assert_eq!(config(&attempt), before, "staging changes nothing");
        let ended = attempt.step(steps::CONTAINERD);
        assert_eq!(ended.0, exit::DONE, "{ended:?}");
        assert_eq!(
            config(&attempt),
            "version = 4\nroot = '/var/lib/containerd'\nimports = ['conf.d/*.toml'] # mine\n[plugins]\n"
        );
        assert_eq!(attempt.host.tree()[paths::CONTAINERD_CONFIG].mode, 0o640);
        let form = before.lines().next().unwrap().replace("version = ", "");
        let said = format!("/etc/containerd/config.toml was migrated from version {form} to 4");
        assert!(ended.1.message.ends_with(&said), "{ended:?}");
        put_back(&mut attempt, WORKER);
    }
}

#[test]
fn a_configuration_that_is_elsewhere_is_found_there() {
    let elsewhere = "/etc/mine/containerd.toml";
    let mut attempt = Attempt::new(WORKER);
    attempt.host.put(elsewhere, "version = 3\n");
    attempt.host.runtime_options = ["--config", elsewhere].map(str::to_owned).into();
    attempt.before = attempt.host.tree().clone();
    let untouched = config(&attempt);
    attempt.upgrade();
    assert_eq!(config(&attempt), untouched);
    let after = attempt.text(elsewhere).unwrap();
    assert!(after.starts_with("version = 4\n"), "{after}");
    assert!(
        after.contains("\nimports = []\n"),
        "it imported nothing before: {after}"
    );
    put_back(&mut attempt, WORKER);
}

#[test]
fn a_configuration_stays_where_there_is_nothing_to_migrate() {
    type Change = fn(&mut Attempt);
    let cases: [(Change, &str); 2] = [
        (|a| a.host.remove(paths::CONTAINERD_CONFIG).unwrap(), "there is none"),
        (
            |a| a.host.put(PROGRAM, "containerd v2.3.7"),
            "the containerd that comes is the one that is here",
        ),
    ];
    for (change, what) in cases {
        let mut attempt = Attempt::new(WORKER);
        change(&mut attempt);
        attempt.before = attempt.host.tree().clone();
        let before = config(&attempt);
        assert_eq!(attempt.upgrade().0, exit::DONE, "{what}");
        assert_eq!(config(&attempt), before, "{what}");
        assert!(!attempt.journal().contains("was migrated"), "{what}");
    }
}

#[test]
fn a_configuration_that_cannot_be_migrated_is_refused_before_anything_is_changed() {
    type Break = fn(&mut Attempt);
    let cases: [(Break, &str); 4] = [
        (
            |a| {
                a.host.faults.refused_configs.insert("migrate".to_owned());
            },
            "the new containerd cannot migrate /etc/containerd/config.toml: containerd --config",
        ),
        (
            |a| {
                a.host.faults.refused_configs.insert("dump".to_owned());
            },
            "the new containerd does not read what it made of /etc/containerd/config.toml (version 3 to 4)",
        ),
        (
            |a| {
                a.host
                    .put(paths::CONTAINERD_CONFIG, "version = 3\n\"imports\" = ['/x']\n");
            },
            "/etc/containerd/config.toml cannot be read",
        ),
        (
            |a| a.host.put(paths::CONTAINERD_CONFIG, "version = 5\n"),
            "expected version equal to or less than 4",
        ),
    ];
    for (wrong, said) in cases {
        // Found when the node is staged.
        let mut attempt = Attempt::new(FIRST);
        wrong(&mut attempt);
        attempt.before = attempt.host.tree().clone();
        let ended = attempt.upgrade();
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{said} {ended:?}");
        assert!(ended.1.message.contains(said), "{said}: {}", ended.1.message);
        assert!(
            ended.1.message.contains("nothing was changed: help: "),
            "{}",
            ended.1.message
        );
        assert_eq!(attempt.changed_outside(), [""; 0], "{said}");
        // Broken since.
        let mut attempt = Attempt::new(FIRST);
        attempt.step(steps::STAGE);
        attempt.step(steps::STAND_ASIDE);
        wrong(&mut attempt);
        attempt.before = attempt.host.tree().clone();
        let ended = attempt.step(steps::CONTAINERD);
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{said} {ended:?}");
        assert_eq!(attempt.changed_outside(), [""; 0], "{said}");
    }
}

#[test]
fn containers_survive_the_new_containerd_and_the_old_one() {
    let mut attempt = Attempt::new(FIRST);
    for step in [steps::STAGE, steps::STAND_ASIDE] {
        attempt.step(step);
    }
    let serves = attempt.host.process("kube-apiserver").unwrap();
    assert_eq!(attempt.step(steps::CONTAINERD).0, exit::DONE);
    assert_eq!(attempt.host.runtime_version(), Some("v2.3.7"));
    assert_eq!(attempt.host.process("kube-apiserver").unwrap(), serves);
    put_back(&mut attempt, FIRST);
    assert_eq!(attempt.host.runtime_version(), Some("v2.2.1"));
    assert_eq!(attempt.host.process("kube-apiserver").unwrap(), serves);
}

/// An older containerd does not start with the form of the newer one: at no moment may the disk hold that pair, whenever the power goes.
#[test]
fn no_power_cut_leaves_a_containerd_with_a_configuration_that_it_cannot_read() {
    let run = |crash: Option<Crash>| {
        let mut attempt = Attempt::new(WORKER);
        attempt.host.faults.crash = crash;
        for step in [steps::STAGE, steps::CONTAINERD, steps::ROLLBACK] {
            attempt.step_patiently(step);
        }
        (attempt.host.operations(), attempt.host.runtime_failures)
    };
    let (last, _) = run(None);
    for operation in 1..=last {
        for moment in [Moment::Before, Moment::Within, Moment::After] {
            let crash = Crash {
                operation,
                moment,
                power: true,
            };
            assert_eq!(run(Some(crash)).1, 0, "operation {operation} {moment:?}");
        }
    }
}
