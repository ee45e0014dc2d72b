//! Why a container is where it is, in words that outlive the ledger. In: an offer or a refusal. Out: a row per pool.

use bayplan_allocator::{
    Allocation, ClockStrategy, Considered, Part, Pools, Preserve, Rejection, Request, Score, Wishes,
};
use bayplan_types::{Bytes, MemoryKind, MilliCpu};
use bayplan_workload::annotations::{Warning, WarningKind};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::claims::shown_cpus;
use crate::criteria::Criteria;

/// For people.
pub(crate) const LEFT_ALONE: &str = "left alone";
/// Devices that are named in what was asked.
const NEAR_SHOWN_MAX: usize = 3;

/// One decision with everything that was considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// What was asked, for example `2 exclusive, memory 4 GiB`.
    pub asked: String,
    /// What came of it, for example `placed in numa 0`.
    pub outcome: String,
    /// Every pool, in the order of the tree; empty where there was no choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolVerdict>,
    /// What about the pod could not be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why a container that asks for exclusive CPUs does not get them.
const DRAINED: &str = " without exclusive CPUs, because bayplan is draining";
/// Begins what the outcome says of shared CPUs that are gone.
const SQUEEZED: &str = "; squeezed from CPUs ";
/// Begins what the outcome says of a move.
const MOVED: &str = "; moved from ";

impl Decision {
    /// A refusal for which no pool was asked.
    pub(crate) fn refused(
        asked: String,
        why: String,
        warnings: Vec<Warning>,
        now: Timestamp,
    ) -> Decision {
        Decision { at: now, asked, outcome: why, pools: Vec::new(), warnings: texts(warnings) }
    }

    /// Adds to the outcome that it got no exclusive CPUs because of the mode draining.
    pub(crate) fn note_drained(&mut self) {
        self.outcome.push_str(DRAINED);
    }

    /// Whether it got no exclusive CPUs because of the mode draining.
    pub fn is_drained(&self) -> bool {
        self.outcome.contains(DRAINED)
    }

    /// Adds to the outcome that it shares fewer CPUs than before; `None`: it no longer does. Only the last time stays.
    pub(crate) fn note_squeeze(&mut self, how: Option<&str>) {
        self.outcome.truncate(self.outcome.find(SQUEEZED).unwrap_or(self.outcome.len()));
        if let Some(how) = how {
            self.outcome.push_str(&format!("{SQUEEZED}{how}"));
        }
    }

    /// Whether it shares fewer CPUs than when it was placed.
    pub fn is_squeezed(&self) -> bool {
        self.outcome.contains(SQUEEZED)
    }

    /// Adds to the outcome where the container was moved from and to, and why. Only the last move stays: a container that lives long is moved often.
    pub(crate) fn note_move(&mut self, from: &str, to: &str, why: &str) {
        self.outcome.truncate(self.outcome.find(MOVED).unwrap_or(self.outcome.len()));
        self.outcome.push_str(&format!("{MOVED}{from} to {to} {why}"));
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When Bayplan heard of it.
    pub at: Timestamp,
    /// Why, as far as kubelet's call or the runtime tells: `exited with code 137: OOMKilled`.
    pub why: String,
}

/// A container that ended or was refused, as far as it is remembered.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    /// `namespace/pod/container`.
    pub(crate) name: String,
    /// The last decision about it.
    pub(crate) decision: Decision,
    /// Absent for one that was refused.
    pub(crate) end: Option<End>,
}

/// What became of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolVerdict {
    /// The pool.
    pub pool: String,
    /// Its CPUs.
    pub cpus: String,
    /// Won, lost or rejected.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// The score, criterion by criterion; empty for a rejected pool.
    #[serde(default, skip_serializing_if = "Criteria::is_empty")]
    pub criteria: Criteria,
}

/// The three ways it can go for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was chosen.
    Won,
    /// It would have done, but another was better.
    Lost,
    /// It cannot hold the request.
    Rejected,
}

impl Verdict {
    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Won => "won",
            Verdict::Lost => "lost",
            Verdict::Rejected => "rejected",
        }
    }
}

/// Which huge pages the machine had too few of.
pub(crate) fn render_lacking(request: &Request, held: &Allocation) -> Option<String> {
    let lacking = held.huge_pages_lacking(request).into_iter();
    let texts: Vec<String> =
        lacking.map(|(size, bytes)| format!("{bytes} in huge pages of {size}")).collect();
    let lacking = texts.join(" and ");
    (!texts.is_empty()).then(|| format!("of what it asks for, the machine lacks {lacking}"))
}

/// Which of several kinds of memory that a container may have it was not given, because what is near its CPUs suffices.
pub(crate) fn render_unused_kinds(
    pools: &Pools,
    request: &Request,
    held: &Allocation,
) -> Option<String> {
    let wishes = &request.wishes.memory;
    let is_listed = |kind: &MemoryKind| wishes.kinds.contains(kind);
    if wishes.kinds.len() < 2 || MemoryKind::ALL.iter().all(is_listed) || held.mems.is_empty() {
        return None;
    }
    let is_unused = |kind: &&MemoryKind| {
        let nodes = pools.memory_of_kind(**kind);
        !nodes.is_empty() && !nodes.intersects(&held.mems)
    };
    let unused: Vec<&str> = wishes.kinds.iter().filter(is_unused).map(|it| it.name()).collect();
    let unused = unused.join(" and ");
    (!unused.is_empty()).then(|| {
        format!("of the kinds of memory that it may have it is given no {unused}: what is near its CPUs suffices")
    })
}

/// For `explain`.
pub(crate) fn texts(warnings: Vec<Warning>) -> Vec<String> {
    warnings.into_iter().map(|warning| warning.text).collect()
}

/// Why a container is not placed if its pod requires something that cannot be read. One that runs already stays.
pub(crate) fn unread_requirement(warnings: &[Warning]) -> Option<String> {
    let unread = warnings.iter().find(|it| it.kind == WarningKind::RequirementNotUnderstood)?;
    Some(format!("refused: {}", unread.text))
}

/// What it asks for in CPUs.
pub(crate) fn render_cpus(request: &Request) -> String {
    let claimed = &request.wishes.claimed;
    match (claimed.is_empty(), request.part()) {
        (true, Part::Holder) => format!("{} of its pod", request.demand),
        (true, Part::Joined) => "exclusive CPUs of its pod".to_owned(),
        (true, Part::Alone | Part::Group) => request.demand.to_string(),
        (true, Part::Member(_)) => format!("{} of its group", request.demand),
        (true, Part::Inside(_)) => format!("{} inside its group", request.demand),
        (false, _) => format!("CPUs {} that were chosen for its pod", shown_cpus(claimed)),
    }
}

pub(crate) fn render_asked(request: &Request) -> String {
    let mut asked = render_cpus(request);
    if let Some(memory) = Some(request.memory).filter(|memory| *memory > Bytes::ZERO) {
        asked.push_str(&format!(", memory {memory}"));
    }
    if let Some(limit) = request.memory_limit {
        asked.push_str(&format!(", memory limit {limit}"));
    }
    let rest = request.wishes.pod.rest;
    if rest > MilliCpu::ZERO {
        asked.push_str(&format!(", {rest} CPUs of its pod to come"));
    }
    for (size, bytes) in &request.huge_pages {
        asked.push_str(&format!(", {bytes} in huge pages of {size}"));
    }
    if request.is_reserved {
        asked.push_str(", on reserved CPUs");
    }
    let near = &request.wishes.place.near;
    for near in near.iter().take(NEAR_SHOWN_MAX) {
        asked.push_str(&format!(", near {}", near.name));
    }
    if near.len() > NEAR_SHOWN_MAX {
        asked.push_str(&format!(" and {} more", near.len() - NEAR_SHOWN_MAX));
    }
    asked.push_str(match request.wishes.place.clock.as_ref().map(|it| it.strategy) {
        Some(ClockStrategy::Spread) => ", wide vectors spread over packages",
        Some(ClockStrategy::Squeeze) => ", wide vectors in few packages",
        None => "",
    });
    asked
}

/// What a container has got that asked for this.
pub(crate) fn render_outcome(pools: &Pools, request: &Request, allocation: &Allocation) -> String {
    let Wishes { claimed, preserve, .. } = &request.wishes;
    if claimed.is_empty() || preserve.cpus {
        return render_place(pools, allocation);
    }
    let place = format!("runs on CPUs {}, which were chosen for its pod", shown_cpus(claimed));
    with_memory(place, *preserve)
}

pub(crate) fn render_place(pools: &Pools, allocation: &Allocation) -> String {
    let preserve = allocation.terms.preserve;
    let place = match pools.get(allocation.pool) {
        _ if preserve.cpus => format!("CPUs {LEFT_ALONE}"),
        _ if allocation.is_reserved => "placed on the reserved CPUs".to_owned(),
        pool => {
            let how = placed_how(allocation.terms.part);
            format!("{how} {}", pool.map_or("?", |pool| pool.name.as_str()))
        }
    };
    with_memory(place, preserve)
}

fn placed_how(part: Part) -> &'static str {
    match part {
        Part::Alone | Part::Group => "placed in",
        Part::Holder | Part::Joined => "on exclusive CPUs of its pod in",
        Part::Member(_) => "on the CPUs of its group in",
        Part::Inside(_) => "on exclusive CPUs inside its group in",
    }
}

fn with_memory(mut place: String, preserve: Preserve) -> String {
    if preserve.memory {
        place.push_str(&format!(", memory nodes {LEFT_ALONE}"));
    }
    place
}

/// What the widest pool lacks; where that is only too wide or too far away, what the best of the others lacks.
pub(crate) fn render_refusal(
    considered: &[Considered],
    why: impl Fn(&Rejection) -> String,
) -> String {
    let rejections = || considered.iter().filter_map(|row| row.outcome.as_ref().err());
    // A request that lacks CPUs has the memory.
    let free = |rejection: &&Rejection| match rejection {
        Rejection::TooFewCpus { free, .. } | Rejection::TooSmallForPod { free, .. } => {
            Some((Bytes(u64::MAX), *free))
        }
        Rejection::TooLittleMemoryNear { free, .. } | Rejection::TooFewHugePages { free, .. } => {
            Some((*free, 0))
        }
        _ => None,
    };
    let lacking = rejections().filter(|it| free(it).is_some()).max_by_key(free);
    match (rejections().next(), lacking) {
        (Some(wide @ (Rejection::WiderThan(_) | Rejection::TooFarFrom(_))), Some(lacking)) => {
            format!("{lacking}; the machine {}", why(wide))
        }
        (first, _) => first.map(why).unwrap_or_default(),
    }
}

pub(crate) fn render_row(
    pools: &Pools,
    row: &Considered,
    winner: Option<&Score>,
    why_rejected: impl Fn(&Rejection) -> String,
) -> PoolVerdict {
    let (verdict, why, criteria) = match &row.outcome {
        Err(rejection) => (Verdict::Rejected, why_rejected(rejection), Criteria::default()),
        Ok(score) => {
            let criteria = score.criteria().into_iter().collect();
            match winner.and_then(|winner| score.loses_to(winner)) {
                Some(why) => (Verdict::Lost, why, criteria),
                None => (Verdict::Won, "best score".to_owned(), criteria),
            }
        }
    };
    let pool = pools.get(row.pool);
    PoolVerdict {
        pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
        cpus: pool.map(|pool| pool.cpus.to_string()).unwrap_or_default(),
        verdict,
        why,
        criteria,
    }
}

#[cfg(test)]
mod tests {
    use bayplan_types::CpuSet;

    use super::*;

    #[test]
    fn kinds_of_memory_that_are_listed_and_not_given_are_told() {
        use MemoryKind::{Dram, Hbm, Pmem};
        let machine = bayplan_topology::parse_machine("pack:2 numa:1 core:4 mem:10 hbm:4");
        let topology = bayplan_topology::derive(&machine.unwrap()).unwrap();
        let policy = bayplan_allocator::policy::Policy::default();
        let pools = bayplan_allocator::policy::pools(&topology, policy, &CpuSet::new()).unwrap();
        let demand = bayplan_allocator::Demand::new(1, None);
        let mut request = Request::new(bayplan_allocator::ContainerId(1), demand);
        let mut held = Allocation::new(bayplan_allocator::PoolId::MACHINE);
        let no_hbm = "of the kinds of memory that it may have it is given no Hbm: what is near its CPUs suffices";
        for (kinds, mems, expected) in [
            (vec![Hbm, Dram], "0", no_hbm),
            (vec![Hbm, Dram], "0,2", ""),
            (vec![Hbm], "0", ""),
            // The machine has none.
            (vec![Pmem, Dram], "0", ""),
            // Any kind will do.
            (MemoryKind::ALL.to_vec(), "0", ""),
            (vec![], "0", ""),
        ] {
            request.wishes.memory.kinds = kinds;
            held.mems = mems.parse().unwrap();
            let told = render_unused_kinds(&pools, &request, &held).unwrap_or_default();
            assert_eq!(told, expected, "{:?} {mems}", request.wishes.memory.kinds);
        }
    }

    #[test]
    fn what_is_said_of_moves_does_not_grow_with_their_number() {
        let mut decision = Decision {
            at: Timestamp::UNIX_EPOCH,
            asked: String::new(),
            outcome: "placed in numa 0".to_owned(),
            pools: Vec::new(),
            warnings: Vec::new(),
        };
        decision.note_move("numa 0", "numa 1", "to make room for a");
        decision.note_move("numa 1", "numa 2", "to make room for b");
        let expected = "placed in numa 0; moved from numa 1 to numa 2 to make room for b";
        assert_eq!(decision.outcome, expected);
    }
}
