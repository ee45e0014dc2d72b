//! What the runtime was told of where containers run, by its own ids: the next plan is the difference to it.

use bayplan_enforcement::{DesiredState, ObservedState, Plan, plan_pinnings};
use bayplan_types::Pinning;

use crate::event::FailedWrite;

/// A write counts as done when it is planned, and is forgotten when it fails, so that the next plan repeats it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// What each was told last. Nothing is known where that is empty or missing.
    last: ObservedState,
    /// What each had before that.
    before: ObservedState,
    /// What those have of which the last update failed: not what they were told.
    held: ObservedState,
    /// Since the last plan nothing has happened that may have moved a container, so that each is where it was told to be.
    is_current: bool,
}

impl Told {
    pub(crate) fn last(&self) -> &ObservedState {
        &self.last
    }

    pub(crate) fn get(&self, runtime_id: &str) -> Option<&Pinning> {
        self.last.get(runtime_id)
    }

    /// What it has after its last update failed, until one succeeds.
    pub(crate) fn held(&self) -> &ObservedState {
        &self.held
    }

    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    pub(crate) fn note_current(&mut self, is_current: bool) {
        self.is_current = is_current;
    }

    /// What it is told, or was found to have.
    pub(crate) fn note(&mut self, runtime_id: &str, pinning: Pinning) {
        self.last.insert(runtime_id.to_owned(), pinning);
    }

    /// What it was told may not have arrived, or not have been done: it is told again.
    pub(crate) fn doubt(&mut self, runtime_id: &str) {
        self.note(runtime_id, Pinning::default());
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, runtime_id: &str) {
        for state in [&mut self.last, &mut self.before, &mut self.held] {
            state.remove(runtime_id);
        }
    }

    /// The updates that bring each of `wanted` where it is to be. They count as made.
    pub(crate) fn plan(&mut self, wanted: &DesiredState) -> Plan {
        let plan = plan_pinnings(wanted, &self.last);
        self.is_current = true;
        for write in &plan.writes {
            // After a failure, and until an update succeeds, that is what it had before the first that failed.
            let had = self.held.get(&write.container).or(write.old.as_ref());
            if let Some(had) = had.filter(|had| !had.cpus.is_empty()) {
                put(&mut self.before, &write.container, had);
            }
            put(&mut self.last, &write.container, &write.new);
        }
        plan
    }

    /// It has what it was told after an update of it had failed.
    pub(crate) fn note_landed(&mut self, runtime_id: &str) {
        self.held.remove(runtime_id);
        self.before.remove(runtime_id);
    }

    /// One that was not told anything is where it was, so that what it is told next still gives it CPUs, and waits for those that others have not left. That
    /// does not hold if it has been told something else since. Of any other nothing is known.
    pub(crate) fn note_failed(&mut self, write: &FailedWrite) {
        let withheld = write.withheld.as_ref();
        let last = withheld.filter(|it| self.last.get(&write.container) == Some(&it.new));
        match last.and_then(|it| it.old.clone()) {
            Some(old) => self.last.insert(write.container.clone(), old),
            None => self.last.remove(&write.container),
        };
    }

    /// Until an update succeeds it has what it had before the one that failed.
    pub(crate) fn keep_had(&mut self, runtime_id: &str) {
        let had = self.before.remove(runtime_id);
        self.held.extend(had.map(|had| (runtime_id.to_owned(), had)));
    }

    /// Where it was found after nothing was known of it; `wanted`: where it is to be.
    pub(crate) fn note_found(
        &mut self,
        runtime_id: &str,
        found: &Pinning,
        wanted: Option<&Pinning>,
    ) {
        if wanted.is_some_and(|wanted| wanted.cpus == found.cpus) {
            // Another has made it right, or what was to change was taken back.
            self.held.remove(runtime_id);
        } else if let Some(held) = self.held.get_mut(runtime_id)
            && !found.cpus.is_empty()
        {
            held.clone_from(found);
        }
        self.note(runtime_id, found.clone());
    }
}

fn put(state: &mut ObservedState, container: &str, pinning: &Pinning) {
    match state.get_mut(container) {
        Some(known) => known.clone_from(pinning),
        None => {
            state.insert(container.to_owned(), pinning.clone());
        }
    }
}
