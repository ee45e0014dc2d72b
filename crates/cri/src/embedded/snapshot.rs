//! What is told of the embedded runtime: its name, and its containers.

use bayplan_workload::runtime::ContainerState;

/// What the runtime calls itself in `Version`.
pub const NAME: &str = "bayplan-embedded";

/// A container as the runtime holds it; for tests and the demo's display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSnapshot {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its sandbox.
    pub pod_id: String,
    /// Name in the pod.
    pub name: String,
    /// Counts restarts.
    pub attempt: u32,
    /// What it would be doing.
    pub state: ContainerState,
    /// `cpuset.cpus` as it was written; empty is "not set".
    pub cpus: String,
    /// `cpuset.mems` as it was written; empty is "not set".
    pub mems: String,
    /// `cpu.shares`; 0 is "not set", as for all numbers here.
    pub cpu_shares: i64,
    /// Microseconds.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory_limit: i64,
    /// What it runs, arguments included.
    pub command: Vec<String>,
    /// Its environment: names and values.
    pub variables: Vec<(String, String)>,
    /// What it sees of the host: where it sees it, and where it is.
    pub mounts: Vec<(String, String)>,
}
