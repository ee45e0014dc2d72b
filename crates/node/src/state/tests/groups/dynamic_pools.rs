//! What dynamic-pools of CRI Resource Manager shows, in our own tables: pools that follow requests and use.

use super::*;

/// Two dynamic pools with one request each; the busier one grows. Differs on purpose from dynamic-pools: CPUs that no pool uses are not divided among them but stay shared, so what changes
/// is one pool, not the place of all of them.
#[test]
fn dynamic_pools_grow_where_members_are_busy() {
    let pool = |name| GroupType { follows: Some(Follow::default()), ..kind(name, requests(1, 6)) };
    check(
        N4C16,
        &[pool("one"), pool("two")],
        &[
            "n/a/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=one",
            "n/b/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=two",
            "n/x/c 100",
            "use 10 n/a/c=3000 n/b/c=200",
            "show",
            "use 100 n/a/c=100 n/b/c=3000",
            "show",
            "-n/a/c",
        ],
        expect![[r#"
            n/a/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=one: on 8
            n/b/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=two: on 1
            n/x/c 100: on 2-3,10-11
            use 10 n/a/c=3000 n/b/c=200: one[0] has 4, two[0] has 1
              one[0] : 2-3,8,10, n/a/c on 2-3,8,10
              two[0] : 1, n/b/c on 1
              n/x/c on 11
            use 100 n/a/c=100 n/b/c=3000: one[0] has 1, two[0] has 4
              one[0] : 8, n/a/c on 8
              two[0] : 1-2,9-10, n/b/c on 1-2,9-10
              n/x/c on 3,11
            -n/a/c: gone
              two[0] : 1-2,9-10, n/b/c on 1-2,9-10
              n/x/c on 3,11
        "#]],
    );
}

/// A pool has what its members request, rounded up; one without members has nothing. Differs on purpose from dynamic-pools: a container that requests more than is there is refused and
/// changes no pool, instead of taking CPUs from all others.
#[test]
fn dynamic_pools_have_what_is_requested() {
    check(
        N4C16,
        &[kind("one", requests(0, 0)), kind("two", requests(0, 0))],
        &[
            "n/a/c 1500 bayplan.dev/group=one",
            "n/b/c 700 bayplan.dev/group=one",
            "n/c/c 9000 bayplan.dev/group=two",
            "n/d/c 4000 bayplan.dev/group=one",
            "-n/c/c",
            "n/d/c 4000 bayplan.dev/group=one",
        ],
        expect![[r#"
            n/a/c 1500 bayplan.dev/group=one: on 1,9
            n/b/c 700 bayplan.dev/group=one: on 1,8-9
            n/c/c 9000 bayplan.dev/group=two: on 2-6,10-13
            n/d/c 4000 bayplan.dev/group=one: bayplan: n/d/c refused: no group of `one` has room; a new one: needs 4 exclusive CPUs; 3 are free
            -n/c/c: gone
            n/d/c 4000 bayplan.dev/group=one: on 1-3,8-11
              one[0] : 1-3,8-11, n/a/c on 1-3,8-11, n/b/c on 1-3,8-11, n/d/c on 1-3,8-11
        "#]],
    );
}

/// The pool `default` takes what no other takes and is there as long as it has a member; pods of reserved namespaces are on the reserved CPUs.
#[test]
fn the_default_pool_is_for_containers_of_no_other() {
    let batch = GroupType { members: of_namespaces("batch"), ..kind("batch", requests(1, 0)) };
    let members = Members { all: true, ..Members::default() };
    let one = || Instances { max: Most::Count(1), ..Instances::default() };
    check(
        N4C16,
        &[
            GroupType { instances: one(), ..batch },
            GroupType { members, instances: one(), ..kind("default", requests(1, 0)) },
        ],
        &[
            "batch/a/c 2000",
            "n/b/c 0 BestEffort",
            "n/d/c 2000 Guaranteed",
            "n/e/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=batch",
            "kube-system/dns/c 100",
            "show",
            "-n/d/c",
            "-n/b/c",
        ],
        expect![[r#"
            batch/a/c 2000: on 1,9
            n/b/c 0 BestEffort: on 8
            n/d/c 2000 Guaranteed: on 2,8
            n/e/c 1000 dynamic-pool.dynamic-pools.cri-resource-manager.intel.com=batch: on 1,9-10
            kube-system/dns/c 100: on 0
              batch[0] : 1,9-10, batch/a/c on 1,9-10, n/e/c on 1,9-10
              default[0] : 2,8, n/b/c on 2,8, n/d/c on 2,8
              kube-system/dns/c on 0
            -n/d/c: gone
            -n/b/c: gone
              batch[0] : 1,9-10, batch/a/c on 1,9-10, n/e/c on 1,9-10
              kube-system/dns/c on 0
        "#]],
    );
}
