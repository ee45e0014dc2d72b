//! Bayplan as an NRI plugin of a real containerd 2, which creates real containers; kubelet's part calls containerd itself. Where a container runs is read from the kernel.

#![allow(clippy::print_stdout, reason = "tests tell what they have measured")]

mod chaos;
mod conflict;
mod life;
mod rounds;
mod trace;
mod transcript;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bayplan_cri::kubelet::CgroupDriver;
use bayplan_tests::containerd::Programs;
use bayplan_tests::node::{Node, SLEEP, Way};
use bayplan_tests::scenario::{self, Host};

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-test");

/// The CPUs of this machine, which two tests at a time would both give away.
static CPUS: Mutex<()> = Mutex::new(());

/// Plays on a node with a containerd of its own.
fn on_node(play: impl FnOnce(&mut Node) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let _cpus = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::built()?;
    let bayplan = Path::new(BAYPLAN);
    let driver = CgroupDriver::Cgroupfs;
    let mut node = Node::start_with(bayplan, &SLEEP, driver, Way::Plugin, programs)?;
    let played = play(&mut node);
    node.end(played)
}

#[test]
fn containers_run_where_bayplan_says_also_when_it_is_killed_between_create_and_start() {
    let cpus = bayplan_daemon::derive_machine(Path::new("/")).unwrap().cpus().len();
    assert!(cpus >= 2, "this test needs two CPUs, one to own and one to share");
    on_node(|node| scenario::play(node, (cpus - 1).min(2), Host::Shared)).unwrap();
}

#[test]
fn others_have_left_the_cpus_before_the_creation_is_answered() {
    on_node(life::leaves_before_the_answer).unwrap();
}

#[test]
fn threads_of_a_container_have_the_policy_of_its_class_where_rules_allow_it() {
    on_node(life::has_its_scheduling_class).unwrap();
}

#[test]
fn a_resize_by_cri_and_a_restored_node_are_as_with_the_proxy() {
    on_node(life::is_resized_and_restored).unwrap();
}

#[test]
fn a_node_goes_over_to_the_proxy_and_back_and_no_container_moves() {
    on_node(life::switches).unwrap();
}

#[test]
fn what_was_created_without_bayplan_is_taken_over() {
    on_node(chaos::daemon_is_away).unwrap();
}

#[test]
fn containerd_is_killed_and_the_plugin_registers_again() {
    on_node(chaos::runtime_is_killed).unwrap();
}

#[test]
fn after_every_round_of_trouble_each_container_has_what_it_asked_for_and_nothing_has_moved() {
    on_node(rounds::play).unwrap();
}

#[test]
fn what_containerd_tells_and_is_answered_is_as_written_down() {
    on_node(trace::is_as_written_down).unwrap();
}

#[test]
fn a_plugin_that_sets_the_same_is_named() {
    on_node(conflict::is_named).unwrap();
}
