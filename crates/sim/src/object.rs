//! The kinds the world watches, and how an object of any of them is named and held. What the objects mean is the
//! actors' business; what the world knows of them at an instant is `view`'s.

use crate::request::Resource;
use afloat_core::hci::view::HciKind;
use afloat_operator::snapshot::hci::names;
use afloat_operator::snapshot::lean::without_managers;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource as _};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }
}

/// One object, by kind and key: what work queues hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub kind: Kind,
    pub key: Key,
}

impl ObjectRef {
    pub fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }

    pub fn cluster(kind: Kind, name: impl Into<String>) -> Self {
        Self::new(kind, Key::new("", name))
    }
}

macro_rules! kinds {
    ($($kind:ident, $scope:literal;)*) => {
        /// A kind the world watches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($kind,)*
            /// A kind of a Harvester-like cluster, held without a type: upstream's are large and the actors look at a few fields.
            Hci(HciKind),
        }

        /// An object of a watched kind, shared rather than copied.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $($kind(Arc<$kind>),)*
            Hci(HciKind, Arc<DynamicObject>),
        }

        impl Kind {
            const TYPED: &[Kind] = &[$(Kind::$kind),*];

            /// Every kind.
            pub fn all() -> impl Iterator<Item = Kind> {
                Self::TYPED.iter().copied().chain(HciKind::all().map(Kind::Hci))
            }

            /// Where the API server keeps objects of this kind.
            pub fn resource(self) -> Resource {
                match self {
                    $(Kind::$kind => Resource {
                        group: Cow::Borrowed($kind::GROUP),
                        version: Cow::Borrowed($kind::VERSION),
                        plural: Cow::Borrowed($kind::URL_PATH_SEGMENT),
                        namespaced: $scope == "Namespaced",
                    },)*
                    Kind::Hci(kind) => hci_resource(kind),
                }
            }

            /// `apiVersion` and `kind` as objects carry them.
            pub fn type_meta(self) -> (Cow<'static, str>, &'static str) {
                match self {
                    $(Kind::$kind => (Cow::Borrowed($kind::API_VERSION), $kind::KIND),)*
                    Kind::Hci(kind) => {
                        let (group, version, name, _) = names(kind);
                        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                        (Cow::Owned(api_version), name)
                    }
                }
            }

            /// Reads an object of this kind; nothing when it is malformed.
            pub fn parse(self, value: Value) -> Option<Object> {
                match self {
                    $(Kind::$kind => serde_json::from_value(value).ok().map(|o| Object::$kind(Arc::new(o))),)*
                    Kind::Hci(kind) => serde_json::from_value(value).ok().map(|o| Object::Hci(kind, Arc::new(o))),
                }
            }

            /// The same from its text.
            pub fn read(self, text: &str) -> Option<Object> {
                let text = &without_managers(text);
                match self {
                    $(Kind::$kind => serde_json::from_str(text).ok().map(|o| Object::$kind(Arc::new(o))),)*
                    Kind::Hci(kind) => serde_json::from_str(text).ok().map(|o| Object::Hci(kind, Arc::new(o))),
                }
            }
        }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self {
                    $(Object::$kind(_) => Kind::$kind,)*
                    Object::Hci(kind, _) => Kind::Hci(*kind),
                }
            }

            pub fn meta(&self) -> &ObjectMeta {
                match self {
                    $(Object::$kind(o) => o.metadata(),)*
                    Object::Hci(_, o) => &o.metadata,
                }
            }
        }

        $(impl Held for $kind {
            fn held(self: Arc<Self>) -> Object { Object::$kind(self) }
            fn kind() -> Kind { Kind::$kind }
        })*
    };
}

/// A typed object that the view can hold.
pub trait Held: Metadata<Ty = ObjectMeta> + Send + Sync + 'static {
    fn held(self: Arc<Self>) -> Object;
    fn kind() -> Kind;
}

kinds! {
    Node, "Cluster";
    Namespace, "Cluster";
    Pod, "Namespaced";
    Lease, "Namespaced";
    Deployment, "Namespaced";
    ReplicaSet, "Namespaced";
    DaemonSet, "Namespaced";
    StatefulSet, "Namespaced";
    Job, "Namespaced";
    PodDisruptionBudget, "Namespaced";
    Event, "Namespaced";
}

fn hci_resource(kind: HciKind) -> Resource {
    let (group, version, _, plural) = names(kind);
    Resource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        plural: Cow::Borrowed(plural),
        namespaced: true,
    }
}

impl Object {
    pub fn reference(&self) -> ObjectRef {
        ObjectRef::new(self.kind(), Key::of(self.meta()))
    }

    /// Revisions of one server are comparable numbers (KEP-5504); what is not a number is older than anything.
    pub fn revision(&self) -> u64 {
        self.meta()
            .resource_version
            .as_deref()
            .and_then(|v| v.parse().ok())
            .unwrap_or(0)
    }

    pub fn as_pod(&self) -> Option<&Arc<Pod>> {
        if let Object::Pod(pod) = self { Some(pod) } else { None }
    }

    pub fn as_node(&self) -> Option<&Arc<Node>> {
        if let Object::Node(node) = self {
            Some(node)
        } else {
            None
        }
    }
}

/// The reference of the managing controller, if there is one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// The uid, empty while the object has none.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The owner reference a controller puts on what it makes.
pub fn controller_reference(kind: Kind, meta: &ObjectMeta) -> Value {
    let (api_version, kind) = kind.type_meta();
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
