//! One measurement inside of a node: starts the pods of a scenario, loads them, and reads what the load generators and the kernel say.
//!
//! Clients stand for other machines: they are in no container, on CPUs that the measured container does not own, and no background work delays them, because
//! they have a priority of real time. So what they wait for is the server.

mod chain;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_types::CpuSet;

use super::cell::Task;
use super::holding::{cpu_seconds, cpus_of, involuntary_switches, local_memory, seclusion};
use super::manifest::{
    Pod, Surroundings, affinity, kernel_command, network_script, noise_script, packets_script,
    redis_script, split_steps, steps_script, web_script,
};
use super::node::{Running, await_running, submit, wait_for};
use super::outputs::{parse_qperf, parse_redis, parse_stress_ng, parse_testpmd, parse_wrk};
use super::report::Measured;
use super::scenario::{
    BACKGROUND, CPUS, CPUS_ALONE, KERNELS, Kernel, LOCAL_MEMORY, MESSAGES, Noise, Orchestration,
    PAIR, Play, Qos, SWITCHES, pair,
};
use super::sizes::Sizes;
use super::statistics::Spread;

const REDIS: u16 = 6379;
/// Clients, bytes of a value, keys, and digits, as redis-benchmark understands them.
const ASKING: &str = "-c 50 -d 32 -r 10000 --precision 3";
const WEB: [u16; 2] = [8000, 8001];
/// Of each kernel where there are six, and where there are two.
const KERNEL_SECONDS: u32 = 2;
/// As [`KERNEL_SECONDS`].
const PAIR_SECONDS: u32 = 4;
/// Of load on a web server.
const WEB_SECONDS: &str = "5s";
/// Of each figure of qperf.
const QPERF_SECONDS: &str = "1";
/// Seconds of testpmd that are measured.
const PACKET_PERIODS: usize = 5;
/// Seconds that testpmd keeps to itself before it writes them.
const PACKET_LAG: usize = 4;
/// Load that is not measured, until caches and frequencies are as they stay.
const WARM_UP: Duration = Duration::from_secs(1);

/// What is at hand during a measurement.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    task: &'a Task,
    sizes: Sizes,
    online: CpuSet,
    surroundings: Surroundings,
    /// Containers by the name of their pod.
    running: BTreeMap<String, Running>,
    /// The pod that is measured.
    subject: Option<String>,
}

/// What is counted from a moment on.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// CPU seconds of background pods.
    background: Option<f64>,
    /// Involuntary switches of the measured pod.
    switches: Option<u64>,
}

/// Plays a scenario on a node that has started.
pub(crate) fn play(task: &Task, play: Play) -> anyhow::Result<Measured> {
    let online: CpuSet = fs::read_to_string("/sys/devices/system/cpu/online")?.trim().parse()?;
    let text = |path: &Path| path.display().to_string();
    let surroundings =
        Surroundings { unpacked: text(&task.programs.unpacked), out: text(&task.work.join("out")) };
    let sizes = Sizes::of(online.len());
    let mut stage =
        Stage { task, sizes, online, surroundings, running: BTreeMap::new(), subject: None };
    match play {
        Play::Redis { server, noise, beside } => stage.redis(server, noise, beside),
        Play::Aggressor => stage.aggressor(),
        Play::Colocated(first) => stage.colocated(first),
        Play::Alone => stage.alone(),
        Play::Web(orchestration) => stage.web(orchestration),
        Play::Network => stage.network(),
        Play::Packets => stage.packets(),
        Play::Affinity { is_near } => stage.affinity(is_near),
        Play::Chains(deployment) => stage.chains(deployment),
    }
}

impl Stage<'_> {
    fn run(&mut self, pod: Pod) -> anyhow::Result<Running> {
        submit(&pod.name, &pod.manifest(&self.surroundings))?;
        let running = await_running(&pod.name)?;
        self.running.insert(pod.name, running.clone());
        Ok(running)
    }

    /// Runs the pod that is measured.
    fn run_subject(&mut self, pod: Pod) -> anyhow::Result<Running> {
        self.subject = Some(pod.name.clone());
        self.run(pod)
    }

    fn redis(&mut self, server: Qos, noise: Noise, beside: Qos) -> anyhow::Result<Measured> {
        let running = self.run_subject(Pod::new("redis", server, 1000, redis_script(REDIS)))?;
        await_server("redis", REDIS)?;
        let Sizes { noise_workers, noise_milli, .. } = self.sizes;
        for name in ["background-1", "background-2"] {
            self.run(Pod::new(name, beside, noise_milli, noise_script(noise, noise_workers)))?;
        }
        sleep(WARM_UP);
        let client = |operation: &str, requests: &str| {
            let mut program = self.client(&running, 1, "/usr/bin/redis-benchmark")?;
            program.args(["-p", &REDIS.to_string(), "-t", operation, "-n", requests]);
            program.args(ASKING.split(' '));
            output(&mut program)
        };
        client("set", "10000")?;
        let before = self.mark(true);
        let mut values = BTreeMap::new();
        // Without CPUs that are promised an answer may take twenty times as long.
        let requests = if server == Qos::Guaranteed { "100000" } else { "40000" };
        for operation in ["set", "get"] {
            let told = parse_redis(&client(operation, requests)?)?;
            for (key, value) in [("p50", told.p50), ("p99", told.p99), ("p999", told.p999)] {
                values.insert(format!("{operation}_{key}"), value);
            }
        }
        Ok(self.measured(values, before))
    }

    fn affinity(&mut self, is_near: bool) -> anyhow::Result<Measured> {
        self.run_subject(Pod::new("redis", Qos::BestEffort, 0, redis_script(REDIS)))?;
        let ask = |operation| {
            let client = "/usr/bin/redis-benchmark";
            let command = format!("{client} -p {REDIS} {ASKING} -t {operation} -n 200000");
            (operation, command)
        };
        let script = steps_script("client", &["set", "get"].map(ask));
        let client = Pod::new("client", Qos::BestEffort, 0, script);
        self.run(Pod { annotations: affinity(is_near), ..client })?;
        await_server("redis", REDIS)?;
        sleep(WARM_UP);
        let before = self.mark(true);
        self.go()?;
        let mut values = BTreeMap::new();
        for (operation, text) in self.steps("client")? {
            let told = parse_redis(&text)?;
            values.insert(format!("{operation}_rps"), told.requests_per_second);
            values.insert(format!("{operation}_p50"), told.p50);
        }
        Ok(self.measured(values, before))
    }

    fn aggressor(&mut self) -> anyhow::Result<Measured> {
        let Sizes { half, beside_milli, aggressors, .. } = self.sizes;
        let noise = noise_script(Noise::Cpu, aggressors);
        self.run(Pod::new("background-1", Qos::Burstable, beside_milli, noise))?;
        let script = steps_script("victim", &sized(&KERNELS, half, KERNEL_SECONDS));
        self.run_subject(Pod::new("victim", Qos::Guaranteed, half * 1000, script))?;
        sleep(WARM_UP);
        let before = self.mark(false);
        self.go()?;
        let values = self.kernels("victim", |kernel| kernel.to_owned())?;
        Ok(self.measured(values, before))
    }

    fn colocated(&mut self, first: usize) -> anyhow::Result<Measured> {
        let pair = pair(first);
        let Sizes { half, beside_milli, .. } = self.sizes;
        let pods = [
            ("guaranteed", Qos::Guaranteed, half * 1000, pair.guaranteed),
            ("burstable", Qos::Burstable, beside_milli, pair.burstable),
        ];
        for (name, qos, milli, kernel) in pods {
            let script = steps_script(name, &sized(&[kernel], half, PAIR_SECONDS));
            self.run(Pod::new(name, qos, milli, script))?;
        }
        self.subject = Some("guaranteed".to_owned());
        sleep(WARM_UP);
        let before = self.mark(false);
        self.go()?;
        let [guaranteed, burstable] = pair.titles();
        let mut values = self.kernels("guaranteed", |_| guaranteed.clone())?;
        values.extend(self.kernels("burstable", |_| burstable.clone())?);
        Ok(self.measured(values, before))
    }

    fn alone(&mut self) -> anyhow::Result<Measured> {
        let half = self.sizes.half;
        let script = steps_script("alone", &sized(&PAIR, half, PAIR_SECONDS));
        self.run_subject(Pod::new("alone", Qos::Guaranteed, half * 1000, script))?;
        sleep(WARM_UP);
        let before = self.mark(false);
        self.go()?;
        let values = self.kernels("alone", |kernel| kernel.to_owned())?;
        Ok(self.measured(values, before))
    }

    fn web(&mut self, orchestration: Orchestration) -> anyhow::Result<Measured> {
        let Sizes { web, second_web_milli, .. } = self.sizes;
        let [port, second_port] = WEB;
        let pod = |name, milli, port| {
            let pod = Pod::new(name, Qos::Guaranteed, milli, web_script(port, web));
            // Without a whole CPU it cannot have one of its own.
            let is_whole = milli.is_multiple_of(1000);
            let (labels, annotations) = orchestration.metadata();
            if is_whole { Pod { labels, annotations, ..pod } } else { pod }
        };
        let measured = self.run_subject(pod("web-1", web * 1000, port))?;
        self.run(pod("web-2", second_web_milli, second_port))?;
        for port in WEB {
            await_server("nginx", port)?;
        }
        sleep(WARM_UP);
        let client = |port: u16| {
            let program = self.task.programs.unpacked.join("usr/bin/wrk");
            let mut program = self.client(&measured, web, &program.display().to_string())?;
            program.args([
                "-t",
                &web.to_string(),
                "-c",
                &(40 * web).to_string(),
                "-d",
                WEB_SECONDS,
            ]);
            program.arg("--latency").arg(format!("http://127.0.0.1:{port}/"));
            anyhow::Ok(program)
        };
        let before = self.mark(true);
        let mut other =
            client(second_port)?.stdout(Stdio::null()).spawn().context("cannot start wrk")?;
        let told = output(&mut client(port)?).and_then(|text| parse_wrk(&text));
        other.kill().and_then(|()| other.wait()).context("the second wrk")?;
        let told = told?;
        let values = [
            ("rps", told.requests_per_second),
            ("mean", told.mean),
            ("p90", told.p90),
            ("p99", told.p99),
        ];
        let values = values.map(|(key, value)| (key.to_owned(), value)).into();
        Ok(self.measured(values, before))
    }

    fn network(&mut self) -> anyhow::Result<Measured> {
        let server = Pod::new("qperf", Qos::Guaranteed, 1000, network_script());
        let running = self.run_subject(Pod { has_network: true, ..server })?;
        ensure!(!running.address.is_empty(), "the pod has no address");
        let client = |size: u32| {
            let program = self.task.programs.unpacked.join("usr/bin/qperf");
            let mut program = self.client(&running, 1, &program.display().to_string())?;
            program.args([running.address.as_str(), "-t", QPERF_SECONDS, "-m", &size.to_string()]);
            parse_qperf(&output(program.args(["-uu", "tcp_bw", "tcp_lat"]))?)
        };
        let mut values = BTreeMap::new();
        let mut told = |when: &str, size: u32, (bytes, nanoseconds): (f64, f64)| {
            values.insert(format!("bw_{when}_{size}"), bytes / 1e6);
            values.insert(format!("latency_{when}_{size}"), nanoseconds / 1e3);
        };
        for size in MESSAGES {
            told("alone", size, client(size)?);
        }
        let noise = noise_script(Noise::Cpu, 2 * self.sizes.aggressors);
        let hog = Pod::new("background-1", Qos::Burstable, self.sizes.noise_milli, noise);
        submit(&hog.name, &hog.manifest(&self.surroundings))?;
        let hog = await_running(&hog.name)?;
        sleep(WARM_UP);
        for size in MESSAGES {
            told("noisy", size, client(size)?);
        }
        self.running.insert("background-1".to_owned(), hog);
        let nothing_counted = Mark { background: None, ..self.mark(false) };
        Ok(self.measured(values, nothing_counted))
    }

    fn packets(&mut self) -> anyhow::Result<Measured> {
        self.run_subject(Pod::new("testpmd", Qos::Guaranteed, 1000, packets_script("testpmd")))?;
        let file = self.task.work.join("out/testpmd.txt");
        // Millions per second in so many periods that begin from now on.
        let rate = || {
            let before = parse_testpmd(&fs::read_to_string(&file).unwrap_or_default());
            let first = before.len() + PACKET_LAG;
            let limit = Duration::from_secs(60);
            let text = wait_for("packets", limit, || {
                let text = fs::read_to_string(&file).unwrap_or_default();
                let is_complete = parse_testpmd(&text).len() >= first + PACKET_PERIODS;
                Ok(is_complete.then_some(text))
            })?;
            let rates = parse_testpmd(&text).into_iter().skip(first).take(PACKET_PERIODS);
            let spread = Spread::of(&rates.collect::<Vec<f64>>()).context("rates")?;
            anyhow::Ok(spread.median / 1e6)
        };
        let mut values = BTreeMap::from([("packets_alone".to_owned(), rate()?)]);
        let noise = noise_script(Noise::Cpu, 2 * self.sizes.aggressors);
        self.run(Pod::new("background-1", Qos::Burstable, self.sizes.noise_milli, noise))?;
        sleep(WARM_UP);
        let before = self.mark(true);
        values.insert("packets_noisy".to_owned(), rate()?);
        Ok(self.measured(values, before))
    }

    /// Lets compute kernels begin.
    fn go(&self) -> anyhow::Result<()> {
        Ok(fs::write(self.task.work.join("out/go"), "")?)
    }

    /// What a pod's steps have printed, by their keys, once all have.
    fn steps(&self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let file = self.task.work.join(format!("out/{name}.txt"));
        // A starved kernel takes longer than its seconds to end.
        wait_for(name, Duration::from_secs(180), || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let steps = split_steps(&text).map(|it| {
                it.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
            });
            Ok(steps)
        })
    }

    /// Milliseconds per operation of each kernel that a pod has run.
    fn kernels(
        &self,
        name: &str,
        key: impl Fn(&str) -> String,
    ) -> anyhow::Result<BTreeMap<String, f64>> {
        let steps = self.steps(name)?;
        let time =
            |(kernel, text): &(String, String)| Ok((key(kernel), 1000.0 / parse_stress_ng(text)?));
        steps.iter().map(time).collect()
    }

    /// A load generator for a container, on so many of the lowest CPUs that the container does not own.
    fn client(&self, of: &Running, cpus: usize, program: &str) -> anyhow::Result<Command> {
        let own = cpus_of(&of.container)?;
        let others = self.online.difference(&own);
        let from = if others.is_empty() { &self.online } else { &others };
        Ok(load_generator(self.task, &from.iter().take(cpus).collect(), program))
    }

    /// Where counters are now. Switches count only of processes that stay (`are_lasting`): what has ended takes its counts along.
    fn mark(&self, are_lasting: bool) -> Mark {
        let pods = self.running.iter().filter(|(name, _)| name.starts_with("background"));
        let seconds: Vec<f64> = pods.filter_map(|(_, it)| cpu_seconds(&it.container)).collect();
        let subject = self.subject.as_ref().and_then(|it| self.running.get(it));
        let subject = subject.filter(|_| are_lasting);
        Mark {
            at: Instant::now(),
            background: (!seconds.is_empty()).then(|| seconds.iter().sum()),
            switches: subject.and_then(|it| involuntary_switches(&it.container)),
        }
    }

    /// With where the kernel lets everything run now, and what was counted since `before`.
    fn measured(&self, mut values: BTreeMap<String, f64>, before: Mark) -> Measured {
        let now = self.mark(before.switches.is_some());
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let background =
            before.background.zip(now.background).map(|(from, to)| (to - from) / seconds);
        values.extend(background.map(|it| (BACKGROUND.to_owned(), it)));
        let switches = before.switches.zip(now.switches).and_then(|(from, to)| {
            let switches = u32::try_from(to.checked_sub(from)?).ok()?;
            Some(f64::from(switches) / seconds)
        });
        values.extend(switches.map(|it| (SWITCHES.to_owned(), it)));
        let cpus = self.running.iter().map(|(name, it)| (name.as_str(), cpus_of(&it.container)));
        let cpus: Vec<(&str, anyhow::Result<CpuSet>)> = cpus.collect();
        let subject = self.subject.as_deref().and_then(|it| Some((it, self.running.get(it)?)));
        if let Some((name, running)) = subject {
            let local = local_memory(&running.container);
            values.extend(local.map(|it| (LOCAL_MEMORY.to_owned(), it)));
            let known = cpus.iter().map(|(name, it)| (*name, it.as_ref().ok().cloned())).collect();
            if let Some((all, alone)) = seclusion(name, &known) {
                let counts = [(CPUS, all), (CPUS_ALONE, alone)];
                let count = |(key, count): (&str, usize)| {
                    Some((key.to_owned(), f64::from(u32::try_from(count).ok()?)))
                };
                values.extend(counts.into_iter().filter_map(count));
            }
        }
        let shown = cpus.into_iter().map(|(name, it)| {
            let text = it.map_or_else(|error| format!("{error:#}"), |it| it.to_string());
            (name.to_owned(), text)
        });
        Measured { values, cpus: shown.collect() }
    }
}

/// A load generator on these CPUs, before which nothing else runs there.
fn load_generator(task: &Task, cpus: &CpuSet, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", "chrt", "--fifo", "1", "taskset", "--cpu-list", &cpus.to_string()]);
    command.arg(program).env("LD_LIBRARY_PATH", task.programs.libraries());
    command.stdin(Stdio::null());
    command
}

/// Waits until a server on this machine accepts connections.
fn await_server(name: &str, port: u16) -> anyhow::Result<()> {
    let connect = || Ok(TcpStream::connect(("127.0.0.1", port)).ok());
    wait_for(name, Duration::from_secs(30), connect).map(drop)
}

/// Commands of kernels with the number of their processes.
fn sized(kernels: &[Kernel], processes: usize, seconds: u32) -> Vec<(&'static str, String)> {
    let processes = processes.to_string();
    let size = |(name, arguments): &Kernel| {
        (*name, kernel_command(&arguments.replace('N', &processes), seconds))
    };
    kernels.iter().map(size).collect()
}

/// What a load generator prints.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.output().context("cannot run timeout")?;
    let text = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    ensure!(done.status.success(), "{:?}: {}: {}", command.get_args(), done.status, text.concat());
    Ok(text.concat())
}
