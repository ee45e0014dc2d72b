//! Where a group is rather to be in the machine: near devices and NUMA nodes, away from others, away from groups with the same load, on the roomiest NUMA node or L3 cache. In: a type, what the ledger
//! holds. Out: wishes of a request.

use bayplan_allocator::{
    ContainerId, Move, Near, Request, Strictness, domains_around, outside_roomiest,
};
use bayplan_types::{CpuSet, NodeSet};

use super::making::group_request;
use crate::groups::{GroupType, Groups, Load, Portion, place_named};
use crate::state::NodeState;

impl GroupType {
    /// Whether CPUs of one group are rather on different cores or caches.
    pub(super) fn overloads(&self) -> bool {
        self.loads.iter().any(|it| it.overloads)
    }
}

impl Groups {
    fn has_load(&self, kind: &str, load: &Load) -> bool {
        self.kind(kind).is_some_and(|it| it.loads.iter().any(|it| it.name == load.name))
    }

    /// CPUs of those portions that have this load.
    pub(super) fn loaded_portions(&self, portions: &[Portion], load: &Load) -> CpuSet {
        let loaded = portions.iter().filter(|it| self.has_load(&it.kind, load));
        loaded.fold(CpuSet::new(), |all, it| all.union(&it.cpus))
    }
}

impl NodeState {
    /// With the preferences of the type about its place, as far as the machine has what they name.
    pub(super) fn placed_as(&self, kind: &GroupType, is_new: bool, request: Request) -> Request {
        let id = request.id;
        self.placed_beside(kind, is_new, request, &|_| self.ledger.group_cpus(id))
    }

    /// The same where the group has `own` of its CPUs under a load.
    pub(super) fn placed_beside(
        &self,
        kind: &GroupType,
        is_new: bool,
        mut request: Request,
        own: &dyn Fn(&Load) -> CpuSet,
    ) -> Request {
        let near = |name: &String| {
            let (cpus, nodes) = self.place_named(name)?;
            let strictness = Strictness::Preferred;
            Some(Near { name: name.clone(), cpus, nodes, strictness })
        };
        request.wishes.place.near = kind.place.near.iter().filter_map(near).collect();
        request.wishes.place.is_balanced = kind.place.is_balanced && is_new;
        let loaded = kind.loads.iter().map(|load| self.loaded(request.id, load, own));
        let far = kind.place.far.iter().filter_map(|name| self.place_named(name));
        // NUMA nodes are for the search to balance.
        let is_balanced = request.wishes.place.is_balanced
            && kind.place.near.is_empty()
            && kind.cpus.priority.is_none();
        let crowded = match is_balanced {
            true => outside_roomiest(&self.ledger),
            false => Vec::new(),
        };
        let avoided = loaded.chain(far.map(|(cpus, _)| cpus)).chain(crowded);
        request.wishes.cpus.avoids = avoided.filter(|cpus| !cpus.is_empty()).collect();
        request
    }

    fn place_named(&self, name: &str) -> Option<(CpuSet, NodeSet)> {
        place_named(self.ledger.pools(), &self.devices, name)
    }

    /// CPUs of the cores or caches on which other groups, or components of them, have this load; with those of the group itself, where it is not to have two on one.
    fn loaded(&self, group: ContainerId, load: &Load, own: &dyn Fn(&Load) -> CpuSet) -> CpuSet {
        let mut cpus = CpuSet::new();
        for (id, instance) in &self.groups.instances {
            if *id == group {
                continue;
            }
            if self.groups.has_load(&instance.kind, load) {
                cpus.union_with(&self.ledger.group_cpus(*id));
            }
            cpus.union_with(&self.groups.loaded_portions(&instance.portions, load));
        }
        if load.overloads {
            cpus.union_with(&own(load));
        }
        domains_around(self.ledger.pools(), load.level, &cpus)
    }

    /// What a group asks for that is to have fewer CPUs: rather those that have a core or cache for themselves stay.
    pub(super) fn shrink_request(
        &self,
        group: ContainerId,
        kind: &GroupType,
        needed: usize,
    ) -> Request {
        let shared = self.ledger.group(group).map(|it| it.exclusive.clone()).unwrap_or_default();
        let given = self.ledger.group_cpus(group).len() - shared.len();
        let mut whole = [Portion { kind: kind.name.clone(), cpus: shared }];
        self.shrink_apart(&mut whole, &[needed.saturating_sub(given)]);
        let [Portion { cpus, .. }] = whole;
        let mut request = group_request(group, kind, needed);
        request.wishes.cpus.exactly = cpus;
        request
    }

    /// Gives a group more CPUs one by one, each on a core or cache on which it has none, as long as there are such. Where there are too few, it has those that there
    /// are, and is short.
    ///
    /// # Errors
    /// It cannot have even one more; nothing is changed then.
    pub(super) fn grow_apart(
        &mut self,
        group: ContainerId,
        needed: usize,
    ) -> Result<Vec<Move>, String> {
        let Some(kind) = self.groups.kind_of(group).cloned() else { return Ok(Vec::new()) };
        let mut moves = Vec::new();
        let first = self.ledger.group_cpus(group).len() + 1;
        for size in first..=needed {
            let request = self.placed_as(&kind, false, group_request(group, &kind, size));
            match self.ledger.resize_group(&request) {
                Ok(made) => moves.extend(made),
                Err(_) if size > first => break,
                Err(refusal) => return Err(self.why_refused(&refusal)),
            }
        }
        Ok(moves)
    }
}
