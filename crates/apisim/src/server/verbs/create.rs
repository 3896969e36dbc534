//! Creation.

use serde_json::Value;

use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;
use super::write::{metadata_mut, metadata_text, parse_revision};

impl Call<'_> {
    pub(super) fn create(&mut self) -> ApiResult<Answer> {
        let options = self.write_options("CreateOptions")?;
        let mut value = self.read_object(&options)?;
        self.check_object_namespace(&mut value)?;
        if let Some(metadata) = metadata_mut(&mut value) {
            // Nobody comes to own what a new object cannot have.
            for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                metadata.remove(gone);
            }
        }
        self.track(None, &mut value, &options);
        if parse_revision(metadata_text(&value, "resourceVersion"))? != 0 {
            return Err(ApiError::raw_internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let object = self.store_new(value, &options)?;
        Ok(Answer::Object {
            code: 201,
            resource: self.resource.clone(),
            object,
        })
    }

    /// An object's namespace is the request's, said or unsaid.
    pub(super) fn check_object_namespace(&self, value: &mut Value) -> ApiResult<()> {
        let asked = self.path.namespace.as_str();
        let given = metadata_text(value, "namespace");
        if !self.resource.namespaced {
            if let Some(metadata) = metadata_mut(value) {
                metadata.remove("namespace");
            }
            return Ok(());
        }
        if !given.is_empty() && given != asked {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(why));
        }
        if let Some(metadata) = metadata_mut(value).filter(|_| !asked.is_empty()) {
            metadata.insert("namespace".into(), asked.into());
        }
        Ok(())
    }

    /// The name in the body is the one in the path.
    pub(super) fn check_object_name(&self, value: &Value) -> ApiResult<()> {
        let given = metadata_text(value, "name");
        if given == self.path.name {
            return Ok(());
        }
        if given.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.path.name
            )));
        }
        Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({})",
            self.path.name
        )))
    }
}
