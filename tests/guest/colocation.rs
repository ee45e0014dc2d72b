//! BestEffort containers with real programs beside others: CPUs that are lent and come back, and a budget that follows what others use.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, allowed_by_kernel};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::launch_hog;
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::Test;
use crate::files::Busy;
use crate::hardware::Hardware;
use crate::rebalancing::{limit, lowest_used};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "lent_cpus_come_back_when_their_holder_wants_them",
        needs: |hardware| hardware.has_cpus(16),
        config: BORROW,
        run: lent_cpus_come_back,
    },
    Test {
        name: "a_budget_follows_what_others_use",
        needs: |hardware| hardware.has_cpus(16),
        config: BUDGET,
        run: a_budget_follows,
    },
];

const BORROW: &str = "bestEffort: {borrow: true}\n";
const NODE_PERCENT: f64 = 30.0;
const BUDGET: &str = "bestEffort: {nodePercent: 30, growthPercent: 20}\n";
/// Loans that end. After each the daemon is started anew, because it lends less often to a holder that has wanted its CPUs back.
const LOANS: usize = 2;
/// Half a minute without use comes before a loan, and on an emulated machine the kernel's own work takes more of a CPU.
const LOAN_LIMIT: Duration = Duration::from_secs(400);
/// Over which CPU time is compared with the limit.
const MEASURED: Duration = Duration::from_secs(10);

fn lent_cpus_come_back(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let annotations = vec![("bayplan.dev/lend".to_owned(), "besteffort".to_owned())];
    let pod = PodSpec { annotations, ..PodSpec::new("holder", QosClass::Guaranteed) };
    let holder = node.launch(&pod, &ContainerSpec::guaranteed("app", 8000, Bytes(32 << 20)))?;
    let hog = launch_hog(node, 2)?;
    let before = kernels(&hog)?;
    ensure!(before.is_disjoint(&holder.cpus), "the hog runs on {before}, {holder:?}");
    let mut delays = Vec::new();
    for _ in 0..LOANS {
        delays.push(lends_and_takes_back(node, &holder, &hog, &before)?);
        node.reconfigure(BORROW)?;
    }
    delays.sort_by(f64::total_cmp);
    println!("  back within {delays:.1?} s");
    Ok(())
}

/// From a loan to its end, in seconds from the moment at which the holder has work. The hog is frozen until the loan: beside it an emulated machine is too slow for CPUs that are idle.
fn lends_and_takes_back(
    node: &Node,
    holder: &Placed,
    hog: &Placed,
    before: &CpuSet,
) -> anyhow::Result<f64> {
    hog.write_cgroup_file("cgroup.freeze", "1")?;
    let loan = wait_for("a loan of two cores", LOAN_LIMIT, || {
        let lent = kernels(hog)?.intersection(&holder.cpus);
        Ok((lent.len() >= 4).then_some(lent))
    });
    let pressure = || format!("the holder's pressure: {:?}", holder.cgroup_file("cpu.pressure"));
    let lent = loan.with_context(pressure)?;
    let shown: CpuSet = node.status()?.cpus.lent.parse()?;
    ensure!(lent.is_subset(&shown), "the kernel lends {lent}, the status {shown}");
    ensure!(node.exclusive_of(&holder.id)? == holder.cpus, "the holder holds less");
    let is_idle = |text: &str| Ok((hog.cgroup_file("../cpu.idle")? == text).then_some(()));
    wait_for("the hog's pod to be idle", LIMIT, || is_idle("1"))?;
    hog.write_cgroup_file("cgroup.freeze", "0")?;
    let begun = Instant::now();
    // Where the hog may run by now.
    let busy = Busy::start(&lent)?;
    busy.join(&holder.cgroup_dir()?)?;
    wait_for("the lent CPUs to come back", LIMIT, || Ok((kernels(hog)? == *before).then_some(())))?;
    let delay = begun.elapsed().as_secs_f64();
    wait_for("the hog's pod to be as before", LIMIT, || is_idle("0"))?;
    ensure!(node.status()?.cpus.lent.is_empty(), "the status still lends");
    println!("  lent {lent} of {}; back after {delay:.1} s", holder.cpus);
    Ok(delay)
}

/// By the kernel, which tells of the first process; all others of a group may run on the same.
fn kernels(placed: &Placed) -> anyhow::Result<CpuSet> {
    allowed_by_kernel(placed.pid)?.context("the hog has ended")
}

fn a_budget_follows(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let whole = hardware.cpus.difference(&hardware.isolated).len() as f64;
    let mark = whole * NODE_PERCENT / 100.0;
    let hog = launch_hog(node, 8)?;
    wait_for("a budget", LIMIT, || Ok(budget(&hog)?.filter(|it| *it > mark / 2.0)))?;
    let alone = watched(&hog)?;
    let busy = Busy::start(&hardware.cpus)?;
    std::thread::sleep(MEASURED);
    let beside = watched(&hog)?;
    drop(busy);
    let grown = || Ok(budget(&hog)?.filter(|it| *it > beside + 0.5));
    let again = wait_for("the budget to grow again", LIMIT, grown)?;
    println!(
        "  of {whole} CPUs {mark:.1} may be busy: {alone:.2} for the hog, {beside:.2} beside two busy processes, then {again:.2}"
    );
    ensure!(alone <= mark && again <= mark, "more than is left of {mark}");
    ensure!(beside + 0.5 < alone, "the budget does not follow two processes");
    node.reconfigure("")?;
    wait_for("no limit", LIMIT, || Ok(budget(&hog)?.is_none().then_some(())))
}

/// CPUs that BestEffort containers may use; `None`: all.
fn budget(hog: &Placed) -> anyhow::Result<Option<f64>> {
    let text = hog.cgroup_file("../../cpu.max")?;
    if text.starts_with("max") { Ok(None) } else { limit(&text).map(Some) }
}

/// The median budget over a while. By the kernel's account they use no more than twice the largest: on an emulated CPU it notices late that a limit is used up.
fn watched(hog: &Placed) -> anyhow::Result<f64> {
    let (begun, used, mut seen) = (Instant::now(), lowest_used(hog)?, Vec::new());
    while begun.elapsed() < MEASURED {
        seen.push(budget(hog)?.context("there is no limit")?);
        std::thread::sleep(MEASURED / 20);
    }
    let used = lowest_used(hog)?.saturating_sub(used).as_secs_f64() / begun.elapsed().as_secs_f64();
    seen.sort_by(f64::total_cmp);
    let (median, most) = (seen[seen.len() / 2], seen[seen.len() - 1]);
    println!(
        "  BestEffort containers used {used:.2} CPUs, limit {median:.2}, at most {most:.2}; load {}",
        load()?
    );
    ensure!(used <= 2.0 * most, "{used} CPUs were used, limit {most}");
    Ok(median)
}

fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}
