//! What a structural schema does to a custom resource: pruning, coercion of the embedded metadata, defaulting and
//! validation with ratcheting. Everything here is a pure function of schema and value; rules in CEL live in
//! [`crate::cel`], and the order in which a request goes through these steps in [`crate::crd`].

mod coerce;
mod correlate;
mod defaults;
mod formats;
mod leaf;
mod lists;
pub mod names;
pub mod object_meta;
mod pattern;
mod prune;
mod validate;

pub use coerce::{coerce_embedded, coerce_metadata, validate_embedded};
pub use correlate::{correlated_equal, correlated_item};
pub use defaults::{default, prune_nulls};
pub use formats::is_supported as is_supported_format;
pub use lists::validate_lists;
pub use names::NameRule;
pub use pattern::{compile as compile_pattern, matches as matches_pattern};
pub use prune::prune;
pub use validate::{validate, validate_at, validate_update};

#[cfg(test)]
mod tests;
