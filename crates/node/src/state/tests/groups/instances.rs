//! How many groups of a type there are, and which of them a container is in.

use super::*;

#[test]
fn a_new_balloon_is_preferred_or_the_same_pod_is_together() {
    check(
        N4C16,
        &[
            GroupType {
                instances: Instances { prefers_new: true, ..Instances::default() },
                ..kind("new", requests(2, 0))
            },
            kind("old", requests(1, 6)),
        ],
        &[
            "n/a/c 1000 bayplan.dev/group=new",
            "n/b/c 1000 bayplan.dev/group=new",
            "n/b/d 1000 bayplan.dev/group=new",
            "n/c/c 1500 balloon.balloons.resource-policy.nri.io=old",
            "n/d/c 1500 balloon.balloons.cri-resource-manager.intel.com/container.c=old",
            "n/e/c 4000 bayplan.dev/group=old",
            "n/f/c 1000 bayplan.dev/group=none",
            "n/g/c 1000 bayplan.dev/group=odd",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=new: on 1,9
            n/b/c 1000 bayplan.dev/group=new: on 2,10
            n/b/d 1000 bayplan.dev/group=new: on 2,10
            n/c/c 1500 balloon.balloons.resource-policy.nri.io=old: on 3,11
            n/d/c 1500 balloon.balloons.cri-resource-manager.intel.com/container.c=old: on 3,8,11
            n/e/c 4000 bayplan.dev/group=old: on 4-5,12-13
            n/f/c 1000 bayplan.dev/group=none: on 6-7,14-15
            n/g/c 1000 bayplan.dev/group=odd: bayplan: n/g/c refused: its pod names the group `odd`; groups that pods may name are new, old, or `none`
              new[0] : 1,9, n/a/c on 1,9
              new[1] : 2,10, n/b/c on 2,10, n/b/d on 2,10
              old[0] : 3,8,11, n/c/c on 3,8,11, n/d/c on 3,8,11
              old[1] : 4-5,12-13, n/e/c on 4-5,12-13
              n/f/c on 6-7,14-15
        "#]],
    );
}

#[test]
fn namespaces_have_a_balloon_each_until_there_can_be_no_more() {
    check(
        N4C16,
        &[GroupType {
            members: Members { all: true, ..Members::default() },
            instances: Instances {
                by: InstanceKey::Namespace,
                max: Most::Count(2),
                ..Instances::default()
            },
            ..kind("ns", requests(2, 0))
        }],
        &["a/p/c 1000", "b/p/c 1000", "b/q/c 3000", "c/p/c 500", "kube-system/dns/c 100"],
        expect![[r#"
            a/p/c 1000: on 1,9
            b/p/c 1000: on 2,10
            b/q/c 3000: on 2-3,10-11
            c/p/c 500: on 1,9
            kube-system/dns/c 100: on 0
              ns[0] a: 1,9, a/p/c on 1,9, c/p/c on 1,9
              ns[1] b: 2-3,10-11, b/p/c on 2-3,10-11, b/q/c on 2-3,10-11
              kube-system/dns/c on 0
        "#]],
    );
}

#[test]
fn pods_share_pools_of_a_fixed_size() {
    let dual = |fill| GroupType {
        instances: Instances { min: 2, max: Most::Count(2), fill, ..Instances::default() },
        capacity: Capacity { pods: Some(2), containers: None },
        ..kind("dual", Size::Fixed(2))
    };
    let steps = [
        "n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual",
        "n/b/c 100 bayplan.dev/group=dual",
        "n/b/d 100 bayplan.dev/group=dual",
        "n/c/c 100 bayplan.dev/group=dual",
        "n/d/c 100 bayplan.dev/group=dual",
        "n/e/c 100 bayplan.dev/group=dual",
        "-n/a/c",
    ];
    check(
        N4C16,
        &[dual(Fill::Balanced)],
        &steps,
        expect![[r#"
            n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual: on 1,9
            n/b/c 100 bayplan.dev/group=dual: on 2,10
            n/b/d 100 bayplan.dev/group=dual: on 2,10
            n/c/c 100 bayplan.dev/group=dual: on 1,9
            n/d/c 100 bayplan.dev/group=dual: on 2,10
            n/e/c 100 bayplan.dev/group=dual: bayplan: n/e/c refused: no group of `dual` has room; dual[1]: it has 2 pods already
            -n/a/c: gone
              dual[0] : 1,9, n/c/c on 1,9
              dual[1] : 2,10, n/b/c on 2,10, n/b/d on 2,10, n/d/c on 2,10
        "#]],
    );
    check(
        N4C16,
        &[dual(Fill::Packed)],
        &steps,
        expect![[r#"
            n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual: on 1,9
            n/b/c 100 bayplan.dev/group=dual: on 1,9
            n/b/d 100 bayplan.dev/group=dual: on 1,9
            n/c/c 100 bayplan.dev/group=dual: on 2,10
            n/d/c 100 bayplan.dev/group=dual: on 2,10
            n/e/c 100 bayplan.dev/group=dual: bayplan: n/e/c refused: no group of `dual` has room; dual[1]: it has 2 pods already
            -n/a/c: gone
              dual[0] : 1,9, n/b/c on 1,9, n/b/d on 1,9
              dual[1] : 2,10, n/c/c on 2,10, n/d/c on 2,10
        "#]],
    );
}
