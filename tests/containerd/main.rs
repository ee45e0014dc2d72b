//! Real containerd and runc start containers on the CPUs that bayplan chose, here and in a virtual machine.

use std::path::Path;
use std::time::Duration;

use bayplan_tests::guest::Guest;
use bayplan_tests::scenario::{self, Host};

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-test");

/// On this machine's own kernel; with two Guaranteed containers where it has CPUs for both and one to share.
#[test]
fn containers_run_where_bayplan_says_on_this_machine() {
    let cpus = bayplan_daemon::derive_machine(Path::new("/")).unwrap().cpus().len();
    assert!(cpus >= 2, "this test needs two CPUs, one to own and one to share");
    scenario::run(Path::new(BAYPLAN), (cpus - 1).min(2), Host::Shared).unwrap();
}

/// On a machine with two packages and two NUMA nodes and cgroup v2, whose CPUs are switched off and on.
#[test]
fn containers_run_where_bayplan_says_in_a_virtual_machine() {
    let guest = Guest::build(Path::new(BAYPLAN), "bayplan-under-test scenario").unwrap();
    let console = guest.run(Duration::from_secs(300)).unwrap();
    println!("{console}");
}
