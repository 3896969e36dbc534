//! What the fields of the built-in kinds mean, for `kubectl explain`. The schemas that the server decides by carry no
//! prose; the k8s-openapi types, which the workspace links anyway, do. Fields newer than those types stay silent.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling::v2 as autoscaling, batch::v1 as batch,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// Puts the descriptions of a component and of its fields where there are none yet.
pub fn describe(component: &str, schema: &mut Value) {
    let Some(known) = described().get(component) else {
        return;
    };
    describe_one(schema, known);
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, property) in properties {
        let Some(known) = known.get("properties").and_then(|known| known.get(name)) else {
            continue;
        };
        // A bare reference may not have neighbours; it moves into the wrapper that allows them.
        if let Some(target) = property.get("$ref").cloned() {
            *property = serde_json::json!({"allOf": [{"$ref": target}]});
        }
        describe_one(property, known);
    }
}

fn describe_one(schema: &mut Value, known: &Value) {
    if let (Some(fields), Some(description)) = (schema.as_object_mut(), known.get("description")) {
        fields.entry("description").or_insert_with(|| description.clone());
    }
}

fn described() -> &'static BTreeMap<String, Value> {
    static DESCRIBED: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        let mut generator = SchemaGenerator::default();
        for add in KINDS {
            add(&mut generator);
        }
        generator.take_definitions(true).into_iter().collect()
    })
}

/// The kinds whose types, and the types those are made of, are asked.
const KINDS: &[fn(&mut SchemaGenerator)] = &[
    add::<admission::MutatingWebhookConfiguration>,
    add::<admission::ValidatingAdmissionPolicy>,
    add::<admission::ValidatingAdmissionPolicyBinding>,
    add::<admission::ValidatingWebhookConfiguration>,
    add::<apiextensions::CustomResourceDefinition>,
    add::<apps::ControllerRevision>,
    add::<apps::DaemonSet>,
    add::<apps::Deployment>,
    add::<apps::ReplicaSet>,
    add::<apps::StatefulSet>,
    add::<autoscaling::HorizontalPodAutoscaler>,
    add::<batch::CronJob>,
    add::<batch::Job>,
    add::<coordination::Lease>,
    add::<core::Binding>,
    add::<core::ConfigMap>,
    add::<core::Endpoints>,
    add::<core::Event>,
    add::<core::LimitRange>,
    add::<core::Namespace>,
    add::<core::Node>,
    add::<core::PersistentVolume>,
    add::<core::PersistentVolumeClaim>,
    add::<core::Pod>,
    add::<core::PodTemplate>,
    add::<core::ReplicationController>,
    add::<core::ResourceQuota>,
    add::<core::Secret>,
    add::<core::Service>,
    add::<core::ServiceAccount>,
    add::<discovery::EndpointSlice>,
    add::<events::Event>,
    add::<networking::Ingress>,
    add::<networking::IngressClass>,
    add::<networking::NetworkPolicy>,
    add::<node::RuntimeClass>,
    add::<policy::PodDisruptionBudget>,
    add::<rbac::ClusterRole>,
    add::<rbac::ClusterRoleBinding>,
    add::<rbac::Role>,
    add::<rbac::RoleBinding>,
    add::<scheduling::PriorityClass>,
    add::<storage::CSIDriver>,
    add::<storage::CSINode>,
    add::<storage::StorageClass>,
    add::<storage::VolumeAttachment>,
];

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}
