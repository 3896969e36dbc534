//! Writing a status, whatever form the resource gives it: through the subresource where there is one, else into the
//! object itself. Both only if nobody wrote the object since it was read.

use crate::clients::{CallError, bounded};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, ResourceExt as _};
use serde_json::{Value, json};

/// The field manager of everything the operator writes.
pub const FIELD_MANAGER: &str = "afloat-operator";

/// Where a resource keeps its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusForm {
    /// Behind `/status`: writes to the object leave it alone, and the other way round.
    Subresource,
    /// In the object, beside the spec, open to every writer.
    Whole,
}

/// Merges `status` into the status of `read`. A conflict (409) means that the decision behind it is out of date.
pub async fn write_status(
    api: &Api<DynamicObject>,
    form: StatusForm,
    read: &DynamicObject,
    status: &Value,
) -> Result<DynamicObject, CallError> {
    let name = read.name_any();
    let body = json!({
        "metadata": { "resourceVersion": read.resource_version(), "uid": read.uid() },
        "status": status,
    });
    let (params, patch) = (
        PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        },
        Patch::Merge(&body),
    );
    match form {
        StatusForm::Subresource => bounded(api.patch_status(&name, &params, &patch)).await,
        StatusForm::Whole => bounded(api.patch(&name, &params, &patch)).await,
    }
}
