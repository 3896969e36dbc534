//! The binary as people and scripts meet it: output, exit codes, and what it leaves behind (nothing).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs the binary; a test that uses what it says fails when it does not start.
fn afloat(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_afloat")).args(arguments).output()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn once_prints_a_settled_cluster() {
    let output = afloat(&["sandbox", "--once", "--speed", "100", "-o", "json"]).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let picture: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes = picture["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 8);
    assert!(
        nodes
            .iter()
            .all(|node| node["state"] == "Ready" && node["version"] == "v1.35.4")
    );
    assert_eq!(picture["unsettled"], serde_json::json!([]));
    assert!(
        picture["budgets"]
            .as_array()
            .unwrap()
            .iter()
            .all(|budget| budget["allowed"] == 1)
    );
    assert_eq!(text(&output.stderr), "", "progress is for terminals");
}

#[test]
fn a_single_node_settles_too() {
    let output = afloat(&[
        "sandbox",
        "--once",
        "--scenario",
        "single-node",
        "--speed",
        "100",
        "-o",
        "yaml",
    ])
    .unwrap();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(
        printed.contains("name: cp-1") && printed.contains("unsettled: []"),
        "{printed}"
    );
}

#[test]
fn a_stuck_budget_is_made_as_asked() {
    let output = afloat(&[
        "sandbox",
        "--once",
        "--scenario",
        "stuck-pdb",
        "--workers",
        "2",
        "--speed",
        "100",
    ])
    .unwrap();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.starts_with("Sandbox v1.35.4 · 5 of 5 nodes ready"), "{printed}");
    let stuck = printed.lines().find(|line| line.contains("shop/licence")).unwrap();
    assert!(stuck.contains("cannot be drained"), "{stuck}");
    assert!(!printed.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn bad_usage_ends_with_2_and_says_what_to_write() {
    for arguments in [
        &["sandbox", "-o", "json"][..],
        &["sandbox", "--scenario", "x"],
        &["upgrade"],
        &[],
    ] {
        let output = afloat(arguments).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    let help = text(&afloat(&["sandbox", "-o", "json"]).unwrap().stderr);
    assert!(help.contains("help: afloat sandbox --once -o json"), "{help}");
}

#[test]
fn serve_prints_the_line_to_copy_and_removes_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let mut served = Command::new(env!("CARGO_BIN_EXE_afloat"))
        .args(["sandbox", "--serve", "--speed", "100", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let export = format!("  export KUBECONFIG={}", kubeconfig.display());
    let mut lines = BufReader::new(served.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == export));
    let content = std::fs::read_to_string(&kubeconfig).unwrap();
    assert!(content.contains("server: https://127.0.0.1:"), "{content}");

    let ended = Command::new("kill").arg(served.id().to_string()).status().unwrap();
    assert!(ended.success());
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = served.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            served.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(0));
    assert!(!kubeconfig.exists());
}

#[test]
fn version_and_completion_work() {
    let version = text(&afloat(&["version", "-o", "json"]).unwrap().stdout);
    let version: serde_json::Value = serde_json::from_str(&version).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&afloat(&["completion", shell]).unwrap().stdout);
        assert!(
            script.contains("sandbox") && script.contains("--scenario") || script.contains("list-scenarios"),
            "{shell}"
        );
    }
}
