//! The last rounds of all containers. In: rounds as they come. Out: series, newest first, with a hole where nothing was measured.
//!
//! What cannot be true (not a number, negative, more than the machine has) is a hole, so that it is never compared with anything. The memory is
//! bounded: as many rounds as are asked for, of the containers that are in the scene.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bayplan_allocator::ContainerId;

use crate::sample::{Round, Sample};
use crate::scene::Scene;

/// No counter of one container reaches this: an exabyte per second, or as many preemptions.
const BELIEVABLE_MAX: f64 = 1e18;

/// A round says what came of a change unless more than this part of it was before that: one in so many.
const BEFORE_PART: u32 = 10;

/// After this time a peak counts as half of what it was.
const PEAK_HALVES: Duration = Duration::from_secs(600);

/// The last rounds of all containers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// Ends of the rounds, newest first; with those that were left out.
    ends: VecDeque<Duration>,
    tracks: BTreeMap<ContainerId, VecDeque<Option<Sample>>>,
    /// The most CPUs that each kept busy in a round; what is long ago fades.
    peaks: BTreeMap<ContainerId, f64>,
}

impl Windows {
    /// Takes a round in, and keeps the last `depth` of them. `false` where the clock has not moved: then nothing is taken.
    pub(crate) fn take(&mut self, scene: &Scene, round: &Round, depth: usize) -> bool {
        if self.ends.front().is_some_and(|last| round.at <= *last) {
            return false;
        }
        self.note_peaks(scene, round);
        for at in self.left_out(round, depth) {
            self.ends.push_front(at);
            self.tracks.values_mut().for_each(|track| track.push_front(None));
        }
        self.ends.push_front(round.at);
        self.ends.truncate(depth);
        self.tracks.retain(|id, _| scene.residents.contains_key(id));
        let cpus_max = scene.topology.cpus().len() as f64;
        for id in scene.residents.keys() {
            let track = self.tracks.entry(*id).or_default();
            track.push_front(round.samples.get(id).and_then(|sample| believable(sample, cpus_max)));
            track.truncate(depth);
        }
        true
    }

    fn note_peaks(&mut self, scene: &Scene, round: &Round) {
        let elapsed = self.ends.front().map_or(round.period, |last| round.at - *last);
        let fades = 0.5_f64.powf(elapsed.as_secs_f64() / PEAK_HALVES.as_secs_f64());
        let cpus_max = scene.topology.cpus().len() as f64;
        self.peaks.retain(|id, _| scene.residents.contains_key(id));
        self.peaks.values_mut().for_each(|peak| *peak *= fades);
        for id in scene.residents.keys() {
            let sample = round.samples.get(id).and_then(|it| believable(it, cpus_max));
            let peak = self.peaks.entry(*id).or_default();
            *peak = peak.max(sample.map_or(0.0, |it| it.cpus));
        }
    }

    /// The most CPUs that a container kept busy lately: of one that comes and goes, while it rests, too.
    pub(crate) fn peak(&self, id: ContainerId) -> f64 {
        self.peaks.get(&id).copied().unwrap_or(0.0)
    }

    /// Rounds that should have come before this one, oldest first.
    fn left_out(&self, round: &Round, depth: usize) -> Vec<Duration> {
        let Some(last) = self.ends.front().copied().filter(|_| !round.period.is_zero()) else {
            return Vec::new();
        };
        // The last `depth` of them are enough: all older rounds are pushed out.
        let mut missing = Vec::new();
        let mut at = round.at.saturating_sub(round.period);
        while at > last + round.period / 2 && missing.len() < depth {
            missing.push(at);
            at = at.saturating_sub(round.period);
        }
        missing.reverse();
        missing
    }

    /// Samples of one container, newest first, of rounds that ended after `since`.
    pub(crate) fn of(
        &self,
        id: ContainerId,
        since: Duration,
    ) -> impl Iterator<Item = Option<&Sample>> {
        let track = self.tracks.get(&id).into_iter().flatten();
        self.ends
            .iter()
            .zip(track)
            .take_while(move |(at, _)| **at > since)
            .map(|(_, it)| it.as_ref())
    }

    /// Samples of one container, newest first, of rounds of which at most a tenth was before `since`.
    pub(crate) fn after(
        &self,
        id: ContainerId,
        since: Duration,
    ) -> impl Iterator<Item = Option<&Sample>> {
        let track = self.tracks.get(&id).into_iter().flatten();
        let begins = self.ends.iter().skip(1);
        self.ends
            .iter()
            .zip(begins)
            .zip(track)
            .take_while(move |((end, begin), _)| {
                since.saturating_sub(**begin) <= end.saturating_sub(**begin) / BEFORE_PART
            })
            .map(|(_, it)| it.as_ref())
    }

    /// Samples of one container, newest first, of rounds that ended at `until` or before.
    pub(crate) fn until(
        &self,
        id: ContainerId,
        until: Duration,
    ) -> impl Iterator<Item = Option<&Sample>> {
        let track = self.tracks.get(&id).into_iter().flatten();
        let rounds = self.ends.iter().zip(track);
        rounds.skip_while(move |(at, _)| **at > until).map(|(_, it)| it.as_ref())
    }

    /// How many rounds have ended after `since`, as far back as there are any.
    pub(crate) fn count_since(&self, since: Duration) -> usize {
        self.ends.iter().take_while(|at| **at > since).count()
    }

    /// Its last sample, if it is of the last round.
    pub(crate) fn last(&self, id: ContainerId) -> Option<&Sample> {
        self.latest(id, 1)
    }

    /// Its last sample of so many rounds, whichever of them could be read.
    pub(crate) fn latest(&self, id: ContainerId, rounds: usize) -> Option<&Sample> {
        self.tracks.get(&id)?.iter().take(rounds).flatten().next()
    }

    /// How many rounds it was there for.
    pub(crate) fn len_of(&self, id: ContainerId) -> usize {
        self.tracks.get(&id).map_or(0, VecDeque::len)
    }

    /// Of the containers that are there, more than half could not be read in the last round.
    pub(crate) fn is_blind(&self) -> bool {
        let missing =
            self.tracks.values().filter(|track| track.front().is_none_or(Option::is_none));
        missing.count() * 2 > self.tracks.len()
    }
}

/// The sample without what cannot be true; `None` where its CPU time cannot, because nothing can be related to it then.
fn believable(sample: &Sample, cpus_max: f64) -> Option<Sample> {
    // Counters of several CPUs are not read at one moment, so that a little more than there is occurs.
    if !(0.0..=cpus_max * 1.1 + 0.1).contains(&sample.cpus) {
        return None;
    }
    let share =
        |value: Option<f64>| value.filter(|it| (0.0..=1.1).contains(it)).map(|it| it.min(1.0));
    let amount = |value: Option<f64>| value.filter(|it| (0.0..BELIEVABLE_MAX).contains(it));
    Some(Sample {
        cpus: sample.cpus,
        waiting: amount(sample.waiting),
        delay_p99: sample.delay_p99,
        preempted: amount(sample.preempted),
        migrations: sample.migrations.filter(|it| {
            let all = [it.within_cache, it.within_node, it.across_nodes];
            all.iter().all(|rate| amount(Some(*rate)).is_some())
        }),
        throttled: share(sample.throttled),
        cpu_pressure: share(sample.cpu_pressure),
        far_memory: share(sample.far_memory),
        cycles_per_instruction: amount(sample.cycles_per_instruction),
        cache_misses: amount(sample.cache_misses),
        memory_bandwidth: amount(sample.memory_bandwidth),
        cache_bytes: amount(sample.cache_bytes),
        clock: amount(sample.clock),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::harness::parse_scene;

    const SCENE: &str = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        a burstable 0-3
        b burstable 0-3
    ";
    const A: ContainerId = ContainerId(1);

    /// The CPUs of `a`, newest first, after rounds at these seconds.
    fn check(rounds: &[(u64, Option<f64>)], expected: &[Option<f64>]) {
        let (scene, _) = parse_scene(SCENE);
        let mut windows = Windows::default();
        for (at, cpus) in rounds {
            let sample = cpus.map(|cpus| (A, Sample { cpus, ..Sample::default() }));
            let (at, period) = (Duration::from_secs(*at), Duration::from_secs(5));
            let round = Round { at, period, samples: sample.into_iter().collect() };
            windows.take(&scene, &round, 4);
        }
        let cpus: Vec<Option<f64>> =
            windows.of(A, Duration::ZERO).map(|it| it.map(|sample| sample.cpus)).collect();
        assert_eq!(cpus, expected);
    }

    #[test]
    fn the_last_rounds_are_kept() {
        let rounds: Vec<_> = (1..=9).map(|n| (5 * n, Some(n as f64 / 10.0))).collect();
        check(&rounds, &[Some(0.9), Some(0.8), Some(0.7), Some(0.6)]);
    }

    #[test]
    fn a_container_that_was_not_measured_has_a_hole() {
        check(&[(5, Some(1.0)), (10, None), (15, Some(2.0))], &[Some(2.0), None, Some(1.0)]);
    }

    #[test]
    fn a_round_that_never_came_is_a_hole() {
        check(&[(5, Some(1.0)), (20, Some(2.0))], &[Some(2.0), None, None, Some(1.0)]);
        check(&[(5, Some(1.0)), (5_000_000, Some(2.0))], &[Some(2.0), None, None, None]);
        check(&[(5, Some(1.0)), (11, Some(2.0))], &[Some(2.0), Some(1.0)]);
    }

    /// The rounds of `a` by their ends that say what came of a change at so many milliseconds.
    fn check_after(since_ms: u64, expected: &[f64]) {
        let (scene, _) = parse_scene(SCENE);
        let mut windows = Windows::default();
        for end in [5_u64, 10, 15, 20] {
            let samples = [(A, Sample { cpus: end as f64 / 10.0, ..Sample::default() })].into();
            let (at, period) = (Duration::from_secs(end), Duration::from_secs(5));
            windows.take(&scene, &Round { at, period, samples }, 9);
        }
        let after = windows.after(A, Duration::from_millis(since_ms));
        let cpus: Vec<f64> = after.flatten().map(|it| it.cpus).collect();
        assert_eq!(cpus, expected, "{since_ms} ms");
    }

    #[test]
    fn a_round_that_was_partly_before_a_change_says_nothing_of_it() {
        check_after(10_000, &[2.0, 1.5]);
        check_after(10_500, &[2.0, 1.5]);
        check_after(10_501, &[2.0]);
        check_after(14_999, &[2.0]);
        check_after(20_000, &[]);
        check_after(99_000, &[]);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_brings_nothing() {
        check(&[(5, Some(1.0)), (5, Some(2.0)), (3, Some(3.0))], &[Some(1.0)]);
    }

    #[test]
    fn what_cannot_be_is_a_hole() {
        let cpus = [f64::NAN, f64::INFINITY, -0.1, 5.0].map(Some);
        let rounds: Vec<_> = (1..).map(|n| 5 * n).zip(cpus).collect();
        check(&rounds, &[None, None, None, None]);
    }

    #[test]
    fn one_field_that_cannot_be_leaves_the_others() {
        let sample = Sample {
            cpus: 1.0,
            cpu_pressure: Some(7.0),
            throttled: Some(1.05),
            waiting: Some(-1.0),
            memory_bandwidth: Some(1e30),
            cache_misses: Some(3.0),
            ..Sample::default()
        };
        let kept = believable(&sample, 4.0).unwrap();
        let expected = Sample {
            cpus: 1.0,
            throttled: Some(1.0),
            cache_misses: Some(3.0),
            ..Sample::default()
        };
        assert_eq!(kept, expected);
    }
}
