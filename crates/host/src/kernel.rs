//! Kernel files that are read and written one by one: those of this machine, of a tree on a disk, or of a fake. Carries plans out.
//!
//! Paths are below the root, without a slash in front. Symbolic links are followed and stay below the root, as after `chroot`
//! (`openat2(2)`, `RESOLVE_IN_ROOT`). One text is one `write(2)`, because each write to a kernel file is a command of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bayplan_enforcement::{FilePlan, FileWrite, GONE, Observed, Slot};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

use crate::irqbalance::{Balancers, is_balancer};

/// What is read of one file at most; the threads of the largest containers fit.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most files fit.
const BUFFER: usize = 4096;

/// Something with kernel files.
pub trait Kernel {
    /// The text of a file.
    ///
    /// # Errors
    /// What the kernel answers.
    fn read(&mut self, path: &str) -> Result<String, Errno>;
    /// Gives a file one text.
    ///
    /// # Errors
    /// What the kernel answers.
    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno>;
    /// The names in a directory, in order.
    ///
    /// # Errors
    /// What the kernel answers.
    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno>;
    /// Makes a directory; its parent must be there.
    ///
    /// # Errors
    /// What the kernel answers.
    fn make_dir(&mut self, dir: &str) -> Result<(), Errno>;
    /// Removes a directory in which there are only the kernel's own files.
    ///
    /// # Errors
    /// What the kernel answers.
    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno>;
}

/// A kernel that several use, such as a fake that a test looks into.
impl<K: Kernel> Kernel for Arc<Mutex<K>> {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        locked(self).read(path)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        locked(self).write(path, text)
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        locked(self).list(dir)
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        locked(self).make_dir(dir)
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        locked(self).remove_dir(dir)
    }
}

/// Each call stands for itself, so one that panicked has left nothing half done for the next.
fn locked<K>(kernel: &Mutex<K>) -> MutexGuard<'_, K> {
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kernel files below a directory.
#[derive(Debug)]
pub struct DiskKernel {
    root: PathBuf,
    fd: OwnedFd,
    buffer: Vec<u8>,
    balancers: Balancers,
}

impl DiskKernel {
    /// `/` for this machine.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub fn open(root: &Path) -> io::Result<DiskKernel> {
        Ok(DiskKernel {
            root: root.to_owned(),
            fd: File::open(root)?.into(),
            buffer: vec![0; BUFFER],
            balancers: Balancers::default(),
        })
    }

    fn open_file(&self, path: &str, flags: OFlag) -> Result<File, Errno> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .mode(Mode::empty())
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        match openat2(&self.fd, path, how) {
            // Before Linux 5.6, and where a filter of system calls does not know it.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                open(&self.full(path)?, flags | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
            }
            opened => opened.map(File::from),
        }
    }

    /// Directories are below other directories that were read before: links are not at stake.
    fn full(&self, path: &str) -> Result<PathBuf, Errno> {
        let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if is_plain { Ok(self.root.join(path)) } else { Err(Errno::EINVAL) }
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl Kernel for DiskKernel {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        if is_balancer(path) {
            return self.balancers.read(&self.root, path);
        }
        let file = self.open_file(path, OFlag::O_RDONLY)?;
        // Not `read_to_end`, which asks for a size that kernel files do not have.
        let mut length = 0;
        loop {
            match read(&file, &mut self.buffer[length..])? {
                0 => break,
                more => length += more,
            }
            if length == self.buffer.len() {
                if length >= BYTES_MAX {
                    return Err(Errno::EFBIG);
                }
                self.buffer.resize(length * 2, 0);
            }
        }
        let text = std::str::from_utf8(&self.buffer[..length]).map_err(|_| Errno::EILSEQ)?;
        Ok(text.to_owned())
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        if is_balancer(path) {
            return self.balancers.write(&self.root, path, text);
        }
        let file = self.open_file(path, OFlag::O_WRONLY | OFlag::O_TRUNC)?;
        let written = write(&file, text.as_bytes())?;
        if written == text.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        let entries = fs::read_dir(self.full(dir)?).map_err(|error| errno(&error))?;
        let names = entries.map(|entry| entry.map(|it| it.file_name().into_string()));
        let names: Result<Vec<_>, _> = names.collect();
        let mut names: Vec<String> =
            names.map_err(|error| errno(&error))?.into_iter().flatten().collect();
        names.sort_unstable();
        Ok(names)
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        fs::create_dir(self.full(dir)?).map_err(|error| errno(&error))
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        fs::remove_dir(self.full(dir)?).map_err(|error| errno(&error))
    }
}

/// Reads files, each once.
pub fn observe<'a>(kernel: &mut dyn Kernel, paths: impl Iterator<Item = &'a str>) -> Observed {
    let read = paths.map(|path| {
        let text = kernel.read(path).map_err(|errno| match is_gone(errno) {
            true => GONE.to_owned(),
            false => errno.desc().to_owned(),
        });
        (path.to_owned(), text)
    });
    read.collect()
}

/// The file, or the device behind it, is not there.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENODEV | Errno::ENXIO | Errno::ENOTDIR)
}

/// Why a file does not say what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// Its container or device has gone: nothing is left to write.
    Gone,
    /// The kernel refused.
    Refused {
        /// With this.
        errno: Errno,
        /// And with these words, where it has any (resctrl, `info/last_cmd_status`).
        words: Option<String>,
    },
    /// The kernel took it and has something else.
    Differs {
        /// The text of the file.
        found: String,
    },
}

impl WriteFailure {
    /// Nothing is left to write, and nobody has failed.
    pub fn is_gone(&self) -> bool {
        *self == WriteFailure::Gone
    }

    /// The kernel lets nobody change this: interrupts of one CPU, and those that it manages itself (`write_irq_affinity` of the kernel; EPERM since
    /// Linux 6.11; EACCES for root without CAP_DAC_OVERRIDE, because their files are nobody's to write).
    pub fn is_for_good(&self, slot: &Slot) -> bool {
        let is_refused = matches!(
            self,
            WriteFailure::Refused { errno: Errno::EIO | Errno::EPERM | Errno::EACCES, .. }
        );
        is_refused && slot.path.starts_with("proc/irq/")
    }
}

impl std::fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteFailure::Gone => f.write_str("it is gone"),
            WriteFailure::Refused { errno, words: None } => {
                write!(f, "{errno:?}: {}", errno.desc())
            }
            WriteFailure::Refused { errno, words: Some(words) } => {
                write!(f, "{errno:?}: {}; the kernel says: {words}", errno.desc())
            }
            WriteFailure::Differs { found } => write!(f, "it reads back as {:?}", found.trim()),
        }
    }
}

/// What became of a plan: every write with its end, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The plan's writes.
    pub outcomes: Vec<(FileWrite, Result<(), WriteFailure>)>,
}

impl Report {
    /// Writes after which the files do not say what they should.
    pub fn failures(&self) -> impl Iterator<Item = (&FileWrite, &WriteFailure)> {
        let failures = self.outcomes.iter();
        failures.filter_map(|(write, end)| end.as_ref().err().map(|failure| (write, failure)))
    }

    /// Originals that their files have again; they need not be remembered any more.
    pub fn given_back(&self) -> impl Iterator<Item = &Slot> {
        let is_last = |write: &FileWrite| write.gives_back && !write.is_step;
        let done = self.outcomes.iter().filter(move |(write, end)| is_last(write) && end.is_ok());
        done.map(|(write, _)| &write.slot)
    }
}

/// Carries a plan out: all writes in order, whatever becomes of the others, and then reads every file back.
pub fn apply(kernel: &mut dyn Kernel, plan: &FilePlan) -> Report {
    let mut outcomes = Vec::with_capacity(plan.writes.len());
    for write in &plan.writes {
        let end = kernel.write(&write.slot.path, &write.text());
        let end = end.map_err(|errno| failure(kernel, &write.slot.path, errno));
        outcomes.push((write.clone(), end));
    }
    let is_last =
        |(write, end): &&mut (FileWrite, Result<(), WriteFailure>)| end.is_ok() && !write.is_step;
    for (write, end) in outcomes.iter_mut().filter(is_last) {
        *end = match kernel.read(&write.slot.path) {
            Ok(text) if write.is_done(&text) => Ok(()),
            Ok(found) => Err(WriteFailure::Differs { found }),
            Err(errno) => Err(failure(kernel, &write.slot.path, errno)),
        };
    }
    Report { outcomes }
}

pub(crate) fn failure(kernel: &mut dyn Kernel, path: &str, errno: Errno) -> WriteFailure {
    if is_gone(errno) {
        return WriteFailure::Gone;
    }
    // Documentation/filesystems/resctrl.rst, "Info directory".
    let words = path.split_once("/resctrl/").and_then(|(above, _)| {
        let words = kernel.read(&format!("{above}/resctrl/info/last_cmd_status")).ok()?;
        Some(words.trim().to_owned()).filter(|words| !words.is_empty() && words != "ok")
    });
    WriteFailure::Refused { errno, words }
}
