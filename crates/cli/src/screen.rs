//! Where a command speaks to: a terminal that is redrawn in place, or a pipe that gets one line after the other. Commands
//! speak to this and not to the terminal, so that tests can listen.

use crate::board::text::Layout;
use crate::problem::{Code, Problem};
use crate::terminal::{self, Frame};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

/// What is spoken to.
pub enum Screen {
    Terminal(Option<Frame>),
    Pipe,
    /// Keeps what was said.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests listen through it"))]
    Memory(Arc<Mutex<String>>),
}

impl Screen {
    /// What stdout is.
    pub fn stdout() -> Self {
        if terminal::stdout_is_terminal() {
            Self::Terminal(None)
        } else {
            Self::Pipe
        }
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    pub fn layout(&self, wide: bool) -> Layout {
        let terminal = self.is_terminal();
        Layout {
            wide,
            colour: terminal && terminal::colour(),
            width: if terminal { terminal::size().0 } else { usize::MAX },
            height: None,
        }
    }

    /// Says something that stays.
    pub fn say(&mut self, text: &str) {
        match self {
            Self::Terminal(frame) => {
                *frame = None;
                terminal::print(&format!("{text}\n"));
            }
            Self::Pipe => terminal::print(&format!("{text}\n")),
            Self::Memory(said) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(text);
                said.push('\n');
            }
        }
    }

    /// Draws over what was drawn last; only a terminal can.
    pub fn draw(&mut self, lines: &[String]) {
        if let Self::Terminal(frame) = self {
            frame.get_or_insert_with(Frame::new).draw(lines);
        }
    }

    /// Takes the drawing away, so that the last words stand alone.
    pub fn clear(&mut self) {
        if let Self::Terminal(frame) = self
            && let Some(mut frame) = frame.take()
        {
            frame.draw(&[]);
        }
    }
}

/// Asks once; without anybody to ask it is refused.
pub fn consent(question: &str, yes: bool) -> Result<bool, Problem> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Problem::new(Code::BadUsage, "there is nobody here to ask")
            .because(question.to_owned())
            .help("to go on without being asked: --yes"));
    }
    let mut err = std::io::stderr().lock();
    let _gone = write!(err, "{question} Go on? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Ctrl-C, or the polite end a supervisor sends.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        result = tokio::signal::ctrl_c() => if result.is_err() { std::future::pending::<()>().await },
        () = terminate => {}
    }
}
