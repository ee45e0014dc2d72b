//! Which containers the rebalancer has sent to other pools. What follows from it: `state/sent.rs`.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;

/// Containers that share the CPUs of another pool, by the numbers of proposals. A pool is known by all of its CPUs, so that one that the machine does
/// not have any more is no place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent(pub(crate) BTreeMap<u64, (ContainerId, CpuSet)>);
