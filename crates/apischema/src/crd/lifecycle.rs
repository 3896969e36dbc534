//! What happens to a definition on its way in: defaults, the status that clients cannot write, and the conditions that
//! the naming and establishing controllers of the API server set.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, text};
use crate::field_error::{aggregate_texts, go_quote};

/// The defaults of `apiextensions.k8s.io/v1`.
pub fn default_crd(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if !spec["names"].is_object() {
        spec["names"] = json!({});
    }
    let kind = text(&spec["names"], "kind");
    let names = &mut spec["names"];
    if text(names, "singular").is_empty() && !kind.is_empty() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if text(names, "listKind").is_empty() && !kind.is_empty() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let service = spec.pointer_mut("/conversion/webhook/clientConfig/service");
    if let Some(service) = service.filter(|service| service.is_object())
        && service["port"].is_null()
    {
        service["port"] = json!(443);
    }
}

fn storage_version(crd: &Value) -> Option<String> {
    let spec = crd.get("spec")?;
    list(spec, "versions")
        .iter()
        .find(|version| version["storage"] == true)
        .map(|version| text(version, "name"))
}

/// A new definition starts with a status of its own, whatever the client sent.
pub fn prepare_create(crd: &mut Value) {
    let stored: Vec<String> = storage_version(crd).into_iter().collect();
    if !crd.is_object() {
        return;
    }
    crd["status"] = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": if stored.is_empty() { Value::Null } else { json!(stored) },
    });
    if crd["metadata"].is_object() {
        crd["metadata"]["generation"] = json!(1);
    }
}

/// An update keeps the status, except that a new storage version is noted; changes of the spec count.
pub fn prepare_update(crd: &mut Value, old: &Value) {
    if !crd.is_object() {
        return;
    }
    crd["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
    if crd.get("spec") != old.get("spec") && crd["metadata"].is_object() {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        crd["metadata"]["generation"] = json!(generation + 1);
    }
    note_stored_version(crd);
}

/// An update of the status leaves the spec alone.
pub fn prepare_status_update(crd: &mut Value, old: &Value) {
    if crd.is_object() {
        crd["spec"] = old.get("spec").cloned().unwrap_or(Value::Null);
    }
}

fn note_stored_version(crd: &mut Value) {
    let Some(version) = storage_version(crd) else { return };
    let status = &mut crd["status"];
    if !status.is_object() {
        return;
    }
    if !status["storedVersions"].is_array() {
        status["storedVersions"] = json!([]);
    }
    if let Some(stored) = status["storedVersions"].as_array_mut()
        && !stored.iter().any(|name| name == version.as_str())
    {
        stored.push(json!(version));
    }
}

/// Whether the definition's resources are served.
pub fn is_established(crd: &Value) -> bool {
    condition(crd, "Established").is_some_and(|condition| condition["status"] == "True")
}

fn condition<'a>(crd: &'a Value, wanted: &str) -> Option<&'a Value> {
    let status = crd.get("status")?;
    list(status, "conditions")
        .iter()
        .find(|condition| condition["type"] == wanted)
}

/// Accepts the names that no other definition of the group has, and establishes the definition when all are accepted.
/// `others` may hold definitions of any group, this one included. Tells whether anything changed.
pub fn establish(crd: &mut Value, others: &[Value], now: &str) -> bool {
    if !crd.is_object() || !crd["spec"]["names"].is_object() {
        return false;
    }
    let before = crd.get("status").cloned();
    if !crd["status"].is_object() {
        crd["status"] = json!({});
    }
    let taken = Taken::by_others(crd, others);
    let wanted = crd["spec"]["names"].clone();
    let mut accepted = crd["status"]["acceptedNames"].clone();
    if !accepted.is_object() {
        accepted = json!({"plural": "", "kind": ""});
    }
    let mut conflict: Option<(&str, String)> = None;
    for (key, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let name = text(&wanted, key);
        if name != text(&accepted, key) && used.contains(&name) {
            conflict = Some((reason, format!("{} is already in use", go_quote(&name))));
        } else {
            set_or_remove(&mut accepted, key, wanted.get(key));
        }
        if key == "singular" {
            conflict = short_names(&wanted, &mut accepted, &taken).or(conflict);
        }
    }
    set_or_remove(&mut accepted, "categories", wanted.get("categories"));
    let names_condition = match &conflict {
        Some((reason, message)) => {
            json!({"type": "NamesAccepted", "status": "False", "reason": reason, "message": message})
        }
        None => {
            json!({"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"})
        }
    };
    let established = match condition(crd, "Established") {
        Some(old) if old["status"] == "True" => old.clone(),
        _ if conflict.is_none() => json!({"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted"}),
        Some(old) => old.clone(),
        None => {
            json!({"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted"})
        }
    };
    crd["status"]["acceptedNames"] = accepted;
    for condition in [names_condition, established] {
        set_condition(crd, condition, now);
    }
    crd.get("status") != before.as_ref()
}

fn short_names(wanted: &Value, accepted: &mut Value, taken: &Taken) -> Option<(&'static str, String)> {
    let own = list(accepted, "shortNames");
    let clashes: Vec<String> = list(wanted, "shortNames")
        .iter()
        .filter(|name| !own.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| taken.resources.contains(*name))
        .map(|name| format!("{} is already in use", go_quote(name)))
        .collect();
    if clashes.is_empty() {
        set_or_remove(accepted, "shortNames", wanted.get("shortNames"));
        return None;
    }
    Some(("ShortNamesConflict", aggregate_texts(clashes)))
}

fn set_or_remove(names: &mut Value, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => names[key] = value.clone(),
        None => {
            if let Some(fields) = names.as_object_mut() {
                fields.remove(key);
            }
        }
    }
}

fn set_condition(crd: &mut Value, mut condition: Value, now: &str) {
    if !crd["status"]["conditions"].is_array() {
        crd["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = crd["status"]["conditions"].as_array_mut() else {
        return;
    };
    let existing = conditions.iter_mut().find(|old| old["type"] == condition["type"]);
    // The time is that of the last change of status, not of the last write.
    let time = existing
        .as_ref()
        .filter(|old| old["status"] == condition["status"])
        .map(|old| old["lastTransitionTime"].clone());
    condition["lastTransitionTime"] = time.filter(Value::is_string).unwrap_or_else(|| json!(now));
    match existing {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Names in use within the group.
#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn by_others(crd: &Value, others: &[Value]) -> Self {
        let mut taken = Self::default();
        for other in others {
            let same_group = other["spec"]["group"] == crd["spec"]["group"];
            if !same_group || other["metadata"]["name"] == crd["metadata"]["name"] {
                continue;
            }
            let names = &other["status"]["acceptedNames"];
            taken.resources.extend([text(names, "plural"), text(names, "singular")]);
            taken.resources.extend(
                list(names, "shortNames")
                    .iter()
                    .filter_map(|name| name.as_str().map(str::to_owned)),
            );
            taken.kinds.extend([text(names, "kind"), text(names, "listKind")]);
        }
        taken
    }
}
