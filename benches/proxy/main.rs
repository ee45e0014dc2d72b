//! What bayplan costs between kubelet and a runtime, in one run against a direct connection and, where there is a Go toolchain, against
//! the least that a proxy in Go can be: latency, throughput, CPU time, memory, start.
//!
//! Runtime, bayplan and the Go proxy are processes of their own; the ways take turns, so that all see the same noise. The machine is a
//! synthetic one of 224 CPUs, the disk is the one below the temporary directory (`TMPDIR`).
//!
//! ```text
//! cargo bench -p bayplan-benches --bench proxy [-- --rounds N] [--idle SECONDS]
//! ```

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod go_proxy;
mod load;
mod process;
mod ways;

use std::time::Duration;

use load::{Call, Figures, measure};
use ways::{Ways, populate};

/// Containers that are there while calls are measured, a tenth of them with a CPU of their own.
const CONTAINERS: usize = 100;
/// Containers with which memory is measured.
const CONTAINERS_MANY: usize = 250;
const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    let option = |name: &str, default: u64| {
        let arguments: Vec<String> = std::env::args().collect();
        let at = arguments.iter().position(|argument| argument == name);
        at.map_or(default, |at| arguments[at + 1].parse().unwrap())
    };
    let (rounds, idle) = (option("--rounds", 20), Duration::from_secs(option("--idle", 20)));
    tokio::runtime::Runtime::new().unwrap().block_on(run(rounds, idle));
}

async fn run(rounds: u64, idle: Duration) {
    let ways = Ways::start().await;
    let bayplan = &ways.bayplan_process;
    println!("bayplan takes its first call {:.1} ms after it was started", ways.start_ms);
    let size = std::fs::metadata(ways::BAYPLAN).unwrap().len();
    println!("its executable has {:.1} MiB (profile of `cargo bench`)", size as f64 / MIB);
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("memory, idle: {}", bayplan.memory());
    let before = bayplan.cpu();
    tokio::time::sleep(idle).await;
    let share = (bayplan.cpu() - before).as_secs_f64() / idle.as_secs_f64();
    println!("CPU, idle for {idle:?}: {:.3} % of one", share * 100.0);

    for way in ways.all() {
        if !way.shares_runtime {
            populate(way, 0..CONTAINERS).await;
        }
    }
    println!("memory, {CONTAINERS} containers: {}", bayplan.memory());
    println!(
        "\n{:<28} {:>7} {:<8} {:>10} {:>10} {:>11} {:>9} {:>12}",
        "call", "clients", "way", "p50 us", "p99 us", "added p50", "calls/s", "CPU us/call"
    );
    for (call, clients, calls) in [
        (Call::Version, 1, 200),
        (Call::List, 1, 100),
        (Call::List, 64, 8),
        (Call::CreateShared, 1, 40),
        (Call::CreateShared, 64, 4),
        (Call::CreateExclusive, 1, 40),
        (Call::CreateExclusive, 64, 4),
    ] {
        print_figures(call, clients, &measure(&ways, call, clients, calls, rounds).await);
    }

    println!("\nmemory after that: {}", bayplan.memory());
    populate(&ways.bayplan, CONTAINERS..CONTAINERS_MANY).await;
    println!("memory, {CONTAINERS_MANY} containers: {}", bayplan.memory());
    if let Some(go) = &ways.go_process {
        println!("memory of the Go proxy: {}", go.memory());
    }
}

/// The first way is the direct one.
fn print_figures(call: Call, clients: usize, ways: &[Figures]) {
    let direct = ways[0].percentile(50);
    for figures in ways {
        let (half, most) = (figures.percentile(50), figures.percentile(99));
        let added = half - direct;
        println!(
            "{:<28} {clients:>7} {:<8} {half:>10.0} {most:>10.0} {added:>+11.0} {:>9.0} {:>12}",
            call.name(),
            figures.way,
            figures.calls_per_second(),
            figures.cpu_per_call().map_or("-".to_owned(), |cpu| format!("{cpu:.0}")),
        );
    }
}
