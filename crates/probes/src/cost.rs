//! What programs in the kernel cost, by the kernel's own count (`kernel.bpf_stats_enabled`). Off by default, because counting costs about as much as a
//! small program does.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use aya::sys::{Stats, enable_stats};

/// While there is one, the kernel counts runs and time of all programs of the machine. Needs CAP_SYS_ADMIN.
#[derive(Debug)]
pub struct Meter {
    _file: OwnedFd,
}

/// What one program has taken while a [`Meter`] was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// As `bpftool prog show` has it.
    pub program: &'static str,
    /// Times that it ran.
    pub runs: u64,
    /// How long in all, with what the kernel takes to tell the time.
    pub time: Duration,
}

impl Meter {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel's word: not permitted, or older than 5.8.
    pub fn start() -> io::Result<Meter> {
        Ok(Meter { _file: enable_stats(Stats::RunTime).map_err(|error| error.io_error)? })
    }
}

impl Cost {
    /// What was added since `before`.
    pub fn since(&self, before: &Cost) -> Cost {
        Cost {
            program: self.program,
            runs: self.runs.saturating_sub(before.runs),
            time: self.time.saturating_sub(before.time),
        }
    }

    /// Nanoseconds of a run; `None` where there was none.
    pub fn ns_per_run(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.time.as_secs_f64() * 1e9 / self.runs as f64)
    }
}
