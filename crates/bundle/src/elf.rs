//! What the head of a program's file says: for which machine it was built, and whether it needs a loader and libraries. Nothing
//! here runs anything.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Machines that Kubernetes is made for, by their number in the head of a program.
const MACHINES: [(u16, &str); 5] = [
    (62, "amd64"),
    (183, "arm64"),
    (22, "s390x"),
    (21, "ppc64le"),
    (243, "riscv64"),
];
/// A program header that names the loader.
const INTERPRETER: u32 = 3;
/// More program headers than any linker writes.
const MOST_HEADERS: u16 = 256;

/// A program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Elf {
    /// As images name it, `amd64`.
    pub machine: &'static str,
    /// It runs where nothing else is: it names no loader.
    pub is_static: bool,
}

/// The machine this program runs on.
pub fn here() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Looks at a file; nothing where it is no program for a machine that is known.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let mut file = File::open(path)?;
    let mut head = [0; 64];
    match file.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    // 64 bits; of the two byte orders s390x alone has the other.
    if !head.starts_with(b"\x7fELF\x02") {
        return Ok(None);
    }
    let order = Order { big: head[5] == 2 };
    let machine = order.short([head[18], head[19]]);
    let Some((_, machine)) = MACHINES.into_iter().find(|(number, _)| *number == machine) else {
        return Ok(None);
    };
    let mut offset = [0; 8];
    offset.copy_from_slice(&head[32..40]);
    let offset = order.long(offset);
    let length = u64::from(order.short([head[54], head[55]]));
    let count = order.short([head[56], head[57]]).min(MOST_HEADERS);
    let mut is_static = true;
    for number in 0..u64::from(count) {
        file.seek(SeekFrom::Start(offset.saturating_add(number * length)))?;
        let mut kind = [0; 4];
        match file.read_exact(&mut kind) {
            Ok(()) => is_static &= order.word(kind) != INTERPRETER,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Elf { machine, is_static }))
}

struct Order {
    big: bool,
}

impl Order {
    fn short(&self, bytes: [u8; 2]) -> u16 {
        if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn long(&self, bytes: [u8; 8]) -> u64 {
        if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        }
    }
}
