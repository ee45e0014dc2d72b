//! What the suites of balloons, pools of pods, pools of CMK and zones of a namespace show, in our own tables: machine, types, what comes and goes, what is held.

use super::*;

/// Containers of one pod share an instance although new ones are preferred; two of another pod have theirs.
#[test]
fn balloons_new_instances_are_for_other_pods() {
    check(
        N4C16,
        &[GroupType {
            instances: Instances { prefers_new: true, ..Instances::default() },
            ..kind("two", requests(2, 2))
        }],
        &[
            "n/a/c0 500 bayplan.dev/group=two",
            "n/a/c1 500 bayplan.dev/group=two",
            "n/b/c0 500 bayplan.dev/group=two",
            "n/c/c0 500 bayplan.dev/group=two",
            "-n/a/c0",
            "-n/a/c1",
        ],
        expect![[r#"
            n/a/c0 500 bayplan.dev/group=two: on 1,9
            n/a/c1 500 bayplan.dev/group=two: on 1,9
            n/b/c0 500 bayplan.dev/group=two: on 2,10
            n/c/c0 500 bayplan.dev/group=two: on 3,11
            -n/a/c0: gone
            -n/a/c1: gone
              two[1] : 2,10, n/b/c0 on 2,10
              two[2] : 3,11, n/c/c0 on 3,11
        "#]],
    );
}

/// Two requests of 1.5 CPUs are three CPUs, not four.
#[test]
fn balloons_fractions_add_up() {
    check(
        N4C16,
        &[kind("sum", requests(0, 0))],
        &[
            "n/a/c0 1500 bayplan.dev/group=sum",
            "n/a/c1 1500 bayplan.dev/group=sum",
            "n/b/c0 1 bayplan.dev/group=sum",
            "n/c/c0 0 BestEffort bayplan.dev/group=sum",
        ],
        expect![[r#"
            n/a/c0 1500 bayplan.dev/group=sum: on 1,9
            n/a/c1 1500 bayplan.dev/group=sum: on 1,8-9
            n/b/c0 1 bayplan.dev/group=sum: on 1,8-9
            n/c/c0 0 BestEffort bayplan.dev/group=sum: on 1,8-9
              sum[0] : 1,8-9, n/a/c0 on 1,8-9, n/a/c1 on 1,8-9, n/b/c0 on 1,8-9, n/c/c0 on 1,8-9
        "#]],
    );
}

/// Of three containers with three CPUs each two share the largest balloon, and the third has a new one.
#[test]
fn balloons_a_full_one_makes_a_new_one() {
    check(
        N4C16,
        &[GroupType {
            instances: Instances { max: Most::Count(2), ..Instances::default() },
            ..kind("six", requests(1, 6))
        }],
        &[
            "n/a/c 3000 bayplan.dev/group=six",
            "n/b/c 3000 bayplan.dev/group=six",
            "n/c/c 3000 bayplan.dev/group=six",
            "n/d/c 4000 bayplan.dev/group=six",
        ],
        expect![[r#"
            n/a/c 3000 bayplan.dev/group=six: on 1,8-9
            n/b/c 3000 bayplan.dev/group=six: on 1-3,8-10
            n/c/c 3000 bayplan.dev/group=six: on 4-5,12
            n/d/c 4000 bayplan.dev/group=six: bayplan: n/d/c refused: no group of `six` has room; six[0]: 10 CPUs would be requested of at most 6
              six[0] : 1-3,8-10, n/a/c on 1-3,8-10, n/b/c on 1-3,8-10
              six[1] : 4-5,12, n/c/c on 4-5,12
        "#]],
    );
}

/// Sizes 1, 2, 3, 4; what requests nothing joins; the next one opens another; departures shrink to one.
#[test]
fn balloons_follow_their_members_up_and_down() {
    check(
        N4C16,
        &[kind("four", requests(1, 4))],
        &[
            "n/a/c 1000 bayplan.dev/group=four",
            "n/b/c 1000 bayplan.dev/group=four",
            "n/c/c 1000 bayplan.dev/group=four",
            "n/d/c 1000 bayplan.dev/group=four",
            "n/e/c 0 BestEffort bayplan.dev/group=four",
            "n/f/c 1000 bayplan.dev/group=four",
            "show",
            "-n/a/c",
            "-n/b/c",
            "-n/c/c",
            "-n/f/c",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=four: on 8
            n/b/c 1000 bayplan.dev/group=four: on 1,8
            n/c/c 1000 bayplan.dev/group=four: on 1,8-9
            n/d/c 1000 bayplan.dev/group=four: on 1-2,8-9
            n/e/c 0 BestEffort bayplan.dev/group=four: on 1-2,8-9
            n/f/c 1000 bayplan.dev/group=four: on 10
              four[0] : 1-2,8-9, n/a/c on 1-2,8-9, n/b/c on 1-2,8-9, n/c/c on 1-2,8-9, n/d/c on 1-2,8-9, n/e/c on 1-2,8-9
              four[1] : 10, n/f/c on 10
            -n/a/c: gone
            -n/b/c: gone
            -n/c/c: gone
            -n/f/c: gone
              four[0] : 1, n/d/c on 1, n/e/c on 1
        "#]],
    );
}

/// Each namespace has its balloon; once the machine is full, the one with most room takes another.
#[test]
fn balloons_of_namespaces_grow_apart() {
    check(
        N4C16,
        &[GroupType {
            members: Members { all: true, ..Members::default() },
            instances: Instances { per_namespace: true, ..Instances::default() },
            ..kind("ns", requests(2, 0))
        }],
        &["a/p1/c 2000", "b/p2/c 2000", "a/p3/c 2000", "b/p4/c 2000", "c/p5/c 6000", "d/p6/c 2000"],
        expect![[r#"
            a/p1/c 2000: on 1,9
            b/p2/c 2000: on 2,10
            a/p3/c 2000: on 1,3,9,11
            b/p4/c 2000: on 2,4,10,12
            c/p5/c 6000: on 5-7,13-15
            d/p6/c 2000: bayplan: d/p6/c refused: no group of `ns` has room; ns[1]: needs 6 exclusive CPUs; 5 are free
              ns[0] : 1,3,9,11, a/p1/c on 1,3,9,11, a/p3/c on 1,3,9,11
              ns[1] : 2,4,10,12, b/p2/c on 2,4,10,12, b/p4/c on 2,4,10,12
              ns[2] : 5-7,13-15, c/p5/c on 5-7,13-15
        "#]],
    );
}

/// Half of the CPUs that are not reserved in pools of two CPUs, filled one after the other.
#[test]
fn pools_of_pods_by_percentage() {
    check(
        N4C16,
        &[GroupType {
            instances: Instances {
                max: Most::Percent(50),
                fill: Fill::Packed,
                ..Instances::default()
            },
            capacity: Capacity { pods: Some(1), containers: None },
            ..kind("dual", Size::Fixed(2))
        }],
        &[
            "n/a/c 100 bayplan.dev/group=dual",
            "n/a/d 100 bayplan.dev/group=dual",
            "n/b/c 100 bayplan.dev/group=dual",
            "n/c/c 100 bayplan.dev/group=dual",
            "n/d/c 100 bayplan.dev/group=dual",
            "-n/b/c",
            "n/d/c 100 bayplan.dev/group=dual",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=dual: on 1,9
            n/a/d 100 bayplan.dev/group=dual: on 1,9
            n/b/c 100 bayplan.dev/group=dual: on 2,10
            n/c/c 100 bayplan.dev/group=dual: on 3,11
            n/d/c 100 bayplan.dev/group=dual: bayplan: n/d/c refused: no group of `dual` has room; dual[2]: it has 1 pods already
            -n/b/c: gone
            n/d/c 100 bayplan.dev/group=dual: on 2,10
              dual[0] : 1,9, n/a/c on 1,9, n/a/d on 1,9
              dual[1] : 2,10, n/d/c on 2,10
              dual[2] : 3,11, n/c/c on 3,11
        "#]],
    );
}

/// A namespace is a NUMA node; a Guaranteed container has CPUs of its own there, and they are the others' again when it goes. The third namespace finds none.
#[test]
fn zones_of_namespaces_with_exclusive_containers() {
    check(
        ("pack:1 numa:3 core:2 pu:2 mem:2", "0,6"),
        &[GroupType {
            members: of_namespaces("team-*"),
            instances: Instances { by: InstanceKey::Namespace, ..Instances::default() },
            inside: Inside::GuaranteedExclusive,
            ..kind("zone", Size::Domain(Level::NumaNode))
        }],
        &[
            "team-a/p/c 1000 Guaranteed",
            "team-a/q/c 100",
            "team-a/r/c 3000 Guaranteed",
            "team-b/s/c 500",
            "team-c/t/c 500",
            "team-d/u/c 500",
            "-team-a/p/c",
        ],
        expect![[r#"
            team-a/p/c 1000 Guaranteed: on 2
            team-a/q/c 100: on 3,8-9
            team-a/r/c 3000 Guaranteed: on 4-5,10
            team-b/s/c 500: on 1,7
            team-c/t/c 500: bayplan: team-c/t/c refused: no group of `zone` has room; a new zone: none of its domains is free
            team-d/u/c 500: bayplan: team-d/u/c refused: no group of `zone` has room; a new zone: none of its domains is free
            -team-a/p/c: gone
              zone[0] team-a: 2-3,8-9, team-a/q/c on 2-3,8-9
              zone[1] team-a: 4-5,10-11, team-a/r/c on 4-5,10
              zone[2] team-b: 1,7, team-b/s/c on 1,7
        "#]],
    );
}

/// `numa-namespace=2` of CPU Control Plane Manager: where there are more namespaces than zones, some have one together, and each keeps to its own.
#[test]
fn a_namespace_stays_in_one_zone_where_several_have_it_together() {
    check(
        ("pack:1 numa:3 core:4 pu:1 mem:3", "0"),
        &[GroupType {
            members: of_namespaces("team-*"),
            instances: Instances {
                by: InstanceKey::Namespace,
                max: Most::Count(2),
                ..Instances::default()
            },
            ..kind("zone", Size::Domain(Level::NumaNode))
        }],
        &[
            "team-a/p/c 500",
            "team-b/q/c 1000",
            "team-c/r/c 3000",
            "team-c/s/c 100",
            "team-b/t/c 100",
            "team-c/u/c 100",
        ],
        expect![[r#"
            team-a/p/c 500: on 4-7
            team-b/q/c 1000: on 8-11
            team-c/r/c 3000: on 4-7
            team-c/s/c 100: on 4-7
            team-b/t/c 100: on 8-11
            team-c/u/c 100: on 4-7
              zone[0] team-a: 4-7, team-a/p/c on 4-7, team-c/r/c on 4-7, team-c/s/c on 4-7, team-c/u/c on 4-7
              zone[1] team-b: 8-11, team-b/q/c on 8-11, team-b/t/c on 8-11
        "#]],
    );
}

/// CMK's exclusive pool: as many slots as `CMK_NUM_CORES` would say come by the request here; a pod that finds none is refused, and slots are free when their container ends.
#[test]
fn slots_are_given_back_when_their_container_ends() {
    check(
        N4C16,
        &[GroupType { inside: Inside::Slots, ..kind("exclusive", list(&["2,10", "3,11"])) }],
        &[
            "n/a/c 4000 cmk=cmk+isolate+--pool=exclusive+app",
            "n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app",
            "-n/a/c",
            "n/b/c 0 cmk=bash+-c+cmk_isolate_--pool=exclusive_app",
        ],
        expect![[r#"
            n/a/c 4000 cmk=cmk+isolate+--pool=exclusive+app: on 2-3,10-11
            n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app: bayplan: n/b/c refused: no group of `exclusive` has room; exclusive[0]: it has too few free slots
            -n/a/c: gone
            n/b/c 0 cmk=bash+-c+cmk_isolate_--pool=exclusive_app: on 2,10
              exclusive[0] : 2-3,10-11, n/b/c on 2,10
        "#]],
    );
}

/// Two CPUs are on two cores where they are to be spread, and on one where not.
#[test]
fn balloons_are_spread_over_cores_or_packed() {
    let spread = CpuWishes { packing: Packing::Spread, ..CpuWishes::default() };
    check(
        N4C16,
        &[
            GroupType { cpus: spread, ..kind("spread", requests(2, 2)) },
            kind("pack", requests(2, 2)),
        ],
        &["n/a/c 2000 bayplan.dev/group=spread", "n/b/c 2000 bayplan.dev/group=pack"],
        expect![[r#"
            n/a/c 2000 bayplan.dev/group=spread: on 1,8
            n/b/c 2000 bayplan.dev/group=pack: on 2,10
              pack[0] : 2,10, n/b/c on 2,10
              spread[0] : 1,8, n/a/c on 1,8
        "#]],
    );
}

/// The node of a device is left to the type that is near it, although others come first: they are far from it.
#[test]
fn balloons_leave_the_node_of_a_device_to_those_near_it() {
    let near = GroupPlace { near: vec!["eth2".to_owned()], ..GroupPlace::default() };
    let far = GroupPlace { far: vec!["eth2".to_owned()], ..GroupPlace::default() };
    let types = [
        GroupType { place: near, ..kind("device", requests(4, 4)) },
        GroupType { place: far, ..kind("other", requests(4, 4)) },
    ];
    let mut node = started(N4C16, &types);
    node.state.devices = [places::card("eth2", 2)].into();
    let mut told = String::new();
    for (name, of) in [("a", "other"), ("b", "other"), ("c", "device"), ("d", "other")] {
        let (name, of) = (format!("n/{name}/c"), format!("bayplan.dev/group={of}"));
        told.push_str(&format!("{name} {of}: {}\n", node.create(&[&name, "4000", &of])));
    }
    expect![[r#"
        n/a/c bayplan.dev/group=other: on 2-3,10-11
        n/b/c bayplan.dev/group=other: on 6-7,14-15
        n/c/c bayplan.dev/group=device: on 4-5,12-13
        n/d/c bayplan.dev/group=other: bayplan: n/d/c refused: no group of `other` has room; a new other: needs 4 exclusive CPUs; 3 are free
    "#]].assert_eq(&told);
}

/// Of an L2 cache of four cores, members share what no other balloon has: four CPUs, three once another has one, two once that has grown.
#[test]
fn balloons_share_idle_cpus_of_an_l2_cache() {
    let shares_idle = Some(Level::L2);
    let shares = || CpuWishes { shares_idle, ..CpuWishes::default() };
    check(
        ("pack:1 numa:1 l2:4 core:4 pu:1 mem:8", "0"),
        &[
            GroupType { cpus: shares(), ..kind("idle", requests(1, 4)) },
            kind("plain", requests(1, 4)),
        ],
        &[
            "n/a/c 3000 bayplan.dev/group=plain",
            "n/b/c 1000 bayplan.dev/group=idle",
            "show",
            "n/c/c 1000 bayplan.dev/group=plain",
            "show",
            "n/d/c 1000 bayplan.dev/group=plain",
            "show",
            "-n/c/c",
            "-n/d/c",
        ],
        expect![[r#"
            n/a/c 3000 bayplan.dev/group=plain: on 1-3
            n/b/c 1000 bayplan.dev/group=idle: on 4-7
              idle[0] : 4, n/b/c on 4-7
              plain[0] : 1-3, n/a/c on 1-3
            n/c/c 1000 bayplan.dev/group=plain: on 1-3,5
              idle[0] : 4, n/b/c on 4,6-7
              plain[0] : 1-3,5, n/a/c on 1-3,5, n/c/c on 1-3,5
            n/d/c 1000 bayplan.dev/group=plain: on 6
              idle[0] : 4, n/b/c on 4,7
              plain[0] : 1-3,5, n/a/c on 1-3,5, n/c/c on 1-3,5
              plain[1] : 6, n/d/c on 6
            -n/c/c: gone
            -n/d/c: gone
              idle[0] : 4, n/b/c on 4-7
              plain[0] : 1-3, n/a/c on 1-3
        "#]],
    );
}
