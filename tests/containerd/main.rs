//! Real containerd and runc start containers on the CPUs that bayplan chose, on this machine's own kernel.

#![allow(clippy::print_stdout, reason = "tests tell what they have measured")]

mod audit;
mod drift;
mod failures;
mod held;
mod rebalancing;
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
fn a_cpu_set_that_is_changed_past_the_runtime_is_repaired() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    drift::run(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn the_audit_names_a_hog_on_an_owners_cpu_and_its_time() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    audit::run(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn containerd_is_killed_while_pods_run_and_start() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    failures::runtime_is_killed(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn containerd_hangs_while_pods_run_and_start() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    failures::runtime_hangs(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn bayplan_is_killed_while_a_container_is_created_and_started() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    failures::daemon_is_killed(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn pods_start_and_none_is_lost_while_the_journals_disk_is_full() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    failures::disk_is_full(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn a_pod_whose_decision_is_late_starts_or_is_refused_as_configured() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    failures::disk_hangs(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn containers_start_within_what_the_group_around_pods_has() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    held::parent_has_fewer(Path::new(BAYPLAN)).unwrap();
}

#[test]
fn an_affinity_inherited_from_containerd_is_told() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    held::runtime_has_an_affinity(Path::new(BAYPLAN)).unwrap();
}

/// With two Guaranteed containers where this machine has CPUs for both and one to share.
#[test]
fn containers_run_where_bayplan_says_on_this_machine() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = bayplan_daemon::derive_machine(Path::new("/")).unwrap().cpus().len();
    assert!(cpus >= 2, "this test needs two CPUs, one to own and one to share");
    scenario::run(Path::new(BAYPLAN), (cpus - 1).min(2), Host::Shared).unwrap();
}

#[test]
fn the_rebalancer_blames_the_hog_holds_it_and_lets_it_go_where_that_is_in_vain() {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    rebalancing::run(Path::new(BAYPLAN)).unwrap();
}
