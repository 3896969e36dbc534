//! Creation.

use serde_json::Value;

use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;
use super::write::{metadata_mut, metadata_text};

impl Call<'_> {
    pub(super) fn create(&mut self) -> ApiResult<Answer> {
        let options = self.write_options("CreateOptions")?;
        let mut value = self.read_object(&options)?;
        self.check_object_namespace(&mut value)?;
        self.track(None, &mut value, &options);
        let object = self.store_new(value, &options)?;
        Ok(Answer::Object { code: 201, resource: self.resource.clone(), object })
    }

    /// An object's namespace is the request's, said or unsaid.
    pub(super) fn check_object_namespace(&self, value: &mut Value) -> ApiResult<()> {
        let asked = if self.resource.namespaced { self.path.namespace.as_str() } else { "" };
        let given = metadata_text(value, "namespace");
        if !given.is_empty() && given != asked {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(why));
        }
        if let Some(metadata) = metadata_mut(value).filter(|_| !asked.is_empty()) {
            metadata.insert("namespace".into(), asked.into());
        }
        Ok(())
    }

    /// The name in the body, where there is one, is the one in the path.
    pub(super) fn check_object_name(&self, value: &Value) -> ApiResult<()> {
        let given = metadata_text(value, "name");
        if given.is_empty() || given == self.path.name {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({})",
            self.path.name
        )))
    }
}
