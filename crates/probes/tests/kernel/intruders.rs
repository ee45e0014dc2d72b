//! What else is on owned CPUs, against what the kernel counts of it: interrupts, softirqs and kernel threads.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bayplan_probes::{Identity, Softirq};
use nix::fcntl::OFlag;

use crate::tests::{attach, drain, watch};
use crate::work::{Cgroup, Worker, switches_of};

/// How often each row of a table of the kernel's (`/proc/interrupts`, `/proc/softirqs`; Documentation/filesystems/proc.rst) says that something came to CPUs 0 and 1, by
/// its name at the beginning, with what stands behind the numbers.
fn come_to_cpus(file: &str) -> BTreeMap<String, (u64, String)> {
    let text = fs::read_to_string(file).unwrap();
    let cpus: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    let rows = text.lines().skip(1).filter_map(|row| {
        let (name, rest) = row.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let counts = words.iter().zip(&cpus).filter(|(_, cpu)| ["CPU0", "CPU1"].contains(cpu));
        let sum = counts.map(|(count, _)| count.parse::<u64>().ok()).sum::<Option<u64>>()?;
        let action = words.get(cpus.len()..)?.last().copied().unwrap_or_default();
        Some((name.trim().to_owned(), (sum, action.to_owned())))
    });
    rows.collect()
}

/// Has a container own CPUs 0 and 1 while something happens there, and compares how often the audit names an intruder that `is_meant` with what the kernel counts. That is read
/// before and after the probes both times, so it is known as an interval; one of each may be under way at the moment of reading, and of so many in a hundred
/// programs are not told.
#[track_caller]
fn assert_counted(
    kernel: impl Fn() -> u64,
    untold: u64,
    happen: impl FnOnce(),
    is_meant: impl Fn(Identity, &str) -> bool,
) {
    let (mut probes, owner) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&owner, "0-1")]);
    let mut look = || {
        let before = kernel();
        let drain = drain(&mut probes);
        let list = drain.intrusions.get(&owner.id()).into_iter().flatten();
        let found = list.filter(|(intruder, _)| is_meant(intruder.identity, &intruder.name));
        let found = found.fold((0, 0), |sum, (_, it)| (sum.0 + it.times, sum.1 + it.ns));
        (before, found, kernel())
    };
    let before = look();
    happen();
    let after = look();
    let (times, ns) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
    let (least, most) = (after.0 - before.2, after.2 - before.0);
    print!("({times}, the kernel's {least} to {most}, in {} us) ", ns / 1000);
    assert!(least > 100, "{least} came, which is too few to tell");
    let untold = least * untold / 100;
    assert!(
        (least - untold - 2..=most + 2).contains(&times),
        "{times} times, by the kernel {least} to {most}"
    );
    assert!(ns > 0);
}

/// As [`assert_counted`], with the work of a stranger and a row of a table.
#[track_caller]
fn assert_row(file: &str, work: &str, row: &str, is_meant: impl Fn(Identity, &str) -> bool) {
    let mut worker = Worker::new(None, 1, work);
    let happen = || {
        worker.begin();
        worker.wait();
    };
    assert_counted(|| come_to_cpus(file)[row].0, 0, happen, is_meant);
}

struct DeletedAtEnd(PathBuf);

impl Drop for DeletedAtEnd {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// With the number and the name that `/proc/interrupts` has.
pub(crate) fn interrupts_are_those_that_the_kernel_counts() {
    let work = |disk: &str| format!("read {disk} 300");
    // A disk, or a file on one, that can be read past the cache and answers with interrupts on these CPUs, if there is any.
    let file = std::env::temp_dir().join(format!("bayplan-read-{}", std::process::id()));
    fs::write(&file, [0; 4096]).unwrap();
    let file = DeletedAtEnd(file);
    let disks = ["/dev/vda", "/dev/nvme0n1", "/dev/sda", file.0.to_str().unwrap()];
    let of_a_disk = disks.into_iter().find_map(|disk| {
        OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(disk).ok()?;
        let before = come_to_cpus("/proc/interrupts");
        let mut worker = Worker::new(None, 1, &work(disk));
        worker.begin();
        worker.wait();
        let after = come_to_cpus("/proc/interrupts");
        let risen = after.into_iter().filter(|(row, _)| row.parse::<u32>().is_ok());
        let mut risen = risen.filter(|(row, now)| now.0 >= before[row].0 + 200);
        risen.next().map(|(row, (_, action))| (disk, row, action))
    });
    let Some((disk, row, action)) = of_a_disk else {
        print!("(not here: no disk answers with interrupts on CPUs 0 and 1) ");
        return;
    };
    let number = Identity::Interrupt(row.parse().unwrap());
    assert_row("/proc/interrupts", &work(disk), &row, |identity, name| {
        assert!(identity != number || action.starts_with(name), "{name}, expected {action}");
        identity == number
    });
}

pub(crate) fn softirqs_are_those_that_the_kernel_counts() {
    // include/linux/interrupt.h
    const NET_RX: Identity = Identity::Softirq(Softirq(3));
    assert_row("/proc/softirqs", "send 3000", "NET_RX", |identity, _| identity == NET_RX);
}

/// The thread that stops what runs on CPU 1 (kernel/stop_machine.c): it comes each time when a running task may not stay there.
const STOPPER: &str = "migration/1";

fn pid_of(name: &str) -> u32 {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let is = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim_end() == name)
    };
    pids.find(is).unwrap_or_else(|| panic!("there is no thread {name}"))
}

pub(crate) fn a_kernel_thread_on_an_owners_cpu_is_named() {
    let stopper = pid_of(STOPPER);
    let mut worker = Worker::new(None, 1, "hog moved 600000");
    let happen = || {
        worker.begin();
        let enough = switches_of(stopper) + 150;
        let deadline = Instant::now() + Duration::from_secs(120);
        while switches_of(stopper) < enough {
            assert!(Instant::now() < deadline, "{STOPPER} has hardly come");
            for cpu in [0, 1] {
                worker.pin(cpu);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    };
    // Of switches, unlike of interrupts, programs are not told of each.
    assert_counted(
        || switches_of(stopper),
        2,
        happen,
        |identity, name| {
            assert!(name != STOPPER || identity == Identity::KernelThread, "{identity:?}");
            name == STOPPER
        },
    );
}
