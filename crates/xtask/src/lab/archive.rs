//! The archive that a kernel unpacks into its first file system. In: files. Out: bytes in the format `newc`; several of them one after
//! the other are one archive, the later files replacing the earlier.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// Files by their path in the guest, without the leading slash.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Archive {
    pub(crate) fn add_dir(&mut self, path: &str) {
        let end = path.trim_end_matches('/').len();
        let ends = path.match_indices('/').map(|(end, _)| end).filter(|at| *at < end).chain([end]);
        for end in ends {
            self.files.insert(path[..end].to_owned(), (DIRECTORY, Vec::new()));
        }
    }

    pub(crate) fn add_file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.insert(path, FILE, bytes.into());
    }

    pub(crate) fn add_script(&mut self, path: &str, text: &str) {
        self.insert(path, PROGRAM, text.into());
    }

    /// A program and the libraries that it is linked with.
    pub(crate) fn add_program(&mut self, path: &str, program: &Path) -> anyhow::Result<()> {
        self.insert(path, PROGRAM, read(program)?);
        for library in libraries(program, "")? {
            let inside = library.trim_start_matches('/');
            if !self.files.contains_key(inside) {
                self.insert(inside, PROGRAM, read(Path::new(&library))?);
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        if let Some((dir, _)) = path.rsplit_once('/') {
            self.add_dir(dir);
        }
        self.files.insert(path.to_owned(), (mode, bytes));
    }

    /// The same files give the same bytes.
    pub(crate) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        for (number, (path, (mode, bytes))) in self.files.iter().enumerate() {
            write_entry(out, number + 1, path, *mode, bytes)?;
        }
        write_entry(out, 0, "TRAILER!!!", 0, &[])
    }
}

fn write_entry(
    out: &mut impl Write,
    number: usize,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> anyhow::Result<()> {
    let (size, name_size) = (bytes.len(), path.len() + 1);
    // inode, mode, owner, group, links, time, size, device of the file and its own, size of the name, checksum.
    write!(out, "070701{number:08X}{mode:08X}{0:08X}{0:08X}{1:08X}{0:08X}{size:08X}", 0, 1)?;
    write!(out, "{0:08X}{0:08X}{0:08X}{0:08X}{name_size:08X}{0:08X}{path}\0", 0)?;
    pad(out, 110 + name_size)?;
    out.write_all(bytes)?;
    pad(out, size)
}

/// Everything begins at a multiple of four.
fn pad(out: &mut impl Write, written: usize) -> anyhow::Result<()> {
    Ok(out.write_all(&[0; 3][..written.next_multiple_of(4) - written])?)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Full paths; none for a program that is linked statically. `more`: directories with libraries that go before the usual ones, divided by colons.
pub(crate) fn libraries(program: &Path, more: &str) -> anyhow::Result<Vec<String>> {
    let mut ldd = Command::new("ldd");
    if !more.is_empty() {
        ldd.env("LD_LIBRARY_PATH", more);
    }
    let listed = ldd.arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path and content of every entry, found by the sizes in the headers.
    fn read_back(bytes: &[u8]) -> Vec<(String, String)> {
        let number = |at: usize| {
            let digits = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        let text =
            |at: usize, size: usize| String::from_utf8(bytes[at..at + size].to_vec()).unwrap();
        let (mut at, mut entries) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(text(at, 6), "070701");
            let (size, name_size) = (number(at + 54), number(at + 94));
            let content = (at + 110 + name_size).next_multiple_of(4);
            entries.push((text(at + 110, name_size - 1), text(content, size)));
            at = (content + size).next_multiple_of(4);
        }
        entries
    }

    #[test]
    fn every_file_is_behind_its_directories_and_where_its_header_says() {
        let mut archive = Archive::default();
        archive.add_file("etc/deep/hosts", "127.0.0.1 localhost\n");
        archive.add_script("init", "#!/bin/sh\n");
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let entries = read_back(&bytes);
        let due = [
            ("etc", ""),
            ("etc/deep", ""),
            ("etc/deep/hosts", "127.0.0.1 localhost\n"),
            ("init", "#!/bin/sh\n"),
            ("TRAILER!!!", ""),
        ];
        assert_eq!(entries, due.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }
}
