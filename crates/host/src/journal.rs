//! An append-only file of checksummed lines that survives being killed at any write. In: records, one line of text each. Out: the
//! records again, and what could not be read.
//!
//! Form: a first line `bayplan-journal 1`, then lines as of `lines.rs`. A torn last line, a line with a wrong checksum and a file of an
//! unknown version cost what they hold and nothing else: every other record is returned, and the dropped ones are listed. Records must
//! not depend on their neighbours.
//!
//! A disk that refuses writes does not keep anybody from reading: the journal is open then, but has to be written anew before anything
//! is appended. The same holds for a damaged one, so that nothing is ever appended to a torn line.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tempfile::NamedTempFile;

pub use crate::lines::{Dropped, Recovered};
use crate::lines::{line, parse_lines};

const HEADER: &str = "bayplan-journal 1";
const FILE: &str = "journal";
const LOCK: &str = "lock";
const OLD: &str = "journal.old";

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has it open.
    #[error("{} is locked: another bayplan daemon uses this state directory", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The open journal. One process at a time, except where the disk has no lock to give.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    path: PathBuf,
    /// `None`: it has to be written anew first.
    file: Option<File>,
    /// Length of what is known to be whole on disk.
    bytes_good: u64,
    /// Held for as long as the journal is open; `None`: it could not be had yet.
    lock: Option<File>,
}

impl Journal {
    /// Opens the journal in `dir`, which is made if it is missing, and reads what it holds. If that was damaged, or the disk refuses
    /// writes, [`Journal::rewrite`] has to come before the first [`Journal::append`].
    ///
    /// # Errors
    /// [`JournalError`]; a damaged file is not an error, nor is a disk that is full, broken or read-only.
    pub fn open(dir: &Path) -> Result<(Journal, Recovered), JournalError> {
        let lock = unless_disk_refuses(take_lock(dir))?;
        let path = dir.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(failed("read", &path, source)),
        };
        let recovered = parse_journal(&bytes);
        let is_whole = recovered.dropped.is_empty() && !bytes.is_empty() && lock.is_some();
        let mut journal = Journal { dir: dir.to_owned(), path, file: None, bytes_good: 0, lock };
        if is_whole {
            let opened = open_rw(&journal.path).map_err(|source| journal.error("open", source));
            journal.file = unless_disk_refuses(opened)?;
            journal.bytes_good = bytes.len() as u64;
        }
        Ok((journal, recovered))
    }

    /// Copies the file as it is to `journal.old` beside it, so that what this version cannot use is not lost when it is written anew.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let old = self.dir.join(OLD);
        fs::copy(&self.path, &old)?;
        Ok(old)
    }

    /// Appends records. They survive the end of the process from now on, and that of the machine after [`Journal::sync`]. After an
    /// error the file is as it was before.
    ///
    /// # Errors
    /// [`JournalError::Io`], for example on a full disk.
    pub fn append(&mut self, records: &[String]) -> Result<(), JournalError> {
        let text: String = records.iter().map(|record| line(record)).collect();
        let Some(file) = &mut self.file else {
            return Err(self.error("append to", io::Error::other("it is not whole")));
        };
        match write_at(file, self.bytes_good, text.as_bytes()) {
            Ok(()) => {
                self.bytes_good += text.len() as u64;
                Ok(())
            }
            Err(source) => {
                // Should even this fail, the torn line has no checksum and is dropped when it is read.
                if let Err(again) = file.set_len(self.bytes_good) {
                    return Err(self.error("write and cut back", again));
                }
                Err(self.error("write", source))
            }
        }
    }

    /// Waits until everything that was appended is on disk.
    ///
    /// # Errors
    /// [`JournalError::Io`]; what is on disk is not known then, and [`Journal::rewrite`] mends it.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_data);
        synced.map_err(|source| self.error("sync", source))
    }

    /// Replaces everything by `records`; at no moment is there no whole journal on disk.
    ///
    /// # Errors
    /// [`JournalError`]; the old journal is then still there.
    pub fn rewrite(&mut self, records: &[String]) -> Result<(), JournalError> {
        if self.lock.is_none() {
            self.lock = Some(take_lock(&self.dir)?);
        }
        let mut text = format!("{HEADER}\n");
        text.extend(records.iter().map(|record| line(record)));
        let replaced = replace_file(&self.path, text.as_bytes());
        self.file = Some(replaced.map_err(|source| self.error("replace", source))?);
        self.bytes_good = text.len() as u64;
        Ok(())
    }

    /// Size on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes_good
    }

    fn error(&self, operation: &'static str, source: io::Error) -> JournalError {
        failed(operation, &self.path, source)
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { operation, path: path.to_owned(), source }
}

/// Makes the directory if it is missing.
fn take_lock(dir: &Path) -> Result<File, JournalError> {
    fs::create_dir_all(dir).map_err(|source| failed("create", dir, source))?;
    let path = dir.join(LOCK);
    let lock = open_rw(&path).map_err(|source| failed("open", &path, source))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked { path }),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path, source)),
    }
}

/// `None` where the disk is full, read-only or broken, which may end; other errors are somebody's mistake.
fn unless_disk_refuses<T>(result: Result<T, JournalError>) -> Result<Option<T>, JournalError> {
    let is_refusal = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
        ) || error.raw_os_error() == Some(Errno::EIO as i32)
    };
    match result {
        Ok(value) => Ok(Some(value)),
        Err(JournalError::Io { source, .. }) if is_refusal(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_at(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Writes beside the file, syncs, renames, and syncs the directory, so that a crash leaves the old or the new file.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut temporary = NamedTempFile::new_in(dir)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    let file = temporary.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()?;
    Ok(file)
}

/// What a journal file of these bytes holds. Every line but the header is a record or is dropped.
pub fn parse_journal(bytes: &[u8]) -> Recovered {
    parse_lines(HEADER, "not the header of a journal of this version", bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn written(names: &[&str]) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        journal.rewrite(&[]).unwrap();
        for name in names {
            journal.append(&records(&[name])).unwrap();
        }
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        (dir, bytes)
    }

    #[test]
    fn what_was_appended_is_read_again() {
        let (dir, bytes) = written(&["one", "two"]);
        let (mut journal, recovered) = Journal::open(dir.path()).unwrap();
        assert_eq!(recovered, Recovered { records: records(&["one", "two"]), dropped: vec![] });
        assert_eq!(journal.bytes(), bytes.len() as u64);
        journal.rewrite(&records(&["three"])).unwrap();
        journal.append(&records(&["four\nfive"])).unwrap();
        drop(journal);
        assert_eq!(Journal::open(dir.path()).unwrap().1.records, records(&["three", "four five"]));
    }

    #[test]
    fn a_second_daemon_is_refused() {
        let (dir, _) = written(&[]);
        let _first = Journal::open(dir.path()).unwrap();
        let message = Journal::open(dir.path()).unwrap_err().to_string();
        assert!(message.ends_with("another bayplan daemon uses this state directory"), "{message}");
    }

    #[test]
    fn a_foreign_file_is_dropped_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), b"{\"policyName\":\"none\"}\n\xff\xfe\n").unwrap();
        let (mut journal, recovered) = Journal::open(dir.path()).unwrap();
        assert_eq!(recovered.records, records(&[]));
        let why: Vec<_> = recovered.dropped.iter().map(|dropped| dropped.why).collect();
        assert_eq!(why, ["not the header of a journal of this version", "not UTF-8"]);
        let text = journal.append(&records(&["one"])).unwrap_err().to_string();
        assert!(text.starts_with("cannot append to "), "{text}");
        let foreign = fs::read(dir.path().join(FILE)).unwrap();
        let old = journal.set_aside().unwrap();
        journal.rewrite(&recovered.records).unwrap();
        assert_eq!(fs::read(old).unwrap(), foreign);
        assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), b"bayplan-journal 1\n");
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_the_journal_whole() {
        let (dir, bytes) = written(&["one"]);
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        // /dev/full answers every write with ENOSPC.
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let real = journal.file.replace(full);
        assert!(journal.append(&records(&["two"])).is_err());
        journal.file = real;
        journal.append(&records(&["three"])).unwrap();
        assert!(fs::read(dir.path().join(FILE)).unwrap().starts_with(&bytes));
        drop(journal);
        assert_eq!(Journal::open(dir.path()).unwrap().1.records, records(&["one", "three"]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_journal_cut_anywhere_gives_its_whole_records(cut in 0usize..120) {
            let names = ["first", "second", "third", "fourth"];
            let (dir, bytes) = written(&names);
            let cut = cut.min(bytes.len());
            fs::write(dir.path().join(FILE), &bytes[..cut]).unwrap();
            let (mut journal, recovered) = Journal::open(dir.path()).unwrap();
            prop_assert!(names.iter().map(|n| n.to_string()).collect::<Vec<_>>()
                .starts_with(&recovered.records));
            let mut expected = recovered.records;
            expected.push("after".to_owned());
            journal.rewrite(&expected).unwrap();
            drop(journal);
            prop_assert_eq!(Journal::open(dir.path()).unwrap().1.records, expected);
        }

        #[test]
        fn a_flipped_byte_costs_one_record_at_most(at in 18usize..80, flip in 1u8..=255) {
            let (dir, mut bytes) = written(&["first", "second", "third", "fourth"]);
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= flip;
            fs::write(dir.path().join(FILE), &bytes).unwrap();
            let recovered = Journal::open(dir.path()).unwrap().1;
            // A flipped line break joins two lines.
            prop_assert!(recovered.records.len() >= 2, "{:?}", recovered);
        }
    }
}
