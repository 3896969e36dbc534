//! `cargo xtask components`: builds the real components from their wrapper modules into the cache. What there is to build, and where it is kept, is
//! said by `afloat-realparts`; here it is only made: one builder a component at a time, whole or not at all, and not again when it is there.

use std::{
    fs::{self, File, TryLockError},
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use afloat_realparts::{Component, Definitions, GoToolchain, Recipe, Set, cache_root};
use anyhow::{Context, Result, bail};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to build, such as kubelet or kubelet@1.35; a whole set when none is named
    names: Vec<String>,
    /// Which set: what `make test` needs, also what the lab's machines run, or a patch release between their versions too, or the minor before them too
    #[arg(long, value_name = "SET", default_value = "tests", value_parser = ["tests", "lab", "patch", "earlier"])]
    set: String,
    /// Say what there is and what is built, and build nothing
    #[arg(long)]
    list: bool,
    /// Keep the results in this folder instead of $AFLOAT_CACHE, $XDG_CACHE_HOME/afloat or ~/.cache/afloat
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let cache = match &arguments.dir {
        Some(folder) => std::path::absolute(folder)?,
        None => cache_root()?,
    };
    let chosen: Vec<&Component> = if arguments.names.is_empty() {
        Component::of_set(match arguments.set.as_str() {
            "patch" => Set::Patch,
            "earlier" => Set::Earlier,
            "lab" => Set::Lab,
            _ => Set::Tests,
        })
    } else {
        arguments
            .names
            .iter()
            .map(|name| Component::named(name))
            .collect::<Result<_, _>>()?
    };
    let recipes: Vec<Recipe> = chosen
        .iter()
        .map(|component| component.recipe())
        .collect::<Result<_, _>>()?;
    if arguments.list {
        return list(&recipes, &cache);
    }
    let started = Instant::now();
    let mut built = 0;
    for (index, recipe) in recipes.iter().enumerate() {
        let toolchain = GoToolchain::find(recipe)?;
        let place = format!("({} of {})", index + 1, recipes.len());
        built += usize::from(provide(recipe, &toolchain, &cache, &place)?);
    }
    if arguments.names.is_empty() {
        for wanted in Definitions::all() {
            crate::definitions::provide(wanted, &cache)?;
        }
    }
    let (all, seconds) = (recipes.len(), started.elapsed().as_secs());
    println!(
        "{all} components in {}: {built} built in {seconds}s, {} were there",
        cache.display(),
        all - built
    );
    Ok(())
}

fn list(recipes: &[Recipe], cache: &Path) -> Result<()> {
    for recipe in recipes {
        let binary = recipe.binary_in(cache, &GoToolchain::find(recipe)?);
        let state = if binary.is_file() {
            binary.display().to_string()
        } else {
            "not built".to_owned()
        };
        println!("{:<30} {:<10} {state}", recipe.component.id(), recipe.version);
    }
    Ok(())
}

/// Makes sure that the binary is there; true when it had to be built.
fn provide(recipe: &Recipe, toolchain: &GoToolchain, cache: &Path, place: &str) -> Result<bool> {
    let label = format!("{} {} {place}", recipe.component.name, recipe.version);
    let folder = recipe.folder_in(cache, toolchain);
    let binary = recipe.binary_in(cache, toolchain);
    if binary.is_file() {
        println!("ready    {label}");
        return Ok(false);
    }
    let parent = folder.parent().context("the cache folder has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    let _lock = lock(parent, &label)?;
    if binary.is_file() {
        println!("ready    {label}, built meanwhile");
        return Ok(false);
    }
    print!("building {label} ... ");
    std::io::stdout().flush()?;
    let started = Instant::now();
    build(recipe, &folder, parent)?;
    println!("{}s", started.elapsed().as_secs());
    Ok(true)
}

/// One builder a component, whichever process it is in; the lock goes with the process.
pub fn lock(folder: &Path, label: &str) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("waiting  {label}: another process is building it");
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("locking {}", path.display())),
    }
    Ok(file)
}

/// Builds beside the final place and renames, so that what has the final name is always whole.
fn build(recipe: &Recipe, folder: &Path, parent: &Path) -> Result<()> {
    let unfinished = parent.join(".unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished)?;
    let log_path = unfinished.join("build.log");
    let log = File::create(&log_path)?;
    let mut child = Command::new("go")
        .arg(&recipe.arguments[0])
        .arg("-o")
        .arg(unfinished.join(recipe.component.name))
        .args(&recipe.arguments[1..])
        .env("CGO_ENABLED", recipe.component.cgo())
        .env_remove("GOFLAGS")
        .current_dir(&recipe.folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting go")?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
        show_elapsed(started.elapsed())?;
    };
    if !status.success() {
        println!("failed");
        bail!(
            "{}",
            explain(recipe, &fs::read_to_string(&log_path).unwrap_or_default())
        );
    }
    fs::rename(&unfinished, folder).with_context(|| format!("moving the result to {}", folder.display()))?;
    Ok(())
}

/// On a terminal the seconds tick; in a log only the final number appears.
fn show_elapsed(elapsed: Duration) -> Result<()> {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        let seconds = format!("{}s", elapsed.as_secs());
        print!("{seconds}{}", "\u{8}".repeat(seconds.len()));
        out.flush()?;
    }
    Ok(())
}

/// What went wrong in the person's terms, with the end of what Go said.
fn explain(recipe: &Recipe, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n  ");
    let help = if [
        "dial tcp",
        "no such host",
        "proxyconnect",
        "i/o timeout",
        "TLS handshake",
        "connection refused",
    ]
    .iter()
    .any(|sign| log.contains(sign))
    {
        "Go modules could not be downloaded: this machine needs a module proxy it can reach (see `go env GOPROXY`), once"
    } else if log.contains("no space left on device") {
        "free some disk space: the module cache and the build cache of Go need about 8 GB"
    } else if log.contains("libseccomp") {
        "runc needs the C library libseccomp: `tools/ensure seccomp`"
    } else if log.contains("checksum mismatch") {
        "a downloaded module is not the one that go.sum names: `go clean -modcache`, or look at who serves it"
    } else {
        "the lines above are from `go build`"
    };
    format!(
        "{} {} was not built\n  {tail}\n  help: {help}",
        recipe.component.name, recipe.version
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_to_do() {
        let recipe = Component::named("etcd").unwrap().recipe().unwrap();
        let offline = explain(
            &recipe,
            "go: x@v1: Get \"https://proxy/x\": dial tcp: lookup proxy: no such host",
        );
        assert!(offline.contains("GOPROXY") && offline.contains("etcd v3."), "{offline}");
        assert!(explain(&recipe, "write: no space left on device").contains("disk"));
    }

    #[test]
    fn a_second_builder_finds_the_lock_taken() {
        let folder = std::env::temp_dir().join(format!("afloat-xtask-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let held = lock(&folder, "first").unwrap();
        let second = File::open(folder.join(".lock")).unwrap();
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert!(second.try_lock().is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
