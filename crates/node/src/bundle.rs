//! The bundle: every file an upgrade brings to a machine, listed with its digest in `SHA256SUMS` as `sha256sum` writes it. Which
//! file goes where on the host is said here; how it is put there is an instruction's part.

use crate::digest::Digest;
use crate::host::{Answer, Host};
use crate::paths;

/// A file of the bundle, by its path within it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Item {
    pub name: String,
    pub digest: Digest,
}

/// Why a bundle is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} of SHA256SUMS is no digest with the name of a file in the bundle")]
pub struct NotABundle {
    pub line: usize,
}

/// The length of a digest.
const HEX: usize = 64;

/// Reads `SHA256SUMS`.
pub fn parse(text: &str) -> Result<Vec<Item>, NotABundle> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(index, line)| {
            let wrong = NotABundle { line: index + 1 };
            let parts = line
                .split_at_checked(HEX)
                .map(|(hex, rest)| (hex, rest.strip_prefix("  ")));
            let Some((hex, Some(name))) = parts else {
                return Err(wrong);
            };
            // A name that leaves the bundle would be written anywhere on the host.
            if name.starts_with('/') || name.split('/').any(|part| part.is_empty() || part == "..") {
                return Err(wrong);
            }
            let digest = Digest::from_hex(hex).ok_or(wrong)?;
            Ok(Item {
                name: name.to_owned(),
                digest,
            })
        })
        .collect()
}

/// The bundle in a folder, or nothing where there is none that can be read.
pub fn read(host: &mut dyn Host, folder: &str) -> Answer<Option<Vec<Item>>> {
    let content = host.read(&format!("{folder}/SHA256SUMS"))?;
    let text = content.and_then(|content| String::from_utf8(content).ok());
    Ok(text.and_then(|text| parse(&text).ok()))
}

/// A binary of one Kubernetes version within the bundle.
pub fn kubernetes(version: &str, program: &str) -> String {
    format!("kubernetes/{version}/{program}")
}

/// What is said of files on the host that are no longer what was brought.
pub fn changed_since(files: &str) -> String {
    format!("{files} is not what the bundle promised: it was changed since it was staged")
}

/// Where a file of the bundle lies on the host once it is staged.
pub fn staged(name: &str) -> String {
    format!("{}/{name}", paths::BUNDLE)
}

/// Where runtime binaries go: over the one that is there, wherever it is.
pub fn runtime_target(host: &mut dyn Host, program: &str) -> Answer<String> {
    for folder in paths::RUNTIME_FOLDERS {
        let path = format!("{folder}/{program}");
        if host.size(&path)?.is_some() {
            return Ok(path);
        }
    }
    Ok(format!("{}/{program}", paths::RUNTIME_FOLDERS[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_lists_digests_and_names_within_it() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let items = parse(&format!("{hex}  cni/bridge\n{hex}  kubernetes/v1.36.3/kubelet\n")).unwrap();
        assert_eq!(items[1].name, "kubernetes/v1.36.3/kubelet");
        assert_eq!(items[0].digest, Digest::of(b"abc"));
        for wrong in [
            "no digest",
            &format!("{hex}  ../etc/shadow"),
            &format!("{hex}  /etc/shadow"),
        ] {
            assert_eq!(parse(wrong), Err(NotABundle { line: 1 }), "{wrong}");
        }
    }
}
