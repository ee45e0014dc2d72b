//! Time and memory of the way from sysfs to a topology: reading the tree of 224 CPUs from disk, deriving 224 and 1,024 CPUs. At the end,
//! reading and deriving against `lstopo-no-graphics` (Debian: hwloc-nox) started on the same tree, if it is there.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::alloc::System;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_host::{Depth, read_snapshot, write_snapshot};
use bayplan_topology::{Snapshot, Topology, derive, parse_machine};
use criterion::Criterion;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MACHINES: [(&str, &str); 2] =
    [("224 CPUs", "xeon-8480"), ("1,024 CPUs", "pack:8 numa:2 l3:4 core:8 pu:2")];
/// Rounds of the race against hwloc; the two take turns, so that both see the same noise.
const ROUNDS: usize = 40;

fn machine(spec: &str) -> Snapshot {
    parse_machine(spec).unwrap()
}

fn tree(spec: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write_snapshot(&machine(spec)).write_to(root.path()).unwrap();
    root
}

/// As the daemon does at its start and when a CPU comes or goes.
fn read_and_derive(root: &Path) -> Topology {
    derive(&read_snapshot(root, Depth::Placement).unwrap()).unwrap()
}

fn derive_machines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("derive");
    for (name, spec) in MACHINES {
        let snapshot = machine(spec);
        group.bench_function(name, |bencher| bencher.iter(|| derive(black_box(&snapshot))));
    }
    group.finish();
}

fn read_trees(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read a tree from disk");
    for (name, spec) in MACHINES {
        let root = tree(spec);
        for (how, depth) in [
            ("for placement", Depth::Placement),
            ("once per core", Depth::Cores),
            ("every file", Depth::Cpus),
        ] {
            group.bench_function(format!("{name}, {how}"), |bencher| {
                bencher.iter(|| read_snapshot(black_box(root.path()), depth));
            });
        }
    }
    group.finish();
}

/// What stays allocated, and how often memory was asked for.
fn measure_memory() {
    for (name, spec) in MACHINES {
        let snapshot = machine(spec);
        let region = Region::new(ALLOCATOR);
        let topology = derive(&snapshot).unwrap();
        let change = region.change();
        let kept = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
        println!(
            "a topology of {name}: {} KiB kept, {} allocations in derive, {} objects",
            kept >> 10,
            change.allocations,
            topology.objects().len()
        );
    }
}

fn race_hwloc() {
    let has_hwloc = Command::new("lstopo-no-graphics").arg("--version").output().is_ok();
    if !has_hwloc {
        println!("no lstopo-no-graphics to compare with; Debian has it in hwloc-nox");
        return;
    }
    let [(_, spec), _] = MACHINES;
    let root = tree(spec);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(time(|| drop(black_box(read_and_derive(root.path())))));
        theirs.push(time(|| start_hwloc(root.path())));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "224 CPUs, read and derive: {:.2} ms; lstopo on the same tree: {:.2} ms; {:.1} times as fast",
        ours.as_secs_f64() * 1e3,
        theirs.as_secs_f64() * 1e3,
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
}

fn start_hwloc(root: &Path) {
    let mut command = Command::new("lstopo-no-graphics");
    command
        .args(["--of", "xml"])
        .env("HWLOC_FSROOT", root)
        .env("HWLOC_COMPONENTS", "linux,stop")
        .env("HWLOC_THISSYSTEM", "0")
        .stdout(Stdio::null());
    assert!(command.status().unwrap().success());
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    derive_machines(&mut criterion);
    read_trees(&mut criterion);
    criterion.final_summary();
    measure_memory();
    race_hwloc();
}
