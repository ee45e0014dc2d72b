//! Which groups there are, and which containers are in them. What they hold is in the ledger, under the same ids. Pure: nothing here places anything.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bayplan_allocator::{
    ContainerId, CpuWishes, Demand, Owner, Part, PlaceWishes, Preserve, Request,
};
use bayplan_types::{CpuSet, MilliCpu};
use bayplan_workload::{NewContainer, RequestRules};
use serde::{Deserialize, Serialize};

use super::kind::{Creation, Fill, GroupType, Inside, InstanceKey, Size};
use super::membership::{key_of, type_of};
use super::usage::Followed;
use crate::record::AllocationForm;

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Name of its type.
    pub(crate) kind: String,
    /// Among the groups of the type; for a list, the position of its CPUs.
    pub(crate) number: usize,
    /// What its members have in common; empty where the type asks for nothing.
    pub(crate) key: String,
    /// What it holds, those CPUs included that members have of their own.
    pub(crate) form: AllocationForm,
    /// What it is made of; empty: of CPUs.
    pub(crate) portions: Vec<Portion>,
}

/// The part of a group that has the wishes of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// Name of that type.
    pub(crate) kind: String,
    /// Its CPUs.
    pub(crate) cpus: CpuSet,
}

impl Instance {
    /// For people.
    pub(crate) fn name(&self) -> String {
        format!("{}[{}]", self.kind, self.number)
    }
}

/// `Instance` as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupForm {
    /// The ledger's id.
    pub id: u64,
    kind: String,
    number: usize,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    key: String,
    allocation: AllocationForm,
    /// Type and CPUs of each component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    components: Vec<(String, String)>,
}

impl GroupForm {
    /// Its CPUs, which nothing else has.
    pub(crate) fn held(&self) -> CpuSet {
        self.allocation.taken()
    }

    pub(crate) fn new(id: ContainerId, instance: &Instance) -> GroupForm {
        let Instance { kind, number, key, form, portions } = instance.clone();
        let components = portions.into_iter().map(|it| (it.kind, it.cpus.to_string())).collect();
        GroupForm { id: id.0, kind, number, key, allocation: form, components }
    }

    pub(crate) fn instance(self) -> Instance {
        let GroupForm { kind, number, key, allocation, components, .. } = self;
        // A list that cannot be read is made anew as if the component had no CPUs.
        let portion = |(kind, cpus): (String, String)| Portion {
            kind,
            cpus: cpus.parse().unwrap_or_default(),
        };
        let portions = components.into_iter().map(portion).collect();
        Instance { kind, number, key, form: allocation, portions }
    }
}

/// How a container belongs to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: ContainerId,
    /// CPU time that it requests.
    pub(crate) milli: MilliCpu,
    /// CPUs that it has of its own in the group.
    pub(crate) own: usize,
    /// These are they, where it has no choice.
    pub(crate) exactly: CpuSet,
    pub(crate) owner: Owner,
}

/// Types, groups and members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) types: Arc<[GroupType]>,
    pub(crate) instances: BTreeMap<ContainerId, Instance>,
    pub(crate) members: BTreeMap<ContainerId, Membership>,
    /// Groups that have lost a member or that a member needs less of.
    pub(crate) unsettled: BTreeSet<ContainerId>,
    /// Groups that are always there may be missing.
    pub(crate) lacks_some: bool,
    /// Version of the ledger in which such groups were looked for last.
    pub(crate) lacked_at: Option<u64>,
    /// Types of which a group that is always there could not be made, as the log knows.
    pub(crate) lacking: BTreeSet<String>,
    /// Groups that have fewer CPUs than they are to have; they get more when there are some.
    pub(crate) short: BTreeSet<ContainerId>,
    /// Sizes of groups that follow what their members use, as far as it was measured.
    pub(crate) followed: BTreeMap<ContainerId, Followed>,
    /// Groups that are over and of which the journal does not know it yet.
    pub(crate) ended: Vec<ContainerId>,
}

/// What a container asks of a group.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request,
    /// Slots, at least one.
    pub(crate) slots: usize,
    /// CPUs of the group that no other member has of its own and that it may have.
    pub(crate) free: CpuSet,
    /// Those of them that it has already.
    pub(crate) held: &'a CpuSet,
}

impl<'a> Asked<'a> {
    /// By its request, and in CMK's words.
    pub(crate) fn new(
        request: &'a Request,
        spec: &NewContainer,
        free: CpuSet,
        held: &'a CpuSet,
    ) -> Asked<'a> {
        Asked { request, slots: slots_of(spec), free, held }
    }
}

/// How many slots a container asks for: by CMK's words, or by the extended resource of its pool, where kubelet tells of that.
fn slots_of(spec: &NewContainer) -> usize {
    let Some(Ok(isolate)) = &spec.cmk else { return 1 };
    let resource = format!("cmk.intel.com/{}-cores", isolate.pool);
    let facts = spec.facts.as_ref();
    let requested = facts.and_then(|it| it.own.extended.get(&resource)).copied().unwrap_or(0);
    isolate.slots.max(usize::try_from(requested).unwrap_or(usize::MAX)).max(1)
}

/// Where a new container could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Into a group that is there.
    Into(ContainerId),
    /// Into a new one.
    New,
}

impl Groups {
    pub(crate) fn new(types: Arc<[GroupType]>) -> Groups {
        let lacks_some = !types.is_empty();
        Groups { types, lacks_some, ..Groups::default() }
    }

    /// Names the types; `None`: there are none. Another release may name the same ones differently.
    pub(crate) fn fingerprint(&self) -> Option<String> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.types).hash(&mut hasher);
        (!self.types.is_empty()).then(|| format!("{:016x}", hasher.finish()))
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&GroupType> {
        self.types.iter().find(|it| it.name == name)
    }

    pub(crate) fn kind_of(&self, group: ContainerId) -> Option<&GroupType> {
        self.kind(&self.instances.get(&group)?.kind)
    }

    /// The type that takes a container, and whether its pod names it.
    ///
    /// # Errors
    /// The pod names one that it may not name.
    pub(crate) fn type_of(
        &self,
        spec: &NewContainer,
        rules: &RequestRules,
    ) -> Result<Option<(&GroupType, bool)>, String> {
        type_of(&self.types, spec, rules)
    }

    /// The group of a container, for people.
    pub(crate) fn name_for(&self, member: ContainerId) -> Option<String> {
        let group = self.members.get(&member)?.group;
        self.instances.get(&group).map(Instance::name)
    }

    /// The class of scheduling that the type of a container's group names.
    pub(crate) fn scheduling_class_of(&self, member: ContainerId) -> Option<String> {
        let group = self.members.get(&member)?.group;
        self.kind_of(group)?.scheduling_class.clone()
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = (ContainerId, &Instance)> {
        self.instances.iter().filter(move |(_, it)| it.kind == kind).map(|(id, it)| (*id, it))
    }

    pub(crate) fn members_of(&self, group: ContainerId) -> impl Iterator<Item = &Membership> {
        self.members.values().filter(move |it| it.group == group)
    }

    /// CPU time that the members of a group request.
    pub(crate) fn requested(&self, group: ContainerId) -> MilliCpu {
        self.members_of(group).map(|it| it.milli).sum()
    }

    /// A member requests this much now, and its group settles; gives what it requested before if that was something else.
    pub(crate) fn request(&mut self, id: ContainerId, milli: MilliCpu) -> Option<MilliCpu> {
        let member = self.members.get_mut(&id).filter(|it| it.milli != milli)?;
        self.unsettled.insert(member.group);
        Some(std::mem::replace(&mut member.milli, milli))
    }

    /// The numbers that no group of the type has, the lowest first.
    pub(crate) fn free_numbers(&self, kind: &str) -> impl Iterator<Item = usize> + use<> {
        let taken: BTreeSet<usize> = self.of_kind(kind).map(|(_, it)| it.number).collect();
        (0..).filter(move |number| !taken.contains(number))
    }

    /// Shapes the request of a member.
    pub(crate) fn shape(&self, request: &mut Request) {
        let Some(member) = self.members.get(&request.id) else { return };
        let Some(kind) = self.kind_of(member.group) else { return };
        if !request.wishes.claimed.is_empty() {
            return;
        }
        let wishes = &mut request.wishes;
        wishes.pod.part = match member.own {
            0 => Part::Member(member.group),
            _ => Part::Inside(member.group),
        };
        // Where a group is, its type says.
        wishes.cpus = CpuWishes {
            packing: kind.cpus.packing,
            exactly: member.exactly.clone(),
            hides_hyperthreads: wishes.cpus.hides_hyperthreads | kind.cpus.hides_hyperthreads,
            ..CpuWishes::default()
        };
        wishes.place = PlaceWishes::default();
        if wishes.memory.kinds.is_empty() {
            wishes.memory.kinds.clone_from(&kind.memory_kinds);
        }
        request.is_reserved = false;
        if member.own > 0 {
            request.demand = Demand::new(member.own, None);
        }
    }

    /// What is left alone of a container where it says nothing itself: as its group says, or as of all containers.
    pub(crate) fn preserve_for(&self, id: ContainerId, of_all: Preserve) -> Preserve {
        let group = self.members.get(&id).and_then(|it| self.kind_of(it.group));
        let Some(kind) = group else { return of_all };
        Preserve {
            cpus: kind.pins_cpus.map_or(of_all.cpus, |pins| !pins),
            memory: kind.pins_memory.map_or(of_all.memory, |pins| !pins),
        }
    }

    /// How many CPUs a group is to have that has so many, or has lost all of them (`None`); `None` where it is a list or a domain. One that has more than its type
    /// allows, because that was changed, keeps what its members request.
    ///
    /// # Errors
    /// It would have to grow beyond what its type allows.
    pub(crate) fn needed(
        &self,
        group: ContainerId,
        has: Option<usize>,
    ) -> Result<Option<usize>, String> {
        let Some(kind) = self.kind_of(group) else { return Ok(None) };
        let (min, max) = match kind.size {
            Size::Requests { min, max } => (min, max),
            Size::Fixed(size) => return self.divided(group, size).map(|it| Some(it.iter().sum())),
            Size::List(_) | Size::Domain(_) => return Ok(None),
        };
        let most = max.unwrap_or(usize::MAX);
        let needed = self.requested_cpus(group).unwrap_or(min);
        // Until its members are measured, it stays as large as it is.
        let measured = self.followed.get(&group).map(|it| it.size).or(has);
        let needed = match measured.filter(|_| kind.follows.is_some()) {
            Some(measured) => needed.max(measured.min(most)),
            None => needed,
        };
        let is_over = |cpus: usize| cpus > most && has.is_some_and(|has| cpus > has);
        if is_over(needed) {
            let requested = self.requested(group);
            return Err(format!("{requested} CPUs would be requested of at most {most}"));
        }
        let sum = self.divided(group, needed)?.iter().sum();
        match is_over(sum) {
            true => Err(format!("its components would have {sum} CPUs of at most {most}")),
            false => Ok(Some(sum)),
        }
    }

    /// The least that a group may have: what its members need, and no less than its type says; `None` where its size does not follow its members.
    pub(crate) fn requested_cpus(&self, group: ContainerId) -> Option<usize> {
        let Size::Requests { min, .. } = self.kind_of(group)?.size else { return None };
        let own: usize = self.members_of(group).map(|it| it.own).sum();
        // Those that share need a CPU that no member has of its own, also where they request none.
        let is_shared = self.members_of(group).any(|it| it.own == 0);
        let requested = self.requested(group).cpus_needed();
        Some(requested.max(own + usize::from(is_shared)).max(min).max(1))
    }

    /// How many CPUs each component of a group is to have, together at least so many; one number for a group without components.
    ///
    /// # Errors
    /// A component would be larger than its type allows.
    pub(crate) fn divided(&self, group: ContainerId, needed: usize) -> Result<Vec<usize>, String> {
        let portions = self.instances.get(&group).map_or(&[][..], |it| &it.portions);
        match self.kind_of(group).filter(|_| !portions.is_empty()) {
            Some(kind) => self.divide(kind, portions, needed),
            None => Ok(vec![needed]),
        }
    }

    /// The same for these components of a group of this type. All have equal parts, as far as their types allow; where that would be more than a fixed size or a maximum, the first ones have what is left over.
    pub(crate) fn divide(
        &self,
        kind: &GroupType,
        portions: &[Portion],
        needed: usize,
    ) -> Result<Vec<usize>, String> {
        let count = portions.len().max(1);
        // Equal parts could be more than its type allows.
        let is_exact = match kind.size {
            Size::Fixed(_) => true,
            Size::Requests { max: Some(max), .. } => needed.div_ceil(count) * count > max,
            _ => false,
        };
        let sized = |(at, portion): (usize, &Portion)| {
            let part = match is_exact {
                true => needed / count + usize::from(at < needed % count),
                false => needed.div_ceil(count),
            };
            let name = &portion.kind;
            match self.kind(name).map(|it| &it.size) {
                Some(Size::Requests { max: Some(max), .. }) if part > *max => Err(format!(
                    "{part} CPUs would be of its component {name}, which has at most {max}"
                )),
                Some(Size::Requests { min, .. }) => Ok(part.max(*min)),
                Some(Size::Fixed(size)) => Ok(*size),
                _ => Ok(part),
            }
        };
        portions.iter().enumerate().map(sized).collect()
    }

    /// Types of the components of a new group of a type.
    pub(crate) fn components_of(&self, kind: &GroupType) -> Vec<String> {
        let count = |name: &String| {
            let portions = self.instances.values().flat_map(|it| &it.portions);
            portions.filter(|it| it.kind == *name).count()
        };
        match kind.creation {
            Creation::All => kind.components.clone(),
            Creation::Balance => {
                kind.components.iter().min_by_key(|it| count(it)).cloned().into_iter().collect()
            }
        }
    }

    /// Why one more member would be too many.
    pub(crate) fn is_full(&self, group: ContainerId, owner: Owner) -> Option<String> {
        let capacity = self.kind_of(group)?.capacity;
        let containers = self.members_of(group).count();
        if capacity.containers.is_some_and(|most| containers >= most) {
            return Some(format!("it has {containers} containers already"));
        }
        let pods: BTreeSet<u64> = self.members_of(group).map(|it| it.owner.pod).collect();
        let is_new = !pods.contains(&owner.pod);
        let is_over = capacity.pods.is_some_and(|most| is_new && pods.len() >= most);
        is_over.then(|| format!("it has {} pods already", pods.len()))
    }

    /// Where a container could go, the best first. `has_like`: a group has a member with the same key. `room` is the CPU time that it has left.
    pub(crate) fn choices(
        &self,
        kind: &GroupType,
        spec: &NewContainer,
        may_be_new: bool,
        has_like: impl Fn(ContainerId) -> bool,
        room: impl Fn(ContainerId) -> i64,
    ) -> Vec<Choice> {
        let (owner, by) = (spec.pod.owner(), &kind.instances);
        let key = key_of(&by.by, spec);
        let has_key = self.of_kind(&kind.name).any(|(_, it)| it.key == key);
        // Where there can be no more of them, containers with different keys are together, and those with the same one still.
        let is_any = !has_key && !may_be_new && by.by != InstanceKey::Type;
        let fitting = self.of_kind(&kind.name).filter(|(_, it)| is_any || it.key == key);
        let mut ranked: Vec<_> = fitting
            .map(|(id, it)| {
                let members = || self.members_of(id);
                let has_pod = members().any(|it| it.owner.pod == owner.pod);
                let has_namespace = members().any(|it| it.owner.namespace == owner.namespace);
                let is_empty = members().next().is_none();
                let count = i64::try_from(members().count()).unwrap_or(i64::MAX);
                // Members that request nothing leave as much room, and count all the same.
                let order = match by.fill {
                    Fill::Balanced => (-room(id), count),
                    Fill::Packed => (room(id), -count),
                    Fill::First => (0, 0),
                };
                let apart = by.per_namespace && !has_namespace;
                // Whether it is better than a new one.
                let is_own = (has_pod && !by.spreads_pods) || (by.per_namespace && has_namespace);
                let is_better = is_own || is_empty || !(by.prefers_new || apart);
                let is_like = !is_any || has_like(id);
                let pods = has_pod == by.spreads_pods;
                let rank = (!is_like, pods, apart, order, it.number);
                (!is_better, rank, id)
            })
            .collect();
        ranked.sort();
        let (better, worse): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(it, ..)| !*it);
        let into = |(_, _, id)| Choice::Into(id);
        let new = may_be_new.then_some(Choice::New);
        better.into_iter().map(into).chain(new).chain(worse.into_iter().map(into)).collect()
    }

    /// The key of a new group for a container.
    pub(crate) fn key_for(kind: &GroupType, spec: &NewContainer) -> String {
        key_of(&kind.instances.by, spec)
    }

    /// What a member requests of its group.
    ///
    /// # Errors
    /// The group lacks slots.
    pub(crate) fn membership(
        kind: &GroupType,
        group: ContainerId,
        asked: &Asked<'_>,
    ) -> Result<Membership, String> {
        let Asked { request, slots: count, free, held } = asked;
        let own = request.demand.exclusive();
        let shared = request.demand.shared();
        let milli = MilliCpu::from_cpus(own) + shared.unwrap_or_default();
        let mut member =
            Membership { group, milli, own: 0, exactly: CpuSet::new(), owner: request.owner };
        match (kind.inside, &kind.size) {
            (Inside::Slots, Size::List(slots)) => {
                let mut taken = 0;
                let free = slots.iter().filter(|it| it.is_subset(free));
                let (kept, others): (Vec<_>, Vec<_>) = free.partition(|it| it.is_subset(held));
                for slot in kept.into_iter().chain(others) {
                    if taken < *count || member.exactly.len() < milli.cpus_needed() {
                        member.exactly.union_with(slot);
                        taken += 1;
                    }
                }
                member.own = member.exactly.len();
                if taken < *count || member.own < milli.cpus_needed() {
                    return Err("it has too few free slots".to_owned());
                }
            }
            (Inside::GuaranteedExclusive, _) if shared.is_none() => member.own = own,
            _ => {}
        }
        Ok(member)
    }
}
