//! What draws a container to nodes: memory, its kinds, devices, other containers.

use super::*;

#[test]
fn memory_decides_the_nodes() {
    check(
        "pack:2 numa:2 core:4 pu:1 mem:10",
        "0",
        &[
            "1 1 mem:4",
            "2 1 mem:8",
            "3 2 mem:12",
            "4 0+100 limit:25",
            "5 1 mem:99",
            "6 0+100 mem:9 reserved",
        ],
        expect![[r#"
            1 1 mem:4: numa 0, owns [1] of 1, mems 0
            2 1 mem:8: numa 1, owns [4] of 4, mems 1
            3 2 mem:12: package 1, owns [8-9] of 8-9, mems 2-3
            4 0+100 limit:25: numa 3, owns [] of 12-15, mems 0,2-3
            5 1 mem:99: refused: needs 99 GiB, the machine has 16 GiB free
            6 0+100 mem:9 reserved: machine, owns [] of 0, mems 0-1,3
        "#]],
    );
}

#[test]
fn memory_is_of_the_kinds_that_are_wished_and_bound_where_that_is_wished() {
    check(
        "pack:2 numa:1 core:4 mem:10 hbm:4 pmem:40",
        "",
        &[
            "1 1 mem:4",
            "2 1 mem:4 memory:Hbm",
            "3 1 mem:4 memory:Hbm",
            "4 1 mem:20 memory:Dram",
            "5 1 mem:12 bound",
            "6 1 mem:60 bound",
            "7 1 mem:4 bound memory:Hbm",
        ],
        expect![[r#"
            1 1 mem:4: package 0, owns [1] of 1, mems 0
            2 1 mem:4 memory:Hbm: package 0, owns [2] of 2, mems 2
            3 1 mem:4 memory:Hbm: package 1, owns [4] of 4, mems 3
            4 1 mem:20 memory:Dram: refused: needs 20 GiB, the machine has 16 GiB free
            5 1 mem:12 bound: package 0, owns [3] of 3, mems 0,4
            6 1 mem:60 bound: refused: needs 60 GiB on its own NUMA nodes, 34 GiB are free
            7 1 mem:4 bound memory:Hbm: refused: needs 4 GiB, the machine has 0 B free
        "#]],
    );
}

#[test]
fn a_sharer_that_is_moved_gets_memory_of_the_kinds_that_it_has() {
    let mut ledger = machine("pack:2 numa:1 core:4 mem:10 hbm:4 pmem:40", "").unwrap();
    for step in ["1 0+500 mem:2 memory:Hbm near:0", "2 0+500 mem:2 near:0", "3 4 near:0!"] {
        play(&mut ledger, step);
    }
    let mems = [1, 2].map(|id| ledger.allocation(ContainerId(id)).unwrap().mems.to_string());
    assert_eq!(mems, ["2-3", "0-1"]);
}

#[test]
fn a_container_bound_to_memory_that_is_not_near_is_refused_also_without_an_amount() {
    check(
        "pack:2 numa:1 core:4 mem:10 hbm:4/machine",
        "",
        &["1 1 memory:Hbm bound near:1!", "2 1 memory:Hbm near:1!", "3 1 memory:Hbm bound"],
        expect![[r#"
            1 1 memory:Hbm bound near:1!: refused: is not near `device at 1`
            2 1 memory:Hbm near:1!: package 1, owns [4] of 4, mems 2
            3 1 memory:Hbm bound: package 0, owns [1] of 1, mems 2
        "#]],
    );
}

#[test]
fn devices_and_other_containers_draw_and_repel() {
    check(
        "pack:2 numa:2 core:4",
        "",
        &[
            "1 1 near:2",
            "2 0+100 near:3!",
            "3 3 near:2",
            "4 2 near:2",
            "5 4 near:2!",
            "6 0+100 with:4",
            "7 0+100 without:4",
            "8 1 without:1",
            "9 0+100 burst:Pack",
            "10 0+100 burst:Mach",
        ],
        expect![[r#"
            1 1 near:2: numa 2, owns [8] of 8, mems 2
            2 0+100 near:3!: numa 3, owns [] of 12-15, mems 3
            3 3 near:2: numa 2, owns [9-11] of 9-11, mems 2
            4 2 near:2: numa 3, owns [12-13] of 12-13, mems 3
            5 4 near:2!: refused: is not near `device at 2`
            6 0+100 with:4: numa 3, owns [] of 14-15, mems 3
            7 0+100 without:4: numa 0, owns [] of 0-3, mems 0
            8 1 without:1: numa 1, owns [4] of 4, mems 1
            9 0+100 burst:Pack: package 0, owns [] of 0-3,5-7, mems 0-1
            10 0+100 burst:Mach: machine, owns [] of 0-3,5-7,14-15, mems 0-3
        "#]],
    );
}

#[test]
fn each_of_the_devices_has_cpus_near_it_where_that_is_wished() {
    let line = "pack:2 numa:2 core:4 pu:2 mem:8";
    check(
        line,
        "0,16",
        &[
            "1 4 near:0 near:2",
            "2 4 near:0 near:2 each",
            "3 3 near:1 near:3 each mem:1",
            "4 2 near:1 near:2 each",
            // They hang on one node, or nothing is left near one of them: all come to one place.
            "5 4 near:3 near:3 each",
            "6 2 near:0 near:1 each",
            "7 6 near:1 near:2 each",
            "8 2 near:2 near:3 each whole",
        ],
        expect![[r#"
            1 4 near:0 near:2: numa 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            2 4 near:0 near:2 each: machine, owns [3,8,19,24] of 3,8,19,24, mems 0,2
            3 3 near:1 near:3 each mem:1: machine, owns [4,12,20] of 4,12,20, mems 1,3
            4 2 near:1 near:2 each: machine, owns [5,9] of 5,9, mems 1-2
            5 4 near:3 near:3 each: numa 3, owns [13-14,29-30] of 13-14,29-30, mems 3
            6 2 near:0 near:1 each: numa 1, owns [6,22] of 6,22, mems 1
            7 6 near:1 near:2 each: machine, owns [7,10,21,23,25-26] of 7,10,21,23,25-26, mems 1-2
            8 2 near:2 near:3 each whole: numa 2, owns [11,27] of 11,27, mems 2
        "#]],
    );
}
