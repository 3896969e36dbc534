//! How far long work is: a line redrawn on a terminal, a line at the end of each piece otherwise. Both go to stderr, so that what
//! was asked for stands alone on stdout.

use crate::terminal;
use afloat_bundle::progress::News;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two redrawings.
const REDRAW: Duration = Duration::from_millis(100);
/// Less is not worth a line of its own in a pipe.
const WORTH_A_LINE: u64 = 1 << 20;

/// Tells what goes on under one word, `Packing`.
pub struct Telling {
    verb: &'static str,
    terminal: bool,
    now: Mutex<Now>,
}

struct Now {
    what: String,
    bytes: u64,
    done: u64,
    drawn: Option<Instant>,
}

impl Telling {
    pub fn new(verb: &'static str) -> Self {
        Self {
            verb,
            terminal: terminal::stderr_is_terminal(),
            now: Mutex::new(Now {
                what: String::new(),
                bytes: 0,
                done: 0,
                drawn: None,
            }),
        }
    }

    pub fn hear(&self, news: News<'_>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            News::Note(note) => write(&format!("{:>10} {note}\n", "note")),
            News::Begins { what, bytes } => {
                what.clone_into(&mut now.what);
                (now.bytes, now.done, now.drawn) = (bytes, 0, None);
            }
            News::Bytes(count) => {
                now.done = now.done.saturating_add(count).min(now.bytes);
                if self.terminal && now.drawn.is_none_or(|drawn| drawn.elapsed() > REDRAW) {
                    now.drawn = Some(Instant::now());
                    let (done, bytes) = (size(now.done), size(now.bytes));
                    write(&format!("\r\x1b[K{:>10} {} {done} of {bytes}", self.verb, now.what));
                }
            }
            News::Ends { skipped } => {
                let clear = if self.terminal { "\r\x1b[K" } else { "" };
                let note = if skipped { ", there already" } else { "" };
                if now.bytes >= WORTH_A_LINE || self.terminal && now.drawn.is_some() {
                    write(&format!(
                        "{clear}{:>10} {} {}{note}\n",
                        self.verb,
                        now.what,
                        size(now.bytes)
                    ));
                }
                now.drawn = None;
            }
        }
    }
}

fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    let _gone = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// `812 B`, `40 KiB`, `1.2 GiB`
pub fn size(bytes: u64) -> String {
    let (unit, word) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (1_u64 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let tenths = bytes.saturating_mul(10) / unit;
    if tenths < 100 {
        format!("{}.{} {word}", tenths / 10, tenths % 10)
    } else {
        format!("{} {word}", tenths / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (40 << 10, "40 KiB"),
            (5 << 19, "2.5 MiB"),
            (1 << 40, "1024 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
