use super::*;

/// Whether there is any way at all to place these pods, each with a size and the group it keeps apart from.
fn any_way(pods: &[(i64, Option<u8>)], free: &mut [i64], groups: &mut [BTreeSet<u8>]) -> bool {
    let Some(((size, group), rest)) = pods.split_first() else {
        return true;
    };
    (0..free.len()).any(|spot| {
        if free[spot] < *size || group.is_some_and(|group| groups[spot].contains(&group)) {
            return false;
        }
        free[spot] -= size;
        groups[spot].extend(group);
        let found = any_way(rest, free, groups);
        free[spot] += size;
        group.map(|group| groups[spot].remove(&group));
        found
    })
}

proptest::proptest! {
    #[test]
    fn what_is_said_to_fit_does_and_what_fits_nowhere_by_itself_does_not(
        on in proptest::collection::vec(proptest::collection::vec((1i64..5, proptest::option::of(0u8..2)), 0..4), 2..5),
    ) {
        let mut cluster = Cluster::new(0, on.len(), "v1.35.4");
        let mut free = Vec::new();
        let mut groups = Vec::new();
        for (index, pods) in on.iter().enumerate() {
            let node = format!("worker-{}", index + 1);
            cluster.node(&node, |node| node.allocatable.cpu_milli = 8000);
            // On a node there is one of a group at most, as the scheduler has seen to it.
            let mut seen = BTreeSet::new();
            let mut left = 8;
            for (number, (size, group)) in pods.iter().enumerate() {
                if *size > left || group.is_some_and(|group| !seen.insert(group)) {
                    continue;
                }
                left -= size;
                cluster.run(&format!("pod-{index}-{number}"), &node, resources(size * 1000, GIB), |shape| {
                    if let Some(group) = group {
                        let name = format!("group-{group}");
                        labelled(shape, &name);
                        shape.pod_anti_affinity.push(term(&name, HOSTNAME));
                    }
                });
            }
            free.push(left);
            groups.push(seen);
        }
        let moving: Vec<(Key, (i64, Option<u8>))> = cluster.view.pods_on(&"worker-1".into()).map(|pod| {
            let group = pod.shape.labels.get("app").and_then(|app| app.strip_prefix("group-")?.parse().ok());
            (pod.key.clone(), (pod.shape.requests.cpu_milli / 1000, group))
        }).collect();
        let mut there = |pods: &[(i64, Option<u8>)]| any_way(pods, &mut free[1..], &mut groups[1..]);
        match fits(&cluster.view, &BTreeSet::from(["worker-1".into()])) {
            Ok(fit) => {
                proptest::prop_assert_eq!(fit.moved, moving.len());
                let all: Vec<_> = moving.iter().map(|(_, pod)| *pod).collect();
                proptest::prop_assert!(there(&all));
            }
            Err(found) if found.beside.is_empty() => {
                let alone = moving.iter().filter(|(key, _)| *key == found.pod).map(|(_, pod)| *pod);
                proptest::prop_assert!(!there(&alone.collect::<Vec<_>>()));
            }
            Err(_) => {}
        }
    }
}
