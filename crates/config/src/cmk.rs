//! The pools of CMK (CPU Manager for Kubernetes): named sets of CPU lists, of which a container or a process gets one or several.
//!
//! In an exclusive pool a list is one physical core and has one user; in others all users of a pool share its lists. `layout.rs` reads and writes the forms in which they are
//! stored, `divide.rs` and `core_power.rs` cut a machine into pools, `choose.rs` picks lists, and `show.rs` has what the
//! commands print.

mod choose;
mod core_power;
mod cores;
mod divide;
mod layout;
mod show;

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

pub use self::choose::{ChooseError, Wanted, choose};
pub use self::cores::{DivideError, Division, Mode};
pub use self::divide::divide;
pub use self::layout::{directory, is_stray, parse_cpu_list, render_cpu_list};
pub use self::show::{Reclaimed, describe, node_report, reclaim, reconcile_report};

/// A list of CPUs, and what runs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number of the package; `None` in the first layout, which does not say.
    pub socket: Option<u32>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Process ids.
    pub tasks: Vec<u32>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Each list has one user at a time.
    pub is_exclusive: bool,
    /// Its lists, by socket and lowest CPU.
    pub slots: Vec<Slot>,
}

impl Pool {
    /// All of its CPUs.
    pub fn cpus(&self) -> CpuSet {
        let mut cpus = CpuSet::new();
        self.slots.iter().for_each(|slot| cpus.union_with(&slot.cpus));
        cpus
    }

    fn sort(&mut self) {
        self.slots.sort_by_key(|slot| (slot.socket, slot.cpus.first()));
    }
}

/// All pools of a node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// `exclusive`, `shared`, `infra`; in the first release `dataplane` and `controlplane`.
    pub pools: BTreeMap<String, Pool>,
}

impl Pools {
    /// CPUs of all pools with this property.
    pub fn cpus_of(&self, name: &str) -> CpuSet {
        self.pools.get(name).map(Pool::cpus).unwrap_or_default()
    }
}
