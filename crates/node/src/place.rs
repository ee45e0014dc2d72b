//! Where a container is, as the history tells it.

use serde::{Deserialize, Serialize};

/// Where a container is. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// Its pool; `reserved` for one on the reserved CPUs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// CPUs that no other container runs on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub own: String,
    /// All that it may run on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpus: String,
    /// Its memory nodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mems: String,
}
