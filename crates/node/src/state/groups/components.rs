//! Groups that are made of others: each component has the wishes of its own type, and the group has the CPUs of all of them. In: how many CPUs the group is to have.
//! Out: its portions, and the group in the ledger.

use bayplan_allocator::{Component, ContainerId, Move, Request, domains_around, offer};
use bayplan_types::{CpuId, CpuSet, MilliCpu};

use super::making::{exact_request, group_request};
use crate::groups::{GroupType, Instance, Load, Portion, Size};
use crate::state::NodeState;

impl NodeState {
    pub(super) fn has_components(&self, group: ContainerId) -> bool {
        self.groups.instances.get(&group).is_some_and(|it| !it.portions.is_empty())
    }

    /// These components of a group with so many CPUs each. One with a load that overloads its own group grows CPU by CPU, as a group of its own does.
    ///
    /// # Errors
    /// One of them cannot have as many.
    fn compose(
        &self,
        group: ContainerId,
        portions: &[Portion],
        sizes: &[usize],
    ) -> Result<Vec<Portion>, String> {
        let has = self.ledger.group_cpus(group);
        let mut portions = portions.to_vec();
        portions.iter_mut().for_each(|it| it.cpus.intersect_with(&has));
        let grows_apart =
            |it: &Portion| self.groups.kind(&it.kind).is_some_and(GroupType::overloads);
        self.shrink_apart(&mut portions, sizes);
        let first = |(it, size): (&Portion, &usize)| match grows_apart(it) {
            true => it.cpus.len().min(*size),
            false => *size,
        };
        let mut goals: Vec<usize> = portions.iter().zip(sizes).map(first).collect();
        loop {
            self.compose_at(group, &mut portions, &goals)?;
            match goals.iter_mut().zip(sizes).find(|(goal, size)| **goal < **size) {
                Some((goal, _)) => *goal += 1,
                None => return Ok(portions),
            }
        }
    }

    /// Portions that are to have fewer give up CPUs that are on a core or cache with another one under the same load before others. Where there are no such, they may
    /// still have more than they are to have.
    pub(super) fn shrink_apart(&self, portions: &mut [Portion], sizes: &[usize]) {
        for (at, size) in sizes.iter().enumerate() {
            let loads = portions.get(at).and_then(|it| self.groups.kind(&it.kind));
            let Some(load) = loads.and_then(|it| it.loads.iter().find(|it| it.overloads)) else {
                continue;
            };
            while let Some(portion) = portions.get(at).filter(|it| it.cpus.len() > *size) {
                let loaded = self.groups.loaded_portions(portions, load);
                let beside = |cpu: &CpuId| {
                    let around: CpuSet = [*cpu].into_iter().collect();
                    let around = domains_around(self.ledger.pools(), load.level, &around);
                    around.intersection(&loaded).len()
                };
                let most = portion.cpus.iter().max_by_key(|cpu| (beside(cpu), *cpu));
                let Some(cpu) = most.filter(|cpu| beside(cpu) > 1) else { break };
                portions.iter_mut().for_each(|it| it.cpus.subtract(&[cpu].into_iter().collect()));
            }
        }
    }

    /// One round of it, on a copy of the ledger; a component that is to have none is left out.
    fn compose_at(
        &self,
        group: ContainerId,
        portions: &mut [Portion],
        sizes: &[usize],
    ) -> Result<(), String> {
        let mut components = Vec::new();
        for (at, (portion, size)) in (0_u64..).zip(portions.iter().zip(sizes)) {
            let kind = self.groups.kind(&portion.kind);
            let kind = kind.ok_or_else(|| format!("there is no type {}", portion.kind))?;
            if *size == 0 {
                continue;
            }
            let id = ContainerId(u64::MAX - at);
            // Other groups are those beside the one of which it is a part.
            let request = Request { id: group, ..group_request(id, kind, *size) };
            let is_new = portion.cpus.is_empty();
            let own = |load: &Load| self.groups.loaded_portions(portions, load);
            let request = Request { id, ..self.placed_beside(kind, is_new, request, &own) };
            components.push(Component { request, has: portion.cpus.clone() });
        }
        let composed = self.ledger.compose(group, &components);
        let mut composed = composed.map_err(|refusal| self.why_refused(&refusal))?.into_iter();
        for (portion, size) in portions.iter_mut().zip(sizes) {
            let made = if *size == 0 { None } else { composed.next() };
            portion.cpus = made.unwrap_or_default();
        }
        Ok(())
    }

    /// Makes a group of a type that has components.
    pub(super) fn make_composite(
        &mut self,
        id: ContainerId,
        kind: &GroupType,
        key: String,
        wanted: MilliCpu,
    ) -> Result<(ContainerId, Vec<Move>), String> {
        let needed = match kind.size {
            // What its first member needs beyond its bound is refused when that is fitted.
            Size::Requests { min, max } => {
                wanted.cpus_needed().max(min).max(1).min(max.unwrap_or(usize::MAX))
            }
            Size::Fixed(size) => size,
            Size::List(_) | Size::Domain(_) => return Err("it has no size".to_owned()),
        };
        let empty = |kind: String| Portion { kind, cpus: CpuSet::new() };
        let portions: Vec<Portion> =
            self.groups.components_of(kind).into_iter().map(empty).collect();
        let sizes = self.groups.divide(kind, &portions, needed)?;
        let sum: usize = sizes.iter().sum();
        if let Size::Requests { max: Some(max), .. } = kind.size
            && sum > max
        {
            return Err(format!("its components would have {sum} CPUs of at most {max}"));
        }
        let portions = self.compose(id, &portions, &sizes)?;
        let offered = offer(&self.ledger, &exact_request(id, kind, &cpus_of(&portions)));
        let offered = offered.map_err(|refusal| self.why_refused(&refusal))?;
        let moves = offered.moves().to_vec();
        self.ledger.commit(offered).map_err(|stale| stale.to_string())?;
        let number = self.groups.free_numbers(&kind.name).next().unwrap_or_default();
        let form = self.group_form(id).ok_or("it holds nothing")?;
        let instance = Instance { kind: kind.name.clone(), number, key, form, portions };
        self.groups.instances.insert(id, instance);
        Ok((id, moves))
    }

    /// Gives the components of a group as many CPUs as it needs together.
    pub(super) fn fit_components(
        &mut self,
        group: ContainerId,
        needed: usize,
    ) -> Result<Vec<Move>, String> {
        let portions = self.groups.instances.get(&group).map(|it| it.portions.clone());
        let kind = self.groups.kind_of(group).cloned();
        let (Some(portions), Some(kind)) = (portions, kind) else { return Ok(Vec::new()) };
        let sizes = self.groups.divided(group, needed)?;
        let portions = self.compose(group, &portions, &sizes)?;
        let request = exact_request(group, &kind, &cpus_of(&portions));
        let made = self.ledger.resize_group(&request);
        let moves = made.map_err(|refusal| self.why_refused(&refusal))?;
        if let Some(instance) = self.groups.instances.get_mut(&group) {
            instance.portions = portions;
        }
        Ok(moves)
    }

    /// A group that has lost all of its CPUs gets others: those of its components, in one request.
    pub(super) fn recompose(&mut self, group: ContainerId, needed: usize) -> Option<CpuSet> {
        let portions = self.groups.instances.get(&group)?.portions.clone();
        let sizes = self.groups.divided(group, needed).ok()?;
        let portions = self.compose(group, &portions, &sizes).ok()?;
        let cpus = cpus_of(&portions);
        self.groups.instances.get_mut(&group)?.portions = portions;
        Some(cpus)
    }

    /// Its components have only those of their CPUs that the group has.
    pub(super) fn trim_components(&mut self, group: ContainerId) {
        let has = self.ledger.group_cpus(group);
        if let Some(instance) = self.groups.instances.get_mut(&group) {
            instance.portions.iter_mut().for_each(|it| it.cpus.intersect_with(&has));
        }
    }
}

fn cpus_of(portions: &[Portion]) -> CpuSet {
    let mut all = CpuSet::new();
    portions.iter().for_each(|it| all.union_with(&it.cpus));
    all
}
