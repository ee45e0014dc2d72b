//! Values for the tests of several modules.

use std::collections::BTreeMap;

use super::configuration::Configuration;
use super::machine::Machine;
use super::report::{Measured, Outcome, Report};

/// A machine of so many CPUs, threads of a core, and NUMA nodes.
pub(crate) fn machine(cpus: usize, threads_per_core: usize, numa_nodes: usize) -> Machine {
    Machine {
        model: "A Processor".to_owned(),
        cpus,
        threads_per_core,
        numa_nodes,
        kernel: "6.12".to_owned(),
        memory_gib: 24,
        load: "0.10 0.20 0.30".to_owned(),
    }
}

/// A run of `alone` with these times of both kernels under each configuration.
pub(crate) fn report(times: &[(Configuration, &[f64])]) -> Report {
    let mut outcomes = Vec::new();
    for (configuration, times) in times {
        for (at, time) in times.iter().enumerate() {
            let values = [("matrix", *time), ("memcpy", 2.0 * *time)];
            let values = values.map(|(key, value)| (key.to_owned(), value)).into();
            outcomes.push(Outcome {
                round: at + 1,
                scenario: "alone",
                configuration: configuration.name(),
                load: "0.10".to_owned(),
                measured: Measured { values, ..Measured::default() },
            });
        }
    }
    let mut report = Report {
        date: "2026-01-01".to_owned(),
        command: "cargo xtask reenact".to_owned(),
        machine: machine(2, 1, 1),
        versions: BTreeMap::new(),
        rounds: 3,
        left_out: BTreeMap::new(),
        outcomes,
        failed: Vec::new(),
        summary: Vec::new(),
        control: Vec::new(),
        behind: Vec::new(),
    };
    report.sum_up();
    report
}
