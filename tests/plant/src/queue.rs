//! How long requests wait: a queue with several servers (M/M/c) for what a service does to itself, and time slices for what others do to it.

use std::time::Duration;

/// Clients give up after so long; nothing waits longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The probability that a request has to wait, by Erlang's C formula, with `load` from 0 to 1 on each of `servers`.
pub(super) fn erlang_c(servers: usize, load: f64) -> f64 {
    let load = load.clamp(0.0, 1.0);
    let offered = load * servers as f64;
    let blocked = (1..=servers)
        .fold(1.0, |blocked, server| offered * blocked / (server as f64 + offered * blocked));
    blocked / (1.0 - load * (1.0 - blocked))
}

/// What a service asks of its servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// CPUs that it may use.
    pub(super) servers: usize,
    /// CPUs that its requests would keep busy.
    pub(super) offered: f64,
    /// CPUs that it can get in all.
    pub(super) capacity: f64,
    /// CPU time of a request, in seconds.
    pub(super) request: f64,
}

impl Queue {
    fn load(&self) -> f64 {
        if self.capacity > 0.0 { (self.offered / self.capacity).min(1.0) } else { 1.0 }
    }

    /// Seconds that 99 of 100 requests wait at most: the wait is exponential with probability C, and nought otherwise.
    pub(super) fn wait_p99(&self) -> f64 {
        let waits = erlang_c(self.servers, self.load());
        let drain = (self.capacity - self.offered) / self.request;
        if drain <= 0.0 {
            return PATIENCE.as_secs_f64();
        }
        ((waits / 0.01).ln().max(0.0) / drain).min(PATIENCE.as_secs_f64())
    }

    /// Requests that wait, on average.
    pub(super) fn waiting(&self) -> f64 {
        let load = self.load();
        let most = PATIENCE.as_secs_f64() * self.offered / self.request;
        let waiting = erlang_c(self.servers, load) * load / (1.0 - load);
        if waiting.is_finite() { waiting.min(most) } else { most }
    }
}

/// Seconds that 99 of 100 wait at most, where a wait happens with `probability` and is exponential with this mean.
pub(super) fn exponential_p99(probability: f64, mean: f64) -> f64 {
    if probability > 0.01 { mean * (probability / 0.01).ln() } else { 0.0 }
}

/// What a CPU limit does to requests that stay below it on average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    /// Share of the time that it is stopped.
    pub(super) share: f64,
    /// Seconds that 99 of 100 requests wait for it at most.
    pub(super) wait_p99: f64,
}

/// `cpu.max` with its usual period. The CPU time that requests want within one is a compound Poisson sum, taken as normal; `banked` is what
/// `cpu.max.burst` adds to the quota, in CPUs (sched-bwc.rst).
pub(super) fn throttle(offered: f64, request: f64, limit: f64, banked: f64) -> Throttle {
    const PERIOD_S: f64 = 0.1;
    if offered >= limit {
        let share = 1.0 - limit / offered.max(f64::MIN_POSITIVE);
        return Throttle { share, wait_p99: PERIOD_S };
    }
    let deviation = (2.0 * offered * request * PERIOD_S).sqrt();
    let z = (limit + banked - offered) * PERIOD_S / deviation.max(1e-9);
    // The logistic curve stays within 0.01 of the normal distribution with this factor.
    let runs_out = 1.0 / (1.0 + (1.702 * z).exp());
    // The quota runs out half-way through the rest of the period, as an assumption.
    let wait_p99 = PERIOD_S / 2.0 * (1.0 - 0.01 / runs_out.max(0.01));
    Throttle { share: runs_out / 2.0, wait_p99 }
}
