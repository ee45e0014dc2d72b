//! Idle states of CPUs (C-states). In: `cpuidle` of each CPU. Out: the states, and the time that the CPU has been in each.
//!
//! `stateN/name`, `stateN/latency` (exit latency) and `stateN/time` (all in microseconds), from the shallowest to the deepest state;
//! admin-guide/pm/cpuidle.rst, "Representation of Idle States". Most virtual machines have none.

use std::collections::BTreeMap;

use bayplan_types::CpuId;

use crate::kernel::Kernel;

const CPUS: &str = "sys/devices/system/cpu";

/// An idle state of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// The driver's name, for example `C1E`.
    pub name: String,
    /// How long it takes to wake up from it, in microseconds.
    pub latency_us: u64,
}

/// Time in each of its states since the start of the machine, in microseconds; `None`: not told.
pub type IdleTimes = BTreeMap<CpuId, Vec<Option<u64>>>;

/// The states of every CPU that has some, the shallowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleStates(BTreeMap<CpuId, Vec<IdleState>>);

impl IdleStates {
    /// Those of CPUs that are online now.
    pub fn read(kernel: &mut dyn Kernel) -> IdleStates {
        let names = kernel.list(CPUS).unwrap_or_default();
        let cpus = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok());
        let states = cpus.map(|cpu| (CpuId(cpu), read_states(kernel, cpu)));
        IdleStates(states.filter(|(_, states)| !states.is_empty()).collect())
    }

    /// Those of a CPU; empty where it has none.
    pub fn of(&self, cpu: CpuId) -> &[IdleState] {
        self.0.get(&cpu).map(Vec::as_slice).unwrap_or_default()
    }

    /// Time in each.
    pub fn read_times(&self, kernel: &mut dyn Kernel) -> IdleTimes {
        let cpus = self.0.iter();
        cpus.map(|(cpu, states)| {
            let dir = format!("{CPUS}/cpu{}/cpuidle", cpu.0);
            let paths: Vec<String> =
                (0..states.len()).map(|at| format!("{dir}/state{at}/time")).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let texts = kernel.read_all(&paths).into_iter();
            (*cpu, texts.map(|text| text.ok()?.trim().parse().ok()).collect())
        })
        .collect()
    }
}

/// States are numbered without gaps.
fn read_states(kernel: &mut dyn Kernel, cpu: u32) -> Vec<IdleState> {
    let mut states = Vec::new();
    loop {
        let dir = format!("{CPUS}/cpu{cpu}/cpuidle/state{}", states.len());
        let Ok(name) = kernel.read(&format!("{dir}/name")) else { return states };
        let latency = kernel.read(&format!("{dir}/latency")).ok();
        let latency_us = latency.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        states.push(IdleState { name: name.trim().to_owned(), latency_us });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    #[test]
    fn states_and_times_are_those_of_each_cpu() {
        let mut kernel = FakeKernel::new(&[
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/time", "12\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/time", "nonsense\n"),
            ("sys/devices/system/cpu/cpu1/online", "1\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
        ]);
        let states = IdleStates::read(&mut kernel);
        let of = |cpu| {
            let shown = states.of(CpuId(cpu)).iter().map(|it| (it.name.as_str(), it.latency_us));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(of(0), [("POLL", 0), ("C6", 133)]);
        assert_eq!(of(1), []);
        let times = states.read_times(&mut kernel);
        assert_eq!(times, [(CpuId(0), vec![Some(12), None])].into());
    }
}
