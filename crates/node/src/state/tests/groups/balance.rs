//! Groups over the parts of a machine: NUMA nodes, or caches within one.

use super::*;

/// Without the wish groups fill one NUMA node after the other; with it they are on all of them.
#[test]
fn groups_are_balanced_over_numa_nodes() {
    let place = GroupPlace { is_balanced: true, ..GroupPlace::default() };
    let instances = Instances { prefers_new: true, ..Instances::default() };
    let steps = [
        "n/a/c 2000 bayplan.dev/group=one",
        "n/b/c 2000 bayplan.dev/group=one",
        "n/c/c 2000 bayplan.dev/group=one",
        "n/d/c 2000 bayplan.dev/group=one",
    ];
    let one = GroupType { instances, ..kind("one", requests(1, 4)) };
    check(
        N4C16,
        &[GroupType { place, ..one.clone() }],
        &steps,
        expect![[r#"
        n/a/c 2000 bayplan.dev/group=one: on 4,12
        n/b/c 2000 bayplan.dev/group=one: on 2,10
        n/c/c 2000 bayplan.dev/group=one: on 6,14
        n/d/c 2000 bayplan.dev/group=one: on 1,9
          one[0] : 4,12, n/a/c on 4,12
          one[1] : 2,10, n/b/c on 2,10
          one[2] : 6,14, n/c/c on 6,14
          one[3] : 1,9, n/d/c on 1,9
    "#]],
    );
    check(
        N4C16,
        &[one],
        &steps,
        expect![[r#"
        n/a/c 2000 bayplan.dev/group=one: on 1,9
        n/b/c 2000 bayplan.dev/group=one: on 2,10
        n/c/c 2000 bayplan.dev/group=one: on 3,11
        n/d/c 2000 bayplan.dev/group=one: on 4,12
          one[0] : 1,9, n/a/c on 1,9
          one[1] : 2,10, n/b/c on 2,10
          one[2] : 3,11, n/c/c on 3,11
          one[3] : 4,12, n/d/c on 4,12
    "#]],
    );
}

/// Groups of one type, balanced or not, that come, grow, and need much.
fn check_balance(line: &'static str, is_balanced: bool, expected: Expect) {
    let instances = Instances { prefers_new: true, ..Instances::default() };
    let place = GroupPlace { is_balanced, ..GroupPlace::default() };
    let kind = GroupType { instances, place, ..kind("one", requests(1, 0)) };
    let steps = [
        "n/a/c 1000 bayplan.dev/group=one",
        "n/b/c 2000 bayplan.dev/group=one",
        "n/c/c 1000 bayplan.dev/group=one",
        "~n/a/c 2000",
        "n/d/c 5000 bayplan.dev/group=one",
    ];
    check((line, ""), &[kind], &steps, expected);
}

/// A group that needs more than one cache has them, and one that grows stays where it is.
#[test]
fn within_one_numa_node_groups_are_balanced_over_caches() {
    let caches = "pack:1 numa:1 l3:3 core:4 pu:1 mem:8";
    check_balance(
        caches,
        true,
        expect![[r#"
                n/a/c 1000 bayplan.dev/group=one: on 1
                n/b/c 2000 bayplan.dev/group=one: on 4-5
                n/c/c 1000 bayplan.dev/group=one: on 8
                ~n/a/c 2000: resized
                n/d/c 5000 bayplan.dev/group=one: on 0,3,9-11
                  one[0] : 1-2, n/a/c on 1-2
                  one[1] : 4-5, n/b/c on 4-5
                  one[2] : 8, n/c/c on 8
                  one[3] : 0,3,9-11, n/d/c on 0,3,9-11
            "#]],
    );
    check_balance(
        caches,
        false,
        expect![[r#"
                n/a/c 1000 bayplan.dev/group=one: on 1
                n/b/c 2000 bayplan.dev/group=one: on 2-3
                n/c/c 1000 bayplan.dev/group=one: on 0
                ~n/a/c 2000: resized
                n/d/c 5000 bayplan.dev/group=one: on 5,8-11
                  one[0] : 1,4, n/a/c on 1,4
                  one[1] : 2-3, n/b/c on 2-3
                  one[2] : 0, n/c/c on 0
                  one[3] : 5,8-11, n/d/c on 5,8-11
            "#]],
    );
}

/// There is nothing to balance: the wish says no more of cores than a group has without it, which is whole cores first.
#[test]
fn balance_has_no_effect_with_one_cache() {
    let one_cache = "pack:1 numa:1 l3:1 core:6 pu:2 mem:8";
    for is_balanced in [true, false] {
        check_balance(
            one_cache,
            is_balanced,
            expect![[r#"
                n/a/c 1000 bayplan.dev/group=one: on 1
                n/b/c 2000 bayplan.dev/group=one: on 2,8
                n/c/c 1000 bayplan.dev/group=one: on 7
                ~n/a/c 2000: resized
                n/d/c 5000 bayplan.dev/group=one: on 4-5,9-11
                  one[0] : 1,3, n/a/c on 1,3
                  one[1] : 2,8, n/b/c on 2,8
                  one[2] : 7, n/c/c on 7
                  one[3] : 4-5,9-11, n/d/c on 4-5,9-11
            "#]],
        );
    }
}
