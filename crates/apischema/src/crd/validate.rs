//! Checks of a definition as a whole: names, versions, columns, subresources, stored versions. Parts that all versions
//! have in common are reported as if they stood once at the top, because upstream holds them so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::schema_rules::validate_schema;
use super::version_parts::{validate_columns, validate_selectable, validate_subresources};
use super::{is_established, list, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::NameRule;
use crate::structural::names;
use crate::structural::object_meta::{validate_object_meta, validate_object_meta_update};

const APPROVED: &str = "api-approved.kubernetes.io";

/// Everything wrong with a new definition (defaulted, and with the status of [`super::prepare_create`]).
pub fn validate_crd(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let path = Path::new("metadata");
    let metadata = &crd["metadata"];
    let mut errors = validate_object_meta(metadata, false, NameRule::DnsSubdomain, &path);
    let required = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    // The name rule of definitions is used for both names, and adds its complaint after those about the letters.
    for key in ["generateName", "name"] {
        let found = text(metadata, key);
        if found.is_empty() || found == required {
            continue;
        }
        let at = path.child(key);
        let position = errors
            .iter()
            .take_while(|error| [at.as_str(), "metadata.generateName"].contains(&error.path.as_str()))
            .count();
        errors.insert(
            position,
            FieldError::invalid(&at, found, "must be spec.names.plural+\".\"+spec.group"),
        );
    }
    errors.extend(validate_spec(spec));
    errors.extend(validate_status(crd));
    errors.extend(approval(crd, None));
    errors.extend(preserve_unknown(spec, None));
    errors
}

/// Everything wrong with a definition that replaces `old`.
pub fn validate_crd_update(crd: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let (spec, old_spec) = (&crd["spec"], &old["spec"]);
    let mut errors = validate_object_meta_update(&crd["metadata"], &old["metadata"], &path);
    errors.extend(validate_spec(spec));
    let at = Path::new("spec");
    let mut immutable = |new: &Value, old: &Value, at: Path| {
        if new != old {
            errors.push(FieldError::invalid(&at, new.clone(), "field is immutable"));
        }
    };
    if is_established(old) {
        immutable(&spec["scope"], &old_spec["scope"], at.child("scope"));
        immutable(
            &spec["names"]["kind"],
            &old_spec["names"]["kind"],
            at.child("names").child("kind"),
        );
    }
    immutable(&spec["group"], &old_spec["group"], at.child("group"));
    immutable(
        &spec["names"]["plural"],
        &old_spec["names"]["plural"],
        at.child("names").child("plural"),
    );
    errors.extend(validate_status(crd));
    errors.extend(approval(crd, Some(old)));
    errors.extend(preserve_unknown(spec, Some(old_spec)));
    errors
}

fn validate_spec(spec: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let group = text(spec, "group");
    let complaints = names::dns_subdomain(&group);
    if group.is_empty() {
        errors.push(FieldError::required(&path.child("group"), ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid(&path.child("group"), group, complaints.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(&path.child("group"), group, detail));
    }
    let scope = text(spec, "scope");
    if scope.is_empty() {
        errors.push(FieldError::required(&path.child("scope"), ""));
    } else if !matches!(scope.as_str(), "Cluster" | "Namespaced") {
        errors.push(FieldError::not_supported(
            &path.child("scope"),
            scope,
            &["Cluster", "Namespaced"],
        ));
    }
    validate_versions(spec, &path, &mut errors);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"], key).is_empty() {
            errors.push(FieldError::required(&path.child("names").child(key), ""));
        }
    }
    errors.extend(validate_names(&spec["names"], &path.child("names")));
    errors.extend(shared_parts(spec, &path));
    errors.extend(validate_conversion(spec, &path.child("conversion")));
    errors
}

/// Whether all versions say the same of a part, so that upstream holds it once.
fn is_shared(versions: &[Value], key: &str) -> bool {
    versions.iter().all(|version| version[key] == versions[0][key])
}

fn schema_of(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

fn validate_versions(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let versions = list(spec, "versions");
    let at = path.child("versions");
    for (index, version) in versions.iter().enumerate() {
        if schema_of(version).is_null() {
            errors.push(FieldError::required(
                &at.index(index).child("schema").child("openAPIV3Schema"),
                "",
            ));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let here = at.index(index);
        let name = text(version, "name");
        let complaints = names::dns_1035_label(&name);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(&here.child("name"), name, complaints.join(",")));
        }
        if let Some(warning) = version["deprecationWarning"].as_str() {
            let place = here.child("deprecationWarning");
            let mut complain = |detail: &str| errors.push(FieldError::invalid(&place, warning, detail));
            if version["deprecated"] != true {
                complain("can only be set for deprecated versions");
            }
            if warning.len() > 256 {
                complain("must be <= 256 characters long");
            }
        }
        for (key, check) in PARTS {
            if !is_shared(versions, key) {
                errors.extend(check(version, &here));
            }
        }
    }
    let unique: BTreeSet<String> = versions.iter().map(|version| text(version, "name")).collect();
    if unique.len() != versions.len() {
        errors.push(about_versions(versions, &at, "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        errors.push(about_versions(
            versions,
            &at,
            "must have exactly one version marked as storage version",
        ));
    }
    if let Some(first) = versions.first() {
        let name = text(first, "name");
        let complaints = names::dns_1035_label(&name);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(&path.child("version"), name, complaints.join(",")));
        }
    }
}

type PartCheck = fn(&Value, &Path) -> Vec<FieldError>;

/// The parts of a version that upstream lifts to the top when they are all the same.
const PARTS: [(&str, PartCheck); 4] = [
    ("schema", |version, path| {
        validate_schema(schema_of(version), &path.child("schema").child("openAPIV3Schema"))
    }),
    ("subresources", |version, path| {
        validate_subresources(&version["subresources"], &path.child("subresources"))
    }),
    ("additionalPrinterColumns", |version, path| {
        validate_columns(
            list(version, "additionalPrinterColumns"),
            &path.child("additionalPrinterColumns"),
        )
    }),
    ("selectableFields", |version, path| {
        validate_selectable(
            list(version, "selectableFields"),
            schema_of(version),
            &path.child("selectableFields"),
        )
    }),
];

fn shared_parts(spec: &Value, path: &Path) -> Vec<FieldError> {
    let versions = list(spec, "versions");
    let Some(first) = versions.first() else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    for (key, check) in PARTS {
        if !is_shared(versions, key) {
            continue;
        }
        if key == "schema" {
            let at = path.child("validation").child("openAPIV3Schema");
            errors.extend(validate_schema(schema_of(first), &at));
        } else {
            errors.extend(check(first, path));
        }
    }
    errors
}

/// Upstream prints the versions in the order of its struct, with the shared parts taken out.
fn about_versions(versions: &[Value], at: &Path, complaint: &str) -> FieldError {
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
                 \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                json!(text(version, "name")),
                version["served"] == true,
                version["storage"] == true,
                version["deprecated"] == true,
                version["deprecationWarning"],
            )
        })
        .collect();
    FieldError::new(
        ErrorKind::Invalid,
        at,
        None,
        format!("[{}]: {complaint}", shown.join(",")),
    )
}

fn validate_names(found: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(found, key);
        let mixed = matches!(key, "kind" | "listKind");
        let complaints = names::dns_1035_label(&if mixed { name.to_lowercase() } else { name.clone() });
        if name.is_empty() || complaints.is_empty() {
            continue;
        }
        let lead = if mixed {
            "may have mixed case, but should otherwise match: "
        } else {
            ""
        };
        errors.push(FieldError::invalid(
            &path.child(key),
            name,
            format!("{lead}{}", complaints.join(",")),
        ));
    }
    let mut labels = |key: &str| {
        for (index, name) in list(found, key).iter().filter_map(Value::as_str).enumerate() {
            let complaints = names::dns_1035_label(name);
            if !complaints.is_empty() {
                errors.push(FieldError::invalid(
                    &path.child(key).index(index),
                    name,
                    complaints.join(","),
                ));
            }
        }
    };
    labels("shortNames");
    labels("categories");
    let kind = text(found, "kind");
    if !kind.is_empty() && kind == text(found, "listKind") {
        errors.push(FieldError::invalid(
            &path.child("listKind"),
            kind,
            "kind and listKind may not be the same",
        ));
    }
    errors
}

fn validate_conversion(spec: &Value, path: &Path) -> Vec<FieldError> {
    let conversion = &spec["conversion"];
    let mut errors = Vec::new();
    match text(conversion, "strategy").as_str() {
        "None" => {}
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        "Webhook" => {
            let webhook = &conversion["webhook"];
            if !webhook["clientConfig"].is_object() {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(&path.child("webhookClientConfig"), detail));
            }
            if list(webhook, "conversionReviewVersions").is_empty() {
                errors.push(FieldError::required(&path.child("conversionReviewVersions"), ""));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path.child("strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
    errors
}

fn validate_status(crd: &Value) -> Vec<FieldError> {
    let status = &crd["status"];
    let mut errors = validate_names(&status["acceptedNames"], &Path::new("status").child("acceptedNames"));
    let at = Path::new("status").child("storedVersions");
    let stored: Vec<String> = list(status, "storedVersions")
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            &at,
            status["storedVersions"].clone(),
            "must have at least one stored version",
        ));
        return errors;
    }
    let mut left: BTreeMap<&str, usize> = stored
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), index))
        .collect();
    for version in list(&crd["spec"], "versions") {
        let name = text(version, "name");
        let known = left.remove(name.as_str()).is_some();
        if version["storage"] == true && !known {
            errors.push(FieldError::invalid(
                &at,
                json!(stored),
                format!("must have the storage version {name}"),
            ));
        }
    }
    for (name, index) in left {
        errors.push(FieldError::invalid(
            &at.index(index),
            name,
            format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            ),
        ));
    }
    errors
}

fn approval(crd: &Value, old: Option<&Value>) -> Option<FieldError> {
    let group = text(&crd["spec"], "group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let annotation = |crd: &Value| text(&crd["metadata"]["annotations"], APPROVED);
    let found = annotation(crd);
    let is_url = found
        .split_once("://")
        .is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
    if !is_protected || old.is_some_and(|old| annotation(old) == found) || found.starts_with("unapproved") || is_url {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let lead = format!("protected groups must have approval annotation \"{APPROVED}\"");
    Some(if found.is_empty() {
        FieldError::required(&path, format!("{lead}, {see}"))
    } else {
        let detail = format!("{lead} with either a URL or a reason starting with \"unapproved\", {see}");
        FieldError::invalid(&path, found, detail)
    })
}

fn preserve_unknown(spec: &Value, old: Option<&Value>) -> Option<FieldError> {
    if spec["preserveUnknownFields"] != true || old.is_some_and(|old| old["preserveUnknownFields"] == true) {
        return None;
    }
    let detail =
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    Some(FieldError::invalid(
        &Path::new("spec").child("preserveUnknownFields"),
        true,
        detail,
    ))
}
