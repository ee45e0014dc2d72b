//! Facts to a tree. In: a [`Snapshot`]. Out: a [`Topology`] and, inside it, what was odd.
//!
//! 1. Which CPUs are online.
//! 2. Groups: packages and dies by their numbers, cores, caches and clusters by what their members say, NUMA nodes by their CPU lists.
//! 3. Groups are nested; what does not nest is left out of the tree.
//! 4. Memory is attached: CPU-less nodes to the nearest node with CPUs.
//! 5. What hangs on CPUs and nodes without nesting: kinds of cores, frequencies, priorities, devices.
//!
//! Every doubt ends in an [`Oddity`]. The only failure is a machine without one online CPU.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::{CpuId, CpuSet, NodeSet};

use crate::agree::{Agreed, agree};
use crate::caches::{Facts, contradiction, derive_caches};
use crate::derive_devices::derive_devices;
use crate::kinds::{derive_kinds, derive_policies, derive_priorities, packages_of};
use crate::mems::set_mems;
use crate::nest::{Candidate, LeftOut, nest};
use crate::numa::{Numa, derive_numa};
use crate::snapshot::{AroundPackages, CpuFacts, Oddity, Snapshot};
use crate::topology::{Cache, Level, NumaNode, Parts, Topology};
use bayplan_types::fold::{fold_short, name_cpus};

/// The largest CPU number that is believed, twice what Linux allows (`CONFIG_NR_CPUS`). The sets of every CPU have a bit for every
/// smaller number, so memory grows with the square.
const CPU_MAX: u32 = 16_383;
const CPU_DIR: &str = "/sys/devices/system/cpu";
const PODS_CPUS: &str = "/sys/fs/cgroup/**/cpuset.cpus.effective";
const PODS_MEMS: &str = "/sys/fs/cgroup/**/cpuset.mems.effective";

/// Why there is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// Not one CPU is online.
    #[error(
        "no CPU is online: {CPU_DIR}/online holds {online}, and there are {cpus} CPU directories"
    )]
    NoOnlineCpu {
        /// What the file holds.
        online: String,
        /// How many `cpuN` directories were found.
        cpus: usize,
    },
}

/// The hardware tree of a machine.
///
/// # Errors
/// [`DeriveError::NoOnlineCpu`].
pub fn derive(snapshot: &Snapshot) -> Result<Topology, DeriveError> {
    let mut oddities = snapshot.oddities.clone();
    let all = by_number(snapshot, &mut oddities);
    let online = online_cpus(snapshot, &all, &mut oddities);
    if online.is_empty() {
        let text = match &snapshot.online {
            Some(list) => format!("`{list}`"),
            None => "nothing readable".to_owned(),
        };
        return Err(DeriveError::NoOnlineCpu { online: text, cpus: all.len() });
    }
    let mut facts = all.clone();
    facts.retain(|cpu, _| online.contains(*cpu));

    let cores = derive_cores(&facts, &mut oddities);
    let numa = derive_numa(snapshot, &online, &mut oddities);
    let caches = derive_caches(&facts, &online, &mut oddities);
    let mut candidates = derive_packages(&facts, &mut oddities);
    candidates.extend(derive_around_packages(&facts, &candidates, &mut oddities));
    candidates.extend(cache_objects(&caches, &cores));
    candidates.extend(derive_clusters(&facts, &online, &candidates, &cores, &mut oddities));
    candidates.extend(node_and_core_objects(&numa, &cores, &facts));
    let (mut objects, left_out) = nest(&online, candidates);
    oddities.extend(left_out.iter().map(oddity_of_left_out));
    let pods_mems = usable_by_pods(snapshot.pods_mems.as_ref(), &numa.nodes, &mut oddities);
    let stand_ins = set_mems(&mut objects, &online, &numa, pods_mems.as_ref());

    let kinds = derive_kinds(snapshot, &facts, &online, &mut oddities);
    let policies = derive_policies(&snapshot.policies, &online);
    let speed_select = snapshot.kernel.told_speed_select();
    let priorities = derive_priorities(&packages_of(&facts), &policies, &kinds, speed_select);
    let devices = derive_devices(&snapshot.devices, &online, &numa.nodes, &mut oddities);
    let dirs: CpuSet = all.keys().copied().collect();
    let has = snapshot.present.as_ref().unwrap_or(&dirs);
    let running = |cpus: &Option<CpuSet>| cpus.as_ref().map(|cpus| cpus.intersection(&online));
    Ok(Topology::new(Parts {
        objects,
        isolated: running(&snapshot.isolated).unwrap_or_default(),
        nohz_full: running(&snapshot.nohz_full).unwrap_or_default(),
        partitioned: running(&snapshot.partitioned).unwrap_or_default(),
        allowed_cpus: running(&snapshot.allowed_cpus),
        allowed_mems: snapshot.allowed_mems.clone(),
        pods_cpus: usable_cpus(snapshot.pods_cpus.as_ref(), &online, &mut oddities),
        pods_mems,
        stand_ins,
        offline: has.difference(&online),
        cores,
        caches,
        kinds,
        policies,
        high_priority: priorities.high,
        low_priority: priorities.low,
        nodes: numa.nodes,
        distances: numa.distances,
        devices,
        kernel: snapshot.kernel.clone(),
        oddities,
    }))
}

/// The online CPUs that the group around all pods may use; `None` where that is all of them, or none at all, which cannot be.
fn usable_cpus(
    allowed: Option<&CpuSet>,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Option<CpuSet> {
    let allowed = allowed?;
    let usable = allowed.intersection(online);
    if usable.is_empty() {
        let found = format!("`{allowed}`, of which none is online");
        oddities.push(Oddity::new(PODS_CPUS, found, "containers may use every CPU"));
    }
    Some(usable).filter(|usable| !usable.is_empty() && usable != online)
}

/// The same of memory nodes.
fn usable_by_pods(
    allowed: Option<&NodeSet>,
    nodes: &[NumaNode],
    oddities: &mut Vec<Oddity>,
) -> Option<NodeSet> {
    let allowed = allowed.filter(|_| !nodes.is_empty())?;
    let with_memory: NodeSet =
        nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    let usable = allowed.intersection(&with_memory);
    if usable.is_empty() {
        let found = format!("`{allowed}`, of which none has memory");
        oddities.push(Oddity::new(PODS_MEMS, found, "containers may use every node"));
    }
    Some(usable).filter(|usable| !usable.is_empty() && *usable != with_memory)
}

fn node_and_core_objects(numa: &Numa, cores: &[CpuSet], facts: &Facts<'_>) -> Vec<Candidate> {
    let with_cpus = numa.nodes.iter().filter(|node| !node.cpus.is_empty());
    let nodes = with_cpus.map(|node| Candidate {
        level: Level::NumaNode,
        id: node.id.0,
        cpus: node.cpus.clone(),
    });
    let cores = cores.iter().map(|cpus| Candidate {
        level: Level::Core,
        id: core_number(cpus, facts),
        cpus: cpus.clone(),
    });
    nodes.chain(cores).collect()
}

fn by_number<'a>(snapshot: &'a Snapshot, oddities: &mut Vec<Oddity>) -> Facts<'a> {
    let mut facts = Facts::new();
    for cpu in &snapshot.cpus {
        if cpu.id.0 > CPU_MAX {
            let path = format!("{CPU_DIR}/cpu{}", cpu.id);
            let found = format!("a number above {CPU_MAX}");
            oddities.push(Oddity::new(path, found, "there is no such CPU"));
        } else if let Entry::Vacant(entry) = facts.entry(cpu.id) {
            entry.insert(cpu);
        } else {
            let path = format!("{CPU_DIR}/cpu{}", cpu.id);
            oddities.push(Oddity::new(path, "the CPU is there twice", "what the first one says"));
        }
    }
    facts
}

fn online_cpus(snapshot: &Snapshot, all: &Facts<'_>, oddities: &mut Vec<Oddity>) -> CpuSet {
    let dirs: CpuSet = all.keys().copied().collect();
    let off: CpuSet =
        all.values().filter(|cpu| cpu.online == Some(false)).map(|cpu| cpu.id).collect();
    let Some(list) = &snapshot.online else {
        return dirs.difference(&off);
    };
    let path = format!("{CPU_DIR}/online");
    let missing = list.difference(&dirs);
    if !missing.is_empty() {
        let found = format!("names {} without a directory", name_cpus(&missing));
        oddities.push(Oddity::new(path.as_str(), found, "not there"));
    }
    let said_off = list.intersection(&off);
    if !said_off.is_empty() {
        let found = format!("names {}, contrary to cpuN/online", name_cpus(&said_off));
        oddities.push(Oddity::new(path.as_str(), found, "online"));
    }
    let on = all.values().filter(|cpu| cpu.online == Some(true)).map(|cpu| cpu.id);
    let said_on = on.collect::<CpuSet>().difference(list);
    if !said_on.is_empty() {
        let found = format!("leaves out {}, contrary to cpuN/online", name_cpus(&said_on));
        oddities.push(Oddity::new(path.as_str(), found, "offline"));
    }
    list.intersection(&dirs)
}

/// The cores: what `core_cpus_list` says; where it is missing, package, die and core number; where it is contradicted, each CPU
/// for itself, because two CPUs that are wrongly taken for one core would halve a container's share.
fn derive_cores(facts: &Facts<'_>, oddities: &mut Vec<Oddity>) -> Vec<CpuSet> {
    let online: CpuSet = facts.keys().copied().collect();
    let claims = facts.iter().filter_map(|(cpu, facts)| {
        let siblings = facts.thread_siblings.as_ref()?.intersection(&online);
        (!siblings.is_empty()).then_some((*cpu, siblings))
    });
    let Agreed { groups, refused } = agree(&claims.collect());
    let file = format!("{CPU_DIR}/cpu*/topology/core_cpus_list");
    for refused in &refused {
        let found = contradiction("core of", refused);
        oddities.push(Oddity::new(
            file.as_str(),
            found,
            "each CPU that says so is a core of its own",
        ));
    }
    let mut grouped: CpuSet = groups.iter().flat_map(CpuSet::iter).collect();
    grouped.extend(refused.iter().flat_map(|refused| refused.claimants.iter()));
    let silent = online.difference(&grouped);
    let mut cores = groups;
    cores.extend(refused.iter().flat_map(|refused| refused.claimants.iter()).map(CpuSet::from));
    if !silent.is_empty() {
        let found = format!("nothing about {}", name_cpus(&silent));
        let assumed = "one core per core number of a package, or per CPU without one";
        oddities.push(Oddity::new(file.as_str(), found, assumed));
        cores.extend(cores_by_number(&silent, facts));
    }
    cores.sort_by_key(CpuSet::first);
    cores
}

fn cores_by_number(cpus: &CpuSet, facts: &Facts<'_>) -> Vec<CpuSet> {
    let mut cores: BTreeMap<_, CpuSet> = BTreeMap::new();
    for cpu in cpus.iter() {
        let Some(facts) = facts.get(&cpu) else { continue };
        let alone = facts.core_id.is_none().then_some(cpu);
        let key = (facts.package_id, facts.die_id, facts.core_id, alone);
        cores.entry(key).or_default().insert(cpu);
    }
    cores.into_values().collect()
}

fn core_number(core: &CpuSet, facts: &Facts<'_>) -> u32 {
    let numbers = core.iter().filter_map(|cpu| facts.get(&cpu)?.core_id);
    numbers.map(|id| id.0).next().or(core.first().map(|cpu| cpu.0)).unwrap_or(0)
}

/// Packages and their dies. Kernels before 5.2 and some architectures do not know dies: then a package is one die. A package
/// without a number (s390) has that of its lowest CPU.
fn derive_packages(facts: &Facts<'_>, oddities: &mut Vec<Oddity>) -> Vec<Candidate> {
    let mut packages: BTreeMap<_, CpuSet> = BTreeMap::new();
    let mut unnumbered = BTreeMap::new();
    let mut unknown = CpuSet::new();
    for (cpu, facts) in facts {
        match (facts.package_id, &facts.package_cpus) {
            (Some(package), _) => _ = packages.entry(package).or_default().insert(*cpu),
            (None, Some(cpus)) => _ = unnumbered.insert(*cpu, cpus.clone()),
            (None, None) => _ = unknown.insert(*cpu),
        };
    }
    if !unknown.is_empty() {
        oddities.push(Oddity::new(
            format!("{CPU_DIR}/cpu*/topology/physical_package_id"),
            format!("nothing about {}", name_cpus(&unknown)),
            "outside every package",
        ));
    }
    let mut candidates = derive_agreed(Level::Package, unnumbered, facts, oddities);
    for (package, cpus) in packages {
        let mut dies: BTreeMap<_, CpuSet> = BTreeMap::new();
        let mut unknown = CpuSet::new();
        for cpu in cpus.iter() {
            match facts.get(&cpu).and_then(|facts| facts.die_id) {
                Some(die) => dies.entry(die.0).or_default().insert(cpu),
                None => unknown.insert(cpu),
            };
        }
        if dies.is_empty() {
            dies.insert(0, cpus.clone());
        } else if !unknown.is_empty() {
            oddities.push(Oddity::new(
                format!("{CPU_DIR}/cpu*/topology/die_id"),
                format!(
                    "nothing about {}, but about others of package {package}",
                    name_cpus(&unknown)
                ),
                "outside every die",
            ));
        }
        candidates.push(Candidate { level: Level::Package, id: package.0, cpus });
        let dies = dies.into_iter();
        candidates.extend(dies.map(|(id, cpus)| Candidate { level: Level::Die, id, cpus }));
    }
    candidates
}

/// Drawers and books, which hold several packages each (s390). One that is a package, or the whole machine, is no object.
fn derive_around_packages(
    facts: &Facts<'_>,
    packages: &[Candidate],
    oddities: &mut Vec<Oddity>,
) -> Vec<Candidate> {
    let claims = |of: fn(&CpuFacts) -> &Option<AroundPackages>| {
        let said =
            facts.iter().filter_map(|(cpu, facts)| Some((*cpu, of(facts).as_ref()?.cpus.clone())));
        said.collect::<BTreeMap<CpuId, CpuSet>>()
    };
    let mut around = derive_agreed(Level::Drawer, claims(|facts| &facts.drawer), facts, oddities);
    around.extend(derive_agreed(Level::Book, claims(|facts| &facts.book), facts, oddities));
    let is_more = |it: &Candidate| {
        it.cpus.len() < facts.len() && packages.iter().all(|package| package.cpus != it.cpus)
    };
    around.retain(is_more);
    let mut seen = BTreeSet::new();
    around.retain(|it| seen.insert(it.cpus.clone()));
    around
}

/// The groups of one level on which all members agree, of their online CPUs. Claims that are contradicted are odd.
fn derive_agreed(
    level: Level,
    mut claims: BTreeMap<CpuId, CpuSet>,
    facts: &Facts<'_>,
    oddities: &mut Vec<Oddity>,
) -> Vec<Candidate> {
    let online: CpuSet = facts.keys().copied().collect();
    claims.values_mut().for_each(|cpus| *cpus = cpus.intersection(&online));
    claims.retain(|_, cpus| !cpus.is_empty());
    let (file, what) = match level {
        Level::Drawer => ("drawer_siblings_list", "drawer of"),
        Level::Book => ("book_siblings_list", "book of"),
        _ => ("package_cpus_list", "package of"),
    };
    let Agreed { groups, refused } = agree(&claims);
    oddities.extend(refused.iter().map(|refused| {
        let path = format!("{CPU_DIR}/cpu*/topology/{file}");
        Oddity::new(path, contradiction(what, refused), "left out")
    }));
    let number = |cpus: &CpuSet| {
        let facts = facts.get(&cpus.first()?)?;
        let around = if level == Level::Drawer { &facts.drawer } else { &facts.book };
        if level == Level::Package { None } else { around.as_ref()?.id }
    };
    let groups = groups.into_iter();
    groups
        .map(|cpus| Candidate { level, id: number(&cpus).unwrap_or(lowest(&cpus)), cpus })
        .collect()
}

/// Clusters that are something of their own: kernels name a cluster that is the core, the shared level 2 cache or the package, too.
fn derive_clusters(
    facts: &Facts<'_>,
    online: &CpuSet,
    others: &[Candidate],
    cores: &[CpuSet],
    oddities: &mut Vec<Oddity>,
) -> Vec<Candidate> {
    let claims = facts.iter().filter_map(|(cpu, facts)| {
        let cluster = facts.cluster_cpus.as_ref()?.intersection(online);
        (!cluster.is_empty()).then_some((*cpu, cluster))
    });
    let Agreed { groups, refused } = agree(&claims.collect());
    oddities.extend(refused.iter().map(|refused| {
        let path = format!("{CPU_DIR}/cpu*/topology/cluster_cpus_list");
        Oddity::new(path, contradiction("cluster of", refused), "no such cluster")
    }));
    let known: BTreeSet<&CpuSet> =
        others.iter().map(|candidate| &candidate.cpus).chain(cores).collect();
    let own = groups.into_iter().filter(|cpus| !known.contains(cpus));
    own.map(|cpus| Candidate { level: Level::Cluster, id: lowest(&cpus), cpus }).collect()
}

fn lowest(cpus: &CpuSet) -> u32 {
    cpus.first().map_or(0, |cpu| cpu.0)
}

/// The level 3 caches, and those level 2 caches that several cores share.
fn cache_objects(caches: &[Cache], cores: &[CpuSet]) -> Vec<Candidate> {
    let core_of: BTreeMap<_, &CpuSet> =
        cores.iter().flat_map(|core| core.iter().map(move |cpu| (cpu, core))).collect();
    let is_shared = |cpus: &CpuSet| {
        let core = cpus.first().and_then(|cpu| core_of.get(&cpu));
        core.is_none_or(|core| !cpus.is_subset(core))
    };
    let objects = caches.iter().filter_map(|cache| {
        let level = match cache.level {
            2 if is_shared(&cache.cpus) => Level::L2,
            3 => Level::L3,
            _ => return None,
        };
        Some(Candidate { level, id: cache.id, cpus: cache.cpus.clone() })
    });
    objects.collect()
}

fn oddity_of_left_out(left_out: &LeftOut) -> Oddity {
    let LeftOut { candidate: Candidate { level, id, cpus }, overlaps: (other, other_id) } =
        left_out;
    let path = match level {
        Level::NumaNode => format!("/sys/devices/system/node/node{id}/cpulist"),
        Level::L3 => format!("{CPU_DIR}/cpu*/cache/index3/shared_cpu_list"),
        Level::L2 => format!("{CPU_DIR}/cpu*/cache/index2/shared_cpu_list"),
        _ => format!("{CPU_DIR}/cpu*/topology"),
    };
    let found = format!(
        "{level} {id} ({}) and {other} {other_id} overlap, neither inside the other",
        fold_short(cpus)
    );
    Oddity::new(path, found, format!("{level} {id} has no place in the tree"))
}
