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
        expect![],
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
        expect![],
    );
}

/// `numa-namespace-exclusive=2`: a guaranteed container has CPUs of its own in the part, by its own resources also in a Burstable pod, and the others of the part have them back when it ends.
/// What has no room in the part is refused before it is there.
#[test]
fn guaranteed_containers_own_cpus_in_the_part_of_their_namespace() {
    let zone = zones(Size::Domain(Level::NumaNode), Inside::GuaranteedExclusive);
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
        expect![],
    );
}
