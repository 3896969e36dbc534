//! Scenarios of what a person changes half-way, of failures that pass, and of images that a person names.

use super::Scenario;
use super::setup::{FROM, TO, at_once, node};
use super::words::{SUCCEEDED, preload, scenario, usual};
use crate::time::{MINUTE, SECOND};
use crate::world::Act;
use afloat_api::clusterupgrade::{Bundle, ImagePreloadType, Window};
use afloat_api::{ClusterUpgradeSpec, NodeState};

fn window(start: &str, minutes: i32) -> Window {
    Window {
        start: start.to_owned(),
        duration_minutes: minutes,
        ..Window::default()
    }
}

/// Later ones than kubeadm would bring.
fn images(spec: &mut ClusterUpgradeSpec) {
    spec.etcd_version = Some("3.6.9-0".to_owned());
    spec.core_dns_version = Some("v1.14.3".to_owned());
}

pub(super) static EDITS: &[Scenario] = &[
    scenario(
        "target-edited",
        "a person wants another version half-way: what runs is aborted, and another one asked for",
        "Aborted, Succeeded",
        30 * MINUTE,
        |setup| {
            setup.world.far = true;
            setup.cluster(3, 3, FROM);
            setup.workloads();
            let key = setup.upgrade_named("first", "v1.37.2", 0, |_| {});
            setup.when(NodeState::Upgrading, Some("cp-3"), SECOND, Act::Abort(key));
            setup.upgrade_named("second", TO, 20 * MINUTE, |_| {});
        },
    ),
    scenario(
        "window-closed",
        "a person gives the upgrade a window half-way, which is over",
        "Workers: OutsideWindow",
        30 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, |_| {});
            let closes = Act::Window(key, Some(Box::new(window("06:00", 60))));
            setup.when(NodeState::Draining, Some("w-2"), SECOND, closes);
        },
    ),
    scenario(
        "window-opened",
        "a person takes the window away that the rest waits for",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, |spec| spec.window = Some(window("07:57", 5)));
            setup.at(20 * MINUTE, Act::Window(key, None));
        },
    ),
    scenario(
        "budget-tightened",
        "three workers at once, and a person wants one at a time half-way",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            setup.cluster(3, 7, FROM);
            setup.workloads();
            let key = setup.upgrade(TO, at_once(3));
            setup.when(NodeState::Draining, Some("w-1"), SECOND, Act::Budget(key, 1));
        },
    ),
    scenario(
        "kubeadm-fails-once",
        "kubeadm fails once on a worker: the step is tried again",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.at(0, Act::KubeadmFails(node("w-2"), 1));
        },
    ),
    scenario(
        "image-comes-late",
        "an image cannot be pulled a few times, and then can",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.at(0, Act::PullFails(node("w-3"), 5));
        },
    ),
    scenario(
        "image-comes-late-in-turn",
        "the same where files are brought to a node in its turn, and of a control plane",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| preload(spec, ImagePreloadType::Skip));
            setup.at(0, Act::PullFails(node("cp-3"), 5));
        },
    ),
    scenario(
        "named-images",
        "the same version from another bundle, whose tags of etcd and of CoreDNS a person names",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 3, TO);
            setup.workloads();
            setup.upgrade(TO, |spec| {
                spec.bundle = Some(Bundle {
                    image: "mirror/bundle:v1.36.3-2".to_owned(),
                    digest: None,
                });
                images(spec);
            });
        },
    ),
    scenario(
        "named-images-far",
        "two minor versions, and tags that are for the last of them",
        SUCCEEDED,
        0,
        |setup| {
            setup.world.far = true;
            setup.cluster(3, 3, FROM);
            setup.workloads();
            setup.upgrade("v1.37.2", images);
        },
    ),
];
