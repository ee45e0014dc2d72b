//! CPU time, waiting and moves of tasks, against what the kernel counts of the same tasks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use bayplan_probes::{Counters, Distance, Preempter, Probes};

use crate::tests::{assert_near, attach, attach_on, counters, drain, until_told, watch};
use crate::work::{Cgroup, Counted, Worker};

pub(crate) fn a_bounced_task_is_counted_by_distance() {
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

pub(crate) fn time_on_cpus_is_what_the_kernel_counts() {
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
pub(crate) fn tasks_that_come_and_go_are_counted() {
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

pub(crate) fn all_together_are_what_the_kernel_counts() {
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
pub(crate) fn all_together_run_and_wait_as_the_schedulers_say() {
    if schedulers().is_none() {
        print!("(not here: there is no /proc/schedstat) ");
        return;
    }
    let left_out = left_out_ns();
    let [before, after] = work_between_looks(|| schedulers().unwrap());
    before.assert_equal(&after, 0, "time", left_out_ns() - left_out);
    before.assert_equal(&after, 1, "delay", 0);
}

pub(crate) fn two_hogs_on_one_cpu_wait_for_each_other() {
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
