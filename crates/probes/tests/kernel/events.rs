//! What counters of the kernel and of the processor count for each container.

use std::env;
use std::time::Duration;

use bayplan_probes::{CounterChoice, Counters, Drain, Event, EventCounts, ProbeState, Probes};

use crate::tests::{assert_near, attach_counting, attach_with, drain, is_near, until_told, watch};
use crate::work::{Cgroup, Worker};

fn events(probes: &mut Probes, cgroup: &Cgroup) -> EventCounts {
    drain(probes).events[&cgroup.id()].clone()
}

/// A task touches so many pages: what the probes have counted of it, and what the kernel has.
fn touch(probes: &mut Probes, cgroup: &Cgroup, cpu: u32, pages: u64) {
    // The clock is read together with the page faults; the container's time by the scheduler's probe would not do, since that is made good later on.
    let counts = |probes: &mut Probes| {
        let drain = drain(probes);
        let events = drain.events.get(&cgroup.id());
        let count = |event| events.and_then(|it| it.counts.get(&event).copied()).unwrap_or(0);
        (count(Event::PageFaults), count(Event::CpuClock))
    };
    assert_eq!(counts(probes).0, 0);
    let (found, counted) = until_told(|| {
        let mut worker = Worker::new(Some(cgroup), cpu, &format!("touch {pages}"));
        let before = counts(probes);
        worker.begin();
        let counted = worker.wait();
        let after = counts(probes);
        (after.1 - before.1, counted.exec_ns, (after.0 - before.0, counted.faults))
    });
    assert!(counted >= pages, "{counted} page faults");
    // Within 5 %, and what it takes to begin and to end.
    assert!(found.abs_diff(counted) * 20 <= counted + 20_000, "{found}, expected {counted}");
}

pub(crate) fn page_faults_are_those_of_the_task() {
    let (mut probes, cgroup, other) = (attach_counting(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, ""), (&other, "")]);
    for (cgroup, pages) in [(&cgroup, 100_000), (&other, 20_000)] {
        touch(&mut probes, cgroup, 1, pages);
        assert_eq!(events(&mut probes, cgroup).counted_share(), Some(1.0));
    }
}

pub(crate) fn switches_are_those_of_the_tasks() {
    let (mut probes, a, b) = (attach_counting(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&a, ""), (&b, "")]);
    let mut workers = [(&a, 1000), (&b, 300)]
        .map(|(cgroup, times)| (cgroup, Worker::new(Some(cgroup), 1, &format!("nap {times} 1"))));
    workers.iter_mut().for_each(|(_, worker)| worker.begin());
    for (cgroup, worker) in &mut workers {
        let counted = worker.wait();
        let drain = drain(&mut probes);
        let (found, runs) = (&drain.events[&cgroup.id()], drain.containers[&cgroup.id()].runs);
        // The same switches, counted by the other probe, by these counters and by the task, with those before and after the work.
        let switches = found.counts[&Event::ContextSwitches];
        assert!(switches.abs_diff(runs) <= 10 + runs / 50, "{switches} switches, {runs} runs");
        let far = switches.abs_diff(counted.switches);
        assert!(far <= 50, "{switches} switches, {counted:?}");
    }
}

/// Repeats work of two containers on one CPU until the clock has told them apart as the scheduler did. It need not: of some switches programs are not
/// told ([`until_told`]); and the scheduler reads its clock before a switch and the probe in it, so that where a host lets others have the CPU in
/// between, for a tenth of a second where it is emulated, the one takes that for time of the task that comes, and the other for time of the task that
/// goes. So it has three turns, and ten where the lab says that the CPU is emulated. `work` gives the clock's and the scheduler's time of each, and
/// the rest.
#[track_caller]
fn until_split<T>(percent: u64, mut work: impl FnMut() -> ([(u64, u64); 2], T)) -> T {
    let turns = if env::var_os("BAYPLAN_EMULATED").is_some() { 10 } else { 3 };
    let mut seen = Vec::new();
    for _ in 0..turns {
        let (times, rest) = work();
        if times.iter().all(|(found, expected)| is_near(*found, *expected, percent)) {
            return rest;
        }
        seen.push(times);
    }
    panic!("the clock's time and the scheduler's, in nanoseconds: {seen:?}");
}

/// What was counted of a container since `before`.
fn added(drain: &Drain, before: &Drain, cgroup: &Cgroup) -> (EventCounts, Counters) {
    let id = cgroup.id();
    let events = drain.events[&id].since(&before.events[&id]);
    (events, drain.containers[&id].since(&before.containers[&id]))
}

pub(crate) fn time_goes_to_the_group_that_has_the_cpu() {
    let (mut probes, a, b) = (attach_counting(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&a, ""), (&b, "")]);
    until_split(5, || {
        // Two of one container and one of another, all on one CPU.
        let mut workers = [(&a, 500), (&a, 300), (&b, 600)]
            .map(|(cgroup, millis)| Worker::new(Some(cgroup), 1, &format!("hog worker {millis}")));
        let before = drain(&mut probes);
        workers.iter_mut().for_each(Worker::begin);
        let [first, second, other] = workers.each_mut().map(|worker| worker.wait().exec_ns);
        let after = drain(&mut probes);
        let times = [(&a, first + second), (&b, other)].map(|(cgroup, exec_ns)| {
            let (found, _) = added(&after, &before, cgroup);
            let clock = found.counts[&Event::CpuClock];
            assert_near("time that was counted", found.running_ns, clock, 5);
            (clock, exec_ns)
        });
        (times, ())
    });
}

/// What was not read is known from what was.
pub(crate) fn a_cpu_that_changes_hands_all_the_time_is_read_now_and_then() {
    let (mut probes, a, b) = (attach_counting(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&a, ""), (&b, "")]);
    let found = until_split(10, || {
        let mut workers = [&a, &b].map(|cgroup| Worker::new(Some(cgroup), 1, "yield 500"));
        let before = drain(&mut probes);
        workers.iter_mut().for_each(Worker::begin);
        let counted = workers.each_mut().map(|worker| worker.wait().exec_ns);
        let after = drain(&mut probes);
        let found = [&a, &b].map(|cgroup| added(&after, &before, cgroup));
        let clock = |at: usize| (found[at].0.counts[&Event::CpuClock], counted[at]);
        ([clock(0), clock(1)], found)
    });
    for (events, Counters { runs, exec_ns, .. }) in found {
        // Another task may have had the CPU in between, and an emulated one does not change hands so often.
        let has_storm = runs > 60 * exec_ns / 1_000_000;
        let share = events.counted_share().unwrap();
        assert!(0.02 < share && (share < 0.9 || !has_storm), "{share} of {runs} runs was counted");
        // Nothing else can have the kernel's own counters.
        let taken = events.taken_ns();
        assert!(taken <= events.enabled_ns / 1000, "{taken} ns of {events:?} is taken");
        let switches = events.counts[&Event::ContextSwitches];
        // Runs that are read take longer for it, and these here are short, so fewer of them are counted in the same time.
        assert!(
            (runs / 2..runs + runs / 10).contains(&switches),
            "{switches} switches, {runs} runs"
        );
    }
}

pub(crate) fn a_process_that_never_leaves_a_cpu_is_counted() {
    let (mut probes, cgroup) = (attach_counting(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, "")]);
    let mut worker = Worker::new(Some(&cgroup), 1, "hog busy 2000");
    worker.begin();
    let mut last = 0;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(60));
        let before = cgroup.usage_ns();
        // It is read at a tick, and a virtual CPU that the host does not let run has none.
        let has_caught_up = (0..20).any(|_| {
            let now = events(&mut probes, &cgroup).counts[&Event::CpuClock];
            assert!(now >= last, "{now} after {last}");
            last = now;
            std::thread::sleep(Duration::from_millis(4));
            now + 8_000_000 >= before
        });
        assert!(has_caught_up, "{last} of {before}");
    }
    worker.wait();
}

pub(crate) fn a_slot_that_is_used_again_begins_at_nothing() {
    let (mut probes, first, second) = (attach_counting(), Cgroup::new(), Cgroup::new());
    for cgroup in [&first, &second] {
        watch(&mut probes, &[(cgroup, "")]);
        touch(&mut probes, cgroup, 0, 20_000);
    }
}

/// Where the machine has counters, a task of known work; where it has none, the word for it. Everything else counts in both cases.
pub(crate) fn the_processors_counters_count_or_are_said_to_be_missing() {
    let machine = "pack:1 numa:1 l3:1 core:2 pu:1";
    let (mut probes, cgroup) = (attach_with(machine, CounterChoice::Auto), Cgroup::new());
    let mut worker = Worker::new(Some(&cgroup), 1, "hog worker 500");
    watch(&mut probes, &[(&cgroup, "")]);
    worker.begin();
    worker.wait();
    let drain = drain(&mut probes);
    assert!(drain.containers[&cgroup.id()].exec_ns > 450_000_000);
    let row = probes.table().into_iter().find(|row| row.name == "counters").unwrap();
    match row.state {
        ProbeState::Attached => {
            let found = &drain.events[&cgroup.id()];
            // Half a second at anything from 0.1 to 10 GHz.
            let cycles = found.counts[&Event::Cycles];
            assert!((50_000_000..5_000_000_000).contains(&cycles), "{found:?}");
        }
        ProbeState::Unsupported(refusal) => {
            print!("(no counters here: {refusal}) ");
            assert!(drain.events.is_empty());
        }
        other => panic!("{other:?}"),
    }
}
