//! The binary as people and scripts meet it: output, exit codes, and what it leaves behind (nothing).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

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
fn p1_an_upgrade_ends_with_0_and_sums_up_what_it_took() {
    let output = afloat(&["sandbox", "--speed", "100"]).unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("sandbox is at v1.36.3.   8 of 8 nodes, "), "{printed}");
    for node in ["cp-1", "cp-2", "cp-3", "worker-1", "worker-5"] {
        let done = |line: &str| line.contains(node) && line.contains("Verifying → Succeeded");
        assert!(printed.lines().any(done), "{node}: {printed}");
    }
}

#[test]
fn what_the_preflight_refuses_ends_with_3_where_nobody_can_help_and_goes_on_where_it_is_accepted() {
    let refused = afloat(&["sandbox", "--nodes", "2+5", "--speed", "100"]).unwrap();
    let printed = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(3), "{printed}{}", text(&refused.stderr));
    assert!(printed.contains("quorum"), "{printed}");
    let accept = "clusterupgrade/afloat-system/sandbox:ApiDowntime";
    assert!(printed.contains(accept), "{printed}");
    let accepted = afloat(&["sandbox", "--nodes", "2+5", "--speed", "100", "--accept", accept]).unwrap();
    let printed = text(&accepted.stdout);
    assert_eq!(accepted.status.code(), Some(0), "{printed}{}", text(&accepted.stderr));
}

/// Each as a person would look at it, to its end: what it says last, and how it ends.
#[test]
fn every_scenario_of_a_kubeadm_cluster_comes_to_the_end_that_it_tells() {
    for (scenario, code, says) in [
        ("single-node", 0, &["1 of 1 nodes"][..]),
        ("crowded", 3, &["NoCapacity"]),
        // After the minute in which a node is missed.
        ("dead-node", 3, &["node/worker-2", "is not Ready"]),
        ("two-control-planes", 3, &["quorum"]),
        ("two-control-planes-accepted", 0, &["7 of 7 nodes"]),
        ("kubeadm-fails-once", 0, &["8 of 8 nodes"]),
        (
            "kubeadm-fails",
            0,
            &["worker-2", "RolledBack", "kubeadm upgrade node ended with 1"],
        ),
    ] {
        let output = afloat(&["sandbox", "--scenario", scenario, "--speed", "100"]).unwrap();
        let printed = text(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{scenario}: {printed}{}",
            text(&output.stderr)
        );
        for word in says {
            assert!(printed.contains(word), "{scenario} does not say {word}: {printed}");
        }
    }
}

/// Every virtual machine runs in the end, and how often they were moved is said beside the least that is possible.
#[test]
fn an_upgrade_of_harvester_is_followed_to_its_end_and_its_moves_are_summed_up() {
    let output = afloat(&["sandbox", "--scenario", "harvester-two-nodes", "--speed", "100"]).unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("8 virtual machines run on 2 nodes"), "{printed}");
    // Two times four, and once more the four of the node that goes first.
    assert!(
        printed.contains(
            "8 of 8 virtual machines run. 12 moves, 12 are the least; 4 of 8 moved once, none more than 2 times."
        ),
        "{printed}"
    );
    assert!(printed.contains("because they cannot move: 0."), "{printed}");
}

/// A cluster that is served until this is dropped.
struct Served {
    process: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    kubeconfig: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let mut process = Command::new(env!("CARGO_BIN_EXE_afloat"))
            .args(["sandbox", "--serve", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            process,
            lines,
            kubeconfig,
            _folder: folder,
        }
    }

    /// Reads on to a line with this in it.
    fn until(&mut self, wanted: &str) -> String {
        let mut read = String::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if line.contains(wanted) {
                return line;
            }
            read.push_str(&line);
            read.push('\n');
        }
        panic!("nothing says {wanted:?}:\n{read}");
    }

    fn afloat(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_afloat"));
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .output()
            .unwrap()
    }

    /// As `kubectl scale` does.
    fn scale(&self, namespace: &str, deployment: &str, replicas: u32) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let config = kube::config::Kubeconfig::read_from(&self.kubeconfig).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
            let client = kube::Client::try_from(config).unwrap();
            let deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
                kube::Api::namespaced(client, namespace);
            let patch = kube::api::Patch::Merge(serde_json::json!({"spec": {"replicas": replicas}}));
            let parameters = kube::api::PatchParams::default();
            deployments.patch(deployment, &parameters, &patch).await.unwrap();
        });
    }
}

#[test]
fn a_stuck_budget_is_explained_and_the_upgrade_goes_on_by_itself_once_it_is_freed() {
    let mut served = Served::start(&["--scenario", "stuck-pdb", "--speed", "100", "--to", "v1.36.3"]);
    served.until("Upgrading in place");
    let deadline = Instant::now() + Duration::from_mins(1);
    let said = loop {
        let explained = text(&served.afloat(&["explain"]).stdout);
        if explained.contains("pdb/shop/licence") {
            break explained;
        }
        assert!(Instant::now() < deadline, "{explained}");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(
        said.contains("kubectl -n shop scale deploy/licence --replicas=2"),
        "the command that frees it: {said}"
    );
    served.scale("shop", "licence", 2);
    let end = served.until("is at v1.36.3");
    assert!(end.contains("8 of 8 nodes"), "{end}");
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
