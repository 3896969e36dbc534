//! One place that asks: a thread in the network it looks from, with a prober of each kind. A pod that is gone with its machine is waited
//! for; requests that could not be sent meanwhile count as away, not as failed.

use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::{
    Kind, Load, Shared,
    request::{Answered, Identity, Target},
};
use crate::{Error, Machine, network};

const SLOW: Duration = Duration::from_secs(1);
/// Requests of the load that may be under way.
const LOAD_UNDER_WAY: usize = 50;
const FAILURES_KEPT: usize = 12;
/// The `kubernetes` Service, and the workload's.
const SERVICE: &str = "10.96.0.1:443";
const PAGE: &str = "10.96.0.80:80";

/// Where a place is.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A network, asking an address in it.
    Network { network: PathBuf, address: String },
    /// The pod of this uid on a machine, asking Services.
    Pod {
        machine: Machine,
        pod: String,
        /// Whether the workload is there to be asked too.
        pages: bool,
    },
    /// Not to look, but to give the API servers something to do.
    Load {
        network: PathBuf,
        address: String,
        load: Load,
    },
}

impl Origin {
    /// The network namespace as it is now, if there is one.
    fn network(&self) -> Option<PathBuf> {
        match self {
            Self::Network { network, .. } | Self::Load { network, .. } => Some(network.clone()),
            Self::Pod { machine, pod, .. } => machine
                .processes()
                .into_iter()
                .find(|pid| {
                    fs::read_to_string(format!("/proc/{pid}/cgroup"))
                        .is_ok_and(|cgroups| cgroups.contains(pod.as_str()) || cgroups.contains(&pod.replace('-', "_")))
                })
                .map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net"))),
        }
    }

    fn targets(&self, name: &str, identity: &Arc<Identity>) -> Vec<(Kind, Target)> {
        let object: String = name
            .chars()
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let api = |address: &str| {
            Vec::from([Kind::Read, Kind::Write, Kind::Kept].map(|kind| {
                let target = Target::api(kind, address, &object, Arc::clone(identity));
                (kind, target)
            }))
        };
        match self {
            Self::Network { address, .. } => api(address),
            Self::Load { address, .. } => {
                let kept = Target::api(Kind::Kept, address, &object, Arc::clone(identity));
                vec![(Kind::Kept, kept)]
            }
            Self::Pod { pages, .. } => {
                let mut targets = api(SERVICE);
                if *pages {
                    targets.push((Kind::Page, Target::page(PAGE)));
                }
                targets
            }
        }
    }
}

/// One thread's work.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) identity: Arc<Identity>,
    pub(super) every: Duration,
    /// Into its turn: places that all asked at once would keep each other waiting.
    pub(super) after: Duration,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) counts: Shared,
}

impl Place {
    pub(super) fn ask_until_stopped(self) -> Result<(), Error> {
        // Sockets belong to the network of the thread that makes them, so all of this stays in one thread.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Probe(error.to_string()))?;
        let work = tokio::task::LocalSet::new();
        work.block_on(&runtime, Rc::new(self).ask())
    }

    /// Watches that are opened again whenever they end; an opening that fails counts.
    async fn keep_watching(self: Rc<Self>, address: String, started: Instant) {
        let target = Target::api(Kind::Watch, &address, "", Arc::clone(&self.identity));
        while !self.stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let opened = target.open().await;
            let answered = Answered {
                took: asked.elapsed(),
                put_off: false,
            };
            let answer = opened.as_ref().map(|_| answered).map_err(Clone::clone);
            self.count(started, Ok((Kind::Watch, asked, answer)));
            match opened {
                Ok(stream) => stream.until_it_ends().await,
                Err(_) => tokio::time::sleep(self.every.max(Duration::from_millis(200))).await,
            }
        }
    }

    async fn ask(self: Rc<Self>) -> Result<(), Error> {
        let started = Instant::now();
        // Ended with this function.
        let mut watches = JoinSet::new();
        let mut targets = self.fresh_targets();
        let mut ticks = tokio::time::interval_at((started + self.after).into(), self.every);
        // A prober that came too late asks no more often for that; a load is made up for, or machines that are busy would have less of it.
        ticks.set_missed_tick_behavior(match self.origin {
            Origin::Load { .. } => MissedTickBehavior::Burst,
            _ => MissedTickBehavior::Skip,
        });
        let mut under_way = JoinSet::new();
        let mut here: Option<(PathBuf, PathBuf)> = None;
        while !self.stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            if !here
                .as_ref()
                .is_some_and(|(path, identity)| same_network(path, identity))
            {
                here = self.move_in();
                targets = self.fresh_targets();
                if let Origin::Load { address, load, .. } = &self.origin
                    && here.is_some()
                    && watches.is_empty()
                {
                    for _ in 0..load.watches {
                        watches.spawn_local(Rc::clone(&self).keep_watching(address.clone(), started));
                    }
                }
            }
            if here.is_none() {
                for (kind, _) in &targets {
                    self.note(*kind, |count| count.away += 1);
                }
                continue;
            }
            // More load than is answered would only pile up: it goes on with the next answer.
            if matches!(self.origin, Origin::Load { .. })
                && under_way.len() >= LOAD_UNDER_WAY
                && let Some(done) = under_way.join_next().await
            {
                self.count(started, done);
            }
            for (kind, target) in &targets {
                let (kind, target, asked) = (*kind, Rc::clone(target), Instant::now());
                under_way.spawn_local(async move { (kind, asked, target.ask().await) });
            }
            while let Some(done) = under_way.try_join_next() {
                self.count(started, done);
            }
        }
        let turns = started.elapsed().as_nanos() / self.every.as_nanos().max(1);
        let turns = u64::try_from(turns).unwrap_or(u64::MAX);
        for (kind, _) in &targets {
            self.note(*kind, |count| count.due = turns);
        }
        // Each has its own bound, so this ends.
        while let Some(done) = under_way.join_next().await {
            self.count(started, done);
        }
        Ok(())
    }

    fn fresh_targets(&self) -> Vec<(Kind, Rc<Target>)> {
        self.origin
            .targets(&self.name, &self.identity)
            .into_iter()
            .map(|(kind, target)| (kind, Rc::new(target)))
            .collect()
    }

    /// Into the network, if it is there: its path, and what the path means now.
    fn move_in(&self) -> Option<(PathBuf, PathBuf)> {
        let path = self.origin.network()?;
        let identity = fs::read_link(&path).unwrap_or_default();
        network::enter(&path).ok()?;
        Some((path, identity))
    }

    fn note(&self, kind: Kind, change: impl FnOnce(&mut super::Count)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(counts.0.entry(self.name.clone()).or_default().entry(kind).or_default());
    }

    fn count(&self, started: Instant, done: Result<(Kind, Instant, Answer), tokio::task::JoinError>) {
        let Ok((kind, asked, answer)) = done else {
            return;
        };
        let took = asked.elapsed();
        self.note(kind, |count| {
            count.sent += 1;
            match answer {
                Ok(answered) => {
                    count.put_off += u64::from(answered.put_off);
                    count.slow += u64::from(answered.took > SLOW);
                    let milliseconds = u64::try_from(answered.took.as_millis()).unwrap_or(u64::MAX);
                    count.longest_milliseconds = count.longest_milliseconds.max(milliseconds);
                }
                Err(why) => {
                    count.failed += 1;
                    let sent = asked.duration_since(started);
                    let (first, last) = count.failed_within.unwrap_or((sent, sent));
                    count.failed_within = Some((first.min(sent), last.max(sent + took)));
                    if count.failures.len() < FAILURES_KEPT {
                        let at = asked.duration_since(started).as_secs_f64();
                        let clock = std::time::SystemTime::now()
                            .duration_since(std::time::UNIX_EPOCH)
                            .map_or(0, |since| since.as_secs() % 86_400);
                        let (hours, minutes, seconds) = (clock / 3600, clock / 60 % 60, clock % 60);
                        count.failures.push(format!(
                            "after {at:.1}s ({hours:02}:{minutes:02}:{seconds:02}), {} ms: {why}",
                            took.as_millis()
                        ));
                    }
                }
            }
        });
    }
}

type Answer = Result<Answered, String>;

/// A path under /proc may come to mean another process, and a network of the lab is a plain file.
fn same_network(path: &Path, identity: &Path) -> bool {
    fs::read_link(path).map_or_else(
        |_| path.exists() && identity.as_os_str().is_empty(),
        |now| now == identity,
    )
}
