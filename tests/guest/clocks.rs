//! Containers that use wide vectors, and the clock domains (packages) that their strategy wants them in. That they use them is said by their pods: an emulated processor has no AVX-512, so the kernel's
//! word about its use is tested elsewhere (`crates/host/tests/vectors.rs`), and no frequency is behind it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::proposals::ProposalState;
use bayplan_tests::node::{LIMIT, Node, Placed, allowed_by_kernel};
use bayplan_tests::process::wait_for;
use bayplan_types::{CpuSet, QosClass};

use crate::Test;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[Test {
    name: "containers_with_wide_vectors_are_squeezed_into_a_package_and_spread_over_two",
    needs: |hardware| match hardware.packages.len() {
        2 => hardware.has_cpus(8),
        _ => Err("not two packages"),
    },
    config: SQUEEZE,
    run: they_are_squeezed_and_spread,
}];

const SQUEEZE: &str =
    "reservedCpus: 0\nrebalance: {interval: 3s}\nwideVectors: {burstable: squeeze}\n";
const SPREAD: &str =
    "reservedCpus: 0\nrebalance: {mode: act, interval: 3s}\nwideVectors: {burstable: spread}\n";
/// Without a strategy.
const NONE: &str = "reservedCpus: 0\nrebalance: {mode: act, interval: 3s}\n";
/// A container is looked at after half a minute where it is, and judged after three looks.
const PATIENCE: Duration = Duration::from_secs(150);

fn they_are_squeezed_and_spread(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let busy = ["/bin/busybox", "sh", "-c", "while :; do :; done"].map(str::to_owned).to_vec();
    let spec = ContainerSpec { command: busy, ..ContainerSpec::burstable("app", 500) };
    let annotations = vec![("bayplan.dev/wide-vectors".to_owned(), "true".to_owned())];
    let mut placed = Vec::new();
    for name in ["first", "second"] {
        let pod =
            PodSpec { annotations: annotations.clone(), ..PodSpec::new(name, QosClass::Burstable) };
        placed.push(node.launch(&pod, &spec)?);
    }
    let before = kernels(&placed)?;
    ensure!(before.is_of_one(hardware), "squeezed, they are on {before:?}");
    tell(node, "squeezed", &before)?;

    node.write_config(SPREAD)?;
    let found = wait_for("a move that is kept", PATIENCE, || {
        let all = node.rebalance()?.proposals;
        Ok(all.into_iter().find(|it| it.knob == "clock" && it.state == ProposalState::Kept))
    });
    let kept = found.with_context(|| format!("{:#?}", node.rebalance()))?;
    println!("  {}\n{}\n  {}", kept.text, kept.evidence, kept.outcome);
    let apart = kernels(&placed)?;
    ensure!(!apart.is_of_one(hardware), "spread, they are on {apart:?}");
    ensure!(apart.0[0] == before.0[0] || apart.0[1] == before.0[1], "both have moved: {apart:?}");
    tell(node, "spread", &apart)?;

    // Much sooner than by the five minutes for which all have to be well.
    node.write_config(NONE)?;
    wait_for("them to be as before", LIMIT, || Ok((kernels(&placed)? == before).then_some(())))
        .with_context(|| format!("{:?}", kernels(&placed)))?;
    let all = node.rebalance()?.proposals;
    let withdrawn = all.iter().find(|it| it.number == kept.number).context("the proposal")?;
    println!("  without a strategy: {:?}, {}", kernels(&placed)?, withdrawn.outcome);
    ensure!(withdrawn.state == ProposalState::Withdrawn, "{withdrawn:?}");
    Ok(())
}

/// Where the kernel lets each run.
#[derive(Debug, PartialEq)]
struct Sets([CpuSet; 2]);

impl Sets {
    /// All are of one package.
    fn is_of_one(&self, hardware: &Hardware) -> bool {
        hardware.packages.iter().any(|it| self.0.iter().all(|cpus| cpus.is_subset(it)))
    }
}

fn kernels(placed: &[Placed]) -> anyhow::Result<Sets> {
    let set = |at: usize| {
        let it = placed.get(at).context("two containers")?;
        allowed_by_kernel(it.pid)?.context("it has ended")
    };
    Ok(Sets([set(0)?, set(1)?]))
}

/// And what the status says of the packages.
fn tell(node: &Node, how: &str, sets: &Sets) -> anyhow::Result<()> {
    let clocks = node.status()?.clocks;
    let counts: Vec<String> =
        clocks.iter().map(|it| format!("{} on {}", it.containers, it.cpus)).collect();
    let [first, second] = &sets.0;
    println!("  {how}: {first} and {second}; by the status {}", counts.join(", "));
    let due = if how == "spread" { vec![1, 1] } else { vec![0, 2] };
    let mut found: Vec<usize> = clocks.iter().map(|it| it.containers).collect();
    found.sort_unstable();
    ensure!(found == due, "the status has {counts:?}");
    Ok(())
}
