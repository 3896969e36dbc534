//! Who we are to a registry: what `docker login` wrote, and the challenge by which a registry asks for it. Nothing of it is ever
//! shown.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::{Error, Result};

/// A name and a password.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

#[derive(Deserialize, Default)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl Credentials {
    /// Those for a registry in the file that was named, else in the usual places; nothing where there are none.
    pub fn find(registry: &str, named: Option<&Path>) -> Result<Option<Self>> {
        let paths = match named {
            Some(path) => vec![path.to_owned()],
            None => usual().into_iter().filter(|path| path.is_file()).collect(),
        };
        for path in paths {
            let text = fs::read(&path).map_err(Error::file("read", &path))?;
            let config: DockerConfig = serde_json::from_slice(&text).map_err(|error| Error::Key {
                path: path.clone(),
                fact: format!("it is no Docker configuration (line {})", error.line()),
            })?;
            let found = config.auths.iter().find(|(name, _)| host(name) == registry);
            if let Some(credentials) = found.and_then(|(_, entry)| Self::of(entry)) {
                return Ok(Some(credentials));
            }
        }
        Ok(None)
    }

    fn of(entry: &Entry) -> Option<Self> {
        if !entry.username.is_empty() {
            return Some(Self {
                user: entry.username.clone(),
                password: entry.password.clone(),
            });
        }
        let text = String::from_utf8(STANDARD.decode(entry.auth.trim()).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    /// As a header says it.
    pub fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

/// The host in what a configuration calls a registry, as `https://registry.example/v1/`.
fn host(name: &str) -> &str {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    name.split('/').next().unwrap_or(name)
}

fn usual() -> Vec<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let docker = set("DOCKER_CONFIG").or_else(|| set("HOME").map(|home| home.join(".docker")));
    let podman = set("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json"));
    docker
        .map(|folder| folder.join("config.json"))
        .into_iter()
        .chain(podman)
        .collect()
}

/// How a registry asks who we are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Challenge {
    Basic,
    /// A token is to be fetched there.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads `WWW-Authenticate`.
    pub fn parse(header: &str) -> Option<Self> {
        let (kind, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if kind.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !kind.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut fields = parameters(rest);
        Some(Self::Bearer {
            realm: fields.remove("realm")?,
            service: fields.remove("service"),
            scope: fields.remove("scope"),
        })
    }
}

/// `name="value",…`; commas within quotes belong to the value.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let (mut quoted, mut field) = (false, String::new());
    for c in text.chars().chain([',']) {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                if let Some((name, value)) = std::mem::take(&mut field).split_once('=') {
                    fields.insert(name.trim().to_ascii_lowercase(), value.to_owned());
                }
            }
            c => field.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = r#"Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull,push""#;
        assert_eq!(
            Challenge::parse(bearer),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".to_owned(),
                service: Some("registry".to_owned()),
                scope: Some("repository:a/b:pull,push".to_owned()),
            })
        );
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Digest realm=x"), None);
        assert_eq!(Challenge::parse("Bearer service=x"), None, "no realm to ask");
    }

    #[test]
    fn what_docker_login_wrote_is_found_by_host_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let text = r#"{"auths":{"https://registry.example:5000/v2/":{"auth":"YWRhOnM6M2NyZXQ="},"other.example":{"username":"bob","password":"pw"}}}"#;
        fs::write(&path, text).unwrap();
        let find = |host: &str| Credentials::find(host, Some(&path)).unwrap();
        let ada = find("registry.example:5000").unwrap();
        assert_eq!(ada.basic(), "Basic YWRhOnM6M2NyZXQ=");
        assert_eq!(find("other.example").unwrap().basic(), "Basic Ym9iOnB3");
        assert_eq!(find("registry.example"), None);
        assert!(!format!("{ada:?}").contains("cret"));
        fs::write(&path, "auths: {}").unwrap();
        assert!(Credentials::find("x", Some(&path)).is_err());
    }
}
