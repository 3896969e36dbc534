//! Request bodies and the options that come with a write.

use afloat_apischema::decode::{self, Decoded, FieldValidation, Format};
use afloat_apischema::field_error::{FieldError, Path, go_quote};
use afloat_apischema::structural::object_meta;
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
            errors.push(FieldError::not_supported(&path, asked.unwrap_or_default(), &["", "Ignore", "Strict", "Warn"]));
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
        program.chars().filter(|letter| !letter.is_control()).take(MANAGER_LIMIT).collect()
    }

    pub(super) fn checked_body(&self) -> ApiResult<&[u8]> {
        if self.body.len() > REQUEST_LIMIT {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {REQUEST_LIMIT}")));
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
            return Ok(Decoded { value, has_duplicates: false, yaml_duplicates: None });
        }
        let format = self.body_format()?;
        let body = self.checked_body()?;
        let unrecognized = |why: &str| ApiError::bad_request(decode::unrecognized(as_kind, body, format, why));
        let decoded = decode::parse(body, format).map_err(|error| unrecognized(&error.0))?;
        decode::type_of(&decoded.value).map_err(|error| unrecognized(&error.0))?;
        Ok(decoded)
    }

    /// The object in the body: parsed, of the right kind, decoded by the kind's rules.
    pub(super) fn read_object(&mut self, options: &WriteOptions) -> ApiResult<Value> {
        let mut decoded = self.parse_body(&self.resource.kind)?;
        self.check_type(&mut decoded.value)?;
        let unknown = self.rules.decode(&mut decoded.value)?;
        if !unknown.is_empty() || decoded.has_duplicates || decoded.yaml_duplicates.is_some() {
            let format = self.body_format()?;
            let problems = decode::strict_problems(self.body, format, &decoded, &unknown, self.rules.reporter());
            self.report(problems, options)?;
        }
        Ok(decoded.value)
    }

    /// Decodes what a patch made; there is no text any more that a field could stand in twice.
    pub(super) fn decode_patched(&mut self, value: &mut Value, options: &WriteOptions) -> ApiResult<()> {
        self.check_type(value)?;
        let unknown = self.rules.decode(value)?;
        let problems = unknown.iter().map(|path| format!("unknown field {}", go_quote(path))).collect();
        self.report(problems, options)
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
            FieldValidation::Strict => {
                let why = decode::strict_error(&problems);
                Err(if self.resource.is_custom() { ApiError::bad_request(why) } else { self.rules.undecodable(&why) })
            }
        }
    }

    /// The body must be of the endpoint's group, version and kind; what is missing is filled in.
    fn check_type(&self, value: &mut Value) -> ApiResult<()> {
        let gv = &self.resource.gv;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if self.resource.is_custom() {
            check_custom_type(&api_version, &kind, value)?;
        }
        let sent = GroupVersion::parse(&api_version);
        if !api_version.is_empty() && sent != *gv {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                gv.api_version()
            )));
        }
        if !kind.is_empty() && kind != self.resource.kind {
            return Err(ApiError::bad_request(format!(
                "the kind in the data ({kind}) does not match the expected kind ({})",
                self.resource.kind
            )));
        }
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".into(), gv.api_version().into());
            fields.insert("kind".into(), self.resource.kind.as_str().into());
        }
        Ok(())
    }
}

/// Custom resources are decoded without a Go type, so that kind and version must be said.
fn check_custom_type(api_version: &str, kind: &str, value: &Value) -> ApiResult<()> {
    let missing = match (kind.is_empty(), api_version.is_empty()) {
        (true, _) => "Kind",
        (false, true) => "apiVersion",
        (false, false) => return Ok(()),
    };
    Err(ApiError::bad_request(format!("Object '{missing}' is missing in '{value}'")))
}

pub(super) fn dry_run_errors(values: &[&str]) -> Vec<FieldError> {
    let bad: Vec<&str> = values.iter().copied().filter(|value| *value != "All").collect();
    match bad.first() {
        Some(value) => vec![FieldError::not_supported(&Path::new("dryRun"), *value, &["All"])],
        None => Vec::new(),
    }
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    object_meta::validate_field_manager(manager, &Path::new("fieldManager"))
}
