//! The way to the state: a bounded queue of events, and an answer to each.

use tokio::sync::{mpsc, oneshot};

use crate::event::{Answer, Event};

/// Events that may wait; kubelet has far fewer calls in flight.
const QUEUE_MAX: usize = 1024;

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
}

/// The receiving end of an [`Inbox`].
pub(crate) struct Events(pub(crate) mpsc::Receiver<Envelope>);

/// A queue of events.
pub(crate) fn inbox() -> (Inbox, Events) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    (Inbox { sender }, Events(receiver))
}
