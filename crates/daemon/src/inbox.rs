//! The way to the state: a bounded queue of events, and an answer to each.
//!
//! A question has a place before anything is looked up for it, or is turned away, so that kubelet hears it at once and tries again; what has happened waits
//! for a place.

use std::sync::{Arc, Weak};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use bayplan_node::NodeZones;
use bayplan_node::event::{Answer, Event};
use bayplan_node::status::{Explanation, Status};
use bayplan_types::{CpuSet, NodeId};

/// An event, and the sender that waits for its answer.
pub(crate) struct Envelope {
    pub(crate) event: Event,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// The way to the state.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Envelope>,
}

impl Inbox {
    /// Sends an event and waits for its answer; `None` when the daemon is stopping.
    pub(crate) async fn ask(&self, event: Event) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Envelope { event, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Events that may wait.
    pub(crate) fn capacity(&self) -> usize {
        self.sender.max_capacity()
    }

    /// A place for one question, which no other sender can have from now on.
    pub(crate) fn reserve(&self) -> Result<Place, NoPlace> {
        self.sender.clone().try_reserve_owned().map(Place).map_err(|error| match error {
            TrySendError::Full(_) => NoPlace::Full,
            TrySendError::Closed(_) => NoPlace::Closed,
        })
    }
}

/// Why a question cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// As many events wait as may.
    Full,
    /// There are no answers any more.
    Closed,
}

/// A place in the queue.
pub(crate) struct Place(mpsc::OwnedPermit<Envelope>);

impl Place {
    /// Sends a question, also if its answer is not waited for; `None` when the daemon is stopping.
    pub(crate) fn ask(self, event: Event) -> impl Future<Output = Option<Answer>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Envelope { event, answer });
        async { answered.await.ok() }
    }
}

/// A look at the state that takes no place in the queue, so that however many ask over HTTP, kubelet's calls have theirs.
#[derive(Debug)]
pub(crate) enum Look {
    /// Whether the task that decides has a turn.
    Alive(oneshot::Sender<()>),
    /// What is where.
    Status(oneshot::Sender<Box<Status>>),
    /// What these NUMA nodes, with their CPUs, have left.
    Zones(Vec<(NodeId, CpuSet)>, oneshot::Sender<Box<NodeZones>>),
    /// Why containers of this name are where they are.
    Explain(String, oneshot::Sender<Vec<Explanation>>),
}

/// Looks that may wait: each kind is made once for all that ask.
const LOOKS_MAX: usize = 4;

/// Asks for looks, and hears of changes.
#[derive(Clone, Debug)]
pub(crate) struct Looker {
    sender: mpsc::Sender<Look>,
    changes: watch::Receiver<u64>,
    /// Gone with the task that decides, so that no reader of changes outlives it.
    changed: Weak<watch::Sender<u64>>,
}

impl Looker {
    /// `None` when the daemon is stopping.
    pub(crate) async fn look<T>(&self, what: impl FnOnce(oneshot::Sender<T>) -> Look) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(what(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Counts changes of what can be seen.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Another look would be shown otherwise, although the state is the same.
    pub(crate) fn note_change(&self) {
        if let Some(changed) = self.changed.upgrade() {
            changed.send_modify(|count| *count += 1);
        }
    }
}

/// The other end of a [`Looker`], which the task that decides has.
pub(crate) struct Looks {
    receiver: mpsc::Receiver<Look>,
    changes: Arc<watch::Sender<u64>>,
}

impl Looks {
    /// The next one; `None` when there will be none any more.
    pub(crate) async fn next(&mut self) -> Option<Look> {
        self.receiver.recv().await
    }

    /// Another look would see something else.
    pub(crate) fn note_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A way to look, and its other end.
pub(crate) fn looker() -> (Looker, Looks) {
    let (sender, receiver) = mpsc::channel(LOOKS_MAX);
    let (changed, changes) = watch::channel(0);
    let changed = Arc::new(changed);
    let looker = Looker { sender, changes, changed: Arc::downgrade(&changed) };
    (looker, Looks { receiver, changes: changed })
}

/// The receiving end of an [`Inbox`].
pub(crate) struct Events(pub(crate) mpsc::Receiver<Envelope>);

/// A queue in which so many events may wait.
pub(crate) fn inbox(waiting_max: usize) -> (Inbox, Events) {
    let (sender, receiver) = mpsc::channel(waiting_max);
    (Inbox { sender }, Events(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_otherwise_counts_as_a_change_until_the_state_is_gone() {
        let (looker, looks) = looker();
        let changes = looker.changes();
        looks.note_change();
        assert_eq!(*changes.borrow(), 1);
        looker.note_change();
        assert_eq!(*changes.borrow(), 2);
        drop(looks);
        looker.note_change();
        assert!(changes.has_changed().is_err());
    }
}
