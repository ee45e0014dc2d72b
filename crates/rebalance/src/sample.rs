//! What was measured, in one vocabulary for every source.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_allocator::ContainerId;

/// Times per second that a task of a container went to another CPU, by what the two CPUs have in common. The nearest that holds counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Migrations {
    /// A core, or a last-level cache.
    pub within_cache: f64,
    /// A NUMA node, and not a cache.
    pub within_node: f64,
    /// Neither.
    pub across_nodes: f64,
}

impl Migrations {
    /// Those after which the cache has nothing of what the task had used.
    pub fn to_cold_caches(&self) -> f64 {
        self.within_node + self.across_nodes
    }
}

/// One container over one period. What the machine, the kernel or a switched-off probe does not tell is `None`, and never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// CPUs that it kept busy on average.
    pub cpus: f64,
    /// Tasks that could have run and had no CPU, on average.
    pub waiting: Option<f64>,
    /// 99 of 100 runs began after at most this delay.
    pub delay_p99: Option<Duration>,
    /// Times per second that a task left a CPU for another container's.
    pub preempted: Option<f64>,
    /// How often its tasks went to other CPUs.
    pub migrations: Option<Migrations>,
    /// Share of the time, 0 to 1, that it was stopped by its own CPU limit.
    pub throttled: Option<f64>,
    /// Share of the time, 0 to 1, that some task waited for a CPU (PSI `cpu`, "some").
    pub cpu_pressure: Option<f64>,
    /// Share of its memory, 0 to 1, on nodes that are not its own.
    pub far_memory: Option<f64>,
    /// Cycles per instruction.
    pub cycles_per_instruction: Option<f64>,
    /// Misses of the last-level cache per thousand instructions.
    pub cache_misses: Option<f64>,
    /// Bytes per second to and from memory.
    pub memory_bandwidth: Option<f64>,
    /// Bytes in the last-level cache.
    pub cache_bytes: Option<f64>,
    /// Other containers with wide vectors that would share its clock less, or more where they are squeezed, in a better clock domain; of those only that have a strategy.
    pub clock: Option<f64>,
}

impl Sample {
    /// CPUs that it would keep busy if it had them.
    pub(crate) fn wanted(&self) -> f64 {
        self.cpus + self.waiting.unwrap_or(0.0)
    }
}

/// All containers over one period. One that is missing could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Its end, on a clock that never goes back, from any beginning.
    pub at: Duration,
    /// Its length.
    pub period: Duration,
    /// By container.
    pub samples: BTreeMap<ContainerId, Sample>,
}

/// What may show that a container suffers. Greater is worse for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Tasks that wait for a CPU, per CPU that is busy.
    Waiting,
    /// The 99th percentile of the delay, in seconds.
    Delay,
    /// Preemptions by others per second and busy CPU.
    Preempted,
    /// Migrations of tasks to other last-level caches per second and busy CPU.
    Migrations,
    /// Share of time stopped by its own limit.
    Throttled,
    /// Share of time that some task waited for a CPU.
    CpuPressure,
    /// Share of memory elsewhere.
    FarMemory,
    /// Cycles per instruction.
    CyclesPerInstruction,
    /// Last-level cache misses per thousand instructions.
    CacheMisses,
    /// Containers with wide vectors by which another clock domain is better. It is no suffering, and no baseline knows it.
    Clock,
}

impl Signal {
    /// All of them, in the order in which they are told.
    pub const ALL: [Signal; 10] = [
        Signal::Waiting,
        Signal::Delay,
        Signal::Preempted,
        Signal::Migrations,
        Signal::Throttled,
        Signal::CpuPressure,
        Signal::FarMemory,
        Signal::CyclesPerInstruction,
        Signal::CacheMisses,
        Signal::Clock,
    ];

    /// One word, for metrics, logs and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Waiting => "waiting",
            Signal::Delay => "delay",
            Signal::Preempted => "preempted",
            Signal::Migrations => "migrations",
            Signal::Throttled => "throttled",
            Signal::CpuPressure => "cpu-pressure",
            Signal::FarMemory => "far-memory",
            Signal::CyclesPerInstruction => "cycles-per-instruction",
            Signal::CacheMisses => "cache-misses",
            Signal::Clock => "clock",
        }
    }

    /// Its value in a sample; `None` where it was not measured, and where nothing ran that it could be related to.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let per_busy_cpu = |value: f64| (sample.cpus > 0.0).then(|| value / sample.cpus);
        match self {
            Signal::Waiting => sample.waiting.and_then(per_busy_cpu),
            Signal::Delay => sample.delay_p99.map(|delay| delay.as_secs_f64()),
            Signal::Preempted => sample.preempted.and_then(per_busy_cpu),
            Signal::Migrations => {
                sample.migrations.and_then(|it| per_busy_cpu(it.to_cold_caches()))
            }
            Signal::Throttled => sample.throttled,
            Signal::CpuPressure => sample.cpu_pressure,
            Signal::FarMemory => sample.far_memory,
            Signal::CyclesPerInstruction => sample.cycles_per_instruction,
            Signal::CacheMisses => sample.cache_misses,
            Signal::Clock => sample.clock,
        }
    }
}
