//! Everything that is wanted of kernel files, family by family. In: the configuration, who runs where, what the kernel offers. Out: settings,
//! and what cannot be had here.

mod resctrl;

use bayplan_enforcement::Settings;
use bayplan_host::kernel::Kernel;

use crate::config::Config;
use crate::enforcer::groups::GroupWork;
use crate::occupancy::Occupancy;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) settings: Settings,
    /// What is wanted and cannot be had here, a sentence each.
    pub(crate) problems: Vec<String>,
    /// Groups of resctrl, and the threads that belong into them.
    pub(crate) groups: GroupWork,
}

impl Gathered {
    /// Everything is given back.
    pub(crate) fn nothing(kernel: &mut dyn Kernel) -> Gathered {
        let plan = resctrl::without_groups(kernel);
        Gathered { groups: GroupWork { plan, ..GroupWork::default() }, ..Gathered::default() }
    }
}

/// Adds what it wants.
type Family = fn(&mut dyn Kernel, &Config, &Occupancy, &mut Gathered);

/// All of them; no two want the same file.
const FAMILIES: &[Family] = &[resctrl::gather_resctrl];

pub(crate) fn gather(kernel: &mut dyn Kernel, config: &Config, occupancy: &Occupancy) -> Gathered {
    let mut gathered = Gathered::default();
    for family in FAMILIES {
        family(kernel, config, occupancy, &mut gathered);
    }
    gathered
}
