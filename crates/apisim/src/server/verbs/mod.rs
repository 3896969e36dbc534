//! What each verb does. A [`Call`] is one request with everything it may touch; its verbs are spread over the files
//! of this folder.

mod body;
mod create;
mod delete;
mod eviction;
mod list;
mod patch;
mod pods;
mod reviews;
mod scale;
mod update;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use crate::clock::rfc3339_seconds;
use crate::hooks::Fault;
use crate::request::{Query, ResourcePath, Verb};
use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, TableKey, object_key};

use super::answer::Answer;
use super::present::Form;
use super::route::Incoming;
use super::rules::Rules;
use super::{ApiServer, State};

/// One request on one resource.
pub(crate) struct Call<'a> {
    server: &'a ApiServer,
    state: &'a mut State,
    resource: Arc<ResourceType>,
    rules: Rules,
    table: TableKey,
    path: &'a ResourcePath,
    query: &'a Query,
    body: &'a Bytes,
    content_type: &'a str,
    user_agent: &'a str,
    form: Form,
    fault: Fault,
    now: Timestamp,
    pub warnings: Vec<String>,
}

impl<'a> Call<'a> {
    #[expect(
        clippy::too_many_arguments,
        reason = "a request has this many parts, and they are named at the one call"
    )]
    pub fn new(
        server: &'a ApiServer,
        state: &'a mut State,
        resource: Arc<ResourceType>,
        path: &'a ResourcePath,
        incoming: &'a Incoming,
        form: Form,
        fault: Fault,
        now: Timestamp,
    ) -> Self {
        let rules = state.rules_of(&resource);
        let table = State::table_of(&resource);
        let deprecation = resource.custom().and_then(|custom| custom.deprecation_warning.clone());
        Self {
            server,
            state,
            rules,
            table,
            path,
            query: &incoming.query,
            body: &incoming.body,
            content_type: &incoming.content_type,
            user_agent: &incoming.user_agent,
            form,
            fault,
            now,
            warnings: deprecation.into_iter().collect(),
            resource,
        }
    }

    pub fn run(&mut self, verb: Verb) -> ApiResult<Answer> {
        if let Some(answer) = self.special(verb) {
            return answer;
        }
        match verb {
            Verb::Get => self.get(),
            Verb::List => self.list(),
            Verb::Watch => self.watch(),
            Verb::Create => self.create(),
            Verb::Update => self.update(),
            Verb::Patch => self.patch(),
            Verb::Delete => self.delete(),
            Verb::DeleteCollection => self.delete_collection(),
        }
    }

    /// Endpoints that are not plain objects.
    fn special(&mut self, verb: Verb) -> Option<ApiResult<Answer>> {
        let plural = self.resource.plural.as_str();
        match (plural, self.path.subresource.as_str(), verb) {
            (_, "scale", Verb::Get) => Some(self.get_scale()),
            (_, "scale", Verb::Update | Verb::Patch) => Some(self.write_scale(verb)),
            ("pods", "eviction", Verb::Create) => Some(self.evict()),
            ("pods", "binding", Verb::Create) | ("bindings", "", Verb::Create) => Some(self.bind()),
            ("pods", "log", Verb::Get) => Some(self.pod_log()),
            (_, "", Verb::Create) if reviews::is_review(&self.resource) => Some(self.review()),
            (_, "" | "status" | "finalize" | "ephemeralcontainers" | "resize" | "approval", _) => None,
            _ => Some(Err(ApiError::method_not_allowed())),
        }
    }

    fn get(&mut self) -> ApiResult<Answer> {
        let object = self.read_current_or_stale()?;
        Ok(Answer::Object {
            code: 200,
            resource: self.resource.clone(),
            object,
        })
    }

    fn read_current_or_stale(&self) -> ApiResult<Arc<Object>> {
        self.check_get_version()?;
        let Fault::Stale(revisions) = self.fault else {
            return self.existing(&self.path.name);
        };
        let then = self
            .state
            .store
            .revision()
            .saturating_sub(revisions)
            .max(self.state.store.oldest(&self.table));
        let objects = self.state.store.at(&self.table, then).unwrap_or_default();
        let found = objects.get(&object_key(&self.path.namespace, &self.path.name)).cloned();
        found.ok_or_else(|| ApiError::not_found(&self.resource, &self.path.name))
    }

    /// A read "not older than" a revision that does not exist yet times out on the real server.
    fn check_get_version(&self) -> ApiResult<()> {
        let text = self.query.get("resourceVersion").unwrap_or_default();
        let asked = list::parse_version(text).map_err(ApiError::raw_internal)?;
        let current = self.state.store.revision();
        if asked > current {
            Err(ApiError::too_large_resource_version(asked, current))
        } else {
            Ok(())
        }
    }

    fn lookup(&self, name: &str) -> Option<&Arc<Object>> {
        let store = &self.state.store;
        if self.path.namespace.is_empty() {
            return store.get(&self.table, name);
        }
        store.get(&self.table, &object_key(&self.path.namespace, name))
    }

    fn existing(&self, name: &str) -> ApiResult<Arc<Object>> {
        let found = self
            .lookup(name)
            .ok_or_else(|| ApiError::not_found(&self.resource, name))?;
        Ok(self.state.in_version(&self.resource, found))
    }

    fn timestamp(&self) -> String {
        rfc3339_seconds(self.now)
    }
}
