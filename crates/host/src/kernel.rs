//! Kernel files that are read and written one by one: those of this machine, of a tree on a disk, or of a fake. Carries plans out.
//!
//! Paths are below the root, without a slash in front. Symbolic links are followed and stay below the root, as after `chroot`
//! (`openat2(2)`, `RESOLVE_IN_ROOT`; module `opening`). One text is one `write(2)`, because each write to a kernel file is a command of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bayplan_enforcement::{FilePlan, FileWrite, GONE, Observed, Slot};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{read, write};

use crate::irqbalance::{Balancers, is_balancer};
use crate::opening::{open_below, open_in_root};

/// What is read of one file at most; the threads of the largest containers fit.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most files fit.
const BUFFER: usize = 4096;
/// A read of kernfs, where all files below `sys` are, that gives less has given everything. The kernel fills a page with as many records as fit
/// (`seq_read_iter`), and these files are one record (`kernfs_seq_show`) or lines of some bytes (`cgroup.threads`).
const SHORT: usize = BUFFER / 2;

/// To look up the directory of fewer files costs more than it saves.
const FEW: usize = 3;

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK);
const WRITE: OFlag = OFlag::O_WRONLY.union(OFlag::O_TRUNC).union(OFlag::O_NONBLOCK);
const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// Something with kernel files.
pub trait Kernel {
    /// The text of a file.
    ///
    /// # Errors
    /// What the kernel answers.
    fn read(&mut self, path: &str) -> Result<String, Errno>;
    /// The texts of these files, in their order; each is as from [`Kernel::read`]. Those of one directory that follow each other may be cheaper together.
    fn read_all(&mut self, paths: &[&str]) -> Vec<Result<String, Errno>> {
        paths.iter().map(|path| self.read(path)).collect()
    }
    /// Whether there is such a file.
    fn is_there(&mut self, path: &str) -> bool {
        self.read(path).is_ok()
    }
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

    fn read_all(&mut self, paths: &[&str]) -> Vec<Result<String, Errno>> {
        locked(self).read_all(paths)
    }

    fn is_there(&mut self, path: &str) -> bool {
        locked(self).is_there(path)
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

    fn open_file(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        open_in_root(self.fd.as_fd(), path, flags)
    }

    /// A file in an open directory. What is refused there is asked for by its path: only that says why, and only that follows links.
    fn read_in(&mut self, dir: &OwnedFd, name: &str, path: &str) -> Result<String, Errno> {
        if is_balancer(path) || matches!(name, "" | "." | "..") {
            return self.read(path);
        }
        match open_below(dir, name, READ) {
            Ok(file) => self.read_opened(&file, path),
            Err(Errno::ENOENT) => Err(Errno::ENOENT),
            Err(_) => self.read(path),
        }
    }

    /// Not `read_to_end`, which asks for a size that kernel files do not have.
    fn read_opened(&mut self, file: &OwnedFd, path: &str) -> Result<String, Errno> {
        let mut length = 0;
        loop {
            match read(file, &mut self.buffer[length..])? {
                0 => break,
                more => length += more,
            }
            if length < SHORT && path.starts_with("sys/") {
                break;
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

    /// Directories are below other directories that were read before: links are not at stake.
    fn full(&self, path: &str) -> Result<PathBuf, Errno> {
        let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if is_plain { Ok(self.root.join(path)) } else { Err(Errno::EINVAL) }
    }
}

/// The name of a file of this directory; `None`: it is somewhere else.
fn name_in<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(dir)?.strip_prefix('/').filter(|name| !name.contains('/'))
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl Kernel for DiskKernel {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        if is_balancer(path) {
            return self.balancers.read(&self.root, path);
        }
        let file = self.open_file(path, READ)?;
        self.read_opened(&file, path)
    }

    /// Each directory is looked up once; it stays open only for that long, so that nothing is kept that has gone.
    fn read_all(&mut self, mut paths: &[&str]) -> Vec<Result<String, Errno>> {
        let mut texts = Vec::with_capacity(paths.len());
        while let Some(first) = paths.first() {
            let dir = first.rsplit_once('/').map(|(dir, _)| dir).unwrap_or_default();
            let names = paths.iter().map_while(|path| name_in(dir, path));
            let count = names.clone().count().max(1);
            let (files, others) = paths.split_at(count);
            let opened = match count < FEW {
                true => None,
                false => self.open_file(dir, DIRECTORY).ok(),
            };
            match opened {
                Some(dir) => {
                    let files = files.iter().zip(names);
                    texts.extend(files.map(|(path, name)| self.read_in(&dir, name, path)));
                }
                None => texts.extend(files.iter().map(|path| self.read(path))),
            }
            paths = others;
        }
        texts
    }

    fn is_there(&mut self, path: &str) -> bool {
        self.open_file(path, OFlag::O_PATH).is_ok()
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        if is_balancer(path) {
            return self.balancers.write(&self.root, path, text);
        }
        let file = self.open_file(path, WRITE)?;
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

/// Reads files, each once; it is cheapest when they are in the order of their paths.
pub fn observe<'a>(kernel: &mut dyn Kernel, paths: impl Iterator<Item = &'a str>) -> Observed {
    let paths: Vec<&str> = paths.collect();
    let texts = kernel.read_all(&paths).into_iter().map(|text| {
        text.map_err(|errno| match is_gone(errno) {
            true => GONE.to_owned(),
            false => errno.desc().to_owned(),
        })
    });
    paths.into_iter().map(str::to_owned).zip(texts).collect()
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
    /// Nothing is left to write, and nothing has failed.
    pub fn is_gone(&self) -> bool {
        *self == WriteFailure::Gone
    }

    /// The kernel lets no program change this: interrupts of one CPU, and those that it manages itself (`write_irq_affinity` of the kernel; EPERM
    /// since Linux 6.11; EACCES for root without CAP_DAC_OVERRIDE, because no user may write their files).
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Groups with files of all lengths, links, and what cannot be read.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = |path: &str| root.path().join(path);
        for dir in ["sys/pods/a/inner", "sys/pods/b", "etc"] {
            fs::create_dir_all(path(dir)).unwrap();
        }
        for length in [0, 1, SHORT - 1, SHORT, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER] {
            fs::write(path(&format!("sys/pods/a/{length}")), "x".repeat(length)).unwrap();
            fs::write(path(&format!("etc/{length}")), "y".repeat(length)).unwrap();
        }
        fs::write(path("sys/pods/b/odd"), [0xff]).unwrap();
        symlink("../../../etc/1", path("sys/pods/a/near")).unwrap();
        // From the root of the machine, which is not that of this process.
        symlink("/etc/1", path("sys/pods/a/far")).unwrap();
        symlink("nothing", path("sys/pods/a/broken")).unwrap();
        symlink("a", path("sys/pods/link")).unwrap();
        root
    }

    #[test]
    fn files_read_together_say_what_each_says_alone() {
        let root = machine();
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let dirs = ["sys/pods/a", "sys/pods/link", "sys/pods/b", "sys/pods/none", "etc", ""];
        let names = ["0", "1", "2047", "2048", "4095", "4096", "4097", "12288", "inner", "odd"];
        let others = ["near", "far", "broken", "..", ".", "", "../b/odd", "none"];
        let in_dir = |dir: &'static str| {
            let names = names.into_iter().chain(others);
            names.map(move |name| format!("{dir}/{name}"))
        };
        let mut paths: Vec<String> = dirs.into_iter().flat_map(in_dir).collect();
        paths.extend(["sys/pods/a/1", "etc/1", "sys", "/etc/1"].map(str::to_owned));
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let together = kernel.read_all(&paths);
        let alone: Vec<_> = paths.iter().map(|path| kernel.read(path)).collect();
        for (path, (together, alone)) in paths.iter().zip(together.iter().zip(&alone)) {
            assert_eq!(together, alone, "{path}");
        }
        assert_eq!(together.len(), paths.len());
        assert_eq!(kernel.read("sys/pods/a/far").as_deref(), Ok("y"));
        assert_eq!(kernel.read("sys/pods/a/12288").unwrap().len(), 3 * BUFFER);
        assert_eq!(kernel.read("sys/pods/link/inner"), Err(Errno::EISDIR));
    }

    #[test]
    fn a_directory_that_was_made_anew_is_read_anew() {
        let root = machine();
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let paths = ["sys/pods/a/0", "sys/pods/a/1"];
        let old = root.path().join("sys/pods/old");
        kernel.read_all(&paths).into_iter().for_each(|text| drop(text.unwrap()));
        fs::rename(root.path().join("sys/pods/a"), &old).unwrap();
        assert_eq!(kernel.read_all(&paths), [const { Err(Errno::ENOENT) }; 2]);
        fs::create_dir(root.path().join("sys/pods/a")).unwrap();
        fs::write(root.path().join("sys/pods/a/1"), "new").unwrap();
        assert_eq!(kernel.read_all(&paths), [Err(Errno::ENOENT), Ok("new".to_owned())]);
    }
}
