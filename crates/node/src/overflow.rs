//! What becomes of a container that finds no room for its CPUs. In: its request, and why it was refused. Out: a place among the shared containers,
//! where the configuration and the pod leave that open.

use bayplan_allocator::{Offer, Request, offer};
use bayplan_types::MilliCpu;

use crate::decision::{Decision, render_place};
use crate::event::Step;
use crate::settings::OnNoCapacity;
use crate::state::NodeState;

impl NodeState {
    /// A container that cannot have exclusive CPUs is dealt with like this.
    pub fn with_on_no_capacity(mut self, on_no_capacity: OnNoCapacity) -> NodeState {
        self.on_no_capacity = on_no_capacity;
        self
    }

    /// A place without exclusive CPUs for a container that was refused them; `None` where it has to be refused. What it asks for in all counts as
    /// shared CPU time, so that others see that the pool is fuller than it should be.
    pub(crate) fn share_instead(
        &self,
        name: &str,
        request: &Request,
        refused: &Decision,
        step: &mut Step,
    ) -> Option<(Request, Offer, Decision)> {
        let own = MilliCpu::from_cpus(request.demand.exclusive());
        let is_open = self.on_no_capacity == OnNoCapacity::Share
            && own > MilliCpu::ZERO
            && !request.wishes.cpus.has_requirement();
        if !is_open {
            return None;
        }
        let request = Request { demand: request.demand.all_shared(), ..request.clone() };
        let offer = offer(&self.ledger, &request).ok()?;
        let place = render_place(self.ledger.pools(), offer.allocation());
        let outcome = format!(
            "{place} without exclusive CPUs, which onNoCapacity allows; {}",
            refused.outcome
        );
        step.fail("no_capacity", format!("{name}: {outcome}"));
        Some((request, offer, Decision { outcome, ..refused.clone() }))
    }
}
