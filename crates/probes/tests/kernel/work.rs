//! Work that tests have done: a process of this same program, in a cgroup of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bayplan_probes::CgroupId;
use nix::sched::{CpuSet, sched_setaffinity, sched_yield};
use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// A cgroup (version 2) that goes with the value.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// A new one below the root of the hierarchy.
    pub(crate) fn new() -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mount.filter(|words| words[2] == "cgroup2").map(|words| words[1]).next();
        let mount = mount.expect("cgroup v2 is not mounted anywhere, which the probes need");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bayplan-probes-{}-{number}", std::process::id());
        Cgroup::make(Path::new(mount).join(name))
    }

    pub(crate) fn child(&self, name: &str) -> Cgroup {
        Cgroup::make(self.0.join(name))
    }

    fn make(path: PathBuf) -> Cgroup {
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Cgroup(path)
    }

    pub(crate) fn id(&self) -> CgroupId {
        CgroupId(fs::metadata(&self.0).unwrap().ino())
    }

    /// CPU time of all that ever ran in it, by the kernel, in ns.
    pub(crate) fn usage_ns(&self) -> u64 {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        usage.unwrap().parse::<u64>().unwrap() * 1000
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended is in it for a moment longer.
        for _ in 0..500 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("{} is left behind", self.0.display());
    }
}

/// A process that has come to its cgroup and its CPU, and waits for the word to begin.
pub(crate) struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

/// What the kernel has counted of a worker's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) exec_ns: u64,
    pub(crate) delay_ns: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Times that it left the CPU.
    pub(crate) switches: u64,
}

impl Worker {
    /// `work` is one of those in [`perform`], with its arguments.
    pub(crate) fn new(cgroup: Option<&Cgroup>, cpu: u32, work: &str) -> Worker {
        let dir = cgroup.map_or(String::from("-"), |cgroup| cgroup.0.display().to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--work", &dir, &cpu.to_string()])
            .args(work.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Worker { child, output }
    }

    pub(crate) fn begin(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "begin").unwrap();
    }

    /// Waits until the work is done, without ending the process.
    pub(crate) fn wait(&mut self) -> Counted {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let [exec_ns, delay_ns, faults, switches] = numbers.try_into().unwrap();
        Counted { exec_ns, delay_ns, faults, switches }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the worker: takes its place, waits for the word, works, says what the kernel has counted, and waits to be ended.
pub(crate) fn perform(args: &[&str]) {
    let [cgroup, cpu, work @ ..] = args else { panic!("{args:?}") };
    let cpu = cpu.parse().unwrap();
    if *cgroup != "-" {
        enter(cgroup);
    }
    // Afterwards: before Linux 6.2 a task that comes to a cgroup may run everywhere again.
    pin(cpu);
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let before = counted();
    match work {
        ["rest"] => {}
        ["hog", name, millis] => {
            fs::write("/proc/self/comm", name).unwrap();
            spin(millis.parse().unwrap(), std::hint::spin_loop);
        }
        ["yield", millis] => spin(millis.parse().unwrap(), || sched_yield().unwrap()),
        ["touch", pages] => touch(pages.parse().unwrap()),
        ["nap", times, millis] => {
            let nap = Duration::from_millis(millis.parse().unwrap());
            (0..times.parse::<u32>().unwrap()).for_each(|_| std::thread::sleep(nap));
        }
        ["bounce", a, b, times] => {
            let cpus: [usize; 2] = [b.parse().unwrap(), a.parse().unwrap()];
            for round in 0..times.parse::<usize>().unwrap() {
                pin(cpus[round % 2]);
            }
        }
        ["wander", millis, to] => {
            spin(millis.parse().unwrap(), std::hint::spin_loop);
            enter(to);
            pin(cpu);
            spin(millis.parse().unwrap(), std::hint::spin_loop);
        }
        other => panic!("{other:?}"),
    }
    let after = counted();
    let added: [u64; 4] = std::array::from_fn(|at| after[at] - before[at]);
    println!("{}", added.map(|it| it.to_string()).join(" "));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Time on a CPU and time in wait for one, in ns, page faults, and switches.
fn counted() -> [u64; 4] {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    let times: Vec<u64> = text.split_whitespace().map(|it| it.parse().unwrap()).collect();
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let counts = [
        usage.minor_page_faults() + usage.major_page_faults(),
        usage.voluntary_context_switches() + usage.involuntary_context_switches(),
    ];
    let [faults, switches] = counts.map(|it| u64::try_from(it).unwrap());
    [times[0], times[1], faults, switches]
}

/// Writes to so many pages that were never written to, ten thousand at a time: so much at once never comes from memory that was used before. Not in huge pages, of which
/// one fault brings five hundred at once.
fn touch(pages: u64) {
    const PAGE: usize = 4096;
    const AT_ONCE: usize = 10_000;
    set_thp_disable(true).unwrap();
    for _ in 0..usize::try_from(pages).unwrap() / AT_ONCE {
        let mut memory: Vec<u8> = Vec::with_capacity(AT_ONCE * PAGE);
        (0..AT_ONCE).for_each(|_| memory.extend_from_slice(&[1; PAGE]));
        std::hint::black_box(&memory);
    }
}

pub(crate) fn path(cgroup: &Cgroup) -> String {
    cgroup.0.display().to_string()
}

fn enter(cgroup: &str) {
    fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

/// Keeps a CPU busy with `step` until this process has had so much CPU time.
fn spin(millis: u64, step: impl Fn()) {
    let cpu_time = || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap());
    let end = cpu_time() + Duration::from_millis(millis);
    while cpu_time() < end {
        step();
    }
}
