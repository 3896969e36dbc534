//! Reads the text of a stored object back into what it was made of. Field sets come out folded, as storage keeps them, and byte for byte as
//! they went in.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The object that `body` is the text of; `null` for what is none, which storage does not hold.
pub(super) fn read(body: &[u8]) -> Value {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    Part::Object.deserialize(&mut deserializer).unwrap_or_default()
}

/// The way down to a field set.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Entries,
    Entry,
}

impl Part {
    /// What a field of this part holds, where field sets are below it.
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => Some(Self::Entries),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Entries => deserializer.deserialize_seq(self),
            _ => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a stored object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_element_seed(Self::Entry)? {
            all.push(entry);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = match self.below(&key) {
                Some(part) => fields.next_value_seed(part)?,
                None if matches!(self, Self::Entry) && key == "fieldsV1" => {
                    let text: &RawValue = fields.next_value()?;
                    Value::from(text.get())
                }
                None => fields.next_value()?,
            };
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}
