//! Files of a real machine: put in place whole or not at all, on the disk when a call returns, a link still a link afterwards.
//! Which files, and what becomes of the old ones, is the steps' to say.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{statvfs, syncfs};

use crate::digest::Digest;
use crate::host::{Answer, HostError, Listed, Room};

/// An error of the system as the port's.
pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HostError + use<> {
    let object = path.display().to_string();
    move |error| HostError::Failed {
        action,
        object,
        message: error.to_string(),
    }
}

/// Nothing where there is no such file.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn read(path: &Path) -> Answer<Option<Vec<u8>>> {
    if_there(fs::read(path)).map_err(failed("read", path))
}

pub fn size(path: &Path) -> Answer<Option<u64>> {
    let metadata = if_there(fs::metadata(path)).map_err(failed("look at", path))?;
    Ok(metadata.filter(fs::Metadata::is_file).map(|metadata| metadata.len()))
}

pub fn digest(path: &Path) -> Answer<Option<Digest>> {
    Digest::of_file(path).map_err(failed("read", path))
}

/// What is put in place, and for whom.
enum Content<'a> {
    /// With these permissions, or with those of the file that they replace.
    Bytes(&'a [u8], Option<u32>),
    Of(&'a Path),
}

pub fn write(path: &Path, content: &[u8], mode: u32) -> Answer<()> {
    put(path, &Content::Bytes(content, Some(mode)))
}

pub fn rewrite(path: &Path, content: &[u8]) -> Answer<()> {
    put(path, &Content::Bytes(content, None))
}

pub fn copy(from: &Path, to: &Path) -> Answer<()> {
    put(to, &Content::Of(from))
}

fn put(path: &Path, content: &Content<'_>) -> Answer<()> {
    let target = behind_links(path).map_err(failed("look at", path))?;
    let (folder, staged) = beside(&target)?;
    make_folder(folder)?;
    // What a crash left behind is worth nothing.
    remove(&staged)?;
    let done = stage(&staged, &target, content).and_then(|()| {
        fs::rename(&staged, &target).map_err(failed("replace", &target))?;
        sync_folder(folder)
    });
    if done.is_err() {
        // On a full disk the half that fitted would be in everybody's way; the error itself is what is told.
        let _ = fs::remove_file(&staged);
    }
    done
}

fn stage(staged: &Path, target: &Path, content: &Content<'_>) -> Answer<()> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged);
    let mut file = open.map_err(failed("stage", staged))?;
    let (owner, mode) = match content {
        Content::Bytes(bytes, mode) => {
            file.write_all(bytes).map_err(failed("write", target))?;
            // A file keeps whom it belongs to.
            let present = if_there(fs::metadata(target)).map_err(failed("look at", target))?;
            let owner = present.as_ref().map(|file| (file.uid(), file.gid()));
            let own = present.map(|file| file.mode() & 0o7777);
            (owner, mode.or(own).unwrap_or(0o600))
        }
        Content::Of(from) => {
            let mut source = File::open(from).map_err(failed("copy", from))?;
            let metadata = source.metadata().map_err(failed("copy", from))?;
            io::copy(&mut source, &mut file).map_err(|error| failed("copy", at_fault(&error, from, target))(error))?;
            (Some((metadata.uid(), metadata.gid())), metadata.mode() & 0o7777)
        }
    };
    let now = file.metadata().map_err(failed("stage", staged))?;
    if let Some((uid, gid)) = owner.filter(|owner| *owner != (now.uid(), now.gid())) {
        fchown(&file, Some(uid), Some(gid)).map_err(failed("set the owner of", staged))?;
    }
    file.set_permissions(Permissions::from_mode(mode))
        .and_then(|()| file.sync_all())
        .map_err(failed("stage", staged))
}

/// Which of the two files a copy failed at: a disk that takes nothing more is the target's.
fn at_fault<'a>(error: &io::Error, from: &'a Path, target: &'a Path) -> &'a Path {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem => target,
        _ => from,
    }
}

/// The file that a link leads to: renaming over the link itself would make it a file.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match if_there(fs::symlink_metadata(path))? {
        Some(found) if found.is_symlink() => fs::canonicalize(path),
        _ => Ok(path.to_owned()),
    }
}

/// The folder of a file, and where it is staged: hidden, as the kubelet takes every other file in its folder for a pod.
fn beside(target: &Path) -> Answer<(&Path, PathBuf)> {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name().and_then(|name| name.to_str())) else {
        return Err(HostError::Failed {
            action: "replace",
            object: target.display().to_string(),
            message: "it has no folder and name".to_owned(),
        });
    };
    Ok((folder, folder.join(format!(".{name}.afloat-new"))))
}

/// Makes a folder for root alone, and the ones above it that lack.
pub fn make_folder(folder: &Path) -> Answer<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or_else(|| Path::new("/"));
    make_folder(above)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        // Somebody else was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made.map_err(failed("make the folder", folder)),
    }?;
    sync_folder(above)
}

fn sync_folder(folder: &Path) -> Answer<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("sync", folder))
}

pub fn append(path: &Path, content: &[u8]) -> Answer<()> {
    let is_new = size(path)?.is_none();
    if let (true, Some(folder)) = (is_new, path.parent()) {
        make_folder(folder)?;
    }
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let mut file = open.map_err(failed("open", path))?;
    // Released when the file is closed.
    file.lock().map_err(failed("lock", path))?;
    let before = file.metadata().map_err(failed("look at", path))?.len();
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Half a line would be taken for a torn one only as long as it is the last.
        let _ = file.set_len(before);
        return Err(failed("write to", path)(error));
    }
    match path.parent() {
        Some(folder) if is_new => sync_folder(folder),
        _ => Ok(()),
    }
}

pub fn rename(from: &Path, to: &Path) -> Answer<()> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    fs::rename(from, to).map_err(failed("rename", from))?;
    for folder in [to.parent(), from.parent()].into_iter().flatten() {
        sync_folder(folder)?;
    }
    Ok(())
}

pub fn remove(path: &Path) -> Answer<()> {
    let found = if_there(fs::symlink_metadata(path)).map_err(failed("look at", path))?;
    let Some(found) = found else { return Ok(()) };
    let removed = if found.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if_there(removed).map_err(failed("remove", path))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Every file under a folder; a link to a file is one, a link to a folder is not followed.
fn list(folder: &Path) -> Answer<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Some(entries) = if_there(fs::read_dir(&folder)).map_err(failed("list", &folder))? else {
            continue;
        };
        for entry in entries {
            let entry = entry.map_err(failed("list", &folder))?;
            let kind = entry.file_type().map_err(failed("list", &folder))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if let Some(bytes) = size(&entry.path())? {
                files.push((entry.path(), bytes));
            }
        }
    }
    Ok(files)
}

/// The same with the paths of the machine, and in their order.
pub fn listed(folder: &Path, as_folder: &str) -> Answer<Vec<Listed>> {
    let found = list(folder)?.into_iter().filter_map(|(path, bytes)| {
        let within = path.strip_prefix(folder).ok()?.to_str()?;
        let path = format!("{as_folder}/{within}");
        Some(Listed { path, bytes })
    });
    let mut files: Vec<_> = found.collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Writes back every file system that one of these folders is on.
pub fn sync(folders: &[PathBuf]) -> Answer<()> {
    let mut devices = Vec::new();
    for folder in folders {
        let Some(file) = if_there(File::open(folder)).map_err(failed("open", folder))? else {
            continue;
        };
        let device = file.metadata().map_err(failed("look at", folder))?.dev();
        if !devices.contains(&device) {
            syncfs(&file).map_err(|error| failed("sync", folder)(error.into()))?;
            devices.push(device);
        }
    }
    Ok(())
}

pub fn room(path: &Path) -> Answer<Room> {
    let found = statvfs(path).map_err(|error| failed("look for room on", path)(error.into()))?;
    Ok(Room {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        // Some file systems make inodes as they are needed, and say 0 of 0.
        inodes: if found.f_files == 0 { u64::MAX } else { found.f_favail },
    })
}

#[cfg(test)]
mod tests;
