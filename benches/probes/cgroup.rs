//! Cgroups that go with their values.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bayplan_probes::CgroupId;

/// A cgroup (version 2) below the root of the hierarchy.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    pub(crate) fn new() -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bayplan-bench-{}-{number}", std::process::id());
        let path = mount().join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Cgroup(path)
    }

    pub(crate) fn id(&self) -> CgroupId {
        CgroupId(fs::metadata(&self.0).unwrap().ino())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Moves this process into a cgroup.
pub(crate) fn enter(cgroup: &str) {
    fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
}

fn mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|words| words[2] == "cgroup2");
    PathBuf::from(mount.expect("cgroup v2 is not mounted anywhere, which the probes need")[1])
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended is in it for a moment longer.
        for _ in 0..500 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{} is left behind", self.0.display());
    }
}
