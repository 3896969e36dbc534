//! Every action as one HTTP request: the verb, the path, the body, and the state of the object it may be carried out on. Pure:
//! what is sent can be read and tested without a server.

use afloat_api::{
    ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, annotations, names,
};
use afloat_core::action::Action;
use afloat_core::hci::view::HciKind;
use afloat_core::plan::StageKind;
use afloat_core::view::{Key, Target, Uid};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};

use super::{hci, render};
use crate::snapshot::Kind;
use crate::snapshot::hci::served;
use crate::snapshot::raw::{RawDeployment, RawNode, RawPod};

/// The value of the pause that an upgrade's own option puts on a node.
const OWN_PAUSE: &str = "true";
const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

/// What is asked of the API server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    Get,
    Create,
    Patch,
    Delete,
    Evict,
}

impl Verb {
    fn method(self) -> http::Method {
        match self {
            Self::Get => http::Method::GET,
            Self::Create | Self::Evict => http::Method::POST,
            Self::Patch => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }
}

/// One request, not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub verb: Verb,
    pub kind: Kind,
    pub key: Key,
    pub path: String,
    pub content_type: &'static str,
    pub body: Value,
}

impl Request {
    pub fn to_http(&self, field_manager: &str) -> Result<http::Request<Vec<u8>>, http::Error> {
        let query = match self.verb {
            Verb::Create | Verb::Patch => format!("?fieldManager={field_manager}"),
            Verb::Get | Verb::Delete | Verb::Evict => String::new(),
        };
        let body = if self.body.is_null() {
            Vec::new()
        } else {
            self.body.to_string().into_bytes()
        };
        let mut request = http::Request::builder()
            .method(self.verb.method())
            .uri(format!("{}{query}", self.path))
            .header(http::header::CONTENT_TYPE, self.content_type);
        if self.kind == Kind::Hci(HciKind::Plan) {
            // A secret: the answer shows its metadata and not what it holds.
            request = request.header(http::header::ACCEPT, METADATA_ONLY);
        }
        request.body(body)
    }

    /// Reads the object this request is about.
    #[must_use]
    pub fn reading(&self) -> Self {
        let path = match self.verb {
            Verb::Create => format!("{}/{}", self.path, self.key.name),
            _ => self.path.clone(),
        };
        Self {
            verb: Verb::Get,
            kind: self.kind,
            key: self.key.clone(),
            path,
            content_type: JSON,
            body: Value::Null,
        }
    }
}

/// The path of a resource's objects.
fn path_of<K: Resource<DynamicType = ()>>(key: &Key) -> String {
    K::url_path(&(), (!key.namespace.is_empty()).then_some(&*key.namespace))
}

/// The resource a kind is served under; only those that actions write.
fn path(kind: Kind, key: &Key) -> String {
    match kind {
        Kind::Node => path_of::<RawNode>(key),
        Kind::ClusterUpgrade => path_of::<ClusterUpgrade>(key),
        Kind::ControlPlaneKubeadmUpgrade => path_of::<ControlPlaneKubeadmUpgrade>(key),
        Kind::WorkersKubeadmUpgrade => path_of::<WorkersKubeadmUpgrade>(key),
        Kind::NodeKubeadmUpgrade => path_of::<NodeKubeadmUpgrade>(key),
        Kind::UpgradeLock => path_of::<Lease>(key),
        Kind::Deployment => path_of::<RawDeployment>(key),
        Kind::Hci(kind) => {
            let namespace = (!key.namespace.is_empty()).then_some(&*key.namespace);
            DynamicObject::url_path(&served(kind).resource, namespace)
        }
        _ => path_of::<RawPod>(key),
    }
}

/// The pods of a node as they are now: asked of etcd, and of no cache.
pub fn pods_of(node: &str) -> Request {
    let key = Key::new("", node);
    Request {
        verb: Verb::Get,
        kind: Kind::Pod,
        path: format!("{}?fieldSelector=spec.nodeName%3D{node}", path(Kind::Pod, &key)),
        key,
        content_type: JSON,
        body: Value::Null,
    }
}

/// An object as it is now.
pub fn get(kind: Kind, key: Key) -> Request {
    Request {
        verb: Verb::Get,
        kind,
        path: format!("{}/{}", path(kind, &key), key.name),
        key,
        content_type: JSON,
        body: Value::Null,
    }
}

/// Merges `change` into the object, if it is still the one decided on, in the state decided on.
pub(super) fn merge(kind: Kind, target: &Target, change: Value) -> Request {
    let mut body = change;
    body["metadata"]["resourceVersion"] = json!(target.revision.to_string());
    body["metadata"]["uid"] = json!(target.uid.as_str());
    Request {
        verb: Verb::Patch,
        kind,
        key: target.key.clone(),
        path: format!("{}/{}", path(kind, &target.key), target.key.name),
        content_type: MERGE,
        body,
    }
}

/// Replaces the status whole: a merge would leave standing what the new one has no longer. The revision is put in, not tested, so
/// that a difference is a conflict (409) as everywhere and not an invalid request; the uid would be ignored here, and the
/// revision says as much: no two states share one, least of all those of two namesakes.
fn status(kind: Kind, target: &Target, status: &impl Serialize) -> Result<Request, serde_json::Error> {
    let put = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    Ok(Request {
        verb: Verb::Patch,
        kind,
        key: target.key.clone(),
        path: format!("{}/{}/status", path(kind, &target.key), target.key.name),
        content_type: JSON_PATCH,
        body: json!([
            put("/metadata/resourceVersion", json!(target.revision.to_string())),
            put("/status", serde_json::to_value(status)?),
        ]),
    })
}

pub(super) fn create(kind: Kind, key: Key, body: Value) -> Request {
    Request {
        verb: Verb::Create,
        kind,
        path: path(kind, &key),
        key,
        content_type: JSON,
        body,
    }
}

fn create_child<K>(kind: Kind, child: &K) -> Result<Request, serde_json::Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let key = afloat_core::objects::key_of(child.meta());
    Ok(create(kind, key, serde_json::to_value(child)?))
}

/// A node's pause, and the upgrade that signs for it.
fn pause(node: &Target, pause: Option<&str>, by: Option<&Uid>) -> Request {
    let by = by.map(Uid::as_str);
    annotate(node, &json!({ annotations::PAUSE: pause, annotations::PAUSED_BY: by }))
}

/// Takes a pause off a node, and its signature; what a person wrote over it stays.
pub fn unpause(node: &Target, left: Option<&str>) -> Request {
    pause(node, left, None)
}

fn annotate(node: &Target, annotations: &Value) -> Request {
    merge(Kind::Node, node, json!({ "metadata": { "annotations": annotations } }))
}

pub(super) fn delete(kind: Kind, target: &Target, grace_seconds: Option<i64>) -> Request {
    Request {
        verb: Verb::Delete,
        kind,
        key: target.key.clone(),
        path: format!("{}/{}", path(kind, &target.key), target.key.name),
        content_type: JSON,
        body: delete_options(target, grace_seconds),
    }
}

fn delete_options(target: &Target, grace_seconds: Option<i64>) -> Value {
    let mut options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": target.uid.as_str() },
    });
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

fn evict(pod: &Target, grace_seconds: Option<i64>) -> Request {
    Request {
        verb: Verb::Evict,
        kind: Kind::Pod,
        key: pod.key.clone(),
        path: format!("{}/{}/eviction", path(Kind::Pod, &pod.key), pod.key.name),
        content_type: JSON,
        body: json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": &*pod.key.name, "namespace": &*pod.key.namespace },
            "deleteOptions": delete_options(pod, grace_seconds),
        }),
    }
}

fn lock(namespace: &str, holder: &str, (kind, name): (&str, &str)) -> Request {
    // Owned, so that one taken for an upgrade that is gone already (a stale view) does not stay for ever.
    let owner = json!({ "apiVersion": "afloat.dev/v1alpha1", "kind": kind, "name": name, "uid": holder });
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": names::LOCK, "namespace": namespace, "ownerReferences": [owner] },
        "spec": { "holderIdentity": holder },
    });
    create(Kind::UpgradeLock, Key::new(namespace, names::LOCK), body)
}

/// Finalizers are a list, and a merge replaces lists: the request is made from those there are.
pub fn finalizer(kind: Kind, target: &Target, there: &[String], present: bool) -> Request {
    let mut finalizers: Vec<&str> = there
        .iter()
        .map(String::as_str)
        .filter(|one| *one != names::FINALIZER)
        .collect();
    if present {
        finalizers.push(names::FINALIZER);
    }
    merge(kind, target, json!({ "metadata": { "finalizers": finalizers } }))
}

fn group(of: StageKind) -> Kind {
    match of {
        StageKind::ControlPlane => Kind::ControlPlaneKubeadmUpgrade,
        StageKind::Workers => Kind::WorkersKubeadmUpgrade,
    }
}

/// What an action asks of the API server. For finalizers it is the request as it is where there are no others.
pub fn of(action: &Action, bundle_key: Option<&str>) -> Result<Request, serde_json::Error> {
    Ok(match action {
        Action::WriteUpgradeStatus { target, status: new } => status(Kind::ClusterUpgrade, target, new)?,
        Action::WriteControlPlaneStatus { target, status: new } => {
            status(Kind::ControlPlaneKubeadmUpgrade, target, new)?
        }
        Action::WriteWorkersStatus { target, status: new } => status(Kind::WorkersKubeadmUpgrade, target, new)?,
        Action::WriteNodeStatus { target, status: new } => status(Kind::NodeKubeadmUpgrade, target, new)?,
        Action::CreateControlPlaneUpgrade(child) => create_child(Kind::ControlPlaneKubeadmUpgrade, &**child)?,
        Action::CreateWorkersUpgrade(child) => create_child(Kind::WorkersKubeadmUpgrade, &**child)?,
        Action::CreateNodeUpgrade(child) => create_child(Kind::NodeKubeadmUpgrade, &**child)?,
        Action::SetUpgradeFinalizer { target, present } => finalizer(Kind::ClusterUpgrade, target, &[], *present),
        Action::SetGroupFinalizer { target, of, present } => finalizer(group(*of), target, &[], *present),
        Action::RemoveNodeFinalizer { target } => finalizer(Kind::NodeKubeadmUpgrade, target, &[], false),
        Action::SetControlPlaneMachines { target, machines } => merge(
            Kind::ControlPlaneKubeadmUpgrade,
            target,
            json!({ "spec": { "machinesRequireUpgrade": machines } }),
        ),
        Action::SetWorkersMachines { target, machines } => merge(
            Kind::WorkersKubeadmUpgrade,
            target,
            json!({ "spec": { "machinesRequireUpgrade": machines } }),
        ),
        Action::SetDesired {
            target,
            desired,
            attempt,
            because,
        } => merge(
            Kind::NodeKubeadmUpgrade,
            target,
            json!({
                "metadata": { "annotations": { annotations::BECAUSE: because.map(|reason| reason.to_string()) } },
                "spec": { "desired": desired, "attempt": attempt },
            }),
        ),
        Action::TakeLock {
            namespace,
            holder,
            kind,
            name,
        } => lock(namespace, holder.as_str(), (kind, name)),
        Action::ReleaseLock { lock } => delete(Kind::UpgradeLock, lock, None),
        Action::Cordon { node, by } => merge(
            Kind::Node,
            node,
            json!({
                "metadata": { "annotations": { annotations::CORDONED_BY: by.as_str() } },
                "spec": { "unschedulable": true },
            }),
        ),
        Action::Uncordon { node } => merge(
            Kind::Node,
            node,
            json!({
                "metadata": { "annotations": { annotations::CORDONED_BY: null } },
                "spec": { "unschedulable": null },
            }),
        ),
        Action::PauseNode { node, upgrade } => pause(node, Some(OWN_PAUSE), Some(&upgrade.uid)),
        Action::UnpauseNode { node, left } => unpause(node, left.as_deref()),
        Action::ClearWish { node } => annotate(node, &json!({ annotations::WISH: null })),
        Action::CreatePod(pod) => create(Kind::Pod, pod.key.clone(), render::task_pod(pod, bundle_key)),
        Action::DeletePod { pod } => delete(Kind::Pod, pod, None),
        Action::Evict { pod, grace_seconds, .. } => evict(pod, *grace_seconds),
        Action::DeletePastBudget { pod, grace_seconds, .. } => delete(Kind::Pod, pod, *grace_seconds),
        Action::Hci(action) => hci::of(action),
    })
}
