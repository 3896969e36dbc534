//! Replacing a file as a step may have to at any instant of a crash: staged beside its target, checked, synced, and
//! renamed over it; what was there before is kept until it is no longer needed. Every function can be called again
//! after a crash at any point and then finishes or finds nothing to do.

use crate::digest::Digest;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What replacing a file did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The target already was what it should be; nothing was touched.
    AlreadyThere,
    /// The target is new, and what it was before (if it was) is kept.
    Done { before: Option<Digest> },
}

/// Why a file could not be replaced; the target is then as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("what was staged for {path} has the digest {found}, not {expected}")]
    WrongDigest {
        path: PathBuf,
        expected: Digest,
        found: Digest,
    },
    #[error("{path} has no folder and name")]
    NoName { path: PathBuf },
}

/// Where things lie while a file is replaced: all in its own folder, since a rename never leaves a file system.
struct Places<'a> {
    target: &'a Path,
    folder: &'a Path,
    staged: PathBuf,
    kept: PathBuf,
}

impl<'a> Places<'a> {
    fn of(target: &'a Path) -> Result<Self, ReplaceError> {
        let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(ReplaceError::NoName {
                path: target.to_owned(),
            });
        };
        let beside = |suffix: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(suffix);
            folder.join(hidden)
        };
        Ok(Self {
            target,
            folder,
            staged: beside(".afloat-new"),
            kept: beside(".afloat-old"),
        })
    }

    fn sync_folder(&self) -> Result<(), ReplaceError> {
        File::open(self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed("sync", self.folder))
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReplaceError + use<> {
    let path = path.to_owned();
    move |source| ReplaceError::Io { action, path, source }
}

fn remove(path: &Path) -> Result<(), ReplaceError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Puts `content` in place of `target` with the permission bits `mode`, if its digest is the `expected` one.
pub fn replace_file(
    target: &Path,
    content: &mut impl Read,
    expected: Digest,
    mode: u32,
) -> Result<Replaced, ReplaceError> {
    let places = Places::of(target)?;
    let before = Digest::of_file(target).map_err(failed("read", target))?;
    if before == Some(expected) {
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(target, permissions).map_err(failed("set the permissions of", target))?;
        return Ok(Replaced::AlreadyThere);
    }
    stage(&places, content, expected, mode)?;
    if before.is_some() {
        keep(&places)?;
    }
    fs::rename(&places.staged, target).map_err(failed("replace", target))?;
    places.sync_folder()?;
    Ok(Replaced::Done { before })
}

fn stage(places: &Places<'_>, content: &mut impl Read, expected: Digest, mode: u32) -> Result<(), ReplaceError> {
    // What a crash left behind is worth nothing: it was never checked.
    remove(&places.staged)?;
    let open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&places.staged);
    let mut file = open.map_err(failed("stage", &places.staged))?;
    let written = Digest::copy(content, &mut file).and_then(|found| {
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(found)
    });
    match written {
        Ok(found) if found == expected => Ok(()),
        Ok(found) => {
            remove(&places.staged)?;
            Err(ReplaceError::WrongDigest {
                path: places.target.to_owned(),
                expected,
                found,
            })
        }
        Err(error) => {
            remove(&places.staged)?;
            Err(failed("stage", &places.staged)(error))
        }
    }
}

/// Keeps what is there now. What an earlier replacement kept stays: it is what undoing must lead back to.
fn keep(places: &Places<'_>) -> Result<(), ReplaceError> {
    match fs::hard_link(places.target, &places.kept) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("keep", places.target)(error)),
        _ => places.sync_folder(),
    }
}

/// Puts back what was kept; tells whether there was anything.
pub fn restore_file(target: &Path) -> Result<bool, ReplaceError> {
    let places = Places::of(target)?;
    remove(&places.staged)?;
    match fs::rename(&places.kept, target) {
        Ok(()) => places.sync_folder().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("put back", target)(error)),
    }
}

/// Gives up what was kept: from now on the replacement cannot be undone.
pub fn forget_kept(target: &Path) -> Result<(), ReplaceError> {
    let places = Places::of(target)?;
    remove(&places.kept)?;
    places.sync_folder()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn put(target: &Path, content: &[u8]) -> Result<Replaced, ReplaceError> {
        replace_file(target, &mut &content[..], Digest::of(content), 0o755)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_once_and_what_it_was_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        fs::write(&target, "old").unwrap();
        assert_eq!(
            put(&target, b"new").unwrap(),
            Replaced::Done {
                before: Some(Digest::of(b"old"))
            }
        );
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o755);
        let inode = fs::metadata(&target).unwrap().ino();
        assert_eq!(put(&target, b"new").unwrap(), Replaced::AlreadyThere);
        assert_eq!(fs::metadata(&target).unwrap().ino(), inode);
        assert_eq!(names(folder.path()), [".kubelet.afloat-old", "kubelet"]);
    }

    #[test]
    fn a_running_binary_is_never_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        fs::write(&target, "old").unwrap();
        let mut running = File::open(&target).unwrap();
        put(&target, b"new").unwrap();
        let mut seen = String::new();
        running.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "old");
    }

    #[test]
    fn a_wrong_digest_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        fs::write(&target, "old").unwrap();
        let refused = replace_file(&target, &mut &b"tampered"[..], Digest::of(b"new"), 0o755);
        assert!(matches!(refused, Err(ReplaceError::WrongDigest { .. })));
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["kubelet"]);
    }

    #[test]
    fn undoing_leads_back_to_the_first_version_whatever_happened_since() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        fs::write(&target, "first").unwrap();
        put(&target, b"second").unwrap();
        put(&target, b"third").unwrap();
        fs::write(folder.path().join(".kubelet.afloat-new"), "half of a fou").unwrap();
        assert!(restore_file(&target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["kubelet"]);
        assert!(!restore_file(&target).unwrap(), "once is enough");
    }

    #[test]
    fn leftovers_of_a_crash_do_not_hinder() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        fs::write(folder.path().join(".kubelet.afloat-new"), "half").unwrap();
        assert_eq!(put(&target, b"new").unwrap(), Replaced::Done { before: None });
        forget_kept(&target).unwrap();
        assert_eq!(names(folder.path()), ["kubelet"]);
    }

    #[test]
    fn a_reader_that_fails_leaves_nothing_staged() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("connection lost"))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kubelet");
        let refused = replace_file(&target, &mut Broken, Digest::of(b"new"), 0o755);
        assert!(matches!(refused, Err(ReplaceError::Io { action: "stage", .. })));
        assert!(names(folder.path()).is_empty());
    }
}
