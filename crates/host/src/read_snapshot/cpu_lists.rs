//! Sets of CPUs, each in one of several files.

use bayplan_types::CpuSet;

use crate::kernel_fs::{Dir, KernelFs};

/// The first file that can be used; old kernels have only masks.
pub(super) fn read_cpu_set(
    fs: &mut KernelFs,
    dir: &Dir,
    lists: &[&str],
    masks: &[&str],
) -> Option<CpuSet> {
    let list = lists.iter().find_map(|file| fs.value(dir, file));
    list.or_else(|| {
        let parse = |text: &str| CpuSet::parse_mask(text).ok();
        masks.iter().find_map(|file| fs.parsed(dir, file, parse))
    })
}
