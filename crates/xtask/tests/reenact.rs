//! `cargo xtask reenact` with real containerd and kubelet: it measures, and leaves nothing behind when it is stopped half-way.
//!
//! Needs root, and builds kubelet if nothing has: `cargo xtask nightly reenact`, or by its name. `BAYPLAN` may name the program to measure; it is built otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value as Json;

/// Both have the machine's CPUs to themselves.
static MACHINE: Mutex<()> = Mutex::new(());

/// Long enough for a build of kubelet.
const PATIENCE: Duration = Duration::from_secs(3600);

fn reenact(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-xtask"));
    command.args(["reenact", "--scenario", "alone", "--rounds", "1", "-o", "json", "--out"]);
    command.arg(out).args(args);
    if let Some(program) = std::env::var_os("BAYPLAN") {
        command.arg("--bayplan").arg(program);
    }
    command
}

/// The directory of a measurement that is under way.
fn cell() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty()).map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    cache.unwrap_or_else(home).join("bayplan-lab/reenact/cell")
}

/// Processes that have a file of the measurement on their command line, and its mounts in our namespace.
fn running() -> Vec<String> {
    let cell = cell().display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    let lines = lines.map(|it| String::from_utf8_lossy(&it).replace('\0', " "));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounts: Vec<String> = mounts.lines().map(str::to_owned).collect();
    lines.chain(mounts).filter(|it| it.contains(&cell)).collect()
}

/// Control groups of the measurement.
fn control_groups() -> String {
    let find = ["/sys/fs/cgroup", "-maxdepth", "2", "-name", "bayplan-reenact"];
    let found = Command::new("find").args(find).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

#[track_caller]
fn nothing_is_left() {
    assert_eq!(running(), [""; 0]);
    assert_eq!(control_groups(), "");
    assert!(!cell().exists(), "{} is left", cell().display());
}

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "waited for {what}");
        sleep(Duration::from_millis(100));
    }
}

/// A run in which the pod of the measurement runs.
fn half_way(out: &Path) -> Child {
    let begun = SystemTime::now();
    let child = reenact(out, &["--configuration", "bayplan"]).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    wait_for("a measurement", || {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended before it was stopped");
        // Not that of a run before, which was killed.
        let written = fs::metadata(cell().join("out/go")).and_then(|it| it.modified());
        written.is_ok_and(|it| it > begun)
    });
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn every_configuration_runs_and_nothing_is_left() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let done = reenact(out.path(), &[]).stderr(Stdio::inherit()).output().unwrap();
    assert!(done.status.success(), "{}", done.status);
    let report: Json = serde_json::from_slice(&done.stdout).unwrap();
    let outcomes = report["outcomes"].as_array().unwrap();
    let configurations: Vec<&str> =
        outcomes.iter().map(|it| it["configuration"].as_str().unwrap()).collect();
    for wanted in ["default", "control", "static", "bayplan", "bayplan-nri"] {
        assert!(configurations.contains(&wanted), "{wanted} is missing in {configurations:?}");
    }
    // Nothing but a configuration that pins keeps the container from any CPU.
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for outcome in outcomes {
        let is_free = ["default", "control"].map(Json::from).contains(&outcome["configuration"]);
        assert_eq!(outcome["cpus"]["alone"] == all.trim(), is_free, "{outcome}");
    }
    assert!(out.path().join("alone.svg").exists() && out.path().join("results.json").exists());
    nothing_is_left();
}

#[test]
fn a_run_that_is_stopped_leaves_nothing_behind() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let stopped = half_way(out.path());
    signal(&stopped, "INT");
    let done = stopped.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let report: Json = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["outcomes"].as_array().unwrap().len(), 0);
    nothing_is_left();
    let mut killed = half_way(out.path());
    signal(&killed, "KILL");
    killed.wait().unwrap();
    wait_for("the processes to end", || running().is_empty());
    // What SIGKILL leaves, a directory and empty control groups, goes with the next run.
    signal_at_once(out.path());
    nothing_is_left();
}

/// A run that is stopped as soon as it measures.
fn signal_at_once(out: &Path) {
    let next = half_way(out);
    signal(&next, "TERM");
    assert_eq!(next.wait_with_output().unwrap().status.code(), Some(1));
}
