//! The time between a start and the first sync: what is granted, what is written, and what a view of the runtime makes of it.

use expect_test::{Expect, expect};

use super::*;
use crate::known::Known;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Plays on four CPUs, of which containers may own three:
///
/// - `ask NAME CPUS`: kubelet asks for a container, and again where the runtime is to be asked first; `resize NAME CPUS` likewise;
/// - `end NAME`: the runtime has stopped it;
/// - `view NAME=LIST ...`: the runtime tells what runs, `NAME=?` without describing it;
/// - `wait SECONDS`.
#[track_caller]
fn check(known: Known, journaled: &[&str], steps: &[&str], expected: Expect) {
    let mut stage = Stage { state: state("core:4"), tickets: 0, now: NOW };
    for line in journaled {
        stage.play(&format!("ask {line}"));
    }
    stage.state = stage.state.with_known(known);
    let shown: String = steps.iter().map(|step| stage.play(step)).collect();
    expected.assert_eq(&shown);
}

struct Stage {
    state: NodeState,
    tickets: u64,
    now: Timestamp,
}

fn named(name: &str, cpus: &str) -> NewContainer {
    let mut container = new_container(name, "app", 0, cpus.parse().unwrap());
    container.pod.uid = name.to_owned();
    container
}

fn render_answer(answer: Answer) -> String {
    match answer {
        Answer::Admission(Admission::Place(told)) => format!("on {}", told.cpus),
        Answer::Admission(Admission::Refuse(_)) => "refused".to_owned(),
        Answer::Admission(Admission::Unavailable(_)) => "unavailable".to_owned(),
        other => format!("{other:?}"),
    }
}

impl Stage {
    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ask", name, cpus] => self.ask(name, cpus),
            ["resize", name, cpus] => {
                let resources = named(name, cpus).resources;
                let id = name.to_owned();
                let last = Event::Resize(id.clone(), resources);
                let told = self.decide(Event::TryResize(id, resources), last);
                format!("resize {name} {cpus}: {told}\n")
            }
            ["end", name] => {
                let step = self.step(Event::Ended(name.to_owned()));
                format!("end {name}: {} writes\n", step.plan.writes.len())
            }
            ["wait", seconds] => {
                self.now += SignedDuration::from_secs(seconds.parse().unwrap());
                String::new()
            }
            _ => self.view(line, &words[1..]),
        }
    }

    fn step(&mut self, event: Event) -> Step {
        self.state.step(event, self.now)
    }

    fn decide(&mut self, first: Event, last: Event) -> String {
        match self.step(first).answer {
            Answer::AskFirst => {
                format!("asks first, then {}", render_answer(self.step(last).answer))
            }
            answer => render_answer(answer),
        }
    }

    fn ask(&mut self, name: &str, cpus: &str) -> String {
        self.tickets += 1;
        let (ticket, spec) = (Ticket(self.tickets), Box::new(named(name, cpus)));
        let first = Event::TryAdmit(ticket, spec.clone());
        let told = self.decide(first, Event::Admit(ticket, spec));
        let created = CreateOutcome::Created { id: name.to_owned(), pinned: true };
        self.step(Event::CreateEnded(ticket, created));
        format!("ask {name} {cpus}: {told}\n")
    }

    fn view(&mut self, line: &str, listed: &[&str]) -> String {
        let Answer::SyncBasis { basis, .. } = self.step(Event::SyncStarted).answer else {
            panic!("no basis")
        };
        let containers = listed.iter().map(|it| {
            let (name, cpus) = it.split_once('=').unwrap();
            let details = cpus.parse::<CpuSet>().ok().map(|cpus| {
                let container = named(name, &cpus.len().to_string());
                Box::new(SeenDetails { container, pinning: Pinning { cpus, ..Pinning::default() } })
            });
            let seen = Seen {
                pod_id: name.to_owned(),
                name: "app".to_owned(),
                attempt: 0,
                is_alive: true,
                is_running: true,
                details,
            };
            (name.to_owned(), seen)
        });
        let containers = containers.collect();
        let step = self.step(Event::Synced(RuntimeView { basis, containers }));
        let is_partial = self.state.known.is_partial();
        let is_told = matches!(step.answer, Answer::Synced { is_partial: it } if it == is_partial);
        assert!(is_told, "{line}: {:?}", step.answer);
        assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new(), "{line}");
        let mut shown = format!("{line}: {} writes\n", step.plan.writes.len());
        for (id, container) in &self.state.containers {
            let allocation = self.state.ledger.allocation(*id).unwrap();
            let cpus = self.state.cpus_of(*id, allocation);
            let class = allocation.class().name();
            shown.push_str(&format!("  {} {class} on {cpus}\n", container.spec.pod.id));
        }
        shown
    }
}

#[test]
fn without_a_whole_journal_nothing_is_granted_and_nothing_written_before_the_first_sync() {
    check(
        Known::Partial { first_view: None },
        &["a 1"],
        &[
            "ask new 2",
            "resize a 2",
            "resize unknown 2",
            "end a",
            "view old=1-2",
            "ask new 2",
            "ask small 1",
        ],
        expect![[r#"
            ask new 2: unavailable
            resize a 2: unavailable
            resize unknown 2: unavailable
            end a: 0 writes
            view old=1-2: 0 writes
              old exclusive on 1-2
            ask new 2: refused
            ask small 1: on 3
        "#]],
    );
}

#[test]
fn a_holder_that_runs_goes_before_what_was_granted_by_the_journal_alone() {
    let journaled = || Known::Journaled { granted: BTreeSet::new() };
    check(
        journaled(),
        &["a 1"],
        &["ask new 1", "view a=1 new=2 old=2", "ask later 1"],
        expect![[r#"
            ask new 1: asks first, then on 2
            view a=1 new=2 old=2: 1 writes
              a exclusive on 1
              new exclusive on 3
              old exclusive on 2
            ask later 1: refused
        "#]],
    );
    // Without room it shares, and the one of the journal keeps its CPU against another claim.
    check(
        journaled(),
        &["a 1"],
        &["ask new 1", "view a=1 new=2 old=2-3 other=1"],
        expect![[r#"
        ask new 1: asks first, then on 2
        view a=1 new=2 old=2-3 other=1: 2 writes
          a exclusive on 1
          new shared on 0
          old exclusive on 2-3
          other shared on 0
    "#]],
    );
}

#[test]
fn a_container_that_the_runtime_cannot_describe_holds_the_grants_up_for_a_bounded_time() {
    check(
        Known::Partial { first_view: None },
        &[],
        &["view odd=?", "ask a 1", "wait 30", "view odd=?", "ask a 1"],
        expect![[r#"
            view odd=?: 0 writes
            ask a 1: unavailable
            view odd=?: 0 writes
            ask a 1: on 1
        "#]],
    );
    check(
        Known::Partial { first_view: None },
        &[],
        &["view odd=?", "view odd=1", "ask a 1"],
        expect![[r#"
            view odd=?: 0 writes
            view odd=1: 0 writes
              odd exclusive on 1
            ask a 1: on 2
        "#]],
    );
}

/// The journal that such a state writes says so, or the next start would take it for a whole one.
#[test]
fn a_journal_that_was_written_before_the_first_sync_is_not_a_whole_one() {
    let mut stage = Stage {
        state: state("core:4").with_known(Known::Partial { first_view: None }),
        tickets: 0,
        now: NOW,
    };
    let known = |state: &NodeState| {
        let lines: Vec<String> = state.snapshot_records().iter().map(to_line).collect();
        Known::after_reading(false, &replay(&lines), "")
    };
    assert!(known(&stage.state).is_partial());
    stage.play("view old=1-2");
    assert!(!known(&stage.state).is_partial());
}

/// What is set aside on two nodes of 10 GiB for a container with 2 CPUs and so many GiB that is found running on these CPUs and memory nodes.
fn found_memory(cpus: &str, mems: &str, gib: i64) -> String {
    let mut state = state("pack:1 numa:2 core:4 mem:10 huge:2M=512");
    let mut container = new_container("1", "app", 0, 2);
    container.resources.memory_limit = gib << 30;
    container.huge_pages.insert(Bytes(2 << 20), Bytes(1 << 30));
    let pinning = Pinning { cpus: cpus.parse().unwrap(), mems: mems.parse().unwrap() };
    let seen = running(container, pinning);
    let (basis, containers) = (state.steps + 1, [("id".to_owned(), seen)].into());
    state.step(Event::SyncStarted, NOW);
    state.step(Event::Synced(RuntimeView { basis, containers }), NOW);
    assert!(check_ledger(state.ledger()).is_empty());
    let (id, held) = state.ledger().allocations().next().unwrap();
    let charges = held.charges.iter().map(|(node, bytes)| format!("{bytes} on {}", node.0));
    let huge = held.huge_charges.iter().map(|it| format!("{} huge on {}", it.bytes, it.node.0));
    let charged: Vec<String> = charges.chain(huge).collect();
    let asked = &state.containers.get(&id).unwrap().decision.asked;
    let owned = &held.exclusive;
    format!("{cpus} {mems} {gib}: {asked}; owns `{owned}`, {}\n", charged.join(", "))
}

/// Memory of such containers was not counted, so that others were placed on nodes that were full.
#[test]
fn memory_of_what_is_found_running_counts_where_it_is() {
    let text: String = [
        ("1-2", "0", 8),
        // Far from its CPUs.
        ("1-2", "1", 8),
        // Near its CPUs first.
        ("5-6", "0-1", 8),
        ("5-6", "0-1", 14),
        // As far as its node has it.
        ("1-2", "0", 14),
        // It shares.
        ("0-7", "1", 8),
        ("4-7", "", 8),
    ]
    .into_iter()
    .map(|(cpus, mems, gib)| found_memory(cpus, mems, gib))
    .collect();
    expect![[r#"
        1-2 0 8: 2 exclusive, memory 8 GiB, 1 GiB in huge pages of 2 MiB; owns `1-2`, 8 GiB on 0, 1 GiB huge on 0
        1-2 1 8: 2 exclusive, memory 8 GiB, 1 GiB in huge pages of 2 MiB; owns `1-2`, 8 GiB on 1, 1 GiB huge on 1
        5-6 0-1 8: 2 exclusive, memory 8 GiB, 1 GiB in huge pages of 2 MiB; owns `5-6`, 8 GiB on 1, 1 GiB huge on 1
        5-6 0-1 14: 2 exclusive, memory 14 GiB, 1 GiB in huge pages of 2 MiB; owns `5-6`, 9 GiB on 1, 5 GiB on 0, 1 GiB huge on 1
        1-2 0 14: 2 exclusive, memory 14 GiB, 1 GiB in huge pages of 2 MiB; owns `1-2`, 9 GiB on 0, 1 GiB huge on 0
        0-7 1 8: 2 exclusive, memory 8 GiB, 1 GiB in huge pages of 2 MiB; owns ``, 8 GiB on 1, 1 GiB huge on 1
        4-7  8: 2 exclusive, memory 8 GiB, 1 GiB in huge pages of 2 MiB; owns ``, 8 GiB on 1, 1 GiB huge on 1
    "#]].assert_eq(&text);
}

/// What each container of one CPU that is found running owns and leaves idle, where all ask for idle siblings.
#[test]
fn siblings_of_what_is_found_running_stay_idle_unless_they_are_owned() {
    let found = |cpus: &[&str]| {
        let mut state = state("numa:1 core:4 pu:2");
        let seen = |(at, cpus): (usize, &&str)| {
            let mut container = named(&format!("pod{at}"), "1");
            let wish = ("bayplan.dev/siblings".to_owned(), "idle".to_owned());
            container.pod.annotations.extend([wish]);
            let pinning = Pinning { cpus: cpus.parse().unwrap(), ..Pinning::default() };
            (format!("id{at}"), running(container, pinning))
        };
        let (basis, containers) = (state.steps + 1, cpus.iter().enumerate().map(seen).collect());
        state.step(Event::SyncStarted, NOW);
        state.step(Event::Synced(RuntimeView { basis, containers }), NOW);
        assert!(check_ledger(state.ledger()).is_empty());
        let held = state.ledger().allocations().map(|(_, it)| it);
        held.map(|it| format!("{} idle {}", it.exclusive, it.idle)).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(found(&["2", "3"]), "2 idle 6; 3 idle 7");
    assert_eq!(found(&["2", "6", "1"]), "2 idle ; 6 idle ; 1 idle 5");
    // One CPU is left for others.
    assert_eq!(found(&["0", "1", "2", "3"]), "0 idle 4; 1 idle 5; 2 idle 6; 3 idle ");
}
