//! Synthetic machines: a line that is understood is a machine without anything odd.
#![no_main]

use bayplan_fuzz::check_snapshot;
use bayplan_topology::{derive, parse_machine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let Ok(snapshot) = parse_machine(line) else { return };
    check_snapshot(&snapshot);
    if let Ok(topology) = derive(&snapshot) {
        assert_eq!(topology.oddities(), &[]);
    }
});
