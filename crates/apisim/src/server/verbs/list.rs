//! Lists and watches: revisions, pages, selections.

use std::sync::Arc;

use afloat_apischema::decode;
use afloat_apischema::field_error::go_quote;
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use crate::hooks::Fault;
use crate::printing::IncludeObject;
use crate::request::{ListOptions, VersionMatch};
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, object_key};

use super::super::answer::Answer;
use super::super::field_selector::FieldSelector;
use super::super::present::View;
use super::super::watch::{Selection, Watch, WatchStart};
use super::Call;

/// Where a list goes on.
struct Continuation {
    revision: u64,
    start: String,
}

/// Reads a `resourceVersion`; empty is zero.
pub(super) fn parse_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let quoted = go_quote(text);
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: invalid syntax")
    })
}

/// Upstream's decoder does not mind leftover bits.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_encode_padding(false),
);

impl Call<'_> {
    fn selection(&self, options: &ListOptions) -> ApiResult<Selection> {
        let mut fields = FieldSelector::parse(&options.field_text, &self.resource).map_err(ApiError::bad_request)?;
        if !self.path.name.is_empty() {
            fields.require_name(&self.path.name);
        }
        Ok(Selection {
            namespace: self.path.namespace.clone(),
            labels: options.labels.clone(),
            fields,
        })
    }

    pub(super) fn list(&mut self) -> ApiResult<Answer> {
        let options = ListOptions::read(self.query)?;
        options.validate(false)?;
        let selection = self.selection(&options)?;
        let (revision, start) = self.list_position(&options)?;
        let mut page = self.page(revision, &start, &selection, options.limit)?;
        for object in &mut page.items {
            *object = self.state.in_version(&self.resource, object);
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), revision.to_string().into());
        if let Some(next) = page.next {
            metadata.insert("continue".into(), self.token(revision, &next).into());
            if selection.is_everything() && page.remaining > 0 {
                metadata.insert("remainingItemCount".into(), page.remaining.into());
            }
        }
        if self.resource.is_custom() && self.form.view == View::Whole {
            // Lists of custom resources always have the field.
            metadata.entry("continue").or_insert_with(|| "".into());
        }
        let metadata = Value::Object(metadata);
        Ok(Answer::List {
            resource: self.resource.clone(),
            items: page.items,
            metadata,
        })
    }

    /// The revision to list at and the key to start from.
    fn list_position(&self, options: &ListOptions) -> ApiResult<(u64, String)> {
        let current = self.state.store.revision();
        if !options.continue_token.is_empty() {
            if !options.resource_version.is_empty() && options.resource_version != "0" {
                let why = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(why));
            }
            let continuation = self.read_token(&options.continue_token)?;
            let revision = if continuation.revision == 0 {
                current
            } else {
                continuation.revision
            };
            return Ok((revision, continuation.start));
        }
        let asked = parse_version(&options.resource_version)
            .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))?;
        if asked > current {
            return Err(ApiError::too_large_resource_version(asked, current));
        }
        let exact = options.version_match == Some(VersionMatch::Exact);
        // With a limit, a revision means that very one (the form before `resourceVersionMatch`).
        let pinned = exact || (options.version_match.is_none() && options.limit > 0 && asked > 0);
        if pinned {
            return Ok((asked, String::new()));
        }
        let stale = match self.fault {
            Fault::Stale(revisions) => current
                .saturating_sub(revisions)
                .max(self.state.store.oldest(&self.table)),
            _ => current,
        };
        Ok((stale.max(asked), String::new()))
    }

    fn page(&self, revision: u64, start: &str, selection: &Selection, limit: i64) -> ApiResult<Page> {
        let store = &self.state.store;
        let prefix = if selection.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", selection.namespace)
        };
        let from = if start.is_empty() {
            prefix.clone()
        } else {
            start.to_owned()
        };
        if !store.changed_after(&self.table, revision) && store.remembers(&self.table, revision) {
            if let (Some(name), true) = (selection.fields.exact_name(), !self.needs_scan()) {
                let found = store.get(&self.table, &object_key(&selection.namespace, name)).cloned();
                let items = found.into_iter().filter(|object| selection.matches(object)).collect();
                return Ok(Page {
                    items,
                    next: None,
                    remaining: 0,
                });
            }
            // With a limit, how much is left is counted over all, as in a list of any other selection.
            if let Some(node) = selection.fields.exact_node()
                && limit <= 0
                && !self.resource.is_custom()
            {
                let on_node = store.on_node(&self.table, node);
                let objects = on_node.filter(|(key, _)| key.starts_with(&prefix) && ***key >= *from);
                return Ok(Page::take(objects, &prefix, selection, limit));
            }
            let objects = store.range_from(&self.table, &from);
            return Ok(Page::take(objects, &prefix, selection, limit));
        }
        let objects = store.at(&self.table, revision).ok_or_else(|| {
            let why = "The provided continue parameter is too old to display a consistent list result. You can start \
                       a new list without the continue parameter, or use the continue token in this response to \
                       retrieve the remainder of the results. Continuing with the provided token results in an \
                       inconsistent list - objects that were created, modified, or deleted between the time the \
                       first chunk was returned and now may show up in the list.";
            let start_over = "The resourceVersion for the provided list is too old.";
            ApiError::expired(if start.is_empty() { start_over } else { why })
        })?;
        let from: Arc<str> = Arc::from(from);
        Ok(Page::take(objects.range(from..), &prefix, selection, limit))
    }

    /// Whether an exact name cannot be turned into a key: a namespaced kind listed over all namespaces.
    fn needs_scan(&self) -> bool {
        self.resource.namespaced && self.path.namespace.is_empty()
    }

    fn token(&self, revision: u64, start: &str) -> String {
        let start = start
            .strip_prefix(&format!("{}/", self.path.namespace))
            .unwrap_or(start);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{start}\u{0}")});
        LENIENT.encode(token.to_string())
    }

    fn read_token(&self, token: &str) -> ApiResult<Continuation> {
        let invalid =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = LENIENT
            .decode(token)
            .map_err(|_| invalid(&format!("illegal base64 data at input byte {}", bad_byte(token))))?;
        let value = decode::parse(&bytes, decode::Format::Json)
            .map_err(|error| invalid(&error.0))?
            .value;
        let version = value["v"].as_str().unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(invalid(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let revision = value["rv"].as_i64().unwrap_or_default();
        let start = value["start"]
            .as_str()
            .filter(|start| !start.is_empty())
            .ok_or_else(|| invalid("encoded start key empty (version meta.k8s.io/v1)"))?;
        let prefix = if self.path.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", self.path.namespace)
        };
        let revision = u64::try_from(revision).unwrap_or_default();
        Ok(Continuation {
            revision,
            start: format!("{prefix}{start}"),
        })
    }

    pub(super) fn watch(&mut self) -> ApiResult<Answer> {
        let options = ListOptions::read(self.query)?;
        options.validate(true)?;
        let selection = self.selection(&options)?;
        let include = IncludeObject::parse(self.query.get("includeObject").unwrap_or_default());
        let asked = parse_version(&options.resource_version).map_err(ApiError::raw_internal)?;
        let current = self.state.store.revision();
        let from_the_future = asked > current && options.send_initial_events == Some(true);
        // No revision, or 0: first what is there, then what changes.
        let with_initial = options.send_initial_events.unwrap_or(asked == 0);
        let initial = if with_initial {
            self.page(current, "", &selection, 0)?.items
        } else {
            Vec::new()
        };
        let after = if with_initial || asked == 0 { current } else { asked };
        let start = WatchStart {
            table: self.table.clone(),
            resource: self.resource.clone(),
            selection,
            form: self.form,
            include: include.unwrap_or(IncludeObject::Metadata),
            bookmarks: options.bookmarks,
            after,
            initial,
            mark_initial_end: options.send_initial_events == Some(true) && options.bookmarks,
            error: from_the_future.then(|| ApiError::too_large_resource_version(asked, current)),
            timeout_seconds: options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()),
        };
        Ok(Answer::Watch(Box::new(Watch::open(self.server, self.state, start))))
    }
}

fn bad_byte(token: &str) -> usize {
    let bad = |byte: u8| !(byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    token.bytes().position(bad).unwrap_or(token.len())
}

struct Page {
    items: Vec<Arc<Object>>,
    /// The last key of this page, when there is more.
    next: Option<String>,
    remaining: usize,
}

impl Page {
    fn take<'k>(
        objects: impl Iterator<Item = (&'k Arc<str>, &'k Arc<Object>)>,
        prefix: &str,
        selection: &Selection,
        limit: i64,
    ) -> Self {
        let limit = usize::try_from(limit)
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX);
        let mut objects = objects.take_while(|(key, _)| key.starts_with(prefix));
        let mut page = Self {
            items: Vec::new(),
            next: None,
            remaining: 0,
        };
        for (key, object) in objects.by_ref() {
            if !selection.matches(object) {
                continue;
            }
            page.items.push(object.clone());
            if page.items.len() == limit {
                // Whether what is left matches is not looked at: the next page will tell, as etcd's pages do.
                page.remaining = objects.count();
                page.next = (page.remaining > 0).then(|| key.to_string());
                break;
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::gc::Collector;
    use crate::server::ReplyBody;
    use crate::store::TableKey;
    use crate::{ApiServer, Options};
    use serde_json::{Value, json};

    fn ask(server: &ApiServer, method: &str, path: &str, accept: &str, body: &Value) -> Value {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("accept", accept)
            .body(Bytes::from(body.to_string()));
        let reply = server.handle(request.unwrap());
        assert!(reply.status.is_success(), "{method} {path}");
        let ReplyBody::Full(body) = reply.body else {
            panic!("{path} is a stream")
        };
        serde_json::from_slice(&body).unwrap()
    }

    /// 5,000 nodes ask for their pods one after the other: if each left 150,000 trees behind, no machine could hold them.
    #[test]
    fn lists_by_selectors_and_collectors_leave_cold_objects_cold() {
        const PODS: usize = 700;
        let server = ApiServer::new(Options::default());
        let all = "/api/v1/namespaces/default/pods";
        for number in 0..PODS {
            let node = format!("w{}", number % 7);
            let pod = json!({
                "metadata": {"name": format!("p-{number:03}"), "labels": {"node": node}},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            });
            ask(&server, "POST", all, "application/json", &pod);
        }
        let cold = || {
            let table = TableKey {
                group: String::new(),
                plural: "pods".into(),
            };
            server.state().store.objects(&table).filter(|pod| pod.is_cold()).count()
        };
        let before = cold();
        assert!(before > 100, "{before}");
        let few = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        for (query, accept, expected) in [
            ("fieldSelector=spec.nodeName%3Dw3", "application/json", PODS / 7),
            ("fieldSelector=spec.nodeName%3Dw3&limit=5", "application/json", 5),
            (
                "fieldSelector=spec.nodeName%3Dw3,status.phase!%3DRunning",
                "application/json",
                PODS / 7,
            ),
            ("fieldSelector=spec.nodeName!%3Dw3", "application/json", PODS / 7 * 6),
            ("fieldSelector=spec.nodeName%3D", "application/json", 0),
            ("labelSelector=node%3Dw2", "application/json", PODS / 7),
            ("", few, PODS),
            ("", table, PODS),
        ] {
            let list = ask(&server, "GET", &format!("{all}?{query}"), accept, &Value::Null);
            let items = list.get("items").or_else(|| list.get("rows")).and_then(Value::as_array);
            assert_eq!(items.map(Vec::len), Some(expected), "{query}");
        }
        Collector::new(server.clone()).settle(3);
        assert_eq!(cold(), before);
    }
}
