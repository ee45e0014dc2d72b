//! The probes in this kernel: that they can be attached, and that they count.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{CpuId, CpuSet, QosClass};
use nix::sched;
use nix::unistd::Pid;
use serde_json::Value;

use crate::exclusive::own;
use crate::files::processor;
use crate::hardware::Hardware;
use crate::{Test, driver};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "the_probes_count_in_this_kernel",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: |node, _| they_count(node),
    },
    Test {
        name: "moves_are_counted_by_what_holds_both_cpus",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: moves_are_counted_by_what_holds_both_cpus,
    },
];

/// Times that it goes there and back, for each distance.
const ROUNDS: usize = 10;

/// What holds both CPUs, as metrics and the audit call it.
fn distance(hardware: &Hardware, from: CpuId, to: CpuId) -> &'static str {
    let holds = |it: &CpuSet| it.contains(from) && it.contains(to);
    match () {
        () if hardware.cores.iter().any(holds) => "core",
        () if hardware.l3s.iter().any(holds) => "l3",
        () if hardware.nodes.iter().any(|it| holds(&it.cpus)) => "numa",
        () if hardware.packages.iter().any(holds) => "package",
        () => "machine",
    }
}

/// CPUs to go to, one after the other: for each distance that this machine has a pair, there and back.
fn journey(hardware: &Hardware, usable: &CpuSet) -> anyhow::Result<Vec<CpuId>> {
    let first = usable.first().context("no CPUs")?;
    let mut pairs = BTreeMap::new();
    for cpu in usable.iter().filter(|cpu| *cpu != first) {
        pairs.entry(distance(hardware, first, cpu)).or_insert(cpu);
    }
    let mut journey = vec![first];
    journey.extend(pairs.into_values().flat_map(|far| [far, first].repeat(ROUNDS)));
    Ok(journey)
}

/// A container that shares more than half of the machine, so all of it, and never sleeps: it is sent from CPU to CPU, and each of its moves is counted once, with the real distance.
fn moves_are_counted_by_what_holds_both_cpus(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let half = u64::try_from(hardware.cpus.difference(&hardware.isolated).len())? * 500;
    let busy = ["/bin/busybox", "sh", "-c", "while :; do :; done"].map(str::to_owned).to_vec();
    let container = ContainerSpec { command: busy, ..ContainerSpec::burstable("app", half + 1000) };
    let placed = node.launch(&PodSpec::new("traveller", QosClass::Burstable), &container)?;
    let journey = journey(hardware, &placed.cpus)?;
    send(&placed, journey[0])?;
    let before = moves(node)?;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (from, to) in journey.iter().zip(&journey[1..]) {
        send(&placed, *to)?;
        *expected.entry(distance(hardware, *from, *to).to_owned()).or_default() += 1;
    }
    let mut after = moves(node)?;
    for (within, count) in &before {
        after.entry(within.clone()).and_modify(|it| *it -= count);
    }
    after.retain(|_, count| *count > 0);
    println!("  moves: {after:?}");
    ensure!(after == expected, "{after:?} moves are counted, {expected:?} were made");
    Ok(())
}

/// Sends it there, and waits until it is.
fn send(placed: &Placed, cpu: CpuId) -> anyhow::Result<()> {
    let mut cpus = sched::CpuSet::new();
    cpus.set(usize::try_from(cpu.0)?)?;
    sched::sched_setaffinity(Pid::from_raw(i32::try_from(placed.pid)?), &cpus)?;
    wait_for("it to go there", LIMIT, || Ok((processor(placed.pid)? == cpu).then_some(())))
}

/// How often it was moved, by what holds both CPUs, when the probes were read after this.
fn moves(node: &Node) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut last = node.audit()?;
    // The next reading may have begun before.
    for _ in 0..2 {
        last = wait_for("the audit to be read again", LIMIT, || {
            Ok(Some(node.audit()?).filter(|audit| audit["at"] != last["at"]))
        })?;
    }
    let all = last["containers"].as_array().into_iter().flatten();
    let own = all.clone().find(|it| it["pod"] == "traveller");
    let own = own.with_context(|| format!("it is not watched: {last}"))?;
    Ok(serde_json::from_value(own["migrations"].clone())?)
}

/// Each is attached, and an intruder was seen on an owner's CPU.
pub(crate) fn they_count(node: &mut Node) -> anyhow::Result<()> {
    own(node, "owner", 2)?;
    let counts = |audit: &Value| {
        let mut all = audit["containers"].as_array().into_iter().flatten();
        // The owner sleeps, but timers and threads of the kernel come by.
        let is_seen = |it: &Value| it["intruders"].as_array().is_some_and(|it| !it.is_empty());
        all.any(|it| it["pod"] == "owner" && is_seen(it))
    };
    let counted = wait_for("the probes to count", LIMIT, || Ok(Some(node.audit()?).filter(counts)));
    let counted = counted.with_context(|| format!("{:?}", node.audit()))?;
    for probe in counted["probes"].as_array().context("a list of probes")? {
        let expected = if probe["name"] == "counters" { counters()? } else { "attached" };
        ensure!(probe["state"] == expected, "a probe is not {expected}: {probe}");
    }
    Ok(())
}

/// The guest's processor has no counters; under its unit the daemon does not get as far as that on kernels that are as strict as Debian's.
fn counters() -> anyhow::Result<&'static str> {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")?;
    let is_strict = paranoid.trim().parse::<i32>()? > 2;
    match driver() {
        CgroupDriver::Systemd if is_strict => Ok("refused"),
        _ => Ok("unsupported"),
    }
}
