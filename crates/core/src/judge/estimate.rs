//! When an upgrade is expected to end, from what was observed so far: never invented, absent until a node is done.

use afloat_api::clusterupgrade::Estimate;
use afloat_api::{NodeRole, NodeState};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::objects::Standing;

/// How long a node was out of service, from its drain to its success.
pub fn taken(standing: Standing<'_>) -> Option<SignedDuration> {
    let status = standing.upgrade.status.as_ref()?;
    let attempt = standing.upgrade.spec.attempt;
    let at = |state: NodeState| {
        let record = status
            .history
            .iter()
            .rev()
            .find(|record| record.state == state && record.attempt == attempt)?;
        Some(record.at.0)
    };
    let end = at(NodeState::Succeeded)?;
    let start = at(NodeState::Draining).or_else(|| at(NodeState::Upgrading))?;
    Some(end.duration_since(start))
}

/// The end, from nodes that are done; `left` counts those that are not, by role, and `lanes` how many workers go at once.
pub fn estimate(
    done: &[Standing<'_>],
    left: (usize, usize),
    lanes: usize,
    before: Option<&Estimate>,
    now: Timestamp,
) -> Option<Estimate> {
    let average = |control_plane: bool| {
        let times: Vec<SignedDuration> = done
            .iter()
            .filter(|standing| (standing.upgrade.spec.role != NodeRole::Worker) == control_plane)
            .filter_map(|standing| taken(*standing))
            .collect();
        let count = i32::try_from(times.len()).ok().filter(|count| *count > 0)?;
        Some(
            times
                .iter()
                .copied()
                .fold(SignedDuration::ZERO, SignedDuration::saturating_add)
                / count,
        )
    };
    let (control_plane, worker) = (average(true), average(false));
    let known = control_plane.or(worker)?;
    let (planes, workers) = left;
    if planes + workers == 0 {
        return None;
    }
    let rounds = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let rest = (control_plane.unwrap_or(known) * rounds(planes))
        .saturating_add(worker.unwrap_or(known) * rounds(workers.div_ceil(lanes.max(1))));
    let nodes = done.len();
    let basis = if nodes == 1 {
        "from 1 node so far".to_owned()
    } else {
        format!("from {nodes} nodes so far")
    };
    // The moment moves only when there is something new to judge by: a status that changes by itself is noise.
    match before {
        Some(before) if before.basis == basis => Some(before.clone()),
        _ => Some(Estimate {
            finish_at: Time(now.saturating_add(rest).unwrap_or(now)),
            basis,
        }),
    }
}
