//! Checks that many kinds share: numbers, names, selectors, percentages, resource lists.

use serde_json::{Map, Value};

use crate::builtin::fields::{list, map, text};
use crate::builtin::quantity::Quantity;
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::names;
use crate::structural::object_meta::validate_labels;

pub type Errors = Vec<FieldError>;

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
pub const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";
pub const IP_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// One `Invalid value` per complaint.
pub fn complain(errors: &mut Errors, path: &Path, value: &str, complaints: Vec<String>) {
    errors.extend(
        complaints
            .into_iter()
            .map(|text| FieldError::invalid(path, value, text)),
    );
}

/// A finding whose value upstream prints as a Go struct: keys in the order of its fields, which a JSON map cannot keep.
pub fn printed(kind: ErrorKind, path: &Path, value: &str, detail: &str) -> FieldError {
    let text = if detail.is_empty() {
        value.to_owned()
    } else {
        format!("{value}: {detail}")
    };
    FieldError::new(kind, path, None, text)
}

/// A number that is given must not be negative.
pub fn not_negative(errors: &mut Errors, holder: &Value, path: &Path, keys: &[&str]) {
    for key in keys {
        if let Some(value) = holder.get(key).and_then(Value::as_i64).filter(|value| *value < 0) {
            errors.push(FieldError::invalid(&path.child(key), value, NOT_NEGATIVE));
        }
    }
}

/// A text that is given must be one of a few.
pub fn one_of(errors: &mut Errors, holder: &Value, path: &Path, key: &str, supported: &[&str]) {
    let value = text(holder, key);
    if holder.get(key).is_some() && !supported.contains(&value) {
        errors.push(FieldError::not_supported(&path.child(key), value, supported));
    }
}

pub fn dns_label(errors: &mut Errors, path: &Path, value: &str) {
    complain(errors, path, value, names::dns_label(value));
}

pub fn dns_subdomain(errors: &mut Errors, path: &Path, value: &str) {
    complain(errors, path, value, names::dns_subdomain(value));
}

pub fn qualified_name(errors: &mut Errors, path: &Path, value: &str) {
    complain(errors, path, value, names::qualified_name(value));
}

pub fn is_ip(value: &str) -> bool {
    value.parse::<std::net::IpAddr>().is_ok()
}

/// Names of ports as pods use them.
pub fn port_name(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 15 {
        complaints.push("must be no more than 15 characters".to_owned());
    }
    let plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !plain {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

/// A port by number or by name.
pub fn port_number_or_name(errors: &mut Errors, path: &Path, port: Option<&Value>) {
    match port {
        Some(Value::String(name)) => complain(errors, path, name, port_name(name)),
        Some(number) if number.as_i64().is_some_and(|number| (1..=65535).contains(&number)) => {}
        number => {
            let number = number.and_then(Value::as_i64).unwrap_or_default();
            errors.push(FieldError::invalid(path, number, PORT_RANGE));
        }
    }
}

/// Keys of config maps and secrets.
pub fn config_key(key: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if key.len() > 253 {
        complaints.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty()
        || !key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        complaints.push(names::regex_complaint(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." => complaints.push("must not be '.'".to_owned()),
        ".." => complaints.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

fn percent(value: &str) -> Option<i64> {
    let digits = value.strip_suffix('%')?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// `1` or `10%`, never negative.
pub fn number_or_percent(errors: &mut Errors, path: &Path, value: Option<&Value>) {
    match value {
        Some(Value::String(text)) if percent(text).is_none() => errors.push(FieldError::invalid(
            path,
            text.as_str(),
            names::regex_complaint(
                "a valid percent string must be a numeric string followed by an ending '%'",
                "[0-9]+%",
                &["1%", "93%"],
            ),
        )),
        Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number < 0) => {
            errors.push(FieldError::invalid(
                path,
                number.as_i64().unwrap_or_default(),
                NOT_NEGATIVE,
            ));
        }
        _ => {}
    }
}

pub fn not_more_than_all(errors: &mut Errors, path: &Path, value: Option<&Value>) {
    if let Some(text) = value.and_then(Value::as_str)
        && percent(text).is_some_and(|percent| percent > 100)
    {
        errors.push(FieldError::invalid(path, text, "must not be greater than 100%"));
    }
}

/// Whether a number or percentage is nothing.
pub fn is_none(value: Option<&Value>) -> bool {
    match value {
        Some(Value::String(text)) => percent(text) == Some(0),
        Some(number) => number.as_i64().unwrap_or_default() == 0,
        None => true,
    }
}

/// A label selector; whether it is there at all is the caller's question.
pub fn label_selector(errors: &mut Errors, selector: &Value, path: &Path) {
    errors.extend(validate_labels(
        map(selector, "matchLabels"),
        &path.child("matchLabels"),
    ));
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &at.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        qualified_name(errors, &at.child("key"), text(expression, "key"));
        for (position, value) in values.iter().filter_map(Value::as_str).enumerate() {
            complain(
                errors,
                &at.child("values").index(position),
                value,
                names::label_value(value),
            );
        }
    }
}

pub fn is_empty_selector(selector: &Value) -> bool {
    map(selector, "matchLabels").is_none() && list(selector, "matchExpressions").is_empty()
}

/// Whether a selector can be used at all; upstream refuses to convert ones with unknown operators or bad names.
pub fn is_usable_selector(selector: &Value) -> bool {
    let mut errors = Vec::new();
    label_selector(&mut errors, selector, &Path::root());
    errors.is_empty()
}

/// Whether labels are chosen by a selector; no selector chooses nothing.
pub fn selects(selector: Option<&Value>, labels: Option<&Map<String, Value>>) -> bool {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return false;
    };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let exact = map(selector, "matchLabels")
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == value.as_str());
    exact
        && list(selector, "matchExpressions").iter().all(|expression| {
            let found = label(text(expression, "key"));
            let listed = found.is_some_and(|found| list(expression, "values").iter().any(|value| value == found));
            match text(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// The quantity of a normalised field.
pub fn quantity(value: Option<&Value>) -> Option<Quantity> {
    value
        .and_then(Value::as_str)
        .and_then(|text| Quantity::parse(text).ok())
}

/// Requests and limits of a container.
pub fn resources(errors: &mut Errors, resources: &Value, path: &Path) {
    for kind in ["limits", "requests"] {
        for (name, amount) in map(resources, kind).into_iter().flatten() {
            let at = path.child(kind).key(name);
            container_resource_name(errors, &at, name);
            let Some(parsed) = quantity(Some(amount)) else { continue };
            if parsed.is_negative() {
                errors.push(FieldError::invalid(&at, amount.clone(), NOT_NEGATIVE));
            } else if is_extended(name) && !parsed.is_integer() {
                errors.push(FieldError::invalid(&at, amount.clone(), "must be an integer"));
            }
        }
    }
    let limits = map(resources, "limits");
    for (name, amount) in map(resources, "requests").into_iter().flatten() {
        let overcommits = overcommits(name);
        let limit = limits.and_then(|limits| limits.get(name));
        let (Some(request), parsed_limit) = (quantity(Some(amount)), quantity(limit)) else {
            continue;
        };
        let shown = limit.and_then(Value::as_str).unwrap_or_default();
        match parsed_limit {
            Some(limit) if overcommits && request > limit => errors.push(FieldError::invalid(
                &path.child("requests"),
                amount.clone(),
                format!("must be less than or equal to {name} limit of {shown}"),
            )),
            Some(limit) if !overcommits && request != limit => errors.push(FieldError::invalid(
                &path.child("requests"),
                amount.clone(),
                format!("must be equal to {name} limit of {shown}"),
            )),
            None if !overcommits => errors.push(FieldError::required(
                &path.child("limits"),
                "Limit must be set for non overcommitable resources",
            )),
            _ => {}
        }
    }
}

/// Whether a resource is somebody's own (`example.com/gpu`).
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// Whether more of a resource may be promised than there is.
pub fn overcommits(name: &str) -> bool {
    !is_extended(name) && !name.starts_with("hugepages-")
}

/// Resources that have a name without a domain.
const STANDARD_RESOURCES: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// A resource of any kind of object.
pub fn resource_name(errors: &mut Errors, path: &Path, name: &str) {
    let before = errors.len();
    qualified_name(errors, path, name);
    let is_standard =
        STANDARD_RESOURCES.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    if errors.len() == before && !name.contains('/') && !is_standard {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

/// A resource that containers use. Upstream looks at the list for containers even when the name is not well formed.
pub fn container_resource_name(errors: &mut Errors, path: &Path, name: &str) {
    resource_name(errors, path, name);
    let is_containers =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") || name.contains('/');
    if !is_containers {
        let detail = "must be a standard resource for containers";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

/// A name that must be there and fit into a path.
pub fn required_segment(errors: &mut Errors, holder: &Value, path: &Path, key: &str) {
    match text(holder, key) {
        "" => errors.push(FieldError::required(&path.child(key), "")),
        name => complain(errors, &path.child(key), name, names::path_segment(name, false)),
    }
}

/// Amounts that only must not be negative (capacity of nodes).
pub fn amounts(errors: &mut Errors, holder: &Value, path: &Path, key: &str) {
    for (name, amount) in map(holder, key).into_iter().flatten() {
        if quantity(Some(amount)).is_some_and(|amount| amount.is_negative()) {
            errors.push(FieldError::invalid(
                &path.child(key).child(name),
                amount.clone(),
                NOT_NEGATIVE,
            ));
        }
    }
}

/// A field that must stay as it was.
pub fn immutable(errors: &mut Errors, new: Option<&Value>, old: Option<&Value>, path: &Path) {
    let given = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    if given(new) != given(old) {
        errors.push(FieldError::invalid(
            path,
            new.cloned().unwrap_or_default(),
            "field is immutable",
        ));
    }
}

/// A path below some folder.
pub fn relative_path(errors: &mut Errors, path: &Path, value: &str) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    }
    no_parent(errors, path, value);
}

pub fn no_parent(errors: &mut Errors, path: &Path, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}
