//! CPUs that are set apart: reserved for system pods, or isolated.

use super::*;

#[test]
fn system_pods_stay_on_what_is_left_of_the_reserved_cpus() {
    check(
        "pack:1 numa:1 core:4 pu:2 mem:8",
        "0,4",
        &["sys !0.1", "own 2", "s ~0.5", "off 0", "off 0,4", "off"],
        expect![[r#"
            > off 0
            shrink sys cpus 0,4 -> 4
            reserved_offline: reservedCpus are 0,4, online are 1-7; system pods run on 4
            machine 1-7: came [] went [0], moved 0, displaced 0
            own exclusive on 1,5 mems 0 in machine: placed in machine
            s shared on 2-3,6-7 mems 0 in machine: placed in machine
            sys reserved on 4 mems 0 in reserved: placed on the reserved CPUs
            > off 0,4
            shrink own cpus 1,5 -> 5
            shrink s cpus 2-3,6-7 -> 3,7
            move   sys cpus 4 -> 1-2
            grow   own cpus 5 -> 5-6
            reserved_offline: reservedCpus are 0,4, online are 1-3,5-7; system pods run on 1-2
            placed default/own/app in machine: 5-6
            machine 1-3,5-7: came [] went [4], moved 1, displaced 0
            own exclusive on 5-6 mems 0 in machine: lost CPUs 1; placed in machine
            s shared on 3,7 mems 0 in machine: placed in machine
            sys reserved on 1-2 mems 0 in reserved: placed on the reserved CPUs
            > off
            move   sys cpus 1-2 -> 0,4
            grow   s cpus 3,7 -> 1-3,7
            machine 0-7: came [0,4] went [], moved 0, displaced 0
            own exclusive on 5-6 mems 0 in machine: lost CPUs 1; placed in machine
            s shared on 1-3,7 mems 0 in machine: placed in machine
            sys reserved on 0,4 mems 0 in reserved: placed on the reserved CPUs
        "#]],
    );
}

#[test]
fn a_reserved_cpu_gives_way_when_nothing_else_is_online() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8 isolated:3",
        "0",
        &["sys !0.1", "s ~0.5", "off 1-2", "off 0-2", "off"],
        expect![[r#"
            > off 1-2
            move   s cpus 1-2 -> 0
            reserved_offline: reservedCpus are 0, online are 0,3; system pods share with all others
            placed kube-system/sys/app in machine: 0
            machine 0,3: came [] went [1-2], moved 1, displaced 0
            s shared on 0 mems 0 in machine: placed in machine
            sys shared on 0 mems 0 in machine: no CPU is reserved any more; placed in machine
            > off 0-2
            move   s cpus 0 -> 3
            move   sys cpus 0 -> 3
            reserved_offline: reservedCpus are 0, online are 3; system pods share with all others
            isolated_shared: nothing is online but isolated CPUs; containers run on 3
            machine 3: came [] went [0], moved 0, displaced 0
            s shared on 3 mems 0 in machine: placed in machine
            sys shared on 3 mems 0 in machine: no CPU is reserved any more; placed in machine
            > off
            move   s cpus 3 -> 1-2
            move   sys cpus 3 -> 1-2
            machine 0-3: came [0-2] went [], moved 0, displaced 0
            s shared on 1-2 mems 0 in machine: placed in machine
            sys shared on 1-2 mems 0 in machine: no CPU is reserved any more; placed in machine
        "#]],
    );
}

#[test]
fn an_isolated_sibling_is_not_given_to_the_owner_of_the_other_thread() {
    check(
        "pack:1 numa:1 core:4 pu:2 mem:8",
        "",
        &["a 2", "isolate 1", "restart", "restart"],
        expect![[r#"
            > isolate 1
            shrink a cpus 1,5 -> 5
            grow   a cpus 5 -> 2,5
            placed default/a/app in machine: 2,5
            machine 0-7: came [] went [], moved 1, displaced 0
            a exclusive on 2,5 mems 0 in machine: lost CPUs 1; placed in machine
            > restart: same true
            > restart: same true
        "#]],
    );
}

#[test]
fn isolated_cpus_are_taken_from_their_owner() {
    check(
        TWO_NODES,
        "",
        &["a 2", "s ~0.5", "isolate 1", "isolate"],
        expect![[r#"
            > isolate 1
            shrink a cpus 1-2 -> 2
            grow   a cpus 2 -> 2-3
            placed default/a/app in numa 0: 2-3
            machine 0-7: came [] went [], moved 1, displaced 0
            a exclusive on 2-3 mems 0 in numa 0: lost CPUs 1; placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
            > isolate
            machine 0-7: came [] went [], moved 0, displaced 0
            a exclusive on 2-3 mems 0 in numa 0: lost CPUs 1; placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
        "#]],
    );
}
