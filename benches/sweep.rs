//! What looking after the kernel files of 250 containers costs, with classes of everything and by default: `cargo bench -p bayplan-benches --bench sweep`.
//!
//! A daemon as a process, in front of the embedded runtime, on a machine and cgroups that are files in `/dev/shm`: real system calls, without the kernel's own work
//! behind them. With each configuration it is left alone twice, with a sweep every second and with none, and its CPU time, as the scheduler has counted it, is compared. Sweeps are counted by a file that each of them opens
//! once, since on a busy machine they take longer and come less often. What is told is a sweep, and what that is a second with one every 30 seconds (`sweepInterval`).

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be set up has nothing to go on with"
)]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec};
use bayplan_daemon::{FilePlanView, query_control};
use bayplan_host::write_snapshot;
use bayplan_node::status::Status;
use bayplan_topology::parse_machine;
use bayplan_types::{Bytes, QosClass};
use inotify::{Inotify, WatchMask};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::time::sleep;

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-bench");
const MACHINE: &str = "pack:2 numa:1 core:28 pu:2 mem:256";
const CPUS: usize = 112;
/// As many as the scale that perf figures are given for.
const CONTAINERS: usize = 250;
/// Of them, with a CPU of their own; the others share.
const OWNERS: usize = 50;
const THREADS: usize = 8;
/// The default.
const SWEEPS_EVERY: Duration = Duration::from_secs(30);
/// For what a start does once.
const SETTLES: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(30);
/// A look reads it once, so that it knows the files of groups.
const OPENED_ONCE: &str = "sys/fs/cgroup/cgroup.subtree_control";
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// The goal, in CPU time a second.
const GOAL: Duration = Duration::from_millis(1);

/// What would be counted, too.
const QUIET: &str = "
resyncInterval: 1h
probes: 'off'
rebalance: {mode: 'off'}
reservedCpus: '0'
";
/// By default limits of exclusive containers are lifted, and CPU sets looked after.
const DEFAULTS: &str = "";
const CLASSES: &str = "
cpu: {burstPercent: 50}
memory: {minPercent: 50, lowPercent: 20, highPercent: 90}
blockIo:
  classes:
    Guaranteed:
      - Weight: 200
      - {Devices: [/dev/vda], ThrottleWriteBps: 10M, LatencyMicroseconds: 75}
    Burstable:
      - Weight: 50
      - {Devices: [/dev/vda], ThrottleWriteBps: 1M, LatencyMicroseconds: 750}
resctrl:
  partitions:
    fast: {l3Allocation: 60%, classes: {Guaranteed: }}
    slow: {l3Allocation: 40%, classes: {Burstable: , system/default: }}
cpuClasses:
  classes:
    fast: {governor: performance, maxLatency: 10us}
    quiet: {governor: schedutil, maxFreq: 1GHz}
  exclusive: fast
  shared: quiet
";

/// A node in a directory.
struct Bench {
    dir: TempDir,
    kubelet: Kubelet,
    daemon: Option<Child>,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn host(&self, path: &str) -> PathBuf {
        self.path("host").join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.host(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn put_machine(&self) {
        write_snapshot(&parse_machine(MACHINE).unwrap()).write_to(&self.path("host")).unwrap();
        for (path, text) in [
            ("dev/vda", ""),
            ("sys/class/block/vda/dev", "254:0"),
            ("sys/dev/block/254:0/dev", "254:0"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory"),
            ("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu io memory"),
            ("sys/fs/resctrl/info/L3/cbm_mask", "fffff"),
            ("sys/fs/resctrl/info/L3/min_cbm_bits", "1"),
            ("sys/fs/resctrl/info/L3/num_closids", "16"),
            ("sys/fs/resctrl/info/L3/shareable_bits", "0"),
            ("sys/fs/resctrl/schemata", "L3:0=fffff;1=fffff"),
            ("sys/fs/resctrl/tasks", ""),
        ] {
            self.put(path, text);
        }
        for cpu in 0..CPUS {
            let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
            for (file, text) in [
                ("affected_cpus", cpu.to_string().as_str()),
                ("scaling_driver", "intel_cpufreq"),
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3000000"),
                ("scaling_available_governors", "performance powersave schedutil"),
                ("scaling_governor", "powersave"),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "3000000"),
            ] {
                self.put(&format!("{policy}/{file}"), text);
            }
            let latency = "power/pm_qos_resume_latency_us";
            self.put(&format!("sys/devices/system/cpu/cpu{cpu}/{latency}"), "0");
        }
    }

    /// A file takes whatever is written for all of it, so the threads of all containers are where they belong from the beginning.
    fn put_classes(&self) {
        let threads: Vec<String> =
            (1000..1000 + CONTAINERS * THREADS).map(|it| it.to_string()).collect();
        for class in ["Guaranteed", "Burstable"] {
            let group = format!("sys/fs/resctrl/bayplan.{class}");
            self.put(&format!("{group}/schemata"), "L3:0=1;1=1");
            self.put(&format!("{group}/tasks"), &threads.join("\n"));
        }
    }

    /// The files of the group, and of those above.
    fn put_groups(&self, status: &Status) {
        for (number, held) in status.containers.iter().enumerate() {
            let own = format!("{}/{}", held.cgroup_parent, held.id.as_ref().unwrap());
            let above = own.match_indices('/').skip(1).map(|(at, _)| &own[..at]);
            for group in above.chain([own.as_str()]) {
                for (file, text) in [
                    ("cgroup.stat", "nr_descendants 0"),
                    ("cgroup.type", "domain"),
                    ("cpu.max", "max 100000"),
                    ("cpu.max.burst", "0"),
                    ("io.latency", ""),
                    ("io.max", ""),
                    ("io.weight", "default 100"),
                    ("memory.high", "max"),
                    ("memory.low", "0"),
                    ("memory.min", "0"),
                ] {
                    self.put(&format!("sys/fs/cgroup{group}/{file}"), text);
                }
            }
            let first = 1000 + number * THREADS;
            let threads: Vec<String> = (first..first + THREADS).map(|it| it.to_string()).collect();
            for (file, text) in [
                ("cgroup.threads", threads.join("\n")),
                ("cpuset.cpus", held.cpus.clone()),
                ("cpuset.mems", held.mems.clone()),
            ] {
                self.put(&format!("sys/fs/cgroup{own}/{file}"), &text);
            }
        }
    }

    async fn start_daemon(&mut self, config: &str, sweep_interval: &str) {
        let dir = self.dir.path().display();
        let config = format!(
            "socket: {dir}/bayplan.sock\nruntimeSocket: {dir}/runtime.sock\ncontrolSocket: {dir}/control.sock\nstateDir: {dir}/state\n\
             metricsAddress: off\nhostRoot: {dir}/host\nsweepInterval: {sweep_interval}\n{QUIET}{config}"
        );
        let path = self.path("bayplan.yaml");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(BAYPLAN);
        command.arg("run").arg("--config").arg(path).stdin(Stdio::null());
        command.env("BAYPLAN_LOG", "warn");
        self.daemon = Some(command.spawn().unwrap());
        let socket = self.path("bayplan.sock");
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            assert!(self.daemon.as_mut().unwrap().try_wait().unwrap().is_none(), "it has ended");
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn stop_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    async fn launch(&mut self) {
        for number in 0..CONTAINERS {
            let (milli, qos) = match number < OWNERS {
                true => (1000, QosClass::Guaranteed),
                false => (100, QosClass::Burstable),
            };
            let spec = ContainerSpec::guaranteed("app", milli, Bytes(64 << 20));
            let whole = Some(spec.clone());
            let pod = PodSpec { whole, ..PodSpec::new(&format!("pod-{number}"), qos) };
            self.kubelet.launch(&pod, &spec).await.unwrap();
        }
    }

    /// Until everything is as wanted; how many values were changed for that.
    async fn until_in_line(&self) -> usize {
        loop {
            let socket = self.path("control.sock");
            let plan: FilePlanView = query_control(&socket, "/api/v1/plan").await.unwrap();
            assert_eq!((plan.impossible.len(), &plan.problems[..]), (0, &[][..]), "{plan:#?}");
            if plan.writes.is_empty() && plan.groups.is_empty() && plan.moves.is_empty() {
                assert_eq!((plan.failing, plan.contested), (0, 0), "{plan:#?}");
                return plan.changed;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// A daemon that is asked nothing.
    async fn measure(&mut self, config: &str, sweep_interval: &str) -> Measured {
        self.start_daemon(config, sweep_interval).await;
        let changed = self.until_in_line().await;
        sleep(SETTLES).await;
        let pid = self.daemon.as_ref().unwrap().id();
        let mut looks = Looks::of(&self.host(OPENED_ONCE));
        let (began, before) = (Instant::now(), cpu_time(pid));
        while began.elapsed() < MEASURED {
            sleep(LOOKS_EVERY).await;
            looks.count();
        }
        let (took, used) = (began.elapsed(), cpu_time(pid) - before);
        self.stop_daemon();
        Measured { a_second: used.div_f64(took.as_secs_f64()), used, looks: looks.seen, changed }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop_daemon();
    }
}

/// CPU time.
struct Measured {
    a_second: Duration,
    used: Duration,
    looks: u32,
    /// Values that bayplan has changed.
    changed: usize,
}

/// How often a file was opened. Openings that have not been read of yet are told as one (inotify(7)), so this is asked more often than a daemon
/// looks.
struct Looks {
    inotify: Inotify,
    seen: u32,
}

impl Looks {
    fn of(file: &Path) -> Looks {
        let inotify = Inotify::init().unwrap();
        inotify.watches().add(file, WatchMask::OPEN).unwrap();
        Looks { inotify, seen: 0 }
    }

    fn count(&mut self) {
        match self.inotify.read_events(&mut [0; 1024]) {
            Ok(events) => self.seen += u32::try_from(events.count()).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// Of all threads that it has or had.
fn cpu_time(pid: u32) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().unwrap())).unwrap();
    clock_gettime(clock).unwrap().into()
}

async fn start() -> Bench {
    // Not on a disk: its own work would be most of it.
    let dir = tempfile::tempdir_in(Path::new("/dev/shm")).unwrap();
    let listener = UnixListener::bind(dir.path().join("runtime.sock")).unwrap();
    tokio::spawn(async move {
        EmbeddedRuntime::new().serve(listener, std::future::pending()).await;
    });
    let kubelet = Kubelet::new(dir.path().join("bayplan.sock"), "test/app:1", &[], "");
    let mut bench = Bench { dir, kubelet, daemon: None };
    bench.put_machine();
    bench.start_daemon(DEFAULTS, "1s").await;
    bench.launch().await;
    let socket = bench.path("control.sock");
    let status: Status = query_control(&socket, "/api/v1/status").await.unwrap();
    bench.put_groups(&status);
    bench.until_in_line().await;
    bench.stop_daemon();
    bench
}

#[tokio::main]
async fn main() {
    let mut bench = start().await;
    for (name, config) in [("defaults", DEFAULTS), ("classes of everything", CLASSES)] {
        if config == CLASSES {
            bench.put_classes();
        }
        let without = bench.measure(config, "1h").await;
        let with = bench.measure(config, "1s").await;
        let (used, looks) = (with.used.saturating_sub(without.used), with.looks - without.looks);
        let sweep = used / looks;
        let a_second = sweep.div_f64(SWEEPS_EVERY.as_secs_f64());
        println!(
            "{CONTAINERS} containers, {name}, {} values that bayplan has changed: without sweeps {:.3?} of CPU time a second; of {looks} each takes {sweep:.2?}: \
             every {SWEEPS_EVERY:?} that is {a_second:.3?} a second (goal: {GOAL:?})",
            with.changed, without.a_second
        );
    }
}
