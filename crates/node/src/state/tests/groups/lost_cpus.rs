//! Groups of which CPUs go offline and come back.

use super::*;

#[test]
fn groups_are_where_they_were_when_cpus_come_back() {
    check(
        N4C16,
        &[
            GroupType { members: of_namespaces("shop"), ..kind("web", requests(1, 4)) },
            kind("list", list(&["6-7"])),
        ],
        &[
            "shop/a/c 2000",
            "n/b/c 100 bayplan.dev/group=list",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2 offline:7",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
            "shop/d/c 2000",
        ],
        expect![[r#"
            shop/a/c 2000: on 1,9
            n/b/c 100 bayplan.dev/group=list: on 6-7
              list[0] : 6-7, n/b/c on 6-7
              web[0] : 1,9, shop/a/c on 1,9
            machine pack:2 numa:2 core:2 pu:2 mem:2 offline:7: changed
              list[0] : 6, n/b/c on 6
              web[0] : 1,9, shop/a/c on 1,9
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
            shop/d/c 2000: on 1-2,9-10
              list[0] : 6-7, n/b/c on 6-7
              web[0] : 1-2,9-10, shop/a/c on 1-2,9-10, shop/d/c on 1-2,9-10
        "#]],
    );
}

/// A core of two threads each; NUMA nodes of two cores.
#[test]
fn a_group_that_lost_a_cpu_leaves_exclusive_containers_theirs() {
    check(
        ("pack:1 numa:2 core:2 pu:2 mem:2", "0,4"),
        &[kind("two", Size::Fixed(2))],
        &[
            "n/a/c 100 bayplan.dev/group=two",
            "n/x/c 2000 Guaranteed",
            "show",
            "machine pack:1 numa:2 core:2 pu:2 mem:2 offline:5",
            "show",
            "machine pack:1 numa:2 core:2 pu:2 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=two: on 1,5
            n/x/c 2000 Guaranteed: on 2,6
              two[0] : 1,5, n/a/c on 1,5
              n/x/c on 2,6
            machine pack:1 numa:2 core:2 pu:2 mem:2 offline:5: changed
              two[0] : 1,3, n/a/c on 1,3
              n/x/c on 2,6
            machine pack:1 numa:2 core:2 pu:2 mem:2: changed
              two[0] : 1,3, n/a/c on 1,3
              n/x/c on 2,6
        "#]],
    );
}

#[test]
fn groups_of_a_fixed_size_and_of_a_domain_regain_their_cpus() {
    check(
        N4C16,
        &[
            kind("pair", Size::Fixed(2)),
            GroupType {
                members: of_namespaces("z"),
                ..kind("zone", Size::Domain(Level::NumaNode))
            },
        ],
        &[
            "n/a/c 100 bayplan.dev/group=pair",
            "z/b/c 100",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2 offline:9,11",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=pair: on 1,9
            z/b/c 100: on 2-3,10-11
              pair[0] : 1,9, n/a/c on 1,9
              zone[0] : 2-3,10-11, z/b/c on 2-3,10-11
            machine pack:2 numa:2 core:2 pu:2 mem:2 offline:9,11: changed
              pair[0] : 1,8, n/a/c on 1,8
              zone[0] : 2-3,10, z/b/c on 2-3,10
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
              pair[0] : 1,8, n/a/c on 1,8
              zone[0] : 2-3,10-11, z/b/c on 2-3,10-11
        "#]],
    );
}

/// The one of low priority was there first and has the lower id. Both have lost all of their CPUs: the other one has what is left, and the second CPU that comes back.
#[test]
fn groups_of_a_higher_priority_get_cpus_back_first() {
    let of = |name, priority| GroupType { priority, ..kind(name, Size::Fixed(2)) };
    let machine = "pack:1 numa:1 core:8 pu:1 mem:2";
    let mut node = started((machine, "0"), &[of("low", Priority::Low), of("high", Priority::High)]);
    node.create(&["n/a/c", "100", "bayplan.dev/group=low"]);
    node.create(&["n/b/c", "100", "bayplan.dev/group=high"]);
    node.create(&["n/x/c", "100"]);
    let mut told = vec![format!("{machine}\n{}", node.shown())];
    for line in [
        "pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4,7",
        "pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4",
        machine,
    ] {
        node.machine(line);
        told.push(format!("{line}\n{}", node.shown()));
    }
    expect![[r#"
        pack:1 numa:1 core:8 pu:1 mem:2
          high[0] : 3-4, n/b/c on 3-4
          low[0] : 1-2, n/a/c on 1-2
          n/x/c on 5-7

        pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4,7
          high[0] : 5, n/b/c on 5
          n/a/c on 6
          n/x/c on 6

        pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4
          high[0] : 5-6, n/b/c on 5-6
          n/a/c on 7
          n/x/c on 7

        pack:1 numa:1 core:8 pu:1 mem:2
          high[0] : 5-6, n/b/c on 5-6
          low[0] : 1-2, n/a/c on 1-2
          n/x/c on 3-4,7
    "#]]
    .assert_eq(&told.join("\n"));
}

/// Issue 34: the members stayed outside for good, until the daemon started anew.
#[test]
fn members_of_a_group_that_was_over_are_in_it_again_when_its_cpus_come_back() {
    check(
        ("pack:1 numa:1 core:4 pu:1 mem:2", ""),
        &[kind("last", list(&["3"]))],
        &[
            "n/a/c 100 bayplan.dev/group=last",
            "machine pack:1 numa:1 core:4 pu:1 mem:2 offline:3",
            "show",
            "machine pack:1 numa:1 core:4 pu:1 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=last: on 3
            machine pack:1 numa:1 core:4 pu:1 mem:2 offline:3: changed
              n/a/c on 0-2
            machine pack:1 numa:1 core:4 pu:1 mem:2: changed
              last[0] : 3, n/a/c on 3
        "#]],
    );
}

/// Issue 34: a start while nothing is placed let the group grow, which the daemon had not done while it ran.
#[test]
fn a_short_group_stays_as_it_is_at_a_start_while_the_node_is_restored() {
    let instances = Instances { min: 1, ..Instances::default() };
    let four = GroupType { instances, ..kind("four", Size::Fixed(4)) };
    let mut node = started(("pack:1 numa:1 core:6 pu:1 mem:2", ""), &[four]);
    node.create(&["n/x/c", "1000", "Guaranteed"]);
    node.machine("pack:1 numa:1 core:6 pu:1 mem:2 offline:4");
    node.step(Event::SetMode(Mode::Restored));
    node.step(Event::Ended("n/x/c".to_owned()));
    node.restart();
    assert_eq!(node.shown(), "  four[0] : 1-3\n");
    node.step(Event::SetMode(Mode::Placing));
    assert_eq!(node.shown(), "  four[0] : 1-3,5\n");
}

/// Issue 34: on a machine with smaller pools the group was in another pool once a member had given its slot back, which the journal did not know.
#[test]
fn a_slot_that_is_given_back_on_another_machine_is_where_the_journal_says() {
    check(
        ("pack:1 numa:2 core:3 pu:1 mem:2", ""),
        &[GroupType { inside: Inside::Slots, ..kind("exclusive", list(&["1-2", "3-4"])) }],
        &[
            "machine pack:2 numa:2 l3:2 core:2 pu:1 mem:2",
            "n/a/c 100 bayplan.dev/group=exclusive",
            "-n/a/c",
        ],
        expect![[r#"
            machine pack:2 numa:2 l3:2 core:2 pu:1 mem:2: changed
            n/a/c 100 bayplan.dev/group=exclusive: on 1-2
            -n/a/c: gone
              exclusive[0] : 1-4
        "#]],
    );
}
