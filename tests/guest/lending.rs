//! CPUs that a container lends to BestEffort containers, with real programs: they come back, and its requests wait no longer then. What is measured is printed as the median of ten rounds with its quartiles.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, allowed_by_kernel};
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::{HogKind, launch_hog, with_redis};
use bayplan_types::{Bytes, CpuId, CpuSet, QosClass};
use nix::sched;
use nix::unistd::Pid;

use crate::Test;
use crate::clients::{Asking, Clients, ask_redis, percentile};
use crate::files::Busy;
use crate::hardware::Hardware;
use crate::rebalancing::{weigh, weight};
use crate::spread::Spread;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "lent_cpus_come_back_when_their_holder_wants_them",
        needs: |hardware| hardware.has_cpus(16),
        config: BORROW,
        run: lent_cpus_come_back,
    },
    Test {
        name: "requests_of_a_holder_wait_no_longer_once_lent_cpus_are_back",
        needs: |hardware| hardware.has_cpus(16),
        config: BORROW,
        run: requests_of_a_holder,
    },
];

const BORROW: &str = "bestEffort: {borrow: true}\n";
/// Loans that end. After each the daemon is started anew, because it lends less often to a holder that has wanted its CPUs back.
const LOANS: usize = 2;
/// Half a minute without use comes before a loan, and on an emulated machine the kernel's own work takes more of a CPU.
const LOAN_LIMIT: Duration = Duration::from_secs(400);
/// Rounds that are measured.
pub(crate) const ROUNDS: usize = 10;
/// Over which CPU time is compared with the limit, and requests are counted.
pub(crate) const MEASURED: Duration = Duration::from_secs(5);

fn lent_cpus_come_back(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let annotations = vec![("bayplan.dev/lend".to_owned(), "besteffort".to_owned())];
    let pod = PodSpec { annotations, ..PodSpec::new("holder", QosClass::Guaranteed) };
    let holder = node.launch(&pod, &ContainerSpec::guaranteed("app", 8000, Bytes(32 << 20)))?;
    let hog = launch_hog(node, HogKind::Cpu, 2)?;
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

/// More processes than cores that a holder of four keeps while it lends two: they all have work when requests come.
const SERVERS: u16 = 3;
const HOGS: u32 = 4;
const ASKING: Asking =
    Asking { ask: ask_redis, servers: SERVERS, work: 500, pause: Duration::from_millis(1) };

fn requests_of_a_holder(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let annotations = vec![("bayplan.dev/lend".to_owned(), "besteffort".to_owned())];
    let pod = PodSpec { annotations, ..PodSpec::new("holder", QosClass::Guaranteed) };
    let spec = ContainerSpec::guaranteed("app", 8000, Bytes(128 << 20));
    let holder = node.launch(&pod, &with_redis(spec, SERVERS)?)?;
    let hog = launch_hog(node, HogKind::Cpu, HOGS)?;
    // As kubelet does.
    weigh(&hog, 0, hardware)?;
    holder.write_cgroup_file("../cpu.weight", &weight(8000).to_string())?;
    let before = kernels(&hog)?;
    let clients: Vec<CpuId> = before.iter().take(SERVERS.into()).collect();
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let round = Round::measure(node, &holder, &hog, &clients)?;
        println!("  {number}: {round}; load {}", load()?);
        rounds.push(round);
        node.reconfigure(BORROW)?;
    }
    let of = |value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value).collect());
    println!("  median (quartiles) of {ROUNDS}: back after {:.2} s", of(|it| it.back));
    let all: [(&str, OfRound); 3] = [
        ("without the hog", |it| &it.alone),
        ("while the hog is there", |it| &it.beside),
        ("afterwards", |it| &it.after),
    ];
    for (when, waits) in all {
        let of = |value: fn(&Waits) -> f64| {
            Spread::of(rounds.iter().map(|it| value(waits(it))).collect())
        };
        let (p50, p99, waited) = (of(|it| it.p50), of(|it| it.p99), of(|it| it.waited));
        println!("  {when}: p50 {p50:.2} ms, p99 {p99:.2} ms, waited for a CPU {waited:.2} %");
    }
    let [beside, after] = [of(|it| it.beside.waited).median, of(|it| it.after.waited).median];
    ensure!(after <= beside.max(1.0), "waited {beside} %, and afterwards {after} %");
    Ok(())
}

/// What the holder's clients and the kernel tell.
struct Waits {
    /// Of answers, in milliseconds.
    p50: f64,
    p99: f64,
    /// Percent of the time in which some of the holder's tasks waited for a CPU (PSI).
    waited: f64,
}

impl Waits {
    /// As long as `wait` takes.
    fn of(
        holder: &Placed,
        clients: &Clients,
        wait: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Waits> {
        clients.take();
        let (begun, stalled) = (Instant::now(), stalled(holder)?);
        wait()?;
        let waited = self::stalled(holder)?.saturating_sub(stalled).as_secs_f64();
        let waited = 100.0 * waited / begun.elapsed().as_secs_f64();
        let answers = clients.take();
        ensure!(!answers.is_empty(), "no request was answered");
        let [p50, p99] = [50, 99].map(|it| percentile(&answers, it));
        Ok(Waits { p50, p99, waited })
    }
}

/// What was measured in one part of a round.
type OfRound = fn(&Round) -> &Waits;

/// A loan from the moment at which requests come to its end.
struct Round {
    lent: CpuSet,
    /// Seconds.
    back: f64,
    alone: Waits,
    beside: Waits,
    after: Waits,
}

impl Round {
    /// The hog is frozen until the loan, and then on the lent CPUs alone, so that it is in the way.
    fn measure(
        node: &Node,
        holder: &Placed,
        hog: &Placed,
        clients: &[CpuId],
    ) -> anyhow::Result<Round> {
        let pass = || -> anyhow::Result<()> {
            std::thread::sleep(MEASURED);
            Ok(())
        };
        hog.write_cgroup_file("cgroup.freeze", "1")?;
        let before = kernels(hog)?;
        let asking = Clients::start(clients, ASKING);
        pass()?;
        let alone = Waits::of(holder, &asking, pass)?;
        drop(asking);
        let lent = wait_for("a loan", LOAN_LIMIT, || {
            let lent = kernels(hog)?.intersection(&holder.cpus);
            Ok((lent.len() >= 2).then_some(lent))
        })?;
        stay_on(hog, &lent)?;
        hog.write_cgroup_file("cgroup.freeze", "0")?;
        std::thread::sleep(Duration::from_secs(1));
        ensure!(!node.status()?.cpus.lent.is_empty(), "the loan has ended before requests came");
        let begun = Instant::now();
        let asking = Clients::start(clients, ASKING);
        let is_back = || Ok((kernels(hog)? == before).then_some(()));
        let come_back = || wait_for("the lent CPUs to come back", LIMIT, is_back);
        let beside = Waits::of(holder, &asking, come_back)?;
        let back = begun.elapsed().as_secs_f64();
        let after = Waits::of(holder, &asking, pass)?;
        Ok(Round { lent, back, alone, beside, after })
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round { lent, back, alone, beside, after } = self;
        let [alone, beside, after] = [alone, beside, after]
            .map(|it| format!("{:.1}, {:.1} ms, {:.1} %", it.p50, it.p99, it.waited));
        write!(f, "lent {lent}, back after {back:.2} s; {alone}; {beside}; {after}")
    }
}

/// All processes but the first one, which shows where the group may run.
fn stay_on(hog: &Placed, cpus: &CpuSet) -> anyhow::Result<()> {
    let mut own = sched::CpuSet::new();
    cpus.iter().try_for_each(|cpu| own.set(usize::try_from(cpu.0)?).map_err(anyhow::Error::new))?;
    for pid in hog.cgroup_file("cgroup.procs")?.lines().map(str::parse::<i32>) {
        let pid = pid?;
        if u32::try_from(pid)? != hog.pid {
            sched::sched_setaffinity(Pid::from_raw(pid), &own)?;
        }
    }
    Ok(())
}

/// For how long some of a container's tasks have waited for a CPU.
fn stalled(placed: &Placed) -> anyhow::Result<Duration> {
    let text = placed.cgroup_file("cpu.pressure")?;
    let some = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="));
    Ok(Duration::from_micros(some.context("cpu.pressure")?.1.parse()?))
}

/// Of the last minute.
pub(crate) fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}
