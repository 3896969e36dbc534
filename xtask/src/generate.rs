//! Writes what is derived from the types in `afloat-api`: the CRD manifests and their reference pages. With `check` nothing is
//! written; every file that differs is named instead. Hand-written files are never touched.

mod conditions;
mod manifests;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A file as it should be, by its path from the root of the repository.
struct Generated {
    path: PathBuf,
    content: String,
}

/// What is wrong with a file on disk.
#[derive(Debug, PartialEq)]
enum Drift {
    Missing(PathBuf),
    Differs {
        path: PathBuf,
        line: usize,
        expected: String,
        found: String,
    },
    Stray(PathBuf),
}

/// Writes all generated files, or with `check` compares them with what is on disk.
pub fn run(check: bool) -> Result<()> {
    let root = root();
    let files = files()?;
    if check {
        let drifts = compare(&root, &files)?;
        if drifts.is_empty() {
            println!("{} generated files are up to date", files.len());
            return Ok(());
        }
        let lines: Vec<String> = drifts.iter().map(Drift::describe).collect();
        bail!(
            "generated files are out of date:\n{}\nhelp: run `cargo xtask generate` and commit the result",
            lines.join("\n")
        );
    }
    write(&root, &files)
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn files() -> Result<Vec<Generated>> {
    let crds = afloat_api::crds::all();
    let mut files = manifests::files(&crds)?;
    files.push(Generated {
        path: "docs/reference/crds.md".into(),
        content: reference::page(&crds)?,
    });
    files.push(Generated {
        path: "docs/reference/conditions.md".into(),
        content: conditions::page(),
    });
    Ok(files)
}

fn write(root: &Path, files: &[Generated]) -> Result<()> {
    for file in files {
        let path = root.join(&file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&path, &file.content).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", file.path.display());
    }
    for stray in strays(root, files)? {
        fs::remove_file(root.join(&stray)).with_context(|| format!("cannot remove {}", stray.display()))?;
        println!("removed {}", stray.display());
    }
    Ok(())
}

fn compare(root: &Path, files: &[Generated]) -> Result<Vec<Drift>> {
    let mut drifts = Vec::new();
    for file in files {
        match fs::read_to_string(root.join(&file.path)) {
            Ok(found) => drifts.extend(first_difference(&file.path, &file.content, &found)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                drifts.push(Drift::Missing(file.path.clone()));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.path.display())),
        }
    }
    drifts.extend(strays(root, files)?.into_iter().map(Drift::Stray));
    Ok(drifts)
}

/// Manifests of kinds that are gone.
fn strays(root: &Path, files: &[Generated]) -> Result<Vec<PathBuf>> {
    let folder = Path::new(manifests::FOLDER);
    let Ok(entries) = fs::read_dir(root.join(folder)) else {
        return Ok(Vec::new());
    };
    let mut strays = Vec::new();
    for entry in entries {
        let path = folder.join(entry.context("cannot list the folder of CRDs")?.file_name());
        if files.iter().all(|file| file.path != path) {
            strays.push(path);
        }
    }
    strays.sort();
    Ok(strays)
}

fn first_difference(path: &Path, expected: &str, found: &str) -> Option<Drift> {
    if expected == found {
        return None;
    }
    let (mut wanted, mut present) = (expected.lines(), found.lines());
    let mut line = 0;
    loop {
        line += 1;
        let pair = (wanted.next(), present.next());
        if pair.0 != pair.1 || pair == (None, None) {
            let text = |side: Option<&str>| side.unwrap_or("(end of file)").trim().to_owned();
            return Some(Drift::Differs {
                path: path.to_owned(),
                line,
                expected: text(pair.0),
                found: text(pair.1),
            });
        }
    }
}

impl Drift {
    fn describe(&self) -> String {
        match self {
            Self::Missing(path) => format!("  {} is missing", path.display()),
            Self::Stray(path) => format!("  {} belongs to no kind", path.display()),
            Self::Differs {
                path,
                line,
                expected,
                found,
            } => {
                format!(
                    "  {}:{line}\n    is:        {found}\n    should be: {expected}",
                    path.display()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_up_to_date() {
        let drifts = compare(&root(), &files().unwrap()).unwrap();
        let lines: Vec<String> = drifts.iter().map(Drift::describe).collect();
        assert!(drifts.is_empty(), "run `cargo xtask generate`:\n{}", lines.join("\n"));
    }

    #[test]
    fn what_differs_is_named_with_its_line() {
        let path = Path::new("a.yaml");
        assert_eq!(first_difference(path, "one\ntwo\n", "one\ntwo\n"), None);
        let drift = first_difference(path, "one\ntwo\n", "one\n2\n").unwrap();
        assert_eq!(drift.describe(), "  a.yaml:2\n    is:        2\n    should be: two");
        let drift = first_difference(path, "one\ntwo\n", "one\n").unwrap();
        assert!(drift.describe().contains("(end of file)"));
        assert!(
            first_difference(path, "one\n", "one").is_some(),
            "a missing last newline is a difference"
        );
    }

    #[test]
    fn missing_and_stray_files_are_named() {
        let root = std::env::temp_dir().join(format!("afloat-generate-{}", std::process::id()));
        fs::create_dir_all(root.join(manifests::FOLDER)).unwrap();
        fs::write(root.join(manifests::FOLDER).join("old.yaml"), "").unwrap();
        let wanted = Generated {
            path: Path::new(manifests::FOLDER).join("new.yaml"),
            content: String::new(),
        };
        let drifts = compare(&root, std::slice::from_ref(&wanted)).unwrap();
        write(&root, std::slice::from_ref(&wanted)).unwrap();
        let after = compare(&root, std::slice::from_ref(&wanted)).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let stray = Path::new(manifests::FOLDER).join("old.yaml");
        assert_eq!(drifts, [Drift::Missing(wanted.path), Drift::Stray(stray)]);
        assert_eq!(after, []);
    }
}
