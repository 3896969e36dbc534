//! Virtual machines: who cannot migrate and why, what is written down, who is started again.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::labels;

use super::world::World;
use crate::hci::action::{HciAction, JobKind};
use crate::hci::view::{HciObject, Migration, Run, Vm, Vmi, Volume};
use crate::hci::vms::bound;
use crate::view::{NodeName, Operator, PodBudget, Requirement, Revision, Selector};

fn affinity(host: &str) -> Vec<Selector> {
    vec![Selector {
        requirements: vec![Requirement {
            key: Arc::from("kubernetes.io/hostname"),
            operator: Operator::In,
            values: vec![Arc::from(host)],
        }],
    }]
}

#[test]
fn h27_virtual_machines_that_cannot_migrate_are_found_with_the_reason() {
    let mut world = World::new(3);
    for number in 1..=3 {
        let name = super::world::name(number);
        let own = Arc::from(name.as_str());
        world.change_node(&name, |node| {
            node.labels = Arc::new(BTreeMap::from([(Arc::from("kubernetes.io/hostname"), own)]));
        });
    }
    world.add_vm("free", "node-1", |_| {});
    world.add_vm("device", "node-1", |vmi| vmi.host_devices = true);
    world.add_vm("pinned", "node-1", |vmi| vmi.node_affinity = affinity("node-1"));
    world.add_vm("elsewhere", "node-1", |vmi| vmi.node_affinity = affinity("node-2"));
    world.add_vm("selected", "node-1", |vmi| {
        vmi.node_selector.insert(Arc::from("disk"), Arc::from("nvme"));
    });
    world.add_vm("cdrom", "node-1", |vmi| {
        vmi.not_migratable = Some(Arc::from("cannot migrate VMI with non-shared PVCs"));
    });
    world.add_vm("over", "node-1", |vmi| {
        vmi.phase = Arc::from("Succeeded");
        vmi.host_devices = true;
    });
    let found: BTreeMap<String, String> = bound(&world.view, &NodeName::from("node-1"))
        .iter()
        .map(|bound| (bound.vm.name.to_string(), bound.reasons()))
        .collect();
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["cdrom", "device", "pinned", "selected"]);
    assert!(found["cdrom"].contains("non-shared PVCs"));
    assert!(found["device"].contains("device of its host"));
    assert!(found["pinned"].contains("affinity"));
    assert!(found["selected"].contains("disk=nvme"));
    world.change_node("node-2", |node| node.unschedulable = true);
    world.change_node("node-3", |node| {
        node.labels = Arc::new(BTreeMap::from([(
            Arc::from(labels::HARVESTER_WITNESS),
            Arc::from("true"),
        )]));
    });
    let found = bound(&world.view, &NodeName::from("node-1"));
    assert_eq!(found.len(), 6, "nobody in service to go to");
}

fn labels_of(node: &str, keys: &[&str]) -> Arc<crate::view::Labels> {
    let own = (Arc::from("kubernetes.io/hostname"), Arc::from(node));
    let more = keys.iter().map(|key| (Arc::from(*key), Arc::from("true")));
    Arc::new(more.chain([own]).collect())
}

const GIB: i64 = 1 << 30;

/// One virtual machine on node-1 of three with 16 GiB and 8 CPUs each, on which KubeVirt has labelled an older node-2.
fn reasons(change: impl FnOnce(&mut Vmi), prepare: impl FnOnce(&mut World)) -> String {
    let new = [
        "host-model-cpu.node.kubevirt.io/Icelake",
        "cpu-model-migration.node.kubevirt.io/Icelake",
    ];
    let common = [
        "cpu-model.node.kubevirt.io/Haswell",
        "cpu-feature.node.kubevirt.io/avx2",
    ];
    let more = [
        "cpu-feature.node.kubevirt.io/avx512f",
        "host-model-required-features.node.kubevirt.io/avx2",
    ];
    let mut world = World::new(3);
    for (name, keys) in [
        ("node-1", [&new[..], &common[..], &more[..]].concat()),
        (
            "node-2",
            [&common[..], &["cpu-model-migration.node.kubevirt.io/Haswell"]].concat(),
        ),
        ("node-3", [&new[1..], &common[..]].concat()),
    ] {
        world.change_node(name, |node| {
            node.labels = labels_of(name, &keys);
            (node.allocatable.memory, node.allocatable.cpu_milli) = (16 * GIB, 8000);
        });
    }
    world.add_vm("it", "node-1", change);
    prepare(&mut world);
    let found = bound(&world.view, &NodeName::from("node-1"));
    found.iter().map(crate::hci::vms::Bound::reasons).collect()
}

type Change = fn(&mut Vmi);
type Prepare = fn(&mut World);

fn nothing(_: &mut World) {}

fn only_node_2(vmi: &mut Vmi) {
    vmi.node_affinity = affinity("node-2");
}

/// 3 GiB are left on either other node.
fn full(world: &mut World) {
    for (name, node) in [("big-2", "node-2"), ("big-3", "node-3")] {
        world.add_vm(name, node, |vmi| vmi.requests.memory = 13 * GIB);
    }
}

fn disk(world: &mut World, replicas: i32) {
    let volume = Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("healthy"),
        replicas,
        claim: Some(crate::view::Key::new("shop", "disk-it")),
        ..Volume::default()
    };
    world.take("longhorn-system", "pvc-7", volume, HciObject::Volume);
}

fn has_disk(vmi: &mut Vmi) {
    vmi.claims = vec![Arc::from("disk-it")];
}

fn everywhere(vmi: &mut Vmi) {
    only_node_2(vmi);
    vmi.cpu_model = Arc::from("Haswell");
}

#[test]
fn h27_disks_processors_and_room_elsewhere_are_reasons_too() {
    let table: [(&str, Change, Prepare, &str); 10] = [
        ("nothing binds it", |_| {}, nothing, ""),
        (
            "its model is on node-3 alone",
            only_node_2,
            nothing,
            "no other node in service has the processor model Icelake",
        ),
        ("every node has its model", everywhere, nothing, ""),
        (
            "no other node has its model",
            |vmi| vmi.cpu_model = Arc::from("Sapphire"),
            nothing,
            "the processor model Sapphire",
        ),
        (
            "no other node has its feature",
            |vmi| vmi.cpu_features = vec![Arc::from("avx512f")],
            nothing,
            "the processor feature avx512f",
        ),
        ("it fits", |vmi| vmi.requests.memory = 3 * GIB, full, ""),
        (
            "too much memory",
            |vmi| (vmi.requests.memory, vmi.requests.cpu_milli) = (4 * GIB, 500),
            full,
            "it asks for 4096 MiB and 500m CPU, and at most 3072 MiB and 8000m are left",
        ),
        (
            "more processors than any node has",
            |vmi| vmi.requests.cpu_milli = 9000,
            nothing,
            "no other node in service has room for it",
        ),
        (
            "one replica",
            has_disk,
            |world| disk(world, 1),
            "pvc-7 has a single replica",
        ),
        ("two replicas", has_disk, |world| disk(world, 2), ""),
    ];
    for (what, change, prepare, expected) in table {
        let said = reasons(change, prepare);
        assert_eq!(said.is_empty(), expected.is_empty(), "{what}: {said}");
        assert!(said.contains(expected), "{what}: {said}");
    }
}

#[test]
fn h27_room_that_is_gone_while_others_move_stops_nobody_who_is_not_on_record() {
    let mut world = World::new(2);
    for name in ["node-1", "node-2"] {
        world.change_node(name, |node| node.allocatable.memory = 16 * GIB);
    }
    world.add_vm("web", "node-1", |vmi| vmi.requests.memory = 4 * GIB);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    assert!(world.recorded("node-1").is_empty());
    world.add_vm("came", "node-2", |vmi| vmi.requests.memory = 14 * GIB);
    // Its Job is deleted by hand, and made again in spite of it.
    world.view.hci.jobs.clear();
    world.settle();
    assert!(world.recorded("node-1").is_empty(), "room comes back");
    assert!(world.has_job(JobKind::PreDrain, Some("node-1")));
}

#[test]
fn h27_whoever_will_be_stopped_is_on_record_before_the_job_exists() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"restoreVM":true}"#);
    world.add_vm("with-gpu", "node-1", |vmi| vmi.host_devices = true);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    let place = |wanted: fn(&HciAction) -> bool| world.done.iter().position(wanted).unwrap();
    let record = place(|action| matches!(action, HciAction::RecordVms { .. }));
    let job = place(|action| matches!(action, HciAction::CreateJob(job) if job.kind == JobKind::PreDrain));
    assert!(record < job);
    // A retry after the machine was stopped does not forget it.
    world.remove_vmi("with-gpu");
    world.settle();
    assert_eq!(world.recorded("node-1").len(), 1);
}

#[test]
fn h22_stopped_machines_are_started_again_where_the_setting_says_so_and_named_where_not() {
    for restore in [true, false] {
        let mut world = World::new(3);
        world.setting(&format!(
            r#"{{"imagePreloadOption":{{"strategy":{{"type":"skip"}}}},"restoreVM":{restore},"nodeUpgradeOption":{{"mode":"manual","pauseNodes":["node-3"]}}}}"#
        ));
        world.add_vm("with-gpu", "node-1", |vmi| vmi.host_devices = true);
        world.start();
        world.reach_nodes();
        world.rancher_asks("node-1");
        world.remove_vmi("with-gpu");
        world.finish("node-1");
        assert_eq!(world.has_job(JobKind::RestoreVm, Some("node-1")), restore);
        if restore {
            world.add_vm("with-gpu", "node-1", |vmi| vmi.host_devices = true);
            world.complete(JobKind::RestoreVm, Some("node-1"));
        }
        world.take_through("node-2");
        world.unpause("node-3");
        world.take_through("node-3");
        world.clean_up();
        let report = world.condition("Completed").1;
        let expected = if restore {
            "all run again"
        } else {
            "not running: shop/with-gpu"
        };
        assert!(
            report.contains("1 virtual machine was stopped") && report.contains(expected),
            "{report}"
        );
    }
}

#[test]
fn h22_whoever_is_stopped_again_after_a_resume_is_started_again_too() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"restoreVM":true}"#);
    world.add_vm("bound", "node-1", |vmi| vmi.host_devices = true);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    world.complete(JobKind::RestoreVm, Some("node-1"));
    assert_eq!(world.condition("Completed").0, "False");
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert!(
        !world.has_job(JobKind::RestoreVm, Some("node-1")),
        "it would count as done for the second time too"
    );
}

#[test]
fn h46_rancher_is_not_answered_while_somebody_is_on_the_node_whatever_the_job_says() {
    let mut world = World::new(3);
    world.add_vm("late", "node-1", |_| {});
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.complete(JobKind::PreDrain, Some("node-1"));
    assert_eq!(world.state("node-1"), "Pre-draining");
    assert_eq!(world.plan("node-1").pre_hook, None);
    assert!(world.has_job(JobKind::PreDrain, Some("node-1")), "it is made anew");
    world.remove_vmi("late");
    world.complete(JobKind::PreDrain, Some("node-1"));
    assert_eq!(world.state("node-1"), "Pre-drained");
    assert!(world.plan("node-1").pre_hook.is_some());
}

#[test]
fn h22_a_job_that_started_nobody_who_bears_its_note_is_made_anew() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"restoreVM":true}"#);
    world.add_vm("bound", "node-1", |vmi| vmi.host_devices = true);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.remove_vmi("bound");
    let stopped = |before: Option<Run>| Vm {
        run: Run::Strategy("Halted".into()),
        run_before: before,
        ..Vm::default()
    };
    let before = Some(Run::Strategy("Always".into()));
    world.take("shop", "bound", stopped(before), HciObject::Vm);
    world.finish("node-1");
    let key = World::job_key(JobKind::RestoreVm, Some("node-1"));
    world.complete(JobKind::RestoreVm, Some("node-1"));
    assert!(!world.view.hci.jobs[&key].complete, "the first one had not seen it");
    world.take("shop", "bound", stopped(None), HciObject::Vm);
    world.complete(JobKind::RestoreVm, Some("node-1"));
    assert!(world.view.hci.jobs[&key].complete);
}

#[test]
fn h46_a_node_that_is_emptied_names_who_has_not_left_and_how_its_migration_goes() {
    let mut world = World::new(3);
    world.add_vm("web", "node-1", |_| {});
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    let migration = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from("Failed"),
        message: Some(Arc::from("target pod is unschedulable")),
        ..Migration::default()
    };
    world.take("shop", "kubevirt-evacuation-1", migration, HciObject::Migration);
    world.settle();
    let told = world.told("node-1");
    assert!(
        told.contains("shop/web") && told.contains("target pod is unschedulable"),
        "{told}"
    );
}

#[test]
fn h29_a_pod_under_two_budgets_is_named_while_rancher_drains() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.complete(JobKind::PreDrain, Some("node-1"));
    let pod = crate::testing::pod("shop", "virt-launcher-web", "node-1", "web");
    world.view.put_pod(Arc::new(pod));
    for name in ["kubevirt-disruption-budget", "by-hand"] {
        let key = crate::view::Key::new("shop", name);
        let budget = PodBudget {
            key: key.clone(),
            uid: crate::testing::uid(name),
            revision: Revision(1),
            selector: Selector::default(),
            up_to_date: true,
            disruptions_allowed: 1,
            current_healthy: 1,
            desired_healthy: 0,
            expected_pods: 1,
            unhealthy_may_go: false,
        };
        world.view.budgets.insert(key, Arc::new(budget));
    }
    world.settle();
    let told = world.told("node-1");
    assert!(
        told.contains("shop/virt-launcher-web") && told.contains("pdb/shop/by-hand"),
        "{told}"
    );
}

#[test]
fn a_machine_that_is_not_recorded_stops_the_job_that_would_stop_it() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.view.hci.jobs.clear();
    world.add_vm("late", "node-1", |vmi: &mut Vmi| vmi.host_devices = true);
    let decision = world.decide();
    let jobs = decision
        .actions
        .iter()
        .filter(|action| action.name() == "create-job")
        .count();
    assert_eq!(jobs, 0, "rule 9");
    assert!(
        decision.events.iter().any(|event| event.message.contains("rule 9")),
        "{:?}",
        decision.events
    );
}

#[test]
fn h27_who_comes_to_be_bound_while_the_node_is_emptied_is_written_down_and_nodes_that_are_away_bind_nobody() {
    let mut world = World::new(3);
    world.add_vm("web", "node-1", |_| {});
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
    for other in ["node-2", "node-3"] {
        world.change_node(other, |node| node.unschedulable = true);
    }
    world.settle();
    assert!(world.recorded("node-1").is_empty(), "they come back");
    world.add_vm("web", "node-1", |vmi| vmi.host_devices = true);
    world.settle();
    assert_eq!(world.recorded("node-1"), ["shop/web".to_owned()].into());
}

#[test]
fn h29_a_node_that_is_done_takes_virtual_machines_again_before_the_next_one_is_emptied() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.taint("node-1");
    world.finish("node-1");
    world.settle();
    assert_eq!(world.state("node-1"), "Succeeded");
    assert!(world.node("node-1").taints.is_empty());
}
