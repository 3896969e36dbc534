//! Lists and watches: revisions, pages, selections.

use std::sync::Arc;

use afloat_apischema::field_error::{FieldError, Path, go_quote};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::hooks::Fault;
use crate::printing::IncludeObject;
use crate::request::{ListOptions, VersionMatch};
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, object_key};

use super::super::answer::Answer;
use super::super::field_selector::FieldSelector;
use super::super::watch::{Selection, Watch, WatchStart};
use super::Call;

/// Where a list goes on.
struct Continuation {
    revision: u64,
    start: String,
}

/// Reads a `resourceVersion`; empty is zero.
pub(super) fn parse_version(text: &str) -> ApiResult<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let quoted = go_quote(text);
        let why = format!("strconv.ParseUint: parsing {quoted}: invalid syntax");
        ApiError::invalid("", "", "", &[FieldError::invalid(&Path::new("resourceVersion"), text, why)])
    })
}

impl Call<'_> {
    fn selection(&self, options: &ListOptions) -> ApiResult<Selection> {
        let fields = FieldSelector::parse(&options.field_text, &self.resource).map_err(|why| {
            let gv = &self.resource.gv;
            ApiError::bad_request(format!(
                "Unable to find \"{}/{}, Resource={}\" that match label selector \"{}\", field selector \"{}\": {why}",
                gv.group, gv.version, self.resource.plural, options.label_text, options.field_text
            ))
        })?;
        Ok(Selection { namespace: self.path.namespace.clone(), labels: options.labels.clone(), fields })
    }

    pub(super) fn list(&mut self) -> ApiResult<Answer> {
        let options = ListOptions::read(self.query)?;
        options.validate(false)?;
        let selection = self.selection(&options)?;
        let (revision, start) = self.list_position(&options)?;
        let page = self.page(revision, &start, &selection, options.limit)?;
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), revision.to_string().into());
        if let Some(next) = page.next {
            metadata.insert("continue".into(), self.token(revision, &next).into());
            if selection.is_everything() && page.remaining > 0 {
                metadata.insert("remainingItemCount".into(), page.remaining.into());
            }
        }
        let metadata = Value::Object(metadata);
        Ok(Answer::List { resource: self.resource.clone(), items: page.items, metadata })
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
            let revision = if continuation.revision == 0 { current } else { continuation.revision };
            return Ok((revision, continuation.start));
        }
        let asked = parse_version(&options.resource_version)?;
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
            Fault::Stale(revisions) => current.saturating_sub(revisions).max(self.state.store.oldest(&self.table)),
            _ => current,
        };
        Ok((stale.max(asked), String::new()))
    }

    fn page(&self, revision: u64, start: &str, selection: &Selection, limit: i64) -> ApiResult<Page> {
        let store = &self.state.store;
        let prefix = if selection.namespace.is_empty() { String::new() } else { format!("{}/", selection.namespace) };
        let from = if start.is_empty() { prefix.clone() } else { start.to_owned() };
        if !store.changed_after(&self.table, revision) {
            if let (Some(name), true) = (selection.fields.exact_name(), !self.needs_scan()) {
                let found = store.get(&self.table, &object_key(&selection.namespace, name)).cloned();
                let items = found.into_iter().filter(|object| selection.matches(object)).collect();
                return Ok(Page { items, next: None, remaining: 0 });
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
        let start = start.strip_prefix(&format!("{}/", self.path.namespace)).unwrap_or(start);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{start}\u{0}")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn read_token(&self, token: &str) -> ApiResult<Continuation> {
        let invalid = || ApiError::bad_request("continue key is not valid: encoded start key does not look like a path");
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|_| ApiError::bad_request(format!("continue key is not valid: illegal base64 data at input byte {}", bad_byte(token))))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        if value["v"] != json!("meta.k8s.io/v1") {
            return Err(ApiError::bad_request("continue key is not valid: server does not recognize this encoded version \"\""));
        }
        let revision = value["rv"].as_i64().unwrap_or_default();
        let start = value["start"].as_str().filter(|start| !start.is_empty()).ok_or_else(invalid)?;
        let prefix = if self.path.namespace.is_empty() { String::new() } else { format!("{}/", self.path.namespace) };
        let revision = u64::try_from(revision).unwrap_or_default();
        Ok(Continuation { revision, start: format!("{prefix}{start}") })
    }

    pub(super) fn watch(&mut self) -> ApiResult<Answer> {
        let options = ListOptions::read(self.query)?;
        options.validate(true)?;
        let selection = self.selection(&options)?;
        let include = IncludeObject::parse(self.query.get("includeObject").unwrap_or_default());
        let asked = parse_version(&options.resource_version)?;
        let current = self.state.store.revision();
        if asked > current && options.send_initial_events.is_some() {
            return Err(ApiError::too_large_resource_version(asked, current));
        }
        // No revision, or 0: first what is there, then what changes.
        let with_initial = options.send_initial_events.unwrap_or(asked == 0);
        let initial = if with_initial { self.page(current, "", &selection, 0)?.items } else { Vec::new() };
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
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let mut objects = objects.take_while(|(key, _)| key.starts_with(prefix));
        let mut page = Self { items: Vec::new(), next: None, remaining: 0 };
        let mut last: Option<&Arc<str>> = None;
        for (key, object) in objects.by_ref() {
            if !selection.matches(object) {
                continue;
            }
            if page.items.len() == limit {
                page.next = last.map(|key| key.to_string());
                page.remaining = 1 + objects.filter(|(_, object)| selection.matches(object)).count();
                break;
            }
            page.items.push(object.clone());
            last = Some(key);
        }
        page
    }
}
