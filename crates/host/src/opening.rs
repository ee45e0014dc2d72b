//! Opening files below a directory, from which no link leads out: with the links inside of it followed, as after `chroot`, or with none followed at all.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::Mode;

/// Links on the way to one file; as many as Linux follows (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// A directory on the way to a file.
const ON_THE_WAY: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Opens a file name by name.
type Walk = fn(BorrowedFd<'_>, &str, OFlag) -> Result<OwnedFd, Errno>;

/// With `openat2(2)`, or where that is not known by `walk`, which does the same.
fn open_resolved(
    dir: BorrowedFd<'_>,
    path: &str,
    flags: OFlag,
    resolve: ResolveFlag,
    walk: Walk,
) -> Result<OwnedFd, Errno> {
    match openat2(dir, path, OpenHow::new().flags(flags).resolve(resolve)) {
        // Before Linux 5.6, and where a filter or an emulator of system calls does not know it.
        Err(Errno::ENOSYS | Errno::EPERM) => walk(dir, path, flags),
        opened => opened,
    }
}

/// Opens what is below a directory. No link is followed, not on the way either.
pub(crate) fn open_below(dir: &OwnedFd, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    if !path.contains('/') {
        return openat(dir, path, flags, Mode::empty());
    }
    // Without links and without `..`, which no name here has, nothing leads out.
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS;
    open_resolved(dir.as_fd(), path, flags, resolve, walk_below)
}

/// The same, directory by directory.
fn walk_below(dir: BorrowedFd<'_>, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    match path.split_once('/') {
        None => openat(dir, path, flags, Mode::empty()),
        Some((first, rest)) => {
            walk_below(openat(dir, first, ON_THE_WAY, Mode::empty())?.as_fd(), rest, flags)
        }
    }
}

/// Opens `path`, which need not begin with a slash, as if `root` were the root of the machine: a link that begins with a slash begins there, and nothing is above it.
///
/// # Errors
/// Those of `openat2(2)` with `RESOLVE_IN_ROOT`.
pub(crate) fn open_in_root(
    root: BorrowedFd<'_>,
    path: &str,
    flags: OFlag,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    open_resolved(root, path, flags | OFlag::O_CLOEXEC, resolve, walk_in_root)
}

/// The same, name by name. The links of `/proc` that are no paths count as the paths that they read as.
fn walk_in_root(root: BorrowedFd<'_>, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    // The next one last.
    let mut names = names_of(path.as_bytes());
    // Directories that are open, from below the root to where it is now.
    let mut dirs: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(name) = names.pop() {
        let dir = dirs.last().map_or(root, AsFd::as_fd);
        match name.as_bytes() {
            b"" | b"." => continue,
            b".." => {
                dirs.pop();
                continue;
            }
            _ => {}
        }
        match readlinkat(dir, name.as_os_str()) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                if target.as_bytes().starts_with(b"/") {
                    dirs.clear();
                }
                names.extend(names_of(target.as_bytes()));
            }
            Err(Errno::EINVAL) if names.is_empty() => {
                return openat(dir, name.as_os_str(), flags | OFlag::O_NOFOLLOW, Mode::empty());
            }
            Err(Errno::EINVAL) => {
                let next = openat(dir, name.as_os_str(), ON_THE_WAY, Mode::empty())?;
                dirs.push(next);
            }
            Err(error) => return Err(error),
        }
    }
    openat(dirs.last().map_or(root, AsFd::as_fd), ".", flags, Mode::empty())
}

/// The names of a path, the first one last.
fn names_of(path: &[u8]) -> Vec<OsString> {
    path.split(|byte| *byte == b'/').rev().map(|it| OsString::from_vec(it.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Files, and links that lead to them or out of the root. A loop of links, and a chain of as many as are followed, and of one more.
    fn machine(root: &Path) {
        fs::create_dir_all(root.join("sys/a/b")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        for (path, text) in [("sys/a/b/file", "below"), ("etc/hostname", "inside")] {
            fs::write(root.join(path), text).unwrap();
        }
        for (link, target) in [
            ("sys/far", "/etc"),
            ("sys/up", "../../../../etc"),
            ("sys/near", "a/b"),
            ("sys/a/last", "b/file"),
            ("sys/broken", "nothing"),
            ("sys/loop", "loop"),
            ("sys/dots", "./a/../a//b/."),
            ("l0", "etc/hostname"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for number in 1..=LINKS_MAX {
            symlink(format!("l{}", number - 1), root.join(format!("l{number}"))).unwrap();
        }
    }

    fn text(opened: Result<OwnedFd, Errno>) -> Result<String, Errno> {
        let mut text = String::new();
        let read = File::from(opened?).read_to_string(&mut text);
        read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))?;
        Ok(text)
    }

    #[test]
    fn without_openat2_the_same_files_are_opened_in_the_root() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let root = File::open(dir.path()).unwrap();
        for (path, expected) in [
            ("etc/hostname", Ok("inside")),
            ("/etc/hostname", Ok("inside")),
            ("../../etc/hostname", Ok("inside")),
            ("sys/far/hostname", Ok("inside")),
            ("sys/far/../etc/hostname", Ok("inside")),
            ("sys/up/hostname", Ok("inside")),
            ("sys/near/file", Ok("below")),
            ("sys/near/../last", Ok("below")),
            ("sys//a/./b/file", Ok("below")),
            ("sys/dots/file", Ok("below")),
            ("l39", Ok("inside")),
            ("l40", Err(Errno::ELOOP)),
            ("sys/loop", Err(Errno::ELOOP)),
            ("sys/broken", Err(Errno::ENOENT)),
            ("sys/none/..", Err(Errno::ENOENT)),
            ("", Err(Errno::ENOENT)),
            ("etc/hostname/", Err(Errno::ENOTDIR)),
            ("etc/hostname/x", Err(Errno::ENOTDIR)),
            ("sys/a", Err(Errno::EISDIR)),
            ("sys/a/", Err(Errno::EISDIR)),
            ("/", Err(Errno::EISDIR)),
            ("..", Err(Errno::EISDIR)),
        ] {
            let expected = expected.map(str::to_owned);
            let walked = walk_in_root(root.as_fd(), path, OFlag::O_RDONLY);
            assert_eq!(text(walked), expected, "{path}, name by name");
            let opened = open_in_root(root.as_fd(), path, OFlag::O_RDONLY);
            assert_eq!(text(opened), expected, "{path}");
        }
    }

    #[test]
    fn without_openat2_the_same_is_opened_and_the_same_refused_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let sys = OwnedFd::from(File::open(dir.path().join("sys")).unwrap());
        for (path, is_opened) in [
            ("a/b/file", true),
            ("a/b", true),
            ("a", true),
            ("far/hostname", false),
            ("near/file", false),
            ("near", false),
            ("a/last", false),
            ("a/b/none", false),
            ("none/file", false),
            ("a/b/file/none", false),
        ] {
            let opened = open_below(&sys, path, OFlag::O_RDONLY).is_ok();
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
            let walked = walk_below(sys.as_fd(), path, flags).is_ok();
            assert_eq!((opened, walked), (is_opened, is_opened), "{path}");
        }
    }
}
