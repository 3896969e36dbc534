//! Server-side printing: objects as a `Table`, which is what `kubectl get` asks for. Here are the table itself and
//! the choice of a printer; one module per family of kinds has the cells. What clients do with a table (column
//! widths, wide columns, colours) is theirs.

mod builtin;
mod cluster;
mod column;
mod custom;
mod duration;
mod gojson;
mod jsonpath;
mod jsonpath_parse;
mod network;
mod pod;
mod policy;
mod storage;
mod view;
mod workload;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use duration::human_duration;
pub use jsonpath::JsonPath;

use crate::resource::ResourceType;
use custom::CustomPrinter;
use view::View;

/// How much of each object a table row carries (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; an absent one means the metadata.
    pub fn parse(parameter: &str) -> Option<Self> {
        match parameter {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// What the client asked for, and when.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions<'a> {
    pub include: IncludeObject,
    /// False for all events of a watch but the first, which then have no column definitions.
    pub headers: bool,
    /// `v1` or `v1beta1` of `meta.k8s.io`.
    pub version: &'a str,
    pub now: Timestamp,
}

/// Prints objects of one resource. Without `list_metadata` it is the table of a single object.
pub fn table(
    resource: &ResourceType,
    objects: &[Value],
    list_metadata: Option<&Value>,
    options: &TableOptions<'_>,
) -> Value {
    let metadata = table_metadata(objects, list_metadata);
    if let Some(origin) = resource.custom() {
        let printer = CustomPrinter::new(&origin.printer_columns);
        let rows = objects
            .iter()
            .map(|object| row(object, printer.row(object, options.now), None, options));
        return assemble(printer.definitions(), rows.collect(), metadata, options);
    }
    let printer = builtin::printer_of(&resource.gv.group, &resource.kind);
    let is_pod = resource.gv.group.is_empty() && resource.kind == "Pod";
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let view = View::new(object, options.now);
            let conditions = if is_pod { pod::conditions(view) } else { None };
            row(object, (printer.row)(view), conditions, options)
        })
        .collect();
    let rows = if rows.is_empty() && printer.null_when_empty {
        Value::Null
    } else {
        Value::Array(rows)
    };
    assemble(definitions_of(printer), rows, metadata, options)
}

/// Prints the `scale` subresource of any kind.
pub fn scale_table(scale: &Value, options: &TableOptions<'_>) -> Value {
    let printer = builtin::printer_of("autoscaling", "Scale");
    let cells = (printer.row)(View::new(scale, options.now));
    let rows = Value::Array(vec![row(scale, cells, None, options)]);
    assemble(definitions_of(printer), rows, object_metadata(scale), options)
}

fn definitions_of(printer: builtin::Printer) -> Value {
    printer.columns.iter().map(column::Column::definition).collect()
}

fn row(object: &Value, cells: Vec<Value>, conditions: Option<Value>, options: &TableOptions<'_>) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    if let Some(conditions) = conditions {
        row.insert("conditions".to_owned(), conditions);
    }
    // The bookmark that ends the initial events must be recognisable whatever the client wants to see of objects.
    let ends_initial_events = object
        .pointer("/metadata/annotations/k8s.io~1initial-events-end")
        .is_some();
    let shown = match options.include {
        IncludeObject::Object => object.clone(),
        IncludeObject::None if !ends_initial_events => Value::Null,
        IncludeObject::Metadata | IncludeObject::None => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", options.version),
            "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
        }),
    };
    row.insert("object".to_owned(), shown);
    Value::Object(row)
}

fn table_metadata(objects: &[Value], list_metadata: Option<&Value>) -> Value {
    match (list_metadata, objects) {
        (Some(list), _) => {
            let keep = ["resourceVersion", "continue", "remainingItemCount"];
            let kept = keep
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), list.get(key)?.clone())));
            Value::Object(kept.collect())
        }
        (None, [object, ..]) => object_metadata(object),
        (None, []) => json!({}),
    }
}

fn object_metadata(object: &Value) -> Value {
    match object.pointer("/metadata/resourceVersion") {
        Some(revision) => json!({"resourceVersion": revision}),
        None => json!({}),
    }
}

fn assemble(definitions: Value, rows: Value, metadata: Value, options: &TableOptions<'_>) -> Value {
    let fields = [
        ("kind", Value::from("Table")),
        ("apiVersion", Value::from(format!("meta.k8s.io/{}", options.version))),
        ("metadata", metadata),
        (
            "columnDefinitions",
            if options.headers { definitions } else { Value::Null },
        ),
        ("rows", rows),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Map<_, _>>()
        .into()
}
