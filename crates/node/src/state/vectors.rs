//! Where containers that use wide vectors go. In: what was measured, what pods say, the strategy of their QoS class. Out: a wish about the clock domain of one that is placed; what is shown of it.

use std::collections::BTreeMap;

use bayplan_allocator::{Allocation, ClockStrategy, ClockWish, ContainerId, Part, Request};
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;
use jiff::Timestamp;

use crate::event::{Answer, Step};
use crate::occupancy::{ClockStanding, tuning_of};
use crate::state::NodeState;
use crate::status::ClockStatus;

impl NodeState {
    /// Containers of which use of wide vectors was measured, by the runtime's ids, and whether there was any since the last reading. Moves nothing.
    pub(crate) fn vectors_seen(&mut self, read: &BTreeMap<String, bool>, now: Timestamp) -> Step {
        let read = read.iter().filter_map(|(runtime_id, is_used)| {
            let container = self.containers.named(runtime_id)?;
            Some((&*container.spec, *is_used))
        });
        self.vectors.note(read, now);
        Step::new(Answer::Done)
    }

    /// Whether it counts as one that uses wide vectors: its pod says so, or its workload was found to and its pod does not deny it. None does where there is no strategy.
    pub(crate) fn has_wide_vectors(&self, spec: &NewContainer) -> bool {
        if !self.rules.wide_vectors.is_on() {
            return false;
        }
        let said = tuning_of(spec, &self.rules).uses_wide_vectors;
        said.unwrap_or_else(|| self.rules.wide_vectors.is_measured && self.vectors.has(spec))
    }

    /// Those of the containers that count, but for one.
    fn vector_containers(&self, but: Option<ContainerId>) -> Vec<ContainerId> {
        let others = self.containers.iter().filter(|(id, _)| Some(**id) != but);
        others.filter(|(_, it)| self.has_wide_vectors(&it.spec)).map(|(id, _)| *id).collect()
    }

    /// The wish of a container that shares CPUs and uses wide vectors; `None` for all others, and where there is no strategy or no choice.
    pub(crate) fn clock_wish(
        &self,
        id: ContainerId,
        spec: &NewContainer,
        request: &Request,
    ) -> Option<ClockWish> {
        if !self.rules.wide_vectors.is_on() {
            return None;
        }
        let domains = self.ledger.pools().clock_domains().len();
        let is_placed_by_it = request.demand.exclusive() == 0
            && request.demand.shared().is_some()
            && !request.is_reserved
            && !request.wishes.has_no_choice()
            && request.wishes.pod.part == Part::Alone;
        if domains < 2 || !is_placed_by_it || !self.has_wide_vectors(spec) {
            return None;
        }
        let others = self.vector_containers(Some(id));
        let wide = &self.rules.wide_vectors;
        let strategy = wide.strategy(spec.pod.qos, others.len() + 1, domains)?;
        Some(ClockWish { strategy, others })
    }

    /// The clock domains with the containers in them that use wide vectors; none where there is no strategy.
    pub(crate) fn clock_statuses(&self) -> Vec<ClockStatus> {
        if !self.rules.wide_vectors.is_on() {
            return Vec::new();
        }
        let all = self.vector_containers(None).into_iter();
        let held = all.filter_map(|id| Some((id, self.ledger.allocation(id)?)));
        let runs: Vec<CpuSet> = held.map(|(id, it)| self.runs_on(id, it)).collect();
        let status = |domain: CpuSet| ClockStatus {
            cpus: domain.to_string(),
            containers: runs.iter().filter(|it| it.intersects(&domain)).count(),
        };
        self.ledger.pools().clock_domains().into_iter().map(status).collect()
    }

    /// Where a container runs now, also where it was moved; of one with exclusive CPUs, these.
    fn runs_on(&self, id: ContainerId, held: &Allocation) -> CpuSet {
        match held.exclusive.is_empty() {
            true => self.cpus_of(id, held),
            false => held.exclusive.clone(),
        }
    }

    /// What the strategies say of the places of containers that share CPUs and can go elsewhere, as they run now. Domains in which nothing is shared are none.
    pub(crate) fn clock_standings(&self) -> BTreeMap<ContainerId, ClockStanding> {
        if !self.rules.wide_vectors.is_on() {
            return BTreeMap::new();
        }
        let pools = self.ledger.pools();
        let mut domains = pools.clock_domains();
        domains.retain(|it| it.intersects(self.ledger.free()));
        if domains.len() < 2 {
            return BTreeMap::new();
        }
        let all = self.vector_containers(None);
        let held = all.iter().filter_map(|id| Some((*id, self.ledger.allocation(*id)?)));
        let held: Vec<(ContainerId, &Allocation)> = held.collect();
        let runs: Vec<CpuSet> = held.iter().map(|(id, it)| self.runs_on(*id, it)).collect();
        let standing = |at: usize| {
            let ((id, held), cpus) = (held.get(at)?, runs.get(at)?);
            let qos = self.containers.get(id)?.spec.pod.qos;
            let strategy = self.rules.wide_vectors.strategy(qos, all.len(), domains.len())?;
            let others = domains.iter().map(|domain| {
                let here = runs
                    .iter()
                    .enumerate()
                    .filter(|(other, it)| *other != at && it.intersects(domain));
                here.count()
            });
            let others: Vec<usize> = others.collect();
            let (gain, best) = strategy.gain(&domains, &others, cpus);
            let (gain_at_home, _) = strategy.gain(&domains, &others, &self.ledger.cpus_of(held));
            let leave = pools.cpus().difference(&best);
            let may_go = held.may_share_elsewhere() && held.terms.part == Part::Alone;
            may_go.then(|| (*id, ClockStanding { gain, gain_at_home, leave }))
        };
        (0..held.len()).filter_map(standing).collect()
    }

    /// What is concluded of a container that is taken to use wide vectors; `None` of all others, and where there is no strategy.
    pub(crate) fn vectors_view(&self, id: ContainerId) -> Option<String> {
        let spec = &self.containers.get(&id)?.spec;
        if !self.has_wide_vectors(spec) {
            return None;
        }
        let wish = self.request(id, spec).0.wishes.place.clock;
        Some(match wish.map(|it| it.strategy) {
            Some(ClockStrategy::Spread) => {
                "counts as one with wide vectors, to be spread".to_owned()
            }
            Some(ClockStrategy::Squeeze) => {
                "counts as one with wide vectors, to be squeezed into few packages".to_owned()
            }
            None => "counts as one with wide vectors for others".to_owned(),
        })
    }
}
