//! Clients that ask the cluster something every 200 ms and count what fails: read, write and kept-alive, through the load balancers and,
//! from pods, through the `kubernetes` Service. They run as threads of this process, each moved into the network it looks from.
//! One request is `request`; one place that asks is `place`; here they are chosen, started and counted.

mod place;
mod request;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::Serialize;

use crate::{Error, Lab, shell};
use place::{Origin, Place};
use request::Identity;

/// How a prober asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A new connection for every read.
    Read,
    /// A new connection for every write.
    Write,
    /// Reads on connections that are kept, as most clients do.
    Kept,
    /// The test workload's page, not the API.
    Page,
    /// Watches that are open all the time; a request is the opening of one.
    Watch,
}

/// What one prober saw.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Count {
    pub sent: u64,
    pub failed: u64,
    /// Answered by another server, after one that ended had asked to come again.
    pub put_off: u64,
    /// Answered, but after more than a second.
    pub slow: u64,
    pub longest_milliseconds: u64,
    /// Not sent: the pod that asks from there was gone, with its machine.
    pub away: u64,
    /// How many times it was this prober's turn: what it did not send, it did not look at.
    pub due: u64,
    /// When the first request that failed was sent, and when the last one had failed, since the start.
    pub failed_within: Option<(Duration, Duration)>,
    /// The first failures, each with the time since the start.
    pub failures: Vec<String>,
}

/// What all probers saw, by place and kind.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts(pub BTreeMap<String, BTreeMap<Kind, Count>>);

impl Counts {
    /// API requests that failed. Those through the virtual address are counted apart: it is nowhere while it moves.
    pub fn failed(&self) -> u64 {
        self.sum(|place, kind, count| u64::from(kind != Kind::Page && place != VIRTUAL) * count.failed)
    }

    /// Requests to the test workload that failed.
    pub fn pages_failed(&self) -> u64 {
        self.sum(|_, kind, count| u64::from(kind == Kind::Page) * count.failed)
    }

    /// Requests through the virtual address that failed.
    pub fn virtual_failed(&self) -> u64 {
        self.sum(|place, _, count| u64::from(place == VIRTUAL) * count.failed)
    }

    /// From the first request through the virtual address that failed to the last.
    pub fn virtual_outage(&self) -> Duration {
        let within = self.0.get(VIRTUAL).into_iter().flatten();
        let within: Vec<_> = within.filter_map(|(_, count)| count.failed_within).collect();
        let first = within.iter().map(|(first, _)| *first).min().unwrap_or_default();
        let last = within.iter().map(|(_, last)| *last).max().unwrap_or_default();
        last.saturating_sub(first)
    }

    /// Requests that a server put off as it ended; they were answered by another one.
    pub fn put_off(&self) -> u64 {
        self.sum(|_, _, count| count.put_off)
    }

    pub fn sent(&self) -> u64 {
        self.sum(|_, _, count| count.sent)
    }

    /// That nothing failed says something only of those who asked. Named are these places where they have sent no reads, writes or reads on
    /// kept connections; and of all that have counted, stopped by now, whoever sent less than half of what it was to, or was away for more
    /// than a tenth of the time.
    pub fn silent(&self, places: &[&str]) -> Vec<String> {
        let asked = [Kind::Read, Kind::Write, Kind::Kept];
        let all = places.iter().flat_map(|place| asked.map(|kind| (*place, kind)));
        let unheard = all.filter(|(place, kind)| {
            let count = self.0.get(*place).and_then(|kinds| kinds.get(kind));
            count.is_none_or(|count| count.sent == 0)
        });
        let unheard = unheard.map(|(place, kind)| format!("{place} {kind:?} sent nothing"));
        let counted = self
            .0
            .iter()
            .flat_map(|(place, kinds)| kinds.iter().map(move |(kind, count)| (place, kind, count)));
        let lazy = counted.filter(|(.., count)| count.sent * 2 < count.due || count.away * 10 > count.due);
        let lazy = lazy.map(|(place, kind, count)| {
            let Count { sent, due, away, .. } = count;
            format!("{place} {kind:?} sent {sent} of {due} and was away for {away}")
        });
        unheard.chain(lazy).collect()
    }

    fn sum(&self, of: impl Fn(&str, Kind, &Count) -> u64) -> u64 {
        self.0
            .iter()
            .flat_map(|(place, kinds)| kinds.iter().map(|(kind, count)| of(place, *kind, count)))
            .sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<22} {:<6} {:>7} {:>7} {:>7} {:>5} {:>5} {:>10}",
            "from", "kind", "sent", "failed", "put off", "slow", "away", "longest"
        )?;
        for (place, kinds) in &self.0 {
            for (kind, count) in kinds {
                let kind = format!("{kind:?}").to_lowercase();
                writeln!(
                    out,
                    "{place:<22} {kind:<6} {:>7} {:>7} {:>7} {:>5} {:>5} {:>7} ms",
                    count.sent, count.failed, count.put_off, count.slow, count.away, count.longest_milliseconds
                )?;
                for failure in &count.failures {
                    writeln!(out, "    {failure}")?;
                }
            }
        }
        Ok(())
    }
}

/// How the places are called that ask through the load balancers.
const PLAIN: &str = "balancer plain";
const HARSH: &str = "balancer harsh";
/// And through the address that one of the control planes has.
const VIRTUAL: &str = "virtual address";

/// Probers that are chosen, not yet started.
#[derive(Debug)]
pub struct Probers<'a> {
    lab: &'a Lab,
    machines: Vec<String>,
    every: Duration,
    balancers: Vec<&'static str>,
    load: Option<Load>,
}

/// Work for the API servers while something happens to them.
#[derive(Debug, Clone, Copy)]
struct Load {
    requests_per_second: u32,
    watches: u32,
}

impl<'a> Probers<'a> {
    /// Through both load balancers, and from pods on every control plane and on one worker.
    pub(crate) fn of(lab: &'a Lab) -> Self {
        let seats = usize::from(lab.spec().control_planes) + 1;
        let machines = lab.machines();
        Self {
            lab,
            machines: machines
                .iter()
                .take(seats)
                .map(|machine| machine.name().to_owned())
                .collect(),
            every: Duration::from_millis(200),
            balancers: vec![PLAIN, HARSH],
            load: None,
        }
    }

    /// Through the harsh load balancer only: every request costs the two cores that five machines share.
    #[must_use]
    pub fn sparing(mut self) -> Self {
        self.balancers = vec![HARSH];
        self
    }

    /// From pods on these machines only.
    #[must_use]
    pub fn on(mut self, machines: &[&str]) -> Self {
        self.machines = machines.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Each prober asks this often.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Beside the probers: this many reads a second through the plain load balancer, and watches that stay open.
    #[must_use]
    pub fn with_load(mut self, requests_per_second: u32, watches: u32) -> Self {
        self.load = Some(Load {
            requests_per_second,
            watches,
        });
        self
    }

    /// Starts them; they ask until `Running::stop`.
    pub fn start(self) -> Result<Running, Error> {
        let identity = Arc::new(Identity::of_kubeconfig(&shell::read(&self.lab.kubeconfig())?)?);
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = Running {
            stop: Arc::clone(&stop),
            counts: Arc::default(),
            threads: Vec::new(),
        };
        let origins = self.origins()?;
        let many = u32::try_from(origins.len()).unwrap_or(u32::MAX).max(1);
        for (number, (name, origin)) in (0..).zip(origins) {
            let every = self.pace(&origin);
            let place = Place {
                name: name.clone(),
                origin: origin.clone(),
                identity: Arc::clone(&identity),
                every,
                after: every * number / many,
                stop: Arc::clone(&stop),
                counts: Arc::clone(&running.counts),
            };
            let thread = thread::Builder::new()
                .name(format!("probe {name}"))
                .spawn(move || place.ask_until_stopped())
                .map_err(|error| Error::Probe(error.to_string()))?;
            running.threads.push(thread);
        }
        Ok(running)
    }

    fn pace(&self, origin: &Origin) -> Duration {
        match origin {
            Origin::Load { load, .. } => Duration::from_secs(1) / load.requests_per_second.max(1),
            Origin::Pod { .. } | Origin::Network { .. } => self.every,
        }
    }

    fn origins(&self) -> Result<Vec<(String, Origin)>, Error> {
        let mut origins = Vec::new();
        let network = self.lab.network_path();
        for (name, address) in [(PLAIN, self.lab.plain_balancer()), (HARSH, self.lab.harsh_balancer())] {
            if !self.balancers.contains(&name) {
                continue;
            }
            let network = network.clone();
            origins.push((name.to_owned(), Origin::Network { network, address }));
        }
        if let Some(address) = self.lab.virtual_endpoint() {
            let network = network.clone();
            origins.push((VIRTUAL.to_owned(), Origin::Network { network, address }));
        }
        if let Some(load) = self.load {
            let address = self.lab.plain_balancer();
            origins.push(("load".to_owned(), Origin::Load { network, address, load }));
        }
        for name in &self.machines {
            let machine = self.lab.machine(name)?;
            let pod = self.lab.kubectl([
                "get",
                "pods",
                "--selector=app=lookout",
                &format!("--field-selector=spec.nodeName={name}"),
                "--output=jsonpath={.items[0].metadata.uid}",
            ])?;
            let pages = self.lab.spec().workload;
            origins.push((format!("pod on {name}"), Origin::Pod { machine, pod, pages }));
        }
        Ok(origins)
    }
}

type Shared = Arc<Mutex<Counts>>;

/// Probers at work. Dropping them stops them.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    counts: Shared,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl Running {
    /// What they have seen so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops them, waits for requests that are under way, and says what all of them saw.
    pub fn stop(mut self) -> Result<Counts, Error> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or(Err(Error::Broken("a prober")))?;
        }
        Ok(self.counts())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asked_too_little_is_named() {
        let count = |sent, away| Count {
            sent,
            away,
            due: 100,
            ..Count::default()
        };
        let of = |count| {
            Counts(BTreeMap::from([(
                "pod on w-1".to_owned(),
                BTreeMap::from([(Kind::Page, count)]),
            )]))
        };
        for (sent, away, wanted) in [
            (50, 10, None),
            (49, 0, Some("pod on w-1 Page sent 49 of 100 and was away for 0")),
            (80, 11, Some("pod on w-1 Page sent 80 of 100 and was away for 11")),
        ] {
            assert_eq!(
                of(count(sent, away)).silent(&[]),
                Vec::from_iter(wanted),
                "{sent} {away}"
            );
        }
    }

    #[test]
    fn what_fails_through_the_virtual_address_is_counted_apart_and_from_the_first_to_the_last() {
        let count = |failed, first, last| Count {
            failed,
            failed_within: Some((Duration::from_secs(first), Duration::from_secs(last))),
            ..Count::default()
        };
        let kinds = BTreeMap::from([
            (Kind::Read, count(2, 60, 62)),
            (Kind::Write, Count::default()),
            (Kind::Kept, count(1, 61, 66)),
        ]);
        let counts = Counts(BTreeMap::from([(VIRTUAL.to_owned(), kinds)]));
        assert_eq!((counts.failed(), counts.virtual_failed()), (0, 3));
        assert_eq!(counts.virtual_outage(), Duration::from_secs(6));
        assert_eq!(Counts::default().virtual_outage(), Duration::ZERO);
    }

    #[test]
    fn a_place_that_never_asked_is_named() {
        let count = |sent| Count {
            sent,
            ..Count::default()
        };
        let all = [(Kind::Read, count(3)), (Kind::Write, count(1)), (Kind::Kept, count(2))];
        let mut counts = Counts(BTreeMap::from([("pod on cp-1".to_owned(), BTreeMap::from(all))]));
        assert!(counts.silent(&["pod on cp-1"]).is_empty());
        counts.0.get_mut("pod on cp-1").unwrap().insert(Kind::Write, count(0));
        assert_eq!(counts.silent(&["pod on cp-1"]), ["pod on cp-1 Write sent nothing"]);
        assert_eq!(counts.silent(&["pod on cp-2"]).len(), 3);
    }

    #[test]
    fn pages_are_counted_apart_from_the_api() {
        let failed = |failed| Count {
            sent: 10,
            failed,
            ..Count::default()
        };
        let counts = Counts(BTreeMap::from([(
            "pod on w-1".to_owned(),
            BTreeMap::from([(Kind::Read, failed(2)), (Kind::Page, failed(3))]),
        )]));
        assert_eq!((counts.failed(), counts.pages_failed(), counts.sent()), (2, 3, 20));
        let table = counts.to_string();
        assert!(table.contains("pod on w-1") && table.contains("read"), "{table}");
    }
}
