//! One measurement from outside: namespaces in which everything runs that it starts, and what has to be removed afterwards.
//!
//! Processes, mounts and the network end with the namespaces, and those with this process, however it ends. What stays are a directory of ours and empty control
//! groups; both are removed here, or at the beginning of the next run.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::configuration::Given;
use super::programs::Programs;
use super::report::Measured;
use super::schedule::Step;

/// Kubelet's control groups lie below it, so that it never takes others for leftovers of its own.
pub(crate) const CGROUP_ROOT: &str = "bayplan-reenact";
/// What makes a measurement hang; the longest take two minutes.
const LIMIT: Duration = Duration::from_secs(400);
/// The image of all containers, beside the directory of a measurement.
pub(crate) const IMAGE_FILE: &str = "image.tar";
const RESULT: &str = "result.json";

/// So many times longer do things take in an emulated machine.
const EMULATED: u32 = 8;

/// The lab says so in its guests.
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("BAYPLAN_EMULATED").is_some()
}

/// A limit for this machine.
pub(crate) fn patient(limit: Duration) -> Duration {
    if is_emulated() { limit * EMULATED } else { limit }
}

/// What the process inside is told, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) scenario: String,
    pub(crate) configuration: String,
    /// A directory that goes with the measurement.
    pub(crate) work: PathBuf,
    pub(crate) programs: Programs,
    /// An archive with the image of all containers.
    pub(crate) image: PathBuf,
    pub(crate) given: Given,
}

impl Task {
    /// Where the process inside writes what it has measured.
    pub(crate) fn result(&self) -> PathBuf {
        self.work.join(RESULT)
    }
}

/// Runs one measurement. `is_stopped` ends it early.
pub(crate) fn measure(
    step: &Step,
    dir: &Path,
    programs: &Programs,
    given: &Given,
    is_stopped: &Arc<AtomicBool>,
) -> anyhow::Result<Measured> {
    let work = dir.join("cell");
    clear(&work)?;
    fs::create_dir_all(&work)?;
    let image = dir.join(IMAGE_FILE);
    let given = given.clone();
    let task = Task {
        scenario: step.scenario.name.to_owned(),
        configuration: step.configuration.name().to_owned(),
        work: work.clone(),
        programs: programs.clone(),
        image,
        given,
    };
    let done = run_inside(&task, is_stopped).and_then(|()| {
        let text = fs::read(task.result()).context("it has written no result")?;
        Ok(serde_json::from_slice(&text)?)
    });
    let done = done.with_context(|| last_lines(&work));
    if done.is_err() {
        keep_logs(&work, &dir.join("failed"));
    }
    let cleared = clear(&work);
    let measured = done?;
    cleared?;
    Ok(measured)
}

fn run_inside(task: &Task, is_stopped: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let log = fs::File::create(task.work.join("inside.log"))?;
    // `setpriv`: the namespaces end when this process does, also by SIGKILL. A group of its own: Ctrl-C reaches this process alone.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork"])
        .args(["--mount-proc", "--kill-child", "--propagation", "private"])
        .arg(&task.programs.inside)
        .arg("reenact-inside")
        .arg(serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start setpriv")?;
    let ended = wait(&mut child, is_stopped);
    // It may have ended already.
    let _killed = child.kill();
    let _waited = child.wait();
    ended
}

fn wait(child: &mut Child, is_stopped: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (started, limit) = (Instant::now(), patient(LIMIT));
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "it ended with {status}");
            return Ok(());
        }
        ensure!(!is_stopped.load(Ordering::Relaxed), "stopped");
        if started.elapsed() > limit {
            bail!("it did not end within {} s", limit.as_secs());
        }
        sleep(Duration::from_millis(100));
    }
}

fn last_lines(work: &Path) -> String {
    let text = fs::read_to_string(work.join("inside.log")).unwrap_or_default();
    let lines: Vec<&str> = text.trim().lines().collect();
    lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("; ")
}

/// The logs of the last measurement that has failed.
fn keep_logs(work: &Path, to: &Path) {
    let copied = crate::make_empty(to).and_then(|()| {
        let own = fs::read_dir(work)?;
        // What containers have written; there is none before kubelet.
        let theirs = fs::read_dir(work.join("out")).into_iter().flatten();
        for entry in own.chain(theirs) {
            let path = entry?.path();
            let is_kept = path
                .extension()
                .is_some_and(|it| ["log", "json", "yaml", "txt"].iter().any(|kept| it == *kept));
            if let Some(name) = path.file_name().filter(|_| is_kept) {
                fs::copy(&path, to.join(name))?;
            }
        }
        Ok(())
    });
    if let Err(error) = copied {
        eprintln!("reenact: the logs are lost: {error:#}");
    }
}

/// Removes what a measurement leaves: its directory, and control groups, for which the kernel needs a moment after the last process.
pub(crate) fn clear(work: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = remove_control_groups();
        if left.is_empty() {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "control groups do not go away: {left:?}; look for processes in them"
        );
        sleep(Duration::from_millis(50));
    }
    match fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", work.display()))
        }
        _ => Ok(()),
    }
}

/// The directory of each hierarchy: of all controllers of version 1, or the one of version 2.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|it| it.path());
    // Some are names of others.
    entries.filter(|it| it.is_dir() && !it.is_symlink()).collect()
}

/// Those that are left.
fn remove_control_groups() -> BTreeSet<PathBuf> {
    let roots = hierarchies().into_iter().map(|it| it.join(CGROUP_ROOT));
    let mut left = BTreeSet::new();
    for root in roots.filter(|it| it.exists()) {
        let mut groups = below(&root);
        groups.reverse();
        left.extend(groups.into_iter().filter(|it| fs::remove_dir(it).is_err() && it.exists()));
    }
    left
}

/// A directory and all below it, each before those in it.
pub(crate) fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while let Some(dir) = found.get(at).cloned() {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path());
        found.extend(entries.filter(|it| it.is_dir() && !it.is_symlink()));
        at += 1;
    }
    found
}
