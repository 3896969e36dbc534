//! Reads the struct declarations of Go API packages: for every JSON field whether it is a pointer and whether it
//! vanishes when empty. A line reader is enough, since these files are formatted by gofmt and hold one field per line.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// One field of a Go struct.
#[derive(Clone, Debug)]
struct GoField {
    json_name: String,
    go_type: String,
    omit_empty: bool,
    omit_zero: bool,
    inline: bool,
    /// The embedded struct that the field came from: decoding errors name it in their path.
    embedded_in: Option<String>,
}

/// OpenAPI name → fields.
#[derive(Debug, Default)]
pub struct GoTypes {
    structs: BTreeMap<String, Vec<GoField>>,
}

impl GoTypes {
    pub fn read_package(&mut self, openapi_prefix: &str, folder: &Path) -> Result<()> {
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_source = path.extension().is_some_and(|extension| extension == "go");
            if is_source && !name.starts_with("zz_") && !name.ends_with("_test.go") && name != "generated.pb.go" {
                self.read_file(openapi_prefix, &std::fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    fn read_file(&mut self, openapi_prefix: &str, source: &str) {
        let mut current: Option<(String, Vec<GoField>)> = None;
        for line in source.lines() {
            if let Some(name) = line
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(" struct {"))
            {
                current = Some((format!("{openapi_prefix}.{name}"), Vec::new()));
            } else if line == "}" {
                if let Some((name, fields)) = current.take() {
                    self.structs.insert(name, fields);
                }
            } else if let Some((_, fields)) = &mut current {
                fields.extend(field(line));
            }
        }
    }

    /// The facts of one component: `x-go-pointer`, `x-go-always` (printed even when empty), `x-go-struct` (a struct held
    /// by value: printed even when empty), `x-go-type` (names of Go types that are not plain) and `x-go-embedded` (the
    /// embedded struct a field is declared in).
    pub fn facts(&self, component: &str, schema: &Value) -> Result<Option<Map<String, Value>>> {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Ok(None);
        };
        let fields = self.flattened(component)?;
        let (mut pointer, mut always, mut by_value) = (Vec::new(), Vec::new(), Vec::new());
        let (mut names, mut embedded) = (Map::new(), Map::new());
        for (property, child) in properties {
            let field = fields
                .get(property)
                .with_context(|| format!("{component}.{property} has no Go field"))?;
            let is_pointer = field.go_type.starts_with('*');
            let is_struct = !is_pointer && child.get("$ref").is_some();
            if is_pointer {
                pointer.push(property.clone());
            }
            if let Some(holder) = &field.embedded_in {
                embedded.insert(property.clone(), json!(holder));
            }
            if !field.omit_empty {
                always.push(property.clone());
            } else if is_struct && !field.omit_zero {
                by_value.push(property.clone());
            }
            if let Some(name) = named_type(component, &field.go_type)
                && child.get("$ref").is_none()
            {
                names.insert(property.clone(), json!(name));
            }
        }
        let mut facts = Map::new();
        for (key, list) in [
            ("x-go-pointer", pointer),
            ("x-go-always", always),
            ("x-go-struct", by_value),
        ] {
            if !list.is_empty() {
                facts.insert(key.to_owned(), json!(list));
            }
        }
        for (key, map) in [("x-go-type", names), ("x-go-embedded", embedded)] {
            if !map.is_empty() {
                facts.insert(key.to_owned(), Value::Object(map));
            }
        }
        Ok(Some(facts))
    }

    /// Fields with the inlined structs' fields in their place.
    fn flattened(&self, component: &str) -> Result<BTreeMap<String, GoField>> {
        let declared = self
            .structs
            .get(component)
            .with_context(|| format!("no Go type for {component}"))?;
        let mut fields = BTreeMap::new();
        for field in declared {
            if !field.inline {
                fields.insert(field.json_name.clone(), field.clone());
                continue;
            }
            let package = match field.go_type.split_once('.') {
                Some(("metav1", _)) => "io.k8s.apimachinery.pkg.apis.meta.v1",
                _ => component.rsplit_once('.').map_or("", |(package, _)| package),
            };
            let name = field.go_type.rsplit('.').next().unwrap_or_default();
            let inner = self.flattened(&format!("{package}.{name}"))?;
            fields.extend(inner.into_iter().map(|(json_name, mut inner)| {
                if name != "TypeMeta" {
                    inner.embedded_in = Some(match inner.embedded_in {
                        Some(deeper) => format!("{name}.{deeper}"),
                        None => name.to_owned(),
                    });
                }
                (json_name, inner)
            }));
        }
        Ok(fields)
    }
}

/// `v1.Protocol` for `Protocol`, nothing for types that JSON schema already names.
fn named_type(component: &str, go_type: &str) -> Option<String> {
    let bare = go_type.trim_start_matches('*');
    let package = component.rsplit('.').nth(1).unwrap_or("v1");
    let qualified = |name: &str| match name {
        "string" | "bool" | "int32" | "int64" | "uint32" | "float64" | "int" | "byte" => name.to_owned(),
        _ => match name.split_once('.') {
            Some(("metav1" | "corev1", local)) => format!("v1.{local}"),
            Some(_) => name.to_owned(),
            None => format!("{package}.{name}"),
        },
    };
    let (prefix, element) = match bare.strip_prefix("[]") {
        Some(element) => ("[]", element),
        None => ("", bare),
    };
    if element.starts_with("map[") || element.starts_with("[]") {
        return None;
    }
    let name = qualified(element.trim_start_matches('*'));
    let is_plain = !name.contains('.');
    (!is_plain).then(|| format!("{prefix}{name}"))
}

fn field(line: &str) -> Option<GoField> {
    let line = line.strip_prefix('\t')?;
    if line.starts_with("//") {
        return None;
    }
    let (declaration, tags) = line.split_once('`')?;
    let tag = tags.split_once("json:\"")?.1.split_once('"')?.0;
    let mut words = declaration.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let mut options = tag.split(',');
    let json_name = options.next().unwrap_or_default().to_owned();
    let options: Vec<&str> = options.collect();
    Some(GoField {
        inline: json_name.is_empty(),
        json_name,
        go_type: second.unwrap_or(first).to_owned(),
        omit_empty: options.contains(&"omitempty"),
        omit_zero: options.contains(&"omitzero"),
        embedded_in: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_their_options() {
        let mut types = GoTypes::default();
        types.read_file(
            "p",
            "type Inner struct {\n\tDeep *int32 `json:\"deep,omitempty\"`\n}\ntype Outer struct {\n\t// words\n\tInner `json:\",inline\"`\n\tName string `json:\"name\" protobuf:\"x\"`\n\tSpec Spec `json:\"spec,omitempty\"`\n\tMode Mode `json:\"mode,omitempty\"`\n}\n",
        );
        let schema = json!({"properties": {
            "deep": {"type": "integer"}, "name": {"type": "string"}, "mode": {"type": "string"}, "spec": {"$ref": "#/Spec"},
        }});
        let facts = types.facts("p.Outer", &schema).unwrap().unwrap();
        assert_eq!(
            Value::Object(facts),
            json!({"x-go-pointer": ["deep"], "x-go-always": ["name"], "x-go-struct": ["spec"], "x-go-type": {"mode": "p.Mode"},
                "x-go-embedded": {"deep": "Inner"}})
        );
    }
}
