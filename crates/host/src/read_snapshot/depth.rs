//! How much of a machine is read.

/// How much is read. A deeper reading has all that a shallower one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// What placement depends on: [`Depth::Cores`] without the kernel's numbers of cores, which are names for people.
    Placement,
    /// What the threads of a core have in common is read once per core, as long as nothing contradicts that they are one core, and what cores of one
    /// kind in one package have in common once per package. Enough where the kernel is believed.
    Cores,
    /// Every file of every CPU, so that contradictions between them are seen.
    Cpus,
}
