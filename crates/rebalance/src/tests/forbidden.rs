//! What settings, modes and knobs forbid, and what is proposed in its place.

use super::*;

#[test]
fn observing_says_it_once_and_changes_nothing() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 mode=observe
        hog besteffort 0-3
        ",
        "
        50 rounds  web cpus=2 pressure=0.5  hog cpus=2
        ",
        expect![[r#"
            30 s: propose 1 (observe) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
        "#]],
    );
}

#[test]
fn a_container_that_is_off_is_neither_victim_nor_culprit() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web guaranteed 0-3 mode=off
        api guaranteed 0-3
        hog besteffort 0-3 mode=off
        ",
        "20 rounds  web cpus=1 pressure=0.5  api cpus=1 pressure=0.5  hog cpus=2",
        expect![[r#""#]],
    );
}

#[test]
fn a_refusal_is_remembered_and_the_next_is_tried() {
    check(
        WEB_AND_HOG,
        "
        refuse
        20 rounds  web cpus=2 pressure=0.5  hog cpus=2
        ",
        expect![[r#"
            30 s: propose 1 (act) idle on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            35 s: propose 2 (act) suppress on hog, step 3, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
            40 s: propose 3 (observe) evict on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
        "#]],
    );
}

/// An idle culprit stays in the victim's cores, which nothing would show.
#[test]
fn without_counters_a_culprit_is_suppressed_and_not_made_idle_if_it_can_be() {
    check_first("web cpus=2 pressure=0.5", "besteffort 0-3", "idle");
    check_first("web cpus=2 pressure=0.5 cpi=none", "besteffort 0-3", "suppress");
    check_first("web cpus=2 pressure=0.5 cpi=none", "besteffort 0-3 knobs=idle", "idle");
}

/// What is done first for a victim of which this is measured, against such a hog.
#[track_caller]
fn check_first(web: &str, hog: &str, expected: &str) {
    let scene = format!("machine pack:1 numa:1 l3:1 core:4 pu:1\nweb guaranteed 0-3\nhog {hog}\n");
    let said = play(&scene, &format!("until a proposal  {web}  hog cpus=2"));
    assert!(said.contains(&format!("(act) {expected} on hog")), "{said}");
}

#[test]
fn what_is_forbidden_is_left_out() {
    let settings = Settings { forbidden: parse_knobs("idle,suppress"), ..Settings::default() };
    check_with(
        settings,
        WEB_AND_HOG,
        "until a proposal  web cpus=2 pressure=0.5  hog cpus=2",
        expect![[r#"
            30 s: propose 1 (observe) evict on hog, for web: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 0.0
        "#]],
    );
}

/// What is proposed for an exclusive container because of another, which can only get other CPUs of its own.
fn check_owner(batch: &str, expected: Expect) {
    check(
        &format!(
            "
            machine pack:2 numa:1 l3:2 core:4 pu:1
            db guaranteed 0-1 exclusive knobs=
            batch guaranteed {batch} exclusive knobs=move-owner
            "
        ),
        "
        50 rounds  db cpus=2 cpi=~1  batch cpus=0.2 bandwidth=1e9
        until a proposal  db cpus=2 cpi=~4  batch cpus=2 bandwidth=20e9
        ",
        expected,
    );
}

/// It would get others of the same NUMA node, which are as near to the memory that both wait for.
#[test]
fn an_owner_is_not_asked_to_leave_a_numa_node() {
    check_owner(
        "2-3",
        expect![[r#"
            265 s: propose 1 (act) move-owner on batch, which leaves CPUs 0-3, for db: cycles-per-instruction 4.08 > 1.23, usually 1.02
                cycles-per-instruction 4.08 > 1.23, usually 1.02
                from batch by a shared L3: activity 20.0 G, correlation 1.0
        "#]],
    );
    check_owner("4-5", expect![[""]]);
}
