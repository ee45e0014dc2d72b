//! A container as it is: what it wants, what it does to others, and what hurts it.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::time::Duration;

use bayplan_types::{CpuClass, CpuSet, NodeSet, QosClass};

use super::random::{Use, uniform};
use bayplan_rebalance::Knob;
use bayplan_rebalance::Mode;

/// One container.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// `namespace/pod/container`.
    pub name: String,
    /// Its pod's QoS class.
    pub qos: QosClass,
    /// Class of its CPUs; `Exclusive` means that it owns all of `cpus`.
    pub class: CpuClass,
    /// Where it may run.
    pub cpus: CpuSet,
    /// Where its memory is, in equal parts; empty where there are no NUMA nodes.
    pub mems: NodeSet,
    /// `cpu.weight`, 1 to 10000; cgroup-v2.rst, "CPU Interface Files".
    pub weight: f64,
    /// `cpu.max`, in CPUs.
    pub limit: Option<f64>,
    /// What its CPU time is spent on.
    pub work: Work,
    /// What it does when, in order of time; the last that has begun counts.
    pub acts: Vec<Act>,
    /// After this time the acts begin anew.
    pub cycle: Option<Duration>,
    /// How much demand wanders by chance around what the act says, as a share of it.
    pub wander: f64,
    /// Times per second and busy CPU that a thread wakes up somewhere else among its CPUs.
    pub hops: f64,
    /// From when they do.
    pub hops_from: Duration,
    /// How far one may go with it.
    pub mode: Mode,
    /// Knobs that exist for it.
    pub knobs: BTreeSet<Knob>,
}

/// What CPU time is spent on.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Threads that always have something to do; demand is their number.
    Batch,
    /// Requests that come by chance; demand is how many CPUs they would keep busy if nothing disturbed them.
    Service {
        /// CPU time of a request on average, undisturbed.
        request: Duration,
    },
}

/// A stretch of a container's life.
#[derive(Clone, Debug)]
pub struct Act {
    /// When it begins.
    pub from: Duration,
    /// How much it wants.
    pub demand: Demand,
    /// How it uses caches and memory.
    pub nature: Nature,
}

/// CPUs wanted over time.
#[derive(Clone, Copy, Debug)]
pub enum Demand {
    /// Always as many.
    Constant(f64),
    /// Many, then few, for equal times.
    OnOff {
        /// CPUs in the first half of the period.
        high: f64,
        /// CPUs in the second.
        low: f64,
        /// Of both.
        period: Duration,
    },
    /// Up and down as a sine does.
    Wave {
        /// CPUs on average.
        mean: f64,
        /// CPUs that it goes above and below.
        swing: f64,
        /// From crest to crest.
        period: Duration,
    },
}

impl Demand {
    fn at(self, time: Duration) -> f64 {
        let turns = |period: Duration| time.as_secs_f64() / period.as_secs_f64();
        match self {
            Demand::Constant(cpus) => cpus,
            Demand::OnOff { high, low, period } => {
                if turns(period).fract() < 0.5 {
                    high
                } else {
                    low
                }
            }
            Demand::Wave { mean, swing, period } => mean + swing * (TAU * turns(period)).sin(),
        }
    }
}

/// How a program uses core, cache and memory. Misses follow the power law of cache size between its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nature {
    /// Cycles per instruction without any miss of the last-level cache.
    pub cycles: f64,
    /// Misses per 1000 instructions with [`Nature::MISSES_AT`] of last-level cache.
    pub misses: f64,
    /// How fast misses fall with size, as a negative power.
    pub exponent: f64,
    /// MiB from which more cache does not help.
    pub working_set: f64,
    /// Misses per 1000 instructions that no cache avoids.
    pub cold: f64,
    /// Misses that are under way at the same time.
    pub overlap: f64,
}

impl Nature {
    /// MiB of last-level cache for which [`Nature::misses`] is told.
    pub const MISSES_AT: f64 = 2.0;

    /// A server of requests: a few MiB of cache help, misses wait for each other (Ferdman et al., ASPLOS 2012, on scale-out workloads).
    pub const SERVER: Nature = Nature {
        cycles: 1.0,
        misses: 6.0,
        exponent: 0.5,
        working_set: 8.0,
        cold: 1.0,
        overlap: 1.5,
    };
    /// Computes in registers and the first caches.
    pub const COMPUTE: Nature = Nature {
        cycles: 0.6,
        misses: 0.1,
        exponent: 0.5,
        working_set: 1.0,
        cold: 0.05,
        overlap: 2.0,
    };
    /// Reads more than any cache holds, one line after the other, as STREAM does: prefetched, hence many misses at once.
    pub const STREAM: Nature = Nature {
        cycles: 0.5,
        misses: 40.0,
        exponent: 0.0,
        working_set: 4096.0,
        cold: 40.0,
        overlap: 8.0,
    };
    /// Jumps about in more than the cache holds, as `mcf` of SPEC CPU does.
    pub const SCATTER: Nature = Nature {
        cycles: 0.8,
        misses: 30.0,
        exponent: 0.5,
        working_set: 256.0,
        cold: 2.0,
        overlap: 2.0,
    };

    /// Misses per 1000 instructions with so many MiB of cache.
    pub(super) fn misses_with(&self, cache: f64) -> f64 {
        // Below this the first two caches of a core hold as much.
        let cache = cache.clamp(0.25, self.working_set.max(0.25));
        let law = |size: f64| (Nature::MISSES_AT / size).powf(self.exponent);
        self.cold
            + (self.misses - self.cold).max(0.0) * (law(cache) - law(self.working_set)).max(0.0)
    }
}

impl Tenant {
    /// What it does at a time.
    pub(super) fn act(&self, at: Duration) -> Option<&Act> {
        let at = self.in_cycle(at);
        self.acts.iter().rev().find(|act| act.from <= at)
    }

    /// CPUs that it wants at a time; `id` and `seed` choose how it wanders.
    pub(super) fn demand(&self, at: Duration, id: u64, seed: u64) -> f64 {
        let Some(act) = self.act(at) else { return 0.0 };
        let demand = act.demand.at(self.in_cycle(at).saturating_sub(act.from));
        (demand * (1.0 + self.wander * wander(at, id, seed))).max(0.0)
    }

    fn in_cycle(&self, at: Duration) -> Duration {
        let Some(cycle) = self.cycle.filter(|cycle| !cycle.is_zero()) else { return at };
        Duration::from_secs_f64(at.as_secs_f64() % cycle.as_secs_f64())
    }
}

/// -1 to 1, slowly: a new value each half a minute, with a straight line between.
fn wander(at: Duration, id: u64, seed: u64) -> f64 {
    const KNOT_S: u64 = 30;
    let knot = |number| 2.0 * uniform(seed, Use::Wander, id, number) - 1.0;
    let (number, part) = (at.as_secs() / KNOT_S, at.as_secs_f64() / KNOT_S as f64);
    let part = part.fract();
    knot(number) * (1.0 - part) + knot(number + 1) * part
}
