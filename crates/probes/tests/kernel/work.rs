//! Work that tests have done: a process of this same program, in a cgroup of its own.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bayplan_probes::{CgroupId, CounterChoice, Probes};
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, sched_yield, unshare};
use nix::sys::prctl::set_thp_disable;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, Uid, setuid};

use crate::tests::{attach_counting, machine};

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

/// Times that a task left its CPU, of its own accord or not (Documentation/filesystems/proc.rst, "/proc/PID/status").
pub(crate) fn switches_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    switches.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// A bound on the CPU time of a worker: of its own cgroup where that has the controller, else of one of version 1, which goes with the value.
pub(crate) struct Quota {
    stat: PathBuf,
    own: Option<PathBuf>,
}

impl Quota {
    /// So many microseconds in each period. `None` where nothing bounds CPU time.
    pub(crate) fn of(
        cgroup: &Cgroup,
        worker: &Worker,
        quota_us: u32,
        period_us: u32,
    ) -> Option<Quota> {
        let max = cgroup.0.join("cpu.max");
        if max.exists() {
            fs::write(max, format!("{quota_us} {period_us}")).unwrap();
            return Some(Quota { stat: cgroup.0.join("cpu.stat"), own: None });
        }
        let dir = Path::new("/sys/fs/cgroup/cpu").join(cgroup.0.file_name()?);
        if !dir.parent()?.is_dir() {
            return None;
        }
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("cpu.cfs_period_us"), period_us.to_string()).unwrap();
        fs::write(dir.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
        fs::write(dir.join("cgroup.procs"), worker.pid().to_string()).unwrap();
        Some(Quota { stat: dir.join("cpu.stat"), own: Some(dir) })
    }

    /// Times that it was used up (Documentation/scheduler/sched-bwc.rst, "Statistics").
    pub(crate) fn throttled(&self) -> u64 {
        let stat = fs::read_to_string(&self.stat).unwrap();
        let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        throttled.unwrap().parse().unwrap()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let Some(dir) = &self.own else { return };
        // The worker has ended, or is about to.
        for _ in 0..500 {
            if fs::remove_dir(dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that has come to its cgroup and its CPU, and waits for the word to begin.
pub(crate) struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    before: Counted,
}

/// What the kernel has counted of a worker's task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Time on a CPU.
    pub(crate) exec_ns: u64,
    /// Time in wait for one.
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
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut worker = Worker { child, output, before: Counted::default() };
        worker.expect("ready");
        worker.before = worker.at_rest();
        worker
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Moves it at once, whatever it does.
    pub(crate) fn pin(&self, cpu: usize) {
        pin_other(self.pid(), cpu);
    }

    pub(crate) fn begin(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "begin").unwrap();
    }

    /// Waits until the work is done, without ending the process. What was counted is from before the word to after the work, with the process off its CPU at both times:
    /// the kernel and the probes have charged everything then.
    pub(crate) fn wait(&mut self) -> Counted {
        self.expect("done");
        let (before, after) = (self.before, self.at_rest());
        Counted {
            exec_ns: after.exec_ns - before.exec_ns,
            delay_ns: after.delay_ns - before.delay_ns,
            faults: after.faults - before.faults,
            switches: after.switches - before.switches,
        }
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn expect(&mut self, word: &str) {
        assert_eq!(self.hear(), word);
    }

    /// Waits until the process sleeps, a minute at most, and gives what was counted of it so far (Documentation/filesystems/proc.rst, Documentation/scheduler/sched-stats.rst).
    fn at_rest(&self) -> Counted {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap();
        let stat = || -> Vec<String> {
            let text = read("stat");
            // After its name, which may have spaces.
            let (_, rest) = text.rsplit_once(") ").unwrap();
            rest.split(' ').map(str::to_owned).collect()
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state = stat().swap_remove(0);
            if state == "S" {
                break;
            }
            assert!(!["Z", "X"].contains(&state.as_str()), "the worker has ended");
            assert!(Instant::now() < deadline, "the worker does not rest, its state is {state}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        let (stat, times) = (stat(), read("schedstat"));
        let mut times = times.split(' ').map(number);
        Counted {
            exec_ns: times.next().unwrap(),
            delay_ns: times.next().unwrap(),
            faults: number(&stat[7]) + number(&stat[9]),
            switches: switches_of(self.child.id()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the worker: takes its place, waits for the word, works, says that it is done, and waits to be ended.
pub(crate) fn perform(args: &[&str]) {
    let [cgroup, cpu, work @ ..] = args else { panic!("{args:?}") };
    let cpu = cpu.parse().unwrap();
    if *cgroup != "-" {
        enter(cgroup);
    }
    // Afterwards: before Linux 6.2 a task that comes to a cgroup may run everywhere again.
    pin(cpu);
    // From the beginning, so that all that is charged to this name is counted.
    if let ["hog", name, ..] = work {
        fs::write("/proc/self/comm", name).unwrap();
    }
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let mut held = None;
    match work {
        ["rest"] => {}
        ["probe", cgroup] => {
            let mut probes = attach_counting();
            let owner = CgroupId(cgroup.parse().unwrap());
            probes.watch(&BTreeMap::from([(owner, "1".parse().unwrap())])).unwrap();
            held = Some(probes);
        }
        ["attach", lack] => tell_of_attaching(lack),
        ["spawn", times] => {
            let program = std::env::current_exe().unwrap();
            for _ in 0..times.parse::<u32>().unwrap() {
                assert!(
                    Command::new(&program)
                        .arg("--list")
                        .stdout(Stdio::null())
                        .status()
                        .unwrap()
                        .success()
                );
            }
        }
        ["hog", _, millis] => spin(millis.parse().unwrap(), std::hint::spin_loop),
        ["yield", millis] => spin(millis.parse().unwrap(), || sched_yield().unwrap()),
        ["touch", pages] => touch(pages.parse().unwrap()),
        ["read", disk, times] => read_past_the_cache(Path::new(disk), times.parse().unwrap()),
        ["send", times] => send_to_itself(times.parse().unwrap()),
        ["names", first, last] => {
            for number in first.parse::<u32>().unwrap()..last.parse().unwrap() {
                fs::write("/proc/self/comm", format!("name-{number}")).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        }
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
            let before = cpu_time();
            enter(to);
            println!("{}", (cpu_time() - before).as_nanos());
            pin(cpu);
            spin(millis.parse().unwrap(), std::hint::spin_loop);
        }
        other => panic!("{other:?}"),
    }
    println!("done");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(held);
}

/// What comes of it in a process that lacks something.
fn tell_of_attaching(lack: &str) {
    do_without(lack);
    match Probes::attach(&machine("pack:1 numa:1 l3:1 core:2 pu:1"), CounterChoice::Off) {
        Ok(_) => println!("attached"),
        Err(refusal) => println!("{refusal}"),
    }
}

/// Has this process lack something that the probes need.
fn do_without(what: &str) {
    match what {
        "nothing" => {}
        "capabilities" => {
            // A process that is not root any more has none.
            setuid(Uid::from_raw(65534)).unwrap();
        }
        "types" => {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            // In this process's mounts only, whatever others share with the machine's.
            let hide = "mount --make-rprivate / && mount -t tmpfs none /sys/kernel/btf";
            assert!(Command::new("sh").args(["-c", hide]).status().unwrap().success());
        }
        other => panic!("{other}"),
    }
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

/// Reads the first block of a disk again and again, each time from the disk, which answers with an interrupt.
fn read_past_the_cache(disk: &Path, times: u32) {
    const BLOCK: usize = 4096;
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(disk);
    let mut memory = vec![0; 2 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let block = &mut memory[start..start + BLOCK];
    (0..times).for_each(|_| file.as_ref().unwrap().read_exact_at(block, 0).unwrap());
}

/// Datagrams by the loopback device. The receiving side is a softirq on the CPU that sends.
fn send_to_itself(times: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    for _ in 0..times {
        socket.send(b"datagram").unwrap();
        socket.recv(&mut [0; 16]).unwrap();
    }
}

pub(crate) fn path(cgroup: &Cgroup) -> String {
    cgroup.0.display().to_string()
}

fn enter(cgroup: &str) {
    fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
}

fn pin(cpu: usize) {
    pin_other(0, cpu);
}

fn pin_other(pid: u32, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(pid.try_into().unwrap()), &cpus).unwrap();
}

/// Keeps a CPU busy with `step` until this process has had so much CPU time.
fn spin(millis: u64, step: impl Fn()) {
    let end = cpu_time() + Duration::from_millis(millis);
    while cpu_time() < end {
        step();
    }
}

/// CPU time of this process, to this moment.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}
