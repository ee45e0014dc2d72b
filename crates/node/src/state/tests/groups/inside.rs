//! What members have of their group: slots, CPUs of their own, their own wishes.

use super::*;

#[test]
fn slots_are_for_one_container_each() {
    check(
        N4C16,
        &[
            GroupType {
                inside: Inside::Slots,
                ..kind("exclusive", list(&["4,12", "5,13", "6,14"]))
            },
            kind("shared", list(&["7,15"])),
        ],
        &[
            "n/x/c 1000",
            "n/a/c 0 bayplan.dev/group=exclusive",
            "n/b/c 3000 bayplan.dev/group=exclusive",
            "n/c/c 0 bayplan.dev/group=exclusive",
            "n/d/c 100 bayplan.dev/group=shared",
            "n/e/c 100 bayplan.dev/group=shared",
            "-n/a/c",
            "n/c/c 0 bayplan.dev/group=exclusive",
        ],
        expect![[r#"
            n/x/c 1000: on 2-3,10-11
            n/a/c 0 bayplan.dev/group=exclusive: on 4,12
            n/b/c 3000 bayplan.dev/group=exclusive: on 5-6,13-14
            n/c/c 0 bayplan.dev/group=exclusive: bayplan: n/c/c refused: no group of `exclusive` has room; exclusive[0]: it has too few free slots
            n/d/c 100 bayplan.dev/group=shared: on 7,15
            n/e/c 100 bayplan.dev/group=shared: on 7,15
            -n/a/c: gone
            n/c/c 0 bayplan.dev/group=exclusive: on 4,12
              exclusive[0] : 4-6,12-14, n/b/c on 5-6,13-14, n/c/c on 4,12
              shared[0] : 7,15, n/d/c on 7,15, n/e/c on 7,15
              n/x/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn a_zone_is_a_numa_node_in_which_guaranteed_containers_own_cpus() {
    check(
        N4C16,
        &[GroupType {
            members: of_namespaces("z*"),
            instances: Instances { by: InstanceKey::Namespace, ..Instances::default() },
            inside: Inside::GuaranteedExclusive,
            ..kind("zone", Size::Domain(Level::NumaNode))
        }],
        &[
            "other/p/c 1000",
            "z1/a/c 2000 Guaranteed",
            "z1/b/c 500",
            "z1/c/c 2000 Guaranteed",
            "z2/a/c 1000 Guaranteed",
            "-z1/a/c",
            "show",
            "-z1/b/c",
        ],
        expect![[r#"
            other/p/c 1000: on 2-3,10-11
            z1/a/c 2000 Guaranteed: on 4,12
            z1/b/c 500: on 5,13
            z1/c/c 2000 Guaranteed: on 6,14
            z2/a/c 1000 Guaranteed: on 8
            -z1/a/c: gone
              zone[0] z1: 4-5,12-13, z1/b/c on 4-5,12-13
              zone[1] z1: 6-7,14-15, z1/c/c on 6,14
              zone[2] z2: 1,8-9, z2/a/c on 8
              other/p/c on 2-3,10-11
            -z1/b/c: gone
              zone[1] z1: 6-7,14-15, z1/c/c on 6,14
              zone[2] z2: 1,8-9, z2/a/c on 8
              other/p/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn where_a_group_is_its_type_says_and_a_members_own_words_are_told_to_be_in_vain() {
    let mut node = started(N4C16, &[kind("web", requests(2, 8))]);
    node.create(&[
        "n/a/c",
        "2000",
        "Guaranteed",
        "bayplan.dev/group=web",
        "bayplan.dev/within=numa",
        "bayplan.dev/siblings=idle",
        "bayplan.dev/hide-hyperthreads=true",
    ]);
    assert_eq!(node.state.status().containers[0].cpus, "1");
    let container = node.state.containers.values().next().unwrap();
    expect![[r#"
        annotation `bayplan.dev/siblings` has no effect: it runs on the CPUs of the group web[0]
        annotation `bayplan.dev/within` has no effect: it runs on the CPUs of the group web[0]"#]]
    .assert_eq(&container.decision.warnings.join("\n"));
}

#[test]
fn cmk_isolate_names_a_group_slots_and_a_socket() {
    let slots = GroupType {
        inside: Inside::Slots,
        ..kind("exclusive", list(&["2,10", "3,11", "4,12", "5,13"]))
    };
    check(
        N4C16,
        &[slots, kind("shared", list(&["6,14", "7,15"]))],
        &[
            "n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app",
            "n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app",
            "n/c/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=2+app",
            "n/d/c 0 cmk=cmk+isolate+--pool=shared+app",
            "n/e/c 0 cmk=cmk+isolate+--pool=exclusive+--no-affinity+app",
            "n/f/c 0 cmk=cmk+isolate+--pool=odd+app",
            "n/g/c 0 cmk=cmk+isolate+app",
            "kube-system/h/c 0 cmk=cmk+isolate+--pool=infra+app",
        ],
        expect![[r#"
            n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app: on 4,12
            n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app: on 2,10
            n/c/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=2+app: bayplan: n/c/c refused: no group of `exclusive` has room; exclusive[0]: the machine has no socket 2
            n/d/c 0 cmk=cmk+isolate+--pool=shared+app: on 6,14
            n/e/c 0 cmk=cmk+isolate+--pool=exclusive+--no-affinity+app: on 
            n/f/c 0 cmk=cmk+isolate+--pool=odd+app: bayplan: n/f/c refused: its pod names the group `odd`; groups that pods may name are exclusive, shared, or `none`
            n/g/c 0 cmk=cmk+isolate+app: bayplan: n/g/c refused: `cmk isolate` without --pool; name exclusive, shared or infra
            kube-system/h/c 0 cmk=cmk+isolate+--pool=infra+app: on 0
              exclusive[0] : 2-5,10-13, n/a/c on 4,12, n/b/c on 2,10, n/e/c on 
              shared[0] : 6,14, n/d/c on 6,14
              shared[1] : 7,15
              kube-system/h/c on 0
        "#]],
    );
}
