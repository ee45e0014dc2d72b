//! JSON files that people write or generate. In: bytes, and the format that is expected. Out: the value, or every mistake with its place.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Mistakes that are listed; a file with more has one kind of mistake many times.
const LISTED_MAX: usize = 20;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    /// `3:17:`, ` event 5 (c00007):`, or nothing.
    pub(crate) place: String,
    /// What is wrong and what was expected.
    pub(crate) message: String,
}

/// Every mistake of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileErrors {
    path: PathBuf,
    /// At least one.
    errors: Vec<FileError>,
}

impl FileErrors {
    /// `Ok` if there is none.
    pub(crate) fn check(path: &Path, errors: Vec<FileError>) -> Result<(), FileErrors> {
        match errors.is_empty() {
            true => Ok(()),
            false => Err(FileErrors { path: path.to_owned(), errors }),
        }
    }

    fn one(path: &Path, place: String, message: String) -> FileErrors {
        FileErrors { path: path.to_owned(), errors: vec![FileError { place, message }] }
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FileError { place, message }) in self.errors.iter().enumerate() {
            match index {
                0 => {}
                LISTED_MAX => {
                    return write!(f, "\nand {} more mistakes", self.errors.len() - LISTED_MAX);
                }
                _ => f.write_str("\n")?,
            }
            write!(f, "{}:{place} {message}", self.path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for FileErrors {}

/// Whether this is JSON rather than a text or something compressed.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

#[derive(Deserialize)]
struct Head {
    format: Option<String>,
}

/// The value of a file that has `format` as its `format`; `path` is for messages only.
///
/// # Errors
/// It is no JSON, is cut off, is of another format, or lacks something.
pub(crate) fn parse_json<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    format: &str,
) -> Result<T, FileErrors> {
    let failed = |error: serde_json::Error| {
        let place = format!("{}:{}:", error.line(), error.column());
        FileErrors::one(path, place, describe(&error, format))
    };
    let head: Head = serde_json::from_slice(bytes).map_err(failed)?;
    match head.format {
        Some(found) if found == format => serde_json::from_slice(bytes).map_err(failed),
        Some(found) => {
            let shown: String = found.chars().take(60).collect();
            let message = format!("`format` is `{shown}`, expected `{format}`");
            Err(FileErrors::one(path, String::new(), message))
        }
        None => {
            let message = format!("there is no `format`, expected `{format}`");
            Err(FileErrors::one(path, String::new(), message))
        }
    }
}

/// The parser's words without the position, which stands elsewhere.
fn describe(error: &serde_json::Error, format: &str) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before);
    match error.classify() {
        Category::Eof => format!("the file ends too early ({text}); is it complete?"),
        Category::Syntax => format!("not JSON: {text}"),
        Category::Data | Category::Io => format!("not of format `{format}`: {text}"),
    }
}
