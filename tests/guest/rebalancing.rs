//! Which container suffers from which, and what is done about it, with real programs: a server beside a hog on the one CPU that is left to share.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_node::proposals::ProposalState;
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{HogKind, Latency, Sizes, Stage, launch_hog, tell_latency};
use bayplan_types::CpuSet;

use crate::Test;
use crate::files::Busy;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[Test {
    name: "a_hog_is_named_and_held_and_let_go_where_that_is_in_vain",
    needs: |hardware| match hardware.cpus.to_string().as_str() {
        "0-15" if hardware.isolated.is_empty() => Ok(()),
        _ => Err("other CPUs than 0-15"),
    },
    config: OBSERVE,
    run: a_hog_is_named_and_held,
}];

const OBSERVE: &str = "reservedCpus: 0-14\nrebalance: {interval: 3s}\n";
/// Takes everything back, and forgets what was tried.
const OFF: &str = "reservedCpus: 0-14\nrebalance: {mode: off}\n";
/// Without `idle`, which is for BestEffort pods among themselves: the server is in none.
const ACT: &str =
    "reservedCpus: 0-14\nrebalance: {mode: act, interval: 3s, forbid: [idle, evict]}\n";

const INTERVAL: Duration = Duration::from_secs(3);

/// Eight clients, so that there always is a request and the server wants all of its CPU, of which the hog takes half. Before
/// Linux 6.6 a process that sleeps in between has to wait as well; after that it hardly does, and only one that wants more than its share waits for
/// long.
const SIZES: Sizes = Sizes {
    servers: 1,
    milli: 10,
    hogs: 2,
    asking: &["-c", "8", "eval", "local x=0 while x<10000 do x=x+1 end return x", "0"],
    requests: 100,
    calm_looks: 7,
    looks: 30,
    interval: INTERVAL,
    rounds: 9,
};

fn a_hog_is_named_and_held(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let stage = Stage::set(node, SIZES)?;
    weigh(&stage.server, SIZES.milli, hardware)?;
    weigh(&stage.bystander, 0, hardware)?;
    stage.no_container_is_blamed(node)?;
    let hog = launch_hog(node, HogKind::Cpu, SIZES.hogs)?;
    weigh(&hog, 0, hardware)?;
    let free = limits(&hog)?;
    let noisy = stage.the_hog_is_blamed(node)?;
    ensure!(limits(&hog)? == free, "something was turned in mode observe: {:?}", limits(&hog)?);
    node.write_config(ACT)?;
    let held = holds(node, &stage, &hog, &free)?;
    tell_latency("while it is held", &held);
    let (noisy, held) = (Latency::median(&noisy), Latency::median(&held));
    let (p50, p99) = (held.p50_ms / noisy.p50_ms, held.p99_ms / noisy.p99_ms);
    // Only told: what else the host does in the meantime changes it more than a hog that is let go.
    println!("  held, they wait {p50:.2} (p50) and {p99:.2} (p99) times as long");
    node.write_config(OFF)?;
    are_back(&hog, &free)?;
    gives_up(node, &stage, &hog, &free)
}

/// What helps is kept, and the hog gets no more than is written. Gives what clients wait then.
fn holds(
    node: &Node,
    stage: &Stage,
    hog: &Placed,
    free: &[String; 2],
) -> anyhow::Result<Vec<Latency>> {
    let kept = stage.wait_for_proposal(node, |it| it.state == ProposalState::Kept)?;
    let now = limits(hog)?;
    println!("  {}: {}; {free:?} became {now:?}", kept.text, kept.outcome);
    ensure!(now != *free, "it is kept, and the files are as before");
    let (begun, used) = (Instant::now(), lowest_used(hog)?);
    let held = stage.load.measure(SIZES.rounds)?;
    let used = lowest_used(hog)?.saturating_sub(used).as_secs_f64();
    let (most, seconds) = (limit(&now[0])?, begun.elapsed().as_secs_f64());
    println!("  while held, the hog had {:.1} % of a CPU", 100.0 * used / seconds);
    // On an emulated CPU the kernel notices late that a limit is used up. Without one the hog has three quarters of the CPU.
    ensure!(used <= 2.0 * most * seconds, "the hog had {used} s of {seconds}, limit {most}");
    ensure!(limits(hog)? == now, "nothing was to change any more");
    Ok(held)
}

/// As soon as something is turned, a process in no container takes the CPU, so that it cannot help. It is taken back, and not tried again when that
/// process is gone and the server suffers from the hog as before.
fn gives_up(node: &Node, stage: &Stage, hog: &Placed, free: &[String; 2]) -> anyhow::Result<()> {
    let outsider = Outsider::waiting(&stage.server.cpus)?;
    node.write_config(ACT)?;
    let judged = stage.is_in_vain(node, || Ok(limits(hog)? != *free), || outsider.go())?;
    println!("  the outsider had {:.1} s of the CPU", outsider.cpu_time()?.as_secs_f64());
    drop(outsider);
    are_back(hog, free)?;
    stage.is_not_tried_again(node, &judged)?;
    let unrest = node.rebalance()?.unrest;
    ensure!(unrest.is_none(), "nothing is looked for: {unrest:?}");
    are_back(hog, free)
}

/// Of all BestEffort pods together, and of the hog's.
fn limits(hog: &Placed) -> anyhow::Result<[String; 2]> {
    Ok([hog.cgroup_file("../../cpu.max")?, hog.cgroup_file("../cpu.max")?])
}

/// CPUs that a `cpu.max` allows.
pub(crate) fn limit(cpu_max: &str) -> anyhow::Result<f64> {
    let (quota, period) = cpu_max.split_once(' ').context("a quota and a period")?;
    Ok(quota.parse::<f64>()? / period.parse::<f64>()?)
}

/// What all BestEffort pods together have used of CPUs.
pub(crate) fn lowest_used(hog: &Placed) -> anyhow::Result<Duration> {
    usage(&hog.cgroup_file("../../cpu.stat")?)
}

/// CPU time, of a `cpu.stat`.
fn usage(cpu_stat: &str) -> anyhow::Result<Duration> {
    let micros = cpu_stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    Ok(Duration::from_micros(micros.context("usage_usec")?.parse()?))
}

fn are_back(hog: &Placed, free: &[String; 2]) -> anyhow::Result<()> {
    let back =
        wait_for("limits to be as before", LIMIT, || Ok((limits(hog)? == *free).then_some(())));
    back.with_context(|| format!("{:?}, not {free:?}", limits(hog)))
}

/// Says what the pod, its class and all pods are worth, as kubelet does. Of the server's class it is the only one.
pub(crate) fn weigh(pod: &Placed, milli: u64, hardware: &Hardware) -> anyhow::Result<()> {
    let all = u64::try_from(hardware.cpus.len())? * 1000;
    for (group, milli) in [("..", milli), ("../..", milli), ("../../..", all)] {
        pod.write_cgroup_file(&format!("{group}/cpu.weight"), &weight(milli).to_string())?;
    }
    Ok(())
}

/// Kubelet makes shares of cgroup v1 of a request, at least 2, and a weight of these.
pub(crate) fn weight(milli: u64) -> u64 {
    let shares = (milli * 1024 / 1000).clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
}

/// Processes in no container that are worth more than all pods. They are frozen before, because it is not known how long it takes to start them on a
/// busy host, and a verdict comes within seconds.
struct Outsider {
    busy: Option<Busy>,
}

const OUTSIDE: &str = "/sys/fs/cgroup/outside";

impl Outsider {
    fn waiting(cpus: &CpuSet) -> anyhow::Result<Outsider> {
        fs::create_dir_all(OUTSIDE)?;
        let outsider = Outsider { busy: Some(Busy::start(cpus)?) };
        // Before Linux 6.2 a process that comes into a group may run on all of the group's CPUs, wherever it was told to run before.
        outsider.write("cpuset.cpus", &cpus.to_string())?;
        outsider.write("cpu.weight", "10000")?;
        outsider.write("cgroup.freeze", "1")?;
        outsider.busy.iter().try_for_each(|busy| busy.join(Path::new(OUTSIDE)))?;
        Ok(outsider)
    }

    fn go(&self) -> anyhow::Result<()> {
        self.write("cgroup.freeze", "0")
    }

    /// What it has taken of CPUs in this group.
    fn cpu_time(&self) -> anyhow::Result<Duration> {
        usage(&fs::read_to_string(Path::new(OUTSIDE).join("cpu.stat"))?)
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = Path::new(OUTSIDE).join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        drop(self.busy.take());
        // It stays until the kernel has seen all of them end.
        let _stays = fs::remove_dir(OUTSIDE);
    }
}
