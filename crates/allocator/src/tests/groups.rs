//! Groups by example: `ID N group [WISH]...` makes one, `ID 0 in:GROUP` joins it, `ID N inside:GROUP` has CPUs of its own in it, `GROUP=N` resizes it.

use super::*;

/// Every member and its CPUs at the end.
fn check_members(line: &str, reserved: &str, steps: &[&str], expected: Expect) {
    let mut ledger = machine(line, reserved).unwrap();
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("{step}: {}\n", play(&mut ledger, step)));
    }
    for (id, held) in ledger.allocations().filter(|(_, it)| it.terms.part.group().is_some()) {
        text.push_str(&format!("{id} on {}, mems {}\n", ledger.cpus_of(held), held.mems));
    }
    assert_eq!(check_ledger(&ledger), Vec::<String>::new());
    expected.assert_eq(&text);
}

#[test]
fn members_follow_a_group_that_grows_and_shrinks() {
    check_members(
        "pack:2 numa:2 core:2 pu:2 mem:8",
        "0",
        &["1 1 group", "2 0+500 in:1", "3 0+2000 in:1", "1=3", "4 2", "1=6", "1=2", "-3"],
        expect![[r#"
            1 1 group: numa 0, owns [8] of 8, mems 0
            2 0+500 in:1: numa 0, owns [] of 8, mems 0
            3 0+2000 in:1: numa 0, owns [] of 8, mems 0
            1=3: 1,8-9
            4 2: numa 1, owns [2,10] of 2,10, mems 1
            1=6: 1,4-5,8-9,12
            1=2: 1,9
            -3: shared 3-8,11-15
            #2 on 1,9, mems 0,2
        "#]],
    );
}

#[test]
fn a_group_has_the_memory_of_all_of_its_nodes() {
    check_members(
        "numa:2 core:4 pu:1 mem:8",
        "",
        &["1 2 group", "2 0 in:1 mem:3", "1=6", "3 0 in:1 mem:9"],
        expect![[r#"
            1 2 group: numa 0, owns [1-2] of 1-2, mems 0
            2 0 in:1 mem:3: numa 0, owns [] of 1-2, mems 0
            1=6: 1-2,4-7
            3 0 in:1 mem:9: machine, owns [] of 1-2,4-7, mems 0-1
            #2 on 1-2,4-7, mems 0-1
            #3 on 1-2,4-7, mems 0-1
        "#]],
    );
}

#[test]
fn members_have_cpus_of_their_own_inside() {
    check_members(
        "numa:1 core:8 pu:1",
        "0",
        &[
            "1 4 group",
            "2 2 inside:1",
            "3 0 in:1",
            "4 2 inside:1",
            "4 1 inside:1",
            "1=2",
            "1=5",
            "-2",
            "1=2",
        ],
        expect![[r#"
            1 4 group: machine, owns [1-4] of 1-4, mems 0
            2 2 inside:1: machine, owns [1-2] of 1-2, mems 0
            3 0 in:1: machine, owns [] of 3-4, mems 0
            4 2 inside:1: refused: the group has 1 CPUs to give, 2 are needed
            4 1 inside:1: machine, owns [3] of 3, mems 0
            1=2: 1-4
            1=5: 1-5
            -2: shared 6-7
            1=2: 1,3
            #3 on 1, mems 0
            #4 on 3, mems 0
        "#]],
    );
}

#[test]
fn lists_and_slots_are_taken_as_they_are() {
    check_members(
        "numa:2 core:4 pu:2",
        "0",
        &[
            "9 0+1000",
            "1 1 group exactly:4-5,12-13",
            "2 2 inside:1 exactly:4,12",
            "3 2 inside:1 exactly:4,12",
            "4 2 inside:1 exactly:5,13",
            "5 0 in:1",
            "6 1 group exactly:0,6",
            "7 1 group exactly:13-14",
            "8 1 group exactly:1-3,6-11,14-15",
            "10 0+1000",
            "-2",
            "3 2 inside:1 exactly:4,12",
        ],
        expect![[r#"
            9 0+1000: numa 1, owns [] of 4-7,12-15, mems 1
            1 1 group exactly:4-5,12-13: numa 1, owns [4-5,12-13] of 4-5,12-13, mems 1
            2 2 inside:1 exactly:4,12: numa 1, owns [4,12] of 4,12, mems 1
            3 2 inside:1 exactly:4,12: refused: CPUs 4,12 are not free
            4 2 inside:1 exactly:5,13: numa 1, owns [5,13] of 5,13, mems 1
            5 0 in:1: refused: the group has 0 CPUs to give, 1 are needed
            6 1 group exactly:0,6: refused: CPUs 0 are not free
            7 1 group exactly:13-14: refused: CPUs 13 are not free
            8 1 group exactly:1-3,6-11,14-15: refused: 1 of these 11 CPUs has to stay shared
            10 0+1000: numa 0, owns [] of 1-3,8-11, mems 0
            -2: shared 1-3,6-11,14-15
            3 2 inside:1 exactly:4,12: numa 1, owns [4,12] of 4,12, mems 1
            #3 on 4,12, mems 1
            #4 on 5,13, mems 1
        "#]],
    );
}

#[test]
fn a_group_is_not_released_before_its_members() {
    let mut ledger = machine("numa:1 core:4 pu:1", "").unwrap();
    for step in ["1 2 group", "2 0 in:1"] {
        play(&mut ledger, step);
    }
    assert_eq!(ledger.release(ContainerId(1)), None);
    assert!(ledger.release(ContainerId(2)).is_some());
    assert!(ledger.release(ContainerId(1)).is_some());
    assert_eq!(ledger.free().to_string(), "0-3");
}

#[test]
fn a_member_is_not_adopted_without_its_group() {
    let mut ledger = machine("numa:1 core:4 pu:1", "").unwrap();
    let mut held = Allocation::new(PoolId::MACHINE);
    held.terms.part = Part::Member(ContainerId(7));
    assert_eq!(ledger.adopt(ContainerId(1), held), Err(AdoptError::NoGroup(ContainerId(7))));
}

#[test]
fn whole_domains_are_open_while_no_container_owns_a_cpu_there() {
    let mut ledger = machine("pack:2 numa:2 core:2 pu:1", "0").unwrap();
    for step in ["1 1 exactly:2", "2 0+500", "3 0+500"] {
        play(&mut ledger, step);
    }
    let open = |level| -> Vec<String> {
        open_domains(&ledger, level).iter().map(ToString::to_string).collect()
    };
    assert_eq!(open(Level::NumaNode), ["1", "4-5", "6-7"]);
    assert_eq!(open(Level::Package), ["4-7"]);
    assert!(open(Level::Machine).is_empty());
}
