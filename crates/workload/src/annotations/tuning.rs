//! What a container asks for beside its place: kernel files and classes. Values, and the words for them.

use std::time::Duration;

use bayplan_types::{Bytes, MilliCpu};
use jiff::SignedDuration;

use super::values::{Misread, Words};

/// `None` is what the configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// A scheduling domain of its own CPUs.
    pub partition: Option<CpuPartition>,
    /// Whether its limit of CPU time does not hold on CPUs that are all its own.
    pub is_quota_lifted: Option<bool>,
    /// Unused CPU time that it may catch up on, in percent of its limit.
    pub burst_percent: Option<u64>,
    /// Interrupts on its own CPUs.
    pub interrupts: Option<InterruptRule>,
    /// The name of a class of the configuration.
    pub block_io_class: Option<String>,
    /// The name of a class of the configuration, for when its threads and its I/O have their turn.
    pub scheduling_class: Option<String>,
    /// The name of a class of the configuration, for what is reclaimed of its memory.
    pub reclaim_class: Option<String>,
    /// The name of a class of the configuration, for caches and memory bandwidth.
    pub resctrl_class: Option<String>,
    /// The name of a class of frequency and sleep for its own CPUs.
    pub cpu_class: Option<String>,
    /// What picks the frequency of its own CPUs, in the kernel's words.
    pub cpu_governor: Option<String>,
    /// How long its own CPUs may take to wake up.
    pub wake_up: Option<WakeUp>,
    /// How long it has slow memory only; longer than zero.
    pub cold_start: Option<Duration>,
    /// What may be done for it, and with it, when a container suffers.
    pub rebalance: Option<RebalanceWish>,
    /// Whether BestEffort containers may run on CPUs of its own that it does not use, where the configuration lets them.
    pub lends: Option<bool>,
    /// Whether it uses wide vectors, whatever is measured.
    pub uses_wide_vectors: Option<bool>,
    /// What a container of a BestEffort pod may use at most.
    pub batch: Option<BatchLimits>,
}

/// Limits of a container that kubelet does not know of; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLimits {
    /// CPU time.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Bytes>,
}

/// How far the rebalancer may go with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceWish {
    /// It does not even look.
    Off,
    /// It says what it would do.
    Observe,
    /// It does that.
    Act,
}

/// How long a CPU may take to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// As long as it likes.
    Any,
    /// At most so many microseconds; with 0 it never sleeps.
    AtMostUs(u32),
}

/// A scheduling domain of a container's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPartition {
    /// The one for all.
    #[default]
    None,
    /// Its own, with load balancing.
    Root,
    /// Its own, without.
    Isolated,
}

/// Interrupts on CPUs of a container's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptRule {
    /// As they come.
    #[default]
    Allowed,
    /// None.
    Away,
    /// On its first core only.
    Housekeeping,
}

/// As annotation and configuration write them, which are the kernel's words.
pub const PARTITION: &Words<CpuPartition> = &[
    ("none", CpuPartition::None),
    ("root", CpuPartition::Root),
    ("isolated", CpuPartition::Isolated),
];

/// As annotation and configuration write them, which are CRI-O's words.
pub const INTERRUPTS: &Words<InterruptRule> = &[
    ("enable", InterruptRule::Allowed),
    ("disable", InterruptRule::Away),
    ("housekeeping", InterruptRule::Housekeeping),
];

/// As with the older systems.
const COLD_START_MAX: Duration = Duration::from_secs(3600);

/// As the annotation writes them.
pub(super) const REBALANCE: &Words<RebalanceWish> = &[
    ("off", RebalanceWish::Off),
    ("observe", RebalanceWish::Observe),
    ("act", RebalanceWish::Act),
];

/// As the annotation writes them.
pub(super) const LEND: &Words<bool> = &[("none", false), ("besteffort", true)];

/// Whether a limit is lifted.
pub(super) const QUOTA: &Words<bool> = &[("enable", false), ("disable", true)];
/// As the configuration writes durations, or as the older systems do: YAML with the key `duration`. Zero is no cold start.
pub(super) fn parse_cold_start(value: &str) -> Result<Option<Duration>, Misread> {
    let text = value.trim();
    let text = match text.split_once(':') {
        Some((key, text)) if key.trim_end() == "duration" => text.trim().trim_matches(['"', '\'']),
        _ => text,
    };
    // Go writes a bare zero, too.
    let parsed = if text == "0" { Some(SignedDuration::ZERO) } else { text.parse().ok() };
    let duration =
        parsed.and_then(|it| Duration::try_from(it).ok()).ok_or_else(Misread::default)?;
    match duration > COLD_START_MAX {
        true => Err(Misread::because("longer than 1h")),
        false => Ok((!duration.is_zero()).then_some(duration)),
    }
}

/// At most 100: the kernel lets no group save up more than its limit.
pub(super) fn percent(value: &str) -> Result<u64, Misread> {
    let percent = value.trim().trim_end_matches('%').parse().ok();
    percent.filter(|it| *it <= 100).ok_or_else(Misread::default)
}
