//! What one container, or one group, holds.

use bayplan_types::{Bytes, CpuClass, CpuSet, MilliCpu, NodeId, NodeSet};

use crate::pool::PoolId;
use crate::request::Request;
use crate::terms::Terms;
use crate::wishes::Part;

/// What one container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The pool it was placed in; its shared part runs on the pool's shared CPUs. The CPUs of its own are in it, unless the shared part had to
    /// make room and runs elsewhere.
    pub pool: PoolId,
    /// Runs on the reserved CPUs instead of a pool's.
    pub is_reserved: bool,
    /// CPUs that no other container runs on.
    pub exclusive: CpuSet,
    /// Other threads of its cores, on which nothing runs at all.
    pub idle: CpuSet,
    /// CPU time on shared CPUs; `None` when it has exclusive CPUs only.
    pub shared: Option<MilliCpu>,
    /// Its `cpuset.mems`; empty on a machine without NUMA nodes.
    pub mems: NodeSet,
    /// Memory set aside, node by node.
    pub charges: Vec<(NodeId, Bytes)>,
    /// Huge pages set aside, node by node.
    pub huge_charges: Vec<HugeCharge>,
    /// What holds beyond that as long as it lives.
    pub terms: Terms,
}

/// Huge pages set aside for one container on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeCharge {
    /// Where.
    pub node: NodeId,
    /// Size of a page.
    pub size: Bytes,
    /// All pages together.
    pub bytes: Bytes,
}

impl Allocation {
    /// One that holds nothing yet.
    pub fn new(pool: PoolId) -> Allocation {
        Allocation {
            pool,
            is_reserved: false,
            exclusive: CpuSet::new(),
            idle: CpuSet::new(),
            shared: None,
            mems: NodeSet::new(),
            charges: Vec::new(),
            huge_charges: Vec::new(),
            terms: Terms::default(),
        }
    }

    /// CPUs that are neither shared nor can be owned by others.
    pub fn owned(&self) -> CpuSet {
        self.exclusive.union(&self.idle)
    }

    /// All memory set aside, huge pages included, node by node.
    pub(crate) fn set_aside(&self) -> impl Iterator<Item = (NodeId, Bytes)> {
        let huge = self.huge_charges.iter().map(|huge| (huge.node, huge.bytes));
        self.charges.iter().copied().chain(huge)
    }

    /// Huge pages that were asked for and are not set aside, because the machine had too few: bytes by size of a page. A machine without
    /// NUMA nodes does not count them.
    pub fn huge_pages_lacking(&self, request: &Request) -> Vec<(Bytes, Bytes)> {
        let set_aside = |size: Bytes| -> Bytes {
            let of_size = self.huge_charges.iter().filter(|huge| huge.size == size);
            of_size.map(|huge| huge.bytes).sum()
        };
        let asked = request.huge_pages.iter().filter(|_| !self.mems.is_empty());
        let lacking = asked.map(|(size, asked)| (*size, asked.saturating_sub(set_aside(*size))));
        lacking.filter(|(_, bytes)| *bytes > Bytes::ZERO).collect()
    }

    /// The class of the container as metrics count it; a mixed one counts as exclusive, and so does one on the exclusive CPUs of its pod
    /// or group.
    pub fn class(&self) -> CpuClass {
        match (self.is_reserved, self.exclusive.is_empty() && !self.terms.part.runs_on_others()) {
            (true, _) => CpuClass::Reserved,
            (false, false) => CpuClass::Exclusive,
            (false, true) => CpuClass::Shared,
        }
    }

    /// Whether it runs on the shared CPUs of its pool, on all of them and on no others: on the same CPUs as every other such one of the pool.
    pub fn only_shares(&self) -> bool {
        let shares = self.shared.is_some() && !self.is_reserved && self.exclusive.is_empty();
        shares && !self.terms.part.runs_on_others() && !self.terms.hides_hyperthreads
    }

    /// Whether it is that of a group and of no container.
    pub fn is_group(&self) -> bool {
        self.terms.part == Part::Group
    }
}
