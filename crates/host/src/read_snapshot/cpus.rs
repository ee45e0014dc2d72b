//! CPUs: identity, siblings, caches, frequencies.
//!
//! Files: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/admin-guide/pm/cpufreq.rst`.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::thread;

use bayplan_topology::{CacheFacts, CacheKind, CpuFacts, KindFacts, PolicyFacts, Snapshot};
use bayplan_types::{CoreId, CpuId, CpuSet, DieId, PackageId};

use super::{Depth, dir, text};
use crate::kernel_fs::{Dir, KernelFs};

/// Names that the kernel gives to the kinds of cores of a hybrid machine.
const KINDS: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];
/// Caches of a CPU: data and instructions of level 1, level 2, level 3, and room for more.
const INDEX_MAX: usize = 10;
const INDEX_USUAL: usize = 4;
/// Below this number of CPUs a second thread costs more than it saves.
const CPUS_PER_THREAD: usize = 32;
const THREADS_MAX: usize = 8;
/// Beyond that a set does not hold a number.
const NUMBER_MAX: u32 = 65_535;

/// Reads everything below the CPU directory but the lists.
pub(super) fn read(fs: &mut KernelFs, cpu_dir: &Dir, depth: Depth, snapshot: &mut Snapshot) {
    let dirs = fs.numbered_dirs(cpu_dir, "cpu");
    let asked = Asked {
        depth,
        // The list says the same; the single files are for whoever looks for contradictions, or has no list.
        with_online: depth == Depth::Cpus || snapshot.online.is_none(),
        // All CPUs have one or none has.
        with_capacity: dirs.first().is_some_and(|(_, dir)| fs.text(dir, "cpu_capacity").is_some()),
    };
    let mut cpus = read_in_threads(fs, &dirs, asked);
    complete(fs, &dirs, asked, &mut cpus);
    snapshot.cpus = cpus.into_values().map(|read| read.facts).collect();
    let running = snapshot.online.as_ref().map_or(dirs.len(), CpuSet::len);
    snapshot.policies = read_policies(fs, cpu_dir, &dirs, running);
    snapshot.kernel.cpufreq_driver = read_driver(fs, cpu_dir);
    for name in KINDS {
        let Some(kind) = dir(fs, &format!("sys/devices/{name}")) else { continue };
        if let Some(cpus) = fs.value(&kind, "cpus") {
            snapshot.kinds.push(KindFacts { name: name.to_owned(), cpus });
        }
    }
}

/// What is to be read of each CPU.
#[derive(Clone, Copy)]
struct Asked {
    depth: Depth,
    with_online: bool,
    with_capacity: bool,
}

/// One CPU as far as it was read.
struct Read {
    facts: CpuFacts,
    /// The lowest CPU of its core, which should speak for it.
    leader: Option<CpuId>,
}

/// Most of the time goes into opening files, which the kernel does for several threads at once.
fn read_in_threads(fs: &mut KernelFs, dirs: &[(u32, Dir)], asked: Asked) -> BTreeMap<CpuId, Read> {
    let available = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = available.min(THREADS_MAX).min(dirs.len() / CPUS_PER_THREAD).max(1);
    let share = |fs: &mut KernelFs, first: usize| {
        let mut seen = Vec::new();
        let own = dirs.iter().skip(first).step_by(threads);
        own.map(|(number, dir)| asked.cpu(fs, CpuId(*number), dir, &mut seen)).collect::<Vec<_>>()
    };
    let (mut read, others) = thread::scope(|scope| {
        let share = &share;
        let started = (1..threads).map(|first| {
            let mut fs = fs.fork();
            scope.spawn(move || (share(&mut fs, first), fs))
        });
        let started: Vec<_> = started.collect();
        let read = share(fs, 0);
        let others = started.into_iter().map(|thread| thread.join());
        (read, others.collect::<Vec<_>>())
    });
    for other in others {
        match other {
            Ok((cpus, other)) => {
                read.extend(cpus);
                fs.join(other);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    read.into_iter().map(|read| (read.facts.id, read)).collect()
}

/// Gives the CPUs that were left to their leaders what those say, or reads them after all.
fn complete(
    fs: &mut KernelFs,
    dirs: &[(u32, Dir)],
    asked: Asked,
    cpus: &mut BTreeMap<CpuId, Read>,
) {
    for (number, dir) in dirs {
        let id = CpuId(*number);
        let Some(read) = cpus.get(&id) else { continue };
        let Some(leader) = read.leader else { continue };
        let own = &read.facts;
        let leader = cpus.get(&leader).filter(|leader| leader.leader.is_none());
        let facts = match leader.filter(|leader| speaks_for(&leader.facts, own)) {
            Some(Read { facts: leader, .. }) => CpuFacts {
                package_id: leader.package_id,
                die_id: leader.die_id,
                core_id: leader.core_id,
                capacity: leader.capacity,
                ..own.clone()
            },
            None => asked.everything(fs, own.clone(), dir, &mut Vec::new()),
        };
        cpus.insert(id, Read { facts, leader: None });
    }
}

/// Both say that they are one core, and all that the leader has is said to be shared with the other.
fn speaks_for(leader: &CpuFacts, other: &CpuFacts) -> bool {
    let shared = |cpus: &Option<CpuSet>| cpus.as_ref().is_some_and(|cpus| cpus.contains(other.id));
    leader.thread_siblings == other.thread_siblings
        && leader.caches.iter().all(|cache| shared(&cache.shared_cpus))
        && (leader.cluster_cpus.is_none() || shared(&leader.cluster_cpus))
}

impl Asked {
    fn cpu(&self, fs: &mut KernelFs, id: CpuId, dir: &Dir, seen: &mut Vec<CacheFacts>) -> Read {
        let siblings = read_cpu_set(
            fs,
            dir,
            &["topology/core_cpus_list", "topology/thread_siblings_list"],
            &["topology/core_cpus", "topology/thread_siblings"],
        );
        let facts = CpuFacts {
            online: if self.with_online { fs.parsed(dir, "online", text::switch) } else { None },
            thread_siblings: siblings,
            ..CpuFacts::new(id)
        };
        let leader = facts.thread_siblings.as_ref().filter(|cpus| cpus.contains(id));
        let leader = leader.and_then(CpuSet::first).filter(|leader| *leader != id);
        match (self.depth, leader) {
            (Depth::Cores, Some(leader)) => Read { facts, leader: Some(leader) },
            _ => Read { facts: self.everything(fs, facts, dir, seen), leader: None },
        }
    }

    /// All that is not in `facts` yet.
    fn everything(
        &self,
        fs: &mut KernelFs,
        facts: CpuFacts,
        dir: &Dir,
        seen: &mut Vec<CacheFacts>,
    ) -> CpuFacts {
        let mut number = |file: &str| fs.parsed(dir, file, text::number_or_unknown).flatten();
        let package_id = number("topology/physical_package_id").map(PackageId);
        let die_id = number("topology/die_id").map(DieId);
        let core_id = number("topology/core_id").map(CoreId);
        let cluster = ["topology/cluster_cpus_list"];
        CpuFacts {
            package_id,
            die_id,
            core_id,
            cluster_cpus: read_cpu_set(fs, dir, &cluster, &["topology/cluster_cpus"]),
            capacity: if self.with_capacity { fs.value(dir, "cpu_capacity") } else { None },
            caches: self.caches(fs, dir, &facts.thread_siblings, seen),
            ..facts
        }
    }

    /// Caches that hold data. What was read of a cache once counts for all CPUs that name the same set, unless contradictions matter.
    fn caches(
        &self,
        fs: &mut KernelFs,
        dir: &Dir,
        siblings: &Option<CpuSet>,
        seen: &mut Vec<CacheFacts>,
    ) -> Vec<CacheFacts> {
        let mut caches = Vec::new();
        for index in 0..INDEX_MAX {
            let file = |name: &str| format!("cache/index{index}/{name}");
            let kind = fs.parsed(dir, &file("type"), cache_kind);
            if kind == Some(CacheKind::Instruction) {
                continue;
            }
            let level: Option<u32> = fs.value(dir, &file("level"));
            if kind.is_none() && level.is_none() {
                // A damaged tree may lack one of those that every machine has.
                if index < INDEX_USUAL { continue } else { break }
            }
            let (list, mask) = (file("shared_cpu_list"), file("shared_cpu_map"));
            let shared_cpus = read_cpu_set(fs, dir, &[&list], &[&mask]);
            let is_known = |known: &&CacheFacts| {
                known.level == level && known.kind == kind && known.shared_cpus == shared_cpus
            };
            let known = seen.iter().rev().find(is_known).filter(|_| self.depth == Depth::Cores);
            if let Some(known) = known {
                caches.push(known.clone());
                continue;
            }
            let size = fs.parsed(dir, &file("size"), text::size);
            // Those inside a core need no number, and there are many.
            let is_numbered = match level {
                Some(0 | 1) | None => false,
                Some(2) => shared_cpus != *siblings,
                Some(_) => true,
            };
            let id = if is_numbered { fs.value(dir, &file("id")) } else { None };
            let cache = CacheFacts { level, kind, shared_cpus, size, id };
            if level.is_some_and(|level| level > 2) {
                seen.push(cache.clone());
            }
            caches.push(cache);
        }
        caches
    }
}

/// The first file that can be used; old kernels have only masks.
pub(super) fn read_cpu_set(
    fs: &mut KernelFs,
    dir: &Dir,
    lists: &[&str],
    masks: &[&str],
) -> Option<CpuSet> {
    let list = lists.iter().find_map(|file| fs.value(dir, file));
    list.or_else(|| {
        let parse = |text: &str| CpuSet::parse_mask(text).ok();
        masks.iter().find_map(|file| fs.parsed(dir, file, parse))
    })
}

fn cache_kind(text: &str) -> Option<CacheKind> {
    match text {
        "Data" => Some(CacheKind::Data),
        "Instruction" => Some(CacheKind::Instruction),
        "Unified" => Some(CacheKind::Unified),
        _ => None,
    }
}

/// Frequency policies; kernels before 4.3 have a directory of the same form in each CPU's instead.
fn read_policies(
    fs: &mut KernelFs,
    cpu_dir: &Dir,
    cpus: &[(u32, Dir)],
    running: usize,
) -> Vec<PolicyFacts> {
    let mut dirs = match fs.sub(cpu_dir, "cpufreq") {
        Some(dir) => fs.numbered_dirs(&dir, "policy"),
        None => Vec::new(),
    };
    let has_own = cpus.first().is_some_and(|(_, dir)| fs.sub(dir, "cpufreq").is_some());
    if dirs.is_empty() && has_own {
        let own = cpus.iter().filter_map(|(number, dir)| Some((*number, fs.sub(dir, "cpufreq")?)));
        dirs = own.collect();
    }
    // As many policies as CPUs: each has one.
    let is_each_its_own = dirs.len() >= running;
    let Some((_, first)) = dirs.first() else { return Vec::new() };
    // The driver gives a file to all policies or to none.
    let has = |fs: &mut KernelFs, file: &str| fs.text(first, file).is_some();
    let (has_base, has_preference) =
        (has(fs, "base_frequency"), has(fs, "energy_performance_preference"));
    let mut policies = Vec::with_capacity(dirs.len());
    for (id, dir) in &dirs {
        let mut frequency = |file: &str| fs.parsed(dir, file, text::frequency).flatten();
        let base = if has_base { frequency("base_frequency") } else { None };
        let (min, max) = (frequency("cpuinfo_min_freq"), frequency("cpuinfo_max_freq"));
        let preference = "energy_performance_preference";
        policies.push(PolicyFacts {
            id: *id,
            cpus: if is_each_its_own { None } else { read_policy_cpus(fs, dir) },
            base,
            min,
            max,
            preference: if has_preference { fs.parsed(dir, preference, text::word) } else { None },
        });
    }
    policies
}

/// `related_cpus` has blanks where other lists have commas.
fn read_policy_cpus(fs: &mut KernelFs, dir: &Dir) -> Option<CpuSet> {
    fs.parsed(dir, "related_cpus", |list| {
        let numbers = text::numbers(list)?.into_iter();
        numbers.map(|number| (number <= NUMBER_MAX).then_some(CpuId(number))).collect()
    })
}

fn read_driver(fs: &mut KernelFs, cpu_dir: &Dir) -> Option<String> {
    let policies = fs.sub(cpu_dir, "cpufreq")?;
    let (_, first) = fs.numbered_dirs(&policies, "policy").into_iter().next()?;
    fs.parsed(&first, "scaling_driver", text::word)
}
