//! Caches of one CPU.

use bayplan_topology::{CacheFacts, CacheKind};
use bayplan_types::CpuSet;

use super::cpus::read_cpu_set;
use super::text;
use crate::kernel_fs::{Dir, KernelFs};

/// Data and instructions of level 1, level 2, level 3, and room for more.
const INDEX_MAX: usize = 10;
const INDEX_USUAL: usize = 4;

/// A cache that holds data, and the number of its directory.
#[derive(Clone, Debug)]
pub(super) struct IndexedCache {
    index: usize,
    pub(super) facts: CacheFacts,
}

fn file(index: usize, name: &str) -> String {
    format!("cache/index{index}/{name}")
}

/// Reads every file of the caches that hold data.
pub(super) fn read(fs: &mut KernelFs, cpu: &Dir, siblings: Option<&CpuSet>) -> Vec<IndexedCache> {
    let mut caches = Vec::new();
    for index in 0..INDEX_MAX {
        let kind = fs.parsed(cpu, &file(index, "type"), cache_kind);
        if kind == Some(CacheKind::Instruction) {
            continue;
        }
        let level: Option<u32> = fs.value(cpu, &file(index, "level"));
        if kind.is_none() && level.is_none() {
            // A damaged tree may lack one of those that every machine has.
            if index < INDEX_USUAL { continue } else { break }
        }
        let shared_cpus = read_sharers(fs, cpu, index);
        let size = fs.parsed(cpu, &file(index, "size"), text::size);
        let id = match is_numbered(level, &shared_cpus, siblings) {
            true => fs.value(cpu, &file(index, "id")),
            false => None,
        };
        let facts = CacheFacts { level, kind, shared_cpus, size, id };
        caches.push(IndexedCache { index, facts });
    }
    caches
}

/// The caches of a CPU that is built like one that was read before: only who shares them is read. `None` when that shows that it is
/// built otherwise.
pub(super) fn like(
    model: &[IndexedCache],
    fs: &mut KernelFs,
    cpu: &Dir,
    siblings: Option<&CpuSet>,
) -> Option<Vec<IndexedCache>> {
    let mut caches = Vec::with_capacity(model.len());
    for IndexedCache { index, facts } in model {
        let shared_cpus = read_sharers(fs, cpu, *index);
        let count = |cpus: &Option<CpuSet>| cpus.as_ref().map(CpuSet::len);
        if shared_cpus.is_none() || count(&shared_cpus) != count(&facts.shared_cpus) {
            return None;
        }
        let id = match () {
            () if shared_cpus == facts.shared_cpus => facts.id,
            () if is_numbered(facts.level, &shared_cpus, siblings) => {
                fs.value(cpu, &file(*index, "id"))
            }
            () => None,
        };
        let facts = CacheFacts { shared_cpus, id, ..facts.clone() };
        caches.push(IndexedCache { index: *index, facts });
    }
    Some(caches)
}

fn read_sharers(fs: &mut KernelFs, cpu: &Dir, index: usize) -> Option<CpuSet> {
    let (list, mask) = (file(index, "shared_cpu_list"), file(index, "shared_cpu_map"));
    read_cpu_set(fs, cpu, &[list], &[mask])
}

/// Caches inside a core need no number, and there are many.
fn is_numbered(level: Option<u32>, sharers: &Option<CpuSet>, siblings: Option<&CpuSet>) -> bool {
    match level {
        Some(0 | 1) | None => false,
        Some(2) => sharers.as_ref() != siblings,
        Some(_) => true,
    }
}

fn cache_kind(text: &str) -> Option<CacheKind> {
    match text {
        "Data" => Some(CacheKind::Data),
        "Instruction" => Some(CacheKind::Instruction),
        "Unified" => Some(CacheKind::Unified),
        _ => None,
    }
}
