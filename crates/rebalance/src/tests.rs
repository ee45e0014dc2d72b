//! The whole loop on scripts: which container is where, what is measured round by round, and what is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{CpuClass, NodeSet, QosClass};
use expect_test::{Expect, expect};

use crate::render::{render_evidence, render_proposal, render_verdict};
use crate::{
    ClockPlace, Decision, Intruder, Knob, Migrations, Mode, Outcome, Rebalancer, Resident, Round,
    Sample, Scene, Settings, Signal, Unrest, Workload,
};

mod clocks;
mod far_memory;
mod forbidden;
mod gathering;
pub(crate) mod harness;
mod in_the_way;
mod judging;
mod properties;
mod suffering;
mod unhelped;
mod withdrawn;

use harness::{ONE_AND_TWO, SPREAD, check, check_with, parse_knobs, play, victims_after};

const WEB_AND_HOG: &str = "
    machine pack:1 numa:1 l3:1 core:4 pu:1
    web guaranteed 0-3
    hog besteffort 0-3
";

const TWO_HOGS: &str = "
    machine pack:1 numa:1 l3:1 core:4 pu:1
    web guaranteed 0-3
    hog besteffort 0-3
    other besteffort 0-3
";

const TWO_CACHES: &str = "
    machine pack:1 numa:1 l3:2 core:4 pu:2
    db guaranteed 0-3 exclusive
    batch burstable 4-7
";

#[test]
fn a_besteffort_hog_is_made_idle_and_let_go_when_it_is_gone() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        4 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        until a verdict  web cpus=2 pressure=0.03  hog cpus=0
        ",
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            130 s: judge 1 kept: closed 100 % of the gap
            440 s: judge 1 undone: not needed any more
        "#]],
    );
}

const TWO_CPUS: &str = "
    machine pack:1 numa:1 l3:1 core:2 pu:1
    web burstable 0-1
    hog besteffort 0-1
";

/// An alert follows this number, so it is about victims that can be helped.
#[test]
fn a_victim_is_counted_only_if_it_is_not_besteffort_and_others_are_to_blame() {
    let suffers = "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        10 rounds  web cpus=2 pressure=0.5  hog cpus=2
    ";
    assert_eq!(victims_after(WEB_AND_HOG, suffers), 1);
    assert_eq!(victims_after(&WEB_AND_HOG.replace("guaranteed", "besteffort"), suffers), 0);
    let alone = "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        10 rounds  web cpus=2 pressure=0.5  hog cpus=0
    ";
    assert_eq!(victims_after(WEB_AND_HOG, alone), 0);
}

/// The two of them do not fill the CPUs, and yet there is no time left.
#[test]
fn cpus_are_crowded_when_the_kernel_says_so_whatever_is_on_them() {
    check(
        TWO_CPUS,
        "
        20 rounds  web cpus=0.4 pressure=0.5  hog cpus=0.7
        idle 0.4
        20 rounds  web cpus=0.4 pressure=0.5  hog cpus=0.7
        idle 0.05
        until a proposal  web cpus=0.4 pressure=0.5  hog cpus=0.7
        ",
        expect![[r#"
            205 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 0.70, correlation 0.0
        "#]],
    );
}

#[test]
fn no_container_is_blamed_for_processes_in_none() {
    check(
        TWO_CPUS,
        "
        idle 0
        20 rounds  web cpus=0.4 pressure=0.5  hog cpus=0.24
        until a proposal  web cpus=0.4 pressure=0.5  hog cpus=0.3
        ",
        expect![[r#"
            105 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 0.30, correlation 0.0
        "#]],
    );
}

#[test]
fn what_does_not_help_is_undone_and_the_next_is_tried() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        20 rounds  web cpus=2 pressure=0.5  hog cpus=2
        ",
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            125 s: judge 1 undone: closed 0 % of the gap
            125 s: propose 2 (act) suppress on hog, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            135 s: judge 2 undone: closed 0 % of the gap
            135 s: propose 3 (observe) evict on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
        "#]],
    );
}

/// It is the same change, whichever of the class is named.
#[test]
fn a_suppression_in_vain_is_not_tried_again_under_another_name() {
    check_with(
        Settings { forbidden: parse_knobs("idle,evict"), ..Settings::default() },
        TWO_HOGS,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0  other cpus=0
        40 rounds  web cpus=2 pressure=0.5  hog cpus=1  other cpus=1
        ",
        expect![[r#"
            115 s: propose 1 (act) suppress on other, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from other by a shared CPU: activity 1.00, correlation 1.0
                from hog by a shared CPU: activity 1.00, correlation 1.0
            125 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
}

/// It was left alone, because it is hardly more than the limit and something stood for the victim already: what only changes the order of turns.
#[test]
fn a_victim_helped_with_waiting_is_not_helped_with_slow_cores() {
    check(
        WEB_AND_HOG,
        "
        50 rounds  web cpus=2 pressure=0.02 cpi=1  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5 cpi=1  hog cpus=2
        until a verdict  web cpus=2 pressure=0.02 cpi=1  hog cpus=2
        until a proposal  web cpus=2 pressure=0.02 cpi=1.25  hog cpus=4
        ",
        expect![[r#"
            265 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 10 %, usually 2 %
                cpu-pressure 50 % > 10 %, usually 2 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            280 s: judge 1 kept: closed 100 % of the gap
            295 s: propose 2 (act) suppress on hog, step 2, for web: cycles-per-instruction 1.25 > 1.20, usually 1.00
                cycles-per-instruction 1.25 > 1.20, usually 1.00
                from hog by a shared CPU: activity 4.00, correlation 0.8
        "#]],
    );
}

#[test]
fn a_release_that_was_too_early_makes_the_next_wait_longer() {
    check(
        WEB_AND_HOG,
        "
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.03  hog cpus=1.8
        70 rounds  web cpus=2 pressure=0.03  hog cpus=0.1
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.03  hog cpus=1.8
        130 rounds  web cpus=2 pressure=0.03  hog cpus=0.1
        ",
        expect![[r#"
            30 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            45 s: judge 1 kept: closed 100 % of the gap
            350 s: judge 1 undone: not needed any more
            410 s: propose 2 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            425 s: judge 2 kept: closed 100 % of the gap
            1030 s: judge 2 undone: not needed any more
        "#]],
    );
}

#[test]
fn a_hog_that_goes_on_is_held_for_long() {
    check(
        WEB_AND_HOG,
        "
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        400 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            30 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            45 s: judge 1 kept: closed 100 % of the gap
            1850 s: judge 1 undone: not needed any more
        "#]],
    );
}

#[test]
fn nothing_is_done_where_no_other_container_is_active() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0.05
        20 rounds  web cpus=3.9 pressure=0.9  hog cpus=0.05
        ",
        expect![[r#""#]],
    );
}

#[test]
fn pressure_from_an_own_limit_is_no_other_containers_fault() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 knobs=idle,burst
        hog besteffort 0-3
        ",
        "
        20 rounds  web cpus=2 pressure=0.02 throttled=0  hog cpus=1
        20 rounds  web cpus=2 pressure=0.5 throttled=0.45  hog cpus=1
        ",
        expect![""],
    );
}

/// The peer does more, and is as much to blame; the hog is asked first all the same.
#[test]
fn of_two_culprits_the_less_important_one_comes_first() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3
        peer burstable 0-3
        hog besteffort 0-3
        ",
        "
        20 rounds  web cpus=1 pressure=0.02  peer cpus=0.1  hog cpus=0.1
        until a proposal  web cpus=1 pressure=0.5  peer cpus=1.6  hog cpus=1.2
        ",
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 1.20, correlation 1.0
                from peer by a shared CPU: activity 1.60, correlation 1.0
        "#]],
    );
}

/// An operator and what came later do not wait for the budget, and what is proposed in its place does.
#[test]
fn what_others_end_is_over_at_once_and_what_follows_is_counted() {
    let settings = Settings { changes_per_minute: 1, ..Settings::default() };
    check_with(
        settings,
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        ended 1
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        ",
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            175 s: propose 2 (act) suppress on hog, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
        "#]],
    );
}

/// A container that is stopped by its own limit while CPUs have time gets to use it; on a full machine it would take it from others.
#[test]
fn burst_is_granted_only_while_cpus_have_time() {
    let scene = "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 knobs=burst
        peer guaranteed 0-3 knobs=
        ";
    let script = |peer: &str, idle: &str| {
        format!(
            "
            {idle}
            20 rounds  web cpus=0.5 throttled=0  {peer}
            6 rounds  web cpus=0.5 throttled=0.45  {peer}
            "
        )
    };
    check(
        scene,
        &script("peer cpus=1", ""),
        expect![[r#"
            115 s: propose 1 (act) burst on web: throttled 45 % > 5 %
                throttled 45 % > 5 %
                from no known container
            125 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
    let [told, known] = ["", "idle 0.6"].map(|idle| play(scene, &script("peer cpus=1", idle)));
    assert_eq!(told, known);
    check(scene, &script("peer cpus=3", ""), expect![[""]]);
    // The kernel says so, though no container is seen to use them.
    check(scene, &script("peer cpus=1", "idle 0.1"), expect![[""]]);
}

#[test]
fn a_more_important_container_is_not_asked() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web burstable 0-3
        db guaranteed 0-3
        ",
        "20 rounds  web cpus=1 pressure=0.5  db cpus=2",
        expect![[r#""#]],
    );
}

#[test]
fn a_slow_owner_has_a_culprit_only_if_that_is_active_at_the_same_time() {
    check(
        TWO_CACHES,
        "
        50 rounds  db cpus=4 cpi=~1  batch cpus=2 bandwidth=1e9
        10 rounds  db cpus=4 cpi=~2  batch cpus=2 bandwidth=1e9
        40 rounds  db cpus=4 cpi=~1  batch cpus=2 bandwidth=1e9
        10 rounds  db cpus=4 cpi=~2  batch cpus=4 bandwidth=20e9
        ",
        expect![[r#"
            515 s: propose 1 (act) bandwidth on batch, step 2, for db: cycles-per-instruction 2.02 > 1.23, usually 1.02
                cycles-per-instruction 2.02 > 1.23, usually 1.02
                from batch by a shared node: activity 20.0 G, correlation 1.0
            525 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
}

/// It goes on being slow after a move, and the batch has begun meanwhile; but it was never seen to be fast where it is now.
#[test]
fn what_was_before_a_move_says_nothing_of_the_place_after_it() {
    check(
        TWO_CACHES,
        "
        50 rounds  db cpus=2 cpi=1  batch cpus=0.1
        moved db
        30 rounds  db cpus=2 cpi=1.8  batch cpus=3
        ",
        expect![[r#""#]],
    );
}

#[test]
fn without_a_baseline_a_slow_owner_is_not_known() {
    check(
        TWO_CACHES,
        "
        10 rounds  db cpus=4 cpi=1  batch cpus=2 bandwidth=1e9
        20 rounds  db cpus=4 cpi=2  batch cpus=4 bandwidth=20e9
        ",
        expect![[r#""#]],
    );
}

#[test]
fn the_thread_beside_is_freed() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:2
        db guaranteed 0,2 exclusive
        batch burstable 1,3-7
        ",
        "
        50 rounds  db cpus=2 cpi=~1  batch cpus=~0.2
        until a proposal  db cpus=2 cpi=~1.8  batch cpus=~4
        4 rounds  db cpus=2 cpi=~1.05  batch cpus=~4
        ",
        expect![[r#"
            265 s: propose 1 (act) siblings on batch, which leaves CPUs 4,6, for db: cycles-per-instruction 1.83 > 1.23, usually 1.02
                cycles-per-instruction 1.83 > 1.23, usually 1.02
                from batch by a shared core: activity 4.18, correlation 1.0
            280 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

#[test]
fn in_unrest_nothing_is_said_and_settling_begins_anew() {
    check(
        WEB_AND_HOG,
        "
        10 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        unrest begins
        10 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        unrest ends
        until a verdict  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            130 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

#[test]
fn a_victim_that_is_gone_leaves_nothing_turned() {
    check(
        WEB_AND_HOG,
        "
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.02  hog cpus=2
        gone web
        2 rounds  hog cpus=2
        ",
        expect![[r#"
            30 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            45 s: judge 1 kept: closed 100 % of the gap
            50 s: judge 1 undone: not needed any more
        "#]],
    );
}

#[test]
fn samples_that_are_missing_are_no_samples() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=1
        2 rounds  web cpus=2 pressure=0.5  hog cpus=1
        3 rounds
        2 rounds  web cpus=2 pressure=0.5  hog cpus=1
        ",
        expect![[r#""#]],
    );
}

/// Most of a round that is lost is no picture of the machine: what the rest shows is looked at again in the next one.
#[test]
fn nothing_is_proposed_in_a_round_of_which_most_is_missing() {
    let script = |third: &str| {
        format!(
            "
            20 rounds  web cpus=2 pressure=0.02  hog cpus=1  other cpus=0.1
            2 rounds  web cpus=2 pressure=0.5  hog cpus=2  other cpus=0.1
            1 rounds  web cpus=2 pressure=0.5{third}
            until a proposal  web cpus=2 pressure=0.5  hog cpus=2  other cpus=0.1
            "
        )
    };
    let proposed = |second: u64| {
        format!(
            "{second} s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
    cpu-pressure 50 % > 20 %
    from hog by a shared CPU: activity 2.00, correlation 1.0
"
        )
    };
    for (third, second) in [("  hog cpus=2  other cpus=0.1", 115), ("  hog cpus=2", 115), ("", 120)]
    {
        let (told, due) = (play(TWO_HOGS, &script(third)), proposed(second));
        assert!(told.starts_with(&due), "{third}: {told}");
    }
}

#[test]
fn a_moment_is_no_trouble() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=1
        2 rounds  web cpus=2 pressure=0.9  hog cpus=4
        5 rounds  web cpus=2 pressure=0.02  hog cpus=1
        2 rounds  web cpus=2 pressure=0.9  hog cpus=4
        5 rounds  web cpus=2 pressure=0.02  hog cpus=1
        ",
        expect![[r#""#]],
    );
}
