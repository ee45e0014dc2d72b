//! Which container owns which CPU, counted per core and per domain. In: CPUs that change hands. Out: free CPUs and free whole cores of each domain,
//! cores of two owners, half-owned cores.
//!
//! Every change costs what it touches, so that a long trace on a large machine is counted in time.

use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuId, CpuSet};

/// Domains of one kind: disjoint sets of CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    /// By CPU number.
    at: Vec<Option<usize>>,
    /// CPUs that can be handed out, by domain.
    capacity: Vec<usize>,
    /// Those without an owner.
    free: Vec<usize>,
    /// CPUs of those cores that are wholly free.
    free_whole: Vec<usize>,
}

impl Domains {
    fn new(sets: &[CpuSet], allocatable: &CpuSet) -> Domains {
        let mut at = Vec::new();
        for (index, cpus) in sets.iter().enumerate() {
            for cpu in cpus.iter() {
                let cpu = cpu.0 as usize;
                if at.len() <= cpu {
                    at.resize(cpu + 1, None);
                }
                if let Some(slot) = at.get_mut(cpu) {
                    *slot = Some(index);
                }
            }
        }
        let capacity: Vec<usize> =
            sets.iter().map(|cpus| cpus.intersection_len(allocatable)).collect();
        Domains { at, free: capacity.clone(), free_whole: vec![0; sets.len()], capacity }
    }

    fn of(&self, cpu: CpuId) -> Option<usize> {
        self.at.get(cpu.0 as usize).copied().flatten()
    }

    /// The one that all of `cpus` are in.
    fn around(&self, cpus: &CpuSet) -> Option<usize> {
        let first = self.of(cpus.first()?)?;
        cpus.iter().all(|cpu| self.of(cpu) == Some(first)).then_some(first)
    }

    /// Whether one of them has `count` free CPUs.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.largest_hole() >= count
    }

    /// Whether `cpus` lie in one of them.
    pub(crate) fn hold(&self, cpus: &CpuSet) -> bool {
        self.around(cpus).is_some()
    }

    /// How many of them `cpus` touch.
    pub(crate) fn spanned(&self, cpus: &CpuSet) -> usize {
        let mut touched: Vec<usize> = cpus.iter().filter_map(|cpu| self.of(cpu)).collect();
        touched.sort_unstable();
        touched.dedup();
        touched.len()
    }

    /// The fewest of them that have `count` free CPUs together; all that have any, if none does.
    pub(crate) fn fewest_for(&self, count: usize) -> usize {
        let mut free = self.free.clone();
        free.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        let needed = free.iter().take_while(|free| {
            let is_needed = sum < count;
            sum += **free;
            is_needed
        });
        needed.count()
    }

    /// Free CPUs of the one that has most.
    pub(crate) fn largest_hole(&self) -> usize {
        self.free.iter().copied().max().unwrap_or(0)
    }

    /// CPUs of free whole cores of the one that has most.
    pub(crate) fn largest_whole_hole(&self) -> usize {
        self.free_whole.iter().copied().max().unwrap_or(0)
    }

    /// CPUs of the largest one, when it is empty.
    pub(crate) fn largest(&self) -> usize {
        self.capacity.iter().copied().max().unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
struct Core {
    cpus: CpuSet,
    is_shared: bool,
    is_half_owned: bool,
    is_free: bool,
}

/// The machine and its owners.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// L3s.
    pub(crate) l3s: Domains,
    /// NUMA nodes with CPUs; on a machine without, the machine.
    pub(crate) nodes: Domains,
    /// Packages.
    pub(crate) packages: Domains,
    /// CPUs that can be handed out and have no owner.
    pub(crate) free: usize,
    /// CPUs of cores that are wholly free.
    pub(crate) free_whole: usize,
    /// Cores of more than one owner.
    pub(crate) shared_cores: usize,
    /// Cores with an owner and a CPU without one.
    pub(crate) half_owned_cores: usize,
    /// CPUs of the largest core.
    pub(crate) threads: usize,
    cores: Vec<Core>,
    core_at: Vec<Option<usize>>,
    allocatable: CpuSet,
    /// Owner by CPU number.
    owner: Vec<Option<usize>>,
}

impl Tally {
    /// A machine without owners. `allocatable` are the CPUs that can be handed out.
    pub(crate) fn new(topology: &Topology, allocatable: &CpuSet) -> Tally {
        let of_level = |level| -> Vec<CpuSet> {
            let objects = topology.objects().iter().filter(|object| object.level == level);
            objects.map(|object| object.cpus.clone()).collect()
        };
        let nodes = topology.nodes().iter().map(|node| node.cpus.clone());
        let mut nodes: Vec<CpuSet> = nodes.filter(|cpus| !cpus.is_empty()).collect();
        if nodes.is_empty() {
            nodes.push(topology.cpus().clone());
        }
        let cores = topology.cores();
        let domains = |sets: &[CpuSet]| Domains::new(sets, allocatable);
        let core_at = domains(cores).at;
        let mut tally = Tally {
            l3s: domains(&of_level(Level::L3)),
            nodes: domains(&nodes),
            packages: domains(&of_level(Level::Package)),
            free: allocatable.len(),
            free_whole: 0,
            shared_cores: 0,
            half_owned_cores: 0,
            threads: cores.iter().map(CpuSet::len).max().unwrap_or(1),
            cores: cores.iter().map(Core::new).collect(),
            owner: vec![None; core_at.len()],
            core_at,
            allocatable: allocatable.clone(),
        };
        (0..tally.cores.len()).for_each(|core| tally.recount(core));
        tally
    }

    /// `owner` takes `cpus`; true if one of them had an owner.
    pub(crate) fn take(&mut self, cpus: &CpuSet, owner: usize) -> bool {
        self.change(cpus, Some(owner)) > 0
    }

    /// `cpus` are free again.
    pub(crate) fn give_back(&mut self, cpus: &CpuSet) {
        self.change(cpus, None);
    }

    /// Whether a core is in `cpus` only in part.
    pub(crate) fn splits_core(&self, cpus: &CpuSet) -> bool {
        let cores = cpus.iter().filter_map(|cpu| self.cores.get(self.core_of(cpu)?));
        cores.into_iter().any(|core| !core.cpus.is_subset(cpus))
    }

    fn core_of(&self, cpu: CpuId) -> Option<usize> {
        self.core_at.get(cpu.0 as usize).copied().flatten()
    }

    /// How many of `cpus` had an owner.
    fn change(&mut self, cpus: &CpuSet, owner: Option<usize>) -> usize {
        let mut owned = 0;
        for cpu in cpus.iter() {
            let Some(slot) = self.owner.get_mut(cpu.0 as usize) else { continue };
            let (was_free, is_free) = (slot.is_none(), owner.is_none());
            owned += usize::from(!was_free);
            *slot = owner;
            if was_free == is_free || !self.allocatable.contains(cpu) {
                continue;
            }
            let change = |count: &mut usize| match is_free {
                true => *count += 1,
                false => *count -= 1,
            };
            change(&mut self.free);
            for domains in [&mut self.l3s, &mut self.nodes, &mut self.packages] {
                let at = domains.of(cpu);
                at.and_then(|at| domains.free.get_mut(at)).into_iter().for_each(change);
            }
        }
        let mut cores: Vec<usize> = cpus.iter().filter_map(|cpu| self.core_of(cpu)).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.into_iter().for_each(|core| self.recount(core));
        owned
    }

    /// Looks at one core anew.
    fn recount(&mut self, index: usize) {
        let Some(core) = self.cores.get_mut(index) else { return };
        let owners = core.cpus.iter().map(|cpu| self.owner.get(cpu.0 as usize).copied().flatten());
        let mut owned: Vec<usize> = owners.flatten().collect();
        let is_half_owned = !owned.is_empty() && owned.len() < core.cpus.len();
        let is_free = owned.is_empty() && core.cpus.is_subset(&self.allocatable);
        owned.sort_unstable();
        owned.dedup();
        let is_shared = owned.len() > 1;
        let adjust = |count: &mut usize, was: bool, is: bool, by: usize| match (was, is) {
            (false, true) => *count += by,
            (true, false) => *count -= by,
            _ => {}
        };
        adjust(&mut self.shared_cores, core.is_shared, is_shared, 1);
        adjust(&mut self.half_owned_cores, core.is_half_owned, is_half_owned, 1);
        adjust(&mut self.free_whole, core.is_free, is_free, core.cpus.len());
        for domains in [&mut self.l3s, &mut self.nodes, &mut self.packages] {
            if let Some(slot) =
                domains.around(&core.cpus).and_then(|at| domains.free_whole.get_mut(at))
            {
                adjust(slot, core.is_free, is_free, core.cpus.len());
            }
        }
        (core.is_shared, core.is_half_owned, core.is_free) = (is_shared, is_half_owned, is_free);
    }
}

impl Core {
    fn new(cpus: &CpuSet) -> Core {
        Core { cpus: cpus.clone(), is_shared: false, is_half_owned: false, is_free: false }
    }
}
