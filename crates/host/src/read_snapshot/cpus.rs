//! CPUs: identity, siblings, caches, frequencies.
//!
//! Files: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/admin-guide/pm/cpufreq.rst`.

use std::collections::BTreeMap;

use bayplan_topology::{CpuFacts, KindFacts, PolicyFacts, Snapshot};
use bayplan_types::{CoreId, CpuId, CpuSet, DieId, PackageId};

use super::caches::{self, IndexedCache};
use super::{Depth, dir, text};
use crate::kernel_fs::{Dir, KernelFs};

/// Names that the kernel gives to the kinds of cores of a hybrid machine.
const KINDS: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];
/// Beyond that a set does not hold a number.
const NUMBER_MAX: u32 = 65_535;

/// Reads everything below the CPU directory but the lists.
pub(super) fn read(fs: &mut KernelFs, cpu_dir: &Dir, depth: Depth, snapshot: &mut Snapshot) {
    for name in KINDS {
        let Some(kind) = dir(fs, &format!("sys/devices/{name}")) else { continue };
        if let Some(cpus) = fs.value(&kind, "cpus") {
            snapshot.kinds.push(KindFacts { name: name.to_owned(), cpus });
        }
    }
    let cpus = fs.numbered(cpu_dir, "cpu");
    let first = match &snapshot.online {
        Some(online) => online.first(),
        None => cpus.first().copied().map(CpuId),
    };
    let has_in_first = |fs: &mut KernelFs, file: &str| {
        first.is_some_and(|cpu| fs.text(cpu_dir, &format!("cpu{cpu}/{file}")).is_some())
    };
    let reader = Reader {
        cpu_dir,
        depth,
        kinds: &snapshot.kinds,
        // The list says the same; the single files are for whoever looks for contradictions, or has no list.
        with_online: depth == Depth::Cpus || snapshot.online.is_none(),
        // A kernel gives these files to all CPUs or to none, but not to one that is offline.
        with_capacity: depth == Depth::Cpus || has_in_first(fs, "cpu_capacity"),
        with_clusters: depth == Depth::Cpus || has_in_first(fs, "topology/cluster_cpus_list"),
    };
    let mut known = Known::default();
    let each = cpus.iter().map(|number| reader.cpu(fs, CpuId(*number), &mut known));
    let mut read: BTreeMap<CpuId, Read> = each.map(|read| (read.facts.id, read)).collect();
    reader.complete(fs, &cpus, &mut read);
    snapshot.cpus = read.into_values().map(|read| read.facts).collect();
    let running = snapshot.online.as_ref().map_or(cpus.len(), CpuSet::len);
    snapshot.policies = read_policies(fs, cpu_dir, &cpus, running);
    snapshot.kernel.cpufreq_driver = read_driver(fs, cpu_dir);
}

/// What is to be read of each CPU.
struct Reader<'a> {
    cpu_dir: &'a Dir,
    depth: Depth,
    kinds: &'a [KindFacts],
    with_online: bool,
    with_capacity: bool,
    with_clusters: bool,
}

/// One CPU as far as it was read.
struct Read {
    facts: CpuFacts,
    /// The lowest CPU of its core, which should speak for it.
    leader: Option<CpuId>,
}

/// What is known from the cores that were read before.
#[derive(Default)]
struct Known {
    dies: Vec<Die>,
    designs: Vec<Design>,
    /// Caches that several cores share.
    caches: Vec<IndexedCache>,
}

/// A die, or a package without dies, whose list of CPUs was read.
struct Die {
    cpus: CpuSet,
    package_id: Option<PackageId>,
    die_id: Option<DieId>,
}

/// Cores of one kind in one package are of one design: their caches have the same levels and sizes, are private or shared by as many.
struct Design {
    package_id: Option<PackageId>,
    kind: Option<usize>,
    capacity: Option<u32>,
    threads: Option<usize>,
    caches: Vec<IndexedCache>,
}

impl Reader<'_> {
    /// Gives the CPUs that were left to their leaders what those say, or reads them after all.
    fn complete(&self, fs: &mut KernelFs, numbers: &[u32], cpus: &mut BTreeMap<CpuId, Read>) {
        for id in numbers.iter().copied().map(CpuId) {
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
                None => self.everything(fs, own.clone(), &mut Known::default()),
            };
            cpus.insert(id, Read { facts, leader: None });
        }
    }

    fn cpu(&self, fs: &mut KernelFs, id: CpuId, known: &mut Known) -> Read {
        let file = |name: &str| format!("cpu{id}/topology/{name}");
        let (lists, masks) = (
            [file("core_cpus_list"), file("thread_siblings_list")],
            [file("core_cpus"), file("thread_siblings")],
        );
        let online = format!("cpu{id}/online");
        let facts = CpuFacts {
            online: match self.with_online {
                true => fs.parsed(self.cpu_dir, &online, text::switch),
                false => None,
            },
            thread_siblings: read_cpu_set(fs, self.cpu_dir, &lists, &masks),
            ..CpuFacts::new(id)
        };
        let leader = facts.thread_siblings.as_ref().filter(|cpus| cpus.contains(id));
        let leader = leader.and_then(CpuSet::first).filter(|leader| *leader != id);
        match (self.depth, leader) {
            (Depth::Cores, Some(leader)) => Read { facts, leader: Some(leader) },
            _ => Read { facts: self.everything(fs, facts, known), leader: None },
        }
    }

    /// All that is not in `facts` yet.
    fn everything(&self, fs: &mut KernelFs, facts: CpuFacts, known: &mut Known) -> CpuFacts {
        let dir = fs.within(self.cpu_dir, &format!("cpu{}", facts.id));
        let (package_id, die_id) = self.package_and_die(fs, &dir, facts.id, known);
        let core_id = fs.parsed(&dir, "topology/core_id", text::number_or_unknown).flatten();
        let cluster = "topology/cluster_cpus_list";
        let cluster_cpus = if self.with_clusters { fs.value(&dir, cluster) } else { None };
        let capacity = if self.with_capacity { fs.value(&dir, "cpu_capacity") } else { None };
        let kind = self.kinds.iter().position(|kind| kind.cpus.contains(facts.id));
        let siblings = facts.thread_siblings.as_ref();
        let threads = siblings.map(CpuSet::len);
        let is_same = |design: &&Design| {
            (design.package_id, design.kind, design.capacity, design.threads)
                == (package_id, kind, capacity, threads)
        };
        let Known { designs, caches: seen, .. } = known;
        let mut alike = designs.iter().filter(is_same);
        let cpu = (facts.id, &dir);
        let quick = alike.find_map(|it| caches::like(&it.caches, seen, fs, cpu, siblings));
        let caches = quick.unwrap_or_else(|| {
            let caches = caches::read(fs, &dir, siblings);
            if self.depth == Depth::Cores {
                seen.extend(caches.iter().filter(|cache| !cache.is_private).cloned());
                let caches = caches.clone();
                designs.push(Design { package_id, kind, capacity, threads, caches });
            }
            caches
        });
        CpuFacts {
            package_id,
            die_id,
            core_id: core_id.map(CoreId),
            cluster_cpus,
            capacity,
            caches: caches.into_iter().map(|cache| cache.facts).collect(),
            ..facts
        }
    }

    fn package_and_die(
        &self,
        fs: &mut KernelFs,
        dir: &Dir,
        id: CpuId,
        known: &mut Known,
    ) -> (Option<PackageId>, Option<DieId>) {
        if let Some(die) = known.dies.iter().find(|die| die.cpus.contains(id)) {
            return (die.package_id, die.die_id);
        }
        let mut number = |file: &str| fs.parsed(dir, file, text::number_or_unknown).flatten();
        let package_id = number("topology/physical_package_id").map(PackageId);
        let die_id = number("topology/die_id").map(DieId);
        // Kernels that know no dies have a list of the package.
        let list = match die_id {
            Some(_) => "topology/die_cpus_list",
            None => "topology/package_cpus_list",
        };
        if self.depth == Depth::Cores
            && let Some(cpus) = fs.value(dir, list)
        {
            known.dies.push(Die { cpus, package_id, die_id });
        }
        (package_id, die_id)
    }
}

/// Both say that they are one core, and all that the leader has is said to be shared with the other.
fn speaks_for(leader: &CpuFacts, other: &CpuFacts) -> bool {
    let shared = |cpus: &Option<CpuSet>| cpus.as_ref().is_some_and(|cpus| cpus.contains(other.id));
    leader.thread_siblings == other.thread_siblings
        && leader.caches.iter().all(|cache| shared(&cache.shared_cpus))
        && (leader.cluster_cpus.is_none() || shared(&leader.cluster_cpus))
}

/// The first file that can be used; old kernels have only masks.
pub(super) fn read_cpu_set(
    fs: &mut KernelFs,
    dir: &Dir,
    lists: &[impl AsRef<str>],
    masks: &[impl AsRef<str>],
) -> Option<CpuSet> {
    let list = lists.iter().find_map(|file| fs.value(dir, file.as_ref()));
    list.or_else(|| {
        let parse = |text: &str| CpuSet::parse_mask(text).ok();
        masks.iter().find_map(|file| fs.parsed(dir, file.as_ref(), parse))
    })
}

/// Frequency policies; kernels before 4.3 have a directory of the same form in each CPU's instead.
fn read_policies(
    fs: &mut KernelFs,
    cpu_dir: &Dir,
    cpus: &[u32],
    running: usize,
) -> Vec<PolicyFacts> {
    let mut dirs = match fs.sub(cpu_dir, "cpufreq") {
        Some(dir) => fs.numbered_dirs(&dir, "policy"),
        None => Vec::new(),
    };
    let own = |fs: &KernelFs, number: &u32| {
        Some((*number, fs.sub(cpu_dir, &format!("cpu{number}/cpufreq"))?))
    };
    if dirs.is_empty() && cpus.first().is_some_and(|first| own(fs, first).is_some()) {
        dirs = cpus.iter().filter_map(|number| own(fs, number)).collect();
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
