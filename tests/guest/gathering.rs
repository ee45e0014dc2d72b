//! A server that clients wake from several last-level caches: the kernel takes its threads to the cache of the client that wakes them (`wake_affine` in kernel/sched/fair.c), and the rebalancer ties it to one.
//!
//! The server is in a container that shares the CPUs of a NUMA node; no CPU is named for it. It is redis, or threads of this program that take datagrams of one socket by turns. Its clients are threads of this program,
//! outside of containers, one on a CPU of each cache.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_tests::node::{LIMIT, Node, Placed, allowed_by_kernel};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{PORT, launch_server};
use bayplan_types::{CpuId, CpuSet, QosClass};

use crate::clients::{Ask, Asking, Clients, ask_redis, milliseconds_since, percentile};
use crate::hardware::Hardware;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "a_server_that_hops_between_caches_is_tied_to_one",
        needs: has_caches_in_a_node,
        config: OBSERVE,
        run: |node, hardware| {
            let server = launch_server(node, 1, 100)?;
            is_tied_to_one_cache(node, hardware, &server, ask_redis)
        },
    },
    Test {
        name: "threads_that_hop_between_caches_are_tied_to_one",
        needs: has_caches_in_a_node,
        config: OBSERVE,
        run: |node, hardware| {
            let server = launch_threads(node)?;
            is_tied_to_one_cache(node, hardware, &server, ask_threads)
        },
    },
];

/// An argument of this program: the server with threads.
pub(crate) const SERVE: &str = "--serve-datagrams";
/// As many as an L3 has CPUs here: more would wait for each other there.
const THREADS: usize = 2;

/// Until it is killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", PORT))?;
    let answer = || -> anyhow::Result<()> {
        let mut question = [0; 4];
        loop {
            let (_, client) = socket.recv_from(&mut question)?;
            let rounds = 5 * u32::from_ne_bytes(question);
            for it in 0..rounds {
                std::hint::black_box(it);
            }
            socket.send_to(&question, client)?;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(answer);
        }
        answer()
    })
}

/// The server with threads, in a container.
fn launch_threads(node: &mut Node) -> anyhow::Result<Placed> {
    let program = std::env::current_exe()?.display().to_string();
    let spec = ContainerSpec {
        command: vec![program, SERVE.to_owned()],
        host_dirs: ["/usr", "/lib", "/lib64"].map(str::to_owned).to_vec(),
        ..ContainerSpec::burstable("app", 100)
    };
    node.launch(&PodSpec::new("scenario-server", QosClass::Burstable), &spec)
}

const OBSERVE: &str = "reservedCpus: 0\nrebalance: {interval: 2s}\n";
const ACT: &str = "reservedCpus: 0\nrebalance: {mode: act, interval: 2s}\n";
/// Takes everything back.
const OFF: &str = "reservedCpus: 0\nobserveInterval: 2s\nrebalance: {mode: off}\n";

/// Names as the daemon tells them.
const SERVER: &str = "default/scenario-server/app";
/// Looks, and warm-up, until a proposal or a verdict.
const PATIENCE: Duration = Duration::from_secs(150);
/// After 24 looks it is known what is usual.
const CALM: Duration = Duration::from_secs(15);
/// Over which migrations are counted, and how often.
const WINDOW: Duration = Duration::from_secs(10);
const WINDOWS: usize = 5;
/// Between an answer and the next question, so that the server sleeps and is woken. Shorter ones keep all of an emulated machine busy.
const PAUSE: Duration = Duration::from_millis(5);
/// Rounds of work for an answer: the first with which the server is [`BUSY`]. How long they take depends on the host.
const WORKS: [u32; 6] = [0, 250, 500, 800, 1600, 3200];
/// CPUs that the server is to keep busy at least: one that does less than a quarter of a CPU is not judged.
const BUSY: f64 = 0.33;

fn has_caches_in_a_node(hardware: &Hardware) -> Needs {
    let has_several = |node: &CpuSet| {
        hardware.l3s.iter().filter(|l3| l3.is_subset(node) && *l3 != node).count() > 2
    };
    match hardware.places().any(|node| has_several(&node.cpus)) {
        true => Ok(()),
        false => Err("no node with several last-level caches"),
    }
}

fn is_tied_to_one_cache(
    node: &Node,
    hardware: &Hardware,
    server: &Placed,
    ask: Ask,
) -> anyhow::Result<()> {
    let caches: Vec<CpuSet> = hardware.l3s.iter().map(|l3| l3.intersection(&server.cpus)).collect();
    let caches: Vec<&CpuSet> = caches.iter().filter(|it| !it.is_empty()).collect();
    ensure!(caches.len() > 2, "{} lie in {} caches", server.cpus, caches.len());
    let own: Vec<CpuId> = caches.iter().filter_map(|it| it.iter().last()).collect();
    println!("  server on {}, clients on CPUs {own:?}", server.cpus);
    // First all of them in one cache, so that it is known what is usual.
    let cache: Vec<CpuId> = caches[0].iter().collect();
    let near: Vec<CpuId> = cache.iter().copied().cycle().take(own.len()).collect();
    let asking = Asking { ask, servers: 1, work: WORKS[0], pause: PAUSE };
    let clients = Clients::start(&near, asking);
    let work = keep_busy(&clients, node, server)?;
    measure(node, server, &clients, "clients in one cache")?;
    sleep(CALM);
    drop(clients);
    let clients = Clients::start(&own, Asking { work, ..asking });

    let before = measure(node, server, &clients, "before")?;
    let observed = proposal(node, ProposalState::Observed)?;
    println!("  {}\n{}", observed.text, observed.evidence);
    ensure!(kernels(server)? == server.cpus, "a CPU set was written in mode observe");

    node.write_config(ACT)?;
    let kept = proposal(node, ProposalState::Kept)?;
    println!("  {}: {}", kept.text, kept.outcome);
    let tied = kernels(server)?;
    let is_one = caches.iter().any(|cache| **cache == tied);
    ensure!(is_one, "the kernel has it on {tied}, which is no cache of {caches:?}");
    let after = measure(node, server, &clients, "tied to one cache")?;
    // It may be taken back while it is measured: waiting speaks against it at any time, and emulated CPUs wait for the host.
    let last = node.rebalance()?.proposals.into_iter().rfind(|it| it.number == kept.number);
    let last = last.context("the proposal that was kept")?;
    println!("  then it is {}, on {}: {}", last.state.name(), kernels(server)?, last.outcome);
    ensure!(before.to_caches > 10.0 * after.to_caches.max(1.0), "{before:?}, then {after:?}");

    node.write_config(OFF)?;
    let is_back = || Ok((kernels(server)? == server.cpus).then_some(()));
    wait_for("its CPUs to be as before", LIMIT, is_back)
        .with_context(|| format!("{:?}", kernels(server)))?;
    measure(node, server, &clients, "given back").map(drop)
}

/// By the kernel's account.
fn kernels(placed: &Placed) -> anyhow::Result<CpuSet> {
    allowed_by_kernel(placed.pid)?.context("the server has ended")
}

/// The first proposal about migrations in this state; the knob and the container must be those.
fn proposal(node: &Node, state: ProposalState) -> anyhow::Result<ProposalView> {
    let found = wait_for("a proposal", PATIENCE, || {
        let all = node.rebalance()?.proposals;
        let other = all.iter().find(|it| it.target != SERVER);
        ensure!(other.is_none(), "another container is named: {other:?}");
        Ok(all.into_iter().find(|it| it.knob == "gather" && it.state == state))
    });
    found.with_context(|| format!("{:#?}", node.rebalance()))
}

/// What was counted of the server in some windows, the median of each.
#[derive(Debug)]
struct Measured {
    /// Migrations to other last-level caches, per second and busy CPU.
    to_caches: f64,
}

fn measure(
    node: &Node,
    server: &Placed,
    clients: &Clients,
    when: &str,
) -> anyhow::Result<Measured> {
    let (mut near, mut far, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    clients.take();
    for _ in 0..WINDOWS {
        let (begun, used, moved) = (Instant::now(), used(server)?, moves(node)?);
        sleep(WINDOW);
        let took = begun.elapsed().as_secs_f64();
        let busy = used_since(server, used)?;
        let mut now = moves(node)?;
        now.iter_mut().for_each(|(within, count)| {
            *count -= moved.get(within).copied().unwrap_or_default();
        });
        let sum = |is_it: fn(&str) -> bool| -> f64 {
            now.iter().filter(|(within, _)| is_it(within)).map(|(_, count)| *count as f64).sum()
        };
        near.push(sum(|it| ["core", "l3"].contains(&it)) / busy);
        far.push(sum(|it| !["core", "l3"].contains(&it)) / busy);
        cpus.push(busy / took);
    }
    let answers = clients.take();
    let [near_median, far_median, busy] = [&mut near, &mut far, &mut cpus].map(|it| median(it));
    let [p50, p99] = [50, 99].map(|it| percentile(&answers, it));
    println!(
        "  {when}: migrations per second and busy CPU within a cache {near_median:.0}, to others {far_median:.0} ({far:.0?}); {busy:.2} CPUs busy; {} answers, p50 {p50:.2} ms, p99 {p99:.2} ms",
        answers.len(),
    );
    Ok(Measured { to_caches: far_median })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU time of the server's cgroup, in seconds.
fn used(server: &Placed) -> anyhow::Result<f64> {
    let stat = server.cgroup_file("cpu.stat")?;
    let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    Ok(micros.context("usage_usec")?.parse::<f64>()? / 1e6)
}

fn used_since(server: &Placed, before: f64) -> anyhow::Result<f64> {
    let busy = used(server)? - before;
    ensure!(busy > 0.0, "the server did nothing");
    Ok(busy)
}

/// Moves of its tasks by what holds both CPUs, as the probes have counted them for Prometheus.
fn moves(node: &Node) -> anyhow::Result<BTreeMap<String, u64>> {
    let metrics = node.metrics()?;
    let own = metrics.lines().filter(|line| {
        line.starts_with("bayplan_container_migrations_total{")
            && line.contains("pod=\"scenario-server\"")
    });
    let row = |line: &str| {
        let (_, rest) = line.split_once("within=\"")?;
        let (within, rest) = rest.split_once('"')?;
        Some((within.to_owned(), rest.rsplit_once(' ')?.1.parse().ok()?))
    };
    own.map(|line| row(line).with_context(|| line.to_owned())).collect()
}

/// Asks for so much that the server is [`BUSY`].
fn keep_busy(clients: &Clients, node: &Node, server: &Placed) -> anyhow::Result<u32> {
    for work in WORKS {
        clients.ask_for(work);
        sleep(Duration::from_secs(4));
        let (begun, before, moved) = (Instant::now(), used(server)?, moves(node)?);
        clients.take();
        sleep(Duration::from_secs(6));
        let took = begun.elapsed().as_secs_f64();
        let busy = (used(server)? - before) / took;
        let answers = clients.take().len() as f64 / took;
        let all = |moves: BTreeMap<String, u64>| moves.into_values().sum::<u64>();
        let moved = (all(moves(node)?) - all(moved)) as f64 / took;
        println!(
            "  work {work}: {answers:.0} answers/s, {busy:.2} CPUs busy, {moved:.0} migrations/s"
        );
        if busy >= BUSY {
            return Ok(work);
        }
    }
    Ok(WORKS[WORKS.len() - 1])
}

fn ask_threads(port: u16, next: &mut dyn FnMut(f64) -> Option<u32>) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.connect(("127.0.0.1", port))?;
    // A question that came before the server, or was dropped, is asked again.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut answer, mut work) = ([0; 4], 0_u32);
    loop {
        let begun = Instant::now();
        let answered = socket.send(&work.to_ne_bytes()).and_then(|_| socket.recv(&mut answer));
        let waited = if answered.is_ok() { milliseconds_since(begun) } else { f64::NAN };
        match next(waited) {
            Some(more) => work = more,
            None => return Ok(()),
        }
    }
}
