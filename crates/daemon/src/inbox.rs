//! The way to the state: a bounded queue of events, and an answer to each.
//!
//! Questions are turned away when it is full, so that kubelet hears it at once and tries again; what has happened waits for a place.

use tokio::sync::{mpsc, oneshot};

use crate::event::{Answer, Event};

/// An event, and who waits for its answer.
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

    /// No event more can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.sender.capacity() == 0
    }
}

/// The receiving end of an [`Inbox`].
pub(crate) struct Events(pub(crate) mpsc::Receiver<Envelope>);

/// A queue in which so many events may wait.
pub(crate) fn inbox(waiting_max: usize) -> (Inbox, Events) {
    let (sender, receiver) = mpsc::channel(waiting_max);
    (Inbox { sender }, Events(receiver))
}
