//! Small text files under a root: that of this machine, of a captured tree, or of files that were read before. Never leaves the root:
//! symbolic links are not followed, except on the way to a directory that still lies inside (Documentation/filesystems/sysfs.rst, "Top Level Directory
//! Layout": classes and buses are links to devices).
//!
//! A file that is missing is a `None`. One that is there but cannot be used is a `None` with an [`Oddity`]. What was read can be
//! recorded, so that the same reader can read it again elsewhere. Neither names nor texts have control characters, which the kernel does
//! not write there and which a terminal would obey.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bayplan_topology::Oddity;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::read;

use crate::kernel_files::{Entry, KernelFiles, plain_number};
use crate::opening::open_below;

/// Kernel files of the kinds read here are far smaller; a list of 8,192 CPUs without ranges has 40 KB.
const BYTES_MAX: usize = 64 * 1024;
/// A read of a file in sysfs that gives less than a page has given all (`Documentation/filesystems/sysfs.rst`).
const PAGE: usize = 4096;
/// The largest number of a directory, twice as many CPUs as Linux allows (`CONFIG_NR_CPUS`): each has sets with a bit for every other one.
const NUMBER_MAX: u32 = 16_383;
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
    fd: Option<Arc<OwnedFd>>,
    /// Where in `path` the way below `fd` begins; behind the end for `fd` itself.
    below: usize,
}

impl Dir {
    fn new(path: String, fd: Option<OwnedFd>) -> Dir {
        let below = path.len() + 1;
        Dir { path, recorded_as: None, fd: fd.map(Arc::new), below }
    }

    /// A path below `fd`.
    fn below_fd<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match self.path.get(self.below..) {
            Some(way) => Cow::Owned([way, "/", path].concat()),
            None => Cow::Borrowed(path),
        }
    }

    pub(crate) fn recorded(&self, file: &str) -> String {
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

    /// Files were read before, and cost nothing to look for.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.root, Root::Files(_))
    }

    /// From now on, keeps what is read.
    pub(crate) fn recording(mut self) -> KernelFs {
        self.recorded = Some(KernelFiles::default());
        self
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
        let Some(real) = resolve(root, path)? else { return Ok(None) };
        let Ok(below) = real.strip_prefix(root) else {
            self.note(path, "leads out of the root".to_owned(), "it is not there");
            return Ok(None);
        };
        // A link back to the root itself is no directory of the kernel's.
        let below = below.to_str().filter(|below| !below.is_empty() && real.is_dir());
        let Some(below) = below else {
            self.note(path, "not a directory".to_owned(), "it is not there");
            return Ok(None);
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(&real, flags, Mode::empty())?;
        Ok(Some(Dir::new(below.to_owned(), Some(fd))))
    }

    /// A directory directly or further below another one; `None` when there is none, and for a link.
    pub(crate) fn sub(&self, dir: &Dir, name: &str) -> Option<Dir> {
        let path = format!("{}/{name}", dir.path);
        match (&self.root, &dir.fd) {
            (Root::Files(files), _) => files.is_dir(&path).then_some(Dir::new(path, None)),
            (Root::Disk(_), Some(fd)) => {
                let name = dir.below_fd(name);
                let fd = open_below(fd, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).ok()?;
                Some(Dir::new(path, Some(fd)))
            }
            (Root::Disk(_), None) => None,
        }
    }

    /// The same without opening it, where only a few files are to be read: they are opened from the outer directory, and if there is no
    /// such directory, there are no such files.
    pub(crate) fn within(&self, dir: &Dir, name: &str) -> Dir {
        Dir {
            path: [&dir.path, "/", name].concat(),
            recorded_as: None,
            fd: dir.fd.clone(),
            below: dir.below,
        }
    }

    /// Names in a directory, in order, and whether each is a directory.
    fn entries(&mut self, path: &str) -> Vec<(String, bool)> {
        let mut names = self.all_entries(path);
        let count = names.len();
        names.retain(|(name, _)| !name.contains(char::is_control));
        if names.len() < count {
            let found = "names with control characters".to_owned();
            self.note(path, found, "they are not there");
        }
        names
    }

    fn all_entries(&mut self, path: &str) -> Vec<(String, bool)> {
        let root = match &self.root {
            Root::Files(files) => return files.names(path),
            Root::Disk(root) => root,
        };
        let found = match resolve(root, path) {
            Ok(Some(real)) if !real.starts_with(root) => Err("leads out of the root".to_owned()),
            Ok(Some(real)) => fs::read_dir(real).map_err(|error| error.to_string()),
            Ok(None) => return Vec::new(),
            Err(error) => Err(error.to_string()),
        };
        let entries = match found {
            Ok(entries) => entries,
            Err(found) => {
                self.note(path, found, "an empty directory");
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

    /// Names of the directories in a directory, in order. Not recorded.
    pub(crate) fn dir_names(&mut self, path: &str) -> Vec<String> {
        let entries = self.entries(path).into_iter();
        entries.filter_map(|(name, is_dir)| is_dir.then_some(name)).collect()
    }

    /// Numbers of the sub-directories named `prefix` and a number, in order.
    pub(crate) fn numbered(&mut self, dir: &Dir, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::new();
        let mut beyond = 0;
        for (name, is_dir) in self.entries(&dir.path) {
            let Some(number) = name.strip_prefix(prefix).and_then(plain_number) else { continue };
            if number > NUMBER_MAX {
                beyond += 1;
                continue;
            }
            let path = || format!("{}/{name}", dir.path);
            if !is_dir {
                self.note(&path(), "not a directory".to_owned(), "it is not there");
                continue;
            }
            numbers.push(number);
            if self.recorded.is_some() {
                self.record(path(), Entry::Dir);
            }
        }
        if beyond > 0 {
            let path = format!("{}/{prefix}*", dir.path);
            self.note(&path, format!("{beyond} with a number above {NUMBER_MAX}"), "not there");
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
            Root::Disk(root) => inside(root, path)
                .map(|real| if real.is_dir() { Entry::Dir } else { Entry::Text(String::new()) }),
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
                let (dir, name) = path.rsplit_once('/')?;
                let target = fs::read_link(inside(root, dir)?.join(name)).ok()?;
                target.to_str().map(str::to_owned)
            }
        }?;
        if target.contains(char::is_control) {
            self.note(path, quote(&target), "it is not there");
            return None;
        }
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

    /// What `parse` makes of the first line that it can use. Only that line is recorded: the others may hold what is private.
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
        let path = || format!("{}/{file}", dir.path);
        let read = match (&self.root, &dir.fd) {
            (Root::Files(files), _) => match files.get(&path()) {
                Some(Entry::Text(text)) => Ok(Some(cut_off(text.as_bytes()))),
                Some(Entry::Link(_) | Entry::Dir) => Err(Errno::ELOOP),
                None => return None,
            },
            (Root::Disk(_), Some(fd)) => read_bounded(fd, &dir.below_fd(file), &mut self.buffer)
                .map(|len| len.and_then(|len| self.buffer.get(..len)).map(cut_off)),
            (Root::Disk(_), None) => return None,
        };
        match read {
            Ok(Some((text, is_whole))) => {
                if !is_whole {
                    let found = format!("more than {BYTES_MAX} bytes");
                    self.note(&path(), found, "what stands in the first ones");
                }
                Some(text)
            }
            Ok(None) => None,
            Err(error) => {
                let found = match error {
                    Errno::ELOOP | Errno::EISDIR | Errno::ENXIO | Errno::ENOTDIR => {
                        "not a regular file".to_owned()
                    }
                    other => io::Error::from(other).to_string(),
                };
                self.note(&path(), found, "as if the file were missing");
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

/// The path with every link resolved, wherever that leads; `None` when nothing is there.
fn resolve(root: &Path, path: &str) -> io::Result<Option<PathBuf>> {
    let whole = root.join(path);
    // Mostly there is no link on the way, or nothing at all; `canonicalize` asks name by name.
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, &whole, how) {
        Ok(_) if is_plain(path) => return Ok(Some(whole)),
        Err(Errno::ENOENT) => return Ok(None),
        _ => {}
    }
    match whole.canonicalize() {
        Ok(real) => Ok(Some(real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names alone, each with one slash before it.
fn is_plain(path: &str) -> bool {
    path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// The path with every link resolved, if it is there and inside the root.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    resolve(root, path).ok().flatten().filter(|real| real.starts_with(root))
}

/// The text, and whether it is all of it.
fn cut_off(bytes: &[u8]) -> (String, bool) {
    let first = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    let text = String::from_utf8_lossy(first);
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    // Some files end with a zero.
    let text = match text.trim_matches('\0') {
        text if text.contains(is_odd) => text.replace(is_odd, "\u{fffd}"),
        text => text.to_owned(),
    };
    (text, first.len() == bytes.len())
}

/// Reads into `buffer` and says how much, at most one byte more than `BYTES_MAX`; `None` when there is no such file.
fn read_bounded(dir: &OwnedFd, file: &str, buffer: &mut Vec<u8>) -> nix::Result<Option<usize>> {
    // Without O_NONBLOCK a pipe would hold the reader up for ever.
    let fd = match open_below(dir, file, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
        Ok(fd) => fd,
        // ENODEV: the attribute belongs to a CPU or node that has just gone.
        Err(Errno::ENOENT | Errno::ENODEV) => return Ok(None),
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
        // A pipe without a writer is empty, too.
        let is_regular = || {
            let kind = fstat(&fd)?.st_mode & SFlag::S_IFMT.bits();
            nix::Result::Ok(kind == SFlag::S_IFREG.bits())
        };
        if len == 0 && !is_regular()? {
            return Err(Errno::ENXIO);
        }
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

#[cfg(test)]
mod tests;
