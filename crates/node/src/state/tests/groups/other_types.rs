//! Other types of groups while containers run, and after a restart.

use super::*;

#[test]
fn a_changed_size_counts_after_a_restart() {
    let mut node = started(N4C16, &[kind("pair", Size::Fixed(2))]);
    node.create(&["n/a/c", "100", "bayplan.dev/group=pair"]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1,9");
    node.types = [kind("pair", Size::Fixed(4))].into();
    let mut again = empty(N4C16, &node.types);
    again.restore(replay(&node.journal), NOW);
    node.state = again;
    node.step(Event::Ping);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-2,9-10");
    node.restart();
}

#[test]
fn a_preview_of_other_types_knows_what_groups_of_another_size_move() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "2000", "bayplan.dev/group=web"]);
    node.create(&["n/x/c", "500"]);
    let shifts = node.reload(&[kind("web", requests(4, 8))]);
    assert_eq!(shifts, "n/a/c to 1-2,9-10, n/x/c to 3,11");
    node.restart();
}

#[test]
fn a_member_of_a_group_above_a_lowered_maximum_may_be_resized_down() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "4000", "bayplan.dev/group=web"]);
    node.create(&["n/b/c", "3000", "bayplan.dev/group=web"]);
    node.reload(&[kind("web", requests(1, 4))]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-3,8-11");
    assert_eq!(node.resize("n/a/c", 3000), "resized");
    expect!["bayplan: n/a/c refused: its group web[0] cannot be fitted: 7 CPUs would be requested of at most 4"].assert_eq(&node.resize("n/a/c", 4000));
    assert_eq!(node.shown(), "  web[0] : 1-3,9-11, n/a/c on 1-3,9-11, n/b/c on 1-3,9-11\n");
}

/// Issue 34: where members request more than their group may have, and it has less, because it is of another type now, a resize to the resources that a member has was refused.
#[test]
fn issue_34_a_resize_of_a_member_that_changes_nothing_is_made() {
    let mut node = started(N4C16, &[kind("web", Size::Fixed(2))]);
    node.create(&["n/a/c", "3000", "bayplan.dev/group=web"]);
    node.create(&["n/b/c", "2000", "bayplan.dev/group=web"]);
    node.start_under(&[kind("web", requests(1, 4))]);
    assert_eq!(node.resize("n/a/c", 3000), "resized");
    expect!["bayplan: n/a/c refused: its group web[0] cannot be fitted: 6 CPUs would be requested of at most 4"].assert_eq(&node.resize("n/a/c", 4000));
}

/// What a change of types is answered with on a node with these containers, and where everything is after it.
#[track_caller]
fn check_change(
    types: &[GroupType],
    containers: &[&[&str]],
    changed: &[GroupType],
    expected: Expect,
) {
    let mut node = started(N4C16, types);
    for words in containers {
        assert!(node.create(words).starts_with("on "), "{words:?}");
    }
    let told = node.reload(changed);
    expected.assert_eq(&after(&told, &node));
    node.restart();
}

fn after(told: &str, node: &Node) -> String {
    let told = if told.is_empty() { "none is moved" } else { told };
    format!("{told}\n{}", node.shown())
}

#[test]
fn types_of_which_a_group_has_no_room_are_refused_as_a_whole() {
    let web = || kind("web", requests(1, 8));
    let apps: [&[&str]; 2] =
        [&["n/a/c", "2000", "bayplan.dev/group=web"], &["n/x/c", "8000", "Guaranteed"]];
    // A group that is always there.
    let always = Instances { min: 2, ..Instances::default() };
    check_change(
        &[web()],
        &apps,
        &[web(), GroupType { instances: always, ..kind("spare", Size::Fixed(3)) }],
        expect![[r#"
            refused: `spare`: 1 of at least 2 groups can be had: needs 3 exclusive CPUs; 2 are free
              web[0] : 1,9, n/a/c on 1,9
              n/x/c on 4-7,12-15
        "#]],
    );
    // One that is there, and is to be larger.
    check_change(
        &[web()],
        &apps,
        &[kind("web", requests(8, 8))],
        expect![[r#"
        refused: web[0] would have 2 CPUs and is to have 8: needs 8 exclusive CPUs; 7 are free
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
    "#]],
    );
    // A list that has an owner.
    check_change(
        &[web()],
        &apps,
        &[web(), kind("own", list(&["4,12"]))],
        expect![[r#"
        refused: `own`: 0 of at least 1 groups can be had: CPUs 4,12 are not free
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
    "#]],
    );
}

/// Issue 34: a group of a fixed size takes members whatever these request. Where its size is to follow them, and may not be as large, it stayed as it was, and the reload was told to have been made.
#[test]
fn issue_34_types_by_which_a_group_may_not_have_what_its_members_request_are_refused() {
    let members: [&[&str]; 2] =
        [&["n/a/c", "3000", "bayplan.dev/group=web"], &["n/b/c", "2000", "bayplan.dev/group=web"]];
    let to = |from: usize, size, expected| {
        check_change(&[kind("web", Size::Fixed(from))], &members, &[kind("web", size)], expected);
    };
    to(
        2,
        requests(1, 4),
        expect![[r#"
            refused: web[0] would have 2 CPUs and is to have 5: 5 CPUs would be requested of at most 4
              web[0] : 1,9, n/a/c on 1,9, n/b/c on 1,9
        "#]],
    );
    to(
        2,
        requests(1, 5),
        expect![[r#"
        n/a/c to 1-3,9-10, n/b/c to 1-3,9-10
          web[0] : 1-3,9-10, n/a/c on 1-3,9-10, n/b/c on 1-3,9-10
    "#]],
    );
    // It has as many, and keeps them.
    to(
        6,
        requests(1, 4),
        expect![[r#"
        n/a/c to 1-3,10-11, n/b/c to 1-3,10-11
          web[0] : 1-3,10-11, n/a/c on 1-3,10-11, n/b/c on 1-3,10-11
    "#]],
    );
    // A smaller size of its own takes nothing away from members that own CPUs inside.
    let inside = |size| GroupType { inside: Inside::GuaranteedExclusive, ..kind("web", size) };
    let owner: [&[&str]; 1] = [&["n/a/c", "3000", "Guaranteed", "bayplan.dev/group=web"]];
    check_change(
        &[inside(Size::Fixed(4))],
        &owner,
        &[inside(Size::Fixed(2))],
        expect![[r#"
            none is moved
              web[0] : 2-3,10, n/a/c on 2-3,10
        "#]],
    );
}

/// The same where a component is what bounds it.
#[test]
fn issue_34_types_of_components_that_are_too_small_are_refused() {
    let types = |size, part: usize| {
        let components = vec!["west".to_owned(), "east".to_owned()];
        let of = |name| kind(name, requests(1, part));
        [of("west"), of("east"), GroupType { components, ..kind("both", size) }]
    };
    let member: [&[&str]; 1] = [&["n/a/c", "6000", "bayplan.dev/group=both"]];
    let to = |(from, had), (size, part), expected| {
        check_change(&types(from, had), &member, &types(size, part), expected);
    };
    to(
        (Size::Fixed(2), 4),
        (requests(1, 8), 2),
        expect![[r#"
        refused: both[0] would have 2 CPUs and is to have 6: 3 CPUs would be of its component west, which has at most 2
          both[0] : 1,8, n/a/c on 1,8
    "#]],
    );
    to(
        (Size::Fixed(2), 4),
        (Size::Fixed(6), 2),
        expect![[r#"
        refused: both[0] would have 2 CPUs and is to have 6: 3 CPUs would be of its component west, which has at most 2
          both[0] : 1,8, n/a/c on 1,8
    "#]],
    );
    to(
        (Size::Fixed(2), 4),
        (requests(1, 8), 3),
        expect![[r#"
        n/a/c to 1-3,8-10
          both[0] : 1-3,8-10, n/a/c on 1-3,8-10
    "#]],
    );
    to(
        (requests(1, 8), 4),
        (requests(1, 8), 2),
        expect![[r#"
            none is moved
              both[0] : 1-3,8-10, n/a/c on 1-3,8-10
        "#]],
    );
}

/// Issue 34: parts of a composite stayed where the earlier wishes of their types had them.
#[test]
fn issue_34_a_composite_is_made_anew_when_a_component_has_other_wishes() {
    let types = |packing| {
        let cpus = CpuWishes { packing, ..CpuWishes::default() };
        let components = vec!["west".to_owned(), "east".to_owned()];
        [
            kind("west", requests(1, 0)),
            GroupType { cpus, ..kind("east", requests(1, 0)) },
            GroupType { components, ..kind("both", requests(1, 0)) },
        ]
    };
    check_change(
        &types(Packing::Packed),
        &[&["n/a/c", "4000", "bayplan.dev/group=both"]],
        &types(Packing::Spread),
        expect![[r#"
            n/a/c to 1-3,9
              both[0] : 1-3,9, n/a/c on 1-3,9
        "#]],
    );
}

/// What a start has made of such types is no reason to refuse others.
#[test]
fn a_group_that_was_too_small_before_keeps_no_change_from_being_made() {
    let mut node = started(N4C16, &[kind("web", Size::Fixed(2))]);
    node.create(&["n/a/c", "5000", "bayplan.dev/group=web"]);
    let web = kind("web", requests(1, 4));
    node.start_under(std::slice::from_ref(&web));
    let told = node.reload(&[web, kind("other", requests(1, 0))]);
    expect![[r#"
        none is moved
          web[0] : 1,9, n/a/c on 1,9
    "#]]
    .assert_eq(&after(&told, &node));
}

#[test]
fn types_with_which_a_container_would_be_refused_are_refused_as_a_whole() {
    let web = |max| kind("web", requests(1, max));
    let shop = |size| GroupType { members: of_namespaces("shop"), ..kind("shop", size) };
    let apps: [&[&str]; 3] = [
        &["n/a/c", "2000", "bayplan.dev/group=web"],
        &["shop/b/c", "3000"],
        &["n/x/c", "8000", "Guaranteed"],
    ];
    // It is to be in a group that cannot be made, or not be as large.
    check_change(
        &[web(8)],
        &apps,
        &[web(8), shop(requests(6, 0))],
        expect![[r#"
        refused: shop/b/c: no group of `shop` has room; a new shop: needs 6 exclusive CPUs; 5 are free
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
          shop/b/c on 2-3,10-11
    "#]],
    );
    check_change(
        &[web(8)],
        &apps,
        &[web(8), shop(requests(1, 2))],
        expect![[r#"
        refused: shop/b/c: no group of `shop` has room; a new shop: 3 CPUs would be requested of at most 2
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
          shop/b/c on 2-3,10-11
    "#]],
    );
    // Its pod names a type that would be gone.
    check_change(
        &[web(8)],
        &apps,
        &[shop(requests(1, 0))],
        expect![[r#"
        refused: n/a/c: its pod names the group `web`; groups that pods may name are shop, or `none`
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
          shop/b/c on 2-3,10-11
    "#]],
    );
    // There is room for all of it.
    check_change(
        &[web(8)],
        &apps,
        &[web(4), shop(requests(1, 0))],
        expect![[r#"
        shop/b/c to 2-3,10
          shop[0] : 2-3,10, shop/b/c on 2-3,10
          web[0] : 1,9, n/a/c on 1,9
          n/x/c on 4-7,12-15
    "#]],
    );
}

#[test]
fn a_member_that_would_own_cpus_without_its_group_needs_room_for_them() {
    let shop = |size| GroupType { members: of_namespaces("shop"), ..kind("shop", size) };
    let owner: [&[&str]; 3] =
        [&["shop/b/c", "4000", "Guaranteed"], &["n/x/c", "11000", "Guaranteed"], &["n/y/c", "100"]];
    check_change(
        &[shop(Size::Fixed(3))],
        &owner,
        &[],
        expect![[r#"
            refused: shop/b/c: its group is another one; refused: needs 4 exclusive CPUs; 3 are free
              shop[0] : 1,8-9, shop/b/c on 1,8-9
              n/x/c on 2-7,10-14
              n/y/c on 15
        "#]],
    );
    // Others make room for it.
    let roomier: [&[&str]; 3] = [owner[0], &["n/x/c", "10000", "Guaranteed"], owner[2]];
    check_change(
        &[shop(Size::Fixed(3))],
        &roomier,
        &[],
        expect![[r#"
        n/y/c to 8, shop/b/c to 1,7,9,15
          n/x/c on 2-6,10-14
          n/y/c on 8
          shop/b/c on 1,7,9,15
    "#]],
    );
}

#[test]
fn while_nothing_is_placed_types_are_not_refused() {
    let shop = GroupType { members: of_namespaces("shop"), ..kind("shop", requests(6, 0)) };
    for (mode, is_refused) in
        [(Mode::Placing, true), (Mode::Draining, false), (Mode::Restored, false)]
    {
        let mut node = started(N4C16, &[]);
        node.create(&["shop/b/c", "3000"]);
        node.create(&["n/x/c", "11000", "Guaranteed"]);
        node.step(Event::SetMode(mode));
        let told = node.reload(std::slice::from_ref(&shop));
        assert_eq!(told.starts_with("refused: "), is_refused, "{told}");
    }
}

/// Undone at once, and after containers have come, gone and been resized.
#[test]
fn a_change_that_is_taken_back_leaves_everything_as_it_was() {
    let web = kind("web", requests(1, 8));
    let shop = GroupType { members: of_namespaces("shop"), ..kind("shop", requests(1, 0)) };
    let begun = || {
        let mut node = started(N4C16, std::slice::from_ref(&web));
        for words in [
            &["n/a/c", "2000", "bayplan.dev/group=web"][..],
            &["shop/b/c", "2000", "Guaranteed"],
            &["shop/d/c", "3000"],
            &["n/x/c", "2000", "Guaranteed"],
        ] {
            node.create(words);
        }
        node
    };
    let mut node = begun();
    let (before, status) = (node.shown(), node.state.status());
    assert_ne!(node.reload(&[web.clone(), shop.clone()]), "");
    assert_ne!(node.shown(), before);
    node.take_back(std::slice::from_ref(&web));
    assert_eq!(node.shown(), before);
    let cpus = |status: &Status| (status.cpus.clone(), status.pools.clone(), status.groups.clone());
    assert_eq!(cpus(&node.state.status()), cpus(&status));

    let mut node = begun();
    node.reload(&[web.clone(), shop]);
    let mut told = vec![
        node.create(&["shop/new/c", "1000"]),
        node.create(&["n/new/c", "2000", "Guaranteed"]),
        node.resize("n/x/c", 1000),
    ];
    node.step(Event::Ended("shop/d/c".to_owned()));
    // It has CPUs that the group of before is to have again.
    told.push(node.create(&["n/own/c", "6000", "Guaranteed"]));
    told.push(node.shown());
    node.take_back(std::slice::from_ref(&web));
    told.push(node.shown());
    expect![[r#"
        on 2,4-5,10,12-13
        on 6,14
        resized
        on 2,7-8,10-11,15
          shop[0] : 4-5,12, shop/b/c on 4-5,12, shop/new/c on 4-5,12
          web[0] : 1,9, n/a/c on 1,9
          n/new/c on 6,14
          n/own/c on 2,7-8,10-11,15
          n/x/c on 3

          web[0] : 1,9, n/a/c on 1,9
          n/new/c on 6,14
          n/own/c on 4-5,7,12-13,15
          n/x/c on 3
          shop/b/c on 2,10
          shop/new/c on 8
    "#]]
    .assert_eq(&told.join("\n"));
}
