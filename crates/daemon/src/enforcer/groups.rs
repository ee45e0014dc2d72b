//! Groups of resctrl and the threads in them, which are no files with values. In: what is wanted of them. Out: the same done, or shown.
//!
//! Groups are made before files are written, because their files come with them, and threads are moved after that, so that no thread is in a group
//! that does not say yet what it should. Our groups are known by their names, so nothing is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bayplan_enforcement::Observed;
use bayplan_enforcement::resctrl::{GroupChange, GroupPlan};
use bayplan_host::kernel::{Kernel, WriteFailure};
use bayplan_host::{Assignment, apply_groups, assign_threads, count_outside};
use nix::errno::Errno;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct GroupWork {
    pub(crate) plan: GroupPlan,
    pub(crate) assignments: Vec<Assignment>,
    /// How often the threads of all containers are looked at.
    pub(crate) sweep_interval: Duration,
}

/// So long a container is new: its runtime may still put threads into its cgroup.
const NEW_FOR: Duration = Duration::from_secs(5);

/// Containers with threads that are where they belong. For each group that has its threads listed the kernel walks over all threads of the node, and
/// what a container's threads make is in their group from the first instruction. So only containers that are new or belong elsewhere than before are
/// looked at, and all once in a while, because others move threads, and put new ones into cgroups.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// The look that has found all threads in place first.
    since: BTreeMap<Assignment, Duration>,
    /// When all were looked at last.
    swept: Option<Duration>,
}

impl Settled {
    /// All are looked at next.
    pub(crate) fn insist(&mut self) {
        self.swept = None;
    }

    /// Containers that have to be looked at now.
    fn unsettled(&mut self, work: &GroupWork, now: Duration) -> Vec<Assignment> {
        let is_sweep = self.swept.is_none_or(|swept| swept + work.sweep_interval <= now);
        if is_sweep {
            self.swept = Some(now);
        }
        // A container that was in a group that was made or removed is in another one now.
        let changed: BTreeSet<&str> =
            work.plan.changes.iter().map(|change| change.path.as_str()).collect();
        let stays = |it: &Assignment| {
            let monitor = it.monitor.as_deref();
            !changed.contains(it.control.as_str()) && monitor.is_none_or(|it| !changed.contains(it))
        };
        let wanted: BTreeSet<&Assignment> = work.assignments.iter().collect();
        self.since.retain(|it, _| wanted.contains(it) && stays(it));
        let is_old = |it: &Assignment| self.since.get(it).is_some_and(|at| *at + NEW_FOR <= now);
        let all = work.assignments.iter();
        all.filter(|it| is_sweep || !is_old(it)).cloned().collect()
    }

    /// What a look at these has brought about.
    fn note(&mut self, looked_at: &[Assignment], settled: Vec<Assignment>, now: Duration) {
        let found: BTreeSet<&Assignment> = settled.iter().collect();
        for it in looked_at.iter().filter(|it| !found.contains(it)) {
            self.since.remove(it);
        }
        for it in settled {
            self.since.entry(it).or_insert(now);
        }
    }
}

/// Threads of one container that are not in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadMove {
    /// The container's full name.
    pub(crate) unit: String,
    /// Its group's directory.
    pub(crate) group: String,
    /// How many.
    pub(crate) threads: usize,
}

/// What has to be done or was done.
#[derive(Debug, Default)]
pub(crate) struct GroupOutcome {
    /// Directories, in order.
    pub(crate) changes: Vec<GroupChange>,
    /// Only in a preview.
    pub(crate) moves: Vec<ThreadMove>,
    /// Everything that went wrong: what and why.
    pub(crate) failures: Vec<String>,
    /// Monitor groups that could not be made for lack of an RMID, a sentence each.
    pub(crate) short: Vec<String>,
    /// How many threads were moved.
    pub(crate) moved: usize,
    /// Containers of which threads are not where they belong, and why.
    pub(crate) outside: BTreeMap<String, String>,
}

impl GroupOutcome {
    /// Of two looks, one right after the other; what still fails is what the second says.
    pub(crate) fn then(mut self, next: GroupOutcome) -> GroupOutcome {
        self.changes.extend(next.changes);
        GroupOutcome { changes: self.changes, moved: self.moved + next.moved, ..next }
    }
}

impl GroupWork {
    /// A container that is monitored may have threads later.
    pub(crate) fn is_empty(&self) -> bool {
        let GroupPlan { changes, monitors, .. } = &self.plan;
        changes.is_empty() && monitors.is_empty() && self.assignments.is_empty()
    }

    /// What would be done now.
    pub(crate) fn preview(&self, kernel: &mut dyn Kernel) -> GroupOutcome {
        let counts = count_outside(kernel, &self.assignments);
        let moves = self.assignments.iter().zip(counts).filter(|(_, threads)| *threads > 0);
        let moves = moves.map(|(it, threads)| {
            let (unit, group) = (it.unit.clone(), it.group().to_owned());
            ThreadMove { unit, group, threads }
        });
        let changes = self.plan.changes.clone();
        GroupOutcome { moves: moves.collect(), changes, ..GroupOutcome::default() }
    }

    /// Files of groups that are still to be made, as if they were there and said nothing.
    pub(crate) fn foresee(&self, observed: &mut Observed) {
        let made: BTreeSet<String> = self
            .plan
            .changes
            .iter()
            .filter(|change| change.is_made)
            .map(|change| format!("{}/schemata", change.path))
            .collect();
        const LINES: &str = "L2:\nL2CODE:\nL2DATA:\nL3:\nL3CODE:\nL3DATA:\nMB:\n";
        for (path, text) in observed.iter_mut() {
            if text.is_err() && made.contains(path) {
                *text = Ok(LINES.to_owned());
            }
        }
    }

    /// Makes and removes groups. Threads for which no monitor group could be made stay in the control group.
    pub(crate) fn change(&mut self, kernel: &mut dyn Kernel, outcome: &mut GroupOutcome) {
        for (change, end) in apply_groups(kernel, &self.plan).outcomes {
            if let Err(why) = end {
                let GroupChange { path, is_made, reason } = &change;
                let is_monitor = *is_made && self.plan.monitors.values().any(|dir| dir == path);
                for it in &mut self.assignments {
                    it.monitor = it.monitor.take().filter(|monitor| monitor != path);
                }
                if is_monitor && is_lack_of_ids(&why) {
                    outcome.short.push(format!(
                        "resctrl: {reason} is not monitored, because no RMID is free now: {why}; it is tried again"
                    ));
                } else {
                    let verb = if *is_made { "make" } else { "remove" };
                    outcome.failures.push(format!("{verb} /{path} ({reason}): {why}"));
                }
            }
            outcome.changes.push(change);
        }
    }

    /// Moves threads into them, where they are not known to be there. `now` is since any moment.
    pub(crate) fn assign(
        &self,
        kernel: &mut dyn Kernel,
        settled: &mut Settled,
        now: Duration,
        outcome: &mut GroupOutcome,
    ) {
        let unsettled = settled.unsettled(self, now);
        let report = assign_threads(kernel, &unsettled);
        settled.note(&unsettled, report.settled, now);
        outcome.moved = report.moved;
        for (it, why) in report.failures {
            let (unit, group) = (&it.unit, it.group());
            outcome.outside.insert(unit.clone(), why.to_string());
            outcome.failures.push(format!("move threads of {unit} to /{group}: {why}"));
        }
        for it in report.unsettled {
            let (unit, group) = (&it.unit, it.group());
            let why = "it makes new threads faster than they can be moved".to_owned();
            outcome.outside.insert(unit.clone(), why);
            outcome.failures.push(format!(
                "move threads of {unit} to /{group}: it makes new ones faster than they can be moved"
            ));
        }
    }
}

/// Others have taken RMIDs since they were counted, or those of groups that have gone are not free before their lines have left the cache (EBUSY).
fn is_lack_of_ids(why: &WriteFailure) -> bool {
    matches!(why, WriteFailure::Refused { errno: Errno::ENOSPC | Errno::EBUSY, .. })
}
