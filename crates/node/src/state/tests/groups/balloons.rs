//! What the suites of balloons show beside the number of balloons, in our own tables: which CPUs they have, what members see of them, and what is always there.

use super::*;

/// Two members share the largest balloon, one of them on one thread of each core of it; the third has a new one of the smallest size.
#[test]
fn balloons_show_one_thread_of_each_core_to_members_that_ask_for_it() {
    check(
        N4C16,
        &[GroupType {
            instances: Instances { max: Most::Count(2), ..Instances::default() },
            ..kind("six", requests(4, 6))
        }],
        &[
            "n/a/c 3000 bayplan.dev/group=six",
            "n/b/c 3000 bayplan.dev/group=six hide-hyperthreads.resource-policy.nri.io=true",
            "n/c/c 3000 bayplan.dev/group=six",
            "show",
            "-n/a/c",
            "-n/b/c",
        ],
        expect![[r#"
            n/a/c 3000 bayplan.dev/group=six: on 2-3,10-11
            n/b/c 3000 bayplan.dev/group=six hide-hyperthreads.resource-policy.nri.io=true: on 1-3
            n/c/c 3000 bayplan.dev/group=six: on 4-5,12-13
              six[0] : 1-3,9-11, n/a/c on 1-3,9-11, n/b/c on 1-3
              six[1] : 4-5,12-13, n/c/c on 4-5,12-13
            -n/a/c: gone
            -n/b/c: gone
              six[1] : 4-5,12-13, n/c/c on 4-5,12-13
        "#]],
    );
}

/// Those that are always there are made before any container comes, the types that come first before the others. Where a type comes last, what is left has to do.
#[test]
fn balloons_that_are_always_there_are_made_in_their_order() {
    let always = |name, min, priority| GroupType {
        instances: Instances { min, ..Instances::default() },
        priority,
        ..kind(name, requests(4, 4))
    };
    check(
        N4C16,
        &[
            always("last", 1, Priority::None),
            always("low", 1, Priority::Low),
            always("first", 2, Priority::High),
        ],
        &[
            "show",
            "n/a/c 4000 bayplan.dev/group=last",
            "n/x/c 2000 Guaranteed",
            "n/b/c 4000 bayplan.dev/group=first",
        ],
        expect![[r#"
              first[0] : 2-3,10-11
              first[1] : 4-5,12-13
              low[0] : 6-7,14-15
            n/a/c 4000 bayplan.dev/group=last: bayplan: n/a/c refused: no group of `last` has room; a new last: needs 4 exclusive CPUs; 3 are free
            n/x/c 2000 Guaranteed: on 1,9
            n/b/c 4000 bayplan.dev/group=first: on 2-3,10-11
              first[0] : 2-3,10-11, n/b/c on 2-3,10-11
              first[1] : 4-5,12-13
              low[0] : 6-7,14-15
              n/x/c on 1,9
        "#]],
    );
}

/// Differs on purpose from balloons, in which the one of the system grows beyond the CPUs that are reserved: those are what they are, and system pods that need more share the time of them. A
/// pod that names a type of groups is there.
#[test]
fn balloons_do_not_grow_for_the_system() {
    check(
        N4C16,
        &[kind("web", requests(1, 4))],
        &[
            "kube-system/a/c 1500",
            "kube-system/b/c 3000 Guaranteed",
            "n/x/c 2000 Guaranteed",
            "kube-system/c/c 1500 bayplan.dev/group=web",
            "~kube-system/a/c 2500",
        ],
        expect![[r#"
            kube-system/a/c 1500: on 0
            kube-system/b/c 3000 Guaranteed: on 0
            n/x/c 2000 Guaranteed: on 1,9
            kube-system/c/c 1500 bayplan.dev/group=web: on 2,10
            ~kube-system/a/c 2500: resized
              web[0] : 2,10, kube-system/c/c on 2,10
              kube-system/a/c on 0
              kube-system/b/c on 0
              n/x/c on 1,9
        "#]],
    );
}

/// Each pod is rather in a balloon of its own, and its containers are rather in different ones, until there are too few CPUs.
#[test]
fn balloons_spread_pods_until_the_machine_is_full() {
    check(
        ("pack:1 numa:1 core:8 pu:1 mem:8", "0"),
        &[GroupType {
            instances: Instances { prefers_new: true, spreads_pods: true, ..Instances::default() },
            ..kind("two", requests(2, 4))
        }],
        &[
            "n/a/c0 1000 bayplan.dev/group=two",
            "n/a/c1 1000 bayplan.dev/group=two",
            "n/b/c0 1000 bayplan.dev/group=two",
            "n/b/c1 1000 bayplan.dev/group=two",
            "n/c/c0 2000 bayplan.dev/group=two",
            "n/d/c0 3000 bayplan.dev/group=two",
        ],
        expect![[r#"
            n/a/c0 1000 bayplan.dev/group=two: on 1-2
            n/a/c1 1000 bayplan.dev/group=two: on 3-4
            n/b/c0 1000 bayplan.dev/group=two: on 5-6
            n/b/c1 1000 bayplan.dev/group=two: on 1-2
            n/c/c0 2000 bayplan.dev/group=two: on 3-4,7
            n/d/c0 3000 bayplan.dev/group=two: bayplan: n/d/c0 refused: no group of `two` has room; two[1]: 6 CPUs would be requested of at most 4
              two[0] : 1-2, n/a/c0 on 1-2, n/b/c1 on 1-2
              two[1] : 3-4,7, n/a/c1 on 3-4,7, n/c/c0 on 3-4,7
              two[2] : 5-6, n/b/c0 on 5-6
        "#]],
    );
}

/// A kernel without NUMA.
#[test]
fn balloons_on_a_machine_without_numa_nodes() {
    check(
        ("pack:2 core:4 pu:2", "0"),
        &[GroupType {
            place: GroupPlace { is_balanced: true, ..GroupPlace::default() },
            instances: Instances { prefers_new: true, ..Instances::default() },
            ..kind("one", requests(2, 8))
        }],
        &[
            "n/a/c 2000 bayplan.dev/group=one",
            "n/b/c 2000 bayplan.dev/group=one",
            "~n/a/c 6000",
            "n/x/c 500",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=one: on 4,12
            n/b/c 2000 bayplan.dev/group=one: on 1,9
            ~n/a/c 6000: resized
            n/x/c 500: on 2-3,8,10-11
              one[0] : 4-6,12-14, n/a/c on 4-6,12-14
              one[1] : 1,9, n/b/c on 1,9
              n/x/c on 2-3,8,10-11
        "#]],
    );
}

/// Numbers of CPUs above 1023 are as others, and all are free in the end.
#[test]
fn balloons_on_cpus_with_large_numbers() {
    check(
        ("pack:4 numa:1 core:512 pu:1 mem:8", "0"),
        &[GroupType {
            place: GroupPlace { is_balanced: true, ..GroupPlace::default() },
            instances: Instances { prefers_new: true, ..Instances::default() },
            ..kind("one", requests(2, 0))
        }],
        &[
            "n/a/c 2000 bayplan.dev/group=one",
            "n/b/c 2000 bayplan.dev/group=one",
            "n/c/c 2000 bayplan.dev/group=one",
            "n/d/c 256000 bayplan.dev/group=one",
            "show",
            "-n/a/c",
            "-n/b/c",
            "-n/c/c",
            "-n/d/c",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=one: on 512-513
            n/b/c 2000 bayplan.dev/group=one: on 1024-1025
            n/c/c 2000 bayplan.dev/group=one: on 1536-1537
            n/d/c 256000 bayplan.dev/group=one: on 1-256
              one[0] : 512-513, n/a/c on 512-513
              one[1] : 1024-1025, n/b/c on 1024-1025
              one[2] : 1536-1537, n/c/c on 1536-1537
              one[3] : 1-256, n/d/c on 1-256
            -n/a/c: gone
            -n/b/c: gone
            -n/c/c: gone
            -n/d/c: gone
        "#]],
    );
}
