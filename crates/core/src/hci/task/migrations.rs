//! Migrations that tasks ask for: how they are named, which of them count, and how long is waited before the next. They are counted for each Job
//! anew, so that what failed on one node says nothing about the next, and a Job that was made because a person resumed has all its tries.

use std::sync::Arc;

use afloat_api::harvester::NAMESPACE;
use jiff::{SignedDuration, Timestamp};

use super::Errand;
use crate::hci::action::JobKind;
use crate::hci::view::{Job, Migration, Seen, Vmi};
use crate::view::{Key, View};

/// How often a migration is tried.
pub(super) const ATTEMPTS: usize = 3;
/// How many migrations away from the node are under way at once: KubeVirt's own limit for one node.
pub(super) const AT_ONCE: usize = 2;
/// How long a failed migration is left alone before the next.
const PAUSE_SECONDS: i64 = 30;

/// How long a migration may take until it copies memory. KubeVirt itself waits five minutes for a place that a machine fits on, and for the pod there
/// without an end; this is long enough for an image to be brought over a slow line.
const BEGINS_MINUTES: i64 = 15;
/// How long it may copy for each GiB on top of that: KubeVirt's own limit (`completionTimeoutPerGiB`). It is meant to give up by itself by then.
const COPIES_SECONDS_PER_GIB: i64 = 150;
const GIB: i64 = 1 << 30;

/// Until when a migration that is under way should have ended.
pub fn ends_until(migration: &Migration, vmi: Option<&Vmi>) -> Option<Timestamp> {
    let mut limit = BEGINS_MINUTES.saturating_mul(60);
    if &*migration.phase == "Running" {
        let memory = vmi.map_or(0, |vmi| vmi.requests.memory).max(0);
        let gib = memory.saturating_add(GIB - 1) / GIB;
        limit = limit.saturating_add(gib.max(1).saturating_mul(COPIES_SECONDS_PER_GIB));
    }
    let created = migration.created_at?;
    created.checked_add(SignedDuration::from_secs(limit)).ok()
}

/// Whether it is one of a machine's that bear a name and a number: nobody else's is cancelled.
pub(super) fn is_ours(migration: &Seen<Migration>, name: &str) -> bool {
    number(migration, name).is_some()
}

/// What the migrations of a machine to one end bear in their names before the number.
pub(super) fn prefix(errand: &Errand, vm: &str) -> String {
    afloat_api::names::cut(&format!("{}-{vm}", errand.upgrade.name))
}

/// The Job that an errand is done by, as far as it is seen.
pub(super) fn job_of<'a>(view: &'a View, errand: &Errand, kind: JobKind) -> Option<&'a Arc<Seen<Job>>> {
    let name = kind.name(&errand.upgrade.name, Some(&errand.node));
    view.hci.jobs.get(&Key::new(NAMESPACE, &name))
}

/// Migrations of a machine that bear a name and a number, oldest first.
pub(super) fn numbered<'a>(view: &'a View, vm: &Key, name: &str) -> Vec<&'a Arc<Seen<Migration>>> {
    let mut ours: Vec<_> = of_vm(view, vm)
        .filter(|migration| number(migration, name).is_some())
        .collect();
    ours.sort_by_key(|migration| migration.created_at);
    ours
}

/// Those of them that were asked for since a Job was made. Both times are the API server's.
pub(super) fn since<'a>(
    job: Option<&Seen<Job>>,
    migrations: Vec<&'a Arc<Seen<Migration>>>,
) -> Vec<&'a Arc<Seen<Migration>>> {
    let made = job.and_then(|job| job.created_at);
    let counts = |migration: &&Arc<Seen<Migration>>| match (migration.created_at, made) {
        (Some(created), Some(made)) => created >= made,
        _ => true,
    };
    migrations.into_iter().filter(counts).collect()
}

fn number(migration: &Seen<Migration>, name: &str) -> Option<usize> {
    let rest = migration.target.key.name.strip_prefix(name)?.strip_prefix('-')?;
    rest.parse().ok()
}

/// The name of the next one. KubeVirt takes away those that have ended, the oldest first, so that how many are left says nothing.
pub(super) fn next_name(view: &View, vm: &Key, name: &str) -> Key {
    let numbers = of_vm(view, vm).filter_map(|migration| number(migration, name));
    let next = numbers.max().unwrap_or_default().saturating_add(1);
    Key::new(&vm.namespace, &format!("{name}-{next}"))
}

pub(super) fn of_vm<'a>(view: &'a View, vm: &Key) -> impl Iterator<Item = &'a Arc<Seen<Migration>>> {
    view.hci.migrations_of(vm)
}

/// A migration of anybody's that is under way.
pub(super) fn active<'a>(view: &'a View, vm: &Key) -> Option<&'a Arc<Seen<Migration>>> {
    of_vm(view, vm).find(|migration| !matches!(&*migration.phase, "Succeeded" | "Failed"))
}

pub(super) fn rests_until(migration: &Migration) -> Option<Timestamp> {
    let since = migration.ended_at.or(migration.created_at)?;
    since.checked_add(SignedDuration::from_secs(PAUSE_SECONDS)).ok()
}
