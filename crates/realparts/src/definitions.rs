//! Definitions of kinds as their owners publish them inside Go modules: taken out of the module into the cache, never into this repository.
//! Which there are is a table; a module that is not the one named here by its checksum is refused. What an owner has only as code is
//! printed by a component (`table`).

use std::path::{Path, PathBuf};

use crate::{Error, cache_root};

/// Definitions of one owner at one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definitions {
    pub name: &'static str,
    pub module: &'static str,
    pub version: &'static str,
    /// Of the module as a whole, as `go.sum` has it.
    pub sum: &'static str,
    /// The folder or file of the module that holds them.
    pub inside: &'static str,
}

/// The kinds of a Harvester v1.6.0 are those of the versions that its `go.mod` names.
const ALL: &[Definitions] = &[
    Definitions {
        name: "harvester",
        module: "github.com/harvester/harvester",
        version: "v1.6.0",
        sum: "h1:SlC7YQyheSXIeoc/ys/eYZ00HRXJsocHxMUEoXHI+fw=",
        inside: "deploy/charts/harvester-crd",
    },
    Definitions {
        name: "harvester-next",
        module: "github.com/harvester/harvester",
        version: "v1.8.0",
        sum: "h1:jOb1Kzu5TlAZ+QT6XlAPftyppOrdEZL1UfhDUn2ix4s=",
        inside: "deploy/charts/harvester-crd",
    },
    Definitions {
        name: "longhorn",
        module: "github.com/longhorn/longhorn-manager",
        version: "v1.8.1",
        sum: "h1:RWAfhAVxxLgQQR+C9VWLNf9oirdz14S69ZW7w/rfkTg=",
        inside: "k8s/crds.yaml",
    },
    Definitions {
        name: "fleet",
        module: "github.com/rancher/fleet",
        version: "v0.12.0",
        sum: "h1:NR5FHZjzg37/DtqN8lvrGbQY8Z/Jst/RF4SuqDrQi9o=",
        inside: "charts/fleet-crd/templates/crds.yaml",
    },
    Definitions {
        name: "cluster-api",
        module: "sigs.k8s.io/cluster-api",
        version: "v1.7.3",
        sum: "h1:DsSRxsA+18jxLqPAo29abZ9kOPK1/xwhSuQb/MROzSs=",
        inside: "config/crd/bases",
    },
];

impl Definitions {
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ALL.iter()
    }

    /// What `go mod download` is asked for.
    pub fn query(&self) -> String {
        format!("{}@{}", self.module, self.version)
    }

    /// Where they are kept. Everything that shapes them is in the name: a version never changes what it holds, and its checksum is compared.
    pub fn folder_in(&self, cache: &Path) -> PathBuf {
        cache
            .join("definitions")
            .join(self.name)
            .join(format!("{}-{}", self.version, self.inside.replace('/', "-")))
    }

    /// Those of a name, from the cache.
    pub fn locate(name: &str) -> Result<PathBuf, Error> {
        let wanted = ALL
            .iter()
            .find(|one| one.name == name)
            .ok_or_else(|| Error::UnknownComponent {
                name: name.to_owned(),
                known: ALL.iter().map(|one| one.name).collect::<Vec<_>>().join(", "),
            })?;
        let folder = wanted.folder_in(&cache_root()?);
        if folder.is_dir() {
            Ok(folder)
        } else {
            Err(Error::NotBuilt {
                missing: vec![format!("kinds of {} {}", wanted.name, wanted.version)],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_share_a_place_and_each_has_a_checksum() {
        let cache = Path::new("/cache");
        let mut places: Vec<PathBuf> = ALL.iter().map(|one| one.folder_in(cache)).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), ALL.len());
        assert!(
            ALL.iter()
                .all(|one| one.sum.starts_with("h1:") && one.version.starts_with('v'))
        );
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = Definitions::locate("longhorns").unwrap_err().to_string();
        assert!(message.contains("longhorn, fleet, cluster-api"), "{message}");
    }
}
