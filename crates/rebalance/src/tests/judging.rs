//! What becomes of what was turned: in unrest, among noise, and where one signal is far off.

use super::harness::usual_after;
use super::*;

/// Turned in a calm time, with `after` in the unrest that follows.
fn check_unrest(after: &str, expected: Expect) {
    let script = format!(
        "
        10 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        unrest begins
        2 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        {after}
        "
    );
    check(WEB_AND_HOG, &script, expected);
}

#[test]
fn what_is_forbidden_is_undone_in_unrest() {
    check_unrest(
        "
        forbid idle
        2 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            80 s: judge 1 undone: not allowed any more
        "#]],
    );
}

#[test]
fn what_is_not_allowed_any_more_is_undone_in_unrest() {
    check_unrest(
        "
        off hog
        2 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            80 s: judge 1 undone: not allowed any more
        "#]],
    );
}

#[test]
fn a_proposal_whose_victim_goes_in_unrest_is_let_go_there() {
    check_unrest(
        "
        gone web
        2 rounds  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            80 s: judge 1 undone: could not be judged
        "#]],
    );
}

#[test]
fn unrest_that_does_not_end_leaves_nothing_unjudged() {
    check_unrest(
        "
        200 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        unrest ends
        4 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            670 s: judge 1 undone: could not be judged
        "#]],
    );
}

#[test]
fn what_was_kept_before_unrest_stays_through_it() {
    check(
        WEB_AND_HOG,
        "
        10 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        until a verdict  web cpus=2 pressure=0.03  hog cpus=1.8
        unrest begins
        200 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            80 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

/// Before, the delay alone made up most of all multiples of limits, and its little part was enough.
#[test]
fn one_signal_that_is_far_off_does_not_decide() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02 delay_ms=0.1  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5 delay_ms=400  hog cpus=2
        until a verdict  web cpus=2 pressure=0.5 delay_ms=340  hog cpus=2
        ",
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: delay 400 ms > 5.00 ms
                delay 400 ms > 5.00 ms
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            125 s: judge 1 undone: closed 0 % of the gap
            125 s: propose 2 (act) suppress on hog, step 3, for web: delay 340 ms > 5.00 ms
                delay 340 ms > 5.00 ms
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
        "#]],
    );
}

#[test]
fn a_little_less_of_a_little_trouble_is_chance() {
    check(
        TWO_CACHES,
        "
        50 rounds  db cpus=4 cpi=~1  batch cpus=1 bandwidth=1e9
        until a proposal  db cpus=4 cpi=~1.25  batch cpus=4 bandwidth=20e9
        until a verdict  db cpus=4 cpi=~1.22  batch cpus=4 bandwidth=20e9
        ",
        expect![[r#"
            265 s: propose 1 (act) bandwidth on batch, for db: cycles-per-instruction 1.27 > 1.23, usually 1.02
                cycles-per-instruction 1.27 > 1.23, usually 1.02
                from batch by a shared node: activity 20.0 G, correlation 1.0
            275 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
}

/// Turned, and then three rounds that differ by as much as the relief, and these pressures.
fn check_noisy(pressures: [f64; 3], expected: Expect) {
    let rounds = [0.49, 0.05, 0.25].into_iter().chain(pressures);
    let rounds =
        rounds.map(|it| format!("1 rounds  web cpus=2 pressure={it} delay_ms=34  hog cpus=1\n"));
    let script = format!(
        "
        20 rounds  web cpus=2 pressure=0.02 delay_ms=0.1  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5 delay_ms=34  hog cpus=2
        forbid suppress
        {}
        ",
        rounds.collect::<String>()
    );
    check(WEB_AND_HOG, &script, expected);
}

/// Before, it was in vain after three rounds, whatever came later.
#[test]
fn what_seems_to_help_and_may_be_chance_is_judged_by_more_rounds() {
    check_noisy(
        [0.2, 0.22, 0.18],
        expect![[r#"
            115 s: propose 1 (act) idle on hog, for web: delay 34 ms > 5.00 ms
                delay 34 ms > 5.00 ms
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            140 s: judge 1 kept: closed 47 % of the gap
            140 s: propose 2 (observe) evict on hog, for web: delay 34 ms > 5.00 ms
                delay 34 ms > 5.00 ms
                cpu-pressure 22 % > 20 %
                from hog by a shared CPU: activity 1.00, correlation 0.9
        "#]],
    );
    check_noisy(
        [0.5, 0.49, 0.51],
        expect![[r#"
        115 s: propose 1 (act) idle on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 50 % > 20 %
            from hog by a shared CPU: activity 2.00, correlation 1.0
        140 s: judge 1 undone: closed 0 % of the gap
        140 s: propose 2 (observe) evict on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 49 % > 20 %
            from hog by a shared CPU: activity 1.00, correlation 0.9
    "#]],
    );
}

/// It waited for the second look, too.
#[test]
fn a_change_that_harms_is_taken_back_before_it_is_known_whether_it_helps() {
    let rounds = [0.49, 0.05, 0.25, 0.2, 0.22].map(|it| {
        format!(
            "1 rounds  web cpus=1 pressure={it} delay_ms=34  db cpus=1 pressure=0.95  hog cpus=1\n"
        )
    });
    let script = format!(
        "
        20 rounds  web cpus=1 pressure=0.02 delay_ms=0.1  db cpus=1 pressure=0.02  hog cpus=0
        until a proposal  web cpus=1 pressure=0.5 delay_ms=34  db cpus=1 pressure=0.02  hog cpus=2
        forbid suppress
        {}
        ",
        rounds.concat()
    );
    let three = WEB_AND_HOG.replace("hog best", "db guaranteed 0-3\n    hog best");
    check(
        &three,
        &script,
        expect![[r#"
        115 s: propose 1 (act) idle on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 50 % > 20 %
            from hog by a shared CPU: activity 2.00, correlation 1.0
            from db by a shared CPU: activity 1.00, correlation 0.0
        130 s: judge 1 undone: db suffers instead
        130 s: propose 2 (observe) evict on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 25 % > 20 %
            from hog by a shared CPU: activity 1.00, correlation 0.9
            from db by a shared CPU: activity 1.00, correlation 0.0
        130 s: propose 3 (act) idle on hog, for db: cpu-pressure 95 % > 20 %
            cpu-pressure 95 % > 20 %
            from hog by a shared CPU: activity 1.00, correlation 0.0
            from web by a shared CPU: activity 1.00, correlation 0.0
        140 s: judge 3 undone: closed 0 % of the gap
        140 s: propose 4 (observe) evict on hog, for db: cpu-pressure 95 % > 20 %
            cpu-pressure 95 % > 20 %
            from hog by a shared CPU: activity 1.00, correlation 0.4
            from web by a shared CPU: activity 1.00, correlation 0.0
    "#]],
    );
}

/// A proposal that was never measured is tried again as soon as one that was refused, and no victim is given up for it.
#[test]
fn what_could_not_be_judged_was_not_useless() {
    check(
        WEB_AND_HOG,
        "
        10 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        unrest begins
        130 rounds  web cpus=2 pressure=0.5  hog cpus=2
        unrest ends
        130 rounds  web cpus=2 pressure=0.5  hog cpus=2
        ",
        expect![[r#"
            65 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            670 s: judge 1 undone: could not be judged
            720 s: propose 2 (act) suppress on hog, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            730 s: judge 2 undone: closed 0 % of the gap
            730 s: propose 3 (observe) evict on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            1270 s: propose 4 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            1280 s: judge 4 undone: closed 0 % of the gap
            1330 s: propose 5 (act) suppress on hog, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            1340 s: judge 5 undone: closed 0 % of the gap
            1340 s: propose 6 (observe) evict on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
        "#]],
    );
}

/// Four rounds have no middle one, and the lower of two is low by chance too often.
#[test]
fn four_rounds_of_noise_are_not_judged() {
    check_noisy(
        [0.24, 0.5, 0.49],
        expect![[r#"
        115 s: propose 1 (act) idle on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 50 % > 20 %
            from hog by a shared CPU: activity 2.00, correlation 1.0
        140 s: judge 1 undone: closed 0 % of the gap
        140 s: propose 2 (observe) evict on hog, for web: delay 34 ms > 5.00 ms
            delay 34 ms > 5.00 ms
            cpu-pressure 25 % > 20 %
            from hog by a shared CPU: activity 1.00, correlation 0.9
    "#]],
    );
}

#[test]
fn a_trouble_that_came_with_it_speaks_against_it() {
    check(
        WEB_AND_HOG,
        "
        20 rounds  web cpus=2 pressure=0.02 cpi=~1  hog cpus=0
        20 rounds  web cpus=2 pressure=0.02 cpi=~1  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5 cpi=~1  hog cpus=2
        until a verdict  web cpus=2 pressure=0.3 cpi=~3  hog cpus=2
        ",
        expect![[r#"
            215 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 10 %, usually 2 %
                cpu-pressure 50 % > 10 %, usually 2 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            230 s: judge 1 undone: closed -25 % of the gap; cycles-per-instruction went from 1.03 to 3.05
            230 s: propose 2 (act) suppress on hog, step 3, for web: cpu-pressure 30 % > 10 %, usually 2 %
                cpu-pressure 30 % > 10 %, usually 2 %
                cycles-per-instruction 3.05 > 1.23, usually 1.02
                from hog by a shared CPU: activity 2.00, correlation 1.0
        "#]],
    );
}

/// As many threads of an equal on half as many CPUs would make it the next victim.
#[test]
fn an_equal_frees_threads_only_where_it_has_room() {
    for (cpus, expected) in [
        ("~4", expect![[r#""#]]),
        (
            "~2",
            expect![[r#"
        265 s: propose 1 (act) siblings on batch, which leaves CPUs 4,6, for db: cycles-per-instruction 1.83 > 1.23, usually 1.02
            cycles-per-instruction 1.83 > 1.23, usually 1.02
            from batch by a shared core: activity 2.09, correlation 1.0
        275 s: judge 1 undone: closed 0 % of the gap
    "#]],
        ),
    ] {
        let script = format!(
            "
            50 rounds  db cpus=2 cpi=~1  batch cpus=~0.2
            5 rounds  db cpus=2 cpi=~1.8  batch cpus={cpus}
            "
        );
        check(
            "
            machine pack:1 numa:1 l3:1 core:4 pu:2
            db guaranteed 0,2 exclusive knobs=
            batch guaranteed 1,3-7 knobs=siblings
            ",
            &script,
            expected,
        );
    }
}

/// Both are to leave the victim's CPUs. The second is asked when the first was judged, and where it then finds room.
#[test]
fn of_two_that_are_to_leave_the_same_cpus_one_goes_at_a_time() {
    check(
        ONE_AND_TWO,
        "
        20 rounds  web cpus=0.5 pressure=0.02  one cpus=0.1  two cpus=0.1
        until a proposal  web cpus=0.5 pressure=0.6  one cpus=1.8  two cpus=1.7
        until a verdict  web cpus=0.5 pressure=0.45  one cpus=1.8  two cpus=1.7
        5 rounds  web cpus=0.5 pressure=0.45  one cpus=1.8  two cpus=1.7
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
            140 s: judge 2 undone: closed 0 % of the gap
        "#]],
    );
}

/// The second has to show for five minutes how it is without the first.
#[test]
fn the_end_of_one_lets_the_others_in_its_domain_start_anew() {
    for (end, expected) in [
        (
            "ended 9",
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
        450 s: judge 2 undone: not needed any more
        750 s: judge 1 undone: not needed any more
    "#]],
        ),
        (
            "ended 1",
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
        600 s: judge 2 undone: not needed any more
    "#]],
        ),
    ] {
        let script = format!(
            "
            20 rounds  web cpus=0.5 pressure=0.02  one cpus=0.1  two cpus=0.1
            until a proposal  web cpus=0.5 pressure=0.6  one cpus=1.8  two cpus=1.7
            until a verdict  web cpus=0.5 pressure=0.45  one cpus=1.8  two cpus=1.7
            until a verdict  web cpus=0.5 pressure=0.02  one cpus=1.8  two cpus=1.7
            30 rounds  web cpus=0.5 pressure=0.02  one cpus=0.1  two cpus=0.1
            {end}
            100 rounds  web cpus=0.5 pressure=0.02  one cpus=0.1  two cpus=0.1
            "
        );
        check(ONE_AND_TWO, &script, expected);
    }
}

/// What is usual for the server is not known then, so no container is to blame for what is not.
#[test]
fn of_a_container_touched_for_good_nothing_is_learned() {
    for (touched, expected) in [
        (
            "",
            expect![[r#"
                515 s: propose 1 (act) suppress on hog, step 2, for web: cycles-per-instruction 2.00 > 1.20, usually 1.00
                    cycles-per-instruction 2.00 > 1.20, usually 1.00
                    from hog by a shared L3: activity 2.00, correlation 1.0
            "#]],
        ),
        ("touched web", expect![[""]]),
    ] {
        let script = format!(
            "
            {touched}
            100 rounds  web cpus=1 cpi=1  hog cpus=0.1
            until a proposal  web cpus=1 cpi=2  hog cpus=2
            "
        );
        check(
            "
            machine pack:1 numa:1 l3:1 core:4 pu:1
            web guaranteed 0-1
            hog besteffort 2-3
            ",
            &script,
            expected,
        );
    }
}

/// What is usual of the server's cycles per instruction after 100 calm rounds with 1 and so many with this.
fn check_usual(rounds: u64, cpi: f64, hog: f64, expected: std::ops::Range<f64>) {
    let usual = usual_after(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-1 mode=observe
        hog besteffort 2-3 mode=observe
        ",
        &format!(
            "
            100 rounds  web cpus=1 cpi=1  hog cpus=0.1
            {rounds} rounds  web cpus=1 cpi={cpi}  hog cpus={hog}
            "
        ),
        "web",
        Signal::CyclesPerInstruction,
    );
    assert!(expected.contains(&usual), "{rounds} rounds with {cpi}: {usual}");
}

/// 10 minutes are 120 rounds.
#[test]
fn trouble_is_no_lesson_until_none_was_to_blame_for_long() {
    // Below the limit it is learned at once.
    check_usual(100, 1.1, 0.1, 1.02..1.11);
    // Above it is not, whether there is a culprit or not.
    check_usual(100, 2.0, 0.1, 0.99..1.01);
    check_usual(100, 2.0, 2.0, 0.99..1.01);
    // Trouble for which no container is to blame in all that time is how it is now.
    check_usual(2000, 2.0, 0.1, 1.2..2.01);
}

/// Of two changes that were judged together the stronger would have done alone; where it would not, the other is made again.
#[test]
fn what_another_change_has_left_nothing_to_do_is_taken_back() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web burstable 0-3
        shop burstable 0-3
        hog besteffort 0-3
        ",
        "
        100 rounds  web cpus=1 cpi=1  shop cpus=1 cpi=1  hog cpus=0.1
        until a proposal  web cpus=1 cpi=1 waiting=2 delay_ms=20  shop cpus=1 cpi=2 waiting=2 delay_ms=20  hog cpus=2
        6 rounds  web cpus=1 cpi=1 waiting=0 delay_ms=0  shop cpus=1 cpi=1 waiting=0 delay_ms=0  hog cpus=1
        until a proposal  web cpus=1 cpi=1 waiting=2 delay_ms=20  shop cpus=1 cpi=1 waiting=0 delay_ms=0  hog cpus=1
        20 rounds  web cpus=1 cpi=1 waiting=0 delay_ms=0  shop cpus=1 cpi=1 waiting=0 delay_ms=0  hog cpus=1
        ",
        expect![[r#"
            515 s: propose 1 (act) idle on hog, for web: delay 20 ms > 5.00 ms
                waiting 2.00 > 0.50
                delay 20 ms > 5.00 ms
                from hog by a shared CPU: activity 2.00, correlation 0.0
                from shop by a shared CPU: activity 1.00, correlation 0.0
            515 s: propose 2 (act) suppress on hog, step 3, for shop: delay 20 ms > 5.00 ms
                waiting 2.00 > 0.50
                delay 20 ms > 5.00 ms
                cycles-per-instruction 2.00 > 1.20, usually 1.00
                from hog by a shared CPU: activity 2.00, correlation 1.0
                from web by a shared CPU: activity 1.00, correlation 0.0
            530 s: judge 2 kept: closed 100 % of the gap
            530 s: judge 1 kept: closed 100 % of the gap
            535 s: judge 1 undone: another change helps without it
            560 s: propose 3 (act) idle on hog, for web: delay 20 ms > 5.00 ms
                waiting 2.00 > 0.50
                delay 20 ms > 5.00 ms
                from hog by a shared CPU: activity 1.00, correlation 0.6
                from shop by a shared CPU: activity 1.00, correlation 0.0
            575 s: judge 3 kept: closed 100 % of the gap
        "#]],
    );
}

/// Half an hour without trouble ends other changes. This one would bring the trouble back, with a move of all pages.
#[test]
fn memory_that_has_come_home_stays_until_it_may_not() {
    check(
        "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        db guaranteed 0-3 mems=0
        ",
        "
        50 rounds  db cpus=2 cpi=1 misses=10 far=0
        until a proposal  db cpus=2 cpi=2 misses=10 far=0.6
        until a verdict  db cpus=2 cpi=1 misses=10 far=0.1
        1000 rounds  db cpus=2 cpi=1 misses=10 far=0.1
        forbid memory
        1 rounds  db cpus=2 cpi=1 misses=10 far=0.1
        ",
        expect![[r#"
            265 s: propose 1 (act) memory on db: far-memory 60 % > 20 %, usually 2 %
                far-memory 60 % > 20 %, usually 2 %
                cycles-per-instruction 2.00 > 1.20, usually 1.00
                from no known container
            280 s: judge 1 kept: closed 100 % of the gap
            5285 s: judge 1 undone: not allowed any more
        "#]],
    );
}
