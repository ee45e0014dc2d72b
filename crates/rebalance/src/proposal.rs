//! What is proposed, why, and what came of it. Values that can be printed, kept and read back by the code that carries them out.

use std::cmp::Reverse;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuSet, QosClass};

use crate::knob::Knob;
use crate::sample::Signal;
use crate::scene::Mode;

/// One knob to turn for one victim.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Counts proposals.
    pub number: u64,
    /// When, on the clock of the rounds.
    pub at: Duration,
    /// `Observe`: only to be told. `Act`: to be carried out. Never `Off`.
    pub mode: Mode,
    /// What to turn.
    pub knob: Knob,
    /// The container that is changed: the culprit or the victim, as the knob is.
    pub target: ContainerId,
    /// How far, for knobs that go in steps: 1 is the first.
    pub step: u32,
    /// For `Siblings`, `Gather`, `Confine`, `Move` and `MoveOwner`: CPUs that the target is to leave.
    pub leave: CpuSet,
    /// For which victim, because of which culprits, and how that is known.
    pub evidence: Evidence,
}

/// Why a container is thought to suffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The container that suffers.
    pub victim: ContainerId,
    /// By what it shows; never empty.
    pub findings: Vec<Finding>,
    /// From which containers, the likeliest first; empty where none is to blame.
    pub culprits: Vec<Culprit>,
}

/// One signal that is too high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Which.
    pub signal: Signal,
    /// Over the short window.
    pub short: f64,
    /// Over the long window.
    pub long: f64,
    /// What is usual for this workload; `None` before that is known.
    pub usual: Option<f64>,
    /// What is too much.
    pub limit: f64,
    /// How far it is from its median in those rounds of the short window in which it was too high, about a standard deviation.
    pub spread: f64,
}

/// A container from which a victim may suffer. Ranked by its fields, top to bottom; greater is likelier.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Culprit {
    /// The nearest thing that both use.
    pub tie: Tie,
    /// Of the victim's trouble with its activity over windows, -1 to 1.
    pub correlation: f64,
    /// Of two that may both be to blame, the less important one comes first. One of an unknown class is as important as can be.
    pub class: Reverse<QosClass>,
    /// How much it does of what hurts, in the unit of the signal.
    pub magnitude: f64,
    /// The container.
    pub container: ContainerId,
}

/// What two containers have in common. Declared from far to near.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tie {
    /// A NUMA node's memory.
    Node,
    /// A last-level cache.
    L3,
    /// A core.
    Core,
    /// A CPU.
    Cpu,
}

/// How the carrying out of a proposal, or of its undoing, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As proposed.
    Done,
    /// Not at all, for this reason; nothing was changed.
    Refused(String),
}

/// What has become of a signal since a change, by medians, in the signal's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalChange {
    /// Which.
    pub signal: Signal,
    /// Before.
    pub was: f64,
    /// Since then.
    pub now: f64,
}

/// What a proposal turned out to be worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The victim is better off: of the gap between trouble and limits, this share was closed.
    Kept {
        /// Above 0, at most 1.
        relief: f64,
    },
    /// It is not, so this is undone and not tried again for this pair for a while.
    Useless {
        /// -1, where it is worse off, to 1; 0 where nothing has changed by more than chance.
        relief: f64,
        /// The signal that spoke against it most; `None` where none got worse by more than chance.
        worse: Option<SignalChange>,
    },
    /// Another container suffers more than the victim gained; undone.
    Harmful {
        /// The one that suffers.
        other: ContainerId,
    },
    /// Victim or target is gone, or samples are missing: not to be judged, and undone.
    Unknown,
    /// It helped together with a change that leaves it nothing to do; undone, and tried again where the victim suffers without it.
    Covered,
    /// What it was for has been over for a while; undone.
    Over,
    /// It is not allowed any more; undone at once, whatever was undone in this minute.
    Withdrawn,
}

/// What the rebalancer says after a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Turn a knob, or, in mode `Observe`, say that it would be turned.
    Propose(Box<Proposal>),
    /// A proposal that was carried out was judged. It stays for `Kept`; for all others it is to be undone now.
    Judge {
        /// Of the proposal.
        number: u64,
        /// How it was judged.
        verdict: Verdict,
    },
}
