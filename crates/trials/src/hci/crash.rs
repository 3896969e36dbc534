//! A crash of the operator and of the tasks of its Jobs after one single write of theirs: the write is done, its answer is lost, and
//! whoever is started again has to find out. Tried for every write of an upgrade, one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use afloat_apisim::Verb;
use afloat_apisim::hooks::{Fault, Faults, RequestInfo};
use afloat_sim::hci::HciScenario;
use tokio::sync::Notify;

use super::play::HciPlay;
use super::verdict::{PATIENCE, judged, reached, running};
use crate::play::{OPERATOR, PlayError};

/// Writes that nobody's work depends on.
const BESIDE: [&str; 2] = ["leases", "events"];

/// Counts writes, and ends whoever made the one that was asked for.
struct Crash {
    after: u64,
    writes: AtomicU64,
    dead: AtomicBool,
    hit: Notify,
}

impl Faults for Crash {
    fn on_request(&self, request: &RequestInfo<'_>) -> Fault {
        if request.user_agent != OPERATOR {
            return Fault::None;
        }
        if self.dead.load(Ordering::Relaxed) {
            return Fault::Refuse(503);
        }
        let reads = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        if reads || BESIDE.contains(&request.resource.plural.as_str()) {
            return Fault::None;
        }
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 != self.after {
            return Fault::None;
        }
        self.dead.store(true, Ordering::Relaxed);
        self.hit.notify_one();
        Fault::LoseReply(504)
    }
}

/// How an upgrade with a crash went.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub broken: Vec<String>,
    /// All writes of the operator and the tasks.
    pub writes: u64,
    /// There were as many writes as to come to the crash.
    pub crashed: bool,
}

/// Plays a scenario with a crash after this write; without any where it is 0.
pub async fn run(scenario: HciScenario, after: u64) -> Result<Outcome, PlayError> {
    let mut script = scenario.describe();
    // What is said on the way may be missed by whoever was started again.
    script.says.clear();
    let mut play = HciPlay::start(script, 7).await?;
    let before = running(&play).await?;
    let crash = Arc::new(Crash {
        after,
        writes: AtomicU64::new(0),
        dead: AtomicBool::new(false),
        hit: Notify::new(),
    });
    play.server.inject(Some(Arc::clone(&crash) as _));
    play.ask().await?;
    let ended = {
        let hit = crash.hit.notified();
        tokio::select! {
            () = hit => None,
            ended = reached(&play, PATIENCE) => Some(ended?),
        }
    };
    if ended.is_none() {
        play.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        crash.dead.store(false, Ordering::Relaxed);
        reached(&play, PATIENCE).await?;
    }
    Ok(Outcome {
        broken: judged(&play, &before).await?,
        writes: crash.writes.load(Ordering::Relaxed),
        crashed: ended.is_none(),
    })
}
