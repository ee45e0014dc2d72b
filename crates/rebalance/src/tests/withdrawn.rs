//! What stands and is not allowed any more: by a forbidden knob, by the mode of the victim or the target, or because its strategy is gone.

use super::*;

/// In force after `before`; then each of `ways`, and one round more, in which it is undone.
#[track_caller]
fn check_withdrawn(scene: &str, before: &str, round: &str, ways: &[&str]) {
    for way in ways {
        for next in ["", "unrest begins"] {
            let told = play(scene, &format!("{before}\n{next}\n{way}\n1 rounds  {round}"));
            let last = told.lines().last().unwrap_or_default();
            assert!(last.ends_with("s: judge 1 undone: not allowed any more"), "{way}: {told}");
        }
    }
}

const GATHERING: &str = "
    20 rounds  web cpus=1 hops=20 pressure=0.02  job cpus=1
    until a proposal  web cpus=1 hops=900 pressure=0.02  job cpus=1
    1 rounds  web cpus=1 hops=0 pressure=0.02  job cpus=1
";
const STILL: &str = "web cpus=1 hops=0 pressure=0.02  job cpus=1";

#[test]
fn a_gathered_container_goes_back_at_once_when_that_is_not_allowed_any_more() {
    let ways = ["forbid gather", "observe web", "off web", "disallow 1"];
    check_withdrawn(SPREAD, GATHERING, STILL, &ways);
    let kept = format!("{GATHERING}\nuntil a verdict  {STILL}\n20 rounds  {STILL}");
    check_withdrawn(SPREAD, &kept, STILL, &ways);
}

#[test]
fn one_that_was_sent_to_another_clock_domain_goes_back_at_once_when_its_strategy_is_gone() {
    let two = "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        dsp burstable 0-3
        mat besteffort 0-3
    ";
    let sent = "
        clock mat 0-3
        until a proposal  dsp cpus=1  mat cpus=1 clock=1
        in mat 4-7
        until a verdict  dsp cpus=1  mat cpus=1 clock=0
    ";
    let ways = ["disallow 1", "forbid clock", "observe mat"];
    check_withdrawn(two, sent, "dsp cpus=1  mat cpus=1", &ways);
}

#[test]
fn so_it_is_with_what_stands_for_another_container() {
    let held = "
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.02  hog cpus=2
    ";
    let ways = ["forbid idle", "observe web", "observe hog", "disallow 1"];
    check_withdrawn(WEB_AND_HOG, held, "web cpus=2 pressure=0.02  hog cpus=2", &ways);
}

/// The budget of the minute is used up by two proposals.
#[test]
fn nothing_that_is_not_allowed_any_more_waits_for_the_budget() {
    let settings = Settings { changes_per_minute: 2, ..Settings::default() };
    check_with(
        settings,
        ONE_AND_TWO,
        "
        20 rounds  web cpus=0.5 pressure=0.02  one cpus=0.1  two cpus=0.1
        until a proposal  web cpus=0.5 pressure=0.6  one cpus=1.8  two cpus=1.7
        until a verdict  web cpus=0.5 pressure=0.45  one cpus=1.8  two cpus=1.7
        until a verdict  web cpus=0.5 pressure=0.02  one cpus=1.8  two cpus=1.7
        observe web
        1 rounds  web cpus=0.5 pressure=0.02  one cpus=1.8  two cpus=1.7
        ",
        expect![[r#"
            115 s: propose 1 (act) move on one, which leaves CPUs 0-3, for web: cpu-pressure 60 % > 20 %
                cpu-pressure 60 % > 20 %
                from one by a shared CPU: activity 1.80, correlation 1.0
                from two by a shared CPU: activity 1.70, correlation 1.0
            130 s: judge 1 kept: closed 37 % of the gap
            130 s: propose 2 (act) move on two, which leaves CPUs 0-3, for web: cpu-pressure 45 % > 20 %
                cpu-pressure 45 % > 20 %
                from one by a shared CPU: activity 1.80, correlation 1.0
                from two by a shared CPU: activity 1.70, correlation 1.0
            145 s: judge 2 kept: closed 100 % of the gap
            150 s: judge 2 undone: not allowed any more
            150 s: judge 1 undone: not allowed any more
        "#]],
    );
}

/// Nothing was learned of how it did.
#[test]
fn it_is_proposed_again_as_soon_as_it_is_allowed() {
    let told = play(
        SPREAD,
        &format!(
            "
            {GATHERING}
            observe web
            1 rounds  {STILL}
            act web
            5 rounds  web cpus=1 hops=900 pressure=0.02  job cpus=1
            "
        ),
    );
    assert!(told.contains("propose 2 (act) gather on web"), "{told}");
}

/// A fight is no word of an operator, and counts as any other undo.
#[test]
fn what_another_program_fights_for_is_undone_and_not_withdrawn() {
    let told = play(
        WEB_AND_HOG,
        "
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.02  hog cpus=2
        contest hog
        1 rounds  web cpus=2 pressure=0.02  hog cpus=2
        ",
    );
    assert!(told.ends_with("judge 1 undone: not needed any more\n"), "{told}");
}
