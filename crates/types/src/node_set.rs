//! Sets of NUMA nodes, to and from the kernel's texts.

use crate::bit_set::BitSet;
use crate::cpu_set::id_set;
use crate::id::NodeId;
use crate::parse_set_error::ParseSetError;

id_set!(
    /// A set of NUMA nodes, as in `cpuset.mems`.
    NodeSet,
    NodeId
);
