//! What is kept of objects as their owners write them.

use serde_json::json;

use super::*;

fn reduced(kind: HciKind, mut body: Value) -> HciObject {
    body["metadata"] = json!({ "name": "a", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 4 });
    reduce(kind, &serde_json::from_value(body).unwrap()).unwrap()
}

#[test]
fn a_restore_that_failed_is_over() {
    let conditions = |status: &str, reason: &str| {
        let progress = json!({ "type": "InProgress", "status": status, "reason": reason, "message": "why" });
        json!({ "status": { "complete": false, "conditions": [progress] } })
    };
    for (body, expected) in [
        (conditions("True", ""), true),
        (conditions("False", ""), true),
        (conditions("False", "Error"), false),
        (json!({ "status": { "complete": true } }), false),
        (json!({}), true),
    ] {
        let HciObject::Restore(restore) = reduced(HciKind::Restore, body.clone()) else {
            panic!("{body}")
        };
        assert_eq!(restore.under_way, expected, "{body}");
    }
}

#[test]
fn h50_what_rancher_waits_for_is_read_wherever_it_says_it() {
    let says =
        |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "Waiting", "message": kind });
    for (conditions, expected) in [
        (vec![says("Ready", "True"), says("Updated", "Unknown")], Some("Updated")),
        (
            vec![says("Updated", "Unknown"), says("ControlPlaneReady", "False")],
            Some("ControlPlaneReady"),
        ),
        (vec![says("Updated", "True")], None),
        (vec![], None),
    ] {
        let body = json!({ "status": { "conditions": conditions } });
        let HciObject::Cluster(cluster) = reduced(HciKind::Cluster, body.clone()) else {
            panic!("{body}")
        };
        assert_eq!(cluster.checkpoint.as_deref(), expected, "{body}");
    }
}

#[test]
fn a_bundle_says_whether_fleet_has_looked_at_it_as_it_is() {
    for (observed, expected) in [(3, false), (4, true)] {
        let body = json!({
            "spec": { "paused": true, "helm": { "version": "1.7.0" } },
            "status": { "observedGeneration": observed, "conditions": [{ "type": "Ready", "status": "False", "message": "Modified(1)" }] },
        });
        let HciObject::Bundle(bundle) = reduced(HciKind::Bundle, body) else {
            panic!("another kind")
        };
        let kept = Bundle {
            paused: true,
            version: Arc::from("1.7.0"),
            observed: expected,
            not_ready: Some(Arc::from("Modified(1)")),
        };
        assert_eq!(bundle.what, kept);
    }
}

#[test]
fn h20_schedules_and_volumes_that_were_plugged_in_are_read_as_their_owners_write_them() {
    for (body, expected) in [
        (json!({ "spec": { "suspend": true } }), false),
        (json!({ "status": { "suspended": false } }), false),
        (json!({ "status": { "suspended": true } }), true),
    ] {
        let HciObject::Schedule(schedule) = reduced(HciKind::Schedule, body.clone()) else {
            panic!("{body}")
        };
        assert_eq!(schedule.suspended, expected, "{body}");
    }
    let volumes = json!([
        { "name": "root", "persistentVolumeClaim": { "claimName": "root" } },
        { "name": "data", "persistentVolumeClaim": { "claimName": "data", "hotpluggable": true } },
        { "name": "more", "dataVolume": { "name": "more", "hotpluggable": true } },
        { "name": "init", "cloudInitNoCloud": {} },
    ]);
    let HciObject::Vmi(vmi) = reduced(HciKind::Vmi, json!({ "spec": { "volumes": volumes } })) else {
        panic!("another kind")
    };
    assert_eq!(vmi.plugged, [Arc::from("data"), Arc::from("more")]);
    let template = json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
    let HciObject::Vm(vm) = reduced(HciKind::Vm, template) else {
        panic!("another kind")
    };
    assert_eq!(vm.volumes.len(), 4);
}

#[test]
fn h43_the_tickets_of_a_volume_are_read() {
    let ticket = json!({ "id": "csi-0f3a", "type": "csi-attacher", "nodeID": "node-1", "parameters": { "disableFrontend": "false" } });
    let body = json!({ "spec": { "volume": "pvc-1", "attachmentTickets": {
        "csi-0f3a": ticket, "backup-controller-backup-12": { "type": "backup-controller", "nodeID": "" },
    } } });
    let HciObject::Attachment(attachment) = reduced(HciKind::Attachment, body) else {
        panic!("another kind")
    };
    assert_eq!(&*attachment.volume, "pvc-1");
    let told: Vec<_> = attachment
        .tickets
        .iter()
        .map(|ticket| {
            (
                &*ticket.kind,
                ticket.whose(),
                ticket.node.as_ref().map(NodeName::as_str),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("backup-controller", "backup-12", None),
            ("csi-attacher", "csi-0f3a", Some("node-1"))
        ]
    );
}

#[test]
fn a_log_is_read_with_all_that_its_controller_says() {
    let body = json!({ "spec": { "upgradeName": "u" }, "status": { "conditions": [
        { "type": "Started", "status": "True", "lastUpdateTime": "2026-08-01T10:00:00Z" },
        { "type": "Stopped", "status": "Unknown" },
        { "of another": "form" },
    ] } });
    let HciObject::UpgradeLog(log) = reduced(HciKind::UpgradeLog, body) else {
        panic!("another kind")
    };
    assert_eq!(&*log.upgrade, "u");
    assert!(log.started() && log.can_be_stopped() && !log.stopped());
    assert_eq!(log.conditions[0].last_update_time, "2026-08-01T10:00:00Z");
}
