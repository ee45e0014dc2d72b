//! What was agreed with a container when it was placed.

use bayplan_topology::Level;

use crate::wishes::{Owner, Part, Preserve};

/// What was agreed with a container for as long as it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Its pod and namespace.
    pub owner: Owner,
    /// No other container owns CPUs in the domains of this level in which it owns some.
    pub closes: Option<Level>,
    /// It runs on one thread of each core.
    pub hides_hyperthreads: bool,
    /// Its members run on idle CPUs of these domains around it, too.
    pub shares_idle: Option<Level>,
    /// It stays where it is, also when others could use the place.
    pub is_immovable: bool,
    /// Its memory is on the nodes of its CPUs.
    pub is_memory_bound: bool,
    /// It accepts no place farther from its devices or, with CPUs of its own, wider: its shared part does not make room.
    pub is_place_bound: bool,
    /// What is set aside for it is what it will probably use; others may have it.
    pub memory_is_expected: bool,
    /// What bayplan leaves alone.
    pub preserve: Preserve,
    /// Whether its CPUs are its pod's.
    pub part: Part,
}
