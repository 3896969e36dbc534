//! The borders of the house that Cargo keeps: what `afloat-core` and `afloat-api` cannot see because it is not among their
//! dependencies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::process::Command;

fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn assert_absent(package: &str, forbidden: &[&str]) {
    let present = dependencies(package);
    // A list that came out empty, or of another package, would forbid nothing.
    assert!(
        present.contains(package) && present.contains("thiserror"),
        "unexpected tree of {package}: {present:?}"
    );
    for name in forbidden {
        assert!(
            !present.contains(*name),
            "{package} must not depend on {name}; see `cargo tree -p {package} -e normal -i {name}`"
        );
    }
}

#[test]
fn the_core_sees_no_runtime_no_client_and_no_randomness() {
    let forbidden = [
        "tokio",
        "kube",
        "kube-client",
        "kube-runtime",
        "hyper",
        "tower",
        "rand",
        "fastrand",
        "getrandom",
        "async-trait",
        "futures",
    ];
    assert_absent("afloat-core", &forbidden);
}

#[test]
fn the_api_types_see_no_runtime_and_no_client() {
    let forbidden = [
        "tokio",
        "kube",
        "kube-client",
        "kube-runtime",
        "hyper",
        "tower",
        "rand",
        "fastrand",
        "kube-cel",
    ];
    assert_absent("afloat-api", &forbidden);
}
