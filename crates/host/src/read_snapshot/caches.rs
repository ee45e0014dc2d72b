//! Caches of one CPU (Documentation/ABI/testing/sysfs-devices-system-cpu, `cpu*/cache/index*`).

use bayplan_topology::{CacheFacts, CacheKind};
use bayplan_types::{CpuId, CpuSet};

use super::cpu_lists::read_cpu_set;
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
    /// A level 1 cache that the threads of one core share, and no others. Level 2 is always asked about: small cores share it.
    pub(super) is_private: bool,
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
        let is_private = level == Some(1) && siblings.is_some() && shared_cpus.as_ref() == siblings;
        let facts = CacheFacts { level, kind, shared_cpus, size, id };
        caches.push(IndexedCache { index, facts, is_private });
    }
    caches
}

/// The caches of a CPU that is built like one that was read before: a level 1 that is private to the core there is private here, and a cache of
/// which another core has named this CPU as a sharer is not asked again. Only which CPUs share the others is read. `None` when that shows that the
/// CPU is built otherwise.
pub(super) fn like(
    model: &[IndexedCache],
    seen: &mut Vec<IndexedCache>,
    fs: &mut KernelFs,
    cpu: (CpuId, &Dir),
    siblings: Option<&CpuSet>,
) -> Option<Vec<IndexedCache>> {
    let (id, dir) = cpu;
    // Without a second level there is nothing by which to tell that this one is built otherwise.
    if model.iter().all(|cache| cache.is_private) {
        return None;
    }
    let mut caches = Vec::with_capacity(model.len());
    for like in model {
        let names_us = |other: &&IndexedCache| {
            let sharers = other.facts.shared_cpus.as_ref();
            other.index == like.index && sharers.is_some_and(|cpus| cpus.contains(id))
        };
        let cache = match seen.iter().find(names_us) {
            Some(known) => known.clone(),
            None if like.is_private => {
                let facts =
                    CacheFacts { shared_cpus: Some(siblings?.clone()), ..like.facts.clone() };
                IndexedCache { facts, ..like.clone() }
            }
            None => {
                let shared_cpus = read_sharers(fs, dir, like.index);
                let count = |cpus: &Option<CpuSet>| cpus.as_ref().map(CpuSet::len);
                if shared_cpus.is_none() || count(&shared_cpus) != count(&like.facts.shared_cpus) {
                    return None;
                }
                let id = match is_numbered(like.facts.level, &shared_cpus, siblings) {
                    true => fs.value(dir, &file(like.index, "id")),
                    false => None,
                };
                let is_the_core_s = shared_cpus.as_ref() == siblings;
                let facts = CacheFacts { shared_cpus, id, ..like.facts.clone() };
                let cache = IndexedCache { facts, ..like.clone() };
                if !is_the_core_s {
                    seen.push(cache.clone());
                }
                cache
            }
        };
        caches.push(cache);
    }
    Some(caches)
}

fn read_sharers(fs: &mut KernelFs, cpu: &Dir, index: usize) -> Option<CpuSet> {
    let dir = fs.within(cpu, &format!("cache/index{index}"));
    read_cpu_set(fs, &dir, &["shared_cpu_list"], &["shared_cpu_map"])
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
