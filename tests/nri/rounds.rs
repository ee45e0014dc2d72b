//! Rounds of trouble at random, against a real containerd. In: a seed. Out: after each round runtime, kernel and daemon agree about every container, no CPU has two holders, and what
//! ran before has not moved; and no creation has waited for longer than the runtime waits for a plugin.
//!
//! `BAYPLAN_NRI_ROUNDS` asks for more rounds than the few of an ordinary run, `BAYPLAN_NRI_SEED` for others; both are printed. The same seed gives the same rounds, though not the same
//! order of what happens at the same time.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_tests::node::{Asked, LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{CpuSet, MilliCpu, QosClass};
use tonic::Status;

use crate::life::{in_kernel, launch_sharer, one_cpu};

/// Rounds in an ordinary run: each kind of trouble once.
const ROUNDS: u64 = 8;
/// Updates under way when an event comes.
const WRITES: usize = 16;
/// A runtime that was stopped goes on after this.
const STOPPED: Duration = Duration::from_secs(3);
/// So long containerd waits for a plugin.
const PLUGIN_MAX: Duration = Duration::from_secs(2);
/// What a creation takes besides.
const SLACK: Duration = Duration::from_secs(5);
/// On a slow machine that is as many times what a sandbox takes: updates that are under way, each with a process of runc's, come first.
const SLACK_SANDBOXES: u32 = 20;

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// SIGKILL to the daemon so long after a creation was asked for.
    KilledInCreate(Duration),
    /// SIGKILL to the daemon between a creation and the start.
    KilledBeforeStart,
    /// SIGKILL to the daemon so long after its start, while it registers.
    KilledInSynchronize(Duration),
    /// SIGKILL to the runtime so long after a creation was asked for.
    RuntimeKilled(Duration),
    /// SIGTERM to the runtime so long after a creation was asked for.
    RuntimeEnded(Duration),
    /// SIGSTOP to the runtime so long after a creation was asked for, and SIGCONT later.
    RuntimeStopped(Duration),
    /// The runtime's socket for plugins is removed, and the daemon killed; until the runtime is started again there is no way back.
    SocketRemoved,
    /// Updates are under way when a container is created.
    WritesInFlight,
}

/// Numbers from a seed (SplitMix64; Steele, Lea and Flood 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Up to the time that a creation takes.
    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.next() % 60_000)
    }

    /// Each kind in turn, so that an ordinary run has all; what is slow is rare in a long one.
    fn trouble(&mut self, round: u64) -> Trouble {
        let kind = match round < ROUNDS {
            true => round,
            false => self.next() % 40,
        };
        match kind {
            0 | 8..=17 => Trouble::KilledInCreate(self.moment()),
            1 | 18..=22 => Trouble::KilledBeforeStart,
            2 | 23..=28 => Trouble::KilledInSynchronize(self.moment()),
            3 | 29..=30 => Trouble::RuntimeKilled(self.moment()),
            4 | 31 => Trouble::RuntimeEnded(self.moment()),
            5 => Trouble::RuntimeStopped(self.moment()),
            6 => Trouble::SocketRemoved,
            _ => Trouble::WritesInFlight,
        }
    }
}

fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    let said = env::var(name).ok();
    said.map_or(Ok(default), |text| {
        text.parse().with_context(|| format!("{name}={text}: no number"))
    })
}

/// What is there when a round begins.
struct Cast {
    /// On all CPUs that are not owned.
    sharer: Placed,
    /// The CPUs of the machine.
    all: CpuSet,
    /// One that owns a CPU.
    owner: Option<Placed>,
}

/// A pod that comes during a round, and the creation of its container.
struct Newcomer {
    pod: RunningPod,
    creation: Creation,
}

struct Creation {
    begun: Instant,
    /// What it may take.
    limit: Duration,
    asked: Asked<String>,
}

impl Creation {
    /// What was answered. It must not have waited for a plugin for longer than the runtime does, beside a pause of the runtime itself.
    fn answer(self, node: &Node, pause: Duration) -> anyhow::Result<Result<String, Status>> {
        let answer = node.answer(self.asked)?;
        let took = self.begun.elapsed();
        ensure!(took <= self.limit + pause, "a creation took {took:?}: {answer:?}");
        Ok(answer)
    }
}

pub(crate) fn play(node: &mut Node) -> anyhow::Result<()> {
    let (seed, rounds) = (number("BAYPLAN_NRI_SEED", 35)?, number("BAYPLAN_NRI_ROUNDS", ROUNDS)?);
    println!("BAYPLAN_NRI_SEED={seed} BAYPLAN_NRI_ROUNDS={rounds}");
    let mut numbers = Numbers(seed);
    let sharer = launch_sharer(node)?;
    let all = in_kernel(&sharer)?;
    for round in 0..rounds {
        let trouble = numbers.trouble(round);
        // With two CPUs either an old container or the new one can own one.
        let has_owner = numbers.next().is_multiple_of(3);
        let begun = Instant::now();
        let cast = Cast { sharer: sharer.clone(), all: all.clone(), owner: None };
        play_round(node, trouble, cast, has_owner).with_context(|| {
            format!("BAYPLAN_NRI_SEED={seed}, round {round}: {trouble:?}, owner {has_owner}")
        })?;
        println!("round {round}: {trouble:?}, {} ms", begun.elapsed().as_millis());
    }
    Ok(())
}

fn play_round(
    node: &mut Node,
    trouble: Trouble,
    mut cast: Cast,
    has_owner: bool,
) -> anyhow::Result<()> {
    let mut pods = Vec::new();
    if has_owner {
        let pod = run_pod_at_last(node, &PodSpec::new("scenario-old", QosClass::Guaranteed))?;
        let id = node.answer(node.ask_to_create(&pod, &one_cpu(), 0))??;
        cast.owner = Some(node.begin(&id)?);
        pods.push(pod);
    }
    let (qos, spec) = match has_owner {
        true => (QosClass::Burstable, ContainerSpec::burstable("app", 50)),
        false => (QosClass::Guaranteed, one_cpu()),
    };
    let begun = Instant::now();
    let pod = run_pod_at_last(node, &PodSpec::new("scenario-new", qos))?;
    let limit = PLUGIN_MAX + SLACK.max(begun.elapsed() * SLACK_SANDBOXES);
    let asked = node.ask_to_create(&pod, &spec, 0);
    let creation = Creation { begun: Instant::now(), limit, asked };
    let (pod, id) = strike(node, trouble, Newcomer { pod, creation }, &cast.sharer)?;
    pods.push(pod);
    node.wait_until_registered()?;
    if let Some(id) = &id {
        settle(node, id, &cast)?;
    }
    for pod in &pods {
        node.end_pod_at_last(pod)?;
    }
    wait_for("the sharer to have all again", LIMIT, || {
        Ok((in_kernel(&cast.sharer)? == cast.all).then_some(()))
    })?;
    wait_for("the others to be gone", LIMIT, || {
        Ok((node.status()?.containers.len() == 1).then_some(()))
    })
}

/// As kubelet does: a containerd that was killed may refuse the next sandbox, because of what it had begun ("failed to rename ... file exists").
fn run_pod_at_last(node: &mut Node, pod: &PodSpec) -> anyhow::Result<RunningPod> {
    let mut refused = None;
    let run = wait_for("a sandbox", LIMIT, || match node.run_pod(pod) {
        Ok(running) => Ok(Some(running)),
        Err(error) => {
            refused = Some(error);
            Ok(None)
        }
    });
    run.with_context(|| format!("the last answer: {refused:?}"))
}

/// Brings the trouble about, and gives the container if there is one, started.
fn strike(
    node: &mut Node,
    trouble: Trouble,
    Newcomer { pod, creation }: Newcomer,
    sharer: &Placed,
) -> anyhow::Result<(RunningPod, Option<String>)> {
    let at_once = Duration::ZERO;
    let id = match trouble {
        Trouble::KilledInCreate(after) => {
            std::thread::sleep(after);
            node.kill()?;
            let id = creation.answer(node, at_once)?.ok();
            start(node, id.as_deref())?;
            node.start_again()?;
            id
        }
        Trouble::KilledBeforeStart => {
            let id = creation.answer(node, at_once)??;
            node.kill()?;
            node.launch_daemon()?;
            start(node, Some(&id))?;
            Some(id)
        }
        Trouble::KilledInSynchronize(after) => {
            let id = creation.answer(node, at_once)??;
            start(node, Some(&id))?;
            node.kill()?;
            node.launch_daemon()?;
            std::thread::sleep(after);
            node.restart_after_kill()?;
            Some(id)
        }
        Trouble::RuntimeKilled(after) | Trouble::RuntimeEnded(after) => {
            std::thread::sleep(after);
            match trouble {
                Trouble::RuntimeKilled(_) => node.kill_runtime()?,
                _ => node.end_runtime()?,
            }
            let _cut_off = creation.answer(node, at_once)?;
            node.start_runtime_again()?;
            None
        }
        Trouble::RuntimeStopped(after) => {
            std::thread::sleep(after);
            node.hang_runtime(true)?;
            std::thread::sleep(STOPPED);
            node.hang_runtime(false)?;
            let id = creation.answer(node, STOPPED)?.ok();
            start(node, id.as_deref())?;
            id
        }
        Trouble::SocketRemoved => {
            std::fs::remove_file(node.nri_socket())?;
            let id = creation.answer(node, at_once)??;
            start(node, Some(&id))?;
            node.kill()?;
            node.launch_daemon()?;
            node.end_runtime()?;
            node.start_runtime_again()?;
            Some(id)
        }
        Trouble::WritesInFlight => {
            let writes = (0..WRITES).map(|at| node.ask_to_resize(&sharer.id, &sharing(at)));
            let writes: Vec<Asked<()>> = writes.collect();
            let id = creation.answer(node, at_once)??;
            start(node, Some(&id))?;
            for write in writes {
                node.answer(write)??;
            }
            Some(id)
        }
    };
    Ok((pod, id))
}

/// As kubelet does after a creation that has succeeded.
fn start(node: &Node, id: Option<&str>) -> anyhow::Result<()> {
    match id {
        Some(id) => Ok(node.answer(node.ask_to_start(id))??),
        None => Ok(()),
    }
}

/// What the sharer asks for in one of many updates.
fn sharing(at: usize) -> ContainerSpec {
    let millis = 200 + u64::try_from(at).unwrap_or_default();
    ContainerSpec { cpu_limit: Some(MilliCpu(millis)), ..ContainerSpec::burstable("app", 150) }
}

/// The owner, old or new, has the CPU that it asked for, and all that share have the others; by the kernel's, the runtime's and the daemon's account. The old one has not moved.
fn settle(node: &Node, id: &str, Cast { sharer, all, owner }: &Cast) -> anyhow::Result<()> {
    let owning = owner.as_ref().map_or(id, |it| it.id.as_str());
    let own = match owner {
        Some(owner) => owner.cpus.clone(),
        None => wait_for("the new one to have its CPU", LIMIT, || Ok(node.exclusive_of(id).ok()))?,
    };
    ensure!(node.exclusive_of(owning)? == own, "{own} is not owned");
    let rest = all.difference(&own);
    let due = |it: &str| if it == owning { &own } else { &rest };
    for it in [owning, id, &sharer.id] {
        wait_for("a container to be in place", LIMIT, || {
            Ok(node.glance(it)?.filter(|there| there.cpus == *due(it)))
        })
        .with_context(|| format!("{it} is to run on {}: {:?}", due(it), node.seen(it)))?;
    }
    let pids = owner.iter().chain([sharer]).map(|it| (&it.id, it.pid));
    for (id, pid) in pids {
        ensure!(node.look(id)?.pid == pid, "{id} is another process");
    }
    let counts = || anyhow::Ok((node.status()?.containers.len(), node.alive()?.len()));
    wait_for("all that are there to be known", LIMIT, || {
        counts().map(|(known, alive)| (known == alive).then_some(()))
    })
    .with_context(|| format!("known and there: {:?}", counts()))
}
