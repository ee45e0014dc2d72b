//! Where the rebalancer has sent containers. In: what is to be turned. Out: pools that are shared instead of one's own, and moves of owners in the ledger, with the
//! steps that tell of them.
//!
//! A place is looked for once, when its proposal comes into force: a container that is there is not to wander with the load of others.
//!
//! - A shared container keeps the place that the ledger has set aside for it, and goes back there as soon as its request does not fit elsewhere any
//!   more.
//! - An exclusive container has other CPUs from then on, as after a compaction, in the journal, too. They are as good as its own were, so it stays
//!   there, whatever becomes of the proposal.

use std::collections::BTreeSet;

use bayplan_allocator::{Allocation, ContainerId, Guest, PoolId, plan_departure};
use bayplan_rebalance::Knob;
use bayplan_types::{CpuSet, MilliCpu};

use super::NodeState;
use crate::event::Step;
use crate::history::By;
use crate::turned::Turned;

impl NodeState {
    /// From now on this is turned, and nothing else: a container that shares elsewhere without a proposal that stands is at home again.
    pub(crate) fn put_in_force(&mut self, turned: Turned, step: &mut Step) {
        let numbers: BTreeSet<u64> = turned.iter().map(|(number, _)| number).collect();
        self.sent.0.retain(|number, _| numbers.contains(number));
        let is_new = |number: &u64| self.turned.get(*number).is_none();
        let new: Vec<u64> = numbers.into_iter().filter(is_new).collect();
        self.turned = turned;
        if self.is_rebalance_paused || self.is_restored() {
            return;
        }
        for number in new {
            let Some(turn) = self.turned.get(number) else { continue };
            match (turn.knob, turn.target) {
                (Knob::Move | Knob::Clock, id) => self.send_sharer(number, id),
                // A drain moves no exclusive container.
                (Knob::MoveOwner, id) if self.is_placing() => self.send_owner(number, id, step),
                _ => {}
            }
        }
    }

    /// Looks for a pool for a container. Where there is none, nothing happens, and it is seen where it is not to be.
    fn send_sharer(&mut self, number: u64, id: ContainerId) {
        let Some(held) = self.ledger.allocation(id) else { return };
        let leave = self.turned.left_by(id);
        // CPUs of its own place will do, if those that are left are enough.
        if self.cpus_of(id, held).is_disjoint(&leave) {
            return;
        }
        let found = self.ledger.elsewhere(id, &leave, &self.guests(|_| true));
        let found = found.and_then(|pool| self.ledger.pools().get(pool));
        let sent = found.map(|pool| (number, (id, pool.cpus.clone())));
        self.sent.0.extend(sent);
    }

    /// Gives an owner other CPUs, as far as there are some that are as good.
    fn send_owner(&mut self, number: u64, id: ContainerId, step: &mut Step) {
        let Some(request) = self.movable_one(id) else { return };
        let (leave, limits) = (self.turned.left_by(id), self.compactor.limits());
        let planned = plan_departure(&self.ledger, (id, &request), &leave, &limits);
        let why = format!("out of the way of others: proposal {number} of the rebalancer");
        self.relocate(planned.as_slice(), By::Rebalancer, &why, step);
    }

    /// Where a container runs that was sent to another pool, if what it asks for has room there, beside those that were sent before it.
    pub(crate) fn shared_elsewhere(&self, id: ContainerId, held: &Allocation) -> Option<CpuSet> {
        let (pool, cpus) = self.asked_elsewhere(id, held)?;
        let own = self.turned.first_leave(id);
        let before = self.guests(|other| self.turned.first_leave(other) <= own);
        self.ledger.left_elsewhere(id, pool, &before)?;
        (self.asked_within(id, &cpus) <= MilliCpu::from_cpus(cpus.len())).then_some(cpus)
    }

    /// The pool that a container was sent to, and what it would have of its CPUs: those without an owner that it is not to leave.
    pub(crate) fn asked_elsewhere(
        &self,
        id: ContainerId,
        held: &Allocation,
    ) -> Option<(PoolId, CpuSet)> {
        let pool = self.pool_of(id)?;
        let there = self.ledger.cpus_of(&Allocation { pool, ..held.clone() });
        let cpus = there.difference(&self.turned.left_by(id));
        // Where others own all of them there is nothing but the refuge of the containers that are at home there.
        let has_shared = !self.ledger.shared_cpus(pool).is_empty();
        (has_shared && !cpus.is_empty()).then_some((pool, cpus))
    }

    fn pool_of(&self, id: ContainerId) -> Option<PoolId> {
        let (_, cpus) = self.sent.0.values().rev().find(|(sent, _)| *sent == id)?;
        let mut pools = self.ledger.pools().iter().filter(|it| it.is_shared);
        pools.find(|it| it.cpus == *cpus).map(|it| it.id)
    }

    fn guests(&self, is_one: impl Fn(ContainerId) -> bool) -> Vec<Guest> {
        let sent: BTreeSet<ContainerId> = self.sent.0.values().map(|(id, _)| *id).collect();
        let guests = sent.into_iter().filter(|id| is_one(*id));
        guests.filter_map(|id| Some((id, self.pool_of(id)?))).collect()
    }
}
