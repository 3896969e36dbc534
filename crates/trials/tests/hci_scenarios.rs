//! Every scenario of a Harvester-like cluster ends as it says, with the rules looked at after every write. In parts, so that they can run
//! beside each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use afloat_sim::hci::HciScenario;
use afloat_trials::hci::tried;

const PARTS: usize = 6;

/// Every scenario whose number leaves this rest.
async fn part(rest: usize) {
    let mut broken = Vec::new();
    for (_, scenario) in HciScenario::all()
        .enumerate()
        .filter(|(number, _)| number % PARTS == rest)
    {
        let found = tried(scenario, 7).await.unwrap();
        if !found.is_empty() {
            broken.push(format!("{}:\n  {}", scenario.name(), found.join("\n  ")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

macro_rules! parts {
    ($($name:ident: $rest:literal;)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $name() {
            part($rest).await;
        })*
    };
}

parts! {
    every_scenario_ends_as_it_says_1: 0;
    every_scenario_ends_as_it_says_2: 1;
    every_scenario_ends_as_it_says_3: 2;
    every_scenario_ends_as_it_says_4: 3;
    every_scenario_ends_as_it_says_5: 4;
    every_scenario_ends_as_it_says_6: 5;
}

#[test]
fn there_are_enough_scenarios_each_with_a_name_and_a_sentence_of_its_own() {
    let all: Vec<HciScenario> = HciScenario::all().collect();
    let names: std::collections::BTreeSet<&str> = all.iter().map(|scenario| scenario.name()).collect();
    let sentences: std::collections::BTreeSet<&str> = all.iter().map(|scenario| scenario.summary()).collect();
    assert!(all.len() >= 25, "{}", all.len());
    assert_eq!((names.len(), sentences.len()), (all.len(), all.len()));
    assert!(names.iter().all(|name| name.starts_with("harvester-")), "{names:?}");
}
