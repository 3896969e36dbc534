//! Request bodies in the protobuf encoding, which Go's typed clients — and so `kubectl create`, `cordon` or `drain` —
//! send for built-in kinds without being asked, and without trying another when it is refused. They become the JSON
//! that the same client would have sent. Answers are never in protobuf: every client that sends it takes JSON too.

mod fields;
mod wire;

#[cfg(test)]
mod tests;

use afloat_apischema::builtin;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::resource::GroupVersion;
use fields::{Field, Shape, ValueType};
use wire::{Payload, Reader};

/// The content type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with, before the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// Messages in messages, at most; real objects have about 20 levels.
const DEEPEST: usize = 100;

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the body does not begin like a Kubernetes protobuf message")]
    NotKubernetes,
    #[error("the body ends within a field, or a field has another type than its message says")]
    Malformed,
    #[error("no protobuf form is known for {kind} in version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
}

/// Reads an object together with its envelope, which holds `apiVersion` and `kind`.
pub fn decode(body: &[u8]) -> Result<Value, Unreadable> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::NotKubernetes)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(envelope) {
        match field? {
            (1, Payload::Bytes(type_meta)) => {
                for field in Reader::new(type_meta) {
                    match field? {
                        (1, Payload::Bytes(text)) => api_version = text_of(text)?,
                        (2, Payload::Bytes(text)) => kind = text_of(text)?,
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(message)) => raw = message,
            _ => {}
        }
    }
    let gv = GroupVersion::parse(&api_version);
    let schema = builtin::schema_of(&gv.group, &gv.version, &kind);
    let component = schema.as_ref().and_then(|schema| schema.root().node().name.as_deref());
    let Some(message) = component.and_then(fields::message) else {
        return Err(Unreadable::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    read_message(message, raw, &mut object, DEEPEST)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn read_message(
    message: &[Field],
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Unreadable> {
    let depth = depth.checked_sub(1).ok_or(Unreadable::Malformed)?;
    for field in Reader::new(bytes) {
        let (number, payload) = field?;
        // Fields newer than the table are dropped, as an older server drops them.
        let Some(field) = message.iter().find(|field| field.number == number) else {
            continue;
        };
        match field.shape {
            Shape::One => {
                object.insert(field.name.clone(), read_value(&field.value_type, &payload, depth)?);
            }
            Shape::Many => {
                let value = read_value(&field.value_type, &payload, depth)?;
                let list = object.entry(field.name.clone()).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or(Unreadable::Malformed)?.push(value);
            }
            Shape::Map => {
                let (key, value) = read_entry(&field.value_type, &payload, depth)?;
                let map = object.entry(field.name.clone()).or_insert_with(|| json!({}));
                map.as_object_mut().ok_or(Unreadable::Malformed)?.insert(key, value);
            }
            // A struct that Go embeds: its fields stand among those of its owner.
            Shape::Inline => {
                let (ValueType::Message(name), Payload::Bytes(bytes)) = (&field.value_type, payload) else {
                    return Err(Unreadable::Malformed);
                };
                read_message(fields::message(name).unwrap_or_default(), bytes, object, depth)?;
            }
        }
    }
    Ok(())
}

fn read_entry(value_type: &ValueType, payload: &Payload<'_>, depth: usize) -> Result<(String, Value), Unreadable> {
    let Payload::Bytes(entry) = payload else {
        return Err(Unreadable::Malformed);
    };
    let (mut key, mut value) = (String::new(), None);
    for field in Reader::new(entry) {
        match field? {
            (1, Payload::Bytes(text)) => key = text_of(text)?,
            (2, payload) => value = Some(read_value(value_type, &payload, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        // An absent value is the zero value.
        None => read_value(value_type, &Payload::Bytes(&[]), depth)?,
    };
    Ok((key, value))
}

fn read_value(value_type: &ValueType, payload: &Payload<'_>, depth: usize) -> Result<Value, Unreadable> {
    match (value_type, payload) {
        (ValueType::Boolean, Payload::Number(number)) => Ok((*number != 0).into()),
        (ValueType::Integer, Payload::Number(number)) => Ok((*number).into()),
        (ValueType::Text, Payload::Bytes(bytes)) => text_of(bytes).map(Value::from),
        (ValueType::Bytes, Payload::Bytes(bytes)) => Ok(STANDARD.encode(bytes).into()),
        (ValueType::Texts, Payload::Bytes(bytes)) => texts(bytes),
        (ValueType::Quantity, Payload::Bytes(bytes)) => {
            Ok(single(bytes, 1)?.map_or(Ok("0".into()), |payload| read_value(&ValueType::Text, &payload, depth))?)
        }
        (ValueType::IntOrString, Payload::Bytes(bytes)) => int_or_string(bytes),
        (ValueType::Time { micro }, Payload::Bytes(bytes)) => time(bytes, *micro),
        (ValueType::Json, Payload::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Payload::Bytes(text)) if !text.is_empty() => {
                serde_json::from_slice(text).map_err(|_| Unreadable::Malformed)
            }
            _ => Ok(Value::Null),
        },
        (ValueType::Message(name), Payload::Bytes(bytes)) => {
            let mut object = Map::new();
            read_message(fields::message(name).unwrap_or_default(), bytes, &mut object, depth)?;
            Ok(Value::Object(object))
        }
        _ => Err(Unreadable::Malformed),
    }
}

/// The last occurrence of a field.
fn single(bytes: &[u8], wanted: u64) -> Result<Option<Payload<'_>>, Unreadable> {
    let mut found = None;
    for field in Reader::new(bytes) {
        let (number, payload) = field?;
        if number == wanted {
            found = Some(payload);
        }
    }
    Ok(found)
}

fn texts(bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut list = Vec::new();
    for field in Reader::new(bytes) {
        if let (1, Payload::Bytes(text)) = field? {
            list.push(Value::from(text_of(text)?));
        }
    }
    Ok(Value::Array(list))
}

/// Type 1 is text, anything else a number.
fn int_or_string(bytes: &[u8]) -> Result<Value, Unreadable> {
    let kind = single(bytes, 1)?;
    if matches!(kind, Some(Payload::Number(1))) {
        return match single(bytes, 3)? {
            Some(Payload::Bytes(text)) => text_of(text).map(Value::from),
            _ => Ok("".into()),
        };
    }
    match single(bytes, 2)? {
        Some(Payload::Number(number)) => Ok(number.into()),
        _ => Ok(0.into()),
    }
}

/// No seconds is no time, which JSON writes as null.
fn time(bytes: &[u8], micro: bool) -> Result<Value, Unreadable> {
    let number = |field| -> Result<i64, Unreadable> {
        match single(bytes, field)? {
            Some(Payload::Number(number)) => Ok(number),
            None => Ok(0),
            Some(Payload::Bytes(_)) => Err(Unreadable::Malformed),
        }
    };
    let (seconds, nanos) = (number(1)?, number(2)?);
    if seconds == 0 && nanos == 0 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| Unreadable::Malformed)?;
    let moment = Timestamp::new(seconds, nanos).map_err(|_| Unreadable::Malformed)?;
    let text = if micro {
        format!("{moment:.6}")
    } else {
        format!("{moment:.0}")
    };
    Ok(text.into())
}

fn text_of(bytes: &[u8]) -> Result<String, Unreadable> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| Unreadable::Malformed)
}
