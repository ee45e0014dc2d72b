//! Levels to cores and CPUs.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, PackageId};

use super::limits::{CPUS_MAX, NODES_MAX, SyntheticError};
use super::words::{Kind, Words};
use crate::snapshot::{CacheFacts, CacheKind, CpuFacts};

/// Efficient cores that share a level 2 cache.
const MODULE: u32 = 4;
const CACHES: [Bytes; 3] = [Bytes(48 << 10), Bytes(2 << 20), Bytes(32 << 20)];

/// Where one core is. Every number but that of die and core counts over the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) pack: u32,
    die: Option<u32>,
    pub(super) numa: Option<u32>,
    l3: Option<u32>,
    cluster: Option<u32>,
    /// The cores that share a level 2 cache have the same number.
    l2: u32,
    /// Counted in its package.
    core: u32,
    is_efficient: bool,
}

/// The cores and their CPUs.
#[derive(Debug)]
pub(super) struct Shape {
    cores: Vec<Place>,
    /// Core of each CPU.
    core_of: Vec<usize>,
    caches: [Bytes; 3],
    /// The CPUs of each object.
    of_core: Vec<CpuSet>,
    of_l2: BTreeMap<u32, CpuSet>,
    of_cluster: BTreeMap<u32, CpuSet>,
    of_l3: BTreeMap<u32, CpuSet>,
    of_numa: BTreeMap<u32, CpuSet>,
}

impl Shape {
    pub(super) fn new(words: &Words) -> Result<Shape, SyntheticError> {
        let cores = Builder::new(words).build(words)?;
        let threads = match words.levels.iter().find(|(kind, _)| *kind == Kind::Pu) {
            Some((_, counts)) => counts.first().copied().unwrap_or(1),
            None => 1,
        };
        let large = || cores.iter().enumerate().filter(|(_, core)| !core.is_efficient);
        let small = cores.iter().enumerate().filter(|(_, core)| core.is_efficient);
        let mut core_of = Vec::new();
        for _ in 0..threads {
            core_of.extend(large().map(|(position, _)| position));
            too_many(core_of.len(), "CPUs", CPUS_MAX)?;
        }
        core_of.extend(small.map(|(position, _)| position));
        too_many(core_of.len(), "CPUs", CPUS_MAX)?;
        let caches = words.caches.unwrap_or(CACHES);
        let mut shape = Shape {
            of_core: vec![CpuSet::new(); cores.len()],
            cores,
            core_of,
            caches,
            of_l2: BTreeMap::new(),
            of_cluster: BTreeMap::new(),
            of_l3: BTreeMap::new(),
            of_numa: BTreeMap::new(),
        };
        shape.fill();
        too_many(shape.of_numa.len(), "NUMA nodes", NODES_MAX)?;
        Ok(shape)
    }

    fn fill(&mut self) {
        for (cpu, core) in (0..).map(CpuId).zip(&self.core_of) {
            let Some(place) = self.cores.get(*core) else { continue };
            if let Some(cpus) = self.of_core.get_mut(*core) {
                cpus.insert(cpu);
            }
            for (objects, number) in [
                (&mut self.of_l2, Some(place.l2)),
                (&mut self.of_cluster, place.cluster),
                (&mut self.of_l3, place.l3),
                (&mut self.of_numa, place.numa),
            ] {
                if let Some(number) = number {
                    objects.entry(number).or_default().insert(cpu);
                }
            }
        }
    }

    pub(super) fn cpu_count(&self) -> u32 {
        u32::try_from(self.core_of.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_hybrid(&self) -> bool {
        self.cores.iter().any(|core| core.is_efficient)
    }

    pub(super) fn is_efficient(&self, cpu: CpuId) -> bool {
        self.place(cpu).is_some_and(|(_, place)| place.is_efficient)
    }

    /// NUMA nodes, each with its package and CPUs.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (u32, u32, &CpuSet)> {
        self.of_numa.iter().map(|(numa, cpus)| {
            let place = cpus.first().and_then(|cpu| self.place(cpu));
            (*numa, place.map_or(0, |(_, place)| place.pack), cpus)
        })
    }

    /// The CPUs of each package.
    pub(super) fn packages(&self) -> BTreeMap<u32, CpuSet> {
        let mut packages: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (core, cpus) in self.cores.iter().zip(&self.of_core) {
            packages.entry(core.pack).or_default().union_with(cpus);
        }
        packages
    }

    fn place(&self, cpu: CpuId) -> Option<(usize, &Place)> {
        let core = *self.core_of.get(cpu.0 as usize)?;
        Some((core, self.cores.get(core)?))
    }

    /// What Linux shows: an offline CPU has a directory, but no `topology` and no `cache`, and is in no list.
    pub(super) fn cpu(&self, cpu: CpuId, online: &CpuSet) -> CpuFacts {
        let Some((core, place)) = self.place(cpu).filter(|_| online.contains(cpu)) else {
            return CpuFacts { online: Some(false), ..CpuFacts::new(cpu) };
        };
        let running = |cpus: Option<&CpuSet>| cpus.map(|cpus| cpus.intersection(online));
        let cache = |level, kind, shared_cpus, size, id| CacheFacts {
            level: Some(level),
            kind: Some(kind),
            shared_cpus,
            size: Some(size),
            id,
        };
        let siblings = running(self.of_core.get(core));
        let [l1_size, l2_size, l3_size] = self.caches;
        let l2_cpus = running(self.of_l2.get(&place.l2));
        let l2_id = (l2_cpus != siblings).then_some(place.l2);
        let mut caches = vec![
            cache(1, CacheKind::Data, siblings.clone(), l1_size, None),
            cache(2, CacheKind::Unified, l2_cpus, l2_size, l2_id),
        ];
        caches.extend(place.l3.map(|l3| {
            cache(3, CacheKind::Unified, running(self.of_l3.get(&l3)), l3_size, Some(l3))
        }));
        CpuFacts {
            id: cpu,
            online: Some(true),
            package_id: Some(PackageId(place.pack)),
            package_cpus: None,
            die_id: place.die.map(DieId),
            core_id: Some(CoreId(place.core)),
            book: None,
            drawer: None,
            cluster_cpus: place.cluster.and_then(|cluster| running(self.of_cluster.get(&cluster))),
            thread_siblings: siblings,
            capacity: None,
            caches,
        }
    }
}

pub(super) fn too_many(count: usize, what: &'static str, limit: u32) -> Result<(), SyntheticError> {
    if count > limit as usize { Err(SyntheticError::TooLarge { what, limit }) } else { Ok(()) }
}

/// Multiplies the levels out.
struct Builder {
    cores: Vec<Place>,
    /// How many objects of each level there are by now.
    counts: Vec<u32>,
    has_l2: bool,
    efficient: u32,
    l2s: u32,
    dies_in_pack: u32,
    cores_in_pack: u32,
}

impl Builder {
    fn new(words: &Words) -> Builder {
        Builder {
            cores: Vec::new(),
            counts: vec![0; words.levels.len()],
            has_l2: words.has(Kind::L2),
            efficient: words.efficient.unwrap_or(0),
            l2s: 0,
            dies_in_pack: 0,
            cores_in_pack: 0,
        }
    }

    fn build(mut self, words: &Words) -> Result<Vec<Place>, SyntheticError> {
        let levels: Vec<(Kind, &[u32])> = words
            .levels
            .iter()
            .filter(|(kind, _)| *kind != Kind::Pu)
            .map(|(kind, counts)| (*kind, counts.as_slice()))
            .collect();
        self.below(&levels, 0, 0, Place::default())?;
        Ok(self.cores)
    }

    /// The objects of `levels[at..]` inside the `parent`-th object of the level outside.
    fn below(
        &mut self,
        levels: &[(Kind, &[u32])],
        at: usize,
        parent: u32,
        place: Place,
    ) -> Result<(), SyntheticError> {
        let (kind, count) = match levels.get(at) {
            Some((kind, counts)) => {
                let turn = parent as usize % counts.len().max(1);
                (*kind, counts.get(turn).copied().unwrap_or(1))
            }
            None => (Kind::Core, 1),
        };
        if kind == Kind::Core {
            return self.cores(count, place);
        }
        for _ in 0..count {
            let number = self.counts.get(at).copied().unwrap_or(0);
            if let Some(counted) = self.counts.get_mut(at) {
                *counted += 1;
            }
            let mut inside = place;
            match kind {
                Kind::Pack => {
                    inside.pack = number;
                    (self.dies_in_pack, self.cores_in_pack) = (0, 0);
                }
                Kind::Die => {
                    inside.die = Some(self.dies_in_pack);
                    self.dies_in_pack += 1;
                }
                Kind::Numa => inside.numa = Some(number),
                Kind::L3 => inside.l3 = Some(number),
                Kind::Cluster => inside.cluster = Some(number),
                Kind::L2 => {
                    inside.l2 = self.l2s;
                    self.l2s += 1;
                }
                Kind::Core | Kind::Pu => {}
            }
            self.below(levels, at + 1, number, inside)?;
        }
        Ok(())
    }

    fn cores(&mut self, count: u32, place: Place) -> Result<(), SyntheticError> {
        for _ in 0..count {
            let l2 = if self.has_l2 { place.l2 } else { self.next_l2() };
            self.core(Place { l2, ..place })?;
        }
        let mut l2 = 0;
        for number in 0..self.efficient {
            if number % MODULE == 0 {
                l2 = self.next_l2();
            }
            self.core(Place { l2, is_efficient: true, ..place })?;
        }
        Ok(())
    }

    fn next_l2(&mut self) -> u32 {
        self.l2s += 1;
        self.l2s - 1
    }

    fn core(&mut self, place: Place) -> Result<(), SyntheticError> {
        self.cores.push(Place { core: self.cores_in_pack, ..place });
        self.cores_in_pack += 1;
        too_many(self.cores.len(), "CPUs", CPUS_MAX)
    }
}
