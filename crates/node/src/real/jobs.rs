//! Jobs of a real machine: transient systemd units, so that they outlive whoever started them and end with the boot. What they said
//! and how they ended lies under `/run`, which a reboot empties just the same.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{Answer, Command, Job};
use crate::real::units::{self, property};
use crate::real::{files, programs};

/// Where jobs keep what they said.
pub const FOLDER: &str = "/run/afloat/jobs";
/// Programs that look for a home (kubectl keeps a cache there) find one that is nobody's.
const HOME: &str = "/run/afloat";
/// All of them begin with this, so that they can be ended together.
const PREFIX: &str = "afloat-job-";
/// The longest name a unit may have.
const LONGEST_NAME: usize = 200;
/// A short command is waited for here, as asking again costs more than it takes.
const PATIENCE: Duration = Duration::from_millis(900);
const LOOK: Duration = Duration::from_millis(40);
const STARTING: Duration = Duration::from_mins(1);
/// As much as is kept of what a job complained about: its end.
const MOST_COMPLAINT: u64 = 16 << 10;
const MOST_OUTPUT: u64 = 4 << 20;
/// What `timeout` says of a program that it had to end.
const TOO_LONG: i32 = 124;

/// The unit of a job.
fn unit(job: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = job.chars().map(plain).take(LONGEST_NAME).collect();
    format!("{PREFIX}{name}.service")
}

pub fn run(job: &str, command: &Command) -> Answer<Job> {
    let unit = unit(job);
    let folder = Path::new(FOLDER).join(&unit);
    if let Some(ended) = ended(&folder)? {
        return Ok(ended);
    }
    let until = Instant::now() + PATIENCE;
    let mut started = false;
    loop {
        match look(&unit)? {
            Seen::Nowhere if started => return Ok(Job::Running),
            Seen::Nowhere => {
                start(&unit, &folder, command)?;
                started = true;
            }
            Seen::Running if !started || Instant::now() >= until => return Ok(Job::Running),
            Seen::Running => thread::sleep(LOOK),
            Seen::Ended(code) => {
                files::write(&folder.join("exit"), code.to_string().as_bytes(), 0o600)?;
                forget(&unit)?;
                return Ok(ended(&folder)?.unwrap_or(Job::Running));
            }
        }
    }
}

/// Ends every job that runs, and waits for them.
pub fn end_all() -> Answer<()> {
    let pattern = format!("{PREFIX}*");
    let said = programs::run("systemctl", &["stop", "--", &pattern], b"", Duration::from_mins(2))?;
    if said.is_fine() {
        Ok(())
    } else {
        Err(units::refused("end", "running jobs", said.complaint()))
    }
}

enum Seen {
    /// systemd knows no such unit.
    Nowhere,
    Running,
    Ended(i32),
}

fn look(unit: &str) -> Answer<Seen> {
    let found = units::show(
        unit,
        "LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus",
    )?;
    Ok(seen(&found))
}

fn seen(found: &[(String, String)]) -> Seen {
    let of = |name| property(found, name);
    let status = of("ExecMainStatus").parse().unwrap_or(-1);
    // 1 is CLD_EXITED; killed and dumped have the number of a signal for a status.
    let code = match (of("Result"), of("ExecMainCode")) {
        ("timeout", _) => TOO_LONG,
        (_, "1") => status,
        (_, "0") => -1,
        _ => 128 + status,
    };
    match (of("LoadState"), of("ActiveState"), of("SubState")) {
        (_, "inactive", _) => Seen::Nowhere,
        (_, "active", "exited") | (_, "failed", _) => Seen::Ended(code),
        _ => Seen::Running,
    }
}

fn start(unit: &str, folder: &Path, command: &Command) -> Answer<()> {
    // What an earlier one of this name said before the machine forgot it is not what this one says.
    files::remove(folder)?;
    files::make_folder(folder)?;
    if let Some(bind) = &command.over {
        let bound = Path::new(&bind.folder);
        if !bound.is_file() {
            files::make_folder(bound)?;
        }
    }
    let args = arguments(unit, folder, command);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let said = programs::run("systemd-run", &args, b"", STARTING)?;
    if said.is_fine() {
        return Ok(());
    }
    // A program that is not there leaves a failed unit behind.
    forget(unit)?;
    Err(units::refused("start", &command.program, said.complaint()))
}

fn arguments(unit: &str, folder: &Path, command: &Command) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut args = vec![
        "--quiet".to_owned(),
        format!("--unit={unit}"),
        "--service-type=exec".to_owned(),
        // Else systemd forgets one that ended well, and its exit code with it.
        "--remain-after-exit".to_owned(),
        format!("--property=RuntimeMaxSec={}", command.seconds),
        "--property=TimeoutStopSec=10".to_owned(),
        format!("--property=StandardOutput=file:{}", file("stdout")),
        format!("--property=StandardError=file:{}", file("stderr")),
        format!("--setenv=HOME={HOME}"),
        format!("--setenv=PATH={}", programs::PATH),
    ];
    if let Some(bind) = &command.over {
        // It implies a mount namespace of the unit's own.
        args.push(format!("--property=BindPaths={}:{}", bind.folder, bind.over));
    }
    args.push("--".to_owned());
    args.push(programs::find(&command.program).unwrap_or_else(|| command.program.clone()));
    args.extend_from_slice(&command.args);
    args
}

/// Lets systemd forget a job; what it said stays.
fn forget(unit: &str) -> Answer<()> {
    for verb in ["stop", "reset-failed"] {
        // Only one of them fits; the other says so.
        let _ = programs::run("systemctl", &[verb, "--", unit], b"", STARTING)?;
    }
    Ok(())
}

/// How a job ended, if it is known already.
fn ended(folder: &Path) -> Answer<Option<Job>> {
    let Some(code) = files::read(&folder.join("exit"))? else {
        return Ok(None);
    };
    let exit_code = String::from_utf8_lossy(&code).trim().parse().unwrap_or(-1);
    let mut stderr = tail(&folder.join("stderr"), MOST_COMPLAINT)?;
    if exit_code == TOO_LONG {
        stderr.push_str("\nit took longer than it may\n");
    }
    Ok(Some(Job::Ended {
        exit_code,
        stdout: tail(&folder.join("stdout"), MOST_OUTPUT)?,
        stderr,
    }))
}

/// The end of a file.
fn tail(path: &PathBuf, most: u64) -> Answer<String> {
    let Some(size) = files::size(path)? else {
        return Ok(String::new());
    };
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(files::failed("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Bind;

    fn shown(text: &str) -> Vec<(String, String)> {
        let words = text.split(' ').filter_map(|word| word.split_once('='));
        words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn how_a_job_is_follows_from_its_unit() {
        let code = |text: &str| match seen(&shown(text)) {
            Seen::Nowhere => "nowhere".to_owned(),
            Seen::Running => "running".to_owned(),
            Seen::Ended(code) => code.to_string(),
        };
        for (text, expected) in [
            ("LoadState=not-found ActiveState=inactive SubState=dead", "nowhere"),
            ("LoadState=loaded ActiveState=active SubState=running", "running"),
            ("LoadState=loaded ActiveState=activating SubState=start", "running"),
            (
                "LoadState=loaded ActiveState=deactivating SubState=stop-sigterm Result=timeout",
                "running",
            ),
            (
                "LoadState=loaded ActiveState=active SubState=exited Result=success ExecMainCode=1 ExecMainStatus=0",
                "0",
            ),
            (
                "LoadState=loaded ActiveState=failed SubState=failed Result=exit-code ExecMainCode=1 ExecMainStatus=20",
                "20",
            ),
            (
                "LoadState=loaded ActiveState=failed SubState=failed Result=signal ExecMainCode=2 ExecMainStatus=9",
                "137",
            ),
            (
                "LoadState=loaded ActiveState=failed SubState=failed Result=timeout ExecMainCode=2 ExecMainStatus=15",
                "124",
            ),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn a_job_is_bounded_and_may_have_a_folder_of_its_own_over_another() {
        let command = Command {
            program: "/usr/bin/kubeadm".to_owned(),
            args: vec!["init".to_owned()],
            over: Some(Bind {
                folder: "/var/lib/afloat/render/next".to_owned(),
                over: "/etc/kubernetes/manifests".to_owned(),
            }),
            seconds: 60,
        };
        let unit = unit("afloat-0b2f-1-kubeadm-3-1-0/odd name");
        assert_eq!(unit, "afloat-job-afloat-0b2f-1-kubeadm-3-1-0_odd_name.service");
        let args = arguments(&unit, Path::new("/run/x"), &command);
        for expected in [
            "--property=RuntimeMaxSec=60",
            "--property=BindPaths=/var/lib/afloat/render/next:/etc/kubernetes/manifests",
            "--property=StandardError=file:/run/x/stderr",
        ] {
            assert!(args.iter().any(|arg| arg == expected), "{args:?}");
        }
        assert_eq!(args[args.len() - 3..], ["--", "/usr/bin/kubeadm", "init"]);
    }
}
