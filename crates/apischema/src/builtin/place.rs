//! Where in an object the decoding is, and how the real server words that: one way in strict errors, another in Go's own.

use super::go_types::Field;

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'a Field),
    Key(&'a str),
    Index(usize),
}

/// Where the pass is; rendered only when something is to be said.
pub(super) struct Place<'a> {
    pub(super) parent: Option<&'a Place<'a>>,
    pub(super) step: Step<'a>,
}

impl<'a> Place<'a> {
    pub(super) fn step(&'a self, step: Step<'a>) -> Place<'a> {
        Place {
            parent: Some(self),
            step,
        }
    }

    /// `spec.containers[0].foo`
    pub(super) fn strict_path(&self) -> String {
        let mut path = self.parent.map(Place::strict_path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Index(index) => path.extend(["[", &index.to_string(), "]"]),
            Step::Field(Field { name, .. }) => append(&mut path, name),
            Step::Key(name) => append(&mut path, name),
        }
        path
    }

    /// `spec.containers.ports`: Go's own errors know no indexes and no map keys, but name embedded structs.
    pub(super) fn go_path(&self) -> String {
        let mut path = self.parent.map(Place::go_path).unwrap_or_default();
        if let Step::Field(field) = self.step {
            if let Some(embedded) = &field.embedded {
                append(&mut path, embedded);
            }
            append(&mut path, &field.name);
        }
        path
    }
}

fn append(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
