//! Watches: a cursor into the history of one table. Polling gives the next lines; nothing here waits by itself, so a
//! watch runs under tokio, under paused time and in a plain loop alike.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::printing::IncludeObject;
use crate::request::LabelSelector;
use crate::resource::ResourceType;
use crate::status::ApiError;
use crate::store::{Change, ChangeKind, Object, TableKey};

use super::field_selector::FieldSelector;
use super::present::{Form, Presenter, View};
use super::{ApiServer, State};

/// What a watch or list selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub namespace: String,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || object.namespace() == self.namespace)
            && (self.labels.is_everything()
                || object.read(|value| {
                    self.labels
                        .matches(value.get("metadata").and_then(|meta| meta.get("labels")))
                }))
            && self.fields.matches(object)
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

/// An open watch.
pub struct Watch {
    server: ApiServer,
    table: TableKey,
    resource: Arc<ResourceType>,
    selection: Selection,
    form: Form,
    include: IncludeObject,
    bookmarks: bool,
    /// Everything up to this revision has been sent.
    seen: u64,
    epoch: u64,
    ready: VecDeque<Bytes>,
    headers_sent: bool,
    ended: bool,
    /// Seconds after which the client wants the stream closed.
    timeout_seconds: Option<u64>,
}

pub(crate) struct WatchStart {
    pub table: TableKey,
    pub resource: Arc<ResourceType>,
    pub selection: Selection,
    pub form: Form,
    pub include: IncludeObject,
    pub bookmarks: bool,
    pub after: u64,
    pub initial: Vec<Arc<Object>>,
    /// Ends the initial events with a bookmark that says so.
    pub mark_initial_end: bool,
    /// The stream says so, and ends.
    pub error: Option<ApiError>,
    pub timeout_seconds: Option<u64>,
}

impl Watch {
    pub(crate) fn open(server: &ApiServer, state: &State, start: WatchStart) -> Self {
        let mut watch = Self {
            server: server.clone(),
            table: start.table,
            resource: start.resource,
            selection: start.selection,
            form: start.form,
            include: start.include,
            bookmarks: start.bookmarks,
            seen: start.after,
            epoch: state.watch_epoch,
            ready: VecDeque::new(),
            headers_sent: false,
            ended: false,
            timeout_seconds: start.timeout_seconds,
        };
        if let Some(error) = &start.error {
            watch.ready.push_back(error_line(error));
            watch.ended = true;
            return watch;
        }
        for object in &start.initial {
            let line = watch.line("ADDED", object);
            watch.ready.push_back(line);
        }
        if start.mark_initial_end {
            let line = watch.bookmark_line(true);
            watch.ready.push_back(line);
        }
        watch
    }

    pub fn timeout_seconds(&self) -> Option<u64> {
        self.timeout_seconds
    }

    /// The next line, or the end of the stream, or nothing yet: then the waker is called at the next change.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(line) = self.ready.pop_front() {
            return Poll::Ready(Some(line));
        }
        let server = self.server.clone();
        let mut state = server.state();
        self.collect(&state);
        if let Some(line) = self.ready.pop_front() {
            return Poll::Ready(Some(line));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        state.store.wake_on_change(&self.table, context.waker());
        Poll::Pending
    }

    /// All lines that are there now, for callers that do not wait.
    pub fn take_ready(&mut self) -> Vec<Bytes> {
        let server = self.server.clone();
        self.collect(&server.state());
        self.ready.drain(..).collect()
    }

    /// Whether the stream has ended.
    pub fn has_ended(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// Adds a bookmark at the latest revision, where the client wants them. Whoever carries the stream decides how
    /// often; upstream's period is a minute.
    pub fn bookmark(&mut self) {
        if self.bookmarks && !self.ended {
            let server = self.server.clone();
            let state = server.state();
            self.collect(&state);
            self.seen = self.seen.max(state.store.revision());
            drop(state);
            let line = self.bookmark_line(false);
            self.ready.push_back(line);
        }
    }

    fn collect(&mut self, state: &State) {
        if self.ended {
            return;
        }
        if self.epoch != state.watch_epoch {
            self.ended = true;
            return;
        }
        if !state.store.remembers(&self.table, self.seen) {
            let oldest = state.store.oldest(&self.table);
            let error = ApiError::expired(format!("too old resource version: {} ({oldest})", self.seen));
            self.ready.push_back(error_line(&error));
            self.ended = true;
            return;
        }
        let changes: Vec<Change> = state.store.changes_after(&self.table, self.seen).cloned().collect();
        for change in &changes {
            self.seen = change.revision;
            if let Some((kind, object)) = self.seen_as(change) {
                let object = state.in_version(&self.resource, &object);
                let line = self.line(kind, &object);
                self.ready.push_back(line);
            }
        }
    }

    /// A change as this watch's selection sees it: objects come into and go out of sight.
    fn seen_as(&self, change: &Change) -> Option<(&'static str, Arc<Object>)> {
        let before = change
            .previous
            .as_ref()
            .filter(|previous| self.selection.matches(previous));
        let now = change.kind != ChangeKind::Deleted && self.selection.matches(&change.object);
        match (before, now) {
            (None, false) => None,
            (None, true) => Some(("ADDED", change.object.clone())),
            (Some(_), true) => Some(("MODIFIED", change.object.clone())),
            (Some(_), false) if change.kind == ChangeKind::Deleted => Some(("DELETED", change.object.clone())),
            (Some(previous), false) => Some(("DELETED", previous.at_revision(change.revision))),
        }
    }

    fn presenter(&self) -> Presenter<'_> {
        Presenter {
            form: self.form,
            include: self.include,
            now: self.server.now(),
            resource: &self.resource,
        }
    }

    fn line(&mut self, kind: &str, object: &Object) -> Bytes {
        let line = self.presenter().event(kind, object, !self.headers_sent);
        self.headers_sent = true;
        line
    }

    fn bookmark_line(&mut self, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.seen.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = Object::new(json!({"metadata": metadata}), self.seen);
        if self.form.view == View::Table {
            return self.line("BOOKMARK", &object);
        }
        let kind = if self.form.view == View::Metadata {
            "PartialObjectMetadata"
        } else {
            &self.resource.kind
        };
        let version = match self.form.view {
            View::Metadata => "meta.k8s.io/v1".to_owned(),
            _ => self.resource.gv.api_version(),
        };
        let event = json!({
            "type": "BOOKMARK", "object": {"kind": kind, "apiVersion": version, "metadata": metadata},
        });
        line_of(&event)
    }
}

fn error_line(error: &ApiError) -> Bytes {
    line_of(&json!({"type": "ERROR", "object": error.body()}))
}

fn line_of(event: &Value) -> Bytes {
    let mut line = event.to_string().into_bytes();
    line.push(b'\n');
    Bytes::from(line)
}
