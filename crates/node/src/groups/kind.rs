//! Types of groups, as values. The default of each is what a type has that says nothing.

use bayplan_allocator::CpuWishes;
use bayplan_topology::Level;
use bayplan_types::{CpuSet, MemoryKind};
use bayplan_workload::annotations::Condition;

use super::usage::Follow;

/// One type of groups; its instances are the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupType {
    /// Unique in the configuration.
    pub name: String,
    /// Which containers belong.
    pub members: Members,
    /// How many groups there are, and which of them a container is in.
    pub instances: Instances,
    /// How many CPUs a group has.
    pub size: Size,
    /// How its size follows what members use beside what they request; `None`: it does not.
    pub follows: Option<Follow>,
    /// What members have of them.
    pub inside: Inside,
    /// How many members a group takes.
    pub capacity: Capacity,
    /// The order in which the groups that are always there are made.
    pub priority: Priority,
    /// Wishes about the CPUs of a group.
    pub cpus: CpuWishes,
    /// Class of frequency and sleep of its CPUs; `None`: that of exclusive CPUs.
    pub cpu_class: Option<String>,
    /// Class of scheduling of its members that say nothing.
    pub scheduling_class: Option<String>,
    /// Where its CPUs are in the machine, as far as that can be had.
    pub place: GroupPlace,
    /// What its members do to the cores and caches that they run on.
    pub loads: Vec<Load>,
    /// Types of which a group of this one is made; empty: of CPUs.
    pub components: Vec<String>,
    /// Which of them a group is made of.
    pub creation: Creation,
    /// Kinds of memory for members that say nothing; empty: as without a group.
    pub memory_kinds: Vec<MemoryKind>,
    /// False: `cpuset.cpus` of members stays as the runtime made it; `None`: as that of other containers.
    pub pins_cpus: Option<bool>,
    /// The same for `cpuset.mems`.
    pub pins_memory: Option<bool>,
}

impl GroupType {
    /// One of this name that says nothing else.
    pub fn new(name: &str) -> GroupType {
        GroupType {
            name: name.to_owned(),
            members: Members::default(),
            instances: Instances::default(),
            size: Size::default(),
            follows: None,
            inside: Inside::default(),
            capacity: Capacity::default(),
            priority: Priority::default(),
            cpus: CpuWishes::default(),
            cpu_class: None,
            scheduling_class: None,
            place: GroupPlace::default(),
            loads: Vec::new(),
            components: Vec::new(),
            creation: Creation::default(),
            memory_kinds: Vec::new(),
            pins_cpus: None,
            pins_memory: None,
        }
    }

    /// Groups of it that are there also when they have no member.
    pub fn always(&self) -> usize {
        match &self.size {
            Size::List(_) if self.inside == Inside::Slots => 1,
            Size::List(lists) => lists.len(),
            _ => self.instances.min,
        }
    }

    /// The CPUs that its group of this number has by the configuration: all slots, or one list; `None` where it has no such list.
    pub(crate) fn list_of(&self, number: usize) -> Option<CpuSet> {
        match &self.size {
            Size::List(lists) if self.inside == Inside::Slots => {
                let mut all = CpuSet::new();
                lists.iter().for_each(|it| all.union_with(it));
                Some(all)
            }
            Size::List(lists) => lists.get(number).cloned(),
            _ => None,
        }
    }

    /// The most groups of it on a machine on which containers can have so many CPUs; `None`: as many as there is room for.
    pub fn at_most(&self, cpus: usize) -> Option<usize> {
        let size = match self.size {
            Size::Fixed(size) => size,
            Size::Requests { min, .. } => min,
            Size::List(_) | Size::Domain(_) => 1,
        };
        let most = match (&self.size, self.instances.max) {
            (Size::List(_), _) => self.always(),
            (_, Most::Unlimited) => return None,
            (_, Most::Count(count)) => count,
            (_, Most::Percent(percent)) => cpus * percent / 100 / size.max(1),
            (_, Most::Cpus(most)) => most.min(cpus) / size.max(1),
        };
        Some(most)
    }
}

/// Preferences about the place of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPlace {
    /// Near these devices or NUMA nodes, by name.
    pub near: Vec<String>,
    /// Away from the CPUs that are near these.
    pub far: Vec<String>,
    /// A new group is on the NUMA node with most CPUs that are open to it, where no device says more.
    pub is_balanced: bool,
}

/// A kind of load. Groups with the same one are rather not on the same core or L2 cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Unique in the configuration.
    pub name: String,
    /// What it loads: cores, or L2 caches.
    pub level: Level,
    /// CPUs of one group are rather on different ones, too.
    pub overloads: bool,
}

/// Which components a group is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// All, with equal parts of its CPUs.
    #[default]
    All,
    /// The one of which there are fewest.
    Balance,
}

/// Which containers belong to a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Those of these namespaces; `*` and `?` stand for any text and any character.
    pub namespaces: Vec<String>,
    /// Those for which one of these holds.
    pub conditions: Vec<Condition>,
    /// Those of a pod that names the type.
    pub by_annotation: bool,
    /// All that no earlier type takes.
    pub all: bool,
}

impl Default for Members {
    fn default() -> Members {
        Members { namespaces: Vec::new(), conditions: Vec::new(), by_annotation: true, all: false }
    }
}

/// Which containers are in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InstanceKey {
    /// Any of the type.
    #[default]
    Type,
    /// Those of one pod.
    Pod,
    /// Those of one namespace.
    Namespace,
    /// Those for which this text is the same; `${KEY}` stands for a value of the container.
    Template(String),
}

/// An upper bound of the number of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Most {
    /// None.
    #[default]
    Unlimited,
    /// So many.
    Count(usize),
    /// As many as this percentage of the CPUs that are not reserved holds.
    Percent(usize),
    /// As many as so many CPUs hold.
    Cpus(usize),
}

/// Which of several groups with room a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// The one with most room.
    #[default]
    Balanced,
    /// The one with least room.
    Packed,
    /// The first.
    First,
}

/// How many groups of a type there are, and which of them a container is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instances {
    /// Which containers are together.
    pub by: InstanceKey,
    /// So many are always there.
    pub min: usize,
    /// No more than that.
    pub max: Most,
    /// Which one, where several have room.
    pub fill: Fill,
    /// Rather a new one than room in one that is there.
    pub prefers_new: bool,
    /// Containers of a pod rather in different ones.
    pub spreads_pods: bool,
    /// Containers of a namespace rather in the same one, and rather alone there.
    pub per_namespace: bool,
}

/// How many CPUs a group has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// As many as its members request.
    Requests {
        /// At least so many.
        min: usize,
        /// At most so many; `None`: no bound.
        max: Option<usize>,
    },
    /// So many.
    Fixed(usize),
    /// These; one group for each set, or one group with a slot for each.
    List(Vec<CpuSet>),
    /// All of a domain of this level.
    Domain(Level),
}

impl Default for Size {
    fn default() -> Size {
        Size::Requests { min: 1, max: None }
    }
}

/// What members have of the CPUs of their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// All share all.
    #[default]
    Share,
    /// Each has slots of a list.
    Slots,
    /// Guaranteed containers that request whole CPUs have these, the others share the rest.
    GuaranteedExclusive,
}

/// How many members a group takes; `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Pods.
    pub pods: Option<usize>,
    /// Containers.
    pub containers: Option<usize>,
}

/// The order of types, the first to be served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all.
    High,
    /// As usual.
    #[default]
    Normal,
    /// After these.
    Low,
    /// Last.
    None,
}
