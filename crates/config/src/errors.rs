//! Mistakes of a configuration, each with its place. In: mistakes in any order. Out: one error that lists them as compilers do.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::yaml::Position;

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where.
    pub at: Position,
    /// What is wrong, what was expected, what to do.
    pub message: String,
}

/// Every mistake of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file.
    pub path: PathBuf,
    /// In the order of their positions; at least one.
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// An error with these mistakes in the order of their positions.
    ///
    /// # Errors
    /// There is at least one.
    pub fn none_of(path: &Path, mut errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        errors.sort_by_key(|error| error.at);
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ConfigErrors { path: path.to_owned(), errors }),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let ConfigError { at, message } = error;
            write!(f, "{}:{}:{}: {message}", self.path.display(), at.line, at.column)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
