//! What one container asks for. In: QoS class, CPU request, preferences. Out: how many whole CPUs and how much shared CPU time.

use std::collections::BTreeMap;
use std::fmt;

use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};

use crate::id::ContainerId;
use crate::pool::PoolId;
use crate::terms::Terms;
use crate::wishes::{Near, Owner, Part, Preserve, Siblings, Strictness, Wishes};

/// CPU demand: an exclusive part, a shared part, or both (*mixed*). Never neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    exclusive: usize,
    shared: Option<MilliCpu>,
}

impl Demand {
    /// `exclusive` whole CPUs and, where there is one, a shared part; nothing at all becomes a shared part of zero.
    pub fn new(exclusive: usize, shared: Option<MilliCpu>) -> Demand {
        let shared = if exclusive == 0 { Some(shared.unwrap_or(MilliCpu::ZERO)) } else { shared };
        Demand { exclusive, shared }
    }

    /// Whole CPUs that no other container may run on.
    pub fn exclusive(self) -> usize {
        self.exclusive
    }

    /// CPU time on the pool's shared CPUs; `Some(0)` still needs a CPU to run on.
    pub fn shared(self) -> Option<MilliCpu> {
        self.shared
    }

    /// The same amount without CPUs of one's own, so that others see how full the pool is.
    pub fn all_shared(self) -> Demand {
        let own = MilliCpu::from_cpus(self.exclusive);
        Demand::new(0, Some(own + self.shared.unwrap_or_default()))
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.exclusive, self.shared) {
            (0, shared) => write!(f, "{} shared", shared.unwrap_or(MilliCpu::ZERO)),
            (exclusive, None) => write!(f, "{exclusive} exclusive"),
            (exclusive, Some(shared)) => write!(f, "{exclusive} exclusive + {shared} shared"),
        }
    }
}

/// What the pod's annotations and the configuration say about the split into exclusive and shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `true`: shared CPUs only. `false`: exclusive CPUs for the whole part of a fractional request of two CPUs or more, too.
    pub prefer_shared_cpus: Option<bool>,
}

/// Splits a CPU request into its exclusive and its shared part, as CRI Resource Manager's and nri-plugins' topology-aware
/// policies do for Guaranteed containers:
///
/// | request `r` of a Guaranteed container | exclusive | shared |
/// |---|---|---|
/// | any, `prefer_shared_cpus = true` | 0 | r |
/// | below 1 | 0 | r |
/// | 1 to below 2 | 1 | r - 1, none if that is zero |
/// | whole, 2 and more | r | none |
/// | fractional, 2 and more | 0, or r rounded down with `prefer_shared_cpus = false` | the rest |
///
/// Burstable and BestEffort containers only share.
pub fn derive_demand(qos: QosClass, request: MilliCpu, preferences: Preferences) -> Demand {
    let shared_only = Demand::new(0, Some(request));
    if qos != QosClass::Guaranteed || preferences.prefer_shared_cpus == Some(true) {
        return shared_only;
    }
    let (whole, fraction) = (request.whole_cpus(), request.fraction());
    match (whole, fraction) {
        (0, _) => shared_only,
        (_, MilliCpu::ZERO) => Demand::new(whole, None),
        (1, _) => Demand::new(1, Some(fraction)),
        _ if preferences.prefer_shared_cpus == Some(false) => Demand::new(whole, Some(fraction)),
        _ => shared_only,
    }
}

/// Where a container that is resized, or that has lost some of its CPUs, runs now; the new offer keeps as much of it as it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Its pool.
    pub pool: PoolId,
    /// Its exclusive CPUs, as far as they are still online.
    pub exclusive: CpuSet,
}

/// One container's wishes, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The container that requests.
    pub id: ContainerId,
    /// Its pod and namespace.
    pub owner: Owner,
    /// CPUs.
    pub demand: Demand,
    /// The CPU limit of the shared part; `None` is no limit.
    pub ceiling: Option<MilliCpu>,
    /// Runs on the reserved CPUs, if the machine has any.
    pub is_reserved: bool,
    /// Memory that is set aside on NUMA nodes.
    pub memory: Bytes,
    /// `memory` is what it will probably use at least, and not what was promised: no container is refused for the lack of it, neither this one nor,
    /// later, others.
    pub memory_is_expected: bool,
    /// The memory limit where nothing is set aside: the nodes given must be large enough to hold it.
    pub memory_limit: Option<Bytes>,
    /// Huge pages that are set aside: bytes by size of a page.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
    /// Everything beyond amounts.
    pub wishes: Wishes,
    /// For one that is placed anew: where it runs now. The ledger must no longer hold it.
    pub previous: Option<Previous>,
}

impl Request {
    /// A request for CPUs only.
    pub fn new(id: ContainerId, demand: Demand) -> Request {
        Request {
            id,
            owner: Owner::default(),
            demand,
            ceiling: None,
            is_reserved: false,
            memory: Bytes::ZERO,
            memory_is_expected: false,
            memory_limit: None,
            huge_pages: BTreeMap::new(),
            wishes: Wishes::default(),
            previous: None,
        }
    }

    /// Whether the CPUs that it gets are its pod's; not where it gets none, unless it is to run on those of its pod.
    pub fn part(&self) -> Part {
        match self.wishes.pod.part {
            Part::Holder if self.demand.exclusive() == 0 => Part::Alone,
            part => part,
        }
    }

    /// What is agreed with the container for as long as it lives.
    pub fn terms(&self) -> Terms {
        let wishes = &self.wishes;
        let apart = match wishes.cpus.apart {
            Some((level, Strictness::Required)) => Some(level),
            _ => None,
        };
        let siblings = (wishes.cpus.siblings == Siblings::Shared).then_some(Level::Core);
        let is_exclusive = self.demand.exclusive() > 0;
        let is_strict = |near: &Near| near.strictness == Strictness::Required;
        Terms {
            owner: self.owner,
            // Wider domains come first.
            closes: apart.into_iter().chain(siblings).min().filter(|_| is_exclusive),
            hides_hyperthreads: wishes.cpus.hides_hyperthreads,
            shares_idle: wishes.cpus.shares_idle,
            is_immovable: wishes.is_immovable || self.part() == Part::Group,
            is_memory_bound: wishes.memory.is_bound,
            is_place_bound: (is_exclusive && wishes.cpus.within.is_some())
                || wishes.place.near.iter().any(is_strict),
            memory_is_expected: self.memory_is_expected,
            preserve: Preserve { cpus: wishes.has_no_choice(), ..wishes.preserve },
            // Only an offer beside the holder makes one that joined it.
            part: match self.part() {
                part @ (Part::Holder | Part::Group) => part,
                _ => Part::Alone,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_split_as_the_table_says() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (qos, request, prefer_shared_cpus, expected) in [
            (BestEffort, 0, None, "0 shared"),
            (Burstable, 4000, Some(false), "4 shared"),
            (Guaranteed, 0, None, "0 shared"),
            (Guaranteed, 999, None, "999m shared"),
            (Guaranteed, 1000, None, "1 exclusive"),
            (Guaranteed, 1500, None, "1 exclusive + 500m shared"),
            (Guaranteed, 1500, Some(true), "1500m shared"),
            (Guaranteed, 2000, None, "2 exclusive"),
            (Guaranteed, 2000, Some(true), "2 shared"),
            (Guaranteed, 2400, None, "2400m shared"),
            (Guaranteed, 2400, Some(false), "2 exclusive + 400m shared"),
            (Guaranteed, u64::MAX, None, "18446744073709551615m shared"),
        ] {
            let demand = derive_demand(qos, MilliCpu(request), Preferences { prefer_shared_cpus });
            assert_eq!(demand.to_string(), expected, "{qos} {request} {prefer_shared_cpus:?}");
        }
    }
}
