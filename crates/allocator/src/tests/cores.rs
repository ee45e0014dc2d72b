//! Which CPUs and which threads of cores a container owns.

use super::*;

#[test]
fn whole_cores_in_the_tightest_domain() {
    check(
        "pack:2 numa:2 core:4 pu:2",
        "0,16",
        &["1 2", "2 4", "3 8", "4 3", "5 10", "6 1", "7 0+500"],
        expect![[r#"
            1 2: numa 0, owns [1,17] of 1,17, mems 0
            2 4: numa 0, owns [2-3,18-19] of 2-3,18-19, mems 0
            3 8: numa 1, owns [4-7,20-23] of 4-7,20-23, mems 1
            4 3: numa 2, owns [8-9,24] of 8-9,24, mems 2
            5 10: package 1, owns [10,12-15,26,28-31] of 10,12-15,26,28-31, mems 2-3
            6 1: numa 2, owns [25] of 25, mems 2
            7 0+500: numa 2, owns [] of 11,27, mems 2
        "#]],
    );
}

#[test]
fn what_is_odd_goes_to_a_core_that_is_broken_or_has_fewer_threads() {
    // The last share of several L3s.
    check(
        "numa:1 l3:3 core:2 pu:2",
        "",
        &["1 3", "2 5"],
        expect![[r#"
        1 3: l3 0, owns [0-1,7] of 0-1,7, mems 0
        2 5: machine, owns [2-3,6,8-9] of 2-3,6,8-9, mems 0
    "#]],
    );
    // Two of three threads: one core is split, not two.
    check(
        "numa:2 core:2 pu:3",
        "",
        &["1 1", "2 2", "3 2"],
        expect![[r#"
        1 1: numa 0, owns [1] of 1, mems 0
        2 2: numa 0, owns [5,9] of 5,9, mems 0
        3 2: numa 0, owns [0,4] of 0,4, mems 0
    "#]],
    );
    // A core that has lost a thread.
    check(
        "numa:1 core:4 pu:2 offline:6",
        "",
        &["1 4", "2 1"],
        expect![[r#"
        1 4: machine, owns [1,3,5,7] of 1,3,5,7, mems 0
        2 1: machine, owns [2] of 2, mems 0
    "#]],
    );
}

#[test]
fn several_l3s_in_a_node_are_tighter_than_the_node() {
    check(
        "pack:1 numa:1 l3:4 core:4 pu:2",
        "",
        &["1 4", "2 8", "3 2", "4 6", "5 12"],
        expect![[r#"
            1 4: l3 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            2 8: l3 1, owns [4-7,20-23] of 4-7,20-23, mems 0
            3 2: l3 0, owns [3,19] of 3,19, mems 0
            4 6: l3 2, owns [8-10,24-26] of 8-10,24-26, mems 0
            5 12: refused: needs 12 exclusive CPUs; 11 are free
        "#]],
    );
}

#[test]
fn a_growing_container_does_not_take_the_sibling_that_shared_ones_need() {
    let steps = ["1 1", "2 0+2000", "1=2"];
    check(
        "numa:1 core:2 pu:2",
        "",
        &steps,
        expect![[r#"
        1 1: machine, owns [1] of 1, mems 0
        2 0+2000: machine, owns [] of 0,2-3, mems 0
        1=2: machine, owns [1,3] of 1,3, mems 0
    "#]],
    );
    let steps = ["1 1", "2 0+2500", "1=2"];
    check(
        "numa:1 core:2 pu:2",
        "",
        &steps,
        expect![[r#"
            1 1: machine, owns [1] of 1, mems 0
            2 0+2500: machine, owns [] of 0,2-3, mems 0
            1=2: refused: needs 2 exclusive CPUs; 1 is free
        "#]],
    );
}

#[test]
fn the_sibling_of_an_odd_cpu_is_paired_shared_or_idle_as_wished() {
    check(
        "numa:1 core:8 pu:2",
        "0,8",
        &[
            "1 1 pod:1",
            "2 1 pod:2 shared",
            "3 1 idle",
            "4 3 idle",
            "5 1 pod:2",
            "6 1 pod:1",
            "7 1",
            "8 2",
            "9 0+100",
            "-3",
            "10 1",
            "-2",
            "11 1",
        ],
        expect![[r#"
            1 1 pod:1: machine, owns [1] of 1, mems 0
            2 1 pod:2 shared: machine, owns [2] of 2, mems 0
            3 1 idle: machine, owns [3] of 3, idle 11, mems 0
            4 3 idle: machine, owns [4-5,12] of 4-5,12, idle 13, mems 0
            5 1 pod:2: machine, owns [9] of 9, mems 0
            6 1 pod:1: machine, owns [6] of 6, mems 0
            7 1: machine, owns [14] of 14, mems 0
            8 2: machine, owns [7,15] of 7,15, mems 0
            9 0+100: machine, owns [] of 10, mems 0
            -3: shared 3,10-11
            10 1: machine, owns [3] of 3, mems 0
            -2: shared 2,10-11
            11 1: machine, owns [11] of 11, mems 0
        "#]],
    );
}

#[test]
fn idle_siblings_leave_the_sharers_of_each_domain_what_they_requested() {
    check(
        "pack:2 die:2 numa:1 l3:3 core:1 pu:2",
        "0",
        &["1 6", "2 0", "3 0+2001", "4 7 idle", "4=3 idle", "4=5 idle"],
        expect![[r#"
            1 6: package 0 die 1, owns [3-5,15-17] of 3-5,15-17, mems 1
            2 0: package 1 die 0, owns [] of 6-8,18-20, mems 2
            3 0+2001: package 1 die 1, owns [] of 9-11,21-23, mems 3
            4 7 idle: package 1, owns [6,9-11,21-23] of 6,9-11,21-23, idle 18, mems 2-3
            4=3 idle: package 1, owns [9-10,21] of 9-10,21, idle 22, mems 3
            4=5 idle: package 1, owns [9-11,21-22] of 9-11,21-22, idle 23, mems 3
        "#]],
    );
}

#[test]
fn an_odd_cpu_is_paired_with_its_own_pod_then_its_own_namespace() {
    check(
        "numa:1 core:8 pu:2",
        "",
        &["1 1 pod:1", "2 1 pod:2", "3 1 pod:3", "4 1 pod:4", "-2", "-3", "5 3 pod:4", "6 1 pod:9"],
        expect![[r#"
            1 1 pod:1: machine, owns [1] of 1, mems 0
            2 1 pod:2: machine, owns [9] of 9, mems 0
            3 1 pod:3: machine, owns [2] of 2, mems 0
            4 1 pod:4: machine, owns [10] of 10, mems 0
            -2: shared 0,3-9,11-15
            -3: shared 0,2-9,11-15
            5 3 pod:4: machine, owns [2-3,11] of 2-3,11, mems 0
            6 1 pod:9: machine, owns [9] of 9, mems 0
        "#]],
    );
}

#[test]
fn a_half_core_of_the_same_namespace_comes_before_one_of_another() {
    let halves =
        ["1 1 pod:1 ns:1", "2 1 pod:2 ns:2", "3 1 pod:3 ns:3", "4 1 pod:4 ns:4", "-2", "-3"];
    let steps = [&halves[..], &["5 1 pod:5 ns:4"]].concat();
    check(
        "numa:1 core:8 pu:2",
        "",
        &steps,
        expect![[r#"
        1 1 pod:1 ns:1: machine, owns [1] of 1, mems 0
        2 1 pod:2 ns:2: machine, owns [9] of 9, mems 0
        3 1 pod:3 ns:3: machine, owns [2] of 2, mems 0
        4 1 pod:4 ns:4: machine, owns [10] of 10, mems 0
        -2: shared 0,3-9,11-15
        -3: shared 0,2-9,11-15
        5 1 pod:5 ns:4: machine, owns [2] of 2, mems 0
    "#]],
    );
}

#[test]
fn one_thread_of_each_core_when_spread() {
    check(
        "numa:2 core:4 pu:2",
        "",
        &[
            "1 3 spread",
            "2 2 spread idle",
            "3 2 spread shared",
            "4 2",
            "5 3 spread idle",
            "1=4 spread",
        ],
        expect![[r#"
            1 3 spread: numa 0, owns [1-3] of 1-3, mems 0
            2 2 spread idle: numa 1, owns [4-5] of 4-5, idle 12-13, mems 1
            3 2 spread shared: numa 1, owns [6-7] of 6-7, mems 1
            4 2: numa 0, owns [0,8] of 0,8, mems 0
            5 3 spread idle: refused: needs 4 exclusive CPUs with idle siblings; 0 are free
            1=4 spread: numa 0, owns [1-3,9] of 1-3,9, mems 0
        "#]],
    );
}

#[test]
fn whole_cores_only_when_that_is_asked_for() {
    check(
        "numa:1 core:4 pu:2",
        "",
        &["1 3 whole", "2 4 whole"],
        expect![[r#"
        1 3 whole: refused: 3 CPUs are no whole number of cores of 2 threads
        2 4 whole: machine, owns [1-2,5-6] of 1-2,5-6, mems 0
    "#]],
    );
}

#[test]
fn the_kind_of_core_and_the_priority_are_respected() {
    check(
        "core-hybrid",
        "",
        &["1 4", "2 4 kind:E", "3 14", "4 16 kind:E!", "5 2 kind:P!"],
        expect![[r#"
            1 4: machine, owns [1-2,9-10] of 1-2,9-10, mems 0
            2 4 kind:E: machine, owns [16-19] of 16-19, mems 0
            3 14: machine, owns [0,3-8,11-15,20-21] of 0,3-8,11-15,20-21, mems 0
            4 16 kind:E!: refused: needs 16 exclusive CPUs on efficient cores; 9 are free
            5 2 kind:P!: refused: needs 2 exclusive CPUs on performance cores; 0 are free
        "#]],
    );
    check(
        "core:8 fast:4-5",
        "",
        &[
            "1 1 priority:High",
            "2 2 priority:High",
            "3 1 priority:High!",
            "4 2 priority:High!",
            "5 2 priority:Normal",
        ],
        expect![[r#"
            1 1 priority:High: machine, owns [4] of 4, mems 
            2 2 priority:High: machine, owns [1-2] of 1-2, mems 
            3 1 priority:High!: machine, owns [5] of 5, mems 
            4 2 priority:High!: refused: needs 2 exclusive CPUs of high priority; 0 are free
            5 2 priority:Normal: machine, owns [3,6] of 3,6, mems 
        "#]],
    );
}

#[test]
fn cpus_stay_within_a_domain_or_are_spread_evenly_when_that_is_asked_for() {
    check(
        "pack:2 numa:2 core:4 pu:2",
        "",
        &["1 10 within:Numa", "2 10 within:Pack", "3 10 even", "4 17 within:Pack"],
        expect![[r#"
            1 10 within:Numa: refused: is wider than one NumaNode
            2 10 within:Pack: package 0, owns [0-4,16-20] of 0-4,16-20, mems 0-1
            3 10 even: package 1, owns [8-10,12-13,24-26,28-29] of 8-10,12-13,24-26,28-29, mems 2-3
            4 17 within:Pack: refused: is wider than one Package
        "#]],
    );
}

#[test]
fn hidden_hyperthreads_leave_one_thread_of_each_core() {
    check(
        "numa:1 core:4 pu:2",
        "",
        &["1 4 hide", "2 1+100 hide", "3 0+100 hide"],
        expect![[r#"
            1 4 hide: machine, owns [1-2,5-6] of 1-2, mems 0
            2 1+100 hide: machine, owns [3] of 0,3, mems 0
            3 0+100 hide: machine, owns [] of 0,7, mems 0
        "#]],
    );
}

#[test]
fn a_domain_smaller_than_a_core_holds_only_its_own_threads() {
    // Some hypervisors report an L3 for each thread.
    let mut snapshot = parse_machine("numa:1 l3:1 core:2 pu:2").unwrap();
    for cpu in &mut snapshot.cpus {
        for cache in &mut cpu.caches {
            cache.shared_cpus = Some(CpuSet::from(cpu.id));
        }
    }
    let topology = derive(&snapshot).unwrap();
    let mut ledger =
        Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
    assert_eq!(play(&mut ledger, "1 1"), "l3 0, owns [0] of 0, mems 0");
    assert_eq!(play(&mut ledger, "2 2"), "machine, owns [1-2] of 1-2, mems 0");
}
