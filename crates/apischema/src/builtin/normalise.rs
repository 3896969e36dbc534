//! Brings a decoded object into the form that Go gives it on its way through typed structs: unknown fields and nulls
//! dropped, empty values of `omitempty` fields gone, fields without it present, quantities and times canonical. JSON
//! syntax and duplicate fields are `decode`'s.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Number, Value};

use super::go_types::{GoType, GoTypes, Printed, StructType, TypeId};
use super::place::{Place, Step};
use super::quantity::Quantity;
use super::{data, quantity, time};

/// Go's decoder does not look at the bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why an object cannot be read as its kind; the text that follows `… cannot be handled as a Pod: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeFailure(pub String);

/// Normalises an object of a known kind in place and gives the paths of the fields that were dropped because they are
/// unknown (`spec.containers[0].foo`). Kinds that are not built in are left as they are.
pub fn normalise(group: &str, version: &str, kind: &str, object: &mut Value) -> Result<Vec<String>, DecodeFailure> {
    run(group, version, kind, object, None, false)
}

/// The same for an object that was made of a stored one: what is still as it was stored is in this form already.
pub fn normalise_changed(
    group: &str,
    version: &str,
    kind: &str,
    object: &mut Value,
    stored: Option<&Value>,
) -> Result<Vec<String>, DecodeFailure> {
    run(group, version, kind, object, stored, false)
}

/// The same for an object that comes from storage. That is protobuf, which knows no difference between an empty list
/// and none.
pub(super) fn normalise_stored(group: &str, version: &str, kind: &str, object: &mut Value, stored: Option<&Value>) {
    // The object came out of this same decoding, so there is nothing left to refuse.
    let _ = run(group, version, kind, object, stored, true);
}

fn run(
    group: &str,
    version: &str,
    kind: &str,
    object: &mut Value,
    stored: Option<&Value>,
    is_stored: bool,
) -> Result<Vec<String>, DecodeFailure> {
    let go = &data().go;
    let Some(id) = super::component_of(group, version, kind).and_then(|name| go.named(&name)) else {
        return Ok(Vec::new());
    };
    let mut pass = Pass {
        go,
        unknown: Vec::new(),
        mismatch: None,
        stored: stored.and_then(Value::as_object),
        is_stored,
    };
    let place = Place {
        parent: None,
        step: Step::Root,
    };
    pass.value(object, id, &place, None)?;
    match pass.mismatch {
        Some(text) => Err(DecodeFailure(text)),
        None => Ok(pass.unknown),
    }
}

/// Puts a field of the top level back to what Go prints for an empty one (`status: {}` with its own empty structs).
pub(super) fn reset_field(group: &str, kind: &str, object: &mut Value, name: &str) {
    let go = &data().go;
    let component = super::kind(group, kind).and_then(|known| go.named(&known.schema));
    let Some(GoType::Struct(structure)) = component.map(|id| go.get(id)) else {
        return;
    };
    let (Some(fields), Some(field)) = (object.as_object_mut(), structure.field(name)) else {
        return;
    };
    if field.printed == Printed::Always {
        fields.insert(name.to_owned(), go.zero_field(field));
    } else {
        fields.remove(name);
    }
}

struct Pass<'s> {
    go: &'static GoTypes,
    unknown: Vec<String>,
    /// The first value of a wrong type; Go reads on and reports it at the end.
    mismatch: Option<String>,
    /// What the object was made of.
    stored: Option<&'s Map<String, Value>>,
    is_stored: bool,
}

/// The struct and field that Go's error names around a value.
type Holder<'a> = Option<(&'a StructType, Option<&'a str>)>;

impl Pass<'_> {
    fn value(
        &mut self,
        value: &mut Value,
        id: TypeId,
        place: &Place<'_>,
        holder: Holder<'_>,
    ) -> Result<(), DecodeFailure> {
        match (self.go.get(id), &mut *value) {
            (GoType::Struct(structure), Value::Object(fields)) => return self.fields(fields, structure, place),
            (GoType::Map(values), Value::Object(entries)) => return self.entries(entries, *values, place, holder),
            (GoType::List(items), Value::Array(list)) => {
                let holder = holder.map(|(structure, _)| (structure, None));
                for (index, item) in list.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = self.go.zero(*items);
                    } else {
                        self.value(item, *items, &place.step(Step::Index(index)), holder)?;
                    }
                }
            }
            (GoType::Int32 | GoType::IntOrString, Value::Number(number)) if fits_int32(number) => {}
            (GoType::Int64, Value::Number(number)) if number.is_i64() => {}
            (GoType::Float, Value::Number(number)) => plain_number(number),
            (GoType::Quantity, _) => *value = Value::String(canonical_quantity(value)?),
            (GoType::Time, Value::String(text)) if !is_canonical(text) => {
                *text = time::canonical_seconds(text).map_err(DecodeFailure)?;
            }
            (GoType::Text | GoType::IntOrString | GoType::Time, Value::String(_))
            | (GoType::Bool, Value::Bool(_))
            | (GoType::Raw, _) => {}
            (GoType::MicroTime, Value::String(text)) => *text = time::canonical_micro(text).map_err(DecodeFailure)?,
            (GoType::Bytes, Value::String(text)) => {
                if let Err(message) = canonical_bytes(text) {
                    self.mismatch.get_or_insert(message);
                }
            }
            _ => self.mismatched(value, id, place, holder),
        }
        Ok(())
    }

    fn fields(
        &mut self,
        fields: &mut Map<String, Value>,
        structure: &'static StructType,
        place: &Place<'_>,
    ) -> Result<(), DecodeFailure> {
        // Hardly any field goes: looking first is cheaper than a map that is rebuilt.
        let mut gone = Vec::new();
        let stored = self.stored.filter(|_| place.parent.is_none());
        for (name, value) in fields.iter_mut() {
            if stored.is_some_and(|stored| stored.get(name) == Some(&*value)) {
                continue;
            }
            let Some(field) = structure.field(name) else {
                self.unknown.push(place.step(Step::Key(name)).strict_path());
                gone.push(name.clone());
                continue;
            };
            if value.is_null() {
                gone.push(name.clone());
                continue;
            }
            let here = place.step(Step::Field(field));
            let holder = Some((structure, field.go_type.as_deref()));
            self.value(value, field.holds, &here, holder)?;
            if !field.pointer && field.printed != Printed::Always && is_empty(value) {
                gone.push(name.clone());
            }
        }
        for name in gone {
            fields.remove(&name);
        }
        for field in structure.fields.iter().filter(|field| field.printed == Printed::Always) {
            match fields.get_mut(&field.name) {
                None => {
                    fields.insert(field.name.clone(), self.go.zero_field(field));
                }
                Some(value) if !field.pointer && self.is_nothing(field.holds, value) => {
                    *value = Value::Null;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a field that is always printed is printed as null. A list that was sent empty is owned by its sender, and
    /// so kept until it is stored.
    fn is_nothing(&self, holds: TypeId, value: &Value) -> bool {
        let may_be_nothing = match self.go.get(holds) {
            GoType::List(_) => self.is_stored,
            GoType::Map(_) | GoType::Bytes => true,
            _ => false,
        };
        may_be_nothing && is_empty(value)
    }

    fn entries(
        &mut self,
        entries: &mut Map<String, Value>,
        values: TypeId,
        place: &Place<'_>,
        holder: Holder<'_>,
    ) -> Result<(), DecodeFailure> {
        let is_resource_list = holder.is_some_and(|(_, go_type)| go_type == Some("v1.ResourceList"));
        let holder = holder.map(|(structure, _)| (structure, None));
        for (key, value) in entries.iter_mut() {
            if value.is_null() {
                *value = match self.go.get(values) {
                    GoType::Bytes => Value::String(String::new()),
                    _ => self.go.zero(values),
                };
            } else {
                self.value(value, values, &place.step(Step::Key(key)), holder)?;
            }
            if is_resource_list && let Some(rounded) = value.as_str().and_then(quantity::rounded_to_milli) {
                *value = Value::String(rounded);
            }
        }
        Ok(())
    }

    fn mismatched(&mut self, value: &Value, id: TypeId, place: &Place<'_>, holder: Holder<'_>) {
        if self.mismatch.is_some() {
            return;
        }
        let plain = self.go.go_name(id);
        let go_type = match holder {
            Some((_, Some(named))) => named,
            _ => plain.as_str(),
        };
        let is_integer = matches!(self.go.get(id), GoType::Int32 | GoType::Int64 | GoType::IntOrString);
        let given = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if is_integer => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let target = match holder {
            Some((structure, _)) => format!("Go struct field {}.{}", structure.name, place.go_path()),
            None => "Go value".to_owned(),
        };
        self.mismatch = Some(format!(
            "json: cannot unmarshal {given} into {target} of type {go_type}"
        ));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|value| i32::try_from(value).is_ok())
}

/// Go prints a float without a fraction as an integer.
fn plain_number(number: &mut Number) {
    let text = number
        .as_f64()
        .filter(|value| value.fract() == 0.0 && value.abs() < 1e15)
        .map(|value| format!("{value:.0}"));
    if let Some(whole) = text.and_then(|text| text.parse::<i64>().ok()) {
        *number = Number::from(whole);
    }
}

fn canonical_quantity(value: &Value) -> Result<String, DecodeFailure> {
    let fail = |text: &str| DecodeFailure(text.to_owned());
    let parsed = match value {
        Value::String(text) => Quantity::parse(text.trim()),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return Err(fail(quantity::FORMAT_ERROR)),
    };
    parsed.map(|parsed| parsed.to_text()).map_err(fail)
}

fn canonical_bytes(text: &mut String) -> Result<(), String> {
    if text.contains(['\n', '\r']) {
        text.retain(|c| c != '\n' && c != '\r');
    }
    match BASE64.decode(text.as_bytes()) {
        Ok(bytes) => {
            *text = BASE64.encode(bytes);
            Ok(())
        }
        Err(error) => Err(format!(
            "illegal base64 data at input byte {}",
            offset_of(&error, text.len())
        )),
    }
}

fn offset_of(error: &base64::DecodeError, length: usize) -> usize {
    match error {
        base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _) => *offset,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => length / 4 * 4,
    }
}

/// The common case, told without parsing: `2026-01-02T03:04:05Z` with plausible digits.
fn is_canonical(text: &str) -> bool {
    let shape = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, wanted): (&u8, &u8)| {
        if *wanted == b'd' {
            byte.is_ascii_digit()
        } else {
            byte == wanted
        }
    };
    text.len() == shape.len()
        && text.as_bytes().iter().zip(shape).all(fits)
        && &text[5..7] <= "12"
        && &text[5..7] >= "01"
        && &text[8..10] <= "28"
        && &text[8..10] >= "01"
        && &text[11..13] <= "23"
        && &text[14..16] <= "59"
        && &text[17..19] <= "59"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    }

    fn failure(mut object: Value) -> String {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        normalise("", "v1", &kind, &mut object).expect_err("refused").0
    }

    fn container(fields: &Value) -> Value {
        let mut container = json!({"name": "a", "image": "b"});
        for (key, value) in fields.as_object().expect("object") {
            container[key] = value.clone();
        }
        pod(&json!({"containers": [container]}))
    }

    #[test]
    fn what_is_as_it_was_stored_is_left_and_what_was_changed_is_brought_into_form() {
        let sent = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}, "ports": []},
        ]}});
        let mut stored = sent.clone();
        normalise("", "v1", "Pod", &mut stored).expect("fits");
        normalise_stored("", "v1", "Pod", &mut stored, None);
        let mut again = stored.clone();
        normalise("", "v1", "Pod", &mut again).expect("fits");
        assert_eq!(again, stored, "what is stored is in form already");

        let mut changed = stored.clone();
        changed["metadata"]["labels"] = json!({});
        changed["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("2000m");
        changed["spec"]["nonsense"] = json!(1);
        let mut whole = changed.clone();
        let unknown = normalise_changed("", "v1", "Pod", &mut changed, Some(&stored)).expect("fits");
        assert_eq!(unknown, ["spec.nonsense"]);
        normalise("", "v1", "Pod", &mut whole).expect("fits");
        assert_eq!(changed, whole);
        assert_eq!(changed["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");

        // Nothing but equality with what is stored saves the work.
        let mut odd = sent.clone();
        normalise_changed("", "v1", "Pod", &mut odd, Some(&sent)).expect("fits");
        assert_eq!(odd["spec"], sent["spec"]);
    }

    #[test]
    fn empty_values_go_and_required_ones_stay() {
        let mut object = container(&json!({
            "env": [], "stdin": false, "workingDir": "", "securityContext": {}, "args": null,
            "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
        }));
        object["spec"]["terminationGracePeriodSeconds"] = json!(0);
        object["spec"]["hostNetwork"] = json!(false);
        assert_eq!(
            normalise("", "v1", "Pod", &mut object).expect("fits"),
            Vec::<String>::new()
        );
        assert_eq!(
            object,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "a", "image": "b", "securityContext": {},
                        "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                    }],
                },
            })
        );
    }

    #[test]
    fn structs_by_value_are_printed_empty() {
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}});
        normalise("", "v1", "Service", &mut service).expect("fits");
        assert_eq!(service["status"], json!({"loadBalancer": {}}));
        assert_eq!(service["spec"]["ports"][0]["targetPort"], json!(0));
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []});
        normalise("rbac.authorization.k8s.io", "v1", "Role", &mut role).expect("fits");
        assert_eq!(role["rules"], json!([]));
        normalise_stored("rbac.authorization.k8s.io", "v1", "Role", &mut role, None);
        assert_eq!(role["rules"], Value::Null);
    }

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let mut object = container(&json!({"foo": 2, "env": [{"name": "A", "x": 1}]}));
        object["metadata"]["foo"] = json!(1);
        let unknown = normalise("", "v1", "Pod", &mut object).expect("fits");
        assert_eq!(
            unknown,
            ["metadata.foo", "spec.containers[0].env[0].x", "spec.containers[0].foo"]
        );
        assert_eq!(object["metadata"], json!({"name": "p"}));
    }

    #[test]
    fn wrong_types_are_told_in_gos_words() {
        // Recorded from a real server.
        let go = "json: cannot unmarshal";
        assert_eq!(
            failure(container(&json!({"image": 5}))),
            format!("{go} number into Go struct field Container.spec.containers.image of type string")
        );
        assert_eq!(
            failure(container(&json!({"ports": [{"containerPort": 80, "protocol": 5}]}))),
            format!(
                "{go} number into Go struct field ContainerPort.spec.containers.ports.protocol of type v1.Protocol"
            )
        );
        assert_eq!(
            failure(container(&json!({"command": [5]}))),
            format!("{go} number into Go struct field Container.spec.containers.command of type string")
        );
        assert_eq!(
            failure(container(&json!({"livenessProbe": {"httpGet": {"port": 1.5}}}))),
            format!(
                "{go} number 1.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
            )
        );
        assert_eq!(
            failure(pod(&json!({"containers": {}}))),
            format!("{go} object into Go struct field PodSpec.spec.containers of type []v1.Container")
        );
        assert_eq!(
            failure(pod(&json!(5))),
            format!("{go} number into Go struct field Pod.spec of type v1.PodSpec")
        );
        assert_eq!(
            failure(json!({"kind": "Pod", "metadata": {"labels": {"a": 5}}})),
            format!("{go} number into Go struct field ObjectMeta.metadata.labels of type string")
        );
        assert_eq!(
            failure(container(&json!({"resources": {"limits": {"cpu": "x"}}}))),
            quantity::FORMAT_ERROR
        );
        assert_eq!(
            failure(json!({"kind": "Secret", "data": {"a": "!!!"}})),
            "illegal base64 data at input byte 0"
        );
    }
}
