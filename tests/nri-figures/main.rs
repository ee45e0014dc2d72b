//! How long a runtime waits for its plugin: Bayplan, and beside it another program, on the same containerd with the same pods; and how long creations through the CRI proxy take. By hand, on a machine that is quiet otherwise:
//!
//! ```sh
//! BAYPLAN_NRI_OTHER=/path/to/topology-aware cargo test -p bayplan-tests --test nri-figures -- --nocapture
//! ```
//!
//! `BAYPLAN_NRI_PROGRAM` names a program to measure instead of the one that the tests have built, for example that of a release.

#![allow(clippy::print_stdout, reason = "tests tell what they have measured")]

mod proxy;
mod tap;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec, RunningPod};
use bayplan_tests::containerd::Programs;
use bayplan_tests::node::{LIMIT, Node, SLEEP, Way};
use bayplan_tests::process::{Process, wait_for};
use bayplan_tests::topology_aware::{self, Launch, Policy, State};
use bayplan_types::{Bytes, QosClass};

use self::tap::Tap;

const BAYPLAN: &str = env!("CARGO_BIN_EXE_bayplan-under-test");
/// Containers of one pod that fill the node.
const PER_POD: usize = 25;
/// Containers that run when events are timed.
const LOADS: [usize; 3] = [0, 100, 250];
/// Containers that there are when a plugin registers; those beyond the loads are created only.
const REGISTERED: [usize; 2] = [250, 600];
/// Containers that come and go at each load.
const ROUNDS: usize = 100;
/// No more updates are to be expected.
const SILENCE: Duration = Duration::from_secs(2);
/// Registrations that are timed.
const REGISTRATIONS: usize = 5;

/// The plugin that is measured.
enum Subject {
    Bayplan,
    Other(OtherPlugin),
}

/// Another program.
struct OtherPlugin {
    program: PathBuf,
    /// From its first start on.
    state: Option<State>,
    /// While it runs.
    process: Option<Process>,
}

/// Containers that come and go.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shared,
    /// Each has a CPU of its own.
    Exclusive,
}

struct Stage {
    node: Node,
    tap: Tap,
    subject: Subject,
    filling: Vec<RunningPod>,
    filled: usize,
}

#[test]
fn a_runtime_waits_for_its_plugin() {
    measure(Subject::Bayplan).unwrap();
    if let Some(other) = env::var_os("BAYPLAN_NRI_OTHER") {
        let other = OtherPlugin { program: other.into(), state: None, process: None };
        measure(Subject::Other(other)).unwrap();
    }
}

#[test]
fn a_creation_waits_for_the_proxy() {
    proxy::measure(&program()).unwrap();
}

/// The one to measure.
fn program() -> PathBuf {
    env::var_os("BAYPLAN_NRI_PROGRAM").unwrap_or_else(|| BAYPLAN.into()).into()
}

fn measure(subject: Subject) -> anyhow::Result<()> {
    let program = program();
    let (driver, programs) = (CgroupDriver::Cgroupfs, Programs::built()?);
    let mut node = Node::start_with(&program, &SLEEP, driver, Way::Plugin, programs)?;
    let socket = node.dir().join("tap.sock");
    let tap = Tap::start(&socket, node.nri_socket())?;
    node.kill()?;
    node.take_nri_from(socket);
    node.write_config("log: warn\n")?;
    let mut stage = Stage { node, tap, subject, filling: Vec::new(), filled: 0 };
    let played = stage.play();
    let stopped = stage.stop();
    // So that the node can be ended as any other.
    let mut node = stage.node;
    node.start_again()?;
    node.end(played.and(stopped))
}

impl Stage {
    fn play(&mut self) -> anyhow::Result<()> {
        println!("\n{}", self.name());
        self.start()?;
        for load in LOADS {
            self.fill(load, true)?;
            for kind in self.kinds() {
                self.tap.take();
                for round in 0..ROUNDS {
                    let what = || format!("round {round} at {load}, {kind:?}");
                    self.come_and_go(*kind).with_context(what)?;
                }
                self.wait_for_updates()?;
                print_times(&format!("{load} containers, {kind:?}"), &self.tap.take());
            }
            println!("{load} containers: {} KiB resident", self.resident_kib()?);
        }
        for count in REGISTERED {
            self.fill(count, false)?;
            self.tap.take();
            for _ in 0..REGISTRATIONS {
                self.stop()?;
                self.start()?;
            }
            print_times(&format!("registration with {count}"), &self.tap.take());
        }
        self.restart_runtime()?;
        println!("{} KiB resident", self.resident_kib()?);
        Ok(())
    }

    /// The other one gives no container a CPU of its own where there are two, of which one is reserved.
    fn kinds(&self) -> &'static [Kind] {
        match self.subject {
            Subject::Bayplan => &[Kind::Shared, Kind::Exclusive],
            Subject::Other(..) => &[Kind::Shared],
        }
    }

    fn name(&self) -> String {
        match &self.subject {
            Subject::Bayplan => "bayplan".to_owned(),
            Subject::Other(other) => other.program.display().to_string(),
        }
    }

    /// Until it has registered.
    fn start(&mut self) -> anyhow::Result<()> {
        let (dir, tap) = (self.node.dir().to_owned(), self.tap.clone());
        let before = tap.count("Synchronize");
        match &mut self.subject {
            Subject::Bayplan => return self.node.start_again(),
            Subject::Other(other) => other.start(&dir)?,
        }
        wait_for("the other plugin to register", LIMIT, || {
            Ok((tap.count("Synchronize") > before).then_some(()))
        })
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        match &mut self.subject {
            Subject::Bayplan => self.node.kill(),
            Subject::Other(other) => {
                other.process = None;
                Ok(())
            }
        }
    }

    fn resident_kib(&self) -> anyhow::Result<u64> {
        let pid = match &self.subject {
            Subject::Bayplan => self.node.daemon_pid()?,
            Subject::Other(other) => other.process.as_ref().context("it does not run")?.id(),
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|it| it.split_whitespace().next()).context("VmRSS")?;
        Ok(kib.parse()?)
    }

    /// Until there are so many containers.
    fn fill(&mut self, count: usize, are_started: bool) -> anyhow::Result<()> {
        while self.filled < count {
            let at = self.filled % PER_POD;
            if at == 0 {
                let name = format!("scenario-fill{}", self.filling.len());
                self.filling.push(self.node.run_pod(&PodSpec::new(&name, QosClass::Burstable))?);
            }
            let pod = self.filling.last().context("a pod")?.clone();
            let spec = ContainerSpec::burstable(&format!("c{at}"), 2);
            let id = self.node.answer(self.node.ask_to_create(&pod, &spec, 0))??;
            if are_started {
                self.node.answer(self.node.ask_to_start(&id))??;
            }
            self.filled += 1;
        }
        Ok(())
    }

    /// SIGKILL to the runtime. Another program ends with the connection, and it is its DaemonSet's to start it again, which says nothing of the program.
    fn restart_runtime(&mut self) -> anyhow::Result<()> {
        if !matches!(self.subject, Subject::Bayplan) {
            return Ok(());
        }
        for _ in 0..REGISTRATIONS {
            self.node.kill_runtime()?;
            let before = self.tap.count("Synchronize");
            self.node.start_runtime_again()?;
            let serves = Instant::now();
            let tap = self.tap.clone();
            wait_for("registration after the runtime's restart", LIMIT, || {
                Ok((tap.count("Synchronize") > before).then_some(()))
            })?;
            println!("registered {:?} after the runtime serves calls", serves.elapsed());
        }
        Ok(())
    }

    /// Until the runtime is told nothing more.
    fn wait_for_updates(&self) -> anyhow::Result<()> {
        let mut seen = (0, Instant::now());
        wait_for("the last update", LIMIT, || {
            let count = self.tap.count("UpdateContainer");
            if count != seen.0 {
                seen = (count, Instant::now());
            }
            Ok((seen.1.elapsed() >= SILENCE).then_some(()))
        })
    }

    /// One pod from its sandbox to its end, with an update in between.
    fn come_and_go(&mut self, kind: Kind) -> anyhow::Result<()> {
        let own = Bytes(64 << 20);
        let (qos, before, after) = match kind {
            Kind::Exclusive => (
                QosClass::Guaranteed,
                ContainerSpec::guaranteed("app", 1000, own),
                ContainerSpec::guaranteed("app", 1000, Bytes(own.0 * 2)),
            ),
            Kind::Shared => (
                QosClass::Burstable,
                ContainerSpec::burstable("app", 50),
                ContainerSpec::burstable("app", 60),
            ),
        };
        let pod = self.node.run_pod(&PodSpec::new("scenario-round", qos))?;
        let id = self.node.answer(self.node.ask_to_create(&pod, &before, 0))??;
        self.node.answer(self.node.ask_to_start(&id))??;
        self.node.resize(&id, &after)?;
        self.node.stop(&id)?;
        self.node.end_pod(&pod)
    }
}

impl OtherPlugin {
    /// The topology-aware plugin of nri-plugins, without a cluster.
    fn start(&mut self, dir: &Path) -> anyhow::Result<()> {
        let config = dir.join("other.yaml");
        let text = "apiVersion: config.nri/v1alpha1\nkind: TopologyAwarePolicy\nmetadata: {name: default}\n\
                    spec: {pinCPU: true, pinMemory: true, reservedResources: {cpu: 'cpuset:0'}}\n";
        std::fs::write(&config, text)?;
        let state = match self.state.take() {
            Some(state) => state,
            None => State::mount(dir.join("plugin-state"))?,
        };
        let launch = Launch {
            program: &self.program,
            state: self.state.insert(state),
            dir,
            nri_socket: &dir.join("tap.sock"),
            node: "node",
            policy: Policy::File(&config),
            has_isolated: false,
        };
        self.process = Some(topology_aware::start(&launch)?);
        Ok(())
    }
}

fn print_times(what: &str, took: &BTreeMap<String, Vec<Duration>>) {
    for (method, times) in took {
        print_row(what, method, times);
    }
}

/// Milliseconds: 50 %, 99 %, the longest.
fn print_row(what: &str, method: &str, times: &[Duration]) {
    let mut times = times.to_owned();
    times.sort();
    let at = |percent: usize| {
        let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    println!(
        "| {what} | {method} | {} | {:.2} | {:.2} | {:.2} |",
        times.len(),
        at(50),
        at(99),
        at(100)
    );
}
