//! Names of images, as `registry.example:5000/afloat/bundle:v1.36.3`. The registry is always written out: in an air-gapped site
//! there is none that could be meant otherwise.

use std::fmt;
use std::str::FromStr;

use afloat_node::digest::Digest;

/// Where an image is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reference {
    /// Host, and port where one is written.
    pub registry: String,
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

/// Text that names no image.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}: write REGISTRY/NAME:TAG, as registry.example:5000/afloat/bundle:v1.36.3")]
pub struct NotAReference(&'static str);

impl Reference {
    /// The image of this digest, whatever its tags say later.
    pub fn pinned(&self, digest: Digest) -> String {
        format!("{}/{}@{digest}", self.registry, self.repository)
    }

    /// What to ask the registry for: the digest where there is one.
    pub fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = NotAReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (registry, rest) = text.split_once('/').ok_or(NotAReference("the registry is missing"))?;
        let is_host = registry.contains(['.', ':']) || registry == "localhost";
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        if !is_host || !registry.chars().all(plain) {
            return Err(NotAReference("the first part is no registry"));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (
                rest,
                Some(digest.parse().map_err(|_| NotAReference("the digest is none"))?),
            ),
            None => (rest, None),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        let is_name = repository.split('/').all(|part| {
            let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            part.chars().all(allowed) && ends(part.chars().next()) && ends(part.chars().next_back())
        });
        if !is_name {
            return Err(NotAReference(
                "a name has lower-case letters, digits, dots, dashes and slashes",
            ));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(NotAReference("a tag has letters, digits, dots and dashes"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag,
            digest,
        })
    }
}

/// Whether a registry takes it for a tag.
pub fn is_tag(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    first && text.len() <= 128 && chars.all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_read_as_people_write_them() {
        let digest = Digest::of(b"abc");
        for (text, repository, tag, pinned) in [
            ("localhost/bundle", "bundle", None, None),
            (
                "registry.example:5000/afloat/bundle:v1.36.3",
                "afloat/bundle",
                Some("v1.36.3"),
                None,
            ),
            (&format!("127.0.0.1:5000/b@{digest}"), "b", None, Some(digest)),
            (&format!("[::1]:5000/b:v1@{digest}"), "b", Some("v1"), Some(digest)),
        ] {
            let read: Reference = text.parse().unwrap();
            assert_eq!(
                (read.repository.as_str(), read.tag.as_deref(), read.digest),
                (repository, tag, pinned),
                "{text}"
            );
            assert_eq!(read.to_string(), text);
        }
        for wrong in [
            "bundle",
            "library/bundle",
            "registry.example/Bundle",
            "registry.example/a//b",
            "registry.example/b:.x",
            "registry.example/b:",
            "registry.example/b@sha256:12",
            "user@registry.example/b",
            "registry.example/../b",
        ] {
            assert!(wrong.parse::<Reference>().is_err(), "{wrong}");
        }
    }
}
