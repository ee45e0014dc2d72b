//! What can happen to files.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proptest::prelude::*;

/// One path, and what happens to it.
#[derive(Clone, Debug)]
pub(crate) struct Harm {
    /// Which of the paths that are there, in order.
    at: prop::sample::Index,
    /// How many of its parents are meant instead.
    up: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gone,
    /// So many bytes are left.
    Truncated(usize),
    Garbage(&'static [u8]),
    LinkToItself,
    /// To the same path in a machine outside the root.
    LinkOutside,
    /// The same as a relative path.
    LinkUp,
    LinkToRoot,
    /// To `/` of this machine.
    LinkToSlash,
    Fifo,
    Unreadable,
    Dir,
    EmptyFile,
}

const GARBAGE: [&[u8]; 8] = [
    b"\n",
    b"-1\n",
    b"0-65535\n",
    b"4294967296\n",
    b"\xff\xfe\x00garbage",
    b"0,0,0-,-,\n",
    b"0-3 \x1b[31m, 5\r\n",
    &[b'9'; 70_000],
];

/// Any harm. Whole directories are harmed less often than files.
pub(crate) fn harms() -> impl Strategy<Value = Harm> {
    let kinds = prop_oneof![
        Just(Kind::Gone),
        (0_usize..4).prop_map(Kind::Truncated),
        prop::sample::select(&GARBAGE).prop_map(Kind::Garbage),
        Just(Kind::LinkToItself),
        Just(Kind::LinkOutside),
        Just(Kind::LinkUp),
        Just(Kind::LinkToRoot),
        Just(Kind::LinkToSlash),
        Just(Kind::Fifo),
        Just(Kind::Unreadable),
        Just(Kind::Dir),
        Just(Kind::EmptyFile),
    ];
    let up = prop_oneof![4 => Just(0_usize), 1 => 1_usize..4];
    (any::<prop::sample::Index>(), up, kinds).prop_map(|(at, up, kind)| Harm { at, up, kind })
}

impl Harm {
    pub(crate) fn apply(&self, root: &Path, outside: &Path) {
        let mut paths = Vec::new();
        list(root, &mut paths);
        if paths.is_empty() {
            return;
        }
        let path = self.at.get(&paths).ancestors().nth(self.up).unwrap();
        let Ok(below) = path.strip_prefix(root) else { return };
        if !below.as_os_str().is_empty() {
            Harm::put(path, self.kind, &outside.join(below));
        }
    }

    /// Puts something else at a path. `other` is the same path in another machine.
    pub(crate) fn put(path: &Path, kind: Kind, other: &Path) {
        match kind {
            Kind::Truncated(len) => {
                // A pipe would block, a link lead elsewhere.
                if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                    // One that was made unreadable stays as it is for all but root.
                    let Ok(bytes) = fs::read(path) else { return };
                    fs::write(path, bytes.get(..len).unwrap_or(&bytes)).unwrap();
                }
                return;
            }
            Kind::Unreadable => {
                if !path.is_symlink() {
                    fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
                }
                return;
            }
            _ => remove(path),
        }
        match kind {
            Kind::Garbage(bytes) => fs::write(path, bytes).unwrap(),
            Kind::LinkToItself => symlink(path, path).unwrap(),
            Kind::LinkOutside => symlink(other, path).unwrap(),
            Kind::LinkUp => symlink(up_to(path, other), path).unwrap(),
            Kind::LinkToRoot => symlink(root_of(path, other), path).unwrap(),
            Kind::LinkToSlash => symlink("/", path).unwrap(),
            Kind::Fifo => mkfifo(path, Mode::S_IRWXU).unwrap(),
            Kind::Dir => fs::create_dir(path).unwrap(),
            Kind::EmptyFile => fs::write(path, "").unwrap(),
            Kind::Gone | Kind::Truncated(_) | Kind::Unreadable => {}
        }
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            make_readable(path).unwrap();
            fs::remove_dir_all(path).unwrap();
        }
        Ok(_) => fs::remove_file(path).unwrap(),
        // A parent has become something else.
        Err(_) => {}
    }
}

/// Only root can remove what is below a directory that cannot be read.
pub(crate) fn make_readable(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_readable(&entry.path())?;
        }
    }
    Ok(())
}

/// What both paths begin with.
fn shared(path: &Path, other: &Path) -> PathBuf {
    path.components().zip(other.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

/// The way from a path to the other one.
fn up_to(path: &Path, other: &Path) -> PathBuf {
    let shared = shared(path, other);
    let ups = path.strip_prefix(&shared).unwrap().components().count() - 1;
    let down = other.strip_prefix(&shared).unwrap();
    (0..ups).map(|_| Path::new("..")).collect::<PathBuf>().join(down)
}

/// The root that a path is in.
fn root_of(path: &Path, other: &Path) -> PathBuf {
    let shared = shared(path, other);
    let name = path.strip_prefix(&shared).unwrap().components().next().unwrap();
    shared.join(name)
}

/// Files, links and empty directories, in order.
fn list(dir: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    for path in found {
        let before = paths.len();
        if path.is_dir() && !path.is_symlink() {
            list(&path, paths);
        }
        if paths.len() == before {
            paths.push(path);
        }
    }
}
