//! How long nodes waited, and for what, as far as somebody looked: the sums behind the last words of an upgrade. Each node's
//! waits count by themselves, so that two nodes that wait a minute for the budget make two minutes.

use super::Board;
use afloat_core::words;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// As many reasons as a line holds.
const TOLD: usize = 4;
/// Shorter sums are the moments between a step and the next.
const WORTH_TELLING: SignedDuration = SignedDuration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct Waited {
    last: Option<Timestamp>,
    waiting: Vec<String>,
    sums: BTreeMap<String, SignedDuration>,
}

impl Waited {
    /// Takes in how it stands; what was waited for until now counts up to now.
    pub fn look(&mut self, board: &Board) {
        let since = self
            .last
            .map_or(SignedDuration::ZERO, |last| board.time.duration_since(last));
        for reason in self.waiting.drain(..) {
            let sum = self.sums.entry(reason).or_default();
            *sum = sum.saturating_add(since);
        }
        self.last = Some(board.time);
        self.waiting = board.waits.iter().map(|row| row.wait.reason.clone()).collect();
    }

    /// The longest first.
    pub fn line(&self) -> Option<String> {
        let mut sums: Vec<(&String, &SignedDuration)> = self.sums.iter().collect();
        sums.retain(|(_, sum)| **sum >= WORTH_TELLING);
        sums.sort_by_key(|(reason, sum)| (std::cmp::Reverse(**sum), *reason));
        let told = sums.iter().take(TOLD);
        let told: Vec<String> = told
            .map(|(reason, sum)| format!("{reason} {}", words::duration(**sum)))
            .collect();
        (!told.is_empty()).then(|| format!("Nodes waited: {}", told.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::WaitRow;
    use crate::board::tests::board;
    use afloat_api::{NodeState, Wait};

    fn row(reason: &str) -> WaitRow {
        WaitRow {
            node: "worker-1".to_owned(),
            state: NodeState::Staged,
            in_flight: false,
            wait: Wait {
                reason: reason.to_owned(),
                message: String::new(),
                since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
                until: None,
                blocked_by: None,
            },
        }
    }

    #[test]
    fn waits_add_up_by_what_was_waited_for() {
        let mut waited = Waited::default();
        let mut board = board(Vec::new());
        board.waits = vec![row("WaitingForBudget"), row("WaitingForBudget"), row("WaitingForEtcd")];
        waited.look(&board);
        assert_eq!(waited.line(), None, "nothing has lasted yet");
        board.time += SignedDuration::from_secs(40);
        board.waits.truncate(1);
        waited.look(&board);
        board.time += SignedDuration::from_secs(20);
        board.waits.clear();
        waited.look(&board);
        board.time += SignedDuration::from_hours(1);
        waited.look(&board);
        assert_eq!(
            waited.line().as_deref(),
            Some("Nodes waited: WaitingForBudget 1m40s, WaitingForEtcd 40s")
        );
    }
}
