//! A person holds an upgrade of real machines, looks, lets it go on, and ends it: before anything was begun, and with a machine in the middle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::Site;
use afloat_lab::Spec;
use serde_json::{Value, json};

const TO: &str = "v1.36.3";
const FROM: &str = "v1.35.4";
const LONG: Duration = Duration::from_mins(15);
const SETTLED: Duration = Duration::from_mins(4);
/// What `afloat upgrade` ends with when a person holds every node that could go.
const HELD: Option<i32> = Some(5);

fn held_at(node: &str) -> Value {
    json!({"nodeUpgradeOption": {"strategy": {"mode": "manual", "pauseNodes": [node]}}})
}

fn follow(site: &Site, meanwhile: impl FnMut(&afloat_e2e::States) -> Result<(), afloat_e2e::Error>) -> Option<i32> {
    let followed = site.upgrade(&[], LONG, None, meanwhile).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    followed.exit_code
}

/// What a person sees who looks.
fn look(site: &Site) -> String {
    let seen = ["status", "explain"].map(|word| site.afloat(&[word]).unwrap());
    println!("{}", seen.join("\n"));
    seen.join("\n")
}

fn versions(site: &Site) -> [String; 3] {
    ["cp-1", "w-1", "w-2"].map(|node| site.version(node).unwrap())
}

#[test]
fn a_held_upgrade_goes_on_or_is_ended_as_a_person_says() {
    let spec = Spec {
        name: "e2e-hold".to_owned(),
        control_planes: 1,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();

    // Ended while the first node is held: nothing was done to any.
    site.apply_upgrade("ended", held_at("cp-1")).unwrap();
    assert_eq!(follow(&site, |_| Ok(())), HELD, "{}", site.diagnosis());
    let seen = look(&site);
    assert!(seen.contains("afloat resume cp-1"), "{seen}");
    println!("{}", site.afloat(&["abort", "--yes"]).unwrap());
    assert_eq!(site.left_behind(FROM).unwrap(), Vec::<String>::new());
    assert_eq!(site.phase("ended").unwrap(), "Aborted");

    // Held at the last node: all others are done, it is as it was.
    site.apply_upgrade("half", held_at("w-2")).unwrap();
    assert_eq!(follow(&site, |_| Ok(())), HELD, "{}", site.diagnosis());
    let seen = look(&site);
    assert!(seen.contains("afloat resume w-2"), "{seen}");
    assert_eq!(versions(&site), [TO, TO, FROM]);
    let waiting = site.object(&["get", "node", "w-2"]).unwrap();
    assert_ne!(waiting["spec"]["unschedulable"], true);

    // It is let go on, and ended while its machine is changed: that one is put back, the others stay.
    let before = site.fingerprint("w-2").unwrap();
    println!("{}", site.afloat(&["resume", "w-2"]).unwrap());
    let mut ended = None;
    let exit_code = follow(&site, |states| {
        if ended.is_none() && states.get("w-2").is_some_and(|state| state == "Upgrading") {
            ended = Some(site.afloat(&["abort", "--yes"])?);
        }
        Ok(())
    });
    println!("{}", ended.clone().unwrap_or_default());
    assert!(
        ended.is_some_and(|said| said.contains("put back as it was: w-2")),
        "w-2 was not ended in the middle"
    );
    assert_eq!(exit_code, Some(1));
    look(&site);
    assert_eq!(site.phase("half").unwrap(), "Aborted");
    assert_eq!(site.fingerprint("w-2").unwrap(), before);
    assert_eq!(site.left_behind(TO).unwrap(), [format!("w-2 is at {FROM}")]);

    // The same command takes it up where it was left.
    site.apply_upgrade("rest", json!({})).unwrap();
    assert_eq!(follow(&site, |_| Ok(())), Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
}
