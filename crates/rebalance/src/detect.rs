//! Detects suffering. In: the last rounds of one container and what is usual for it. Out: how it does, with a finding for every signal that is too
//! high.
//!
//! A signal is too high when it is above its limit now (median of the short window, and the last round), and was so in several rounds of the long one. The limit comes from the
//! settings and, where the workload is known, from what is usual for it. A signal that the machine does not have is not there, and says nothing.

use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::Topology;
use bayplan_types::CoreKind;

use crate::baseline::{Baselines, SIGMA_PER_MAD};
use crate::knob::Knob;
use crate::path::{Path, path};
use crate::proposal::Finding;
use crate::sample::{Sample, Signal};
use crate::scene::{Resident, Workload};
use crate::settings::{Settings, Threshold};
use crate::windows::Windows;

/// A container that is stopped by its own limit for more of its time than this waits for that, and not for others.
const THROTTLED_MAX: f64 = 0.1;
/// And for the longest of its delays less is enough.
const THROTTLED_MAX_P99: f64 = 0.01;
/// Where nothing is known of what is usual, a signal has to fall so far below its limit before it counts as well again.
const WELL_BELOW: f64 = 0.8;

/// How one container does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Condition {
    /// Signals that are too high.
    pub findings: Vec<Finding>,
    /// All signals are clearly below their limits, but for migrations: what they say is of the container's own tasks, and of no use for any knob but one.
    pub is_well: bool,
    /// Its migrations are clearly below their limit.
    pub is_gathered: bool,
    /// One of the signals but migrations and far memory was above its limit in some round of the long window, so that nothing is learnt from it.
    pub is_uneasy: bool,
    /// So were its migrations, so that nothing is learnt of them.
    pub is_hopping: bool,
    /// How much too high the worst signal was in the worst round of the short window, confirmed or not: 1 is at its limit.
    pub worst: f64,
}

impl Condition {
    /// How much too high the worst signal is: 1 is at its limit.
    pub(crate) fn severity(&self) -> f64 {
        severity(&self.findings)
    }
}

/// How much too high the worst of some findings is: 1 is at its limit.
pub(crate) fn severity(findings: &[Finding]) -> f64 {
    findings.iter().map(|it| it.short / it.limit).fold(0.0, f64::max)
}

/// What everything is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub settings: &'a Settings,
    pub windows: &'a Windows,
    pub baselines: &'a Baselines,
    pub topology: &'a Topology,
    pub now: Duration,
}

impl Judge<'_> {
    /// How a container does; `None` where that cannot be said: it came or moved lately, does hardly anything, or was not measured.
    pub(crate) fn condition(&self, id: ContainerId, resident: &Resident) -> Option<Condition> {
        let settings = self.settings;
        if self.now < resident.since + settings.warm_up || !self.is_active(id) {
            return None;
        }
        let key = key(self.topology, resident);
        let samples: Vec<Option<&Sample>> =
            self.windows.of(id, resident.since).take(settings.long).collect();
        let mut condition = Condition { is_well: true, is_gathered: true, ..Condition::default() };
        let mut time_signals = 0;
        for signal in Signal::ALL {
            let values: Vec<Option<f64>> =
                samples.iter().map(|it| it.and_then(|sample| value(signal, sample))).collect();
            let Some((limit, usual)) = self.limit(&key, signal) else { continue };
            let Some(short) = median(values.iter().take(settings.short)) else { continue };
            let is_well = short < well_below(limit, usual);
            let is_high = values.iter().flatten().any(|it| *it > limit);
            if signal == Signal::Migrations {
                (condition.is_gathered, condition.is_hopping) = (is_well, is_high);
            } else {
                condition.is_well &= is_well;
                // Memory that is far stays far, so that is how the container is now.
                condition.is_uneasy |= is_high && signal != Signal::FarMemory;
            }
            time_signals += usize::from(path(signal) == Path::Cpu);
            if usual.is_none() && path(signal) == Path::Cpu && self.crowds_itself(id, resident) {
                continue;
            }
            let lately = values.iter().take(settings.short).flatten().copied();
            condition.worst = lately.clone().map(|it| it / limit).fold(condition.worst, f64::max);
            let (long, spread) = (self.long(&values), spread(lately.filter(|it| *it > limit)));
            let finding = Finding { signal, short, long, usual, limit, spread };
            if self.is_high(&finding, &values) {
                condition.findings.push(finding);
            }
        }
        // Where there are several signs of waiting for a CPU, one of them alone is none: preemption need not hurt, and a sensor may lie.
        let found = condition.findings.iter().filter(|it| path(it.signal) == Path::Cpu).count();
        if found == 1 && time_signals > 1 {
            condition.findings.retain(|it| path(it.signal) != Path::Cpu);
        }
        Some(condition)
    }

    /// What is too much of a signal for this workload, and what is usual; `None` where that cannot be said.
    pub(crate) fn limit(
        &self,
        key: &(Workload, Option<CoreKind>),
        signal: Signal,
    ) -> Option<(f64, Option<f64>)> {
        let Threshold { floor, alone, ratio, is_excuse } = self.settings.thresholds.of(signal);
        let usual = self.baselines.of(key, signal).filter(|_| self.settings.parts.baseline);
        let Some((usual, value)) = usual.and_then(|it| Some((it, it.value()?))) else {
            return Some((alone?, None));
        };
        let limit = (value * ratio).max(usual.two_sigma()).max(floor);
        let most = alone.filter(|_| !is_excuse).unwrap_or(f64::INFINITY);
        Some((limit.min(most), Some(value)))
    }

    fn is_high(&self, finding: &Finding, values: &[Option<f64>]) -> bool {
        // A sample that is lost is no sign of ease.
        let last = values.iter().take(self.settings.short).copied().flatten().next();
        let is_so_now = last.is_some_and(|it| it > finding.limit);
        if !self.settings.parts.confirmation {
            return is_so_now;
        }
        is_so_now && finding.short > finding.limit && finding.long > finding.limit
    }

    /// The value that is reached in so many rounds of the long window as confirm a finding, or in as great a part of those that were seen, if that is most of them; 0
    /// where there are fewer.
    fn long(&self, values: &[Option<f64>]) -> f64 {
        let Settings { confirmed, long, .. } = *self.settings;
        let mut values: Vec<f64> = values.iter().flatten().copied().collect();
        values.sort_by(|a, b| b.total_cmp(a));
        let seen = values.len();
        let needed = if 2 * seen > long { (confirmed * seen).div_ceil(long) } else { confirmed };
        values.get(needed.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    /// What a container did lately.
    pub(crate) fn lately(&self, id: ContainerId) -> Option<&Sample> {
        self.windows.latest(id, self.settings.short)
    }

    /// To make the culprit idle would hide the rest of what it does: it stays in the victim's cores and caches, which only counters show, and all that is seen without
    /// them is well. Where its time can be limited, that does both.
    pub(crate) fn hides_by_idle(&self, victim: ContainerId, culprit: &Resident) -> bool {
        let is_limitable = culprit.knobs.contains(&Knob::Suppress)
            && !self.settings.forbidden.contains(&Knob::Suppress);
        let has_counters =
            self.lately(victim).is_some_and(|it| it.cycles_per_instruction.is_some());
        is_limitable && !has_counters
    }

    /// Keeps CPUs busy, or would if it had them.
    pub(crate) fn is_active(&self, id: ContainerId) -> bool {
        let rounds = self.windows.of(id, Duration::ZERO).take(self.settings.short).flatten();
        let wanted: Vec<Option<f64>> = rounds.map(|it| Some(it.wanted())).collect();
        median(wanted.iter()).is_some_and(|it| it >= self.settings.activity_min)
    }

    /// Wants more than all of its CPUs have, so that it would wait without any other, too.
    pub(crate) fn crowds_itself(&self, id: ContainerId, resident: &Resident) -> bool {
        self.lately(id).map_or(0.0, Sample::wanted) > resident.cpus.len() as f64
    }

    /// What can be learnt from the last round: signals, values, and below what they are all the same.
    pub(crate) fn lessons(&self, id: ContainerId) -> impl Iterator<Item = (Signal, f64, f64)> {
        let sample = self.windows.last(id);
        let learned = Signal::ALL.into_iter().filter(|signal| *signal != Signal::Clock);
        learned.filter_map(move |signal| {
            let threshold = self.settings.thresholds.of(signal);
            Some((signal, value(signal, sample?)?, threshold.floor / 10.0))
        })
    }
}

/// Under which a container's baseline is kept.
pub(crate) fn key(topology: &Topology, resident: &Resident) -> (Workload, Option<CoreKind>) {
    let mut kinds = resident.cpus.iter().map(|cpu| topology.core_kind(cpu));
    let first = kinds.next().flatten();
    (resident.workload.clone(), first.filter(|_| kinds.all(|kind| kind == first)))
}

/// A signal's value, without what the container does to itself: PSI counts the time in which its own limit stopped it as pressure, and
/// tasks that it stopped wait, too.
pub(crate) fn value(signal: Signal, sample: &Sample) -> Option<f64> {
    let value = signal.of(sample).filter(|it| it.is_finite())?;
    let throttled = sample.throttled.unwrap_or(0.0);
    match signal {
        Signal::CpuPressure => Some((value - throttled).max(0.0)),
        Signal::Waiting => (throttled <= THROTTLED_MAX).then_some(value),
        Signal::Delay => (throttled <= THROTTLED_MAX_P99).then_some(value),
        _ => Some(value),
    }
}

/// Below what a signal counts as well again: half the way from its limit to what is usual.
fn well_below(limit: f64, usual: Option<f64>) -> f64 {
    usual.map_or(limit * WELL_BELOW, |usual| f64::midpoint(limit, usual.min(limit)))
}

/// About a standard deviation of some values, however far away the worst half of them is: the median distance from their median, in the ratio of a normal
/// distribution. 0 where there are none.
pub(crate) fn spread(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<Option<f64>> = values.map(Some).collect();
    let Some(middle) = median(values.iter()) else { return 0.0 };
    let distances: Vec<Option<f64>> =
        values.iter().flatten().map(|it| Some((it - middle).abs())).collect();
    median(distances.iter()).map_or(0.0, |distance| SIGMA_PER_MAD * distance)
}

/// The middle of what is there, the lower one of two; `None` where more than half is missing.
pub(crate) fn median<'a>(values: impl Iterator<Item = &'a Option<f64>> + Clone) -> Option<f64> {
    let count = values.clone().count();
    let mut there: Vec<f64> = values.flatten().copied().collect();
    if there.is_empty() || there.len() * 2 < count {
        return None;
    }
    there.sort_by(f64::total_cmp);
    there.get((there.len() - 1) / 2).copied()
}
