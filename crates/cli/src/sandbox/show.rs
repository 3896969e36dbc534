//! What a sandbox shows: a picture once it has settled, a table redrawn in place, or one line per change when the
//! output is no terminal. Reads the cluster through watches of its own, as any client would.

use crate::args::Output;
use crate::picture::text::Layout;
use crate::picture::{Picture, lines, text};
use crate::problem::{Code, Problem};
use crate::screen::interrupted;
use crate::terminal::{self, Frame};
use afloat_sim::feed::{Feed, Intake, News};
use afloat_sim::object::Kind;
use afloat_sim::view::View;
use afloat_sim::world::PopulateError;
use jiff::Timestamp;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

const WATCHED: &[Kind] = &[
    Kind::Node,
    Kind::Pod,
    Kind::Deployment,
    Kind::DaemonSet,
    Kind::StatefulSet,
    Kind::PodDisruptionBudget,
    Kind::Event,
];
/// The shortest time between two drawings.
const DRAW: Duration = Duration::from_millis(100);
/// A picture counts as settled when it has been for so long: controllers answer each other within it.
const CALM: Duration = Duration::from_millis(150);

/// Shows one cluster.
pub struct Show {
    feed: Feed,
    intake: Intake,
    view: View,
    version: String,
    nodes: usize,
    output: Output,
}

impl Show {
    pub fn new(client: &kube::Client, version: String, nodes: usize, output: Output) -> Self {
        let feed = Feed::start(client, WATCHED);
        Self {
            feed,
            intake: Intake::default(),
            view: View::default(),
            version,
            nodes,
            output,
        }
    }

    fn picture(&self) -> Picture {
        Picture::of(&self.view, &self.version, self.nodes, Timestamp::now())
    }

    fn layout(&self, height: Option<usize>) -> Layout {
        let terminal = terminal::stdout_is_terminal();
        Layout {
            wide: self.output == Output::Wide,
            colour: terminal::colour(),
            width: if terminal { terminal::size().0 } else { usize::MAX },
            height,
        }
    }

    /// Waits until the cluster has settled, prints it, and ends.
    pub async fn once(
        mut self,
        populate: impl Future<Output = Result<(), PopulateError>>,
        limit: Duration,
    ) -> Result<(), Problem> {
        let settled = self.settle(populate, limit).await;
        self.print();
        settled
    }

    /// Waits until the cluster has settled.
    pub async fn settle(
        &mut self,
        populate: impl Future<Output = Result<(), PopulateError>>,
        limit: Duration,
    ) -> Result<(), Problem> {
        let deadline = Instant::now() + limit;
        let mut populate = std::pin::pin!(populate);
        let mut interruption = std::pin::pin!(interrupted());
        let (mut populated, mut calm_since) = (false, None::<Instant>);
        let mut progress = Progress::new();
        // A picture looks at everything: taken now and then, not for each of thousands of changes.
        let mut tick = tokio::time::interval(DRAW);
        loop {
            tokio::select! {
                done = &mut populate, if !populated => {
                    done.map_err(|error| refused(&error))?;
                    populated = true;
                    continue;
                }
                news = self.feed.next() => {
                    self.take(news);
                    continue;
                }
                _ = tick.tick() => {}
                () = &mut interruption => {
                    return Err(Problem::new(Code::Failed, "interrupted before the cluster had settled"));
                }
            }
            let unsettled = self.picture().unsettled;
            let complete = populated && self.intake.complete(WATCHED);
            let settled = complete && unsettled.is_empty();
            calm_since = if settled {
                calm_since.or_else(|| Some(Instant::now()))
            } else {
                None
            };
            if calm_since.is_some_and(|since| since.elapsed() >= CALM) {
                progress.end();
                return Ok(());
            }
            progress.show(&unsettled);
            if Instant::now() >= deadline {
                progress.end();
                return Err(Problem::new(
                    Code::StillGoingOn,
                    format!("the cluster has not settled in {}s", limit.as_secs()),
                )
                .because(unsettled.join("; "))
                .help("watch it: afloat sandbox"));
            }
        }
    }

    fn take(&mut self, news: Option<News>) {
        let mut next = news;
        while let Some(news) = next {
            self.intake.take(news, &mut self.view);
            next = self.feed.ready();
        }
    }

    fn print(&self) {
        let picture = self.picture();
        let text = match self.output {
            Output::Text | Output::Wide => text::lines(&picture, self.layout(None)).join("\n") + "\n",
            Output::Json => serde_json::to_string_pretty(&picture).unwrap_or_default() + "\n",
            Output::Yaml => serde_saphyr::to_string(&picture).unwrap_or_default(),
        };
        terminal::print(&text);
    }

    /// Shows the cluster until it is interrupted.
    pub async fn live(
        self,
        populate: impl Future<Output = Result<(), PopulateError>>,
        served: bool,
    ) -> Result<(), Problem> {
        let populate = async {
            populate.await.map_err(|error| refused(&error))?;
            std::future::pending::<Result<(), Problem>>().await
        };
        let shown = async {
            match (terminal::stdout_is_terminal(), served) {
                (true, _) => self.draw().await,
                (false, false) => self.print_changes().await,
                // Who reads the instructions from a pipe wants nothing after them.
                (false, true) => std::future::pending().await,
            }
        };
        tokio::select! {
            problem = populate => problem,
            () = shown => Ok(()),
            () = interrupted() => Ok(()),
        }
    }

    async fn draw(mut self) {
        let mut frame = Frame::new();
        loop {
            let (_, rows) = terminal::size();
            let mut lines = text::lines(&self.picture(), self.layout(Some(rows.saturating_sub(2))));
            lines.push("Ctrl-C ends it; nothing is left behind".to_owned());
            frame.draw(&lines);
            tokio::time::sleep(DRAW).await;
            // Ages and a resized terminal want a new drawing now and then even when nothing happens.
            if let Ok(news) = tokio::time::timeout(Duration::from_secs(1), self.feed.next()).await {
                if news.is_none() {
                    return;
                }
                self.take(news);
            }
        }
    }

    async fn print_changes(mut self) {
        while let Some(news) = self.feed.next().await {
            for change in self.intake.take(news, &mut self.view) {
                if let Some(line) = lines::line(&change, Timestamp::now()) {
                    terminal::print(&format!("{line}\n"));
                }
            }
        }
    }
}

fn refused(error: &PopulateError) -> Problem {
    Problem::new(Code::Failed, "the cluster could not be filled").source(error)
}

/// What `--once` waits for, on one line of a terminal's stderr.
struct Progress {
    shown: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { shown: None }
    }

    fn show(&mut self, open: &[String]) {
        let recent = self.shown.is_some_and(|shown| shown.elapsed() < DRAW);
        if recent || !terminal::stderr_is_terminal() {
            return;
        }
        self.shown = Some(Instant::now());
        let width = terminal::size().0.saturating_sub(12);
        let text: String = open.join("; ").chars().take(width).collect();
        eprint!("\r\u{1b}[K  Settling: {text}");
    }

    fn end(&self) {
        if self.shown.is_some() {
            eprint!("\r\u{1b}[K");
        }
    }
}
