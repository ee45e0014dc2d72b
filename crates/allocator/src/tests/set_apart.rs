//! CPUs that are not for all containers: reserved, isolated, claimed, apart, of other systems.

use super::*;

#[test]
fn system_pods_run_on_the_reserved_cpus() {
    check(
        "core:4 pu:2",
        "0,4",
        &["1 0+500 reserved", "2 2 reserved", "3 6", "4 4", "-1", "-2"],
        expect![[r#"
            1 0+500 reserved: machine, owns [] of 0,4, mems 
            2 2 reserved: machine, owns [] of 0,4, mems 
            3 6: machine, owns [1-3,5-7] of 1-3,5-7, mems 
            4 4: refused: needs 4 exclusive CPUs; 0 are free
            -1: shared 
            -2: shared 
        "#]],
    );
}

#[test]
fn a_container_that_requests_nothing_flees_to_the_reserved_cpus_when_all_others_are_owned() {
    check(
        "numa:2 core:4",
        "0",
        &["1 0+0", "2 7", "3 0+0", "4 0+100", "-2", "5 7", "-4", "6 7", "7 1+0"],
        expect![[r#"
            1 0+0: numa 1, owns [] of 4-7, mems 1
            2 7: machine, owns [1-7] of 1-7, mems 0-1
            3 0+0: machine, owns [] of 0, mems 0-1
            4 0+100: machine, owns [] of 0, mems 0-1
            -2: shared 1-7
            5 7: refused: needs 7 exclusive CPUs; 6 are free
            -4: shared 1-7
            6 7: machine, owns [1-7] of 1-7, mems 0-1
            7 1+0: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn isolated_cpus_are_in_no_shared_set() {
    check(
        "core:8 isolated:6-7",
        "0",
        &["1 0+100", "2 4", "3 1"],
        expect![[r#"
            1 0+100: machine, owns [] of 1-5, mems 
            2 4: machine, owns [1-4] of 1-4, mems 
            3 1: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn a_container_that_stands_apart_keeps_others_out_when_that_is_required() {
    check(
        "numa:2 l3:2 core:4",
        "",
        &[
            "1 1 apart:L3!",
            "2 1",
            "3 1 apart:L3",
            "4 1 apart:L3",
            "5 1 apart:L3!",
            "6 1 apart:Numa!",
            "-1",
            "7 1 apart:L3!",
            "8 0+100",
        ],
        expect![[r#"
            1 1 apart:L3!: l3 0, owns [1] of 1, mems 0
            2 1: l3 1, owns [4] of 4, mems 0
            3 1 apart:L3: l3 2, owns [8] of 8, mems 1
            4 1 apart:L3: l3 3, owns [12] of 12, mems 1
            5 1 apart:L3!: refused: needs 1 exclusive CPU without other exclusive containers in the same L3; 0 are free
            6 1 apart:Numa!: refused: needs 1 exclusive CPU without other exclusive containers in the same NUMA node; 0 are free
            -1: shared 0-3,5-7,9-11,13-15
            7 1 apart:L3!: l3 0, owns [1] of 1, mems 0
            8 0+100: numa 0, owns [] of 0,2-3,5-7, mems 0
        "#]],
    );
}

#[test]
fn isolated_cpus_are_for_containers_that_ask_for_them() {
    check(
        "core:8 isolated:5-7",
        "0",
        &[
            "1 1",
            "2 2 isolated",
            "3 2 isolated",
            "4 2 isolated!",
            "5 1 isolated!",
            "-2",
            "6 1+200 isolated!",
            "7 0+100",
        ],
        expect![[r#"
            1 1: machine, owns [1] of 1, mems 
            2 2 isolated: machine, owns [5-6] of 5-6, mems 
            3 2 isolated: machine, owns [2-3] of 2-3, mems 
            4 2 isolated!: refused: needs 2 exclusive CPUs isolated by the kernel; 1 is free
            5 1 isolated!: machine, owns [7] of 7, mems 
            -2: shared 4
            6 1+200 isolated!: machine, owns [5] of 4-5, mems 
            7 0+100: machine, owns [] of 4, mems 
        "#]],
    );
}

#[test]
fn cpus_in_a_partition_of_another_system_are_not_given() {
    let mut snapshot = parse_machine("core:8 isolated:6-7").unwrap();
    snapshot.partitioned = Some("5-6".parse().unwrap());
    let topology = derive(&snapshot).unwrap();
    let mut ledger =
        Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
    assert_eq!(play(&mut ledger, "1 0+100"), "machine, owns [] of 0-4, mems ");
    assert_eq!(play(&mut ledger, "2 1 isolated!"), "machine, owns [7] of 7, mems ");
    let refused = "refused: needs 1 exclusive CPU isolated by the kernel; 0 are free";
    assert_eq!(play(&mut ledger, "3 1 isolated!"), refused);
}

/// A container that has claimed them holds nothing, has the memory near them, and is neither owner nor sharer of others.
#[test]
fn claimed_cpus_are_not_given_and_memory_near_them_is_set_aside() {
    let ledger = machine("pack:2 numa:1 core:4 mem:8", "").unwrap();
    let claimed = ledger.pools().with_claimed(&"2-3,6".parse().unwrap());
    let mut ledger = Ledger::new(Arc::new(claimed));
    for (step, expected) in [
        ("1 0+0 claimed:6 mem:3", "machine, owns [] of 0-1,4-5,7, mems 1"),
        ("2 0+0 claimed:2-3 mem:9", "machine, owns [] of 0-1,4-5,7, mems 0-1"),
        ("3 4", "machine, owns [1,4-5,7] of 1,4-5,7, mems 0-1"),
        ("4 1", "refused: needs 1 exclusive CPU; 0 are free"),
    ] {
        assert_eq!(play(&mut ledger, step), expected, "{step}");
    }
}

#[test]
fn claimed_cpus_leave_reserved_ones_and_without_these_one_shared_one() {
    for (reserved, claimed, expected) in [
        ("", "2-9", "reserved , shared 0-1"),
        ("", "0-3", "reserved , shared 3"),
        ("0", "0-2", "reserved 0, shared 3"),
        ("0", "0-3", "reserved 0, shared "),
    ] {
        let ledger = machine("core:4", reserved).unwrap();
        let pools = ledger.pools().with_claimed(&claimed.parse().unwrap());
        let shown = format!("reserved {}, shared {}", pools.reserved(), pools.allocatable());
        assert_eq!(shown, expected, "{reserved} {claimed}");
    }
}

#[test]
fn a_container_that_is_left_alone_is_counted_but_owns_nothing() {
    check(
        "numa:2 core:4",
        "",
        &["1 2 preserve", "2 0+500 preserve", "3 4", "4 1"],
        expect![[r#"
            1 2 preserve: machine, owns [] of 0-7, mems 0-1
            2 0+500 preserve: machine, owns [] of 0-7, mems 0-1
            3 4: numa 0, owns [0-3] of 0-3, mems 0
            4 1: numa 1, owns [4] of 4, mems 1
        "#]],
    );
}
