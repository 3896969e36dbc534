//! What a schema says about an object: pruning, defaulting, validation, CEL rules, the patch forms, and server-side
//! apply with its field ownership. Pure functions from schemas and values to values; storage, revisions and requests
//! belong to `afloat-apisim`.

pub mod apply;
pub mod builtin;
pub mod cel;
pub mod crd;
pub mod decode;
pub mod field_error;
pub mod patch;
pub mod schema;
pub mod structural;
