//! What people are told when something cannot be done: what, why, and what to do about it; and the exit code that
//! goes with it.

use std::fmt;

/// The exit codes people and scripts can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Failed = 1,
    BadUsage = 2,
    StillGoingOn = 4,
}

/// Something that could not be done.
#[derive(Debug)]
pub struct Problem {
    pub code: Code,
    what: String,
    because: Vec<String>,
    help: Option<String>,
}

impl Problem {
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            because: Vec::new(),
            help: None,
        }
    }

    /// The reason in words of its own.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because.push(reason.into());
        self
    }

    /// The reason as an error tells it, with the reasons behind it.
    #[must_use]
    pub fn source(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.because.push(error.to_string());
            next = error.source();
        }
        self
    }

    /// What to do about it, best as a command.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        for reason in &self.because {
            write!(f, "\n  {reason}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_why_and_what_to_do() {
        let source = std::io::Error::other("address in use");
        let problem = Problem::new(Code::Failed, "cannot listen on 127.0.0.1:80")
            .source(&source)
            .help("choose another port");
        let text = "error: cannot listen on 127.0.0.1:80\n  address in use\n  help: choose another port";
        assert_eq!(problem.to_string(), text);
    }
}
