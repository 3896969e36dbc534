//! `lab`: labs from the command line. Thin: everything is in the library.

use std::{
    io::Write,
    path::Path,
    process::{ExitCode, Stdio},
    thread,
    time::Duration,
};

use afloat_lab::{Error, Lab, Progress, Release, Spec, Systems, upgrade_by_hand, write_parts, write_system};
use clap::{Parser, Subcommand};

/// Real kubeadm machines on this machine
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Arguments {
    /// Which lab; labs of different names do not see each other
    #[arg(long, global = true, default_value = "main", env = "LAB")]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a lab
    Up {
        #[arg(long, default_value_t = 3)]
        control_planes: u8,
        #[arg(long, default_value_t = 2)]
        workers: u8,
        /// Kubernetes version, such as v1.35.4
        #[arg(long, default_value = "v1.35.4")]
        version: String,
        /// How kube-proxy works: iptables or nftables
        #[arg(long, default_value = "iptables")]
        proxy_mode: String,
        /// Without the test workload
        #[arg(long)]
        bare: bool,
        /// With a stand-in for kube-vip: the control planes elect one of them to have 10.77.0.5
        #[arg(long)]
        virtual_address: bool,
        /// Whether machines have one system, or two slots for it and a boot chooser: one or ab
        #[arg(long, default_value = "one")]
        systems: Systems,
    },
    /// End a lab and everything it started
    Down {
        /// All labs
        #[arg(long)]
        all: bool,
        /// All labs whose names begin so; silent where there is none
        #[arg(long, conflicts_with = "all")]
        beginning: Option<String>,
    },
    /// Whether this machine can run labs; what is missing otherwise
    Able,
    /// What there is, and how it is
    Status,
    /// Add a worker
    Join {
        #[arg(long, default_value = "v1.36.3")]
        version: String,
    },
    /// Run a program inside a machine
    Exec {
        machine: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Run kubectl as the administrator
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Run a program of this machine in the lab's network, with its kubeconfig
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Ask the API server and the workload every 200 ms from everywhere, and say what failed
    Probe {
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Beside it, this many reads a second, and ten watches
        #[arg(long, default_value_t = 0)]
        load: u32,
        /// Also as JSON, into this file
        #[arg(long)]
        json: Option<std::path::PathBuf>,
    },
    /// Upgrade the lab as a careful person would, with probers running: the baseline
    ByHand {
        #[arg(long, default_value = "v1.36.3")]
        to: String,
        /// The result as JSON, into this file
        #[arg(long)]
        json: Option<std::path::PathBuf>,
    },
    /// Write the files of a version into a folder, as `afloat bundle create --from` takes them
    Parts {
        #[arg(long, default_value = "v1.36.3")]
        version: String,
        #[arg(long)]
        to: std::path::PathBuf,
    },
    /// Write an image of a system, as a slot of a machine takes it
    System {
        #[arg(long, default_value = "v1.35.4")]
        version: String,
        /// What it calls itself; its node tells it as osImage
        #[arg(long, default_value = "Lab system 2")]
        called: String,
        #[arg(long)]
        to: std::path::PathBuf,
    },
    /// Reboot a machine
    Reboot { machine: String },
    /// Pull a machine's plug
    Off { machine: String },
    /// Turn it on again
    On { machine: String },
    /// Copy a file into a machine
    Copy {
        from: std::path::PathBuf,
        machine: String,
        to: String,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let name = arguments.name;
    match arguments.command {
        Command::Up {
            control_planes,
            workers,
            version,
            proxy_mode,
            bare,
            virtual_address,
            systems,
        } => up(&Spec {
            name,
            control_planes,
            workers,
            version,
            proxy_mode,
            workload: !bare,
            virtual_address,
            systems,
        })?,
        Command::Able => Lab::able()?,
        Command::Down { all, beginning } => {
            let mut names = if all || beginning.is_some() {
                Lab::all()?
            } else {
                vec![name]
            };
            names.retain(|name| beginning.as_ref().is_none_or(|start| name.starts_with(start)));
            for name in names {
                Lab::end_named(&name)?;
                println!("lab {name} is ended");
            }
        }
        Command::Status => show(&status()?),
        Command::Join { version } => {
            Lab::find(&name)?.join_worker(&version)?;
        }
        Command::Exec { machine, words } => {
            let command = Lab::find(&name)?.machine(&machine)?.command(&words[0])?;
            return follow(command, &words[1..]);
        }
        Command::Kubectl { words } => {
            return follow(Lab::find(&name)?.kubectl_command()?, &words);
        }
        Command::Run { words } => return follow(Lab::find(&name)?.command(&words[0]), &words[1..]),
        Command::Probe { seconds, load, json } => return probe(&name, seconds, load, json.as_deref()),
        Command::ByHand { to, json } => {
            let lab = Lab::find(&name)?;
            let went = upgrade_by_hand(&lab, &Release::of(&to)?, &Progress::new(false))?;
            show(&format!("{}{went}", went.requests));
            write_json(json.as_deref(), &went)?;
        }
        Command::Parts { version, to } => write_parts(&[Release::of(&version)?], &to, &Progress::new(false))?,
        Command::System { version, called, to } => write_system(&Release::of(&version)?, &called, &to, |_| Ok(()))?,
        Command::Reboot { machine } => Lab::find(&name)?.machine(&machine)?.reboot()?,
        Command::Off { machine } => Lab::find(&name)?.machine(&machine)?.kill_power()?,
        Command::On { machine } => Lab::find(&name)?.machine(&machine)?.start()?,
        Command::Copy { from, machine, to } => Lab::find(&name)?.machine(&machine)?.copy_in(&from, &to)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A lab that is there and the same is left as it is; one that was interrupted is made anew.
fn up(spec: &Spec) -> Result<(), Error> {
    match Lab::find(&spec.name) {
        Ok(lab) if lab.is_ready() && lab.spec() == spec => println!("lab {} is up already", spec.name),
        Ok(lab) if lab.is_ready() => {
            return Err(Error::AnotherLab {
                name: spec.name.clone(),
                there: described(lab.spec()),
            });
        }
        _ => {
            let lab = Lab::up_with(spec, &Progress::new(false))?.left_running();
            println!(
                "lab {} is up: {}, in {}",
                spec.name,
                described(spec),
                lab.folder().display()
            );
        }
    }
    Ok(())
}

fn described(spec: &Spec) -> String {
    format!(
        "{} control planes and {} workers at {}",
        spec.control_planes, spec.workers, spec.version
    )
}

/// Prints; whoever stopped reading has seen enough.
fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn status() -> Result<String, Error> {
    let names = Lab::all()?;
    let mut text = Vec::new();
    if names.is_empty() {
        text.push("no lab is up".to_owned());
    }
    for name in names {
        let Ok(lab) = Lab::find(&name) else {
            text.push(format!("{name}: half-made"));
            continue;
        };
        let state = if lab.is_ready() { "up" } else { "half-made" };
        text.push(format!("{name}: {state}, made with {}", described(lab.spec())));
        for machine in lab.machines() {
            let state = machine
                .leader()
                .map_or("off".to_owned(), |leader| format!("on, first process {leader}"));
            text.push(format!(
                "  {:<5} {:<12} {state}",
                machine.name(),
                machine.address().to_string()
            ));
        }
        match lab.kubectl(["get", "nodes", "--output=wide", "--request-timeout=5s"]) {
            Ok(nodes) => text.push(nodes.trim_end().to_owned()),
            Err(_) => text.push("  the API server does not answer".to_owned()),
        }
    }
    text.push(String::new());
    Ok(text.join("\n"))
}

/// Fails when a request failed, so that a script can rely on it.
fn probe(name: &str, seconds: u64, load: u32, json: Option<&Path>) -> Result<ExitCode, Error> {
    let lab = Lab::find(name)?;
    let probers = lab.probers();
    let probers = if load > 0 { probers.with_load(load, 10) } else { probers }.start()?;
    thread::sleep(Duration::from_secs(seconds));
    let counts = probers.stop()?;
    show(&counts.to_string());
    write_json(json, &counts)?;
    let lost = counts.failed() + counts.pages_failed();
    Ok(if lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write_json(path: Option<&Path>, what: &impl serde::Serialize) -> Result<(), Error> {
    let Some(path) = path else {
        return Ok(());
    };
    let written = serde_json::to_string_pretty(what)
        .map_err(std::io::Error::other)
        .and_then(|text| std::fs::write(path, text));
    written.map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

/// Runs with this terminal, and ends as the program does.
fn follow(mut command: std::process::Command, words: &[String]) -> Result<ExitCode, Error> {
    let status = command
        .args(words)
        .stdin(Stdio::inherit())
        .status()
        .map_err(|source| Error::Spawn {
            what: format!("{command:?}"),
            source,
        })?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}
