//! From which containers a victim may suffer. In: the victim's findings and which containers run where. Out: culprits, the likeliest first.
//!
//! Only containers that share hardware with the victim are asked, and only for what that hardware can do: a shared CPU makes one wait, a shared core,
//! cache or memory makes one slow. A container that does next to nothing of what hurts is no culprit. Signals that have other causes, too, need a
//! suspect with activity that goes with the trouble (CPI2: a correlation of 0.35).

use std::cmp::Reverse;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuSet, QosClass};

use crate::around::around;
use crate::detect::{self, Judge};
use crate::knob::Knob;
use crate::ladder;
use crate::path::{Path, path};
use crate::proposal::{Culprit, Finding, Tie};
use crate::sample::{Sample, Signal};
use crate::scene::{Mode, Resident, Scene};

/// Below this, trouble and activity have nothing to do with each other.
const CORRELATION_MIN: f64 = 0.35;
/// A culprit does so many times as much while the victim suffers.
const RISE_MIN: f64 = 1.5;
/// Rounds of each kind that this is judged by.
const RISE_ROUNDS_MIN: usize = 3;
/// Rounds that both need before a correlation means something.
const ROUNDS_MIN: usize = 10;
/// A suspect that does less than this share of what the worst of its kind does, is not to blame.
const SHARE_MIN: f64 = 0.2;
/// A container that uses fewer CPUs than this does no harm; one that uses more may, through caches and memory, on any number of CPUs.
const CPUS_MIN: f64 = 0.1;
const CPUS_HARM: f64 = 0.5;
/// Where less than this share of the CPUs is busy, no container waits for a CPU because of others, and none is moved to where more would be.
const CROWDED: f64 = 0.7;
/// Cycles that a miss takes longer on another node: 60 ns at a bit more than 2 GHz, as of two packages.
const FAR_CYCLES: f64 = 130.0;
/// Part of the cycles from which that is worth moving pages. Misses that wait for each other cost less.
const FAR_COST_MIN: f64 = 0.2;
/// On so many CPUs the scheduler finds room beside a container that uses less than this share of them.
const CROWD_MIN: f64 = 0.1;

/// Share of a container's cycles that may go into the way to memory on other nodes, 0 to 1; `None` where far memory or the processor's counters are not told.
pub fn far_cost(sample: &Sample) -> Option<f64> {
    let far_misses = sample.far_memory? * sample.cache_misses? / 1000.0;
    let cycles = sample.cycles_per_instruction.filter(|it| *it > 0.0)?;
    Some((far_misses * FAR_CYCLES / cycles).min(1.0))
}

impl Judge<'_> {
    /// Containers that may be to blame for a victim's findings, the likeliest first.
    pub(crate) fn culprits(
        &self,
        scene: &Scene,
        victim: ContainerId,
        findings: &[Finding],
    ) -> Vec<Culprit> {
        let Some(sufferer) = scene.residents.get(&victim) else { return Vec::new() };
        let mut culprits: Vec<Culprit> = Vec::new();
        for finding in findings {
            let suspects = scene
                .residents
                .iter()
                .filter(|(id, other)| **id != victim && other.mode != Mode::Off)
                .filter_map(|(id, other)| {
                    self.suspect(scene, (victim, sufferer), (*id, other), finding)
                });
            for suspect in only_the_great(suspects.collect()) {
                match culprits.iter_mut().find(|it| it.container == suspect.container) {
                    Some(known) if *known < suspect => *known = suspect,
                    Some(_) => {}
                    None => culprits.push(suspect),
                }
            }
        }
        culprits.sort_by(|a, b| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
        culprits
    }

    fn suspect(
        &self,
        scene: &Scene,
        (victim, sufferer): (ContainerId, &Resident),
        (id, other): (ContainerId, &Resident),
        finding: &Finding,
    ) -> Option<Culprit> {
        let path = path(finding.signal);
        let tie = tie(self.topology, sufferer, other)?;
        if path == Path::Own || (path == Path::Cpu && tie != Tie::Cpu) {
            return None;
        }
        let last = self.lately(id)?;
        let crowd = CROWD_MIN * sufferer.cpus.len() as f64;
        if last.cpus < crowd.clamp(CPUS_MIN, CPUS_HARM) {
            return None;
        }
        let magnitude = match path {
            Path::Cpu => last.cpus * overlap(&other.cpus, &sufferer.cpus),
            Path::Hardware | Path::Own => activity(tie, last),
        };
        if path == Path::Cpu && !self.crowds(scene, (victim, sufferer), other, magnitude) {
            return None;
        }
        let pairs = self.pairs((victim, sufferer.since), id, tie, path, finding.signal);
        let correlation = (pairs.len() >= ROUNDS_MIN).then(|| pearson(&pairs)).flatten();
        let counts = correlation.is_some_and(|it| it >= CORRELATION_MIN);
        let is_proven = counts && rises(&pairs, finding.limit);
        if path == Path::Hardware && self.settings.parts.correlation && !is_proven {
            return None;
        }
        // In tenths, and nothing where it means nothing, so that noise does not decide which comes first.
        let correlation =
            correlation.filter(|_| counts).map_or(0.0, |it| (it * 10.0).round() / 10.0);
        let class = Reverse(ladder::rank(other));
        Some(Culprit { tie, correlation, class, magnitude, container: id })
    }

    /// Whether it is this one that takes the CPUs away from the victim that it waits for.
    fn crowds(
        &self,
        scene: &Scene,
        (victim, sufferer): (ContainerId, &Resident),
        other: &Resident,
        magnitude: f64,
    ) -> bool {
        let needs = self.needs(victim, sufferer);
        let cpus = sufferer.cpus.len() as f64;
        // Of two that are as important, the one that takes less is not to blame.
        let share = if ladder::rank(other) < ladder::rank(sufferer) { SHARE_MIN } else { 1.0 };
        // Processes in no container are a suspect like others, and no other is blamed for them.
        let outside = SHARE_MIN * self.outside(scene, &sufferer.cpus);
        self.is_crowded(scene, victim, sufferer)
            && magnitude >= (CROWD_MIN * cpus).max(share * needs).max(outside)
    }

    /// Whether the CPUs that a container runs on have no time left to speak of.
    pub(crate) fn is_crowded(&self, scene: &Scene, id: ContainerId, resident: &Resident) -> bool {
        let own = self.lately(id).map_or(0.0, |it| it.cpus);
        self.busy(scene, id, &resident.cpus) + own >= CROWDED * resident.cpus.len() as f64
    }

    /// Whether a good part of the traffic to memory around a container is its own; `true` where that is not measured.
    pub(crate) fn strains_memory(&self, scene: &Scene, id: ContainerId, level: Level) -> bool {
        let Some(resident) = scene.residents.get(&id) else { return false };
        let Some(own) = self.lately(id).and_then(|it| it.memory_bandwidth) else { return true };
        let near = around(scene.topology.as_ref(), level, &resident.cpus);
        let beside = scene.residents.iter().filter(|(_, it)| it.cpus.intersects(&near));
        let all: f64 = beside.filter_map(|(id, _)| self.lately(*id)?.memory_bandwidth).sum();
        own >= SHARE_MIN * all
    }

    /// The first step of suppression that takes most of what BestEffort containers use now: fast to protect, and the next step can only be halfway there.
    pub(crate) fn suppression(&self, scene: &Scene) -> u32 {
        let lowest = || scene.residents.iter().filter(|it| it.1.qos == Some(QosClass::BestEffort));
        let used: f64 = lowest().filter_map(|(id, _)| Some(self.lately(*id)?.cpus)).sum();
        let allowed = lowest().fold(CpuSet::new(), |all, (_, it)| all.union(&it.cpus));
        let cpus = allowed.len() as f64;
        let leaves_little = |step: &u32| cpus * 0.5_f64.powf(f64::from(*step)) <= used / 4.0;
        (1..ladder::steps(Knob::Suppress))
            .find(leaves_little)
            .unwrap_or(ladder::steps(Knob::Suppress))
    }

    /// Whether CPUs have time for one more and would not be crowded, also when those there want as much as they did at their peaks of the last minutes.
    pub(crate) fn has_room(
        &self,
        scene: &Scene,
        (id, goer): (ContainerId, &Resident),
        is_victim: bool,
        place: &CpuSet,
    ) -> bool {
        let wants = match is_victim {
            true => self.needs(id, goer),
            false => self.lately(id).map_or(0.0, Sample::wanted),
        };
        let peaks = self.peaks(scene, place, id).max(self.busy(scene, id, place));
        !place.is_empty() && peaks + wants <= CROWDED * place.len() as f64
    }

    /// For a container that would fill any NUMA node that it could go to, and suffers nowhere from that: what it has to leave to go where it is least
    /// in the way, by the CPUs needed there by others that asked for something. `None` where it would be no less in the way than it is, or in the way
    /// of a container more important than the one it leaves.
    pub(crate) fn out_of_the_way(
        &self,
        scene: &Scene,
        stayer: &Resident,
        (id, goer): (ContainerId, &Resident),
    ) -> Option<CpuSet> {
        self.condition(id, goer).filter(|it| it.worst <= 1.0)?;
        let wants = self.lately(id)?.wanted();
        let fills = |place: &CpuSet| wants > CROWDED * place.intersection_len(&scene.shared) as f64;
        let others = |place: &CpuSet| -> Vec<(ContainerId, &Resident)> {
            let all = scene.residents.iter().map(|(other, it)| (*other, it));
            let asking = all.filter(|(_, it)| it.qos != Some(QosClass::BestEffort));
            let near = asking.filter(|(other, it)| *other != id && it.cpus.intersects(place));
            near.filter(|(other, _)| self.is_active(*other)).collect()
        };
        let needed = |place: &CpuSet| -> f64 {
            others(place).into_iter().map(|(other, it)| self.needs(other, it)).sum()
        };
        let is_of_lesser = |place: &CpuSet| {
            others(place).iter().all(|(_, it)| ladder::rank(it) <= ladder::rank(stayer))
        };
        let around = |cpus| around(self.topology, Level::NumaNode, cpus);
        let left = around(&stayer.cpus);
        let nodes = self.topology.nodes().iter().map(|node| &node.cpus);
        let places = nodes.filter(|it| it.intersects(&scene.shared) && !it.intersects(&left));
        let places = places.filter(|it| fills(it) && is_of_lesser(it));
        let places = places.map(|place| (needed(place), place));
        let (least, place) = places.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least < needed(&around(&goer.cpus))).then(|| self.topology.cpus().difference(place))
    }

    /// CPUs that a container would keep busy if nothing slowed it down.
    fn needs(&self, id: ContainerId, resident: &Resident) -> f64 {
        self.lately(id).map_or(0.0, |it| it.cpus * self.haste(resident, it))
    }

    /// The share of its CPU time that a container would need if instructions took as long as they usually do; 1 where that is not known.
    fn haste(&self, resident: &Resident, sample: &Sample) -> f64 {
        let key = detect::key(self.topology, resident);
        let usual = self.baselines.of(&key, Signal::CyclesPerInstruction).and_then(|it| it.value());
        match (usual, sample.cycles_per_instruction) {
            (Some(usual), Some(now)) if now > usual => usual / now,
            _ => 1.0,
        }
    }

    /// Whether a good part of a container's cycles may go into the way to memory on other nodes, where it is slow; `true` where that cannot be said.
    pub(crate) fn far_memory_hurts(&self, id: ContainerId, is_slow: bool) -> bool {
        let Some(sample) = self.lately(id) else { return false };
        let Some(cost) = far_cost(sample) else { return true };
        is_slow && cost >= FAR_COST_MIN
    }

    /// How many of some CPUs all but one keep busy.
    fn busy(&self, scene: &Scene, but: ContainerId, place: &CpuSet) -> f64 {
        self.within(scene, place, Some(but)) + self.outside(scene, place)
    }

    /// How many of some CPUs all containers but one keep busy at their peaks of the last minutes.
    fn peaks(&self, scene: &Scene, place: &CpuSet, but: ContainerId) -> f64 {
        let residents = scene.residents.iter().filter(|(id, _)| **id != but);
        residents.map(|(id, it)| self.windows.peak(*id) * overlap(&it.cpus, place)).sum()
    }

    /// The CPUs of a container under the one of their last-level caches that has most room for it. `None`: all are under one, or it fits under none.
    pub(crate) fn best_cache(
        &self,
        scene: &Scene,
        id: ContainerId,
        resident: &Resident,
    ) -> Option<CpuSet> {
        let caches = self.topology.caches().iter().filter(|it| it.level == 3);
        let parts = caches.map(|it| it.cpus.intersection(&resident.cpus));
        let parts: Vec<CpuSet> = parts.filter(|it| !it.is_empty()).collect();
        let left = |place: &CpuSet| place.len() as f64 - self.peaks(scene, place, id);
        let best = parts.iter().max_by(|a, b| left(a).total_cmp(&left(b)));
        let best = best.filter(|_| parts.len() > 1)?;
        self.has_room(scene, (id, resident), true, best).then(|| best.clone())
    }

    /// How many of some CPUs containers keep busy.
    fn within(&self, scene: &Scene, place: &CpuSet, but: Option<ContainerId>) -> f64 {
        let residents = scene.residents.iter().filter(|(id, _)| Some(**id) != but);
        residents
            .filter_map(|(id, it)| Some(self.lately(*id)?.cpus * overlap(&it.cpus, place)))
            .sum()
    }

    /// How many of some CPUs are kept busy by processes in no container; 0 where the kernel does not tell.
    pub(crate) fn outside(&self, scene: &Scene, place: &CpuSet) -> f64 {
        let busy: Option<f64> = place.iter().map(|cpu| Some(1.0 - scene.idle.get(&cpu)?)).sum();
        busy.map_or(0.0, |busy| (busy - self.within(scene, place, None)).max(0.0))
    }

    /// The victim's trouble where it is now with the other's activity, over the rounds in which both were measured; before the other came it did nothing.
    fn pairs(
        &self,
        (victim, since): (ContainerId, Duration),
        other: ContainerId,
        tie: Tie,
        path: Path,
        signal: Signal,
    ) -> Vec<(f64, f64)> {
        let there = self.windows.len_of(other);
        let mut activities = self.windows.of(other, Duration::ZERO).map(|sample| {
            sample.map(|it| if path == Path::Cpu { it.cpus } else { activity(tie, it) })
        });
        let troubles = self.windows.of(victim, since).take(self.settings.history);
        troubles
            .enumerate()
            .filter_map(|(round, sample)| {
                let activity = activities.next().unwrap_or((round >= there).then_some(0.0));
                Some((detect::value(signal, sample?)?, activity?))
            })
            .collect()
    }
}

/// Whether the other does a good deal more in the rounds in which the victim suffers than in those in which it does not. Two things that change slowly
/// correlate by chance; this they do not.
fn rises(pairs: &[(f64, f64)], limit: f64) -> bool {
    let mean_where = |is_high: bool| {
        let some: Vec<f64> =
            pairs.iter().filter(|it| (it.0 > limit) == is_high).map(|it| it.1).collect();
        (some.len() >= RISE_ROUNDS_MIN).then(|| some.iter().sum::<f64>() / some.len() as f64)
    };
    match (mean_where(true), mean_where(false)) {
        (Some(high), Some(calm)) => high >= RISE_MIN * calm,
        _ => false,
    }
}

/// Suspects that do a good part of what the worst of the same tie does.
fn only_the_great(suspects: Vec<Culprit>) -> Vec<Culprit> {
    let most = |tie: Tie| {
        let same = suspects.iter().filter(|it| it.tie == tie);
        same.map(|it| it.magnitude).fold(0.0, f64::max)
    };
    suspects.iter().filter(|it| it.magnitude >= SHARE_MIN * most(it.tie)).copied().collect()
}

/// What of a container's doings hurts along this tie, as far as it was measured: traffic to memory behind a shared cache, CPU time before it.
fn activity(tie: Tie, sample: &Sample) -> f64 {
    match tie {
        Tie::Cpu | Tie::Core => sample.cpus,
        Tie::L3 | Tie::Node => sample.memory_bandwidth.unwrap_or(sample.cpus),
    }
}

/// The share of a container's CPUs that are among the others.
fn overlap(cpus: &CpuSet, others: &CpuSet) -> f64 {
    cpus.intersection_len(others) as f64 / cpus.len().max(1) as f64
}

/// The nearest thing that both use.
pub(crate) fn tie(topology: &Topology, a: &Resident, b: &Resident) -> Option<Tie> {
    if a.cpus.intersects(&b.cpus) {
        return Some(Tie::Cpu);
    }
    if around(topology, Level::Core, &a.cpus).intersects(&b.cpus) {
        return Some(Tie::Core);
    }
    if around(topology, Level::L3, &a.cpus).intersects(&b.cpus) {
        return Some(Tie::L3);
    }
    let nodes = |it: &Resident| topology.nodes_of(&it.cpus).union(&it.mems);
    nodes(a).intersects(&nodes(b)).then_some(Tie::Node)
}

/// The correlation of pairs, -1 to 1; `None` where one side does not change.
fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean = |side: fn(&(f64, f64)) -> f64| pairs.iter().map(side).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (a, b) in pairs {
        xx += (a - x) * (a - x);
        yy += (b - y) * (b - y);
        xy += (a - x) * (b - y);
    }
    let scale = (xx * yy).sqrt();
    let correlation = xy / scale;
    (scale > 0.0 && correlation.is_finite()).then_some(correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the other rises with the trouble, of rounds as trouble and activity with a limit of 1; and their correlation in tenths.
    fn check(rounds: &[(f64, f64)], is_rising: bool, correlation: Option<f64>) {
        assert_eq!(rises(rounds, 1.0), is_rising);
        assert_eq!(pearson(rounds).map(|it| (it * 10.0).round() / 10.0), correlation);
    }

    #[test]
    fn activity_that_comes_with_the_trouble_rises() {
        let rounds = [(0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (2.0, 4.0), (2.0, 4.0), (2.0, 4.0)];
        check(&rounds, true, Some(1.0));
    }

    #[test]
    fn activity_that_was_there_before_does_not() {
        let rounds = [(0.5, 3.5), (0.5, 3.5), (0.5, 3.5), (2.0, 4.0), (2.0, 4.0), (2.0, 4.0)];
        check(&rounds, false, Some(1.0));
    }

    #[test]
    fn activity_that_goes_when_the_trouble_comes_does_not() {
        let rounds = [(0.5, 4.0), (0.5, 4.0), (0.5, 4.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0)];
        check(&rounds, false, Some(-1.0));
    }

    #[test]
    fn too_few_rounds_of_one_kind_say_nothing() {
        check(&[(0.5, 1.0), (0.5, 1.0), (2.0, 4.0), (2.0, 4.0), (2.0, 4.0)], false, Some(1.0));
    }

    #[test]
    fn far_memory_costs_what_its_misses_take_of_the_cycles() {
        let sample = |far_memory, cache_misses, cycles_per_instruction| Sample {
            far_memory,
            cache_misses,
            cycles_per_instruction,
            ..Sample::default()
        };
        for (given, cost) in [
            (sample(Some(0.5), Some(8.0), Some(2.0)), Some(0.26)),
            (sample(Some(1.0), Some(100.0), Some(0.5)), Some(1.0)),
            (sample(Some(0.5), None, Some(2.0)), None),
            (sample(None, Some(8.0), Some(2.0)), None),
            (sample(Some(0.0), Some(0.0), Some(0.0)), None),
        ] {
            assert_eq!(far_cost(&given), cost, "{given:?}");
        }
    }

    #[test]
    fn what_does_not_change_has_no_correlation() {
        check(&[(2.0, 1.0); 6], false, None);
        check(&[], false, None);
        check(&[(f64::INFINITY, 1.0), (0.0, 2.0)], false, None);
    }

    #[test]
    fn a_suspect_that_does_little_of_what_the_worst_of_its_tie_does_is_left_out() {
        let culprit = |id, tie, magnitude| Culprit {
            tie,
            correlation: 0.0,
            class: Reverse(QosClass::BestEffort),
            magnitude,
            container: ContainerId(id),
        };
        let all = vec![
            culprit(2, Tie::Cpu, 10.0),
            culprit(3, Tie::Cpu, 1.9),
            culprit(4, Tie::Cpu, 2.1),
            culprit(5, Tie::L3, 0.1),
        ];
        let left: Vec<u64> = only_the_great(all).iter().map(|it| it.container.0).collect();
        assert_eq!(left, [2, 4, 5]);
    }
}
