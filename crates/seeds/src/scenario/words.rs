//! What several scenarios have in common.

use super::setup::{FROM, TO, budget_key, node, workload};
use super::{Scenario, Setup};
use crate::faults::Class;
use crate::store::BudgetSpec;
use crate::time::Millis;
use crate::world::{Act, KeeperKind};
use afloat_api::ClusterUpgradeSpec;
use afloat_api::NodeState;
use afloat_api::clusterupgrade::{
    Budget, Gate, ImagePreloadOption, ImagePreloadStrategy, ImagePreloadType, NodeUpgradeMode, NodeUpgradeOption,
    NodeUpgradeStrategy,
};
use afloat_core::view::Wish;

pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";
pub(super) const ABORTED: &str = "Aborted";
pub(super) const PREFLIGHT: &str = "Preflight: PreflightFailed";
pub(super) const DOWNTIME: &str = "clusterupgrade/afloat-system/up:ApiDowntime";

pub(super) fn every(_: Class) -> bool {
    true
}

/// Where one node more that fails or is set aside would change the story.
pub(super) fn no_failures(class: Class) -> bool {
    !matches!(class, Class::KubeadmFails | Class::PullFails | Class::Reboot)
}

pub(super) const fn scenario(
    name: &'static str,
    summary: &'static str,
    ends: &'static str,
    calm_after: Millis,
    build: fn(&mut Setup<'_>),
) -> Scenario {
    Scenario {
        name,
        summary,
        build,
        ends,
        calm_after,
        allows: every,
    }
}

pub(super) fn usual(setup: &mut Setup<'_>) {
    setup.cluster(3, 5, FROM);
    setup.workloads();
}

pub(super) fn small(setup: &mut Setup<'_>) {
    setup.cluster(1, 2, FROM);
    setup.workloads();
}

pub(super) fn abort_in(setup: &mut Setup<'_>, state: NodeState, who: Option<&str>) {
    usual(setup);
    let key = setup.upgrade(TO, |_| {});
    setup.when(state, who, 700, Act::Abort(key));
}

pub(super) fn rollback_in(setup: &mut Setup<'_>, state: NodeState, who: &str) {
    rollback_after(setup, state, who, 700);
}

pub(super) fn rollback_after(setup: &mut Setup<'_>, state: NodeState, who: &str, after: Millis) {
    usual(setup);
    setup.upgrade(TO, |_| {});
    setup.when(state, Some(who), after, Act::Wish(node(who), Wish::Rollback));
}

/// So many nodes may fail and be set aside.
pub(super) fn may_fail(many: i32) -> impl FnOnce(&mut ClusterUpgradeSpec) {
    move |spec| {
        spec.budget = Some(Budget {
            max_failed: Some(many),
            ..Budget::default()
        });
    }
}

pub(super) fn stuck(setup: &mut Setup<'_>) {
    usual(setup);
    setup.workload(&workload(
        KeeperKind::ReplicaSet,
        "till",
        1,
        Some(BudgetSpec::MinAvailable(1)),
    ));
}

/// A budget that is counted down and never again up.
pub(super) fn frozen(setup: &mut Setup<'_>, replicas: usize) {
    usual(setup);
    setup.workload(&workload(
        KeeperKind::ReplicaSet,
        "till",
        replicas,
        Some(BudgetSpec::MaxUnavailable(1)),
    ));
    setup.freeze(budget_key("till"));
}

pub(super) fn gated(spec: &mut ClusterUpgradeSpec) {
    spec.gates = vec![Gate {
        name: "shop-is-quiet".to_owned(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        expression: "object.data.quiet == 'yes'".to_owned(),
        ..Gate::default()
    }];
}

pub(super) fn manual(spec: &mut ClusterUpgradeSpec, nodes: &[&str]) {
    spec.node_upgrade_option = Some(NodeUpgradeOption {
        strategy: Some(NodeUpgradeStrategy {
            mode: Some(NodeUpgradeMode::Manual),
            pause_nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
        }),
    });
}

pub(super) fn preload(spec: &mut ClusterUpgradeSpec, kind: ImagePreloadType) {
    spec.image_preload_option = Some(ImagePreloadOption {
        strategy: Some(ImagePreloadStrategy {
            kind,
            concurrency: None,
        }),
    });
}
