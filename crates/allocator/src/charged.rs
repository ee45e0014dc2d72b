//! How much of the machine's memory is set aside. In: what containers hold. Out: what is free, per node, and per node and size of huge
//! pages. Huge pages are memory of their own: a node's ordinary memory is counted without them. Memory that is only expected to be used
//! is counted apart: it makes a node less attractive, and keeps no container from it.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, NodeId};

use crate::allocation::{Allocation, HugeCharge};
use crate::pool::Pools;

/// In the order of `Pools::nodes` and of `Pools::huge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    memory: Vec<Bytes>,
    expected: Vec<Bytes>,
    huge: Vec<Bytes>,
    /// What others use.
    huge_taken: Vec<Bytes>,
}

impl Charged {
    /// Nothing at all.
    pub(crate) fn new(pools: &Pools) -> Charged {
        let memory = vec![Bytes::ZERO; pools.nodes.len()];
        let huge = vec![Bytes::ZERO; pools.huge.len()];
        Charged { expected: memory.clone(), memory, huge_taken: huge.clone(), huge }
    }

    pub(crate) fn add(&mut self, pools: &Pools, held: &Allocation) {
        self.change(pools, held, |charged, bytes| *charged += bytes);
    }

    pub(crate) fn remove(&mut self, pools: &Pools, held: &Allocation) {
        self.change(pools, held, |charged, bytes| *charged -= bytes);
    }

    fn change(&mut self, pools: &Pools, held: &Allocation, change: fn(&mut Bytes, Bytes)) {
        let memory = match held.terms.memory_is_expected {
            true => &mut self.expected,
            false => &mut self.memory,
        };
        for (node, bytes) in &held.charges {
            let index = pools.node(*node).map(|(index, _)| index);
            if let Some(charged) = index.and_then(|index| memory.get_mut(index)) {
                change(charged, *bytes);
            }
        }
        for HugeCharge { node, size, bytes } in &held.huge_charges {
            let index = pools.huge(*node, *size).map(|(index, _)| index);
            if let Some(charged) = index.and_then(|index| self.huge.get_mut(index)) {
                change(charged, *bytes);
            }
        }
    }

    /// Memory set aside on a node.
    pub(crate) fn on(&self, pools: &Pools, node: NodeId) -> Bytes {
        let index = pools.node(node).map(|(index, _)| index);
        index.and_then(|index| self.memory.get(index).copied()).unwrap_or_default()
    }

    /// Memory that containers are expected to use on a node.
    pub(crate) fn expected_on(&self, pools: &Pools, node: NodeId) -> Bytes {
        let index = pools.node(node).map(|(index, _)| index);
        index.and_then(|index| self.expected.get(index).copied()).unwrap_or_default()
    }

    /// Memory that is free on a node, also where containers are expected to use it.
    pub(crate) fn free_on(&self, pools: &Pools, node: NodeId) -> Bytes {
        let Some((index, node)) = pools.node(node) else { return Bytes::ZERO };
        node.capacity().saturating_sub(self.memory.get(index).copied().unwrap_or_default())
    }

    /// Huge pages set aside on a node.
    pub(crate) fn huge_on(&self, pools: &Pools, node: NodeId, size: Bytes) -> Bytes {
        let index = pools.huge(node, size).map(|(index, _)| index);
        index.and_then(|index| self.huge.get(index).copied()).unwrap_or_default()
    }

    /// From now on no more huge pages can be set aside on a node than these; what is beyond, others use. A node that is not named has all of its own.
    pub(crate) fn limit_huge(&mut self, pools: &Pools, left: &BTreeMap<(NodeId, Bytes), Bytes>) {
        for (taken, huge) in self.huge_taken.iter_mut().zip(&pools.huge) {
            let left = left.get(&(huge.node, huge.size)).copied().unwrap_or(huge.capacity);
            *taken = huge.capacity.saturating_sub(left);
        }
    }

    /// Huge pages of a node that are not set aside, others' use or not.
    pub(crate) fn huge_unset_on(&self, pools: &Pools, node: NodeId, size: Bytes) -> Bytes {
        let Some((index, huge)) = pools.huge(node, size) else { return Bytes::ZERO };
        huge.capacity.saturating_sub(self.huge.get(index).copied().unwrap_or_default())
    }

    /// Huge pages that are free on a node: neither set aside nor used by others.
    pub(crate) fn huge_free_on(&self, pools: &Pools, node: NodeId, size: Bytes) -> Bytes {
        let taken = pools.huge(node, size).and_then(|(index, _)| self.huge_taken.get(index));
        self.huge_unset_on(pools, node, size).saturating_sub(taken.copied().unwrap_or_default())
    }
}
