//! What was found of a node: a value that `bayplan check`, the log and the metrics share.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but not as well as it could.
    Warning,
    /// Does not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, a short word.
    pub check: &'static str,
    /// How it is.
    pub severity: Severity,
    /// What was found and what to do.
    pub message: String,
}

pub(crate) fn finding(
    check: &'static str,
    severity: Severity,
    message: impl Into<String>,
) -> Finding {
    Finding { check, severity, message: message.into() }
}
