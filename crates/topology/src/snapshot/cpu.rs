//! Facts about CPUs.

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, Khz, PackageId};

/// Facts about one CPU. A reader that trusts the lists of one thread of a core may leave out what the others would repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFacts {
    /// The number in the directory's name.
    pub id: CpuId,
    /// `online`; CPUs that cannot be switched off have no such file.
    pub online: Option<bool>,
    /// `topology/physical_package_id`; `None` also where the kernel says -1, "not known".
    pub package_id: Option<PackageId>,
    /// `topology/package_cpus_list`, before Linux 5.3 `core_siblings_list`; read only where the package has no number (s390).
    pub package_cpus: Option<CpuSet>,
    /// `topology/die_id` (since Linux 5.2); `None` also where the kernel says -1.
    pub die_id: Option<DieId>,
    /// `topology/core_id`; `None` also where the kernel says -1, and where it was not read because placement does not depend on it.
    pub core_id: Option<CoreId>,
    /// `topology/book_id` and `book_siblings_list`: packages of one board (s390).
    pub book: Option<AroundPackages>,
    /// `topology/drawer_id` and `drawer_siblings_list`: books of one drawer (s390).
    pub drawer: Option<AroundPackages>,
    /// `topology/cluster_cpus_list` (since Linux 5.16).
    pub cluster_cpus: Option<CpuSet>,
    /// `topology/core_cpus_list`, before Linux 5.3 `thread_siblings_list`.
    pub thread_siblings: Option<CpuSet>,
    /// `cpu_capacity`: speed relative to the fastest CPU, which has 1024 (Arm, RISC-V).
    pub capacity: Option<u32>,
    /// One entry per `cache/indexN` directory that holds data.
    pub caches: Vec<CacheFacts>,
}

impl CpuFacts {
    /// A CPU of which nothing is known but that its directory exists.
    pub fn new(id: CpuId) -> CpuFacts {
        CpuFacts {
            id,
            online: None,
            package_id: None,
            package_cpus: None,
            die_id: None,
            core_id: None,
            book: None,
            drawer: None,
            cluster_cpus: None,
            thread_siblings: None,
            capacity: None,
            caches: Vec::new(),
        }
    }
}

/// What one CPU says of a group of packages that it belongs to (`Documentation/admin-guide/cputopology.rst`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AroundPackages {
    /// The kernel's number; `None` where it says -1.
    pub id: Option<u32>,
    /// The CPUs of the group.
    pub cpus: CpuSet,
}

/// Facts about one cache as one CPU sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// `level`.
    pub level: Option<u32>,
    /// `type`.
    pub kind: Option<CacheKind>,
    /// `shared_cpu_list`.
    pub shared_cpus: Option<CpuSet>,
    /// `size`.
    pub size: Option<Bytes>,
    /// `id` (since Linux 4.10, not on every architecture); left out where the threads of one core share the cache.
    pub id: Option<u32>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    /// `Data`.
    Data,
    /// `Instruction`.
    Instruction,
    /// `Unified`.
    Unified,
}

/// The CPUs of one kind of core, as the kernel's performance monitoring names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindFacts {
    /// `cpu_core`, `cpu_atom` or `cpu_lowpower`.
    pub name: String,
    /// `cpus`.
    pub cpus: CpuSet,
}

/// Facts about CPUs that have their frequency set together (`Documentation/admin-guide/pm/cpufreq.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// The number in the directory's name.
    pub id: u32,
    /// `affected_cpus` or `related_cpus`; left out where the policy is that of one CPU with the same number.
    pub cpus: Option<CpuSet>,
    /// `base_frequency` (intel_pstate): what the CPU keeps up under any load.
    pub base: Option<Khz>,
    /// `cpuinfo_min_freq`.
    pub min: Option<Khz>,
    /// `cpuinfo_max_freq`.
    pub max: Option<Khz>,
    /// `energy_performance_preference`: a word or a number from 0 (performance) to 255.
    pub preference: Option<String>,
}
