use super::text::{Layout, lines};
use super::*;
use afloat_sim::object::Kind;
use serde_json::{Value, json};

fn view(objects: Vec<(Kind, Value)>) -> View {
    let mut view = View::default();
    for (index, (kind, mut object)) in objects.into_iter().enumerate() {
        object["metadata"]["resourceVersion"] = (index + 1).to_string().into();
        view.apply(kind.parse(object).unwrap());
    }
    view
}

fn node(name: &str, ready: &str) -> (Kind, Value) {
    let value = json!({
        "metadata": { "name": name, "uid": name },
        "status": {
            "allocatable": { "cpu": "4", "memory": "8Gi" },
            "conditions": [{ "type": "Ready", "status": ready, "message": "kubelet is away" }],
        },
    });
    (Kind::Node, value)
}

fn pod(name: &str, node: &str, ready: bool) -> (Kind, Value) {
    let status = if ready { "True" } else { "False" };
    let value = json!({
        "metadata": { "name": name, "namespace": "shop", "uid": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "2Gi" } } }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] },
    });
    (Kind::Pod, value)
}

fn budget(allowed: i32) -> (Kind, Value) {
    let value = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "web", "generation": 1 },
        "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2 - allowed, "expectedPods": 2,
            "observedGeneration": 1,
        },
    });
    (Kind::PodDisruptionBudget, value)
}

fn drawn(view: &View, width: usize, height: Option<usize>) -> Vec<String> {
    let picture = Picture::of(view, "v1.35.4", 2, Timestamp::UNIX_EPOCH);
    lines(
        &picture,
        Layout {
            wide: false,
            colour: false,
            width,
            height,
        },
    )
}

#[test]
fn the_first_lines_say_what_it_is_and_what_it_waits_for() {
    let calm = view(vec![
        node("w1", "True"),
        node("w2", "True"),
        pod("a", "w1", true),
        budget(1),
    ]);
    let text = drawn(&calm, 200, None);
    assert_eq!(text[0], "Sandbox v1.35.4 · 2 of 2 nodes ready · 1 of 1 pods ready");
    assert!(text[1].starts_with("Settled"), "{}", text[1]);
    let row = text.iter().find(|line| line.trim_start().starts_with("w1")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["w1", "worker", "Ready", "1", "25%", "25%"]
    );

    let busy = view(vec![
        node("w1", "True"),
        node("w2", "Unknown"),
        pod("a", "w1", false),
        budget(0),
    ]);
    let text = drawn(&busy, 200, None);
    assert_eq!(
        text[1],
        "Settling: 1 of 2 nodes ready; 1 pods on their way (shop/a first)"
    );
    assert!(
        text.iter()
            .any(|line| line.contains("Unknown") && line.contains("kubelet is away"))
    );
    assert!(
        text.iter()
            .any(|line| line.contains("shop/web") && line.contains("cannot be drained"))
    );
}

#[test]
fn nothing_is_wider_or_higher_than_the_terminal() {
    let many: Vec<_> = (0..50)
        .map(|index| node(&format!("worker-{index}"), "Unknown"))
        .collect();
    for (width, height) in [(20, 8), (40, 12), (80, 24), (200, 60)] {
        let text = drawn(&view(many.clone()), width, Some(height));
        assert!(text.len() <= height, "{} lines on {height}", text.len());
        assert!(text.iter().all(|line| line.chars().count() <= width), "{text:#?}");
    }
    let clipped = drawn(&view(many), 80, Some(24));
    assert!(clipped.iter().any(|line| line.contains("more nodes")));
}

#[test]
fn nodes_are_sorted_as_people_count() {
    let nodes = ["worker-10", "worker-9", "worker-1"]
        .map(|name| node(name, "True"))
        .to_vec();
    let picture = Picture::of(&view(nodes), "v1.35.4", 3, Timestamp::UNIX_EPOCH);
    let names: Vec<&str> = picture.nodes.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["worker-1", "worker-9", "worker-10"]);
}
