//! What podpools of CRI Resource Manager shows, in our own tables: whole pods in pools of a fixed size.

use super::*;

/// Pools of two CPUs that are all there from the start.
fn pools_of(count: usize, pods: Option<usize>, fill: Fill) -> GroupType {
    let (min, max) = (count, Most::Count(count));
    GroupType {
        instances: Instances { min, max, fill, ..Instances::default() },
        capacity: Capacity { pods, containers: None },
        ..kind("dual", Size::Fixed(2))
    }
}

const POOL: &str = "pool.podpools.cri-resource-manager.intel.com=dual";

/// Issue 34: pods that request nothing leave as much room in each pool, and went one into each, whatever the order.
#[test]
fn pods_that_request_nothing_are_put_into_pools_in_their_order() {
    let steps = ["n/a/c", "n/b/c", "n/c/c", "n/d/c", "n/e/c"];
    for (fill, expected) in [
        (Fill::Balanced, expect!["on 1,9, on 2,10, on 3,11, on 1,9, on 2,10, on 2,10, on 1,9"]),
        (Fill::Packed, expect!["on 1,9, on 1,9, on 2,10, on 2,10, on 3,11, on 1,9, on 1,9"]),
        (Fill::First, expect!["on 1,9, on 1,9, on 2,10, on 2,10, on 3,11, on 1,9, on 1,9"]),
    ] {
        let mut node = started(N4C16, &[pools_of(3, Some(2), fill)]);
        let mut told = Vec::new();
        for name in steps {
            told.push(node.create(&[name, "0", "BestEffort", POOL]));
        }
        // Of the second pod there is another container, and room for one pod where the first was.
        told.push(node.create(&["n/b/d", "0", "BestEffort", POOL]));
        node.step(Event::Ended("n/a/c".to_owned()));
        told.push(node.create(&["n/f/c", "0", "BestEffort", POOL]));
        expected.assert_eq(&told.join(", "));
        node.restart();
    }
}

/// Pools without a bound for pods: balanced, they are as many in each.
#[test]
fn pods_are_divided_among_pools_without_a_bound() {
    check(
        N4C16,
        &[pools_of(2, None, Fill::Balanced)],
        &[
            "n/a/c 500 bayplan.dev/group=dual",
            "n/b/c 500 bayplan.dev/group=dual",
            "n/c/c 500 bayplan.dev/group=dual",
            "n/d/c 500 bayplan.dev/group=dual",
            "n/e/c 500 bayplan.dev/group=dual",
            "-n/b/c",
            "-n/d/c",
            "n/f/c 500 bayplan.dev/group=dual",
        ],
        expect![[r#"
            n/a/c 500 bayplan.dev/group=dual: on 1,9
            n/b/c 500 bayplan.dev/group=dual: on 2,10
            n/c/c 500 bayplan.dev/group=dual: on 1,9
            n/d/c 500 bayplan.dev/group=dual: on 2,10
            n/e/c 500 bayplan.dev/group=dual: on 1,9
            -n/b/c: gone
            -n/d/c: gone
            n/f/c 500 bayplan.dev/group=dual: on 2,10
              dual[0] : 1,9, n/a/c on 1,9, n/c/c on 1,9, n/e/c on 1,9
              dual[1] : 2,10, n/f/c on 2,10
        "#]],
    );
}

/// Pods may request more than their pool has, as with podpools; it stays as it is, and pods of no pool run elsewhere.
#[test]
fn pools_stay_as_they_are_whatever_pods_request() {
    check(
        N4C16,
        &[pools_of(1, Some(3), Fill::Balanced)],
        &[
            "n/a/c 1500 bayplan.dev/group=dual",
            "n/b/c 1500 bayplan.dev/group=dual",
            "~n/a/c 4000",
            "n/x/c 1500",
            "n/y/c 3000 Guaranteed",
            "kube-system/dns/c 100",
        ],
        expect![[r#"
            n/a/c 1500 bayplan.dev/group=dual: on 1,9
            n/b/c 1500 bayplan.dev/group=dual: on 1,9
            ~n/a/c 4000: resized
            n/x/c 1500: on 2-3,10-11
            n/y/c 3000 Guaranteed: on 2-3,10
            kube-system/dns/c 100: on 0
              dual[0] : 1,9, n/a/c on 1,9, n/b/c on 1,9
              kube-system/dns/c on 0
              n/x/c on 4-5,12-13
              n/y/c on 2-3,10
        "#]],
    );
}

/// Of three pools with four CPUs two have room. Differs on purpose from podpools, which refuses such a configuration: the third is made when there is room for it.
#[test]
fn pools_for_which_there_is_no_room_are_made_later() {
    let quad = GroupType { size: Size::Fixed(4), ..pools_of(3, Some(1), Fill::First) };
    check(
        ("pack:2 numa:2 core:2 pu:2 mem:2 offline:6-7,14-15", "0"),
        &[quad],
        &[
            "n/a/c 4000 bayplan.dev/group=dual",
            "n/b/c 4000 bayplan.dev/group=dual",
            "n/c/c 4000 bayplan.dev/group=dual",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
            "show",
            "n/c/c 4000 bayplan.dev/group=dual",
        ],
        expect![[r#"
            n/a/c 4000 bayplan.dev/group=dual: on 2-3,10-11
            n/b/c 4000 bayplan.dev/group=dual: on 4-5,12-13
            n/c/c 4000 bayplan.dev/group=dual: bayplan: n/c/c refused: no group of `dual` has room; a new dual: needs 4 exclusive CPUs; 3 are free
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
              dual[0] : 2-3,10-11, n/a/c on 2-3,10-11
              dual[1] : 4-5,12-13, n/b/c on 4-5,12-13
              dual[2] : 6-7,14-15
            n/c/c 4000 bayplan.dev/group=dual: on 6-7,14-15
              dual[0] : 2-3,10-11, n/a/c on 2-3,10-11
              dual[1] : 4-5,12-13, n/b/c on 4-5,12-13
              dual[2] : 6-7,14-15, n/c/c on 6-7,14-15
        "#]],
    );
}
