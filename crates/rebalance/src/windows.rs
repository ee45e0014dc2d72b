//! The last rounds of everybody. In: rounds as they come. Out: series, newest first, with a hole where nothing was measured.
//!
//! What cannot be true (not a number, negative, more than the machine has) is a hole, so that it is never compared with anything. The memory is bounded: as many
//! rounds as are asked for, of those who are in the scene.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bayplan_allocator::ContainerId;

use crate::sample::{Round, Sample};
use crate::scene::Scene;

/// No counter of one container reaches this: an exabyte per second, or as many preemptions.
const BELIEVABLE_MAX: f64 = 1e18;

/// The last rounds of everybody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// Ends of the rounds, newest first; with those that were left out.
    ends: VecDeque<Duration>,
    tracks: BTreeMap<ContainerId, VecDeque<Option<Sample>>>,
}

impl Windows {
    /// Takes a round in, and keeps the last `depth` of them. `false` where the clock has not moved: then nothing is taken.
    pub(crate) fn take(&mut self, scene: &Scene, round: &Round, depth: usize) -> bool {
        if self.ends.front().is_some_and(|last| round.at <= *last) {
            return false;
        }
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

    /// Its last sample.
    pub(crate) fn last(&self, id: ContainerId) -> Option<&Sample> {
        self.tracks.get(&id)?.front()?.as_ref()
    }

    /// How many rounds it was there for.
    pub(crate) fn len_of(&self, id: ContainerId) -> usize {
        self.tracks.get(&id).map_or(0, VecDeque::len)
    }

    /// Of those who are there, more than half could not be read in the last round.
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
        throttled: share(sample.throttled),
        cpu_pressure: share(sample.cpu_pressure),
        memory_pressure: share(sample.memory_pressure),
        io_pressure: share(sample.io_pressure),
        far_memory: share(sample.far_memory),
        cycles_per_instruction: amount(sample.cycles_per_instruction),
        cache_misses: amount(sample.cache_misses),
        memory_bandwidth: amount(sample.memory_bandwidth),
        cache_bytes: amount(sample.cache_bytes),
    })
}
