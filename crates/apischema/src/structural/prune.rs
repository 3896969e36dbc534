//! Removing what the schema does not know, and telling what was removed.

use std::fmt::Write as _;

use serde_json::Value;

use crate::schema::SchemaRef;

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields and gives their paths, sorted. The root of a resource keeps its type and object metadata,
/// whatever the schema says.
pub fn prune(value: &mut Value, schema: SchemaRef<'_>, is_root: bool) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        unknown: Vec::new(),
    };
    pruner.prune(value, Some(schema), is_root);
    pruner.unknown.sort_unstable();
    pruner.unknown
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, value: &mut Value, schema: Option<SchemaRef<'_>>, is_root: bool) {
        let preserve = schema.is_some_and(|schema| schema.preserve_unknown);
        let embedded = is_root || schema.is_some_and(|schema| schema.embedded_resource);
        match value {
            Value::Object(fields) => {
                let at_root = self.path.is_empty();
                let mut dropped = Vec::new();
                for (key, child) in fields.iter_mut() {
                    let is_meta = META_FIELDS.contains(&key.as_str());
                    if embedded && is_meta {
                        continue;
                    }
                    match schema.and_then(|schema| schema.property(key)) {
                        Some(child_schema) => {
                            let length = self.enter_key(key);
                            self.prune(child, Some(child_schema), false);
                            self.path.truncate(length);
                        }
                        None if preserve => {}
                        None => {
                            if !is_meta || !at_root {
                                let length = self.enter_key(key);
                                self.unknown.push(self.path.clone());
                                self.path.truncate(length);
                            }
                            dropped.push(key.clone());
                        }
                    }
                }
                for key in dropped {
                    fields.remove(&key);
                }
            }
            Value::Array(items) => {
                let item_schema = schema.and_then(SchemaRef::items);
                // Below a preserving array without items nothing is known, and nothing is touched.
                if preserve && item_schema.is_none() {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    let _ = write!(self.path, "[{index}]");
                    if preserve {
                        self.keep(item, item_schema);
                    } else {
                        self.prune(item, item_schema, false);
                    }
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Items of a preserving array are kept, but what they declare is pruned by its own schema.
    fn keep(&mut self, value: &mut Value, schema: Option<SchemaRef<'_>>) {
        let Some(schema) = schema else { return };
        match value {
            Value::Object(fields) => {
                for (key, child) in fields.iter_mut() {
                    if schema.embedded_resource && META_FIELDS.contains(&key.as_str()) {
                        continue;
                    }
                    if let Some(child_schema) = schema.property(key) {
                        let length = self.enter_key(key);
                        self.prune(child, Some(child_schema), false);
                        self.path.truncate(length);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.keep(item, schema.items());
                }
            }
            _ => {}
        }
    }

    fn enter_key(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }
}
