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
    /// What was found; for most of what is not as it should be, also what to do.
    pub message: String,
    /// What mends it, where the message does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

impl Finding {
    /// Without a remedy.
    pub fn new(check: &'static str, severity: Severity, message: String) -> Finding {
        Finding { check, severity, message, remedy: None }
    }

    /// With what mends it.
    #[must_use]
    pub fn with_remedy(self, remedy: &'static str) -> Finding {
        Finding { remedy: Some(remedy), ..self }
    }
}

pub(crate) fn finding(
    check: &'static str,
    severity: Severity,
    message: impl Into<String>,
) -> Finding {
    Finding::new(check, severity, message.into())
}
