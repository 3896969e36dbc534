//! A small tar writer: what an image layer and an OCI archive need, and nothing more. Times and owners are fixed, so that the same files give
//! the same digest.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// One thing in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Executable, as everything in our layers is.
    Program(PathBuf),
    Text(String, u32),
    Link(String),
}

const BLOCK: usize = 512;

/// Writes the entries and the end mark. Paths are relative, without `./`.
pub(crate) fn write_tar<W: Write>(out: &mut W, entries: &[(String, Entry)]) -> io::Result<()> {
    for (path, entry) in entries {
        match entry {
            Entry::Link(target) => out.write_all(&header(path, b'2', 0o777, 0, target)?)?,
            Entry::Text(text, mode) => write_bytes(out, path, *mode, text.as_bytes())?,
            Entry::Program(from) => write_file(out, path, 0o755, from)?,
        }
    }
    finish(out)
}

pub(crate) fn write_bytes<W: Write>(out: &mut W, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&header(path, b'0', mode, bytes.len() as u64, "")?)?;
    out.write_all(bytes)?;
    pad(out, bytes.len() as u64)
}

pub(crate) fn write_file<W: Write>(out: &mut W, path: &str, mode: u32, from: &Path) -> io::Result<()> {
    let file = File::open(from)?;
    let size = file.metadata()?.len();
    out.write_all(&header(path, b'0', mode, size, "")?)?;
    let copied = io::copy(&mut file.take(size), out)?;
    if copied != size {
        return Err(io::Error::other(format!("{} became shorter", from.display())));
    }
    pad(out, size)
}

pub(crate) fn finish<W: Write>(out: &mut W) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

fn pad<W: Write>(out: &mut W, size: u64) -> io::Result<()> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or_default();
    if over > 0 {
        out.write_all(&[0; BLOCK][..BLOCK - over])?;
    }
    Ok(())
}

fn header(path: &str, kind: u8, mode: u32, size: u64, link: &str) -> io::Result<[u8; BLOCK]> {
    let mut block = [0_u8; BLOCK];
    put(&mut block[0..100], path)?;
    put(&mut block[100..108], &format!("{mode:07o}"))?;
    put(&mut block[108..116], "0000000")?;
    put(&mut block[116..124], "0000000")?;
    put(&mut block[124..136], &format!("{size:011o}"))?;
    put(&mut block[136..148], "00000000000")?;
    block[148..156].fill(b' ');
    block[156] = kind;
    put(&mut block[157..257], link)?;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block[148..156], &format!("{sum:06o}\0 "))?;
    Ok(block)
}

fn put(field: &mut [u8], text: &str) -> io::Result<()> {
    let bytes = text.as_bytes();
    if bytes.len() > field.len() {
        return Err(io::Error::other(format!("'{text}' is too long for a tar header")));
    }
    field[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, vec![7; 1000]).unwrap();
        let mut bytes = Vec::new();
        write_tar(
            &mut bytes,
            &[
                ("bin/tool".to_owned(), Entry::Program(program)),
                ("bin/alias".to_owned(), Entry::Link("tool".to_owned())),
                ("notes".to_owned(), Entry::Text("hello".to_owned(), 0o644)),
            ],
        )
        .unwrap();
        let archive = folder.path().join("a.tar");
        std::fs::write(&archive, bytes).unwrap();
        let output = Command::new("tar").args(["tvf"]).arg(&archive).output().unwrap();
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for wanted in [
            "-rwxr-xr-x 0/0            1000",
            "bin/alias -> tool",
            "-rw-r--r-- 0/0               5",
        ] {
            assert!(listed.contains(wanted), "{wanted} not in\n{listed}");
        }
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let make = || {
            let mut bytes = Vec::new();
            write_tar(&mut bytes, &[("a".to_owned(), Entry::Text("x".to_owned(), 0o755))]).unwrap();
            bytes
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let long = "x".repeat(101);
        assert!(write_tar(&mut Vec::new(), &[(long, Entry::Link("a".to_owned()))]).is_err());
    }
}
