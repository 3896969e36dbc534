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
    if planes == 0 && workers == 0 {
        return None;
    }
    let rounds = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let of_planes = control_plane.unwrap_or(known).saturating_mul(rounds(planes));
    let of_workers = worker
        .unwrap_or(known)
        .saturating_mul(rounds(workers.div_ceil(lanes.max(1))));
    let rest = of_planes.saturating_add(of_workers);
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

#[cfg(test)]
mod tests {
    use afloat_api::kubeadm::StateRecord;
    use afloat_api::{NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus};

    use super::*;
    use crate::testing::World;

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    /// A node that came into these states at these seconds.
    fn node(role: NodeRole, states: &[(NodeState, i64)]) -> NodeKubeadmUpgrade {
        let mut upgrade = World::worker().upgrade();
        upgrade.spec.role = role;
        let attempt = upgrade.spec.attempt;
        let record = |(state, at): &(NodeState, i64)| StateRecord {
            state: *state,
            at: Time(second(*at)),
            attempt,
        };
        upgrade.status = Some(NodeKubeadmUpgradeStatus {
            history: states.iter().map(record).collect(),
            ..NodeKubeadmUpgradeStatus::default()
        });
        upgrade
    }

    fn told(done: &[NodeKubeadmUpgrade], left: (usize, usize), lanes: usize) -> Option<(i64, String)> {
        let standings: Vec<Standing<'_>> = done.iter().map(Standing::of).collect();
        let estimate = estimate(&standings, left, lanes, None, second(1000))?;
        Some((estimate.finish_at.0.as_second() - 1000, estimate.basis))
    }

    #[test]
    fn each_role_is_reckoned_by_its_own_and_by_the_other_until_one_of_it_is_done() {
        use NodeState::{Draining, Succeeded, Upgrading};
        let slow = node(
            NodeRole::FirstControlPlane,
            &[(Draining, 0), (Upgrading, 20), (Succeeded, 100)],
        );
        let quick = node(NodeRole::ControlPlane, &[(Draining, 100), (Succeeded, 140)]);
        let worker = node(NodeRole::Worker, &[(Draining, 200), (Succeeded, 230)]);
        let one = "from 1 node so far".to_owned();
        assert_eq!(told(&[], (3, 2), 1), None, "absent rather than invented");
        assert_eq!(told(std::slice::from_ref(&slow), (2, 2), 1), Some((400, one)));
        let planes = [slow, quick];
        assert_eq!(told(&planes, (1, 0), 1), Some((70, "from 2 nodes so far".to_owned())));
        let all = [planes[0].clone(), planes[1].clone(), worker];
        let three = || "from 3 nodes so far".to_owned();
        assert_eq!(told(&all, (0, 5), 2), Some((90, three())), "three rounds of two");
        assert_eq!(told(&all, (1, 5), 0), Some((220, three())));
        assert_eq!(told(&all, (0, 0), 2), None, "nothing is left");
        assert!(
            told(&all, (usize::MAX, usize::MAX), 1).is_some(),
            "and no number is too large"
        );
    }

    #[test]
    fn a_node_that_keeps_its_pods_counts_from_its_steps_on_and_only_this_attempt_does() {
        use NodeState::{Draining, Succeeded, Upgrading};
        let alone = node(NodeRole::FirstControlPlane, &[(Upgrading, 10), (Succeeded, 40)]);
        assert_eq!(taken(Standing::of(&alone)), Some(SignedDuration::from_secs(30)));
        let mut again = node(NodeRole::Worker, &[(Draining, 0), (Draining, 50), (Succeeded, 60)]);
        again.status.as_mut().unwrap().history[0].attempt -= 1;
        assert_eq!(taken(Standing::of(&again)), Some(SignedDuration::from_secs(10)));
        assert_eq!(taken(Standing::of(&node(NodeRole::Worker, &[(Draining, 0)]))), None);
    }

    #[test]
    fn the_moment_moves_only_when_there_is_more_to_judge_by() {
        let done = [node(
            NodeRole::Worker,
            &[(NodeState::Draining, 0), (NodeState::Succeeded, 60)],
        )];
        let standings: Vec<Standing<'_>> = done.iter().map(Standing::of).collect();
        let first = estimate(&standings, (0, 2), 1, None, second(1000)).unwrap();
        let later = estimate(&standings, (0, 2), 1, Some(&first), second(1100)).unwrap();
        assert_eq!(later, first);
    }
}
