//! NUMA nodes and their memory come, go, or are divided in another way.

use super::*;

#[test]
fn a_node_that_goes_and_returns_leaves_sharers_of_the_other_where_they_are() {
    check(
        TWO_NODES,
        "",
        &["s ~0.5", "t ~0.5", "u ~0.5", "v ~0.5", "own 2", "off 0-3", "restart", "off", "restart"],
        expect![[r#"
            > off 0-3
            shrink t cpus 4-7 -> 4,7
            shrink v cpus 4-7 -> 4,7
            move   own cpus 1-2 -> 5-6 mems 0 -> 1
            move   s cpus 0,3 -> 4,7 mems 0 -> 1
            move   u cpus 0,3 -> 4,7 mems 0 -> 1
            placed default/own/app in machine: 5-6
            placed default/s/app in machine: 4,7
            placed default/u/app in machine: 4,7
            machine 4-7: came [] went [0-3], moved 3, displaced 0
            own exclusive on 5-6 mems 1 in machine: lost CPUs 1-2; placed in machine
            s shared on 4,7 mems 1 in machine: lost all CPUs of numa 0; placed in machine
            t shared on 4,7 mems 1 in machine: placed in numa 1
            u shared on 4,7 mems 1 in machine: lost all CPUs of numa 0; placed in machine
            v shared on 4,7 mems 1 in machine: placed in numa 1
            > restart: same true
            > off
            machine 0-7: came [0-3] went [], moved 0, displaced 0
            own exclusive on 5-6 mems 1 in numa 1: lost CPUs 1-2; placed in machine
            s shared on 4,7 mems 1 in numa 1: lost all CPUs of numa 0; placed in machine
            t shared on 4,7 mems 1 in numa 1: placed in numa 1
            u shared on 4,7 mems 1 in numa 1: lost all CPUs of numa 0; placed in machine
            v shared on 4,7 mems 1 in numa 1: placed in numa 1
            > restart: same true
        "#]],
    );
}

#[test]
fn a_container_that_shared_two_nodes_shares_both_again_when_one_returns() {
    check(
        TWO_NODES,
        "",
        &["wide ~6", "off 0-3", "restart", "off", "restart"],
        expect![[r#"
        > off 0-3
        shrink wide cpus 0-7 -> 4-7
        machine 4-7: came [] went [0-3], moved 0, displaced 0
        wide shared on 4-7 mems 0-1 in machine: placed in machine
        > restart: same true
        > off
        grow   wide cpus 4-7 -> 0-7
        machine 0-7: came [0-3] went [], moved 0, displaced 0
        wide shared on 0-7 mems 0-1 in machine: placed in machine
        > restart: same true
    "#]],
    );
}

#[test]
fn a_second_node_that_appears_spreads_no_container() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8",
        "",
        &["s ~0.5", "own 2", "machine pack:1 numa:2 core:4 pu:1 mem:8", "restart"],
        expect![[r#"
            > machine pack:1 numa:2 core:4 pu:1 mem:8
            machine 0-7: came [4-7] went [], moved 0, displaced 0
            own exclusive on 1-2 mems 0 in numa 0: placed in machine
            s shared on 0,3 mems 0 in numa 0: placed in machine; squeezed from CPUs 0-3 to 0,3 because of default/own/app
            > restart: same true
        "#]],
    );
}

#[test]
fn fewer_and_larger_nodes_keep_all_containers_on_their_cpus() {
    check(
        "pack:1 numa:4 core:2 pu:1 mem:8",
        "",
        &["a 2", "b 1", "s ~0.5", "machine pack:1 numa:2 core:4 pu:1 mem:16", "restart"],
        expect![[r#"
            > machine pack:1 numa:2 core:4 pu:1 mem:16
            grow   s cpus 4-5 -> 4-7 mems 2 -> 1
            placed default/s/app in numa 1: 4-7
            machine 0-7: came [] went [], moved 1, displaced 0
            a exclusive on 0-1 mems 0 in numa 0: placed in numa 0
            b exclusive on 2 mems 1 in numa 0: placed in numa 1
            s shared on 4-7 mems 1 in numa 1: lost all CPUs of numa 2; placed in numa 1
            > restart: same true
        "#]],
    );
}

#[test]
fn memory_on_a_node_that_is_gone_is_no_longer_asked_for() {
    check(
        TWO_NODES,
        "",
        &["a 1 12", "b 1 2", "machine pack:1 numa:1 core:4 pu:1 mem:8", "restart"],
        expect![[r#"
            > machine pack:1 numa:1 core:4 pu:1 mem:8
            shrink a cpus 1 -> 1 mems 0-1 -> 0
            move   b cpus 4 -> 0,2-3 mems 1 -> 0
            displaced: default/b/app: lost CPUs 4; refused: needs 2 GiB, the machine has 0 B free; it shares from now on
            machine 0-3: came [] went [4-7], moved 0, displaced 1
            a exclusive on 1 mems 0 in machine: placed in machine
            b shared on 0,2-3 mems 0 in machine: lost CPUs 4; refused: needs 2 GiB, the machine has 0 B free; it shares from now on
            > restart: same true
        "#]],
    );
}
