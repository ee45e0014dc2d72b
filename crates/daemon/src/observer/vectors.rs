//! Use of AVX-512 by container. In: the groups of containers that are there. Out: what some threads of each did since the last reading.
//!
//! A reading costs one file per thread, of at most 64 threads of a container. Where the processor has no AVX-512, that is asked once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bayplan_host::kernel::Kernel;
use bayplan_host::{VectorUse, find_container_cgroup, read_vector_use, tells_vector_use};
use bayplan_node::occupancy::Occupant;
use bayplan_types::MilliCpu;

/// The kernel notes use when a thread leaves a CPU, so that less would miss some.
const LATELY_MIN: Duration = Duration::from_secs(2);

/// Less than half a CPU lowers no frequency that others would feel.
const BUSY_MIN: MilliCpu = MilliCpu(500);

/// Which containers use wide vectors enough to count, of those of which use and CPU time are known, by the runtime's ids.
pub(super) fn used_much<'a>(
    read: impl IntoIterator<Item = (&'a str, Option<VectorUse>)>,
    used: &BTreeMap<String, MilliCpu>,
) -> BTreeMap<String, bool> {
    let known = read.into_iter().filter_map(|(id, found)| {
        let (found, used) = (found?, used.get(id)?);
        Some((id.to_owned(), found.using > 0 && *used >= BUSY_MIN))
    });
    known.collect()
}

/// What is known from one reading to the next.
#[derive(Debug, Default)]
pub(super) struct VectorFiles {
    /// `None` before it was asked.
    is_told: Option<bool>,
    /// Directories of groups, by the runtime's ids.
    dirs: BTreeMap<String, Vec<String>>,
    last: Option<Instant>,
    lately: Duration,
    turn: usize,
}

impl VectorFiles {
    /// A reading begins, of containers with these ids of the runtime.
    pub(super) fn begin(&mut self, kernel: &mut dyn Kernel, ids: &BTreeSet<&str>, now: Instant) {
        self.is_told.get_or_insert_with(|| tells_vector_use(kernel));
        self.dirs.retain(|id, _| ids.contains(id.as_str()));
        let since = self.last.replace(now).map(|last| now.saturating_duration_since(last));
        self.lately = since.unwrap_or_default().max(LATELY_MIN);
        self.turn = self.turn.wrapping_add(1);
    }

    /// What threads of a container did; `None` where that is not told.
    pub(super) fn read(&mut self, kernel: &mut dyn Kernel, it: &Occupant) -> Option<VectorUse> {
        if self.is_told != Some(true) {
            return None;
        }
        if !self.dirs.contains_key(&it.runtime_id) {
            let parent = &it.spec.pod.cgroup_parent;
            let group = find_container_cgroup(kernel, parent, &it.runtime_id, None).ok()??;
            self.dirs.insert(it.runtime_id.clone(), group.dirs);
        }
        read_vector_use(kernel, self.dirs.get(&it.runtime_id)?, self.lately, self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_container_with_threads_that_used_them_counts() {
        let found = |using| Some(VectorUse { looked_at: 8, using });
        let read = [
            ("busy", found(1)),
            ("idle", found(8)),
            ("plain", found(0)),
            ("unknown", None),
            ("new", found(8)),
        ];
        let used = [("busy", 500), ("idle", 499), ("plain", 4000), ("unknown", 4000)];
        let used: BTreeMap<String, MilliCpu> =
            used.map(|(id, milli)| (id.to_owned(), MilliCpu(milli))).into();
        let expected = [("busy", true), ("idle", false), ("plain", false)];
        let expected: BTreeMap<String, bool> =
            expected.map(|(id, is_used)| (id.to_owned(), is_used)).into();
        assert_eq!(used_much(read, &used), expected);
    }
}
