//! The real components: their names, the wrapper module under `components/` that builds each, how it is built, and the folder of the cache
//! where the result is kept. The version of a component is written in one place only, the `require` line of its wrapper's `go.mod`.
//! Which components there are is a table of its own (`table`).

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    Error,
    table::{CATALOGUE, Component, Set, Stamp},
};

impl Component {
    /// The components of a set, in the order in which they are built.
    pub fn of_set(set: Set) -> Vec<&'static Self> {
        CATALOGUE
            .iter()
            .filter(|component| set.includes(component.set))
            .collect()
    }

    /// `kubelet` is the newest line of it, `kubelet@1.35` another one.
    pub fn named(name: &str) -> Result<&'static Self, Error> {
        CATALOGUE
            .iter()
            .find(|component| component.name == name || component.id() == name)
            .ok_or_else(|| Error::UnknownComponent {
                name: name.to_owned(),
                known: CATALOGUE.iter().map(Self::id).collect::<Vec<_>>().join(", "),
            })
    }

    /// The name with the line of versions, such as `kubelet@1.35`.
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.line)
    }

    /// What `CGO_ENABLED` is set to for its build. Without C a binary starts in an image that has nothing else.
    pub fn cgo(&self) -> &'static str {
        if self.cgo { "1" } else { "0" }
    }

    /// What to run to build it, read from its wrapper module.
    pub fn recipe(&self) -> Result<Recipe, Error> {
        let folder = sources().join(self.wrapper);
        let go_mod = read(&folder.join("go.mod"))?;
        let version = required_version(&go_mod, self.module).ok_or_else(|| Error::Module {
            path: folder.join("go.mod"),
            message: format!("requires no {}", self.module),
        })?;
        let go = go_mod
            .lines()
            .find_map(|line| line.strip_prefix("go "))
            .unwrap_or("1.0")
            .trim()
            .to_owned();
        let mut inputs = Sha256::new();
        for file in ["go.mod", "go.sum", "main.go"] {
            let path = folder.join(file);
            if path.exists() {
                inputs.update(read(&path)?.as_bytes());
            }
        }
        let mut arguments = vec!["build".to_owned(), "-trimpath".to_owned()];
        if !self.tags.is_empty() {
            arguments.extend(["-tags".to_owned(), self.tags.to_owned()]);
        }
        arguments.extend([
            "-ldflags".to_owned(),
            link_flags(self.stamp, &version),
            self.package.to_owned(),
        ]);
        inputs.update(arguments.join("\0").as_bytes());
        Ok(Recipe {
            component: *self,
            version,
            folder,
            go,
            arguments,
            inputs: format!("{:x}", HexOf(&inputs.finalize())),
        })
    }
}

struct HexOf<'a>(&'a [u8]);

impl std::fmt::LowerHex for HexOf<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// How one component is built.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub component: Component,
    /// Such as `v1.36.3`.
    pub version: String,
    /// Where `go` runs.
    pub folder: PathBuf,
    /// The oldest Go that its module accepts, such as `1.26.0`.
    pub go: String,
    /// Arguments of `go`, without `-o`.
    pub arguments: Vec<String>,
    inputs: String,
}

impl Recipe {
    /// The folder in the cache: everything that shapes the binary is in its name, so that a stale build is never taken for a fresh one.
    pub fn folder_in(&self, cache: &Path, toolchain: &GoToolchain) -> PathBuf {
        let digest = Sha256::digest(format!(
            "{}\0{}\0CGO_ENABLED={}",
            self.inputs,
            toolchain.version,
            self.component.cgo()
        ));
        let key = format!("{:x}", HexOf(&digest));
        cache
            .join("components")
            .join(self.component.name)
            .join(format!("{}-{}", self.version, &key[..12]))
    }

    pub fn binary_in(&self, cache: &Path, toolchain: &GoToolchain) -> PathBuf {
        self.folder_in(cache, toolchain).join(self.component.name)
    }
}

/// The Go that would build the components.
#[derive(Debug, Clone)]
pub struct GoToolchain {
    /// Such as `go1.26.8`.
    pub version: String,
}

impl GoToolchain {
    /// Asks the `go` on the PATH, from within the wrapper so that a `toolchain` line there has its say.
    pub fn find(recipe: &Recipe) -> Result<Self, Error> {
        let needed = &recipe.go;
        let output = Command::new("go")
            .args(["env", "GOVERSION"])
            .current_dir(&recipe.folder)
            .output()
            .map_err(|error| {
                Error::Go(format!(
                    "Go {needed} or newer is needed, and `go` does not start: {error}"
                ))
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Go(format!("Go {needed} or newer is needed: {}", said.trim())));
        }
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if numbers(version.trim_start_matches("go")) < numbers(needed) {
            return Err(Error::Go(format!(
                "Go {needed} or newer is needed, {version} is on the PATH"
            )));
        }
        Ok(Self { version })
    }
}

/// Where the built components are.
#[derive(Debug, Clone)]
pub struct Paths {
    binaries: BTreeMap<String, PathBuf>,
}

impl Paths {
    pub fn of(&self, name: &str) -> Result<&Path, Error> {
        self.binaries
            .get(name)
            .map(PathBuf::as_path)
            .ok_or_else(|| Error::NotBuilt {
                missing: vec![name.to_owned()],
            })
    }
}

/// The set of built components.
#[derive(Debug)]
pub struct Components;

impl Components {
    /// The components that tests need, from the cache; names every one that is not there.
    pub fn locate() -> Result<Paths, Error> {
        let tests = Component::of_set(Set::Tests);
        Self::locate_some(&tests.iter().map(|component| component.name).collect::<Vec<_>>())
    }

    /// Only the ones named, by name or `name@line`. `AFLOAT_COMPONENTS`, a folder of ready binaries, is taken instead of the cache where it is set.
    pub fn locate_some(names: &[&str]) -> Result<Paths, Error> {
        let given = env::var_os("AFLOAT_COMPONENTS").map(PathBuf::from);
        let mut binaries = BTreeMap::new();
        let mut missing = Vec::new();
        for name in names {
            let component = Component::named(name)?;
            let (binary, wanted) = if let Some(folder) = &given {
                (folder.join(name), format!("{name} (in {})", folder.display()))
            } else {
                let recipe = component.recipe()?;
                let binary = recipe.binary_in(&cache_root()?, &GoToolchain::find(&recipe)?);
                (binary, format!("{name} {}", recipe.version))
            };
            if binary.is_file() {
                binaries.insert((*name).to_owned(), binary);
            } else {
                missing.push(wanted);
            }
        }
        if missing.is_empty() {
            Ok(Paths { binaries })
        } else {
            Err(Error::NotBuilt { missing })
        }
    }
}

/// `$AFLOAT_CACHE`, or the person's cache folder.
pub fn cache_root() -> Result<PathBuf, Error> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("AFLOAT_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("afloat")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/afloat")))
        .ok_or(Error::NoCacheFolder)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../components")
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::file(path))
}

/// The version in `require MODULE VERSION`, alone or in a block; a `replace` line with `=>` is not one.
fn required_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod
        .lines()
        .map(|line| {
            line.trim_start_matches("require ")
                .split_whitespace()
                .collect::<Vec<_>>()
        })
        .find_map(|words| match words.as_slice() {
            [name, version, ..] if *name == module && version.starts_with('v') => Some((*version).to_owned()),
            _ => None,
        })
}

fn link_flags(stamp: Stamp, version: &str) -> String {
    let numbers = numbers(version.trim_start_matches('v'));
    let number = |at: usize| numbers.get(at).copied().unwrap_or_default().to_string();
    let settings = match stamp {
        Stamp::None => vec![],
        Stamp::Kubernetes => vec![
            ("k8s.io/component-base/version.gitVersion", version.to_owned()),
            ("k8s.io/component-base/version.gitMajor", number(0)),
            ("k8s.io/component-base/version.gitMinor", number(1)),
            ("k8s.io/component-base/version.gitTreeState", "clean".to_owned()),
            ("k8s.io/client-go/pkg/version.gitVersion", version.to_owned()),
        ],
        Stamp::Containerd => vec![(
            "github.com/containerd/containerd/v2/version.Version",
            version.to_owned(),
        )],
        Stamp::Helm => vec![("helm.sh/helm/v3/internal/version.version", version.to_owned())],
    };
    settings.iter().fold("-s -w".to_owned(), |flags, (variable, value)| {
        format!("{flags} -X {variable}={value}")
    })
}

/// `1.26.8` as numbers; what is not one ends it (`1.27rc1` counts as `1`, `27`).
fn numbers(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    version.split('.').map_while(|part| digits(part).parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_version_from_its_wrapper() {
        for component in CATALOGUE {
            let recipe = component.recipe().unwrap();
            assert!(
                recipe.version.starts_with('v'),
                "{}: {}",
                component.name,
                recipe.version
            );
            assert_eq!(numbers(&recipe.go).len(), 3, "{}", recipe.go);
        }
    }

    #[test]
    fn replace_lines_and_other_modules_are_not_versions() {
        let text = "require (\n\ta.b/c/d v1.0.0\n)\nreplace a.b/c => a.b/c v9.9.9\nrequire a.b/c v1.2.3 // indirect\n";
        assert_eq!(required_version(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required_version(text, "a.b/d"), None);
    }

    #[test]
    fn the_cache_folder_changes_with_the_go_version() {
        let recipe = Component::named("etcd").unwrap().recipe().unwrap();
        let folder = |version: &str| {
            recipe.folder_in(
                Path::new("/cache"),
                &GoToolchain {
                    version: version.to_owned(),
                },
            )
        };
        assert_ne!(folder("go1.26.8"), folder("go1.26.9"));
        assert_eq!(folder("go1.26.8"), folder("go1.26.8"));
    }

    #[test]
    fn kubernetes_binaries_carry_their_version() {
        let flags = link_flags(Stamp::Kubernetes, "v1.36.3");
        assert!(
            flags.contains("version.gitVersion=v1.36.3") && flags.contains("gitMinor=36"),
            "{flags}"
        );
    }

    #[test]
    fn a_line_is_chosen_by_name() {
        assert_eq!(Component::named("kubelet").unwrap().id(), "kubelet@1.36");
        assert_eq!(Component::named("kubelet@1.35").unwrap().id(), "kubelet@1.35");
    }

    #[test]
    fn each_set_is_what_is_needed_and_no_more() {
        let names = |set| {
            Component::of_set(set)
                .iter()
                .map(|component| component.id())
                .collect::<Vec<_>>()
        };
        let tests = names(Set::Tests);
        assert!(
            tests.contains(&"etcd@3.6".to_owned()) && !tests.contains(&"kubelet@1.36".to_owned()),
            "{tests:?}"
        );
        let lab = names(Set::Lab);
        assert!(lab.starts_with(&tests), "{lab:?}");
        for (set, own, others) in [
            (Set::Patch, "kubelet@1.36.1", "kubelet@1.34"),
            (Set::Earlier, "kubelet@1.34", "kubelet@1.36.1"),
        ] {
            let all = names(set);
            assert!(all.starts_with(&lab) && all.contains(&own.to_owned()), "{all:?}");
            assert!(
                !lab.contains(&own.to_owned()) && !all.contains(&others.to_owned()),
                "{all:?}"
            );
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = Component::named("kubeletd").unwrap_err().to_string();
        assert!(
            message.contains("kubeletd") && message.contains("kube-apiserver"),
            "{message}"
        );
    }

    #[test]
    fn older_go_versions_compare_as_numbers() {
        assert!(numbers("1.9.1") < numbers("1.26.0"));
        assert!(numbers("1.27rc1") > numbers("1.26.0"));
    }
}
