//! The three patch forms that are not applies: JSON patches, merge patches, and strategic merge patches of built-in
//! kinds. They give the patched object; decoding, defaulting and checking it is the caller's, as in the API server.

mod json_patch;
mod merge;
mod strategic;
mod strategic_lists;

#[cfg(test)]
mod tests;

pub use json_patch::{json_patch, unknown_operation_fields};
pub use merge::{merge_patch, merge_values};
pub use strategic::{strategic_merge, strategic_merge_values};

use serde_json::Value;

/// Why a patch could not be used: one variant for each answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400, reason `BadRequest`, no details.
    #[error("{0}")]
    BadRequest(String),
    /// 413, reason `RequestEntityTooLarge`, no details.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
    /// 422, reason `Invalid`, empty details. The API server does not tell what exactly did not apply.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    /// 500 with nothing but a message: no reason, no details.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// The HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unprocessable => 422,
            Self::Internal(_) => 500,
        }
    }
}

/// What Go calls a JSON value that it cannot put somewhere.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The complaint of Go's decoder about a patch that should have been an object.
fn not_an_object(value: &Value) -> String {
    let kind = json_kind(value);
    format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
}
