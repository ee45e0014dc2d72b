//! What the runtime keeps of each sandbox and each container.

use crate::v1::{self, ContainerState};

/// One sandbox.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) id: String,
    pub(super) config: v1::PodSandboxConfig,
    pub(super) runtime_handler: String,
    pub(super) is_ready: bool,
    pub(super) created_at: i64,
}

/// One container.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) pod_id: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) resources: v1::LinuxContainerResources,
    pub(super) cgroup_parent: String,
    pub(super) state: ContainerState,
    pub(super) created_at: i64,
    pub(super) started_at: i64,
    pub(super) finished_at: i64,
    pub(super) exit_code: i32,
}
