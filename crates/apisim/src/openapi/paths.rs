//! `paths` of a document: the operations on each resource, with the query parameters and body types that kubectl
//! looks for before it uses them.

use serde_json::{Map, Value, json};

use super::components;
use super::render;
use crate::resource::{GroupVersion, ResourceType, Subresource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const LIST_PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// What the operations of one path have in common.
struct Target {
    gv: GroupVersion,
    kind: String,
    /// The component of bodies.
    body: Option<String>,
    /// The component of lists.
    list: String,
    /// `NamespacedDeployment`, `NamespacedDeploymentScale`: the end of every operation's id.
    id: String,
    tag: String,
    id_prefix: String,
    strategic: bool,
}

/// All paths of a resource and its subresources.
pub fn of_resource(resource: &ResourceType) -> Vec<(String, Value)> {
    let base = if resource.gv.group.is_empty() {
        format!("/api/{}", resource.gv.version)
    } else {
        format!("/apis/{}/{}", resource.gv.group, resource.gv.version)
    };
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    };
    let target = Target::of(resource, None);
    let can = |verb: &str| resource.verbs.iter().any(|known| known == verb);
    let mut paths = Vec::new();
    let mut own = path_item(resource.namespaced, false);
    insert(&mut own, "get", can("list").then(|| target.list(&target.id)));
    insert(&mut own, "post", can("create").then(|| target.write("post", "create")));
    insert(
        &mut own,
        "delete",
        can("deletecollection").then(|| target.delete_collection()),
    );
    paths.push((collection.clone(), Value::Object(own)));
    if resource.namespaced && can("list") {
        let mut everywhere = path_item(false, false);
        insert(&mut everywhere, "get", Some(target.list_everywhere(&resource.kind)));
        paths.push((format!("{base}/{}", resource.plural), Value::Object(everywhere)));
    }
    if can("get") {
        paths.push((
            format!("{collection}/{{name}}"),
            object_path(&target, resource.namespaced, &resource.verbs),
        ));
    }
    for subresource in resource
        .subresources
        .iter()
        .filter(|subresource| !is_connection(subresource))
    {
        let target = Target::of(resource, Some(subresource));
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        paths.push((path, object_path(&target, resource.namespaced, &subresource.verbs)));
    }
    paths
}

/// Streams rather than objects pass through these; nothing reads their description.
fn is_connection(subresource: &Subresource) -> bool {
    matches!(subresource.name.as_str(), "attach" | "exec" | "portforward" | "proxy")
}

fn object_path(target: &Target, namespaced: bool, verbs: &[String]) -> Value {
    let can = |verb: &str| verbs.iter().any(|known| known == verb);
    let mut item = path_item(namespaced, true);
    insert(&mut item, "get", can("get").then(|| target.read()));
    insert(&mut item, "post", can("create").then(|| target.write("post", "create")));
    insert(&mut item, "put", can("update").then(|| target.write("put", "replace")));
    insert(&mut item, "patch", can("patch").then(|| target.patch()));
    insert(&mut item, "delete", can("delete").then(|| target.delete()));
    Value::Object(item)
}

fn insert(item: &mut Map<String, Value>, method: &str, operation: Option<Value>) {
    if let Some(operation) = operation {
        item.insert(method.to_owned(), operation);
    }
}

fn path_item(namespaced: bool, named: bool) -> Map<String, Value> {
    let in_path = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let mut parameters = Vec::new();
    if named {
        parameters.push(in_path("name"));
    }
    if namespaced {
        parameters.push(in_path("namespace"));
    }
    parameters.push(json!({"name": "pretty", "in": "query", "schema": {"type": "string"}}));
    Map::from_iter([("parameters".to_owned(), Value::Array(parameters))])
}

fn query(parameters: &[(&str, &str)]) -> Value {
    parameters
        .iter()
        .map(|(name, value_type)| {
            json!({"name": name, "in": "query", "schema": {"type": value_type, "uniqueItems": true}})
        })
        .collect()
}

fn content(component: &str) -> Value {
    let schema = json!({"schema": render::reference(component)});
    json!({"application/json": schema, "application/yaml": schema})
}

impl Target {
    fn of(resource: &ResourceType, subresource: Option<&Subresource>) -> Self {
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let own_kind = (resource.gv.clone(), resource.kind.clone());
        let own_body = Some(components::component_of(resource));
        let (suffix, (gv, kind), body) = match subresource {
            None => (String::new(), own_kind, own_body),
            Some(subresource) => {
                let gv = subresource.group_version.clone().unwrap_or_else(|| resource.gv.clone());
                let same = gv == resource.gv && subresource.kind == resource.kind;
                let body = components::builtin_component(&gv.group, &gv.version, &subresource.kind);
                // A custom resource's scale goes by the kind of its parent.
                let kind = if resource.is_custom() {
                    own_kind
                } else {
                    (gv, subresource.kind.clone())
                };
                (capitalised(&subresource.name), kind, if same { own_body } else { body })
            }
        };
        let group = if resource.gv.group.is_empty() {
            "core"
        } else {
            &resource.gv.group
        };
        let words: Vec<&str> = group.trim_end_matches(".k8s.io").split(['.', '-']).collect();
        let joined: String = words.iter().map(|word| capitalised(word)).collect();
        Self {
            gv,
            kind,
            body,
            list: components::list_component_of(resource),
            id: format!("{scope}{}{suffix}", resource.kind),
            tag: format!("{}{}_{}", words[0], &joined[words[0].len()..], resource.gv.version),
            id_prefix: format!("{joined}{}", capitalised(&resource.gv.version)),
            strategic: !resource.is_custom(),
        }
    }

    fn operation(&self, action: &str, id_verb: &str, fields: Value) -> Value {
        let mut operation = fields;
        operation["tags"] = json!([self.tag]);
        operation["operationId"] = format!("{id_verb}{}{}", self.id_prefix, self.id).into();
        operation["x-kubernetes-action"] = action.into();
        operation["x-kubernetes-group-version-kind"] =
            json!({"group": self.gv.group, "version": self.gv.version, "kind": self.kind});
        operation
    }

    fn answers(component: Option<&str>) -> Value {
        let ok = match component {
            Some(component) => json!({"description": "OK", "content": content(component)}),
            None => json!({"description": "OK"}),
        };
        json!({"200": ok, "401": {"description": "Unauthorized"}})
    }

    fn read(&self) -> Value {
        self.operation("get", "read", json!({"responses": Self::answers(self.body.as_deref())}))
    }

    fn list(&self, id: &str) -> Value {
        let fields = json!({"parameters": query(LIST_PARAMETERS), "responses": Self::answers(Some(&self.list))});
        let mut operation = self.operation("list", "list", fields);
        operation["operationId"] = format!("list{}{id}", self.id_prefix).into();
        operation
    }

    fn list_everywhere(&self, kind: &str) -> Value {
        self.list(&format!("{kind}ForAllNamespaces"))
    }

    fn write(&self, action: &str, verb: &str) -> Value {
        let mut fields =
            json!({"parameters": query(WRITE_PARAMETERS), "responses": Self::answers(self.body.as_deref())});
        if let Some(body) = &self.body {
            fields["requestBody"] = json!({"required": true, "content": content(body)});
        }
        self.operation(action, verb, fields)
    }

    fn patch(&self) -> Value {
        let schema = json!({"schema": render::reference(&format!("{META}.Patch"))});
        let mut bodies = json!({
            "application/apply-patch+yaml": schema,
            "application/json-patch+json": schema,
            "application/merge-patch+json": schema,
        });
        // Whether this stands here is how `kubectl apply` and `kubectl edit` choose the kind of patch.
        if self.strategic {
            bodies["application/strategic-merge-patch+json"] = schema;
        }
        let fields = json!({
            "parameters": query(PATCH_PARAMETERS),
            "requestBody": {"required": true, "content": bodies},
            "responses": Self::answers(self.body.as_deref()),
        });
        self.operation("patch", "patch", fields)
    }

    fn delete(&self) -> Value {
        let fields = json!({
            "parameters": query(DELETE_PARAMETERS),
            "requestBody": {"content": content(&format!("{META}.DeleteOptions"))},
            "responses": Self::answers(Some(&format!("{META}.Status"))),
        });
        self.operation("delete", "delete", fields)
    }

    fn delete_collection(&self) -> Value {
        let fields = json!({
            "parameters": query(LIST_PARAMETERS),
            "requestBody": {"content": content(&format!("{META}.DeleteOptions"))},
            "responses": Self::answers(Some(&format!("{META}.Status"))),
        });
        let mut operation = self.operation("deletecollection", "delete", fields);
        operation["operationId"] = format!("delete{}Collection{}", self.id_prefix, self.id).into();
        operation
    }
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
