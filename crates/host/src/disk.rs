//! The files of the journal, one operation at a time, with a moment before each. In: what is to be done. Out: what the kernel says, or
//! what a [`Disk`] says in its place.
//!
//! A running daemon has a [`SoundDisk`], which lets everything happen. A test has one that refuses the n-th operation, lets a part of a
//! write happen, or never lets the caller go on, as if the process had been killed there: what has been done until then is in the files.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A directory is made, unless it is there.
    MakeDir,
    /// A file or directory is opened; a file may be made by that.
    Open,
    /// A lock is taken.
    Lock,
    /// A file is read from beginning to end.
    Read,
    /// Bytes are written.
    Write,
    /// A file is cut off.
    Truncate,
    /// A file or directory is synced.
    Sync,
    /// A file takes the name of another.
    Rename,
    /// A file is removed.
    Remove,
    /// A file is copied.
    Copy,
}

/// Decides over what the journal does.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Comes back when the operation may be done. `bytes` is what a write has left to write, 0 for everything else; gives how many
    /// of them may be written now.
    ///
    /// # Errors
    /// The operation is not done, and this is what the kernel would say.
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize>;
}

/// Lets everything happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoundDisk;

impl Disk for SoundDisk {
    fn before(&self, _: Operation, bytes: usize) -> io::Result<usize> {
        Ok(bytes)
    }
}

/// Files on a disk. Every operation of the kernel that is used here is one of [`Operation`].
#[derive(Clone, Debug)]
pub(crate) struct Files(pub(crate) Arc<dyn Disk>);

impl Files {
    fn before(&self, operation: Operation) -> io::Result<()> {
        self.0.before(operation, 0).map(|_| ())
    }

    /// With all its parents.
    pub(crate) fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(Operation::MakeDir)?;
        fs::create_dir_all(dir)
    }

    /// To read and write, made if it is missing.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    /// To write, and empty; nobody but its owner may read it.
    pub(crate) fn open_new(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
    }

    pub(crate) fn lock(&self, file: &File) -> Result<(), TryLockError> {
        self.before(Operation::Lock).map_err(TryLockError::Error)?;
        file.try_lock()
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.before(Operation::Read)?;
        fs::read(path)
    }

    /// All of it, if the disk does not refuse in between.
    pub(crate) fn write(&self, file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = self.0.before(Operation::Write, bytes.len())?;
            match file.write(bytes.get(..len).unwrap_or(bytes)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.before(Operation::Truncate)?;
        file.set_len(len)
    }

    /// What is in the file, and its length.
    pub(crate) fn sync_data(&self, file: &File) -> io::Result<()> {
        self.before(Operation::Sync)?;
        file.sync_data()
    }

    pub(crate) fn sync_all(&self, file: &File) -> io::Result<()> {
        self.before(Operation::Sync)?;
        file.sync_all()
    }

    /// What its files are called survives the machine from now on.
    pub(crate) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(Operation::Open)?;
        self.sync_all(&File::open(dir)?)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Operation::Rename)?;
        fs::rename(from, to)
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.before(Operation::Remove)?;
        fs::remove_file(path)
    }

    pub(crate) fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Operation::Copy)?;
        fs::copy(from, to).map(|_| ())
    }
}
