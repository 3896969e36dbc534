//! Running other programs, always with a bound, and waiting for things, always with a bound. Nothing here knows what a lab is.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// Long enough for anything that only asks the kernel or copies a few files.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Runs to the end and gives back what was printed; a failure carries the end of what was said.
pub(crate) fn run(command: &mut Command, within: Duration) -> Result<String, Error> {
    let what = described(command);
    // Files, not pipes: what the program leaves running behind it could hold a pipe open for ever.
    let mut out = tempfile::tempfile().map_err(Error::file("a temporary file"))?;
    let mut err = tempfile::tempfile().map_err(Error::file("a temporary file"))?;
    let copy = |file: &File| file.try_clone().map_err(Error::file("a temporary file"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(copy(&out)?)
        .stderr(copy(&err)?)
        .spawn()
        .map_err(|source| Error::Spawn {
            what: what.clone(),
            source,
        })?;
    let started = Instant::now();
    let mut pause = Duration::from_millis(2);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if started.elapsed() < within => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let printed = text(&mut out);
    match status {
        Some(status) if status.success() => Ok(printed),
        Some(status) => Err(Error::Failed {
            what,
            status: status.to_string(),
            said: tail(&format!("{printed}{}", text(&mut err))),
        }),
        None => Err(Error::Slow {
            what,
            seconds: within.as_secs(),
            said: tail(&format!("{printed}{}", text(&mut err))),
        }),
    }
}

/// `run` of a program with arguments, for what is done soon.
pub(crate) fn sh(program: &str, arguments: &[&str]) -> Result<String, Error> {
    run(Command::new(program).args(arguments), SOON)
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(its output cannot be read: {error})"),
    }
}

/// The last lines, indented to stand below a message.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(20)..]
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn described(command: &Command) -> String {
    let mut words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if words.len() > 14 {
        words.truncate(14);
        words.push("…".to_owned());
    }
    words.join(" ")
}

/// Asks until the answer is there; the last refusal is in the error.
pub(crate) fn wait_for<T>(
    what: &str,
    within: Duration,
    every: Duration,
    mut ask: impl FnMut() -> Result<T, String>,
) -> Result<T, Error> {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(last) if started.elapsed() >= within => {
                return Err(Error::Waited {
                    what: what.to_owned(),
                    seconds: within.as_secs(),
                    last,
                });
            }
            Err(_) => thread::sleep(every),
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::file(path))
}

/// Writes a file and the folders above it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    make_folder(path.parent().unwrap_or(path))?;
    fs::write(path, text).map_err(Error::file(path))
}

/// The same, to be executed.
pub(crate) fn write_program(path: &Path, text: &str) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Error::file(path))
}

pub(crate) fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::file(path))
}

/// Removes a folder with everything in it; one that is not there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_what_was_said() {
        let error = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), SOON)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("out") && error.contains("err"),
            "{error}"
        );
    }

    #[test]
    fn what_takes_too_long_is_ended_even_when_it_left_something_running() {
        let started = Instant::now();
        let error = run(
            Command::new("sh").args(["-c", "sleep 20 & echo waiting; sleep 20"]),
            Duration::from_millis(300),
        )
        .unwrap_err();
        assert!(matches!(error, Error::Slow { .. }), "{error}");
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn waiting_ends_with_the_last_refusal() {
        let error = wait_for("tea", Duration::from_millis(20), Duration::from_millis(5), || {
            Err::<(), _>("still cold".to_owned())
        })
        .unwrap_err();
        assert!(error.to_string().contains("tea") && error.to_string().contains("still cold"));
    }
}
