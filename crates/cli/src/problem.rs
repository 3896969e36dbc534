//! What people are told when something cannot be done: what, why, and what to do about it; and the exit code that
//! goes with it.

use std::fmt;

/// The exit codes people and scripts can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Done = 0,
    Failed = 1,
    BadUsage = 2,
    /// Refused by the preflight; nothing was changed.
    Refused = 3,
    StillGoingOn = 4,
    /// A person holds it.
    Paused = 5,
    /// The person stopped looking; what is going on goes on.
    Detached = 130,
}

/// Something that could not be done.
#[derive(Debug)]
pub struct Problem {
    pub code: Code,
    what: String,
    because: Vec<String>,
    help: Vec<String>,
}

impl Problem {
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            because: Vec::new(),
            help: Vec::new(),
        }
    }

    /// The reason in words of its own.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because.push(reason.into());
        self
    }

    /// The reason as an error tells it, with the reasons behind it. Many errors repeat the one behind them: said once.
    #[must_use]
    pub fn source(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if !self.because.iter().any(|said| said.contains(&text)) {
                self.because.push(text);
            }
            next = error.source();
        }
        self
    }

    /// The first cause alone, where the layers above it only name themselves.
    #[must_use]
    pub fn root(mut self, error: &dyn std::error::Error) -> Self {
        let mut last = error;
        while let Some(deeper) = last.source() {
            last = deeper;
        }
        self.because.push(last.to_string());
        self
    }

    /// What to do about it, best as a command. Each further one is another way.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        for reason in &self.because {
            write!(f, "\n  {reason}")?;
        }
        for (index, help) in self.help.iter().enumerate() {
            let head = if index == 0 { "help:" } else { "     " };
            write!(f, "\n  {head} {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{layer}: {cause}")]
    struct Layer {
        layer: &'static str,
        #[source]
        cause: std::io::Error,
    }

    #[test]
    fn what_is_repeated_by_layers_is_said_once() {
        let layered = Layer {
            layer: "cannot connect",
            cause: std::io::Error::other("connection refused"),
        };
        let whole = Problem::new(Code::Failed, "no answer").source(&layered);
        assert_eq!(
            whole.to_string(),
            "error: no answer\n  cannot connect: connection refused"
        );
        let first = Problem::new(Code::Failed, "no answer").root(&layered);
        assert_eq!(first.to_string(), "error: no answer\n  connection refused");
    }

    #[test]
    fn a_problem_says_what_why_and_what_to_do() {
        let source = std::io::Error::other("address in use");
        let problem = Problem::new(Code::Failed, "cannot listen on 127.0.0.1:80")
            .source(&source)
            .help("choose another port")
            .help("end what listens there");
        let text = "error: cannot listen on 127.0.0.1:80\n  address in use\n  help: choose another port\n        end what listens there";
        assert_eq!(problem.to_string(), text);
    }
}
