//! What runs on a machine that is being upgraded. So far the one primitive every step stands on: putting a file in
//! place of another so that neither a crash nor a wrong download can leave half of one. Nothing here knows Kubernetes.

pub mod digest;
pub mod replace;
