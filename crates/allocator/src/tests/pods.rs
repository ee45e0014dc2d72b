//! Whole pods: a container that is placed knows of those that are there (`mate:ID`) and of those that are to come (`rest:CPUS`).

use proptest::prelude::*;

use super::*;

/// The last step is refused; why, pool by pool.
#[track_caller]
fn check_refused(line: &str, steps: &[&str], refused: &str, expected: Expect) {
    let mut ledger = machine(line, "").unwrap();
    for step in steps {
        let played = play(&mut ledger, step);
        assert!(!played.starts_with("refused"), "{step}: {played}");
    }
    let mut words = refused.split_whitespace().skip(1);
    let count = words.next().unwrap().parse().unwrap();
    let mut wanted = request(99, count, None);
    words.for_each(|word| wish(&mut wanted, word));
    let refusal = offer(&ledger, &wanted).unwrap_err();
    let rows = refusal.considered.iter().map(|row| {
        let name = &ledger.pools().get(row.pool).unwrap().name;
        format!("{name}: {}\n", row.outcome.as_ref().unwrap_err())
    });
    expected.assert_eq(&rows.collect::<String>());
}

#[test]
fn the_first_of_a_pod_goes_where_the_rest_fits_too_and_the_others_follow() {
    check(
        "numa:3 core:8",
        "0",
        &["1 4", "2 3 rest:4", "3 4 mate:2", "4 3", "5 1 mate:2 mate:3"],
        expect![[r#"
            1 4: numa 0, owns [1-4] of 1-4, mems 0
            2 3 rest:4: numa 1, owns [8-10] of 8-10, mems 1
            3 4 mate:2: numa 1, owns [11-14] of 11-14, mems 1
            4 3: numa 0, owns [5-7] of 5-7, mems 0
            5 1 mate:2 mate:3: numa 1, owns [15] of 15, mems 1
        "#]],
    );
}

#[test]
fn where_the_rest_fits_nowhere_the_tightest_fit_wins() {
    check(
        "numa:2 core:8",
        "0",
        &["1 4", "2 3 rest:6"],
        expect![[r#"
        1 4: numa 0, owns [1-4] of 1-4, mems 0
        2 3 rest:6: numa 0, owns [5-7] of 5-7, mems 0
    "#]],
    );
}

#[test]
fn no_container_is_spread_to_be_with_its_pod() {
    check(
        "numa:2 core:8",
        "0",
        &["1 5", "2 4 mate:1", "3 2 mate:1 rest:2"],
        expect![[r#"
        1 5: numa 0, owns [1-5] of 1-5, mems 0
        2 4 mate:1: numa 1, owns [8-11] of 8-11, mems 1
        3 2 mate:1 rest:2: numa 0, owns [6-7] of 6-7, mems 0
    "#]],
    );
}

#[test]
fn a_pod_that_is_larger_than_a_node_looks_for_a_package() {
    check(
        "pack:2 numa:2 core:4",
        "0",
        &["1 2", "2 3 rest:4", "3 4 mate:2"],
        expect![[r#"
        1 2: numa 0, owns [1-2] of 1-2, mems 0
        2 3 rest:4: numa 2, owns [8-10] of 8-10, mems 2
        3 4 mate:2: numa 3, owns [12-15] of 12-15, mems 3
    "#]],
    );
}

#[test]
fn sharers_go_to_their_pod_where_the_node_has_the_cpu_time() {
    check(
        "numa:2 core:4",
        "",
        &["1 2", "2 0+1000", "3 0+1000 mate:1", "4 0+2000 mate:1", "5 0+1000 rest:2", "6 0+0"],
        expect![[r#"
            1 2: numa 0, owns [1-2] of 1-2, mems 0
            2 0+1000: numa 1, owns [] of 4-7, mems 1
            3 0+1000 mate:1: numa 0, owns [] of 0,3, mems 0
            4 0+2000 mate:1: numa 1, owns [] of 4-7, mems 1
            5 0+1000 rest:2: numa 0, owns [] of 0,3, mems 0
            6 0+0: numa 1, owns [] of 4-7, mems 1
        "#]],
    );
}

#[test]
fn memory_of_the_rest_counts() {
    check(
        "numa:2 core:8 mem:8",
        "0",
        &["1 2 mem:4", "2 2 mem:2 rest:2 restmem:4", "3 2 mem:4 mate:2"],
        expect![[r#"
            1 2 mem:4: numa 0, owns [1-2] of 1-2, mems 0
            2 2 mem:2 rest:2 restmem:4: numa 1, owns [8-9] of 8-9, mems 1
            3 2 mem:4 mate:2: numa 1, owns [10-11] of 10-11, mems 1
        "#]],
    );
}

#[test]
fn isolated_cpus_leave_the_others_to_the_rest() {
    check(
        "numa:2 core:4 isolated:1,5",
        "",
        &["1 2", "2 1 isolated rest:2", "3 2 mate:2"],
        expect![[r#"
            1 2: numa 0, owns [2-3] of 2-3, mems 0
            2 1 isolated rest:2: numa 1, owns [5] of 5, mems 1
            3 2 mate:2: numa 1, owns [4,6] of 4,6, mems 1
        "#]],
    );
}

#[test]
fn a_pod_that_has_to_lie_together_gets_a_node_that_holds_it_or_none() {
    check(
        "numa:2 core:4",
        "",
        &["1 2", "2 2 within:Numa rest:2 one!", "3 2 within:Numa mate:2 one!"],
        expect![[r#"
            1 2: numa 0, owns [1-2] of 1-2, mems 0
            2 2 within:Numa rest:2 one!: numa 1, owns [4-5] of 4-5, mems 1
            3 2 within:Numa mate:2 one!: numa 1, owns [6-7] of 6-7, mems 1
        "#]],
    );
    check_refused(
        "numa:2 core:4",
        &["1 2", "2 2 apart:Numa"],
        "3 2 within:Numa rest:2 one!",
        expect![[r#"
            machine: is wider than one NumaNode
            numa 0: the pod needs 4 more CPUs together; 2 are free
            numa 1: the pod needs 4 more CPUs together; 2 are free
        "#]],
    );
}

#[test]
fn sharers_make_room_for_a_pod_that_has_to_lie_together() {
    check(
        "numa:2 core:4",
        "",
        &[
            "1 2",
            "2 0+1000",
            "3 0+1000",
            "4 2 within:Numa rest:2 one!",
            "5 2 within:Numa mate:4 one!",
        ],
        expect![[r#"
            1 2: numa 0, owns [1-2] of 1-2, mems 0
            2 0+1000: numa 1, owns [] of 4-7, mems 1
            3 0+1000: numa 1, owns [] of 4-7, mems 1
            4 2 within:Numa rest:2 one!: numa 1, owns [4-5] of 4-5, mems 1
            5 2 within:Numa mate:4 one!: numa 1, owns [6-7] of 6-7, mems 1
        "#]],
    );
}

#[test]
fn a_container_that_has_to_be_with_its_pod_goes_nowhere_else() {
    check_refused(
        "numa:2 core:4",
        &["1 2", "2 2 mate:1"],
        "3 1 within:Numa mate:1 one!",
        expect![[r#"
            machine: is wider than one NumaNode
            numa 0: needs 1 exclusive CPU; 0 are free
            numa 1: is away from the CPUs of the pod
        "#]],
    );
}

#[test]
fn a_rest_that_may_never_come_is_no_reason_to_refuse() {
    check(
        "numa:2 core:4",
        "",
        &["1 2", "2 3", "3 1 within:Numa rest:3 one"],
        expect![[r#"
        1 2: numa 0, owns [1-2] of 1-2, mems 0
        2 3: numa 1, owns [4-6] of 4-6, mems 1
        3 1 within:Numa rest:3 one: numa 1, owns [7] of 7, mems 1
    "#]],
    );
}

#[test]
fn a_resized_container_is_not_asked_for_the_rest() {
    check(
        "numa:2 core:4",
        "",
        &["1 2 within:Numa rest:2 one!", "2 1", "1=3 within:Numa rest:2 one!"],
        expect![[r#"
            1 2 within:Numa rest:2 one!: numa 0, owns [1-2] of 1-2, mems 0
            2 1: numa 0, owns [3] of 3, mems 0
            1=3 within:Numa rest:2 one!: numa 0, owns [0-2] of 0-2, mems 0
        "#]],
    );
}

#[test]
fn no_more_nodes_than_an_empty_machine_would_need() {
    check(
        "pack:2 numa:2 core:4",
        "0",
        &["1 5 fewest:Numa", "2 2", "3 4 fewest:Numa", "4 2"],
        expect![[r#"
            1 5 fewest:Numa: package 0, owns [1,4-7] of 1,4-7, mems 0-1
            2 2: numa 0, owns [2-3] of 2-3, mems 0
            3 4 fewest:Numa: numa 2, owns [8-11] of 8-11, mems 2
            4 2: numa 3, owns [12-13] of 12-13, mems 3
        "#]],
    );
    check_refused(
        "numa:3 core:4",
        &["1 3", "2 3", "3 3"],
        "4 2 fewest:Numa",
        expect![[r#"
            machine: would take CPUs from 2 NUMA nodes, 1 would do
            numa 0: needs 2 exclusive CPUs; 1 is free
            numa 1: needs 2 exclusive CPUs; 1 is free
            numa 2: needs 2 exclusive CPUs; 1 is free
        "#]],
    );
}

#[test]
fn no_more_packages_than_an_empty_machine_would_need() {
    // Kubelet's align-by-socket with its restricted policy: two NUMA nodes will do where they are in one package, and a request larger than a package
    // gets two.
    check(
        "pack:2 numa:2 core:4",
        "0",
        &["1 3", "2 3", "3 5 fewest:Package", "-1", "-2", "4 9 fewest:Package"],
        expect![[r#"
            1 3: numa 0, owns [1-3] of 1-3, mems 0
            2 3: numa 1, owns [4-6] of 4-6, mems 1
            3 5 fewest:Package: package 1, owns [8-12] of 8-12, mems 2-3
            -1: shared 1-3,7,13-15
            -2: shared 1-7,13-15
            4 9 fewest:Package: machine, owns [1-7,13-14] of 1-7,13-14, mems 0-1,3
        "#]],
    );
    check_refused(
        "pack:3 core:4",
        &["1 3", "2 3", "3 3"],
        "4 2 fewest:Package",
        expect![[r#"
            machine: would take CPUs from 2 packages, 1 would do
            package 0: needs 2 exclusive CPUs; 1 is free
            package 1: needs 2 exclusive CPUs; 1 is free
            package 2: needs 2 exclusive CPUs; 1 is free
        "#]],
    );
    check(
        "pack:2 numa:2 core:4",
        "",
        &["1 7", "2 5 fewest:Package rest:3 one!", "3 3 fewest:Package mate:2 one!"],
        expect![[r#"
            1 7: package 0, owns [0-6] of 0-6, mems 0-1
            2 5 fewest:Package rest:3 one!: package 1, owns [8-12] of 8-12, mems 2-3
            3 3 fewest:Package mate:2 one!: numa 3, owns [13-15] of 13-15, mems 3
        "#]],
    );
}

#[test]
fn a_pod_on_no_more_nodes_than_an_empty_machine_would_need() {
    check(
        "numa:4 core:4",
        "",
        &["1 3 fewest:Numa rest:3 one!", "2 3 fewest:Numa mate:1 one!"],
        expect![[r#"
            1 3 fewest:Numa rest:3 one!: numa 0, owns [1-3] of 1-3, mems 0
            2 3 fewest:Numa mate:1 one!: numa 1, owns [4-6] of 4-6, mems 1
        "#]],
    );
    check_refused(
        "numa:3 core:4",
        &["1 3", "2 1", "3 3 mate:1", "4 1"],
        "5 2 fewest:Numa mate:1 mate:3 one!",
        expect![[r#"
            machine: would take CPUs from 3 NUMA nodes, 2 would do
            numa 0: needs 2 exclusive CPUs; 0 are free
            numa 1: needs 2 exclusive CPUs; 0 are free
            numa 2: would take CPUs from 3 NUMA nodes, 2 would do
        "#]],
    );
}

#[test]
fn a_pod_that_lies_apart_already_can_have_its_containers_anew() {
    check(
        "numa:2 core:4",
        "",
        &["1 3", "2 3 mate:1", "-1", "3 3 mate:2", "-3", "4 1 within:Numa mate:2 one!"],
        expect![[r#"
            1 3: numa 0, owns [1-3] of 1-3, mems 0
            2 3 mate:1: numa 1, owns [4-6] of 4-6, mems 1
            -1: shared 0-3,7
            3 3 mate:2: numa 0, owns [1-3] of 1-3, mems 0
            -3: shared 0-3,7
            4 1 within:Numa mate:2 one!: numa 1, owns [7] of 7, mems 1
        "#]],
    );
}

proptest! {
    #[test]
    fn a_rest_that_fits_comes_to_the_same_node(
        (pack, numa, core, pu) in (1u32..3, 1u32..4, 1u32..7, 1u32..3),
        others in prop::collection::vec((0usize..5, prop::option::of(0u64..2000)), 0..10),
        (first, rest) in (1usize..6, 1usize..6),
    ) {
        let mut ledger = machine(&format!("pack:{pack} numa:{numa} l3:2 core:{core} pu:{pu}"), "").unwrap();
        for ((exclusive, shared), id) in others.into_iter().zip(10..) {
            if let Ok(taken) = offer(&ledger, &request(id, exclusive, shared)) {
                ledger.commit(taken).unwrap();
            }
        }
        let mut wanted = request(1, first, None);
        wish(&mut wanted, &format!("rest:{rest}"));
        let Ok(taken) = offer(&ledger, &wanted) else { return Ok(()) };
        let scores = taken.considered().iter().filter_map(|row| row.outcome.as_ref().ok());
        let has_room = scores.max().unwrap().pod_fits;
        let is_small = ledger.pools().fewest(Level::NumaNode, first + rest) == 1;
        let owned = taken.allocation().exclusive.clone();
        ledger.commit(taken).unwrap();
        prop_assume!(has_room && is_small && ledger.pools().nodes_of(&owned).len() == 1);
        let mut wanted = request(2, rest, None);
        wish(&mut wanted, "mate:1");
        let taken = offer(&ledger, &wanted).unwrap();
        let owned = owned.union(&taken.allocation().exclusive);
        prop_assert_eq!(ledger.pools().nodes_of(&owned).len(), 1);
    }
}
