//! Whether a machine can run labs, asked by somebody who cannot.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// `nobody`
const ANOTHER: &str = "65534";

#[test]
fn whoever_is_not_root_is_told_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    // Where it was built may be nobody else's to read.
    let program = folder.path().join("lab");
    fs::copy(env!("CARGO_BIN_EXE_lab"), &program).unwrap();
    let program = program.to_str().unwrap();
    let mut words = vec![program, "able"];
    if rustix::process::geteuid().is_root() {
        let as_another = ["setpriv", "--reuid", ANOTHER, "--regid", ANOTHER, "--clear-groups"];
        words.splice(0..0, as_another);
    }
    let output = Command::new(words[0])
        .args(&words[1..])
        .env("AFLOAT_LAB", folder.path().join("home"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("this machine cannot run the lab") && said.contains("it needs root"),
        "{said}"
    );
}
