//! The CustomResourceDefinitions of the kinds Afloat brings along, as `cargo xtask generate` writes them and as the sandbox
//! installs them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::crd::CustomResourceExt;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::harvester::{
    Setting, SettingFields, SettingStatus, Upgrade, UpgradeLog, UpgradeLogSpec, UpgradeLogStatus, UpgradeSpec,
    UpgradeStatus, Version, VersionSpec,
};
use crate::kubeadm::{ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use crate::{ClusterUpgrade, schema};

/// Every CRD that Afloat brings along: its own first, then Harvester's front door.
pub fn all() -> Vec<CustomResourceDefinition> {
    own().into_iter().chain(harvester()).collect()
}

/// The CRDs of Afloat's own kinds.
pub fn own() -> Vec<CustomResourceDefinition> {
    vec![
        ClusterUpgrade::crd(),
        ControlPlaneKubeadmUpgrade::crd(),
        WorkersKubeadmUpgrade::crd(),
        NodeKubeadmUpgrade::crd(),
    ]
}

/// The CRDs of Harvester's front door, for clusters where Harvester did not bring them.
pub fn harvester() -> Vec<CustomResourceDefinition> {
    let upgrade = front_door(
        Upgrade::crd(),
        &json!({ "spec": part::<UpgradeSpec>(), "status": part::<UpgradeStatus>() }),
        "An upgrade of Harvester.",
        vec![
            column("Version", ".spec.version"),
            column("State", ".metadata.labels.harvesterhci\\.io/upgradeState"),
            column("Completed", ".status.conditions[?(@.type==\"Completed\")].status"),
        ],
    );
    let version = front_door(
        Version::crd(),
        &json!({ "spec": part::<VersionSpec>() }),
        "A release that Harvester can be upgraded to.",
        vec![
            column("ISO-URL", ".spec.isoURL"),
            column("ReleaseDate", ".spec.releaseDate"),
        ],
    );
    let mut setting_fields = part::<SettingFields>().get("properties").cloned().unwrap_or_default();
    if let Value::Object(fields) = &mut setting_fields {
        fields.insert("status".to_owned(), part::<SettingStatus>());
    }
    let setting = front_door(
        Setting::crd(),
        &setting_fields,
        "A setting of Harvester.",
        vec![column("Value", ".value")],
    );
    let upgrade_log = front_door(
        UpgradeLog::crd(),
        &json!({ "spec": part::<UpgradeLogSpec>(), "status": part::<UpgradeLogStatus>() }),
        "The logs of one upgrade of Harvester.",
        vec![column("Upgrade", ".spec.upgradeName")],
    );
    vec![upgrade, version, setting, upgrade_log]
}

/// The definition of somebody else's namespaced kind, as loose as can be: for clusters without its owner.
pub fn loose(group: &str, version: &str, kind: &str, plural: &str) -> CustomResourceDefinition {
    let root = JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    let served = CustomResourceDefinitionVersion {
        name: version.to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(root),
        }),
        ..CustomResourceDefinitionVersion::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{group}")),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: group.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                list_kind: Some(format!("{kind}List")),
                plural: plural.to_owned(),
                singular: Some(kind.to_lowercase()),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![served],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// Turns the derived definition into that of upstream: no status subresource, unknown fields kept.
fn front_door(
    mut crd: CustomResourceDefinition,
    properties: &Value,
    description: &str,
    mut columns: Vec<CustomResourceColumnDefinition>,
) -> CustomResourceDefinition {
    let required: Vec<&str> = if properties.get("spec").is_some() {
        vec!["spec"]
    } else {
        vec![]
    };
    let mut root = json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    if !required.is_empty() {
        root["required"] = json!(required);
    }
    let root: Option<JSONSchemaProps> = serde_json::from_value(root).ok();
    columns.push(CustomResourceColumnDefinition {
        type_: "date".to_owned(),
        ..column("Age", ".metadata.creationTimestamp")
    });
    for version in &mut crd.spec.versions {
        version.subresources = None;
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: root.clone(),
        });
        version.additional_printer_columns = Some(columns.clone());
    }
    crd
}

fn column(name: &str, path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: "string".to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// The schema of one part of a front-door kind, with unknown fields kept at its top.
fn part<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let mut value = generator.into_root_schema_for::<T>().to_value();
    schema::tidy(&mut value);
    schema::keep_unknown_fields(&mut value);
    value
}
