//! The containers of the node: by id, by the runtime's id, and by the ticket of a creation under way.

use std::collections::{BTreeMap, btree_map};

use bayplan_allocator::ContainerId;
use bayplan_types::Pinning;
use bayplan_workload::Ticket;

use crate::container::{Container, Phase};

/// All containers that hold something. A container is found by the runtime's id exactly as long as it has one, and by a ticket while a creation of it is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Containers {
    by_id: BTreeMap<ContainerId, Container>,
    by_runtime_id: BTreeMap<String, ContainerId>,
    /// With what each creation was told.
    by_ticket: BTreeMap<Ticket, (ContainerId, Pinning)>,
    next_id: u64,
}

impl Containers {
    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.by_id.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.by_id.get_mut(id)
    }

    pub(crate) fn contains(&self, id: &ContainerId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, ContainerId, Container> {
        self.by_id.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&ContainerId, &mut Container)> {
        self.by_id.iter_mut()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ContainerId> {
        self.by_id.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Container> {
        self.by_id.values()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        self.by_id.values_mut()
    }

    /// The one that the runtime calls this.
    pub(crate) fn id_of(&self, runtime_id: &str) -> Option<ContainerId> {
        self.by_runtime_id.get(runtime_id).copied()
    }

    /// As [`Self::id_of`].
    pub(crate) fn named(&self, runtime_id: &str) -> Option<&Container> {
        self.by_id.get(self.by_runtime_id.get(runtime_id)?)
    }

    /// As [`Self::id_of`].
    pub(crate) fn named_mut(&mut self, runtime_id: &str) -> Option<&mut Container> {
        self.by_id.get_mut(self.by_runtime_id.get(runtime_id)?)
    }

    /// Those that the runtime has made, in the order of its ids.
    pub(crate) fn by_runtime_id(&self) -> &BTreeMap<String, ContainerId> {
        &self.by_runtime_id
    }

    pub(crate) fn insert(&mut self, id: ContainerId, container: Container) {
        if let Some(runtime_id) = &container.runtime_id {
            self.by_runtime_id.insert(runtime_id.clone(), id);
        }
        self.by_id.insert(id, container);
    }

    /// Forgets it, its runtime id and the creations of it that are under way.
    pub(crate) fn remove(&mut self, id: ContainerId) -> Option<Container> {
        let container = self.by_id.remove(&id)?;
        if let Some(runtime_id) = &container.runtime_id {
            self.by_runtime_id.remove(runtime_id);
        }
        self.by_ticket.retain(|_, (other, _)| *other != id);
        Some(container)
    }

    /// The runtime has made it, and calls it this. False where there is no such container.
    pub(crate) fn bind(&mut self, id: ContainerId, runtime_id: &str) -> bool {
        let Some(container) = self.by_id.get_mut(&id) else { return false };
        container.phase = Phase::Created;
        if let Some(earlier) = container.runtime_id.replace(runtime_id.to_owned()) {
            self.by_runtime_id.remove(&earlier);
        }
        self.by_runtime_id.insert(runtime_id.to_owned(), id);
        true
    }

    /// A creation of it is under way, which was told this.
    pub(crate) fn begin_creation(&mut self, ticket: Ticket, id: ContainerId, told: Pinning) {
        self.by_ticket.insert(ticket, (id, told));
    }

    /// The container that a creation was to make, and what it was told; the creation is over.
    pub(crate) fn end_creation(&mut self, ticket: Ticket) -> Option<(ContainerId, Pinning)> {
        self.by_ticket.remove(&ticket)
    }

    /// The container that a creation under way is to make.
    pub(crate) fn created_by(&self, ticket: Ticket) -> Option<ContainerId> {
        self.by_ticket.get(&ticket).map(|(id, _)| *id)
    }

    /// Those of which a creation is under way, once for each.
    pub(crate) fn being_created(&self) -> impl Iterator<Item = ContainerId> {
        self.by_ticket.values().map(|(id, _)| *id)
    }

    /// An id that no container and no group has had.
    pub(crate) fn take_id(&mut self) -> ContainerId {
        let id = ContainerId(self.next_id);
        self.next_id += 1;
        id
    }

    pub(crate) fn skip_ids_below(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }
}

impl<'a> IntoIterator for &'a Containers {
    type Item = (&'a ContainerId, &'a Container);
    type IntoIter = btree_map::Iter<'a, ContainerId, Container>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
