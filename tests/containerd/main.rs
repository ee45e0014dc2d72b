//! Real containerd and runc start containers on the CPUs that bayplan chose, on this machine's own kernel.

mod drift;
mod resources;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bayplan_tests::scenario::{self, Host};

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-test");

/// The CPUs of this machine, which two tests at a time would both give away.
static CPUS: Mutex<()> = Mutex::new(());

#[test]
fn a_container_reads_its_cpus_in_a_file_that_is_kept_up_to_date() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    resources::run(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn a_cpu_set_that_somebody_changes_past_the_runtime_is_repaired() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    drift::run(Path::new(BAYPLAN)).unwrap();
}

/// With two Guaranteed containers where this machine has CPUs for both and one to share.
#[test]
fn containers_run_where_bayplan_says_on_this_machine() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = bayplan_daemon::derive_machine(Path::new("/")).unwrap().cpus().len();
    assert!(cpus >= 2, "this test needs two CPUs, one to own and one to share");
    scenario::run(Path::new(BAYPLAN), (cpus - 1).min(2), Host::Shared).unwrap();
}
