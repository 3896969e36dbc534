//! Discovery against what a real kube-apiserver v1.36.3 answered, from a registry made of the same kinds.

use afloat_apischema::schema::TypeSchema;

use super::*;
use crate::resource::{CustomOrigin, Origin};

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Reads one resource and its subresources back from a recorded `APIResourceList`.
fn resource(gv: &GroupVersion, recorded: &Value, all: &[Value], custom: bool) -> ResourceType {
    let text = |field: &str| recorded[field].as_str().unwrap_or_default().to_owned();
    let prefix = format!("{}/", text("name"));
    let subresources = all.iter().filter_map(|other| {
        let name = other["name"].as_str()?.strip_prefix(&prefix)?.to_owned();
        let group_version = other.get("version").map(|version| {
            GroupVersion::new(
                other["group"].as_str().unwrap_or_default(),
                version.as_str().unwrap_or_default(),
            )
        });
        let kind = other["kind"].as_str()?.to_owned();
        Some(Subresource {
            name,
            group_version,
            kind,
            verbs: texts(&other["verbs"]),
        })
    });
    ResourceType {
        gv: gv.clone(),
        kind: text("kind"),
        list_kind: format!("{}List", text("kind")),
        plural: text("name"),
        singular: text("singularName"),
        short_names: texts(&recorded["shortNames"]),
        categories: texts(&recorded["categories"]),
        namespaced: recorded["namespaced"] == json!(true),
        verbs: texts(&recorded["verbs"]),
        subresources: subresources.collect(),
        schema: TypeSchema::anything(),
        storage_hash: text("storageVersionHash"),
        origin: if custom {
            Origin::Custom(CustomOrigin::default())
        } else {
            Origin::BuiltIn
        },
    }
}

/// The recorded answers, and a registry that should give them again.
fn recorded() -> (Value, Registry) {
    let recorded: Value = serde_json::from_str(include_str!("testdata.json")).unwrap();
    let mut registry = Registry::default();
    for list in recorded["lists"].as_array().unwrap() {
        let gv = GroupVersion::parse(list["groupVersion"].as_str().unwrap());
        let all = list["resources"].as_array().unwrap();
        for entry in all
            .iter()
            .filter(|entry| !entry["name"].as_str().unwrap().contains('/'))
        {
            registry.add(resource(&gv, entry, all, gv.group.ends_with("example.com")));
        }
    }
    (recorded, registry)
}

#[test]
fn legacy_lists_equal_those_of_the_real_server() {
    let (recorded, registry) = recorded();
    let lists = recorded["lists"].as_array().unwrap();
    assert!(lists.len() > 15);
    for list in lists {
        let gv = GroupVersion::parse(list["groupVersion"].as_str().unwrap());
        assert_eq!(resource_list(&registry, &gv).as_ref(), Some(list));
    }
    assert_eq!(resource_list(&registry, &GroupVersion::new("apps", "v9")), None);
}

#[test]
fn groups_come_in_the_order_of_the_real_server() {
    let (recorded, registry) = recorded();
    assert_eq!(group_list(&registry), recorded["groups"]);
    assert_eq!(group(&registry, "example.com").as_ref(), Some(&recorded["group"]));
    assert_eq!(group(&registry, "nobody.example.com"), None);
    assert_eq!(group(&registry, ""), None);
}

#[test]
fn aggregated_lists_equal_those_of_the_real_server() {
    let (recorded, registry) = recorded();
    assert_eq!(aggregated_core(&registry), recorded["aggregatedCore"]);
    assert_eq!(aggregated_groups(&registry), recorded["aggregatedGroups"]);
}

#[test]
fn versions_order_by_stability_then_number() {
    let mut versions = vec![
        "v1alpha1",
        "foo10",
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v10beta3",
        "foo1",
        "v3beta1",
        "v12alpha1",
        "v02",
    ];
    versions.sort_by(|one, other| compare_versions(other, one));
    assert_eq!(
        versions,
        [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v1alpha1",
            "foo1",
            "foo10",
            "v02"
        ]
    );
}

#[test]
fn version_names_its_parts() {
    let version = version_info("v1.36.3");
    assert_eq!(version["major"], "1");
    assert_eq!(version["minor"], "36");
    assert_eq!(version["minCompatibilityMinor"], "35");
    assert_eq!(version["gitVersion"], "v1.36.3");
}

#[test]
fn health_names_its_checks_when_asked() {
    assert_eq!(health("livez", false), "ok");
    assert_eq!(
        health("livez", true),
        "[+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n"
    );
    assert!(health("readyz", true).ends_with("[+]shutdown ok\nreadyz check passed\n"));
}

#[test]
fn root_lists_every_served_version_once() {
    let (_, registry) = recorded();
    let paths = texts(&root_paths(&registry)["paths"]);
    for path in [
        "/api",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/example.com/v1beta1",
        "/openapi/v3",
    ] {
        assert_eq!(paths.iter().filter(|listed| *listed == path).count(), 1, "{path}");
    }
}
