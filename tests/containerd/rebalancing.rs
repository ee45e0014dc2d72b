//! redis and stress-ng on this machine, whatever else runs here: who suffers is helped, and what does not help is taken back.
//!
//! Where cgroups are of version 1, as on this project's own machines, nothing but CPU sets can be turned: the hog leaves half of the CPUs. What is done with kernel
//! files is to be seen in a guest.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::CgroupDriver;
use bayplan_daemon::{ProposalState, ProposalView, derive_machine};
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{Latency, Sizes, Stage, launch_hog, tell_latency};
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
    let told = node.reset(OBSERVE).and_then(|()| named_and_confined(&mut node, &cpus));
    node.end(told)
}

/// Thirty looks for a finding, because a quiet one in between counts for the hog.
fn named_and_confined(node: &mut Node, cpus: &CpuSet) -> anyhow::Result<()> {
    let sizes = Sizes {
        milli: 500,
        asking: &["-t", "get", "-c", "4"],
        hogs: u32::try_from(cpus.len())?,
        requests: 20_000,
        calm_looks: 15,
        looks: 30,
        interval: Duration::from_secs(1),
        rounds: 9,
    };
    let stage = Stage::set(node, sizes)?;
    stage.nobody_is_blamed(node)?;
    let hog = launch_hog(node, sizes.hogs)?;
    let noisy = stage.the_hog_is_blamed(node)?;
    ensure!(node.look(&hog.id)?.cpus == hog.cpus, "the hog was moved in mode observe");
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() || cpus.len() < 2 {
        println!("mode act is not tested here: it does something else with these cgroups");
        return Ok(());
    }
    let held = confines(node, &stage, &hog)?;
    tell_latency("while it is confined", &held);
    let (noisy, held) = (Latency::median(&noisy), Latency::median(&held));
    let (p50, p99) = (held.p50_ms / noisy.p50_ms, held.p99_ms / noisy.p99_ms);
    // Only told: what else runs here changes it, too.
    println!("  confined, they wait {p50:.2} (p50) and {p99:.2} (p99) times as long");
    is_free(node, &hog)?;
    gives_up(node, &stage, &hog)
}

/// What helps is kept. Gives what clients wait then.
fn confines(node: &Node, stage: &Stage, hog: &Placed) -> anyhow::Result<Vec<Latency>> {
    let kept = wait_for_kept(node, stage, hog)?;
    let cpus = node.look(&hog.id)?.cpus;
    println!("  {}: {}; it runs on {cpus}, not {}", kept.text, kept.outcome, hog.cpus);
    ensure!(kept.knob == "confine", "it is {}", kept.knob);
    ensure!(cpus.is_subset(&hog.cpus) && cpus != hog.cpus, "the hog runs on {cpus}");
    let lacking =
        "no kernel files can be turned: there are no cgroups of version 2 with the controller cpu";
    let unrest = node.rebalance()?.unrest;
    ensure!(unrest.as_deref() == Some(lacking), "the node says {unrest:?}");
    let held = stage.load.measure(stage.rounds())?;
    ensure!(node.look(&hog.id)?.cpus == cpus, "nobody was to change anything more");
    Ok(held)
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

/// With everything taken back it runs where it did.
fn is_free(node: &Node, hog: &Placed) -> anyhow::Result<()> {
    node.write_config(OFF)?;
    let is_back = || Ok((node.look(&hog.id)?.cpus == hog.cpus).then_some(()));
    wait_for("the hog to run everywhere", LIMIT, is_back)
}

/// As soon as the hog has left, somebody in no container takes all CPUs, so that it cannot help. It is taken back, and not tried again when he is gone and the
/// server suffers from the hog as before.
fn gives_up(node: &Node, stage: &Stage, hog: &Placed) -> anyhow::Result<()> {
    let outsiders: Vec<Hog> =
        hog.cpus.iter().map(|cpu| outsider(cpu.0)).collect::<Result<_, _>>()?;
    node.write_config(ACT)?;
    let has_left = || Ok((node.look(&hog.id)?.cpus != hog.cpus).then_some(()));
    let left = wait_for("the hog to be confined", stage.patience(), has_left);
    left.with_context(|| format!("{:#?}", node.rebalance()))?;
    outsiders.iter().try_for_each(|it| it.signal(Signal::SIGCONT))?;
    let tried = stage.wait_for_proposal(node, |it| it.state.is_in_force())?;
    let judged =
        stage.wait_for_proposal(node, |it| it.at == tried.at && !it.state.is_in_force())?;
    println!("  {}: {}", judged.text, judged.outcome);
    ensure!(judged.state == ProposalState::Undone, "it is {}", judged.state.name());
    for it in &outsiders {
        println!("  an outsider had {:.1} s of a CPU", it.cpu_time()?.as_secs_f64());
    }
    drop(outsiders);
    let is_back = || Ok((node.look(&hog.id)?.cpus == hog.cpus).then_some(()));
    wait_for("the hog to run everywhere", LIMIT, is_back)?;
    let suffers = |text: &str| text.lines().any(|line| line == "bayplan_rebalance_victims 1");
    wait_for("the server to suffer again", LIMIT, || Ok(suffers(&node.metrics()?).then_some(())))?;
    std::thread::sleep(Duration::from_secs(8));
    let view = node.rebalance()?;
    let mut later = view.proposals.iter().filter(|it| it.at > judged.at);
    let again = later.find(|it| it.knob == judged.knob && it.target == judged.target);
    ensure!(again.is_none(), "what was in vain is tried again: {again:?}");
    ensure!(node.look(&hog.id)?.cpus == hog.cpus, "the hog runs elsewhere again");
    Ok(())
}

/// A process in no container that counts for more than all pods on its CPU, and waits for SIGCONT.
fn outsider(cpu: u32) -> anyhow::Result<Hog> {
    let outsider = Hog::start(cpu)?;
    outsider.signal(Signal::SIGSTOP)?;
    let pid = outsider.pid()?.to_string();
    let reniced = Command::new("renice").args(["-n", "-20", "-p", &pid]).output()?;
    ensure!(reniced.status.success(), "renice: {}", String::from_utf8_lossy(&reniced.stderr));
    Ok(outsider)
}
