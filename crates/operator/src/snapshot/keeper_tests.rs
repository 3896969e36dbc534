use super::*;
use crate::snapshot::raw::{RawClaim, RawLease, RawNode, RawPod, RawVolume};
use crate::snapshot::reduce;
use serde_json::{Value, json};

fn pod(name: &str, uid: &str, revision: u64, node: &str) -> Object {
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": revision.to_string()},
        "spec": {"nodeName": node},
    });
    reduce::pod(serde_json::from_value::<RawPod>(object).unwrap()).unwrap()
}

fn node(name: &str, revision: u64, status: &Value) -> Object {
    let object =
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string()}, "status": status});
    reduce::node(serde_json::from_value::<RawNode>(object).unwrap()).unwrap()
}

fn seen(object: Object) -> News {
    News::Seen { object, listed: false }
}

fn listed(object: Object) -> News {
    News::Seen { object, listed: true }
}

fn web() -> Key {
    Key::new("shop", "web")
}

fn revision_of(keeper: &Keeper) -> Option<u64> {
    keeper.view().pod(&web()).map(|pod| pod.revision.0)
}

#[test]
fn what_a_watch_says_late_changes_nothing() {
    let mut keeper = Keeper::new("afloat");
    assert!(
        !keeper.seen(pod("web", "a", 9, "n")).is_empty(),
        "the answer to an own write"
    );
    assert!(
        keeper.take(seen(pod("web", "a", 8, "n"))).is_empty(),
        "an earlier state"
    );
    assert!(
        keeper.take(seen(pod("web", "a", 9, "n"))).is_empty(),
        "the same state again"
    );
    assert_eq!(revision_of(&keeper), Some(9));
    assert_eq!(keeper.take(seen(pod("web", "a", 10, "n"))).len(), 1);
    assert_eq!(revision_of(&keeper), Some(10));
}

#[test]
fn an_answer_that_comes_after_the_end_does_not_bring_the_object_back() {
    let mut keeper = Keeper::new("afloat");
    keeper.take(seen(pod("web", "a", 5, "n")));
    let target = pod("web", "a", 9, "n").target();
    keeper.take(News::Gone {
        kind: Kind::Pod,
        target,
    });
    // The pod was told to end at 7; the reply was slower than the watch.
    assert!(keeper.answered(pod("web", "a", 7, "n")).is_empty());
    assert_eq!(revision_of(&keeper), None);
    // A creation is known at once, before the watch tells of it.
    assert_eq!(keeper.answered(pod("web", "b", 12, "n")).len(), 1);
    assert_eq!(revision_of(&keeper), Some(12));
    // A list that lacks the pod has told of its end as well.
    keeper.take(News::Listing(Kind::Pod));
    keeper.take(listed(pod("db", "c", 14, "n")));
    keeper.take(News::Listed(Kind::Pod));
    assert!(keeper.answered(pod("web", "b", 13, "n")).is_empty());
    assert_eq!(revision_of(&keeper), None);
    assert_eq!(keeper.answered(pod("web", "d", 16, "n")).len(), 1);
    // What is there is brought up to date, also where the watch is further already.
    keeper.take(seen(pod("db", "c", 20, "n")));
    assert_eq!(keeper.answered(pod("web", "d", 18, "n")).len(), 1);
    assert_eq!(revision_of(&keeper), Some(18));
}

#[test]
fn the_end_of_a_namesake_removes_only_the_namesake() {
    let mut keeper = Keeper::new("afloat");
    keeper.seen(pod("web", "new", 9, "n"));
    let old = pod("web", "old", 5, "n").target();
    assert!(
        keeper
            .take(News::Gone {
                kind: Kind::Pod,
                target: old
            })
            .is_empty()
    );
    let new = pod("web", "new", 11, "n").target();
    assert_eq!(
        keeper
            .take(News::Gone {
                kind: Kind::Pod,
                target: new
            })
            .len(),
        1
    );
    assert_eq!(revision_of(&keeper), None);
}

#[test]
fn what_was_deleted_by_us_is_gone_until_another_one_is_born() {
    let mut keeper = Keeper::new("afloat");
    keeper.seen(pod("web", "a", 5, "n"));
    let target = pod("web", "a", 5, "n").target();
    assert_eq!(keeper.deleted(Kind::Pod, &target).len(), 1);
    assert!(
        keeper.take(seen(pod("web", "a", 6, "n"))).is_empty(),
        "the watch is behind"
    );
    assert_eq!(revision_of(&keeper), None);
    assert_eq!(keeper.take(seen(pod("web", "b", 8, "n"))).len(), 1);
    assert_eq!(revision_of(&keeper), Some(8));
}

#[test]
fn an_evicted_pod_is_ending_at_once_and_only_once() {
    let mut keeper = Keeper::new("afloat");
    keeper.seen(pod("web", "a", 5, "n"));
    let target = pod("web", "a", 5, "n").target();
    let by = "2026-01-02T03:04:05Z".parse().unwrap();
    assert_eq!(keeper.evicted(&target, by).len(), 1);
    assert!(keeper.evicted(&target, by).is_empty());
    assert_eq!(keeper.view().pod(&web()).unwrap().ending.unwrap().by, by);
    keeper.take(seen(pod("web", "a", 6, "n")));
    assert!(
        keeper.view().pod(&web()).unwrap().ending.is_none(),
        "the watch has the last word"
    );
}

#[test]
fn a_second_list_removes_what_it_does_not_show() {
    let mut keeper = Keeper::new("afloat");
    for news in [
        News::Listing(Kind::Pod),
        listed(pod("web", "a", 5, "n")),
        listed(pod("db", "b", 6, "n")),
        News::Listed(Kind::Pod),
    ] {
        keeper.take(news);
    }
    assert!(keeper.complete([Kind::Pod].into_iter()) && !keeper.complete([Kind::Node].into_iter()));
    keeper.take(News::Listing(Kind::Pod));
    assert!(keeper.take(listed(pod("db", "b", 6, "n"))).is_empty(), "nothing new");
    assert_eq!(keeper.take(News::Listed(Kind::Pod)).len(), 1);
    assert_eq!(keeper.view().pods().len(), 1);
}

#[test]
fn an_object_that_cannot_be_read_stays_as_it_was_understood() {
    let mut keeper = Keeper::new("afloat");
    keeper.seen(pod("web", "a", 5, "n"));
    keeper.take(News::Listing(Kind::Pod));
    let problem = crate::snapshot::Unreadable {
        key: web(),
        problem: "odd".into(),
    };
    keeper.take(News::Unreadable {
        kind: Kind::Pod,
        problem,
        listed: true,
    });
    assert!(keeper.take(News::Listed(Kind::Pod)).is_empty());
    assert_eq!(revision_of(&keeper), Some(5));
}

#[test]
fn pods_share_shape_namespace_and_node() {
    let mut keeper = Keeper::new("afloat");
    keeper.seen(pod("web", "a", 5, "n"));
    keeper.seen(pod("db", "b", 6, "n"));
    let pods: Vec<_> = keeper.view().pods().collect();
    assert!(Arc::ptr_eq(&pods[0].shape, &pods[1].shape));
    assert!(Arc::ptr_eq(&pods[0].key.namespace, &pods[1].key.namespace));
}

#[test]
fn a_claim_knows_where_its_volume_can_be_used_whichever_came_first() {
    let claim = || {
        let object = json!({"metadata": {"name": "data", "namespace": "shop", "uid": "c", "resourceVersion": "3"},
                            "spec": {"volumeName": "pv-1"}});
        reduce::claim(serde_json::from_value::<RawClaim>(object).unwrap()).unwrap()
    };
    let volume = || {
        let terms =
            json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}]);
        let object = json!({"metadata": {"name": "pv-1", "uid": "v", "resourceVersion": "4"}, "spec": {
            "claimRef": {"namespace": "shop", "name": "data"}, "csi": {"driver": "csi.example", "volumeHandle": "h-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        reduce::volume(serde_json::from_value::<RawVolume>(object).unwrap()).unwrap()
    };
    for order in [[claim(), volume()], [volume(), claim()]] {
        let mut keeper = Keeper::new("afloat");
        for object in order {
            keeper.seen(object);
        }
        let kept = &keeper.view().claims[&Key::new("shop", "data")];
        assert_eq!(kept.node_affinity.len(), 1);
        keeper.seen(node(
            "n",
            9,
            &json!({"volumesAttached": [{"name": "kubernetes.io/csi/csi.example^h-1"}]}),
        ));
        assert_eq!(*keeper.view().nodes["n"].attached_volumes, [Arc::from("pv-1")]);
    }
}

#[test]
fn the_virtual_address_is_news_only_when_it_moves() {
    let lease = |revision: u64, holder: &str| {
        let object = json!({"metadata": {"name": "plndr-cp-lock", "namespace": "kube-system", "uid": "l",
            "resourceVersion": revision.to_string()}, "spec": {"holderIdentity": holder}});
        reduce::virtual_ip(serde_json::from_value::<RawLease>(object).unwrap()).unwrap()
    };
    let mut keeper = Keeper::new("afloat");
    assert_eq!(keeper.take(listed(lease(1, "cp-1"))).len(), 1);
    assert!(keeper.take(seen(lease(2, "cp-1"))).is_empty(), "only renewed");
    assert_eq!(keeper.take(seen(lease(3, "cp-2"))).len(), 1);
    assert_eq!(keeper.view().vip_holder, Some(NodeName::from("cp-2")));
    keeper.take(News::Listing(Kind::VirtualIpLease));
    keeper.take(listed(lease(3, "cp-2")));
    keeper.take(News::Listed(Kind::VirtualIpLease));
    assert!(
        keeper.view().vip_holder.is_some(),
        "a list that shows it does not remove it"
    );
}

#[test]
fn whom_a_change_concerns_is_told_and_what_is_no_change_is_not() {
    let mut keeper = Keeper::new("afloat");
    let on = |node: &str| Changed::Pod(Some(NodeName::from(node)));
    assert_eq!(keeper.seen(pod("web", "a", 5, "n")), [on("n")]);
    assert_eq!(
        keeper.seen(pod("web", "b", 6, "m")),
        [on("n"), on("m")],
        "born again elsewhere"
    );
    assert_eq!(
        keeper.seen(node("n", 7, &json!({}))),
        [Changed::Node(NodeName::from("n"))]
    );
    assert!(keeper.seen(node("n", 8, &json!({}))).is_empty(), "only a heartbeat");
    assert_eq!(keeper.view().nodes["n"].revision.0, 8, "but its revision counts");
    let health = |count: u32| {
        let health = afloat_core::view::ControlPlaneHealth {
            readyz_in_a_row: count,
            etcd: None,
        };
        Health::from([(NodeName::from("n"), health)])
    };
    assert_eq!(keeper.set_health(health(1)), [Changed::Health(NodeName::from("n"))]);
    assert!(
        keeper.set_health(health(2)).is_empty(),
        "nobody decides by a second answer"
    );
    assert_eq!(keeper.view().health["n"].readyz_in_a_row, 2, "but it counts");
    assert_eq!(keeper.set_health(health(3)), [Changed::Health(NodeName::from("n"))]);
    assert!(keeper.set_health(health(4)).is_empty());
    assert_eq!(keeper.set_health(health(0)), [Changed::Health(NodeName::from("n"))]);
}

#[test]
fn up_to_when_nodes_were_seen_is_told_by_their_watch_alone_and_by_whole_lists() {
    let mut keeper = Keeper::new("afloat");
    let as_of = |keeper: &Keeper| keeper.view().nodes_as_of.0;
    keeper.take(News::Listing(Kind::Node));
    keeper.take(listed(node("n", 7, &json!({}))));
    assert_eq!(as_of(&keeper), 0, "others of the list may still come");
    keeper.take(News::Listed(Kind::Node));
    assert_eq!(as_of(&keeper), 7);
    keeper.take(seen(node("n", 9, &json!({}))));
    assert_eq!(as_of(&keeper), 9);
    keeper.seen(node("n", 12, &json!({})));
    assert_eq!(as_of(&keeper), 9, "an own write says nothing of the others");
    let target = Target {
        key: Key::new("", "n"),
        uid: Uid::from("n"),
        revision: Revision(13),
    };
    keeper.take(News::Gone {
        kind: Kind::Node,
        target,
    });
    assert_eq!(as_of(&keeper), 13);
}

#[test]
fn a_roll_call_makes_the_silence_of_the_watch_of_nodes_mean_something() {
    let roll = |revision, nodes: &[(&str, u64)]| RollCall {
        revision: Revision(revision),
        nodes: nodes
            .iter()
            .map(|(name, revision)| (NodeName::from(*name), Revision(*revision)))
            .collect(),
    };
    let gone = |name: &str, revision| News::Gone {
        kind: Kind::Node,
        target: Target {
            key: Key::new("", name),
            uid: Uid::from(name),
            revision: Revision(revision),
        },
    };
    let start = || {
        let mut keeper = Keeper::new("afloat");
        for name in ["a", "b"] {
            keeper.take(seen(node(name, 7, &json!({}))));
        }
        keeper
    };
    let as_of = |keeper: &Keeper| keeper.view().nodes_as_of.0;

    let mut same = start();
    same.roll_called(roll(50, &[("a", 7), ("b", 7)]));
    assert_eq!(as_of(&same), 50, "nothing has happened to any");

    for (what, called, news) in [
        (
            "changed",
            roll(50, &[("a", 7), ("b", 40)]),
            seen(node("b", 40, &json!({}))),
        ),
        (
            "changed again since",
            roll(50, &[("a", 7), ("b", 40)]),
            seen(node("b", 60, &json!({}))),
        ),
        (
            "joined",
            roll(50, &[("a", 7), ("b", 7), ("c", 40)]),
            seen(node("c", 40, &json!({}))),
        ),
        ("left", roll(50, &[("a", 7)]), gone("b", 40)),
        ("left since", roll(50, &[("a", 7), ("b", 40)]), gone("b", 60)),
    ] {
        let mut keeper = start();
        keeper.roll_called(called);
        assert_eq!(as_of(&keeper), 7, "{what}: the watch has not told of it");
        let newest = match &news {
            News::Seen { object, .. } => object.target().revision.0,
            News::Gone { target, .. } => target.revision.0,
            _ => 0,
        };
        keeper.take(news);
        assert_eq!(as_of(&keeper), newest.max(50), "{what}");
    }

    let mut later = start();
    later.take(seen(node("c", 60, &json!({}))));
    later.roll_called(roll(50, &[("a", 7), ("b", 7)]));
    assert_eq!(as_of(&later), 60, "the watch had come further");
    later.roll_called(roll(70, &[("a", 7), ("b", 7), ("c", 60)]));
    assert_eq!(as_of(&later), 70);
    later.roll_called(roll(65, &[("a", 7), ("b", 7), ("c", 60)]));
    assert_eq!(as_of(&later), 70, "an answer that comes late takes nothing back");
}
