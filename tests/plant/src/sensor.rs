//! From what is to what is measured: noise, samples that are lost, counters that do not exist, and sensors that lie.

use std::time::Duration;

use bayplan_allocator::ContainerId;

use super::random::{Use, normal, uniform};
use bayplan_rebalance::{Migrations, Sample};

/// How well one can see.
#[derive(Clone, Debug)]
pub struct Sensor {
    /// Deviation of every number, as a share of it; 0.05 is what the same program shows from one period to the next, as an assumption.
    pub noise: f64,
    /// Probability that one container's sample is missing.
    pub lost: f64,
    /// Probability that a round has no samples at all.
    pub lost_rounds: f64,
    /// Whether there are hardware counters and resctrl monitoring. Many virtual machines have none.
    pub counters: bool,
    /// Whether probes measure delays and preemptions.
    pub probes: bool,
    /// Wrong readings.
    pub lies: Vec<Lie>,
}

/// A container with a sample that is wrong for a while.
#[derive(Clone, Debug)]
pub struct Lie {
    /// The container.
    pub about: ContainerId,
    /// From when.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    /// What is made of the right sample.
    pub change: fn(&mut Sample),
}

impl Default for Sensor {
    fn default() -> Sensor {
        Sensor {
            noise: 0.05,
            lost: 0.0,
            lost_rounds: 0.0,
            counters: true,
            probes: true,
            lies: Vec::new(),
        }
    }
}

impl Sensor {
    /// What is measured of a container; `None` where its sample is lost.
    pub(super) fn measure(
        &self,
        container: ContainerId,
        at: Duration,
        mut sample: Sample,
        seed: u64,
    ) -> Option<Sample> {
        let when = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        if uniform(seed, Use::LostRound, 0, when) < self.lost_rounds
            || uniform(seed, Use::Lost, container.0, when) < self.lost
        {
            return None;
        }
        let mut field = 0;
        let mut noisy = |value: f64| {
            field += 1;
            value * (self.noise * normal(seed, container.0 * 64 + field, when)).exp()
        };
        sample.cpus = noisy(sample.cpus);
        sample.delay_p99 =
            sample.delay_p99.map(|delay| Duration::from_secs_f64(noisy(delay.as_secs_f64())));
        for value in [
            &mut sample.waiting,
            &mut sample.preempted,
            &mut sample.cycles_per_instruction,
            &mut sample.cache_misses,
            &mut sample.memory_bandwidth,
            &mut sample.cache_bytes,
        ] {
            *value = value.map(&mut noisy);
        }
        sample.migrations = sample.migrations.map(|it| Migrations {
            within_cache: noisy(it.within_cache),
            within_node: noisy(it.within_node),
            across_nodes: noisy(it.across_nodes),
        });
        for share in [&mut sample.throttled, &mut sample.cpu_pressure] {
            *share = share.map(|share| noisy(share).min(1.0));
        }
        if !self.counters {
            sample.cycles_per_instruction = None;
            sample.cache_misses = None;
            sample.memory_bandwidth = None;
            sample.cache_bytes = None;
        }
        if !self.probes {
            sample.waiting = None;
            sample.delay_p99 = None;
            sample.preempted = None;
            sample.migrations = None;
        }
        let lies = self.lies.iter().filter(|lie| lie.about == container);
        for lie in lies.filter(|lie| (lie.from..lie.until).contains(&at)) {
            (lie.change)(&mut sample);
        }
        Some(sample)
    }
}
