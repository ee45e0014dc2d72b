//! Which container goes where it is least in the way, what comes of it for all, and what is asked for the sake of one that has gone.

use super::*;

/// A neighbour as important as those beside it, with more threads than a node has CPUs.
const CROWD: &str = "
    machine pack:2 numa:1 l3:1 core:4 pu:1
    front burstable 0-3 knobs=move
    search burstable 0-3 knobs=move
    mail burstable 4-7 knobs=move
    crunch burstable 0-3 knobs=move
";

/// Which container is asked to move for `front`, with this of the others.
fn check_mover(scene: &str, before: &str, others: &str, expected: Option<&str>) {
    let script = format!(
        "
        30 rounds  front cpus=1 pressure=0.02  search cpus=1 pressure=0.02  mail cpus=0.5 pressure=0.02  {before}
        until a proposal  front cpus=1 pressure=0.5  search cpus=1 pressure=0.4  {others}
        "
    );
    let told = play(scene, &script);
    let mover = told.split_once("move on ").and_then(|(_, rest)| rest.split([',', ':']).next());
    assert_eq!(mover, expected, "{told}");
}

#[test]
fn a_container_that_fills_any_node_goes_where_it_is_least_in_the_way() {
    let idle = "crunch cpus=0.1";
    let crunch = "mail cpus=0.5 pressure=0.02  crunch cpus=2 waiting=6";
    check_mover(CROWD, idle, crunch, Some("crunch"));
    // There it would be more in the way, and so would one that flees from it.
    let busy = "mail cpus=2.5 pressure=0.02  crunch cpus=2 waiting=6";
    check_mover(CROWD, idle, busy, None);
    // No more important container is to suffer instead.
    check_mover(&CROWD.replace("mail burstable", "mail guaranteed"), idle, crunch, Some("front"));
    // In most places there would be room for it.
    let less = "mail cpus=1 pressure=0.02  crunch cpus=2 waiting=0.4";
    check_mover(CROWD, idle, less, Some("front"));
    // One that suffers itself is better off nowhere.
    let known = "crunch cpus=1 waiting=0 pressure=0.02";
    let suffers = "mail cpus=0.5 pressure=0.02  crunch cpus=2 waiting=6 pressure=0.9";
    check_mover(CROWD, known, suffers, Some("front"));
}

#[test]
fn of_several_nodes_it_goes_to_the_one_where_others_need_least() {
    let told = play(
        "
        machine pack:3 numa:1 l3:1 core:4 pu:1
        front burstable 0-3 knobs=move
        mail burstable 4-7 knobs=move
        shop burstable 8-11 knobs=move
        tool besteffort 8-11 knobs=
        crunch burstable 0-3 knobs=move
        ",
        "
        20 rounds  front cpus=1 pressure=0.02  mail cpus=0.8 pressure=0.02  shop cpus=0.4 pressure=0.02  tool cpus=2  crunch cpus=0.1
        until a proposal  front cpus=1 pressure=0.5  mail cpus=0.8 pressure=0.02  shop cpus=0.4 pressure=0.02  tool cpus=2  crunch cpus=2 waiting=6
        ",
    );
    assert!(told.contains("move on crunch, which leaves CPUs 0-7, for front"), "{told}");
}

/// The neighbour has gone to `mail`, which has this pressure since then, with that of `search`.
fn check_crowd(mail: f64, search: f64, expected: Expect) {
    let script = format!(
        "
        20 rounds  front cpus=1 pressure=0.02  search cpus=1 pressure=0.02  mail cpus=0.5 pressure=0.02  crunch cpus=0.1
        until a proposal  front cpus=1 pressure=0.5  search cpus=1 pressure=0.5  mail cpus=0.5 pressure=0.02  crunch cpus=2 waiting=6
        in crunch 4-7
        until a verdict  front cpus=1 pressure=0.02  search cpus=1 pressure={search}  mail cpus=0.5 pressure={mail}  crunch cpus=3 waiting=5
        "
    );
    let told = play(CROWD, &script);
    let judged: String =
        told.lines().skip_while(|it| !it.contains("judge")).map(|it| format!("{it}\n")).collect();
    expected.assert_eq(&judged);
}

/// What two have gained is more than what one has lost; for one alone it was not.
#[test]
fn a_change_is_judged_over_all_containers() {
    check_crowd(
        0.6,
        0.02,
        expect![[r#"
            130 s: judge 1 kept: closed 100 % of the gap
            130 s: propose 2 (act) move on mail, which leaves CPUs 4-7: cpu-pressure 60 % > 20 %
                cpu-pressure 60 % > 20 %
                from crunch by a shared CPU: activity 3.00, correlation 0.8
        "#]],
    );
    check_crowd(
        0.6,
        0.5,
        expect![[r#"
            130 s: judge 1 undone: mail suffers instead
        "#]],
    );
}

/// A container that suffered from it was moved to where it went back to.
#[test]
fn no_container_flees_from_one_that_goes_back_in_that_round() {
    check_crowd(
        0.9,
        0.02,
        expect![[r#"
            130 s: judge 1 undone: mail suffers instead
        "#]],
    );
}

/// Has fled from `crunch`, and suffers from `build` where it is now.
fn check_guest(build: &str, expected: Expect) {
    check(
        &format!(
            "
            machine pack:3 numa:1 l3:1 core:4 pu:1
            front burstable 0-3 knobs=move
            build {build}
            crunch burstable 0-3 knobs=
            "
        ),
        "
        20 rounds  front cpus=1 pressure=0.02  build cpus=0.1  crunch cpus=0.1
        until a proposal  front cpus=1 pressure=0.6  build cpus=0.1  crunch cpus=2
        in front 4-7
        until a verdict  front cpus=1 pressure=0.02  build cpus=0.1  crunch cpus=2
        20 rounds  front cpus=1 pressure=0.5  build cpus=2  crunch cpus=2
        ",
        expected,
    );
}

#[test]
fn for_a_guest_no_container_leaves_its_place() {
    check_guest(
        "burstable 4-7 knobs=move",
        expect![[r#"
            115 s: propose 1 (act) move on front, which leaves CPUs 0-3: cpu-pressure 60 % > 20 %
                cpu-pressure 60 % > 20 %
                from crunch by a shared CPU: activity 2.00, correlation 1.0
            130 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

#[test]
fn a_container_that_asked_for_nothing_makes_way_for_a_guest_too() {
    check_guest(
        "besteffort 4-7 knobs=idle",
        expect![[r#"
            115 s: propose 1 (act) move on front, which leaves CPUs 0-3: cpu-pressure 60 % > 20 %
                cpu-pressure 60 % > 20 %
                from crunch by a shared CPU: activity 2.00, correlation 1.0
            130 s: judge 1 kept: closed 100 % of the gap
            145 s: propose 2 (act) idle on build, for front: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from build by a shared CPU: activity 2.00, correlation 0.0
            155 s: judge 2 undone: closed 0 % of the gap
            155 s: propose 3 (act) move on front, which leaves CPUs 4-7: cpu-pressure 50 % > 20 %
                cpu-pressure 50 % > 20 %
                from build by a shared CPU: activity 2.00, correlation 0.0
            165 s: judge 3 undone: closed 0 % of the gap
        "#]],
    );
}

/// Distance from its memory would do the same.
#[test]
fn for_a_guest_that_is_only_slow_nothing_is_done() {
    check(
        "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        front burstable 0-3 knobs=move
        build besteffort 4-7 knobs=suppress
        crunch burstable 0-3 knobs=
        ",
        "
        50 rounds  front cpus=1 cpi=~1 pressure=0.02  build cpus=0.1  crunch cpus=0.1
        until a proposal  front cpus=1 cpi=~1 pressure=0.6  build cpus=0.1  crunch cpus=2
        in front 4-7
        20 rounds  front cpus=1 cpi=~1 pressure=0.02  build cpus=0.1  crunch cpus=2
        8 rounds  front cpus=1 cpi=~1.6 pressure=0.02  build cpus=2  crunch cpus=2
        ",
        expect![[r#"
            265 s: propose 1 (act) move on front, which leaves CPUs 0-3: cpu-pressure 60 % > 10 %, usually 2 %
                cpu-pressure 60 % > 10 %, usually 2 %
                from crunch by a shared CPU: activity 2.00, correlation 1.0
            280 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

/// The limit stopped its container for part of the time in which tasks waited, so that this looked like less.
#[test]
fn what_was_too_high_before_is_no_trouble_that_came_with_a_change() {
    check(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web burstable 0-3 knobs=burst
        ",
        "
        30 rounds  web cpus=1 throttled=0 pressure=0.02 preempted=0
        until a proposal  web cpus=1 throttled=0.19 pressure=0.9 preempted=0
        until a verdict  web cpus=1 throttled=0.01 pressure=0.95 preempted=0
        ",
        expect![[r#"
            165 s: propose 1 (act) burst on web: throttled 19 % > 0 %, usually 0 %
                throttled 19 % > 0 %, usually 0 %
                from no known container
            180 s: judge 1 kept: closed 97 % of the gap
            180 s: propose 2 (act) burst on web, step 2: throttled 1 % > 0 %, usually 0 %
                throttled 1 % > 0 %, usually 0 %
                from no known container
        "#]],
    );
}
