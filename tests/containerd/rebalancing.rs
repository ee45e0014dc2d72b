//! redis and stress-ng on this machine, whatever else runs here: the victim is helped, and what does not help is taken back.
//!
//! Where cgroups are of version 1: there BestEffort pods are limited by `cpu.cfs_quota_us`. What else is done with kernel files is to be seen in a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::CgroupDriver;
use bayplan_daemon::derive_machine;
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{HogKind, Latency, Sizes, Stage, launch_hog, tell_latency};
use bayplan_types::CpuSet;
use nix::sys::signal::Signal;

use crate::audit::Hog;

const OBSERVE: &str = "rebalance: {interval: 1s}\n";
/// Takes everything back, and forgets what was tried.
const OFF: &str = "rebalance: {mode: off}\n";
const ACT: &str = "rebalance: {mode: act, interval: 1s, forbid: [evict]}\n";
/// Something else on this machine may be in the way of a verdict.
const TRIES: usize = 3;

pub(crate) fn run(bayplan: &Path) -> anyhow::Result<()> {
    let cpus = derive_machine(Path::new("/"))?.cpus().clone();
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let told = node.reset(OBSERVE).and_then(|()| named_and_held(&mut node, bayplan, &cpus));
    node.end(told)
}

/// A server that wants all CPUs, because there always is a request for each of its processes, of which the hog takes half: with less the scheduler of
/// Linux 6.6 and later finds room for it beside the hog. Requests take longer to answer than to ask, because clients are in no container, and the
/// rebalancer cannot take back what they use. Thirty looks for a finding, because a quiet one in between counts for the hog.
fn named_and_held(node: &mut Node, bayplan: &Path, cpus: &CpuSet) -> anyhow::Result<()> {
    let sizes = Sizes {
        servers: u16::try_from(cpus.len())?,
        milli: 500,
        asking: &["-c", "8", "eval", "local x=0 while x<10000 do x=x+1 end return x", "0"],
        hogs: u32::try_from(cpus.len())?,
        requests: 5000,
        calm_looks: 15,
        looks: 30,
        interval: Duration::from_secs(1),
        rounds: 9,
    };
    let stage = Stage::set(node, sizes)?;
    stage.no_container_is_blamed(node)?;
    let kind = HogKind::from_env()?;
    println!("  the hog is one of {kind:?}");
    let hog = launch_hog(node, kind, sizes.hogs)?;
    let noisy = stage.the_hog_is_blamed(node)?;
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        println!("mode act is not tested here: with cgroups of version 2 it is in a guest");
        return Ok(());
    }
    ensure!(limit(&hog)? == FREE, "something was turned in mode observe: {}", limit(&hog)?);
    let held = holds(node, &stage, &hog)?;
    tell_latency("while it is held", &held);
    let (noisy, held) = (Latency::median(&noisy), Latency::median(&held));
    let (p50, p99) = (held.p50_ms / noisy.p50_ms, held.p99_ms / noisy.p99_ms);
    // Only told: what else runs here changes it, too.
    println!("  held, they wait {p50:.2} (p50) and {p99:.2} (p99) times as long");
    is_free(node, &hog)?;
    is_given_back_after_sigkill(node, bayplan, &stage, &hog)?;
    gives_up(node, &stage, &hog)
}

/// What helps is kept. Gives what clients wait then.
fn holds(node: &Node, stage: &Stage, hog: &Placed) -> anyhow::Result<Vec<Latency>> {
    let kept = wait_for_kept(node, stage, hog)?;
    let held_to = limit(hog)?;
    println!("  {}: {}; cpu.cfs_quota_us is {held_to}", kept.text, kept.outcome);
    ensure!(kept.knob == "suppress", "it is {}", kept.knob);
    ensure!(held_to != FREE, "it is kept, and the file is as before");
    let lacking =
        "not every knob can be turned: there are no cgroups of version 2 with the controller cpu";
    let unrest = node.rebalance()?.unrest;
    ensure!(unrest.as_deref() == Some(lacking), "the node says {unrest:?}");
    let held = stage.load.measure(stage.rounds())?;
    ensure!(limit(hog)? == held_to, "nothing was to change any more");
    Ok(held)
}

/// What a daemon leaves that could not take it back is given back without one.
fn is_given_back_after_sigkill(
    node: &mut Node,
    bayplan: &Path,
    stage: &Stage,
    hog: &Placed,
) -> anyhow::Result<()> {
    let period = file(hog, PERIOD)?;
    node.write_config(ACT)?;
    stage.wait_until_held(node, || Ok(limit(hog)? != FREE))?;
    node.kill()?;
    ensure!(limit(hog)? != FREE, "the limit was taken back before SIGKILL");
    let mut restore = Command::new(bayplan);
    restore.args(["restore", "--files-only", "--config"]).arg(node.dir().join("bayplan.yaml"));
    let done = restore.output()?;
    let told = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).trim().to_owned());
    let now = [limit(hog)?, file(hog, PERIOD)?];
    ensure!(done.status.success() && now == [FREE, &period], "{now:?}: {told:?}");
    println!("  after SIGKILL: {}", told.concat());
    node.write_config(OFF)?;
    node.start_again()
}

/// Of all BestEffort pods together; no limit.
const FREE: &str = "-1";
const PERIOD: &str = "cpu.cfs_period_us";

/// Of all BestEffort pods together, in microseconds of a period.
fn limit(hog: &Placed) -> anyhow::Result<String> {
    file(hog, "cpu.cfs_quota_us")
}

/// What a file of the group of all BestEffort pods says.
fn file(hog: &Placed, name: &str) -> anyhow::Result<String> {
    let file = class_group(hog)?.join(name);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// The group of all BestEffort pods in the hierarchy `cpu`.
fn class_group(hog: &Placed) -> anyhow::Result<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{}/cgroup", hog.pid))?;
    let hierarchy = own.lines().filter_map(|line| line.split_once(':'));
    let mut named = hierarchy.filter_map(|(_, rest)| rest.split_once(':'));
    let (_, path) =
        named.find(|(names, _)| names.split(',').any(|it| it == "cpu")).context("no group")?;
    let class = Path::new(path).ancestors().nth(2).context("no class of pods")?;
    Ok(Path::new("/sys/fs/cgroup/cpu").join(class.strip_prefix("/")?))
}

fn wait_for_kept(node: &Node, stage: &Stage, hog: &Placed) -> anyhow::Result<ProposalView> {
    let mut last = None;
    for _ in 0..TRIES {
        node.write_config(ACT)?;
        match stage.wait_for_proposal(node, |it| it.state == ProposalState::Kept) {
            Ok(kept) => return Ok(kept),
            Err(error) => {
                println!("  not kept, tried once more: {error:#}");
                is_free(node, hog)?;
                last = Some(error);
            }
        }
    }
    Err(last.context("nothing was tried")?)
}

/// With everything taken back no container is limited. What was tried is forgotten once nothing is sampled any more: a limit can be as before without that.
fn is_free(node: &Node, hog: &Placed) -> anyhow::Result<()> {
    node.write_config(OFF)?;
    wait_for(
        "nothing to be sampled",
        LIMIT,
        || Ok((node.rebalance()?.sampled == 0).then_some(())),
    )?;
    is_let_go(hog)
}

fn is_let_go(hog: &Placed) -> anyhow::Result<()> {
    wait_for("the limit to be as before", LIMIT, || Ok((limit(hog)? == FREE).then_some(())))
}

/// As soon as the hog is held, processes in no container take all CPUs, so that it cannot help. It is taken back, and not tried again when they are
/// gone and the server suffers from the hog as before.
fn gives_up(node: &Node, stage: &Stage, hog: &Placed) -> anyhow::Result<()> {
    let outsiders = Outsiders::waiting(hog)?;
    node.write_config(ACT)?;
    let judged = stage.is_in_vain(node, || Ok(limit(hog)? != FREE), || outsiders.go())?;
    println!("  outsiders had {:.1} s of CPUs", outsiders.cpu_time()?.as_secs_f64());
    drop(outsiders);
    is_let_go(hog)?;
    stage.is_not_tried_again(node, &judged)?;
    is_let_go(hog)
}

/// Processes in no container, one on each CPU, that count for more than all pods and wait for SIGCONT. They are in a group beside those of pods, so that the clients, which are in
/// none, are as before.
struct Outsiders {
    hogs: Vec<Hog>,
    group: PathBuf,
}

impl Outsiders {
    fn waiting(beside: &Placed) -> anyhow::Result<Outsiders> {
        let pods = class_group(beside)?.parent().context("no group of all pods")?.to_owned();
        let mut outsiders = Outsiders { hogs: Vec::new(), group: pods.join("outside") };
        fs::create_dir_all(&outsiders.group)?;
        fs::write(outsiders.group.join("cpu.shares"), "262144")?;
        for cpu in beside.cpus.iter() {
            let hog = Hog::start(cpu.0)?;
            hog.signal(Signal::SIGSTOP)?;
            fs::write(outsiders.group.join("cgroup.procs"), hog.pid()?.to_string())?;
            outsiders.hogs.push(hog);
        }
        Ok(outsiders)
    }

    fn go(&self) -> anyhow::Result<()> {
        self.hogs.iter().try_for_each(|it| it.signal(Signal::SIGCONT))
    }

    fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.hogs.iter().map(Hog::cpu_time).sum()
    }
}

impl Drop for Outsiders {
    fn drop(&mut self) {
        self.hogs.clear();
        // It stays until the kernel has seen all of them end.
        let _stays = fs::remove_dir(&self.group);
    }
}
