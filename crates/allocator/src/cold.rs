//! Cold starts: a container has slow memory only while it starts, and that of its CPUs afterwards. In: a ledger and a request. Out: whether it
//! can start so; later, what it gets.
//!
//! All that is set aside for it lies on the slow memory, before and after, because what it has written there stays there: nothing is moved, and
//! what it touches later comes to where it runs.

use std::fmt;

use bayplan_types::{Bytes, NodeSet};

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::{near_nodes, warm_nodes};
use crate::pool::Node;
use crate::request::Request;
use crate::wishes::MemoryWishes;

/// Why a container cannot start on slow memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCold {
    /// The machine has none of the kinds that it may have.
    NoSlowMemory,
    /// The kernel puts there only what it can move; a container needs pages that it cannot, and would be killed for the lack of them.
    MovableOnly,
    /// Too little memory is free on the slow nodes.
    TooLittle {
        /// What it asks for; its limit, where that is more.
        needed: Bytes,
        /// What is free on all slow nodes.
        free: Bytes,
    },
}

impl fmt::Display for NotCold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotCold::NoSlowMemory => f.write_str("the machine has no slow memory of its kinds"),
            NotCold::MovableOnly => {
                f.write_str("the kernel keeps the slow memory movable, and needs other memory too")
            }
            NotCold::TooLittle { needed, free } => {
                write!(f, "needs {needed} of slow memory, {free} are free")
            }
        }
    }
}

impl Ledger {
    /// Whether a container can be placed with `ColdStart::Cold` and have room.
    ///
    /// # Errors
    /// [`NotCold`].
    pub fn can_start_cold(&self, request: &Request) -> Result<(), NotCold> {
        let wishes = &request.wishes.memory;
        let nodes = &self.pools().nodes;
        let is_slow = |node: &&Node| node.kind.is_slow() && wishes.may_have(node.kind);
        if !nodes.iter().any(|node| is_slow(&node)) {
            return Err(NotCold::NoSlowMemory);
        }
        let mut usable = nodes.iter().filter(|node| node.is_for_cold_start(wishes)).peekable();
        if usable.peek().is_none() {
            return Err(NotCold::MovableOnly);
        }
        let free = usable.map(|node| self.charged().free_on(self.pools(), node.id)).sum();
        let needed = request.memory.max(request.memory_limit.unwrap_or_default());
        match free < needed || free == Bytes::ZERO {
            true => Err(NotCold::TooLittle { needed, free }),
            false => Ok(()),
        }
    }

    /// Ends a cold start: what is near its CPUs is added to what it has. `None` when it holds nothing; what it has from then on otherwise.
    pub fn end_cold_start(&mut self, id: ContainerId, wishes: &MemoryWishes) -> Option<NodeSet> {
        let held: &Allocation = self.allocation(id)?;
        let warm = warm_nodes(self.pools(), &near_nodes(self.pools(), held), wishes);
        self.add_mems(id, &warm)
    }
}
