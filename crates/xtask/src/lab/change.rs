//! Which guest tests a change has to pass; the nightly run has all of them, on every machine, with each kernel and each first process.
//! In: the lists below. Out: what `cargo xtask lab run` would be asked for.

use std::fs;
use std::path::Path;

use crate::lab::kernel::Release;
use crate::workspace;

/// Guest tests that the nightly run alone has, and the native test that asserts the same with every change. What only a guest can show is not here: NUMA, CPUs
/// that go offline, cpusets and partitions of cgroup v2, kernel files and what they do, pages, probes with packages and NUMA nodes, units.
const NIGHTLY: &[(&str, &str)] = &[
    (
        "no_container_is_placed_where_there_are_too_few_cpus",
        "what_does_not_fit_is_refused_with_the_shortage_and_changes_nothing",
    ),
    (
        "a_mixed_container_owns_a_cpu_and_shares_the_rest_of_its_node",
        "a_mixed_one_owns_a_cpu_and_shares_others",
    ),
    ("system_pods_run_on_the_reserved_cpus", "system_pods_run_on_reserved_cpus_and_no_others_do"),
    (
        "an_affinity_that_is_narrower_than_the_set_is_shown",
        "an_affinity_inherited_from_containerd_is_told",
    ),
    (
        "a_group_grows_and_shrinks_with_its_members",
        "members_follow_their_group_and_others_stay_off_it",
    ),
    (
        "cmk_isolate_in_a_command_gives_the_container_a_slot",
        "cmk_isolate_is_taken_out_of_a_command_and_its_pool_is_given",
    ),
    ("a_resize_that_has_no_room_changes_nothing", "a_refused_resize_leaves_everything"),
    (
        "a_shared_container_is_resized_where_it_is",
        "a_resize_by_cri_and_a_restored_node_are_as_with_the_proxy",
    ),
    ("no_container_moves_when_the_daemon_ends", "an_orderly_stop_moves_no_container"),
    (
        "a_container_that_ended_while_the_daemon_was_dead_is_forgotten",
        "a_container_that_left_while_the_daemon_was_down_is_released",
    ),
    (
        "a_new_configuration_holds_for_new_and_for_shared_containers",
        "the_containers_that_move_are_those_that_the_diff_has_named",
    ),
];

/// Under systemd, on the older kernel: its cgroup driver and the units of `deploy`, and of that kernel that everything is there and the probes count.
const UNDER_SYSTEMD: &[&str] = &[
    "the_kernel_has_what",
    "what_systemd_writes_a",
    "cpu_sets_that_systemd_was_told_of",
    "a_call_of_kubelet_starts_the_daemon",
    "limits_bursts_and_memory",
    "the_unit_may_do_all",
];

/// On two CPUs these and the one under systemd end at about the same time.
const GUESTS: &str = "3";

/// Arguments of `cargo xtask lab run`, for one machine: the older kernel with [`UNDER_SYSTEMD`], and the newer one with all but [`NIGHTLY`]. The guest that takes
/// longest comes first.
pub(super) fn runs() -> [Vec<&'static str>; 2] {
    let mut under_systemd = vec!["--kernel", Release::Stable.name(), "--init", "systemd", "--"];
    under_systemd.extend(UNDER_SYSTEMD);
    let mut newer = vec!["--kernel", Release::Backports.name(), "--guests", GUESTS, "--"];
    newer.extend(NIGHTLY.iter().flat_map(|(test, _)| ["--skip", *test]));
    [under_systemd, newer]
}

/// Names of all guest tests, by their sources.
pub(super) fn guest_tests() -> anyhow::Result<Vec<String>> {
    let sources = sources(&workspace().join("tests/guest"))?;
    let names = sources.lines().filter_map(|it| it.trim().strip_prefix("name: \""));
    Ok(names.filter_map(|it| Some(it.split_once('"')?.0.to_owned())).collect())
}

/// All sources below a directory, one after the other.
fn sources(dir: &Path) -> anyhow::Result<String> {
    let mut texts = String::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.extension() {
            _ if path.is_dir() => texts.push_str(&sources(&path)?),
            Some(extension) if extension == "rs" => texts.push_str(&fs::read_to_string(&path)?),
            _ => {}
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_nightly_run_alone_has_a_native_test_asserts() {
        let guest = guest_tests().unwrap();
        let native: String = ["daemon", "containerd", "nri"]
            .map(|it| sources(&workspace().join("tests").join(it)).unwrap())
            .concat();
        for (test, asserted_by) in NIGHTLY {
            let named = guest.iter().filter(|it| it.contains(test)).count();
            assert_eq!(named, 1, "guest tests with {test} in their names");
            assert!(native.contains(&format!("fn {asserted_by}()")), "{asserted_by} is no test");
        }
    }

    #[test]
    fn every_test_under_systemd_is_there() {
        for part in UNDER_SYSTEMD {
            assert!(guest_tests().unwrap().iter().any(|it| it.contains(part)), "{part}");
        }
    }

    /// A part of a name for each.
    #[test]
    fn what_only_a_guest_can_show_is_shown_with_every_change() {
        for subject in [
            "the_machine_is_what_its_name_says",
            "whole_cores_of_one_numa_node",
            "each_namespace_has_a_numa_node",
            "pages_are_on_the_node",
            "more_memory_than_a_node_has",
            "a_partition_keeps_all_others_off",
            "cpus_in_a_partition_of",
            "cpus_in_a_remote_partition",
            "cpus_that_come_and_go",
            "a_resize_grows_in_its_node",
            "what_is_promised_holds_at_the_first_instruction",
            "the_cgroup_has_what",
            "interrupts_and_work_queues",
            "a_class_of_block_io",
            "weights_of_block_io",
            "idle_memory_is_reclaimed",
            "moves_are_counted",
            "after_a_kill_in_the_middle",
            "shared_cpus_shrink_and_grow",
        ] {
            let found: Vec<String> =
                guest_tests().unwrap().into_iter().filter(|it| it.contains(subject)).collect();
            assert!(!found.is_empty(), "no guest test has {subject} in its name");
            for test in found {
                let is_left_out = NIGHTLY.iter().any(|(part, _)| test.contains(part));
                assert!(!is_left_out, "{test} is left to the nightly run");
            }
        }
    }
}
