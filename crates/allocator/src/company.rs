//! How a pod lies together. In: a request that knows of the rest of its pod, a pool. Out: the domain around the pool in which the pod
//! would lie, and how much of the pod is there already.
//!
//! Containers come one by one, so the first of a pod would take any hole into which it fits. Approach: it looks for a domain that also
//! holds those that are still to come, and they look for the domain where it is. The domain is the narrowest that could hold the whole pod
//! on an empty machine: one NUMA node, or as many as needed.

use bayplan_topology::Level;
use bayplan_types::{CpuSet, MilliCpu};

use crate::allocation::Allocation;
use crate::budget::Units;
use crate::eligible::eligible_on_machine;
use crate::ledger::Ledger;
use crate::pool::{Pool, Pools};
use crate::request::Request;
use crate::room::Wanted;
use crate::wishes::Within;

/// The rest of the pod of which a container is placed.
#[derive(Clone, Copy)]
pub(crate) struct Company<'a> {
    ledger: &'a Ledger,
    request: &'a Request,
    /// NUMA nodes, or packages where those have to be few, that the whole pod needs on an empty machine.
    fewest: usize,
}

impl<'a> Company<'a> {
    /// `None`: nothing is known of others.
    pub(crate) fn new(ledger: &'a Ledger, request: &'a Request) -> Option<Company<'a>> {
        let wishes = &request.wishes.pod;
        if wishes.mates.is_empty() && wishes.rest == MilliCpu::ZERO {
            return None;
        }
        let company = Company { ledger, request, fewest: 1 };
        let there: MilliCpu = company.mates().map(cpu_time).sum();
        let whole = own(request) + there + wishes.rest;
        let (level, cpus) = (level(request), whole.cpus_needed());
        let fewest = match company.is_one() {
            true => {
                let eligible = eligible_on_machine(ledger.pools(), &request.wishes.cpus);
                ledger.pools().fewest_of(level, &eligible, cpus)
            }
            false => ledger.pools().fewest(level, cpus),
        };
        Some(Company { fewest, ..company })
    }

    fn mates(&self) -> impl Iterator<Item = &'a Allocation> {
        let ledger = self.ledger;
        self.request.wishes.pod.mates.iter().filter_map(|id| ledger.allocation(*id))
    }

    /// Where the pod would lie if this container came into `pool`.
    pub(crate) fn domain(&self, pool: &'a Pool) -> &'a Pool {
        let pools = self.ledger.pools();
        match self.request.wishes.cpus.within {
            Some(Within::One(level)) if self.is_one() => around(pools, pool, |it| it.is(level)),
            _ => {
                let level = level(self.request);
                let is_enough = |it: &Pool| match level {
                    Level::NumaNode => it.nodes.len() >= self.fewest,
                    _ => pools.count_whole(level, &it.cpus) >= self.fewest,
                };
                let nodes = around(pools, pool, is_enough).nodes.len();
                let wider = pools.chain(pool.id).filter(|it| it.nodes.len() <= nodes);
                wider.last().unwrap_or(pool)
            }
        }
    }

    /// CPU time of the containers that are in the domain.
    pub(crate) fn there(&self, domain: &Pool) -> MilliCpu {
        self.mates().filter(|it| is_in(self.ledger.pools(), it, domain)).map(cpu_time).sum()
    }

    /// CPU time of the containers that have CPUs in the same NUMA nodes as `held`.
    pub(crate) fn beside(&self, held: &Allocation) -> MilliCpu {
        let pools = self.ledger.pools();
        let nodes = pools.nodes_of(&held.exclusive);
        let is_beside = |mate: &&Allocation| match mate.exclusive.is_empty() {
            true => pools.get(mate.pool).is_some_and(|pool| pool.nodes.is_subset(&nodes)),
            false => pools.nodes_of(&mate.exclusive).is_subset(&nodes),
        };
        self.mates().filter(is_beside).map(cpu_time).sum()
    }

    /// The pod's exclusive CPUs have to lie together.
    pub(crate) fn is_one(&self) -> bool {
        self.request.wishes.pod.is_one && self.request.wishes.cpus.within.is_some()
    }

    /// Others own CPUs, none of them in the domain. Where a pod already lies apart, each of its places will do.
    pub(crate) fn is_elsewhere(&self, domain: &Pool) -> bool {
        let mut owners = self.mates().filter(|it| !it.exclusive.is_empty()).peekable();
        owners.peek().is_some() && !owners.any(|it| it.exclusive.intersects(&domain.cpus))
    }

    /// CPUs that others own.
    pub(crate) fn owned(&self) -> CpuSet {
        self.mates().fold(CpuSet::new(), |owned, mate| owned.union(&mate.exclusive))
    }

    /// NUMA nodes, or packages where those have to be few, that the whole pod needs on an empty machine.
    pub(crate) fn fewest(&self) -> usize {
        self.fewest
    }

    /// No container is to come any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.request.wishes.pod.rest == MilliCpu::ZERO
    }

    /// A place without room for the rest will not do. A container that is placed anew takes what it had.
    pub(crate) fn needs_rest(&self) -> bool {
        self.is_one() && self.request.wishes.pod.is_rest_sure && self.request.previous.is_none()
    }

    /// What the container, which takes `count` units, and the rest want from the domain. How the rest is split into exclusive and shared
    /// parts is not known: whole CPUs count as exclusive.
    pub(crate) fn wanted(&self, count: usize, units: Units) -> Wanted {
        let rest = self.request.wishes.pod.rest;
        let fraction = Some(rest.fraction()).filter(|it| *it > MilliCpu::ZERO);
        let shared = match (self.request.demand.shared(), fraction) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        Wanted { count: count + rest.whole_cpus().div_ceil(units.cpus.max(1)), shared }
    }

    /// CPU time of the container and of the rest.
    pub(crate) fn with_rest(&self) -> MilliCpu {
        own(self.request) + self.request.wishes.pod.rest
    }
}

/// Of which domains a pod takes as few as possible.
fn level(request: &Request) -> Level {
    match request.wishes.cpus.within {
        Some(Within::Fewest(level)) if request.wishes.pod.is_one => level,
        _ => Level::NumaNode,
    }
}

/// The narrowest of a pool and those around it for which this holds; the machine where it holds for none.
fn around<'a>(pools: &'a Pools, pool: &'a Pool, holds: impl Fn(&Pool) -> bool) -> &'a Pool {
    let found = pools.chain(pool.id).find(|it| holds(it));
    found.or_else(|| pools.iter().next()).unwrap_or(pool)
}

fn is_in(pools: &Pools, mate: &Allocation, domain: &Pool) -> bool {
    match mate.exclusive.is_empty() {
        true => pools.get(mate.pool).is_some_and(|pool| pool.cpus.is_subset(&domain.cpus)),
        false => mate.exclusive.is_subset(&domain.cpus),
    }
}

fn own(request: &Request) -> MilliCpu {
    let demand = request.demand;
    MilliCpu::from_cpus(demand.exclusive()) + demand.shared().unwrap_or_default()
}

fn cpu_time(held: &Allocation) -> MilliCpu {
    MilliCpu::from_cpus(held.exclusive.len()) + held.shared.unwrap_or_default()
}
