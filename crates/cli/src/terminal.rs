//! The terminal: whether there is one, how wide, whether colour is welcome, and a frame redrawn in place that always
//! leaves the terminal as it was. What is drawn is decided elsewhere.

use crossterm::{cursor, queue, terminal};
use std::io::{IsTerminal as _, Write as _};

/// Prints text; a reader that went away (`| head`) is no error of ours.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Colour is welcome: a terminal, `NO_COLOR` unset or empty (no-color.org), not a dumb one.
pub fn colour() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stdout_is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and rows; what a terminal used to be when it does not say.
pub fn size() -> (usize, usize) {
    terminal::size().map_or((80, 24), |(columns, rows)| {
        (usize::from(columns.max(20)), usize::from(rows.max(5)))
    })
}

/// Lines on a terminal that are drawn over each other.
pub struct Frame {
    drawn: u16,
}

impl Frame {
    pub fn new() -> Self {
        let mut out = std::io::stdout().lock();
        let _gone = queue!(out, cursor::Hide).and_then(|()| out.flush());
        Self { drawn: 0 }
    }

    /// Draws `lines` in place of the last ones; they must fit the screen.
    pub fn draw(&mut self, lines: &[String]) {
        let mut out = std::io::stdout().lock();
        let mut draw = || -> std::io::Result<()> {
            if self.drawn > 0 {
                queue!(out, cursor::MoveToPreviousLine(self.drawn))?;
            }
            for line in lines {
                // Each line is written over the old one and its rest cleared: nothing flickers.
                write!(out, "{line}")?;
                queue!(out, terminal::Clear(terminal::ClearType::UntilNewLine))?;
                writeln!(out)?;
            }
            queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
            out.flush()
        };
        let _gone = draw();
        self.drawn = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut out = std::io::stdout().lock();
        let _gone = queue!(out, cursor::Show).and_then(|()| out.flush());
    }
}
