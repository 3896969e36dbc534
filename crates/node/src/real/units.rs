//! systemd units of a real machine, through systemctl.

use std::time::Duration;

use crate::host::{Answer, HostError, UnitOrder, UnitState};
use crate::real::programs;

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
