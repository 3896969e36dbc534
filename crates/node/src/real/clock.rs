//! The time that the engine reckons with: from its first look after a boot it goes on evenly, whatever is done to the machine's clock
//! meanwhile. Deadlines are moments of the journal, and a clock that is told the right time after a boot would let them all pass at once,
//! on a node that is merely starting. From one boot to the next it is the machine's clock again, which the journal allows for.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::host::Answer;
use crate::real::{containers, files};

/// What is written down for all who ask within one boot: which one it is, and when it would have begun by the clock of whoever asked first.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Anchor {
    boot: String,
    begun: Timestamp,
}

impl Anchor {
    fn read(text: &str) -> Option<Self> {
        let (boot, begun) = text.trim().split_once(' ')?;
        Some(Self {
            boot: boot.to_owned(),
            begun: begun.parse().ok()?,
        })
    }

    fn text(&self) -> String {
        format!("{} {}\n", self.boot, self.begun)
    }
}

/// What time it is, and what is to be written down where nothing is yet for this boot.
fn reckon(known: Option<Anchor>, boot: &str, up: SignedDuration, clock: Timestamp) -> (Timestamp, Option<Anchor>) {
    let known = known.filter(|anchor| anchor.boot == boot);
    let now = known.as_ref().and_then(|anchor| anchor.begun.checked_add(up).ok());
    if let Some(now) = now {
        return (now, None);
    }
    let anchor = clock.checked_sub(up).ok().map(|begun| Anchor {
        boot: boot.to_owned(),
        begun,
    });
    (clock, anchor)
}

/// The time by the anchor in this file, which does not outlive a boot.
pub fn now(path: &Path) -> Answer<Timestamp> {
    let known = files::read(path)?.and_then(|text| Anchor::read(&String::from_utf8_lossy(&text)));
    // A boot that cannot be told from others is the one that the file is from: it is gone after the next.
    let boot = containers::boot().ok();
    let boot = boot.or_else(|| known.as_ref().map(|anchor| anchor.boot.clone()));
    let since_boot = clock_gettime(ClockId::Boottime);
    let up = SignedDuration::new(since_boot.tv_sec, i32::try_from(since_boot.tv_nsec).unwrap_or(0));
    let (now, anchor) = reckon(known, boot.as_deref().unwrap_or("unknown"), up, Timestamp::now());
    if let Some(anchor) = anchor {
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        files::write(path, anchor.text().as_bytes(), 0o600)?;
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn k2_within_a_boot_time_goes_on_evenly_whatever_is_done_to_the_clock() {
        let clock = at("2026-01-01T10:00:00Z");
        let (now, anchor) = reckon(None, "one", SignedDuration::from_secs(60), clock);
        assert_eq!(now, clock);
        let anchor = anchor.unwrap();
        assert_eq!(Anchor::read(&anchor.text()), Some(anchor.clone()));
        for told in ["2026-01-01T07:00:00Z", "2026-01-01T13:00:00Z", "2026-01-01T10:00:09Z"] {
            let up = SignedDuration::from_secs(70);
            let (now, written) = reckon(Some(anchor.clone()), "one", up, at(told));
            assert_eq!((now, written), (at("2026-01-01T10:00:10Z"), None), "{told}");
        }
    }

    #[test]
    fn after_a_boot_it_is_the_clock_that_counts() {
        let known = Anchor::read("one 2026-01-01T09:59:00Z\n");
        let (now, written) = reckon(known, "two", SignedDuration::from_secs(5), at("2026-01-01T08:00:05Z"));
        assert_eq!(now, at("2026-01-01T08:00:05Z"));
        assert_eq!(written.unwrap().text(), "two 2026-01-01T08:00:00Z\n");
    }

    #[test]
    fn what_cannot_be_read_is_written_anew() {
        for text in ["", "one", "one yesterday", "one 2026-01-01"] {
            assert_eq!(Anchor::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn all_who_ask_on_one_machine_reckon_with_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("afloat/clock");
        let first = now(&path).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        let second = now(&path).unwrap();
        assert!(second >= first && second.duration_since(first).as_secs() < 60);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        // Somebody has set the clock back by an hour before: an hour later by this one.
        let anchor = Anchor::read(&before).unwrap();
        let ahead = Anchor {
            begun: anchor.begun.checked_add(SignedDuration::from_hours(1)).unwrap(),
            ..anchor
        };
        std::fs::write(&path, ahead.text()).unwrap();
        let later = now(&path).unwrap().duration_since(second).as_mins();
        assert!((59..=61).contains(&later), "{later}");
    }
}
