//! What the rebalancer has told, for `bayplan rebalance status` and for `bayplan explain`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bayplan_allocator::ContainerId;
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_rebalance::{Knob, Mode};
use serde::{Deserialize, Serialize};

use super::reach::is_pinning;

/// Proposals that are remembered.
const KEPT_MAX: usize = 64;

/// What the rebalancer does; format `bayplan-rebalance/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceView {
    /// Names the format.
    pub format: String,
    /// `off`, `observe` or `act`.
    pub mode: String,
    /// Nothing is turned or proposed until `bayplan rebalance resume`.
    pub is_paused: bool,
    /// Containers of which the last look had samples; 0 before the first.
    pub sampled: usize,
    /// Why the last look changed nothing whatever it saw; absent where it was free to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrest: Option<String>,
    /// Containers that showed signs of suffering at the last look and for which nothing is proposed, with the reason.
    #[serde(default)]
    pub unhelped: Vec<UnhelpedView>,
    /// The last ones, oldest first.
    pub proposals: Vec<ProposalView>,
}

/// One container for which nothing is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnhelpedView {
    /// `namespace/pod/container`.
    pub container: String,
    /// Its worst sign, and why.
    pub why: String,
    /// What takes the time of its CPUs, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideView>,
}

/// What processes and interrupts outside of containers take of the time of a container's CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideView {
    /// All of them, in percent.
    pub percent: u32,
    /// Name of the one that takes most; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// What that takes, in percent of the time of the container's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_percent: Option<u32>,
}

/// What was told so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    proposals: VecDeque<Remembered>,
    sampled: usize,
    unrest: Option<String>,
    unhelped: Vec<UnhelpedView>,
}

/// A proposal as it was told, with what names do not say.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) target: ContainerId,
    pub(super) victim: ContainerId,
    pub(super) knob: Knob,
    pub(super) in_file: InFile,
    pub(super) view: ProposalView,
}

/// Whether the kernel file of a knob may say what was proposed, whatever was told since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFile {
    /// It does not, or there is no file.
    No,
    /// It may.
    Maybe,
    /// It may, until files are brought in line with the state after this step.
    Until(u64),
}

impl InFile {
    /// Of what is proposed now.
    pub(super) fn of(knob: Knob, mode: Mode) -> InFile {
        match mode == Mode::Act && !is_pinning(knob) {
            true => InFile::Maybe,
            false => InFile::No,
        }
    }
}

impl Told {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look has ended.
    pub(super) fn looked(&self, sampled: usize, unrest: Option<String>) {
        let mut kept = self.kept();
        (kept.sampled, kept.unrest) = (sampled, unrest);
        kept.unhelped.clear();
    }

    /// What nothing is proposed for, at the look that [`Self::looked`] was told of.
    pub(super) fn unhelped(&self, unhelped: Vec<UnhelpedView>) {
        self.kept().unhelped = unhelped;
    }

    /// One more; the oldest that is neither in force nor in a file goes.
    pub(super) fn proposed(&self, proposal: Remembered) {
        let mut kept = self.kept();
        if kept.proposals.len() >= KEPT_MAX {
            let is_over =
                |it: &Remembered| !it.view.state.is_in_force() && it.in_file == InFile::No;
            let over = kept.proposals.iter().position(is_over);
            kept.proposals.remove(over.unwrap_or(0));
        }
        kept.proposals.push_back(proposal);
    }

    /// One is somewhere else now, for this reason. `None` if it is not remembered.
    pub(super) fn became(
        &self,
        number: u64,
        state: ProposalState,
        outcome: &str,
    ) -> Option<Remembered> {
        let mut kept = self.kept();
        // Numbers begin anew with the mode `off`.
        let mut newest = kept.proposals.iter_mut().rev();
        let found = newest.find(|it| it.view.number == number)?;
        found.view.state = state.of_knob(&found.view.knob);
        found.view.outcome = match found.view.state {
            ProposalState::Stays => outcome.replacen("undone: ", "stays there: ", 1),
            _ => outcome.to_owned(),
        };
        Some(found.clone())
    }

    /// Nothing is in force any more, but for what is stuck.
    pub(super) fn withdrawn(&self) {
        let mut kept = self.kept();
        let in_force = kept.proposals.iter_mut().filter(|it| it.view.state.is_in_force());
        let withdrawn = in_force.filter(|it| it.view.state != ProposalState::Stuck);
        withdrawn.for_each(|it| it.view.state = ProposalState::Withdrawn.of_knob(&it.view.knob));
    }

    /// After this step the state does not have any more what is not in force.
    pub(super) fn taken_back(&self, step: u64) {
        let mut kept = self.kept();
        let over = kept.proposals.iter_mut().filter(|it| !it.view.state.is_in_force());
        let in_files = over.filter(|it| it.in_file == InFile::Maybe);
        in_files.for_each(|it| it.in_file = InFile::Until(step));
    }

    /// Kernel files were brought in line with the state after this step.
    pub(super) fn in_line_with(&self, step: u64) {
        let mut kept = self.kept();
        let over = |it: &&mut Remembered| matches!(it.in_file, InFile::Until(at) if at <= step);
        kept.proposals.iter_mut().filter(over).for_each(|it| it.in_file = InFile::No);
    }

    /// Kernel files are not written any more, for this reason. Gives those that may be in them, whatever was told of them, and were not told so yet.
    pub(super) fn stuck(&self, why: &str) -> Vec<Remembered> {
        let mut kept = self.kept();
        let in_files = kept.proposals.iter_mut().filter(|it| it.in_file != InFile::No);
        let new = in_files.filter(|it| it.view.state != ProposalState::Stuck);
        let stuck = new.map(|it| {
            (it.view.state, it.view.outcome) = (ProposalState::Stuck, why.to_owned());
            it.clone()
        });
        stuck.collect()
    }

    /// How many are in force.
    pub(super) fn in_force(&self) -> usize {
        self.kept().proposals.iter().filter(|it| it.view.state.is_in_force()).count()
    }

    /// Targets and victims of what is stuck.
    pub(super) fn touched_for_good(&self) -> BTreeSet<ContainerId> {
        let kept = self.kept();
        let stuck = kept.proposals.iter().filter(|it| it.view.state == ProposalState::Stuck);
        stuck.flat_map(|it| [it.target, it.victim]).collect()
    }

    /// Those for a container of this name and on it, oldest first.
    pub(crate) fn about(&self, name: &str) -> Vec<ProposalView> {
        let kept = self.kept();
        let all = kept.proposals.iter().map(|it| &it.view);
        all.filter(|it| it.target == name || it.victim == name).cloned().collect()
    }

    /// For queries.
    pub(crate) fn view(&self, mode: &str, is_paused: bool) -> RebalanceView {
        let kept = self.kept();
        RebalanceView {
            format: "bayplan-rebalance/1".to_owned(),
            mode: mode.to_owned(),
            is_paused,
            sampled: kept.sampled,
            unrest: kept.unrest.clone(),
            unhelped: kept.unhelped.clone(),
            proposals: kept.proposals.iter().map(|it| it.view.clone()).collect(),
        }
    }
}
