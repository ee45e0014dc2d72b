//! Containers with wide vectors in a clock domain where their strategy does not want them.

use super::*;

/// Two packages; both containers in the first.
const TWO: &str = "
    machine pack:2 numa:1 l3:1 core:4 pu:1
    dsp burstable 0-3
    mat besteffort 0-3
";

#[test]
fn one_goes_to_the_better_clock_domain_and_back_when_its_own_is_as_good() {
    check(
        TWO,
        "
        clock mat 0-3
        10 rounds  dsp cpus=1  mat cpus=1 clock=0
        until a proposal  dsp cpus=1  mat cpus=1 clock=1
        in mat 4-7
        until a verdict  dsp cpus=1  mat cpus=1 clock=0
        100 rounds  dsp cpus=1  mat cpus=1 clock=0
        home mat
        until a verdict  dsp cpus=1  mat cpus=1 clock=0
        ",
        expect![[r#"
            60 s: propose 1 (act) clock on mat, which leaves CPUs 0-3: clock 1.0 containers > 0.5 containers
                clock 1.0 containers > 0.5 containers
                from no known container
            75 s: judge 1 kept: closed 100 % of the gap
            880 s: judge 1 undone: not needed any more
        "#]],
    );
}

#[test]
fn what_is_no_better_there_is_undone() {
    check(
        TWO,
        "
        clock mat 0-3
        until a proposal  dsp cpus=1  mat cpus=1 clock=2
        in mat 4-7
        until a verdict  dsp cpus=1  mat cpus=1 clock=2
        ",
        expect![[r#"
            30 s: propose 1 (act) clock on mat, which leaves CPUs 0-3: clock 2.0 containers > 0.5 containers
                clock 2.0 containers > 0.5 containers
                from no known container
            40 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
}

/// It is only said where that is the mode, and once.
#[test]
fn in_mode_observe_it_is_said() {
    check(
        &TWO.replace("mat besteffort 0-3", "mat besteffort 0-3 mode=observe"),
        "
        clock mat 0-3
        40 rounds  dsp cpus=1  mat cpus=1 clock=1
        ",
        expect![[r#"
            30 s: propose 1 (observe) clock on mat, which leaves CPUs 0-3: clock 1.0 containers > 0.5 containers
                clock 1.0 containers > 0.5 containers
                from no known container
        "#]],
    );
}

#[test]
fn nothing_is_said_where_nothing_is_better_forbidden_or_not_allowed() {
    let bad = "40 rounds  dsp cpus=1  mat cpus=1 clock=1";
    for script in [
        bad.to_owned(),
        "clock mat 0-3\n40 rounds  dsp cpus=1  mat cpus=1 clock=0".to_owned(),
        "clock mat 0-3\n40 rounds  dsp cpus=1  mat cpus=1".to_owned(),
        "clock mat 0-3\n40 rounds  dsp cpus=1  mat cpus=0.1 clock=1".to_owned(),
        format!("clock mat 0-3\nforbid clock\n{bad}"),
        format!("clock mat 0-3\noff mat\n{bad}"),
        format!("clock mat 0-3\nunrest begins\n{bad}"),
    ] {
        assert_eq!(play(TWO, &script), "", "{script}");
    }
}
