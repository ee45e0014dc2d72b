//! Groups in the ledger: a container chooses one, or has one made; the group is fitted to what its members request, and settles when they need less. In: a container
//! that comes, is resized or has gone. Out: groups of another size, and what the journal has to say of them.
//!
//! choose type ─▶ choose or make group ─▶ fit ─▶ offer of the container's place in it ... settle ─▶ end when empty

mod components;
mod making;
mod placed;
mod possible;
mod seating;
mod usage;

use std::sync::Arc;

use bayplan_allocator::{
    Allocation, ContainerId, Ledger, Move, Request, domain_around, offer, whole_domain,
};
use bayplan_topology::Level;
use bayplan_types::{CpuSet, MilliCpu};
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::Tuning;
use bayplan_workload::cmk::{INFRA, SHARED, asked_environment, environment};

use self::making::{exact_request, group_request};
use crate::change::{Change, GroupChange};
use crate::event::Step;
use crate::groups::{Asked, Choice, GroupForm, GroupType, Groups, Inside, Instance, Size};
use crate::occupancy::tuning_of;
use crate::record::{AllocationForm, Record};
use crate::state::NodeState;

/// How it was before a container was to join a group.
#[derive(Debug)]
pub(crate) struct Ungrouped {
    ledger: Ledger,
    groups: Groups,
}

/// A group that has been made or fitted for a container that is not placed yet.
#[derive(Debug)]
pub(crate) struct Fitted {
    before: Ungrouped,
    group: ContainerId,
    moves: Vec<Move>,
}

impl Fitted {
    /// Whether other containers have changed their pools for it.
    pub(crate) fn has_moves(&self) -> bool {
        !self.moves.is_empty()
    }
}

impl NodeState {
    /// These are the types of groups.
    pub fn with_groups(self, types: Arc<[GroupType]>) -> NodeState {
        NodeState { groups: Groups::new(types), ..self }
    }

    fn ungrouped(&self) -> Ungrouped {
        Ungrouped { ledger: self.ledger.clone(), groups: self.groups.clone() }
    }

    /// As if it had not been tried.
    pub(super) fn unfit(&mut self, before: Ungrouped) {
        (self.ledger, self.groups) = (before.ledger, before.groups);
    }

    /// Makes room for a container in a group of the type that takes it, rather with the slots that it has already; `None`: no type does.
    ///
    /// # Errors
    /// No group can take it, or its pod names one that is not there; nothing is changed then.
    pub(crate) fn fit_newcomer(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
        has: &CpuSet,
    ) -> Result<Option<Fitted>, String> {
        if self.groups.types.is_empty()
            || self.is_draining()
            || self.groups.members.contains_key(&id)
        {
            return Ok(None);
        }
        let found = self.groups.type_of(spec, &self.rules)?;
        let Some((kind, is_named)) = found.map(|(kind, is_named)| (kind.clone(), is_named)) else {
            return Ok(None);
        };
        let (request, _) = self.request(id, spec);
        if !self.may_be_grouped(&request, is_named) {
            return Ok(None);
        }
        let allocatable = self.ledger.pools().allocatable().len();
        let may_be_new = kind
            .at_most(allocatable)
            .is_none_or(|most| self.groups.of_kind(&kind.name).count() < most);
        let has_like = |group| self.has_like(group, &kind, spec);
        let room = |group| self.room_in(group);
        let choices = self.groups.choices(&kind, spec, may_be_new, has_like, room);
        let mut refused = format!("there can be no more groups of `{}`", kind.name);
        for choice in choices {
            let before = self.ungrouped();
            match self.try_choice(choice, &kind, spec, &request, has) {
                Ok((group, moves)) => return Ok(Some(Fitted { before, group, moves })),
                Err(why) => {
                    let name = match choice {
                        Choice::Into(group) => self.group_name(group),
                        Choice::New => format!("a new {}", kind.name),
                    };
                    refused = format!("no group of `{}` has room; {name}: {why}", kind.name);
                    self.unfit(before);
                }
            }
        }
        Err(refused)
    }

    pub(crate) fn group_name(&self, group: ContainerId) -> String {
        self.groups.instances.get(&group).map(Instance::name).unwrap_or_default()
    }

    /// CPU time that the CPUs of a group have beyond what members request; below zero where they request more.
    fn room_in(&self, group: ContainerId) -> i64 {
        let has = MilliCpu::from_cpus(self.ledger.group_cpus(group).len()).0;
        let requested = self.groups.requested(group).0;
        let signed = |milli: u64| i64::try_from(milli).unwrap_or(i64::MAX);
        signed(has).saturating_sub(signed(requested))
    }

    /// Whether a group has a member with the key of this container.
    fn has_like(&self, group: ContainerId, kind: &GroupType, spec: &NewContainer) -> bool {
        let key = Groups::key_for(kind, spec);
        let members = self.groups.members.iter().filter(|(_, it)| it.group == group);
        let mut specs = members.filter_map(|(id, _)| Some(&self.containers.get(id)?.spec));
        specs.any(|it| Groups::key_for(kind, it) == key)
    }

    fn try_choice(
        &mut self,
        choice: Choice,
        kind: &GroupType,
        spec: &NewContainer,
        request: &Request,
        has: &CpuSet,
    ) -> Result<(ContainerId, Vec<Move>), String> {
        let id = request.id;
        let (group, mut moves) = match choice {
            Choice::Into(group) => (group, Vec::new()),
            Choice::New => {
                let wanted = MilliCpu::from_cpus(request.demand.exclusive())
                    + request.demand.shared().unwrap_or_default();
                self.make_whole(kind, Groups::key_for(kind, spec), wanted)?
            }
        };
        if let Some(why) = self.groups.is_full(group, request.owner) {
            return Err(why);
        }
        let free = self.ledger.group(group).map(|it| it.exclusive.clone()).unwrap_or_default();
        let near = self.socket_cpus(spec)?;
        let free = near.map_or_else(|| free.clone(), |near| free.intersection(&near));
        if free.is_empty() && asked_socket(spec).is_some() {
            return Err("it has no free CPU in that socket".to_owned());
        }
        let member = Groups::membership(kind, group, &Asked::new(request, spec, free, has))?;
        self.groups.members.insert(id, member);
        moves.extend(self.fit_members(group)?);
        let (request, _) = self.request(id, spec);
        match offer(&self.ledger, &request) {
            Ok(_) => Ok((group, moves)),
            Err(refusal) => Err(self.why_refused(&refusal)),
        }
    }

    /// CPUs of the socket that a container names in CMK's words; `None`: it names none.
    fn socket_cpus(&self, spec: &NewContainer) -> Result<Option<CpuSet>, String> {
        let Some(socket) = asked_socket(spec) else { return Ok(None) };
        let pools = self.ledger.pools();
        let pool = pools.named(&format!("package {socket}"));
        let pool = pool.ok_or_else(|| format!("the machine has no socket {socket}"))?;
        Ok(whole_domain(pools, Level::Package, &pool.cpus))
    }

    /// The class of scheduling that a container's pod names, or else the type of its group.
    pub(super) fn scheduling_class_named(&self, id: ContainerId) -> Option<String> {
        let spec = &self.containers.get(&id)?.spec;
        self.scheduling_class_of(id, &tuning_of(spec, &self.rules))
    }

    /// The same of a container that is set up so.
    pub(super) fn scheduling_class_of(&self, id: ContainerId, tuning: &Tuning) -> Option<String> {
        let own = tuning.scheduling_class.clone();
        own.or_else(|| self.groups.scheduling_class_of(id))
    }

    /// What CMK would put into the environment of a container that is in its group, or on the reserved CPUs, by CMK's words.
    pub(super) fn pool_environment(&self, id: ContainerId) -> Option<Vec<(String, String)>> {
        // Without groups CMK itself may be there.
        if self.groups.types.is_empty() {
            return None;
        }
        let spec = &self.containers.get(&id)?.spec;
        let Some(Ok(isolate)) = &spec.cmk else { return None };
        let held = self.ledger.allocation(id)?;
        let group = self.groups.members.get(&id).and_then(|it| self.groups.kind_of(it.group));
        let is_there = match group {
            Some(kind) => kind.name == isolate.pool,
            None => isolate.pool == INFRA && held.is_reserved,
        };
        let cpus_of = |name: &str| {
            let mut cpus = CpuSet::new();
            let groups = self.groups.of_kind(name);
            groups.for_each(|(group, _)| cpus.union_with(&self.ledger.group_cpus(group)));
            cpus
        };
        let infra = match self.groups.kind(INFRA) {
            Some(_) => cpus_of(INFRA),
            None => self.ledger.pools().reserved().clone(),
        };
        let assigned = self.ledger.cpus_of(held);
        is_there.then(|| {
            let mut variables = environment(&assigned, &cpus_of(SHARED), &infra);
            variables.extend(asked_environment(isolate));
            variables
        })
    }

    fn why_refused(&self, refusal: &bayplan_allocator::Refusal) -> String {
        let first = refusal.considered.first().and_then(|it| it.outcome.as_ref().err());
        first.map(ToString::to_string).unwrap_or_default()
    }

    /// Gives a group the CPUs that it is to have: as many as its members need or its type says, or what of its list or domain is open.
    fn fit(&mut self, group: ContainerId) -> Result<Vec<Move>, String> {
        let Some(kind) = self.groups.kind_of(group) else { return Ok(Vec::new()) };
        let has = self.ledger.group_cpus(group);
        let request = match self.whole_of(group) {
            Some(whole) => {
                let lacking = whole.difference(&has);
                let more = self.ledger.open_to_groups(&lacking);
                if more.is_empty() {
                    return Ok(Vec::new());
                }
                exact_request(group, kind, &has.union(&more))
            }
            None => match self.groups.needed(group, Some(has.len()))? {
                Some(needed) if self.has_components(group) => {
                    return self.fit_components(group, needed);
                }
                Some(needed) if needed > has.len() && kind.overloads() => {
                    return self.grow_apart(group, needed);
                }
                Some(needed) if needed < has.len() && kind.overloads() => {
                    self.shrink_request(group, kind, needed)
                }
                Some(needed) => self.placed_as(kind, false, group_request(group, kind, needed)),
                None => return Ok(Vec::new()),
            },
        };
        self.ledger.resize_group(&request).map_err(|refusal| self.why_refused(&refusal))
    }

    /// The same where its size follows its members; other groups take them as they are.
    ///
    /// # Errors
    /// It cannot have what its members request.
    fn fit_members(&mut self, group: ContainerId) -> Result<Vec<Move>, String> {
        if self.groups.requested_cpus(group).is_none() {
            return Ok(Vec::new());
        }
        let has = self.ledger.group_cpus(group).len();
        let mut fitted = self.fit(group);
        // That members use more than they request is no reason to refuse one.
        if let (Err(_), Some(followed)) = (&fitted, self.groups.followed.get_mut(&group)) {
            followed.size = has;
            fitted = self.fit(group);
        }
        let moves = fitted?;
        let least = self.groups.requested_cpus(group).unwrap_or_default();
        self.check_has(group, least).map(|()| moves)
    }

    /// Refuses a group that could have only a part of so many CPUs.
    fn check_has(&self, group: ContainerId, needed: usize) -> Result<(), String> {
        let has = self.ledger.group_cpus(group).len();
        match has < needed {
            true => Err(format!("needs {needed} exclusive CPUs; it can have {has}")),
            false => Ok(()),
        }
    }

    /// All CPUs of the list or the domain that a group is, as far as the machine has them; `None` for a group of another size.
    fn whole_of(&self, group: ContainerId) -> Option<CpuSet> {
        let instance = self.groups.instances.get(&group)?;
        let kind = self.groups.kind(&instance.kind)?;
        let pools = self.ledger.pools();
        match &kind.size {
            Size::List(_) => Some(pools.ownable(&kind.list_of(instance.number)?)),
            Size::Domain(level) => domain_around(pools, *level, &self.ledger.group_cpus(group)),
            Size::Requests { .. } | Size::Fixed(_) => None,
        }
    }

    /// Whether a group has fewer CPUs than it is to have.
    fn is_short(&self, group: ContainerId) -> bool {
        let has = self.ledger.group_cpus(group);
        match self.whole_of(group) {
            Some(whole) => !whole.is_subset(&has),
            None => {
                let needed = self.groups.needed(group, Some(has.len()));
                needed.is_ok_and(|needed| needed.is_some_and(|needed| needed > has.len()))
            }
        }
    }

    /// What a group holds, in the words of the journal.
    pub(super) fn group_form(&self, group: ContainerId) -> Option<AllocationForm> {
        let held = self.ledger.group(group)?;
        let all = Allocation { exclusive: self.ledger.group_cpus(group), ..held.clone() };
        let pool = self.ledger.pools().lasting_name(held.pool).unwrap_or_default();
        Some(AllocationForm::new(&all, pool))
    }

    /// Tells of a group that was made or fitted for a container that is placed now.
    pub(crate) fn keep_fitted(&mut self, fitted: Fitted, owner: ContainerId, step: &mut Step) {
        self.note_moves(&fitted.moves, owner, step);
        self.tell_group(fitted.group, step);
        self.tell_members(fitted.group, &fitted.before.ledger, step);
    }

    /// Members that have followed their group, for the journal.
    fn tell_members(&mut self, group: ContainerId, before: &Ledger, step: &mut Step) {
        let members: Vec<ContainerId> = self
            .ledger
            .members_of(group)
            .filter(|(id, it)| before.allocation(*id).is_some_and(|before| before != *it))
            .map(|(id, _)| id)
            .collect();
        for id in members {
            self.remember_home(id);
            self.emit(Change::Amended(id), step);
        }
    }

    /// The container has no place after all.
    pub(crate) fn undo_fitted(&mut self, fitted: Fitted) {
        self.unfit(fitted.before);
    }

    /// What has become of a group, for the journal and the log.
    pub(crate) fn tell_group(&mut self, group: ContainerId, step: &mut Step) {
        let Some(form) = self.group_form(group) else { return };
        let Some(instance) = self.groups.instances.get_mut(&group) else { return };
        instance.form = form;
        self.emit(Change::Group(GroupChange::Fitted(group)), step);
    }

    /// All groups as records.
    pub(crate) fn group_records(&self) -> impl Iterator<Item = Record> {
        let instances = self.groups.instances.iter();
        instances.map(|(id, it)| Record::Group(Box::new(GroupForm::new(*id, it))))
    }

    /// A container has gone.
    pub(crate) fn leave_group(&mut self, id: ContainerId) {
        if let Some(member) = self.groups.members.remove(&id) {
            self.groups.unsettled.insert(member.group);
        }
    }

    /// At the end of a step: groups that need less, or that no container needs, and those that are always to be there.
    pub(crate) fn settle_groups(&mut self, step: &mut Step) {
        self.note_forms(step);
        if self.known.is_partial() || self.is_restored() {
            return;
        }
        for group in std::mem::take(&mut self.groups.unsettled) {
            self.settle_group(group, step);
        }
        // What could not be made is tried again when something has changed.
        let version = Some(self.ledger.version());
        let lacks = self.groups.lacks_some || !self.groups.short.is_empty();
        if lacks && self.groups.lacked_at != version {
            let mut short: Vec<ContainerId> = self.groups.short.iter().copied().collect();
            short.sort_by_key(|id| self.groups.kind_of(*id).map(|it| it.priority));
            for group in short {
                self.settle_group(group, step);
            }
            if std::mem::take(&mut self.groups.lacks_some) {
                self.make_lacking(step);
            }
            self.groups.lacked_at = Some(self.ledger.version());
        }
    }

    pub(super) fn settle_group(&mut self, group: ContainerId, step: &mut Step) {
        let Some(kind) = self.groups.kind_of(group) else { return };
        let count = self.groups.of_kind(&kind.name).count();
        let is_empty = self.groups.members_of(group).next().is_none();
        if is_empty && count > kind.always() {
            self.end_group(group, step);
            return;
        }
        let before = self.ledger.clone();
        let fitted = self.fit(group);
        let is_known = match self.is_short(group) {
            true => !self.groups.short.insert(group),
            false => !self.groups.short.remove(&group) && fitted.is_ok(),
        };
        match fitted {
            Ok(moves) => self.note_moves(&moves, group, step),
            // It stays as large as it is.
            Err(_) if is_known => {}
            Err(why) => {
                let message = format!("the group {} stays as it is: {why}", self.group_name(group));
                step.fail("group", message);
            }
        }
        if self.ledger.group_cpus(group) != before.group_cpus(group) {
            self.tell_group(group, step);
            self.tell_members(group, &before, step);
        }
    }

    pub(crate) fn end_group(&mut self, group: ContainerId, step: &mut Step) {
        self.ledger.release(group);
        self.groups.short.remove(&group);
        self.groups.followed.remove(&group);
        let Some(instance) = self.groups.instances.remove(&group) else { return };
        let ended = GroupChange::Ended { id: group, name: instance.name() };
        self.emit(Change::Group(ended), step);
    }

    /// Fits the group of a container that is to have other resources; `None`: it is in none.
    ///
    /// # Errors
    /// The group cannot have what it would need; nothing is changed then.
    pub(super) fn fit_resized(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
    ) -> Result<Option<Fitted>, String> {
        let Some(member) = self.groups.members.get(&id).cloned() else { return Ok(None) };
        let group = member.group;
        let Some(kind) = self.groups.kind_of(group).cloned() else { return Ok(None) };
        let before = self.ungrouped();
        self.groups.members.remove(&id);
        let (request, _) = self.request(id, spec);
        let mut free = self.ledger.group(group).map(|it| it.exclusive.clone()).unwrap_or_default();
        let held = self.ledger.allocation(id).map(|it| it.exclusive.clone()).unwrap_or_default();
        // Another machine may have it that the socket is gone.
        if let Some(near) = self.socket_cpus(spec).ok().flatten() {
            free.intersect_with(&near);
        }
        free.union_with(&held);
        let request = if held.is_empty() { self.as_sharer(request) } else { request };
        let asked = Asked::new(&request, spec, free, &held);
        let fitted = Groups::membership(&kind, group, &asked).and_then(|mut it| {
            // A slot stays the same as long as it suffices.
            if kind.inside == Inside::Slots && it.own <= held.len() {
                (it.own, it.exactly) = (held.len(), held.clone());
            }
            self.groups.members.insert(id, it);
            self.fit_before(id, group)
        });
        match fitted {
            Ok(moves) => Ok(Some(Fitted { before, group, moves })),
            Err(why) => {
                let why = format!("its group {} cannot be fitted: {why}", self.group_name(group));
                self.unfit(before);
                Err(why)
            }
        }
    }

    /// The group grows before a member takes more; it shrinks after one has given up what it had.
    fn fit_before(&mut self, id: ContainerId, group: ContainerId) -> Result<Vec<Move>, String> {
        self.groups.unsettled.insert(group);
        let has = self.ledger.group_cpus(group).len();
        let needed = self.groups.needed(group, Some(has))?;
        let is_member = self.groups.members.contains_key(&id);
        match needed.filter(|needed| is_member && *needed > has) {
            Some(_) => self.fit_members(group),
            None => Ok(Vec::new()),
        }
    }
}

fn asked_socket(spec: &NewContainer) -> Option<u32> {
    match &spec.cmk {
        Some(Ok(isolate)) => isolate.socket,
        _ => None,
    }
}
