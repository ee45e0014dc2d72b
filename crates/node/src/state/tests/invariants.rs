//! What holds after each event of a random history, and when everything has ended.

use super::*;
use crate::occupancy::Occupancy;

impl World {
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        prop_assert_eq!(check_ledger(&state.ledger), Vec::<String>::new());
        let held = state.ledger.allocations().filter(|(_, it)| !it.is_group());
        let held: Vec<ContainerId> = held.map(|(id, _)| id).collect();
        let known: Vec<ContainerId> = state.containers.ids().copied().collect();
        prop_assert_eq!(held, known);
        for id in state.containers.ids() {
            prop_assert_eq!(self.journaled.get(&id.0).cloned(), state.place(*id), "{}", id);
        }
        self.check_cold()?;
        self.check_claims()?;
        self.check_groups()?;
        for id in state.containers.ids() {
            let cpus = state.pinning(*id).unwrap().cpus;
            prop_assert!(cpus.is_subset(&self.online), "{} is to run on {}", id, cpus);
            let is_left_alone = state.ledger.allocation(*id).unwrap().terms.preserve.cpus;
            prop_assert!(!cpus.is_empty() || is_left_alone, "{} is to run nowhere", id);
        }
        for (id, container) in &state.containers {
            prop_assert_eq!(container.pod, container.spec.pod.owner().pod);
            if let Some(runtime_id) = &container.runtime_id {
                prop_assert_eq!(state.containers.by_runtime_id().get(runtime_id), Some(id));
            }
        }
        let made = state.containers.values().filter(|it| it.runtime_id.is_some());
        prop_assert_eq!(state.containers.by_runtime_id().len(), made.count());
        self.check_questions()?;
        prop_assert!(state.containers.being_created().all(|id| state.containers.contains(&id)));
        if state.is_draining() {
            let owners = self.owners();
            prop_assert!(owners.is_subset(&self.owners), "{:?} {:?}", owners, self.owners);
        }
        self.check_out_of_place()?;
        self.check_pinnings()
    }

    /// A question changes nothing, unless its step says so.
    fn check_questions(&self) -> Result<(), TestCaseError> {
        let mut state = self.state.clone();
        let before = state.occupancy();
        for it in &before.occupants {
            prop_assert_eq!(state.exclusive_cpus(&it.runtime_id), it.exclusive.clone());
        }
        prop_assert_eq!(state.exclusive_cpus("unknown"), CpuSet::new());
        for event in [Event::Ping, Event::Status, Event::Occupancy, Event::SyncStarted] {
            prop_assert!(event.is_question());
            let step = state.step(event, self.now);
            if !step.records.is_empty() || !step.plan.is_empty() {
                return Ok(());
            }
        }
        prop_assert_eq!(Occupancy { step: before.step, ..state.occupancy() }, before);
        Ok(())
    }

    /// What is found pool by pool is what each container by itself says: of those that were told, and of all as if none had been.
    fn check_out_of_place(&self) -> Result<(), TestCaseError> {
        let untold = NodeState { told: Told::default(), ..self.state.clone() };
        for state in [&self.state, &untold] {
            let all = state.containers.by_runtime_id().iter();
            let all = all.filter_map(|(runtime_id, id)| Some((runtime_id, state.pinning(*id)?)));
            let out = all.filter(|(id, it)| !is_in_place(state.told.last().get(*id), it));
            let out: Vec<(&String, Pinning)> = out.collect();
            prop_assert_eq!(state.out_of_place().collect::<Vec<_>>(), out);
        }
        Ok(())
    }

    /// Every container that is known and had its last write carried out is where the ledger has it, and so on no CPUs of another. Cold starts end in
    /// time.
    pub(super) fn check_cold(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.state.next_warming().is_none_or(|it| it > self.now));
        Ok(())
    }

    /// A pod with chosen CPUs has all of its containers there, with nothing in the ledger, and no other container that Bayplan places.
    pub(super) fn check_claims(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        let (pools, reserved) = (state.ledger.pools(), state.machine.reserved());
        for (id, container) in &state.containers {
            let claims = container.claim.is_pinned();
            let held = state.ledger.allocation(*id).unwrap();
            let holds_none = held.exclusive.is_empty() && held.shared == Some(MilliCpu::ZERO);
            prop_assert!(!claims || (holds_none && held.terms.preserve.cpus), "{:?}", held);
            let is_chosen = ["pod6", "pod7"].contains(&container.spec.pod.name.as_str());
            prop_assert!(claims || !is_chosen, "{}", id);
            let Some(chosen) = state.chosen_cpus(*id).filter(|_| !state.is_restored()) else {
                continue;
            };
            prop_assert_eq!(&state.pinning(*id).unwrap().cpus, &chosen);
            // Where everything is claimed and nothing reserved, shared containers have to run somewhere.
            let lent = chosen.difference(reserved).intersection(&pools.unplaced_cpus());
            prop_assert!(lent.is_empty() || (lent.len() == 1 && reserved.is_empty()), "{}", lent);
            prop_assert!(lent.is_empty() || pools.allocatable() == lent);
            let others = state.containers.ids().filter(|id| state.chosen_cpus(**id).is_none());
            for other in others {
                let cpus = state.pinning(*other).unwrap().cpus.intersection(&chosen);
                prop_assert!(cpus.difference(&lent).is_subset(reserved), "{} on {}", other, cpus);
            }
        }
        Ok(())
    }

    pub(super) fn check_pinnings(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        let mut owned = CpuSet::new();
        let mut shared = CpuSet::new();
        for (runtime_id, id) in state.containers.by_runtime_id() {
            prop_assert!(state.containers.contains(id), "{} is not known", runtime_id);
            let Some(real) = self.real.get(runtime_id).filter(|real| real.is_alive) else {
                continue;
            };
            let is_under_way = self.updates.iter().any(|(id, ..)| id == runtime_id);
            if is_under_way || self.wrong.contains(runtime_id) {
                continue;
            }
            let cpus = &real.pinning.cpus;
            let due = state.pinning(*id).unwrap_or_default();
            let held = state.ledger.allocation(*id).unwrap();
            // It runs where the runtime put it, or where it was before its group left its CPUs alone.
            if held.terms.preserve.cpus && due.cpus.is_empty() {
                continue;
            }
            prop_assert_eq!(cpus, &due.cpus, "{}", runtime_id);
            let holder = state.ledger.holder_of(held.terms.owner).filter(|_| !state.is_restored());
            if let Some((_, holder)) = holder.filter(|_| held.terms.part == Part::Joined) {
                prop_assert_eq!(cpus, &state.ledger.cpus_of(holder), "{}", runtime_id);
                continue;
            }
            let own = &held.exclusive;
            prop_assert!(own.is_subset(cpus) && own.is_disjoint(&owned));
            owned.union_with(own);
            shared.union_with(&cpus.difference(own));
        }
        prop_assert!(state.is_restored() || owned.is_disjoint(&shared), "{} of {}", shared, owned);
        Ok(())
    }

    /// Everything ends, some of it unseen.
    pub(super) fn end(&mut self) -> Result<(), TestCaseError> {
        self.pending.retain(|pending| !pending.is_given_up);
        while !self.pending.is_empty() {
            let which = self.pending.len();
            self.create_ends(which, self.pending.len().is_multiple_of(2));
            self.pending.retain(|pending| !pending.is_given_up);
            self.check()?;
        }
        let ids: Vec<String> = self.real.keys().cloned().collect();
        for (index, id) in ids.into_iter().enumerate() {
            self.real.remove(&id);
            self.wrong.remove(&id);
            if index % 2 == 0 {
                self.step(Event::Ended(id));
            }
            self.check()?;
        }
        self.sync()?;
        self.sync()?;
        let empty = fresh(&self.machine);
        match self.machine.types.is_empty() {
            true => prop_assert_eq!(self.state.ledger.holdings(), empty.ledger.holdings()),
            false => self.check_left_groups()?,
        }
        let containers = &self.state.containers;
        prop_assert!(containers.iter().len() == 0 && containers.by_runtime_id().is_empty());
        prop_assert!(containers.being_created().next().is_none());
        prop_assert_eq!(&self.state.departed, &Departed::default());
        prop_assert!(self.state.told.last().is_empty(), "{:?}", self.state.told.last());
        prop_assert!(replay(&self.journal).containers.is_empty());
        Ok(())
    }
}
