//! An append-only file of checksummed lines that survives being killed at any write. In: records, one line of text each. Out: the
//! records again, and what could not be read.
//!
//! Form: a first line `bayplan-journal 1`, then lines as of `lines.rs`. A torn last line, a line with a wrong checksum and a file of an
//! unknown version cost what they hold and nothing else: every other record is returned, and the dropped ones are listed. Records must
//! not depend on their neighbours.
//!
//! A disk that refuses writes does not prevent reading: the journal is open then, but has to be written anew before anything is appended. The same
//! holds for a damaged one, so that nothing is ever appended to a torn line.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;

use crate::disk::{Disk, Files, SoundDisk};
pub use crate::lines::{Dropped, Recovered};
use crate::lines::{line, parse_lines};

const HEADER: &str = "bayplan-journal 1";
const FILE: &str = "journal";
const LOCK: &str = "lock";
const OLD: &str = "journal.old";
/// What is to become the journal. A fixed name, so that a daemon that was killed here leaves one such file and not one a time.
const NEW: &str = "journal.new";

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
    files: Files,
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
        Journal::open_on(Arc::new(SoundDisk), dir)
    }

    /// Whether there is one in `dir`, also one that is damaged. What cannot be looked up counts as there.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).try_exists().unwrap_or(true)
    }

    /// As [`Self::open`], on a disk that may say no.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<(Journal, Recovered), JournalError> {
        let mut journal = Journal::unread_on(disk, dir)?;
        let recovered = unless_disk_refuses(journal.read())?;
        Ok((journal, recovered.unwrap_or_else(unreadable)))
    }

    /// As [`Self::open_on`], without having read anything: for a caller that would rather wait for the disk than do without what is in the file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn unread_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<Journal, JournalError> {
        let files = Files(disk);
        let lock = unless_disk_refuses(take_lock(&files, dir))?;
        let (dir, path) = (dir.to_owned(), dir.join(FILE));
        Ok(Journal { files, dir, path, file: None, bytes_good: 0, lock })
    }

    /// What the file holds; nothing where there is none. Before the first append.
    ///
    /// # Errors
    /// [`JournalError::Io`]; it may be tried again.
    pub fn read(&mut self) -> Result<Recovered, JournalError> {
        let bytes = match self.files.read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(|source| self.error("read", source))?,
        };
        let recovered = parse_journal(&bytes);
        if recovered.dropped.is_empty() && !bytes.is_empty() && self.lock.is_some() {
            let opened = self.files.open(&self.path);
            self.file = unless_disk_refuses(opened.map_err(|source| self.error("open", source)))?;
            self.bytes_good = bytes.len() as u64;
        }
        Ok(recovered)
    }

    /// Copies the file as it is to `journal.old` beside it, so that what this version cannot use is not lost when it is written anew.
    ///
    /// # Errors
    /// What the kernel said; the file is where it was.
    pub fn copy_aside(&self) -> io::Result<PathBuf> {
        let old = self.dir.join(OLD);
        self.files.copy(&self.path, &old)?;
        Ok(old)
    }

    /// As [`Self::copy_aside`], or else the file is moved there.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        self.copy_aside().or_else(|_| {
            let old = self.dir.join(OLD);
            self.files.rename(&self.path, &old)?;
            Ok(old)
        })
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
        match write_at(&self.files, file, self.bytes_good, text.as_bytes()) {
            Ok(()) => {
                self.bytes_good += text.len() as u64;
                Ok(())
            }
            Err(source) => {
                // Should even this fail, the torn line has no checksum and is dropped when it is read.
                if let Err(again) = self.files.truncate(file, self.bytes_good) {
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
        let synced = self.file.as_ref().map_or(Ok(()), |file| self.files.sync_data(file));
        synced.map_err(|source| self.error("sync", source))
    }

    /// Replaces everything by `records`; at no moment is there no whole journal on disk.
    ///
    /// # Errors
    /// [`JournalError`]; the old journal or the new one is there then, and another rewrite has to come before the next append.
    pub fn rewrite(&mut self, records: &[String]) -> Result<(), JournalError> {
        if self.lock.is_none() {
            self.lock = Some(take_lock(&self.files, &self.dir)?);
        }
        // It may have lost its name before the error.
        self.file = None;
        let mut text = format!("{HEADER}\n");
        text.extend(records.iter().map(|record| line(record)));
        let replaced = self.replace(text.as_bytes());
        self.file = Some(replaced.map_err(|source| self.error("replace", source))?);
        self.bytes_good = text.len() as u64;
        Ok(())
    }

    /// Writes beside the file, syncs, renames, and syncs the directory, so that a crash leaves the old or the new file.
    fn replace(&self, bytes: &[u8]) -> io::Result<File> {
        let new = self.dir.join(NEW);
        let file = self.write_new(&new, bytes).inspect_err(|_| {
            // A full disk has better use for it.
            let _never_made = self.files.remove(&new);
        })?;
        self.files.sync_dir(&self.dir)?;
        Ok(file)
    }

    fn write_new(&self, new: &Path, bytes: &[u8]) -> io::Result<File> {
        let mut file = self.files.open_new(new)?;
        self.files.write(&mut file, bytes)?;
        self.files.sync_all(&file)?;
        self.files.rename(new, &self.path)?;
        Ok(file)
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
fn take_lock(files: &Files, dir: &Path) -> Result<File, JournalError> {
    files.make_dir(dir).map_err(|source| failed("create", dir, source))?;
    let path = dir.join(LOCK);
    let lock = files.open(&path).map_err(|source| failed("open", &path, source))?;
    match files.lock(&lock) {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked { path }),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path, source)),
    }
}

/// `None` where the disk is full, read-only or broken, which may end; other errors are mistakes.
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

fn write_at(files: &Files, file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    files.write(file, bytes)
}

/// Of a file that the disk does not give, everything is lost.
fn unreadable() -> Recovered {
    let all = Dropped { line: 1, why: "the disk cannot read the journal; all of it is lost" };
    Recovered { records: Vec::new(), dropped: vec![all] }
}

/// What a journal file of these bytes holds. Every line but the header is a record or is dropped.
pub fn parse_journal(bytes: &[u8]) -> Recovered {
    parse_lines(HEADER, "not the header of a journal of this version", bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use proptest::prelude::*;

    use super::*;
    use crate::disk::Operation;
    use crate::disk::failing::Failing;

    /// A daemon's day: it begins anew after an error, as the daemon does. Gives how many records were synced, and how many were tried.
    fn live(disk: Arc<dyn Disk>, dir: &Path, names: &[String]) -> (usize, usize) {
        let (mut kept, mut tried) = (0, 0);
        let Ok((mut journal, recovered)) = Journal::open_on(disk, dir) else { return (0, 0) };
        assert!(recovered.dropped.iter().all(|it| it.why.starts_with("the disk cannot read")));
        let mut is_behind = true;
        for end in 0..=names.len() {
            tried = end;
            let written = match is_behind {
                true => journal.rewrite(&names[..end]),
                false => journal.append(&names[end - 1..end]).and_then(|()| journal.sync()),
            };
            is_behind = written.is_err() || end == 2;
            if written.is_ok() {
                kept = end;
            }
        }
        (kept, tried)
    }

    fn check_failing(is_lasting: bool, errno: Errno) {
        let names = records(&["first", "second", "third", "fourth"]);
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let disk = Failing::new(at, is_lasting, errno);
            let (kept, tried) = live(Arc::<Failing>::clone(&disk), dir.path(), &names);
            let done = disk.done.lock().unwrap().clone();
            let (mut journal, recovered) = Journal::open(dir.path()).unwrap();
            let what = format!("{errno} at operation {at} of {done:?}: {recovered:?}");
            assert!(names[..tried].starts_with(&recovered.records), "{what}");
            assert!(recovered.records.len() >= kept, "{what}, {kept} kept");
            assert!(recovered.dropped.len() <= 1, "{what}");
            journal.rewrite(&names).unwrap();
            let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
            left.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
            let left: Vec<_> = left.into_iter().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [FILE, LOCK], "{what}");
            if done.len() <= at {
                assert!(at > 20, "{what}");
                return;
            }
        }
    }

    #[test]
    fn a_disk_that_refuses_once_costs_nothing_afterwards() {
        for errno in [Errno::ENOSPC, Errno::EIO, Errno::EROFS] {
            check_failing(false, errno);
        }
    }

    #[test]
    fn a_kill_at_any_operation_loses_nothing_that_was_synced() {
        check_failing(true, Errno::EIO);
    }

    /// The new journal may have lost its name, so what is appended to it may be gone with the next crash.
    #[test]
    fn nothing_is_appended_after_the_directory_could_not_be_synced() {
        let (dir, _) = written(&["one"]);
        let mut refused = Vec::new();
        // After the five operations of opening.
        for at in 5.. {
            let disk = Failing::new(at, false, Errno::EIO);
            let disk = Arc::new(disk);
            let opened = Journal::open_on(Arc::<Failing>::clone(&disk), dir.path());
            let (mut journal, _) = opened.unwrap();
            if journal.rewrite(&records(&["two"])).is_ok() {
                break;
            }
            refused.push(disk.done.lock().unwrap()[at]);
            let before = fs::read(dir.path().join(FILE)).unwrap();
            assert!(journal.append(&records(&["three"])).is_err());
            assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), before);
            journal.rewrite(&records(&["four"])).unwrap();
            journal.append(&records(&["five"])).unwrap();
        }
        assert_eq!(
            refused[refused.len() - 3..],
            [Operation::Rename, Operation::Open, Operation::Sync]
        );
    }

    #[test]
    fn a_journal_that_the_disk_cannot_read_is_moved_aside_and_begun_anew() {
        let (dir, bytes) = written(&["one"]);
        // Operation 3 reads the journal, operation 5 copies it.
        for at in [3, 5] {
            let disk = Failing::new(at, false, Errno::EIO);
            let (mut journal, recovered) = Journal::open_on(disk, dir.path()).unwrap();
            if at == 3 {
                assert_eq!((recovered.records.len(), recovered.dropped.len()), (0, 1));
            }
            assert_eq!(fs::read(journal.set_aside().unwrap()).unwrap(), bytes);
            journal.rewrite(&records(&["one"])).unwrap();
        }
    }

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
    fn what_is_no_regular_file_is_refused_at_once() {
        type Make = fn(&Path);
        let makes: [(&str, Make); 3] = [
            ("a FIFO", |path| {
                nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            }),
            ("a directory", |path| fs::create_dir(path).unwrap()),
            ("a device", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ];
        for (what, make) in makes {
            for name in [FILE, LOCK] {
                let dir = tempfile::tempdir().unwrap();
                make(&dir.path().join(name));
                let error = anyhow_text(&Journal::open(dir.path()).unwrap_err());
                // A directory cannot be opened to be written, which the kernel says.
                let is_told = error.contains(what) || error.contains("s a directory");
                assert!(is_told, "{what} as {name}: {error}");
            }
        }
    }

    fn anyhow_text(error: &dyn std::error::Error) -> String {
        let sources = std::iter::successors(Some(error), |error| error.source());
        sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
