//! What the machine's resctrl offers, and the groups that are in it. In: kernel files. Out: [`ResctrlInfo`] and [`ObservedGroups`]
//! (`Documentation/filesystems/resctrl.rst`, "Info directory", "Resource alloc and monitor groups").
//!
//! What is missing or says nothing usable is told, and its resource is not there: a guess would be written to the processor.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use bayplan_enforcement::resctrl::{
    BandwidthInfo, BandwidthUnit, CacheInfo, CapacityBitmask, MonitorInfo, ObservedGroups, RESCTRL,
    ResctrlInfo,
};
use nix::errno::Errno;

use crate::kernel::Kernel;

/// Whether there is something to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResctrlState {
    /// The processor or the kernel has no resctrl.
    Absent,
    /// The kernel has it, but it is not mounted.
    NotMounted,
    /// It is mounted.
    Mounted(Box<Resctrl>),
}

/// A mounted resctrl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resctrl {
    /// What it offers.
    pub info: ResctrlInfo,
    /// What is in it.
    pub groups: ObservedGroups,
    /// Files that say nothing usable, a sentence each.
    pub odd: Vec<String>,
}

/// Reads everything that classes and groups depend on.
///
/// # Errors
/// The kernel's answer where groups cannot be listed: which groups are there must be known before anything is made or removed.
pub fn read_resctrl(kernel: &mut dyn Kernel) -> Result<ResctrlState, Errno> {
    if kernel.list(&format!("{RESCTRL}/info")).is_err() {
        let known = kernel.read("proc/filesystems").unwrap_or_default();
        let is_known = known.split_whitespace().any(|word| word == "resctrl");
        return Ok(if is_known { ResctrlState::NotMounted } else { ResctrlState::Absent });
    }
    let mut reader = Reader { kernel, odd: Vec::new() };
    let info = reader.info();
    let groups = reader.groups()?;
    let odd = reader.odd;
    Ok(ResctrlState::Mounted(Box::new(Resctrl { info, groups, odd })))
}

struct Reader<'a> {
    kernel: &'a mut dyn Kernel,
    odd: Vec<String>,
}

/// A line of the root's `schemata`: ids and values as they stand there.
type Line = BTreeMap<u32, String>;

impl Reader<'_> {
    fn info(&mut self) -> ResctrlInfo {
        let root = self.text("schemata").unwrap_or_default();
        let lines: BTreeMap<&str, Line> = root.lines().filter_map(parse_line).collect();
        let mut closids = Vec::new();
        let mut cache = |reader: &mut Self, names: [&str; 3]| {
            let is_split = lines.contains_key(names[1]);
            let name = if is_split { names[1] } else { names[0] };
            let line = lines.get(name)?;
            closids.extend(reader.value::<u32>(name, "num_closids"));
            let info = reader.cache(name, line)?;
            // Another group may have the code to itself, or the data.
            let other = is_split.then(|| reader.taken(names[2]));
            let mut info = CacheInfo { is_split, ..info };
            for (id, bits) in other.into_iter().flatten() {
                *info.caches.entry(id).or_default() |= bits;
            }
            Some(info)
        };
        let l2 = cache(self, ["L2", "L2CODE", "L2DATA"]);
        let l3 = cache(self, ["L3", "L3CODE", "L3DATA"]);
        let mb = lines.get("MB").and_then(|line| self.bandwidth(line));
        closids.extend(mb.as_ref().and_then(|_| self.value::<u32>("MB", "num_closids")));
        let closids = closids.into_iter().min().unwrap_or(0);
        ResctrlInfo { l2, l3, mb, closids, monitor: self.monitor() }
    }

    fn cache(&mut self, name: &str, line: &Line) -> Option<CacheInfo> {
        let mask = self.parsed(name, "cbm_mask", |text| CapacityBitmask::new(hex(text)?))?;
        let bits_min = self.value(name, "min_cbm_bits")?;
        let taken = self.taken(name);
        let caches = line.keys().map(|id| (*id, taken.get(id).copied().unwrap_or(0)));
        Some(CacheInfo {
            is_split: false,
            mask,
            bits_min,
            // Linux 6.7 and later say so; before, AMD's processors took such masks and Intel's did not. Bits side by side are right for both.
            is_sparse: self.optional(name, "sparse_masks").as_deref() == Some("1"),
            shareable: self.parsed(name, "shareable_bits", hex).unwrap_or(0),
            caches: caches.collect(),
        })
    }

    /// Bits of each cache that a group has to itself.
    fn taken(&mut self, name: &str) -> BTreeMap<u32, u32> {
        let usage = self.optional(name, "bit_usage").unwrap_or_default();
        let caches = usage.split(';').filter_map(|cache| cache.trim().split_once('='));
        let bits = |usage: &str| {
            let set = |bits: u32, usage| bits << 1 | u32::from(matches!(usage, 'E' | 'P'));
            usage.trim().chars().fold(0, set)
        };
        caches.filter_map(|(id, usage)| Some((id.trim().parse().ok()?, bits(usage)))).collect()
    }

    fn bandwidth(&mut self, line: &Line) -> Option<BandwidthInfo> {
        /// What AMD's processors have shown so far where nothing is bounded.
        const EIGHTHS_MAX: u32 = 2048;
        let min = self.value("MB", "min_bandwidth")?;
        let step = self.value("MB", "bandwidth_gran")?;
        let is_linear = self.optional("MB", "delay_linear").as_deref() != Some("0");
        let mounts = self.kernel.read("proc/mounts").unwrap_or_default();
        let (unit, max) = if has_option(&mounts, "mba_MBps") {
            (BandwidthUnit::Megabytes, u32::MAX)
        } else if is_linear {
            (BandwidthUnit::Percent, 100)
        } else {
            let largest = line.values().filter_map(|value| value.parse().ok()).max();
            (BandwidthUnit::EighthsOfGigabyte, largest.unwrap_or(0).max(EIGHTHS_MAX))
        };
        Some(BandwidthInfo { unit, min, step, max, ids: line.keys().copied().collect() })
    }

    fn monitor(&mut self) -> Option<MonitorInfo> {
        let features = self.optional("L3_MON", "mon_features")?;
        let rmids = self.value("L3_MON", "num_rmids")?;
        let features = features.split_whitespace().map(str::to_owned).collect();
        Some(MonitorInfo { rmids, features })
    }

    fn groups(&mut self) -> Result<ObservedGroups, Errno> {
        const OWN: [&str; 3] = ["info", "mon_data", "mon_groups"];
        let root = self.monitors(RESCTRL)?;
        let mut controls = BTreeMap::new();
        for name in self.kernel.list(RESCTRL)? {
            let dir = format!("{RESCTRL}/{name}");
            // Only groups have tasks of their own; files are no directories.
            if OWN.contains(&name.as_str()) || !self.has_tasks(&dir) {
                continue;
            }
            let monitors = match self.monitors(&dir) {
                // Removed since it was listed.
                Err(Errno::ENOENT | Errno::ENODEV) => continue,
                monitors => monitors?,
            };
            controls.insert(name, monitors);
        }
        Ok(ObservedGroups { controls, root })
    }

    fn has_tasks(&mut self, dir: &str) -> bool {
        self.kernel.list(dir).is_ok_and(|names| names.iter().any(|name| name == "tasks"))
    }

    fn monitors(&mut self, dir: &str) -> Result<BTreeSet<String>, Errno> {
        match self.kernel.list(&format!("{dir}/mon_groups")) {
            Ok(names) => Ok(names.into_iter().collect()),
            // No monitoring here, or a pseudo-locked group.
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(BTreeSet::new()),
            Err(errno) => Err(errno),
        }
    }

    fn text(&mut self, path: &str) -> Option<String> {
        match self.kernel.read(&format!("{RESCTRL}/{path}")) {
            Ok(text) => Some(text),
            Err(errno) => {
                self.odd.push(format!("/{RESCTRL}/{path} cannot be read: {}", errno.desc()));
                None
            }
        }
    }

    /// A file that older kernels lack.
    fn optional(&mut self, name: &str, file: &str) -> Option<String> {
        let text = self.kernel.read(&format!("{RESCTRL}/info/{name}/{file}")).ok()?;
        Some(text.trim().to_owned())
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        file: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let path = format!("info/{name}/{file}");
        let text = self.text(&path)?;
        let value = parse(text.trim());
        if value.is_none() {
            self.odd
                .push(format!("/{RESCTRL}/{path} says {:?}, so {name} is left alone", text.trim()));
        }
        value
    }

    fn value<T: FromStr>(&mut self, name: &str, file: &str) -> Option<T> {
        self.parsed(name, file, |text| text.parse().ok())
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// `    L3:0=fffff;1=fffff`
fn parse_line(line: &str) -> Option<(&str, Line)> {
    let (name, values) = line.split_once(':')?;
    let values = values.split(';').filter_map(|value| {
        let (id, value) = value.split_once('=')?;
        Some((id.trim().parse().ok()?, value.trim().to_owned()))
    });
    Some((name.trim(), values.collect()))
}

/// Whether resctrl is mounted with an option (proc(5), "mounts").
fn has_option(mounts: &str, option: &str) -> bool {
    mounts.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_resctrl = words.get(2) == Some(&"resctrl");
        let options = words.get(3).unwrap_or(&"");
        is_resctrl && options.split(',').any(|it| it == option)
    })
}
