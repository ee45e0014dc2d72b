//! A resctrl in memory that refuses what the kernel's refuses, in the kernel's words, and threads that come and go while they are moved. For
//! tests, here and in other crates.
//!
//! What it knows is from `Documentation/filesystems/resctrl.rst` and from what fs/resctrl answers: control groups use up CLOSIDs and RMIDs,
//! monitor groups RMIDs; masks are checked as in "Cache Bit Masks"; `info/last_cmd_status` has a word to each refusal.
//! `cpus` and `size`, which nothing here reads, are not there, and nothing is counted.

mod command;
mod show;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bayplan_enforcement::resctrl::{
    BandwidthInfo, BandwidthUnit, CacheInfo, CapacityBitmask, MonitorInfo, RESCTRL, ResctrlInfo,
};
use nix::errno::Errno;

use crate::fake_kernel::FakeKernel;
use crate::kernel::Kernel;

/// How a group shares what it has (`mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupMode {
    /// With all groups.
    #[default]
    Shareable,
    /// With no other group.
    Exclusive,
    /// With no other group, and it takes nothing any more.
    PseudoLocked,
}

/// What happens at the moment in which a thread's id is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEvent {
    /// It has just ended.
    Ends,
    /// It has just made this one.
    Makes(u32),
}

/// Lines of `schemata` by their names: the number of every cache or domain.
type Lines = BTreeMap<&'static str, BTreeMap<u32, u32>>;

#[derive(Clone, Debug, Default)]
struct Group {
    lines: Lines,
    mode: GroupMode,
    monitors: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Thread {
    cgroup: String,
    /// The control group; empty for the root.
    control: String,
    /// The monitor group in it, if any.
    monitor: Option<String>,
}

/// A machine with resctrl.
#[derive(Clone, Debug)]
pub struct FakeResctrl {
    /// All other files.
    pub rest: FakeKernel,
    /// Every change that was asked for, also those that were refused: `mkdir`, `rmdir` or the text, and the path.
    pub asked: Vec<(String, String)>,
    /// Every list of a group's threads that was read.
    pub listed: Vec<String>,
    info: ResctrlInfo,
    groups: BTreeMap<String, Group>,
    threads: BTreeMap<u32, Thread>,
    status: String,
    events: BTreeMap<u32, VecDeque<ThreadEvent>>,
    faults: BTreeMap<String, VecDeque<Errno>>,
    /// RMIDs of groups that have gone, which no group gets before their lines have left the cache.
    in_limbo: u32,
}

impl FakeResctrl {
    /// With the root's group only. Without caches and bandwidth it is not there at all.
    pub fn new(info: ResctrlInfo) -> FakeResctrl {
        let unit = info.mb.as_ref().map(|mb| mb.unit);
        let options = if unit == Some(BandwidthUnit::Megabytes) { "rw,mba_MBps" } else { "rw" };
        let mounts = format!("resctrl /{RESCTRL} resctrl {options},relatime 0 0\n");
        let mut fake = FakeResctrl {
            rest: FakeKernel::new(&[("proc/mounts", &mounts)]),
            asked: Vec::new(),
            listed: Vec::new(),
            groups: BTreeMap::new(),
            threads: BTreeMap::new(),
            status: String::new(),
            events: BTreeMap::new(),
            faults: BTreeMap::new(),
            in_limbo: 0,
            info,
        };
        let lines = fake.lines_of_a_new_group();
        fake.groups.insert(String::new(), Group { lines, ..Group::default() });
        fake
    }

    /// A Xeon with two sockets: code and data apart in 11 ways of L3, of which devices use two, and bandwidth in steps of ten.
    pub fn xeon() -> FakeResctrl {
        let l3 = cache(11, 2).map(|it| CacheInfo { is_split: true, shareable: 0x600, ..it });
        let (unit, ids) = (BandwidthUnit::Percent, vec![0, 1]);
        let mb = BandwidthInfo { unit, min: 10, step: 10, max: 100, ids };
        let features = vec!["llc_occupancy".to_owned(), "mbm_total_bytes".to_owned()];
        let monitor = Some(MonitorInfo { rmids: 176, features });
        FakeResctrl::new(ResctrlInfo { l2: None, l3, mb: Some(mb), closids: 8, monitor })
    }

    /// An EPYC with an L3 of 16 ways per core complex, gaps in masks, and bandwidth in eighths of a GB a second.
    pub fn epyc() -> FakeResctrl {
        let l3 = cache(16, 8).map(|it| CacheInfo { is_sparse: true, ..it });
        let (unit, ids) = (BandwidthUnit::EighthsOfGigabyte, (0..8).collect());
        let mb = BandwidthInfo { unit, min: 0, step: 1, max: 2048, ids };
        let monitor = Some(MonitorInfo { rmids: 256, features: Vec::new() });
        FakeResctrl::new(ResctrlInfo { l2: None, l3, mb: Some(mb), closids: 16, monitor })
    }

    /// So many L3 caches, of which all is monitored that can be.
    pub fn monitoring(caches: u32) -> FakeResctrl {
        let features = ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"];
        let features = features.map(str::to_owned).to_vec();
        let monitor = Some(MonitorInfo { rmids: 256, features });
        let l3 = cache(16, caches);
        FakeResctrl::new(ResctrlInfo { l2: None, l3, mb: None, closids: 4, monitor })
    }

    /// An Atom with L2 caches of 16 ways and four CLOSIDs, and without monitoring.
    pub fn with_l2() -> FakeResctrl {
        let l2 = cache(16, 4);
        FakeResctrl::new(ResctrlInfo { l2, closids: 4, ..ResctrlInfo::default() })
    }

    /// A machine without resctrl.
    pub fn nothing() -> FakeResctrl {
        FakeResctrl::new(ResctrlInfo::default())
    }

    /// The next change of this path fails: a write, or a directory that is made or removed.
    pub fn fail_next(&mut self, path: &str, errno: Errno) {
        self.faults.entry(path.to_owned()).or_default().push_back(errno);
    }

    /// A thread in a cgroup, in the root's group.
    pub fn add_thread(&mut self, id: u32, cgroup: &str) {
        let (cgroup, control) = (cgroup.to_owned(), String::new());
        self.threads.insert(id, Thread { cgroup, control, monitor: None });
    }

    /// A thread that another one has just made: it is where that is.
    pub fn fork_thread(&mut self, id: u32, by: u32) {
        if let Some(thread) = self.threads.get(&by).cloned() {
            self.threads.insert(id, thread);
        }
    }

    /// All others have ended.
    pub fn retain_threads(&mut self, is_there: impl Fn(u32) -> bool) {
        self.threads.retain(|id, _| is_there(*id));
    }

    /// What happens when this thread's id is written next.
    pub fn at_move(&mut self, id: u32, event: ThreadEvent) {
        self.events.entry(id).or_default().push_back(event);
    }

    /// As if the processor had so many.
    pub fn set_rmids(&mut self, rmids: u32) {
        if let Some(monitor) = &mut self.info.monitor {
            monitor.rmids = rmids;
        }
    }

    /// So many RMIDs of groups that have gone are not free again yet.
    pub fn set_in_limbo(&mut self, rmids: u32) {
        self.in_limbo = rmids;
    }

    /// Another program gives a group another mode.
    pub fn set_mode(&mut self, group: &str, mode: GroupMode) {
        if let Some(group) = self.groups.get_mut(group) {
            group.mode = mode;
        }
    }

    /// Where a thread is: the control group, and the monitor group in it.
    pub fn group_of(&self, thread: u32) -> Option<String> {
        let thread = self.threads.get(&thread)?;
        Some(match &thread.monitor {
            Some(monitor) => format!("{}/{monitor}", thread.control),
            None => thread.control.clone(),
        })
    }

    fn is_mounted(&self) -> bool {
        self.info.l2.is_some() || self.info.l3.is_some() || self.info.mb.is_some()
    }

    /// The caches of a line of `schemata`.
    fn cache_of(&self, line: &str) -> Option<&CacheInfo> {
        let (level, usage) = match line.get(..2)? {
            "L2" => (self.info.l2.as_ref()?, line.get(2..)?),
            "L3" => (self.info.l3.as_ref()?, line.get(2..)?),
            _ => return None,
        };
        let is_known = match usage {
            "" => !level.is_split,
            "CODE" | "DATA" => level.is_split,
            _ => false,
        };
        is_known.then_some(level)
    }

    /// Bits of a cache that one group has to itself, and the group.
    fn held(&self, line: &str, id: u32) -> impl Iterator<Item = (&str, GroupMode, u32)> {
        self.groups.iter().filter(|(_, it)| it.mode != GroupMode::Shareable).filter_map(
            move |(name, group)| {
                let bits = group.lines.get(line)?.get(&id)?;
                Some((name.as_str(), group.mode, *bits))
            },
        )
    }

    /// Everything that no group has alone.
    fn lines_of_a_new_group(&self) -> Lines {
        let mut lines = Lines::new();
        for name in ["L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA"] {
            if let Some(cache) = self.cache_of(name) {
                let free = |id: u32| {
                    let held = self.held(name, id).fold(0, |bits, (_, _, held)| bits | held);
                    cache.mask.bits() & !held
                };
                lines.insert(name, cache.caches.keys().map(|id| (*id, free(*id))).collect());
            }
        }
        if let Some(mb) = &self.info.mb {
            lines.insert("MB", mb.ids.iter().map(|id| (*id, mb.max)).collect());
        }
        lines
    }

    fn fault(&mut self, path: &str) -> Result<(), Errno> {
        let errno = self.faults.get_mut(path).and_then(VecDeque::pop_front);
        errno.map_or(Ok(()), Err)
    }

    fn refuse<T>(&mut self, errno: Errno, words: impl Into<String>) -> Result<T, Errno> {
        self.status.push_str(&words.into());
        self.status.push('\n');
        Err(errno)
    }
}

/// Caches of so many ways; none without ways.
fn cache(width: u32, caches: u32) -> Option<CacheInfo> {
    Some(CacheInfo {
        is_split: false,
        mask: CapacityBitmask::block(0, width)?,
        bits_min: 1,
        is_sparse: false,
        shareable: 0,
        caches: (0..caches).map(|id| (id, 0)).collect(),
    })
}

/// The path below resctrl, or `None` for any other.
fn below(path: &str) -> Option<&str> {
    path.strip_prefix(RESCTRL).map(|rest| rest.trim_start_matches('/'))
}

impl Kernel for FakeResctrl {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        if let Some(cgroup) = path.strip_suffix("/cgroup.threads") {
            let threads = self.threads.iter().filter(|(_, thread)| thread.cgroup == cgroup);
            let lines: String = threads.map(|(id, _)| format!("{id}\n")).collect();
            if !lines.is_empty() {
                return Ok(lines);
            }
        }
        if path.ends_with("/tasks") {
            self.listed.push(path.to_owned());
        }
        match below(path) {
            Some(_) if !self.is_mounted() => Err(Errno::ENOENT),
            Some(path) => self.show(path),
            None => self.rest.read(path),
        }
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let Some(inner) = below(path).filter(|_| self.is_mounted()) else {
            return self.rest.write(path, text);
        };
        self.asked.push((text.to_owned(), path.to_owned()));
        self.fault(path)?;
        self.status.clear();
        match inner.rsplit_once('/').unwrap_or(("", inner)) {
            (group, "schemata") => self.set_schemata(group, text),
            (group, "tasks") => self.move_threads(group, text),
            _ => Err(Errno::EACCES),
        }
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        match below(dir) {
            Some(_) if !self.is_mounted() => Err(Errno::ENOENT),
            Some(dir) => self.names(dir),
            None => self.rest.list(dir),
        }
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        let Some(inner) = below(dir) else { return self.rest.make_dir(dir) };
        self.asked.push(("mkdir".to_owned(), dir.to_owned()));
        self.fault(dir)?;
        self.status.clear();
        self.make_group(inner)
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        let Some(inner) = below(dir) else { return self.rest.remove_dir(dir) };
        self.asked.push(("rmdir".to_owned(), dir.to_owned()));
        self.fault(dir)?;
        self.status.clear();
        self.remove_group(inner)
    }
}

#[cfg(test)]
mod tests;
