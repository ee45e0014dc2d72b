//! Probes: what really happens to each container, counted in the kernel. In: a topology, and which cgroups to watch and which CPUs
//! they own. Out: a [`Drain`] of counters per container and, for every owned CPU, what else ran there.
//!
//! Two programs see every switch and every move of a task (`bpf/scheduler.h`), the first of them reads the processor's counters (`bpf/events.h`),
//! others see interrupts on exclusive CPUs (`bpf/interrupts.h`). They need `CAP_BPF` and `CAP_PERFMON` and a kernel from 5.16 on with type
//! information (BTF); what cannot be attached is told once, with the reason and what would mend it. Nothing is pinned: when the process ends, the
//! kernel takes everything away.

mod audit;
mod cost;
mod counting;
mod events;
mod intruder;
mod last_level;
mod places;
mod pmu;
mod probes;
mod programs;
mod rates;
mod records;
mod refusal;

pub use audit::Intrusions;
pub use cost::{Cost, Meter};
pub use events::{CounterChoice, CounterStream, Event, EventCounts};
pub use intruder::{CgroupId, Identity, Intruder, Intrusion, Kind, Softirq, Vector};
pub use probes::{Drain, Probe, ProbeError, ProbeState, Probes};
pub use rates::{Rates, rates_between};
pub use records::{Counters, Distance, Preempter, delay_bucket_ends};
pub use refusal::Refusal;
