//! What bayplan costs between kubelet and a runtime, in one run against a direct connection and, where there is a Go toolchain, against
//! the least that a proxy in Go can be: latency, throughput, CPU time, memory, start.
//!
//! Runtime, bayplan and the Go proxy are processes of their own, new for each run; the ways take turns, so that all see the same noise. The
//! machine is a synthetic one of 224 CPUs, the disk is the one below the temporary directory (`TMPDIR`). Figures are medians of the runs, with
//! the lowest and the highest; what was measured, and where, is in `README.md`.
//!
//! ```text
//! cargo bench -p bayplan-benches --bench proxy [-- --runs N] [--rounds N] [--idle SECONDS] [--bayplan PROGRAM] [--no-go]
//! cargo bench -p bayplan-benches --bench proxy -- --beside 0,100,250,500 [--runs N] [--rounds N] [--bayplan PROGRAM]
//! ```
//!
//! With `--beside` only creations and starts are measured, with so many containers there.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(clippy::print_stderr, reason = "and how far it is")]

mod go_proxy;
mod growth;
mod load;
mod process;
mod spread;
mod ways;

use std::path::{Path, PathBuf};
use std::time::Duration;

use growth::Growth;
use load::{Call, Figures, measure};
use process::Process;
use spread::Spread;
use ways::{Ways, populate};

/// Containers that are there while calls are measured, a tenth of them with a CPU of their own.
const CONTAINERS: usize = 100;
/// Containers with which memory and idling are measured.
const CONTAINERS_MANY: usize = 250;
const MIB: f64 = 1024.0 * 1024.0;
/// Which calls, how many at a time, how often in a round.
const CALLS: [(Call, usize, usize); 7] = [
    (Call::Version, 1, 200),
    (Call::List, 1, 100),
    (Call::List, 64, 8),
    (Call::CreateShared, 1, 40),
    (Call::CreateShared, 64, 4),
    (Call::CreateExclusive, 1, 40),
    (Call::CreateExclusive, 64, 4),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let named = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map(|at| arguments[at + 1].as_str())
    };
    let option = |name, default: u64| named(name).map_or(default, |value| value.parse().unwrap());
    let is_without_go = arguments.iter().any(|argument| argument == "--no-go");
    let (runs, rounds) = (option("--runs", 3), option("--rounds", 20));
    // cargo runs this in the directory of its package, and paths are meant from that of the workspace.
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(named("--bayplan").unwrap_or(ways::UNDER_BENCH));
    let tokio = tokio::runtime::Runtime::new().unwrap();
    if let Some(counts) = named("--beside") {
        let beside: Vec<usize> = counts.split(',').map(|count| count.parse().unwrap()).collect();
        let mut growth = Growth::default();
        for number in 1..=runs {
            eprintln!("run {number} of {runs}");
            tokio.block_on(growth.run(&program, &beside, rounds));
        }
        return growth.print();
    }
    let plan = Plan {
        program,
        rounds,
        idle: Duration::from_secs(option("--idle", 30)),
        go_proxy: if is_without_go { None } else { go_proxy::build() },
    };
    let mut table = Table::default();
    for number in 1..=runs {
        eprintln!("run {number} of {runs}");
        tokio.block_on(run(&plan, &mut table));
    }
    table.print();
}

/// What a run does.
struct Plan {
    /// What is measured as bayplan.
    program: PathBuf,
    rounds: u64,
    idle: Duration,
    go_proxy: Option<PathBuf>,
}

/// What the runs have found so far.
#[derive(Default)]
struct Table {
    /// What it is of, its unit, its decimals.
    single: Vec<(String, &'static str, usize, Spread)>,
    calls: Vec<Row>,
}

/// Of one call by so many clients one way.
struct Row {
    call: Call,
    clients: usize,
    way: &'static str,
    /// Microseconds at p50 and p99, more at p50 than directly, calls a second, microseconds of CPU time a call.
    columns: [Spread; 5],
}

impl Table {
    fn add(&mut self, what: &str, unit: &'static str, decimals: usize, figure: f64) {
        eprintln!("  {what}: {figure:.decimals$} {unit}");
        let known = self.single.iter().position(|row| row.0 == what);
        let at = known.unwrap_or_else(|| {
            self.single.push((what.to_owned(), unit, decimals, Spread::default()));
            self.single.len() - 1
        });
        self.single[at].3.add(figure);
    }

    fn add_memory(&mut self, what: &str, process: &Process) {
        let [resident, anonymous] = process.memory();
        self.add(&format!("{what}: resident"), "MiB", 1, resident);
        self.add(&format!("{what}: of it anonymous"), "MiB", 1, anonymous);
    }

    /// The first way is the direct one.
    fn add_calls(&mut self, call: Call, clients: usize, ways: &[Figures]) {
        let direct = ways[0].percentile(50);
        for figures in ways {
            let known = self.calls.iter().position(|row| {
                row.call == call && row.clients == clients && row.way == figures.way
            });
            let at = known.unwrap_or_else(|| {
                let way = figures.way;
                self.calls.push(Row { call, clients, way, columns: Default::default() });
                self.calls.len() - 1
            });
            let [half, most, added, rate, cpu] = &mut self.calls[at].columns;
            half.add(figures.percentile(50));
            most.add(figures.percentile(99));
            added.add(figures.percentile(50) - direct);
            rate.add(figures.calls_per_second());
            figures.cpu_per_call().into_iter().for_each(|figure| cpu.add(figure));
        }
    }

    fn print(&self) {
        println!("| What | Median of the runs (lowest-highest) |\n|---|---|");
        for (what, unit, decimals, spread) in &self.single {
            println!("| {what} | {spread:.decimals$} {unit} |");
        }
        println!(
            "\n| Call | Clients | Way | p50, us | p99, us | added to p50, us | Calls a second | CPU us a call |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for Row { call, clients, way, columns: [half, most, added, rate, cpu] } in &self.calls {
            let added = if *way == "direct" { "-".to_owned() } else { added.to_string() };
            println!(
                "| {} | {clients} | {way} | {half} | {most} | {added} | {rate} | {cpu} |",
                call.name()
            );
        }
    }
}

async fn run(plan: &Plan, table: &mut Table) {
    let ways = Ways::start(&plan.program, plan.go_proxy.as_deref()).await;
    let bayplan = &ways.bayplan_process;
    let size = std::fs::metadata(&plan.program).unwrap().len();
    table.add("executable", "MiB", 1, size as f64 / MIB);
    table.add("start until the first call is answered", "ms", 1, ways.start_ms);
    tokio::time::sleep(Duration::from_secs(3)).await;
    table.add_memory("no containers", bayplan);
    table.add("no containers: CPU while idle", "% of one", 3, bayplan.busy(plan.idle).await);
    for way in ways.all().filter(|way| !way.shares_runtime) {
        populate(way, 0..CONTAINERS).await;
    }
    for (call, clients, calls) in CALLS {
        eprintln!("  {}, {clients} clients", call.name());
        let figures = measure(&ways, call, clients, calls, plan.rounds).await;
        table.add_calls(call, clients, &figures);
    }
    populate(&ways.bayplan, CONTAINERS..CONTAINERS_MANY).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    table.add_memory(&format!("{CONTAINERS_MANY} containers, after the calls"), bayplan);
    let what = format!("{CONTAINERS_MANY} containers: CPU while idle");
    table.add(&what, "% of one", 3, bayplan.busy(plan.idle).await);
    if let Some(go) = &ways.go_process {
        table.add_memory("Go proxy, after the calls", go);
    }
}
