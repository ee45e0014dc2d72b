//! Preferences that no container can have met on this node: the machine, or the configuration, has nothing of the kind. In: a request. Out: a warning for each
//! that its pod says.

use bayplan_allocator::{Pools, Request, Strictness, has_cpus_of_kind, has_cpus_of_priority};
use bayplan_types::MemoryKind;
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::{
    Asked, Field, Sources, Warning, WarningKind, read_annotations,
};

use crate::groups::NO_GROUP;
use crate::state::NodeState;

/// What a preference fills, and what is missing for it.
type Unmet = (Field, String);

impl NodeState {
    /// Every preference of a container that is placed for which there is nothing here.
    pub(super) fn unmet_here(&self, request: &Request, spec: &NewContainer) -> Vec<Warning> {
        if spec.pod.annotations.is_empty() {
            return Vec::new();
        }
        let pools = self.ledger.pools();
        let (said, _) = read_annotations(spec, &self.rules);
        let unmet = [
            unmet_memory(pools, request),
            unmet_isolated(pools, request),
            unmet_kind(pools, request),
            unmet_priority(pools, request),
            unmet_nodes(pools, &said),
            self.unmet_group(&said),
        ];
        let sources = Sources::new(spec);
        let warning = |(field, why): Unmet| {
            let text = format!("{} has no effect: {why}", sources.of_field(field)?);
            Some(Warning { kind: WarningKind::NoEffect, text })
        };
        unmet.into_iter().flatten().filter_map(warning).collect()
    }

    fn unmet_group(&self, said: &Asked) -> Option<Unmet> {
        let named = said.group.as_deref()?;
        let is_unmet = self.groups.types.is_empty() && named != NO_GROUP;
        is_unmet.then(|| (Field::Group, "the configuration has no `groups`".to_owned()))
    }
}

fn unmet_memory(pools: &Pools, request: &Request) -> Option<Unmet> {
    let kinds = &request.wishes.memory.kinds;
    let has = |kind: &MemoryKind| !pools.memory_of_kind(*kind).is_empty();
    // A machine without NUMA nodes has memory all the same.
    let is_met = kinds.is_empty()
        || kinds.iter().any(has)
        || (kinds.contains(&MemoryKind::Dram) && !MemoryKind::ALL.iter().any(has));
    let names: Vec<&str> = kinds.iter().map(|it| it.name()).collect();
    let why = format!("the machine has no memory of kind {}", names.join(" or "));
    (!is_met).then_some((Field::MemoryKinds, why))
}

fn unmet_isolated(pools: &Pools, request: &Request) -> Option<Unmet> {
    let is_unmet =
        is_preferred(request, request.wishes.cpus.isolated) && pools.isolated().is_empty();
    is_unmet.then(|| (Field::Isolated, "the machine has no isolated CPUs".to_owned()))
}

fn unmet_kind(pools: &Pools, request: &Request) -> Option<Unmet> {
    let (kind, strictness) = request.wishes.cpus.core_kind?;
    let is_unmet = is_preferred(request, Some(strictness)) && !has_cpus_of_kind(pools, kind);
    let why = format!("the machine has no {} cores", kind.name().to_lowercase());
    is_unmet.then_some((Field::CoreKind, why))
}

fn unmet_priority(pools: &Pools, request: &Request) -> Option<Unmet> {
    let (priority, strictness) = request.wishes.cpus.priority?;
    let is_unmet =
        is_preferred(request, Some(strictness)) && !has_cpus_of_priority(pools, priority);
    let why = format!("the machine has no CPUs of {} priority", priority.name().to_lowercase());
    is_unmet.then_some((Field::Priority, why))
}

/// NUMA nodes that a scheduler has chosen, and that are not here.
fn unmet_nodes(pools: &Pools, said: &Asked) -> Option<Unmet> {
    let nodes = &said.numa_nodes;
    let is_unmet = !nodes.is_empty() && pools.cpus_of_nodes(nodes).is_empty();
    is_unmet.then(|| (Field::Claimed, format!("the machine has no CPUs in NUMA nodes {nodes}")))
}

/// A wish about exclusive CPUs that does not refuse a container.
fn is_preferred(request: &Request, strictness: Option<Strictness>) -> bool {
    request.demand.exclusive() > 0 && strictness == Some(Strictness::Preferred)
}
