//! Ephemeral containers: debugging aids that are added to a pod that runs, through a subresource of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::Errors;
use super::container::{self, Surroundings};
use crate::builtin::fields::{is_zero, list, text};
use crate::field_error::{FieldError, Path, go_quote};

const NOT_HERE: &str = "cannot be set for an Ephemeral Container";

/// Fields of a container that make it part of the workload.
const WORKLOAD_FIELDS: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub fn containers(errors: &mut Errors, spec: &Value, path: &Path, around: &Surroundings<'_>) {
    let regular = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    let targets: BTreeSet<&str> = regular.map(|container| text(container, "name")).collect();
    let mut names = targets.clone();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let at = path.index(index);
        container::common(errors, container, &at, around);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !targets.contains(target) {
            errors.push(FieldError::not_found(&at.child("targetContainerName"), target));
        }
        for field in WORKLOAD_FIELDS {
            if container.get(field).is_some_and(|value| !is_zero(value)) {
                errors.push(FieldError::forbidden(&at.child(field), NOT_HERE));
            }
        }
        for (position, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    let place = at.child("volumeMounts").index(position).child(field);
                    errors.push(FieldError::forbidden(&place, NOT_HERE));
                }
            }
        }
    }
}

/// What was added once stays as it is. Upstream ends a refusal with a difference of Go structures, which is left out.
pub fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::new("spec").child("ephemeralContainers");
    for before in list(&old["spec"], "ephemeralContainers") {
        let name = text(before, "name");
        let quoted = go_quote(name);
        let mut after = list(&new["spec"], "ephemeralContainers").iter();
        match after.rfind(|container| text(container, "name") == name) {
            None => {
                let detail = format!("existing ephemeral containers {quoted} may not be removed\n");
                errors.push(FieldError::forbidden(&path, detail));
            }
            Some(after) if after != before => {
                let detail = format!("existing ephemeral containers {quoted} may not be changed\n");
                errors.push(FieldError::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
}
