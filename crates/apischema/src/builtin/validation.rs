//! stub
use crate::field_error::FieldError;
use serde_json::Value;
pub fn create(_: &str, _: &str, _: &Value) -> Vec<FieldError> { Vec::new() }
pub fn update(_: &str, _: &str, _: &Value, _: &Value) -> Vec<FieldError> { Vec::new() }
pub fn status_update(_: &str, _: &str, _: &Value, _: &Value) -> Vec<FieldError> { Vec::new() }
