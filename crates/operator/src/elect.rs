//! Which of several operators works: a Lease, by the rule of client-go. Whether the holder is alive is told by how long *we* have
//! not seen its record change, never by its clock, so that clocks may differ. A lease is advice: what keeps writes safe is that
//! each carries the state it was decided on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use crate::clients::{CallError, Clients, bounded};
use crate::clock::Clock;

/// A record that did not change for so long belongs to nobody.
pub const LEASE: Duration = Duration::from_secs(15);
/// Whoever could not renew for so long leads no longer; shorter than the lease, so that it ends before another begins.
pub const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// How often the record is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The record in a lease, as much as the election looks at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Record {
    pub holder: String,
    pub revision: String,
}

/// What a candidate does now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ElectAction {
    /// There is no lease: make it.
    Create,
    /// It is ours: say that we are still there.
    Renew,
    /// Nobody holds it, or nobody alive: take it, if it is still as it was seen.
    Take,
    /// Somebody does.
    Wait,
}

/// One candidate: what it saw last, and when.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    seen: Option<(Record, Duration)>,
}

impl Candidate {
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            seen: None,
        }
    }

    /// What to do about what is there now. `now` is time since some moment of this process and never goes back.
    pub fn elect(&mut self, there: Option<&Record>, now: Duration) -> ElectAction {
        let Some(record) = there else {
            self.seen = None;
            return ElectAction::Create;
        };
        let since = match &self.seen {
            Some((seen, since)) if seen == record => *since,
            _ => {
                self.seen = Some((record.clone(), now));
                now
            }
        };
        if record.holder == self.identity {
            ElectAction::Renew
        } else if record.holder.is_empty() || now.saturating_sub(since) >= LEASE {
            ElectAction::Take
        } else {
            ElectAction::Wait
        }
    }
}

/// Why a process leads no longer.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the lease {lease} was taken by {holder}: this process ends, its successor goes on")]
    Taken { lease: String, holder: String },
    #[error("the lease {lease} could not be renewed for {}s ({cause}): this process ends before another begins", RENEW_WITHIN.as_secs())]
    NotRenewed { lease: String, cause: String },
}

/// Takes part in the election for one lease.
pub struct Election<'a> {
    api: Api<Lease>,
    name: String,
    clock: &'a dyn Clock,
    candidate: Candidate,
    started: Instant,
}

impl<'a> Election<'a> {
    pub fn new(clients: &Clients, namespace: &str, name: &str, identity: &str, clock: &'a dyn Clock) -> Self {
        Self {
            api: Api::namespaced(clients.api.clone(), namespace),
            name: name.to_owned(),
            clock,
            candidate: Candidate::new(identity),
            started: Instant::now(),
        }
    }

    /// Waits until this process leads.
    pub async fn won(&mut self) {
        loop {
            match self.round().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = self.name, %error, "cannot stand for the lease yet"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Renews while that works; ends when this process must not go on.
    pub async fn lost(&mut self) -> Lost {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // What is tried must not outlast what it is tried for.
            let left = RENEW_WITHIN.saturating_sub(renewed.elapsed());
            let cause = match tokio::time::timeout(left, self.round()).await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(false)) => {
                    let holder = self.candidate.seen.as_ref().map(|(record, _)| record.holder.clone());
                    return Lost::Taken {
                        lease: self.name.clone(),
                        holder: holder.unwrap_or_default(),
                    };
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            tracing::warn!(lease = self.name, cause, "the lease was not renewed");
            if renewed.elapsed() >= RENEW_WITHIN {
                return Lost::NotRenewed {
                    lease: self.name.clone(),
                    cause,
                };
            }
        }
    }

    /// Gives the lease back, so that a successor need not wait for it to run out.
    pub async fn release(&mut self) -> Result<(), CallError> {
        let Some(mut lease) = bounded(self.api.get_opt(&self.name)).await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.candidate.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(MicroTime(self.clock.now()));
        bounded(self.api.replace(&self.name, &PostParams::default(), &lease)).await?;
        Ok(())
    }

    /// Looks once and does what follows; whether this process leads.
    async fn round(&mut self) -> Result<bool, CallError> {
        let there = bounded(self.api.get_opt(&self.name)).await?;
        let record = there.as_ref().map(record);
        let action = self.candidate.elect(record.as_ref(), self.started.elapsed());
        let now = self.clock.now();
        let written = match (&action, there) {
            (ElectAction::Wait, _) => return Ok(false),
            (_, None) => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.claim(LeaseSpec::default(), now)),
                };
                bounded(self.api.create(&PostParams::default(), &lease)).await
            }
            (_, Some(mut lease)) => {
                // The object keeps the revision it was read with: a write in between makes this one a conflict.
                let spec = self.claim(lease.spec.take().unwrap_or_default(), now);
                lease.spec = Some(spec);
                bounded(self.api.replace(&self.name, &PostParams::default(), &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                self.candidate.seen = Some((self::record(&lease), self.started.elapsed()));
                Ok(true)
            }
            // Another one was quicker.
            Err(CallError::Refused(kube::Error::Api(status))) if status.code == 409 && action != ElectAction::Renew => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn claim(&self, mut spec: LeaseSpec, now: Timestamp) -> LeaseSpec {
        if spec.holder_identity.as_deref() != Some(&self.candidate.identity) {
            spec.holder_identity = Some(self.candidate.identity.clone());
            spec.acquire_time = Some(MicroTime(now));
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1) + 1);
        }
        spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
        spec.renew_time = Some(MicroTime(now));
        spec
    }
}

fn record(lease: &Lease) -> Record {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    Record {
        holder: holder.unwrap_or_default(),
        revision: lease.resource_version().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;
    use afloat_apisim::{ApiServer, Options};

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held(holder: &str, revision: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            revision: revision.to_owned(),
        }
    }

    #[test]
    fn what_a_candidate_does() {
        let mut candidate = Candidate::new("a");
        let table: [(&str, Option<Record>, u64, ElectAction); 8] = [
            ("no lease yet", None, 0, ElectAction::Create),
            ("another one holds it", Some(held("b", "1")), 1, ElectAction::Wait),
            ("and is alive", Some(held("b", "2")), 14, ElectAction::Wait),
            ("not yet long enough", Some(held("b", "2")), 28, ElectAction::Wait),
            (
                "dead: the record did not change",
                Some(held("b", "2")),
                29,
                ElectAction::Take,
            ),
            ("a third was quicker", Some(held("c", "3")), 30, ElectAction::Wait),
            ("given back", Some(held("", "4")), 31, ElectAction::Take),
            ("ours", Some(held("a", "5")), 32, ElectAction::Renew),
        ];
        for (what, there, at, action) in table {
            assert_eq!(candidate.elect(there.as_ref(), seconds(at)), action, "{what}");
        }
    }

    #[test]
    fn a_late_candidate_counts_from_its_own_first_sight() {
        let mut candidate = Candidate::new("a");
        let there = held("b", "7");
        assert_eq!(candidate.elect(Some(&there), seconds(1000)), ElectAction::Wait);
        assert_eq!(candidate.elect(Some(&there), seconds(1015)), ElectAction::Take);
    }

    fn clients() -> Clients {
        Clients::of(ApiServer::new(Options::default()).client())
    }

    fn clock(epoch: &str) -> TokioClock {
        TokioClock::starting_at(epoch.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_candidates_one_leads_and_the_other_follows_when_it_dies() {
        let clients = clients();
        // A year of difference between their clocks changes nothing.
        let (early, late) = (clock("2026-01-01T00:00:00Z"), clock("2027-01-01T00:00:00Z"));
        let mut first = Election::new(&clients, "default", "op", "first", &late);
        let mut second = Election::new(&clients, "default", "op", "second", &early);
        first.won().await;
        for _ in 0..10 {
            tokio::time::sleep(LOOK_EVERY).await;
            assert!(first.round().await.unwrap(), "renewed");
            assert!(!second.round().await.unwrap(), "the holder is alive");
        }
        let died = Instant::now();
        second.won().await;
        assert!(died.elapsed() + LOOK_EVERY >= LEASE, "{:?}", died.elapsed());
        let lost = first.lost().await;
        assert!(
            matches!(&lost, Lost::Taken { holder, .. } if holder == "second"),
            "{lost}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_given_back_is_taken_at_once() {
        let clients = clients();
        let clock = clock("2026-01-01T00:00:00Z");
        let mut first = Election::new(&clients, "default", "op", "first", &clock);
        first.won().await;
        first.release().await.unwrap();
        let mut second = Election::new(&clients, "default", "op", "second", &clock);
        assert!(second.round().await.unwrap());
        let spec = second.api.get("op").await.unwrap().spec.unwrap();
        assert_eq!(
            (spec.holder_identity.as_deref(), spec.lease_transitions),
            (Some("second"), Some(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_cannot_renew_ends_before_another_may_begin() {
        let clients = clients();
        let clock = clock("2026-01-01T00:00:00Z");
        let mut election = Election::new(&clients, "default", "op", "first", &clock);
        election.won().await;
        // The namespace of another server: nothing is found, nothing can be made.
        election.api = Api::namespaced(clients.api.clone(), "nowhere");
        let began = Instant::now();
        let lost = election.lost().await;
        assert!(matches!(lost, Lost::NotRenewed { .. }), "{lost}");
        assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    }
}
