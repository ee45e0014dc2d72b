//! The four policies of CPU Control Plane Manager as our configuration has them, in our own tables: what `docs/migrating.md` says of each.

use super::*;

/// `default` and `numa`: guaranteed containers have CPUs near each other, the others run on all that are left. The last CPU is given, too, which its `default` never did.
#[test]
fn guaranteed_containers_have_near_cpus_and_others_the_rest_of_the_machine() {
    let machine = ("pack:1 numa:2 core:4 pu:1 mem:8", "0");
    let mut node = started_under(Policy::OneSharedPool, machine, &[]);
    play(
        &mut node,
        &[
            "n/idle/c 0 BestEffort",
            "n/share/c 500",
            "n/a/c 2000 Guaranteed",
            "n/b/c 4000 Guaranteed",
            "show",
            "-n/share/c",
            "n/c/c 1000 Guaranteed",
            "show",
            "n/d/c 1000 Guaranteed",
            "~n/b/c 2000",
            "-n/a/c",
        ],
        expect![[r#"
            n/idle/c 0 BestEffort: on 1-7
            n/share/c 500: on 1-7
            n/a/c 2000 Guaranteed: on 1-2
            n/b/c 4000 Guaranteed: on 4-7
              n/a/c on 1-2
              n/b/c on 4-7
              n/idle/c on 3
              n/share/c on 3
            -n/share/c: gone
            n/c/c 1000 Guaranteed: on 3
              n/a/c on 1-2
              n/b/c on 4-7
              n/c/c on 3
              n/idle/c on 0
            n/d/c 1000 Guaranteed: bayplan: n/d/c refused: needs 1 exclusive CPU; 0 are free
            ~n/b/c 2000: resized
            -n/a/c: gone
              n/b/c on 4-5
              n/c/c on 3
              n/idle/c on 1-2,6-7
        "#]],
    );
}

/// A zone for each namespace.
fn zones(size: Size, inside: Inside) -> GroupType {
    GroupType {
        members: Members { all: true, ..Members::default() },
        instances: Instances {
            by: InstanceKey::Namespace,
            max: Most::Count(2),
            ..Instances::default()
        },
        inside,
        ..kind("zone", size)
    }
}

/// `numa-namespace=2`: all containers of a namespace run on the whole part. A shared container that ends frees nothing, where its `free` gave away CPUs that the container never owned; a part
/// without containers is there for the next namespace, and of namespaces that are too many each joins the part with most room, not the next in turn.
#[test]
fn containers_of_a_namespace_share_its_part_of_the_machine() {
    check(
        ("pack:2 numa:1 core:4 pu:1 mem:8", "0"),
        &[zones(Size::Fixed(3), Inside::Share)],
        &[
            "a/p/c 2000 Guaranteed",
            "a/q/c 0 BestEffort",
            "b/p/c 500",
            "c/p/c 500",
            "show",
            "-a/q/c",
            "show",
            "-b/p/c",
            "-c/p/c",
            "d/p/c 1000",
        ],
        expect![[r#"
            a/p/c 2000 Guaranteed: on 1-3
            a/q/c 0 BestEffort: on 1-3
            b/p/c 500: on 4-6
            c/p/c 500: on 4-6
              zone[0] a: 1-3, a/p/c on 1-3, a/q/c on 1-3
              zone[1] b: 4-6, b/p/c on 4-6, c/p/c on 4-6
            -a/q/c: gone
              zone[0] a: 1-3, a/p/c on 1-3
              zone[1] b: 4-6, b/p/c on 4-6, c/p/c on 4-6
            -b/p/c: gone
            -c/p/c: gone
            d/p/c 1000: on 4-6
              zone[0] a: 1-3, a/p/c on 1-3
              zone[1] d: 4-6, d/p/c on 4-6
        "#]],
    );
}

/// Issue 34: without reserved CPUs the last part could not be had, because the machine keeps a CPU for containers that share. It is all of the part but that CPU, which it gets when another part is free; where
/// containers that share have requested more than one CPU, the part is refused, because they have to run somewhere.
#[test]
fn issue_34_without_reserved_cpus_the_last_part_leaves_one_cpu_to_others() {
    let zone = GroupType {
        members: of_namespaces("z*"),
        ..zones(Size::Domain(Level::NumaNode), Inside::Share)
    };
    let machine = |reserved| ("pack:2 numa:1 core:4 pu:1 mem:8", reserved);
    let steps = ["za/p/c 500", "zb/p/c 500", "show", "n/p/c 500", "show", "-za/p/c", "show"];
    for (reserved, expected) in [
        (
            "",
            expect![[r#"
                za/p/c 500: on 0-3
                zb/p/c 500: on 5-7
                  zone[0] za: 0-3, za/p/c on 0-3
                  zone[1] zb: 5-7, zb/p/c on 5-7
                n/p/c 500: on 4
                  zone[0] za: 0-3, za/p/c on 0-3
                  zone[1] zb: 5-7, zb/p/c on 5-7
                  n/p/c on 4
                -za/p/c: gone
                  zone[1] zb: 4-7, zb/p/c on 4-7
                  n/p/c on 0-3
                  zone[1] zb: 4-7, zb/p/c on 4-7
                  n/p/c on 0-3
            "#]],
        ),
        (
            "0",
            expect![[r#"
                za/p/c 500: on 4-7
                zb/p/c 500: on 1-3
                  zone[0] za: 4-7, za/p/c on 4-7
                  zone[1] zb: 1-3, zb/p/c on 1-3
                n/p/c 500: on 0
                  zone[0] za: 4-7, za/p/c on 4-7
                  zone[1] zb: 1-3, zb/p/c on 1-3
                  n/p/c on 0
                -za/p/c: gone
                  zone[1] zb: 1-3, zb/p/c on 1-3
                  n/p/c on 4-7
                  zone[1] zb: 1-3, zb/p/c on 1-3
                  n/p/c on 4-7
            "#]],
        ),
    ] {
        let mut node = started(machine(reserved), std::slice::from_ref(&zone));
        play(&mut node, &steps, expected);
        node.restart();
    }
    check(
        machine(""),
        &[zone],
        &["n/p/c 1500", "za/p/c 500", "zb/p/c 500"],
        expect![[r#"
            n/p/c 1500: on 0-3
            za/p/c 500: on 4-7
            zb/p/c 500: bayplan: zb/p/c refused: no group of `zone` has room; a new zone: 2 of these 4 CPUs have to stay shared
              zone[0] za: 4-7, za/p/c on 4-7
              n/p/c on 0-3
        "#]],
    );
}

/// `numa-namespace-exclusive=2`: a guaranteed container has CPUs of its own in the part, by its own resources also in a Burstable pod, and the others of the part have them back when it ends.
/// What has no room in the part is refused before it is there.
#[test]
fn guaranteed_containers_own_cpus_in_the_part_of_their_namespace() {
    let mut zone = zones(Size::Domain(Level::NumaNode), Inside::GuaranteedExclusive);
    zone.instances.max = Most::Count(1);
    let mut node = started(("pack:2 numa:1 core:4 pu:1 mem:8", ""), &[zone]);
    node.state.rules.has_own_qos = true;
    play(
        &mut node,
        &[
            "a/p/own 2000 Burstable memory=1",
            "a/p/share 500",
            "a/q/idle 0 BestEffort",
            "a/r/own 2000 Guaranteed",
            "show",
            "~a/p/own 1000",
            "show",
            "a/r/own 1000 Guaranteed",
            "-a/p/share",
            "~a/p/own 3000",
            "-a/p/own",
        ],
        expect![[r#"
            a/p/own 2000 Burstable memory=1: on 1-2
            a/p/share 500: on 0,3
            a/q/idle 0 BestEffort: on 0,3
            a/r/own 2000 Guaranteed: bayplan: a/r/own refused: no group of `zone` has room; zone[0]: the group has 1 CPUs to give, 2 are needed
              zone[0] a: 0-3, a/p/own on 1-2, a/p/share on 0,3, a/q/idle on 0,3
            ~a/p/own 1000: resized
              zone[0] a: 0-3, a/p/own on 1, a/p/share on 0,2-3, a/q/idle on 0,2-3
            a/r/own 1000 Guaranteed: on 2
            -a/p/share: gone
            ~a/p/own 3000: bayplan: a/p/own refused: the group has 2 CPUs to give, 3 are needed (`requests` in the configuration)
            -a/p/own: gone
              zone[0] a: 0-3, a/q/idle on 0-1,3, a/r/own on 2
        "#]],
    );
}
