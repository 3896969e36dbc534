//! Definitions of kinds out of Go modules: the module is downloaded by `go`, compared with the checksum that is written down, and what is wanted of
//! it copied into the cache, whole or not at all.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use afloat_realparts::Definitions;
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Makes sure that they are there; true when they had to be brought.
pub fn provide(wanted: &Definitions, cache: &Path) -> Result<bool> {
    let folder = wanted.folder_in(cache);
    let label = format!("kinds of {} {}", wanted.name, wanted.version);
    if folder.is_dir() {
        println!("ready    {label}");
        return Ok(false);
    }
    let parent = folder.parent().context("the cache folder has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    let _lock = crate::components::lock(parent, &label)?;
    if folder.is_dir() {
        return Ok(false);
    }
    let output = Command::new("go")
        .args(["mod", "download", "-json", &wanted.query()])
        .env_remove("GOFLAGS")
        // Outside of any module: nothing of its own choice of versions is to count.
        .current_dir(parent)
        .stdin(Stdio::null())
        .output()
        .context("starting go")?;
    let source = checked(wanted, &String::from_utf8_lossy(&output.stdout))?;
    let unfinished = parent.join(".unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    copy(&Path::new(&source).join(wanted.inside), &unfinished)?;
    fs::rename(&unfinished, &folder).with_context(|| format!("moving the result to {}", folder.display()))?;
    println!("brought  {label}");
    Ok(true)
}

/// Where the module lies, if it is the one that is meant.
fn checked(wanted: &Definitions, answer: &str) -> Result<String> {
    let answer: Value = serde_json::from_str(answer).context("what `go mod download -json` says")?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let error = text("Error");
    if !error.is_empty() {
        bail!(
            "{error}\n  help: this machine needs a module proxy it can reach and that has it (see `go env GOPROXY`), once"
        );
    }
    if text("Sum") != wanted.sum {
        bail!(
            "{} has the checksum {}, and {} is expected\n  help: `go clean -modcache`, or look at who serves it",
            wanted.query(),
            text("Sum"),
            wanted.sum
        );
    }
    Ok(text("Dir"))
}

/// A folder with all in it, or one file into a folder. What a module cache holds cannot be written to; a copy can.
fn copy(from: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let name = from.file_name().context("a file without a name")?;
    if from.is_file() {
        let text = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        let to = folder.join(name);
        return fs::write(&to, text).with_context(|| format!("writing {}", to.display()));
    }
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry?.path();
        let inner = path.file_name().context("a file without a name")?;
        if path.is_dir() {
            copy(&path, &folder.join(inner))?;
        } else {
            copy(&path, folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Definitions = Definitions {
        name: "example",
        module: "example.org/kinds",
        version: "v1.0.0",
        sum: "h1:right=",
        inside: "crds",
    };

    #[test]
    fn only_the_module_that_is_meant_is_taken() {
        let right = r#"{"Sum":"h1:right=","Dir":"/modules/kinds"}"#;
        assert_eq!(checked(&WANTED, right).unwrap(), "/modules/kinds");
        for (answer, says) in [
            (r#"{"Sum":"h1:wrong=","Dir":"/x"}"#, "h1:right= is expected"),
            (r#"{"Error":"example.org/kinds@v1.0.0: 403"}"#, "GOPROXY"),
            ("no answer", "go mod download"),
        ] {
            let error = format!("{:#}", checked(&WANTED, answer).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_folder_is_copied_whole_and_a_file_alone() {
        let place = std::env::temp_dir().join(format!("afloat-xtask-copy-{}", std::process::id()));
        let from = place.join("from/templates");
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("a.yaml"), "a").unwrap();
        copy(&place.join("from"), &place.join("whole")).unwrap();
        assert_eq!(fs::read_to_string(place.join("whole/templates/a.yaml")).unwrap(), "a");
        copy(&from.join("a.yaml"), &place.join("alone")).unwrap();
        assert_eq!(fs::read_to_string(place.join("alone/a.yaml")).unwrap(), "a");
        fs::remove_dir_all(place).unwrap();
    }
}
