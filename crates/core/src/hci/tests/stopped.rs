//! Virtual machines that were stopped for their node, where the setting does not ask for them to be started again, and the upgrade ends short of
//! its target: each is started again, or named.

use super::world::World;
use crate::hci::action::JobKind;
use crate::hci::view::{HciObject, Run, Vm, Vmi};

const VM: &str = "shop/db";

/// One virtual machine cannot leave node-1, which is being emptied: it is off.
fn stopped() -> World {
    let mut world = World::new(3);
    world.setting(
        r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},
            "nodeUpgradeOption":{"strategy":{"mode":"manual","pauseNodes":["node-3"]}}}"#,
    );
    world.add_vm("db", "node-1", |vmi| vmi.host_devices = true);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    assert!(world.recorded("node-1").contains(VM));
    world.taint("node-1");
    world.stop_vm("db");
    world.remove_vmi("db");
    world.settle();
    world
}

/// The same, and node-1 is at the target; node-2 is being emptied.
fn half_way() -> World {
    let mut world = stopped();
    world.finish("node-1");
    assert!(
        !world.has_job(JobKind::RestoreVm, Some("node-1")),
        "nobody asked for it"
    );
    world.rancher_asks("node-2");
    world
}

#[test]
fn whoever_was_stopped_for_a_node_that_is_put_back_is_started_again() {
    for delete in [false, true] {
        let mut world = stopped();
        if delete {
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        world.settle();
        assert!(!world.deleted(), "somebody is off");
        world.complete_restore("node-1");
        assert_eq!(world.deleted(), delete);
        assert!(delete || !world.condition("Completed").1.contains(VM));
        world.assert_nothing_left();
    }
}

#[test]
fn whoever_was_stopped_for_a_node_that_failed_before_its_drain_is_started_again() {
    let mut world = stopped();
    world.fail(JobKind::PreDrain, Some("node-1"), "another one does not leave");
    assert!(!crate::hci::over(&world.upgrade()), "somebody is off");
    world.complete_restore("node-1");
    assert!(crate::hci::over(&world.upgrade()));
    assert!(!world.condition("Completed").1.contains("stay off"));
}

#[test]
fn whoever_stays_off_for_a_node_that_was_upgraded_is_named_however_the_upgrade_ends() {
    let named = |world: &World| {
        let told = world.condition("Completed").1;
        assert!(
            told.contains("stay off: shop/db. To start one: virtctl start"),
            "{told}"
        );
    };
    let mut world = half_way();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert!(world.condition("Completed").1.contains("aborted: some nodes"));
    named(&world);
    assert!(world.events.iter().any(|event| event.message.contains(VM)));

    let mut world = half_way();
    world.fail(JobKind::PreDrain, Some("node-2"), "one does not leave");
    assert!(world.condition("Completed").1.contains("one does not leave"));
    named(&world);

    let mut world = half_way();
    world.events.clear();
    world.delete();
    world.settle();
    assert!(world.deleted());
    assert!(world.events.iter().any(|event| event.message.contains(VM)));
}

#[test]
fn h22_whoever_is_started_and_does_not_run_yet_is_waited_for_and_named() {
    let started = |world: &mut World| {
        let vm = Vm {
            run: Run::from_text("Always"),
            run_after: Some(Run::from_text("Manual")),
            ..Vm::default()
        };
        world.take("shop", "db", vm, HciObject::Vm);
    };
    let mut world = stopped();
    world.annotate("afloat.dev/abort", "true");
    started(&mut world);
    world.settle();
    assert!(!crate::hci::over(&world.upgrade()), "it does not run as before");
    world.fail(JobKind::RestoreVm, Some("node-1"), "out of time");
    assert!(crate::hci::over(&world.upgrade()));
    let told = world.condition("Completed").1;
    assert!(told.contains("stay off: shop/db"), "{told}");
    assert!(
        told.contains("annotated with afloat.dev/run-after was started and does not run yet"),
        "{told}"
    );

    let mut world = stopped();
    started(&mut world);
    let vmi = Vmi {
        phase: "Scheduling".into(),
        ..Vmi::default()
    };
    world.take("shop", "db", vmi, HciObject::Vmi);
    assert_eq!(crate::hci::report::still_off(&world.view, &World::key()), [VM]);
}
