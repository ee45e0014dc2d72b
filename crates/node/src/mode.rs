//! Whether bayplan places containers. In: an operator's word. Out: a mode in the journal, and pinnings that follow from it.
//!
//! ```text
//! placing ◀── resume ──┬── drain ──▶ draining    new containers own no CPUs; owners keep theirs
//!                      └── restore ─▶ restored    every container runs everywhere; kubelet's calls pass through
//! ```
//!
//! The ledger stays as it is in every mode: what a container holds while `restored` is kept for it and not enforced, so that resuming moves none to
//! another place than the one that it had. A container that came meanwhile is found by the next sync and adopted where it runs.

use serde::{Deserialize, Serialize};

/// What bayplan does with containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Places them.
    #[default]
    Placing,
    /// Places them, and gives no CPUs of their own to those that have none.
    Draining,
    /// Lets all of them run everywhere, and kubelet's calls pass through.
    Restored,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Placing, Mode::Draining, Mode::Restored];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Placing => "placing",
            Mode::Draining => "draining",
            Mode::Restored => "restored",
        }
    }
}

/// What a change of the mode would do; format `bayplan-mode-plan/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModePlan {
    /// Names the format.
    pub format: String,
    /// The mode now.
    pub from: Mode,
    /// The mode afterwards.
    pub to: Mode,
    /// Containers that hold CPUs of their own, and keep them.
    pub owners: usize,
    /// Containers with sets that change.
    pub changes: Vec<PinningChange>,
}

/// What changes for one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinningChange {
    /// `namespace/pod/container`.
    pub container: String,
    /// Its CPUs now.
    pub cpus_from: String,
    /// Its CPUs afterwards.
    pub cpus_to: String,
    /// Its memory nodes now.
    pub mems_from: String,
    /// Its memory nodes afterwards.
    pub mems_to: String,
}

/// What came of a change of the mode; format `bayplan-mode/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeReport {
    /// Names the format.
    pub format: String,
    /// The mode now.
    pub mode: Mode,
    /// Containers that do not run where they should, as was read back. They are written again with the next change.
    pub not_in_place: Vec<NotInPlace>,
    /// Why nothing could be read back; absent where it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
    /// Kernel files that do not say what they should, and why; they are tried again.
    #[serde(default)]
    pub files_not_written: Vec<String>,
    /// The mode is not on disk, and would end with the daemon.
    #[serde(default)]
    pub is_unkept: bool,
}

/// A container that does not run where it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotInPlace {
    /// `namespace/pod/container`.
    pub container: String,
    /// Where it runs and where it should, or why that is not known.
    pub why: String,
}
