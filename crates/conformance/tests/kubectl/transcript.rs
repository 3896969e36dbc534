//! The text form of a session: commands, what they printed, and the files they use.

use std::fmt;

/// A recorded session.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// Why the session is there: the comment lines at its head.
    pub head: Vec<String>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// A line for the shell, and its output.
    Command { line: String, output: Vec<String> },
    /// A file that later commands read.
    File { name: String, lines: Vec<String> },
}

impl Transcript {
    pub fn parse(text: &str) -> Self {
        let mut transcript = Self::default();
        let mut open_file = false;
        for line in text.lines() {
            if open_file {
                match (line, transcript.steps.last_mut()) {
                    ("<", _) => open_file = false,
                    (_, Some(Step::File { lines, .. })) => lines.push(line.to_owned()),
                    _ => {}
                }
            } else if let Some(command) = line.strip_prefix("$ ") {
                transcript.steps.push(Step::Command {
                    line: command.to_owned(),
                    output: Vec::new(),
                });
            } else if let Some(name) = line.strip_prefix("> ") {
                transcript.steps.push(Step::File {
                    name: name.to_owned(),
                    lines: Vec::new(),
                });
                open_file = true;
            } else if let Some(Step::Command { output, .. }) = transcript.steps.last_mut() {
                output.push(line.to_owned());
            } else {
                transcript.head.push(line.to_owned());
            }
        }
        transcript
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(formatter, "{line}")?;
        }
        for step in &self.steps {
            match step {
                Step::Command { line, output } => {
                    writeln!(formatter, "$ {line}")?;
                    for line in output {
                        writeln!(formatter, "{line}")?;
                    }
                }
                Step::File { name, lines } => {
                    writeln!(formatter, "> {name}")?;
                    for line in lines {
                        writeln!(formatter, "{line}")?;
                    }
                    writeln!(formatter, "<")?;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn transcript_survives_being_read_and_written() {
    let text = "# why\n$ kubectl get x\nNAME\n[exit 1]\n> a.yaml\nkind: A\n---\n$ not a command\n<\n$ kubectl b\n";
    let read = Transcript::parse(text);
    assert_eq!(read.to_string(), text);
    assert_eq!(read.steps.len(), 3);
    assert_eq!(read.head, ["# why"]);
}
