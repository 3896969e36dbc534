//! Kinds that are asked, not stored: may I, who am I. Everyone here is an administrator.

use afloat_apischema::apply;
use afloat_apischema::field_error::{FieldError, Path};
use serde_json::{Value, json};

use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;

pub(super) fn is_review(resource: &ResourceType) -> bool {
    matches!(
        resource.gv.group.as_str(),
        "authorization.k8s.io" | "authentication.k8s.io"
    )
}

impl Call<'_> {
    pub(super) fn review(&mut self) -> ApiResult<Answer> {
        let options = self.write_options("CreateOptions")?;
        let mut value = self.read_object(&options)?;
        self.check_review(&value)?;
        self.track(None, &mut value, &options);
        let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
        let status = match self.resource.kind.as_str() {
            "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => json!({"allowed": true}),
            "SelfSubjectReview" => json!({"userInfo": user}),
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            "TokenReview" => json!({"authenticated": false, "user": {}}),
            _ => return Err(ApiError::method_not_allowed()),
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".into(), self.resource.gv.api_version().into());
            fields.insert("kind".into(), self.resource.kind.as_str().into());
            fields.entry("metadata").or_insert_with(|| json!({}));
            fields.insert("status".into(), status);
        }
        // A review is answered as it is, and not by way of storage.
        apply::unfold(&mut value);
        Ok(Answer::Value {
            code: 201,
            value: without_nulls(value),
        })
    }
}

impl Call<'_> {
    /// A question is about a resource or about a path.
    fn check_review(&self, value: &Value) -> ApiResult<()> {
        let asked = |field: &str| value["spec"].get(field).is_some();
        let about_access = self.resource.kind.ends_with("SubjectAccessReview");
        if !about_access || asked("resourceAttributes") != asked("nonResourceAttributes") {
            return Ok(());
        }
        let spec = Path::new("spec");
        let error = if asked("resourceAttributes") {
            let text = |key: &str| value["spec"]["nonResourceAttributes"][key].as_str().unwrap_or_default();
            let found = json!({"Path": text("path"), "Verb": text("verb")});
            let why = "cannot be specified in combination with resourceAttributes";
            FieldError::invalid(&spec.child("nonResourceAttributes"), found, why)
        } else {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            FieldError::invalid(&spec.child("resourceAttributes"), Value::Null, why)
        };
        Err(ApiError::invalid(&self.resource.gv.group, "", "", &[error]))
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}
