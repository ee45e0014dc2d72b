//! Small text files under a root: that of this machine, of a captured tree, or of files that were read before. Never leaves the root:
//! symbolic links are not followed, except on the way to a directory that still lies inside.
//!
//! A file that is missing is a `None`. One that is there but cannot be used is a `None` with an [`Oddity`]. What was read can be
//! recorded, so that the same reader can read it again elsewhere.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bayplan_topology::Oddity;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::read;

use crate::kernel_files::{Entry, KernelFiles, plain_number};

/// Kernel files of the kinds read here are far smaller; a list of 8,192 CPUs without ranges has 40 KB.
const BYTES_MAX: usize = 64 * 1024;
/// A read of a file in sysfs that gives less than a page has given all (`Documentation/filesystems/sysfs.rst`).
const PAGE: usize = 4096;
/// How much of a file's text an oddity quotes.
const QUOTED_CHARS: usize = 60;

/// Where the files are.
#[derive(Clone, Debug)]
enum Root {
    Disk(PathBuf),
    Files(Arc<KernelFiles>),
}

/// Files under one root, what was odd about them, and what was read.
#[derive(Debug)]
pub(crate) struct KernelFs {
    root: Root,
    buffer: Vec<u8>,
    recorded: Option<KernelFiles>,
    pub(crate) oddities: Vec<Oddity>,
}

/// A directory under the root.
#[derive(Debug)]
pub(crate) struct Dir {
    /// Below the root, without a slash in front.
    pub(crate) path: String,
    /// The path that records give it, where that is another one.
    pub(crate) recorded_as: Option<String>,
    /// On a disk.
    fd: Option<OwnedFd>,
}

impl Dir {
    fn new(path: String, fd: Option<OwnedFd>) -> Dir {
        Dir { path, recorded_as: None, fd }
    }

    fn recorded(&self, file: &str) -> String {
        format!("{}/{file}", self.recorded_as.as_ref().unwrap_or(&self.path))
    }
}

impl KernelFs {
    /// Files on a disk. The root itself may be reached through symbolic links.
    pub(crate) fn open(root: &Path) -> io::Result<KernelFs> {
        Ok(KernelFs::new(Root::Disk(root.canonicalize()?)))
    }

    /// Files that were read before.
    pub(crate) fn of(files: Arc<KernelFiles>) -> KernelFs {
        KernelFs::new(Root::Files(files))
    }

    fn new(root: Root) -> KernelFs {
        KernelFs { root, buffer: vec![0; PAGE], recorded: None, oddities: Vec::new() }
    }

    /// From now on, keeps what is read.
    pub(crate) fn recording(mut self) -> KernelFs {
        self.recorded = Some(KernelFiles::default());
        self
    }

    /// A reader of the same files for another thread; to be joined with [`KernelFs::join`].
    pub(crate) fn fork(&self) -> KernelFs {
        let recorded = self.recorded.as_ref().map(|_| KernelFiles::default());
        KernelFs { recorded, ..KernelFs::new(self.root.clone()) }
    }

    /// Takes over what another reader noted and recorded.
    pub(crate) fn join(&mut self, other: KernelFs) {
        self.oddities.extend(other.oddities);
        if let (Some(own), Some(others)) = (&mut self.recorded, other.recorded) {
            own.extend(others);
        }
    }

    /// What was recorded, and what was odd.
    pub(crate) fn into_parts(self) -> (KernelFiles, Vec<Oddity>) {
        (self.recorded.unwrap_or_default(), self.oddities)
    }

    /// Records an entry that stands for what was really read.
    pub(crate) fn record(&mut self, path: String, entry: Entry) {
        if let Some(recorded) = &mut self.recorded {
            recorded.insert(path, entry);
        }
    }

    /// What `read` reads is not recorded.
    pub(crate) fn unrecorded<T>(&mut self, read: impl FnOnce(&mut KernelFs) -> T) -> T {
        let recorded = self.recorded.take();
        let value = read(self);
        self.recorded = recorded;
        value
    }

    /// A directory below the root, if it is there. Links on the way are followed as long as they stay inside.
    pub(crate) fn dir(&mut self, path: &str) -> io::Result<Option<Dir>> {
        let root = match &self.root {
            Root::Files(files) => {
                let path = follow(files, path);
                return Ok(files.is_dir(&path).then_some(Dir::new(path, None)));
            }
            Root::Disk(root) => root,
        };
        let real = match root.join(path).canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(below) = real.strip_prefix(root) else { return Ok(None) };
        if !real.is_dir() {
            return Ok(None);
        }
        let path = below.to_string_lossy().into_owned();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(&real, flags, Mode::empty())?;
        Ok(Some(Dir::new(path, Some(fd))))
    }

    /// A directory directly or further below another one; `None` when there is none, and for a link.
    pub(crate) fn sub(&self, dir: &Dir, name: &str) -> Option<Dir> {
        let path = format!("{}/{name}", dir.path);
        match (&self.root, &dir.fd) {
            (Root::Files(files), _) => files.is_dir(&path).then_some(Dir::new(path, None)),
            (Root::Disk(_), Some(fd)) => {
                let flags =
                    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let fd = openat(fd.as_fd(), name, flags, Mode::empty()).ok()?;
                Some(Dir::new(path, Some(fd)))
            }
            (Root::Disk(_), None) => None,
        }
    }

    /// Names in a directory, in order, and whether each is a directory.
    fn entries(&mut self, path: &str) -> Vec<(String, bool)> {
        let root = match &self.root {
            Root::Files(files) => return files.names(path),
            Root::Disk(root) => root,
        };
        let entries = match fs::read_dir(root.join(path)) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.note(path, error.to_string(), "an empty directory");
                }
                return Vec::new();
            }
        };
        let named = entries.flatten().filter_map(|entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            Some((entry.file_name().into_string().ok()?, is_dir))
        });
        let mut names: Vec<(String, bool)> = named.collect();
        names.sort();
        names
    }

    /// Names in a directory, in order, that `is_wanted`.
    pub(crate) fn names(&mut self, path: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names = self.entries(path);
        names.retain(|(name, _)| is_wanted(name));
        for (name, is_dir) in &names {
            if *is_dir {
                self.record(format!("{path}/{name}"), Entry::Dir);
            }
        }
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Numbers of the sub-directories named `prefix` and a number, in order.
    pub(crate) fn numbered(&mut self, dir: &Dir, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::new();
        for (name, is_dir) in self.entries(&dir.path) {
            let Some(number) = name.strip_prefix(prefix).and_then(plain_number) else { continue };
            let path = format!("{}/{name}", dir.path);
            if is_dir {
                self.record(path, Entry::Dir);
                numbers.push(number);
            } else {
                self.note(&path, "not a directory".to_owned(), "it is not there");
            }
        }
        numbers.sort_unstable();
        numbers
    }

    /// Sub-directories named `prefix` and a number, by number.
    pub(crate) fn numbered_dirs(&mut self, dir: &Dir, prefix: &str) -> Vec<(u32, Dir)> {
        let numbers = self.numbered(dir, prefix).into_iter();
        let opened = numbers
            .filter_map(|number| Some((number, self.sub(dir, &format!("{prefix}{number}"))?)));
        opened.collect()
    }

    /// Whether a file or directory is there.
    pub(crate) fn exists(&mut self, path: &str) -> bool {
        let found = match &self.root {
            Root::Files(files) => {
                (files.get(path).is_some() || files.is_dir(path)).then_some(Entry::Dir)
            }
            Root::Disk(root) => fs::metadata(root.join(path)).ok().map(|metadata| {
                if metadata.is_dir() { Entry::Dir } else { Entry::Text(String::new()) }
            }),
        };
        let exists = found.is_some();
        if let Some(entry) = found {
            self.record(path.to_owned(), entry);
        }
        exists
    }

    /// The target of a symbolic link.
    pub(crate) fn link(&mut self, path: &str) -> Option<String> {
        let target = match &self.root {
            Root::Files(files) => match files.get(path) {
                Some(Entry::Link(target)) => Some(target.clone()),
                _ => None,
            },
            Root::Disk(root) => {
                fs::read_link(root.join(path)).ok().and_then(|to| Some(to.to_str()?.to_owned()))
            }
        }?;
        self.record(path.to_owned(), Entry::Link(target.clone()));
        Some(target)
    }

    /// The last name in the target of a symbolic link.
    pub(crate) fn link_name(&mut self, path: &str) -> Option<String> {
        let target = self.link(path)?;
        target.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// The value of a file, by `parse`; blanks and line ends around it do not count.
    pub(crate) fn parsed<T>(
        &mut self,
        dir: &Dir,
        file: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(dir, file)?;
        let trimmed = trim(&text);
        let value = parse(trimmed);
        if value.is_none() {
            let found = quote(trimmed);
            self.note(&format!("{}/{file}", dir.path), found, "as if the file were missing");
        }
        if self.recorded.is_some() {
            let entry = Entry::Text(trimmed.to_owned());
            self.record(dir.recorded(file), entry);
        }
        value
    }

    /// The value of a file that holds what the type's `FromStr` reads.
    pub(crate) fn value<T: FromStr>(&mut self, dir: &Dir, file: &str) -> Option<T> {
        self.parsed(dir, file, |text| text.parse().ok())
    }

    /// What `parse` makes of the first line that it can use. Only that line is recorded: the others may hold what is nobody's business.
    pub(crate) fn line<T>(
        &mut self,
        dir: &Dir,
        file: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(dir, file)?;
        let found = text.lines().find_map(|line| Some((line.trim(), parse(line)?)));
        match found {
            Some((line, value)) => {
                let entry = Entry::Text(line.to_owned());
                self.record(dir.recorded(file), entry);
                Some(value)
            }
            None => None,
        }
    }

    /// The text of a file, not recorded.
    pub(crate) fn text(&mut self, dir: &Dir, file: &str) -> Option<String> {
        let fd = match (&self.root, &dir.fd) {
            (Root::Files(files), _) => {
                return match files.get(&format!("{}/{file}", dir.path)) {
                    Some(Entry::Text(text)) => Some(text.clone()),
                    _ => None,
                };
            }
            (Root::Disk(_), Some(fd)) => fd,
            (Root::Disk(_), None) => return None,
        };
        let read = read_bounded(fd, file, &mut self.buffer);
        match read {
            Ok(Some(len)) => {
                let bytes = self.buffer.get(..len.min(BYTES_MAX)).unwrap_or_default();
                let text = String::from_utf8_lossy(bytes).into_owned();
                if len > BYTES_MAX {
                    let found = format!("more than {BYTES_MAX} bytes");
                    let path = format!("{}/{file}", dir.path);
                    self.note(&path, found, "what stands in the first ones");
                }
                Some(text)
            }
            Ok(None) => None,
            Err(error) => {
                let path = format!("{}/{file}", dir.path);
                let found = match error {
                    Errno::ELOOP | Errno::EISDIR | Errno::ENXIO => "not a regular file".to_owned(),
                    other => io::Error::from(other).to_string(),
                };
                self.note(&path, found, "as if the file were missing");
                None
            }
        }
    }

    /// Notes that a file under the root is odd.
    pub(crate) fn note(&mut self, path: &str, found: String, assumed: &str) {
        self.oddities.push(Oddity::new(format!("/{path}"), found, assumed));
    }
}

pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
}

/// Reads into `buffer` and says how much, at most one byte more than `BYTES_MAX`; `None` when there is no such file.
fn read_bounded(dir: &OwnedFd, file: &str, buffer: &mut Vec<u8>) -> nix::Result<Option<usize>> {
    // Without O_NONBLOCK a pipe would hold the reader up for ever.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let fd = match openat(dir.as_fd(), file, flags, Mode::empty()) {
        Ok(fd) => fd,
        // ENODEV: the attribute belongs to a CPU or node that has just gone.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut len = 0;
    loop {
        let space = buffer.get_mut(len..).unwrap_or_default();
        let asked = space.len();
        let got = match read(&fd, space) {
            Ok(got) => got,
            Err(Errno::EINTR) => continue,
            Err(Errno::ENODEV) => return Ok(None),
            Err(error) => return Err(error),
        };
        len += got;
        // A file of /proc may come in pieces, but then the pieces are large.
        if got == 0 || (got < asked && len < PAGE / 2) {
            return Ok(Some(len));
        }
        if len > BYTES_MAX {
            return Ok(Some(len));
        }
        if len == buffer.len() {
            buffer.resize((len * 2).min(BYTES_MAX + 1), 0);
        }
    }
}

/// The path with links resolved, as long as they lead somewhere inside.
fn follow(files: &KernelFiles, path: &str) -> String {
    let mut path = path.to_owned();
    // As the kernel, which gives up after 40.
    for _ in 0..40 {
        let Some(Entry::Link(target)) = files.get(&path) else { break };
        let from = Path::new(&path).parent().unwrap_or(Path::new(""));
        match normalize(&from.join(target)) {
            Some(next) => path = next,
            None => break,
        }
    }
    path
}

/// A relative path without `..`; `None` when it leads out.
fn normalize(path: &Path) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => drop(names.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(names.join("/"))
}

fn quote(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}
