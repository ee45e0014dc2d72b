//! What was found of a node: a value that `bayplan check`, the log and the metrics share.

use std::borrow::Cow;

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
    /// What was found.
    pub message: String,
    /// What mends it; only what is as it should be has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<Cow<'static, str>>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Ok, message: message.into(), remedy: None }
    }

    /// Works, but not as well as it could with the remedy.
    pub fn warning(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Finding {
        let (severity, remedy) = (Severity::Warning, Some(remedy.into()));
        Finding { check, severity, message: message.into(), remedy }
    }

    /// Does not work without the remedy.
    pub fn failure(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding { severity: Severity::Failure, ..Finding::warning(check, message, remedy) }
    }

    /// What mends it.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// In one line, with the remedy.
    pub fn in_words(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.message),
            None => self.message.clone(),
        }
    }
}
