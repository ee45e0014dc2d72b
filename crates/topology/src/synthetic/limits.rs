//! How large a machine may be, and why a line is not a machine.

use bayplan_types::CpuSet;

pub(super) const EXAMPLE: &str = "pack:2 numa:1 l3:1 core:8 pu:2";
/// `CONFIG_NR_CPUS` of the largest kernels that distributions ship.
pub(super) const CPUS_MAX: u32 = 8192;
/// `MAX_NUMNODES` with the largest `CONFIG_NODES_SHIFT`.
pub(super) const NODES_MAX: u32 = 1024;

/// Why a line is not a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// There is no word in the line.
    #[error(
        "the machine is empty; expected words such as `{EXAMPLE}`, or a preset such as xeon-8480"
    )]
    Empty,
    /// A word that is not understood, or not where it stands.
    #[error("`{word}`: expected {expected}; an example is `{EXAMPLE}`")]
    Word {
        /// The word.
        word: String,
        /// What was expected in its place.
        expected: String,
    },
    /// An option names CPUs that the machine has not.
    #[error("`{word}`: this machine has CPUs 0-{last}, not {missing}")]
    NoSuchCpu {
        /// The option.
        word: String,
        /// The CPUs that do not exist.
        missing: Box<CpuSet>,
        /// The highest CPU that exists.
        last: u32,
    },
    /// More than Linux can have.
    #[error("the machine has more than {limit} {what}; make one of the counts smaller")]
    TooLarge {
        /// CPUs, NUMA nodes or devices.
        what: &'static str,
        /// The limit.
        limit: u32,
    },
}

pub(super) fn wrong(word: &str, expected: impl Into<String>) -> SyntheticError {
    SyntheticError::Word { word: word.to_owned(), expected: expected.into() }
}
