//! The machine itself: whether it is what its name says, and whether bayplan reads it so.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use bayplan_tests::node::Node;
use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::hardware::Hardware;
use crate::{MACHINE, Test};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "the_machine_is_what_its_name_says",
        needs: |_| Ok(()),
        config: "",
        run: the_machine_is_what_its_name_says,
    },
    Test {
        name: "the_kernel_has_what_bayplan_uses",
        needs: |_| Ok(()),
        config: "",
        run: the_kernel_has_what_bayplan_uses,
    },
];

/// Two readings, by the files and by bayplan, of what the lab was told to make.
fn the_machine_is_what_its_name_says(_: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let due = fs::read_to_string(MACHINE)?;
    let nodes = hardware.nodes.iter().map(|node| node.cpus.to_string());
    let (packages, l3s) = (hardware.packages.len(), hardware.l3s.len());
    let shown = render(packages, l3s, hardware.cores.len(), hardware, nodes.collect());
    ensure!(shown == due, "the kernel shows\n{shown}, not\n{due}");

    let topology = bayplan_daemon::derive_machine(Path::new("/"))?;
    let nodes = topology.nodes().iter().map(|node| node.cpus.to_string());
    let n_of = |level| topology.objects().iter().filter(|it| it.level == level).count();
    let (packages, l3s, cores) = (n_of(Level::Package), n_of(Level::L3), topology.cores().len());
    let read = render(packages, l3s, cores, hardware, nodes.collect());
    ensure!(read == due, "bayplan reads\n{read}, not\n{due}");
    Ok(())
}

fn render(p: usize, l3s: usize, cores: usize, all: &Hardware, nodes: Vec<String>) -> String {
    let (cpus, isolated): (usize, &CpuSet) = (all.cpus.len(), &all.isolated);
    let nodes = nodes.join(" | ");
    format!(
        "packages {p}; l3s {l3s}; cores {cores}; cpus {cpus}; isolated {isolated}; nodes {nodes}"
    )
}

fn the_kernel_has_what_bayplan_uses(_: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")?;
    for controller in ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"] {
        let mut all = controllers.split_whitespace();
        ensure!(all.any(|it| it == controller), "no controller {controller} in {controllers}");
    }
    ensure!(Path::new("/sys/kernel/btf/vmlinux").is_file(), "no BTF");
    ensure!(Path::new("/sys/kernel/tracing/events/sched").is_dir(), "no tracepoints");
    Ok(())
}
