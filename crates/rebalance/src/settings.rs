//! What can be set, with start values. Where a value has a source it is named beside it; the others are to be judged by the suites in `tests/rebalance`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::knob::Knob;
use crate::sample::Signal;

/// How the rebalancer judges and how much it may do. How far it may go with a container is said in the scene.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Never proposed.
    pub forbidden: BTreeSet<Knob>,
    /// Proposals and undos together, in any minute.
    pub changes_per_minute: u32,
    /// Proposals that may stand at the same time, but for memory that is at home for good. With the budget it bounds how long an undo can wait for its turn.
    pub standing_max: usize,
    /// Rounds that say how it is now.
    pub short: usize,
    /// Rounds that say how it was lately.
    pub long: usize,
    /// In so many of those a signal has to be too high.
    pub confirmed: usize,
    /// Rounds over which trouble and activity are compared.
    pub history: usize,
    /// A container that keeps fewer CPUs busy, or wants to, is not judged (CPI2 leaves such tasks out, too).
    pub activity_min: f64,
    /// A container that is not longer where it is, is not judged.
    pub warm_up: Duration,
    /// Rounds after a change until it is judged.
    pub settle: usize,
    /// Share of the gap between trouble and limit that has to be closed.
    pub relief_min: f64,
    /// What did not help is not tried again for this pair for so long, and for twice as long each time after that.
    pub forget: Duration,
    /// A victim has to be well for so long before it is tried to do without, and twice as long each time that this was too early.
    pub quiet: Duration,
    /// The limits of every signal.
    pub thresholds: Thresholds,
    /// Parts of the judgement, for measuring what each is good for.
    pub parts: Parts,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            forbidden: BTreeSet::new(),
            changes_per_minute: 6,
            standing_max: 24,
            short: 3,
            long: 5,
            confirmed: 3,
            history: 24,
            activity_min: 0.25,
            warm_up: Duration::from_secs(30),
            settle: 3,
            relief_min: 0.1,
            forget: Duration::from_secs(600),
            quiet: Duration::from_secs(300),
            thresholds: Thresholds::default(),
            parts: Parts::default(),
        }
    }
}

/// The limits of every signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds([Threshold; Signal::ALL.len()]);

/// When a signal is too high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Up to this no container suffers, whatever is usual.
    pub floor: f64,
    /// Too much where nothing is known of what is usual; `None` where that cannot be said.
    pub alone: Option<f64>,
    /// Too much in comparison with what is usual.
    pub ratio: f64,
    /// Whether what is usual may lift the limit above `alone`.
    pub is_excuse: bool,
}

impl Thresholds {
    /// Those of one signal.
    pub fn of(&self, signal: Signal) -> Threshold {
        self.0[signal as usize]
    }

    /// Changes those of one signal.
    pub fn set(&mut self, signal: Signal, threshold: Threshold) {
        self.0[signal as usize] = threshold;
    }
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds(Signal::ALL.map(|signal| {
            let (floor, alone, ratio) = match signal {
                Signal::Waiting => (0.25, Some(0.5), 1.5),
                // With the default slice of 3 ms, two that share a CPU wait that long for each other.
                Signal::Delay => (0.001, Some(0.005), 2.0),
                Signal::Preempted => (50.0, Some(200.0), 2.0),
                // Half a millisecond to fill a cache again: a twentieth of the time from the floor on.
                Signal::Migrations => (100.0, Some(400.0), 3.0),
                // A container that is stopped for half of a period in one of a hundred has it in its 99th percentile.
                Signal::Throttled => (0.005, Some(0.05), 2.0),
                Signal::CpuPressure => (0.1, Some(0.2), 1.5),
                Signal::FarMemory => (0.2, Some(0.2), 1.0),
                // CPI2 says two standard deviations; 1.2 keeps very steady workloads out.
                Signal::CyclesPerInstruction => (0.3, None, 1.2),
                Signal::CacheMisses => (1.0, None, 2.0),
                // Of no use for detection: nothing is usual, and alone nothing is too much.
                Signal::Clock => (f64::INFINITY, None, 1.0),
            };
            let is_excuse =
                !matches!(signal, Signal::Migrations | Signal::Throttled | Signal::FarMemory);
            Threshold { floor, alone, ratio, is_excuse }
        }))
    }
}

/// Parts of the judgement that can be left out, to see which suite needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What is usual for a workload counts.
    pub baseline: bool,
    /// A signal has to be high in several rounds.
    pub confirmation: bool,
    /// A culprit has to be active when the victim suffers, for signals that have other causes, too.
    pub correlation: bool,
    /// What does not help is undone, and what another change has left nothing to do.
    pub verdict: bool,
    /// What did not help is not tried again for a while, and what was released too early stays longer the next time.
    pub memory: bool,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { baseline: true, confirmation: true, correlation: true, verdict: true, memory: true }
    }
}
