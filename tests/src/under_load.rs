//! A server under load, a hog that wants its CPUs, and a bystander, as containers of a node. In: how much of each. Out: how long the server's clients
//! wait, and which container the daemon blames.
//!
//! The programs are Debian's redis and stress-ng. Containers see those of the machine, because an image would have to hold their libraries, too. The
//! kernel is not told here what the cgroups of the QoS classes are worth, as kubelet would; where nothing else does, a hog of the lowest class gets
//! as much as the server.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_types::QosClass;

use crate::node::{LIMIT, Node, Placed};
use crate::process::{find_program, wait_for};

/// Names as the daemon tells them.
const SERVER: &str = "default/scenario-server/app";
/// As [`SERVER`].
const HOG: &str = "default/scenario-hog/app";

/// Of the server's first process; the others have those after it.
pub const PORT: u16 = 16379;

/// In which what is tried again would show.
const LOOKS_AFTER: u32 = 5;

/// What a hog wants beside CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HogKind {
    /// Nothing.
    #[default]
    Cpu,
    /// The way to memory: it copies what no cache holds.
    Memory,
}

impl HogKind {
    /// The one that `BAYPLAN_HOG` names.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn from_env() -> anyhow::Result<HogKind> {
        match std::env::var("BAYPLAN_HOG").as_deref() {
            Err(_) | Ok("cpu") => Ok(HogKind::Cpu),
            Ok("memory") => Ok(HogKind::Memory),
            Ok(other) => anyhow::bail!("BAYPLAN_HOG is {other}, not `cpu` or `memory`"),
        }
    }

    /// Options of stress-ng.
    fn options(self, processes: u32) -> String {
        match self {
            // Some of the other methods need instructions that an emulated processor does not have.
            HogKind::Cpu => format!("--cpu {processes} --cpu-method ackermann"),
            HogKind::Memory => format!("--stream {processes}"),
        }
    }
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Processes of the server, each of which has clients of its own.
    pub servers: u16,
    /// What the server asks for, in thousandths of a CPU.
    pub milli: u64,
    /// Processes of the hog.
    pub hogs: u32,
    /// What clients ask, as redis-benchmark understands it.
    pub asking: &'static [&'static str],
    /// Requests in a round.
    pub requests: u32,
    /// Looks of the rebalancer without a hog, in which it must find nothing.
    pub calm_looks: u32,
    /// Looks within which the hog must be found.
    pub looks: u32,
    /// How often the rebalancer is configured to look.
    pub interval: Duration,
    /// Rounds that are measured without and with the hog.
    pub rounds: usize,
}

/// What the server's clients have seen in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of the answers came within this, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 answers came within this, in milliseconds.
    pub p99_ms: f64,
}

impl Latency {
    /// The medians of some rounds.
    pub fn median(rounds: &[Latency]) -> Latency {
        let middle = |value: fn(&Latency) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Latency { p50_ms: middle(|it| it.p50_ms), p99_ms: middle(|it| it.p99_ms) }
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:.2} ms, p99 {:.2} ms", self.p50_ms, self.p99_ms)
    }
}

/// Clients that ask the server without a pause, until this is dropped.
#[derive(Debug)]
pub struct Load {
    is_over: Arc<AtomicBool>,
    rounds: Arc<Mutex<Vec<Latency>>>,
    askers: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Load {
    /// Waits for the server, and begins.
    ///
    /// # Errors
    /// The server does not answer, or redis is not installed.
    pub fn start(sizes: Sizes) -> anyhow::Result<Load> {
        let Sizes { servers, asking, requests, .. } = sizes;
        let program = find_program("redis-benchmark", "redis-tools")?;
        let (is_over, rounds) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Latency>>>::default());
        let mut askers = Vec::new();
        for port in PORT..PORT + servers {
            wait_for("the server", LIMIT, || Ok(TcpStream::connect(("127.0.0.1", port)).ok()))?;
            let (program, seen, told) =
                (program.clone(), Arc::clone(&is_over), Arc::clone(&rounds));
            askers.push(std::thread::spawn(move || {
                while !seen.load(Ordering::Relaxed) {
                    let latency = ask(&program, port, asking, requests)?;
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
                }
                Ok(())
            }));
        }
        Ok(Load { is_over, rounds, askers })
    }

    /// So many rounds that begin from now on.
    ///
    /// # Errors
    /// A round has failed, or they do not end in time.
    pub fn measure(&self, count: usize) -> anyhow::Result<Vec<Latency>> {
        // Those that are under way count for nothing.
        let first = self.done().len() + self.askers.len();
        let limit = LIMIT * u32::try_from(count + 1)?;
        wait_for("rounds of requests", limit, || {
            ensure!(self.askers.iter().all(|it| !it.is_finished()), "the clients have given up");
            Ok(self.done().get(first..first + count).map(<[Latency]>::to_vec))
        })
    }

    fn done(&self) -> Vec<Latency> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for asker in self.askers.drain(..) {
            if let Ok(Err(error)) = asker.join() {
                println!("  the clients: {error:#}");
            }
        }
    }
}

/// A round of requests.
fn ask(program: &Path, port: u16, asking: &[&str], requests: u32) -> anyhow::Result<Latency> {
    let mut round = Command::new(program);
    round.args(["-p", &port.to_string(), "--csv", "-n", &requests.to_string()]).args(asking);
    let done = round.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let said = || format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&done.stderr));
    parse_latency(&text).with_context(said)
}

/// From the last line of `redis-benchmark --csv`: test, requests per second, then milliseconds: average, least, p50, p95, p99, most.
fn parse_latency(csv: &str) -> Option<Latency> {
    let cells: Vec<&str> = csv.lines().last()?.split(',').collect();
    let number = |at: usize| cells.get(at)?.trim_matches('"').parse::<f64>().ok();
    Some(Latency { p50_ms: number(4)?, p99_ms: number(6)? })
}

/// A container that runs a program of the machine.
fn launch(node: &mut Node, name: &str, cpu: u64, script: &str) -> anyhow::Result<Placed> {
    let qos = if cpu > 0 { QosClass::Burstable } else { QosClass::BestEffort };
    let spec = running(ContainerSpec::burstable("app", cpu), script);
    node.launch(&PodSpec::new(&format!("scenario-{name}"), qos), &spec)
}

/// With programs of the machine.
fn running(spec: ContainerSpec, script: &str) -> ContainerSpec {
    ContainerSpec {
        command: ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec(),
        host_dirs: ["/usr", "/lib", "/lib64"].map(str::to_owned).to_vec(),
        ..spec
    }
}

/// redis, which Debian has under the name of another tool of redis's as well: which one it is it knows by its name.
///
/// # Errors
/// It is not installed, or does not start.
pub fn launch_server(node: &mut Node, servers: u16, milli: u64) -> anyhow::Result<Placed> {
    launch(node, "server", milli, &redis(servers)?)
}

/// A container that runs so many processes of redis, from [`PORT`] on.
///
/// # Errors
/// It is not installed.
pub fn with_redis(spec: ContainerSpec, servers: u16) -> anyhow::Result<ContainerSpec> {
    Ok(running(spec, &redis(servers)?))
}

fn redis(servers: u16) -> anyhow::Result<String> {
    let program = find_program("redis-check-rdb", "redis-tools")?;
    let run = |port: u16| {
        let program = program.display();
        format!(
            "exec -a redis-server {program} --port {port} --bind 127.0.0.1 --save '' --dir /tmp"
        )
    };
    let others: String =
        (PORT + 1..PORT + servers).map(|port| format!("({}) & ", run(port))).collect();
    Ok(format!("{others}{}", run(PORT)))
}

/// A container of the lowest class that wants so many CPUs, and what `kind` says.
///
/// # Errors
/// stress-ng is not installed, or does not start.
pub fn launch_hog(node: &mut Node, kind: HogKind, processes: u32) -> anyhow::Result<Placed> {
    let program = find_program("stress-ng", "stress-ng")?;
    let script = format!("exec {} {}", program.display(), kind.options(processes));
    launch(node, "hog", 0, &script)
}

/// A container of the lowest class that sleeps and wakes, and does no harm. Without starting processes, which costs a fifth of an emulated CPU.
fn launch_bystander(node: &mut Node) -> anyhow::Result<Placed> {
    let script = "/bin/busybox mkfifo /tmp/silent; exec 3<>/tmp/silent; while :; do read -t 0.1 word <&3; done";
    launch(node, "bystander", 0, script)
}

/// A server with its clients, and a bystander that does no harm.
#[derive(Debug)]
pub struct Stage {
    /// Of class Burstable.
    pub server: Placed,
    /// Of the lowest class.
    pub bystander: Placed,
    /// The clients.
    pub load: Load,
    sizes: Sizes,
}

impl Stage {
    /// Starts all but the hog.
    ///
    /// # Errors
    /// A program is not installed, or does not start.
    pub fn set(node: &mut Node, sizes: Sizes) -> anyhow::Result<Stage> {
        let server = launch_server(node, sizes.servers, sizes.milli)?;
        let bystander = launch_bystander(node)?;
        let load = Load::start(sizes)?;
        println!("  server on {}, bystander on {}", server.cpus, bystander.cpus);
        Ok(Stage { server, bystander, load, sizes })
    }

    /// Rounds that are measured.
    pub fn rounds(&self) -> usize {
        self.sizes.rounds
    }

    /// How long something may take to be found.
    fn patience(&self) -> Duration {
        self.sizes.interval * self.sizes.looks
    }

    /// While there is no hog no container is blamed.
    ///
    /// # Errors
    /// A container is blamed, or none is looked at.
    pub fn no_container_is_blamed(&self, node: &Node) -> anyhow::Result<()> {
        std::thread::sleep(self.sizes.interval * self.sizes.calm_looks);
        let calm = self.load.measure(self.sizes.rounds)?;
        tell_latency("without the hog", &calm);
        let view = node.rebalance()?;
        ensure!(view.proposals.is_empty(), "blamed without a hog: {:?}", view.proposals);
        ensure!(view.sampled >= 2, "the last look had samples of {}: {view:?}", view.sampled);
        node.look(&self.bystander.id).context("the bystander")?;
        Ok(())
    }

    /// Soon after it has come the hog is blamed, for the server's sake, and no other container is.
    ///
    /// # Errors
    /// It is not so.
    pub fn the_hog_is_blamed(&self, node: &Node) -> anyhow::Result<Vec<Latency>> {
        let begun = Instant::now();
        let found = self.wait_for_proposal(node, |_| true);
        if found.is_err() {
            tell_latency("while no container is blamed", &self.load.measure(self.sizes.rounds)?);
        }
        let first = found?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("  after {seconds:.1} s: {}\n{}", first.text, first.evidence);
        let noisy = self.load.measure(self.sizes.rounds)?;
        tell_latency("with the hog", &noisy);
        node.rebalance()?.proposals.iter().try_for_each(check_blame)?;
        Ok(noisy)
    }

    /// Something is turned on the hog.
    ///
    /// # Errors
    /// Nothing is, within the looks that it may take.
    pub fn wait_until_held(
        &self,
        node: &Node,
        is_turned: impl Fn() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        wait_for("the hog to be held", self.patience(), || Ok(is_turned()?.then_some(())))
            .with_context(|| format!("{:#?}", node.rebalance()))
    }

    /// With a process beside it that takes the CPUs as soon as something is turned on the hog, that cannot help: it is taken back. Gives what was.
    ///
    /// # Errors
    /// Nothing is turned, or it is not taken back.
    pub fn is_in_vain(
        &self,
        node: &Node,
        is_turned: impl Fn() -> anyhow::Result<bool>,
        take_cpus: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<ProposalView> {
        self.wait_until_held(node, is_turned)?;
        take_cpus()?;
        let tried = self.wait_for_proposal(node, |it| it.state.is_in_force())?;
        let judged =
            self.wait_for_proposal(node, |it| it.at == tried.at && !it.state.is_in_force())?;
        println!("  {}: {}", judged.text, judged.outcome);
        ensure!(judged.state == ProposalState::Undone, "it is {}", judged.state.name());
        Ok(judged)
    }

    /// What was in vain is not tried again although the server suffers as before, with only the hog beside it.
    ///
    /// # Errors
    /// It is, or no container is looked at, or none suffers.
    pub fn is_not_tried_again(&self, node: &Node, judged: &ProposalView) -> anyhow::Result<()> {
        let suffers = |text: &str| text.lines().any(|line| line == "bayplan_rebalance_victims 1");
        wait_for("the server to suffer again", LIMIT, || {
            Ok(suffers(&node.metrics()?).then_some(()))
        })?;
        std::thread::sleep(self.sizes.interval * LOOKS_AFTER);
        let view = node.rebalance()?;
        let mut later = view.proposals.iter().filter(|it| it.at > judged.at);
        let again = later.find(|it| it.knob == judged.knob && it.target == judged.target);
        ensure!(again.is_none(), "what was in vain is tried again: {again:?}");
        Ok(())
    }

    /// The first proposal of which something holds. None of those before it may blame another container than the hog.
    ///
    /// # Errors
    /// One does, or there is none within the looks that it may take.
    pub fn wait_for_proposal(
        &self,
        node: &Node,
        is_it: impl Fn(&ProposalView) -> bool,
    ) -> anyhow::Result<ProposalView> {
        let found = wait_for("a proposal", self.patience(), || {
            let proposals = node.rebalance()?.proposals;
            proposals.iter().try_for_each(check_blame)?;
            Ok(proposals.into_iter().find(&is_it))
        });
        found.with_context(|| format!("{:#?}", node.rebalance()))
    }
}

/// Prints the median of some rounds, and the p99 of each of them.
pub fn tell_latency(when: &str, rounds: &[Latency]) {
    let p99: Vec<f64> = rounds.iter().map(|it| it.p99_ms).collect();
    println!("  clients wait {} {when} (p99 of each round {p99:?})", Latency::median(rounds));
}

fn check_blame(found: &ProposalView) -> anyhow::Result<()> {
    match (found.victim.as_str(), found.target.as_str()) {
        (SERVER, HOG) => Ok(()),
        (victim, target) => bail!("{target} is blamed for {victim}: {found:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_read_from_its_last_line() {
        let head = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n";
        let row =
            "\"GET\",\"33783.79\",\"0.082\",\"0.024\",\"0.079\",\"0.135\",\"0.175\",\"16.311\"\n";
        let read = parse_latency(&format!("{head}{row}"));
        assert_eq!(read, Some(Latency { p50_ms: 0.079, p99_ms: 0.175 }));
        assert_eq!(parse_latency(head), None);
        assert_eq!(parse_latency(""), None);
    }

    #[test]
    fn one_slow_round_does_not_move_the_median() {
        let round = |p50_ms, p99_ms| Latency { p50_ms, p99_ms };
        let rounds = [round(1.0, 9.0), round(3.0, 7.0), round(2.0, 900.0)];
        assert_eq!(Latency::median(&rounds), round(2.0, 9.0));
    }
}
