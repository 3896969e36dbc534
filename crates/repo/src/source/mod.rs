//! Where the files come from: a folder, or an ISO image that is read without being mounted. Everything here blocks, and is called
//! from threads that may. Nothing here knows of HTTP.

mod folder;
mod image;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use folder::Folder;
use image::Image;

/// The file by which a release is known.
pub const RELEASE_FILE: &str = "harvester-release.yaml";
/// Beyond it nobody reads a listing.
const LONGEST_LISTING: usize = 10_000;
/// A release file is a few hundred bytes.
const LARGEST_RELEASE: u64 = 1 << 20;

/// What is served.
#[derive(Debug)]
pub struct Source(Kind);

#[derive(Debug)]
enum Kind {
    Folder(Folder),
    Image(Image),
}

/// Why there is nothing to serve.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} cannot be opened", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is neither a folder nor a file", path.display())]
    NoFile { path: PathBuf },
    #[error("this kernel cannot keep a server within a folder: it lacks openat2, which Linux has since 5.6")]
    NoOpenat2,
    #[error("{} is no ISO 9660 image", path.display())]
    NoImage { path: PathBuf },
    #[error("{} is damaged at {at:?}: {problem}", path.display())]
    Damaged { path: PathBuf, at: String, problem: String },
    #[error("{} is not whole: {at:?} would end at byte {end}, the image has {length}", path.display())]
    CutOff {
        path: PathBuf,
        at: String,
        end: u64,
        length: u64,
    },
    #[error("{} has more than {limit} {what}", path.display())]
    TooMuch {
        path: PathBuf,
        what: &'static str,
        limit: usize,
    },
}

/// Why a file is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("there is no such file")]
    NotThere,
    #[error("it is a link that leads out of what is served")]
    Outside,
    #[error("this server may not read it")]
    Forbidden,
    #[error("it cannot be read: {0}")]
    Broken(io::Error),
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    File(Content),
    Folder,
}

/// An open file, and what tells it from others.
#[derive(Clone, Debug)]
pub struct Content {
    file: Arc<File>,
    /// Where in `file` its bytes are, in order.
    pieces: Arc<[Piece]>,
    pub size: u64,
    pub modified: Option<Timestamp>,
    /// Changes when the bytes do; the same in every replica of a server.
    pub mark: Arc<str>,
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    length: u64,
}

impl Content {
    /// Reads at most `buffer.len()` bytes from `at` on; 0 only at the end.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut before = 0;
        for piece in self.pieces.iter() {
            let within = at - before;
            if within < piece.length {
                let left = usize::try_from(piece.length - within).unwrap_or(usize::MAX);
                let wanted = buffer.len().min(left);
                let part = buffer.get_mut(..wanted).unwrap_or_default();
                return self.file.read_at(part, piece.start + within);
            }
            before += piece.length;
        }
        Ok(0)
    }

    /// Fills the buffer. A file that ends before it should is an error: half an answer must not look like a whole one.
    pub fn fill_at(&self, mut at: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(at, buffer) {
                Ok(0) => {
                    let problem = format!("the file ends at byte {at}, it had {} when it was opened", self.size);
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
                }
                Ok(count) => {
                    at += count as u64;
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// None for folders.
    pub size: Option<u64>,
    pub modified: Option<Timestamp>,
}

/// What a folder holds of what is served, by name.
#[derive(Debug, Default)]
pub struct Entries {
    pub list: Vec<Entry>,
    pub more: bool,
}

impl Entries {
    fn of(mut list: Vec<Entry>, more: bool) -> Self {
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Self { list, more }
    }
}

impl Source {
    /// Opens a folder, or reads the directory of an image.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Open {
            path: path.to_owned(),
            source,
        };
        let kind = path.metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            Folder::open(path).map(|folder| Self(Kind::Folder(folder)))
        } else {
            Image::open(path).map(|image| Self(Kind::Image(image)))
        }
    }

    pub(crate) fn find(&self, names: &[String]) -> Result<Found, FindError> {
        match &self.0 {
            Kind::Folder(folder) => folder.find(names),
            Kind::Image(image) => image.find(names),
        }
    }

    pub(crate) fn list(&self, names: &[String], hidden: bool) -> Result<Entries, FindError> {
        match &self.0 {
            Kind::Folder(folder) => folder.list(names, hidden),
            Kind::Image(image) => image.list(names, hidden),
        }
    }

    /// Whether what is served is still there and can be read; else why not.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.0 {
            Kind::Folder(folder) => folder.check()?,
            Kind::Image(image) => image.check()?,
        }
        let broken = |problem: String| format!("{RELEASE_FILE}: {problem}");
        match self.find(&[RELEASE_FILE.to_owned()]) {
            Ok(Found::File(content)) if content.size > LARGEST_RELEASE => Err(broken(format!(
                "it has {} bytes, a release file is small",
                content.size
            ))),
            Ok(Found::File(content)) => {
                let mut bytes = vec![0; usize::try_from(content.size).unwrap_or(0)];
                content
                    .fill_at(0, &mut bytes)
                    .map_err(|error| broken(error.to_string()))
            }
            Ok(Found::Folder) => Err(broken("it is a folder".to_owned())),
            // A folder of other things is served just as well.
            Err(FindError::NotThere) => Ok(()),
            Err(error) => Err(broken(error.to_string())),
        }
    }

    /// Whether it holds the file by which a release is known.
    pub fn holds_release(&self) -> bool {
        matches!(self.find(&[RELEASE_FILE.to_owned()]), Ok(Found::File(_)))
    }

    /// In words, for the one who started the server.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Folder(folder) => format!("folder {}", folder.path().display()),
            Kind::Image(image) => image.describe(),
        }
    }
}
