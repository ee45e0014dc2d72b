//! The kernel's files as values: what was read of one machine, path by path (Documentation/filesystems/sysfs.rst, "Attributes": small texts, mostly one value).
//!
//! The text form has one line per file, reviewable and stable. Files of numbered directories with the same text share a line:
//!
//! ```text
//! sys/devices/system/cpu/online 0-3
//! sys/devices/system/cpu/cpu{0,2}/topology/core_id 0
//! sys/devices/system/cpu/cpu{4}/
//! sys/bus/pci/devices/0000:3b:00.0 -> ../../../devices/pci0000:3a/0000:3b:00.0
//! ```
//!
//! Backslash is `\\`, a line end `\n`, another control character `\x7f`, as are blanks, braces and `#` in paths. Lines that begin with
//! `#` are comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use bayplan_types::{CpuId, CpuSet};

/// First line of the text form.
const HEADER: &str = "bayplan-files/1";
/// More than any machine needs: 8,192 CPUs have some 300,000.
const FILES_MAX: usize = 1_000_000;
/// Paths and texts together. 8,192 CPUs with every mask have 160 MiB; but one short line can stand for 65,536 files.
const BYTES_MAX: usize = 256 << 20;
/// Stands before the target of a link.
const LINK_MARK: &str = "-> ";
/// Characters that mean something in a path of the text form.
const IN_PATHS: &str = " {}#";

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A file with its text, without the line end after the last line.
    Text(String),
    /// A symbolic link with its target.
    Link(String),
    /// A directory. Those that hold something need no entry.
    Dir,
}

impl Entry {
    fn len(&self) -> usize {
        match self {
            Entry::Text(text) | Entry::Link(text) => text.len(),
            Entry::Dir => 0,
        }
    }
}

/// Files, links and directories by their path below the root, without a slash in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFiles {
    entries: BTreeMap<String, Entry>,
}

/// Why a text is not a set of kernel files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {found}; expected {expected}")]
pub struct FilesError {
    /// Counted from 1.
    pub line: usize,
    /// What stands there.
    pub found: String,
    /// What should stand there.
    pub expected: &'static str,
}

impl KernelFiles {
    /// Adds a path; a later entry of the same path counts.
    pub fn insert(&mut self, path: impl Into<String>, entry: Entry) {
        self.entries.insert(path.into(), entry);
    }

    /// What is at a path.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Every path in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Whether a directory is there.
    pub(crate) fn is_dir(&self, path: &str) -> bool {
        matches!(self.get(path), Some(Entry::Dir)) || self.below(path).next().is_some()
    }

    /// Paths below a directory, relative to it.
    fn below<'a>(&'a self, dir: &str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let prefix = format!("{dir}/");
        let len = prefix.len();
        self.entries
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .filter_map(move |(path, entry)| Some((path.get(len..)?, entry)))
    }

    /// Names directly in a directory, in order, and whether each is a directory.
    pub(crate) fn names(&self, dir: &str) -> Vec<(String, bool)> {
        let mut names: BTreeMap<&str, bool> = BTreeMap::new();
        for (path, entry) in self.below(dir) {
            match path.split_once('/') {
                Some((name, _)) => names.insert(name, true),
                None => names.insert(path, matches!(entry, Entry::Dir)),
            };
        }
        names.into_iter().map(|(name, is_dir)| (name.to_owned(), is_dir)).collect()
    }

    /// Writes real files below `root`, as `--root` reads them.
    ///
    /// # Errors
    /// What the file system says, for example that something is there already.
    pub fn write_to(&self, root: &Path) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let path = root.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match entry {
                Entry::Text(text) => fs::write(&path, format!("{text}\n"))?,
                Entry::Link(target) => symlink(target, &path)?,
                Entry::Dir => fs::create_dir_all(&path)?,
            }
        }
        Ok(())
    }

    /// The text form.
    pub fn render(&self) -> String {
        // Numbered directories with the same text, by what stands around the number.
        let mut folded: BTreeMap<(&str, &str, &Entry), CpuSet> = BTreeMap::new();
        let mut lines: Vec<(String, String)> = Vec::new();
        for (path, entry) in &self.entries {
            match split_number(path) {
                Some((before, number, after)) => {
                    folded.entry((before, after, entry)).or_default().extend([number]);
                }
                None => lines.push((escape(path, IN_PATHS), render_entry(entry))),
            }
        }
        for ((before, after, entry), numbers) in folded {
            let (before, after) = (escape(before, IN_PATHS), escape(after, IN_PATHS));
            let path = format!("{before}{{{numbers}}}{after}");
            lines.push((path, render_entry(entry)));
        }
        lines.sort();
        let mut text = format!("{HEADER}\n");
        for (path, entry) in lines {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{path}{entry}");
        }
        text
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`FilesError`] names the first line that is wrong.
    pub fn parse(text: &str) -> Result<KernelFiles, FilesError> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        if first != HEADER {
            return Err(wrong(0, first, "the line `bayplan-files/1`, the first one of a snapshot"));
        }
        let mut files = KernelFiles::default();
        let mut room = Room { files: FILES_MAX, bytes: BYTES_MAX };
        for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            parse_line(at, line, &mut room, &mut files)?;
        }
        Ok(files)
    }
}

/// How much may still be added.
struct Room {
    files: usize,
    bytes: usize,
}

impl Room {
    /// Takes the room for so many files with so many bytes each.
    fn take(&mut self, files: usize, bytes: usize) -> Option<()> {
        self.files = self.files.checked_sub(files)?;
        self.bytes = self.bytes.checked_sub(files.checked_mul(bytes)?)?;
        Some(())
    }
}

fn wrong(at: usize, found: &str, expected: &'static str) -> FilesError {
    let found = format!("`{}`", found.chars().take(60).collect::<String>());
    FilesError { line: at + 1, found, expected }
}

fn parse_line(
    at: usize,
    line: &str,
    room: &mut Room,
    files: &mut KernelFiles,
) -> Result<(), FilesError> {
    let (path, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (path, entry) = match (path.strip_suffix('/'), rest.strip_prefix(LINK_MARK)) {
        (Some(dir), None) if rest.is_empty() => (dir, Entry::Dir),
        (_, Some(target)) => (path, Entry::Link(target.to_owned())),
        _ => (path, Entry::Text(rest.to_owned())),
    };
    let unescaped =
        |text: &str| unescape(text).ok_or_else(|| wrong(at, line, "escapes such as \\n"));
    let entry = match entry {
        Entry::Text(text) => Entry::Text(unescaped(&text)?),
        Entry::Link(target) => Entry::Link(unescaped(&target)?),
        Entry::Dir => Entry::Dir,
    };
    let too_much = || wrong(at, line, "fewer files and shorter texts");
    let Some((before, rest)) = path.split_once('{') else {
        let path = unescaped(path)?;
        check_path(at, &path)?;
        room.take(1, path.len() + entry.len()).ok_or_else(too_much)?;
        files.insert(path, entry);
        return Ok(());
    };
    let (list, after) = rest.split_once('}').ok_or_else(|| wrong(at, line, "a `}` after `{`"))?;
    let numbers: CpuSet =
        list.parse().map_err(|_| wrong(at, line, "numbers between `{` and `}`"))?;
    let (before, after) = (unescaped(before)?, unescaped(after)?);
    let bytes = before.len() + after.len() + entry.len();
    room.take(numbers.len(), bytes).ok_or_else(too_much)?;
    for number in numbers.iter() {
        let path = format!("{before}{number}{after}");
        check_path(at, &path)?;
        files.insert(path, entry.clone());
    }
    Ok(())
}

/// A path that leads out of the root would be written there by [`KernelFiles::write_to`].
fn check_path(at: usize, path: &str) -> Result<(), FilesError> {
    let is_plain = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
    if is_plain { Ok(()) } else { Err(wrong(at, path, "a path without `..` and empty names")) }
}

/// Splits at the first directory with a name that is a word and a number: what is before the number, the number, what is after it.
fn split_number(path: &str) -> Option<(&str, CpuId, &str)> {
    let mut start = 0;
    for name in path.split('/') {
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = name.get(word.len()..)?;
        let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
        let end = start + name.len();
        if is_word && let Some(number) = plain_number(digits) {
            let before = path.get(..start + word.len())?;
            return Some((before, CpuId(number), path.get(end..)?));
        }
        start = end + 1;
    }
    None
}

/// A number as the kernel writes it in names: digits, no leading zero.
pub(crate) fn plain_number(digits: &str) -> Option<u32> {
    let number = digits.parse::<u32>().ok().filter(|number| *number <= NUMBER_MAX)?;
    (number.to_string() == digits).then_some(number)
}

/// Beyond that a set does not hold a number.
const NUMBER_MAX: u32 = 65_535;

fn render_entry(entry: &Entry) -> String {
    match entry {
        Entry::Text(text) if text.is_empty() => String::new(),
        Entry::Text(text) => match text.strip_prefix(LINK_MARK) {
            // What would be read as a link.
            Some(rest) => format!(" \\x2d> {}", escape(rest, "")),
            None => format!(" {}", escape(text, "")),
        },
        Entry::Link(target) => format!(" {LINK_MARK}{}", escape(target, "")),
        Entry::Dir => "/".to_owned(),
    }
}

/// Backslash as `\\`, line end as `\n`, other control characters and those of `also` as `\x7f`.
fn escape(text: &str, also: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            c if c.is_ascii_control() || also.contains(c) => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\x{:02x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let len = match after.get(..1)? {
            "\\" => {
                plain.push('\\');
                1
            }
            "n" => {
                plain.push('\n');
                1
            }
            "x" => {
                let code = u8::from_str_radix(after.get(1..3)?, 16).ok()?;
                plain.push(char::from(code));
                3
            }
            _ => return None,
        };
        rest = after.get(len..)?;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;

    fn files(entries: &[(&str, Entry)]) -> KernelFiles {
        let mut files = KernelFiles::default();
        for (path, entry) in entries {
            files.insert(*path, entry.clone());
        }
        files
    }

    fn text(text: &str) -> Entry {
        Entry::Text(text.to_owned())
    }

    #[test]
    fn numbered_directories_with_the_same_text_share_a_line() {
        let files = files(&[
            ("sys/cpu/cpu0/core_id", text("0")),
            ("sys/cpu/cpu2/core_id", text("0")),
            ("sys/cpu/cpu10/core_id", text("1")),
            ("sys/cpu/cpu3", Entry::Dir),
            ("sys/cpu/cpu4", Entry::Dir),
            ("sys/cpu/online", text("0,2,10")),
            ("sys/cpu/empty", text("")),
            ("sys/bus/0000:3b:00.0", Entry::Link("../0000:3b:00.0".to_owned())),
            ("proc/two lines{}", text("-> a\nb\\ \u{7f}")),
        ]);
        let shown = files.render();
        expect![[r#"
            bayplan-files/1
            proc/two\x20lines\x7b\x7d \x2d> a\nb\\ \x7f
            sys/bus/0000:3b:00.0 -> ../0000:3b:00.0
            sys/cpu/cpu{0,2}/core_id 0
            sys/cpu/cpu{10}/core_id 1
            sys/cpu/cpu{3-4}/
            sys/cpu/empty
            sys/cpu/online 0,2,10
        "#]]
        .assert_eq(&shown);
        assert_eq!(KernelFiles::parse(&shown), Ok(files));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (lines, error) in [
            ("", "line 1: ``; expected the line `bayplan-files/1`, the first one of a snapshot"),
            ("bayplan-files/1\na ok\nb \\q", "line 3: `b \\q`; expected escapes such as \\n"),
            ("bayplan-files/1\na{0-1 x", "line 2: `a{0-1 x`; expected a `}` after `{`"),
            ("bayplan-files/1\na{x} x", "line 2: `a{x} x`; expected numbers between `{` and `}`"),
            (
                "bayplan-files/1\na/../../b x",
                "line 2: `a/../../b`; expected a path without `..` and empty names",
            ),
            (
                "bayplan-files/1\n/etc/passwd x",
                "line 2: `/etc/passwd`; expected a path without `..` and empty names",
            ),
        ] {
            assert_eq!(KernelFiles::parse(lines).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_few_lines_do_not_stand_for_gigabytes() {
        let many = |lines: usize, text: usize| {
            let line = |at| format!("f{at}/cpu{{0-65535}}/x {}\n", "x".repeat(text));
            let lines: String = (0..lines).map(line).collect();
            KernelFiles::parse(&format!("{HEADER}\n{lines}"))
        };
        assert_eq!(many(1, 10).map(|files| files.iter().count()), Ok(65_536));
        for (lines, text, line) in [(1, 5_000, 2), (2, 2_500, 3), (16, 1, 17)] {
            let error = many(lines, text).unwrap_err();
            assert_eq!((error.line, error.expected), (line, "fewer files and shorter texts"));
        }
    }

    proptest! {
        #[test]
        fn any_files_read_back(entries in prop::collection::btree_map(
            "[a-c]{1,2}[0-9]{0,3}(/[ a{}#>\\\\]{1,3}[0-9]{0,2}){0,2}",
            prop_oneof![
                "(-> )?[ -~\\n\\t\\x7f]{0,12}".prop_map(Entry::Text),
                "[a/. ]{1,9}".prop_map(Entry::Link),
                Just(Entry::Dir),
            ],
            0..12,
        )) {
            let files = KernelFiles { entries };
            prop_assert_eq!(KernelFiles::parse(&files.render()), Ok(files));
        }

        #[test]
        fn any_text_is_read_or_refused(lines in "(bayplan-files/1\\n)?[a-b{}0-9/ \\\\x>.\\n-]{0,60}") {
            let _either = KernelFiles::parse(&lines);
        }
    }
}
