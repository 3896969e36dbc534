//! Throw-away control planes come up, answer, and are gone afterwards, also when their owner is killed.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use afloat_realparts::{ControlPlane, Error, Options, client::Request};

fn start() -> Result<ControlPlane, Error> {
    ControlPlane::start(&Options::default())
}

fn alive(pid: u32) -> bool {
    // A zombie has ended; only its parent has not looked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn get(path: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        ..Request::default()
    }
}

#[test]
fn it_serves_and_leaves_nothing_behind() {
    let plane = start().unwrap();
    let mut client = plane.client().unwrap();
    assert_eq!(client.send(&get("/readyz")).unwrap().body, b"ok");
    let version = client.send(&get("/version")).unwrap();
    assert!(String::from_utf8_lossy(&version.body).contains("v1.36."), "{version:?}");
    let revision = plane.compact().unwrap();
    assert!(revision > 1, "revision {revision}");

    let mut watch = client
        .open(&get("/api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))
        .unwrap();
    let first = watch.line(Instant::now() + Duration::from_secs(5)).unwrap();
    assert!(String::from_utf8_lossy(&first).contains("ADDED"), "{first:?}");

    let (pids, folder) = (plane.process_ids(), plane.folder().to_owned());
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| alive(*pid)) && folder.exists());
    drop(plane);
    assert!(!pids.iter().any(|pid| alive(*pid)), "{pids:?} should have ended");
    assert!(!folder.exists(), "{} should be gone", folder.display());
}

#[test]
fn controllers_run_when_asked_for() {
    let options = Options {
        controller_manager: true,
        scheduler: true,
        ..Options::default()
    };
    let plane = ControlPlane::start(&options).unwrap();
    assert_eq!(plane.process_ids().len(), 4);
    let mut client = plane.client().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while client
        .send(&get("/api/v1/namespaces/default/serviceaccounts/default"))
        .unwrap()
        .status
        != 200
    {
        assert!(
            Instant::now() < deadline,
            "{}",
            plane.log_tail("kube-controller-manager", 20)
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_killed_owner_leaves_no_process() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_throwaway-control-plane"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let kubeconfig = lines.next().unwrap();
    let folder = Path::new(kubeconfig.split_once('=').unwrap().1).parent().unwrap();
    let said = lines.next().unwrap();
    let pids: Vec<u32> = said.split([' ', ';']).filter_map(|word| word.parse().ok()).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| alive(*pid)), "{said}");

    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while pids.iter().any(|pid| alive(*pid)) {
        assert!(
            Instant::now() < deadline,
            "{said}: still there 5s after the owner was killed"
        );
        thread::sleep(Duration::from_millis(10));
    }
    // The next control plane that anybody starts clears up the folder as well.
    drop(start().unwrap());
    assert!(!folder.exists(), "{} should be gone", folder.display());
}
