//! What a task had to leave its CPU for although it could have gone on.

use std::fs;
use std::time::{Duration, Instant};

use bayplan_probes::{Counters, Preempter};

use crate::tests::{attach, counters, watch};
use crate::work::{Cgroup, Quota, Worker};

fn times(counters: &Counters, by: Preempter) -> u64 {
    let at = Preempter::ALL.iter().position(|it| *it == by).unwrap();
    counters.preempted_by[at]
}

/// A container has one task, so it is never its own; others may use the CPU, too, and they are in no container.
pub(crate) fn kinds_of_preempters_are_told_apart() {
    let (mut probes, cgroup, other) = (attach(), Cgroup::new(), Cgroup::new());
    for by in [Preempter::Container, Preempter::System] {
        let mut watched = vec![(&cgroup, "")];
        watched.extend((by == Preempter::Container).then_some((&other, "")));
        watch(&mut probes, &watched);
        let mut workers = [&cgroup, &other].map(|it| Worker::new(Some(it), 1, "hog rival 800"));
        let before = counters(&mut probes, &cgroup);
        workers.iter_mut().for_each(Worker::begin);
        workers.iter_mut().for_each(|worker| _ = worker.wait());
        let found = counters(&mut probes, &cgroup).since(&before);
        assert_eq!(times(&found, Preempter::Itself), 0, "{found:?}");
        assert!(times(&found, by) >= 5, "{by:?}: {found:?}");
        assert!(
            by == Preempter::Container || times(&found, Preempter::Container) == 0,
            "{found:?}"
        );
    }
}

/// Idle time of CPU 1 in hundredths of a second (Documentation/filesystems/proc.rst, "/proc/stat").
fn idle_of_cpu() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpu = stat.lines().find_map(|line| line.strip_prefix("cpu1 ")).unwrap();
    cpu.split_whitespace().skip(3).take(2).map(|it| it.parse::<u64>().unwrap()).sum()
}

/// A task that waits for the CPU then gets it, so only turns count in which the CPU was idle for half of the time.
pub(crate) fn a_group_that_has_used_up_its_quota_leaves_the_cpu_to_none() {
    let (mut probes, cgroup) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&cgroup, "")]);
    for _ in 0..10 {
        let mut worker = Worker::new(Some(&cgroup), 1, "hog poor 200");
        let Some(quota) = Quota::of(&cgroup, &worker, 5_000, 50_000) else {
            print!("(not here: no hierarchy bounds CPU time) ");
            return;
        };
        let (begun, idle) = (Instant::now(), idle_of_cpu());
        let before = (counters(&mut probes, &cgroup), quota.throttled());
        worker.begin();
        worker.wait();
        let found = counters(&mut probes, &cgroup).since(&before.0);
        let throttled = quota.throttled() - before.1;
        let idle = Duration::from_millis(10 * (idle_of_cpu().saturating_sub(idle)));
        let was_idle = idle > begun.elapsed() / 2;
        drop(worker);
        assert!(throttled >= 10, "{throttled} times throttled");
        let by_quota = times(&found, Preempter::Quota);
        assert!(by_quota <= throttled + 1, "{by_quota} of {throttled} times: {found:?}");
        if was_idle {
            print!("({by_quota} of {throttled} times) ");
            assert!(by_quota * 4 > throttled, "{by_quota} of {throttled} times: {found:?}");
            return;
        }
    }
    print!("(not seen: CPU 1 is never idle here) ");
}
