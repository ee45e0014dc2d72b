//! `cargo xtask fuzz`: every fuzz target for a while, the same each time. In: how long. Out: a line for each target, and of one that has found something the end of its log.
//!
//! Libfuzzer begins with the same seed and without what earlier runs have found, so that what passes on one machine passes on another one of the same speed; `nightly` looks further.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};

use crate::tool::Tool;
use crate::{cargo, make_empty, run_program, workspace};

pub(crate) const HELP: &str = "\
cargo xtask fuzz [SECONDS]
                         each fuzz target for so long (60), two at a time, with the same seed each time; logs are in target/fuzz
";

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
const DEFAULT_SECONDS: u32 = 60;
const AT_ONCE: usize = 2;
/// Lines of a log that are shown.
const SHOWN_LINES: usize = 60;

/// How a target looks for new inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) seconds: u32,
    /// Where libfuzzer's random numbers begin; `None`: elsewhere each time.
    pub(crate) seed: Option<u32>,
}

/// Installs what runs the targets.
pub(crate) fn install() -> anyhow::Result<Command> {
    CARGO_FUZZ.install()
}

/// Runs one target; what is new is kept in `corpus`, what fails in `tests/fuzz/artifacts`.
pub(crate) fn command(target: &str, corpus: PathBuf, effort: Effort) -> anyhow::Result<Command> {
    let fuzz = dir();
    let mut command = cargo_fuzz("run")?;
    command.arg(target).arg(corpus).arg(fuzz.join("seeds").join(target)).arg("--");
    command.arg(format!("-dict={}", fuzz.join("dictionary.txt").display()));
    command.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={}", effort.seconds));
    command.args(effort.seed.map(|seed| format!("-seed={seed}")));
    Ok(command)
}

/// Names of all targets, in order.
pub(crate) fn targets() -> anyhow::Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(dir().join("targets"))? {
        targets.extend(entry?.path().file_stem().map(|it| it.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

pub(crate) fn run(args: &[&str]) -> anyhow::Result<Option<()>> {
    let seconds = match args {
        [] => DEFAULT_SECONDS,
        [seconds] => match seconds.parse() {
            Ok(seconds) => seconds,
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    run_program(&mut install()?)?;
    run_program(&mut cargo_fuzz("build")?)?;
    let logs = workspace().join("target/fuzz");
    make_empty(&logs)?;
    let (targets, next) = (targets()?, AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = run_target(target, seconds) {
                eprintln!("xtask: {error:#}");
                failures.lock().unwrap_or_else(|it| it.into_inner()).push(target.as_str());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|it| it.into_inner());
    ensure!(failures.is_empty(), "fuzz targets failed: {}", failures.join(", "));
    Ok(Some(()))
}

fn run_target(target: &str, seconds: u32) -> anyhow::Result<()> {
    let logs = workspace().join("target/fuzz");
    let (corpus, log) = (logs.join(target), logs.join(target).with_extension("log"));
    fs::create_dir_all(&corpus)?;
    let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = command(target, corpus, Effort { seconds, seed: Some(1) })?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let runs = text.lines().find_map(|it| it.strip_prefix("stat::number_of_executed_units:"));
    let end = || text.lines().rev().take(SHOWN_LINES).collect::<Vec<_>>();
    ensure!(
        status.success(),
        "{target}: {status}; the end of {}:\n{}",
        log.display(),
        end().into_iter().rev().collect::<Vec<_>>().join("\n")
    );
    println!("fuzz: {target}: {} runs", runs.unwrap_or("?").trim());
    Ok(())
}

fn cargo_fuzz(verb: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(CARGO_FUZZ.program()?);
    command.args(["fuzz", verb, "--sanitizer", "none", "--fuzz-dir"]).arg(dir());
    command.env("CARGO", cargo()).current_dir(workspace());
    Ok(command)
}

fn dir() -> PathBuf {
    workspace().join("tests/fuzz")
}
