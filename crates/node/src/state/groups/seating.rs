//! Groups after a restart, on a machine of another shape, and under another configuration. In: groups in the journal's words. Out: the same groups in an empty ledger, before any
//! container is there, and which containers have to go elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, PoolId, Pools, Previous, Request, offer};
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;

use super::group_request;
use crate::event::{Note, Step};
use crate::groups::{GroupForm, GroupType, Groups, Inside, Membership, Size};
use crate::record::{AllocationForm, Record};
use crate::state::{NodeState, full_name};
use crate::status::GroupStatus;

impl NodeState {
    /// Takes over what a journal says of groups and of which containers are in them.
    pub(crate) fn restore_groups(
        &mut self,
        groups: BTreeMap<ContainerId, GroupForm>,
        places: &[(ContainerId, AllocationForm)],
    ) {
        self.groups.instances = groups.into_iter().map(|(id, it)| (id, it.instance())).collect();
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
        // A crash may have come between the end of a member and what its group gives back.
        self.groups.unsettled = self.groups.instances.keys().copied().collect();
        for (id, form) in places {
            self.enroll(*id, form);
        }
    }

    /// A container of the journal is in its group as it was.
    fn enroll(&mut self, id: ContainerId, form: &AllocationForm) {
        let Some(group) = form.group() else { return };
        let Some(kind) = self.groups.kind_of(group).cloned() else { return };
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let (request, _) = self.request(id, &spec);
        let own = if form.has_exclusive() { form.taken() } else { CpuSet::new() };
        let exactly = if kind.inside == Inside::Slots { own.clone() } else { CpuSet::new() };
        let milli = request.demand.all_shared().shared().unwrap_or_default();
        let owner = request.owner;
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
        let is_kept = |name: &str| match (old(name), self.groups.kind(name)) {
            (Some(old), Some(new)) => keeps_groups(old, new),
            _ => false,
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
        let ids: Vec<ContainerId> = self.containers.keys().copied().collect();
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

    fn wanted_type(&self, id: ContainerId, spec: &NewContainer) -> Option<String> {
        let (kind, is_named) = self.groups.type_of(spec, &self.rules).ok().flatten()?;
        let (request, _) = self.request(id, spec);
        let is_member = self.groups.members.contains_key(&id);
        let is_free = is_member || self.may_be_grouped(&request, is_named);
        is_free.then(|| kind.name.clone())
    }

    /// Whether a type may take it: one on reserved CPUs only where its pod says so.
    pub(super) fn may_be_grouped(&self, request: &Request, is_named: bool) -> bool {
        let is_system = request.is_reserved && !self.ledger.pools().reserved().is_empty();
        !request.wishes.has_no_choice() && (is_named || !is_system)
    }

    /// Fills an empty ledger with the groups.
    pub(crate) fn seat_groups(&mut self, step: &mut Step) {
        for group in std::mem::take(&mut self.groups.ended) {
            step.records.push(Record::GroupEnded { id: group.0 });
        }
        let ids: Vec<ContainerId> = self.groups.instances.keys().copied().collect();
        for id in ids {
            if self.seat_group(id).is_some() {
                let form = self.groups.instances.get(&id).map(|it| it.form.clone());
                if form != self.group_form(id) {
                    self.tell_group(id, step);
                }
                continue;
            }
            let message =
                format!("the group {} is over: there are no CPUs for it", self.group_name(id));
            step.notes.push(Note::Failure { kind: "group", message });
            self.groups.forget(id);
            step.records.push(Record::GroupEnded { id: id.0 });
        }
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
    }

    /// Where it was, or with as many CPUs elsewhere, or with those that are left.
    fn seat_group(&mut self, id: ContainerId) -> Option<()> {
        let kind = self.groups.kind_of(id)?.clone();
        let pools = self.ledger.pools();
        let had = self.groups.instances.get(&id)?.form.allocation(pools).ok()?;
        // CPUs of a list that were away come back.
        let number = self.groups.instances.get(&id)?.number;
        let left = match &kind.size {
            Size::List(lists) if kind.inside == Inside::Slots => {
                let mut all = CpuSet::new();
                lists.iter().for_each(|it| all.union_with(it));
                pools.ownable(&all)
            }
            Size::List(lists) => pools.ownable(lists.get(number)?),
            _ => pools.ownable(&had.exclusive),
        };
        if left == had.exclusive && !left.is_empty() {
            let named = pools.get(had.pool).filter(|it| had.owned().is_subset(&it.cpus));
            let pool = named.map_or_else(|| narrowest(pools, &had.owned()), |it| it.id);
            if self.ledger.adopt(id, Allocation { pool, ..had.clone() }).is_ok() {
                return Some(());
            }
        }
        let mut request = group_request(id, &kind, had.exclusive.len().max(1));
        let is_fixed = matches!(kind.size, Size::List(_) | Size::Domain(_));
        if is_fixed {
            if left.is_empty() {
                return None;
            }
            request.wishes.cpus.exactly = left;
            return self.adopt_offer(&request);
        }
        let pool = narrowest(self.ledger.pools(), &left);
        request.previous = (!left.is_empty()).then(|| Previous { pool, exclusive: left.clone() });
        if self.adopt_offer(&request).is_some() {
            return Some(());
        }
        self.groups.unsettled.insert(id);
        let mut fewer = group_request(id, &kind, left.len().max(1));
        fewer.previous = request.previous;
        self.adopt_offer(&fewer)
    }

    fn adopt_offer(&mut self, request: &Request) -> Option<()> {
        let offer = offer(&self.ledger, request).ok()?;
        self.ledger.adopt(request.id, offer.allocation().clone()).ok()?;
        self.ledger.move_sharers(offer.moves());
        Some(())
    }

    /// A container that runs joins the group to which it belongs, where there is room; elsewhere it is placed as without a group, which is told.
    pub(crate) fn take_into_group(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
        step: &mut Step,
    ) {
        match self.fit_newcomer(id, spec) {
            Ok(fitted) => fitted.into_iter().for_each(|it| self.keep_fitted(it, id, step)),
            Err(why) => {
                let message = format!("{}: {why}", full_name(spec));
                step.notes.push(Note::Failure { kind: "group", message });
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
        (Size::Requests { .. }, Size::Requests { .. }) => true,
        (old, new) => old == new,
    };
    is_size_kept
        && (&old.cpus, old.inside, &old.instances.by) == (&new.cpus, new.inside, &new.instances.by)
        && (old.pins_cpus, old.pins_memory) == (new.pins_cpus, new.pins_memory)
        && old.memory_kinds == new.memory_kinds
}

fn narrowest(pools: &Pools, cpus: &CpuSet) -> PoolId {
    let around = pools.iter().filter(|pool| cpus.is_subset(&pool.cpus));
    around.min_by_key(|pool| pool.cpus.len()).map_or(PoolId::MACHINE, |pool| pool.id)
}

impl Groups {
    /// It is over, and its members are in no group.
    fn forget(&mut self, group: ContainerId) {
        self.instances.remove(&group);
        self.members.retain(|_, it| it.group != group);
        self.unsettled.remove(&group);
    }
}
