//! How long a creation through the CRI proxy takes beside containers that have to leave CPUs for it, on a real containerd.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::containerd::Programs;
use bayplan_tests::node::{Node, Placed, SLEEP, Way, allowed_by_kernel};
use bayplan_types::{Bytes, QosClass};

use crate::{PER_POD, print_row};

/// Containers that run when creations are timed.
const LOADS: [usize; 3] = [0, 50, 100];
/// Creations at each load, with and without a pause between them.
const ROUNDS: usize = 10;
/// Between creations: the runtime is told what the last one has changed.
const SETTLES: Duration = Duration::from_secs(5);

pub(crate) fn measure(program: &Path) -> anyhow::Result<()> {
    println!("\nbayplan, CRI proxy");
    let (driver, programs) = (CgroupDriver::Cgroupfs, Programs::built()?);
    let mut node = Node::start_with(program, &SLEEP, driver, Way::Proxy, programs)?;
    let played = play(&mut node);
    node.end(played)
}

fn play(node: &mut Node) -> anyhow::Result<()> {
    let mut filling: Vec<Placed> = Vec::new();
    let mut pod = None;
    for load in LOADS {
        while filling.len() < load {
            let at = filling.len() % PER_POD;
            if at == 0 {
                let name = format!("scenario-fill{}", filling.len());
                pod = Some(node.run_pod(&PodSpec::new(&name, QosClass::Burstable))?);
            }
            let spec = ContainerSpec::burstable(&format!("c{at}"), 2);
            let id =
                node.answer(node.ask_to_create(pod.as_ref().context("a pod")?, &spec, 0))??;
            node.answer(node.ask_to_start(&id))??;
            filling.push(node.seen(&id)?.context("it runs")?);
        }
        for pause in [SETTLES, Duration::ZERO] {
            let mut times = Vec::new();
            for round in 0..ROUNDS {
                std::thread::sleep(pause);
                let what = || format!("round {round} beside {load}");
                times.push(come_and_go(node, &filling).with_context(what)?);
            }
            print_row(
                &format!("{load} containers, {pause:?} after the last"),
                "CreateContainer, exclusive",
                &times,
            );
        }
    }
    Ok(())
}

/// How long its creation takes. When it is answered, no other container is on its CPU.
fn come_and_go(node: &mut Node, filling: &[Placed]) -> anyhow::Result<Duration> {
    let pod = node.run_pod(&PodSpec::new("scenario-round", QosClass::Guaranteed))?;
    let spec = ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20));
    let asked = Instant::now();
    let id = node.answer(node.ask_to_create(&pod, &spec, 0))??;
    let took = asked.elapsed();
    let own = node.exclusive_of(&id)?;
    ensure!(own.len() == 1, "{own} of its own");
    for placed in filling {
        let cpus = allowed_by_kernel(placed.pid)?.context("it runs")?;
        ensure!(!cpus.intersects(&own), "{} is on {cpus}, {own} given away", placed.id);
    }
    node.end_pod(&pod)?;
    Ok(took)
}
