//! Running a session: a shell with kubectl in a folder of its own, and output with everything masked that differs
//! from run to run.

use std::path::{Path, PathBuf};
use std::process::Command;

use afloat_realparts::Components;
use regex::Regex;

use super::transcript::{Step, Transcript};

/// The most that one command may take; `timeout` ends it then.
const SECONDS_PER_COMMAND: &str = "60";

/// A folder with a kubeconfig, and the kubectl to use.
pub struct Session {
    folder: tempfile::TempDir,
    kubectl_folder: PathBuf,
    masks: Vec<(Regex, &'static str)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Parts(#[from] afloat_realparts::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Mask(#[from] regex::Error),
}

impl Session {
    pub fn new(kubeconfig: &str) -> Result<Self, Error> {
        let kubectl = Components::locate_some(&["kubectl"])?.of("kubectl")?.to_owned();
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("work"))?;
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig)?;
        let kubectl_folder = kubectl.parent().map(PathBuf::from).unwrap_or_default();
        Ok(Self {
            folder,
            kubectl_folder,
            masks: masks()?,
        })
    }

    /// Runs every step and gives the session as it read this time.
    pub fn replay(&self, transcript: &Transcript) -> Result<Transcript, Error> {
        let work = self.folder.path().join("work");
        let mut replayed = Transcript {
            head: transcript.head.clone(),
            steps: Vec::new(),
        };
        for step in &transcript.steps {
            match step {
                Step::File { name, lines } => {
                    std::fs::write(work.join(name), lines.join("\n") + "\n")?;
                    replayed.steps.push(step.clone());
                }
                Step::Command { line, .. } => {
                    let output = self.run(line)?;
                    replayed.steps.push(Step::Command {
                        line: line.clone(),
                        output,
                    });
                }
            }
        }
        Ok(replayed)
    }

    fn run(&self, line: &str) -> Result<Vec<String>, Error> {
        let folder = self.folder.path();
        let ran = Command::new("timeout")
            .args(["-k", "2", SECONDS_PER_COMMAND, "sh", "-c"])
            .arg(format!("{{ {line}\n}} 2>&1"))
            .current_dir(folder.join("work"))
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", self.kubectl_folder.display()),
            )
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("CRDS", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds"))
            .output()?;
        let mut lines: Vec<String> = String::from_utf8_lossy(&ran.stdout)
            .lines()
            .filter(|line| !is_log(line))
            .map(|line| self.masked(line))
            .collect();
        match ran.status.code() {
            Some(0) => {}
            Some(code) => lines.push(format!("[exit {code}]")),
            None => lines.push("[ended by a signal]".to_owned()),
        }
        Ok(lines)
    }

    fn masked(&self, line: &str) -> String {
        let masked = self.masks.iter().fold(line.to_owned(), |line, (pattern, mask)| {
            pattern.replace_all(&line, *mask).into_owned()
        });
        masked.trim_end().to_owned()
    }
}

/// A line of kubectl's own log (`I1116 01:01:13.541432 …`): what its caches went through, which is chance.
fn is_log(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (Some(date), Some(time)) = (words.next(), words.next()) else {
        return false;
    };
    let dated = date.len() == 5 && date.starts_with(['I', 'W', 'E', 'F']);
    dated && date[1..].bytes().all(|byte| byte.is_ascii_digit()) && time.matches(':').count() == 2
}

#[test]
fn lines_of_the_log_are_told_from_output() {
    assert!(is_log(
        "I1116 01:01:13.541432  9989 reflector.go:664] \"Warning: watch ended with error\""
    ));
    assert!(!is_log("I1116 is a name"));
    assert!(!is_log("web  0/2  0  AGE  nginx"));
}

fn masks() -> Result<Vec<(Regex, &'static str)>, regex::Error> {
    let masks = [
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (
            r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}",
            "TIME",
        ),
        (r#"("?[rR]esource ?[vV]ersion"?: *)"?\d+"?"#, "${1}REVISION"),
        (r"\b127\.0\.0\.1:\d+", "SERVER"),
        (r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"),
        (r":3\d{4}/", ":PORT/"),
        (r"\b(\d+[ydhms]){1,2}\b", "AGE"),
        (r"(\S) {2,}", "${1}  "),
        (r"\t+", "  "),
    ];
    masks
        .into_iter()
        .map(|(pattern, mask)| Regex::new(pattern).map(|pattern| (pattern, mask)))
        .collect()
}

/// The commands that printed something else, each with both outputs.
pub fn differences(recorded: &Transcript, replayed: &Transcript) -> Vec<String> {
    let pairs = recorded.steps.iter().zip(&replayed.steps);
    pairs
        .filter_map(|pair| match pair {
            (Step::Command { line, output: expected }, Step::Command { output: printed, .. })
                if expected != printed =>
            {
                let marked = |mark: &str, lines: &[String], others: &[String]| {
                    let mark_of = |line: &String| if others.contains(line) { " " } else { mark }.to_owned();
                    lines
                        .iter()
                        .map(|line| format!("  {} {line}\n", mark_of(line)))
                        .collect::<Vec<_>>()
                        .concat()
                };
                let real = marked("-", expected, printed);
                let ours = marked("+", printed, expected);
                Some(format!("$ {line}\n the real server:\n{real} here:\n{ours}"))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn masks_hide_what_changes_from_run_to_run() {
    let masks = masks().expect("the patterns are well formed");
    let masked = |line: &str| {
        masks.iter().fold(line.to_owned(), |line, (pattern, mask)| {
            pattern.replace_all(&line, *mask).into_owned()
        })
    };
    assert_eq!(
        masked("web    0/2     0            12s    nginx"),
        "web  0/2  0  AGE  nginx"
    );
    assert_eq!(masked("  uid: 2b4aa37b-4dd6-44e0-8d68-2640fec31485"), "  uid: UID");
    assert_eq!(masked("  resourceVersion: \"804\""), "  resourceVersion: REVISION");
    assert_eq!(
        masked("  creationTimestamp: \"2026-11-15T23:01:30Z\""),
        "  creationTimestamp: \"TIME\""
    );
    assert_eq!(
        masked("CreationTimestamp:      Sun, 15 Nov 2026 23:01:35 +0000"),
        "CreationTimestamp:  TIME"
    );
    assert_eq!(masked("main at https://127.0.0.1:27443"), "main at https://SERVER");
}
