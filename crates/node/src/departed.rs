//! Runtime ids of containers that are over, of which a view of the runtime that is older must bring none back.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{RuntimeView, Seen};

/// What kubelet has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Departed {
    /// With the step in which each ended.
    ended: BTreeMap<String, u64>,
    /// Ended without ever having been started. Containerd does nothing to stop such a container and lists it as created until it is removed; it will not be started.
    unstarted: BTreeSet<String>,
}

impl Departed {
    pub(crate) fn with_unstarted(unstarted: BTreeSet<String>) -> Departed {
        Departed { unstarted, ..Departed::default() }
    }

    pub(crate) fn unstarted(&self) -> &BTreeSet<String> {
        &self.unstarted
    }

    pub(crate) fn note_ended(&mut self, runtime_id: &str, step: u64) {
        self.ended.insert(runtime_id.to_owned(), step);
    }

    /// Whether that was not known.
    pub(crate) fn note_unstarted(&mut self, runtime_id: &str) -> bool {
        self.unstarted.insert(runtime_id.to_owned())
    }

    /// It is there after all: another creation has made it.
    pub(crate) fn note_there(&mut self, runtime_id: &str) {
        self.ended.remove(runtime_id);
    }

    /// It is or will be started. Whether that was not expected any more.
    pub(crate) fn note_startable(&mut self, runtime_id: &str) -> bool {
        self.unstarted.remove(runtime_id)
    }

    /// Kubelet has ended it: after the runtime was asked, at step `basis`, or before it was ever started.
    pub(crate) fn has(&self, runtime_id: &str, seen: &Seen, basis: u64) -> bool {
        let is_unstarted = !seen.is_running && self.unstarted.contains(runtime_id);
        is_unstarted || self.ended.get(runtime_id).is_some_and(|step| *step > basis)
    }

    /// Forgets those that the runtime no longer lists as created, unless it was asked before they ended.
    pub(crate) fn forget_unstarted(&mut self, view: &RuntimeView) {
        let ended = &self.ended;
        self.unstarted.retain(|runtime_id| {
            let is_newer = ended.get(runtime_id).is_some_and(|step| *step > view.basis);
            let seen = view.containers.get(runtime_id);
            is_newer || seen.is_some_and(|seen| seen.is_alive && !seen.is_running)
        });
    }

    /// A view of this step or an older one will not come any more.
    pub(crate) fn forget_ended(&mut self, basis: u64) {
        self.ended.retain(|_, step| *step > basis);
    }
}
