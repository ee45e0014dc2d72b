//! What each family of kernel files is. In: the configuration, which container runs where, what the kernel offers. Out: what it adds to [`Gathered`].

use std::collections::BTreeMap;

use bayplan_enforcement::{Original, Slot, Unmovable};
use bayplan_host::kernel::Kernel;
use bayplan_node::occupancy::Occupancy;
use jiff::civil::Time;

use super::gathered::Gathered;
use crate::config::Config;

/// What a family sees at a look.
pub(crate) struct Context<'a> {
    pub(crate) kernel: &'a mut dyn Kernel,
    pub(crate) config: &'a Config,
    pub(crate) occupancy: &'a Occupancy,
    /// What files said before.
    pub(crate) originals: &'a BTreeMap<Slot, Original>,
    /// What the kernel does not let any program change.
    pub(crate) unmovable: &'a Unmovable,
    /// Of the day, for schedules.
    pub(crate) time: Time,
}

/// One kind of kernel files. What it keeps from look to look is its own; no two families want the same file, and where two could, the one before counts.
pub(super) trait Family: std::fmt::Debug + Send {
    /// Adds what it wants, and what cannot be had.
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered);

    /// Files were written: what it knows of the machine may be something else.
    fn forget(&mut self) {}
}
