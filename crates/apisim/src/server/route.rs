//! From HTTP to a verb: paths outside the resources, then resource, subresource and method, then the verb itself.

use std::sync::Arc;
use std::time::Duration;

use afloat_apischema::builtin;
use afloat_apischema::field_error::go_quote;
use afloat_apischema::structural::names;
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use serde_json::Value;

use crate::discovery;
use crate::hooks::{Fault, RequestInfo};
use crate::openapi;
use crate::printing::{self, TableOptions};
use crate::request::{Query, ResourcePath, Verb};
use crate::resource::{GroupVersion, ResourceType};
use crate::status::{ApiError, ApiResult};

use super::answer::{Answer, Reply, ReplyBody};
use super::present::{self, Encoding, Form, Presenter, View};
use super::verbs::Call;
use super::{ApiServer, State};

/// The largest request body that the real server reads.
pub const REQUEST_LIMIT: usize = 3 * 1024 * 1024;

impl ApiServer {
    /// Carries out one request.
    pub fn handle(&self, request: Request<Bytes>) -> Reply {
        let (parts, body) = request.into_parts();
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let accept = header(ACCEPT).to_owned();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = parts.uri.path();
        let incoming = Incoming {
            method: parts.method.clone(),
            accept,
            content_type: header(CONTENT_TYPE).to_owned(),
            user_agent: header(USER_AGENT).to_owned(),
            query,
            body,
        };
        match ResourcePath::parse(path).filter(|path| !path.plural.is_empty()) {
            Some(path) => self.resource_request(&path, &incoming),
            None => self.plain_request(path, &incoming),
        }
    }

    fn resource_request(&self, path: &ResourcePath, incoming: &Incoming) -> Reply {
        let encoding = Form::negotiate(&incoming.accept, true)
            .map(|form| form.encoding)
            .unwrap_or_default();
        let mut warnings = Vec::new();
        let mut latency = Duration::ZERO;
        let answer = self.carry_out(path, incoming, &mut warnings, &mut latency);
        let mut reply = answer.unwrap_or_else(|error| Reply::refused(&error, encoding));
        reply.warn(&warnings);
        reply.latency = latency;
        reply
    }

    fn carry_out(
        &self,
        path: &ResourcePath,
        incoming: &Incoming,
        warnings: &mut Vec<String>,
        latency: &mut Duration,
    ) -> ApiResult<Reply> {
        let mut state = self.state();
        let state = &mut *state;
        let resource = find_resource(state, path)?;
        let verb = if path.watch {
            Some(Verb::Watch).filter(|_| incoming.method == http::Method::GET)
        } else {
            Verb::of(&incoming.method, !path.name.is_empty(), incoming.query.flag("watch"))
        };
        let verb = verb.ok_or_else(ApiError::method_not_allowed)?;
        check_verb(&resource, path, verb)?;
        check_name(&path.name)?;
        let info = RequestInfo {
            verb,
            resource: &resource,
            namespace: &path.namespace,
            name: &path.name,
            subresource: &path.subresource,
            user_agent: &incoming.user_agent,
        };
        let fault = state
            .faults
            .as_ref()
            .map_or(Fault::None, |faults| faults.on_request(&info));
        *latency = state
            .faults
            .as_ref()
            .map_or(Duration::ZERO, |faults| faults.latency(&info));
        if let Fault::Refuse(code) = fault {
            return Err(ApiError::injected(code));
        }
        let form = Form::negotiate(&incoming.accept, true)
            .map_err(|error| refuse_accept(error, &incoming.accept, &resource))?;
        check_timeout(incoming.query.get("timeout").unwrap_or_default())?;
        let now = self.now();
        // A shape that cannot be given is refused before anything is done, not after.
        Presenter::new(form, &incoming.query, now, &resource)?;
        if matches!(verb, Verb::Get | Verb::List) && path.subresource.is_empty() {
            form.check_plural(verb == Verb::List, &resource)?;
        }
        let mut call = Call::new(self, state, resource.clone(), path, incoming, form, fault, now);
        let answer = call.run(verb);
        warnings.append(&mut call.warnings);
        let answer = answer?;
        if let Fault::LoseReply(code) = fault {
            return Err(ApiError::injected(code));
        }
        reply_of(answer, form, &incoming.query, now)
    }

    /// Everything that is not a resource: discovery, OpenAPI, health, version.
    fn plain_request(&self, path: &str, incoming: &Incoming) -> Reply {
        let encoding = Form::negotiate(&incoming.accept, false)
            .map(|form| form.encoding)
            .unwrap_or_default();
        if incoming.method != http::Method::GET && incoming.method != http::Method::HEAD {
            return Reply::refused(&ApiError::method_not_allowed(), encoding);
        }
        let path = path.trim_end_matches('/');
        if let Some(reply) = health(path, &incoming.query) {
            return reply;
        }
        if path == "/openapi/v2" && incoming.accept.contains("proto-openapi") {
            return Reply::full(200, openapi::V2_PROTOBUF, openapi::empty_v2_protobuf());
        }
        let mut state = self.state();
        if let Some(reply) = aggregated(&mut state, path, &incoming.accept) {
            return reply;
        }
        match self.document(&mut state, path) {
            // The index of the documents is JSON, and said to be text.
            Some(body) if path == "/openapi/v3" => Reply::full(200, "text/plain; charset=utf-8", body),
            Some(body) if encoding == Encoding::Json => Reply::full(200, "application/json", body),
            Some(body) => {
                let value: Value = serde_json::from_slice(&body).unwrap_or_default();
                Reply::value(200, &value, encoding)
            }
            None => {
                let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
                let error = match parts.as_slice() {
                    ["api", _] => unknown_below(""),
                    ["apis", group, _] => unknown_below(group),
                    _ => ApiError::no_such_path(),
                };
                Reply::refused(&error, encoding)
            }
        }
    }

    /// A document made from the registry, kept until that changes.
    fn document(&self, state: &mut State, path: &str) -> Option<Bytes> {
        let generation = state.registry.generation();
        if let Some((made_for, body)) = state.documents.get(path)
            && *made_for == generation
        {
            return Some(body.clone());
        }
        let registry = &state.registry;
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let value = match parts.as_slice() {
            [] => discovery::root_paths(registry),
            ["api"] => discovery::core_versions("127.0.0.1:6443"),
            ["apis"] => discovery::group_list(registry),
            ["api", version] => discovery::resource_list(registry, &GroupVersion::new("", *version))?,
            ["apis", group] => discovery::group(registry, group)?,
            ["apis", group, version] => discovery::resource_list(registry, &GroupVersion::new(*group, *version))?,
            ["version"] => discovery::version_info(self.git_version()),
            ["openapi", "v2"] => openapi::empty_v2(),
            ["openapi", "v3"] => openapi::index(registry),
            ["openapi", "v3", "api", version] => openapi::document(registry, &GroupVersion::new("", *version))?,
            ["openapi", "v3", "apis", group, version] => {
                openapi::document(registry, &GroupVersion::new(*group, *version))?
            }
            _ => return None,
        };
        let body = Bytes::from(value.to_string());
        state.documents.insert(path.to_owned(), (generation, body.clone()));
        Some(body)
    }
}

/// The parts of an HTTP request that matter.
pub(crate) struct Incoming {
    pub method: http::Method,
    pub accept: String,
    pub content_type: String,
    pub user_agent: String,
    pub query: Query,
    pub body: Bytes,
}

fn health(path: &str, query: &Query) -> Option<Reply> {
    let endpoint = path
        .strip_prefix('/')
        .filter(|name| matches!(*name, "healthz" | "livez" | "readyz"))?;
    Some(Reply::full(
        200,
        "text/plain; charset=utf-8",
        discovery::health(endpoint, query.flag("verbose")),
    ))
}

fn find_resource(state: &State, path: &ResourcePath) -> ApiResult<Arc<ResourceType>> {
    let gv = path.gv();
    if let Some(resource) = state.registry.find(&gv, &path.plural) {
        let scoped = resource.namespaced || path.namespace.is_empty();
        return match scoped {
            true => Ok(resource.clone()),
            false if resource.is_custom() => Err(ApiError::no_such_path()),
            false => Err(ApiError::no_such_resource()),
        };
    }
    Err(unknown_below(&gv.group))
}

/// The router of built-in kinds looks at media types only; forms of one that do not exist are refused behind it.
fn refuse_accept(error: ApiError, accept: &str, resource: &ResourceType) -> ApiError {
    let mut types = accept
        .split(',')
        .map(|clause| clause.split(';').next().unwrap_or_default().trim());
    let routed = types.any(|media| media == "*/*" || present::ACCEPTED.split(", ").any(|known| known == media));
    if routed || resource.is_custom() {
        error
    } else {
        ApiError::not_acceptable_by_router(present::ACCEPTED)
    }
}

/// The router knows the groups of built-in kinds; what lies in no group that it knows is nobody's.
fn unknown_below(group: &str) -> ApiError {
    let known = builtin::kinds().iter().any(|kind| kind.group == group);
    if known {
        ApiError::no_such_resource()
    } else {
        ApiError::no_such_path()
    }
}

/// `timeout` is a duration as Go writes one; nothing here takes that long, but a bad one is refused.
fn check_timeout(text: &str) -> ApiResult<()> {
    let mut rest = text;
    while !rest.is_empty() && rest != "0" {
        let digits = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .find(|unit| digits.starts_with(unit));
        let Some(unit) = unit.filter(|_| digits.len() < rest.len()) else {
            let why = format!("time: invalid duration {}", go_quote(text));
            return Err(ApiError::bad_request(format!(
                "invalid timeout specified in the request URL - {why}"
            )));
        };
        rest = &digits[unit.len()..];
    }
    Ok(())
}

fn check_verb(resource: &ResourceType, path: &ResourcePath, verb: Verb) -> ApiResult<()> {
    let refused = || {
        if resource.is_custom() {
            ApiError::verb_not_supported(resource, verb.name())
        } else {
            ApiError::method_not_allowed()
        }
    };
    // Objects of namespaced kinds are found within a namespace only.
    if resource.namespaced && path.namespace.is_empty() && !path.name.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    if !path.subresource.is_empty() {
        let subresource = resource.subresource(&path.subresource).filter(|_| path.rest.is_empty());
        let subresource = subresource.ok_or_else(|| {
            if resource.is_custom() {
                ApiError::not_found(resource, &path.name)
            } else {
                ApiError::no_such_resource()
            }
        })?;
        let known = subresource.verbs.iter().any(|known| known == verb.name());
        return if known { Ok(()) } else { Err(refused()) };
    }
    let allowed = resource.verbs.iter().any(|known| known == verb.name());
    // A collection of namespaced objects can be written to within a namespace only.
    let placed = !resource.namespaced || !path.namespace.is_empty() || matches!(verb, Verb::List | Verb::Watch);
    // Objects are created in their collection, everything else is done to one of them.
    let on_right_level = match verb {
        Verb::Create => path.name.is_empty(),
        Verb::Update | Verb::Patch => !path.name.is_empty(),
        _ => true,
    };
    if allowed && placed && on_right_level {
        Ok(())
    } else {
        Err(refused())
    }
}

/// Names that could be mistaken for a part of a path.
fn check_name(name: &str) -> ApiResult<()> {
    let complaints = names::path_segment(name, false);
    if name.is_empty() || complaints.is_empty() {
        return Ok(());
    }
    let (name, complaints) = (go_quote(name), complaints.join(";"));
    Err(ApiError::bad_request(format!(
        "Name parameter invalid: {name}: {complaints}"
    )))
}

fn reply_of(answer: Answer, form: Form, query: &Query, now: jiff::Timestamp) -> ApiResult<Reply> {
    Ok(match answer {
        Answer::Object { code, resource, object } => {
            let presenter = Presenter::new(form, query, now, &resource)?;
            Reply::full(code, form.content_type(), presenter.object(&object))
        }
        Answer::List {
            resource,
            items,
            metadata,
        } => {
            let presenter = Presenter::new(form, query, now, &resource)?;
            Reply::full(200, form.content_type(), presenter.list(&items, &metadata))
        }
        Answer::Value { code, value } if form.view == View::Table && value["kind"] == "Scale" => {
            let include = present::included(query, form)?;
            let options = TableOptions {
                include,
                headers: true,
                version: "v1",
                now,
            };
            Reply::value(code, &printing::scale_table(&value, &options), form.encoding)
        }
        Answer::Value { code, value } => Reply::value(code, &value, form.encoding),
        Answer::Nothing => {
            let mut reply = Reply::full(204, "text/plain", Bytes::new());
            reply.headers.remove(CONTENT_TYPE);
            reply
        }
        Answer::Text {
            code,
            content_type,
            text,
        } => Reply::full(code, content_type, text),
        Answer::Watch(watch) => Reply::new(200, "application/json", ReplyBody::Watch(watch)),
    })
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Discovery in one piece, for clients that ask for it.
fn aggregated(state: &mut State, path: &str, accept: &str) -> Option<Reply> {
    let asked = accept.split(',').any(|clause| {
        let has = |wanted: &str| clause.split(';').any(|part| part.trim() == wanted);
        has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    });
    if !asked || !matches!(path, "/api" | "/apis") {
        return None;
    }
    let (generation, kept_as) = (state.registry.generation(), format!("aggregated {path}"));
    let kept = state
        .documents
        .get(&kept_as)
        .filter(|(made_for, _)| *made_for == generation);
    if let Some((_, body)) = kept {
        return Some(Reply::full(200, AGGREGATED, body.clone()));
    }
    let value = if path == "/api" {
        discovery::aggregated_core(&state.registry)
    } else {
        discovery::aggregated_groups(&state.registry)
    };
    let body = Bytes::from(value.to_string());
    state.documents.insert(kept_as, (generation, body.clone()));
    Some(Reply::full(200, AGGREGATED, body))
}
