//! What resctrl counts of one group, in files that stay open (`Documentation/filesystems/resctrl.rst`, "Resource alloc and monitor groups").
//!
//! `mon_data` has a directory for each last-level cache. What passes through memory is extended by the kernel beyond the width of the processor's counters, so it
//! only grows. A file may say `Unavailable` (the processor follows other groups at the moment), `Unassigned` (the group has no counter) or `Error`.

use std::collections::BTreeMap;
use std::path::Path;

use bayplan_enforcement::resctrl::{RESCTRL, owner_of_group};
use bayplan_types::Bytes;

use super::kept::Kept;
use super::parse::single;
use crate::kernel::Kernel;

/// The open files of all groups that Bayplan has made.
#[derive(Debug, Default)]
pub struct Monitors(BTreeMap<String, MonitorFiles>);

/// What resctrl counts of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitored {
    /// By class.
    pub classes: BTreeMap<String, MonitorCounters>,
    /// By the runtime's id.
    pub containers: BTreeMap<String, MonitorCounters>,
}

impl Monitors {
    /// Reads every group that is there now. `kernel` has the same root; `tell` hears once what is odd about a file; `buffer` is only for this, and used again.
    pub fn read(
        &mut self,
        root: &Path,
        kernel: &mut dyn Kernel,
        buffer: &mut Vec<u8>,
        mut tell: impl FnMut(&str),
    ) -> Monitored {
        let mut open = std::mem::take(&mut self.0);
        let mut read = |dir: String, kernel: &mut dyn Kernel| {
            let mut files =
                open.remove(&dir).unwrap_or_else(|| MonitorFiles::open(root, kernel, &dir));
            let was_odd = files.oddities().count();
            let counters = files.read(buffer);
            files.oddities().skip(was_odd).for_each(&mut tell);
            // A group that was removed and made anew has other files.
            if counters != MonitorCounters::default() {
                self.0.insert(dir, files);
            }
            counters
        };
        let mut monitored = Monitored::default();
        let mut controls = vec![RESCTRL.to_owned()];
        for name in kernel.list(RESCTRL).unwrap_or_default() {
            if let Some(class) = owner_of_group(&name) {
                let dir = format!("{RESCTRL}/{name}");
                monitored.classes.insert(class.to_owned(), read(dir.clone(), kernel));
                controls.push(dir);
            }
        }
        for control in controls {
            let dir = format!("{control}/mon_groups");
            for name in kernel.list(&dir).unwrap_or_default() {
                if let Some(container) = owner_of_group(&name) {
                    let counters = read(format!("{dir}/{name}"), kernel);
                    monitored.containers.insert(container.to_owned(), counters);
                }
            }
        }
        monitored
    }
}

/// The open files of one group, each for every last-level cache.
#[derive(Debug, Default)]
pub struct MonitorFiles {
    occupancy: Vec<Kept>,
    total: Vec<Kept>,
    local: Vec<Kept>,
}

/// What resctrl counts of one group; absent where the processor cannot, or has no value now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounters {
    /// Last-level cache that it has now, all domains together.
    pub occupancy: Option<Bytes>,
    /// Bytes that it has moved to or from any memory.
    pub total: Option<Bytes>,
    /// Of them those of the memory next to the cache.
    pub local: Option<Bytes>,
    /// There is a total, and the processor never tells what of it is local: not merely now.
    pub is_undivided: bool,
}

impl MonitorFiles {
    /// Opens what there is of the group in this directory (`sys/fs/resctrl/bayplan.web/mon_groups/x`), which lies below `root`. `kernel` has the same root.
    pub fn open(root: &Path, kernel: &mut dyn Kernel, group: &str) -> MonitorFiles {
        let domains = kernel.list(&format!("{group}/mon_data")).unwrap_or_default();
        let mut domains: Vec<&String> =
            domains.iter().filter(|it| it.starts_with("mon_L3_")).collect();
        domains.sort_unstable();
        let open = |file: &str| -> Vec<Kept> {
            let path = |domain: &String| format!("{group}/mon_data/{domain}/{file}");
            let files: Option<Vec<Kept>> =
                domains.iter().map(|domain| Kept::open(root, &path(domain))).collect();
            // Without one of the caches the sum would be too small.
            files.unwrap_or_default()
        };
        MonitorFiles {
            occupancy: open("llc_occupancy"),
            total: open("mbm_total_bytes"),
            local: open("mbm_local_bytes"),
        }
    }

    /// The sums over all caches. A cache that tells no value makes the sum absent, because it would be too small. `buffer` is used again by the next
    /// group.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> MonitorCounters {
        let mut sum = |files: &mut Vec<Kept>| {
            let mut all = Bytes::ZERO;
            for file in &mut *files {
                all += file.read(buffer, parse_monitor)??;
            }
            (!files.is_empty()).then_some(all)
        };
        let total = sum(&mut self.total);
        MonitorCounters {
            occupancy: sum(&mut self.occupancy),
            total,
            local: sum(&mut self.local),
            is_undivided: total.is_some() && self.local.is_empty(),
        }
    }

    /// What was odd about its files, each told once by the caller.
    pub fn oddities(&self) -> impl Iterator<Item = &str> {
        let all = [&self.occupancy, &self.total, &self.local].into_iter().flatten();
        all.filter_map(Kept::oddity)
    }
}

/// `Some(None)`: there is no value now.
fn parse_monitor(text: &str) -> Option<Option<Bytes>> {
    match text.trim() {
        "Unavailable" | "Unassigned" | "Error" => Some(None),
        text => single(text).map(|bytes| Some(Bytes(bytes))),
    }
}
