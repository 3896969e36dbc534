//! What containerd makes of its configuration on a simulated machine. As the real one: every form up to its own is read, the form it writes
//! is its own, and what it writes has all defaults in it and the folder that it imports from.

use afloat_node::host::Command;
use afloat_node::paths;

use super::SimHost;

/// The newest form of configuration that a version of containerd reads.
pub fn native_form(version: &str) -> u32 {
    let numbers = afloat_node::flags::numbers(version);
    match numbers.as_slice() {
        [0 | 1, ..] => 2,
        [2, 0..=2, ..] => 3,
        _ => 4,
    }
}

/// The form of a configuration.
pub fn form_of(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("version = "));
    line.and_then(|form| form.trim().parse().ok())
}

impl SimHost {
    /// Where containerd reads its configuration.
    pub(super) fn runtime_config_path(&self) -> String {
        match self.runtime_options.as_slice() {
            [option, path, ..] if option == "--config" => path.clone(),
            _ => paths::CONTAINERD_CONFIG.to_owned(),
        }
    }

    pub(super) fn containerd_config(&self, command: &Command, file: &str, verb: &str) -> Result<String, String> {
        if self.faults.refused_configs.contains(verb) {
            return Err("containerd: failed to unmarshal TOML at row 1 column 1: no value".to_owned());
        }
        let bound = command.over.as_ref().filter(|bind| bind.over == file);
        let file = bound.map_or(file, |bind| bind.folder.as_str());
        let text = self.disk.text(file).ok_or("containerd: no such file")?;
        let own = native_form(self.version_of(&command.program).unwrap_or_default());
        if form_of(text) > Some(own) {
            return Err(format!("containerd: expected version equal to or less than {own}"));
        }
        let rest: Vec<_> = text.lines().filter(|line| !line.starts_with("version = ")).collect();
        let rest = rest.join("\n");
        Ok(format!(
            "version = {own}\nroot = '/var/lib/containerd'\nimports = ['/etc/containerd/conf.d/*.toml']\n{rest}\n"
        ))
    }
}
