//! Checks of what a version of a definition says beside its schema: printed columns, the scale subresource, selectable
//! fields. Whether the versions agree with one another is checked elsewhere.

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;
use crate::cel::normal_field_path;
use crate::field_error::{FieldError, Path};
use crate::schema::{JsonType, SchemaRef, TypeSchema};

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

pub(super) fn validate_columns(columns: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let at = path.index(index);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        let column_type = text(column, "type");
        let one_of = |words: &str| format!("must be one of {words}");
        if column_type.is_empty() {
            errors.push(FieldError::required(&at.child("type"), one_of(COLUMN_TYPES)));
        } else if !COLUMN_TYPES.split(',').any(|known| known == column_type) {
            errors.push(FieldError::invalid(
                &at.child("type"),
                column_type,
                one_of(COLUMN_TYPES),
            ));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.split(',').any(|known| known == format) {
            errors.push(FieldError::invalid(&at.child("format"), format, one_of(COLUMN_FORMATS)));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at.child("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(&at.child("JSONPath"), json_path, detail));
        }
    }
    errors
}

pub(super) fn validate_subresources(subresources: &Value, path: &Path) -> Vec<FieldError> {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for (key, roots, words) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        (
            "statusReplicasPath",
            &[".status."][..],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let at = path.child("scale").child(key);
        let found = text(scale, key);
        if found.is_empty() {
            if key != "labelSelectorPath" {
                errors.push(FieldError::required(&at, ""));
            }
        } else if !found.starts_with('.') {
            errors.push(FieldError::invalid(
                &at,
                found,
                "must be a simple json path starting with .",
            ));
        } else if !roots.iter().any(|root| found.starts_with(root)) {
            errors.push(FieldError::invalid(&at, found, words));
        }
    }
    errors
}

pub(super) fn validate_selectable(fields: &[Value], schema: &Value, path: &Path) -> Vec<FieldError> {
    if fields.is_empty() {
        return Vec::new();
    }
    let schema = TypeSchema::from_inline(schema);
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = path.index(index).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let normal = if json_path.contains('[') {
            Err("array notation is not allowed".to_owned())
        } else {
            normal_field_path(&json_path, schema.root())
        };
        let normal = match normal {
            Ok(normal) => normal,
            Err(complaint) => {
                errors.push(FieldError::invalid(
                    &at,
                    json_path,
                    format!("is an invalid path: {complaint}"),
                ));
                continue;
            }
        };
        if normal == "metadata" || normal.starts_with("metadata.") {
            errors.push(FieldError::invalid(
                &at,
                json_path.as_str(),
                "must not point to fields in metadata",
            ));
        }
        let target = json_path
            .split('.')
            .skip(1)
            .try_fold(schema.root(), SchemaRef::property);
        let plain = |target: SchemaRef<'_>| {
            matches!(
                target.json_type,
                JsonType::String | JsonType::Boolean | JsonType::Integer
            )
        };
        if !target.is_some_and(plain) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(FieldError::invalid(&at, json_path.as_str(), detail));
        }
        if !seen.insert(normal) {
            errors.push(FieldError::duplicate(&at, json_path));
        }
    }
    if seen.len() > 8 {
        errors.push(FieldError::too_many(path, seen.len() as u64, 8));
    }
    errors
}
