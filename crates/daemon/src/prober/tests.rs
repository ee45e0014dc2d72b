//! What others see of what the probes have told.

mod renewed;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_probes::{
    CgroupId, Counters, Drain, Event, EventCounts, Identity, Intruder, Intrusion, Kind, Probe,
    ProbeState, Refusal,
};
use bayplan_types::CpuId;
use expect_test::{Expect, expect};
use jiff::Timestamp;

use super::sightings::{Seen, Sightings};
use super::task::owned_now;
use super::view::name_of;
use crate::metrics::Metrics;
use crate::observer::tests::occupant;

fn seen(cgroup: u64, name: &str, owned: &str) -> Seen {
    Seen {
        cgroup: CgroupId(cgroup),
        namespace: "default".to_owned(),
        pod: "pod".to_owned(),
        name: name.to_owned(),
        owned: owned.parse().unwrap(),
    }
}

#[test]
fn borrowers_on_lent_cpus_are_no_intruders() {
    let owner = |is_together| Occupant {
        exclusive: "1-3".parse().unwrap(),
        is_together,
        ..occupant("own", 0, "own")
    };
    let occupancy = |is_restored, lent: &str| Occupancy {
        is_restored,
        lent: lent.parse().unwrap(),
        ..Occupancy::default()
    };
    for (is_together, is_restored, lent, expected) in [
        (false, false, "", "1-3"),
        (false, false, "2,7", "1,3"),
        (true, false, "2", ""),
        (false, true, "", ""),
    ] {
        let owned = owned_now(&owner(is_together), &occupancy(is_restored, lent));
        assert_eq!(owned.to_string(), expected, "{lent}");
    }
}

fn table() -> Vec<Probe> {
    let refusal = Refusal { reason: "not here".to_owned(), remedy: "elsewhere".to_owned() };
    vec![
        Probe { name: "scheduler", counts: "time", state: ProbeState::Attached },
        Probe { name: "migrations", counts: "moves", state: ProbeState::Attached },
        Probe { name: "interrupts", counts: "interrupts", state: ProbeState::Waiting },
        Probe { name: "vectors", counts: "timers", state: ProbeState::Refused(refusal.clone()) },
        Probe { name: "counters", counts: "cycles", state: ProbeState::Unsupported(refusal) },
    ]
}

/// What two containers have after so many seconds; the first owns CPU 1, on which the second runs a tenth of the time.
fn drain(start: Instant, after: u64) -> Drain {
    let second = 1_000_000_000;
    let counters = Counters {
        exec_ns: after * second,
        runs: after,
        delay_ns: after * 1000,
        involuntary: after,
        preempted_by: [0, after, 0, 0],
        migrations: [0, 2 * after, 0, 0, 0],
        delays: std::array::from_fn(|bucket| if bucket == 3 { after } else { 0 }),
    };
    let intruder =
        |identity, name: &str| Intruder { cpu: CpuId(1), identity, name: name.to_owned() };
    let sum = |ns| Intrusion { ns, times: after };
    let intruders = BTreeMap::from([
        (intruder(Identity::KernelThread, "kworker/1:0"), sum(after * 1_000_000)),
        (intruder(Identity::Container(CgroupId(8)), "hog"), sum(after * 100_000_000)),
    ]);
    Drain {
        at: start + Duration::from_secs(after),
        containers: BTreeMap::from([(CgroupId(7), counters.clone()), (CgroupId(8), counters)]),
        events: BTreeMap::new(),
        outside: Counters::default(),
        intrusions: BTreeMap::from([(CgroupId(7), intruders)]),
        unnamed: Intrusion { ns: 500_000_000, times: 1 },
    }
}

/// What was told of two containers so many seconds after the start.
pub(crate) fn told(afters: &[u64]) -> Sightings {
    let (sightings, start) = (Sightings::default(), Instant::now());
    for after in afters {
        tell(&sightings, start, *after);
    }
    sightings
}

fn tell(sightings: &Sightings, start: Instant, after: u64) {
    let containers = vec![seen(7, "owner", "1"), seen(8, "other", "")];
    let at = Timestamp::UNIX_EPOCH + Duration::from_secs(after);
    sightings.tell(table(), (containers, BTreeMap::new()), drain(start, after), at);
}

/// The same on a machine that counts every event, three cycles for two instructions, and a quarter of the time for another user of the counters.
pub(crate) fn told_with_events(afters: &[u64]) -> Sightings {
    let (sightings, start) = (Sightings::default(), Instant::now());
    for after in afters {
        let kinds = [
            Event::Cycles,
            Event::Instructions,
            Event::ReferenceCycles,
            Event::CacheReferences,
            Event::CacheMisses,
            Event::PageFaults,
            Event::ContextSwitches,
            Event::CpuClock,
        ];
        let counts = [3000, 2000, 2500, 100, 10, 1, 1, 1].map(|count| count * after);
        let ns = after * 1_000_000_000;
        let events = EventCounts {
            counts: kinds.into_iter().zip(counts).collect(),
            enabled_ns: ns,
            running_ns: ns / 4 * 3,
            unread_ns: ns / 8,
        };
        let drain =
            Drain { events: BTreeMap::from([(CgroupId(7), events)]), ..drain(start, *after) };
        let at = Timestamp::UNIX_EPOCH + Duration::from_secs(*after);
        sightings.tell(table(), (vec![seen(7, "owner", "1")], BTreeMap::new()), drain, at);
    }
    sightings
}

#[track_caller]
fn check(found: &impl serde::Serialize, expected: Expect) {
    expected.assert_eq(&serde_json::to_string_pretty(found).unwrap());
}

#[test]
fn without_probes_nothing_is_known() {
    check(
        &Sightings::default().view(),
        expect![[r#"
        {
          "format": "bayplan-audit/1",
          "probes": [],
          "at": null,
          "recent_seconds": null,
          "containers": []
        }"#]],
    );
}

#[test]
fn a_probe_says_why_it_does_not_count() {
    check(
        &told(&[10]).view().probes,
        expect![[r#"
            [
              {
                "name": "scheduler",
                "counts": "time",
                "state": "attached"
              },
              {
                "name": "migrations",
                "counts": "moves",
                "state": "attached"
              },
              {
                "name": "interrupts",
                "counts": "interrupts",
                "state": "waiting"
              },
              {
                "name": "vectors",
                "counts": "timers",
                "state": "refused",
                "reason": "not here",
                "remedy": "elsewhere"
              },
              {
                "name": "counters",
                "counts": "cycles",
                "state": "unsupported",
                "reason": "not here",
                "remedy": "elsewhere"
              }
            ]"#]],
    );
}

#[test]
fn an_intruder_on_an_exclusive_cpu_goes_by_its_name() {
    let view = told(&[10, 20]).view();
    check(
        &view.containers[0],
        expect![[r#"
            {
              "namespace": "default",
              "pod": "pod",
              "container": "owner",
              "owned": "1",
              "cpu_seconds": 20.0,
              "run_delay_seconds": 0.00002,
              "runs": 20,
              "preempted_by": {
                "container": 20,
                "itself": 0,
                "quota": 0,
                "system": 0
              },
              "migrations": {
                "core": 0,
                "l3": 40,
                "machine": 0,
                "numa": 0,
                "package": 0
              },
              "recent": {
                "cpus": 1.0,
                "waiting": 1.0000000000000002e-6,
                "has_runs": true,
                "run_delay_p50_seconds": 8.192e-6,
                "run_delay_p99_seconds": 8.192e-6,
                "preempted": 1.0,
                "migrations": 2.0,
                "taken_seconds": 1.01
              },
              "intruders": [
                {
                  "cpu": 1,
                  "who": "container default/pod/other",
                  "name": "hog",
                  "seconds": 2.0,
                  "times": 20,
                  "recent_seconds": 1.0
                },
                {
                  "cpu": 1,
                  "who": "kernel thread",
                  "name": "kworker/1:0",
                  "seconds": 0.02,
                  "times": 20,
                  "recent_seconds": 0.01
                }
              ]
            }"#]],
    );
    assert_eq!(view.containers[1].intruders, []);
}

#[test]
fn a_process_in_no_container_goes_by_the_path_of_its_cgroup_while_that_is_there() {
    let paths = BTreeMap::from([(CgroupId(3), "/system.slice/chrony.service".to_owned())]);
    for (identity, expected) in [
        (Identity::Process(CgroupId(3)), "process of cgroup /system.slice/chrony.service"),
        (Identity::Process(CgroupId(4)), "process of cgroup 4"),
        (Identity::Container(CgroupId(7)), "container default/pod/owner"),
        (Identity::KernelThread, "kernel thread"),
    ] {
        assert_eq!(name_of(identity, &[seen(7, "owner", "1")], &paths), expected);
    }
}

/// What was taken by processes on CPU 1 at two readings (`""`: those without a name), and what of it is recent by the second.
#[track_caller]
fn check_recent(then: &[(&str, u64)], now: &[(&str, u64)], expected: &[(&str, f64)]) {
    let (sightings, start) = (Sightings::default(), Instant::now());
    for (after, list) in [(10, then), (20, now)] {
        let intruder = |name: &str| Intruder {
            cpu: CpuId(1),
            identity: match name {
                "" => Identity::Others(Kind::Process),
                _ => Identity::Process(CgroupId(3)),
            },
            name: name.to_owned(),
        };
        let sum = |seconds: u64| Intrusion { ns: seconds * 1_000_000_000, times: 1 };
        let list = list.iter().map(|(name, seconds)| (intruder(name), sum(*seconds))).collect();
        let intrusions = BTreeMap::from([(CgroupId(7), list)]);
        let drain = Drain { intrusions, ..drain(start, after) };
        let at = Timestamp::UNIX_EPOCH + Duration::from_secs(after);
        sightings.tell(table(), (vec![seen(7, "owner", "1")], BTreeMap::new()), drain, at);
    }
    let view = sightings.view();
    let found = view.containers[0].intruders.iter();
    let found: Vec<(&str, f64)> = found.map(|it| (it.name.as_str(), it.recent_seconds)).collect();
    assert_eq!(found, expected);
    let mut unnamed = view.containers[0].intruders.iter().filter(|it| it.name.is_empty());
    assert!(unnamed.all(|it| it.who == "other processes, not named"));
    // Nothing is in the sum that is not in the list.
    let recent = view.containers[0].recent.as_ref().unwrap();
    assert_eq!(recent.taken_seconds, expected.iter().map(|(_, seconds)| seconds).sum::<f64>());
}

#[test]
fn what_was_taken_under_a_lost_name_is_not_recent() {
    check_recent(&[("a", 5), ("b", 1)], &[("b", 2), ("", 6)], &[("", 1.0), ("b", 1.0)]);
    check_recent(&[("a", 5), ("", 9)], &[("a", 1), ("", 14)], &[("", 0.0), ("a", 1.0)]);
    check_recent(&[], &[("a", 3), ("", 2)], &[("a", 3.0), ("", 2.0)]);
}

#[test]
fn recent_is_a_minute() {
    let view = told(&[5, 10, 40, 70, 75]).view();
    assert_eq!(view.recent_seconds, Some(65.0));
    assert_eq!(told(&[5]).view().recent_seconds, None);
    assert_eq!(told(&[5]).view().containers[0].recent, None);
}

#[test]
fn probes_that_were_switched_off_tell_nothing() {
    let sightings = told(&[10, 20]);
    sightings.clear(Vec::new());
    assert!(sightings.view().containers.is_empty());
}

/// The lines of the metrics in which one of `words` is.
fn rendered(words: &[&str]) -> String {
    let text = Metrics::new(told(&[10])).render(true);
    let lines = text.lines().filter(|line| words.iter().any(|it| line.contains(it)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn prometheus_is_told_of_the_state_of_each_probe() {
    expect![[r##"
        # HELP bayplan_probe_state 1 for the state that a probe is in: it counts, waits until a container owns CPUs, has nothing on this machine that it could count, or is refused by the kernel
        # TYPE bayplan_probe_state gauge
        bayplan_probe_state{probe="scheduler",state="attached"} 1
        bayplan_probe_state{probe="scheduler",state="waiting"} 0
        bayplan_probe_state{probe="scheduler",state="unsupported"} 0
        bayplan_probe_state{probe="scheduler",state="refused"} 0
        bayplan_probe_state{probe="migrations",state="attached"} 1
        bayplan_probe_state{probe="migrations",state="waiting"} 0
        bayplan_probe_state{probe="migrations",state="unsupported"} 0
        bayplan_probe_state{probe="migrations",state="refused"} 0
        bayplan_probe_state{probe="interrupts",state="attached"} 0
        bayplan_probe_state{probe="interrupts",state="waiting"} 1
        bayplan_probe_state{probe="interrupts",state="unsupported"} 0
        bayplan_probe_state{probe="interrupts",state="refused"} 0
        bayplan_probe_state{probe="vectors",state="attached"} 0
        bayplan_probe_state{probe="vectors",state="waiting"} 0
        bayplan_probe_state{probe="vectors",state="unsupported"} 0
        bayplan_probe_state{probe="vectors",state="refused"} 1
        bayplan_probe_state{probe="counters",state="attached"} 0
        bayplan_probe_state{probe="counters",state="waiting"} 0
        bayplan_probe_state{probe="counters",state="unsupported"} 1
        bayplan_probe_state{probe="counters",state="refused"} 0
    "##]].assert_eq(&rendered(&["probe_state"]));
}

#[test]
fn prometheus_is_told_of_the_containers_that_are_there() {
    let lines = rendered(&["container_", "unnamed"]);
    let short = lines.lines().filter(|it| !it.starts_with("bayplan_container_updates"));
    let short = short.filter(|line| !line.contains("_bucket") || line.contains("le=\"8.192e-6\""));
    let short: String = short.map(|line| format!("{line}\n")).collect();
    expect![[r##"
        # HELP bayplan_container_run_delay_seconds Time that a task of the container could have run and had no CPU, before each of its runs
        # TYPE bayplan_container_run_delay_seconds histogram
        # UNIT bayplan_container_run_delay_seconds seconds
        bayplan_container_run_delay_seconds_sum{namespace="default",pod="pod",container="owner"} 0.00001
        bayplan_container_run_delay_seconds_count{namespace="default",pod="pod",container="owner"} 10
        bayplan_container_run_delay_seconds_sum{namespace="default",pod="pod",container="other"} 0.00001
        bayplan_container_run_delay_seconds_count{namespace="default",pod="pod",container="other"} 10
        # HELP bayplan_container_preemptions Times that a task of the container left a CPU and could have gone on, by what took the CPU; quota: nothing did
        # TYPE bayplan_container_preemptions counter
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="owner",by="itself"} 0
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="owner",by="container"} 10
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="owner",by="system"} 0
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="owner",by="quota"} 0
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="other",by="itself"} 0
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="other",by="container"} 10
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="other",by="system"} 0
        bayplan_container_preemptions_total{namespace="default",pod="pod",container="other",by="quota"} 0
        # HELP bayplan_container_migrations Moves of the container's tasks to another CPU, by the nearest that holds both CPUs
        # TYPE bayplan_container_migrations counter
        bayplan_container_migrations_total{namespace="default",pod="pod",container="owner",within="core"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="owner",within="l3"} 20
        bayplan_container_migrations_total{namespace="default",pod="pod",container="owner",within="numa"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="owner",within="package"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="owner",within="machine"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="other",within="core"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="other",within="l3"} 20
        bayplan_container_migrations_total{namespace="default",pod="pod",container="other",within="numa"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="other",within="package"} 0
        bayplan_container_migrations_total{namespace="default",pod="pod",container="other",within="machine"} 0
        # HELP bayplan_container_intrusion_seconds Time that others ran on CPUs that the container owns, by what they are
        # TYPE bayplan_container_intrusion_seconds counter
        # UNIT bayplan_container_intrusion_seconds seconds
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="container"} 1.0
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="interrupt"} 0.0
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="kernel-thread"} 0.01
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="process"} 0.0
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="softirq"} 0.0
        bayplan_container_intrusion_seconds_total{namespace="default",pod="pod",container="owner",kind="vector"} 0.0
        # HELP bayplan_container_intrusions Times that others ran on CPUs that the container owns, by what they are
        # TYPE bayplan_container_intrusions counter
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="container"} 10
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="interrupt"} 0
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="kernel-thread"} 10
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="process"} 0
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="softirq"} 0
        bayplan_container_intrusions_total{namespace="default",pod="pod",container="owner",kind="vector"} 0
        # HELP bayplan_container_updates CPU sets written through the runtime for other containers' sake.
        # TYPE bayplan_container_updates counter
        # HELP bayplan_intrusion_unnamed_seconds Of the time that others ran on CPUs that containers own, that for which the kernel had no room to note what ran; the containers' own sums have it, too, but for CPUs that have changed hands
        # TYPE bayplan_intrusion_unnamed_seconds counter
        # UNIT bayplan_intrusion_unnamed_seconds seconds
        bayplan_intrusion_unnamed_seconds_total 0.5
    "##]].assert_eq(&short);
}

#[test]
fn a_client_that_may_not_know_names_is_told_none() {
    assert!(!Metrics::new(told(&[10])).render(false).contains(r#"container="owner""#));
}

#[test]
fn what_the_processor_counts_is_told_with_what_it_means() {
    let view = told_with_events(&[4, 8]).view();
    let owner = &view.containers[0];
    let recent = owner.recent.as_ref().unwrap();
    assert_eq!((recent.cycles_per_instruction, recent.cache_misses), (Some(1.5), Some(5.0)));
    assert_eq!((owner.events["cycles"], owner.events_counted_share), (24_000, Some(0.75)));
    let text = Metrics::new(told_with_events(&[8])).render(true);
    for line in [
        r#"bayplan_container_cycles_total{namespace="default",pod="pod",container="owner"} 24000"#,
        r#"bayplan_container_counting_seconds_total{namespace="default",pod="pod",container="owner",state="counted"} 6.0"#,
        r#"bayplan_container_counting_seconds_total{namespace="default",pod="pod",container="owner",state="taken"} 1.0"#,
        r#"bayplan_container_counting_seconds_total{namespace="default",pod="pod",container="owner",state="unread"} 1.0"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
    }
}
