//! What stands in the files of a container's cgroup, and what every process in it is allowed.

use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_host::read_process_pinning;
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, NodeSet, QosClass};

use crate::Test;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "the_cgroup_has_what_the_pod_asked_for",
        needs: |hardware| hardware.has_cpus(4),
        config: "cpu: {liftQuota: false}\n",
        run: the_cgroup_has_what_the_pod_asked_for,
    },
    Test {
        name: "every_process_is_where_its_container_is",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: every_process_is_where_its_container_is,
    },
];

fn the_cgroup_has_what_the_pod_asked_for(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let spec = ContainerSpec::guaranteed("app", 2000, Bytes(64 << 20));
    let owner = node.launch(&PodSpec::new("owner", QosClass::Guaranteed), &spec)?;
    let told = node.status_of(&owner.id)?;
    for (file, due) in [
        ("cpuset.cpus", told.cpus.as_str()),
        ("cpuset.cpus.effective", told.cpus.as_str()),
        ("cpuset.mems", told.mems.as_str()),
        ("cpuset.mems.effective", told.mems.as_str()),
        ("cpu.max", "200000 100000"),
        ("memory.max", "67108864"),
    ] {
        let is = owner.cgroup_file(file)?;
        ensure!(is == due, "{file} is {is}, not {due}");
    }
    // How shares become a weight depends on the version of runc.
    let spec = ContainerSpec::burstable("app", 200);
    let small = node.launch(&PodSpec::new("small", QosClass::Burstable), &spec)?;
    ensure!(small.cgroup_file("cpu.max")?.starts_with("max "), "a limit that was not asked for");
    let weight = |text: String| text.parse::<u64>().context("cpu.weight");
    let (heavy, light) =
        (weight(owner.cgroup_file("cpu.weight")?)?, weight(small.cgroup_file("cpu.weight")?)?);
    ensure!((4..=20).contains(&(heavy / light)), "2 CPUs weigh {heavy}, 200 milli-CPU {light}");
    Ok(())
}

fn every_process_is_where_its_container_is(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let spec = ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20));
    let owner = node.launch(&PodSpec::new("owner", QosClass::Guaranteed), &spec)?;
    // Its first process has to start the second.
    let pinnings = wait_for("two processes", LIMIT, || {
        let pinnings = pinnings(&owner)?;
        Ok((pinnings.len() >= 2).then_some(pinnings))
    })?;
    for (pid, cpus, mems) in pinnings {
        ensure!(cpus == owner.cpus && mems == owner.mems, "process {pid} on {cpus}, {mems}");
    }
    Ok(())
}

/// What the kernel allows each process of the container's cgroup that is still there.
fn pinnings(of: &Placed) -> anyhow::Result<Vec<(u32, CpuSet, NodeSet)>> {
    let mut pinnings = Vec::new();
    for pid in of.cgroup_file("cgroup.procs")?.lines() {
        let pid = pid.parse()?;
        let pinning = read_process_pinning(Path::new("/"), pid)?;
        pinnings.extend(pinning.map(|(cpus, mems)| (pid, cpus, mems)));
    }
    Ok(pinnings)
}
