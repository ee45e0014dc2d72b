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
    for (isolated, expected) in
        [(Some(PREFERRED), expect![]), (Some(Strictness::Required), expect![]), (None, expect![])]
    {
        let cpus = CpuWishes { isolated, ..CpuWishes::default() };
        let it = GroupType { instances: new(), ..with(requests(1, 0), cpus) };
        check(machine, &[it], &steps, expected);
    }
}

/// A group on performance or on efficient cores, and on others once these are taken.
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
        expect![],
    );
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
        expect![],
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
        expect![],
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
    expect![].assert_eq(&shown.collect::<Vec<_>>().join("\n"));
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
        expect![],
    );
}

/// The first group with room, whichever has most or least of it.
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
    check(machine, &[filled(Fill::First)], &steps, expect![]);
    check(machine, &[filled(Fill::Balanced)], &steps, expect![]);
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
        expect![],
    );
}
