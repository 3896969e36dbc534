//! Programs of a real machine, called and waited for, each bounded in time: systemctl, nft, ctr. What must outlive its caller is a
//! job, and lives in `jobs`.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::host::{Answer, HostError};

/// Where programs are looked for: a container without any file has no PATH either.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The most that is read of what a program says.
const MOST_BYTES: u64 = 8 << 20;
/// Between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(5);

/// What a program said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    pub fn is_fine(&self) -> bool {
        self.code == 0
    }

    /// What it complained about, in one line.
    pub fn complaint(&self) -> String {
        let lines = self.stderr.lines().chain(self.stdout.lines());
        let line = lines.map(str::trim).find(|line| !line.is_empty());
        line.map_or_else(|| format!("it ended with {}", self.code), str::to_owned)
    }
}

/// Where a program lies, if it is on this machine at all.
pub fn find(name: &str) -> Option<String> {
    if name.contains('/') {
        return Some(name.to_owned());
    }
    let mut paths = PATH.split(':').map(|folder| format!("{folder}/{name}"));
    paths.find(|path| Path::new(path).is_file())
}

/// Runs a program to its end; an error only when there is none, or when it takes too long.
pub fn run(program: &str, args: &[&str], input: &[u8], limit: Duration) -> Answer<Said> {
    let failed = |message: String| HostError::Failed {
        action: "run",
        object: format!("{program} {}", args.first().unwrap_or(&""))
            .trim_end()
            .to_owned(),
        message,
    };
    let path = find(program).ok_or_else(|| failed("there is no such program on this machine".to_owned()))?;
    let mut command = Command::new(path);
    command.args(args).env("PATH", PATH).env("LC_ALL", "C");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdout = listen(child.stdout.take());
    let stderr = listen(child.stderr.take());
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading all of it says itself what it did not like.
        let _ = stdin.write_all(input);
    }
    let code = wait(&mut child, limit).map_err(failed)?;
    Ok(Said {
        code,
        stdout: heard(stdout),
        stderr: heard(stderr),
    })
}

fn wait(child: &mut Child, limit: Duration) -> Result<i32, String> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code().unwrap_or(-1)),
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took longer than {} seconds", limit.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn listen(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // What was read before it broke off is what there is to say.
            let _ = from.take(MOST_BYTES).read_to_end(&mut bytes);
        }
        bytes
    })
}

fn heard(listener: JoinHandle<Vec<u8>>) -> String {
    let bytes = listener.join().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_heard_and_never_waited_for_too_long() {
        let second = Duration::from_secs(10);
        let said = run("sh", &["-c", "cat; echo no >&2; exit 3"], b"yes\n", second).unwrap();
        assert_eq!(
            (said.code, said.stdout.as_str(), said.complaint().as_str()),
            (3, "yes\n", "no")
        );
        let late = run("sleep", &["30"], b"", Duration::from_millis(50)).unwrap_err();
        assert!(late.to_string().contains("it took longer"), "{late}");
        let none = run("no-such-program", &["x"], b"", second).unwrap_err();
        assert!(none.to_string().contains("no such program"), "{none}");
    }
}
