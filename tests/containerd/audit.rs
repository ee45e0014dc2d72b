//! A hog beside a container that owns its CPU: the audit names it, with the time that the kernel has counted of it, and Prometheus is told of all that probes count.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_tests::prometheus::{Prometheus, dashboard, made_of, promtool, rules};
use bayplan_types::{Bytes, QosClass};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// As the kernel shows it: at most 15 letters.
const NAME: &str = "a-known-hog";
const OWNER: &str = "default/audited-owner/app";
/// What Prometheus is told of containers that are watched, with counters that every machine has; of events only while it runs, and this one sleeps.
const COUNTED: [&str; 6] = [
    "bayplan_container_run_delay_seconds_bucket",
    "bayplan_container_preemptions_total",
    "bayplan_container_migrations_total",
    "bayplan_container_counting_seconds_total",
    "bayplan_container_intrusion_seconds_total",
    "bayplan_container_intrusions_total",
];
/// CPU time of the hog.
const WORK: Duration = Duration::from_secs(3);

/// A process of no container that keeps one CPU busy, ended with the value.
pub(crate) struct Hog(Child);

impl Hog {
    pub(crate) fn start(cpu: u32) -> anyhow::Result<Hog> {
        let script = format!("printf {NAME} > /proc/$$/comm; read -r _; while :; do :; done");
        let mut sh = Command::new("/bin/sh");
        let mut hog = Hog(sh.args(["-c", &script]).stdin(Stdio::piped()).spawn()?);
        let mut cpus = CpuSet::new();
        cpus.set(usize::try_from(cpu)?)?;
        sched_setaffinity(hog.pid()?, &cpus)?;
        // Where it is to be, and not before.
        hog.0.stdin.take().context("no way to tell it")?.write_all(b"go\n")?;
        Ok(hog)
    }

    pub(crate) fn pid(&self) -> anyhow::Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.0.id())?))
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(self.pid()?, signal)?)
    }

    /// Its path in the hierarchy of version 2 (cgroups(7), "/proc files").
    fn cgroup(&self) -> anyhow::Result<String> {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", self.0.id()))?;
        let own = text.lines().find_map(|line| line.strip_prefix("0::"));
        Ok(own.context("it has none of version 2")?.to_owned())
    }

    /// By the kernel.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id()))?;
        Ok(Duration::from_nanos(text.split(' ').next().context("no time")?.parse()?))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Seconds that the hog took of the owner's CPU; `None` where the owner is not there.
fn taken(audit: &Value) -> Option<f64> {
    let mut containers = audit["containers"].as_array()?.iter();
    let owner = containers.find(|it| it["pod"] == "audited-owner")?;
    let hogs = owner["intruders"].as_array()?.iter().filter(|it| it["name"] == NAME);
    hogs.map(|it| it["seconds"].as_f64()).sum()
}

/// What the probes have counted when they were read again.
fn next_reading(node: &Node, last: &Value) -> anyhow::Result<Value> {
    wait_for("the audit to be read again", LIMIT, || {
        Ok(Some(node.audit()?).filter(|audit| audit["at"] != last["at"]))
    })
}

fn audited(node: &Node, owner: &Placed, bayplan: &Path) -> anyhow::Result<()> {
    let cpu = owner.cpus.first().context("the owner has no CPU")?.0;
    let is_watched = |audit: &Value| {
        let mut all = audit["containers"].as_array().into_iter().flatten();
        all.any(|it| it["pod"] == "audited-owner" && it["owned"] == owner.cpus.to_string())
    };
    wait_for("the owner to be watched", LIMIT, || Ok(Some(node.audit()?).filter(is_watched)))?;
    let hog = Hog::start(cpu)?;
    wait_for("the hog to work", LIMIT, || Ok((hog.cpu_time()? >= WORK).then_some(())))?;
    // Then its time is what it is, and no container is charged for it any more.
    hog.signal(Signal::SIGSTOP)?;
    // The next reading may have begun before.
    let stopped = node.audit()?;
    let audit = next_reading(node, &next_reading(node, &stopped)?)?;
    let found = taken(&audit).with_context(|| format!("no task is named {NAME}: {audit}"))?;
    let counted = hog.cpu_time()?.as_secs_f64();
    println!("the hog ran {counted:.3} s by the kernel, {found:.3} s by the audit");
    // Before it gave itself that name it was called sh, for some milliseconds.
    ensure!((found - counted).abs() <= 0.02 * counted, "{found} s, the kernel says {counted} s");
    let told =
        Command::new(bayplan).args(["audit", OWNER, "--control"]).arg(node.control()).output()?;
    let told = String::from_utf8(told.stdout)?;
    ensure!(told.contains(NAME), "bayplan audit {OWNER}: {told}");
    let group = format!("process of cgroup {}", hog.cgroup()?);
    ensure!(told.contains(&group), "bayplan audit {OWNER} does not name {group}: {told}");
    Ok(())
}

/// Prometheus' own tool reads what the daemon exports, everything that is counted is there, and what the dashboard and the rules ask of it is answered.
fn exported(node: &Node, address: SocketAddr, dir: &Path) -> anyhow::Result<()> {
    let answer = node.metrics()?;
    let (_, text) = answer.split_once("\r\n\r\n").context("no body")?;
    for name in COUNTED {
        let labels = "namespace=\"default\",pod=\"audited-owner\",container=\"app\"";
        let mut of_name = text.lines().filter_map(|line| line.strip_prefix(name));
        let is_told = of_name.any(|rest| rest.starts_with('{') && rest.contains(labels));
        ensure!(is_told, "no {name} of {labels}: {text}");
    }
    promtool(&["check", "metrics"], text)?;
    let (_, recorded) = rules()?;
    let mut questions = dashboard()?;
    questions.extend(recorded.values().cloned());
    questions.retain(|it| made_of(it, &recorded).iter().any(|name| COUNTED.contains(&&**name)));
    let asked: BTreeSet<String> = questions.iter().flat_map(|it| made_of(it, &recorded)).collect();
    for name in COUNTED {
        ensure!(asked.contains(name), "no query asks for {name}");
    }
    let prometheus = Prometheus::start(&dir.join("prometheus"), &address.to_string())?;
    let mut wrong = Vec::new();
    let answered = wait_for("Prometheus to answer", LIMIT, || {
        wrong = prometheus.wrong_answers(&questions, &recorded, text);
        Ok(wrong.is_empty().then_some(()))
    });
    answered.with_context(|| format!("{}\n{}", wrong.join("\n"), prometheus.log()))?;
    println!("Prometheus answered {} questions about what probes count", questions.len());
    Ok(())
}

pub(crate) fn run(bayplan: &Path) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let dir = tempfile::tempdir()?;
    let free = TcpListener::bind(("127.0.0.1", 0))?;
    let address = free.local_addr()?;
    drop(free);
    node.reset(&format!("counters: software\nmetricsAddress: {address}\n"))?;
    let owner = node.launch(
        &PodSpec::new("audited-owner", QosClass::Guaranteed),
        &ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20)),
    );
    let audited = owner.and_then(|owner| audited(&node, &owner, bayplan));
    let exported = audited.and_then(|()| exported(&node, address, dir.path()));
    node.end(exported)
}
