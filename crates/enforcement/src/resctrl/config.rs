//! Partitions and classes as goresctrl's configuration writes them, without a machine. In: what was read of a file. Out: what is wrong with it on any
//! machine (goresctrl's doc/rdt.md).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::problem::Problem;
use super::share::{Bandwidth, CacheIds, CacheShare};

/// The whole section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlConfig {
    /// What the machine may lack.
    pub options: ResctrlOptions,
    /// In any order.
    pub partitions: Vec<ResctrlPartition>,
}

impl ResctrlConfig {
    /// All classes with their partitions, in the order in which they are given.
    pub fn classes(&self) -> impl Iterator<Item = (&ResctrlPartition, &ResctrlClass)> {
        self.partitions.iter().flat_map(|it| it.classes.iter().map(move |class| (it, class)))
    }
}

/// Which resources a machine may lack although classes ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResctrlOptions {
    /// Parts of L2 caches.
    pub is_l2_optional: bool,
    /// Parts of L3 caches.
    pub is_l3_optional: bool,
    /// Bounds on memory bandwidth.
    pub is_mb_optional: bool,
}

/// Shares of all caches of a level, or bounds for all domains of memory bandwidth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerCache<T> {
    /// For caches that are not named; `None` is everything.
    pub all: Option<T>,
    /// For some by their ids.
    pub some: Vec<(CacheIds, T)>,
}

impl<T> PerCache<T> {
    /// The same for all.
    pub fn all(value: T) -> PerCache<T> {
        PerCache { all: Some(value), some: Vec::new() }
    }

    /// What holds for one cache; `None` is everything.
    pub fn of(&self, id: u32) -> Option<&T> {
        let own = self.some.iter().find(|(ids, _)| ids.contains(id));
        own.map(|(_, value)| value).or(self.all.as_ref())
    }
}

/// Shares of caches.
pub type CacheShares = PerCache<CdpShares>;

/// What holds for one cache, with and without code and data apart (`cdp`, `cdpl2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CdpShares {
    /// For a cache that does not tell code from data.
    pub unified: CacheShare,
    /// For code and for data, where they differ from it.
    pub code_and_data: Option<(CacheShare, CacheShare)>,
}

/// A part of the caches that no other partition has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlPartition {
    /// Of the file.
    pub name: String,
    /// Its part of the L2 caches.
    pub l2: Option<CacheShares>,
    /// Its part of the L3 caches.
    pub l3: Option<CacheShares>,
    /// How much memory bandwidth its classes may have.
    pub mb: Option<PerCache<Vec<Bandwidth>>>,
    /// In any order.
    pub classes: Vec<ResctrlClass>,
}

/// What containers are assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResctrlClass {
    /// Unique in the whole section.
    pub name: ClassName,
    /// Its part of what the partition has of the L2 caches.
    pub l2: Option<CacheShares>,
    /// The same of the L3 caches.
    pub l3: Option<CacheShares>,
    /// The same of the memory bandwidth.
    pub mb: Option<PerCache<Vec<Bandwidth>>>,
    /// What may not ask for it.
    pub refuses: Refusals,
}

impl ResctrlClass {
    /// One that has everything that its partition has.
    pub fn new(name: ClassName) -> ResctrlClass {
        ResctrlClass { name, l2: None, l3: None, mb: None, refuses: Refusals::default() }
    }
}

/// Annotations that do not lead to a class (`kubernetes.denyPodAnnotation` and `denyContainerAnnotation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Those of a pod, for all of its containers or for one.
    pub pod_annotations: bool,
    /// Those of a container itself.
    pub container_annotations: bool,
}

/// The name of a class, which is that of a directory in resctrl.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassName(String);

/// What the class of all tasks that are in no other one is called.
const ROOT: &str = "system/default";

impl ClassName {
    /// The class of resctrl's root.
    pub fn root() -> ClassName {
        ClassName(ROOT.to_owned())
    }

    /// Whether it is the class of resctrl's root, which is always there.
    pub fn is_root(&self) -> bool {
        self.0 == ROOT
    }

    /// The name, without aliases.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ClassName {
    type Err = String;

    /// The root's aliases are an empty name, `DEFAULT`, and CRI Resource Manager's `SYSTEM_DEFAULT`.
    fn from_str(name: &str) -> Result<ClassName, String> {
        const LENGTH_MAX: usize = 200;
        match name {
            "" | "DEFAULT" | "SYSTEM_DEFAULT" | ROOT => Ok(ClassName::root()),
            "." | ".." => Err(format!("a class cannot be called `{name}`, which is a directory")),
            _ if name.len() > LENGTH_MAX => {
                Err(format!("`{name}` is longer than the {LENGTH_MAX} bytes that a class may have"))
            }
            _ if name.contains('/') || name.chars().any(char::is_control) => {
                Err(format!("`{name}` is no name for a class, which becomes a directory: no `/`"))
            }
            _ => Ok(ClassName(name.to_owned())),
        }
    }
}

/// What is wrong on any machine: names that stand twice, caches that are named twice.
pub fn check_config(config: &ResctrlConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut names, mut partitions) = (BTreeSet::new(), BTreeSet::new());
    for partition in &config.partitions {
        let of = format!("partition `{}`", partition.name);
        if !partitions.insert(&partition.name) {
            problems.push(Problem::new(&of, "duplicate; classes of one name belong together"));
        }
        for (what, share) in [("l2Allocation", &partition.l2), ("l3Allocation", &partition.l3)] {
            problems.extend(share.iter().flat_map(|it| named_twice(&of, what, it)));
        }
        problems.extend(partition.mb.iter().flat_map(|it| named_twice(&of, "mbAllocation", it)));
        problems.extend(partition.mb.iter().flat_map(|it| without_bound(&of, it)));
    }
    for (partition, class) in config.classes() {
        let of = format!("class `{}`", class.name);
        if !names.insert(&class.name) {
            problems.push(Problem::new(&of, "duplicate; names are unique across partitions"));
        }
        let rows = [
            ("l2Allocation", &class.l2, partition.l2.is_some()),
            ("l3Allocation", &class.l3, partition.l3.is_some()),
        ];
        for (what, share, is_in_partition) in rows {
            problems.extend(share.iter().flat_map(|it| named_twice(&of, what, it)));
            if share.is_some() && !is_in_partition {
                problems.push(missing_above(&of, what, &partition.name));
            }
        }
        problems.extend(class.mb.iter().flat_map(|it| named_twice(&of, "mbAllocation", it)));
        problems.extend(class.mb.iter().flat_map(|it| without_bound(&of, it)));
        if class.mb.is_some() && partition.mb.is_none() {
            problems.push(missing_above(&of, "mbAllocation", &partition.name));
        }
    }
    problems
}

/// Lists of which no value can be understood, on whatever machine: goresctrl refuses them, too.
fn without_bound(of: &str, mb: &PerCache<Vec<Bandwidth>>) -> Vec<Problem> {
    let lists = mb.all.iter().chain(mb.some.iter().map(|(_, list)| list));
    let is_unknown = |list: &&Vec<Bandwidth>| {
        !list.is_empty() && list.iter().all(|value| matches!(value, Bandwidth::Unknown(_)))
    };
    let problem = |list: &Vec<Bandwidth>| {
        let said: Vec<String> = list.iter().map(ToString::to_string).collect();
        let text = format!(
            "mbAllocation: [{}] has neither a percentage from 0% to 100% (\"50%\") nor a rate (\"1500MBps\"); add one",
            said.join(", ")
        );
        Problem::new(of, &text)
    };
    lists.filter(is_unknown).map(problem).collect()
}

fn missing_above(of: &str, what: &str, partition: &str) -> Problem {
    let text = format!("has {what}, but its partition `{partition}` has none; write it there, too");
    Problem::new(of, &text)
}

fn named_twice<T>(of: &str, what: &str, per_cache: &PerCache<T>) -> Vec<Problem> {
    let some = &per_cache.some;
    let twice = some.iter().enumerate().filter(|(index, (ids, _))| {
        some[..*index].iter().any(|(earlier, _)| earlier.overlaps(ids))
    });
    let problem = |(_, (ids, _)): (usize, &(CacheIds, T))| {
        Problem::new(of, &format!("{what} names caches of `{ids}` twice"))
    };
    twice.map(problem).collect()
}
