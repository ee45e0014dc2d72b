//! A container that suffers and for which nothing is proposed has a reason.

use super::harness::unhelped_after;
use super::*;

fn check_reason(scene: &str, script: &str, expected: Expect) {
    expected.assert_eq(&unhelped_after(scene, script));
}

#[test]
fn every_stop_on_the_way_to_a_proposal_is_named() {
    let alone = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3
    ";
    check_reason(alone, "20 rounds  web cpus=2 pressure=0.02", expect![[r#""#]]);
    check_reason(
        alone,
        "2 rounds  web cpus=2 pressure=0.89",
        expect![[r#"
        web: cpu-pressure 89 % > 20 %, and nothing is proposed: it came or moved less than 30 s ago
    "#]],
    );
    check_reason(
        alone,
        "20 rounds  web cpus=2 pressure=0.89",
        expect![[r#"
        web: cpu-pressure 89 % > 20 %, and nothing is proposed: no other container is known to cause it
    "#]],
    );
    check_reason(
        alone,
        "20 rounds  web cpus=0.1 pressure=0.89",
        expect![[r#"
        web: cpu-pressure 89 % > 20 %, and nothing is proposed: it keeps too few CPUs busy to be judged
    "#]],
    );
    check_reason(
        alone,
        "20 rounds  web cpus=4 pressure=0.89 waiting=4",
        expect![[r#"
        web: cpu-pressure 89 % > 20 %, and nothing is proposed: it wants more CPU time than all CPUs that it may run on have
    "#]],
    );
    check_reason(
        alone,
        "20 rounds  web cpus=2 pressure=0.02\n1 rounds  web cpus=2 pressure=0.89",
        expect![[r#"
            web: cpu-pressure 89 % > 20 %, and nothing is proposed: it has not been so in enough of the last looks
        "#]],
    );
    check_reason(
        alone,
        "off web\n20 rounds  web cpus=2 pressure=0.89",
        expect![[r#"
        web: cpu-pressure 89 % > 20 %, and nothing is proposed: its mode is off
    "#]],
    );
    let besteffort = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        logs besteffort 0-3
    ";
    check_reason(
        besteffort,
        "20 rounds  logs cpus=2 pressure=0.89",
        expect![[r#"
        logs: cpu-pressure 89 % > 20 %, and nothing is proposed: it is BestEffort, and nothing is changed for the sake of those
    "#]],
    );
    let untouchable = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 knobs=
        hog besteffort 0-3 knobs=
    ";
    check_reason(
        untouchable,
        "20 rounds  web cpus=2 pressure=0.02  hog cpus=0\n20 rounds  web cpus=2 pressure=0.5  hog cpus=2",
        expect![[r#"
            web: cpu-pressure 50 % > 20 %, and nothing is proposed: nothing that may be turned here would help: see the modes of the containers that cause it, and `rebalance.forbid`
        "#]],
    );
}

#[test]
fn what_takes_the_time_outside_of_containers_is_named() {
    let owner = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 exclusive
    ";
    let busy = "idle 0.04\n20 rounds  web cpus=1 pressure=0.89";
    check_reason(
        owner,
        busy,
        expect![[r#"
            web: cpu-pressure 89 % > 20 %, and nothing is proposed: pressure comes from outside of containers: 71 % of the time of its CPUs
        "#]],
    );
    check_reason(
        owner,
        &format!("intruder web kswapd0 2.6\n{busy}"),
        expect![[r#"
            web: cpu-pressure 89 % > 20 %, and nothing is proposed: pressure comes from outside of containers: 71 % of the time of its CPUs, 65 % by kswapd0
        "#]],
    );
    // Counted at another time than the whole.
    check_reason(
        owner,
        &format!("intruder web kswapd0 4\n{busy}"),
        expect![[r#"
            web: cpu-pressure 89 % > 20 %, and nothing is proposed: pressure comes from outside of containers: 71 % of the time of its CPUs, 71 % by kswapd0
        "#]],
    );
    check_reason(
        owner,
        &format!("intruder web kswapd0 0.01\n{busy}"),
        expect![[r#"
            web: cpu-pressure 89 % > 20 %, and nothing is proposed: pressure comes from outside of containers: 71 % of the time of its CPUs
        "#]],
    );
}
