//! An ISO 9660 image as a source, without a mount and so without privilege. Its tree (Rock Ridge names where it has them, else
//! Joliet's) is read once at the start; afterwards a file is a few ranges of the image.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hadris_fs::sync::FileSystem as _;
use hadris_fs::{DirCursor, DirEntry, ErrorKind, Extent, FileType, MountOptions, NodeId};
use hadris_iso::Namespace;
use hadris_iso::sync::IsoFs;
use hadris_storage::host::FileDevice;
use jiff::Timestamp;
use sha2::{Digest as _, Sha512};

use super::{Content, Entries, Entry, FindError, Found, LONGEST_LISTING, OpenError, Piece};

const MOST_ENTRIES: usize = 500_000;
const DEEPEST: usize = 64;
/// Of 4 GiB each: more than any image has.
const MOST_PIECES: usize = 4096;
const MOST_LINKS: usize = 32;
const LONGEST_LINK: usize = 4096;
/// The primary volume descriptor, which says when the image was made.
const DESCRIPTOR: u64 = 16 * 2048;
const SECTOR: usize = 2048;

#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: Arc<File>,
    identity: Identity,
    descriptor: Vec<u8>,
    tree: Tree,
    names: &'static str,
}

/// By their paths, joined with slashes; the root has none.
type Tree = BTreeMap<String, Node>;

#[derive(Debug)]
enum Node {
    File {
        pieces: Arc<[Piece]>,
        size: u64,
        modified: Option<Timestamp>,
        mark: Arc<str>,
    },
    Folder {
        names: Vec<String>,
        modified: Option<Timestamp>,
    },
    Link(String),
}

/// Tells an image from one that was put in its place.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(about: &std::fs::Metadata) -> Self {
        Self {
            device: about.dev(),
            number: about.ino(),
            size: about.size(),
            changed: (about.mtime(), about.mtime_nsec()),
        }
    }
}

impl Image {
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let kind = about.file_type();
        let is_disk = std::os::unix::fs::FileTypeExt::is_block_device(&kind);
        if !kind.is_file() && !is_disk {
            return Err(OpenError::NoFile { path: path.to_owned() });
        }
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let device = file.try_clone().and_then(FileDevice::new).map_err(failed)?;
        let no_image = || OpenError::NoImage { path: path.to_owned() };
        let iso = IsoFs::mount(device, MountOptions::new()).map_err(|error| match error.kind() {
            ErrorKind::Io => failed(io::Error::other(error.to_string())),
            ErrorKind::NotRecognized => no_image(),
            // The device is shorter than the place of the first descriptor.
            ErrorKind::Corrupt if length <= DESCRIPTOR + SECTOR as u64 => no_image(),
            _ => OpenError::Damaged {
                path: path.to_owned(),
                at: "/".to_owned(),
                problem: error.to_string(),
            },
        })?;
        let mut descriptor = vec![0; SECTOR];
        file.read_exact_at(&mut descriptor, DESCRIPTOR).map_err(failed)?;
        let names = match iso.namespace() {
            Namespace::RockRidge => "Rock Ridge",
            Namespace::Joliet => "Joliet",
            _ => "plain",
        };
        let walk = Walk {
            path,
            // As Linux shows them: the standard knows capitals alone.
            small: iso.namespace() == Namespace::Primary,
            iso,
            length,
            mark: mark(&descriptor),
            tree: Tree::new(),
            seen: BTreeSet::new(),
        };
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            identity: Identity::of(&about),
            descriptor,
            tree: walk.run()?,
            names,
        })
    }

    pub fn describe(&self) -> String {
        let is_file = |node: &&Node| matches!(node, Node::File { .. });
        let files = self.tree.values().filter(is_file).count();
        let many = if files == 1 { "" } else { "s" };
        let path = self.path.display();
        format!("image {path} ({files} file{many}, {} names)", self.names)
    }

    pub fn find(&self, names: &[String]) -> Result<Found, FindError> {
        match self.resolve(names)?.1 {
            Node::Folder { .. } => Ok(Found::Folder),
            Node::File {
                pieces,
                size,
                modified,
                mark,
            } => Ok(Found::File(Content {
                file: Arc::clone(&self.file),
                pieces: Arc::clone(pieces),
                size: *size,
                modified: *modified,
                mark: Arc::clone(mark),
            })),
            Node::Link(_) => Err(FindError::NotThere),
        }
    }

    pub fn list(&self, names: &[String], hidden: bool) -> Result<Entries, FindError> {
        let (at, Node::Folder { names, .. }) = self.resolve(names)? else {
            return Err(FindError::NotThere);
        };
        let shown = names.iter().filter(|name| hidden || !name.starts_with('.'));
        let all = shown.filter_map(|name| {
            let mut path = at.clone();
            path.push(name.clone());
            let (size, modified) = match self.resolve(&path).ok()?.1 {
                Node::File { size, modified, .. } => (Some(*size), *modified),
                Node::Folder { modified, .. } => (None, *modified),
                Node::Link(_) => return None,
            };
            Some(Entry {
                name: name.clone(),
                size,
                modified,
            })
        });
        let mut list: Vec<Entry> = all.take(LONGEST_LISTING + 1).collect();
        let more = list.len() > LONGEST_LISTING;
        list.truncate(LONGEST_LISTING);
        Ok(Entries::of(list, more))
    }

    /// Follows links, within the image.
    fn resolve(&self, names: &[String]) -> Result<(Vec<String>, &Node), FindError> {
        let mut left: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        let mut at: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(name) = left.pop() {
            match name {
                "" | "." => continue,
                ".." => {
                    at.pop().ok_or(FindError::Outside)?;
                    continue;
                }
                _ => at.push(name.to_owned()),
            }
            match self.tree.get(&at.join("/")) {
                None => return Err(FindError::NotThere),
                Some(Node::File { .. }) if !left.is_empty() => return Err(FindError::NotThere),
                Some(Node::Link(target)) => {
                    links += 1;
                    if links > MOST_LINKS || target.starts_with('/') {
                        return Err(FindError::Outside);
                    }
                    at.pop();
                    left.extend(target.split('/').rev());
                }
                Some(_) => {}
            }
        }
        let node = self.tree.get(&at.join("/")).ok_or(FindError::NotThere)?;
        Ok((at, node))
    }

    /// The image is held open: one that was replaced would be served from its old bytes, which the ones who replaced it must know.
    pub fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        let about = self
            .path
            .metadata()
            .map_err(|error| format!("{path} cannot be read: {error}"))?;
        if Identity::of(&about) != self.identity {
            return Err(format!("{path} was changed since it was opened: start the server anew"));
        }
        let mut now = vec![0; SECTOR];
        let read = self.file.read_exact_at(&mut now, DESCRIPTOR);
        read.map_err(|error| format!("{path} cannot be read: {error}"))?;
        if now == self.descriptor {
            Ok(())
        } else {
            Err(format!(
                "{path} is another image than the one opened: start the server anew"
            ))
        }
    }
}

/// The same for all copies of an image, whatever the dates of their files.
fn mark(descriptor: &[u8]) -> String {
    let digest = Sha512::digest(descriptor);
    let mut text = String::new();
    for byte in digest.iter().take(8) {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

/// The one walk through the tree of an image.
struct Walk<'a> {
    path: &'a Path,
    iso: IsoFs<FileDevice>,
    length: u64,
    mark: String,
    small: bool,
    tree: Tree,
    seen: BTreeSet<u64>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<Tree, OpenError> {
        let root = self.iso.root();
        let mut left = vec![(String::new(), root, 0)];
        while let Some((at, node, depth)) = left.pop() {
            if depth > DEEPEST {
                return Err(self.too_much("folders within each other", DEEPEST));
            }
            if !self.seen.insert(node.get()) {
                return Err(self.damaged(&at, "the folder contains itself"));
            }
            let mut names = Vec::new();
            let mut cursor = DirCursor::default();
            while let Some(entry) = self.next(&at, node, cursor)? {
                cursor = entry.next_cursor();
                // A name that is no text cannot be asked for.
                let Some(name) = self.name(&entry) else {
                    continue;
                };
                if self.tree.len() + names.len() + left.len() >= MOST_ENTRIES {
                    return Err(self.too_much("files", MOST_ENTRIES));
                }
                let path = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}/{name}")
                };
                match entry.file_type() {
                    FileType::Dir => left.push((path, entry.node(), depth + 1)),
                    FileType::File => {
                        let file = self.file(&path, &entry)?;
                        self.tree.insert(path, file);
                    }
                    FileType::Symlink => {
                        let link = self.link(&path, entry.node())?;
                        self.tree.insert(path, link);
                    }
                    _ => continue,
                }
                names.push(name);
            }
            let modified = self.iso.stat(node).ok().and_then(|about| time(&about));
            self.tree.insert(at, Node::Folder { names, modified });
        }
        Ok(self.tree)
    }

    fn next(&mut self, at: &str, node: NodeId, cursor: DirCursor) -> Result<Option<DirEntry>, OpenError> {
        let next = self.iso.readdir(node, cursor);
        next.map_err(|error| self.damaged(at, &error.to_string()))
    }

    fn name(&self, entry: &DirEntry) -> Option<String> {
        let name = entry.name().to_str().ok()?;
        let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
        plain.then(|| {
            if self.small {
                name.to_ascii_lowercase()
            } else {
                name.to_owned()
            }
        })
    }

    fn file(&mut self, path: &str, entry: &DirEntry) -> Result<Node, OpenError> {
        let about = self.iso.stat(entry.node());
        let about = about.map_err(|error| self.damaged(path, &error.to_string()))?;
        let pieces = self.pieces(path, entry.node())?;
        let size = pieces.iter().map(|piece| piece.length).sum();
        if size != about.len() {
            return Err(self.damaged(path, "its parts are not as long as the whole"));
        }
        let end = |piece: &Piece| piece.start.saturating_add(piece.length);
        if let Some(end) = pieces.iter().map(end).find(|end| *end > self.length) {
            return Err(OpenError::CutOff {
                path: self.path.to_owned(),
                at: path.to_owned(),
                end,
                length: self.length,
            });
        }
        let first = pieces.first().map_or(0, |piece| piece.start);
        Ok(Node::File {
            pieces: Arc::from(pieces),
            size,
            modified: time(&about),
            mark: Arc::from(format!("{}-{first:x}-{size:x}", self.mark)),
        })
    }

    /// Where the bytes of a file are: one place, or several for one of 4 GiB and more.
    fn pieces(&mut self, path: &str, node: NodeId) -> Result<Vec<Piece>, OpenError> {
        let mut pieces = Vec::new();
        let mut from = 0;
        while pieces.len() < MOST_PIECES {
            let mut extents = [Extent::new(0, 0); 16];
            let count = self.iso.extents(node, from, &mut extents);
            let count = count.map_err(|error| self.damaged(path, &error.to_string()))?;
            if count == 0 {
                return Ok(pieces);
            }
            for extent in extents.iter().take(count) {
                pieces.push(Piece {
                    start: extent.offset(),
                    length: extent.len(),
                });
                from = extent.file_offset() + extent.len();
            }
        }
        Err(self.too_much("parts of one file", MOST_PIECES))
    }

    fn link(&mut self, path: &str, node: NodeId) -> Result<Node, OpenError> {
        let mut buffer = vec![0; LONGEST_LINK];
        let target = self.iso.readlink(node, &mut buffer).map(<[u8]>::to_vec);
        let target = target.map_err(|error| self.damaged(path, &error.to_string()))?;
        let target = String::from_utf8(target).map_err(|_| self.damaged(path, "the link is no text"))?;
        Ok(Node::Link(target))
    }

    fn damaged(&self, at: &str, problem: &str) -> OpenError {
        OpenError::Damaged {
            path: self.path.to_owned(),
            at: format!("/{at}"),
            problem: problem.to_owned(),
        }
    }

    fn too_much(&self, what: &'static str, limit: usize) -> OpenError {
        OpenError::TooMuch {
            path: self.path.to_owned(),
            what,
            limit,
        }
    }
}

fn time(about: &hadris_fs::Metadata) -> Option<Timestamp> {
    Timestamp::from_second(about.modified()?.unix_seconds()).ok()
}
