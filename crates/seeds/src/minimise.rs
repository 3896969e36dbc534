//! A failing seed made small: classes of faults are switched off, then single faults left out, as long as the same rule
//! still breaks. What remains is printed as one line that repeats it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::suite::{Options, Outcome, Suite};

/// The fewest faults that still break the rule.
pub fn minimise<S: Suite>(options: &Options<S>) -> (Options<S>, Outcome) {
    let mut best = options.clone();
    let mut outcome = S::run(&best);
    let Some(rule) = outcome.broken.as_ref().map(|broken| broken.rule) else {
        return (best, outcome);
    };
    let mut try_instead = |candidate: Options<S>, best: &mut Options<S>| {
        let tried = S::run(&candidate);
        let same = tried.broken.as_ref().is_some_and(|broken| broken.rule == rule);
        if same {
            *best = candidate;
            outcome = tried;
        }
        same
    };
    for class in S::CLASSES.iter().copied() {
        let mut candidate = best.clone();
        if candidate.without.insert(class) {
            try_instead(candidate, &mut best);
        }
    }
    let mut size = S::run(&best).faults.len().max(1);
    let all = S::run(&best).faults.len();
    while size >= 1 {
        let mut from = 0;
        while from < all {
            let mut candidate = best.clone();
            let before = candidate.left_out.len();
            candidate.left_out.extend(from..(from + size).min(all));
            if candidate.left_out.len() > before {
                try_instead(candidate, &mut best);
            }
            from += size;
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    let outcome = S::run(&best);
    (best, outcome)
}

/// One line that repeats a run.
pub fn command<S: Suite>(options: &Options<S>) -> String {
    let (name, seed) = (S::name(options.scenario), options.seed);
    let mut line = format!("make sim SCENARIO={name} SEED={seed}");
    let mut more = String::from(S::FLAG);
    if options.clean {
        more.push_str(" --clean");
    }
    if !options.without.is_empty() {
        let words: Vec<&str> = options.without.iter().map(|class| class.word()).collect();
        let _ = write!(more, " --without {}", words.join(","));
    }
    if !options.left_out.is_empty() {
        let _ = write!(more, " --leave-out {}", ranges(&options.left_out));
    }
    if let Some((request, back)) = options.crash {
        let _ = write!(more, " --crash {request}:{back}");
    }
    if let Some(bug) = options.bug {
        let _ = write!(more, " --bug {}", S::bug_word(bug));
    }
    if !more.is_empty() {
        let _ = write!(line, " ARGS=\"{}\"", more.trim_start());
    }
    line
}

/// `0-3,7`.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.iter().copied().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while numbers.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        if first == last {
            let _ = write!(text, "{first}");
        } else {
            let _ = write!(text, "{first}-{last}");
        }
    }
    text
}

/// The other way round.
pub fn read_ranges(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_way_into_a_command_and_back() {
        let numbers = BTreeSet::from([0, 1, 2, 5, 9, 10]);
        assert_eq!(ranges(&numbers), "0-2,5,9-10");
        assert_eq!(read_ranges("0-2,5,9-10"), Some(numbers));
        assert_eq!(read_ranges("x"), None);
    }
}
