//! What a type says about the CPUs, the memory and the number of its groups, each by what is placed: the rows of the table in `docs/groups.md` that no scenario has.

use bayplan_allocator::{Strictness, Within};
use bayplan_types::{CoreKind, CpuPriority, MemoryKind};

use super::*;

const PREFERRED: Strictness = Strictness::Preferred;

/// A type called `it` with these wishes about its CPUs.
fn with(size: Size, cpus: CpuWishes) -> GroupType {
    GroupType { cpus, ..kind("it", size) }
}

fn in_instances(size: Size, instances: Instances) -> GroupType {
    GroupType { instances, ..kind("it", size) }
}

/// Isolated CPUs are given where they are wished, as far as there are enough: a group has them all or none.
#[test]
fn isolated_cpus_are_for_groups_that_wish_them() {
    let machine = ("pack:1 numa:2 core:4 pu:1 mem:2 isolated:2-3", "0");
    let steps = ["n/a/c 2000 bayplan.dev/group=it", "n/b/c 1000 bayplan.dev/group=it"];
    let new = || Instances { prefers_new: true, ..Instances::default() };
    for (isolated, expected) in [
        (
            Some(PREFERRED),
            expect![[r#"
            n/a/c 2000 bayplan.dev/group=it: on 2-3
            n/b/c 1000 bayplan.dev/group=it: on 1
              it[0] : 2-3, n/a/c on 2-3
              it[1] : 1, n/b/c on 1
        "#]],
        ),
        (
            Some(Strictness::Required),
            expect![[r#"
            n/a/c 2000 bayplan.dev/group=it: on 2-3
            n/b/c 1000 bayplan.dev/group=it: bayplan: n/b/c refused: no group of `it` has room; it[0]: needs 3 exclusive CPUs isolated by the kernel; 2 could be given if all were free
              it[0] : 2-3, n/a/c on 2-3
        "#]],
        ),
        (
            None,
            expect![[r#"
            n/a/c 2000 bayplan.dev/group=it: on 4-5
            n/b/c 1000 bayplan.dev/group=it: on 1
              it[0] : 4-5, n/a/c on 4-5
              it[1] : 1, n/b/c on 1
        "#]],
        ),
    ] {
        let cpus = CpuWishes { isolated, ..CpuWishes::default() };
        let it = GroupType { instances: new(), ..with(requests(1, 0), cpus) };
        check(machine, &[it], &steps, expected);
    }
}

/// A group on performance or on efficient cores, and on others where there are too few of them.
#[test]
fn a_group_has_cores_of_its_kind() {
    let machine = ("pack:1 numa:1 core:4 pu:2 ecore:4 mem:8", "0");
    let kinds = [("fast", CoreKind::Performance), ("slow", CoreKind::Efficient)];
    let types = kinds.map(|(name, core_kind)| {
        let core_kind = Some((core_kind, PREFERRED));
        let cpus = CpuWishes { core_kind, ..CpuWishes::default() };
        GroupType { cpus, ..kind(name, requests(1, 0)) }
    });
    check(
        machine,
        &types,
        &[
            "n/a/c 2000 bayplan.dev/group=slow",
            "n/b/c 2000 bayplan.dev/group=fast",
            "n/c/c 4000 bayplan.dev/group=slow",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=slow: on 8-9
            n/b/c 2000 bayplan.dev/group=fast: on 1,5
            n/c/c 4000 bayplan.dev/group=slow: on 2,4,8-11
              fast[0] : 1,5, n/b/c on 1,5
              slow[0] : 2,4,8-11, n/a/c on 2,4,8-11, n/c/c on 2,4,8-11
        "#]],
    );
}

/// Issue 34: what a group got at once was all of its kind of cores or none, although some were open; and what it gave back was any. It has cores of its kind before others, also when it is made, as a
/// component, and when it shrinks.
#[test]
fn issue_34_a_group_has_cores_of_its_kind_as_far_as_there_are_some() {
    let of = |name, core_kind, size| {
        let core_kind = Some((core_kind, PREFERRED));
        let cpus = CpuWishes { core_kind, ..CpuWishes::default() };
        GroupType { cpus, ..kind(name, size) }
    };
    let fast = of("fast", CoreKind::Performance, requests(1, 0));
    let slow = of("slow", CoreKind::Efficient, requests(1, 0));
    let fixed = of("fixed", CoreKind::Efficient, Size::Fixed(6));
    let both = GroupType {
        components: vec!["fast".to_owned(), "slow".to_owned()],
        ..kind("both", requests(2, 0))
    };
    let machine = ("pack:1 numa:1 core:4 pu:2 ecore:4 mem:8", "0");
    for (types, steps, expected) in [
        (
            vec![fast.clone(), slow.clone()],
            vec![
                "n/a/c 2000 bayplan.dev/group=slow",
                "~n/a/c 6000",
                "show",
                "~n/a/c 3000",
                "show",
                "n/b/c 5000 bayplan.dev/group=fast",
                "~n/b/c 7000",
                "show",
                "~n/b/c 2000",
            ],
            expect![[r#"
                n/a/c 2000 bayplan.dev/group=slow: on 8-9
                ~n/a/c 6000: resized
                  slow[0] : 1,4,8-11, n/a/c on 1,4,8-11
                ~n/a/c 3000: resized
                  slow[0] : 8-10, n/a/c on 8-10
                n/b/c 5000 bayplan.dev/group=fast: on 1-2,4-6
                ~n/b/c 7000: resized
                  fast[0] : 1-7, n/b/c on 1-7
                  slow[0] : 8-10, n/a/c on 8-10
                ~n/b/c 2000: resized
                  fast[0] : 1,5, n/b/c on 1,5
                  slow[0] : 8-10, n/a/c on 8-10
            "#]],
        ),
        (
            vec![fixed],
            vec!["n/a/c 500 bayplan.dev/group=fixed", "n/b/c 500 Burstable"],
            expect![[r#"
                n/a/c 500 bayplan.dev/group=fixed: on 1,4,8-11
                n/b/c 500 Burstable: on 2-3,5-7
                  fixed[0] : 1,4,8-11, n/a/c on 1,4,8-11
                  n/b/c on 2-3,5-7
            "#]],
        ),
        (
            vec![fast, slow, both],
            vec!["n/a/c 4000 bayplan.dev/group=both", "~n/a/c 10000", "show", "~n/a/c 6000"],
            expect![[r#"
                n/a/c 4000 bayplan.dev/group=both: on 1,5,8-9
                ~n/a/c 10000: resized
                  both[0] : 1-6,8-11, n/a/c on 1-6,8-11
                ~n/a/c 6000: resized
                  both[0] : 1,4-5,8-10, n/a/c on 1,4-5,8-10
            "#]],
        ),
    ] {
        check(machine, &types, &steps, expected);
    }
}

/// CPUs with a higher base frequency are those of high priority.
#[test]
fn a_group_has_cpus_of_its_priority() {
    let machine = ("pack:1 numa:1 core:8 pu:1 mem:8 fast:5-6", "0");
    let of = |name, priority| {
        let priority = Some((priority, PREFERRED));
        let cpus = CpuWishes { priority, ..CpuWishes::default() };
        GroupType { cpus, ..kind(name, requests(1, 0)) }
    };
    check(
        machine,
        &[of("high", CpuPriority::High), of("low", CpuPriority::Low)],
        &["n/a/c 2000 bayplan.dev/group=low", "n/b/c 2000 bayplan.dev/group=high"],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=low: on 1-2
            n/b/c 2000 bayplan.dev/group=high: on 5-6
              high[0] : 5-6, n/b/c on 5-6
              low[0] : 1-2, n/a/c on 1-2
        "#]],
    );
}

/// A group that is to lie within a NUMA node does not grow beyond it; another one is made for what has no room.
#[test]
fn a_group_stays_within_its_domain() {
    let within = Some(Within::One(Level::NumaNode));
    let cpus = CpuWishes { within, ..CpuWishes::default() };
    check(
        N4C16,
        &[with(requests(1, 0), cpus)],
        &[
            "n/a/c 3000 bayplan.dev/group=it",
            "n/b/c 3000 bayplan.dev/group=it",
            "n/c/c 5000 bayplan.dev/group=it",
        ],
        expect![[r#"
            n/a/c 3000 bayplan.dev/group=it: on 1,8-9
            n/b/c 3000 bayplan.dev/group=it: on 2-3,10
            n/c/c 5000 bayplan.dev/group=it: bayplan: n/c/c refused: no group of `it` has room; a new it: is wider than one NumaNode
              it[0] : 1,8-9, n/a/c on 1,8-9
              it[1] : 2-3,10, n/b/c on 2-3,10
        "#]],
    );
}

/// Members that say nothing have the memory that their type says; one that says something has that.
#[test]
fn members_have_the_memory_of_their_type() {
    let memory_kinds = vec![MemoryKind::Hbm];
    let types = [GroupType { memory_kinds, ..kind("it", requests(1, 0)) }];
    let mut node = started(("pack:1 numa:2 core:4 pu:1 mem:8 hbm:4/numa", "0"), &types);
    node.create(&["n/a/c", "1000", "bayplan.dev/group=it"]);
    node.create(&["n/b/c", "1000", "bayplan.dev/group=it", "bayplan.dev/memory-type=dram"]);
    node.create(&["n/c/c", "1000"]);
    let status = node.state.status();
    let shown =
        status.containers.iter().map(|it| format!("{} on {}, mems {}", it.pod, it.cpus, it.mems));
    expect![[r#"
        a on 1-2, mems 2
        b on 1-2, mems 0
        c on 4-7, mems 1"#]]
    .assert_eq(&shown.collect::<Vec<_>>().join("\n"));
    node.restart();
}

/// Containers with the same label are together, those without it, too.
#[test]
fn a_template_makes_a_group_of_each_value() {
    let by = InstanceKey::Template("${pod/labels/tenant}".to_owned());
    check(
        N4C16,
        &[in_instances(requests(1, 0), Instances { by, ..Instances::default() })],
        &[
            "n/a/c 1000 bayplan.dev/group=it tenant=red",
            "n/b/c 1000 bayplan.dev/group=it tenant=blue",
            "m/c/c 1000 bayplan.dev/group=it tenant=red",
            "n/d/c 1000 bayplan.dev/group=it",
            "m/e/c 1000 bayplan.dev/group=it",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=it tenant=red: on 8
            n/b/c 1000 bayplan.dev/group=it tenant=blue: on 1
            m/c/c 1000 bayplan.dev/group=it tenant=red: on 8-9
            n/d/c 1000 bayplan.dev/group=it: on 2
            m/e/c 1000 bayplan.dev/group=it: on 2,10
              it[0] red: 8-9, m/c/c on 8-9, n/a/c on 8-9
              it[1] blue: 1, n/b/c on 1
              it[2] : 2,10, m/e/c on 2,10, n/d/c on 2,10
        "#]],
    );
}

/// Groups of a fixed size take what comes as long as `capacity` allows it: the first one that does, or the one with most room.
#[test]
fn the_first_group_is_filled_first() {
    let steps = [
        "n/a/c 1000 bayplan.dev/group=it",
        "n/b/c 3000 bayplan.dev/group=it",
        "n/c/c 2000 bayplan.dev/group=it",
        "n/d/c 1000 bayplan.dev/group=it",
    ];
    let filled = |fill| {
        let instances = Instances { min: 3, max: Most::Count(3), fill, ..Instances::default() };
        in_instances(Size::Fixed(4), instances)
    };
    let machine = ("pack:1 numa:1 core:16 pu:1 mem:8", "0");
    check(
        machine,
        &[filled(Fill::First)],
        &steps,
        expect![[r#"
        n/a/c 1000 bayplan.dev/group=it: on 1-4
        n/b/c 3000 bayplan.dev/group=it: on 1-4
        n/c/c 2000 bayplan.dev/group=it: on 1-4
        n/d/c 1000 bayplan.dev/group=it: on 1-4
          it[0] : 1-4, n/a/c on 1-4, n/b/c on 1-4, n/c/c on 1-4, n/d/c on 1-4
          it[1] : 5-8
          it[2] : 9-12
    "#]],
    );
    check(
        machine,
        &[filled(Fill::Balanced)],
        &steps,
        expect![[r#"
        n/a/c 1000 bayplan.dev/group=it: on 1-4
        n/b/c 3000 bayplan.dev/group=it: on 5-8
        n/c/c 2000 bayplan.dev/group=it: on 9-12
        n/d/c 1000 bayplan.dev/group=it: on 1-4
          it[0] : 1-4, n/a/c on 1-4, n/d/c on 1-4
          it[1] : 5-8, n/b/c on 5-8
          it[2] : 9-12, n/c/c on 9-12
    "#]],
    );
}

/// `max: 8 CPUs`: four groups of two, and no fifth.
#[test]
fn a_number_of_cpus_bounds_the_number_of_groups() {
    let max = Most::Cpus(8);
    let instances = Instances { max, prefers_new: true, ..Instances::default() };
    check(
        N4C16,
        &[in_instances(Size::Fixed(2), instances)],
        &[
            "n/a/c 2000 bayplan.dev/group=it",
            "n/b/c 2000 bayplan.dev/group=it",
            "n/c/c 2000 bayplan.dev/group=it",
            "n/d/c 2000 bayplan.dev/group=it",
            "n/e/c 2000 bayplan.dev/group=it",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=it: on 1,9
            n/b/c 2000 bayplan.dev/group=it: on 2,10
            n/c/c 2000 bayplan.dev/group=it: on 3,11
            n/d/c 2000 bayplan.dev/group=it: on 4,12
            n/e/c 2000 bayplan.dev/group=it: on 1,9
              it[0] : 1,9, n/a/c on 1,9, n/e/c on 1,9
              it[1] : 2,10, n/b/c on 2,10
              it[2] : 3,11, n/c/c on 3,11
              it[3] : 4,12, n/d/c on 4,12
        "#]],
    );
}
