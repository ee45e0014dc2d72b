//! CPUs that Koordinator's scheduler has chosen for a pod.

use bayplan_enforcement::render_plan;
use expect_test::{Expect, expect};

mod kept;

use super::*;

/// Plays, and shows after each step which containers run where and what is told:
///
/// - `POD/NAME MILLI` creates a Guaranteed container, `POD/NAME ~MILLI` a Burstable one; with `@CPUS` these were chosen for its pod;
/// - `found POD/NAME MILLI [@CPUS] on CPUS`: it was created past Bayplan, and runs there;
/// - `-POD/NAME`: it ends; `POD/NAME=MILLI`: it is resized;
/// - `off LIST`: these CPUs are offline, and no others; `reserve LIST`: other CPUs are configured as reserved;
/// - `forbid`: no rule allows chosen CPUs any more; `allow`: one does so again;
/// - `drain`, `restore`, `resume`, `sync` and `restart` are what they say; `lose`: it is killed, and its journal is gone.
#[track_caller]
fn check(line: &str, reserved: &str, steps: &[&str], expected: Expect) {
    let mut world = World::new(Machine::new(line, reserved));
    let mut text = String::new();
    for step in steps {
        let told = world.notes.len();
        play(&mut world, step);
        text.push_str(&format!("{step}: {}\n", runs(&world)));
        for note in &world.notes[told..] {
            match note {
                Note::Failure { kind, message } => text.push_str(&format!("  {kind}: {message}\n")),
                Note::Refused { why, .. } => text.push_str(&format!("  {why}\n")),
                _ => {}
            }
        }
        world.check().unwrap();
    }
    expected.assert_eq(&text);
    world.end().unwrap();
}

fn play(world: &mut World, step: &str) {
    let words: Vec<&str> = step.split_whitespace().collect();
    match words[..] {
        ["drain"] => world.play(Op::SetMode(Mode::Draining)).unwrap(),
        ["restore"] => world.play(Op::SetMode(Mode::Restored)).unwrap(),
        ["resume"] => world.play(Op::SetMode(Mode::Placing)).unwrap(),
        ["forbid" | "allow"] => {
            let permits = step == "allow";
            world.configure_as(Machine { permits, ..world.machine.clone() }).unwrap();
        }
        ["sync"] => world.sync().unwrap(),
        ["restart"] => {
            world.restart().unwrap();
            world.sync().unwrap();
        }
        ["lose"] => {
            world.state = fresh(&world.machine);
            world.journal.clear();
            world.sync().unwrap();
        }
        ["off", ..] => {
            let offline = words.get(1).map_or_else(CpuSet::new, |list| list.parse().unwrap());
            world.change(Machine { offline, ..world.machine.clone() }).unwrap();
        }
        ["reserve", list] => {
            let reserved: CpuSet = list.parse().unwrap();
            let bits = reserved.iter().map(|cpu| 1 << cpu.0).sum();
            world.configure(bits, true, false).unwrap();
        }
        ["found", ref asked @ .., "on", cpus] => {
            let pinning = Pinning { cpus: cpus.parse().unwrap(), ..Pinning::default() };
            let id = world.make_real(asks(asked), pinning).unwrap();
            world.real.get_mut(&id).unwrap().is_running = true;
        }
        [resized] if resized.contains('=') => {
            let (name, milli) = resized.split_once('=').unwrap();
            let at = world.real.keys().position(|id| *id == id_of(world, name)).unwrap();
            world.resize(at, milli.parse().unwrap());
            world.resize_ends(0, ResizeOutcome::Done);
        }
        [ended] => {
            let id = id_of(world, ended.strip_prefix('-').unwrap());
            world.real.remove(&id);
            world.step(Event::Ended(id));
        }
        _ => {
            world.admit(asks(&words));
            let Some(Pending { ticket, spec, told, .. }) = world.pending.pop() else { return };
            let id = world.make_real(spec, told).unwrap();
            world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
        }
    }
}

fn id_of(world: &World, full: &str) -> String {
    let is = |real: &Real| format!("{}/{}", real.spec.pod.name, real.spec.name) == full;
    world.real.iter().find(|(_, real)| is(real)).unwrap().0.clone()
}

fn runs(world: &World) -> String {
    let shown = |real: &Real| {
        let Pinning { cpus, mems } = &real.pinning;
        let mems = if mems.is_empty() { String::new() } else { format!(" mem {mems}") };
        format!("{}/{} {cpus}{mems}", real.spec.pod.name, real.spec.name)
    };
    let mut shown: Vec<String> = world.real.values().map(shown).collect();
    shown.sort();
    shown.join(", ")
}

/// `POD/NAME MILLI [@CPUS] [ANNOTATION=VALUE]`.
fn asks(words: &[&str]) -> NewContainer {
    let (pod, name) = words[0].split_once('/').unwrap();
    let (kind, milli) = match words[1].strip_prefix('~') {
        Some(milli) => (3, milli),
        None => (0, words[1]),
    };
    let mut spec = spec(kind, 0, 0, milli.parse().unwrap(), 1);
    spec.name = name.to_owned();
    (spec.pod.id, spec.pod.name) = (format!("sandbox-{pod}"), pod.to_owned());
    for word in &words[2..] {
        let pair = match (word.strip_prefix('@'), word.split_once('=')) {
            (Some(cpus), _) => chosen(cpus),
            (None, Some((name, value))) => (name.to_owned(), value.to_owned()),
            (None, None) => panic!("{word}"),
        };
        match pair.0.starts_with("koordinator.sh/") {
            true => spec.pod.labels.extend([pair]),
            false => spec.pod.annotations.extend([pair]),
        }
    }
    spec
}

const TWO_NODES: &str = "pack:2 numa:1 core:4 mem:8";

#[test]
fn cpus_that_a_scheduler_has_chosen_are_its_pods_and_no_others() {
    check(
        TWO_NODES,
        "",
        &[
            "owner/a 1000",
            "web/b ~3000",
            "k/first 1500 @3,6",
            "k/second 500 @3,6",
            "later/c 3000",
            "k/first=1000",
            "-k/first",
            "-k/second",
            "restart",
        ],
        expect![[r#"
            owner/a 1000: owner/a 1 mem 0
            web/b ~3000: owner/a 1 mem 0, web/b 4-7 mem 1
            k/first 1500 @3,6: k/first 3,6 mem 0-1, owner/a 1 mem 0, web/b 4-5,7 mem 1
            k/second 500 @3,6: k/first 3,6 mem 0-1, k/second 3,6 mem 0-1, owner/a 1 mem 0, web/b 4-5,7 mem 1
            later/c 3000: k/first 3,6 mem 0-1, k/second 3,6 mem 0-1, owner/a 1 mem 0, web/b 4-5,7 mem 1
              bayplan: default/later/c refused: needs 3 exclusive CPUs; 2 are free; `bayplan explain default/later/c` lists every pool
            k/first=1000: k/first 3,6 mem 0-1, k/second 3,6 mem 0-1, owner/a 1 mem 0, web/b 4-5,7 mem 1
            -k/first: k/second 3,6 mem 0-1, owner/a 1 mem 0, web/b 4-5,7 mem 1
            -k/second: owner/a 1 mem 0, web/b 4-7 mem 1
            restart: owner/a 1 mem 0, web/b 4-7 mem 1
        "#]],
    );
}

#[test]
fn cpus_that_cannot_be_had_are_refused_with_what_is_in_the_way() {
    check(
        TWO_NODES,
        "0",
        &[
            "owner/a 2000",
            "k/a 2000 @2-3",
            "absent/a 2000 @7-8",
            "reserved/a 1000 @0",
            "l/a 2000 @5-6",
            "m/a 2000 @6-7",
            "long/a 2000 @9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55",
        ],
        expect![[r#"
            owner/a 2000: owner/a 1-2 mem 0
            k/a 2000 @2-3: owner/a 1-2 mem 0
              bayplan: default/k/a refused: CPUs 2-3 were chosen for its pod, but CPUs 2 are owned by a container of another pod; `bayplan explain default/k/a` lists every pool
            absent/a 2000 @7-8: owner/a 1-2 mem 0
              bayplan: default/absent/a refused: CPUs 7-8 were chosen for its pod, but CPUs 8 are not online; `bayplan explain default/absent/a` lists every pool
            reserved/a 1000 @0: owner/a 1-2 mem 0
              bayplan: default/reserved/a refused: CPUs 0 were chosen for its pod, but CPUs 0 are reserved; `bayplan explain default/reserved/a` lists every pool
            l/a 2000 @5-6: l/a 5-6 mem 1, owner/a 1-2 mem 0
            m/a 2000 @6-7: l/a 5-6 mem 1, owner/a 1-2 mem 0
              bayplan: default/m/a refused: CPUs 6-7 were chosen for its pod, but CPUs 6 were chosen for the pod of a container of another pod, too; `bayplan explain default/m/a` lists every pool
            long/a 2000 @9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55: l/a 5-6 mem 1, owner/a 1-2 mem 0
              bayplan: default/long/a refused: CPUs 9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,4... were chosen for its pod, but CPUs 9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,4... are not online; `bayplan explain default/long/a` lists every pool
        "#]],
    );
}

/// With no container to take CPUs from, all others would have none.
#[test]
fn the_last_shared_cpus_cannot_be_chosen_unless_some_are_reserved() {
    for (reserved, expected) in [
        (
            "",
            expect![[r#"
        o/a 1000: o/a 1 mem 0
        k/a 3000 @0,2-3: o/a 1 mem 0
          bayplan: default/k/a refused: CPUs 0,2-3 were chosen for its pod, but no CPU would be left for all others; `bayplan explain default/k/a` lists every pool
        k/a 2000 @2-3: k/a 2-3 mem 0, o/a 1 mem 0
    "#]],
        ),
        (
            "0",
            expect![[r#"
        o/a 1000: o/a 1 mem 0
        k/a 3000 @0,2-3: o/a 1 mem 0
          bayplan: default/k/a refused: CPUs 0,2-3 were chosen for its pod, but CPUs 0 are reserved; `bayplan explain default/k/a` lists every pool
        k/a 2000 @2-3: k/a 2-3 mem 0, o/a 1 mem 0
    "#]],
        ),
    ] {
        check(
            "numa:1 core:4 mem:8",
            reserved,
            &["o/a 1000", "k/a 3000 @0,2-3", "k/a 2000 @2-3"],
            expected,
        );
    }
}

#[test]
fn sharers_go_where_they_have_room_and_before_the_newcomer_is_there() {
    let mut state = state(TWO_NODES);
    let id = make(&mut state, 0, asks(&["web/b", "~3000"]));
    let first = state.pinning(ContainerId(0)).unwrap();
    let cpus = first.cpus.iter().take(2).collect::<CpuSet>();
    let newcomer = asks(&["k/a", "2000", &format!("@{cpus}")]);
    let step = state.step(Event::Admit(Ticket(1), Box::new(newcomer)), Timestamp::UNIX_EPOCH);
    assert!(step.answers_after_plan);
    let Answer::Admission(Admission::Place(told)) = step.answer else { panic!("{step:?}") };
    assert_eq!(told.cpus, cpus);
    assert!(step.plan.writes.iter().any(|it| it.container == id));
    expect![[r#"
        move   id0 cpus 0-3 -> 4-7 mems 0 -> 0-1
    "#]]
    .assert_eq(&render_plan(&step.plan));
}

/// The mate was adopted first, elsewhere, and the one on the chosen CPUs was left alone there.
#[test]
fn after_the_loss_of_the_journal_all_of_a_pod_run_there_in_whatever_order_they_are_found() {
    for first in ["found k/a 1000 @4-5 on 0-7", "found k/a 1000 @4-5 on 4-5"] {
        let second = match first.ends_with("0-7") {
            true => "found k/b 1000 @4-5 on 4-5",
            false => "found k/b 1000 @4-5 on 0-7",
        };
        for steps in [[first, second], [second, first]] {
            let mut world = World::new(Machine::new(TWO_NODES, ""));
            for step in steps {
                play(&mut world, step);
            }
            play(&mut world, "found o/a 2000 on 5-6");
            play(&mut world, "found s/a ~500 on 0-7");
            play(&mut world, "lose");
            world.check().unwrap();
            assert_eq!(
                runs(&world),
                "k/a 4-5 mem 1, k/b 4-5 mem 1, o/a 6-7 mem 1, s/a 0-3,6-7 mem 0-1"
            );
            world.end().unwrap();
        }
    }
}

#[test]
fn the_journal_and_its_loss_lead_to_the_same_places() {
    check(
        TWO_NODES,
        "0",
        &["o/a 1000", "k/a 1000 @4-5", "k/b 500 @4-5", "s/a ~500", "restart", "lose"],
        expect![[r#"
            o/a 1000: o/a 1 mem 0
            k/a 1000 @4-5: k/a 4-5 mem 1, o/a 1 mem 0
            k/b 500 @4-5: k/a 4-5 mem 1, k/b 4-5 mem 1, o/a 1 mem 0
            s/a ~500: k/a 4-5 mem 1, k/b 4-5 mem 1, o/a 1 mem 0, s/a 2-3 mem 0
            restart: k/a 4-5 mem 1, k/b 4-5 mem 1, o/a 1 mem 0, s/a 2-3 mem 0
            lose: k/a 4-5 mem 1, k/b 4-5 mem 1, o/a 1 mem 0, s/a 2-3 mem 0
        "#]],
    );
}

#[test]
fn a_running_container_is_not_refused_and_an_owner_gets_other_cpus() {
    check(
        TWO_NODES,
        "0",
        &[
            "o/a 2000",
            "found k/a 2000 @0-2,6 on 0-2,6",
            "found l/a 2000 @6-8 on 6-7",
            "sync",
            "restart",
            "-k/a",
        ],
        expect![[r#"
            o/a 2000: o/a 1-2 mem 0
            found k/a 2000 @0-2,6 on 0-2,6: k/a 0-2,6, o/a 1-2 mem 0
            found l/a 2000 @6-8 on 6-7: k/a 0-2,6, l/a 6-7, o/a 1-2 mem 0
            sync: k/a 0-2,6 mem 0-1, l/a 6-7 mem 1, o/a 4-5 mem 1
              not_alone: default/k/a: of CPUs 0-2,6, which were chosen for its pod, 0,6 are offline, reserved or another container's; it runs on 0-2,6
              not_alone: default/l/a: of CPUs 6-8, which were chosen for its pod, 6,8 are offline, reserved or another container's; it runs on 6-7
            restart: k/a 0-2,6 mem 0-1, l/a 6-7 mem 1, o/a 4-5 mem 1
            -k/a: l/a 6-7 mem 1, o/a 4-5 mem 1
        "#]],
    );
}

#[test]
fn where_all_cpus_are_claimed_of_a_machine_that_runs_already_one_is_shared_and_that_is_told() {
    check(
        "numa:1 core:4 mem:8",
        "",
        &["o/a 1000", "s/a ~500", "found k/a 4000 @0-3 on 0-3", "sync", "restart", "lose", "-k/a"],
        expect![[r#"
            o/a 1000: o/a 1 mem 0
            s/a ~500: o/a 1 mem 0, s/a 0,2-3 mem 0
            found k/a 4000 @0-3 on 0-3: k/a 0-3, o/a 1 mem 0, s/a 0,2-3 mem 0
            sync: k/a 0-3 mem 0, o/a 3 mem 0, s/a 3 mem 0
              displaced: default/o/a: lost CPUs 1; refused: needs 1 exclusive CPU; 0 could be given if all were free; it shares from now on
              not_alone: default/k/a: of CPUs 0-3, which were chosen for its pod, 3 are offline, reserved or another container's; it runs on 0-3
            restart: k/a 0-3 mem 0, o/a 3 mem 0, s/a 3 mem 0
            lose: k/a 0-3 mem 0, o/a 3 mem 0, s/a 3 mem 0
              not_alone: default/k/a: of CPUs 0-3, which were chosen for its pod, 3 are offline, reserved or another container's; it runs on 0-3
            -k/a: o/a 0-3 mem 0, s/a 0-3 mem 0
        "#]],
    );
}

/// CPUs of a pod that ran went to others after that.
#[test]
fn draining_and_resuming_change_nothing_and_restoring_leaves_all_containers_on_all_cpus() {
    check(
        TWO_NODES,
        "0",
        &[
            "k/a 1000 @4-5",
            "drain",
            "k/b 500 @4-5",
            "l/a 1000 @2",
            "-k/a",
            "resume",
            "o/a 3000",
            "restore",
            "m/a 1000 @7",
            "resume",
            "sync",
        ],
        expect![[r#"
            k/a 1000 @4-5: k/a 4-5 mem 1
            drain: k/a 4-5 mem 1
            k/b 500 @4-5: k/a 4-5 mem 1, k/b 4-5 mem 1
            l/a 1000 @2: k/a 4-5 mem 1, k/b 4-5 mem 1, l/a 2 mem 0
            -k/a: k/b 4-5 mem 1, l/a 2 mem 0
            resume: k/b 4-5 mem 1, l/a 2 mem 0
            o/a 3000: k/b 4-5 mem 1, l/a 2 mem 0, o/a 1,3,6 mem 0-1
            restore: k/b 0-7 mem 0-1, l/a 0-7 mem 0-1, o/a 0-7 mem 0-1
            m/a 1000 @7: k/b 0-7 mem 0-1, l/a 0-7 mem 0-1, m/a , o/a 0-7 mem 0-1
            resume: k/b 4-5 mem 1, l/a 2 mem 0, m/a , o/a 1,3,6 mem 0-1
            sync: k/b 4-5 mem 1, l/a 2 mem 0, m/a 7 mem 1, o/a 1,3,6 mem 0-1
        "#]],
    );
}

#[test]
fn on_offline_cpus_a_pod_stays_on_what_is_left_and_shares_where_nothing_is() {
    check(
        TWO_NODES,
        "",
        &["k/a 1000 @2-3", "o/a 3000", "s/a ~500", "off 3", "off 2-3", "restart", "off"],
        expect![[r#"
            k/a 1000 @2-3: k/a 2-3 mem 0
            o/a 3000: k/a 2-3 mem 0, o/a 4-6 mem 1
            s/a ~500: k/a 2-3 mem 0, o/a 4-6 mem 1, s/a 0-1 mem 0
            off 3: k/a 2 mem 0, o/a 4-6 mem 1, s/a 0-1 mem 0
              not_alone: default/k/a: of CPUs 2-3, which were chosen for its pod, 3 are offline, reserved or another container's; it runs on 2
            off 2-3: k/a 0-1,7 mem 0, o/a 4-6 mem 1, s/a 0-1 mem 0
              not_alone: default/k/a: of CPUs 2-3, which were chosen for its pod, 2 are offline, reserved or another container's; it runs on 0-1,7
            restart: k/a 0-1,7 mem 0, o/a 4-6 mem 1, s/a 0-1 mem 0
            off: k/a 2-3 mem 0, o/a 4-6 mem 1, s/a 0-1 mem 0
        "#]],
    );
}

#[test]
fn cpus_that_become_reserved_are_told_of() {
    check(
        TWO_NODES,
        "0",
        &["k/a 1000 @2-3", "reserve 2", "reserve 0"],
        expect![[r#"
        k/a 1000 @2-3: k/a 2-3 mem 0
        reserve 2: k/a 2-3 mem 0
          not_alone: default/k/a: of CPUs 2-3, which were chosen for its pod, 2 are offline, reserved or another container's; it runs on 2-3
        reserve 0: k/a 2-3 mem 0
    "#]],
    );
}

#[test]
fn what_a_pod_preserves_is_left_alone_and_its_cpus_are_its_own_all_the_same() {
    check(
        TWO_NODES,
        "",
        &[
            "k/a 1000 @2-3 bayplan.dev/memory.preserve=true",
            "l/a 1000 @5 bayplan.dev/cpu.preserve=true",
            "s/a ~500",
            "o/a 3000",
        ],
        expect![[r#"
            k/a 1000 @2-3 bayplan.dev/memory.preserve=true: k/a 2-3
            l/a 1000 @5 bayplan.dev/cpu.preserve=true: k/a 2-3, l/a  mem 1
            s/a ~500: k/a 2-3, l/a  mem 1, s/a 4,6-7 mem 1
            o/a 3000: k/a 2-3, l/a  mem 1, o/a 4,6-7 mem 1, s/a 0-1 mem 0-1
        "#]],
    );
}

/// What the first of its pod had, the second was charged once more, and the next pod was refused although there was room.
#[test]
fn cpus_are_not_charged_to_any_container() {
    check(
        "numa:1 core:6 mem:8",
        "",
        &["k/a 2000 @2-3", "k/b 2000 @2-3", "o/a 3000", "p/a 1000"],
        expect![[r#"
            k/a 2000 @2-3: k/a 2-3 mem 0
            k/b 2000 @2-3: k/a 2-3 mem 0, k/b 2-3 mem 0
            o/a 3000: k/a 2-3 mem 0, k/b 2-3 mem 0, o/a 1,4-5 mem 0
            p/a 1000: k/a 2-3 mem 0, k/b 2-3 mem 0, o/a 1,4-5 mem 0
              bayplan: default/p/a refused: needs 1 exclusive CPU; 0 are free; `bayplan explain default/p/a` lists every pool
        "#]],
    );
}

#[test]
fn only_pods_that_pay_for_it_claim_and_only_they_are_refused_for_what_cannot_be_read() {
    let status = "scheduling.koordinator.sh/resource-status";
    let bad = format!(r#"{status}={{"cpuset":"2-"}}"#);
    let long = format!(r#"{status}={{"cpuset":"{}x"}}"#, "1,".repeat(200));
    check(
        TWO_NODES,
        "",
        &[
            "a/a ~1000 @2-3",
            "b/a ~1000 @2-3 koordinator.sh/qosClass=LSR",
            &format!("c/a ~1000 {bad}"),
            &format!("d/a 1000 {bad}"),
            &format!("e/a 1000 {status}=2-3"),
            &format!("f/a ~1000 {status}="),
            &format!("g/a 1000 {long}"),
            &format!(r#"h/a 1000 {status}={{"cpuset":null}}"#),
        ],
        expect![[r#"
            a/a ~1000 @2-3: a/a 0-3 mem 0
              no_effect: default/a/a: annotation `scheduling.koordinator.sh/resource-status`: cpuset 2-3 of a pod that is neither Guaranteed nor LSE or LSR has no effect
            b/a ~1000 @2-3 koordinator.sh/qosClass=LSR: a/a 0-1 mem 0, b/a 2-3 mem 0
            c/a ~1000 scheduling.koordinator.sh/resource-status={"cpuset":"2-"}: a/a 0-1 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1
              not_understood: default/c/a: annotation `scheduling.koordinator.sh/resource-status` is `{"cpuset":"2-"}` (cpuset: `2-` is not a number or a range such as 0-3), expected JSON with a list of CPUs as cpuset; ignored
            d/a 1000 scheduling.koordinator.sh/resource-status={"cpuset":"2-"}: a/a 0-1 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1
              not_understood: default/d/a: annotation `scheduling.koordinator.sh/resource-status` is `{"cpuset":"2-"}` (cpuset: `2-` is not a number or a range such as 0-3), expected JSON with a list of CPUs as cpuset
              bayplan: default/d/a refused: annotation `scheduling.koordinator.sh/resource-status` is `{"cpuset":"2-"}` (cpuset: `2-` is not a number or a range such as 0-3), expected JSON with a list of CPUs as cpuset; `bayplan explain default/d/a` lists every pool
            e/a 1000 scheduling.koordinator.sh/resource-status=2-3: a/a 0-1 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1
              not_understood: default/e/a: annotation `scheduling.koordinator.sh/resource-status` is `2-3` (line 1, column 1), expected JSON with a list of CPUs as cpuset
              bayplan: default/e/a refused: annotation `scheduling.koordinator.sh/resource-status` is `2-3` (line 1, column 1), expected JSON with a list of CPUs as cpuset; `bayplan explain default/e/a` lists every pool
            f/a ~1000 scheduling.koordinator.sh/resource-status=: a/a 0-1 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1, f/a 4-7 mem 1
              not_understood: default/f/a: annotation `scheduling.koordinator.sh/resource-status` is `` (line 1, column 0), expected JSON with a list of CPUs as cpuset; ignored
            g/a 1000 scheduling.koordinator.sh/resource-status={"cpuset":"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,x"}: a/a 0-1 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1, f/a 4-7 mem 1
              not_understood: default/g/a: annotation `scheduling.koordinator.sh/resource-status` is `{"cpuset":"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1...` (cpuset: `x` is not a number or a range such as 0-3), expected JSON with a list of CPUs as cpuset
              bayplan: default/g/a refused: annotation `scheduling.koordinator.sh/resource-status` is `{"cpuset":"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1...` (cpuset: `x` is not a number or a range such as 0-3), expected JSON with a list of CPUs as cpuset; `bayplan explain default/g/a` lists every pool
            h/a 1000 scheduling.koordinator.sh/resource-status={"cpuset":null}: a/a 0 mem 0, b/a 2-3 mem 0, c/a 4-7 mem 1, f/a 4-7 mem 1, h/a 1 mem 0
        "#]],
    );
}

/// One in a pod that requests nothing, as its shares of 2 say, paid for none and got all.
#[test]
fn a_pod_that_requests_fewer_cpus_than_were_chosen_is_refused() {
    for (words, milli, requested) in [
        (&["k/a", "1000", "@2-4"][..], 2000, "2"),
        (&["k/a", "~1000", "@2-4", "koordinator.sh/qosClass=LSE"], 0, "0"),
    ] {
        let mut state = state(TWO_NODES);
        let mut container = asks(words);
        container.pod.resources = resources(milli);
        let step = state.step(Event::Admit(Ticket(0), Box::new(container)), Timestamp::UNIX_EPOCH);
        let Answer::Admission(Admission::Refuse(why)) = step.answer else { panic!("{step:?}") };
        let expected = format!("but its containers request {requested} CPUs together;");
        assert!(why.contains(&expected), "{why}");
    }
}

/// A container that may share nowhere else lost its exclusive CPUs when what it shares beside them was claimed.
#[test]
fn a_new_container_takes_no_owners_cpus_by_claiming_what_it_shares() {
    check(
        TWO_NODES,
        "",
        &["m/a 1500 bayplan.dev/within=numa", "o/a 3000", "k/a 3000 @0,2-3", "k/a 2000 @2-3"],
        expect![[r#"
            m/a 1500 bayplan.dev/within=numa: m/a 0-3 mem 0
            o/a 3000: m/a 0-3 mem 0, o/a 4-6 mem 1
            k/a 3000 @0,2-3: m/a 0-3 mem 0, o/a 4-6 mem 1
              bayplan: default/k/a refused: CPUs 0,2-3 were chosen for its pod, but a container of another pod would lose exclusive CPUs; `bayplan explain default/k/a` lists every pool
            k/a 2000 @2-3: k/a 2-3 mem 0, m/a 0-1 mem 0, o/a 4-6 mem 1
        "#]],
    );
}

#[test]
fn a_newcomer_does_not_claim_what_an_owner_closes() {
    let mut state = state(TWO_NODES);
    let mut closing = asks(&["c/a", "1000"]);
    let apart = ("bayplan.dev/apart".to_owned(), "numa required".to_owned());
    closing.pod.annotations.extend([apart]);
    make(&mut state, 0, closing);
    let asked = Box::new(asks(&["k/a", "1000", "@2"]));
    let step = state.step(Event::Admit(Ticket(1), asked), Timestamp::UNIX_EPOCH);
    let Answer::Admission(Admission::Refuse(why)) = step.answer else { panic!("{step:?}") };
    assert!(why.contains("but CPUs 2 are owned by a container of another pod;"), "{why}");
    let explained = state.step(Event::Explain("k/a".to_owned()), Timestamp::UNIX_EPOCH);
    let Answer::Explanations(explained) = explained.answer else { panic!("{explained:?}") };
    let outcome = &explained[0].decision.outcome;
    assert!(outcome.contains("but CPUs 2 are owned by default/c/a"), "{outcome}");
}

/// Of a journal of a daemon that knew nothing of claims and resized the container.
#[test]
fn what_a_record_says_of_own_cpus_does_not_count_for_a_pod_that_claims() {
    let mut before = state(TWO_NODES);
    make(&mut before, 0, asks(&["k/a", "2000", "@2-3"]));
    let records = before.snapshot_records();
    let lines: Vec<String> = records.iter().map(to_line).collect();
    let lines: Vec<String> = lines
        .iter()
        .map(|line| {
            line.replace(r#""exclusive":"""#, r#""exclusive":"5-6""#)
                .replace(r#""shared_milli":0"#, r#""shared_milli":null"#)
                .replace(r#""preserves_cpus":true"#, r#""preserves_cpus":false"#)
        })
        .collect();
    assert!(lines.iter().any(|line| line.contains("5-6")), "{lines:?}");
    let mut after = state(TWO_NODES);
    after.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    assert_eq!(after.ledger.holdings(), before.ledger.holdings());
    assert_eq!(after.pinning(ContainerId(0)).unwrap().cpus, "2-3".parse().unwrap());
}
