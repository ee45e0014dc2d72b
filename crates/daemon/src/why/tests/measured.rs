//! What is measured, and what is said where a measurement lacks.

use super::*;

#[test]
fn each_measurement_that_lacks_is_told_with_the_reason() {
    let begin = Instant::now();
    let read = |counters: GroupCounters, seconds| GroupsRead {
        at: begin + Duration::from_secs(seconds),
        groups: [("id".to_owned(), (counters, None))].into(),
        caches: BTreeMap::new(),
        idle_ticks: BTreeMap::new(),
        frequencies_khz: BTreeMap::new(),
    };
    let counted = |usec| GroupCounters { cpu_usec: Some(usec), ..GroupCounters::default() };
    let pair = || (Some(read(counted(0), 0)), Some(read(counted(9), 10)));
    let probe = |name, reason: Option<&str>| json!({"name": name, "counts": name, "state": "", "reason": reason});
    let off = json!([]);
    let refused = json!([probe("scheduler", Some("no BTF")), probe("migrations", None)]);
    let check = |readings: (Option<GroupsRead>, Option<GroupsRead>), probes, expected: Expect| {
        let found = gathered_of((readings.0.as_ref(), readings.1.as_ref()), &probes).absent;
        expected.assert_eq(&found.join("\n"));
    };
    check(
        (None, None),
        off.clone(),
        expect![[r#"
        waiting, delays, moves and intrusions: probes are off, or the daemon has just been started
        CPU use, throttling, CPU stalls, memory stalls, I/O stalls: there are no two readings of its cgroup yet; ask again in a moment
        far memory, kills: its cgroup has not been read yet; ask again in a moment"#]],
    );
    check(
        (None, Some(read(counted(9), 10))),
        off,
        expect![[r#"
        waiting, delays, moves and intrusions: probes are off, or the daemon has just been started
        CPU use, throttling, CPU stalls, memory stalls, I/O stalls: there are no two readings of its cgroup yet; ask again in a moment
        far memory: the kernel tells of no memory on any node
        kills: its memory.events has none"#]],
    );
    check(
        pair(),
        refused,
        expect![[r#"
        scheduler not counted: no BTF
        moves: the probes have not watched it for long enough
        throttling: its cpu.stat has none
        CPU stalls, memory stalls, I/O stalls: the kernel does not count stalls (PSI, psi=1 on its command line)
        far memory: the kernel tells of no memory on any node
        kills: its memory.events has none"#]],
    );
    check(
        pair(),
        json!([probe("scheduler", None)]),
        expect![[r#"
        waiting: the probes have not watched it for long enough
        delays: the probes have not watched it for long enough
        throttling: its cpu.stat has none
        CPU stalls, memory stalls, I/O stalls: the kernel does not count stalls (PSI, psi=1 on its command line)
        far memory: the kernel tells of no memory on any node
        kills: its memory.events has none"#]],
    );
}

#[test]
fn kills_alone_are_no_measurement() {
    let killed = measured("", Measured { oom_kills: Some(0), ..Measured::default() });
    assert!(render_why(&why(killed)).contains("nothing is measured of it"));
}

#[test]
fn memory_that_is_far_or_lacking_and_block_devices_are_told() {
    let mut far = measured("2-3", Measured { far: Some(0.5), ..Measured::default() });
    far.events = vec![event("moved", "to make room for shop/db/db")];
    check(
        far,
        expect![[r#"
        1. 50.0 % of its memory is on NUMA nodes far from its CPUs (medium, about 15 % of its time)
           it is to use memory nodes 0
           moved 1970-01-01T00:00:00Z: to make room for shop/db/db
           Help: the rebalancer in mode act brings back what is at most 1 GiB; else its memory is near after it has been started anew
             kubectl -n shop delete pod web

        2. its exclusive CPUs were changed; caches and memory have to follow (low)
           moved 1970-01-01T00:00:00Z: to make room for shop/db/db
           Help: more of what happened to it:
             bayplan journal --since 1d --container app
    "#]],
    );
    // With the processor's counters: few misses.
    let mut near = measured("2-3", Measured { far: Some(0.5), ..Measured::default() });
    near.far_cost = Some(0.02);
    check(
        near,
        expect![[r#"
        1. 50.0 % of its memory is on NUMA nodes far from its CPUs (low, about 2 % of its time)
           it is to use memory nodes 0
           Help: the rebalancer in mode act brings back what is at most 1 GiB; else its memory is near after it has been started anew
             kubectl -n shop delete pod web
    "#]],
    );
    let lacking = Measured {
        memory_stall: Some(0.3),
        io_stall: Some(0.06),
        oom_kills: Some(2),
        ..Measured::default()
    };
    check(
        measured("", lacking),
        expect![[r#"
        1. 2 of its processes were killed for lack of memory since it began (high)
           Help: raise limits.memory of the container

        2. its tasks lack memory 30.0 % of the time (high, about 30 % of its time)
           Help: raise limits.memory; what is near memory.high or the limit is reclaimed again and again
             bayplan top --sort stall-memory

        3. its tasks wait for block devices 6.0 % of the time (medium, about 6 % of its time)
           Help: a class of block I/O with more weight (blockIo of the configuration), or a faster disk
             bayplan top --sort stall-io
    "#]],
    );
}

#[test]
fn the_text_has_the_place_what_is_measured_and_what_is_not() {
    let mut whole = measured(
        "2-3",
        Measured {
            cpus: Some(1.2),
            throttled: Some(0.4),
            waiting: Some(0.1),
            ..Measured::default()
        },
    );
    whole.absent = vec!["intrusions not counted: no BTF".to_owned()];
    whole.explanation.rebalance = vec![proposal("batch/a/b", NAME, "kept")];
    expect![[r#"
        shop/web/app: its CPU limit stops it 40.0 % of the time
          asked    2 exclusive
          now      running on CPUs 2-3, owns 2-3, memory nodes 0
          decided  1970-01-01T00:00:00Z placed in numa 0
          measured uses 1.20 CPUs, throttled 40.0 %, 0.10 tasks waiting

        1. its CPU limit stops it 40.0 % of the time (high, about 40 % of its time)
           it uses 1.20 CPUs while it is stopped that often
           Help: raise limits.cpu, in place since Kubernetes 1.33, or let it burst (annotation bayplan.dev/cpu-burst)
             kubectl -n shop patch pod web --subresource resize -p '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}}]}}'

        2. its tasks wait for a CPU 7.7 % of the time that they could run (medium, about 8 % of its time)
           Help: its own tasks wait for each other on 2 CPUs: let it run fewer threads, or ask for more CPUs
             kubectl -n shop patch pod web --subresource resize -p '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}}]}}'

        Proposed or done by the rebalancer:
          kept      1970-01-01T00:00:00Z idle on batch/a/b, for shop/web/app

        Not measured:
          intrusions not counted: no BTF
    "#]].assert_eq(&render_why(&why(whole)));
}

/// Clock domains as their CPUs and the containers with wide vectors in each, this one included where it is one of them.
#[track_caller]
fn check_clocks(clocks: &[(&str, usize)], has_wide_vectors: bool, expected: Expect) {
    let clock = |(cpus, containers): &(&str, usize)| ClockStatus {
        cpus: (*cpus).to_owned(),
        containers: *containers,
    };
    let now = ContainerStatus { has_wide_vectors, ..status("") };
    let clocks: Vec<ClockStatus> = clocks.iter().map(clock).collect();
    let clock = fullest_clock(&now, &clocks);
    let told = why(Evidence { clock, ..evidence("") })
        .causes
        .into_iter()
        .map(|it| format!("{}\n", it.what));
    expected.assert_eq(&told.collect::<String>());
}

#[test]
fn others_with_wide_vectors_in_its_package_are_told() {
    check_clocks(&[], false, expect![[""]]);
    check_clocks(&[("0-7", 0), ("8-15", 3)], false, expect![[""]]);
    check_clocks(&[("0-7", 1), ("8-15", 3)], true, expect![[""]]);
    check_clocks(
        &[("0-7", 1), ("8-15", 3)],
        false,
        expect![[r#"
            1 other container with wide vectors may lower the frequency of its package, CPUs 0-7
        "#]],
    );
    check_clocks(
        &[("0-3", 1), ("4-15", 3)],
        true,
        expect![[r#"
            2 other containers with wide vectors may lower the frequency of its package, CPUs 4-15
        "#]],
    );
}
