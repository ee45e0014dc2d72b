//! A kernel file that is read again and again. In: its path. Out: its text now, without opening it anew: from offset 0 the kernel makes it again
//! (Documentation/filesystems/seq_file.rst, "The iterator interface").

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// `memory.stat` has about 60 lines; `io.stat` a line per disk.
const BYTES: usize = 16 * 1024;
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// An open file, and the first thing about it that was odd.
#[derive(Debug)]
pub struct Kept {
    name: String,
    file: File,
    oddity: Option<String>,
}

impl Kept {
    /// `None`: there is none, or it may not be read.
    pub(super) fn open(root: &Path, path: &str) -> Option<Kept> {
        let file = File::open(root.join(path)).ok()?;
        Some(Kept { name: format!("/{path}"), file, oddity: None })
    }

    /// What `parse` makes of the text; `None`: nothing, the file has gone with its group (`ENODEV`), or there is nothing to tell now (`EAGAIN`).
    pub(super) fn read<T>(
        &mut self,
        buffer: &mut Vec<u8>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if buffer.is_empty() {
            buffer.resize(BYTES, 0);
        }
        // From its beginning, which makes the kernel write it anew.
        let length = loop {
            match self.file.read_at(buffer, 0) {
                // There may be more.
                Ok(length) if length == buffer.len() && length < BYTES_MAX => {
                    buffer.resize(length * 2, 0);
                }
                Ok(length) => break length,
                Err(error) => {
                    self.tell(&error);
                    return None;
                }
            }
        };
        let text = std::str::from_utf8(buffer.get(..length)?).unwrap_or_default();
        let value = parse(text);
        if value.is_none() && self.oddity.is_none() {
            let line = text.lines().next().unwrap_or_default();
            self.oddity = Some(format!("{} cannot be understood: {line:?}", self.name));
        }
        value
    }

    fn tell(&mut self, error: &io::Error) {
        let is_usual = matches!(error.raw_os_error(), Some(nix::libc::ENODEV | nix::libc::EAGAIN));
        if !is_usual && self.oddity.is_none() {
            self.oddity = Some(format!("{} cannot be read: {error}", self.name));
        }
    }

    /// What was odd about it, told once.
    pub fn oddity(&self) -> Option<&str> {
        self.oddity.as_deref()
    }
}
