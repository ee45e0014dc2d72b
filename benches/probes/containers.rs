//! What the user side takes to watch many containers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_host::counters::GroupFiles;
use bayplan_probes::{CounterChoice, Probes};
use bayplan_types::{CpuId, CpuSet};
use nix::sched::sched_setaffinity;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::cgroup::{Cgroup, enter};
use crate::{CHOICES, attach, millis};

const CONTAINERS: usize = 250;
/// Of each container.
const THREADS: usize = 8;
/// Of the processes that go by on an owned CPU; as many as are told by name.
const NAMES: u32 = 512;
/// Looks that are measured.
const LOOKS: u32 = 20;
/// How often the daemon looks by default (`rebalance.interval`).
const INTERVAL: Duration = Duration::from_secs(5);

/// A container of some threads that rest.
struct Container {
    child: Child,
    cgroup: Cgroup,
    files: GroupFiles,
}

impl Container {
    fn start() -> Container {
        let cgroup = Cgroup::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--rest")
            .arg(cgroup.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "resting\n");
        let dir = cgroup.path().strip_prefix("/").unwrap().to_str().unwrap();
        let files = GroupFiles::open(Path::new("/"), dir);
        Container { child, cgroup, files }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// In a container: rests until the input ends.
pub(crate) fn rest(cgroup: &str) {
    enter(cgroup);
    for _ in 1..THREADS {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    println!("resting");
    let _ = std::io::stdin().read_line(&mut String::new());
}

pub(crate) fn watch_many() {
    println!("\n{CONTAINERS} containers of {THREADS} threads, a look every {INTERVAL:?}");
    let mut containers: Vec<Container> = (0..CONTAINERS).map(|_| Container::start()).collect();
    for (name, choice) in CHOICES {
        let before = resident_bytes();
        let mut probes = watch(&containers, choice, &CpuSet::new());
        let drained = measure(|| drop(probes.drain(Instant::now()).unwrap()));
        let more = resident_bytes().saturating_sub(before);
        println!(
            "{name:<20}{:.2} ms of CPU time a look, {:.3} % of a core; {:.1} MiB more resident, {:.1} MiB of maps in the kernel",
            millis(drained),
            share(drained),
            mebibytes(more),
            mebibytes(map_bytes())
        );
    }
    let owned = CpuSet::from_iter([CpuId(1)]);
    let mut probes = watch(&containers, CounterChoice::Off, &owned);
    go_by_on_cpu(1);
    let drained = measure(|| drop(probes.drain(Instant::now()).unwrap()));
    drop(probes);
    println!(
        "{:<20}{:.2} ms of CPU time a look, {:.3} % of a core",
        format!("{NAMES} intruders"),
        millis(drained),
        share(drained)
    );
    let mut buffer = Vec::new();
    let read = measure(|| {
        containers.iter_mut().for_each(|it| drop(it.files.read(&mut buffer)));
    });
    println!(
        "{:<20}{:.2} ms of CPU time a look, {:.3} % of a core",
        "files of cgroups",
        millis(read),
        share(read)
    );
}

/// The first of them owns CPUs.
fn watch(containers: &[Container], choice: CounterChoice, owned: &CpuSet) -> Probes {
    let mut probes = attach(choice);
    let cpus = std::iter::once(owned.clone()).chain(std::iter::repeat(CpuSet::new()));
    let all = containers.iter().zip(cpus).map(|(it, cpus)| (it.cgroup.id(), cpus));
    probes.watch(&all.collect()).unwrap();
    probes
}

/// A thread of no container that runs there under one name after the other.
fn go_by_on_cpu(cpu: usize) {
    let thread = std::thread::spawn(move || {
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(cpu).unwrap();
        sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
        for number in 0..NAMES {
            fs::write("/proc/thread-self/comm", format!("name-{number}")).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    thread.join().unwrap();
}

/// CPU time of this process that one of them takes.
fn measure(mut look: impl FnMut()) -> Duration {
    let cpu_time = || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap());
    look();
    let before = cpu_time();
    (0..LOOKS).for_each(|_| look());
    (cpu_time() - before) / LOOKS
}

fn share(of_a_look: Duration) -> f64 {
    100.0 * of_a_look.as_secs_f64() / INTERVAL.as_secs_f64()
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// What the kernel keeps for the open maps of this process.
fn map_bytes() -> u64 {
    let files = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = files.filter_map(|it| fs::read_to_string(it.path()).ok());
    let of_map = |text: String| {
        text.contains("map_type").then_some(())?;
        let line = text.lines().find_map(|line| line.strip_prefix("memlock:"))?;
        line.trim().parse::<u64>().ok()
    };
    texts.filter_map(of_map).sum()
}
