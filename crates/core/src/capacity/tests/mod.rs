mod any_way;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::plan::fixture::{Cluster, GIB, owned, pod, resources};
use crate::view::{
    Claim, Operator, Owner, PodPhase, PodShape, PodTerm, Requirement, Selector, Spread, Taint, TaintEffect, Toleration,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn told(cluster: &Cluster, away: &[&str]) -> String {
    let away: BTreeSet<NodeName> = away.iter().map(|name| NodeName::from(*name)).collect();
    match fits(&cluster.view, &away) {
        Ok(fit) => fit.to_string(),
        Err(found) => found.to_string(),
    }
}

/// Three workers (4 CPU, 16 GiB each), no control plane to distract.
fn workers() -> Cluster {
    Cluster::new(0, 3, "v1.35.4")
}

fn app(name: &str) -> Selector {
    Selector {
        requirements: vec![Requirement {
            key: "app".into(),
            operator: Operator::In,
            values: vec![name.into()],
        }],
    }
}

fn term(name: &str, topology_key: &str) -> PodTerm {
    PodTerm {
        selector: app(name),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: topology_key.into(),
    }
}

fn labelled(shape: &mut PodShape, name: &str) {
    shape.labels.insert("app".into(), name.into());
}

#[test]
fn p3_what_must_move_fits_without_extra_machines_and_it_says_how_tight() {
    let mut cluster = workers();
    cluster.run("a", "worker-1", resources(2000, 8 * GIB), |_| {});
    cluster.run("b", "worker-2", resources(1200, 6 * GIB), |_| {});
    assert_eq!(
        told(&cluster, &["worker-1"]),
        "with worker-1 away 3.2 of 8 CPU and 14 of 32 GiB are asked for: fits (tightest: memory on worker-2, 87%)"
    );
}

#[test]
fn sums_that_fit_are_no_proof() {
    // 3 + 3 CPU are free, but no node has 4.
    let mut cluster = workers();
    cluster.run("big", "worker-1", resources(4000, GIB), |_| {});
    cluster.run("b", "worker-2", resources(1000, GIB), |_| {});
    cluster.run("c", "worker-3", resources(1000, GIB), |_| {});
    assert_eq!(
        told(&cluster, &["worker-1"]),
        "pod shop/big of worker-1 (4 CPU, 1 GiB) fits on none of 2 other nodes: too little CPU on 2"
    );
}

#[test]
fn a_counter_example_is_as_small_as_it_can_be() {
    // Each fits, no two of the large ones fit on the one free node; the small ones do not matter.
    let mut cluster = Cluster::new(0, 2, "v1.35.4");
    for name in ["large-1", "large-2"] {
        cluster.run(name, "worker-1", resources(2500, GIB), |_| {});
    }
    for number in 0..20 {
        cluster.run(&format!("small-{number}"), "worker-1", resources(10, GIB / 16), |_| {});
    }
    let found = fits(&cluster.view, &BTreeSet::from(["worker-1".into()])).unwrap_err();
    let mut keys: Vec<String> = found.beside.iter().map(ToString::to_string).collect();
    keys.push(found.pod.to_string());
    keys.sort();
    assert_eq!(keys, ["shop/large-1", "shop/large-2"]);
    assert!(
        found
            .to_string()
            .contains("beside 1 other that moves, does not fit on the 1 other node: too little CPU on 1"),
        "{found}"
    );
}

#[test]
fn packing_begins_anew_with_the_one_that_found_no_place() {
    // By size b goes first and takes the node with the device; then a has nowhere to go.
    let mut cluster = workers();
    cluster.node("worker-2", |node| {
        node.allocatable.others.insert("example.com/gpu".into(), 1);
        node.allocatable.cpu_milli = 3000;
    });
    cluster.run("b", "worker-1", resources(3000, GIB), |_| {});
    cluster.run("a", "worker-1", resources(1000, GIB), |shape| {
        shape.requests.others.insert("example.com/gpu".into(), 1);
    });
    assert!(told(&cluster, &["worker-1"]).contains("fits (tightest"));
    cluster.run("c", "worker-3", resources(1500, GIB), |_| {});
    assert!(
        told(&cluster, &["worker-1"]).starts_with("pod shop/"),
        "now there is room for one of them only"
    );
}

#[test]
fn only_what_a_controller_brings_back_elsewhere_must_move() {
    let huge = || resources(100_000, GIB);
    let of_kind = |kind: &str| PodShape {
        owner: Some(Owner {
            kind: kind.into(),
            name: "x".into(),
            uid: "x".into(),
        }),
        requests: huge(),
        ..PodShape::default()
    };
    let mut cluster = workers();
    for kind in ["DaemonSet", "Node"] {
        cluster
            .view
            .put_pod(Arc::new(pod("shop", kind, Some("worker-1"), of_kind(kind))));
    }
    let unmanaged = PodShape {
        requests: huge(),
        ..PodShape::default()
    };
    cluster
        .view
        .put_pod(Arc::new(pod("shop", "bare", Some("worker-1"), unmanaged)));
    let mut done = pod("shop", "done", Some("worker-1"), of_kind("Job"));
    done.phase = PodPhase::Succeeded;
    cluster.view.put_pod(Arc::new(done));
    assert!(told(&cluster, &["worker-1"]).contains("fits"));
    cluster
        .view
        .put_pod(Arc::new(pod("shop", "job", Some("worker-1"), of_kind("Job"))));
    assert!(told(&cluster, &["worker-1"]).starts_with("pod shop/job of worker-1 (100 CPU, 1 GiB)"));
}

/// What one pod on worker-1 meets on worker-2 and worker-3 when a test has arranged both.
fn one(arrange: impl FnOnce(&mut Cluster), shape: impl FnOnce(&mut PodShape)) -> String {
    let mut cluster = workers();
    for (node, zone) in [("worker-1", "a"), ("worker-2", "a"), ("worker-3", "b")] {
        cluster.label(node, ZONE, zone);
    }
    arrange(&mut cluster);
    cluster.run("moving", "worker-1", resources(100, GIB / 8), shape);
    let told = told(&cluster, &["worker-1"]);
    match told.split_once("other nodes: ") {
        Some((_, why)) => why.to_owned(),
        None if told.contains("fits") => "fits".to_owned(),
        None => told,
    }
}

#[test]
fn a_pod_goes_only_where_its_own_rules_let_it() {
    let gpu = |cluster: &mut Cluster, node: &str| cluster.label(node, "gpu", "yes");
    let wants_gpu = |shape: &mut PodShape| {
        shape.node_selector.insert("gpu".into(), "yes".into());
    };
    assert_eq!(one(|cluster| gpu(cluster, "worker-3"), wants_gpu), "fits");
    assert_eq!(one(|_| {}, wants_gpu), "its node selector or affinity on 2");

    let affine = |shape: &mut PodShape| {
        let on = |zone: &str| Selector {
            requirements: vec![Requirement {
                key: ZONE.into(),
                operator: Operator::In,
                values: vec![zone.into()],
            }],
        };
        shape.node_affinity = vec![on("c"), on("b")];
    };
    assert_eq!(one(|_| {}, affine), "fits");
    assert_eq!(
        one(|cluster| cluster.label("worker-3", ZONE, "d"), affine),
        "its node selector or affinity on 2"
    );
}

#[test]
fn taints_ports_and_volumes_are_heeded() {
    let tainted = |effect| {
        move |cluster: &mut Cluster| {
            for name in ["worker-2", "worker-3"] {
                cluster.node(name, |node| {
                    node.taints.push(Taint {
                        key: "own".into(),
                        value: "db".into(),
                        effect,
                    });
                });
            }
        }
    };
    let tolerates = |value: Option<&'static str>| {
        move |shape: &mut PodShape| {
            shape.tolerations.push(Toleration {
                key: Some("own".into()),
                value: value.map(Into::into),
                effect: None,
            });
        }
    };
    assert_eq!(
        one(tainted(TaintEffect::NoSchedule), |_| {}),
        "a taint it does not tolerate on 2"
    );
    assert_eq!(
        one(tainted(TaintEffect::NoExecute), tolerates(Some("web"))),
        "a taint it does not tolerate on 2"
    );
    assert_eq!(one(tainted(TaintEffect::NoSchedule), tolerates(None)), "fits");
    assert_eq!(one(tainted(TaintEffect::PreferNoSchedule), |_| {}), "fits");

    let port = |shape: &mut PodShape| shape.host_ports.push("TCP/80".into());
    let busy = |nodes: &'static [&'static str]| {
        move |cluster: &mut Cluster| {
            for node in nodes {
                cluster.run(&format!("web-{node}"), node, resources(1, 1), port);
            }
        }
    };
    assert_eq!(one(busy(&["worker-2"]), port), "fits");
    assert_eq!(one(busy(&["worker-2", "worker-3"]), port), "a host port in use on 2");

    let claim = |zone: &'static str| {
        move |cluster: &mut Cluster| {
            let in_zone = Selector {
                requirements: vec![Requirement {
                    key: ZONE.into(),
                    operator: Operator::In,
                    values: vec![zone.into()],
                }],
            };
            let claim = Claim {
                volume: Some("pv-1".into()),
                node_affinity: vec![in_zone],
            };
            cluster.view.claims.insert(Key::new("shop", "data"), Arc::new(claim));
        }
    };
    let with_claim = |shape: &mut PodShape| shape.claims.push("data".into());
    assert_eq!(one(claim("b"), with_claim), "fits");
    assert_eq!(one(claim("c"), with_claim), "a volume out of reach on 2");
}

#[test]
fn nodes_that_take_nothing_are_no_places() {
    let mut cluster = workers();
    cluster.run("a", "worker-1", resources(3000, GIB), |_| {});
    cluster.run("c", "worker-3", resources(3000, GIB), |_| {});
    cluster.node("worker-2", |node| node.ready.ready = false);
    assert_eq!(
        told(&cluster, &["worker-1"]),
        "pod shop/a of worker-1 (3 CPU, 1 GiB) does not fit on the 1 other node: too little CPU on 1"
    );
    cluster.node("worker-3", |node| node.unschedulable = true);
    assert_eq!(
        told(&cluster, &["worker-1"]),
        "pod shop/a of worker-1 (3 CPU, 1 GiB) has no other node to go to"
    );
}

#[test]
fn p36_the_pods_of_a_single_node_wait_for_it() {
    let mut cluster = Cluster::new(0, 1, "v1.35.4");
    cluster.run("a", "worker-1", resources(3000, GIB), |_| {});
    let fit = fits(&cluster.view, &BTreeSet::from(["worker-1".into()])).unwrap();
    assert_eq!((fit.moved, fit.waiting), (0, vec![Key::new("shop", "a")]));
}

#[test]
fn anti_affinity_counts_in_both_directions() {
    let rival = |nodes: &'static [&'static str], terms: Option<PodTerm>| {
        move |cluster: &mut Cluster| {
            for node in nodes {
                cluster.run(&format!("db-{node}"), node, resources(1, 1), |shape| {
                    labelled(shape, "db");
                    shape.pod_anti_affinity.extend(terms.clone());
                });
            }
        }
    };
    let apart = |key: &'static str| {
        move |shape: &mut PodShape| {
            labelled(shape, "web");
            shape.pod_anti_affinity.push(term("db", key));
        }
    };
    let web = |shape: &mut PodShape| labelled(shape, "web");
    assert_eq!(one(rival(&["worker-2"], None), apart(HOSTNAME)), "fits");
    assert_eq!(
        one(rival(&["worker-2", "worker-3"], None), apart(HOSTNAME)),
        "anti-affinity on 2"
    );
    assert_eq!(
        one(rival(&["worker-1", "worker-3"], None), apart(ZONE)),
        "fits",
        "the one on worker-1 has moved too"
    );
    assert_eq!(
        one(rival(&["worker-2", "worker-3"], Some(term("web", HOSTNAME))), web),
        "anti-affinity on 2",
        "those that are there keep it away"
    );
    let mut afar = term("web", HOSTNAME);
    afar.namespaces = vec!["elsewhere".into()];
    assert_eq!(
        one(rival(&["worker-2", "worker-3"], Some(afar)), web),
        "fits",
        "it is about another namespace"
    );
    assert_eq!(
        one(rival(&["worker-2", "worker-3"], Some(term("other", HOSTNAME))), web),
        "fits"
    );
}

#[test]
fn pods_of_one_template_that_move_keep_apart_too() {
    let template = Arc::new({
        let mut shape = owned(resources(100, GIB));
        labelled(&mut shape, "web");
        shape.pod_anti_affinity.push(term("web", HOSTNAME));
        shape
    });
    let mut cluster = Cluster::new(0, 4, "v1.35.4");
    for (name, node) in [("web-1", "worker-1"), ("web-2", "worker-2"), ("web-3", "worker-3")] {
        let mut web = pod("shop", name, Some(node), PodShape::default());
        web.shape = Arc::clone(&template);
        cluster.view.put_pod(Arc::new(web));
    }
    assert!(told(&cluster, &["worker-1"]).contains("fits (tightest"));
    let both = told(&cluster, &["worker-1", "worker-2"]);
    assert!(
        both.contains("fits on none of 2 other nodes: anti-affinity on 2"),
        "{both}"
    );
}

#[test]
fn affinity_wants_its_neighbour_or_to_be_the_first() {
    let neighbour = |node: &'static str| {
        move |cluster: &mut Cluster| cluster.run("db", node, resources(1, 1), |shape| labelled(shape, "db"))
    };
    let near = |key: &'static str| move |shape: &mut PodShape| shape.pod_affinity.push(term("db", key));
    assert_eq!(one(neighbour("worker-3"), near(HOSTNAME)), "fits");
    assert_eq!(one(neighbour("worker-2"), near(ZONE)), "fits");
    assert_eq!(one(|_| {}, near(HOSTNAME)), "nobody it must be near on 2");
    let with_its_like = |shape: &mut PodShape| {
        labelled(shape, "web");
        shape.pod_affinity.push(term("web", HOSTNAME));
    };
    assert_eq!(one(|_| {}, with_its_like), "fits");
    assert_eq!(
        one(neighbour("worker-3"), near("rack")),
        "nobody it must be near on 2",
        "no node says in which rack it is"
    );
}

#[test]
fn a_drained_node_counts_as_an_empty_domain_for_the_spread() {
    let web = |max_skew| {
        move |shape: &mut PodShape| {
            labelled(shape, "web");
            shape.spread.push(Spread {
                max_skew,
                min_domains: 1,
                topology_key: HOSTNAME.into(),
                selector: app("web"),
            });
        }
    };
    let others = |cluster: &mut Cluster| {
        cluster.run("web-2", "worker-2", resources(1, 1), web(1));
        cluster.run("web-3", "worker-3", resources(1, 1), web(1));
    };
    assert_eq!(one(others, web(1)), "its topology spread on 2");
    assert_eq!(one(others, web(2)), "fits");
    assert_eq!(one(|_| {}, web(1)), "fits");
    let by_zone = |shape: &mut PodShape| {
        web(1)(shape);
        shape.spread[0].topology_key = ZONE.into();
    };
    assert_eq!(one(others, by_zone), "fits", "zone a has worker-2 left");
}

/// Labels of namespaces decide whose pods a term is about, whoever has the term; without a selector it is the pod's own namespace.
#[test]
fn p36_terms_look_into_the_namespaces_that_their_selector_selects() {
    let labelled_namespaces = |cluster: &mut Cluster| {
        for (namespace, team) in [("shop", "a"), ("stock", "b"), ("fund", "c")] {
            let labels = [("team".into(), team.into())].into();
            cluster.view.namespaces.insert(namespace.into(), labels);
        }
    };
    let of_team = |team: &str| Selector {
        requirements: vec![Requirement {
            key: "team".into(),
            operator: Operator::In,
            values: vec![team.into()],
        }],
    };
    let selecting = |selector: Selector| PodTerm {
        namespace_selector: Some(selector),
        ..term("db", HOSTNAME)
    };
    // One of another namespace on each node that is left.
    let neighbours = |cluster: &mut Cluster, anti: Option<PodTerm>| {
        labelled_namespaces(cluster);
        for node in ["worker-2", "worker-3"] {
            let mut shape = PodShape::default();
            labelled(&mut shape, "db");
            shape.pod_anti_affinity.extend(anti.clone());
            let db = pod("stock", &format!("db-{node}"), Some(node), shape);
            cluster.view.put_pod(Arc::new(db));
        }
    };
    let own_term = |selector: Option<Selector>| {
        move |shape: &mut PodShape| {
            let mine = PodTerm {
                namespace_selector: selector,
                ..term("db", HOSTNAME)
            };
            shape.pod_anti_affinity.push(mine);
        }
    };
    let there = |cluster: &mut Cluster| neighbours(cluster, None);
    let kept_apart = "anti-affinity on 2";
    for (selector, expected) in [
        (None, "fits"),
        (Some(of_team("b")), kept_apart),
        (Some(of_team("c")), "fits"),
        (Some(Selector::default()), kept_apart),
    ] {
        assert_eq!(one(there, own_term(selector.clone())), expected, "{selector:?}");
    }
    // The same from the other side: those that are there keep it away.
    for (selector, expected) in [(of_team("a"), kept_apart), (of_team("c"), "fits")] {
        let anti = PodTerm {
            selector: app("web"),
            ..selecting(selector)
        };
        let repelling = |cluster: &mut Cluster| neighbours(cluster, Some(anti.clone()));
        assert_eq!(one(repelling, |shape| labelled(shape, "web")), expected);
    }
    // And where it wants to be near one of them.
    let near = |team: &'static str| move |shape: &mut PodShape| shape.pod_affinity.push(selecting(of_team(team)));
    assert_eq!(one(there, near("b")), "fits");
    assert_eq!(one(there, near("c")), "nobody it must be near on 2");
}

#[test]
fn p36_with_fewer_domains_than_the_spread_asks_for_an_empty_one_counts() {
    let web = |min_domains| {
        move |shape: &mut PodShape| {
            labelled(shape, "web");
            shape.spread.push(Spread {
                max_skew: 1,
                min_domains,
                topology_key: HOSTNAME.into(),
                selector: app("web"),
            });
        }
    };
    // One on each of the two nodes that are left, and one to come: two on one of them is one more than on the other.
    let others = |cluster: &mut Cluster| {
        for node in ["worker-2", "worker-3"] {
            cluster.run(&format!("on-{node}"), node, resources(1, 1), web(1));
        }
        cluster.node("worker-1", |node| {
            node.labels = Arc::default();
        });
    };
    assert_eq!(one(others, web(1)), "fits");
    assert_eq!(one(others, web(2)), "fits");
    assert_eq!(one(others, web(3)), "its topology spread on 2");
}

#[test]
fn one_room_serves_many_nodes_and_forgets_what_did_not_fit() {
    let mut cluster = workers();
    for node in ["worker-1", "worker-2", "worker-3"] {
        cluster.run(&format!("on-{node}"), node, resources(1500, GIB), |_| {});
    }
    let nothing = BTreeSet::new();
    let mut room = Room::new(&cluster.view, &nothing);
    let empty = room.fit();
    for node in ["worker-1", "worker-2", "worker-3"] {
        assert_eq!(room.could_take(&node.into()), Ok(()));
    }
    assert_eq!(room.fit(), empty);
    assert_eq!(room.take(&"worker-1".into()), Ok(()));
    assert_eq!(room.take(&"worker-1".into()), Ok(()), "it is away already");
    let one_away = room.fit();
    assert_eq!((one_away.moved, one_away.asked.cpu_milli), (1, 4500));
    // What worker-1 had went to worker-2 in thought and would have to move on: 4.5 CPU do not fit on worker-3.
    assert!(room.take(&"worker-2".into()).is_err());
    assert!(room.could_take(&"worker-3".into()).is_err());
    assert_eq!(room.fit(), one_away);
}

#[test]
fn what_a_person_accepted_waits_for_its_node() {
    let mut cluster = workers();
    cluster.run("big", "worker-1", resources(4000, GIB), |_| {});
    cluster.run("b", "worker-2", resources(1000, GIB), |_| {});
    cluster.run("c", "worker-3", resources(1000, GIB), |_| {});
    let accepted = BTreeSet::from(["rs/shop/checkout-7d9f:NoCapacity".to_owned()]);
    let mut room = Room::new(&cluster.view, &accepted);
    assert_eq!(room.take(&"worker-1".into()), Ok(()));
    assert_eq!(
        room.fit().to_string(),
        "with worker-1 away 2 of 8 CPU and 2 of 32 GiB are asked for: fits, and 1 pod waits for its node (tightest: CPU on \
         worker-2, 25%)"
    );
}

#[test]
fn a_node_that_goes_anyway_is_no_place_for_others() {
    let mut cluster = workers();
    cluster.run("big", "worker-1", resources(4000, GIB), |_| {});
    cluster.run("b", "worker-2", resources(2500, GIB), |_| {});
    cluster.run("c", "worker-3", resources(2500, GIB), |_| {});
    let nothing = BTreeSet::new();
    let mut room = Room::new(&cluster.view, &nothing);
    room.without([NodeName::from("worker-1")].into_iter());
    assert_eq!(room.fit().waiting, [Key::new("shop", "big")]);
    let found = room.take(&"worker-2".into()).unwrap_err();
    assert_eq!(found.nodes, 1, "worker-1 is away, though it looks free: {found}");
}
