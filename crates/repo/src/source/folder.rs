//! A folder as a source. The kernel itself keeps every path within it (`openat2` with `RESOLVE_BENEATH`), links included, so that
//! there is no moment between looking and opening. The folder is opened anew each time: a volume mounted over it later is seen.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Content, Entries, Entry, FindError, Found, LONGEST_LISTING, OpenError, Piece};

/// The kernel asks to try again when something was renamed meanwhile.
const TRIES: u32 = 16;

#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let folder = Self { path: path.to_owned() };
        match folder.root().and_then(|root| within(&root, ".", OFlags::DIRECTORY)) {
            Ok(_) => Ok(folder),
            Err(Errno::NOSYS) => Err(OpenError::NoOpenat2),
            Err(error) => Err(OpenError::Open {
                path: folder.path,
                source: error.into(),
            }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn find(&self, names: &[String]) -> Result<Found, FindError> {
        let root = self.root().map_err(problem)?;
        // Not to wait for the other end of a pipe that lies there.
        let opened = within(&root, &joined(names), OFlags::NONBLOCK | OFlags::NOCTTY).map_err(problem)?;
        let file = File::from(opened);
        let about = file.metadata().map_err(FindError::Broken)?;
        if about.is_dir() {
            return Ok(Found::Folder);
        }
        if !about.is_file() {
            return Err(FindError::NotThere);
        }
        let modified = modified(&about);
        let nanoseconds = modified.map_or(0, Timestamp::as_nanosecond);
        let size = about.len();
        Ok(Found::File(Content {
            file: Arc::new(file),
            pieces: Arc::new([Piece { start: 0, length: size }]),
            size,
            modified,
            mark: Arc::from(format!("{size:x}-{nanoseconds:x}")),
        }))
    }

    /// What can be had in a folder: links that lead nowhere or out are left out, as are pipes and devices.
    pub fn list(&self, names: &[String], hidden: bool) -> Result<Entries, FindError> {
        let root = self.root().map_err(problem)?;
        let path = joined(names);
        let mut reader = within(&root, &path, OFlags::DIRECTORY)
            .and_then(Dir::new)
            .map_err(problem)?;
        let mut list = Vec::new();
        while let Some(read) = reader.read() {
            let read = read.map_err(problem)?;
            let Ok(name) = read.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." || (name.starts_with('.') && !hidden) {
                continue;
            }
            if list.len() == LONGEST_LISTING {
                return Ok(Entries::of(list, true));
            }
            let about = within(&root, &format!("{path}/{name}"), OFlags::PATH).map_err(io::Error::from);
            let Ok(about) = about.and_then(|opened| File::from(opened).metadata()) else {
                continue;
            };
            if about.is_dir() || about.is_file() {
                list.push(Entry {
                    name: name.to_owned(),
                    size: about.is_file().then_some(about.len()),
                    modified: modified(&about),
                });
            }
        }
        Ok(Entries::of(list, false))
    }

    pub fn check(&self) -> Result<(), String> {
        let readable = self.root().and_then(|root| within(&root, ".", OFlags::DIRECTORY));
        readable
            .map(drop)
            .map_err(|error| format!("{} cannot be read: {error}", self.path.display()))
    }

    fn root(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.path, flags, Mode::empty())
    }
}

/// Opens what lies below a folder, and nothing else whatever the path and the links in it say.
fn within(root: &OwnedFd, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        opened = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    opened
}

fn joined(names: &[String]) -> String {
    if names.is_empty() {
        ".".to_owned()
    } else {
        names.join("/")
    }
}

fn modified(about: &std::fs::Metadata) -> Option<Timestamp> {
    about.modified().ok().and_then(|time| Timestamp::try_from(time).ok())
}

fn problem(error: Errno) -> FindError {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::NXIO => FindError::NotThere,
        Errno::XDEV | Errno::LOOP => FindError::Outside,
        Errno::ACCESS | Errno::PERM => FindError::Forbidden,
        other => FindError::Broken(other.into()),
    }
}
