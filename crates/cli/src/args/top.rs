//! Arguments of `bayplan top`.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::shared::{ControlOptions, OutputOptions};
use super::sort::Sort;

#[derive(Debug, ClapArgs)]
pub(crate) struct TopOptions {
    /// Show so many containers [default: all that fit the terminal]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = parse_rows)]
    pub(crate) number: Option<usize>,
    /// Time between two readings
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_delay)]
    pub(crate) delay: Duration,
    /// What comes first
    #[arg(short, long, value_enum, value_name = "COLUMN", default_value_t = Sort::Cpu)]
    pub(crate) sort: Sort,
    /// Print one table, after one delay, and end
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What the columns mean.
pub(super) const TOP_HELP: &str = "\
CLASS      exclusive (it has exclusive CPUs), shared or reserved
CPU        CPUs that it used on average since the last reading: 1.50 is one and a half
THROTTLED  of the periods since then in which it ran, those in which its limit stopped it; `-` without a limit
WAITING    tasks that could have run and had no CPU, on average of the last five seconds: as much as CPU means half of what it wants
DELAY P99  99 of 100 runs of the last minute began after at most this
TAKEN      of the last minute's time of the CPUs that it owns, that in which others ran there (`bayplan audit CONTAINER` names them)
PREEMPTED/s  times that it had to leave a CPU and could have gone on, over the last minute (`bayplan audit CONTAINER` says for what)
MOVES/s    moves of its tasks to another CPU, in the last five seconds
CPI        cycles per instruction over the last minute: more than usual means that it waits for caches and memory
MISSES     cache misses per thousand instructions over the last minute
.. STALL   time since the last reading in which some of its tasks stood still for lack of CPU time, memory, or block I/O (PSI)
IO MB/s    read from and written to block devices since the last reading
FAR        share of its memory that is on NUMA nodes that it is not to use
CPUS       every CPU that it may run on

`-` stands for what is not known yet or cannot be read. A column of which nothing is known is not there: WAITING, DELAY, TAKEN, PREEMPTED and MOVES need
probes, CPI and MISSES also a processor that shows its counters, STALL, IO and FAR cgroup v2. JSON has everything, null for what is not known: `cpu_usage` in CPUs,
`throttled`, `stalled` (`cpu`, `memory`, `io`) and `memory_far` from 0 to 1, `waiting`, `run_delay_p99_seconds`, `preemptions` and `migrations` per second, `io_bytes` per second,
`cycles_per_instruction` and `cache_misses`.";

fn parse_rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| *rows > 0);
    rows.ok_or_else(|| "expected a number of containers, at least 1".to_owned())
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|it| (0.1..=3600.0).contains(it));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds from 0.1 to 3600".to_owned())
}
