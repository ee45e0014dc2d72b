//! Shared containers: where they run, and when they make room.

use super::*;

#[test]
fn shared_parts_keep_a_cpu_and_spread() {
    check(
        "pack:2 core:2 pu:1",
        "",
        &["1 0+0", "2 0+0", "3 0+1500", "4 1", "5 1", "6 1", "-4", "7 0+9000"],
        expect![[r#"
            1 0+0: package 0, owns [] of 0-1, mems 
            2 0+0: package 1, owns [] of 2-3, mems 
            3 0+1500: package 0, owns [] of 0-1, mems 
            4 1: package 1, owns [2] of 2, mems 
            5 1: package 1, owns [3] of 3, mems 
            6 1: refused: needs 1 exclusive CPU; 0 are free
            -4: shared 0-2
            7 0+9000: package 1, owns [] of 2, mems 
        "#]],
    );
}

#[test]
fn shared_containers_make_room_for_exclusive_ones() {
    check(
        "pack:1 numa:2 core:4",
        "",
        &["1 0+3000", "2 0+500", "3 4", "4 0+100", "5 1", "6 1", "-3", "7 0+100"],
        expect![[r#"
            1 0+3000: numa 0, owns [] of 0-3, mems 0
            2 0+500: numa 1, owns [] of 4-7, mems 1
            3 4: numa 1, owns [4-7] of 4-7, mems 1
            4 0+100: numa 0, owns [] of 0-3, mems 0
            5 1: refused: needs 1 exclusive CPU; 0 are free
            6 1: refused: needs 1 exclusive CPU; 0 are free
            -3: shared 0-7
            7 0+100: numa 1, owns [] of 4-7, mems 1
        "#]],
    );
}

#[test]
fn sharers_that_keep_a_thread_in_each_of_two_nodes_do_not_split_cores() {
    let machine = "pack:1 numa:2 core:4 pu:2";
    check(
        machine,
        "",
        &["1 0+500", "2 0+500", "3 14"],
        expect![[r#"
        1 0+500: numa 0, owns [] of 0-3,8-11, mems 0
        2 0+500: numa 1, owns [] of 4-7,12-15, mems 1
        3 14: machine, owns [0-6,8-14] of 0-6,8-14, mems 0-1
    "#]],
    );
    // It does not matter how many of them have to go.
    let sharers = ["1 0+100", "2 0+100", "3 0+100", "4 0+100", "5 0+100", "6 0+100", "7 14"];
    check(
        machine,
        "",
        &sharers,
        expect![[r#"
            1 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            2 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            3 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            4 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            5 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            6 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            7 14: machine, owns [0-6,8-14] of 0-6,8-14, mems 0-1
        "#]],
    );
}

#[test]
fn shared_containers_with_a_cpu_in_each_node_spread_no_request_over_more_nodes() {
    check(
        "pack:1 numa:4 core:2 pu:2",
        "",
        &["1 0+500", "2 0+500", "3 0+500", "4 0+500", "5 8"],
        expect![[r#"
            1 0+500: numa 0, owns [] of 0-1,8-9, mems 0
            2 0+500: numa 1, owns [] of 2-3,10-11, mems 1
            3 0+500: numa 2, owns [] of 4-5,12-13, mems 2
            4 0+500: numa 3, owns [] of 6-7,14-15, mems 3
            5 8: machine, owns [0-3,8-11] of 0-3,8-11, mems 0-1
        "#]],
    );
}

#[test]
fn the_fullest_node_is_filled_before_an_l3_is_filled_elsewhere() {
    // The sixth would fill an L3 of the other node. The last does so rather than begin one.
    check(
        "pack:1 numa:2 l3:3 core:4",
        "",
        &["1 2", "2 1", "3 4", "4 4", "5 3", "-1", "6 1", "-3", "7 2", "8 1"],
        expect![[r#"
            1 2: l3 0, owns [1-2] of 1-2, mems 0
            2 1: l3 0, owns [3] of 3, mems 0
            3 4: l3 1, owns [4-7] of 4-7, mems 0
            4 4: l3 2, owns [8-11] of 8-11, mems 0
            5 3: l3 3, owns [12-14] of 12-14, mems 1
            -1: shared 0-2,15-23
            6 1: l3 0, owns [1] of 1, mems 0
            -3: shared 0,2,4-7,15-23
            7 2: l3 0, owns [0,2] of 0,2, mems 0
            8 1: l3 3, owns [15] of 15, mems 1
        "#]],
    );
}

#[test]
fn the_first_owner_of_a_node_comes_where_fewest_share() {
    // A container that follows fills up what is begun.
    check(
        "pack:1 numa:3 core:4",
        "",
        &["1 0+100", "2 0+100", "3 2", "4 0+100", "5 0+100", "6 2", "7 3"],
        expect![[r#"
            1 0+100: numa 0, owns [] of 0-3, mems 0
            2 0+100: numa 1, owns [] of 4-7, mems 1
            3 2: numa 2, owns [8-9] of 8-9, mems 2
            4 0+100: numa 0, owns [] of 0-3, mems 0
            5 0+100: numa 1, owns [] of 4-7, mems 1
            6 2: numa 2, owns [10-11] of 10-11, mems 2
            7 3: numa 0, owns [1-3] of 1-3, mems 0
        "#]],
    );
}

#[test]
fn no_container_moves_only_so_that_fewer_share_a_node() {
    check(
        "pack:1 numa:2 core:4",
        "",
        &["1 0+3000", "2 0+100", "3 0+100", "4 3"],
        expect![[r#"
            1 0+3000: numa 0, owns [] of 0-3, mems 0
            2 0+100: numa 1, owns [] of 4-7, mems 1
            3 0+100: numa 1, owns [] of 4-7, mems 1
            4 3: numa 1, owns [4-6] of 4-6, mems 1
        "#]],
    );
}

#[test]
fn only_containers_in_the_way_make_room() {
    let mut ledger = machine("pack:1 numa:3 core:2 pu:2", "").unwrap();
    // Most CPU time is asked for in the first node, of which nothing is taken.
    let before = [(1, 0, Some(2500)), (3, 0, Some(100)), (4, 0, Some(200)), (2, 1, None)];
    for (id, exclusive, shared) in before {
        let offer = offer(&ledger, &request(id, exclusive, shared)).unwrap();
        ledger.commit(offer).unwrap();
    }
    let offer = offer(&ledger, &request(5, 8, None)).unwrap();
    let mut moved: Vec<u64> = offer.moves().iter().map(|made| made.container.0).collect();
    moved.sort_unstable();
    assert_eq!(moved, [3, 4]);
}

#[test]
fn the_shared_part_of_a_mixed_one_makes_room_on_one_near_node_and_not_on_all() {
    // Until 2026-11-22 it spread over the package or the machine, and was rewritten with every owner that came or went there.
    let mut ledger = machine("pack:2 numa:2 core:4", "").unwrap();
    for step in ["1 1+500", "2 2", "4 0+1000"] {
        play(&mut ledger, step);
    }
    let shown = |ledger: &Ledger| {
        let held = ledger.allocation(ContainerId(1)).unwrap();
        let pool = &ledger.pools().get(held.pool).unwrap().name;
        format!("{pool}, owns [{}] of {}, mems {}", held.exclusive, ledger.cpus_of(held), held.mems)
    };
    assert_eq!(shown(&ledger), "numa 0, owns [1] of 0-1, mems 0");
    // Most room is in the other package.
    assert_eq!(play(&mut ledger, "3 1"), "numa 0, owns [0] of 0, mems 0");
    assert_eq!(shown(&ledger), "numa 1, owns [1] of 1,4-7, mems 0-1");
    let mut again = machine("pack:2 numa:2 core:4", "").unwrap();
    for (id, held) in ledger.allocations() {
        again.adopt(id, held.clone()).unwrap();
    }
    assert_eq!(again.holdings(), ledger.holdings());
    assert_eq!(play(&mut ledger, "1=2+500"), "package 0, owns [1,4] of 1,4-7, mems 0-1");
    // Room that returns moves no container; a resize asks anew.
    play(&mut again, "-3");
    assert_eq!(shown(&again), "numa 1, owns [1] of 1,4-7, mems 0-1");
    assert_eq!(play(&mut again, "1=1+400"), "numa 0, owns [1] of 0-1, mems 0");
}

#[test]
fn no_shared_part_makes_room_that_would_leave_what_it_is_bound_to() {
    for (sharer, stays) in [
        ("1 1+500", false),
        ("1 1+500 near:0", false),
        ("1 1+500 near:0!", true),
        ("1 1+500 within:Numa", true),
        ("1 1+500 fewest:Numa", true),
        ("1 1+500 bound", true),
        ("1 1+500 immovable", true),
        ("1 0+500 near:0", false),
        ("1 0+500 near:0!", true),
        ("1 0+500 bound", true),
        ("1 0+500 immovable", true),
    ] {
        let mut ledger = machine("pack:2 numa:2 core:4", "").unwrap();
        let held = |ledger: &Ledger| ledger.allocation(ContainerId(1)).unwrap().clone();
        play(&mut ledger, sharer);
        let before = held(&ledger);
        assert_eq!(ledger.pools().get(before.pool).unwrap().name, "numa 0", "{sharer}");
        let owned = 4 - before.exclusive.len();
        play(&mut ledger, &format!("2 {owned} near:0!"));
        assert_eq!(held(&ledger) == before, stays, "{sharer}");
    }
}

#[test]
fn a_request_as_large_as_the_machine_allows_is_placed_beside_any_shared_container() {
    check(
        "pack:2 numa:2 core:4",
        "",
        &["1 0+900", "2 0+900", "3 0+900", "4 0+900", "5 6", "6 6", "7 1"],
        expect![[r#"
            1 0+900: numa 0, owns [] of 0-3, mems 0
            2 0+900: numa 1, owns [] of 4-7, mems 1
            3 0+900: numa 2, owns [] of 8-11, mems 2
            4 0+900: numa 3, owns [] of 12-15, mems 3
            5 6: package 0, owns [1-6] of 1-6, mems 0-1
            6 6: package 1, owns [8-10,12-14] of 8-10,12-14, mems 2-3
            7 1: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn a_mixed_container_owns_and_shares_in_one_node() {
    check(
        "pack:2 numa:1 l3:1 core:4 pu:2",
        "",
        &["1 1+500", "2 2+400", "3 8+1", "4 0+2000 ceiling:4000", "5 0+100 ceiling:9000"],
        expect![[r#"
            1 1+500: package 0, owns [1] of 0-3,8-11, mems 0
            2 2+400: package 0, owns [2,10] of 0,2-3,8-11, mems 0
            3 8+1: machine, owns [4-7,12-15] of 0,3-9,11-15, mems 0-1
            4 0+2000 ceiling:4000: package 0, owns [] of 0,3,8-9,11, mems 0
            5 0+100 ceiling:9000: package 0, owns [] of 0,3,8-9,11, mems 0
        "#]],
    );
}

/// As for an owner of so many CPUs; here they are these.
#[test]
fn sharers_make_room_for_cpus_that_are_claimed() {
    for (steps, claimed, expected) in [
        (&["1 0+3000"][..], "0", ""),
        (&["1 0+3000"], "0-1", "1 -> numa 1"),
        (&["1 0+3000", "2 0+3000"], "0-1", "1 -> machine"),
        (&["1 0+4000", "2 0+3000"], "0-1", ""),
        (&["1 0+1000", "2 0+1000", "3 0+1000"], "0-2,4-5", "1 -> machine"),
        (&["1 4", "2 0+500"], "4", ""),
        (&["1 0+3000 immovable"], "0-1", ""),
    ] {
        let mut ledger = machine("pack:1 numa:2 core:4", "").unwrap();
        steps.iter().for_each(|step| drop(play(&mut ledger, step)));
        let moves = plan_way(&ledger, &claimed.parse().unwrap());
        let name = |id| ledger.pools().get(id).unwrap().name.clone();
        let shown: Vec<String> =
            moves.iter().map(|it| format!("{} -> {}", it.container.0, name(it.to))).collect();
        assert_eq!(shown.join(", "), expected, "{steps:?} {claimed}");
    }
}

/// The sharers of node 0 could make room there, but node 1 is nearer to the device and has room as it is.
#[test]
fn under_one_shared_pool_owners_get_nodes_and_all_others_what_is_left_of_the_machine() {
    check(
        "one-shared-pool pack:2 numa:2 core:4 pu:2 mem:8",
        "0,16",
        &[
            "1 0+500",
            "2 4",
            "3 0+0",
            "4 8",
            "5 2+500",
            "6 30",
            "7 16",
            "-4",
            "8 1+500 within:Numa",
            "9 1 within:Numa",
        ],
        expect![[r#"
            1 0+500: machine, owns [] of 1-15,17-31, mems 0-3
            2 4: numa 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            3 0+0: machine, owns [] of 3-15,19-31, mems 0-3
            4 8: numa 1, owns [4-7,20-23] of 4-7,20-23, mems 1
            5 2+500: machine, owns [3,19] of 3,8-15,19,24-31, mems 0-3
            6 30: refused: needs 30 exclusive CPUs; 15 are free
            7 16: refused: needs 16 exclusive CPUs; 15 are free
            -4: shared 4-15,20-31
            8 1+500 within:Numa: refused: is wider than one NumaNode
            9 1 within:Numa: numa 1, owns [4] of 4, mems 1
        "#]],
    );
}
