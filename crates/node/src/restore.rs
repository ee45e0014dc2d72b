//! A start: the state goes on from what a journal says was live. In: containers and groups in the journal's words. Out: the same in the ledger of this machine, and what is told of those that are
//! not where they were. What runs by now is for the first sync to find (`reconcile.rs`).

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::chosen_for;
use jiff::Timestamp;

use crate::claims::shown_cpus;
use crate::container::{Container, Phase};
use crate::departed::Departed;
use crate::event::{Answer, Step};
use crate::record::{AllocationForm, Elsewhere, Live, PlacedRecord};
use crate::state::NodeState;

/// Added to the decision about a container that takes its earlier place again.
const BACK: &str = "; its earlier place counts again: the machine has its earlier shape";

impl NodeState {
    /// Takes over what a journal says was live. What the runtime has to say about all of them is for the first sync.
    pub fn restore(&mut self, live: Live, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        self.containers.skip_ids_below(live.next_id);
        if let Some((mode, since)) = live.mode {
            (self.mode, self.mode_since) = (mode, Some(since));
        }
        self.is_rebalance_paused = live.is_rebalance_paused;
        let held = live.held();
        self.departed = Departed::with_unstarted(live.unstarted);
        let before = live.fingerprint.filter(|before| *before != self.fingerprint);
        let owned: Vec<(ContainerId, CpuSet)> =
            live.containers.iter().map(|(id, it)| (*id, it.allocation.taken())).collect();
        let (mut places, mut unclaimed) = (Vec::new(), BTreeMap::new());
        for (id, placed) in live.containers {
            unclaimed.extend(self.insert_placed(id, &placed, &held, now).map(|why| (id, why)));
            places.push((id, self.place_here(id, placed, &owned)));
        }
        self.take_claims();
        let is_same = live.group_types == self.groups.fingerprint();
        self.restore_groups(live.groups, &places, is_same);
        // On the same machine with the same types, a container that found its group full stays outside, as it would if the daemon had gone on.
        let mut sent_away = match is_same && before.is_none() {
            true => BTreeMap::new(),
            false => self.misplaced(),
        };
        for (id, why) in unclaimed {
            step.fail("not_allowed", format!("{}: {why}", self.full_name_of(id)));
            sent_away.insert(id, why);
        }
        self.replan(&places, &sent_away, "not_restored", now, &mut step);
        if let Some(before) = before {
            self.note_elsewhere(&places, &before);
        }
        self.emit_replanned(&places, &mut step);
        self.note_kept_chosen(&BTreeSet::new(), &mut step);
        NodeState::finish_entries(&mut step, now);
        step
    }

    /// A container of the journal, which is in no ledger yet. Gives why it cannot stay on CPUs that were chosen for its pod; `held`: CPUs that containers and groups have to themselves.
    fn insert_placed(
        &mut self,
        id: ContainerId,
        placed: &PlacedRecord,
        held: &CpuSet,
        now: Timestamp,
    ) -> Option<String> {
        let phase = match placed.runtime_id {
            Some(_) => Phase::Created,
            None => Phase::Unconfirmed,
        };
        let mut spec = NewContainer::from(placed.container.clone());
        let lost = keep_chosen(&mut spec, &placed.allocation, held);
        self.insert(id, spec, placed.runtime_id.clone(), phase, placed.decision.clone());
        self.doubt_again(id, now);
        self.set_cold(id, placed.cold);
        self.set_unasked(id, placed.is_unasked);
        lost.filter(|_| self.claims_nothing(id))
    }

    /// What it holds on this machine: what it held before a start on a machine of another shape, if that is free, and else what the journal says.
    fn place_here(
        &mut self,
        id: ContainerId,
        placed: PlacedRecord,
        owned: &[(ContainerId, CpuSet)],
    ) -> AllocationForm {
        let is_free = |cpus: &CpuSet| {
            owned.iter().all(|(other, taken)| *other == id || !taken.intersects(cpus))
        };
        match placed.elsewhere {
            // It owns others by now.
            Some(_) if placed.allocation.has_exclusive() => placed.allocation,
            Some(it) if it.fingerprint == self.fingerprint && is_free(&it.allocation.taken()) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.decision.outcome.push_str(BACK);
                }
                it.allocation
            }
            elsewhere => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.elsewhere = elsewhere.map(|it| *it);
                }
                placed.allocation
            }
        }
    }

    /// Since when its creation was in doubt is not in the journal, and the runtime may still be making it.
    fn doubt_again(&mut self, id: ContainerId, now: Timestamp) {
        let container = self.containers.get_mut(&id);
        let is_doubtful =
            |it: &&mut Container| it.phase == Phase::Unconfirmed && it.spec.due_id.is_some();
        if let Some(container) = container.filter(is_doubtful) {
            container.doubted_at = Some(now);
        }
    }

    /// Remembers the places of containers that owned CPUs on the machine of this shape and own none here; the first such machine counts.
    fn note_elsewhere(&mut self, places: &[(ContainerId, AllocationForm)], fingerprint: &str) {
        for (id, had) in places {
            let owns = self.ledger.allocation(*id).is_some_and(|it| !it.exclusive.is_empty());
            if owns || !had.has_exclusive() {
                continue;
            }
            let Some(container) = self.containers.get_mut(id) else { continue };
            container.elsewhere.get_or_insert_with(|| Elsewhere {
                fingerprint: fingerprint.to_owned(),
                allocation: had.clone(),
            });
        }
    }
}

/// A container of the journal that ran on CPUs chosen for its pod keeps them, whatever `permissions` say by now. Gives why it does not: others have some of them to themselves.
fn keep_chosen(spec: &mut NewContainer, had: &AllocationForm, held: &CpuSet) -> Option<String> {
    let chosen = chosen_for(&spec.pod);
    let ran_there = had.leaves_choice() && !chosen.is_empty();
    spec.keeps_chosen = ran_there && !chosen.intersects(held);
    (ran_there && !spec.keeps_chosen).then(|| {
        format!(
            "CPUs {}, which were chosen for its pod, are not allowed in namespace `{}` any more (`permissions` in the configuration), and others have some of them to themselves",
            shown_cpus(&chosen),
            spec.pod.namespace
        )
    })
}
