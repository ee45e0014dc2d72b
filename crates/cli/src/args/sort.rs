//! What the rows of `bayplan top` are sorted by.

use clap::ValueEnum;

/// What rows are sorted by; the largest come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// CPUs used
    Cpu,
    /// Share of the periods in which its limit stopped it
    Throttled,
    /// Tasks that wait for a CPU
    Waiting,
    /// 99th percentile of the time that they wait
    Delay,
    /// Share of the time of its own CPUs that others took
    Taken,
    /// Times that it had to leave a CPU
    Preempted,
    /// Moves to other CPUs
    Moves,
    /// Cycles per instruction
    Cpi,
    /// Cache misses per thousand instructions
    Misses,
    /// Time that it stood still for lack of CPU time
    StallCpu,
    /// For lack of memory
    StallMemory,
    /// For lack of block I/O
    StallIo,
    /// Bytes from and to block devices
    Io,
    /// Bytes of the last-level caches that it has
    Cache,
    /// Bytes between caches and memory
    Traffic,
    /// Share of its memory on other NUMA nodes
    Far,
    /// Share of its threads that use AVX-512
    Avx512,
    /// Namespace, pod and container
    Name,
}
