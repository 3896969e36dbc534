//! CustomResourceDefinitions take effect here: when one is written its versions are served, when it goes they are not
//! any more.

use std::sync::Arc;

use afloat_apischema::crd::{self, CrdVersion, CustomResource};
use afloat_apischema::structural;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::resource::{CustomOrigin, GroupVersion, Origin, PrinterColumn, ResourceType, ScalePaths, Subresource};
use crate::store::{Change, ChangeKind, Object, TableKey};

use super::State;

impl State {
    /// Serves what a definition says now.
    pub(super) fn definition_changed(&mut self, change: &Change) {
        let name = change.object.name().to_owned();
        self.registry.remove_definition(&name);
        let group = change.object.value()["spec"]["group"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let plural = change.object.value()["spec"]["names"]["plural"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.custom
            .retain(|(known_group, _, known_plural), _| *known_group != group || *known_plural != plural);
        if change.kind == ChangeKind::Deleted || !crd::is_established(change.object.value()) {
            return;
        }
        let resource = CustomResource::read(change.object.value());
        for version in resource.versions.iter().filter(|version| version.served) {
            self.registry.add(custom_resource(&name, &resource, version));
            let key = (group.clone(), version.name.clone(), plural.clone());
            self.custom.insert(key, Arc::new(version.clone()));
        }
        if let Some(storage) = resource.storage_version() {
            self.storage_versions
                .insert((group.clone(), plural.clone()), Arc::new(storage.clone()));
            // A default that is new applies to what is stored already: it is filled in when an object is read.
            self.store
                .rewrite(&TableKey { group, plural }, |value| storage.default_stored(value));
        }
    }

    /// An object as it is stored: custom resources in one version, without what that does not know.
    pub fn to_storage_version(&self, resource: &ResourceType, value: &mut Value) {
        let key = (resource.gv.group.clone(), resource.plural.clone());
        let Some(storage) = self.storage_versions.get(&key).filter(|_| resource.is_custom()) else {
            return;
        };
        if storage.name != resource.gv.version {
            structural::prune(value, storage.structural.root(), true);
            storage.default_stored(value);
            value["apiVersion"] = format!("{}/{}", storage.group, storage.name).into();
        }
    }

    /// A stored object in the version that a request asks for.
    pub fn in_version(&self, resource: &ResourceType, object: &Arc<Object>) -> Arc<Object> {
        let api_version = resource.gv.api_version();
        if !resource.is_custom() || object.api_version() == api_version {
            return object.clone();
        }
        let key = (
            resource.gv.group.clone(),
            resource.gv.version.clone(),
            resource.plural.clone(),
        );
        let mut value = object.read(Value::clone);
        value["apiVersion"] = api_version.into();
        if let Some(version) = self.custom.get(&key) {
            structural::prune(&mut value, version.structural.root(), true);
            version.default_stored(&mut value);
        }
        Object::new(value, object.revision())
    }
}

/// What keeps a definition until its last object is gone.
pub(super) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

impl State {
    /// The finalizing controller's part, which runs inside the real server: the objects of a definition that is going
    /// away are deleted, and after the last one the definition itself.
    pub(super) fn finalize_definition(&mut self, definition: &Object, now: &str) {
        let instances = TableKey {
            group: definition.value()["spec"]["group"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            plural: definition.value()["spec"]["names"]["plural"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        let objects: Vec<Arc<Object>> = self.store.objects(&instances).cloned().collect();
        for object in objects {
            let held = object
                .metadata("finalizers")
                .and_then(Value::as_array)
                .is_some_and(|list| !list.is_empty());
            if !held {
                self.remove(&instances, object.namespace(), object.name());
            } else if !object.is_terminating() {
                let mut value = object.value().clone();
                value["metadata"]["deletionTimestamp"] = now.into();
                value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                self.write(&instances, object.namespace(), object.name(), value);
            }
        }
        self.remove_finished_definition(&instances);
    }

    /// Removes the definition of an emptied table, when it waited for that.
    pub(super) fn remove_finished_definition(&mut self, instances: &TableKey) {
        let definitions = TableKey {
            group: "apiextensions.k8s.io".into(),
            plural: "customresourcedefinitions".into(),
        };
        let name = format!("{}.{}", instances.plural, instances.group);
        let Some(definition) = self.store.get(&definitions, &name) else {
            return;
        };
        let others = definition.metadata("finalizers").and_then(Value::as_array);
        let others = others.is_some_and(|list| list.iter().any(|finalizer| finalizer != CLEANUP_FINALIZER));
        if definition.is_terminating() && !others && self.store.objects(instances).next().is_none() {
            self.remove(&definitions, "", &name);
        }
    }
}

/// What discovery shows for the stored version: upstream's hash of its group, version and kind.
fn storage_hash(resource: &CustomResource) -> String {
    let version = resource
        .storage_version()
        .map(|version| version.name.as_str())
        .unwrap_or_default();
    let stored = format!("{}/{version}/{}", resource.group, resource.names.kind);
    STANDARD.encode(&Sha256::digest(stored.as_bytes())[..8])
}

const ALL_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn custom_resource(definition: &str, resource: &CustomResource, version: &CrdVersion) -> ResourceType {
    let verbs = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    if version.has_status {
        subresources.push(Subresource {
            name: "status".into(),
            group_version: None,
            kind: resource.names.kind.clone(),
            verbs: verbs(&["get", "patch", "update"]),
        });
    }
    if version.scale.is_some() {
        subresources.push(Subresource {
            name: "scale".into(),
            group_version: Some(GroupVersion::new("autoscaling", "v1")),
            kind: "Scale".into(),
            verbs: verbs(&["get", "patch", "update"]),
        });
    }
    let columns = version.printer_columns.iter().map(|column| PrinterColumn {
        name: column.name.clone(),
        column_type: column.column_type.clone(),
        format: column.format.clone(),
        description: column.description.clone(),
        priority: column.priority,
        json_path: column.json_path.clone(),
    });
    let scale = version.scale.as_ref().map(|scale| ScalePaths {
        spec_replicas: scale.spec_replicas_path.clone(),
        status_replicas: scale.status_replicas_path.clone(),
        label_selector: scale.label_selector_path.clone(),
    });
    ResourceType {
        gv: GroupVersion::new(resource.group.clone(), version.name.clone()),
        kind: resource.names.kind.clone(),
        list_kind: resource.names.list_kind.clone(),
        plural: resource.names.plural.clone(),
        singular: resource.names.singular.clone(),
        short_names: resource.names.short_names.clone(),
        categories: resource.names.categories.clone(),
        namespaced: resource.namespaced,
        verbs: verbs(&ALL_VERBS),
        subresources,
        schema: version.schema.clone(),
        storage_hash: storage_hash(resource),
        origin: Origin::Custom(CustomOrigin {
            definition: definition.to_owned(),
            printer_columns: columns.collect(),
            scale,
            selectable_fields: version.selectable_fields.clone(),
            deprecation_warning: version.deprecation_warning.clone(),
        }),
    }
}
