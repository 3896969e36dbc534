//! Well-formed requests to start from.

use bytes::Bytes;
use http::Request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seed {
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub query: String,
    #[serde(default)]
    pub content_type: String,
    #[serde(default)]
    pub accept: String,
    #[serde(default)]
    pub body: String,
}

impl Seed {
    fn new(method: &str, path: &str, content_type: &str, body: &Value) -> Self {
        Self {
            method: method.into(),
            path: path.into(),
            query: String::new(),
            content_type: content_type.into(),
            accept: String::new(),
            body: if body.is_null() {
                String::new()
            } else {
                body.to_string()
            },
        }
    }

    pub fn try_request(&self) -> Option<Request<Bytes>> {
        let uri = if self.query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, self.query)
        };
        Request::builder()
            .method(self.method.as_str())
            .uri(uri)
            .header("content-type", &self.content_type)
            .header("accept", &self.accept)
            .body(Bytes::from(self.body.clone()))
            .ok()
    }

    pub fn request(&self) -> Request<Bytes> {
        self.try_request().unwrap()
    }

    pub fn as_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"],
                        "x-kubernetes-validations": [{"rule": "self.size != 'none'", "message": "say a size"}],
                        "properties": {
                            "size": {"type": "string", "maxLength": 10, "default": "small"},
                            "replicas": {"type": "integer", "minimum": 0, "default": 1},
                            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "port": {"x-kubernetes-int-or-string": true},
                            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                                "items": {"type": "object", "required": ["name"], "properties": {
                                    "name": {"type": "string"}, "count": {"type": "integer", "nullable": true}}}},
                            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        }},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "note": {"type": "string"}}},
                }}},
            }],
        },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": {"a": "b"}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{
                "name": "main", "image": "app:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
            }],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

fn widget() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": "large", "replicas": 2, "parts": [{"name": "a", "count": 1}], "tags": ["x"], "port": 80, "any": {"b": 1}},
    })
}

/// Requests that are sent first, so that there is something to act on.
pub fn standing() -> Vec<Seed> {
    let json = "application/json";
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
    });
    vec![
        Seed::new(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json,
            &widget_definition(),
        ),
        Seed::new("POST", "/api/v1/namespaces/default/pods", json, &pod("p")),
        Seed::new(
            "POST",
            "/apis/apps/v1/namespaces/default/deployments",
            json,
            &deployment(),
        ),
        Seed::new("POST", "/api/v1/nodes", json, &node),
        Seed::new(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            json,
            &json!({"metadata": {"name": "c"}, "data": {"k": "v"}}),
        ),
        Seed::new(
            "POST",
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json,
            &budget,
        ),
        Seed::new(
            "POST",
            "/apis/example.com/v1/namespaces/default/widgets",
            json,
            &widget(),
        ),
    ]
}

/// Collections whose objects must survive being read and put back.
pub fn collections() -> [&'static str; 7] {
    [
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/configmaps",
        "/apis/apps/v1/namespaces/default/deployments",
        "/api/v1/nodes",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/example.com/v1/namespaces/default/widgets",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ]
}

/// Requests to bend.
#[expect(clippy::too_many_lines, reason = "a list")]
pub fn all() -> Vec<Seed> {
    let json = "application/json";
    let ns = "/api/v1/namespaces/default";
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let mut seeds = standing();
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "r", "message": "m", "type": "Normal"});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 3}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "q"}, "target": {"kind": "Node", "name": "node-1"}});
    let delete = json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": 5, "preconditions": {"uid": "x"}});
    let containers = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j", "env": [{"name": "A", "value": "1"}]}, {"$patch": "delete", "name": "d"}]}}}});
    let operations = json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "add", "path": "/data/l", "value": "w"}, {"op": "move", "from": "/data/l", "path": "/data/m"}, {"op": "remove", "path": "/data/m"}]);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}}, "data": {"k": "w"}});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}});
    seeds.extend([
        Seed::new("POST", &format!("{ns}/pods"), json, &pod("q")),
        Seed::new("PUT", &format!("{ns}/pods/p"), json, &pod("p")),
        Seed::new("PUT", &format!("{widgets}/w"), json, &widget()),
        Seed::new("PUT", &format!("{deployments}/web"), json, &deployment()),
        Seed::new(
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json,
            &lease,
        ),
        Seed::new("POST", &format!("{ns}/events"), json, &event),
        Seed::new("POST", &format!("{ns}/pods/p/eviction"), json, &eviction),
        Seed::new("POST", &format!("{ns}/pods/q/binding"), json, &binding),
        Seed::new("DELETE", &format!("{ns}/pods/p"), json, &delete),
        Seed::new("DELETE", &format!("{ns}/configmaps"), json, &delete),
        Seed::new(
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
            json,
            &Value::Null,
        ),
        Seed::new("PATCH", &format!("{deployments}/web"), STRATEGIC, &containers),
        Seed::new("PATCH", &format!("{ns}/configmaps/c"), JSON_PATCH, &operations),
        Seed::new("PATCH", &format!("{ns}/configmaps/c"), APPLY, &applied),
        Seed::new("PATCH", &format!("{widgets}/w"), APPLY, &widget()),
        Seed::new("PATCH", &format!("{deployments}/web"), APPLY, &deployment()),
        Seed::new(
            "PATCH",
            &format!("{widgets}/w"),
            MERGE,
            &json!({"spec": {"replicas": null, "tags": ["a", "b"]}, "metadata": {"finalizers": ["a/b"]}}),
        ),
        Seed::new(
            "PATCH",
            &format!("{widgets}/w/status"),
            MERGE,
            &json!({"status": {"note": "x", "replicas": 1}}),
        ),
        Seed::new(
            "PATCH",
            "/api/v1/nodes/node-1",
            STRATEGIC,
            &json!({"metadata": {"labels": {"a": null, "b": "c"}}, "spec": {"unschedulable": true}}),
        ),
        Seed::new(
            "PATCH",
            "/api/v1/nodes/node-1/status",
            STRATEGIC,
            &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        Seed::new("PUT", &format!("{deployments}/web/scale"), json, &scale),
        Seed::new(
            "PATCH",
            &format!("{widgets}/w/scale"),
            MERGE,
            &json!({"spec": {"replicas": 4}}),
        ),
        Seed::new("GET", &format!("{ns}/pods"), "", &Value::Null),
        Seed::new("GET", &format!("{ns}/pods/p/log"), "", &Value::Null),
        Seed::new("GET", widgets, "", &Value::Null),
        Seed::new("GET", "/apis", "", &Value::Null),
        Seed::new("GET", "/openapi/v3/apis/example.com/v1", "", &Value::Null),
        Seed::new(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json,
            &json!({"spec": {"resourceAttributes": {"verb": "get"}}}),
        ),
    ]);
    seeds
}
