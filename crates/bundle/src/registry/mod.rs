//! Speaks to an OCI registry: sends a bundle there and brings one from there. Blobs that are already there do not travel; every
//! digest is compared on arrival; the tag comes last, so that whoever finds it finds everything.

mod auth;
mod http;
mod pull;
mod push;

use std::path::PathBuf;

pub use auth::Credentials;
pub use pull::{Pulled, There, look, pull};
pub use push::{Pushed, push};

use crate::reference::Reference;
use crate::{Error, Result};

/// How a registry is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Without TLS.
    pub plain_http: bool,
    /// PEM of an authority beside those the machine trusts.
    pub ca: Option<PathBuf>,
    /// What `docker login` wrote, where it is not in its usual place.
    pub docker_config: Option<PathBuf>,
}

/// A repository of a registry.
pub struct Repository {
    client: http::Client,
    reference: Reference,
}

impl Repository {
    pub fn new(reference: &Reference, access: &Access) -> Result<Self> {
        let credentials = Credentials::find(&reference.registry, access.docker_config.as_deref())?;
        Ok(Self {
            client: http::Client::new(reference, access, credentials)?,
            reference: reference.clone(),
        })
    }

    fn path(&self, rest: &str) -> String {
        format!("/v2/{}/{rest}", self.reference.repository)
    }

    /// The address that relative ones are seen from.
    fn base(&self) -> String {
        self.client.base().to_owned()
    }

    fn refused(&self, action: impl Into<String>, answer: &http::Answer) -> Error {
        Error::Registry {
            registry: self.reference.registry.clone(),
            action: action.into(),
            status: answer.status,
            fact: answer.said(),
        }
    }
}
