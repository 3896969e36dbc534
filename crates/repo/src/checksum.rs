//! SHA-512 of files. Each is computed once, on a thread that may wait, however many ask; kept for as long as the file has the same
//! mark (its size and date); and finished even when those who asked have left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha512};
use tokio::sync::{Semaphore, watch};

use crate::metrics::Metrics;
use crate::source::Content;

/// More would only fight for the same disk.
const AT_ONCE: usize = 2;
/// Known at once, those under way included.
const MOST: usize = 10_000;
const PIECE: usize = 1 << 20;

pub type Sum = [u8; 64];
/// The path of a file, and its mark.
type Key = (String, Arc<str>);
type Outcome = Result<Sum, Arc<str>>;

/// Why there is no checksum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    #[error("the checksum is still being computed")]
    Late,
    #[error("the checksum cannot be computed: {0}")]
    Broken(Arc<str>),
}

#[derive(Clone, Debug)]
pub struct Checksums(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    known: Mutex<Known>,
    places: Arc<Semaphore>,
    ended: AtomicBool,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Known {
    sums: BTreeMap<Key, watch::Receiver<Option<Outcome>>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

impl Checksums {
    pub fn new(metrics: Metrics) -> Self {
        Self(Arc::new(Inner {
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            ended: AtomicBool::new(false),
            metrics,
        }))
    }

    /// Those under way are given up: nobody will ask for them.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }

    /// The checksum of a file, waited for at most so long.
    pub async fn of(&self, path: &str, content: &Content, limit: Duration) -> Result<Sum, ChecksumError> {
        let mut told = self.ask(path, content).ok_or(ChecksumError::Late)?;
        let outcome = tokio::time::timeout(limit, told.wait_for(Option::is_some)).await;
        match outcome.map_err(|_| ChecksumError::Late)? {
            Ok(outcome) => match &*outcome {
                Some(Ok(sum)) => Ok(*sum),
                Some(Err(problem)) => Err(ChecksumError::Broken(Arc::clone(problem))),
                None => Err(ChecksumError::Late),
            },
            Err(_) => Err(ChecksumError::Broken("it was given up".into())),
        }
    }

    /// Where its outcome will be told. None when too many are under way.
    fn ask(&self, path: &str, content: &Content) -> Option<watch::Receiver<Option<Outcome>>> {
        let key = (path.to_owned(), Arc::clone(&content.mark));
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.sums.get(&key) {
            return Some(there.clone());
        }
        if !known.make_room() {
            return None;
        }
        let (tell, told) = watch::channel(None);
        known.sums.insert(key.clone(), told.clone());
        known.order.push_back(key.clone());
        drop(known);
        tokio::spawn(Arc::clone(&self.0).compute(key, content.clone(), tell));
        Some(told)
    }
}

impl Known {
    /// Forgets the oldest that is done.
    fn make_room(&mut self) -> bool {
        if self.sums.len() < MOST {
            return true;
        }
        let done = |key: &Key| self.sums.get(key).is_none_or(|told| told.borrow().is_some());
        let Some(at) = self.order.iter().position(done) else {
            return false;
        };
        if let Some(key) = self.order.remove(at) {
            self.sums.remove(&key);
        }
        true
    }

    fn forget(&mut self, key: &Key) {
        self.sums.remove(key);
        self.order.retain(|known| known != key);
    }
}

impl Inner {
    async fn compute(self: Arc<Self>, key: Key, content: Content, tell: watch::Sender<Option<Outcome>>) {
        let outcome = match Arc::clone(&self.places).acquire_owned().await {
            Ok(_place) => {
                let inner = Arc::clone(&self);
                let read = tokio::task::spawn_blocking(move || sum(&content, &inner.ended)).await;
                read.unwrap_or_else(|error| Err(Arc::from(error.to_string())))
            }
            Err(error) => Err(Arc::from(error.to_string())),
        };
        self.metrics.checksum(outcome.is_ok());
        if let Err(problem) = &outcome {
            tracing::warn!(path = key.0, problem = &**problem, "no checksum");
            // The next who asks may have more luck.
            self.known.lock().unwrap_or_else(PoisonError::into_inner).forget(&key);
        }
        let _nobody_waits = tell.send(Some(outcome));
    }
}

fn sum(content: &Content, ended: &AtomicBool) -> Outcome {
    let mut hasher = Sha512::new();
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < content.size {
        if ended.load(Ordering::Relaxed) {
            return Err("the server ends".into());
        }
        let wanted = usize::try_from(content.size - at).unwrap_or(PIECE).min(PIECE);
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        content
            .fill_at(at, part)
            .map_err(|error| Arc::from(error.to_string()))?;
        hasher.update(&*part);
        at += wanted as u64;
    }
    Ok(hasher.finalize().into())
}
