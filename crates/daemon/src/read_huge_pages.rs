//! What is free of huge pages, and what containers use of them. In: the machine's files, and the containers that have asked for some. Out: [`HugePagesNow`].

use std::path::Path;

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{read_free_huge_pages, read_used_huge_pages};
use bayplan_node::huge_pages::HugePagesNow;
use bayplan_node::occupancy::Occupancy;
use bayplan_types::Bytes;

/// Reads them; of the containers only those that have asked for some are looked for.
pub(crate) fn read_huge_pages(root: &Path, occupancy: &Occupancy) -> HugePagesNow {
    let Ok(mut kernel) = DiskKernel::open(root) else { return HugePagesNow::default() };
    let free = read_free_huge_pages(&mut kernel);
    let asking = occupancy.occupants.iter().filter(|it| !it.spec.huge_pages.is_empty());
    let used = asking.filter_map(|it| {
        let sizes: Vec<Bytes> = it.spec.huge_pages.keys().copied().collect();
        let parent = &it.spec.pod.cgroup_parent;
        let used = read_used_huge_pages(&mut kernel, parent, &it.runtime_id, &sizes)?;
        Some((it.runtime_id.clone(), used))
    });
    HugePagesNow { used: used.collect(), free }
}
