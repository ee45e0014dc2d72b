//! Real containerd and runc start containers on the CPUs that bayplan chose, on this machine's own kernel.

use std::path::Path;

use bayplan_tests::scenario::{self, Host};

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-test");

/// With two Guaranteed containers where this machine has CPUs for both and one to share.
#[test]
fn containers_run_where_bayplan_says_on_this_machine() {
    let cpus = bayplan_daemon::derive_machine(Path::new("/")).unwrap().cpus().len();
    assert!(cpus >= 2, "this test needs two CPUs, one to own and one to share");
    scenario::run(Path::new(BAYPLAN), (cpus - 1).min(2), Host::Shared).unwrap();
}
