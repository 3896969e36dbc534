//! Starts a throw-away real control plane, says how to reach it, and ends it with its standard input (Ctrl-D) or with this process.
//! `--controllers` adds kube-controller-manager and kube-scheduler.

use std::{io::Read, process::ExitCode};

use afloat_realparts::{ControlPlane, Options};

fn main() -> ExitCode {
    let controllers = std::env::args().any(|argument| argument == "--controllers");
    let options = Options {
        controller_manager: controllers,
        scheduler: controllers,
        ..Options::default()
    };
    match ControlPlane::start(&options) {
        Ok(plane) => {
            let pids: Vec<String> = plane.process_ids().iter().map(ToString::to_string).collect();
            println!("export KUBECONFIG={}", plane.kubeconfig_path().display());
            println!("# {} processes {}; Ctrl-D ends it", plane.url(), pids.join(" "));
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
