//! Files of a simulated machine, and which of them a power loss takes back. Contents are shared: a copy costs nothing,
//! and a digest is worked out once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use afloat_node::digest::Digest;

/// All files by path.
pub type Tree = BTreeMap<String, File>;

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    content: Arc<Content>,
    pub mode: u32,
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    digest: OnceLock<Digest>,
}

impl File {
    pub fn new(bytes: &[u8], mode: u32) -> Self {
        let content = Content {
            bytes: bytes.to_vec(),
            digest: OnceLock::new(),
        };
        Self {
            content: Arc::new(content),
            mode,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.content.bytes
    }

    pub fn digest(&self) -> Digest {
        *self.content.digest.get_or_init(|| Digest::of(&self.content.bytes))
    }

    /// Longer by these bytes; in place where nobody shares the content, as a journal's is not.
    fn append(&mut self, more: &[u8]) {
        match Arc::get_mut(&mut self.content) {
            Some(content) => {
                content.bytes.extend_from_slice(more);
                content.digest = OnceLock::new();
            }
            None => *self = Self::new(&[self.bytes(), more].concat(), self.mode),
        }
    }
}

impl PartialEq for File {
    fn eq(&self, other: &Self) -> bool {
        self.mode == other.mode && (Arc::ptr_eq(&self.content, &other.content) || self.bytes() == other.bytes())
    }
}

/// A disk with a cache that a power loss empties.
#[derive(Clone, Debug)]
pub struct Disk {
    tree: Tree,
    /// What is on the disk itself, where it differs from what programs see.
    unsynced: BTreeMap<String, Option<File>>,
}

impl Disk {
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            unsynced: BTreeMap::new(),
        }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.tree.get(path)
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(self.get(path)?.bytes()).ok()
    }

    /// Files under a folder.
    pub fn under<'a>(&'a self, folder: &str) -> impl Iterator<Item = (&'a String, &'a File)> + use<'a> {
        let prefix = format!("{folder}/");
        let from = self.tree.range(prefix.clone()..);
        from.take_while(move |(path, _)| path.starts_with(&prefix))
    }

    /// Written and synced.
    pub fn write(&mut self, path: &str, bytes: &[u8], mode: u32) {
        self.place(path, File::new(bytes, mode));
    }

    pub fn place(&mut self, path: &str, file: File) {
        self.unsynced.remove(path);
        self.tree.insert(path.to_owned(), file);
    }

    /// Written as programs do that do not sync.
    pub fn write_unsynced(&mut self, path: &str, bytes: &[u8], mode: u32) {
        let before = self.tree.insert(path.to_owned(), File::new(bytes, mode));
        self.unsynced.entry(path.to_owned()).or_insert(before);
    }

    pub fn append(&mut self, path: &str, bytes: &[u8]) {
        match self.tree.get_mut(path) {
            Some(file) => file.append(bytes),
            None => self.write(path, bytes, 0o600),
        }
    }

    /// A file, or a folder with all that is in it.
    pub fn remove(&mut self, path: &str) {
        self.remove_file(path);
        let within: Vec<_> = self.under(path).map(|(path, _)| path.clone()).collect();
        for path in within {
            self.remove_file(&path);
        }
    }

    /// A file, or a folder with all that is in it; tells whether there was one.
    pub fn rename(&mut self, from: &str, to: &str) -> bool {
        let mut files: Vec<_> = self
            .under(from)
            .map(|(path, file)| (path.clone(), file.clone()))
            .collect();
        files.extend(self.get(from).map(|file| (from.to_owned(), file.clone())));
        for (path, file) in &files {
            let within = path.strip_prefix(from).unwrap_or_default();
            self.remove_file(path);
            self.place(&format!("{to}{within}"), file.clone());
        }
        !files.is_empty()
    }

    pub fn remove_file(&mut self, path: &str) {
        self.tree.remove(path);
        self.unsynced.remove(path);
    }

    pub fn sync(&mut self) {
        self.unsynced.clear();
    }

    pub fn lose_unsynced(&mut self) {
        for (path, before) in std::mem::take(&mut self.unsynced) {
            match before {
                Some(file) => self.tree.insert(path, file),
                None => self.tree.remove(&path),
            };
        }
    }
}
