//! The budget of BestEffort containers with real programs: it follows what others use, and holds the node at its mark. What is measured is printed as the median of ten rounds with its quartiles.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{HogKind, launch_hog};
use bayplan_types::{CpuId, CpuSet};

use crate::Test;
use crate::files::Busy;
use crate::hardware::Hardware;
use crate::lending::{MEASURED, ROUNDS, load};
use crate::rebalancing::{limit, lowest_used};
use crate::spread::Spread;

pub(crate) const TESTS: &[Test] = &[Test {
    name: "a_budget_follows_what_others_use",
    needs: |hardware| hardware.has_cpus(16),
    config: BUDGET,
    run: a_budget_follows,
}];

/// As `/proc/stat` counts (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;
const NODE_PERCENT: f64 = 30.0;
const BUDGET: &str = "bestEffort: {nodePercent: 30, growthPercent: 20}\n";

fn a_budget_follows(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let whole = hardware.cpus.difference(&hardware.isolated).len() as f64;
    let mark = whole * NODE_PERCENT / 100.0;
    let hog = launch_hog(node, HogKind::Cpu, 8)?;
    wait_for("a budget", LIMIT, || Ok(budget(&hog)?.filter(|it| *it > mark / 2.0)))?;
    println!("  of {whole} CPUs {mark:.1} may be busy; median (quartiles) of {ROUNDS}:");
    let alone = watched(&hog, hardware, "the hog alone")?;
    let busy = Busy::start(&hardware.cpus)?;
    std::thread::sleep(MEASURED);
    let beside = watched(&hog, hardware, "beside two busy processes")?;
    drop(busy);
    let grown = || Ok(budget(&hog)?.filter(|it| *it > beside.limit + 0.5));
    let again = wait_for("the budget to grow again", LIMIT, grown)?;
    println!("  then {again:.2}");
    ensure!(alone.limit <= mark && again <= mark, "more than is left of {mark}");
    ensure!(beside.limit + 0.5 < alone.limit, "the budget does not follow two processes");
    for busy in [alone.busy, beside.busy] {
        ensure!(busy <= 1.1 * mark && busy >= mark / 2.0, "{busy} CPUs are busy, not {mark}");
    }
    node.reconfigure("")?;
    wait_for("no limit", LIMIT, || Ok(budget(&hog)?.is_none().then_some(())))
}

/// CPUs that BestEffort containers may use; `None`: all.
fn budget(hog: &Placed) -> anyhow::Result<Option<f64>> {
    let text = hog.cgroup_file("../../cpu.max")?;
    if text.starts_with("max") { Ok(None) } else { limit(&text).map(Some) }
}

/// Medians, in CPUs.
struct Watched {
    limit: f64,
    /// All that is busy on the node.
    busy: f64,
}

/// By the kernel's account BestEffort containers use no more than twice the largest limit: on an emulated CPU it notices late that a limit is used up.
fn watched(hog: &Placed, hardware: &Hardware, when: &str) -> anyhow::Result<Watched> {
    let (mut limits, mut uses, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (begun, used, idle) = (Instant::now(), lowest_used(hog)?, idle(&hardware.cpus)?);
        let mut seen = Vec::new();
        while begun.elapsed() < MEASURED {
            seen.push(budget(hog)?.context("there is no limit")?);
            std::thread::sleep(MEASURED / 20);
        }
        let took = begun.elapsed().as_secs_f64();
        let used = lowest_used(hog)?.saturating_sub(used).as_secs_f64() / took;
        let idle = (self::idle(&hardware.cpus)? - idle) / took;
        let most = seen.iter().copied().fold(0.0, f64::max);
        ensure!(used <= 2.0 * most, "{used} CPUs were used, limit {most}");
        limits.push(Spread::of(seen).median);
        uses.push(used);
        all.push(hardware.cpus.len() as f64 - idle);
    }
    let [limits, uses, all] = [limits, uses, all].map(Spread::of);
    println!(
        "  {when}: limit {limits:.2}, used {uses:.2}, all that is busy {all:.2} CPUs; load {}",
        load()?
    );
    Ok(Watched { limit: limits.median, busy: all.median })
}

/// Seconds in which CPUs had nothing to do, of all of them together, since the start of the machine.
fn idle(cpus: &CpuSet) -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut ticks = 0;
    for line in stat.lines().filter_map(|it| it.strip_prefix("cpu")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(cpu) = fields.first().and_then(|it| it.parse().ok()).map(CpuId) else { continue };
        if cpus.contains(cpu) && !line.starts_with(' ') {
            // Idle, and waiting for a disk.
            for field in fields.get(4..6).context("idle and iowait")? {
                ticks += field.parse::<u64>()?;
            }
        }
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}
