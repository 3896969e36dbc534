//! What actors ask of the API server, as data: an actor decides on requests, a driver carries them out. The thin
//! part that turns one into HTTP is here too; it knows nothing of what a request is for.

use crate::object::{Kind, ObjectRef, name, namespace, uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::borrow::Cow;

/// A resource's place in the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    pub namespaced: bool,
}

/// What is done to the object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    Create,
    /// JSON merge patch; a `resourceVersion` or `uid` in the body is a precondition.
    MergePatch,
    Delete,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub verb: Verb,
    pub resource: Resource,
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    pub subresource: Option<&'static str>,
    pub body: Option<Value>,
    /// Its refusal does not stop what was decided with it (events).
    pub best_effort: bool,
}

/// Why the server refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Failure {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

impl Request {
    fn new(verb: Verb, resource: Resource, namespace: &str, name: &str) -> Self {
        Self {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
            body: None,
            best_effort: false,
        }
    }

    /// Creates `body`; `apiVersion` and `kind` are filled in.
    pub fn create(kind: Kind, namespace: &str, mut body: Value) -> Self {
        let (api_version, kind_name) = kind.type_meta();
        body["apiVersion"] = api_version.into();
        body["kind"] = kind_name.into();
        Self {
            body: Some(body),
            ..Self::new(Verb::Create, kind.resource(), namespace, "")
        }
    }

    /// Creates an object of any resource.
    pub fn create_raw(resource: Resource, namespace: &str, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Verb::Create, resource, namespace, "")
        }
    }

    pub fn patch(kind: Kind, meta: &ObjectMeta, body: Value) -> Self {
        Self {
            body: Some(body),
            ..Self::new(Verb::MergePatch, kind.resource(), namespace(meta), name(meta))
        }
    }

    /// Patches the status of exactly this object: a namesake born since is refused by its uid.
    pub fn patch_status(kind: Kind, meta: &ObjectMeta, status: &Value) -> Self {
        let body = json!({ "metadata": { "uid": uid(meta) }, "status": status });
        Self {
            subresource: Some("status"),
            ..Self::patch(kind, meta, body)
        }
    }

    /// Patches the status only if nobody wrote the object since it was read.
    pub fn patch_status_unchanged(kind: Kind, meta: &ObjectMeta, status: &Value) -> Self {
        let body = json!({ "metadata": { "resourceVersion": meta.resource_version }, "status": status });
        Self {
            subresource: Some("status"),
            ..Self::patch(kind, meta, body)
        }
    }

    /// Deletes exactly this object, after `grace` seconds where the kind knows them.
    pub fn delete(kind: Kind, meta: &ObjectMeta, grace: Option<i64>) -> Self {
        let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid(meta) } });
        if let Some(grace) = grace {
            body["gracePeriodSeconds"] = grace.into();
        }
        Self {
            body: Some(body),
            ..Self::new(Verb::Delete, kind.resource(), namespace(meta), name(meta))
        }
    }

    /// Binds a pod to a node, as the scheduler does.
    pub fn bind(meta: &ObjectMeta, node: &str) -> Self {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        Self {
            subresource: Some("binding"),
            body: Some(body),
            ..Self::new(Verb::Create, Kind::Pod.resource(), namespace(meta), name(meta))
        }
    }

    /// Asks for a pod to go, as its budgets allow, after `grace` seconds.
    pub fn evict(meta: &ObjectMeta, grace: i64) -> Self {
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": meta.name, "namespace": meta.namespace },
            "deleteOptions": { "gracePeriodSeconds": grace, "preconditions": { "uid": meta.uid } },
        });
        Self {
            subresource: Some("eviction"),
            body: Some(body),
            ..Self::new(Verb::Create, Kind::Pod.resource(), namespace(meta), name(meta))
        }
    }

    /// Marks the request as one whose refusal matters to nobody.
    #[must_use]
    pub fn best_effort(mut self) -> Self {
        self.best_effort = true;
        self
    }

    /// The object this is about, when it is of a watched kind.
    pub fn target(&self) -> Option<ObjectRef> {
        let kind = Kind::all().find(|kind| kind.resource() == self.resource)?;
        let name = if self.name.is_empty() {
            self.body.as_ref()?["metadata"]["name"].as_str()?
        } else {
            &self.name
        };
        Some(ObjectRef::new(
            kind,
            crate::object::Key::new(self.namespace.clone(), name),
        ))
    }

    /// Path and query of the request.
    pub fn path(&self) -> String {
        let Resource {
            group,
            version,
            plural,
            namespaced,
        } = &self.resource;
        let mut path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if *namespaced && !self.namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(&self.namespace);
        }
        for segment in [Some(plural.as_ref()), Some(self.name.as_str()), self.subresource]
            .into_iter()
            .flatten()
        {
            if !segment.is_empty() {
                path.push('/');
                path.push_str(segment);
            }
        }
        if self.verb != Verb::Delete {
            path.push_str("?fieldManager=afloat-sim");
        }
        path
    }

    fn http(&self) -> Result<http::Request<Vec<u8>>, Failure> {
        let (method, content_type) = match self.verb {
            Verb::Create => ("POST", "application/json"),
            Verb::MergePatch => ("PATCH", "application/merge-patch+json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        let bytes = self
            .body
            .as_ref()
            .map(serde_json::to_vec)
            .transpose()
            .map_err(Failure::local)?
            .unwrap_or_default();
        http::Request::builder()
            .method(method)
            .uri(self.path())
            .header("Content-Type", content_type)
            .body(bytes)
            .map_err(Failure::local)
    }

    /// Sends it. The answer is the text of the object or of a `Status`, or the server's refusal.
    pub async fn send(&self, client: &kube::Client) -> Result<String, Failure> {
        client.request_text(self.http()?).await.map_err(Failure::from)
    }
}

impl Failure {
    fn local(error: impl std::fmt::Display) -> Self {
        Self {
            code: 0,
            reason: "Unsent".into(),
            message: error.to_string(),
        }
    }

    /// The world moved on since the decision was made (404, 409), or the namespace is on its way out (403 then):
    /// deciding again is the whole remedy.
    pub fn is_expected(&self) -> bool {
        matches!(self.code, 404 | 409) || (self.code == 403 && self.message.contains("is being terminated"))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self {
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
            },
            other => Self {
                code: 0,
                reason: "Unanswered".into(),
                message: other.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> ObjectMeta {
        ObjectMeta {
            name: Some("web-1".into()),
            namespace: Some("shop".into()),
            uid: Some("u1".into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn paths_follow_group_scope_and_subresource() {
        let cases = [
            (
                Request::bind(&pod(), "worker-1"),
                "/api/v1/namespaces/shop/pods/web-1/binding?fieldManager=afloat-sim",
            ),
            (
                Request::delete(Kind::Pod, &pod(), Some(0)),
                "/api/v1/namespaces/shop/pods/web-1",
            ),
            (
                Request::patch_status(Kind::Deployment, &pod(), &json!({})),
                "/apis/apps/v1/namespaces/shop/deployments/web-1/status?fieldManager=afloat-sim",
            ),
            (
                Request::create(Kind::Node, "", json!({})),
                "/api/v1/nodes?fieldManager=afloat-sim",
            ),
        ];
        for (request, path) in cases {
            assert_eq!(request.path(), path);
        }
    }

    #[test]
    fn target_names_watched_objects_only() {
        let request = Request::create(Kind::Pod, "shop", json!({ "metadata": { "name": "a" } }));
        assert_eq!(request.target().map(|t| t.key.name), Some("a".to_owned()));
        let limits = Resource {
            group: "".into(),
            version: "v1".into(),
            plural: "limitranges".into(),
            namespaced: true,
        };
        assert_eq!(
            Request::create_raw(limits, "shop", json!({ "metadata": { "name": "a" } })).target(),
            None
        );
    }
}
