//! What a scheduler is told of NUMA nodes.

use super::*;

/// A line for each node, where only whole cores are given or not: CPU time, memory and huge pages as `available/allocatable/capacity`.
fn check_zones(line: &str, reserved: &str, steps: &[&str], is_whole: bool, expected: Expect) {
    let mut ledger = machine(line, reserved).unwrap();
    steps.iter().for_each(|step| drop(play(&mut ledger, step)));
    let mut text = String::new();
    for zone in zones(&ledger, &nodes_with_cpus(ledger.pools()), is_whole) {
        let Amount { capacity, allocatable, available } = zone.cpu;
        text.push_str(&format!(
            "{}: cpu {}/{}/{}",
            zone.node.0, available.0, allocatable.0, capacity.0
        ));
        let memory = zone.memory.unwrap();
        text.push_str(&format!(", memory {}/{}", memory.available, memory.capacity));
        for (size, pages) in zone.huge_pages {
            text.push_str(&format!(", pages of {size} {}/{}", pages.available, pages.capacity));
        }
        text.push('\n');
    }
    expected.assert_eq(&text);
}

#[test]
fn exclusive_cpus_memory_and_huge_pages_are_taken_from_their_node() {
    check_zones(
        "numa:2 core:4 pu:1 mem:8 huge:2M=512",
        "0",
        &["1 2 mem:3 within:Numa", "2 1 huge2M:1 near:0!"],
        false,
        expect![[r#"
            0: cpu 0/3000/4000, memory 4 GiB/7 GiB, pages of 2 MiB 0 B/1 GiB
            1: cpu 4000/4000/4000, memory 7 GiB/7 GiB, pages of 2 MiB 1 GiB/1 GiB
        "#]],
    );
}

#[test]
fn requests_of_shared_containers_stay_with_their_pool_and_with_all_around_it() {
    check_zones(
        "numa:2 core:4 pu:1 mem:8",
        "",
        &["1 0+1500 within:Numa", "2 0+5000"],
        false,
        expect![[r#"
        0: cpu 1000/4000/4000, memory 8 GiB/8 GiB
        1: cpu 1000/4000/4000, memory 8 GiB/8 GiB
    "#]],
    );
}

#[test]
fn cores_that_are_reserved_in_part_have_nothing_where_only_whole_cores_are_given() {
    let line = "numa:1 core:4 pu:2 mem:8";
    check_zones(
        line,
        "0-1",
        &[],
        false,
        expect![[r#"
        0: cpu 6000/6000/8000, memory 8 GiB/8 GiB
    "#]],
    );
    check_zones(
        line,
        "0-1",
        &[],
        true,
        expect![[r#"
        0: cpu 4000/6000/8000, memory 8 GiB/8 GiB
    "#]],
    );
}

#[test]
fn each_pool_with_sharers_keeps_a_cpu() {
    let steps = ["1 0+100 within:L3", "2 0+100 within:L3 apart"];
    check_zones(
        "numa:1 l3:2 core:2 pu:1 mem:8",
        "",
        &steps,
        false,
        expect![[r#"
        0: cpu 3000/4000/4000, memory 8 GiB/8 GiB
    "#]],
    );
}
