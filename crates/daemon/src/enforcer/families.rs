//! Everything that is wanted of kernel files, family by family. In: the configuration, who runs where, what the kernel offers. Out: settings,
//! and what cannot be had here.

use bayplan_enforcement::Settings;
use bayplan_host::kernel::Kernel;

use crate::config::Config;
use crate::occupancy::Occupancy;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) settings: Settings,
    /// What is wanted and cannot be had here, a sentence each.
    pub(crate) problems: Vec<String>,
}

/// Adds what it wants.
type Family = fn(&mut dyn Kernel, &Config, &Occupancy, &mut Gathered);

/// All of them; no two want the same file.
const FAMILIES: &[Family] = &[];

pub(crate) fn gather(kernel: &mut dyn Kernel, config: &Config, occupancy: &Occupancy) -> Gathered {
    let mut gathered = Gathered::default();
    for family in FAMILIES {
        family(kernel, config, occupancy, &mut gathered);
    }
    gathered
}
