use super::*;
use afloat_core::view::{Operator, PodPhase, PodShape, Requirement, Revision, Selector};

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn pod(store: &mut Store, name: &str) -> Arc<Pod> {
    let shape = PodShape {
        labels: [(Arc::from("app"), Arc::from("web"))].into(),
        ..PodShape::default()
    };
    let uid = store.new_uid();
    store.pods_more.insert(
        uid.clone(),
        PodMore {
            grace: 30_000,
            ..PodMore::default()
        },
    );
    let pod = Pod {
        key: key(name),
        uid,
        revision: Revision(0),
        node: Some(NodeName::from("w-1")),
        phase: PodPhase::Running,
        ready: true,
        started_at: None,
        ending: None,
        shape: Arc::new(shape),
        static_part: None,
        task: None,
    };
    store.put(Writer::Setup, "create", pod)
}

fn budget(store: &mut Store, name: &str, allowed: i64) {
    let uid = store.new_uid();
    let selector = Selector {
        requirements: vec![Requirement {
            key: Arc::from("app"),
            operator: Operator::In,
            values: vec![Arc::from("web")],
        }],
    };
    store.put(
        Writer::Setup,
        "create",
        PodBudget {
            key: key(name),
            uid,
            revision: Revision(0),
            selector,
            up_to_date: true,
            disruptions_allowed: allowed,
            current_healthy: 2,
            desired_healthy: 1,
            expected_pods: 2,
            unhealthy_may_go: false,
        },
    );
}

fn upgrade(store: &mut Store) -> Arc<ClusterUpgrade> {
    let mut upgrade = ClusterUpgrade::new("up", afloat_api::ClusterUpgradeSpec::default());
    upgrade.metadata.namespace = Some("afloat".to_owned());
    store.create_custom(Writer::Person, "create", upgrade).unwrap()
}

#[test]
fn a_write_goes_to_the_very_object_in_the_very_state_or_nowhere() {
    let mut store = Store::default();
    let first = pod(&mut store, "a");
    let meant = |uid: Option<&'static str>, revision| Meant {
        key: &first.key,
        uid,
        revision,
    };
    let touch = |pod: &mut Pod| pod.ready = false;
    let cases = [
        (meant(Some("another"), None), Refused::Conflict),
        (meant(None, Some(first.revision.0 + 1)), Refused::Conflict),
    ];
    for (meant, refused) in cases {
        assert_eq!(
            store.update(Writer::Kubelet, "touch", &meant, touch).unwrap_err(),
            refused
        );
    }
    let right = meant(None, Some(first.revision.0));
    let after = store.update(Writer::Kubelet, "touch", &right, touch).unwrap();
    assert!(after.revision > first.revision);
    assert_eq!(
        store.update(Writer::Kubelet, "touch", &right, touch).unwrap_err(),
        Refused::Conflict
    );
    let gone = key("b");
    assert_eq!(
        store
            .update(Writer::Kubelet, "touch", &Meant::named(&gone), touch)
            .unwrap_err(),
        Refused::NotFound
    );
}

#[test]
fn a_write_that_changes_nothing_is_none() {
    let mut store = Store::default();
    let first = pod(&mut store, "a");
    let revision = store.revision();
    store
        .update::<Pod>(Writer::Kubelet, "touch", &Meant::named(&first.key), |_| {})
        .unwrap();
    assert_eq!(store.revision(), revision);
}

#[test]
fn generations_count_specs_and_statuses_stay_apart() {
    let mut store = Store::default();
    let created = upgrade(&mut store);
    let key = created.key();
    let meant = Meant::named(&key);
    let status = afloat_api::ClusterUpgradeStatus {
        progress: Some("1/2".to_owned()),
        ..Default::default()
    };
    let written = store
        .update_status::<ClusterUpgrade>(Writer::Operator(0), "status", &meant, status)
        .unwrap();
    assert_eq!(written.metadata.generation, Some(1));
    let paused = store
        .update_custom::<ClusterUpgrade>(Writer::Person, "pause", &meant, |upgrade| {
            upgrade.spec.paused = Some(true);
            upgrade.status = None;
        })
        .unwrap()
        .unwrap();
    assert_eq!(paused.metadata.generation, Some(2));
    assert_eq!(paused.status.as_ref().unwrap().progress.as_deref(), Some("1/2"));
    assert_ne!(paused.metadata.resource_version, created.metadata.resource_version);
}

#[test]
fn a_finalizer_holds_an_object_until_it_goes() {
    let mut store = Store::default();
    let key = upgrade(&mut store).key();
    let meant = Meant::named(&key);
    let finalizer = |finalizers: Option<Vec<String>>| {
        move |upgrade: &mut ClusterUpgrade| {
            upgrade.metadata.finalizers = finalizers;
        }
    };
    store
        .update_custom(
            Writer::Operator(0),
            "hold",
            &meant,
            finalizer(Some(vec!["x".to_owned()])),
        )
        .unwrap();
    store.delete_custom::<ClusterUpgrade>(Writer::Person, &meant).unwrap();
    let marked = store.upgrades.get(&key).unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(marked.metadata.generation, Some(2));
    let gone = store
        .update_custom(Writer::Operator(0), "let go", &meant, finalizer(None))
        .unwrap();
    assert!(gone.is_none() && store.upgrades.is_empty());
}

#[test]
fn an_eviction_is_refused_as_the_real_handler_refuses_it() {
    let mut store = Store::default();
    let (a, b) = (pod(&mut store, "a"), pod(&mut store, "b"));
    budget(&mut store, "one", 1);
    store.evict(Writer::Operator(0), &Meant::named(&a.key), None).unwrap();
    assert!(store.pods.get(&a.key).unwrap().ending.is_some());
    assert_eq!(
        store.evict(Writer::Operator(0), &Meant::named(&b.key), None),
        Err(Refused::TooManyRequests),
        "counted down at once, before any controller has looked"
    );
    assert_eq!(
        store.evict(Writer::Operator(0), &Meant::named(&a.key), None),
        Ok(()),
        "one that ends already needs no leave"
    );
    budget(&mut store, "two", 1);
    assert_eq!(
        store.evict(Writer::Operator(0), &Meant::named(&b.key), None),
        Err(Refused::Internal)
    );
}

#[test]
fn history_keeps_both_sides_of_every_change() {
    let mut store = Store::default();
    let a = pod(&mut store, "a");
    store
        .delete_pod(Writer::Person, "delete", &Meant::named(&a.key), Some(0))
        .unwrap();
    let changes = store.pods.changes();
    assert_eq!(changes.len(), 2);
    assert!(changes[0].before.is_none() && changes[1].after.is_none());
    assert_eq!(changes[1].before.as_ref().unwrap().uid, a.uid);
    assert!(changes[0].revision < changes[1].revision);
    assert_eq!(store.pods_on(&NodeName::from("w-1")).count(), 0);
}
