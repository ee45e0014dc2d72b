//! The files of the state directory, one operation at a time, with a moment before each. In: what is to be done. Out: what the kernel says, or
//! what a [`Disk`] says in its place.
//!
//! A running daemon has a [`SoundDisk`], which lets everything happen. A test has one that refuses the n-th operation, lets a part of a
//! write happen, or never lets the caller go on, as if the process had been killed there: what has been done until then is in the files.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A directory is made, unless it is there.
    MakeDir,
    /// A file or directory is opened; a file may be made by that.
    Open,
    /// A lock is taken.
    Lock,
    /// A file is read from beginning to end, or a directory is listed.
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

/// Decides over what is done.
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

/// What is under each of them that a daemon writes.
#[derive(Clone, Debug)]
pub struct Disks {
    /// Which containers are where.
    pub journal: Arc<dyn Disk>,
    /// What happened.
    pub history: Arc<dyn Disk>,
    /// What kernel files said before.
    pub originals: Arc<dyn Disk>,
    /// What is usual for workloads.
    pub baselines: Arc<dyn Disk>,
}

impl Disks {
    /// One under all.
    pub fn all(disk: &Arc<dyn Disk>) -> Disks {
        let [journal, history, originals, baselines] = [disk, disk, disk, disk].map(Arc::clone);
        Disks { journal, history, originals, baselines }
    }
}

impl Default for Disks {
    /// Sound ones.
    fn default() -> Disks {
        Disks::all(&(Arc::new(SoundDisk) as Arc<dyn Disk>))
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

    /// With all its parents; only its owner may look into it.
    pub(crate) fn make_private_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(Operation::MakeDir)?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    pub(crate) fn list(&self, dir: &Path) -> io::Result<fs::ReadDir> {
        self.before(Operation::Read)?;
        fs::read_dir(dir)
    }

    /// To append to; it must be there.
    pub(crate) fn open_end(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        regular(OpenOptions::new().append(true).custom_flags(AT_ONCE).open(path)?)
    }

    /// To append to; it must not be there yet, and only its owner may read it.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        let mut options = OpenOptions::new();
        regular(options.append(true).create_new(true).mode(0o600).open(path)?)
    }

    /// To read and write, made if it is missing.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        regular(options.custom_flags(AT_ONCE).open(path)?)
    }

    /// To write, and empty; only its owner may read it.
    pub(crate) fn open_new(&self, path: &Path) -> io::Result<File> {
        self.before(Operation::Open)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        regular(options.custom_flags(AT_ONCE).open(path)?)
    }

    pub(crate) fn lock(&self, file: &File) -> Result<(), TryLockError> {
        self.before(Operation::Lock).map_err(TryLockError::Error)?;
        file.try_lock()
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.before(Operation::Read)?;
        let file = OpenOptions::new().read(true).custom_flags(AT_ONCE).open(path)?;
        let mut bytes = Vec::new();
        regular(file)?.read_to_end(&mut bytes)?;
        Ok(bytes)
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
        regular(OpenOptions::new().read(true).custom_flags(AT_ONCE).open(from)?)?;
        fs::copy(from, to).map(|_| ())
    }
}

/// An open of a FIFO comes back at once, so that it can be refused. Regular files do not know it (open(2)).
const AT_ONCE: i32 = OFlag::O_NONBLOCK.bits();

/// Refuses what is no regular file: a FIFO, a device or a socket may never give an end, or block.
fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let found = match () {
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_dir() => "a directory",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "not a file",
    };
    let text = format!("it is {found}, and a regular file is expected; move it away");
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

#[cfg(test)]
pub(crate) mod failing {
    use std::sync::Mutex;

    use nix::errno::Errno;

    use super::*;

    /// Goes wrong at one operation, and stays so if it is lasting; a kill is a disk on which nothing can be done any more. Of a write
    /// half is done before.
    #[derive(Debug)]
    pub(crate) struct Failing {
        pub(crate) at: usize,
        pub(crate) is_lasting: bool,
        pub(crate) errno: Errno,
        pub(crate) done: Mutex<Vec<Operation>>,
    }

    impl Failing {
        pub(crate) fn new(at: usize, is_lasting: bool, errno: Errno) -> Arc<Failing> {
            Arc::new(Failing { at, is_lasting, errno, done: Mutex::default() })
        }
    }

    impl Disk for Failing {
        fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
            let mut done = self.done.lock().unwrap();
            done.push(operation);
            let index = done.len() - 1;
            if index == self.at || self.is_lasting && index > self.at {
                return Err(self.errno.into());
            }
            // What is left of a write is the next operation.
            Ok(if operation == Operation::Write { bytes.div_ceil(2) } else { bytes })
        }
    }
}
