//! Column definitions of the built-in printers.

use serde_json::{Value, json};

/// One column: what `columnDefinitions` says about it.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    value_type: &'static str,
    format: &'static str,
    /// Columns above zero are shown by `-o wide` only.
    priority: i64,
}

/// The object's name, which clients make bold, prefix or sort by.
pub const NAME: Column = Column {
    name: "Name",
    value_type: "string",
    format: "name",
    priority: 0,
};
pub const AGE: Column = text("Age");
/// What kinds without a printer of their own have instead of an age.
pub const CREATED_AT: Column = Column {
    name: "Created At",
    value_type: "date",
    format: "",
    priority: 0,
};

pub const fn text(name: &'static str) -> Column {
    Column {
        name,
        value_type: "string",
        format: "",
        priority: 0,
    }
}

pub const fn wide(name: &'static str) -> Column {
    Column {
        name,
        value_type: "string",
        format: "",
        priority: 1,
    }
}

pub const fn integer(name: &'static str) -> Column {
    Column {
        name,
        value_type: "integer",
        format: "",
        priority: 0,
    }
}

pub const fn boolean(name: &'static str) -> Column {
    Column {
        name,
        value_type: "boolean",
        format: "",
        priority: 0,
    }
}

/// A column that holds the name of an object.
pub const fn name(name: &'static str, priority: i64) -> Column {
    Column {
        name,
        value_type: "string",
        format: "name",
        priority,
    }
}

impl Column {
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.value_type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        })
    }
}
