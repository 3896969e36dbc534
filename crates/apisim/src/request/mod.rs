//! From an HTTP request to what is asked: the resource path, the verb, and the options of the query. Nothing here
//! looks at storage; a request that is not understood is refused with the text of the real server.

mod label_selector;
mod options;

use http::Method;

pub use label_selector::LabelSelector;
pub use options::{ListOptions, Query, VersionMatch};

use crate::resource::GroupVersion;

/// A path below `/api/v1` or `/apis/<group>/<version>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub plural: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource (a proxied path).
    pub rest: Vec<String>,
    /// The path is of the old form `/api/v1/watch/…`.
    pub watch: bool,
}

impl ResourcePath {
    pub fn gv(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }

    /// Reads a path; `None` when it is not below a group version.
    pub fn parse(path: &str) -> Option<Self> {
        // Decoded as a whole: an escaped slash is a slash, as the real server's router has it.
        let path = decode_percent(path, false);
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        let (group, version) = match parts.next()?.as_str() {
            "api" => (String::new(), parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut parts: Vec<String> = parts.collect();
        let watch = parts.first().is_some_and(|part| part == "watch");
        if watch {
            parts.remove(0);
        }
        let mut read = Self {
            group,
            version,
            watch,
            ..Self::default()
        };
        // `/namespaces/<name>/status` is a subresource of the namespace; `/namespaces/<ns>/<plural>` lies within it.
        let within = parts.len() > 2
            && parts[0] == "namespaces"
            && !(read.group.is_empty() && matches!(parts[2].as_str(), "status" | "finalize"));
        let mut parts = parts.into_iter();
        if within {
            parts.next();
            read.namespace = parts.next()?;
        }
        read.plural = parts.next().unwrap_or_default();
        read.name = parts.next().unwrap_or_default();
        read.subresource = parts.next().unwrap_or_default();
        read.rest = parts.collect();
        Some(read)
    }
}

/// Undoes percent-encoding; a broken escape stays as it is.
fn decode_percent(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escape = (bytes[index] == b'%')
            .then(|| text.get(index + 1..index + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[index], escape) {
            (_, Some(byte)) => {
                decoded.push(byte);
                index += 2;
            }
            (b'+', None) if plus_is_space => decoded.push(b' '),
            (byte, None) => decoded.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What a request wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// As upstream's request info: by method, and by whether a name is given.
    pub fn of(method: &Method, named: bool, watch: bool) -> Option<Self> {
        Some(match (method.as_str(), named) {
            ("GET" | "HEAD", true) => Self::Get,
            ("GET" | "HEAD", false) if watch => Self::Watch,
            ("GET" | "HEAD", false) => Self::List,
            ("POST", _) => Self::Create,
            ("PUT", _) => Self::Update,
            ("PATCH", _) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the request changes what is stored.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_group_namespace_resource_and_subresource() {
        let cases = [
            ("/api/v1/pods", ("", "v1", "", "pods", "", "")),
            ("/api/v1/namespaces", ("", "v1", "", "namespaces", "", "")),
            ("/api/v1/namespaces/a", ("", "v1", "", "namespaces", "a", "")),
            (
                "/api/v1/namespaces/a/status",
                ("", "v1", "", "namespaces", "a", "status"),
            ),
            (
                "/api/v1/namespaces/a/finalize",
                ("", "v1", "", "namespaces", "a", "finalize"),
            ),
            (
                "/api/v1/namespaces/a/pods/b/eviction",
                ("", "v1", "a", "pods", "b", "eviction"),
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                ("apps", "v1", "a", "deployments", "d", "scale"),
            ),
            ("/api/v1/nodes/n%2Fm", ("", "v1", "", "nodes", "n", "m")),
            ("/api/v1/nodes/a%20b", ("", "v1", "", "nodes", "a b", "")),
            ("/api/v1/watch/namespaces/a/pods", ("", "v1", "a", "pods", "", "")),
        ];
        for (path, (group, version, namespace, plural, name, subresource)) in cases {
            let read = ResourcePath::parse(path).unwrap();
            assert_eq!(
                (group, version, namespace, plural, name, subresource),
                (
                    &*read.group,
                    &*read.version,
                    &*read.namespace,
                    &*read.plural,
                    &*read.name,
                    &*read.subresource
                ),
                "{path}"
            );
        }
        assert_eq!(ResourcePath::parse("/healthz"), None);
    }
}
