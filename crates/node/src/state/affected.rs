//! Which containers an event can have sent elsewhere. In: the event, and the state before and after it. Out: the few that have to be looked at, or that all have.
//!
//! Problem: after an event every container is compared with where it was told to be, but most events are of one container, and a node has hundreds.
//! Approach: where a container runs follows from what it holds and from what all have in common: the mode, the machine, groups, loans, what the rebalancer has
//! turned, which CPUs are shared, and which are claimed. Whatever changes what a container holds writes a record for the journal. So where an event of a
//! container leaves what all have in common as it was, it can only have moved the containers of its records.
//! Guarantees: after all other events, and as long as something may be left of them, all are looked at. Debug builds look at all in any case, and compare.

use std::collections::BTreeSet;

use bayplan_allocator::{ContainerId, Part};
use bayplan_types::CpuSet;

use super::NodeState;
use crate::event::Event;
use crate::record::Record;
use crate::turned::Turned;

/// An event of one container, or of none, on a node where that is enough to know.
#[derive(Debug)]
pub(super) struct Affected {
    /// The runtime's id of a container that is to be told where it runs although it may hold what it held.
    told: Option<String>,
    /// The CPUs that were shared before it.
    shared: CpuSet,
    /// Those that were claimed.
    claimed: CpuSet,
}

impl NodeState {
    /// `None`: all containers have to be looked at after this event.
    pub(super) fn affected_by(&self, event: &Event) -> Option<Affected> {
        let told = match event {
            Event::Started(runtime_id) => Some(runtime_id.clone()),
            Event::PodStarted(_)
            | Event::PodEnded(_)
            | Event::TryAdmit(..)
            | Event::Admit(..)
            | Event::CreateEnded(..)
            | Event::Starting(_)
            | Event::Ended(_)
            | Event::Exited(..)
            | Event::HugePagesRead(_)
            | Event::WritesLanded(_) => None,
            question if question.is_question() => None,
            _ => return None,
        };
        let (shared, claimed) = (self.ledger.free().clone(), self.claimed.clone());
        self.has_plain_places().then_some(Affected { told, shared, claimed })
    }

    /// What a container holds does not move another one, unless it changes which CPUs are shared.
    fn has_plain_places(&self) -> bool {
        !self.is_restored()
            && self.groups.instances.is_empty()
            && self.turned == Turned::default()
            && self.colocation.lent.is_empty()
    }

    /// The runtime's ids of the containers that the event can have moved; `None`: any.
    pub(super) fn moved_by<'a>(
        &'a self,
        event: &'a Affected,
        records: &[Record],
    ) -> Option<BTreeSet<&'a str>> {
        let is_as_before = event.shared == *self.ledger.free() && event.claimed == self.claimed;
        if !is_as_before || !self.has_plain_places() {
            return None;
        }
        let mut moved: BTreeSet<&str> = event.told.as_deref().into_iter().collect();
        for record in records {
            let id = match record {
                Record::Placed(placed) => ContainerId(placed.id),
                Record::Created { id, .. } => ContainerId(*id),
                Record::Released { .. } | Record::Unstarted { .. } => continue,
                _ => return None,
            };
            // It has ended since.
            let Some(held) = self.ledger.allocation(id) else { continue };
            // On its CPUs others of its pod may run.
            if held.terms.part != Part::Alone {
                return None;
            }
            moved.extend(self.containers.get(&id).and_then(|it| it.runtime_id.as_deref()));
        }
        Some(moved)
    }
}
