use afloat_core::capacity::*;
use afloat_core::view::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
fn main() {
    let mut view = View::default();
    for n in 0..5000 {
        let name = format!("node-{n:05}");
        let mut l = Labels::new();
        l.insert("kubernetes.io/hostname".into(), name.as_str().into());
        l.insert(
            "topology.kubernetes.io/zone".into(),
            format!("z{}", n % 3).as_str().into(),
        );
        view.nodes.insert(
            name.as_str().into(),
            Arc::new(Node {
                name: name.as_str().into(),
                uid: name.as_str().into(),
                revision: Revision(1),
                created_at: jiff::Timestamp::UNIX_EPOCH,
                deleting: false,
                labels: Arc::new(l),
                control_plane: n < 3,
                pause: None,
                cordoned_by: None,
                wish: None,
                unschedulable: false,
                taints: vec![],
                ready: Ready {
                    ready: true,
                    since: jiff::Timestamp::UNIX_EPOCH,
                },
                kubelet_version: None,
                container_runtime_version: "".into(),
                os_image: "".into(),
                internal_ip: None,
                allocatable: Resources {
                    cpu_milli: 16000,
                    memory: 64 << 30,
                    pods: 110,
                    ..Default::default()
                },
                attached_volumes: vec![],
            }),
        );
    }
    let affine = std::env::args().nth(1).is_some();
    let shapes: Vec<Arc<PodShape>> = (0..5000)
        .map(|s| {
            let mut l = Labels::new();
            let app: Arc<str> = format!("app-{s}").as_str().into();
            l.insert("app".into(), app.clone());
            let sel = Selector {
                requirements: vec![Requirement {
                    key: "app".into(),
                    operator: Operator::In,
                    values: vec![app],
                }],
            };
            Arc::new(PodShape {
                labels: l,
                owner: Some(Owner {
                    kind: "ReplicaSet".into(),
                    name: format!("rs-{s}").as_str().into(),
                    uid: "u".into(),
                }),
                requests: Resources {
                    cpu_milli: 500,
                    memory: 2 << 30,
                    pods: 1,
                    ..Default::default()
                },
                pod_anti_affinity: if affine && s % 3 == 0 {
                    vec![PodTerm {
                        selector: sel.clone(),
                        namespaces: vec![],
                        topology_key: "kubernetes.io/hostname".into(),
                    }]
                } else {
                    vec![]
                },
                spread: if affine && s % 3 == 1 {
                    vec![Spread {
                        max_skew: 5,
                        topology_key: "topology.kubernetes.io/zone".into(),
                        selector: sel,
                    }]
                } else {
                    vec![]
                },
                ..Default::default()
            })
        })
        .collect();
    for p in 0..150000usize {
        let s = (p * 7919) % 5000;
        view.put_pod(Arc::new(Pod {
            key: Key::new(&format!("ns-{}", s % 100), &format!("pod-{p}")),
            uid: "u".into(),
            revision: Revision(1),
            node: Some(format!("node-{:05}", p % 5000).as_str().into()),
            phase: PodPhase::Running,
            ready: true,
            started_at: None,
            ending: None,
            shape: shapes[s].clone(),
            static_part: None,
            task: None,
        }));
    }
    for round in 0..3 {
        let t = Instant::now();
        let r = fits(
            &view,
            &BTreeSet::from([NodeName::from(format!("node-{:05}", 100 + round).as_str())]),
        );
        println!(
            "{:?} {}",
            t.elapsed(),
            match r {
                Ok(f) => f.to_string(),
                Err(e) => e.to_string(),
            }
        );
    }
    let none = BTreeSet::new();
    let t = Instant::now();
    let mut room = Room::new(&view, &none);
    println!("room {:?}", t.elapsed());
    let t = Instant::now();
    for n in 0..100 {
        let _ = room.take(&NodeName::from(format!("node-{n:05}").as_str()));
    }
    println!("take 100: {:?}", t.elapsed());
    let t = Instant::now();
    let mut room = Room::new(&view, &none);
    for n in 0..200 {
        let _ = room.could_take(&NodeName::from(format!("node-{n:05}").as_str()));
    }
    println!("could 200: {:?}", t.elapsed());
}
