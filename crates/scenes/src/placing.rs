//! Where a virtual machine goes among the nodes that may take it, by kube-scheduler's weights: taints that only ask to stay away
//! (`TaintToleration`, 3) against how much is left (`NodeResourcesFit`, least allocated, 1). Of equals any, as the seed has it.

const TAINTS: usize = 3;
const FULL: usize = 100;
/// So many virtual machines fit on a node.
const ROOM: usize = 40;
/// Up to so many places are taken by what is none of the story's.
const OTHERS: u64 = 12;

/// A node that may take a virtual machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate<'a> {
    pub node: &'a str,
    /// Taints with the effect `PreferNoSchedule`; virtual machines tolerate none.
    pub asks: usize,
    /// Virtual machines that are there.
    pub crowd: usize,
}

/// The best of them; `toss` chooses among so many that are equal.
pub fn best<'a>(all: &[Candidate<'a>], seed: u64, toss: impl FnOnce(usize) -> usize) -> Option<&'a str> {
    let most = all.iter().map(|one| one.asks).max()?;
    let score = |one: &Candidate<'_>| {
        let asked = (FULL * one.asks).checked_div(most).unwrap_or_default();
        let load = (one.crowd + others_on(seed, one.node)).min(ROOM);
        TAINTS * (FULL - asked) + FULL * (ROOM - load) / ROOM
    };
    let highest = all.iter().map(score).max()?;
    let equals: Vec<&str> = all
        .iter()
        .filter(|one| score(one) == highest)
        .map(|one| one.node)
        .collect();
    let chosen = if equals.len() > 1 { toss(equals.len()) } else { 0 };
    equals.get(chosen).copied()
}

/// What else runs on a node, in places of virtual machines: some are fuller than others.
fn others_on(seed: u64, node: &str) -> usize {
    let mixed = node.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from((mixed >> 32) % (OTHERS + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(node: &str, asks: usize, crowd: usize) -> Candidate<'_> {
        Candidate { node, asks, crowd }
    }

    #[test]
    fn a_taint_that_asks_weighs_more_than_any_crowd_and_of_equals_one_is_tossed() {
        for seed in 0..100 {
            let all = [one("a", 1, 0), one("b", 0, ROOM), one("c", 1, 0)];
            assert_eq!(best(&all, seed, |_| 0), Some("b"));
            let alike = [one("a", 1, 3), one("a", 1, 3)];
            assert_eq!(best(&alike, seed, |many| many - 1), Some("a"));
        }
        assert_eq!(best(&[], 1, |_| 0), None);
    }

    #[test]
    fn where_all_ask_the_emptier_one_is_taken() {
        let emptier = |seed| best(&[one("a", 1, 0), one("b", 1, 30)], seed, |_| 0);
        assert!((0..100).all(|seed| emptier(seed) == Some("a")));
        let by_others: std::collections::BTreeSet<_> = (0..100)
            .map(|seed| best(&[one("a", 0, 5), one("b", 0, 5)], seed, |_| 0))
            .collect();
        assert_eq!(by_others.len(), 2, "what else runs there decides");
    }
}
