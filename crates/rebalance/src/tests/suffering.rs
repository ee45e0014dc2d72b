//! Which containers suffer from others and which from themselves, since when, and which go back.

use super::*;

/// Two servers, a neighbour as important that cannot be moved, and another node.
const TWO_NODES: &str = "
    machine pack:2 numa:1 l3:1 core:4 pu:1
    web burstable 0-3 knobs=move
    shop burstable 0-3 knobs=move
    hog burstable 0-3 knobs=
";

/// The place had room when it was chosen, and has none any more.
#[test]
fn a_container_that_is_no_better_off_elsewhere_any_more_goes_back() {
    check(
        TWO_NODES,
        "
        20 rounds  web cpus=1 pressure=0.02  shop cpus=0.1  hog cpus=0.1
        until a proposal  web cpus=1 pressure=0.5  shop cpus=0.1  hog cpus=2
        moved web
        20 rounds  web cpus=1 pressure=0.02  shop cpus=0.1  hog cpus=2
        20 rounds  web cpus=1 pressure=0.6  shop cpus=0.1  hog cpus=2
        ",
        expect![[r#"
            115 s: propose 1 (act) move on web, which leaves CPUs 0-3: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from hog by a shared CPU: activity 2.00, correlation 1.0
            130 s: judge 1 kept: closed 100 % of the gap
            230 s: judge 1 undone: closed -33 % of the gap; cpu-pressure went from 50 % to 60 %
        "#]],
    );
}

/// It suffered already, and was not sure to, because one of its samples was lost.
#[test]
fn what_was_suffered_before_a_change_is_not_that_changes_fault() {
    for lost in ["  db cpus=1 pressure=0.02", ""] {
        let script = format!(
            "
            20 rounds  web cpus=1 pressure=0.02  db cpus=1 pressure=0.02  hog cpus=0
            1 rounds  web cpus=1 pressure=0.5  db cpus=1 pressure=0.9  hog cpus=2
            1 rounds  web cpus=1 pressure=0.5{lost}  hog cpus=2
            until a proposal  web cpus=1 pressure=0.5  db cpus=1 pressure=0.9  hog cpus=2
            until a verdict  web cpus=1 pressure=0.03  db cpus=1 pressure=0.95  hog cpus=1
            "
        );
        let told =
            play(&WEB_AND_HOG.replace("hog best", "db guaranteed 0-3\n    hog best"), &script);
        assert!(told.contains("judge 1 kept"), "{told}");
    }
}

/// What is usual for a new container is not known. What it wants and has waiting would fill its CPUs alone.
#[test]
fn a_new_container_that_wants_more_than_its_cpus_have_waits_for_itself() {
    for (waiting, expected) in [
        ("6", expect![[""]]),
        (
            "0.95",
            expect![[r#"
        115 s: propose 1 (act) move on web, which leaves CPUs 0-3, for shop: cpu-pressure 60 % > 20 %
            waiting 0.56 > 0.50
            cpu-pressure 60 % > 20 %
            from web by a shared CPU: activity 2.00, correlation 0.0
        125 s: judge 1 undone: closed 0 % of the gap
    "#]],
        ),
    ] {
        let script = format!(
            "
            20 rounds  web cpus=2 pressure=0.02  shop cpus=0.1  hog cpus=0
            20 rounds  web cpus=2 pressure=0.02  shop cpus=1.7 waiting={waiting} pressure=0.6  hog cpus=0
            "
        );
        check(TWO_NODES, &script, expected);
    }
}
