//! What a container or a group holds in the words of the journal. In: an allocation. Out: the same as JSON; and from that an allocation on the pools of the machine as it is now.

use std::ops::Not;

use bayplan_allocator::{
    Allocation, ContainerId, HugeCharge, Owner, Part, PoolId, Pools, Preserve, Terms,
};
use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId, ParseSetError};
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// [`Allocation`] as JSON; the pool by name, so that it means the same after a change of the reserved CPUs or of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationForm {
    pub(super) pool: String,
    #[serde(default)]
    reserved: bool,
    pub(super) exclusive: String,
    #[serde(default)]
    idle: String,
    shared_milli: Option<u64>,
    pub(super) mems: String,
    #[serde(default)]
    memory_bytes: Vec<(u32, u64)>,
    /// Node, size of a page, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    huge_bytes: Vec<(u32, u64, u64)>,
    #[serde(default)]
    terms: TermsForm,
}

/// [`Terms`] as JSON; what is not said does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsForm {
    pod: u64,
    namespace: u64,
    closes: Option<String>,
    hides_hyperthreads: bool,
    is_immovable: bool,
    is_memory_bound: bool,
    #[serde(skip_serializing_if = "Not::not")]
    is_place_bound: bool,
    memory_is_expected: bool,
    preserves_cpus: bool,
    preserves_memory: bool,
    /// It holds its exclusive CPUs for its pod.
    #[serde(skip_serializing_if = "Not::not")]
    holds_for_pod: bool,
    /// It runs on the exclusive CPUs that another container holds for its pod.
    #[serde(skip_serializing_if = "Not::not")]
    runs_on_pods: bool,
    /// It is a group and no container.
    #[serde(skip_serializing_if = "Not::not")]
    is_group: bool,
    /// The ledger's id of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    /// It has CPUs of its own in that group.
    #[serde(skip_serializing_if = "Not::not")]
    is_inside: bool,
    /// A group with members that run on idle CPUs of domains of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    shares_idle: Option<String>,
}

impl From<Terms> for TermsForm {
    fn from(terms: Terms) -> TermsForm {
        TermsForm {
            pod: terms.owner.pod,
            namespace: terms.owner.namespace,
            closes: terms.closes.map(|level| level.name().to_owned()),
            hides_hyperthreads: terms.hides_hyperthreads,
            is_immovable: terms.is_immovable,
            is_memory_bound: terms.is_memory_bound,
            is_place_bound: terms.is_place_bound,
            memory_is_expected: terms.memory_is_expected,
            preserves_cpus: terms.preserve.cpus,
            preserves_memory: terms.preserve.memory,
            holds_for_pod: terms.part == Part::Holder,
            runs_on_pods: terms.part == Part::Joined,
            is_group: terms.part == Part::Group,
            group: terms.part.group().map(|it| it.0),
            is_inside: matches!(terms.part, Part::Inside(_)),
            shares_idle: terms.shares_idle.map(|level| level.name().to_owned()),
        }
    }
}

impl From<&TermsForm> for Terms {
    fn from(form: &TermsForm) -> Terms {
        let level = |name: &String| Level::ALL.into_iter().find(|level| level.name() == name);
        Terms {
            owner: Owner { pod: form.pod, namespace: form.namespace },
            closes: form.closes.as_ref().and_then(level),
            hides_hyperthreads: form.hides_hyperthreads,
            shares_idle: form.shares_idle.as_ref().and_then(level),
            is_immovable: form.is_immovable,
            is_memory_bound: form.is_memory_bound,
            is_place_bound: form.is_place_bound,
            memory_is_expected: form.memory_is_expected,
            preserve: Preserve { cpus: form.preserves_cpus, memory: form.preserves_memory },
            part: match (form.group.map(ContainerId), form.holds_for_pod, form.runs_on_pods) {
                _ if form.is_group => Part::Group,
                (Some(group), ..) if form.is_inside => Part::Inside(group),
                (Some(group), ..) => Part::Member(group),
                (None, true, _) => Part::Holder,
                (None, false, true) => Part::Joined,
                (None, false, false) => Part::Alone,
            },
        }
    }
}

impl AllocationForm {
    /// The CPUs that no other container could own beside it; none where they cannot be read.
    pub(crate) fn taken(&self) -> CpuSet {
        let set = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
        set(&self.exclusive).union(&set(&self.idle))
    }

    /// An allocation in the pool of this name.
    pub fn new(allocation: &Allocation, pool: &str) -> AllocationForm {
        AllocationForm {
            pool: pool.to_owned(),
            reserved: allocation.is_reserved,
            exclusive: allocation.exclusive.to_string(),
            idle: allocation.idle.to_string(),
            shared_milli: allocation.shared.map(|milli| milli.0),
            mems: allocation.mems.to_string(),
            memory_bytes: allocation
                .charges
                .iter()
                .map(|(node, bytes)| (node.0, bytes.0))
                .collect(),
            huge_bytes: allocation
                .huge_charges
                .iter()
                .map(|charge| (charge.node.0, charge.size.0, charge.bytes.0))
                .collect(),
            terms: allocation.terms.into(),
        }
    }

    /// Where it is, for the history; which shared CPUs it may run on is not for it to say.
    pub(crate) fn place(&self, cpus: String) -> Place {
        Place {
            pool: if self.reserved { "reserved" } else { &self.pool }.to_owned(),
            own: self.exclusive.clone(),
            cpus,
            mems: self.mems.clone(),
            group: String::new(),
        }
    }

    /// Its group, if it belongs to one.
    pub(crate) fn group(&self) -> Option<ContainerId> {
        self.terms.group.map(ContainerId)
    }

    /// It holds no CPUs and requests none, and its CPUs are not for placement to choose: so is a container that runs on CPUs chosen for its pod.
    pub(crate) fn leaves_choice(&self) -> bool {
        self.terms.preserves_cpus && !self.has_exclusive() && self.shared_milli == Some(0)
    }

    /// It has CPUs of its own.
    pub(crate) fn has_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// Name of its pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The same on these pools; a pool that no longer exists becomes the machine.
    ///
    /// # Errors
    /// A set that is not a list.
    pub fn allocation(&self, pools: &Pools) -> Result<Allocation, ParseSetError> {
        let charges = self.memory_bytes.iter().map(|(node, bytes)| (NodeId(*node), Bytes(*bytes)));
        let huge_charges = self.huge_bytes.iter().map(|(node, size, bytes)| HugeCharge {
            node: NodeId(*node),
            size: Bytes(*size),
            bytes: Bytes(*bytes),
        });
        let pool = pools.named(&self.pool).map_or(PoolId::MACHINE, |pool| pool.id);
        Ok(Allocation {
            is_reserved: self.reserved,
            exclusive: self.exclusive.parse()?,
            idle: self.idle.parse()?,
            shared: self.shared_milli.map(MilliCpu),
            mems: self.mems.parse()?,
            charges: charges.collect(),
            huge_charges: huge_charges.collect(),
            terms: Terms::from(&self.terms),
            ..Allocation::new(pool)
        })
    }
}
