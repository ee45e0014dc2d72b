//! Where groups are and what they are made of: tables of what the suites of balloons show.

use bayplan_allocator::Preserve;
use bayplan_topology::{Device, DeviceKind};
use bayplan_types::NodeId;

use super::*;

/// A network card of this name on a NUMA node of `N4C16`.
pub(super) fn card(name: &str, node: u32) -> Device {
    let cpus = ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"];
    Device {
        address: format!("0000:0{node}:00.0").parse().unwrap(),
        kind: DeviceKind::Network,
        class: 0x02_0000,
        vendor: None,
        device: None,
        node: Some(NodeId(node)),
        cpus: cpus[node as usize].parse().unwrap(),
        physical: None,
        driver: None,
        interfaces: vec![name.to_owned()],
        dev_nodes: Vec::new(),
        memory_node: None,
    }
}

/// A type near a network card is on its NUMA node; one that is to be far from two is elsewhere as long as there is room, and near the one that it names last where
/// there is none.
#[test]
fn groups_are_near_devices_and_far_from_them() {
    let place = |near: &[&str], far: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        GroupPlace { near: names(near), far: names(far), is_balanced: false }
    };
    let mut node = started(
        N4C16,
        &[
            GroupType { place: place(&["/sys/class/net/eth0"], &[]), ..kind("at", requests(1, 4)) },
            GroupType { place: place(&[], &["eth0", "eth1"]), ..kind("off", requests(1, 4)) },
        ],
    );
    node.state.devices = [card("eth0", 2), card("eth1", 3)].into();
    expect!["on 4,12"].assert_eq(&node.create(&["n/a/c", "2000", "bayplan.dev/group=at"]));
    expect!["on 2-3,10-11"].assert_eq(&node.create(&["n/b/c", "4000", "bayplan.dev/group=off"]));
    expect!["on 6-7,14-15"].assert_eq(&node.create(&["n/c/c", "4000", "bayplan.dev/group=off"]));
}

/// Issue 34: NUMA nodes, which files of balloons name by their directories, had no effect.
#[test]
fn issue_34_groups_are_near_numa_nodes_and_far_from_them() {
    let node = |number: usize| format!("/sys/devices/system/node/node{number}");
    let of = |name, near: &[usize], far: &[usize]| {
        let names = |nodes: &[usize]| nodes.iter().map(|it| node(*it)).collect();
        let place = GroupPlace { near: names(near), far: names(far), is_balanced: false };
        GroupType { place, ..kind(name, requests(1, 0)) }
    };
    let parts = ["n0", "n1", "n2", "n3"];
    let mut types: Vec<GroupType> =
        parts.iter().enumerate().map(|(at, name)| of(name, &[at], &[])).collect();
    let components = parts.map(str::to_owned).to_vec();
    types.push(GroupType { components, ..kind("all", requests(4, 0)) });
    types.extend([of("far", &[], &[0, 1, 2]), of("absent", &[7], &[9])]);
    check(
        N4C16,
        &types,
        &[
            "n/a/c 4000 bayplan.dev/group=all",
            "n/b/c 1000 bayplan.dev/group=n2",
            "n/c/c 1000 bayplan.dev/group=far",
            "n/d/c 1000 bayplan.dev/group=absent",
            "~n/a/c 8000",
        ],
        expect![[r#"
            n/a/c 4000 bayplan.dev/group=all: on 2,4,6,8
            n/b/c 1000 bayplan.dev/group=n2: on 12
            n/c/c 1000 bayplan.dev/group=far: on 14
            n/d/c 1000 bayplan.dev/group=absent: on 10
            ~n/a/c 8000: resized
              absent[0] : 10, n/d/c on 10
              all[0] : 1-8, n/a/c on 1-8
              far[0] : 14, n/c/c on 14
              n2[0] : 12, n/b/c on 12
        "#]],
    );
}

fn load(name: &str, level: Level, overloads: bool) -> Load {
    Load { name: name.to_owned(), level, overloads }
}

/// Groups with one load are not on the same core; one that overloads cores has its own CPUs on different ones, too. Others may be beside them.
#[test]
fn loads_keep_groups_off_the_same_core() {
    let with = |name, load: Load| GroupType { loads: vec![load], ..kind(name, requests(1, 4)) };
    check(
        N4C16,
        &[
            with("avx", load("vector", Level::Core, true)),
            with("other", load("vector", Level::Core, false)),
            kind("calm", requests(1, 4)),
        ],
        &[
            "n/a/c 2000 bayplan.dev/group=avx",
            "~n/a/c 4000",
            "show",
            "n/b/c 1000 bayplan.dev/group=other",
            "n/c/c 2000 bayplan.dev/group=calm",
            "~n/a/c 1000",
            "show",
            "~n/a/c 3000",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=avx: on 1,8
            ~n/a/c 4000: resized
              avx[0] : 1-3,8, n/a/c on 1-3,8
            n/b/c 1000 bayplan.dev/group=other: on 4
            n/c/c 2000 bayplan.dev/group=calm: on 5,13
            ~n/a/c 1000: resized
              avx[0] : 1, n/a/c on 1
              calm[0] : 5,13, n/c/c on 5,13
              other[0] : 4, n/b/c on 4
            ~n/a/c 3000: resized
              avx[0] : 1-2,8, n/a/c on 1-2,8
              calm[0] : 5,13, n/c/c on 5,13
              other[0] : 4, n/b/c on 4
        "#]],
    );
}

/// Issue 34: a group had both threads of a core under one load while cores of other NUMA nodes were free, and when it shrank it kept them.
#[test]
fn a_group_of_loads_grows_into_another_numa_node_before_it_has_both_threads_of_a_core() {
    let loads = vec![load("vector", Level::Core, true)];
    check(
        N4C16,
        &[GroupType { loads, ..kind("avx", requests(1, 0)) }],
        &[
            "n/a/c 2000 bayplan.dev/group=avx",
            "~n/a/c 4000",
            "show",
            "~n/a/c 8000",
            "show",
            "~n/a/c 10000",
            "show",
            "~n/a/c 7000",
            "show",
            "~n/a/c 1000",
            "~n/a/c 3000",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=avx: on 1,8
            ~n/a/c 4000: resized
              avx[0] : 1-3,8, n/a/c on 1-3,8
            ~n/a/c 8000: resized
              avx[0] : 1-8, n/a/c on 1-8
            ~n/a/c 10000: resized
              avx[0] : 1-10, n/a/c on 1-10
            ~n/a/c 7000: resized
              avx[0] : 1-6,8, n/a/c on 1-6,8
            ~n/a/c 1000: resized
            ~n/a/c 3000: resized
              avx[0] : 4,6-7, n/a/c on 4,6-7
        "#]],
    );
}

/// The same by L2 caches, each of two cores: three groups with one CPU each are on three caches, and the fourth has to share one when all are taken.
#[test]
fn loads_keep_groups_off_the_same_cache() {
    let membw = load("membw", Level::L2, false);
    let instances = Instances { prefers_new: true, ..Instances::default() };
    let one = GroupType { loads: vec![membw], instances, ..kind("one", requests(1, 1)) };
    check(
        ("pack:1 numa:1 l2:3 core:2 pu:1 mem:2", ""),
        &[one],
        &[
            "n/a/c 1000 bayplan.dev/group=one",
            "n/b/c 1000 bayplan.dev/group=one",
            "n/c/c 1000 bayplan.dev/group=one",
            "n/d/c 1000 bayplan.dev/group=one",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=one: on 1
            n/b/c 1000 bayplan.dev/group=one: on 2
            n/c/c 1000 bayplan.dev/group=one: on 4
            n/d/c 1000 bayplan.dev/group=one: on 3
              one[0] : 1, n/a/c on 1
              one[1] : 2, n/b/c on 2
              one[2] : 4, n/c/c on 4
              one[3] : 3, n/d/c on 3
        "#]],
    );
}

/// A composite of a component near each of four network cards has as many CPUs on each NUMA node, and gives them back in the same way.
#[test]
fn a_composite_has_equal_parts_of_its_components() {
    let near = |name: &str| GroupType {
        place: GroupPlace { near: vec![format!("eth{}", &name[1..])], ..GroupPlace::default() },
        ..kind(name, requests(1, 3))
    };
    let components = ["n0", "n1", "n2", "n3"];
    let mut types: Vec<GroupType> = components.iter().map(|name| near(name)).collect();
    let components: Vec<String> = components.iter().map(|it| (*it).to_owned()).collect();
    types.push(GroupType { components: components.clone(), ..kind("all", requests(1, 0)) });
    types.push(GroupType {
        components,
        creation: Creation::Balance,
        instances: Instances { prefers_new: true, ..Instances::default() },
        ..kind("each", requests(1, 0))
    });
    let mut node = started(("pack:2 numa:2 core:4 pu:1 mem:2", ""), &types);
    let cards = (0..4).map(|node| Device {
        cpus: format!("{}-{}", 4 * node, 4 * node + 3).parse().unwrap(),
        ..card(&format!("eth{node}"), node)
    });
    node.state.devices = cards.collect();
    let mut told = vec![
        node.create(&["n/a/c", "4000", "bayplan.dev/group=all"]),
        node.resize("n/a/c", 12_000),
        node.shown(),
        node.resize("n/a/c", 13_000),
    ];
    node.restart();
    told.push(node.resize("n/a/c", 4000));
    told.push(node.create(&["n/b/c", "2000", "bayplan.dev/group=each"]));
    told.push(node.create(&["n/c/c", "2000", "bayplan.dev/group=each"]));
    told.push(node.create(&["n/d/c", "3000", "bayplan.dev/group=each"]));
    node.restart();
    told.push(node.shown());
    node.step(Event::Ended("n/a/c".to_owned()));
    node.restart();
    told.push(node.shown());
    expect![[r#"
        on 1,4,8,12
        resized
          all[0] : 1-6,8-10,12-14, n/a/c on 1-6,8-10,12-14

        bayplan: n/a/c refused: its group all[0] cannot be fitted: 4 CPUs would be of its component n0, which has at most 3
        resized
        on 2-3
        on 5-6
        on 9-11
          all[0] : 1,4,8,12, n/a/c on 1,4,8,12
          each[0] : 2-3, n/b/c on 2-3
          each[1] : 5-6, n/c/c on 5-6
          each[2] : 9-11, n/d/c on 9-11

          each[0] : 2-3, n/b/c on 2-3
          each[1] : 5-6, n/c/c on 5-6
          each[2] : 9-11, n/d/c on 9-11
    "#]].assert_eq(&told.join("\n"));
}

/// A composite of which CPUs go offline has others, and its parts are equal again.
#[test]
fn a_composite_regains_cpus() {
    let mut types = vec![kind("a", requests(1, 0)), kind("b", requests(1, 0))];
    let components = vec!["a".to_owned(), "b".to_owned()];
    types.push(GroupType { components, ..kind("both", requests(1, 0)) });
    check(
        N4C16,
        &types,
        &[
            "n/a/c 4000 bayplan.dev/group=both",
            "machine pack:2 numa:2 core:2 pu:2 mem:2 offline:1,9",
            "~n/a/c 6000",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
            "~n/a/c 2000",
        ],
        expect![[r#"
            n/a/c 4000 bayplan.dev/group=both: on 1-2,9-10
            machine pack:2 numa:2 core:2 pu:2 mem:2 offline:1,9: changed
            ~n/a/c 6000: resized
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
            ~n/a/c 2000: resized
              both[0] : 4,8, n/a/c on 4,8
        "#]],
    );
}

/// What is left alone of all containers is set in a group that says so, and the other way round.
#[test]
fn a_group_says_what_is_left_alone_of_its_members() {
    let set = GroupType { pins_cpus: Some(true), ..kind("set", requests(1, 4)) };
    let left = kind("left", requests(1, 4));
    let mut node = started(N4C16, &[set, left]);
    node.state.rules.preserve = Preserve { cpus: true, memory: true };
    let mut told = Vec::new();
    for (name, group) in [("n/a/c", "set"), ("n/b/c", "left"), ("n/c/c", "none")] {
        let group = format!("bayplan.dev/group={group}");
        told.push(node.create(&[name, "2000", "Guaranteed", &group]));
    }
    expect!["on 1,9, on , on "].assert_eq(&told.join(", "));
}

/// The extended resource of a pool is a number of slots, as CMK_NUM_CORES is.
#[test]
fn an_extended_resource_is_a_number_of_slots() {
    let slots = list(&["2,10", "3,11", "4,12"]);
    check(
        N4C16,
        &[GroupType { inside: Inside::Slots, ..kind("exclusive", slots) }],
        &[
            "n/a/c 0 cmk=cmk+isolate+--pool=exclusive+app extended=cmk.intel.com/exclusive-cores:2",
            "n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app extended=cmk.intel.com/other-cores:2",
        ],
        expect![[r#"
            n/a/c 0 cmk=cmk+isolate+--pool=exclusive+app extended=cmk.intel.com/exclusive-cores:2: on 2-3,10-11
            n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app extended=cmk.intel.com/other-cores:2: on 4,12
              exclusive[0] : 2-4,10-12, n/a/c on 2-3,10-11, n/b/c on 4,12
        "#]],
    );
}

/// With two CPUs left for it, a group that is to have six more on other cores has these two, which the journal knows, and takes no member that needs more.
#[test]
fn a_group_of_loads_keeps_the_cpus_that_it_could_have() {
    let with = |min| GroupType {
        loads: vec![load("vector", Level::Core, true)],
        ..kind("avx", requests(min, 0))
    };
    let mut node = started(N4C16, &[with(1)]);
    let mut told = vec![
        node.create(&["n/y/c", "100"]),
        node.create(&["n/x/c", "11000", "Guaranteed"]),
        node.create(&["n/a/c", "1000", "bayplan.dev/group=avx"]),
        node.create(&["n/b/c", "6000", "bayplan.dev/group=avx"]),
        node.resize("n/a/c", 6000),
        node.reload(&[with(7)]),
    ];
    node.start_under(&[with(7)]);
    told.push(node.shown());
    node.restart();
    node.step(Event::Ended("n/x/c".to_owned()));
    told.push(node.shown());
    node.restart();
    expect![[r#"
        on 2-3,10-11
        on 1,4-9,12-15
        on 2
        bayplan: n/b/c refused: no group of `avx` has room; a new avx: needs 6 exclusive CPUs; it can have 2
        bayplan: n/a/c refused: its group avx[0] cannot be fitted: needs 6 exclusive CPUs; it can have 3
        refused: avx[0] would have 3 CPUs and is to have 7
          avx[0] : 2-3,10, n/a/c on 2-3,10
          n/x/c on 1,4-9,12-15
          n/y/c on 11

          avx[0] : 1-5,8,10, n/a/c on 1-5,8,10
          n/y/c on 11
    "#]].assert_eq(&told.join("\n"));
}

/// One of a fixed size has its CPUs on different cores from the start on, and again after it has lost all of them; it is not made with fewer.
#[test]
fn a_group_of_loads_with_a_fixed_size_is_spread() {
    let loads = || vec![load("vector", Level::Core, true)];
    check(
        ("pack:2 numa:1 core:4 pu:2 mem:2", "0"),
        &[
            GroupType { loads: loads(), ..kind("avx", Size::Fixed(3)) },
            GroupType { loads: loads(), ..kind("wide", Size::Fixed(13)) },
        ],
        &[
            "n/a/c 100 bayplan.dev/group=avx",
            "n/b/c 100 bayplan.dev/group=wide",
            "show",
            "machine pack:2 numa:1 core:4 pu:2 mem:2 offline:1-3,8-11",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=avx: on 1-2,8
            n/b/c 100 bayplan.dev/group=wide: bayplan: n/b/c refused: no group of `wide` has room; a new wide: needs 13 exclusive CPUs; it can have 12
              avx[0] : 1-2,8, n/a/c on 1-2,8
            machine pack:2 numa:1 core:4 pu:2 mem:2 offline:1-3,8-11: changed
              avx[0] : 4-6, n/a/c on 4-6
        "#]],
    );
}

fn composite(name: &str, components: &[&str], size: Size) -> GroupType {
    let components = components.iter().map(|it| (*it).to_owned()).collect();
    GroupType { components, ..kind(name, size) }
}

/// The bounds of a composite are its own: also for its first member, and where equal parts would be more.
#[test]
fn a_composite_keeps_within_its_own_bounds() {
    let parts = ["a", "b"];
    check(
        N4C16,
        &[
            kind("a", requests(1, 0)),
            kind("b", requests(1, 0)),
            composite("four", &parts, requests(1, 4)),
            composite("odd", &parts, requests(1, 5)),
            composite("fixed", &parts, Size::Fixed(5)),
        ],
        &[
            "n/a/c 6000 bayplan.dev/group=four",
            "n/a/c 3000 bayplan.dev/group=four",
            "~n/a/c 5000",
            "n/b/c 5000 bayplan.dev/group=odd",
            "n/b/c 3000 bayplan.dev/group=odd",
            "~n/b/c 5000",
            "n/c/c 100 bayplan.dev/group=fixed",
        ],
        expect![[r#"
            n/a/c 6000 bayplan.dev/group=four: bayplan: n/a/c refused: no group of `four` has room; a new four: 6 CPUs would be requested of at most 4
            n/a/c 3000 bayplan.dev/group=four: on 1-2,9-10
            ~n/a/c 5000: bayplan: n/a/c refused: its group four[0] cannot be fitted: 5 CPUs would be requested of at most 4
            n/b/c 5000 bayplan.dev/group=odd: on 3-5,11-12
            n/b/c 3000 bayplan.dev/group=odd: on 6-7,14-15
            ~n/b/c 5000: resized
            n/c/c 100 bayplan.dev/group=fixed: on 3,5,11-13
              fixed[0] : 3,5,11-13, n/c/c on 3,5,11-13
              four[0] : 1-2,9-10, n/a/c on 1-2,9-10
              odd[1] : 4,6-7,14-15, n/b/c on 4,6-7,14-15
        "#]],
    );
}

/// The part of a composite that has a load is not on a core with another group that has it; its other part may be.
#[test]
fn loads_of_components_count_for_other_groups() {
    let vector = || vec![load("vector", Level::Core, false)];
    check(
        ("pack:1 numa:1 core:4 pu:4 mem:2", ""),
        &[
            GroupType { loads: vector(), ..kind("loud", requests(1, 0)) },
            kind("calm", requests(1, 0)),
            composite("both", &["loud", "calm"], requests(1, 0)),
            GroupType { loads: vector(), ..kind("other", requests(1, 0)) },
        ],
        &[
            "n/a/c 2000 bayplan.dev/group=both",
            "n/b/c 1000 bayplan.dev/group=other",
            "n/c/c 1000 bayplan.dev/group=calm",
            "~n/a/c 4000",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=both: on 1,5
            n/b/c 1000 bayplan.dev/group=other: on 2
            n/c/c 1000 bayplan.dev/group=calm: on 9
            ~n/a/c 4000: resized
              both[0] : 1,5-6,13, n/a/c on 1,5-6,13
              calm[0] : 9, n/c/c on 9
              other[0] : 2, n/b/c on 2
        "#]],
    );
}

/// Issue 34: components with a load that overloads their own group had both threads of a core.
#[test]
fn components_with_a_load_that_overloads_are_on_different_cores() {
    let loud = |name: &str| GroupType {
        loads: vec![load("vector", Level::Core, true)],
        ..kind(name, requests(1, 0))
    };
    check(
        ("pack:1 numa:1 core:8 pu:2 mem:2", "0"),
        &[
            loud("a"),
            loud("b"),
            kind("calm", requests(1, 0)),
            composite("loud", &["a", "b"], requests(1, 0)),
            composite("mixed", &["a", "calm"], requests(1, 0)),
        ],
        &[
            "n/a/c 2000 bayplan.dev/group=loud",
            "~n/a/c 4000",
            "show",
            "n/b/c 4000 bayplan.dev/group=mixed",
            "~n/a/c 2000",
        ],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=loud: on 1,8
            ~n/a/c 4000: resized
              loud[0] : 1-3,8, n/a/c on 1-3,8
            n/b/c 4000 bayplan.dev/group=mixed: on 4-6,12
            ~n/a/c 2000: resized
              loud[0] : 1-2, n/a/c on 1-2
              mixed[0] : 4-6,12, n/b/c on 4-6,12
        "#]],
    );
}

/// Koordinator's words about NUMA nodes: the roomiest one, and those that its scheduler has chosen.
#[test]
fn containers_of_no_group_go_where_koordinator_says() {
    let strategy = "bayplan.dev/numa-strategy=LeastAllocated";
    let chosen = r#"scheduling.koordinator.sh/resource-status={"numaNodeResources":[{"node":3}]}"#;
    let mut node = started(N4C16, &[kind("web", requests(1, 2))]);
    let mut told = Vec::new();
    for (name, word) in
        [("n/a/c", strategy), ("n/b/c", strategy), ("n/c/c", chosen), ("n/d/c", "a=b")]
    {
        told.push(node.create(&[name, "2000", "Guaranteed", word]));
    }
    expect!["on 4,12, on 2,10, on 6,14, on 5,13"].assert_eq(&told.join(", "));
}

/// While a container is being created its class of scheduling is the one that its pod names, or that of its group.
#[test]
fn a_class_of_scheduling_is_known_before_the_container_is_made() {
    let scheduling_class = Some("of-group".to_owned());
    let types = [GroupType { scheduling_class, ..kind("web", requests(1, 4)) }];
    let mut node = started(N4C16, &types);
    let group = ("bayplan.dev/group", "web");
    let own = ("bayplan.dev/scheduling-class", "own");
    for (ticket, annotations, expected) in [
        (1, vec![group], Some("of-group")),
        (2, vec![group, own], Some("own")),
        (3, vec![own], Some("own")),
        (4, vec![], None),
    ] {
        let mut spec = new_container(&format!("p{ticket}"), "c", 0, 0);
        spec.resources = resources(500);
        let annotations = annotations.into_iter().map(|(key, value)| (key.into(), value.into()));
        spec.pod.annotations = annotations.collect();
        let ticket = Ticket(ticket);
        node.step(Event::Admit(ticket, Box::new(spec)));
        let Answer::SchedulingClass(named) = node.step(Event::SchedulingClass(ticket)) else {
            unreachable!("no class")
        };
        assert_eq!(named.as_deref(), expected);
        node.step(Event::CreateEnded(ticket, CreateOutcome::Failed));
    }
}
