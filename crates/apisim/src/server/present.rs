//! How an answer looks: content negotiation, and objects and lists written as JSON, YAML, a Table or metadata only.
//! Bodies of stored objects are spliced from their shared JSON instead of being serialised again.

use std::sync::Arc;

use afloat_apischema::apply;
use afloat_apischema::builtin::event;
use afloat_apischema::field_error::go_quote;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::printing::{self, IncludeObject, TableOptions};
use crate::request::Query;
use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, typed_json};

/// The encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
}

/// What is shown of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Whole,
    Metadata,
    Table,
}

/// What the client accepts, decided once per request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    pub encoding: Encoding,
    pub view: View,
    /// Views in their old version, `meta.k8s.io/v1beta1`.
    pub beta: bool,
    /// Metadata was asked for as of one object, or as of a list.
    pub plural: bool,
}

/// Media types that upstream names in its refusals; protobuf is among them though it is not spoken here.
pub const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Form {
    /// Picks the first media type of the `Accept` header that can be served. `viewable` says whether tables and
    /// metadata exist for the answer (they do for objects and lists).
    pub fn negotiate(accept: &str, viewable: bool) -> ApiResult<Self> {
        if accept.trim().is_empty() {
            return Ok(Self::default());
        }
        accept
            .split(',')
            .find_map(|clause| Self::of_clause(clause, viewable))
            .ok_or_else(|| ApiError::not_acceptable(ACCEPTED))
    }

    fn of_clause(clause: &str, viewable: bool) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let encoding = match parts.next()? {
            "application/json" | "*/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => return None,
        };
        let (mut as_kind, mut group, mut version) = ("", "", "");
        for part in parts {
            match part.split_once('=') {
                Some(("as", kind)) => as_kind = kind,
                Some(("g", name)) => group = name,
                Some(("v", name)) => version = name,
                _ => {}
            }
        }
        let view = match as_kind {
            "" => View::Whole,
            _ if !viewable || group != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") => return None,
            "Table" => View::Table,
            "PartialObjectMetadata" | "PartialObjectMetadataList" => View::Metadata,
            _ => return None,
        };
        Some(Self {
            encoding,
            view,
            beta: version == "v1beta1",
            plural: as_kind.ends_with("List"),
        })
    }

    /// Metadata of a list is another kind than metadata of an object, and asked for as such.
    pub fn check_plural(self, list: bool, resource: &ResourceType) -> ApiResult<()> {
        if self.view != View::Metadata || self.plural == list {
            return Ok(());
        }
        let group = resource
            .gv
            .group
            .split('.')
            .next()
            .filter(|group| !group.is_empty())
            .unwrap_or("core");
        let go_type = if resource.is_custom() {
            "*unstructured.Unstructured".to_owned()
        } else {
            format!("*{group}.{}", resource.kind)
        };
        Err(ApiError::not_acceptable_text(if list {
            format!("you requested PartialObjectMetadata, but the requested object is a list ({go_type}List)")
        } else {
            format!("you requested PartialObjectMetadataList, but the requested object is not a list ({go_type})")
        }))
    }

    /// The version of `meta.k8s.io` that views are in.
    pub fn view_version(self) -> &'static str {
        if self.beta { "v1beta1" } else { "v1" }
    }

    pub fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }
}

/// Everything that the shape of an answer depends on.
#[derive(Clone, Copy)]
pub struct Presenter<'a> {
    pub form: Form,
    pub include: IncludeObject,
    pub now: Timestamp,
    pub resource: &'a ResourceType,
}

/// How much of each object the rows of a table are to carry.
pub fn included(query: &Query, form: Form) -> ApiResult<IncludeObject> {
    let asked = query
        .get("includeObject")
        .filter(|_| form.view == View::Table)
        .unwrap_or_default();
    IncludeObject::parse(asked).ok_or_else(|| {
        ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
             'None', or empty",
            go_quote(asked)
        ))
    })
}

impl<'a> Presenter<'a> {
    pub fn new(form: Form, query: &Query, now: Timestamp, resource: &'a ResourceType) -> ApiResult<Self> {
        Ok(Self {
            form,
            include: included(query, form)?,
            now,
            resource,
        })
    }

    pub fn object(&self, object: &Object) -> Bytes {
        match self.form {
            Form {
                encoding: Encoding::Json,
                view: View::Whole,
                ..
            } if !self.converts() => {
                let mut body = Vec::with_capacity(object.body().len() + 64);
                typed_json(
                    object.body(),
                    &self.resource.kind,
                    &self.resource.gv.api_version(),
                    &mut body,
                );
                Bytes::from(body)
            }
            _ => self.encode(&self.object_value(object, true)),
        }
    }

    /// The object in the requested view.
    pub fn object_value(&self, object: &Object, table_headers: bool) -> Value {
        match self.form.view {
            View::Whole => self.whole(object),
            View::Metadata => object.read(|value| self.partial_metadata(value)),
            View::Table => {
                let whole = self.whole(object);
                printing::table(self.resource, &[whole], None, &self.table_options(table_headers))
            }
        }
    }

    /// One event of a watch, as a line.
    pub fn event(&self, kind: &str, object: &Object, table_headers: bool) -> Bytes {
        let whole = self.form.view == View::Whole && !self.converts();
        let mut line = Vec::with_capacity(if whole { object.body().len() + 96 } else { 512 });
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(kind.as_bytes());
        line.extend_from_slice(b"\",\"object\":");
        if whole {
            typed_json(
                object.body(),
                &self.resource.kind,
                &self.resource.gv.api_version(),
                &mut line,
            );
        } else if let Ok(value) = serde_json::to_vec(&self.object_value(object, table_headers)) {
            line.extend_from_slice(&value);
        }
        line.extend_from_slice(b"}\n");
        Bytes::from(line)
    }

    pub fn list(&self, items: &[Arc<Object>], metadata: &Value) -> Bytes {
        if self.form.encoding == Encoding::Json && self.form.view == View::Whole && !self.converts() {
            return self.list_json(items, metadata);
        }
        let value = match self.form.view {
            View::Whole => {
                let items: Vec<Value> = items.iter().map(|object| self.item(object)).collect();
                json!({
                    "kind": self.resource.list_kind, "apiVersion": self.resource.gv.api_version(),
                    "metadata": metadata, "items": items,
                })
            }
            View::Metadata => {
                let items: Vec<Value> = items
                    .iter()
                    .map(|object| object.read(|value| self.partial_metadata(value)))
                    .collect();
                json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": format!("meta.k8s.io/{}", self.form.view_version()),
                    "metadata": metadata, "items": items,
                })
            }
            View::Table => {
                let items: Vec<Value> = items.iter().map(|object| self.whole(object)).collect();
                printing::table(self.resource, &items, Some(metadata), &self.table_options(true))
            }
        };
        self.encode(&value)
    }

    fn list_json(&self, items: &[Arc<Object>], metadata: &Value) -> Bytes {
        let size: usize = items.iter().map(|object| object.body().len() + 64).sum();
        let mut body = Vec::with_capacity(size + 256);
        let head = json!(metadata).to_string();
        typed_json(
            b"{}",
            &self.resource.list_kind,
            &self.resource.gv.api_version(),
            &mut body,
        );
        body.pop();
        body.extend_from_slice(b",\"metadata\":");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b",\"items\":[");
        let typed = self.resource.is_custom().then(|| self.resource.gv.api_version());
        for (index, object) in items.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            match &typed {
                Some(api_version) => typed_json(object.body(), &self.resource.kind, api_version, &mut body),
                None => body.extend_from_slice(object.body()),
            }
        }
        body.extend_from_slice(b"]}");
        Bytes::from(body)
    }

    /// The object as an item of a list: built-in kinds leave out what every item shares.
    fn item(&self, object: &Object) -> Value {
        let mut value = self.whole(object);
        if let Some(fields) = value.as_object_mut().filter(|_| !self.resource.is_custom()) {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        value
    }

    fn whole(&self, object: &Object) -> Value {
        let mut value = object.read(Value::clone);
        apply::unfold(&mut value);
        if self.converts() {
            event::core_to_events(&mut value);
        }
        if self.form.view != View::Whole {
            forget_public_metadata(self.resource, &mut value);
        }
        if let Some(fields) = value.as_object_mut() {
            fields.insert("kind".into(), self.resource.kind.as_str().into());
            fields.insert("apiVersion".into(), self.resource.gv.api_version().into());
        }
        value
    }

    fn partial_metadata(&self, value: &Value) -> Value {
        let mut partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{}", self.form.view_version()),
            "metadata": value.get("metadata").cloned().unwrap_or_else(|| json!({})),
        });
        apply::unfold(&mut partial);
        forget_public_metadata(self.resource, &mut partial);
        partial
    }

    /// Events are stored in their core form and shown in two.
    fn converts(&self) -> bool {
        self.resource.gv.group == "events.k8s.io" && self.resource.plural == "events"
    }

    fn table_options(&self, headers: bool) -> TableOptions<'static> {
        TableOptions {
            include: self.include,
            headers,
            version: self.form.view_version(),
            now: self.now,
        }
    }

    pub fn encode(&self, value: &Value) -> Bytes {
        encode(value, self.form.encoding)
    }
}

/// Writes a value that is not a stored object.
pub fn encode(value: &Value, encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Json => serde_json::to_vec(value).map(Bytes::from).unwrap_or_default(),
        Encoding::Yaml => serde_saphyr::to_string(value).map(Bytes::from).unwrap_or_default(),
    }
}

/// Views are made of upstream's internal objects, which do not have what only the public version puts into metadata.
fn forget_public_metadata(resource: &ResourceType, value: &mut Value) {
    if resource.kind != "DaemonSet" {
        return;
    }
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_servable_media_type_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(Form::negotiate(table, true).unwrap().view, View::Table);
        assert_eq!(Form::negotiate(table, false).unwrap().view, View::Whole);
        let proto = "application/vnd.kubernetes.protobuf,application/yaml";
        assert_eq!(Form::negotiate(proto, true).unwrap().encoding, Encoding::Yaml);
        assert_eq!(Form::negotiate("text/html", true).unwrap_err().code(), 406);
        assert_eq!(Form::negotiate("", true).unwrap().encoding, Encoding::Json);
    }
}
