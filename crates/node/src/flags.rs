//! Kubelet flags that went away: a new kubelet does not start with a flag it no longer knows, and kubeadm takes it out of its own
//! file only in its last phase. Versions of Kubernetes are read here as well, as far as a machine needs them.

/// Flags by the minor version whose kubelet no longer knows them.
const REMOVED: [(u32, &str); 5] = [
    (24, "--network-plugin"),
    (24, "--cni-conf-dir"),
    (24, "--cni-bin-dir"),
    (27, "--container-runtime"),
    (35, "--pod-infra-container-image"),
];

/// The minor version of `v1.36.3`.
pub fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

/// All numbers of `v1.36.3`, to compare by; what follows a `-` or `+` does not count.
pub fn numbers(version: &str) -> Vec<u32> {
    let release = version.trim().trim_start_matches('v');
    let release = release.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map_while(|part| part.parse().ok()).collect()
}

/// Whether the kubelet of a version no longer knows this argument.
pub fn is_removed(argument: &str, version: &str) -> bool {
    let name = argument.split('=').next().unwrap_or_default();
    let Some(minor) = minor(version) else { return false };
    REMOVED.iter().any(|(since, flag)| *flag == name && minor >= *since)
}

/// As systemd reads its environment files.
fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with(['#', ';'])
}

/// What the lines of an environment file say, in pieces.
fn words(file: &str) -> impl DoubleEndedIterator<Item = &str> {
    let lines = file.lines().filter(|line| !is_comment(line));
    lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == '"' || c == '\''))
}

/// The arguments in an environment file of the kubelet (`NAME="--a=b --c"`) that its new version no longer knows.
pub fn removed_in(file: &str, version: &str) -> Vec<String> {
    let mut removed = Vec::new();
    for word in words(file) {
        let flag = word.find("--").and_then(|start| word.get(start..)).unwrap_or_default();
        if is_removed(flag, version) {
            removed.push(flag.split('=').next().unwrap_or_default().to_owned());
        }
    }
    removed
}

/// What an environment file of the kubelet says of a flag that is true or false; the last word counts, as it does for the kubelet.
pub fn switch(file: &str, name: &str) -> Option<bool> {
    let mut values = words(file).filter_map(|word| {
        let rest = word.get(word.find("--")?..)?.strip_prefix("--")?.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            None => rest.is_empty().then_some(true),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Some(true),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Some(false),
            Some(_) => None,
        }
    });
    values.next_back()
}

/// The same file without them. Flags there are written `--name=value`, as kubeadm does.
pub fn migrate(file: &str, version: &str) -> String {
    let mut lines = Vec::new();
    for line in file.lines() {
        let Some((name, quoted)) = line.split_once('=').filter(|_| !is_comment(line)) else {
            lines.push(line.to_owned());
            continue;
        };
        let arguments = quoted.trim_matches('"').split_whitespace();
        let left: Vec<_> = arguments.filter(|argument| !is_removed(argument, version)).collect();
        lines.push(format!("{name}=\"{}\"", left.join(" ")));
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_the_kubelet_reads_it() {
        for (file, expected) in [
            ("KUBELET_EXTRA_ARGS=--fail-swap-on=false\n", Some(false)),
            ("KUBELET_EXTRA_ARGS=\"--v=2 --fail-swap-on\"\n", Some(true)),
            ("A='--fail-swap-on=true --fail-swap-on=0'\n", Some(false)),
            ("A=--fail-swap-on-never=false\n", None),
            ("A=--v=4\n", None),
            ("A=--fail-swap-on=false\n# A=--fail-swap-on=true\n", Some(false)),
            ("  ; A=--fail-swap-on=false\n", None),
        ] {
            assert_eq!(switch(file, "fail-swap-on"), expected, "{file}");
        }
    }

    const FILE: &str = "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=pause:3.10 --v=2\"\n";

    #[test]
    fn a_flag_goes_with_the_version_that_no_longer_knows_it() {
        assert_eq!(migrate(FILE, "v1.34.4"), FILE);
        assert_eq!(migrate(FILE, "v1.35.4"), "KUBELET_KUBEADM_ARGS=\"--v=2\"\n");
        assert_eq!(removed_in(FILE, "v1.36.3"), ["--pod-infra-container-image"]);
        assert!(removed_in("KUBELET_EXTRA_ARGS=--v=4\n", "v1.36.3").is_empty());
        let comments = "# A=\"--pod-infra-container-image=pause:3.10 --v=2\"\n\t;--container-runtime=remote\n";
        assert!(removed_in(comments, "v1.36.3").is_empty());
        assert_eq!(
            migrate(&format!("{comments}{FILE}"), "v1.35.4"),
            format!("{comments}KUBELET_KUBEADM_ARGS=\"--v=2\"\n")
        );
        let person = "KUBELET_EXTRA_ARGS=--pod-infra-container-image=mine\n";
        assert_eq!(removed_in(person, "v1.35.4"), ["--pod-infra-container-image"]);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("v1.9.3") < numbers("v1.10.0"));
        assert_eq!(numbers("v1.36.3-rc.1+k3s"), [1, 36, 3]);
        assert_eq!(minor("v1.36.3"), Some(36));
    }
}
