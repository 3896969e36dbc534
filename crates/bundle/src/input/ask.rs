//! Asking programs about themselves: run for a moment, with nothing to read and no environment but a path.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Programs answer at once or not at all.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// What a program says about itself is short.
const LONGEST_ANSWER: u64 = 64 << 10;

/// Asks the program at a path with these arguments; nothing where it cannot be run or does not answer.
pub type Ask<'a> = &'a dyn Fn(&Path, &[&str]) -> Option<String>;

/// Runs the program.
pub fn run(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        // kubectl and kubeadm look for files there.
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        match child.try_wait() {
            Ok(Some(_)) => {
                let mut said = String::new();
                // CNI plugins tell their version on stderr.
                child.stdout?.take(LONGEST_ANSWER).read_to_string(&mut said).ok()?;
                child.stderr?.take(LONGEST_ANSWER).read_to_string(&mut said).ok()?;
                return Some(said);
            }
            Ok(None) => std::thread::sleep(LOOK),
            Err(_) => break,
        }
    }
    let _gone = child.kill();
    let _reaped = child.wait();
    None
}

/// The word that is a version in the first line, as `v1.36.3` or `1.3.3`. Further lines are about something else, as the protocols
/// a CNI plugin speaks.
pub fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let numbers = word.strip_prefix('v').unwrap_or(word);
        semver::Version::parse(numbers).is_ok()
    };
    let first = text.lines().next()?;
    first.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, version) in [
            ("v1.36.3\n", Some("v1.36.3")),
            ("Kubernetes v1.36.3\n", Some("v1.36.3")),
            ("Client Version: v1.36.3\nKustomize Version: v5.7.1\n", Some("v1.36.3")),
            (
                "containerd github.com/containerd/containerd/v2 v2.2.1 1c4457e\n",
                Some("v2.2.1"),
            ),
            ("runc version 1.3.3\nspec: 1.2.1\n", Some("1.3.3")),
            (
                "CNI bridge plugin v1.9.0\nCNI protocol versions supported: 0.1.0, 1.1.0\n",
                Some("v1.9.0"),
            ),
            (
                "CNI loopback plugin version unknown\nCNI protocol versions supported: 1.0.0, 1.1.0\n",
                None,
            ),
            ("usage: bridge\n", None),
        ] {
            assert_eq!(version_in(said).as_deref(), version, "{said}");
        }
    }

    #[test]
    fn a_program_that_is_there_answers_and_another_does_not() {
        assert_eq!(run(Path::new("/bin/echo"), &["v1.2.3"]).as_deref(), Some("v1.2.3\n"));
        assert_eq!(run(Path::new("/nonexistent/program"), &[]), None);
    }
}
