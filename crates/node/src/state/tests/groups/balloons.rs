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
        expect![],
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
        expect![],
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
        expect![],
    );
}

/// Each pod is rather in a balloon of its own, and its containers are rather in different ones, until there are too few CPUs.
#[test]
fn balloons_spread_pods_until_the_machine_is_full() {
    check(
        ("pack:1 numa:1 core:8 pu:1 mem:8", "0"),
        &[GroupType {
            instances: Instances {
                prefers_new: true,
                spreads_pods: true,
                ..Instances::default()
            },
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
        expect![],
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
        expect![],
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
            "n/d/c 512000 bayplan.dev/group=one",
            "show",
            "-n/a/c",
            "-n/b/c",
            "-n/c/c",
            "-n/d/c",
        ],
        expect![],
    );
}
