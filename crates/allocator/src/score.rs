//! Why one pool beats another. In: two scores. Out: their order, and the first criterion that decides it.

use std::cmp::Reverse;
use std::fmt;

use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuSet, MilliCpu};

use crate::pool::PoolId;
use crate::requirement::Requirement;

/// How good a pool is for one request. Criteria are compared top to bottom; greater wins. The last makes the order total, so the
/// same request on the same ledger always gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// A container that is placed anew is already here.
    pub stays: bool,
    /// How many of the wishes that are only preferred are met.
    pub wishes: usize,
    /// The CPU time asked for is free on the pool's shared CPUs.
    pub cpu_fits: bool,
    /// The memory and the huge pages asked for are free on the pool's NUMA nodes.
    pub memory_fits: bool,
    /// The CPU limit is no larger than the pool; without a limit, the pool is as wide as was wished.
    pub burst_fits: bool,
    /// Fewer NUMA nodes in the domain.
    pub numa_nodes: Reverse<usize>,
    /// Fewer NUMA nodes with CPUs of its own.
    pub nodes_taken: Reverse<usize>,
    /// Nearer to the devices, summed over them.
    pub devices: Reverse<u32>,
    /// Nearer to the containers it belongs to, farther from those it shuns.
    pub affinity: i64,
    /// More of the pod's CPU time is already in the domain in which the pod would lie.
    pub pod_here: MilliCpu,
    /// What is still to come of the pod fits there, too.
    pub pod_fits: bool,
    /// Fewer containers in its clock domains that lower the frequency there, or more of them, as its wish is; 0 without one.
    pub clock: i64,
    /// Fewer cores of which only some threads would be taken, so that no request for whole cores gets halves.
    pub split_cores: Reverse<usize>,
    /// Fewer CPUs in the domain: the tightest one that fits.
    pub domain: Reverse<usize>,
    /// Fewer whole cores broken: an odd CPU is best taken where a half core is left.
    pub broken_cores: Reverse<usize>,
    /// Fewer odd CPUs beside those of another pod, and rather of the same namespace than of another.
    pub strangers: Reverse<usize>,
    /// Not the first owner in a domain inside a NUMA node, so that an L3 stays whole for a request that needs all of it.
    pub opens_domain: Reverse<bool>,
    /// Fewest CPUs without an owner left over in the NUMA node around it: what needs a node of its own needs an empty one.
    pub node_left: Reverse<usize>,
    /// Fewest CPUs without an owner left over, so that large holes stay large. Exclusive CPUs only.
    pub cpus_left: Reverse<usize>,
    /// The same for the pool around it: what has no room for a large request is filled up first.
    pub around_left: Reverse<usize>,
    /// Fewer sharers that have to move elsewhere, and of equally many those with less CPU time.
    pub moved: Reverse<(usize, MilliCpu)>,
    /// In a NUMA node where no CPU is owned yet, fewer shared containers: their CPUs change now and whenever another owner follows.
    pub sharers: Reverse<u32>,
    /// Smaller largest distance between its NUMA nodes.
    pub distance: Reverse<u32>,
    /// Most room on the shared CPUs, in milli-CPU; may be negative.
    pub headroom: i64,
    /// Lowest pool.
    pub pool: Reverse<PoolId>,
}

impl Score {
    /// Every criterion with its value, in the order of comparison.
    pub fn criteria(&self) -> [(&'static str, String); 25] {
        [
            ("stays", self.stays.to_string()),
            ("wishes", self.wishes.to_string()),
            ("cpu_fits", self.cpu_fits.to_string()),
            ("memory_fits", self.memory_fits.to_string()),
            ("burst_fits", self.burst_fits.to_string()),
            ("numa_nodes", self.numa_nodes.0.to_string()),
            ("nodes_taken", self.nodes_taken.0.to_string()),
            ("devices", self.devices.0.to_string()),
            ("affinity", self.affinity.to_string()),
            ("pod_here", self.pod_here.to_string()),
            ("pod_fits", self.pod_fits.to_string()),
            ("clock", self.clock.to_string()),
            ("split_cores", self.split_cores.0.to_string()),
            ("domain", self.domain.0.to_string()),
            ("broken_cores", self.broken_cores.0.to_string()),
            ("strangers", self.strangers.0.to_string()),
            ("opens_domain", self.opens_domain.0.to_string()),
            ("node_left", self.node_left.0.to_string()),
            ("cpus_left", self.cpus_left.0.to_string()),
            ("around_left", self.around_left.0.to_string()),
            ("moved", format!("{} of {}", self.moved.0.0, self.moved.0.1)),
            ("sharers", self.sharers.0.to_string()),
            ("distance", self.distance.0.to_string()),
            ("headroom", self.headroom.to_string()),
            ("pool", self.pool.0.0.to_string()),
        ]
    }

    /// Why `self` loses against `winner`, in words; `None` when it does not lose.
    pub fn loses_to(&self, winner: &Score) -> Option<String> {
        if self >= winner {
            return None;
        }
        let pairs = self.criteria().into_iter().zip(winner.criteria());
        let (name, mine, theirs) = pairs
            .map(|((name, mine), (_, theirs))| (name, mine, theirs))
            .find(|(_, mine, theirs)| mine != theirs)?;
        Some(match name {
            "stays" => "the container is already in the other pool".to_owned(),
            "wishes" => format!("meets {mine} of the preferences, not {theirs}"),
            "cpu_fits" => "its shared CPUs are fully requested".to_owned(),
            "memory_fits" => "its NUMA nodes lack the memory".to_owned(),
            "burst_fits" => "smaller than the CPU limit or the burst level".to_owned(),
            "numa_nodes" => format!("spans {mine} NUMA nodes, not {theirs}"),
            "nodes_taken" => format!("CPUs from {mine} NUMA nodes, not {theirs}"),
            "devices" => format!("farther from the devices: {mine}, not {theirs}"),
            "affinity" => format!("affinity {mine}, not {theirs}"),
            "pod_here" => format!("{mine} CPUs of the pod are there, not {theirs}"),
            "pod_fits" => "lacks room for the rest of the pod".to_owned(),
            "clock" => clock_text(self.clock, winner.clock),
            "domain" => format!("wider domain: {mine} CPUs, not {theirs}"),
            "split_cores" => format!("would split {mine} cores, not {theirs}"),
            "broken_cores" => format!("would break {mine} whole cores, not {theirs}"),
            "strangers" => "would halve cores with containers of other pods".to_owned(),
            "moved" => format!("would have to move shared containers: {mine} CPUs, not {theirs}"),
            "opens_domain" => "would be the first exclusive container there".to_owned(),
            "node_left" => format!(
                "would leave {mine} CPUs free in the NUMA node; the winner leaves {theirs} (tighter is better)"
            ),
            "cpus_left" => format!(
                "would leave {mine} CPUs free; the winner leaves {theirs} (tighter is better)"
            ),
            "around_left" => format!(
                "would leave {mine} CPUs free in the pool around it; the winner leaves {theirs} (tighter is better)"
            ),
            "sharers" => format!(
                "would be the first exclusive container beside {mine} shared ones, not {theirs}"
            ),
            "distance" => format!("nodes farther apart: {mine}, not {theirs}"),
            "headroom" => format!("less room: {mine}m, not {theirs}m"),
            _ => "equal; the lower pool wins".to_owned(),
        })
    }
}

/// Spread, numbers are below zero or none.
fn clock_text(mine: i64, theirs: i64) -> String {
    let what = "containers that use wide vectors share its clock";
    format!("{} {what}, not {}", mine.abs(), theirs.abs())
}

/// Why a pool cannot hold a request at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It cannot give up that many CPUs without starving the containers that share it.
    TooFewCpus {
        /// Exclusive CPUs asked for, with the siblings that have to stay idle.
        needed: usize,
        /// Could be given now.
        free: usize,
        /// Could be given if no container owned or requested any.
        most: usize,
        /// Only CPUs that meet these count.
        required: Vec<Requirement>,
    },
    /// The CPUs that were picked do not meet a requirement.
    Unmet(Requirement),
    /// The other containers of the pod would not have room within as few domains.
    NoRoomForRest {
        /// Whole CPUs that they need.
        rest: usize,
        /// NUMA nodes or packages.
        level: Level,
    },
    /// Shared containers would have to move out of it, and even then another pool would be better; so which would move was not worked out.
    NotWorthMoves,
    /// It has no shared CPU to run on.
    NoSharedCpu,
    /// It lies inside one NUMA node; shared parts are placed on whole NUMA nodes or wider.
    TooNarrowToShare,
    /// By the policy all shared containers run in the pool of the whole machine.
    SharedAsOne,
    /// The whole machine has too little free memory.
    TooLittleMemory {
        /// Asked for.
        needed: Bytes,
        /// Free on all nodes together.
        free: Bytes,
    },
    /// Its NUMA nodes have too little free memory, and the container is bound to them.
    TooLittleMemoryNear {
        /// Asked for.
        needed: Bytes,
        /// Free on the pool's nodes.
        free: Bytes,
    },
    /// Its NUMA nodes have too few free huge pages of a size, and the container is bound to them.
    TooFewHugePages {
        /// Size of a page.
        size: Bytes,
        /// Asked for.
        needed: Bytes,
        /// Free on the pool's nodes.
        free: Bytes,
    },
    /// The number of CPUs is no whole number of cores, and only whole cores were asked for.
    NotWholeCores {
        /// Asked for.
        needed: usize,
        /// Threads of a core.
        width: usize,
    },
    /// It is wider than one domain of the level that the CPUs have to be within.
    WiderThan(Level),
    /// The CPUs would come from more NUMA nodes or packages than needed, those of the pod's other containers included where they count.
    MoreDomains {
        /// Which of the two.
        level: Level,
        /// So many.
        taken: usize,
        /// So many would do if no other container were there.
        fewest: usize,
    },
    /// It does not hold the rest of the pod, and the pod has to lie together.
    TooSmallForPod {
        /// CPUs that the container and the rest of its pod need.
        needed: usize,
        /// Could be given.
        free: usize,
    },
    /// The pod's other containers own CPUs elsewhere, and the pod has to lie together.
    AwayFromPod,
    /// It is not near this device, and the container has to be.
    TooFarFrom(String),
    /// It does not hold the exclusive CPUs that a container which is placed anew keeps.
    LeavesPrevious,
    /// These CPUs, which are the only ones that would do, are owned by others, reserved or offline.
    Taken(Box<CpuSet>),
    /// Of the CPUs that were named, which are the only ones that would do, containers that share cannot do without some.
    KeptShared {
        /// Named, and shared now.
        named: usize,
        /// So many of them have to stay shared.
        kept: usize,
    },
    /// The group has too few CPUs that no member has of its own.
    FullGroup {
        /// Asked for.
        needed: usize,
        /// Could be given.
        free: usize,
    },
    /// There is no such group any more.
    NoSuchGroup,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::TooFewCpus { needed, free, most, required } => {
                too_few_cpus(f, (*needed, *free, *most), required)
            }
            Rejection::Unmet(requirement) => write!(f, "its CPUs would not be {requirement}"),
            Rejection::NoRoomForRest { rest, level } => {
                let domains = plural_of(*level);
                write!(
                    f,
                    "leaves no room for the other {rest} CPUs of the pod, which has to lie on as few {domains} as possible"
                )
            }
            Rejection::NotWorthMoves => {
                f.write_str("shared containers would have to move, and it would still lose")
            }
            Rejection::NoSharedCpu => f.write_str("has no shared CPU left"),
            Rejection::TooNarrowToShare => {
                f.write_str("lies inside one NUMA node; shared parts get whole nodes")
            }
            Rejection::SharedAsOne => {
                f.write_str("the policy is one-shared-pool; shared parts get the machine")
            }
            Rejection::TooLittleMemory { needed, free } => {
                write!(f, "needs {needed}, the machine has {free} free")
            }
            Rejection::TooLittleMemoryNear { needed, free } => {
                write!(f, "needs {needed} on its own NUMA nodes, {free} are free")
            }
            Rejection::TooFewHugePages { size, needed, free } => {
                let pages = format_args!("in huge pages of {size} on its own NUMA nodes");
                write!(f, "needs {needed} {pages}, {free} are free")
            }
            Rejection::NotWholeCores { needed, width } => {
                write!(f, "{needed} CPUs are no whole number of cores of {width} threads")
            }
            Rejection::WiderThan(level) => write!(f, "is wider than one {level}"),
            Rejection::MoreDomains { level, taken, fewest } => {
                let domains = plural_of(*level);
                write!(f, "would take CPUs from {taken} {domains}, {fewest} would do")
            }
            Rejection::TooSmallForPod { needed, free } => {
                write!(f, "the pod needs {needed} more CPUs together; {free} are free")
            }
            Rejection::AwayFromPod => f.write_str("is away from the CPUs of the pod"),
            Rejection::TooFarFrom(device) => write!(f, "is not near `{device}`"),
            Rejection::LeavesPrevious => f.write_str("lacks the CPUs that the container keeps"),
            Rejection::Taken(cpus) => write!(f, "CPUs {cpus} are not free"),
            Rejection::KeptShared { named, kept } => {
                let verb = if *kept == 1 { "has" } else { "have" };
                write!(f, "{kept} of these {named} CPUs {verb} to stay shared")
            }
            Rejection::FullGroup { needed, free } => {
                write!(f, "the group has {free} CPUs to give, {needed} are needed")
            }
            Rejection::NoSuchGroup => f.write_str("the group does not exist any more"),
        }
    }
}

/// What is lacking.
fn too_few_cpus(
    f: &mut fmt::Formatter<'_>,
    (needed, free, most): (usize, usize, usize),
    required: &[Requirement],
) -> fmt::Result {
    let noun = if needed == 1 { "CPU" } else { "CPUs" };
    write!(f, "needs {needed} exclusive {noun}")?;
    for (at, requirement) in required.iter().enumerate() {
        let joint = if at == 0 { " " } else { ", " };
        write!(f, "{joint}{requirement}")?;
    }
    match free {
        _ if most == 0 && !required.is_empty() => f.write_str("; there are none here"),
        _ if most < needed => write!(f, "; {most} could be given if all were free"),
        _ if free >= needed => write!(f, "; {free} are free, but cannot be had together"),
        1 => f.write_str("; 1 is free"),
        _ => write!(f, "; {free} are free"),
    }
}

fn plural_of(level: Level) -> &'static str {
    if level == Level::Package { "packages" } else { "NUMA nodes" }
}
