//! A small writer of ISO 9660 images, of its own and not the reader's, so that the two cannot share an error. It knows what the
//! tests need: folders, files in one or several extents, links, and the names of Rock Ridge and of Joliet.

use std::collections::{BTreeMap, BTreeSet};

const SECTOR: usize = 2048;
/// 2024-05-06 07:08:09 UTC, as a directory has it.
const DATE: [u8; 7] = [124, 5, 6, 7, 8, 9, 0];
const FOLDER: u8 = 2;
const NOT_LAST: u8 = 128;

enum Item {
    File(Vec<u8>),
    Link(String),
    Folder,
}

#[derive(Clone, Copy, PartialEq)]
enum Tree {
    Primary,
    Joliet,
}

pub struct Iso {
    rock_ridge: bool,
    joliet: bool,
    /// The most bytes of one extent; 4 GiB less a sector in life.
    extent: usize,
    items: BTreeMap<String, Item>,
}

/// Where things are: sectors of folders by tree, and of files.
#[derive(Default)]
struct Places {
    folders: BTreeMap<(bool, String), (usize, usize)>,
    files: BTreeMap<String, usize>,
}

impl Iso {
    pub fn new(rock_ridge: bool, joliet: bool) -> Self {
        Self {
            rock_ridge,
            joliet,
            extent: 1 << 30,
            items: BTreeMap::from([(String::new(), Item::Folder)]),
        }
    }

    pub fn extents_of(mut self, bytes: usize) -> Self {
        self.extent = bytes;
        self
    }

    pub fn file(self, path: &str, bytes: &[u8]) -> Self {
        self.put(path, Item::File(bytes.to_vec()))
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        self.put(path, Item::Link(target.to_owned()))
    }

    fn put(mut self, path: &str, item: Item) -> Self {
        for (at, _) in path.match_indices('/') {
            self.items.entry(path[..at].to_owned()).or_insert(Item::Folder);
        }
        self.items.insert(path.to_owned(), item);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let trees: &[Tree] = if self.joliet {
            &[Tree::Primary, Tree::Joliet]
        } else {
            &[Tree::Primary]
        };
        let mut places = Places::default();
        // 16: descriptors, 19: the path table.
        let mut next = 20;
        for tree in trees {
            for path in self.folders() {
                let length = self.folder(*tree, path, &places).len();
                places
                    .folders
                    .insert((*tree == Tree::Joliet, path.clone()), (next, length));
                next += length / SECTOR;
            }
        }
        for (path, item) in &self.items {
            if let Item::File(bytes) = item {
                places.files.insert(path.clone(), next);
                next += bytes.len().div_ceil(SECTOR);
            }
        }
        let mut image = vec![0; next * SECTOR];
        let mut put = |sector: usize, bytes: &[u8]| {
            image[sector * SECTOR..sector * SECTOR + bytes.len()].copy_from_slice(bytes);
        };
        for (index, tree) in trees.iter().enumerate() {
            put(16 + index, &descriptor(*tree, &places, next));
            for path in self.folders() {
                let (sector, _) = places.folders[&(*tree == Tree::Joliet, path.clone())];
                put(sector, &self.folder(*tree, path, &places));
            }
        }
        put(16 + trees.len(), &[b"\xffCD001\x01".as_slice(), &[0; 2041]].concat());
        let root = places.folders[&(false, String::new())].0;
        put(19, &[&[1, 0][..], &u32le(root), &[1, 0, 0, 0]].concat());
        for (path, sector) in &places.files {
            if let Some(Item::File(bytes)) = self.items.get(path) {
                put(*sector, bytes);
            }
        }
        image
    }

    fn folders(&self) -> impl Iterator<Item = &String> {
        self.items
            .iter()
            .filter(|(_, item)| matches!(item, Item::Folder))
            .map(|(path, _)| path)
    }

    /// The records of a folder. Places not known yet are written as 0, which does not change the length.
    fn folder(&self, tree: Tree, path: &str, places: &Places) -> Vec<u8> {
        let at = |path: &str| {
            let key = (tree == Tree::Joliet, path.to_owned());
            places.folders.get(&key).copied().unwrap_or_default()
        };
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let rock_ridge = self.rock_ridge && tree == Tree::Primary;
        let mut first = Vec::new();
        if rock_ridge && path.is_empty() {
            first.extend(b"SP\x07\x01\xbe\xef\x00");
            first.extend(b"ER\x12\x01\x0a\x00\x00\x01RRIP_1991A");
        }
        if rock_ridge {
            first.extend(posix(0o040_755));
        }
        let ((own, length), (parent, parent_length)) = (at(path), at(above));
        let mut records = vec![
            record(&[0], own, length, FOLDER, &first),
            record(&[1], parent, parent_length, FOLDER, &[]),
        ];
        let inside = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        let mut names = BTreeSet::new();
        for (number, (child, item)) in self.items.iter().enumerate() {
            let Some(name) = child
                .strip_prefix(&inside)
                .filter(|name| !name.is_empty() && !name.contains('/'))
            else {
                continue;
            };
            let identifier = match tree {
                Tree::Joliet => name.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                Tree::Primary if rock_ridge => format!("F{number:07}.;1").into_bytes(),
                Tree::Primary => name.to_ascii_uppercase().into_bytes(),
            };
            assert!(names.insert(identifier.clone()), "{name} twice");
            match item {
                Item::Folder => {
                    let (sector, length) = at(child);
                    let system = if rock_ridge {
                        named(name, &posix(0o040_755))
                    } else {
                        Vec::new()
                    };
                    records.push(record(&identifier, sector, length, FOLDER, &system));
                }
                Item::Link(target) if rock_ridge => {
                    let system = named(name, &[posix(0o120_777), linked(target)].concat());
                    records.push(record(&identifier, 0, 0, 0, &system));
                }
                Item::Link(_) => {}
                Item::File(bytes) => {
                    let system = if rock_ridge {
                        named(name, &posix(0o100_644))
                    } else {
                        Vec::new()
                    };
                    let sector = places.files.get(child).copied().unwrap_or_default();
                    records.extend(self.extents(&identifier, sector, bytes, &system));
                }
            }
        }
        sectors(&records)
    }

    /// One record for each extent of a file.
    fn extents(&self, identifier: &[u8], sector: usize, bytes: &[u8], system: &[u8]) -> Vec<Vec<u8>> {
        let mut parts: Vec<&[u8]> = bytes.chunks(self.extent).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let last = parts.len() - 1;
        let written = parts.iter().enumerate().map(|(index, part)| {
            let flags = if index < last { NOT_LAST } else { 0 };
            record(
                identifier,
                sector + index * self.extent / SECTOR,
                part.len(),
                flags,
                system,
            )
        });
        written.collect()
    }
}

fn descriptor(tree: Tree, places: &Places, sectors: usize) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &[if tree == Tree::Primary { 1 } else { 2 }]);
    put(1, b"CD001\x01");
    let label: &[u8] = b"RELEASE                         ";
    put(40, label);
    put(80, &both(sectors));
    if tree == Tree::Joliet {
        put(88, b"%/E");
    }
    for at in [120, 124] {
        put(at, &[1, 0, 0, 1]);
    }
    put(128, &[0, 8, 8, 0]);
    put(132, &both(10));
    put(140, &u32le(19));
    let (sector, length) = places.folders[&(tree == Tree::Joliet, String::new())];
    put(156, &record(&[0], sector, length, FOLDER, &[]));
    for at in [813, 830, 847, 864] {
        put(at, b"2024050607080900\0");
    }
    put(881, &[1]);
    bytes
}

/// A record never crosses the end of a sector.
fn sectors(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        if bytes.len() % SECTOR + record.len() > SECTOR {
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        }
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes
}

fn record(identifier: &[u8], sector: usize, length: usize, flags: u8, system: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both(sector));
    bytes.extend(both(length));
    bytes.extend(DATE);
    bytes.extend([flags, 0, 0, 1, 0, 0, 1, u8::try_from(identifier.len()).unwrap()]);
    bytes.extend(identifier);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    bytes.extend(system);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    bytes[0] = u8::try_from(bytes.len()).unwrap();
    bytes
}

fn posix(mode: usize) -> Vec<u8> {
    [b"PX\x24\x01".to_vec(), both(mode), both(1), both(0), both(0)].concat()
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    let length = u8::try_from(5 + name.len()).unwrap();
    [b"NM".as_slice(), &[length, 1, 0], name.as_bytes(), rest].concat()
}

fn linked(target: &str) -> Vec<u8> {
    let mut parts = Vec::new();
    for (index, part) in target.split('/').enumerate() {
        match part {
            "" if index == 0 => parts.extend([8, 0]),
            "." => parts.extend([2, 0]),
            ".." => parts.extend([4, 0]),
            name => {
                parts.extend([0, u8::try_from(name.len()).unwrap()]);
                parts.extend(name.as_bytes());
            }
        }
    }
    let length = u8::try_from(5 + parts.len()).unwrap();
    [b"SL".as_slice(), &[length, 1, 0], &parts].concat()
}

fn u32le(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap().to_le_bytes()
}

/// In both orders of bytes, as the standard wants numbers.
fn both(number: usize) -> Vec<u8> {
    let number = u32::try_from(number).unwrap();
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}
