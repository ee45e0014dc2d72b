//! What is free of huge pages, and what containers use of them. In: the machine's files, and the containers that have asked for some. Out: [`HugePagesNow`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{read_free_huge_pages, read_used_huge_pages};
use bayplan_node::NodeState;
use bayplan_node::huge_pages::{HugePageUser, HugePagesNow};

/// The containers that have asked for huge pages, as the task that owns the state has published them last. A creation reads them here and does
/// not wait for that task.
#[derive(Clone, Debug, Default)]
pub(crate) struct HugePageUsers(Arc<Mutex<Arc<[HugePageUser]>>>);

impl HugePageUsers {
    /// To be called after each change, before it is answered.
    pub(crate) fn publish(&self, state: &NodeState) {
        let users: Arc<[HugePageUser]> = state.huge_page_users().collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = users;
    }

    /// As they were published last.
    pub(crate) fn now(&self) -> Arc<[HugePageUser]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads what is free, and what these containers use.
pub(crate) fn read_huge_pages(root: &Path, users: &[HugePageUser]) -> HugePagesNow {
    let Ok(mut kernel) = DiskKernel::open(root) else { return HugePagesNow::default() };
    let free = read_free_huge_pages(&mut kernel);
    let used = users.iter().filter_map(|HugePageUser { runtime_id, cgroup_parent, sizes }| {
        let used = read_used_huge_pages(&mut kernel, cgroup_parent, runtime_id, sizes)?;
        Some((runtime_id.clone(), used))
    });
    HugePagesNow { used: used.collect(), free }
}
