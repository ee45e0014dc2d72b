//! What a container asks for beside its place, and how runtimes call that. In: the annotations of a pod. Out: [`Tuning`] of one container.
//!
//! CRI-O's performance annotations stand for all containers of the pod, or behind a slash for one; classes of block I/O, and those of caches and memory
//! bandwidth, have the names that goresctrl has given them for containerd and CRI-O.

use std::time::Duration;

use bayplan_types::{Bytes, MilliCpu};
use jiff::SignedDuration;

use super::values::{Misread, Words, class_name, word};
use super::{Asked, Warnings, annotation, check_length};
use crate::request::NewContainer;

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
/// CRI-O disables load balancing in this way.
const BALANCING: &Words<CpuPartition> =
    &[("enable", CpuPartition::None), ("disable", CpuPartition::Isolated)];

pub(super) const CRIO_QUOTA: &str = "cpu-quota.crio.io";
pub(super) const CRIO_INTERRUPTS: &str = "irq-load-balancing.crio.io";
pub(super) const CRIO_BALANCING: &str = "cpu-load-balancing.crio.io";
pub(super) const CRIO_C_STATES: &str = "cpu-c-states.crio.io";
pub(super) const CRIO_GOVERNOR: &str = "cpu-freq-governor.crio.io";
pub(super) const BLOCK_IO: &str = "blockio.resources.beta.kubernetes.io";
pub(super) const RESCTRL: &str = "rdt.resources.beta.kubernetes.io";

/// Whether it is an annotation that is read here.
pub(super) fn is_known(name: &str) -> bool {
    let name = name.split('/').next().unwrap_or(name);
    [CRIO_QUOTA, CRIO_INTERRUPTS, CRIO_BALANCING, CRIO_C_STATES, CRIO_GOVERNOR, BLOCK_IO, RESCTRL]
        .contains(&name)
}

/// Fills `tuning` with what runtimes understand.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let said = |name: &str, own: String| {
        let annotations = &container.pod.annotations;
        annotations.get_key_value(&format!("{name}/{own}"))
    };
    let of_crio = |name: &str| {
        said(name, container.name.clone()).or(container.pod.annotations.get_key_value(name))
    };
    let tuning = &mut asked.tuning;
    read_word(of_crio(CRIO_QUOTA), QUOTA, &mut tuning.is_quota_lifted, warnings);
    read_word(of_crio(CRIO_INTERRUPTS), INTERRUPTS, &mut tuning.interrupts, warnings);
    read_word(of_crio(CRIO_BALANCING), BALANCING, &mut tuning.partition, warnings);
    let expected = "enable, disable or max_latency:MICROSECONDS";
    read_text(of_crio(CRIO_C_STATES), parse_wake_up, &mut tuning.wake_up, expected, warnings);
    let expected = "the name of a governor";
    read_text(of_crio(CRIO_GOVERNOR), governor, &mut tuning.cpu_governor, expected, warnings);
    let classes = [(BLOCK_IO, &mut tuning.block_io_class), (RESCTRL, &mut tuning.resctrl_class)];
    for (annotated, place) in classes {
        let own = said(annotated, format!("container.{}", container.name));
        let class = own.or_else(|| said(annotated, "pod".to_owned()));
        let Some((name, value)) = class else { continue };
        match check_length(value).and_then(|()| class_name(value)) {
            Ok(name) => *place = Some(name),
            Err(misread) => {
                warnings.misread(&annotation(name), value, "the name of a class", &misread);
            }
        }
    }
}

fn read_word<T: Clone>(
    said: Option<(&String, &String)>,
    words: &Words<T>,
    place: &mut Option<T>,
    warnings: &mut Warnings,
) {
    let Some((name, value)) = said else { return };
    match word(value, words) {
        Ok(meaning) => *place = Some(meaning),
        Err(misread) => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            warnings.misread(&annotation(name), value, &known.join(" or "), &misread);
        }
    }
}

fn read_text<T>(
    said: Option<(&String, &String)>,
    parse: fn(&str) -> Result<T, Misread>,
    place: &mut Option<T>,
    expected: &str,
    warnings: &mut Warnings,
) {
    let Some((name, value)) = said else { return };
    match check_length(value).and_then(|()| parse(value)) {
        Ok(meaning) => *place = Some(meaning),
        Err(misread) => warnings.misread(&annotation(name), value, expected, &misread),
    }
}

/// CRI-O's words: `disable` is no sleep at all.
fn parse_wake_up(value: &str) -> Result<WakeUp, Misread> {
    match value.trim() {
        "enable" => Ok(WakeUp::Any),
        "disable" => Ok(WakeUp::AtMostUs(0)),
        other => {
            let us = other.strip_prefix("max_latency:").and_then(|it| it.trim().parse().ok());
            // The kernel keeps it signed, and takes the largest value for "no limit".
            let us = us.filter(|us: &u32| *us < i32::MAX.unsigned_abs());
            us.map(WakeUp::AtMostUs).ok_or_else(Misread::default)
        }
    }
}

/// Whether there is one of that name is the driver's to say.
fn governor(value: &str) -> Result<String, Misread> {
    let name = value.trim();
    let is_name = !name.is_empty() && name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    is_name.then(|| name.to_owned()).ok_or_else(Misread::default)
}

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
