//! Refusals: every way in which a request can fail, as the `Status` that the real server answers with. Texts and
//! reasons are part of the API that clients match on, so they are made here and nowhere else.

use afloat_apischema::field_error::{FieldError, invalid_message};
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::resource::ResourceType;

/// A `Status` with its code; boxed since refusals are rare and results are moved often.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(Box<Refusal>);

#[derive(Clone, Debug, PartialEq)]
struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// Unknown paths are answered by the mux, in plain text.
    plain: bool,
}

pub type ApiResult<T> = Result<T, ApiError>;

/// Who a refusal is about: name, group, and plural or kind.
fn details(name: &str, group: &str, kind: &str) -> Map<String, Value> {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    details
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Option<Map<String, Value>>) -> Self {
        let details = details.map(Value::Object);
        Self(Box::new(Refusal {
            code,
            reason,
            message: message.into(),
            details,
            plain: false,
        }))
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The text of an answer that is not a `Status`.
    pub fn plain_text(&self) -> Option<&str> {
        self.0.plain.then_some(self.0.message.as_str())
    }

    /// The `Retry-After` header that goes with the answer.
    pub fn retry_after(&self) -> Option<u64> {
        self.0.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    pub fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.0.code,
        });
        if !self.0.message.is_empty() {
            status["message"] = self.0.message.as_str().into();
        }
        if !self.0.reason.is_empty() {
            status["reason"] = self.0.reason.into();
        }
        if let Some(details) = &self.0.details {
            status["details"] = details.clone();
        }
        status
    }

    pub fn not_found(resource: &ResourceType, name: &str) -> Self {
        Self::not_found_named(&resource.gv.group, &resource.plural, name)
    }

    pub fn not_found_named(group: &str, plural: &str, name: &str) -> Self {
        let qualified = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        let message = format!("{qualified} \"{name}\" not found");
        Self::new(404, "NotFound", message, Some(details(name, group, plural)))
    }

    /// A path below a served group version that names no resource.
    pub fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
            Some(Map::new()),
        )
    }

    /// A path that nothing is registered for.
    pub fn no_such_path() -> Self {
        let mut error = Self::new(404, "", "404 page not found\n", None);
        error.0.plain = true;
        error
    }

    pub fn already_exists(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_plural());
        Self::new(
            409,
            "AlreadyExists",
            message,
            Some(details(name, &resource.gv.group, &resource.plural)),
        )
    }

    pub fn being_deleted(resource: &ResourceType, name: &str) -> Self {
        let mut error = Self::already_exists(resource, name);
        error.0.message = format!("object is being deleted: {}", error.0.message);
        error
    }

    pub fn generate_name_exhausted(resource: &ResourceType, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            resource.qualified_plural()
        );
        let mut about = details(name, &resource.gv.group, &resource.plural);
        about.insert("retryAfterSeconds".into(), 1.into());
        Self::new(409, "AlreadyExists", message, Some(about))
    }

    /// A precondition of a deletion that does not hold; upstream names the kind here, not the plural.
    pub fn precondition(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified_kind()
        );
        Self::new(
            409,
            "Conflict",
            message,
            Some(details(name, &resource.gv.group, &resource.kind)),
        )
    }

    pub fn conflict(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified_plural()
        );
        Self::new(
            409,
            "Conflict",
            message,
            Some(details(name, &resource.gv.group, &resource.plural)),
        )
    }

    pub fn modified(resource: &ResourceType, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// Field ownership conflicts of a server-side apply; `causes` are `(message, field)` pairs.
    pub fn apply_conflict(message: String, causes: Vec<(String, String)>) -> Self {
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
            .collect();
        let mut about = Map::new();
        about.insert("causes".into(), causes.into());
        Self::new(409, "Conflict", message, Some(about))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, None)
    }

    pub fn forbidden(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_plural());
        Self::new(
            403,
            "Forbidden",
            message,
            Some(details(name, &resource.gv.group, &resource.plural)),
        )
    }

    /// Content cannot be added to a namespace that is going away.
    pub fn namespace_terminating(resource: &ResourceType, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = Self::forbidden(resource, name, &why);
        if let Some(about) = error.0.details.as_mut().and_then(Value::as_object_mut) {
            let message = format!("namespace {namespace} is being terminated");
            let cause = json!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
            about.insert("causes".into(), json!([cause]));
        }
        error
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", None)
    }

    /// Validation failed: every finding at once.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let message = invalid_message(group, kind, name, errors);
        let mut about = details(name, group, kind);
        if !errors.is_empty() {
            about.insert(
                "causes".into(),
                errors.iter().map(FieldError::cause).collect::<Vec<_>>().into(),
            );
        }
        Self::new(422, "Invalid", message, Some(about))
    }

    /// The router of built-in kinds knows no such method here.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, Some(Map::new()))
    }

    /// The handler of custom resources says which verb it does not know.
    pub fn verb_not_supported(resource: &ResourceType, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind \"{}\"",
            resource.qualified_plural()
        );
        let about = details("", &resource.gv.group, &resource.plural);
        Self::new(405, "MethodNotAllowed", message, Some(about))
    }

    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(406, "NotAcceptable", message, None)
    }

    /// The router's answer to an `Accept` header that it cannot serve.
    pub fn not_acceptable_by_router(accepted: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {accepted}");
        Self::new(406, "NotAcceptable", message, Some(Map::new()))
    }

    pub fn not_acceptable_text(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message, None)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message, None)
    }

    /// The router's answer to a content type that no patch has.
    pub fn unsupported_by_router() -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
            Some(Map::new()),
        )
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message, None)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, None)
    }

    /// Something the server itself got wrong.
    pub fn internal(message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut about = Map::new();
        about.insert("causes".into(), json!([{"message": message}]));
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
            Some(about),
        )
    }

    /// An error that reached the handler without an API form.
    pub fn raw_internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message, None)
    }

    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let about = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        Self::new(504, "Timeout", message, about.as_object().cloned())
    }

    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message, Some(Map::new()))
    }

    /// An eviction that a budget does not allow now.
    pub fn disruption_budget(message: &str, cause: &str, retry_after: u64) -> Self {
        let mut about = Map::new();
        about.insert(
            "causes".into(),
            json!([{"reason": "DisruptionBudget", "message": cause}]),
        );
        if retry_after > 0 {
            about.insert("retryAfterSeconds".into(), retry_after.into());
        }
        Self::new(429, "TooManyRequests", message, Some(about))
    }

    /// A budget whose own state forbids evictions.
    pub fn budget_forbidden(name: &str, why: &str) -> Self {
        let message = format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}");
        Self::new(
            403,
            "Forbidden",
            message,
            Some(details(name, "policy", "poddisruptionbudget")),
        )
    }

    /// A conflict on something that is not named by its plural (`Pod`, `pods/binding`).
    pub fn conflict_named(kind: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        Self::new(409, "Conflict", message, Some(details(name, "", kind)))
    }

    /// A failure put in by the simulator.
    pub fn injected(code: u16) -> Self {
        let (reason, message) = match code {
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            ),
            429 => ("TooManyRequests", "too many requests, please try again later"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => ("Timeout", "the request timed out"),
            _ => (
                "InternalError",
                "an error on the server prevented the request from succeeding",
            ),
        };
        Self::new(code, reason, message, None)
    }
}
