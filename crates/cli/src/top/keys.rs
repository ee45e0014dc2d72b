//! Keys while the table is shown. In: a terminal. Out: whether it is to end.
//!
//! The terminal hands over each key at once and does not show it; Ctrl-C is a key like others then, so that the terminal is given back as it was
//! however the command ends. Keys are read by a thread of their own, which ends with the process.

use std::io::{self, IsTerminal as _, Read as _};
use std::time::Duration;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

/// Ctrl-C, Ctrl-D and Ctrl-\.
const ENDS: [u8; 3] = [3, 4, 28];

/// A terminal from which keys are read. As it was before when this is dropped.
pub(super) struct Keys {
    before: Termios,
    /// Something arrives when a key says to end, or when the terminal has gone.
    ends: UnboundedReceiver<()>,
    terminate: Signal,
}

impl Keys {
    /// `None`: standard input is no terminal. Needs a runtime.
    pub(super) fn open() -> Option<Keys> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let terminate = signal(SignalKind::terminate()).ok()?;
        let mut plain = before.clone();
        plain.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &plain).ok()?;
        let (sender, ends) = mpsc::unbounded_channel();
        std::thread::spawn(move || read_keys(&sender));
        Some(Keys { before, ends, terminate })
    }

    /// Waits so long, or until a key or a signal says to end. Whether one did.
    pub(super) async fn end_within(&mut self, delay: Duration) -> bool {
        let ended = async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.ends.recv() => {}
            }
        };
        timeout(delay, ended).await.is_ok()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _lost = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

fn read_keys(ends: &UnboundedSender<()>) {
    let is_end = |key: u8| key.eq_ignore_ascii_case(&b'q') || ENDS.contains(&key);
    // Without a terminal there is nothing more to read.
    let _heard = io::stdin().lock().bytes().find(|key| key.as_ref().map_or(true, |it| is_end(*it)));
    let _gone = ends.send(());
}
