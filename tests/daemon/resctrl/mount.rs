//! The model of resctrl as a file system (FUSE), so that the daemon, a process, makes real system calls and gets the kernel's answers. In: a [`FakeResctrl`].
//! Out: the same below `sys/fs/resctrl` of an emulated root, and what is asked of it, one by one where a test wants that.
//!
//! The kernel keeps nothing of it: names and attributes are valid for no time, and files bypass its cache (`FOPEN_DIRECT_IO`), so one `write(2)` is
//! one request, and its errno is the writer's (Documentation/filesystems/fuse/fuse-io.rst, "direct-io"). Threads are the machine's own: one that has
//! ended is in no group any more.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bayplan_enforcement::resctrl::RESCTRL;
use bayplan_host::fake_resctrl::FakeResctrl;
use bayplan_host::kernel::Kernel as _;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use tokio::sync::mpsc;

use crate::node::soon;

/// What the table of mounts has as the source.
const SOURCE: &str = "bayplan-tests-resctrl";
const NO_TIME: Duration = Duration::ZERO;

/// A mounted model; unmounted when dropped. Must be dropped before its users are waited for.
pub(super) struct ResctrlMount {
    path: PathBuf,
    model: Arc<Mutex<FakeResctrl>>,
    gate: Arc<Mutex<Gate>>,
    held: mpsc::UnboundedReceiver<Held>,
    _session: BackgroundSession,
}

/// Which change waits for the test.
struct Gate {
    /// The path of the next one.
    path: Option<String>,
    held: mpsc::UnboundedSender<Held>,
}

/// A change that was asked for; the caller waits. An answer that never comes is EIO.
pub(super) struct Held {
    change: Change,
    reply: Reply,
    files: Arc<Files>,
}

enum Change {
    MakeDir(String),
    RemoveDir(String),
    Write(String, String),
}

enum Reply {
    Made(ReplyEntry),
    Removed(ReplyEmpty),
    Written(ReplyWrite),
}

impl ResctrlMount {
    /// Mounts it below this root, and writes the root's other files, too.
    pub(super) fn new(root: &Path, model: FakeResctrl) -> ResctrlMount {
        remove_what_was_left();
        for (file, text) in &model.rest.files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let path = root.join(RESCTRL);
        fs::create_dir_all(&path).unwrap();
        let model = Arc::new(Mutex::new(model));
        let (sender, held) = mpsc::unbounded_channel();
        let gate = Arc::new(Mutex::new(Gate { path: None, held: sender }));
        let inodes = Mutex::new(Inodes::default());
        let files = Arc::new(Files { model: Arc::clone(&model), inodes, opened: Mutex::default() });
        let server = Server { files, gate: Arc::clone(&gate) };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(SOURCE.to_owned()), MountOption::NoExec];
        let session = fuser::spawn_mount(server, &path, &config).unwrap_or_else(|error| {
            panic!(
                "cannot mount a FUSE file system: {error}. These tests need root and /dev/fuse: `modprobe fuse`, \
                 and in a container `--device /dev/fuse --cap-add SYS_ADMIN`; `cargo xtask setup` looks for it"
            )
        });
        ResctrlMount { path, model, gate, held, _session: session }
    }

    /// A file or directory of it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What the kernel would know. The mount must not be waited for while this is locked.
    pub(super) fn model(&self) -> MutexGuard<'_, FakeResctrl> {
        locked(&self.model)
    }

    /// The next change of this path waits for [`Self::held`]: a write, or a directory that is made or removed.
    pub(super) fn hold(&self, name: &str) {
        locked(&self.gate).path = Some(format!("{RESCTRL}/{name}"));
    }

    /// The change that waits.
    pub(super) async fn held(&mut self) -> Held {
        soon(self.held.recv()).await.unwrap()
    }
}

impl Drop for ResctrlMount {
    /// A caller that waits for an answer gets one: else the daemon could not be ended, not even with SIGKILL.
    fn drop(&mut self) {
        locked(&self.gate).path = None;
        self.held.close();
        while self.held.try_recv().is_ok() {}
        // Also when a process has a file open.
        let _was_unmounted = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

/// Mounts of tests that were killed: they are not served any more.
fn remove_what_was_left() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        if let (Some(SOURCE), Some(path)) = (words.next(), words.next()) {
            let error = fs::metadata(path).err().map(|error| error.kind());
            if error == Some(ErrorKind::NotConnected) {
                let _somebody_else_was_faster = umount2(path, MntFlags::MNT_DETACH);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// What is asked for: `mkdir`, `rmdir` or the text.
    pub(super) fn text(&self) -> &str {
        match &self.change {
            Change::MakeDir(_) => "mkdir",
            Change::RemoveDir(_) => "rmdir",
            Change::Write(_, text) => text,
        }
    }

    /// It happens now, or is refused as it would be at any time.
    pub(super) fn carry_out(self) {
        let mut model = self.files.model();
        let done = match &self.change {
            Change::MakeDir(path) => model.make_dir(path),
            Change::RemoveDir(path) => model.remove_dir(path),
            Change::Write(path, text) => model.write(path, text),
        };
        drop(model);
        self.answer(done);
    }

    /// It does not happen.
    pub(super) fn refuse(self, errno: Errno) {
        self.answer(Err(errno));
    }

    fn answer(self, done: Result<(), Errno>) {
        let Held { change, reply, files } = self;
        match (reply, change, done.map_err(foreign)) {
            (Reply::Made(reply), Change::MakeDir(path), Ok(())) => {
                let ino = files.inodes().number_of(&path);
                reply.entry(&NO_TIME, &attributes(ino, FileType::Directory), Generation(0));
            }
            (Reply::Removed(reply), Change::RemoveDir(path), Ok(())) => {
                files.inodes().forget(&path);
                reply.ok();
            }
            (Reply::Written(reply), Change::Write(_, text), Ok(())) => {
                reply.written(text.len().try_into().unwrap());
            }
            (Reply::Made(reply), _, Err(errno)) => reply.error(errno),
            (Reply::Removed(reply), _, Err(errno)) => reply.error(errno),
            (Reply::Written(reply), _, Err(errno)) => reply.error(errno),
            (reply, ..) => drop(reply),
        }
    }
}

fn foreign(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

/// What answers the kernel's requests.
struct Server {
    files: Arc<Files>,
    gate: Arc<Mutex<Gate>>,
}

/// The model, and the kernel's names for what is in it.
struct Files {
    model: Arc<Mutex<FakeResctrl>>,
    inodes: Mutex<Inodes>,
    /// The texts of open files, as they were when they were read from their beginning.
    opened: Mutex<BTreeMap<u64, Vec<u8>>>,
}

/// Paths by their numbers, which begin with 1, that of the mounted directory. A directory that is made once more gets another one.
struct Inodes {
    paths: Vec<String>,
    numbers: BTreeMap<String, u64>,
}

impl Default for Inodes {
    fn default() -> Inodes {
        let mut inodes = Inodes { paths: Vec::new(), numbers: BTreeMap::new() };
        inodes.number_of(RESCTRL);
        inodes
    }
}

impl Inodes {
    fn number_of(&mut self, path: &str) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        self.paths.push(path.to_owned());
        let number = self.paths.len() as u64;
        self.numbers.insert(path.to_owned(), number);
        number
    }

    fn path_of(&self, ino: INodeNo) -> Option<String> {
        let index = usize::try_from(ino.0).ok()?.checked_sub(1)?;
        let path = self.paths.get(index)?;
        (self.numbers.get(path) == Some(&ino.0)).then(|| path.clone())
    }

    fn forget(&mut self, dir: &str) {
        let inner = format!("{dir}/");
        self.numbers.retain(|path, _| path != dir && !path.starts_with(&inner));
    }
}

impl Files {
    /// A thread that has ended since the last look is gone.
    fn model(&self) -> MutexGuard<'_, FakeResctrl> {
        let mut model = locked(&self.model);
        model.retain_threads(|id| Path::new(&format!("/proc/{id}")).exists());
        model
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        locked(&self.inodes)
    }

    fn path_of(&self, ino: INodeNo) -> Result<String, fuser::Errno> {
        self.inodes().path_of(ino).ok_or(fuser::Errno::ENOENT)
    }

    fn path_in(&self, dir: INodeNo, name: &OsStr) -> Result<String, fuser::Errno> {
        let name = name.to_str().ok_or(fuser::Errno::EINVAL)?;
        Ok(format!("{}/{name}", self.path_of(dir)?))
    }

    fn kind_of(&self, path: &str) -> Result<FileType, fuser::Errno> {
        match self.model().list(path) {
            Ok(_) => Ok(FileType::Directory),
            Err(Errno::ENOTDIR) => Ok(FileType::RegularFile),
            Err(errno) => Err(foreign(errno)),
        }
    }

    fn attributes_of(&self, path: &str) -> Result<FileAttr, fuser::Errno> {
        let kind = self.kind_of(path)?;
        Ok(attributes(self.inodes().number_of(path), kind))
    }

    /// The rest of a file from an offset on; at its beginning it is read anew, as sequence files of the kernel are.
    fn rest_of(&self, ino: INodeNo, fh: u64, offset: u64) -> Result<Vec<u8>, fuser::Errno> {
        let path = self.path_of(ino)?;
        let mut opened = locked(&self.opened);
        if offset == 0 {
            let text = self.model().read(&path).map_err(foreign)?;
            opened.insert(fh, text.into_bytes());
        }
        let text = opened.get(&fh).map(Vec::as_slice).unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        Ok(text[from..].to_vec())
    }
}

fn attributes(ino: u64, kind: FileType) -> FileAttr {
    let (perm, nlink) = if kind == FileType::Directory { (0o755, 2) } else { (0o644, 1) };
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Server {
    /// Now, or when the test says so.
    fn change(&self, change: Change, reply: Reply) {
        let held = Held { change, reply, files: Arc::clone(&self.files) };
        let mut gate = locked(&self.gate);
        let (Change::MakeDir(path) | Change::RemoveDir(path) | Change::Write(path, _)) =
            &held.change;
        if gate.path.as_ref() == Some(path) {
            gate.path = None;
            // There may be no listener any more.
            let _dropped = gate.held.send(held);
            return;
        }
        drop(gate);
        held.carry_out();
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.files.path_in(parent, name);
        match found.and_then(|path| self.files.attributes_of(&path)) {
            Ok(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.files.path_of(ino);
        match found.and_then(|path| self.files.attributes_of(&path)) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    /// `O_TRUNC` changes nothing of a kernel file.
    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(request, ino, fh, reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.files.path_in(parent, name) {
            Ok(path) => self.change(Change::MakeDir(path), Reply::Made(reply)),
            Err(errno) => reply.error(errno),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.files.path_in(parent, name) {
            Ok(path) => self.change(Change::RemoveDir(path), Reply::Removed(reply)),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: fuser::ReplyOpen) {
        // No two requests have the same number.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(request.unique().0), flags);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.files.rest_of(ino, fh.0, offset) {
            Ok(rest) => reply.data(&rest[..rest.len().min(size as usize)]),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let text = String::from_utf8(data.to_vec()).map_err(|_| fuser::Errno::EINVAL);
        match self.files.path_of(ino).and_then(|path| Ok((path, text?))) {
            Ok((path, text)) => self.change(Change::Write(path, text), Reply::Written(reply)),
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        locked(&self.files.opened).remove(&fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = self.files.path_of(ino).and_then(|dir| {
            let names = self.files.model().list(&dir).map_err(foreign)?;
            Ok(names.into_iter().map(move |name| (format!("{dir}/{name}"), name)))
        });
        let names = match names {
            Ok(names) => names,
            Err(errno) => return reply.error(errno),
        };
        for (number, (path, name)) in (1..).zip(names).skip_while(|(number, _)| *number <= offset) {
            // Removed since it was listed.
            let Ok(kind) = self.files.kind_of(&path) else { continue };
            let entry = INodeNo(self.files.inodes().number_of(&path));
            if reply.add(entry, number, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
