//! New groups: for a container that found none, and those that are always there. In: types of groups. Out: groups in the ledger, or why there can be none.

use bayplan_allocator::{
    ContainerId, Demand, Move, Offer, Owner, Part, Refusal, Request, offer, open_domains,
};
use bayplan_types::{CpuSet, MilliCpu};

use crate::event::Step;
use crate::groups::{GroupType, Inside, Instance, Size};
use crate::state::NodeState;

impl NodeState {
    /// Makes a group of a type for a container; one of a fixed size has all of its CPUs.
    pub(super) fn make_whole(
        &mut self,
        kind: &GroupType,
        key: String,
        wanted: MilliCpu,
    ) -> Result<(ContainerId, Vec<Move>), String> {
        let (group, mut moves) = self.make_group(kind, key, wanted)?;
        if let Size::Fixed(size) = kind.size
            && self.is_short(group)
        {
            moves.extend(self.fit(group)?);
            self.check_has(group, size)?;
        }
        Ok((group, moves))
    }

    /// Makes a group of a type for this much CPU time.
    pub(super) fn make_group(
        &mut self,
        kind: &GroupType,
        key: String,
        wanted: MilliCpu,
    ) -> Result<(ContainerId, Vec<Move>), String> {
        let id = self.containers.take_id();
        if !kind.components.is_empty() {
            return self.make_composite(id, kind, key, wanted);
        }
        let mut refused = match kind.size {
            Size::List(_) => "all its lists have groups".to_owned(),
            _ => "none of its domains is free".to_owned(),
        };
        for (number, request) in self.group_requests(id, kind, wanted) {
            match self.offer_to_group(kind, &request) {
                Ok(offer) => {
                    let moves = offer.moves().to_vec();
                    self.ledger.commit(offer).map_err(|stale| stale.to_string())?;
                    let Some(form) = self.group_form(id) else { break };
                    let (kind, portions) = (kind.name.clone(), Vec::new());
                    let instance = Instance { kind, number, key, form, portions };
                    self.groups.instances.insert(id, instance);
                    // It gets the others when there are some.
                    if self.is_short(id) {
                        self.groups.short.insert(id);
                    }
                    return Ok((id, moves));
                }
                Err(refusal) => refused = self.why_refused(&refusal),
            }
        }
        Err(refused)
    }

    /// CPUs for a new group. One that is to have all of a domain leaves a CPU to containers that share, where that is all that it lacks: without reserved CPUs the machine keeps one for them.
    pub(super) fn offer_to_group(
        &self,
        kind: &GroupType,
        request: &Request,
    ) -> Result<Offer, Refusal> {
        let offered = offer(&self.ledger, request);
        let kept = offered.as_ref().err().and_then(Refusal::kept_shared);
        let cpus: CpuSet = request.wishes.cpus.exactly.iter().skip(1).collect();
        match (&kind.size, kept) {
            (Size::Domain(_), Some(1)) if !cpus.is_empty() => {
                offer(&self.ledger, &exact_request(request.id, kind, &cpus)).or(offered)
            }
            _ => offered,
        }
    }

    /// What a new group may ask for, the best first, with the number that it would have.
    fn group_requests(
        &self,
        id: ContainerId,
        kind: &GroupType,
        wanted: MilliCpu,
    ) -> Vec<(usize, Request)> {
        let numbers = || self.groups.free_numbers(&kind.name);
        let number = numbers().next().unwrap_or_default();
        let request = |size: usize| self.placed_as(kind, true, group_request(id, kind, size));
        let sized = |size: usize| vec![(number, request(size))];
        let exactly = |cpus: &CpuSet| exact_request(id, kind, cpus);
        match &kind.size {
            Size::Requests { min, max } => {
                let size = wanted.cpus_needed().max(*min).max(1);
                sized(self.first_size(kind, max.map_or(size, |max| size.min(max))))
            }
            Size::Fixed(size) => sized(self.first_size(kind, *size)),
            // A slot of which a CPU is taken keeps no other one from being there.
            Size::List(_) if kind.inside == Inside::Slots => {
                let all = kind.list_of(number).unwrap_or_default();
                let open = self.ledger.open_to_groups(&all);
                vec![(number, exactly(if open.is_empty() { &all } else { &open }))]
            }
            // A list of which a CPU is taken keeps no other one from having its group.
            Size::List(lists) => numbers()
                .take_while(|number| *number < lists.len())
                .filter_map(|number| Some((number, exactly(lists.get(number)?))))
                .collect(),
            Size::Domain(level) => {
                let domains = open_domains(&self.ledger, *level);
                domains.iter().map(|cpus| (number, exactly(cpus))).collect()
            }
        }
    }

    /// As how large a group of so many CPUs is made: with one, where the others follow one by one.
    pub(super) fn first_size(&self, kind: &GroupType, size: usize) -> usize {
        let mixes = || self.ledger.mixes_kinds(&kind.cpus, &CpuSet::new(), size);
        let is_stepwise = kind.overloads() || mixes();
        if is_stepwise { 1 } else { size }
    }

    /// Makes the groups that are always there.
    pub(super) fn make_lacking(&mut self, step: &mut Step) {
        let mut kinds: Vec<GroupType> = self.groups.types.to_vec();
        kinds.sort_by_key(|it| it.priority);
        for kind in kinds {
            while self.groups.of_kind(&kind.name).count() < kind.always() {
                match self.make_group(&kind, String::new(), MilliCpu::ZERO) {
                    Ok((group, moves)) => {
                        self.groups.lacking.remove(&kind.name);
                        self.note_moves(&moves, group, step);
                        self.tell_group(group, step);
                        if self.groups.short.contains(&group) {
                            self.settle_group(group, step);
                        }
                    }
                    Err(why) => {
                        self.groups.lacks_some = true;
                        if self.groups.lacking.insert(kind.name.clone()) {
                            let message =
                                format!("a group of `{}` cannot be made: {why}", kind.name);
                            step.fail("group", message);
                        }
                        break;
                    }
                }
            }
        }
    }
}

/// What a group asks for that is to have these CPUs.
pub(super) fn exact_request(id: ContainerId, kind: &GroupType, cpus: &CpuSet) -> Request {
    let mut request = group_request(id, kind, cpus.len());
    request.wishes.cpus.exactly.clone_from(cpus);
    request
}

/// What a group asks for.
pub(super) fn group_request(id: ContainerId, kind: &GroupType, size: usize) -> Request {
    let mut request = Request::new(id, Demand::new(size, None));
    request.owner = Owner { pod: u64::MAX - id.0, namespace: u64::MAX - id.0 };
    // A list is what it is.
    if !matches!(kind.size, Size::List(_) | Size::Domain(_)) {
        request.wishes.cpus = kind.cpus.clone();
    }
    request.wishes.cpus.hides_hyperthreads = kind.cpus.hides_hyperthreads;
    request.wishes.cpus.shares_idle = kind.cpus.shares_idle;
    request.wishes.pod.part = Part::Group;
    request.wishes.is_immovable = true;
    request
}
