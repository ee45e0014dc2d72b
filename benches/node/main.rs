//! What the daemon takes on a node full of containers that run: `cargo bench -p bayplan-benches --bench node -- all [--bayplan FILE]`, as root, a quarter of an hour.
//! Without the word it only says so, as a part of all benchmarks. With a file that is the program which is measured, as `target/package/bayplan`.
//!
//! Real containerd and runc start 250 containers through it. With none of them and with all, it is left alone for a minute, in one
//! configuration after the other, and then asked for its metrics; told are its CPU time, by the kernel's count, and its memory.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(clippy::print_stderr, reason = "a benchmark shows that it goes on")]

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{Node, SLEEP};
use bayplan_types::QosClass;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-bench");
/// As many as the scale that perf figures are given for.
const CONTAINERS: usize = 250;
/// For what a start does once, and until memory is as large as it becomes.
const SETTLES: Duration = Duration::from_secs(20);
/// Answers to `/metrics`.
const SCRAPES: u32 = 20;
/// Of one configuration.
const MEASURED: Duration = Duration::from_secs(60);

/// What is configured, and how it is called. The first is what an empty file means.
const CHOICES: &[(&str, &str)] = &[
    ("as it comes", ""),
    ("software counters", "counters: software\n"),
    ("no probes", "probes: \"off\"\n"),
    ("no probes, no rebalancer", "probes: \"off\"\nrebalance: {mode: \"off\"}\n"),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|arg| arg == "all") {
        println!(
            "{CONTAINERS} real containers take a quarter of an hour, and root: `--bench node -- all`"
        );
        return Ok(());
    }
    let program = match arguments.iter().position(|arg| arg == "--bayplan") {
        Some(at) => arguments.get(at + 1).context("--bayplan needs a file")?.as_str(),
        None => BAYPLAN,
    };
    let mut node = Node::start(Path::new(program), &SLEEP, CgroupDriver::Cgroupfs)?;
    let told = measure(&mut node);
    node.end(told)
}

fn measure(node: &mut Node) -> anyhow::Result<()> {
    println!(
        "containers  configuration             idle, % of a core  ms a scrape  MiB resident  anonymous"
    );
    for count in [0, CONTAINERS] {
        launch(node, count)?;
        for (name, config) in CHOICES {
            node.reconfigure(config)?;
            let Cost { idle, scrape, resident, anonymous } = Cost::of(node)?;
            println!(
                "{count:<12}{name:<26}{idle:>17.3}{scrape:>13.2}{resident:>14.1}{anonymous:>11.1}"
            );
        }
    }
    Ok(())
}

/// Small ones that share: this machine may have two CPUs.
fn launch(node: &mut Node, count: usize) -> anyhow::Result<()> {
    for number in 0..count {
        let (class, milli) = match number % 5 {
            0 => (QosClass::BestEffort, 0),
            _ => (QosClass::Burstable, 2),
        };
        let pod = PodSpec::new(&format!("one-of-many-{number}"), class);
        node.launch(&pod, &ContainerSpec::burstable("app", milli))?;
        if (number + 1) % 25 == 0 {
            eprintln!("{} of {count} containers run", number + 1);
        }
    }
    Ok(())
}

/// What a daemon takes that only Prometheus asks.
struct Cost {
    /// Percent of a core, by nothing but its own looks.
    idle: f64,
    /// Milliseconds of CPU time an answer to `/metrics`.
    scrape: f64,
    /// MiB.
    resident: f64,
    /// MiB of that which belong to no file.
    anonymous: f64,
}

impl Cost {
    fn of(node: &Node) -> anyhow::Result<Cost> {
        let pid = node.daemon_pid()?;
        node.metrics()?;
        sleep(SETTLES);
        let (began, before) = (Instant::now(), cpu_time(pid)?);
        sleep(MEASURED);
        let (took, idle) = (began.elapsed(), cpu_time(pid)?);
        for _ in 0..SCRAPES {
            node.metrics()?;
        }
        let scraped = cpu_time(pid)?.saturating_sub(idle);
        Ok(Cost {
            idle: 100.0 * (idle.saturating_sub(before)).as_secs_f64() / took.as_secs_f64(),
            scrape: 1e3 * scraped.as_secs_f64() / f64::from(SCRAPES),
            resident: mebibytes(pid, "VmRSS:")?,
            anonymous: mebibytes(pid, "RssAnon:")?,
        })
    }
}

/// Of all threads that it has or had, as the scheduler has counted it.
fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock_gettime(clock)?.into())
}

fn mebibytes(pid: u32, field: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no such field")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}
