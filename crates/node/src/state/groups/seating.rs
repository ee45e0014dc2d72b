//! Groups after a restart, on a machine of another shape, and under another configuration. In: groups in the journal's words. Out: the same groups in an empty ledger, before any
//! container is there, and which containers have to go elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::{
    Allocation, ContainerId, CpuWishes, Request, domain_around, offer, open_domains,
};
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;

use super::making::{exact_request, group_request};
use crate::change::{Change, GroupChange};
use crate::container::full_name;
use crate::event::Step;
use crate::groups::{GroupCount, GroupForm, GroupType, Groups, Inside, Instance, Membership, Size};
use crate::record::AllocationForm;
use crate::state::NodeState;
use crate::status::GroupStatus;

impl NodeState {
    /// Takes over what a journal says of groups and of which containers are in them. `is_same`: it was written under these types.
    pub(crate) fn restore_groups(
        &mut self,
        groups: BTreeMap<ContainerId, GroupForm>,
        places: &[(ContainerId, AllocationForm)],
        is_same: bool,
    ) {
        self.groups.instances = groups.into_iter().map(|(id, it)| (id, it.instance())).collect();
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
        // A crash may have come between the end of a member and what its group gives back.
        self.groups.unsettled = self.groups.instances.keys().copied().collect();
        for (id, form) in places {
            self.enroll(*id, form, is_same);
        }
    }

    /// A container of the journal is in its group as it was.
    fn enroll(&mut self, id: ContainerId, form: &AllocationForm, is_same: bool) {
        let Some(group) = form.group() else { return };
        let Some(kind) = self.groups.kind_of(group).cloned() else { return };
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let (request, _) = self.request(id, &spec);
        let own = if form.has_exclusive() { form.taken() } else { CpuSet::new() };
        let exactly = if kind.inside == Inside::Slots { own.clone() } else { CpuSet::new() };
        let milli = request.demand.all_shared().shared().unwrap_or_default();
        let owner = request.owner;
        // Another type may have it that members have no CPUs of their own, or only such.
        let has_own = match kind.inside {
            _ if is_same => !own.is_empty(),
            Inside::Share => false,
            Inside::Slots => true,
            Inside::GuaranteedExclusive => request.demand.shared().is_none(),
        };
        if has_own == own.is_empty() {
            return;
        }
        let member = Membership { group, milli, own: own.len(), exactly, owner };
        self.groups.members.insert(id, member);
    }

    /// Other types hold. Groups that have another type are over; gives the containers that have to be placed anew because of that, with the reason.
    pub(crate) fn change_groups(
        &mut self,
        types: Arc<[GroupType]>,
    ) -> BTreeMap<ContainerId, String> {
        let before = std::mem::replace(&mut self.groups.types, types);
        let old = |name: &str| before.iter().find(|it| it.name == name);
        let stays = |name: &str| match (old(name), self.groups.kind(name)) {
            (Some(old), Some(new)) => keeps_groups(old, new),
            _ => false,
        };
        // The parts of a composite have the wishes of other types.
        let is_kept = |name: &str| {
            let parts = self.groups.kind(name).map_or(&[][..], |it| &it.components);
            stays(name) && parts.iter().all(|it| stays(it))
        };
        let instances = self.groups.instances.iter();
        let ended: Vec<ContainerId> =
            instances.filter(|(_, it)| !is_kept(&it.kind)).map(|(id, _)| *id).collect();
        for group in ended {
            self.groups.forget(group);
            self.groups.ended.push(group);
        }
        self.groups.unsettled.extend(self.groups.instances.keys());
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
        self.misplaced()
    }

    /// Containers that are not in a group of the type that takes them.
    pub(crate) fn misplaced(&mut self) -> BTreeMap<ContainerId, String> {
        self.misplaced_among(self.containers.ids().copied().collect())
    }

    /// The same of these only.
    pub(crate) fn misplaced_among(
        &mut self,
        ids: Vec<ContainerId>,
    ) -> BTreeMap<ContainerId, String> {
        let mut misplaced = BTreeMap::new();
        for id in ids {
            let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else {
                continue;
            };
            let wanted = self.wanted_type(id, &spec);
            let member = self.groups.members.get(&id);
            let is = member.and_then(|it| self.groups.kind_of(it.group)).map(|it| it.name.clone());
            if wanted == is || (is.is_none() && self.is_draining()) {
                continue;
            }
            if is.is_some() {
                self.leave_group(id);
            }
            let why = match wanted {
                Some(name) => format!("it belongs to a group of `{name}` now"),
                None => "it belongs to no group any more".to_owned(),
            };
            misplaced.insert(id, why);
        }
        misplaced
    }

    pub(super) fn wanted_type(&self, id: ContainerId, spec: &NewContainer) -> Option<String> {
        let (kind, is_named) = self.groups.type_of(spec, &self.rules).ok().flatten()?;
        let (request, _) = self.request(id, spec);
        let is_member = self.groups.members.contains_key(&id);
        let is_free = is_member || self.may_be_grouped(&request, is_named);
        is_free.then(|| kind.name.clone())
    }

    /// Whether a type may take it: one on reserved CPUs only where its pod says so.
    pub(super) fn may_be_grouped(&self, request: &Request, is_named: bool) -> bool {
        let is_system = request.is_reserved && !self.ledger.pools().reserved().is_empty();
        // A group may set what is left alone of all other containers.
        let is_left_alone = request.wishes.preserve.cpus && !self.rules.preserve.cpus;
        let has_choice = request.wishes.claimed.is_empty() && !is_left_alone;
        has_choice && (is_named || !is_system)
    }

    /// Puts the groups into an empty ledger with what is left of their CPUs. Those of which nothing is left, and those that lack some, wait for
    /// [`NodeState::complete_groups`]: containers that have lost nothing stay where they are before.
    pub(crate) fn seat_groups(&mut self, step: &mut Step) {
        for group in std::mem::take(&mut self.groups.ended) {
            self.emit(Change::Group(GroupChange::Retired(group)), step);
        }
        let ids: Vec<ContainerId> = self.groups.instances.keys().copied().collect();
        for id in ids {
            self.seat_group(id);
            self.trim_components(id);
        }
    }

    /// Where it was, as far as these CPUs are there.
    fn seat_group(&mut self, id: ContainerId) -> Option<()> {
        let kind = self.groups.kind_of(id)?;
        let pools = self.ledger.pools();
        let Instance { form, number, .. } = self.groups.instances.get(&id)?;
        let mut had = form.allocation(pools).ok()?;
        had.terms.shares_idle = kind.cpus.shares_idle;
        let mut left = pools.ownable(&had.exclusive);
        match &kind.size {
            Size::List(_) => left.intersect_with(&kind.list_of(*number)?),
            // Of a domain of another level: a new group is made.
            Size::Domain(level) => {
                domain_around(pools, *level, &left)?;
            }
            Size::Requests { .. } | Size::Fixed(_) => {}
        }
        if left.is_empty() {
            return None;
        }
        let named = pools.get(had.pool).filter(|it| had.owned().is_subset(&it.cpus));
        match named.filter(|_| left == had.exclusive).map(|it| it.id) {
            Some(pool) => self.ledger.adopt(id, Allocation { pool, ..had }).ok(),
            None => self.ledger.adopt_group(id, &had, &left).ok(),
        }
    }

    /// Gives groups the CPUs that they lack, and others to groups that have lost all of theirs. Those for which there are none are over.
    pub(crate) fn complete_groups(&mut self, step: &mut Step) {
        let mut ids: Vec<ContainerId> = self.groups.instances.keys().copied().collect();
        ids.sort_by_key(|id| self.groups.kind_of(*id).map(|it| it.priority));
        for id in ids {
            let is_there = self.ledger.group(id).is_some();
            let is_completed = if is_there { self.regrow(id) } else { self.replan_group(id) };
            if is_completed.is_some() {
                let form = self.groups.instances.get(&id).map(|it| it.form.clone());
                if form != self.group_form(id) {
                    self.tell_group(id, step);
                }
                continue;
            }
            let name = self.group_name(id);
            self.groups.forget(id);
            self.emit(Change::Group(GroupChange::Lost { id, name }), step);
        }
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
    }

    /// A group that is there gets what it lacks, or the rest of it later; while nothing is placed, all of it later.
    fn regrow(&mut self, id: ContainerId) -> Option<()> {
        self.groups.unsettled.insert(id);
        if self.is_short(id) && !self.is_restored() {
            let moves = self.fit(id).unwrap_or_default();
            moves.iter().for_each(|made| self.remember_home(made.container));
            let members: Vec<ContainerId> = self.ledger.members_of(id).map(|(id, _)| id).collect();
            members.into_iter().for_each(|member| self.remember_home(member));
        }
        Some(())
    }

    /// Elsewhere with as many CPUs, or with what its members request, or with one and the others later.
    fn replan_group(&mut self, id: ContainerId) -> Option<()> {
        let kind = self.groups.kind_of(id)?.clone();
        let number = self.groups.instances.get(&id)?.number;
        self.groups.unsettled.insert(id);
        let open = |cpus: &CpuSet| {
            let open = self.ledger.open_to_groups(cpus);
            (!open.is_empty()).then(|| vec![exact_request(id, &kind, &open)])
        };
        let requests = match &kind.size {
            Size::List(_) => open(&kind.list_of(number)?)?,
            Size::Domain(level) => {
                let domains = open_domains(&self.ledger, *level);
                domains.iter().map(|cpus| exact_request(id, &kind, cpus)).collect()
            }
            Size::Requests { .. } | Size::Fixed(_) if self.has_components(id) => {
                let needed = self.groups.needed(id, None).ok().flatten()?;
                let cpus = self.recompose(id, needed)?;
                vec![exact_request(id, &kind, &cpus)]
            }
            Size::Requests { .. } | Size::Fixed(_) => {
                let needed = self.groups.needed(id, None).ok().flatten().unwrap_or(1);
                let least = self.groups.requested_cpus(id).unwrap_or(needed);
                let request = |size| self.placed_as(&kind, true, group_request(id, &kind, size));
                [needed, least, 1].map(|size| request(self.first_size(&kind, size))).to_vec()
            }
        };
        requests.iter().find_map(|request| self.adopt_offer(&kind, request))?;
        // Others may follow one by one.
        if self.is_short(id) { self.regrow(id) } else { Some(()) }
    }

    /// Groups that have the CPUs of a member back may be in another pool because of that, which only the journal has to know.
    pub(super) fn note_forms(&mut self, step: &mut Step) {
        let unsettled: Vec<ContainerId> = self.groups.unsettled.iter().copied().collect();
        for group in unsettled {
            let Some(form) = self.group_form(group) else { continue };
            let Some(instance) = self.groups.instances.get_mut(&group) else { continue };
            if instance.form != form {
                instance.form = form;
                self.emit(Change::Group(GroupChange::Amended(group)), step);
            }
        }
    }

    fn adopt_offer(&mut self, kind: &GroupType, request: &Request) -> Option<()> {
        let offer = self.offer_to_group(kind, request).ok()?;
        self.ledger.adopt(request.id, offer.allocation().clone()).ok()?;
        self.ledger.move_sharers(offer.moves());
        offer.moves().iter().for_each(|made| self.remember_home(made.container));
        Some(())
    }

    /// A member that has lost its slot has another one, or none.
    pub(crate) fn leave_lost_slot(&mut self, id: ContainerId) {
        let Some(member) = self.groups.members.get(&id) else { return };
        let open = self.ledger.group(member.group).map(|it| &it.exclusive);
        if open.is_none_or(|open| !member.exactly.is_subset(open)) {
            self.leave_group(id);
        }
    }

    /// A container that runs joins the group to which it belongs, where there is room; elsewhere it has its place as without a group, which is told. False: there
    /// is no room. It has these CPUs already.
    pub(crate) fn take_into_group(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
        has: &CpuSet,
        step: &mut Step,
    ) -> bool {
        match self.fit_newcomer(id, spec, has) {
            Ok(fitted) => {
                fitted.into_iter().for_each(|it| self.keep_fitted(it, id, step));
                true
            }
            Err(why) => {
                let message = format!("{}: {why}", full_name(spec));
                step.fail("group", message);
                false
            }
        }
    }

    /// The place of a container that was found running in its group; `None`: it belongs to none.
    pub(crate) fn adopt_into_group(&mut self, request: &Request) -> Option<String> {
        request.wishes.pod.part.group()?;
        let offer = offer(&self.ledger, request).ok()?;
        self.ledger.commit(offer).ok()?;
        Some(format!("belongs to the group {}", self.groups.name_for(request.id)?))
    }

    /// Every type of groups by name, with what there is of it.
    pub fn group_counts(&self) -> impl Iterator<Item = (&str, GroupCount)> {
        self.groups.types.iter().map(|kind| {
            let mut count = GroupCount::default();
            for (id, _) in self.groups.of_kind(&kind.name) {
                count.groups += 1;
                count.cpus += self.ledger.group_cpus(id).len();
                count.members += self.groups.members_of(id).count();
            }
            (kind.name.as_str(), count)
        })
    }

    /// For `status`.
    pub(crate) fn group_statuses(&self) -> Vec<GroupStatus> {
        let instances = self.groups.instances.iter();
        let mut groups: Vec<GroupStatus> = instances
            .filter_map(|(id, it)| {
                Some(GroupStatus {
                    name: it.name(),
                    key: it.key.clone(),
                    cpus: self.ledger.group_cpus(*id).to_string(),
                    shared_cpus: self.ledger.group(*id)?.exclusive.to_string(),
                    requests_milli: self.groups.requested(*id).0,
                    members: self.groups.members_of(*id).count(),
                })
            })
            .collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }
}

/// Whether groups of a type can stay when it becomes this one.
fn keeps_groups(old: &GroupType, new: &GroupType) -> bool {
    let is_size_kept = match (&old.size, &new.size) {
        (Size::Requests { .. } | Size::Fixed(_), Size::Requests { .. } | Size::Fixed(_)) => true,
        (old, new) => old == new,
    };
    // What they share beyond their CPUs follows when they are seated.
    let shares_idle = new.cpus.shares_idle;
    is_size_kept
        && (&old.components, old.creation) == (&new.components, new.creation)
        && (&CpuWishes { shares_idle, ..old.cpus.clone() }, old.inside, &old.instances.by)
            == (&new.cpus, new.inside, &new.instances.by)
        && (old.pins_cpus, old.pins_memory) == (new.pins_cpus, new.pins_memory)
        && old.memory_kinds == new.memory_kinds
}

impl Groups {
    /// It is over, and its members are in no group.
    fn forget(&mut self, group: ContainerId) {
        self.instances.remove(&group);
        self.members.retain(|_, it| it.group != group);
        self.unsettled.remove(&group);
        self.followed.remove(&group);
        self.short.remove(&group);
    }
}
