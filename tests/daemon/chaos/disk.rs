//! The disk under the state directory, which refuses what it is asked, or on which the daemon dies. In: when, and what. Out: errors, halves of
//! writes, and threads that never come back.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bayplan_host::disk::{Disk, Operation};
use tokio::sync::watch;

/// What goes wrong on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The kernel says no with this number.
    Refuses(i32),
    /// The same from then on, until the disk is mended.
    IsBroken(i32),
    /// The daemon is killed there.
    Kills,
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Operations from now on that go well before.
    pub(crate) after: usize,
    pub(crate) wrong: Wrong,
    /// Of a write that it meets, so much is done before, in thousandths.
    pub(crate) part: usize,
}

#[derive(Debug, Default)]
struct State {
    trouble: Option<Trouble>,
    /// Nothing goes on, because there is no process any more that could.
    is_dead: bool,
    /// What was waiting in the dead process may find out that it is dead.
    is_over: bool,
}

/// One daemon's disk, and its death.
#[derive(Debug, Default)]
pub(crate) struct TroubledDisk {
    state: Mutex<State>,
    over: Condvar,
    dead: watch::Sender<bool>,
}

impl TroubledDisk {
    pub(crate) fn expect(&self, trouble: Trouble) {
        self.lock().trouble = Some(trouble);
    }

    /// All goes well from now on.
    pub(crate) fn mend(&self) {
        self.lock().trouble = None;
    }

    /// Comes back when an operation has killed the daemon.
    pub(crate) async fn killed(&self) {
        self.dead.subscribe().wait_for(|is_dead| *is_dead).await.unwrap();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().is_dead
    }

    /// From now on nothing is done any more.
    pub(crate) fn die(&self) {
        self.lock().is_dead = true;
    }

    /// A caller that waits in it comes back with an error; the daemon must be gone.
    pub(crate) fn bury(&self) {
        self.lock().is_over = true;
        self.over.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn is_dead_then<'a>(&self, mut state: MutexGuard<'a, State>) -> io::Result<usize> {
        while !state.is_over {
            let waited = self.over.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!waited.1.timed_out(), "a dead daemon was never buried");
            state = waited.0;
        }
        Err(io::Error::from_raw_os_error(nix::libc::EIO))
    }
}

impl Disk for TroubledDisk {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        let mut state = self.lock();
        if state.is_dead {
            return self.is_dead_then(state);
        }
        let Some(trouble) = &mut state.trouble else { return Ok(bytes) };
        if trouble.after > 0 {
            trouble.after -= 1;
            return Ok(bytes);
        }
        let part = bytes * std::mem::take(&mut trouble.part) / 1000;
        if operation == Operation::Write && part > 0 {
            return Ok(part);
        }
        match trouble.wrong {
            Wrong::Refuses(errno) => {
                state.trouble = None;
                Err(io::Error::from_raw_os_error(errno))
            }
            Wrong::IsBroken(errno) => Err(io::Error::from_raw_os_error(errno)),
            Wrong::Kills => {
                state.is_dead = true;
                self.dead.send_replace(true);
                self.is_dead_then(state)
            }
        }
    }
}
