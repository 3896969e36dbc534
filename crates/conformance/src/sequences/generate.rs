//! Makes random sequences of requests out of the universe: which verb is next, and on which object. How one request is drawn is `requests`. The same
//! seed gives the same sequence, and a step refers to objects by name and to earlier answers by slot, so that a sequence still means something with
//! any of its steps taken away.

use fastrand::Rng;

use super::{
    requests::{Draw, Place, everything, named},
    universe::Kind,
};
use crate::case::Step;

/// Most requests in the middle part of a sequence.
const LONGEST: usize = 40;
const NAMES: [&str; 2] = ["a", "b"];
/// The object whose appearance ends a watch.
const LAST: &str = "zz-last";

/// A sequence in three parts, of which shrinking takes from the middle only.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// Lists that say from where to watch.
    pub(crate) start: Vec<Step>,
    pub(crate) middle: Vec<Step>,
    /// What is left in the end, and everything that watches saw.
    pub(crate) end: Vec<Step>,
}

struct Generator<'a> {
    draw: Draw,
    kinds: Vec<&'a Kind>,
    /// What is thought to exist: a create that meets nothing is worth more than one that meets an object.
    made: Vec<(String, &'static str)>,
}

/// The sequence of a seed.
pub(crate) fn sequence(universe: &[Kind], seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    let mut kinds: Vec<&Kind> = universe.iter().collect();
    rng.shuffle(&mut kinds);
    kinds.truncate(rng.usize(1..=3));
    let length = rng.usize(5..=LONGEST);
    let mut generator = Generator {
        draw: Draw::new(rng),
        kinds: kinds.clone(),
        made: Vec::new(),
    };
    let middle = (0..length).map(|_| generator.next()).collect();
    let start = kinds
        .iter()
        .map(|kind| Step {
            keep: Some(format!("start-{}", kind.name)),
            ..request(format!("GET {}", everything(kind, "")))
        })
        .collect();
    let mut end = Vec::new();
    for kind in &kinds {
        let last = Place { kind, name: LAST };
        end.push(Step {
            body: Some(named(last, kind.required.clone())),
            ..request(format!("POST {}", kind.collection))
        });
        end.push(request(format!("GET {}", everything(kind, ""))));
        let since = format!("resourceVersion=${{start-{}.metadata.resourceVersion}}", kind.name);
        let watch = request(format!("WATCH {}", everything(kind, &since)));
        end.push(Step {
            until: Some(last.object_name()),
            ..watch
        });
    }
    Sequence { start, middle, end }
}

/// A request without anything but its action.
fn request(action: String) -> Step {
    Step {
        action,
        ..Step::default()
    }
}

impl Generator<'_> {
    fn next(&mut self) -> Step {
        self.draw.next_step();
        let kind = *self.draw.pick(&self.kinds);
        let name = *self.draw.pick(&NAMES);
        let place = Place { kind, name };
        let known = (kind.name.clone(), name);
        if !self.made.contains(&known) && self.draw.one_in(2) {
            self.made.push(known);
            return if self.draw.one_in(3) {
                self.draw.apply(place)
            } else {
                self.draw.create(place)
            };
        }
        match self.draw.number(100) {
            0..5 => self.draw.create(place),
            5..20 => self.draw.update(place),
            20..33 => self.draw.merge(place),
            33..41 => self.draw.json(place),
            41..48 => self.draw.strategic(place),
            48..67 => self.draw.apply(place),
            67..79 if !kind.status.is_empty() => self.draw.status(place),
            79..84 if !kind.special.is_empty() => self.draw.special(place),
            84..92 => {
                self.made.retain(|made| *made != known);
                self.draw.delete(place)
            }
            92..93 => {
                self.made.retain(|(made, _)| *made != kind.name);
                request(format!("DELETE {}", everything(kind, "")))
            }
            93..98 => self.draw.list(place),
            _ => request(format!("GET {}", place.path())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequences::universe;

    #[test]
    fn a_seed_gives_one_sequence() {
        let universe = universe::load().unwrap();
        let text = |seed| format!("{:?}", sequence(&universe, seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn all_verbs_come_up() {
        let universe = universe::load().unwrap();
        let steps: Vec<Step> = (0..200).flat_map(|seed| sequence(&universe, seed).middle).collect();
        assert!(steps.len() > 200 * 15);
        for (what, found) in [
            ("merge", steps.iter().any(|step| step.merge.is_some())),
            ("json", steps.iter().any(|step| step.json.is_some())),
            ("strategic", steps.iter().any(|step| step.strategic.is_some())),
            (
                "forced apply",
                steps
                    .iter()
                    .any(|step| step.apply.is_some() && step.action.contains("force")),
            ),
            ("status", steps.iter().any(|step| step.action.contains("/status"))),
            ("dry run", steps.iter().any(|step| step.action.contains("dryRun"))),
            ("update", steps.iter().any(|step| step.word() == "PUT")),
            (
                "delete with options",
                steps.iter().any(|step| step.word() == "DELETE" && step.body.is_some()),
            ),
            ("eviction", steps.iter().any(|step| step.action.contains("/eviction"))),
            ("pages", steps.iter().any(|step| step.action.contains("limit=1"))),
        ] {
            assert!(found, "no {what}");
        }
    }
}
