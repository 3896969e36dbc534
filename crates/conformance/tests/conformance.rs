//! The simulated API server answers as the real one does. Needs etcd and kube-apiserver from `cargo xtask components`; without them these tests
//! fail and say so.

use afloat_conformance::suite::{self, Plan};

/// The fewest named cases that the list may come down to.
const NAMED_CASES: usize = 150;

fn nothing() -> Plan {
    Plan {
        filter: None,
        cases: false,
        rules: false,
        sequences: 0,
        seed: 1,
        real_only: false,
    }
}

#[allow(clippy::panic, reason = "the way in which a test fails")]
fn run(plan: &Plan) -> afloat_conformance::report::Report {
    let report =
        suite::run(plan, &mut |_| {}).unwrap_or_else(|error| panic!("the servers could not be compared: {error}"));
    assert!(report.is_fine(), "{report}");
    report
}

#[test]
fn named_cases_agree() {
    let report = run(&Plan {
        cases: true,
        ..nothing()
    });
    assert!(report.cases() >= NAMED_CASES, "only {} cases were run", report.cases());
}

#[test]
fn validation_rules_agree() {
    let report = run(&Plan {
        rules: true,
        ..nothing()
    });
    assert!(report.cases() > 150, "only {} cases were run", report.cases());
}

/// `AFLOAT_SEQUENCES` asks for another number of them, `AFLOAT_SEED` for others.
#[test]
fn random_sequences_agree() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let sequences = number("AFLOAT_SEQUENCES").map_or(500, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let report = run(&Plan {
        sequences,
        seed: number("AFLOAT_SEED").unwrap_or(1),
        ..nothing()
    });
    assert_eq!(report.sequences(), sequences);
}
