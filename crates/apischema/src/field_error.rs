//! What is wrong with one field of an object, in the words of the API server, and how several such findings become the
//! one message and the list of causes of a `422 Invalid` answer. Only the form lives here; the rules that find
//! something wrong live in the modules that know them.

mod go_text;

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write as _};

use serde_json::{Value, json};

pub use go_text::{go_float, go_json, go_number, go_print, go_quote, go_value};

/// Why a field is wrong; the names are those of `StatusCause.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    TooShort,
    TypeInvalid,
    Internal,
}

impl ErrorKind {
    /// The `reason` of the status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    /// The words that open the message.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

/// Where a field is: `spec.containers[0].env[NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    pub fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    /// The place before any field; its children are written without a leading dot.
    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            // Validation makes many paths and shows hardly any: plain copies are the cheap way.
            let mut path = String::with_capacity(self.0.len() + 1 + name.len());
            path.push_str(&self.0);
            path.push('.');
            path.push_str(name);
            Self(path)
        }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

/// One finding about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: ErrorKind,
    pub path: String,
    /// The value as it is printed; `None` prints none.
    pub bad_value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    pub fn new(kind: ErrorKind, path: &Path, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        // A place before any field is no place at all, which Go prints so.
        let place = if path.0.is_empty() {
            "<nil>".to_owned()
        } else {
            path.0.clone()
        };
        Self {
            kind,
            path: place,
            bad_value,
            detail: detail.into(),
        }
    }

    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, Some(value.into()), detail)
    }

    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, None, detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, None, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::Duplicate, path, Some(value.into()), "")
    }

    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::NotFound, path, Some(value.into()), "")
    }

    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, path, None, detail)
    }

    /// An enumerated field with a value that is not among `supported` (kept in the order given).
    pub fn not_supported<S: AsRef<str>>(path: &Path, value: impl Into<Value>, supported: &[S]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|value| go_quote(value.as_ref())).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(ErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    /// More bytes than `max`; the value itself is never repeated.
    pub fn too_long(path: &Path, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(
            ErrorKind::TooLong,
            path,
            None,
            format!("may not be more than {max} {unit}"),
        )
    }

    /// More items than `max`.
    pub fn too_many(path: &Path, actual: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(
            ErrorKind::TooMany,
            path,
            Some(json!(actual)),
            format!("must have at most {max} {unit}"),
        )
    }

    /// The message without the place.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if let (true, Some(value)) = (self.kind.shows_value(), &self.bad_value) {
            let _ = write!(text, ": {}", go_value(value));
        }
        if !self.detail.is_empty() {
            let _ = write!(text, ": {}", self.detail);
        }
        text
    }

    /// The entry of `status.details.causes`.
    pub fn cause(&self) -> Value {
        let mut cause = json!({"reason": self.kind.reason(), "message": self.body()});
        if !self.path.is_empty() {
            cause["field"] = json!(self.path);
        }
        cause
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// All findings as one text: alone, or `[a, b]`; equal texts once.
pub fn aggregate(errors: &[FieldError]) -> String {
    aggregate_texts(errors.iter().map(ToString::to_string))
}

/// Texts of errors as one: alone, or `[a, b]`; equal texts once.
pub fn aggregate_texts(texts: impl IntoIterator<Item = String>) -> String {
    let mut seen = BTreeSet::new();
    let unique: Vec<String> = texts.into_iter().filter(|text| seen.insert(text.clone())).collect();
    if let [only] = unique.as_slice() {
        only.clone()
    } else {
        format!("[{}]", unique.join(", "))
    }
}

/// The `Status` object with which the API server refuses an object that is invalid (code 422).
pub fn invalid_status(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Value {
    let mut details = json!({
        "kind": kind,
        "causes": errors.iter().map(FieldError::cause).collect::<Vec<_>>(),
    });
    for (key, value) in [("name", name), ("group", group)] {
        if !value.is_empty() {
            details[key] = json!(value);
        }
    }
    if errors.is_empty()
        && let Some(fields) = details.as_object_mut()
    {
        fields.remove("causes");
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": invalid_message(group, kind, name, errors),
        "reason": "Invalid",
        "details": details,
        "code": 422,
    })
}

/// The message of [`invalid_status`].
pub fn invalid_message(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> String {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let head = format!("{qualified} {} is invalid", go_quote(name));
    if errors.is_empty() {
        head
    } else {
        format!("{head}: {}", aggregate(errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_the_api_server_writes_them() {
        let spec = Path::new("spec");
        let cases = [
            (
                FieldError::invalid(&spec.child("replicas"), -1, "must be non-negative"),
                "spec.replicas: Invalid value: -1: must be non-negative",
            ),
            (
                FieldError::invalid(&spec.child("a").index(0).key("b"), "x\ty", "no"),
                "spec.a[0][b]: Invalid value: \"x\\ty\": no",
            ),
            (
                FieldError::invalid(&spec, json!({"b": 1.0, "a": "<"}), "no"),
                "spec: Invalid value: {\"a\":\"\\u003c\",\"b\":1}: no",
            ),
            (FieldError::invalid(&spec, 1e6, "no"), "spec: Invalid value: 1e+06: no"),
            (
                FieldError::invalid(&spec, Value::Null, "no"),
                "spec: Invalid value: null: no",
            ),
            (FieldError::required(&spec.child("x"), ""), "spec.x: Required value"),
            (
                FieldError::not_supported(&spec, "c", &["a", "b"]),
                "spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (
                FieldError::too_long(&spec, 63),
                "spec: Too long: may not be more than 63 bytes",
            ),
            (
                FieldError::too_long(&spec, 1),
                "spec: Too long: may not be more than 1 byte",
            ),
            (
                FieldError::too_many(&spec, 3, 2),
                "spec: Too many: 3: must have at most 2 items",
            ),
            (FieldError::duplicate(&spec, "a"), "spec: Duplicate value: \"a\""),
            (FieldError::forbidden(&spec, "no"), "spec: Forbidden: no"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn several_errors_become_one_message_without_repetition() {
        let path = Path::new("spec");
        let error = FieldError::required(&path, "");
        let other = FieldError::duplicate(&path, 1);
        assert_eq!(invalid_message("g.io", "Kind", "n", &[]), "Kind.g.io \"n\" is invalid");
        assert_eq!(
            invalid_message("", "Pod", "n", &[error.clone(), error.clone()]),
            "Pod \"n\" is invalid: spec: Required value"
        );
        let status = invalid_status("g.io", "Kind", "n", &[error.clone(), other, error]);
        assert_eq!(
            status["message"],
            "Kind.g.io \"n\" is invalid: [spec: Required value, spec: Duplicate value: 1]"
        );
        assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(3));
        assert_eq!(
            status["details"]["causes"][0],
            json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec"})
        );
    }
}
