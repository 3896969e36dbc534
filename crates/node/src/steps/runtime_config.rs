//! containerd's configuration, written anew by the containerd that an upgrade brings where its form is an older one: containerd would do so
//! in its memory at every start, and the next one not for ever. Nothing is placed here; `runtime` keeps and replaces it with the
//! programs.

use std::ops::Range;

use afloat_api::Reason;

use crate::bundle;
use crate::host::{Answer, Bind, Command};
use crate::instruction::{Context, Ran, command, failed, wait_for_step};
use crate::journal::Journal;
use crate::paths;

/// The form it had, the form it gets, and where it lies; nothing where it stays.
const FACT: &str = "runtimeConfig";
/// What the new containerd is given to read: the configuration without what it imports.
const SOURCE: &str = "/var/lib/afloat/runtime/source.toml";
const PROGRAM: &str = "containerd/containerd";

/// The configuration that is going to be replaced.
pub fn target(journal: &Journal) -> Option<&str> {
    let fact = journal.facts.get(FACT)?;
    fact.splitn(3, ' ').nth(2)
}

/// What is said when the new containerd runs.
pub fn message(journal: &Journal) -> String {
    let fact = journal.facts.get(FACT).map(String::as_str).unwrap_or_default();
    let mut words = fact.splitn(3, ' ');
    let message = "the new containerd runs; no container was restarted";
    match (words.next(), words.next(), words.next()) {
        (Some(from), Some(to), Some(path)) => {
            format!("{message}; {path} was migrated from version {from} to {to}")
        }
        _ => message.to_owned(),
    }
}

fn found(value: String) -> Ran {
    Ran::Found { fact: (FACT, value) }
}

/// Where the containerd that runs has its configuration from.
fn place(c: &mut Context<'_>) -> Answer<String> {
    let line = c.host.command_line(paths::CONTAINERD_UNIT)?;
    Ok(option(&line).unwrap_or_else(|| paths::CONTAINERD_CONFIG.to_owned()))
}

/// The value of `--config`, in any of the forms that containerd takes it.
fn option(line: &[String]) -> Option<String> {
    let mut words = line.iter().skip(1);
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix('-') else { continue };
        let value = match name.trim_start_matches('-') {
            "c" | "config" => words.next().map(String::as_str),
            other => other.strip_prefix("config=").or_else(|| other.strip_prefix("c=")),
        };
        if let Some(value) = value {
            return Some(format!("/{}", value.trim_start_matches('/')));
        }
    }
    None
}

/// Lets the new containerd write the configuration in its own form, and read what it wrote. Where it cannot do either, nothing was
/// changed yet.
pub fn migrate(c: &mut Context<'_>) -> Answer<Ran> {
    let items = bundle::read(c.host, paths::BUNDLE)?.unwrap_or_default();
    let Some(item) = items.iter().find(|item| item.name == PROGRAM) else {
        return Ok(found(String::new()));
    };
    let present = bundle::runtime_target(c.host, "containerd")?;
    if c.host.digest(&present)? == Some(item.digest) {
        return Ok(found(String::new()));
    }
    let path = place(c)?;
    let Some(content) = c.host.read(&path)? else {
        // It goes by its defaults, and so does the new one.
        return Ok(found(String::new()));
    };
    let Some(before) = String::from_utf8(content).ok().and_then(Config::read) else {
        let message =
            format!("{path} cannot be read: what it sets as version or imports is not in a form that Afloat knows");
        return Ok(refused(&message, &path));
    };
    let said = match ask(c, &before, &path)? {
        Ok(said) => said,
        Err(ran) => return Ok(ran),
    };
    let Some(after) = Config::read(said).filter(|after| after.version.is_some()) else {
        let message = format!("what the new containerd makes of {path} names no version");
        return Ok(refused(&message, &path));
    };
    let (from, to) = (before.version.unwrap_or(1), after.version.unwrap_or(1));
    if to <= from {
        return Ok(found(String::new()));
    }
    c.host
        .write(paths::MIGRATED, after.with_imports_of(&before).as_bytes(), 0o600)?;
    let dump = Command {
        // In its own place: it may import by paths from there.
        over: Some(Bind {
            folder: paths::MIGRATED.to_owned(),
            over: path.clone(),
        }),
        ..containerd(&path, "dump")
    };
    match c.job("-dump", &dump)? {
        None => Ok(wait_for_step(&dump)),
        Some((0, _, _)) => Ok(found(format!("{from} {to} {path}"))),
        Some((code, _, complaint)) => {
            let why = failed(&dump, code, &complaint);
            let message =
                format!("the new containerd does not read what it made of {path} (version {from} to {to}): {why}");
            Ok(refused(&message, &path))
        }
    }
}

/// What the new containerd makes of a configuration, without what it imports: that would be written down as the file's own, and read
/// by whoever may read it.
fn ask(c: &mut Context<'_>, before: &Config, path: &str) -> Answer<Result<String, Ran>> {
    let text = before.without_imports();
    if c.host.read(SOURCE)?.as_deref() != Some(text.as_bytes()) {
        c.host.write(SOURCE, text.as_bytes(), 0o600)?;
    }
    let migrate = containerd(SOURCE, "migrate");
    Ok(match c.job("-migrate", &migrate)? {
        None => Err(wait_for_step(&migrate)),
        Some((0, said, _)) => Ok(said),
        Some((code, _, complaint)) => {
            let why = failed(&migrate, code, &complaint);
            let message = format!("the new containerd cannot migrate {path}: {why}");
            Err(refused(&message, path))
        }
    })
}

fn containerd(config: &str, verb: &str) -> Command {
    command(&bundle::staged(PROGRAM), &["--config", config, "config", verb], 60)
}

fn refused(message: &str, path: &str) -> Ran {
    Ran::Failed {
        reason: Reason::StepFailed,
        message: format!(
            "{message}: nothing was changed: help: mend {path}, or migrate it by hand with containerd config migrate"
        ),
    }
}

/// A configuration, as far as it matters here. Its keys before the first table are all that is looked at.
struct Config {
    text: String,
    version: Option<u32>,
    imports: Option<Range<usize>>,
}

impl Config {
    /// Nothing where it is not clear what it says.
    fn read(text: String) -> Option<Self> {
        let version = match assignment(&text, "version") {
            Some(range) => {
                let line = text.get(range)?.split('#').next()?;
                Some(line.split('=').nth(1)?.trim().parse().ok()?)
            }
            None => None,
        };
        let imports = assignment(&text, "imports");
        // One that is written otherwise would be lost.
        let names = |line: &str| line.trim_start().trim_start_matches(['"', '\'']).starts_with("imports");
        if imports.is_none() && text.lines().any(names) {
            return None;
        }
        Some(Self { text, version, imports })
    }

    fn around_imports(&self) -> (&str, &str, &str) {
        let range = self.imports.clone().unwrap_or(0..0);
        let part = |range: Range<usize>| self.text.get(range).unwrap_or_default();
        (
            part(0..range.start),
            part(range.clone()),
            part(range.end..self.text.len()),
        )
    }

    fn without_imports(&self) -> String {
        let (before, _, after) = self.around_imports();
        format!("{before}{after}")
    }

    /// The same with what another one imports, in its own words. One that imports nothing goes on doing so: containerd names a folder
    /// of its own when it writes one.
    fn with_imports_of(&self, other: &Self) -> String {
        let (before, _, after) = self.around_imports();
        let (_, imports, _) = other.around_imports();
        let line = if imports.is_empty() { "imports = []\n" } else { imports };
        let end = if line.ends_with('\n') { "" } else { "\n" };
        format!("{before}{line}{end}{after}")
    }
}

/// Where a key of the top is set, the end of its line included; its value may be a list over several lines.
fn assignment(text: &str, key: &str) -> Option<Range<usize>> {
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        let line = rest.split_inclusive('\n').next().unwrap_or_default();
        let words = line.trim_start();
        if words.starts_with('[') {
            return None;
        }
        let value = words.strip_prefix(key).map(str::trim_start);
        let value = value.and_then(|rest| rest.strip_prefix('=')).map(str::trim_start);
        let length = value_end(rest, line, value.is_some_and(|value| value.starts_with('[')));
        if value.is_some() {
            return Some(start..start + length);
        }
        start += line.len();
    }
    None
}

/// How much of the rest belongs to a line: all of it up to the end of its list.
fn value_end(rest: &str, line: &str, is_list: bool) -> usize {
    if !is_list {
        return line.len();
    }
    let mut quote = None;
    let mut depth = 0;
    let mut comment = false;
    for (index, letter) in rest.char_indices() {
        match (letter, quote) {
            ('\n', _) => {
                comment = false;
                if depth == 0 {
                    return index + 1;
                }
            }
            _ if comment => {}
            (letter, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => quote = Some(letter),
            ('#', None) => comment = true,
            ('[', None) => depth += 1,
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# mine\nversion = 2 # of long ago\nimports = [\n  \"conf.d/*.toml\", # ]\n  '/etc/other].toml'\n]\nroot = \"/x\"\n\
                       [plugins]\nimports = 1\n";

    #[test]
    fn what_a_configuration_imports_stays_in_its_own_words() {
        let old = Config::read(OLD.to_owned()).unwrap();
        assert_eq!(old.version, Some(2));
        assert_eq!(
            old.without_imports(),
            "# mine\nversion = 2 # of long ago\nroot = \"/x\"\n[plugins]\nimports = 1\n"
        );
        let new = Config::read("version = 4\nimports = ['/etc/containerd/conf.d/*.toml']\n[a]\n".to_owned()).unwrap();
        assert_eq!(
            new.with_imports_of(&old),
            "version = 4\nimports = [\n  \"conf.d/*.toml\", # ]\n  '/etc/other].toml'\n]\n[a]\n"
        );
        let none = Config::read("version = 3\n".to_owned()).unwrap();
        assert_eq!(new.with_imports_of(&none), "version = 4\nimports = []\n[a]\n");
        let plain = Config::read("version = 4\n".to_owned()).unwrap();
        assert!(plain.with_imports_of(&old).starts_with("imports = [\n"));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_lost() {
        assert!(Config::read("version = two\n".to_owned()).is_none());
        assert!(Config::read("version = 2\n\"imports\" = ['/x']\n".to_owned()).is_none());
        assert_eq!(Config::read("[plugins]\n".to_owned()).unwrap().version, None);
    }

    #[test]
    fn the_place_of_the_configuration_is_the_one_that_containerd_was_given() {
        for (line, expected) in [
            ("containerd", None),
            ("containerd --config /x/a.toml", Some("/x/a.toml")),
            ("containerd -c /x/a.toml --log-level info", Some("/x/a.toml")),
            ("containerd --log-level info --config=/x/a.toml", Some("/x/a.toml")),
            ("containerd -config /x/a.toml", Some("/x/a.toml")),
        ] {
            let line: Vec<_> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(option(&line).as_deref(), expected, "{line:?}");
        }
    }
}
