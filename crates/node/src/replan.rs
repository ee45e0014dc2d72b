//! Gives containers their places on pools that are not those on which they were placed: after a restart, when CPUs or memory nodes
//! came or went while the daemon ran, when other CPUs are reserved, and when other CPUs are claimed (`claims.rs`). In: the containers that are there,
//! and the place of each in the journal's words. Out: a ledger, and a reason for each container that is no longer where it was.
//!
//! 1. A container that still fits exactly where it was stays there. CPUs that came back move none; shared sets have them at once.
//! 2. Every other one (an exclusive CPU is gone, the pool is gone or has no shared CPU left) is offered a place as by a resize, keeping what it can.
//! 3. One that cannot be offered any shares.
//!
//! In each of these: exclusive before mixed before shared, larger before smaller, older before newer. So a container with CPUs of its own
//! that has lost nothing never makes room for others.
//!
//! All occasions take the journal's words and this one way, so a daemon that is killed while its machine changes comes back to the
//! state that it would have come to alive. Every set in the outcome lies within the CPUs that are online: updates that name another one
//! fail with cgroup v1.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::{
    Allocation, ContainerId, Offer, Owner, Part, PoolId, Pools, Previous, Refusal, Request, offer,
};
use bayplan_types::{CpuSet, MilliCpu, NodeSet};
use jiff::Timestamp;

use crate::change::{Change, NodeChange};
use crate::decision::Decision;
use crate::event::{Answer, ChangedMachine, Note, Step};
use crate::history::By;
use crate::lost::Lost;
use crate::record::AllocationForm;
use crate::state::NodeState;

/// How many could not stay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replanned {
    moved: usize,
    displaced: usize,
}

/// What has become of a container that could not simply stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It stays all the same.
    Stays,
    /// It was placed anew.
    Moved,
    /// It can only share.
    Displaced,
}

/// A container and the place that it had.
#[derive(Clone, Debug)]
struct Seat {
    id: ContainerId,
    /// Name of its pool.
    pool: String,
    /// With the pool as far as it is still there; or why it cannot be read.
    had: Result<Allocation, String>,
    /// Why it may not have that again.
    sent_away: Option<String>,
}

/// Groups of containers, the first to be served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Exclusive,
    Mixed,
    Shared,
    Unreadable,
}

impl NodeState {
    /// Goes on with the machine as it is now.
    pub(crate) fn machine_changed(&mut self, machine: ChangedMachine, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        self.devices = Arc::clone(&machine.devices);
        if machine.pools == *self.machine && machine.fingerprint == self.fingerprint {
            step.notes.push(Note::MachineUnchanged);
            return step;
        }
        let (before, cpus) = (self.machine.cpus(), machine.pools.cpus());
        let not_alone = self.not_alone();
        self.origin.machine.clone_from(&machine.files);
        let places = self.forms();
        let Replanned { moved, displaced } =
            self.replan_all(&places, machine, By::Machine, &BTreeMap::new(), now, &mut step);
        self.note_not_alone(&not_alone, &mut step);
        step.notes.push(Note::MachineChanged {
            came: cpus.difference(&before).to_string(),
            went: before.difference(&cpus).to_string(),
            cpus: cpus.to_string(),
            moved,
            displaced,
        });
        step
    }

    /// All containers on these pools, from these places: those that they have, or earlier ones. One that is sent away may not stay, for the reason that is given; nor one outside of its group where the machine is another one.
    pub(crate) fn replan_all(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        machine: ChangedMachine,
        by: By,
        sent_away: &BTreeMap<ContainerId, String>,
        now: Timestamp,
        step: &mut Step,
    ) -> Replanned {
        let had = self.forms();
        self.machine = machine.pools.into();
        self.take_claims();
        let mut sent_away = sent_away.clone();
        if self.fingerprint != machine.fingerprint {
            sent_away.extend(self.misplaced());
        }
        self.fingerprint = machine.fingerprint;
        let change = match by {
            By::Machine => NodeChange::Machine,
            _ => NodeChange::MachineNamed,
        };
        self.emit(Change::Node(change), step);
        step.notes.extend(machine.notes);
        let replanned = self.replan(places, &sent_away, "displaced", now, step);
        self.emit_elsewhere(&had, by, step);
        replanned
    }

    /// Where all containers are, in the journal's words.
    pub(crate) fn forms(&self) -> Vec<(ContainerId, AllocationForm)> {
        let ids = self.containers.ids();
        ids.filter_map(|id| Some((*id, self.place(*id)?))).collect()
    }

    /// Fills an empty ledger with all containers, and tells of those that are elsewhere.
    pub(crate) fn replan_from(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        by: By,
        sent_away: &BTreeMap<ContainerId, String>,
        now: Timestamp,
        step: &mut Step,
    ) -> Replanned {
        let replanned = self.replan(places, sent_away, "displaced", now, step);
        self.emit_elsewhere(places, by, step);
        replanned
    }

    /// Tells of containers that are elsewhere than they were.
    pub(crate) fn emit_elsewhere(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        by: By,
        step: &mut Step,
    ) {
        for (id, had) in places {
            let is_decided_anew =
                self.containers.get(id).is_some_and(|it| it.touched == self.steps);
            match self.replanned(*id, had, by) {
                Some(placed) => self.emit(placed, step),
                None if is_decided_anew => self.emit(Change::Amended(*id), step),
                None => {}
            }
        }
    }

    /// Tells of containers that are elsewhere since the start, of which the journal is told apart.
    pub(crate) fn emit_replanned(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        step: &mut Step,
    ) {
        for (id, had) in places {
            if let Some(placed) = self.replanned(*id, had, By::Restart) {
                self.emit_unjournaled(placed, step);
            }
        }
    }

    /// A container that is no longer where it was.
    fn replanned(&self, id: ContainerId, had: &AllocationForm, by: By) -> Option<Change<'static>> {
        let container = self.containers.get(&id)?;
        if self.place(id)? == *had {
            return None;
        }
        let told = container.runtime_id.as_ref().and_then(|it| self.told.get(it));
        let before = had.place(told.map(|it| it.cpus.to_string()).unwrap_or_default());
        Some(Change::PlacedAnew { id, by, before, why: container.decision.outcome.clone() })
    }

    /// Places containers anew that are in no ledger any more, because of `why`.
    pub(crate) fn seat_anew(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        why: &str,
        now: Timestamp,
        step: &mut Step,
    ) {
        for (id, form) in places {
            let mut seat = Seat::new(*id, form, self.ledger.pools());
            seat.sent_away = Some(why.to_owned());
            self.find_place(&seat, why, "displaced", now, step);
            self.emit(Change::Amended(*id), step);
        }
        self.emit_replanned(places, step);
    }

    /// Fills an empty ledger. `kind` counts those that can only share.
    pub(crate) fn replan(
        &mut self,
        places: &[(ContainerId, AllocationForm)],
        sent_away: &BTreeMap<ContainerId, String>,
        kind: &'static str,
        now: Timestamp,
        step: &mut Step,
    ) -> Replanned {
        self.seat_groups(step);
        let pools = self.ledger.pools();
        let mut seats: Vec<Seat> =
            places.iter().map(|(id, form)| Seat::new(*id, form, pools)).collect();
        for seat in &mut seats {
            seat.sent_away = sent_away.get(&seat.id).cloned();
            seat.had = seat.had.clone().map(|had| self.as_claimed(seat.id, had));
        }
        refuse_double_claims(&mut seats);
        seats.sort_by_key(Seat::rank);
        let holders: Vec<Owner> = seats.iter().filter_map(Seat::held_for).collect();
        let mut leaving = Vec::new();
        for seat in seats {
            // Those that hold CPUs for their pod come before the others of it, here and among those that leave.
            let has_lost_holder = seat
                .joins()
                .is_some_and(|pod| holders.contains(&pod) && self.ledger.holder_of(pod).is_none());
            let stays = match has_lost_holder {
                true => Err("the CPUs of its pod are others".to_owned()),
                false => self.stay(&seat),
            };
            if let Err(why) = stays {
                leaving.push((seat, why));
            }
        }
        self.complete_groups(step);
        let mut replanned = Replanned::default();
        for (seat, why) in leaving {
            // Where its pod has no CPUs any more, it runs on shared ones as one that joined them, until the pod has some again.
            let lacks_holder = seat.joins().is_some_and(|it| self.ledger.holder_of(it).is_none());
            if lacks_holder && self.stay(&seat).is_ok() {
                continue;
            }
            match self.find_place(&seat, &why, kind, now, step) {
                Found::Stays => {}
                Found::Moved => replanned.moved += 1,
                Found::Displaced => replanned.displaced += 1,
            }
        }
        replanned
    }

    /// Leaves it exactly where it was, or says why that cannot be.
    fn stay(&mut self, seat: &Seat) -> Result<(), String> {
        let allocation = seat.same_place(self.ledger.pools())?;
        let group = self.groups.members.get(&seat.id).map(|it| it.group);
        if allocation.terms.part.group() != group {
            return Err("its group is another one".to_owned());
        }
        let is_inside = |it| allocation.exclusive.is_subset(&self.ledger.group_cpus(it));
        if !group.is_none_or(is_inside) {
            return Err("its group has other CPUs".to_owned());
        }
        let pool = allocation.pool;
        self.ledger.adopt(seat.id, allocation).map_err(|error| error.to_string())?;
        let named = self.ledger.pools().named(&seat.pool).map(|named| named.id);
        match self.containers.get_mut(&seat.id) {
            Some(container) if named == Some(pool) => container.home.clone_from(&seat.pool),
            _ => self.remember_home(seat.id),
        }
        Ok(())
    }

    /// Places it anew, and says in its decision why. One that is in no group, because that to which it belongs has no room, stays where it was.
    fn find_place(
        &mut self,
        seat: &Seat,
        why: &str,
        kind: &'static str,
        now: Timestamp,
        step: &mut Step,
    ) -> Found {
        let Some(container) = self.containers.get(&seat.id) else { return Found::Displaced };
        let (name, old) = (container.full_name(), container.decision.clone());
        let spec = Arc::clone(&container.spec);
        self.leave_lost_slot(seat.id);
        let has = seat.had.as_ref().map(|it| it.exclusive.clone()).unwrap_or_default();
        let is_full = !self.take_into_group(seat.id, &spec, &has, step);
        let (mut request, warnings) = self.request(seat.id, &spec);
        let ungrouped = seat.ungrouped(&request).filter(|_| is_full);
        if ungrouped.as_ref().is_some_and(|it| self.stay(it).is_ok()) {
            return Found::Stays;
        }
        let seat = ungrouped.as_ref().unwrap_or(seat);
        if seat.had.as_ref().is_ok_and(|had| had.exclusive.is_empty()) {
            request = self.as_sharer(request);
        }
        let offered = match &seat.had {
            Ok(had) => {
                let previous = seat.previous(had, self.ledger.pools());
                Some(self.take_offer(&mut request, previous))
            }
            // Where it runs is not known, so nothing can be chosen for it until the runtime was asked.
            Err(_) => None,
        };
        let is_placed = matches!(offered, Some(Ok(_)));
        let decision = match offered {
            Some(offered) => self.decision(&spec, &request, offered.as_ref(), warnings, now),
            None => Decision { at: now, outcome: "not placed anew".to_owned(), ..old },
        };
        let mut outcome = format!("{why}; {}", decision.outcome);
        if is_placed {
            step.notes.extend(self.placed_note(seat.id));
        } else {
            self.leave_group(seat.id);
            if !self.share(seat, &request, step) {
                let lost = Lost::place(seat.id, name);
                self.release(seat.id, &lost.why, now, step);
                step.lost.push(lost);
                return Found::Displaced;
            }
            let lost = Lost::cpus(seat.id, name, outcome);
            step.fail(kind, lost.message());
            outcome = lost.outcome();
            step.lost.push(lost);
        }
        self.remember_home(seat.id);
        if let Some(container) = self.containers.get_mut(&seat.id) {
            container.decision = Decision { outcome, ..decision };
            container.touched = self.steps;
        }
        if is_placed { Found::Moved } else { Found::Displaced }
    }

    /// The first offer that the ledger takes: one that keeps what it can, or else one that keeps nothing. Unlike in a resize, the CPUs to
    /// keep may be the last that others in their pool could share; so they are adopted, which is refused then, and not committed.
    fn take_offer(
        &mut self,
        request: &mut Request,
        previous: Option<Previous>,
    ) -> Result<Offer, Refusal> {
        let mut refused = Refusal { considered: Vec::new() };
        for previous in [previous, None] {
            request.previous = previous;
            match offer(&self.ledger, request) {
                Ok(offer) => {
                    // Those that make room may be the last to share CPUs of it.
                    let before = (!offer.moves().is_empty()).then(|| self.ledger.clone());
                    self.ledger.move_sharers(offer.moves());
                    let is_adopted =
                        self.ledger.adopt(request.id, offer.allocation().clone()).is_ok();
                    if !is_adopted && let Some(before) = before {
                        self.ledger = before;
                    }
                    if is_adopted {
                        for made in offer.moves() {
                            self.remember_home(made.container);
                        }
                        return Ok(offer);
                    }
                }
                Err(refusal) => refused = refusal,
            }
        }
        Err(refused)
    }

    fn share(&mut self, seat: &Seat, request: &Request, step: &mut Step) -> bool {
        let (mems, cpus) = match &seat.had {
            Ok(had) => (had.mems.clone(), had.exclusive.intersection(&self.ledger.pools().cpus())),
            Err(_) => (NodeSet::new(), CpuSet::new()),
        };
        self.adopt_shared(request, mems, &cpus, step)
    }
}

impl Seat {
    fn new(id: ContainerId, form: &AllocationForm, pools: &Pools) -> Seat {
        let had = form.allocation(pools).map_err(|error| error.to_string());
        Seat { id, pool: form.pool().to_owned(), had, sent_away: None }
    }

    /// The same for one that was in no group and does not come into one, where nothing else speaks against its place.
    fn ungrouped(&self, request: &Request) -> Option<Seat> {
        let had = self.had.as_ref().ok()?;
        let is_same = had.is_reserved == request.is_reserved && request.wishes.claimed.is_empty();
        let is_ungrouped = had.terms.part.group().is_none() && is_same;
        is_ungrouped.then(|| Seat { sent_away: None, ..self.clone() })
    }

    /// The pod for which it holds exclusive CPUs.
    fn held_for(&self) -> Option<Owner> {
        let had = self.had.as_ref().ok()?;
        let is_holder = had.terms.part == Part::Holder && !had.exclusive.is_empty();
        is_holder.then_some(had.terms.owner)
    }

    /// The pod with the exclusive CPUs that it runs on without holding them.
    fn joins(&self) -> Option<Owner> {
        let had = self.had.as_ref().ok()?;
        (had.terms.part == Part::Joined).then_some(had.terms.owner)
    }

    fn rank(&self) -> (Group, Reverse<usize>, Reverse<MilliCpu>, ContainerId) {
        let (group, exclusive, shared) = match &self.had {
            Err(_) => (Group::Unreadable, 0, None),
            Ok(had) => match (had.exclusive.len(), had.shared) {
                (0, shared) => (Group::Shared, 0, shared),
                (own, None) => (Group::Exclusive, own, None),
                (own, shared) => (Group::Mixed, own, shared),
            },
        };
        (group, Reverse(exclusive), Reverse(shared.unwrap_or_default()), self.id)
    }

    /// What it had, on pools that have all of it; or why they have not.
    fn same_place(&self, pools: &Pools) -> Result<Allocation, String> {
        let had = self.had.clone()?;
        if let Some(why) = &self.sent_away {
            return Err(why.clone());
        }
        let lost = had.exclusive.difference(&pools.ownable(&had.exclusive));
        if !lost.is_empty() {
            return Err(format!("lost CPUs {lost}"));
        }
        if had.is_reserved && pools.reserved().is_empty() {
            return Err("no CPU is reserved any more".to_owned());
        }
        if had.is_reserved {
            return Ok(had);
        }
        let named = pools.named(&self.pool);
        // A shared part that had to make room runs elsewhere than on its container's own CPUs.
        let is_apart = had.shared.is_some() && !had.exclusive.is_empty();
        let pool = match named.filter(|pool| is_apart || had.exclusive.is_subset(&pool.cpus)) {
            // Another policy may have it that fewer pools are shared.
            Some(pool) if had.shared.is_some() => {
                pools.chain(pool.id).find(|pool| pool.is_shared).map_or(PoolId::MACHINE, |it| it.id)
            }
            Some(pool) => pool.id,
            // CPUs of its own are the same in any pool.
            None if had.shared.is_none() => {
                narrowest(pools, &had.exclusive).unwrap_or(PoolId::MACHINE)
            }
            None if named.is_none() => return Err(format!("lost all CPUs of {}", self.pool)),
            None => return Err(format!("CPUs {} are not in {}", had.exclusive, self.pool)),
        };
        Ok(Allocation { pool, ..had })
    }

    /// What a new place should keep of the old one.
    fn previous(&self, had: &Allocation, pools: &Pools) -> Option<Previous> {
        if self.sent_away.is_some() {
            return None;
        }
        let exclusive = pools.ownable(&had.exclusive);
        let named = pools.named(&self.pool).map(|pool| pool.id);
        let pool = named.or_else(|| narrowest(pools, &exclusive))?;
        Some(Previous { pool, exclusive })
    }
}

fn narrowest(pools: &Pools, cpus: &CpuSet) -> Option<PoolId> {
    let around = pools.iter().filter(|pool| !cpus.is_empty() && cpus.is_subset(&pool.cpus));
    around.min_by_key(|pool| pool.cpus.len()).map(|pool| pool.id)
}

/// Should a release be missing in the journal, two containers own the same CPU. The one that came later has the better claim.
fn refuse_double_claims(seats: &mut [Seat]) {
    seats.sort_by_key(|seat| Reverse(seat.id));
    let mut claimed = CpuSet::new();
    for seat in seats {
        match &seat.had {
            Ok(had) if had.exclusive.intersects(&claimed) => {
                let twice = had.exclusive.intersection(&claimed);
                seat.had = Err(format!("CPUs {twice} went to a later container"));
            }
            Ok(had) => claimed.union_with(&had.exclusive),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
