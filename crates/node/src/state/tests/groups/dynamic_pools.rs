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

/// A group that follows use grows beyond what its members request, to its maximum, and shrinks by more than its deadband only; a new member has its CPUs at once.
#[test]
fn a_group_follows_what_its_members_use() {
    let follows = Some(Follow { changes_per_minute: 2, ..Follow::default() });
    check(
        N4C16,
        &[GroupType { follows, ..kind("pool", requests(1, 6)) }],
        &[
            "n/a/c 1000 bayplan.dev/group=pool",
            "use 10 n/a/c=1000",
            "use 20 n/a/c=2000",
            "use 30 n/a/c=3000",
            "use 80 n/a/c=9000",
            "n/b/c 2000 bayplan.dev/group=pool",
            "use 90 n/a/c=3500 n/b/c=100",
            "use 160 n/a/c=100 n/b/c=100",
            "-n/b/c",
            "use 230 n/a/c=100",
            "-n/a/c",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=pool: on 8
            use 10 n/a/c=1000: pool[0] has 2
            use 20 n/a/c=2000: pool[0] has 3
            use 30 n/a/c=3000: pool[0] has 4
            use 80 n/a/c=9000: pool[0] has 6
            n/b/c 2000 bayplan.dev/group=pool: on 1-3,8-10
            use 90 n/a/c=3500 n/b/c=100: pool[0] has 6
            use 160 n/a/c=100 n/b/c=100: pool[0] has 3
            -n/b/c: gone
            use 230 n/a/c=100: pool[0] has 1
            -n/a/c: gone
        "#]],
    );
}

/// A try to grow for which there is no room is made again without counting as another size, and refuses no member that needs less.
#[test]
fn a_group_that_follows_use_on_a_full_machine() {
    let follows = Some(Follow { changes_per_minute: 2, ..Follow::default() });
    check(
        N4C16,
        &[GroupType { follows, ..kind("pool", requests(1, 0)) }],
        &[
            "n/x/c 12000 Guaranteed",
            "n/a/c 1000 bayplan.dev/group=pool",
            "use 10 n/a/c=3000",
            "use 20 n/a/c=3000",
            "use 30 n/a/c=3000",
            "n/b/c 1000 bayplan.dev/group=pool",
            "-n/x/c",
            "use 40 n/a/c=3000",
        ],
        expect![[r#"
            n/x/c 12000 Guaranteed: on 2-7,10-15
            n/a/c 1000 bayplan.dev/group=pool: on 8
            use 10 n/a/c=3000: pool[0] has 1
            use 20 n/a/c=3000: pool[0] has 1
            use 30 n/a/c=3000: pool[0] has 1
            n/b/c 1000 bayplan.dev/group=pool: on 1,8
            -n/x/c: gone
            use 40 n/a/c=3000: pool[0] has 4
              pool[0] : 1-2,8-9, n/a/c on 1-2,8-9, n/b/c on 1-2,8-9
        "#]],
    );
}

/// A group that follows use and loses all of its CPUs has as many elsewhere as were measured.
#[test]
fn a_group_that_follows_use_keeps_its_size_elsewhere() {
    let kind = kind("pool", requests(1, 6));
    let mut node = started(N4C16, &[GroupType { follows: Some(Follow::default()), ..kind }]);
    node.create(&["n/a/c", "1000", "bayplan.dev/group=pool"]);
    let mut told = vec![node.used(&["10", "n/a/c=2000"]), node.shown()];
    node.machine("pack:2 numa:2 core:2 pu:2 mem:2 offline:1-3,8-11");
    told.push(node.shown());
    expect![[r#"
        pool[0] has 3
          pool[0] : 1,8-9, n/a/c on 1,8-9

          pool[0] : 4-5,12, n/a/c on 4-5,12
    "#]]
    .assert_eq(&told.join("\n"));
}

/// A group that is made of others and follows use grows and shrinks by equal parts.
#[test]
fn a_composite_follows_what_its_members_use() {
    let part = |name| kind(name, requests(0, 0));
    let components = vec!["west".to_owned(), "east".to_owned()];
    let follows = Some(Follow::default());
    check(
        N4C16,
        &[
            part("west"),
            part("east"),
            GroupType { components, follows, ..kind("both", requests(1, 8)) },
        ],
        &[
            "n/a/c 1000 bayplan.dev/group=both",
            "use 10 n/a/c=3500",
            "show",
            "use 100 n/a/c=9000",
            "use 200 n/a/c=500",
            "-n/a/c",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=both: on 1,8
            use 10 n/a/c=3500: both[0] has 6
              both[0] : 1-3,8-10, n/a/c on 1-3,8-10
            use 100 n/a/c=9000: both[0] has 8
            use 200 n/a/c=500: both[0] has 2
            -n/a/c: gone
        "#]],
    );
}
