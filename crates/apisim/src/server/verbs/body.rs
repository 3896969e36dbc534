//! Request bodies and the options that come with a write.

use afloat_apischema::decode::{self, Decoded, FieldValidation, Format};
use afloat_apischema::field_error::{FieldError, Path, go_print, go_quote};
use afloat_apischema::structural::object_meta;
use afloat_apischema::{apply, builtin};
use serde_json::Value;

use crate::protobuf;
use crate::resource::GroupVersion;
use crate::status::{ApiError, ApiResult};

use super::super::route::REQUEST_LIMIT;
use super::Call;

/// Options of a write, from its query (for deletions also from its body).
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub manager: String,
    pub force: bool,
}

const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The longest field manager name.
const MANAGER_LIMIT: usize = 128;

impl Call<'_> {
    /// Reads and checks the options; `kind` names them in refusals (`CreateOptions`).
    pub(super) fn write_options(&self, kind: &str) -> ApiResult<WriteOptions> {
        let mut errors = Vec::new();
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        errors.extend(dry_run_errors(&dry_run));
        let manager = self.query.get("fieldManager").unwrap_or_default();
        errors.extend(manager_errors(manager));
        let asked = self.query.get("fieldValidation");
        let validation = FieldValidation::parse(asked);
        if validation.is_none() {
            let path = Path::new("fieldValidation");
            errors.push(FieldError::not_supported(
                &path,
                asked.unwrap_or_default(),
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &errors));
        }
        Ok(WriteOptions {
            dry_run: !dry_run.is_empty(),
            validation: validation.unwrap_or(FieldValidation::Warn),
            manager: self.manager_name(manager),
            force: self.query.flag("force"),
        })
    }

    /// The given manager, else the program's name out of the user agent.
    fn manager_name(&self, given: &str) -> String {
        if !given.is_empty() {
            return given.to_owned();
        }
        let program = self.user_agent.split('/').next().unwrap_or_default();
        program
            .chars()
            .filter(|letter| !letter.is_control())
            .take(MANAGER_LIMIT)
            .collect()
    }

    pub(super) fn checked_body(&self) -> ApiResult<&[u8]> {
        if self.body.len() > REQUEST_LIMIT {
            return Err(ApiError::too_large(format!(
                "Request entity too large: limit is {REQUEST_LIMIT}"
            )));
        }
        Ok(self.body)
    }

    /// Go's typed clients write built-in kinds so; custom resources have no protobuf form.
    fn is_protobuf(&self) -> bool {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        media == protobuf::MEDIA_TYPE && !self.resource.is_custom()
    }

    pub(super) fn body_format(&self) -> ApiResult<Format> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "" | "application/json" | "*/*" => Ok(Format::Json),
            "application/yaml" => Ok(Format::Yaml),
            _ => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {BODY_TYPES}"
            ))),
        }
    }

    /// Parses the body as an object of some kind.
    pub(super) fn parse_body(&self, as_kind: &str) -> ApiResult<Decoded> {
        if self.is_protobuf() {
            let value = protobuf::decode(self.checked_body()?).map_err(|why| ApiError::bad_request(why.to_string()))?;
            return Ok(Decoded {
                value,
                has_duplicates: false,
                yaml_duplicates: None,
            });
        }
        let format = self.body_format()?;
        let body = self.checked_body()?;
        let unrecognized = |why: &str| ApiError::bad_request(decode::unrecognized(as_kind, body, format, why));
        let decoded = decode::parse(body, format).map_err(|error| unrecognized(&error.0))?;
        // By now the body is JSON, whatever it was written in.
        decode::type_of(&decoded.value)
            .map_err(|error| ApiError::bad_request(decode::unrecognized(as_kind, body, Format::Json, &error.0)))?;
        Ok(decoded)
    }

    /// The object in the body: parsed, of the right kind, decoded by the kind's rules.
    pub(super) fn read_object(&mut self, options: &WriteOptions) -> ApiResult<Value> {
        let kind = self.resource.kind.clone();
        let mut decoded = self.parse_body(&kind)?;
        if decoded.value.is_null() {
            // Go reads nothing into an empty object.
            decoded.value = Value::Object(serde_json::Map::new());
        }
        if self.resource.is_custom() {
            self.check_custom_type(&decoded.value, options)?;
        } else {
            self.check_type(&decoded.value, &self.resource.gv, &kind)?;
            self.set_type(&mut decoded.value);
        }
        let unknown = self
            .rules
            .decode(&mut decoded.value, None)
            .map_err(|why| self.rules.undecodable(&why))?;
        if !unknown.is_empty() || decoded.has_duplicates || decoded.yaml_duplicates.is_some() {
            let format = self.body_format()?;
            let problems = decode::strict_problems(self.body, format, &decoded, &unknown, self.rules.reporter());
            self.report(problems, options)?;
        }
        Ok(decoded.value)
    }

    /// Decodes what a patch made; there is no text any more that a field could stand in twice.
    pub(super) fn decode_patched(
        &mut self,
        value: &mut Value,
        stored: &Value,
        patched_by_fields: bool,
        options: &WriteOptions,
    ) -> ApiResult<()> {
        // Kept for the one refusal that shows it.
        let patched = (options.validation == FieldValidation::Strict).then(|| value.clone());
        let unknown = match self.decode_type_and_value(value, stored) {
            Ok(unknown) => unknown,
            Err(why) => return Err(self.bad_patch(patched_by_fields, value, &why)),
        };
        let problems: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field {}", go_quote(path)))
            .collect();
        if options.validation == FieldValidation::Strict && !problems.is_empty() {
            return Err(self.bad_patch(
                patched_by_fields,
                &patched.unwrap_or_default(),
                &decode::strict_error(&problems),
            ));
        }
        self.report(problems, options)
    }

    fn decode_type_and_value(&self, value: &mut Value, stored: &Value) -> Result<Vec<String>, String> {
        type_mismatch(value, &self.resource.gv, &self.resource.kind)?;
        self.set_type(value);
        self.rules.decode(value, Some(stored))
    }

    /// A patch whose result cannot be read. Upstream reads the result of a strategic patch field by field and shows the
    /// patch; of the other forms it shows the result.
    fn bad_patch(&self, patched_by_fields: bool, patched: &Value, why: &str) -> ApiError {
        let (shown, why) = if patched_by_fields {
            let mut patch: Value = serde_json::from_slice(self.body).unwrap_or_default();
            // By then the merge has taken the nulls out of whatever is new.
            let live = self
                .lookup(&self.path.name)
                .map(|object| object.value().clone())
                .map(unfolded)
                .unwrap_or_default();
            drop_nulls_of_new(&mut patch, &live);
            (go_print(&patch), conversion_words(why))
        } else {
            // What a patch could not touch is still folded.
            let patched = if self.may_name_managers() {
                patched.clone()
            } else {
                unfolded(patched.clone())
            };
            (patched.to_string(), why.to_owned())
        };
        ApiError::invalid("", "", "", &[FieldError::invalid(&Path::new("patch"), shown, why)])
    }

    /// Whether the body may say something about `managedFields`: the word cannot hide but behind an escape.
    pub(super) fn may_name_managers(&self) -> bool {
        const WORD: &[u8] = b"managedFields";
        self.body.contains(&b'\\') || self.body.windows(WORD.len()).any(|window| window == WORD)
    }

    /// Unknown and duplicate fields are refused, warned about or ignored.
    fn report(&mut self, problems: Vec<String>, options: &WriteOptions) -> ApiResult<()> {
        if problems.is_empty() {
            return Ok(());
        }
        match options.validation {
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                self.warnings.extend(problems);
                Ok(())
            }
            FieldValidation::Strict => Err(self.rules.undecodable(&decode::strict_error(&problems))),
        }
    }

    /// The body must be of the expected group, version and kind, as far as it says so.
    pub(super) fn check_type(&self, value: &Value, expected: &GroupVersion, as_kind: &str) -> ApiResult<()> {
        let api_version = value["apiVersion"].as_str().unwrap_or_default();
        if api_version.matches('/').count() > 1 {
            let summary = decode::body_summary(self.body);
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {as_kind}): unexpected GroupVersion string: \
                 {api_version} ({summary})"
            )));
        }
        type_mismatch(value, expected, as_kind).map_err(|why| {
            let said = |key: &str, default: &str| value[key].as_str().unwrap_or(default).to_owned();
            let version = GroupVersion::parse(&said("apiVersion", &expected.version)).version;
            ApiError::bad_request(decode::cannot_be_handled(
                &said("kind", as_kind),
                &version,
                as_kind,
                &why,
            ))
        })
    }

    fn set_type(&self, value: &mut Value) {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".into(), self.resource.gv.api_version().into());
            fields.insert("kind".into(), self.resource.kind.as_str().into());
        }
    }

    /// Custom resources are read without a Go type, so that kind and version must be said, and be the right ones.
    fn check_custom_type(&self, value: &Value, options: &WriteOptions) -> ApiResult<()> {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() {
            let body = String::from_utf8_lossy(self.body);
            let missing = format!("Object 'Kind' is missing in '{body}'");
            // Without field validation upstream uses another decoder, with other words.
            if options.validation == FieldValidation::Ignore {
                return Err(self.rules.undecodable(&missing));
            }
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {missing} ({})",
                self.resource.kind,
                decode::body_summary(self.body)
            )));
        }
        let expected = self.resource.gv.api_version();
        if api_version != expected {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        if kind != self.resource.kind {
            let why = format!("must be {}", self.resource.kind);
            let error = FieldError::invalid(&Path::new("kind"), kind, why);
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(&self.resource.gv.group, kind, name, &[error]));
        }
        Ok(())
    }
}

fn unfolded(mut value: Value) -> Value {
    apply::unfold(&mut value);
    value
}

fn drop_nulls_of_new(patch: &mut Value, live: &Value) {
    let Some(fields) = patch.as_object_mut() else { return };
    if live.is_null() {
        fields.retain(|_, field| !field.is_null());
    }
    for (key, field) in fields {
        drop_nulls_of_new(field, &live[key.as_str()]);
    }
}

/// Why a value is not of the expected type; upstream converts between its Go types and says which it cannot.
fn type_mismatch(value: &Value, expected: &GroupVersion, as_kind: &str) -> Result<(), String> {
    let api_version = value["apiVersion"].as_str().filter(|text| !text.is_empty());
    let sent = api_version.map_or_else(|| expected.clone(), GroupVersion::parse);
    let kind = value["kind"]
        .as_str()
        .filter(|text| !text.is_empty())
        .unwrap_or(as_kind);
    if sent == *expected && kind == as_kind {
        return Ok(());
    }
    // Lists are kinds of their own.
    let listed = kind.strip_suffix("List").unwrap_or(kind);
    let known = builtin::kind(&sent.group, listed).is_some_and(|known| known.version == sent.version)
        || (kind == "List" && sent.api_version() == "v1");
    if !known {
        let version = sent.api_version();
        return Err(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    let group = if expected.group.is_empty() {
        "core"
    } else {
        expected.group.split('.').next().unwrap_or_default()
    };
    Err(format!(
        "converting ({}.{kind}) to ({group}.{as_kind}): unknown conversion",
        sent.version
    ))
}

/// The JSON decoder's complaint about a type in the words of the converter that reads strategic patches.
fn conversion_words(why: &str) -> String {
    if why.starts_with("illegal base64") {
        return format!("error decoding from json: {why}");
    }
    let Some((found, wanted)) = why
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into "))
    else {
        return why.to_owned();
    };
    let wanted = wanted.rsplit("of type ").next().unwrap_or_default();
    let found = match found {
        "array" => "slice",
        "object" => "map",
        "number" => "int64",
        other => other,
    };
    if wanted.starts_with("[]") {
        return format!("cannot restore slice from {found}");
    }
    if wanted.starts_with("map[") {
        return format!("cannot restore map from {found}");
    }
    if wanted.contains('.') {
        return format!("cannot restore struct from: {found}");
    }
    // Go can make text of a number, and refuses to only in the end.
    if wanted == "string" && found == "int64" {
        return "cannot convert int64 to string".to_owned();
    }
    format!("unrecognized type: {wanted}")
}

pub(super) fn dry_run_errors(values: &[&str]) -> Vec<FieldError> {
    if values.iter().all(|value| *value == "All") {
        return Vec::new();
    }
    // Upstream complains about the list, not about the word in it.
    vec![FieldError::not_supported(
        &Path::new("dryRun"),
        values.to_vec(),
        &["All"],
    )]
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    object_meta::validate_field_manager(manager, &Path::new("fieldManager"))
}
