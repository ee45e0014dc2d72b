//! Makes and removes groups of resctrl and puts threads into them. In: a plan of groups, and which cgroup belongs into which group. Out: what
//! became of it (`Documentation/filesystems/resctrl.rst`, "Resource alloc and monitor groups").
//!
//! A thread inherits the group of the one that made it, so a container is in its group when a look at its threads finds none outside; one that was
//! made by a thread that had not been moved yet is found by the next look. Each id is a write of its own, because older kernels take no more and
//! newer ones stop at the first thread that has ended.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bayplan_enforcement::resctrl::{GroupChange, GroupPlan};
use nix::errno::Errno;

use crate::kernel::{Kernel, WriteFailure, failure};

/// How often a container's threads are looked at before it is told that they become more than can be moved.
const LOOKS_MAX: usize = 8;
/// How deep cgroups of a container are nested at most.
const DEPTH_MAX: usize = 8;

/// What became of the directories of a plan, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Every change with its end.
    pub outcomes: Vec<(GroupChange, Result<(), WriteFailure>)>,
}

/// Carries a plan out: all changes in order, whatever becomes of the others. What is there already, or gone already, is done.
pub fn apply_groups(kernel: &mut dyn Kernel, plan: &GroupPlan) -> GroupReport {
    let outcomes = plan.changes.iter().map(|change| {
        let path = &change.path;
        let end = match change.is_made {
            true => kernel.make_dir(path).or_else(|errno| ignore(errno, Errno::EEXIST)),
            false => kernel.remove_dir(path).or_else(|errno| ignore(errno, Errno::ENOENT)),
        };
        (change.clone(), end.map_err(|errno| failure(kernel, path, errno)))
    });
    GroupReport { outcomes: outcomes.collect() }
}

fn ignore(errno: Errno, expected: Errno) -> Result<(), Errno> {
    if errno == expected { Ok(()) } else { Err(errno) }
}

/// A container and the group that its threads belong into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// The container's full name.
    pub unit: String,
    /// Its cgroup below the root: `sys/fs/cgroup/kubepods.slice/...`.
    pub cgroup: String,
    /// The control group's directory below the root: `sys/fs/resctrl/bayplan.web`.
    pub control: String,
    /// A monitor group's in it, which only takes threads that are in the control group.
    pub monitor: Option<String>,
    /// Only threads in these groups are moved into the control group, by their directories; all others stay where another program has put them.
    /// `None`: all are.
    pub out_of: Option<Vec<String>>,
    /// Groups of others, by their directories, out of which no thread is moved into the monitor group.
    pub others: Vec<String>,
}

impl Assignment {
    /// Where its threads are in the end.
    pub fn group(&self) -> &str {
        self.monitor.as_ref().unwrap_or(&self.control)
    }
}

/// What became of the threads of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignReport {
    /// How many threads changed their group.
    pub moved: usize,
    /// Containers of which threads could not be moved: the first failure of each.
    pub failures: Vec<(Assignment, WriteFailure)>,
    /// Containers that had new threads outside of their group after every look.
    pub unsettled: Vec<Assignment>,
    /// Containers that have threads, and all of them are where they belong.
    pub settled: Vec<Assignment>,
}

/// What a look at a container's threads has found.
enum Found {
    /// A thread was outside and was moved, and another look is worth it.
    Outside,
    /// Every thread is where it belongs.
    Settled,
    /// It has no threads, or they cannot be moved.
    Nothing,
}

/// Puts all threads of each container into its group.
pub fn assign_threads(kernel: &mut dyn Kernel, assignments: &[Assignment]) -> AssignReport {
    let mut report = AssignReport::default();
    let mut left: Vec<&Assignment> = assignments.iter().collect();
    for _ in 0..LOOKS_MAX {
        let mut members = BTreeMap::new();
        left.retain(|it| match look(kernel, it, &mut members, &mut report) {
            Found::Outside => true,
            Found::Settled => {
                report.settled.push((*it).clone());
                false
            }
            Found::Nothing => false,
        });
        if left.is_empty() {
            return report;
        }
    }
    report.unsettled.extend(left.into_iter().cloned());
    report
}

/// Moves the threads that are outside.
fn look<'a>(
    kernel: &mut dyn Kernel,
    assignment: &'a Assignment,
    members: &mut BTreeMap<&'a str, BTreeSet<u32>>,
    report: &mut AssignReport,
) -> Found {
    let threads = match threads_of(kernel, &assignment.cgroup) {
        Ok(threads) if threads.is_empty() => return Found::Nothing,
        Ok(threads) => threads,
        Err(errno) => {
            // A container that has ended needs no group.
            let failure = failure(kernel, &assignment.cgroup, errno);
            if failure != WriteFailure::Gone {
                report.failures.push((assignment.clone(), failure));
            }
            return Found::Nothing;
        }
    };
    match settle(kernel, assignment, threads, members, report) {
        Ok(true) => Found::Outside,
        Ok(false) => Found::Settled,
        Err(failure) => {
            report.failures.push((assignment.clone(), failure));
            Found::Nothing
        }
    }
}

/// First into the control group, then into the monitor group; whether a thread was outside.
fn settle<'a>(
    kernel: &mut dyn Kernel,
    assignment: &'a Assignment,
    mut threads: BTreeSet<u32>,
    members: &mut BTreeMap<&'a str, BTreeSet<u32>>,
    report: &mut AssignReport,
) -> Result<bool, WriteFailure> {
    let Assignment { control, monitor, out_of, others, .. } = assignment;
    let before = report.moved;
    match out_of {
        None => report.moved += move_into(kernel, control, &mut threads, members)?,
        Some(groups) => {
            let mut misplaced = within(kernel, groups, &threads, members)?;
            // The root's `tasks` has most threads of the node: it is not read without need.
            if !misplaced.is_empty() {
                report.moved += move_into(kernel, control, &mut misplaced, members)?;
            }
        }
    }
    if let Some(monitor) = monitor {
        for thread in within(kernel, others, &threads, members)? {
            threads.remove(&thread);
        }
        if !threads.is_empty() {
            report.moved += move_into(kernel, monitor, &mut threads, members)?;
        }
    }
    Ok(report.moved > before)
}

/// Those of the threads that are in one of these groups.
fn within<'a>(
    kernel: &mut dyn Kernel,
    groups: &'a [String],
    threads: &BTreeSet<u32>,
    members: &mut BTreeMap<&'a str, BTreeSet<u32>>,
) -> Result<BTreeSet<u32>, WriteFailure> {
    let mut found = BTreeSet::new();
    for group in groups {
        match members_of(kernel, group, members) {
            Ok(inside) => found.extend(threads.intersection(inside).copied()),
            // The threads that were in it are in the root's now.
            Err(WriteFailure::Gone) => {}
            // A pseudo-locked one cannot be looked into, and no threads are in it.
            Err(WriteFailure::Refused { errno: Errno::EACCES | Errno::EPERM, .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

/// How many were outside, with those that ended meanwhile and are threads no more.
fn move_into<'a>(
    kernel: &mut dyn Kernel,
    group: &'a str,
    threads: &mut BTreeSet<u32>,
    members: &mut BTreeMap<&'a str, BTreeSet<u32>>,
) -> Result<usize, WriteFailure> {
    let tasks = format!("{group}/tasks");
    let inside = members_of(kernel, group, members)?;
    let outside: Vec<u32> = threads.difference(inside).copied().collect();
    for thread in &outside {
        match kernel.write(&tasks, &thread.to_string()) {
            Ok(()) => {
                inside.insert(*thread);
            }
            // It has ended.
            Err(Errno::ESRCH) => {
                threads.remove(thread);
            }
            Err(errno) => return Err(failure(kernel, &tasks, errno)),
        }
    }
    Ok(outside.len())
}

/// The threads of a group; each is read once in a look.
fn members_of<'a, 'b>(
    kernel: &mut dyn Kernel,
    group: &'a str,
    members: &'b mut BTreeMap<&'a str, BTreeSet<u32>>,
) -> Result<&'b mut BTreeSet<u32>, WriteFailure> {
    let tasks = format!("{group}/tasks");
    match members.entry(group) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => match kernel.read(&tasks) {
            Ok(text) => Ok(unknown.insert(numbers(&text))),
            Err(errno) => Err(failure(kernel, &tasks, errno)),
        },
    }
}

/// How many threads of each container are not in its group now.
pub fn count_outside(kernel: &mut dyn Kernel, assignments: &[Assignment]) -> Vec<usize> {
    let mut members = BTreeMap::new();
    let counts = assignments.iter().map(|assignment| {
        let threads = threads_of(kernel, &assignment.cgroup).unwrap_or_default();
        let Assignment { monitor, out_of, others, .. } = assignment;
        match (monitor, out_of) {
            (None, Some(groups)) => {
                within(kernel, groups, &threads, &mut members).map_or(0, |it| it.len())
            }
            _ => {
                let kept = within(kernel, others, &threads, &mut members).unwrap_or_default();
                match members_of(kernel, assignment.group(), &mut members) {
                    Ok(inside) => threads
                        .iter()
                        .filter(|it| !inside.contains(it) && !kept.contains(it))
                        .count(),
                    // The group is not there yet.
                    Err(_) => threads.len() - kept.len(),
                }
            }
        }
    });
    counts.collect()
}

/// All threads in a cgroup and below it. cgroup v1 calls the file `tasks`.
///
/// # Errors
/// The cgroup's own file cannot be read.
fn threads_of(kernel: &mut dyn Kernel, cgroup: &str) -> Result<BTreeSet<u32>, Errno> {
    let (mut threads, has_inner) = read_group(kernel, cgroup)?;
    let mut inner = Vec::from_iter(has_inner.then(|| (cgroup.to_owned(), 0)));
    while let Some((dir, depth)) = inner.pop() {
        if depth == DEPTH_MAX {
            continue;
        }
        for name in kernel.list(&dir).unwrap_or_default() {
            // Files of controllers have a dot or are among these; a cgroup may be called anything else, and is one if it has threads.
            if is_file(&name) {
                continue;
            }
            let below = format!("{dir}/{name}");
            if let Ok((more, has_inner)) = read_group(kernel, &below) {
                threads.extend(more);
                inner.extend(has_inner.then_some((below, depth + 1)));
            }
        }
    }
    Ok(threads)
}

/// Its own threads, and whether there may be groups below it: listing costs more than asking (cgroup-v2.rst, "Core Interface Files"), but cgroup v1 cannot be asked.
fn read_group(kernel: &mut dyn Kernel, cgroup: &str) -> Result<(BTreeSet<u32>, bool), Errno> {
    let files = ["cgroup.threads", "cgroup.stat"].map(|file| format!("{cgroup}/{file}"));
    let mut texts = kernel.read_all(&files.each_ref().map(String::as_str)).into_iter();
    let threads = match texts.next() {
        Some(Err(Errno::ENOENT)) | None => kernel.read(&format!("{cgroup}/tasks")),
        Some(text) => text,
    };
    let stat = texts.next().and_then(Result::ok).unwrap_or_default();
    let has_inner = !stat.lines().any(|line| line == "nr_descendants 0");
    // A thread of another PID namespace is shown as 0, which `tasks` would take for the writer itself.
    let threads = numbers(&threads?).into_iter().filter(|id| *id != 0).collect();
    Ok((threads, has_inner))
}

fn is_file(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "cgroup.", "cpu.", "cpuset.", "cpuacct.", "memory.", "io.", "blkio.", "pids.", "hugetlb.",
        "rdma.", "misc.", "irq.", "dmem.",
    ];
    const NAMES: [&str; 3] = ["tasks", "notify_on_release", "release_agent"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn numbers(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}
