use super::text::{Layout, lines};
use super::*;
use afloat_api::clusterupgrade::Bundle;
use afloat_api::{ClusterUpgradeSpec, NodeState};
use afloat_core::view::{Node, NodeName};
use jiff::SignedDuration;
use std::sync::Arc;

const PLAIN: Layout = Layout {
    wide: false,
    colour: false,
    width: usize::MAX,
    height: None,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(name: &str, state: NodeState) -> NodeRow {
    let control_plane = name.starts_with("cp-");
    NodeRow {
        name: name.to_owned(),
        role: if control_plane { "control-plane" } else { "worker" },
        control_plane,
        version: if state == NodeState::Succeeded {
            "v1.36.3"
        } else {
            "v1.35.4"
        }
        .to_owned(),
        target: None,
        state,
        step: String::new(),
        since: None,
        taken: None,
        longest_step: None,
        in_flight: false,
        attempt: 1,
        group: "workers".to_owned(),
        zone: String::new(),
        note: String::new(),
    }
}

pub(super) fn board(nodes: Vec<NodeRow>) -> Board {
    Board {
        time: at(1000),
        namespace: "afloat-system".to_owned(),
        name: "edge-1".to_owned(),
        from: Some("v1.35.4".to_owned()),
        to: "v1.36.3".to_owned(),
        path: vec!["v1.36.3".to_owned()],
        phase: Phase::ControlPlane,
        seen: true,
        paused: false,
        aborting: false,
        reason: "InProgress".to_owned(),
        message: String::new(),
        started_at: Some(at(630)),
        finished_at: None,
        estimate: None,
        nodes,
        waits: Vec::new(),
        failed: Vec::new(),
        findings: Vec::new(),
        budget: BudgetUse {
            used: 1,
            most: 1,
            failed: 0,
            most_failed: 0,
        },
        pods_moved: 0,
    }
}

#[test]
fn the_estimate_names_its_basis_and_is_absent_rather_than_invented() {
    let mut board = board(vec![
        node("cp-1", NodeState::Succeeded),
        node("cp-2", NodeState::Upgrading),
    ]);
    let head = "Upgrade edge-1  v1.35.4 → v1.36.3   Control plane   1 of 2   ";
    assert_eq!(lines(&board, PLAIN)[0], format!("{head}6m10s so far"));
    board.estimate = Some(Expected {
        finish_at: at(1000 + 790),
        basis: "from 1 node so far".to_owned(),
    });
    let wanted = format!("{head}31% · 6m10s so far, about 13m left (from 1 node so far)");
    assert_eq!(lines(&board, PLAIN)[0], wanted);
}

#[test]
fn of_many_nodes_those_that_matter_are_shown_and_the_rest_is_counted() {
    let mut nodes: Vec<NodeRow> = (1..=200)
        .map(|n| node(&format!("worker-{n}"), NodeState::Staged))
        .collect();
    nodes[150].state = NodeState::Draining;
    nodes[150].in_flight = true;
    nodes[190].state = NodeState::RolledBack;
    let board = board(nodes);
    let short = lines(
        &board,
        Layout {
            height: Some(12),
            ..PLAIN
        },
    );
    assert!(short.len() <= 12, "{short:#?}");
    assert!(
        short
            .iter()
            .any(|line| line.contains("worker-151 ") && line.contains("Draining"))
    );
    assert!(short.iter().any(|line| line.contains("worker-191 ")));
    assert!(short.iter().any(|line| line.contains("more nodes (")), "{short:#?}");
    assert_eq!(lines(&board, Layout { wide: true, ..PLAIN }).len(), 1 + 1 + 201 + 2);
}

#[test]
fn a_pipe_gets_one_line_per_change() {
    let before = board(vec![
        node("cp-1", NodeState::Verifying),
        node("cp-2", NodeState::Staged),
    ]);
    let mut after = before.clone();
    after.nodes[0].state = NodeState::Succeeded;
    after.nodes[0].taken = Some(SignedDuration::from_secs(164));
    after.phase = Phase::Workers;
    let said = lines::between(Some(&before), &after);
    let said: Vec<&str> = said.iter().map(|line| &line[9..]).collect();
    assert_eq!(
        said,
        [
            "edge-1  Control plane → Workers",
            "cp-1    Verifying → Succeeded     2m44s",
        ]
    );
    assert!(lines::between(Some(&after), &after).is_empty(), "nothing changed");
}

#[test]
fn the_end_says_what_it_took_and_what_to_do_next() {
    let mut done = node("worker-1", NodeState::Succeeded);
    done.taken = Some(SignedDuration::from_secs(200));
    done.longest_step = Some(("kubeadm".to_owned(), SignedDuration::from_secs(125)));
    let mut board = board(vec![done, node("worker-2", NodeState::RolledBack)]);
    board.phase = Phase::Succeeded;
    board.finished_at = Some(at(630 + 1132));
    board.pods_moved = 52;
    let wanted = [
        "edge-1 is at v1.36.3.   1 of 2 nodes, 18m52s, 52 pods moved",
        "Longest: worker-1 3m20s (2m05s in kubeadm)",
        "Not at v1.36.3: worker-2 (RolledBack)",
        "Undo a worker: afloat rollback NODE",
    ];
    assert_eq!(lines(&board, PLAIN), wanted);
    board.phase = Phase::Failed;
    board.message = "control plane cp-2 was put back: etcd did not come up".to_owned();
    let said = lines(&board, PLAIN);
    assert!(said[0].starts_with("edge-1 stopped short of v1.36.3."), "{said:#?}");
    assert_eq!(said[1], board.message);
    assert!(said[3].ends_with("afloat upgrade --to v1.36.3"), "{said:#?}");
}

#[test]
fn an_upgrade_nobody_looks_at_asks_for_its_operator() {
    let mut board = board(Vec::new());
    (board.seen, board.started_at, board.from, board.phase) = (false, None, None, Phase::Pending);
    let said = lines(&board, PLAIN);
    assert_eq!(said[0], "Upgrade edge-1  to v1.36.3   Not begun   0 of 0");
    assert!(said[1].contains("afloat controller"), "{said:#?}");
}

#[test]
fn p46_a_node_that_a_bundle_of_its_version_may_yet_take_is_not_done() {
    let node = Node {
        name: NodeName::from("cp-1"),
        kubelet_version: Some("v1.36.3".parse().unwrap()),
        ..Node::default()
    };
    let mut view = View::default();
    view.nodes.insert(node.name.clone(), Arc::new(node));
    let state = |bundle: bool, phase: Phase| {
        let spec = ClusterUpgradeSpec {
            kubernetes_version: "v1.36.3".to_owned(),
            bundle: bundle.then(Bundle::default),
            ..ClusterUpgradeSpec::default()
        };
        let mut upgrade = ClusterUpgrade::new("parts", spec);
        upgrade.status.get_or_insert_default().phase = Some(phase);
        rows::rows(&view, &upgrade)[0].state
    };
    for (bundle, phase, expected) in [
        (false, Phase::Preflight, NodeState::Succeeded),
        (true, Phase::Preflight, NodeState::Pending),
        (true, Phase::Prepare, NodeState::Pending),
        // By then who is taken has an object of its own.
        (true, Phase::Workers, NodeState::Succeeded),
    ] {
        assert_eq!(state(bundle, phase), expected, "{bundle} {phase}");
    }
}
