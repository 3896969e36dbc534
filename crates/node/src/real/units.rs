//! systemd units of a real machine, through systemctl.

use std::path::Path;
use std::time::Duration;

use crate::host::{Answer, HostError, UnitOrder, UnitState};
use crate::real::{files, programs};

/// systemd itself gives a unit 90 seconds to stop before it kills it, and again to start.
const LIMIT: Duration = Duration::from_mins(4);
/// A question is answered at once, or systemd is not well.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Some properties of a unit, by name.
pub fn show(unit: &str, properties: &str) -> Answer<Vec<(String, String)>> {
    let said = programs::run(
        "systemctl",
        &["show", "--no-pager", "--property", properties, "--", unit],
        b"",
        ASK_LIMIT,
    )?;
    if !said.is_fine() {
        return Err(refused("look at the unit", unit, said.complaint()));
    }
    Ok(parse(&said.stdout))
}

fn parse(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A property out of what was shown.
pub fn property<'a>(properties: &'a [(String, String)], name: &str) -> &'a str {
    let found = properties.iter().find(|(found, _)| found == name);
    found.map_or("", |(_, value)| value)
}

pub fn state(unit: &str) -> Answer<UnitState> {
    Ok(state_of(&show(unit, "LoadState,ActiveState,SubState")?))
}

fn state_of(properties: &[(String, String)]) -> UnitState {
    let of = |name| property(properties, name);
    match (of("LoadState"), of("ActiveState"), of("SubState")) {
        ("not-found", "inactive", _) => UnitState::Unknown,
        (_, "inactive", _) => UnitState::Inactive,
        // A kubelet that falls over again and again is in this state most of the time.
        (_, "failed", _) | (_, "activating", "auto-restart") => UnitState::Failed,
        // Still starting or not quite stopped: its processes are there.
        _ => UnitState::Active,
    }
}

/// What the main process of a unit was started with. Not what its file says: that may name variables.
pub fn command_line(unit: &str) -> Answer<Vec<String>> {
    let shown = show(unit, "MainPID")?;
    let process = property(&shown, "MainPID").to_owned();
    if ["", "0"].contains(&process.as_str()) {
        return Ok(Vec::new());
    }
    let line = files::read(Path::new(&format!("/proc/{process}/cmdline")))?;
    Ok(arguments(&line.unwrap_or_default()))
}

/// Arguments as the kernel tells them, each with a zero at its end.
fn arguments(line: &[u8]) -> Vec<String> {
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

pub fn order(unit: &str, order: UnitOrder) -> Answer<()> {
    let verb = match order {
        UnitOrder::Start => "start",
        UnitOrder::Stop => "stop",
        UnitOrder::Restart => "restart",
        UnitOrder::Enable => "enable",
        UnitOrder::Disable => "disable",
    };
    if matches!(order, UnitOrder::Start | UnitOrder::Restart) {
        // One that failed too often is otherwise not started again for a while; that it never failed is fine.
        let _ = programs::run("systemctl", &["reset-failed", "--", unit], b"", ASK_LIMIT)?;
    }
    let said = programs::run("systemctl", &[verb, "--", unit], b"", LIMIT)?;
    if said.is_fine() {
        Ok(())
    } else {
        Err(refused(verb, unit, said.complaint()))
    }
}

pub fn reload() -> Answer<()> {
    let said = programs::run("systemctl", &["daemon-reload"], b"", LIMIT)?;
    if said.is_fine() {
        Ok(())
    } else {
        Err(refused("reload", "systemd's units", said.complaint()))
    }
}

pub fn refused(action: &'static str, object: &str, message: String) -> HostError {
    HostError::Failed {
        action,
        object: object.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_as_the_kernel_tells_it() {
        let line = b"/usr/bin/containerd\0--config\0/etc/x y.toml\0";
        assert_eq!(arguments(line), ["/usr/bin/containerd", "--config", "/etc/x y.toml"]);
        assert!(arguments(b"").is_empty());
    }

    #[test]
    fn a_units_state_is_read_as_systemd_tells_it() {
        for (load, active, sub, expected) in [
            ("loaded", "active", "running", UnitState::Active),
            ("loaded", "activating", "start", UnitState::Active),
            ("loaded", "activating", "auto-restart", UnitState::Failed),
            ("loaded", "deactivating", "stop-sigterm", UnitState::Active),
            ("loaded", "failed", "failed", UnitState::Failed),
            ("loaded", "inactive", "dead", UnitState::Inactive),
            ("not-found", "inactive", "dead", UnitState::Unknown),
            // Its file was removed while it ran.
            ("not-found", "active", "running", UnitState::Active),
        ] {
            let text = format!("LoadState={load}\nActiveState={active}\nSubState={sub}\n");
            assert_eq!(state_of(&parse(&text)), expected, "{text}");
        }
    }
}
