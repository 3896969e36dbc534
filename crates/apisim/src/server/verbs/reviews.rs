//! Kinds that are asked, not stored: may I, who am I. Everyone here is an administrator.

use serde_json::{Value, json};

use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;

pub(super) fn is_review(resource: &ResourceType) -> bool {
    matches!(resource.gv.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
}

impl Call<'_> {
    pub(super) fn review(&mut self) -> ApiResult<Answer> {
        let mut value = self.parse_body(&self.resource.kind)?.value;
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
        Ok(Answer::Value { code: 201, value: without_nulls(value) })
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}
