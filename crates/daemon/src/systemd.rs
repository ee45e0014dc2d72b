//! What systemd passes to the daemon and hears from it. In: the environment of the process. Out: sockets that listen already, and
//! messages on `NOTIFY_SOCKET` (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3)).
//!
//! A socket that systemd holds outlives the daemon: a client that connects between a stop and the next start waits until it is accepted.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use bayplan_node::event::{Answer, Event};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::inbox::Inbox;

/// `FileDescriptorName=` of the socket on which `bayplan status` asks.
const CONTROL: &str = "control";

/// What a stop needs beyond `drainTimeout`: short calls, then writes, a few seconds each.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// Why a socket that was passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It is of another kind.
    #[error("systemd passed the socket `{name}`, which is not a Unix stream socket")]
    Kind {
        /// Its `FileDescriptorName=`.
        name: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// It would not be served.
    #[error(
        "systemd passed the socket `{name}`, for which there is no use; expected one for kubelet (FileDescriptorName=cri) and \
         perhaps one for `bayplan status` (FileDescriptorName=control)"
    )]
    OneTooMany {
        /// Its `FileDescriptorName=`.
        name: String,
    },
}

/// The sockets that were passed, and where the daemon's state is told. The default is a daemon without a supervisor.
#[derive(Debug, Default)]
pub struct Systemd {
    pub(crate) cri: Option<UnixListener>,
    pub(crate) control: Option<UnixListener>,
    pub(crate) ear: Ear,
    /// The daemon is killed when nothing is heard of it for this long.
    pub(crate) watchdog: Option<Duration>,
}

impl Systemd {
    /// Reads the environment, and takes the variables about sockets out of it; so it is to be called once, before there are threads.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn from_env() -> Result<Systemd, SocketError> {
        let mut systemd = Systemd {
            ear: Ear::Systemd,
            watchdog: sd_notify::watchdog_enabled(),
            ..Systemd::default()
        };
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut passed = ListenFd::from_env();
        for index in 0..passed.len() {
            let name = names.next().unwrap_or_default();
            let listener = passed.take_unix_listener(index);
            let listener =
                listener.map_err(|source| SocketError::Kind { name: name.to_owned(), source })?;
            // Without a name of its own, a socket has that of its unit.
            let place = if name == CONTROL { &mut systemd.control } else { &mut systemd.cri };
            if place.is_some() {
                return Err(SocketError::OneTooMany { name: name.to_owned() });
            }
            *place = listener;
        }
        Ok(systemd)
    }
}

/// Where the daemon's state is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Ear {
    #[default]
    Absent,
    /// If it has said where.
    Systemd,
}

impl Ear {
    /// Kubelet's calls are answered.
    pub(crate) fn ready(self) {
        self.tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
    }

    /// The configuration is read again; [`Self::ready`] ends that.
    pub(crate) fn reloading(self) {
        let status = NotifyState::Status("reading the configuration again");
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now, status]),
            Err(error) => tracing::warn!(%error, "no clock; systemd is not told of a reload"),
        }
    }

    /// The stop may take this long, also where the unit's `TimeoutStopSec=` is shorter.
    pub(crate) fn stopping(self, drain: Duration) {
        let limit = u32::try_from((drain + STOP_MARGIN).as_micros()).unwrap_or(u32::MAX);
        let status = NotifyState::Status("stopping when the calls under way have ended");
        self.tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(limit), status]);
    }

    fn alive(self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    fn tell(self, states: &[NotifyState<'_>]) {
        if let Ear::Absent = self {
            return;
        }
        if let Err(error) = sd_notify::notify(states) {
            tracing::warn!(%error, "cannot tell systemd how the daemon is doing");
        }
    }
}

/// Feeds the watchdog for as long as the event loop answers, and the thread that forwards has turns for the question.
pub(crate) async fn feed_watchdog(inbox: Inbox, forwarding: Handle, limit: Duration, ear: Ear) {
    feed(inbox, &forwarding, limit / 2, || ear.alive()).await;
}

async fn feed(inbox: Inbox, forwarding: &Handle, period: Duration, mut alive: impl FnMut()) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let inbox = inbox.clone();
        let asked = forwarding.spawn(async move { inbox.ask(Event::Ping).await });
        match timeout(period, asked).await {
            Ok(Ok(Some(Answer::Done))) => alive(),
            Ok(_) => return,
            Err(_) => tracing::error!(
                "no decision could be made for {period:?}; systemd will start the daemon again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::inbox::{Envelope, inbox};

    use super::*;

    #[tokio::test]
    async fn the_watchdog_is_fed_only_as_long_as_the_loop_answers() {
        const PERIOD: Duration = Duration::from_millis(20);
        let (inbox, mut events) = inbox(64);
        let fed = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&fed);
        let feeding = tokio::spawn(async move {
            let alive = move || {
                count.fetch_add(1, Ordering::Relaxed);
            };
            feed(inbox, &Handle::current(), PERIOD, alive).await;
        });
        for _ in 0..3 {
            let Envelope { event, answer } = events.0.recv().await.unwrap();
            assert!(matches!(event, Event::Ping));
            answer.send(Answer::Done).unwrap();
        }
        // The next questions are taken, and not answered.
        let first = events.0.recv().await.unwrap();
        let second = events.0.recv().await.unwrap();
        assert_eq!(fed.load(Ordering::Relaxed), 3);
        // It hangs no more.
        second.answer.send(Answer::Done).unwrap();
        drop(first);
        let third = events.0.recv().await.unwrap();
        assert_eq!(fed.load(Ordering::Relaxed), 4);
        // The daemon ends.
        drop(third);
        feeding.await.unwrap();
        assert_eq!(fed.load(Ordering::Relaxed), 4);
    }
}
