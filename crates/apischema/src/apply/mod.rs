//! Server-side apply and the ownership of fields behind it: who owns which field (`metadata.managedFields`), what a
//! write does to that, and how an applied configuration becomes part of an object. Pure; defaulting, validation and
//! storage of the result are the caller's.

mod compare;
pub mod fieldset;
mod fieldsv1;
mod folded;
pub(crate) mod gofmt;
mod last_applied;
mod managed;
mod merge;
mod server_side;
mod types;
mod update;
mod walk;

#[cfg(test)]
mod tests;

pub use fieldset::{FieldSet, PathElement};
pub use folded::unfold;
pub use server_side::apply;
pub use update::{keep_times_of_noop, track_update};

use crate::schema::SchemaRef;
use managed::Entry;

/// Who writes, by what version of which kind, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The field manager of the request; for writes other than apply, the part of the user agent before the slash
    /// when the request names none.
    pub name: &'a str,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status` and the like; none for the main resource.
    pub subresource: Option<&'a str>,
    /// Now, in RFC 3339 and whole seconds, UTC.
    pub time: &'a str,
    /// The other versions that the server knows of this kind. Entries of versions that it does not know are dropped,
    /// or for custom resources undo all tracking, as upstream cannot convert then.
    pub other_versions: &'a [&'a str],
}

impl Manager<'_> {
    /// Drops the entries of versions that the server does not know. Converters of custom resources cannot do that.
    fn drop_unknown_versions(&self, schema: SchemaRef<'_>, entries: &mut Vec<Entry>) -> Result<(), String> {
        let is_known = |entry: &Entry| {
            entry.api_version() == self.api_version || self.other_versions.contains(&entry.api_version())
        };
        let is_custom = schema.name.is_none();
        if is_custom && let Some(unknown) = entries.iter().find(|entry| !is_known(entry)) {
            let version = unknown.api_version();
            return Err(format!("request to convert CR to an invalid group/version: {version}"));
        }
        entries.retain(is_known);
        Ok(())
    }
}

/// One field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCause {
    /// `conflict with "kubectl-edit" using v1`.
    pub message: String,
    /// `.data.key`.
    pub field: String,
}

/// Why an apply did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400, reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// 409, reason `Conflict`; the causes are of type `FieldManagerConflict`.
    #[error("{message}")]
    Conflict {
        message: String,
        causes: Vec<ConflictCause>,
    },
    /// 500 without a reason: upstream has no better status for it, only a message.
    #[error("{0}")]
    Internal(String),
}
