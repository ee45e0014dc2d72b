//! Containers with tasks that go from cache to cache.

use super::harness::{rows_after, usual_after};
use super::*;

const CALM: &str = "20 rounds  web cpus=1 hops=20 pressure=0.02  job cpus=1";

#[test]
fn a_container_that_hops_between_caches_is_tied_to_one_as_long_as_that_helps() {
    check(
        SPREAD,
        &format!(
            "
            {CALM}
            until a proposal  web cpus=1 hops=900 pressure=0.02  job cpus=1
            until a verdict  web cpus=1 hops=0 pressure=0.02  job cpus=1
            "
        ),
        expect![[r#"
            115 s: propose 1 (act) gather on web, which leaves CPUs 0-3: migrations 900/s > 400/s
                migrations 900/s > 400/s
                from no known container
            130 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
    check(
        SPREAD,
        &format!(
            "
            {CALM}
            until a proposal  web cpus=1 hops=900 pressure=0.02  job cpus=1
            until a verdict  web cpus=1 hops=880 pressure=0.02  job cpus=1
            "
        ),
        expect![[r#"
            115 s: propose 1 (act) gather on web, which leaves CPUs 0-3: migrations 900/s > 400/s
                migrations 900/s > 400/s
                from no known container
            125 s: judge 1 undone: closed 0 % of the gap
        "#]],
    );
}

/// Nothing is proposed for this, whatever the rate.
#[track_caller]
fn check_silence(scene: &str, hopping: &str) {
    let told = play(scene, &format!("{CALM}\n20 rounds  {hopping}"));
    assert_eq!(told, "");
}

#[test]
fn a_container_that_needs_all_of_its_caches_or_has_but_one_is_left_alone() {
    check_silence(SPREAD, "web cpus=3.5 hops=4000 pressure=0.02  job cpus=1");
    check_silence(&SPREAD.replace("l3:2 core:4", "l3:1 core:8"), "web cpus=1 hops=900  job cpus=1");
    // As often as ever, and not so often that it would cost much.
    check_silence(SPREAD, "web cpus=1 hops=60 pressure=0.02  job cpus=1");
}

/// A verdict of another kind: the tasks hop no more, and wait.
#[test]
fn waiting_for_the_one_cache_speaks_against_it() {
    let told = play(
        SPREAD,
        &format!(
            "
            {CALM}
            until a proposal  web cpus=1 hops=900 pressure=0.02  job cpus=1
            until a verdict  web cpus=1 hops=0 pressure=0.9  job cpus=4
            "
        ),
    );
    assert!(told.contains("judge 1 undone"), "{told}");
}

/// The job does next to nothing, so that the one cache has room.
const GATHERED: &str = "
    20 rounds  web cpus=1 hops=20 pressure=0.02  job cpus=1
    until a proposal  web cpus=1 hops=900 pressure=0.02  job cpus=1
    until a verdict  web cpus=1 hops=0 pressure=0.02  job cpus=1
";

/// An hour later nothing is left of the rounds before, and more is wanted than the cache has CPUs.
#[test]
fn a_gathered_container_goes_back_when_its_load_grows_and_it_waits() {
    for rounds in [5, 700] {
        let told = play(
            SPREAD,
            &format!(
                "
                {GATHERED}
                {rounds} rounds  web cpus=1 hops=0 pressure=0.02  job cpus=1
                until a verdict  web cpus=4 hops=0 waiting=2 pressure=0.9  job cpus=1
                "
            ),
        );
        assert!(told.contains("judge 1 kept"), "{told}");
        assert!(told.contains("judge 1 undone"), "{rounds}: {told}");
    }
}

/// It waited before, which was no reason to gather it, and waits three times as long at the verdict.
#[test]
fn waiting_that_was_found_and_grows_speaks_against_it() {
    let told = play(
        SPREAD,
        &format!(
            "
            {CALM}
            until a proposal  web cpus=1 hops=900 cpi=1 pressure=0.25  job cpus=0.1
            until a verdict  web cpus=1 hops=0 cpi=1 pressure=0.75  job cpus=0.1
            "
        ),
    );
    assert!(told.contains("gather on web"), "{told}");
    assert!(told.contains("judge 1 undone"), "{told}");
}

/// Alone among the signals of waiting it is no sign, so it was not found. It was taken back before, as soon as the rounds before the proposal were forgotten.
#[test]
fn a_delay_that_was_as_long_before_does_not_speak_against_it_later() {
    for (later, is_undone) in [(20, false), (25, false), (200, true)] {
        let told = play(
            SPREAD,
            &format!(
                "
                20 rounds  web cpus=1 hops=20 pressure=0.02 delay_ms=20  job cpus=1
                until a proposal  web cpus=1 hops=900 pressure=0.02 delay_ms=20  job cpus=1
                until a verdict  web cpus=1 hops=0 pressure=0.02 delay_ms=20  job cpus=1
                60 rounds  web cpus=1 hops=0 pressure=0.02 delay_ms={later}  job cpus=1
                "
            ),
        );
        assert!(told.contains("judge 1 kept"), "{told}");
        assert_eq!(told.contains("judge 1 undone"), is_undone, "{later} ms: {told}");
    }
}

/// Tasks of another container that hop from cache to cache say nothing of what stands for a container that waited.
#[test]
fn migrations_keep_no_other_remedy_from_being_released() {
    let told = play(
        "
        machine pack:1 numa:1 l3:1 core:4 pu:1
        web burstable 0-3
        hops burstable 0-3
        job besteffort 0-3
        ",
        "
        20 rounds  web cpus=1 pressure=0.02  hops cpus=1 hops=900 pressure=0.02  job cpus=1
        until a proposal  web cpus=1 pressure=0.6  hops cpus=1 hops=900 pressure=0.02  job cpus=3
        until a verdict  web cpus=1 pressure=0.02  hops cpus=1 hops=900 pressure=0.02  job cpus=1
        until a verdict  web cpus=1 pressure=0.02  hops cpus=1 hops=900 pressure=0.02  job cpus=0.1
        ",
    );
    assert!(told.contains("judge 1 kept"), "{told}");
    assert!(told.contains("judge 1 undone: not needed any more"), "{told}");
}

/// What is usual is still learnt of a container that hops, but of its hops.
#[test]
fn of_a_container_that_hops_all_else_is_learnt() {
    let scene = SPREAD.replace("l3:2 core:4", "l3:1 core:8");
    let script = "40 rounds  web cpus=1 hops=900 pressure=0.05  job cpus=1";
    let usual = usual_after(&scene, script, "web", Signal::CpuPressure);
    assert!((usual - 0.05).abs() < 0.01, "{usual}");
    let rows = rows_after(&scene, script);
    assert!(rows.iter().all(|it| it.workload.owner != "web" || it.signal != Signal::Migrations));
}
