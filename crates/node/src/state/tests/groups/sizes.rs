//! Groups that grow and shrink with their members, and what members run on beside.

use super::*;

#[test]
fn a_balloon_grows_and_shrinks_with_its_members() {
    check(
        N4C16,
        &[GroupType {
            members: of_namespaces("shop"),
            instances: Instances { max: Most::Count(1), ..Instances::default() },
            ..kind("web", requests(1, 4))
        }],
        &[
            "bank/x/c 500",
            "shop/a/c 1000",
            "shop/b/c 1500",
            "show",
            "~shop/b/c 3000",
            "~shop/b/c 4000",
            "show",
            "shop/d/c 1000",
            "-shop/a/c",
            "show",
            "-shop/b/c",
        ],
        expect![[r#"
            bank/x/c 500: on 2-3,10-11
            shop/a/c 1000: on 8
            shop/b/c 1500: on 1,8-9
              web[0] : 1,8-9, shop/a/c on 1,8-9, shop/b/c on 1,8-9
              bank/x/c on 2-3,10-11
            ~shop/b/c 3000: resized
            ~shop/b/c 4000: bayplan: shop/b/c refused: its group web[0] cannot be fitted: 5 CPUs would be requested of at most 4
              web[0] : 1-2,8-9, shop/a/c on 1-2,8-9, shop/b/c on 1-2,8-9
              bank/x/c on 3,10-11
            shop/d/c 1000: bayplan: shop/d/c refused: no group of `web` has room; web[0]: 5 CPUs would be requested of at most 4
            -shop/a/c: gone
              web[0] : 1,8-9, shop/b/c on 1,8-9
              bank/x/c on 2-3,10-11
            -shop/b/c: gone
              bank/x/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn idle_siblings_stay_idle_when_a_group_shrinks() {
    let packing = Packing::Spread;
    let cpus = CpuWishes { siblings: Siblings::Idle, packing, ..CpuWishes::default() };
    let inside = Inside::GuaranteedExclusive;
    let mut node = started(N4C16, &[GroupType { cpus, inside, ..kind("idle", requests(1, 4)) }]);
    let idle = |node: &Node| node.state.ledger.groups().next().unwrap().1.idle.to_string();
    node.create(&["n/a/c", "2000", "Guaranteed", "bayplan.dev/group=idle"]);
    node.create(&["n/b/c", "2000", "bayplan.dev/group=idle"]);
    assert_eq!(idle(&node), "10-11");
    node.step(Event::Ended("n/b/c".to_owned()));
    assert_eq!(idle(&node), "10-11");
    assert_eq!(node.resize("n/a/c", 1000), "resized");
    assert_eq!(idle(&node), "10");
    node.restart();
}

#[test]
fn a_resize_that_shrinks_a_group_is_answered_with_the_set_that_is_left() {
    let mut node = started(N4C16, &[kind("web", requests(1, 4))]);
    node.create(&["n/a/c", "4000", "bayplan.dev/group=web"]);
    let answer = node.step(Event::Resize("n/a/c".to_owned(), resources(2000)));
    let Answer::Admission(Admission::Place(told)) = answer else { unreachable!("{answer:?}") };
    assert_eq!(told.cpus.to_string(), node.state.group_statuses()[0].cpus);
    assert_eq!(told.cpus.len(), 2);
}

#[test]
fn members_share_idle_cpus_around_their_group_until_others_come() {
    let cpus = CpuWishes { shares_idle: Some(Level::NumaNode), ..CpuWishes::default() };
    check(
        N4C16,
        &[GroupType { cpus, ..kind("web", requests(1, 4)) }],
        &[
            "n/a/c 1000 bayplan.dev/group=web",
            "show",
            "n/x/c 2000 Guaranteed",
            "n/y/c 100",
            "n/z/c 100",
            "n/u/c 100",
            "n/v/c 100",
            "show",
            "-n/x/c",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=web: on 1,8-9
              web[0] : 8, n/a/c on 1,8-9
            n/x/c 2000 Guaranteed: on 1,9
            n/y/c 100: on 2-3,10-11
            n/z/c 100: on 4-5,12-13
            n/u/c 100: on 6-7,14-15
            n/v/c 100: on 2-3,10-11
              web[0] : 8, n/a/c on 8
              n/u/c on 6-7,14-15
              n/v/c on 2-3,10-11
              n/x/c on 1,9
              n/y/c on 2-3,10-11
              n/z/c on 4-5,12-13
            -n/x/c: gone
              web[0] : 8, n/a/c on 1,8-9
              n/u/c on 6-7,14-15
              n/v/c on 2-3,10-11
              n/y/c on 2-3,10-11
              n/z/c on 4-5,12-13
        "#]],
    );
}

/// Around a group are the L2 caches that its CPUs have with other cores, and where each core has a cache of its own, that.
#[test]
fn members_share_idle_cpus_of_their_l2_caches() {
    let cpus = CpuWishes { shares_idle: Some(Level::L2), ..CpuWishes::default() };
    let types = [GroupType { cpus, ..kind("web", requests(1, 4)) }];
    check(
        ("pack:1 numa:2 l2:2 core:2 pu:2 mem:2", "0"),
        &types,
        &[
            "n/a/c 1000 bayplan.dev/group=web",
            "show",
            "n/x/c 2000 Guaranteed",
            "show",
            "-n/x/c",
            "n/b/c 2000 bayplan.dev/group=web",
            "show",
            "n/y/c 100",
            "n/z/c 100",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=web: on 1,8-9
              web[0] : 8, n/a/c on 1,8-9
            n/x/c 2000 Guaranteed: on 1,9
              web[0] : 8, n/a/c on 8
              n/x/c on 1,9
            -n/x/c: gone
            n/b/c 2000 bayplan.dev/group=web: on 1,8-9
              web[0] : 1,8-9, n/a/c on 1,8-9, n/b/c on 1,8-9
            n/y/c 100: on 4-7,12-15
            n/z/c 100: on 4-7,12-15
              web[0] : 1,8-9, n/a/c on 1,8-9, n/b/c on 1,8-9
              n/y/c on 4-7,12-15
              n/z/c on 4-7,12-15
        "#]],
    );
    check(
        ("pack:1 numa:1 core:4 pu:2 mem:2", ""),
        &types,
        &["n/a/c 1000 bayplan.dev/group=web"],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=web: on 1,5
              web[0] : 1, n/a/c on 1,5
        "#]],
    );
}
