//! So many of given CPUs, whatever others hold.

use bayplan_types::CpuSet;

use super::{Picker, Spread};
use crate::budget::{Budgets, Supply, Unit, Units};
use crate::counted::Counted;
use crate::pool::{PoolId, Pools};

/// So many of these CPUs, whole cores first, or one thread of each core.
pub(crate) fn choose(pools: &Pools, cpus: &CpuSet, count: usize, is_spread: bool) -> CpuSet {
    let takeable = Counted::new(pools, cpus);
    let unit = if is_spread { Unit::Spread } else { Unit::Cpu };
    let units = Units { unit, only_whole: false, cpus: 1 };
    let supply = Supply { pools, shared: None, takeable: &takeable, units };
    let budgets = Budgets::new(&supply, &[]);
    Picker::new(supply, budgets, None, Spread::default(), count).pick(PoolId::MACHINE)
}
