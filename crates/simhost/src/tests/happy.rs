//! What goes well.

use super::*;

#[test]
fn p25_every_role_arrives_at_the_target_both_ways() {
    for case in CASES {
        let mut attempt = Attempt::new(case);
        let ended = attempt.upgrade();
        assert_eq!(ended.0, exit::DONE, "{case:?}: {ended:?}\n{}", attempt.journal());
        let expected = match (case.role, case.method) {
            (NodeRole::Worker, _) => "",
            (_, None) => "swift",
            _ => "conservative: asked for",
        };
        assert_eq!(method(&mut attempt), expected, "{case:?}");
        attempt.assert_at_target(case);
        // It takes seconds on a real machine: whoever looks is told what they are spent on.
        let compares = "\"what\":\"compares what was brought with what was promised\"";
        assert_eq!(attempt.journal().matches(compares).count(), 1, "{case:?}");
    }
}

#[test]
fn p41_p42_p43_nothing_of_a_persons_is_touched() {
    for case in CASES {
        let mut attempt = Attempt::new(case);
        attempt.upgrade();
        for path in ["/etc/default/kubelet", "/usr/bin/htop", "/etc/motd"] {
            assert_eq!(
                attempt.host.tree().get(path),
                attempt.before.get(path),
                "{case:?} {path}"
            );
        }
    }
}
