//! The directory with CMK's pools. One command at a time has it: the file `lock` in it is locked (flock) from [`Store::open`] until the value is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bayplan_config::cmk::{Pools, directory, is_stray};
use bayplan_types::CpuSet;
use nix::fcntl::{Flock, FlockArg};

use crate::import::read_directory;

/// A directory that no other command has at the moment.
pub(super) struct Store {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Store {
    /// One that is there.
    ///
    /// # Errors
    /// There is none, or another command has it for longer than `CMK_LOCK_TIMEOUT` (30 s).
    pub(super) fn open(dir: &Path) -> anyhow::Result<Store> {
        if !dir.join("pools").is_dir() {
            bail!(
                "{} is no directory of CMK; `bayplan cmk init --conf-dir={0}` makes it",
                dir.display()
            );
        }
        Store::lock(dir)
    }

    /// One that may be there.
    ///
    /// # Errors
    /// It cannot be made, or is another command's.
    pub(super) fn create(dir: &Path) -> anyhow::Result<Store> {
        let pools = dir.join("pools");
        fs::create_dir_all(&pools).with_context(|| format!("cannot make {}", pools.display()))?;
        Store::lock(dir)
    }

    fn lock(dir: &Path) -> anyhow::Result<Store> {
        let path = dir.join("lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let mut file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        let until = Instant::now() + lock_timeout()?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Store { dir: dir.to_owned(), _lock: lock }),
                Err((_, nix::errno::Errno::EWOULDBLOCK)) if until <= Instant::now() => {
                    bail!("{} is locked by another command (CMK_LOCK_TIMEOUT)", path.display())
                }
                Err((back, nix::errno::Errno::EWOULDBLOCK)) => file = back,
                Err((_, error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The pools.
    ///
    /// # Errors
    /// A file cannot be read, or belongs to no CPU list: its processes would count for nothing.
    pub(super) fn read(&self) -> anyhow::Result<Pools> {
        let entries = read_directory(&self.dir)?;
        let entries = || entries.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        if let Some(path) = entries().map(|(path, _)| path).find(|path| is_stray(path)) {
            bail!("{} belongs to no CPU list of a socket", self.dir.join(path).display());
        }
        Ok(Pools::from_directory(entries()))
    }

    /// Writes all files anew, each at once.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write(&self, pools: &Pools) -> anyhow::Result<()> {
        for (below, text) in directory(pools) {
            let path = self.dir.join(&below);
            if fs::read_to_string(&path).is_ok_and(|there| there.trim() == text) {
                continue;
            }
            let parent = path.parent().unwrap_or(&self.dir);
            let new = path.with_extension("new");
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&new, &text))
                .and_then(|()| fs::rename(&new, &path))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes the pools and the directory, unless it holds other files.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        let remove = || {
            fs::remove_dir_all(self.dir.join("pools"))?;
            fs::remove_file(self.dir.join("lock"))?;
            match fs::read_dir(&self.dir)?.next() {
                None => fs::remove_dir(&self.dir),
                Some(_) => Ok(()),
            }
        };
        remove().with_context(|| format!("cannot remove {}", self.dir.display()))
    }
}

fn lock_timeout() -> anyhow::Result<Duration> {
    let text = std::env::var("CMK_LOCK_TIMEOUT").unwrap_or_else(|_| "30".to_owned());
    let seconds = text.parse();
    let seconds =
        seconds.with_context(|| format!("CMK_LOCK_TIMEOUT is `{text}`, expected seconds"))?;
    Ok(Duration::from_secs(seconds))
}

/// The processes of this machine.
pub(super) struct Processes {
    /// `/proc`, or where the environment says that it is.
    dir: PathBuf,
}

impl Processes {
    /// # Errors
    /// `CMK_PROC_FS` names no directory: every process would seem to have ended.
    pub(super) fn find() -> anyhow::Result<Processes> {
        let named = std::env::var_os("CMK_PROC_FS");
        let dir = named.map_or_else(|| PathBuf::from("/proc"), PathBuf::from);
        if !dir.is_dir() {
            bail!("CMK_PROC_FS is `{}`, expected a directory with processes", dir.display());
        }
        Ok(Processes { dir })
    }

    /// Whether there is such a process.
    pub(super) fn is_running(&self, pid: u32) -> bool {
        self.dir.join(pid.to_string()).is_dir()
    }

    /// What the kernel lets a process run on; `None` if it does not run.
    pub(super) fn allowed_cpus(&self, pid: u32) -> Option<CpuSet> {
        let status = fs::read_to_string(self.dir.join(pid.to_string()).join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        line.trim().parse().ok()
    }
}
