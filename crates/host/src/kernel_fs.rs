//! Small text files under a root that is `/` or a captured tree. Never leaves the root: symbolic links are not followed, except on
//! the way to a directory that still lies inside.
//!
//! A file that is missing is a `None`. One that is there but cannot be used is a `None` with an [`Oddity`].

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bayplan_topology::Oddity;

/// Kernel files of the kinds read here are far smaller; a list of 8,192 CPUs without ranges has 40 KB.
const BYTES_MAX: u64 = 64 * 1024;
/// How much of a file's text an oddity quotes.
const QUOTED_CHARS: usize = 60;
/// `No such device`: the attribute belongs to a CPU or node that has just gone.
const ENODEV: i32 = 19;

/// Files under one root, and what was odd about them.
#[derive(Debug)]
pub(crate) struct KernelFs {
    root: PathBuf,
    pub(crate) oddities: Vec<Oddity>,
}

impl KernelFs {
    /// The root itself may be reached through symbolic links.
    pub(crate) fn new(root: &Path) -> io::Result<KernelFs> {
        Ok(KernelFs { root: root.canonicalize()?, oddities: Vec::new() })
    }

    /// A directory below the root, if it is there.
    pub(crate) fn dir(&self, path: &str) -> io::Result<Option<PathBuf>> {
        let dir = match self.root.join(path).canonicalize() {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok((dir.starts_with(&self.root) && dir.is_dir()).then_some(dir))
    }

    /// Sub-directories named `prefix` and a number, by number.
    pub(crate) fn numbered_dirs(&mut self, dir: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.note(dir, error.to_string(), "an empty directory");
                }
                return Vec::new();
            }
        };
        let mut found: Vec<(u32, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
            let Some(number) = digits.and_then(plain_number) else { continue };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => found.push((number, entry.path())),
                _ => self.note(&entry.path(), "not a directory".to_owned(), "it is not there"),
            }
        }
        found.sort();
        found
    }

    /// The text of a file.
    pub(crate) fn text(&mut self, path: &Path) -> Option<String> {
        match read_bounded(path) {
            Ok(Some((text, is_whole))) => {
                if !is_whole {
                    let found = format!("more than {BYTES_MAX} bytes");
                    self.note(path, found, "what stands in the first ones");
                }
                Some(text)
            }
            Ok(None) => None,
            Err(error) => {
                self.note(path, error.to_string(), "as if the file were missing");
                None
            }
        }
    }

    /// The value of a file, by `parse`.
    pub(crate) fn parsed<T>(
        &mut self,
        path: &Path,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(path)?;
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let value = parse(text);
        if value.is_none() {
            self.note(path, quote(text), "as if the file were missing");
        }
        value
    }

    /// The value of a file that holds what the type's `FromStr` reads.
    pub(crate) fn value<T: FromStr>(&mut self, path: &Path) -> Option<T> {
        self.parsed(path, |text| text.parse().ok())
    }

    /// Notes that a file under the root is odd.
    pub(crate) fn note(&mut self, path: &Path, found: String, assumed: &str) {
        let shown = match path.strip_prefix(&self.root) {
            Ok(below) => format!("/{}", below.display()),
            Err(_) => path.display().to_string(),
        };
        self.oddities.push(Oddity::new(shown, found, assumed));
    }
}

/// The first bytes of a regular file and whether they are all; `None` when there is no such file.
fn read_bounded(path: &Path) -> io::Result<Option<(String, bool)>> {
    let is_gone = |error: &io::Error| {
        error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
    };
    let absent = |error: io::Error| if is_gone(&error) { Ok(None) } else { Err(error) };
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(io::Error::other("not a regular file")),
        Err(error) => return absent(error),
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return absent(error);
    }
    let whole_len = usize::try_from(BYTES_MAX).unwrap_or(usize::MAX);
    let is_whole = bytes.len() <= whole_len;
    bytes.truncate(whole_len);
    Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), is_whole)))
}

/// A number as the kernel writes it in names: digits, no leading zero.
fn plain_number(digits: &str) -> Option<u32> {
    let number = digits.parse::<u32>().ok()?;
    (number.to_string() == digits).then_some(number)
}

fn quote(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}
