//! Following an upgrade to its end: redrawn in place on a terminal, one line per change in a pipe. Only looks; ending the
//! looking changes nothing.

use crate::board::waited::Waited;
use crate::board::{Board, end, lines, over, text};
use crate::cluster::Live;
use crate::problem::{Code, Problem};
use crate::screen::Screen;
use crate::{preflight, terminal};
use afloat_api::clusterupgrade::Phase;
use afloat_core::view::Key;
use afloat_core::words;
use jiff::Timestamp;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// The shortest time between two drawings, and how often times are drawn anew.
const DRAW: Duration = Duration::from_millis(200);
/// A pause counts when it has lasted so long: between two nodes it may look like one.
const CALM: Duration = Duration::from_secs(2);
/// Nodes are watched apart from the upgrade: after a silence they may be heard of only so much later.
const CATCH_UP: Duration = Duration::from_secs(20);
/// An operator that works has looked by then.
const HEARD: Duration = Duration::from_secs(15);

/// How following goes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Stop looking then.
    pub limit: Option<Duration>,
    pub when_held: WhenHeld,
    pub wide: bool,
    /// Say nothing on the way.
    pub silent: bool,
}

/// What following does where a person or the preflight holds an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenHeld {
    /// Looks on, until it is over.
    Stays,
    Ends,
    /// Ends, and the cluster with it: nobody looks again.
    EndsAll,
}

/// Follows until the upgrade is over, held, or `stop` comes. Answers with the exit code that goes with it.
pub async fn follow(
    live: &mut Live,
    key: &Key,
    screen: &mut Screen,
    manner: Manner,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    let begun = Instant::now();
    let mut stop = std::pin::pin!(stop);
    let mut tick = tokio::time::interval(DRAW);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = Shown::default();
    loop {
        let Some(board) = Board::of(live.view(), key, Timestamp::now()) else {
            screen.clear();
            return Err(Problem::new(
                Code::Failed,
                format!("clusterupgrade/{} was deleted", key.name),
            ));
        };
        shown.waited.look(&board);
        shown.show(&board, live, screen, manner);
        if let Some(code) = shown.ended(&board, manner) {
            last_words(&board, &shown.waited, screen, manner);
            return Ok(code);
        }
        let limit = manner.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        if limit == Some(Duration::ZERO) {
            screen.clear();
            screen.say(&format!(
                "{}\nIt goes on: afloat status {} --watch",
                text::heading(&board),
                key.name
            ));
            return Ok(Code::StillGoingOn);
        }
        tokio::select! {
            more = live.changed() => if !more {
                return Err(Problem::new(Code::Failed, "the cluster stopped telling what happens"));
            },
            _ = tick.tick() => {}
            () = &mut stop => {
                screen.clear();
                let name = &key.name;
                screen.say(&format!(
                    "Detached; {name} goes on. Look again: afloat status {name} --watch   End it: afloat abort {name}"
                ));
                return Ok(Code::Detached);
            }
        }
    }
}

/// What was shown last.
#[derive(Default)]
struct Shown {
    board: Option<Board>,
    drawn: Option<Instant>,
    held_since: Option<Instant>,
    over_since: Option<Instant>,
    began: Option<Instant>,
    asked_for_operator: bool,
    silent: bool,
    waited: Waited,
}

impl Shown {
    fn show(&mut self, board: &Board, live: &Live, screen: &mut Screen, manner: Manner) {
        if manner.silent {
            return;
        }
        if screen.is_terminal() {
            self.draw(board, live, screen, manner);
        } else {
            for line in lines::between(self.board.as_ref(), board) {
                screen.say(&line);
            }
            self.tell_of_silence(board, live, screen);
        }
        self.board = Some(board.clone());
    }

    fn draw(&mut self, board: &Board, live: &Live, screen: &mut Screen, manner: Manner) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < DRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut layout = screen.layout(manner.wide);
        layout.height = Some(terminal::size().1.saturating_sub(2));
        let mut lines = text::lines(board, layout);
        lines.push(match live.silent_since() {
            Some(since) => format!(
                "The API server does not answer since {}",
                words::since(since, board.time)
            ),
            None => "Ctrl-C stops the looking; the upgrade goes on".to_owned(),
        });
        screen.draw(&lines);
    }

    fn tell_of_silence(&mut self, board: &Board, live: &Live, screen: &mut Screen) {
        let began = *self.began.get_or_insert_with(Instant::now);
        if !board.seen && !self.asked_for_operator && began.elapsed() >= HEARD {
            self.asked_for_operator = true;
            screen.say("no operator has looked at it yet: is `afloat controller` running in the cluster?");
        }
        let silent = live.silent_since().is_some();
        if silent && !self.silent {
            screen.say("the API server does not answer; looking again until it does");
        }
        self.silent = silent;
    }

    fn ended(&mut self, board: &Board, manner: Manner) -> Option<Code> {
        if over(board.phase) {
            let since = *self.over_since.get_or_insert_with(Instant::now);
            let behind = board.nodes.iter().any(|node| node.in_flight) && since.elapsed() < CATCH_UP;
            let code = match board.phase {
                Phase::Succeeded => Code::Done,
                _ => Code::Failed,
            };
            return (!behind).then_some(code);
        }
        if manner.when_held == WhenHeld::Stays {
            return None;
        }
        if board.refused() {
            return Some(Code::Refused);
        }
        if !board.held() {
            self.held_since = None;
            return None;
        }
        let since = *self.held_since.get_or_insert_with(Instant::now);
        (since.elapsed() >= CALM).then_some(Code::Paused)
    }
}

fn last_words(board: &Board, waited: &Waited, screen: &mut Screen, manner: Manner) {
    screen.clear();
    if manner.silent {
        return;
    }
    let layout = screen.layout(manner.wide);
    if over(board.phase) {
        let mut lines = end::lines(board, layout);
        // After the figures; what is left to do stays last.
        lines.splice(1..1, waited.line());
        screen.say(&lines.join("\n"));
    } else if board.refused() {
        let mut report = preflight::finding_lines(&board.findings, layout.width, layout.colour);
        report.push(String::new());
        report.push(format!(
            "  {} Nothing was changed.",
            preflight::counted(&board.findings)
        ));
        if manner.when_held != WhenHeld::EndsAll {
            report.push(format!(
                "  The operator looks again and begins by itself once they are gone; to end it: afloat abort {}",
                board.name
            ));
        }
        screen.say(&report.join("\n"));
    } else {
        let mut words = vec![text::heading(board)];
        if board.paused {
            words.push("Paused: no further node starts. To let it go on: afloat resume".to_owned());
        } else {
            let names = board.waits.iter().map(|wait| wait.node.as_str());
            let names: Vec<&str> = names.collect();
            words.push(format!("Held until a person lets them go on: {}", names.join(", ")));
            words.extend(names.first().map(|name| format!("  afloat resume {name}")));
        }
        screen.say(&words.join("\n"));
    }
}
