//! CPUs: identity, siblings, caches, frequencies.
//!
//! Files: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/admin-guide/pm/cpufreq.rst`.

use std::collections::BTreeMap;

use bayplan_topology::{AroundPackages, CacheFacts, CpuFacts, KindFacts, PolicyFacts, Snapshot};
use bayplan_types::{CoreId, CpuId, CpuSet, DieId, PackageId};

use super::caches::{self, IndexedCache};
use super::cpu_lists::read_cpu_set;
use super::depth::Depth;
use super::dirs::dir;
use super::text;
use crate::kernel_fs::{Dir, KernelFs};

/// Names that the kernel gives to the kinds of cores of a hybrid machine.
const KINDS: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];
/// Beyond that a set does not hold a number.
const NUMBER_MAX: u32 = 65_535;
/// The threads of a core, by the name since Linux 5.3 and the one before.
const LISTS: [&str; 2] = ["topology/core_cpus_list", "topology/thread_siblings_list"];
const MASKS: [&str; 2] = ["topology/core_cpus", "topology/thread_siblings"];

/// The CPUs of a package, likewise.
const PACKAGE_LISTS: [&str; 2] = ["topology/package_cpus_list", "topology/core_siblings_list"];
const PACKAGE_MASKS: [&str; 2] = ["topology/package_cpus", "topology/core_siblings"];

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
        // The list says the same; the single files are for a caller that looks for contradictions, or has no list.
        with_online: depth == Depth::Cpus || snapshot.online.is_none(),
        // A kernel gives these files to all CPUs or to none, but not to one that is offline.
        with_capacity: depth == Depth::Cpus || has_in_first(fs, "cpu_capacity"),
        with_clusters: depth == Depth::Cpus || has_in_first(fs, "topology/cluster_cpus_list"),
        with_books: depth == Depth::Cpus || has_in_first(fs, "topology/book_siblings_list"),
    };
    let mut known = Known::default();
    let mut read = Vec::with_capacity(cpus.len());
    for number in &cpus {
        let facts = reader.cpu(fs, CpuId(*number), &read, &mut known);
        read.push(facts);
    }
    snapshot.cpus = read;
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
    with_books: bool,
}

/// What is known from the cores that were read before.
#[derive(Default)]
struct Known {
    dies: Vec<Die>,
    designs: Vec<Design>,
    /// Caches that several cores share.
    caches: Vec<IndexedCache>,
    /// CPUs that are not asked which core they are in, each with the lowest CPU of its core, which speaks for it.
    leaders: BTreeMap<CpuId, CpuId>,
}

/// A die, or a package without dies, of which the list of CPUs was read.
struct Die {
    cpus: CpuSet,
    around: Around,
}

/// What lies around a core.
#[derive(Clone, Default)]
struct Around {
    package_id: Option<PackageId>,
    package_cpus: Option<CpuSet>,
    die_id: Option<DieId>,
    book: Option<AroundPackages>,
    drawer: Option<AroundPackages>,
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
    /// One CPU; `others` are those with lower numbers, in order.
    fn cpu(
        &self,
        fs: &mut KernelFs,
        id: CpuId,
        others: &[CpuFacts],
        known: &mut Known,
    ) -> CpuFacts {
        let dir = fs.within(self.cpu_dir, &format!("cpu{id}"));
        let facts = CpuFacts {
            online: match self.with_online {
                true => fs.parsed(&dir, "online", text::switch),
                false => None,
            },
            ..CpuFacts::new(id)
        };
        let other = |id: CpuId| {
            let at = others.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
            others.get(at)
        };
        if let Some(leader) = known.leaders.get(&id).and_then(|leader| other(*leader)) {
            return follow(leader, facts);
        }
        let facts = CpuFacts { thread_siblings: read_cpu_set(fs, &dir, &LISTS, &MASKS), ..facts };
        let siblings = facts.thread_siblings.as_ref().filter(|cpus| cpus.contains(id));
        match siblings.and_then(CpuSet::first).filter(|leader| *leader != id) {
            Some(leader) if self.depth < Depth::Cpus => {
                match other(leader).filter(|leader| speaks_for(leader, &facts)) {
                    Some(leader) => follow(leader, facts),
                    None => {
                        // Here what one CPU says of another does not hold, so from here on every CPU is asked.
                        *known = Known::default();
                        self.everything(fs, &dir, facts, &mut Known::default())
                    }
                }
            }
            _ => self.everything(fs, &dir, facts, known),
        }
    }

    /// All that is not in `facts` yet.
    fn everything(
        &self,
        fs: &mut KernelFs,
        dir: &Dir,
        facts: CpuFacts,
        known: &mut Known,
    ) -> CpuFacts {
        let around = self.around(fs, dir, facts.id, known);
        let package_id = around.package_id;
        // Cores are told apart by it where nothing lists their threads.
        let with_number = self.depth >= Depth::Cores || facts.thread_siblings.is_none();
        let core_id = match with_number {
            true => fs.parsed(dir, "topology/core_id", text::number_or_unknown).flatten(),
            false => None,
        };
        let cluster = "topology/cluster_cpus_list";
        let cluster_cpus = if self.with_clusters { fs.value(dir, cluster) } else { None };
        let capacity = if self.with_capacity { fs.value(dir, "cpu_capacity") } else { None };
        let kind = self.kinds.iter().position(|kind| kind.cpus.contains(facts.id));
        let siblings = facts.thread_siblings.as_ref();
        let threads = siblings.map(CpuSet::len);
        let is_same = |design: &&Design| {
            (design.package_id, design.kind, design.capacity, design.threads)
                == (package_id, kind, capacity, threads)
        };
        let Known { designs, caches: seen, .. } = known;
        let mut alike = designs.iter().filter(is_same);
        let cpu = (facts.id, dir);
        let quick = alike.find_map(|it| caches::like(&it.caches, seen, fs, cpu, siblings));
        let is_known_design = quick.is_some();
        let caches = quick.unwrap_or_else(|| {
            let caches = caches::read(fs, dir, siblings);
            if self.depth < Depth::Cpus {
                seen.extend(caches.iter().filter(|cache| !cache.is_private).cloned());
                let caches = caches.clone();
                designs.push(Design { package_id, kind, capacity, threads, caches });
            }
            caches
        });
        let facts = CpuFacts {
            package_id,
            package_cpus: around.package_cpus,
            die_id: around.die_id,
            core_id: core_id.map(CoreId),
            book: around.book,
            drawer: around.drawer,
            cluster_cpus,
            capacity,
            caches: caches.into_iter().map(|cache| cache.facts).collect(),
            ..facts
        };
        if is_known_design {
            known.leaders.extend(followers(&facts).map(|cpu| (cpu, facts.id)));
        }
        facts
    }

    fn around(&self, fs: &mut KernelFs, dir: &Dir, id: CpuId, known: &mut Known) -> Around {
        if let Some(die) = known.dies.iter().find(|die| die.cpus.contains(id)) {
            return die.around.clone();
        }
        let mut number = |file: &str| fs.parsed(dir, file, text::number_or_unknown).flatten();
        let package_id = number("topology/physical_package_id").map(PackageId);
        let die_id = number("topology/die_id").map(DieId);
        let package_cpus = match package_id {
            Some(_) => None,
            None => read_cpu_set(fs, dir, &PACKAGE_LISTS, &PACKAGE_MASKS),
        };
        let around = Around {
            package_id,
            package_cpus,
            die_id,
            book: self.around_packages(fs, dir, "book"),
            drawer: self.around_packages(fs, dir, "drawer"),
        };
        // Kernels that know no dies have a list of the package.
        let list = match die_id {
            Some(_) => "topology/die_cpus_list",
            None => "topology/package_cpus_list",
        };
        if self.depth < Depth::Cpus
            && let Some(cpus) = fs.value(dir, list)
        {
            known.dies.push(Die { cpus, around: around.clone() });
        }
        around
    }

    fn around_packages(&self, fs: &mut KernelFs, dir: &Dir, of: &str) -> Option<AroundPackages> {
        if !self.with_books {
            return None;
        }
        let cpus = fs.value(dir, &format!("topology/{of}_siblings_list"))?;
        let id = fs.parsed(dir, &format!("topology/{of}_id"), text::number_or_unknown).flatten();
        Some(AroundPackages { id, cpus })
    }
}

/// Both say that they are one core, and all that the leader has is said to be shared with the other.
fn speaks_for(leader: &CpuFacts, other: &CpuFacts) -> bool {
    leader.thread_siblings == other.thread_siblings && shares_all(leader, other.id)
}

fn shares_all(leader: &CpuFacts, other: CpuId) -> bool {
    let shared = |cpus: &Option<CpuSet>| cpus.as_ref().is_some_and(|cpus| cpus.contains(other));
    leader.caches.iter().all(|cache| shared(&cache.shared_cpus))
        && (leader.cluster_cpus.is_none() || shared(&leader.cluster_cpus))
}

/// The other threads of a core that is named twice: by the list of its lowest CPU and by that of its level 2 cache, which the kernel
/// makes from other sources (x86: `arch/x86/kernel/smpboot.c` and `cacheinfo.c`).
fn followers(leader: &CpuFacts) -> impl Iterator<Item = CpuId> {
    let core = leader.thread_siblings.as_ref().filter(|core| core.first() == Some(leader.id));
    let is_core_s =
        |cache: &CacheFacts| cache.level == Some(2) && cache.shared_cpus.as_ref() == core;
    let core = core.filter(|_| leader.caches.iter().any(is_core_s));
    let others = core.into_iter().flat_map(CpuSet::iter).skip(1);
    others.filter(|cpu| shares_all(leader, *cpu))
}

/// What a CPU has in common with the lowest one of its core.
fn follow(leader: &CpuFacts, facts: CpuFacts) -> CpuFacts {
    CpuFacts {
        package_id: leader.package_id,
        package_cpus: leader.package_cpus.clone(),
        die_id: leader.die_id,
        book: leader.book.clone(),
        drawer: leader.drawer.clone(),
        core_id: leader.core_id,
        capacity: leader.capacity,
        thread_siblings: leader.thread_siblings.clone(),
        ..facts
    }
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
    // The driver gives a file to all policies or to none; a recording may lack some.
    let has = |fs: &mut KernelFs, file: &str| fs.is_recorded() || fs.text(first, file).is_some();
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
