//! What keeps a configuration from holding.

use std::fmt;

/// Something that keeps a configuration from holding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// ``class `web` ``, ``partition `batch` ``, `L3 cache`.
    pub of: String,
    /// What was asked for, what the machine can, and what to do.
    pub text: String,
}

impl Problem {
    pub(super) fn new(of: &str, text: &str) -> Problem {
        Problem { of: of.to_owned(), text: text.to_owned() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.text)
    }
}
