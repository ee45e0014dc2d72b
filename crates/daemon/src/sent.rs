//! Where the rebalancer has sent containers. In: what is to be turned. Out: pools that are shared instead of one's own, and moves of owners in the ledger, with the
//! steps that tell of them.
//!
//! A place is looked for once, when its proposal comes into force: whoever sits there is not to wander with the load of others.
//!
//! - Who shares keeps the place that the ledger has set aside for it, and goes back there as soon as its request does not fit elsewhere any more.
//! - Who owns CPUs has others from then on, as after a compaction, in the journal, too. When that is taken back it gets its own again, if these are still to be
//!   had; otherwise it stays, as it does after a restart: its place is one like any other.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::{ContainerId, Limits, Relocation, plan_departure, plan_return};
use bayplan_rebalance::Knob;
use bayplan_types::{Bytes, CpuSet};

use crate::event::{Note, Step};
use crate::history::By;
use crate::state::NodeState;
use crate::turned::Turned;

/// More than this is not moved at once. It is 262,144 pages of 4 KiB, each of which is unmapped, copied and mapped again while whoever changes a cpuset waits.
pub(crate) const PAGES_MOST: Bytes = Bytes(1 << 30);

/// Those who are elsewhere, by the numbers of proposals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    /// Who shares the CPUs of another pool, and all of that pool's.
    sharers: BTreeMap<u64, (ContainerId, CpuSet)>,
    /// Who has other CPUs of its own, by this move.
    owners: BTreeMap<u64, Relocation>,
}

impl Sent {
    /// CPUs of the pool that somebody is to share instead of its own.
    pub(crate) fn elsewhere_of(&self, id: ContainerId) -> Option<&CpuSet> {
        self.sharers.values().rev().find(|(sent, _)| *sent == id).map(|(_, cpus)| cpus)
    }
}

impl NodeState {
    /// From now on this is turned, and nothing else: whoever was sent away without a proposal that stands comes back.
    pub(crate) fn put_in_force(&mut self, turned: Turned, step: &mut Step) {
        let numbers: BTreeSet<u64> = turned.iter().map(|(number, _)| number).collect();
        self.sent.sharers.retain(|number, _| numbers.contains(number));
        let over: Vec<u64> =
            self.sent.owners.keys().filter(|it| !numbers.contains(it)).copied().collect();
        for number in over {
            self.call_back(number, step);
        }
        let is_new = |number: &u64| self.turned.get(*number).is_none();
        let new: Vec<u64> = numbers.into_iter().filter(is_new).collect();
        self.turned = turned;
        if self.is_rebalance_paused || self.is_restored() {
            return;
        }
        for number in new {
            self.send(number, step);
        }
    }

    /// Looks for a place for the target of a proposal. Where there is none, nothing happens, and the target is seen where it is not to be.
    fn send(&mut self, number: u64, step: &mut Step) {
        let Some(turn) = self.turned.get(number) else { return };
        let (knob, id, leave) = (turn.knob, turn.target, turn.leave.clone());
        match knob {
            Knob::Move => {
                let Some(held) = self.ledger.allocation(id) else { return };
                // CPUs of its own place will do, if those that are left are enough.
                if self.cpus_of(id, held).is_disjoint(&leave) {
                    return;
                }
                let found = self.ledger.elsewhere(id, &self.turned.left_by(id)).cloned();
                let sent = found.map(|cpus| (number, (id, cpus)));
                self.sent.sharers.extend(sent);
            }
            Knob::MoveOwner => {
                let request = self.movable_one(id);
                let planned = request.and_then(|request| {
                    let limits = self.departure_limits();
                    plan_departure(&self.ledger, (id, &request), &leave, &limits)
                });
                let Some(made) = planned else { return };
                let why = format!("out of the way of others: proposal {number} of the rebalancer");
                if self.relocate_one(&made, &why, step) {
                    self.sent.owners.insert(number, made);
                }
            }
            _ => {}
        }
    }

    /// Gives an owner back what it had before.
    fn call_back(&mut self, number: u64, step: &mut Step) {
        let Some(made) = self.sent.owners.remove(&number) else { return };
        // Its CPUs may be another's now, or it may be gone; then it is where it is.
        let Some(back) = plan_return(&self.ledger, &made) else { return };
        let why = format!("back where it was: proposal {number} of the rebalancer");
        self.relocate_one(&back, &why, step);
    }

    fn relocate_one(&mut self, made: &Relocation, why: &str, step: &mut Step) -> bool {
        if let Err(error) = self.ledger.relocate(std::slice::from_ref(made)) {
            step.notes.push(Note::Failure { kind: "not_moved", message: error.to_string() });
            return false;
        }
        self.note_relocation(made, By::Rebalancer, why, step);
        true
    }

    fn departure_limits(&self) -> Limits {
        let limits = self.compactor.limits();
        let memory_max = Some(limits.memory_max.map_or(PAGES_MOST, |most| most.min(PAGES_MOST)));
        Limits { memory_max, ..limits }
    }
}
