//! The edge to kernel files and to the disk. Everything here does I/O; nothing here decides.

mod cgroup_error;
pub mod counters;
pub mod disk;
pub mod fake_kernel;
pub mod fake_resctrl;
mod find_cgroup;
pub mod history;
mod irqbalance;
pub mod journal;
pub mod kernel;
pub mod kernel_files;
mod kernel_fs;
mod lines;
mod opening;
mod read_block_devices;
mod read_cgroup;
mod read_features;
mod read_holding;
mod read_huge_pages;
mod read_interrupts;
mod read_neighbours;
mod read_node_memory;
mod read_power;
mod read_process;
mod read_resctrl;
mod read_snapshot;
mod read_speed_select;
mod read_vector_use;
mod read_volumes;
mod recorded_machine;
mod resctrl_groups;
mod snapshot_file;
mod uncore_domains;
mod write_snapshot;

pub use cgroup_error::CgroupError;
pub use find_cgroup::{
    CGROUP_CONTROLLERS, ContainerCgroup, find_cgroup_paths, find_container_cgroup,
    find_container_cgroup_id, find_cpu_cgroup, find_cpuset_group, groups_realtime_threads,
    has_cgroup_v2, has_cpu_cgroups, pod_cgroup,
};
pub use read_block_devices::{read_block_devices, read_undivided_disks};
pub use read_cgroup::{CpuFiles, CpuStat, read_cgroup_files};
pub use read_features::{FeatureFacts, InterfaceFacts, read_features};
pub use read_holding::{Holding, read_holding, read_runtime_affinity};
pub use read_huge_pages::{read_free_huge_pages, read_used_huge_pages};
pub use read_interrupts::read_interrupts;
pub use read_neighbours::{
    CLAIMS_FILE, ClaimsError, CommandLine, read_claimed_cpus, read_command_lines,
};
pub use read_node_memory::{NodeMemory, read_node_memory};
pub use read_power::read_power;
pub use read_process::{ProcessError, read_capability, read_process_pinning};
pub use read_resctrl::{Resctrl, ResctrlState, read_resctrl};
pub use read_snapshot::{Depth, ReadError, capture, pods_limit_files, read_files, read_snapshot};
pub use read_speed_select::{read_core_power, read_speed_select, write_speed_select};
pub use read_vector_use::{VectorUse, read_vector_use, tells_vector_use};
pub use read_volumes::read_volumes;
pub use recorded_machine::{RecordedError, parse_recorded_machine, render_machine};
pub use resctrl_groups::{
    AssignReport, Assignment, GroupReport, apply_groups, assign_threads, count_outside,
};
pub use snapshot_file::{SnapshotFileError, pack_snapshot, read_snapshot_file};
pub use write_snapshot::write_snapshot;
