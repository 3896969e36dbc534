//! Exactly one Upgrade is the latest (contract 1.1).

use afloat_api::harvester::{Upgrade, UpgradeSpec};
use afloat_api::labels;

use super::world::{NAME, World, meta};
use crate::hci::view::HciObject;

/// An older Upgrade, which has ended and still says that it is the latest.
fn with_an_older_one(world: &mut World) {
    let mut older = Upgrade {
        metadata: meta("harvester-system", "hvst-upgrade-older", 1),
        spec: UpgradeSpec::default(),
        status: None,
    };
    let labels = older.metadata.labels.get_or_insert_default();
    labels.insert(labels::HARVESTER_LATEST_UPGRADE.to_owned(), "true".to_owned());
    for label in [labels::HARVESTER_UPGRADE_CLEANUP, labels::HARVESTER_UPGRADE_STATE] {
        labels.insert(label.to_owned(), "Succeeded".to_owned());
    }
    let ended = serde_json::json!({ "conditions": [{ "type": "Completed", "status": "True" }] });
    older.status = serde_json::from_value(ended).unwrap();
    world.take("harvester-system", "hvst-upgrade-older", older, HciObject::Upgrade);
}

fn latest(world: &World) -> Vec<&str> {
    let all = world.view.hci.upgrades.iter();
    let is_latest = |upgrade: &Upgrade| {
        let labels = upgrade.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(labels::HARVESTER_LATEST_UPGRADE))
    };
    all.filter(|(_, upgrade)| is_latest(&upgrade.what))
        .map(|(key, _)| &*key.name)
        .collect()
}

#[test]
fn exactly_one_upgrade_is_the_latest_wherever_somebody_ends_between_two_writes() {
    for one_by_one in [false, true] {
        let mut world = World::new(3);
        with_an_older_one(&mut world);
        world.one_by_one = one_by_one;
        world.start();
        world.settle();
        assert_eq!(latest(&world), [NAME], "one by one: {one_by_one}");
        // Seen only since, or left by somebody who had the other order.
        with_an_older_one(&mut world);
        world.settle();
        assert_eq!(latest(&world), [NAME], "one by one: {one_by_one}");
    }
}
