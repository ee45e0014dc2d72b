//! The tests themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use aya::maps::{Map, MapData, SkStorage, loaded_maps};
use aya::programs::{loaded_links, loaded_programs};
use aya::util::nr_cpus;
use bayplan_probes::{
    CgroupId, CounterChoice, Counters, Distance, Drain, Event, EventCounts, Identity, Intrusion,
    Kind, Preempter, ProbeState, Probes, Vector,
};
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{CpuId, CpuSet};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::work::{Cgroup, Counted, Worker, path};
use crate::{intruders, preempters, refused};

/// Every test, in the order in which they run.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("a_bounced_task_is_counted_by_distance", a_bounced_task_is_counted_by_distance),
    ("time_on_cpus_is_what_the_kernel_counts", time_on_cpus_is_what_the_kernel_counts),
    ("tasks_that_come_and_go_are_counted", tasks_that_come_and_go_are_counted),
    ("all_together_are_what_the_kernel_counts", all_together_are_what_the_kernel_counts),
    (
        "all_together_run_and_wait_as_the_schedulers_say",
        all_together_run_and_wait_as_the_schedulers_say,
    ),
    ("two_hogs_on_one_cpu_wait_for_each_other", two_hogs_on_one_cpu_wait_for_each_other),
    ("a_hog_on_an_owners_cpu_is_named", a_hog_on_an_owners_cpu_is_named),
    (
        "a_process_that_rests_after_an_untold_switch_is_charged_and_not_accused",
        a_process_that_rests_after_an_untold_switch_is_charged_and_not_accused,
    ),
    ("the_owner_himself_is_no_intruder", the_owner_himself_is_no_intruder),
    (
        "interrupts_are_those_that_the_kernel_counts",
        intruders::interrupts_are_those_that_the_kernel_counts,
    ),
    (
        "softirqs_are_those_that_the_kernel_counts",
        intruders::softirqs_are_those_that_the_kernel_counts,
    ),
    (
        "a_kernel_thread_on_an_owners_cpu_is_named",
        intruders::a_kernel_thread_on_an_owners_cpu_is_named,
    ),
    ("kinds_of_preempters_are_told_apart", preempters::kinds_of_preempters_are_told_apart),
    (
        "a_group_that_has_used_up_its_quota_leaves_the_cpu_to_none",
        preempters::a_group_that_has_used_up_its_quota_leaves_the_cpu_to_none,
    ),
    (
        "a_cpu_that_changes_hands_is_charged_to_each_owner",
        a_cpu_that_changes_hands_is_charged_to_each_owner,
    ),
    ("the_first_names_are_not_kept_for_good", the_first_names_are_not_kept_for_good),
    (
        "a_process_without_room_in_the_kernel_is_in_the_owners_sum",
        a_process_without_room_in_the_kernel_is_in_the_owners_sum,
    ),
    (
        "a_task_that_changes_cgroups_is_charged_to_both",
        a_task_that_changes_cgroups_is_charged_to_both,
    ),
    ("cgroups_inside_a_container_count_for_it", cgroups_inside_a_container_count_for_it),
    ("what_ran_before_does_not_count", what_ran_before_does_not_count),
    ("short_lived_cgroups_leave_nothing", short_lived_cgroups_leave_nothing),
    (
        "a_killed_process_leaves_nothing_in_the_kernel",
        a_killed_process_leaves_nothing_in_the_kernel,
    ),
    ("every_probe_is_in_the_table", every_probe_is_in_the_table),
    ("page_faults_are_those_of_the_task", page_faults_are_those_of_the_task),
    ("switches_are_those_of_the_tasks", switches_are_those_of_the_tasks),
    ("time_goes_to_the_group_that_has_the_cpu", time_goes_to_the_group_that_has_the_cpu),
    (
        "a_cpu_that_changes_hands_all_the_time_is_read_now_and_then",
        a_cpu_that_changes_hands_all_the_time_is_read_now_and_then,
    ),
    ("a_process_that_never_leaves_a_cpu_is_counted", a_process_that_never_leaves_a_cpu_is_counted),
    ("a_slot_that_is_used_again_begins_at_nothing", a_slot_that_is_used_again_begins_at_nothing),
    (
        "the_processors_counters_count_or_are_said_to_be_missing",
        the_processors_counters_count_or_are_said_to_be_missing,
    ),
    (
        "a_process_that_may_not_load_programs_is_told_so",
        refused::a_process_that_may_not_load_programs_is_told_so,
    ),
    ("a_kernel_without_types_is_told", refused::a_kernel_without_types_is_told),
    // The last one: nothing can be read of that kernel afterwards.
    ("a_kernel_that_is_locked_down_is_told", refused::a_kernel_that_is_locked_down_is_told),
];

pub(crate) fn machine(text: &str) -> Topology {
    derive(&parse_machine(text).unwrap()).unwrap()
}

#[track_caller]
pub(crate) fn attach() -> Probes {
    attach_on("pack:1 numa:1 l3:1 core:2 pu:1")
}

#[track_caller]
fn attach_on(text: &str) -> Probes {
    attach_with(text, CounterChoice::Off)
}

#[track_caller]
fn attach_with(text: &str, choice: CounterChoice) -> Probes {
    match Probes::attach(&machine(text), choice) {
        Ok(probes) => probes,
        Err(refusal) => panic!("the probes cannot be tested here: {refusal}"),
    }
}

/// Probes with counters that every machine has.
#[track_caller]
pub(crate) fn attach_counting() -> Probes {
    attach_with("pack:1 numa:1 l3:1 core:2 pu:1", CounterChoice::Software)
}

fn events(probes: &mut Probes, cgroup: &Cgroup) -> EventCounts {
    drain(probes).events[&cgroup.id()].clone()
}

pub(crate) fn watch(probes: &mut Probes, containers: &[(&Cgroup, &str)]) {
    let of = |(cgroup, cpus): &(&Cgroup, &str)| (cgroup.id(), cpus.parse::<CpuSet>().unwrap());
    probes.watch(&containers.iter().map(of).collect()).unwrap();
}

pub(crate) fn drain(probes: &mut Probes) -> Drain {
    probes.drain(Instant::now()).unwrap()
}

pub(crate) fn counters(probes: &mut Probes, cgroup: &Cgroup) -> Counters {
    drain(probes).containers[&cgroup.id()].clone()
}

/// Both within `percent`, or within two ticks of the scheduler, which is what may be under way at the moment of reading.
#[track_caller]
fn assert_near(what: &str, found: u64, expected: u64, percent: u64) {
    assert!(is_near(found, expected, percent), "{what}: {found}, expected {expected}");
}

fn is_near(found: u64, expected: u64, percent: u64) -> bool {
    let far = found.abs_diff(expected);
    far * 100 <= expected * percent || far < 8_000_000
}

/// Repeats known work until programs were told of all its switches, and gives what was found then. Where others use the CPU as well,
/// the kernel does not tell of every switch (6.18: of 4 in 1,000 not), and until the next one, or the next look, another task pays for what counters
/// count. `work` gives the CPU time that the probe has found, what the kernel counted, and the rest.
#[track_caller]
fn until_told<T>(mut work: impl FnMut() -> (u64, u64, T)) -> T {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let (found, counted, rest) = work();
        if found.abs_diff(counted) <= counted / 50 + 1_000_000 {
            return rest;
        }
        seen.push((found, counted));
    }
    panic!("CPU time found and counted, in nanoseconds: {seen:?}");
}

fn a_bounced_task_is_counted_by_distance() {
    let machines = [
        (Distance::SameCore, "pack:1 numa:1 l3:1 core:1 pu:2"),
        (Distance::SameL3, "pack:1 numa:1 l3:1 core:2 pu:1"),
        (Distance::SameNode, "pack:1 numa:1 l3:2 core:1 pu:1"),
        (Distance::SamePackage, "pack:1 numa:2 l3:1 core:1 pu:1"),
        (Distance::AcrossPackages, "pack:2 numa:1 l3:1 core:1 pu:1"),
    ];
    for (times, (distance, machine)) in (100..).zip(machines) {
        let (mut probes, cgroup) = (attach_on(machine), Cgroup::new());
        let mut worker = Worker::new(Some(&cgroup), 0, &format!("bounce 0 1 {times}"));
        watch(&mut probes, &[(&cgroup, "")]);
        worker.begin();
        worker.wait();
        let expected = Distance::ALL.map(|it| if it == distance { times } else { 0 });
        assert_eq!(counters(&mut probes, &cgroup).migrations, expected, "{machine}");
    }
}

fn time_on_cpus_is_what_the_kernel_counts() {
    let (mut probes, a, b) = (attach(), Cgroup::new(), Cgroup::new());
    let mut workers = [(&a, 0, 700), (&a, 1, 300), (&b, 1, 500)].map(|(cgroup, cpu, millis)| {
        Worker::new(Some(cgroup), cpu, &format!("hog worker {millis}"))
    });
    watch(&mut probes, &[(&a, ""), (&b, "")]);
    let before = [&a, &b].map(Cgroup::usage_ns);
    workers.iter_mut().for_each(Worker::begin);
    workers.iter_mut().for_each(|worker| _ = worker.wait());
    for (cgroup, before) in [&a, &b].into_iter().zip(before) {
        let usage = cgroup.usage_ns() - before;
        let found = counters(&mut probes, cgroup);
        assert_near("time", found.exec_ns, usage, 1);
        assert_eq!(found.delays.iter().sum::<u64>(), found.runs);
        assert_eq!(found.preempted_by.iter().sum::<u64>(), found.involuntary);
    }
}

/// What each task has had, by the probes, and by the kernel just before and just after they were read. A task that is on a CPU meanwhile, this
/// process above all, is in one and not yet in the other.
struct Look {
    earlier: Vec<u64>,
    found: Vec<u64>,
    later: Vec<u64>,
}

impl Look {
    fn take(probes: &mut Probes, kernel: impl Fn() -> Vec<u64>) -> Look {
        let earlier = kernel();
        let drain = drain(probes);
        // Off the CPU, so that the schedulers have charged this process for it.
        std::thread::sleep(Duration::from_millis(1));
        let sum = |of: fn(&Counters) -> u64| {
            drain.containers.values().chain([&drain.outside]).map(of).sum::<u64>()
        };
        Look { earlier, found: vec![sum(|it| it.exec_ns), sum(|it| it.delay_ns)], later: kernel() }
    }

    /// One value of what was added from this look to another is the same within 1 %, or what was found is less by no more than `left_out`.
    #[track_caller]
    fn assert_equal(&self, other: &Look, at: usize, what: &str, left_out: u64) {
        let found = other.found[at] - self.found[at];
        let least = other.earlier[at] - self.later[at];
        let most = other.later[at] - self.earlier[at];
        print!("({what} {found}, the kernel's {least} to {most}) ");
        assert_near(what, found, found.clamp(least.saturating_sub(left_out), most), 1);
    }
}

/// Work of two containers and of tasks in no container on both CPUs, and what each has had before and after it.
fn work_between_looks(kernel: impl Fn() -> Vec<u64>) -> [Look; 2] {
    let (mut probes, a, b) = (attach(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&a, ""), (&b, "")]);
    let mut workers = [(Some(&a), 0), (Some(&a), 1), (Some(&b), 1), (None, 0)]
        .map(|(cgroup, cpu)| Worker::new(cgroup, cpu, "hog worker 1500"));
    let before = Look::take(&mut probes, &kernel);
    workers.iter_mut().for_each(Worker::begin);
    workers.iter_mut().for_each(|worker| _ = worker.wait());
    [before, Look::take(&mut probes, &kernel)]
}

/// Most of them run once and never leave their CPU before their end.
fn tasks_that_come_and_go_are_counted() {
    let (mut probes, cgroup) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, "")]);
    // A task that is gone after a switch that was not told is made up for by no later one.
    until_told(|| {
        let mut worker = Worker::new(Some(&cgroup), 1, "spawn 300");
        let before = (counters(&mut probes, &cgroup).exec_ns, cgroup.usage_ns());
        worker.begin();
        worker.wait();
        let found = counters(&mut probes, &cgroup).exec_ns - before.0;
        let usage = cgroup.usage_ns() - before.1;
        print!("({found} of {usage}) ");
        (found, usage, ())
    });
}

/// The controller that has all CPU time of the machine without the coarse tick. Only version 1 has it, so where that is not mounted it is for the moment.
struct CpuAcct(Option<PathBuf>);

impl CpuAcct {
    const MOUNTED: &str = "/sys/fs/cgroup/cpuacct";

    fn open() -> Option<CpuAcct> {
        if Path::new(CpuAcct::MOUNTED).join("cpuacct.usage").exists() {
            return Some(CpuAcct(None));
        }
        let dir = env::temp_dir().join(format!("bayplan-cpuacct-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let opened = CpuAcct(Some(dir));
        let mount = ["-t", "cgroup", "-o", "cpuacct", "cpuacct"];
        let status = Command::new("mount").args(mount).arg(opened.dir()).status();
        status.is_ok_and(|it| it.success()).then_some(opened)
    }

    fn dir(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(CpuAcct::MOUNTED))
    }

    fn usage_ns(&self) -> u64 {
        let text = fs::read_to_string(self.dir().join("cpuacct.usage")).unwrap();
        text.trim().parse().unwrap()
    }
}

impl Drop for CpuAcct {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = Command::new("umount").arg(dir).status();
            let _ = fs::remove_dir(dir);
        }
    }
}

fn all_together_are_what_the_kernel_counts() {
    let Some(all) = CpuAcct::open() else {
        print!("(not here: there is no cpuacct) ");
        return;
    };
    let [before, after] = work_between_looks(|| vec![all.usage_ns()]);
    before.assert_equal(&after, 0, "time", 0);
}

/// Time in which tasks of all CPUs ran, and time in which they waited, in ns (Documentation/scheduler/sched-stats.rst, "CPU statistics", 7 and 8).
fn schedulers() -> Option<Vec<u64>> {
    let text = fs::read_to_string("/proc/schedstat").ok()?;
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    let of_cpu = |line: &str, at: usize| line.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    let sums = cpus.map(|line| vec![of_cpu(line, 7), of_cpu(line, 8)]);
    sums.reduce(|sum, cpu| vec![sum[0] + cpu[0], sum[1] + cpu[1]])
}

/// Time in ns that this kernel leaves out of its tasks' clock (`update_rq_clock_task`, kernel/sched/core.c): that of interrupts, and that in which a host let
/// others have the CPU. Fields of its `struct rq` tell whether it does. The schedulers' own clock has both in it, idle CPUs' as well.
fn left_out_ns() -> u64 {
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let has = |field: &str| types.windows(field.len()).any(|it| it == field.as_bytes());
    let stat = fs::read_to_string("/proc/stat").unwrap();
    // All CPUs: user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second (Documentation/filesystems/proc.rst).
    let all = stat.lines().next().unwrap().split_whitespace().skip(1);
    let all: Vec<u64> = all.map(|it| it.parse().unwrap()).collect();
    let interrupts = if has("prev_irq_time") { all[5] + all[6] } else { 0 };
    let stolen = if has("prev_steal_time_rq") { all[7] } else { 0 };
    (interrupts + stolen) * 10_000_000
}

/// The schedulers charge tasks for the time from when each came to a CPU to when it left (`sched_info_depart`), and so do the probes but for
/// [`left_out_ns`], and for the moment in which a CPU looks for other work before it idles (`newidle_balance`), which the schedulers give to the task
/// that has left. Idling is in neither.
fn all_together_run_and_wait_as_the_schedulers_say() {
    if schedulers().is_none() {
        print!("(not here: there is no /proc/schedstat) ");
        return;
    }
    let left_out = left_out_ns();
    let [before, after] = work_between_looks(|| schedulers().unwrap());
    before.assert_equal(&after, 0, "time", left_out_ns() - left_out);
    before.assert_equal(&after, 1, "delay", 0);
}

fn two_hogs_on_one_cpu_wait_for_each_other() {
    let (mut probes, cgroup) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, "")]);
    let (before, found, waited) = until_told(|| {
        let mut workers = [0; 2].map(|_| Worker::new(Some(&cgroup), 1, "hog hungry 800"));
        let before = counters(&mut probes, &cgroup);
        workers.iter_mut().for_each(Worker::begin);
        let counted = workers.each_mut().map(Worker::wait);
        let found = counters(&mut probes, &cgroup);
        let sum = |of: fn(&Counted) -> u64| counted.iter().map(of).sum::<u64>();
        let waited = sum(|it| it.delay_ns);
        (found.exec_ns - before.exec_ns, sum(|it| it.exec_ns), (before, found, waited))
    });
    assert_near("delay", found.delay_ns - before.delay_ns, waited, 1);
    // A task that leaves the CPU for the other waits for a slice of it: from 1 to 16 ms, whatever the scheduler of the day, and longer where a third
    // one comes in between. On a busy machine it is mostly others that take the CPU, for as long as they like.
    let slices: u64 = found.delays[11..19].iter().sum();
    let by_itself = Preempter::ALL.iter().position(|it| *it == Preempter::Itself).unwrap();
    let by_itself = found.preempted_by[by_itself];
    assert!(slices * 10 > by_itself * 8, "{found:?}");
    assert!(by_itself * 10 > slices, "{found:?}");
}

/// What `name` did on CPU 1, and as what kind.
pub(crate) fn intrusion(
    drain: &Drain,
    owner: CgroupId,
    name: &str,
) -> Option<(Identity, Intrusion)> {
    let list = drain.intrusions.get(&owner)?;
    let found = list.iter().find(|(it, _)| it.cpu == CpuId(1) && it.name == name);
    found.map(|(intruder, sum)| (intruder.identity, *sum))
}

/// The time that `name` took on CPU 1.
fn taken_ns(drain: &Drain, owner: CgroupId, name: &str) -> u64 {
    intrusion(drain, owner, name).map_or(0, |(_, sum)| sum.ns)
}

fn a_hog_on_an_owners_cpu_is_named() {
    let (mut probes, owner, other, outside) =
        (attach(), Cgroup::new(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1"), (&other, "")]);
    let cases = [
        (&other, "a-container", Identity::Container(other.id())),
        (&outside, "a-process", Identity::Process(outside.id())),
    ];
    for (cgroup, name, identity) in cases {
        assert_eq!(intrusion(&drain(&mut probes), owner.id(), name), None);
        let (found, sum) = until_told(|| {
            let mut worker = Worker::new(Some(cgroup), 1, &format!("hog {name} 1000"));
            let before = taken_ns(&drain(&mut probes), owner.id(), name);
            worker.begin();
            let counted = worker.wait();
            let (found, sum) = intrusion(&drain(&mut probes), owner.id(), name).unwrap();
            (sum.ns - before, counted.exec_ns, (found, sum))
        });
        assert_eq!(found, identity);
        assert!(sum.times > 0);
    }
}

/// Has the kernel side forget the last `ns` that a worker at rest was charged for, as if it had not been told of the switch after them.
fn leave_untold(worker: &Worker, ns: u64) {
    let held = held_by(std::process::id());
    let is_own = |id: u32| held.contains(&format!("map_id:{id}"));
    let tasks = loaded_maps()
        .filter_map(Result::ok)
        .find(|it| it.name_as_str() == Some("tasks") && is_own(it.id()));
    let tasks = MapData::from_id(tasks.unwrap().id()).unwrap();
    // Storage of tasks is reached by a descriptor, as that of sockets is, and the library has a type for that.
    let mut tasks: SkStorage<_, [u64; 8]> = Map::SkStorage(tasks).try_into().unwrap();
    let pid = Pid::from_raw(worker.pid().try_into().unwrap()).unwrap();
    let task = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    // `struct task_state`, bpf/maps.h; the first word is the CPU time that was charged.
    let mut state = tasks.get(&task, 0).unwrap();
    state[0] = state[0].wrapping_sub(ns);
    tasks.insert(&task, state, 0).unwrap();
}

/// On which CPU it was is not known: since then it may have been woken for another.
fn a_process_that_rests_after_an_untold_switch_is_charged_and_not_accused() {
    let (mut probes, owner, other) = (attach(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1"), (&other, "")]);
    let mut worker = Worker::new(Some(&other), 1, "hog resting 300");
    worker.begin();
    worker.wait();
    let before = drain(&mut probes);
    leave_untold(&worker, 100_000_000);
    let after = drain(&mut probes);
    let charged = |drain: &Drain| drain.containers[&other.id()].exec_ns;
    assert_eq!(charged(&after) - charged(&before), 100_000_000);
    let accused = |drain: &Drain| intrusion(drain, owner.id(), "resting");
    assert_eq!(accused(&after), accused(&before));
}

fn the_owner_himself_is_no_intruder() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    let mut worker = Worker::new(Some(&owner), 1, "hog owner 1000");
    watch(&mut probes, &[(&owner, "1")]);
    worker.begin();
    worker.wait();
    let drain = drain(&mut probes);
    assert_eq!(intrusion(&drain, owner.id(), "owner"), None);
    assert!(drain.containers[&owner.id()].exec_ns > 900_000_000);
    // A CPU that is busy has a tick, and its own timer tells of it where the architecture has such a tracepoint.
    let ticks = drain.intrusions[&owner.id()].iter();
    let ticks = ticks.filter(|(it, _)| it.identity == Identity::Vector(Vector::LocalTimer));
    let ticks: u64 = ticks.map(|(_, sum)| sum.times).sum();
    assert!(ticks > 0 || cfg!(not(target_arch = "x86_64")), "{drain:?}");
}

fn a_cpu_that_changes_hands_is_charged_to_each_owner() {
    let (mut probes, first, second) = (attach(), Cgroup::new(), Cgroup::new());
    // What a hog took by the kernel's word, and by that of the probes of each of the two.
    let hog = |probes: &mut Probes, millis: u64| {
        let mut worker = Worker::new(None, 1, &format!("hog guest {millis}"));
        let taken = |drain: Drain| [&first, &second].map(|it| taken_ns(&drain, it.id(), "guest"));
        let before = taken(drain(probes));
        worker.begin();
        let counted = worker.wait();
        let after = taken(drain(probes));
        (counted.exec_ns, [after[0] - before[0], after[1] - before[1]])
    };
    for (owned, owner, millis) in [(["1", ""], 0, 400), (["", "1"], 1, 200)] {
        watch(&mut probes, &[(&first, owned[0]), (&second, owned[1])]);
        until_told(|| {
            let (counted, taken) = hog(&mut probes, millis);
            assert_eq!(taken[1 - owner], 0, "from a container that does not own it");
            (taken[owner], counted, ())
        });
    }
    watch(&mut probes, &[(&first, ""), (&second, "")]);
    assert_eq!(hog(&mut probes, 100).1, [0, 0]);
}

/// The time that processes took of the CPUs that it owns.
fn taken_by_processes(drain: &Drain, owner: CgroupId) -> u64 {
    let list = drain.intrusions.get(&owner).into_iter().flatten();
    let processes = list.filter(|(it, _)| it.identity.kind() == Kind::Process);
    processes.map(|(_, sum)| sum.ns).sum()
}

/// A task goes by on CPU 1, under one name after the other; gives its CPU time in ns, without a millisecond for its last run, of which no task is
/// accused where the switch after it was not told.
fn go_by(first: u32, last: u32) -> u64 {
    let mut worker = Worker::new(None, 1, &format!("names {first} {last}"));
    worker.begin();
    worker.wait().exec_ns.saturating_sub(1_000_000)
}

/// More names between two readings than the kernel's map has room for.
fn a_process_without_room_in_the_kernel_is_in_the_owners_sum() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1")]);
    assert_eq!(drain(&mut probes).unnamed, Intrusion::default());
    let cpus = u32::try_from(nr_cpus().unwrap()).unwrap();
    // As much as the loader makes, of which some is taken by others.
    let room = (64 * cpus).max(4096);
    let crowd = go_by(0, room + 2000);
    let found = drain(&mut probes);
    // For 2,000 of them there was none, and nearly all are alike.
    let Intrusion { ns, times } = found.unnamed;
    let share = crowd / u64::from(room + 2000) * 600;
    assert!(times > 1000 && ns > share, "{times} times, {ns} of {crowd}");
    let taken = taken_by_processes(&found, owner.id());
    assert!(taken >= crowd, "{taken} of {crowd}");
}

/// One task under more names than there is room for, and others that come when they have rested.
fn the_first_names_are_not_kept_for_good() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1")]);
    let taken = |drain: &Drain| taken_by_processes(drain, owner.id());
    // On a host that has no time some go by unseen.
    let crowd = go_by(0, 1500);
    let first = drain(&mut probes);
    assert!(taken(&first) >= crowd, "{} of {crowd}", taken(&first));
    let others = |identity| matches!(identity, Identity::Others(Kind::Process));
    assert!(first.intrusions[&owner.id()].keys().any(|it| others(it.identity)), "{first:?}");
    let in_the_kernel = probes.entries().unwrap().1;
    for _ in 0..15 {
        drain(&mut probes);
    }
    let rested = probes.entries().unwrap().1;
    assert!(rested + 500 < in_the_kernel, "{rested} of {in_the_kernel} names are in the kernel");
    go_by(5000, 5003);
    let second = drain(&mut probes);
    for number in 5000..5003 {
        let name = format!("name-{number}");
        assert!(intrusion(&second, owner.id(), &name).is_some(), "{name}: {second:?}");
    }
    assert!(taken(&second) >= taken(&first), "{} of {}", taken(&second), taken(&first));
}

fn a_task_that_changes_cgroups_is_charged_to_both() {
    let (mut probes, from, to) = (attach(), Cgroup::new(), Cgroup::new());
    let mut worker = Worker::new(Some(&from), 1, &format!("wander 500 {}", path(&to)));
    watch(&mut probes, &[(&from, ""), (&to, "")]);
    let before = [&from, &to].map(Cgroup::usage_ns);
    worker.begin();
    let changing: u64 = worker.hear().parse().unwrap();
    let counted = worker.wait();
    let found = [&from, &to].map(|cgroup| counters(&mut probes, cgroup).exec_ns);
    assert_near("both", found.iter().sum(), counted.exec_ns, 1);
    // Charged is the container that a task belongs to when it leaves the CPU, so the run in which it changes may go to the wrong one. It sleeps on
    // the way.
    for ((cgroup, before), found) in [&from, &to].into_iter().zip(before).zip(found) {
        let usage = cgroup.usage_ns() - before;
        let far = found.abs_diff(usage);
        assert!(far < changing + 8_000_000, "{found}, expected {usage}, {changing} to change");
    }
}

fn cgroups_inside_a_container_count_for_it() {
    let (mut probes, outer) = (attach(), Cgroup::new());
    let middle = outer.child("container");
    let inner = middle.child("deeper");
    let mut worker = Worker::new(Some(&inner), 1, "hog inside 300");
    watch(&mut probes, &[(&outer, "1")]);
    worker.begin();
    let counted = worker.wait();
    let drain = drain(&mut probes);
    assert_near("time", drain.containers[&outer.id()].exec_ns, counted.exec_ns, 2);
    assert_eq!(intrusion(&drain, outer.id(), "inside"), None);
    drop(worker);
    drop(inner);
    drop(middle);
}

fn what_ran_before_does_not_count() {
    let cgroup = Cgroup::new();
    let mut worker = Worker::new(Some(&cgroup), 1, "hog old 500");
    worker.begin();
    worker.wait();
    let before = cgroup.usage_ns();
    let mut probes = attach();
    watch(&mut probes, &[(&cgroup, "")]);
    drop(worker);
    let found = counters(&mut probes, &cgroup).exec_ns;
    // What it takes to end.
    let usage = cgroup.usage_ns() - before;
    assert!(found < usage + 8_000_000 && usage < 400_000_000, "{found} of {usage}");
}

fn short_lived_cgroups_leave_nothing() {
    let mut probes = attach();
    // More in all than the kernel's map has room for.
    for _ in 0..90 {
        let cgroups: Vec<Cgroup> = (0..50).map(|_| Cgroup::new()).collect();
        let watched: BTreeMap<_, _> =
            cgroups.iter().map(|it| (it.id(), CpuSet::from_iter([CpuId(1)]))).collect();
        probes.watch(&watched).unwrap();
        assert_eq!(probes.entries().unwrap().0, 50);
        let _worker = Worker::new(cgroups.first(), 0, "rest");
    }
    probes.watch(&BTreeMap::new()).unwrap();
    assert_eq!(probes.entries().unwrap().0, 0);
    assert!(drain(&mut probes).intrusions.is_empty());
    // Intruders of CPUs that have no owner any more are read until they rest, and then taken out.
    for _ in 0..5 {
        drain(&mut probes);
    }
    assert_eq!(probes.entries().unwrap(), (0, 0));
}

/// Numbers of programs, maps and links that a process holds by its files (Documentation/filesystems/proc.rst, "/proc/<pid>/fdinfo").
fn held_by(pid: u32) -> BTreeSet<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = files.filter_map(|it| fs::read_to_string(it.unwrap().path()).ok());
    let lines = texts.flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>());
    let is_number =
        |it: &String| ["prog_id:", "map_id:", "link_id:"].iter().any(|name| it.starts_with(name));
    lines.filter(is_number).map(|it| it.replace('\t', "")).collect()
}

/// The same of all that is in the kernel.
fn held_by_the_kernel() -> BTreeSet<String> {
    let programs = loaded_programs().filter_map(|it| Some(format!("prog_id:{}", it.ok()?.id())));
    let maps = loaded_maps().filter_map(|it| Some(format!("map_id:{}", it.ok()?.id())));
    let links = loaded_links().filter_map(|it| Some(format!("link_id:{}", it.ok()?.id())));
    programs.chain(maps).chain(links).collect()
}

fn a_killed_process_leaves_nothing_in_the_kernel() {
    let cgroup = Cgroup::new();
    let mut worker = Worker::new(None, 1, &format!("probe {}", cgroup.id().0));
    worker.begin();
    worker.wait();
    let held = held_by(worker.pid());
    for kind in ["prog_id:", "map_id:", "link_id:"] {
        assert!(held.iter().any(|it| it.starts_with(kind)), "{kind} {held:?}");
    }
    assert!(held.is_subset(&held_by_the_kernel()), "{held:?}");
    // By SIGKILL.
    drop(worker);
    // The kernel frees them when no task can be in them any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let rest: Vec<String> = held.intersection(&held_by_the_kernel()).cloned().collect();
        if rest.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{rest:?} are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn every_probe_is_in_the_table() {
    let (mut probes, cgroup) = (attach(), Cgroup::new());
    let table = |probes: &Probes| {
        let rows = probes.table().into_iter().map(|row| format!("{} {:?}\n", row.name, row.state));
        rows.collect::<String>()
    };
    let resting = "scheduler Attached\nmigrations Attached\ninterrupts Waiting\nvectors Waiting\n";
    assert_eq!(table(&probes), resting);
    watch(&mut probes, &[(&cgroup, "1")]);
    assert_eq!(table(&probes), resting.replace("Waiting", "Attached"));
    watch(&mut probes, &[(&cgroup, "")]);
    assert_eq!(table(&probes), resting);
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

fn page_faults_are_those_of_the_task() {
    let (mut probes, cgroup, other) = (attach_counting(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, ""), (&other, "")]);
    for (cgroup, pages) in [(&cgroup, 100_000), (&other, 20_000)] {
        touch(&mut probes, cgroup, 1, pages);
        assert_eq!(events(&mut probes, cgroup).counted_share(), Some(1.0));
    }
}

fn switches_are_those_of_the_tasks() {
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

fn time_goes_to_the_group_that_has_the_cpu() {
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
fn a_cpu_that_changes_hands_all_the_time_is_read_now_and_then() {
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

fn a_process_that_never_leaves_a_cpu_is_counted() {
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

fn a_slot_that_is_used_again_begins_at_nothing() {
    let (mut probes, first, second) = (attach_counting(), Cgroup::new(), Cgroup::new());
    for cgroup in [&first, &second] {
        watch(&mut probes, &[(cgroup, "")]);
        touch(&mut probes, cgroup, 0, 20_000);
    }
}

/// Where the machine has counters, a task of known work; where it has none, the word for it. Everything else counts in both cases.
fn the_processors_counters_count_or_are_said_to_be_missing() {
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
