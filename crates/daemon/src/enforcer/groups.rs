//! Groups of resctrl and the threads in them, which are no files with values. In: what is wanted of them. Out: the same done, or shown.
//!
//! Groups are made before files are written, because their files come with them, and threads are moved after that, so that nobody is in a group that
//! does not say yet what it should. Our groups are known by their names, so nothing is remembered.

use std::collections::BTreeSet;

use bayplan_enforcement::Observed;
use bayplan_enforcement::resctrl::{GroupChange, GroupPlan};
use bayplan_host::kernel::Kernel;
use bayplan_host::{Assignment, apply_groups, assign_threads, count_outside};

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct GroupWork {
    pub(crate) plan: GroupPlan,
    pub(crate) assignments: Vec<Assignment>,
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
    /// How many threads were moved.
    pub(crate) moved: usize,
}

impl GroupOutcome {
    /// Of two looks, one right after the other; what still fails is what the second says.
    pub(crate) fn then(mut self, next: GroupOutcome) -> GroupOutcome {
        self.changes.extend(next.changes);
        GroupOutcome { changes: self.changes, moved: self.moved + next.moved, ..next }
    }
}

impl GroupWork {
    pub(crate) fn is_empty(&self) -> bool {
        self.plan.changes.is_empty() && self.assignments.is_empty()
    }

    /// What would be done now.
    pub(crate) fn preview(&self, kernel: &mut dyn Kernel) -> GroupOutcome {
        let counts = count_outside(kernel, &self.assignments);
        let moves = self.assignments.iter().zip(counts).filter(|(_, threads)| *threads > 0);
        let moves = moves.map(|(it, threads)| {
            let (unit, group) = (it.unit.clone(), it.control.clone());
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

    /// Makes and removes groups.
    pub(crate) fn change(&self, kernel: &mut dyn Kernel, outcome: &mut GroupOutcome) {
        for (change, end) in apply_groups(kernel, &self.plan).outcomes {
            if let Err(why) = end {
                let verb = if change.is_made { "make" } else { "remove" };
                outcome
                    .failures
                    .push(format!("{verb} /{} ({}): {why}", change.path, change.reason));
            }
            outcome.changes.push(change);
        }
    }

    /// Moves threads into them.
    pub(crate) fn assign(&self, kernel: &mut dyn Kernel, outcome: &mut GroupOutcome) {
        let report = assign_threads(kernel, &self.assignments);
        outcome.moved = report.moved;
        for (it, why) in report.failures {
            let Assignment { unit, control, .. } = it;
            outcome.failures.push(format!("move threads of {unit} to /{control}: {why}"));
        }
        for it in report.unsettled {
            let Assignment { unit, control, .. } = it;
            outcome.failures.push(format!(
                "move threads of {unit} to /{control}: it makes new ones faster than they can be moved"
            ));
        }
    }
}
