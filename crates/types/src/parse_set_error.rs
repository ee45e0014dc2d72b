//! Why a text is not a set of CPUs or NUMA nodes.

/// Why a text is not a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSetError {
    /// Neither a number nor a range; `part` is the piece between two commas.
    #[error("`{part}` is not a number or a range such as 0-3")]
    Malformed {
        /// The offending piece.
        part: String,
    },
    /// Long ranges over and over.
    #[error("at `{part}` the list has named every number several times")]
    Repeated {
        /// The piece at which it was enough.
        part: String,
    },
    /// A number above what any machine has.
    #[error("`{part}` is above 65535, the largest number accepted")]
    TooLarge {
        /// The offending piece.
        part: String,
    },
}
