//! `cargo xtask reenact`: the measurements of the documents that Bayplan replaces, on this machine. In: scenarios, configurations, rounds. Out: tables in the form
//! of those documents, JSON, and box plots.
//!
//! Each measurement has a node of its own, with real containerd and kubelet, in namespaces of its own (`cell.rs`); inside (`node.rs`, `play.rs`) pods come from files.
//! Everything between, from the schedule to the tables, is pure.

mod box_plot;
mod cell;
mod chains;
mod configuration;
mod holding;
pub(crate) mod in_guest;
mod machine;
mod manifest;
mod node;
mod outputs;
mod play;
mod programs;
mod report;
mod scenario;
mod schedule;
mod sizes;
mod statistics;
mod table;
#[cfg(test)]
mod test_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::cell::Task;
use self::configuration::{CONFIGURATIONS, Configuration, Given};
use self::machine::Machine;
use self::manifest::IMAGE;
use self::programs::Programs;
use self::report::{Failed, Outcome, Report, figure};
use self::scenario::{Form, SCENARIOS, Scenario};
use self::schedule::{Schedule, Step, Wanted, schedule};
use crate::cache::cache_dir;
use crate::setup::find_program;
use crate::{image, workspace};

pub(crate) const HELP: &str = "\
cargo xtask reenact [--list] [--scenario NAME[,NAME]] [--configuration NAME[,NAME]] [--rounds N] [-o text|json] [--out DIR] [--bayplan FILE]
                      [--proxy COMMAND] [--plugin COMMAND]
                         the measurements of the documents that Bayplan replaces, on this machine, as root: every scenario under every configuration, alternating,
                         10 rounds; --list says what this machine can show. Tables are printed, and DIR (target/reenact) gets results.json and box plots. Bayplan
                         is built in release mode if no FILE is given. COMMAND starts another system to compare with, such as CRI-RM or a plugin of nri-plugins, and finds
                         its sockets in $RUNTIME (containerd), $SOCKET (for kubelet) and $NRI. Ctrl-C ends it, prints what there is, and leaves nothing running
";

/// What is asked on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    wanted: Wanted,
    is_list: bool,
    is_json: bool,
    out: Option<PathBuf>,
    bayplan: Option<PathBuf>,
}

/// `None`: the command line is not understood.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<Option<()>> {
    run_as(args, None)
}

/// The same in a guest of the lab: nothing is built or fetched.
pub(crate) fn run_with(programs: &str, args: &[&str]) -> anyhow::Result<Option<()>> {
    run_as(args, Some(in_guest::given(programs)?))
}

fn run_as(args: &[&str], given: Option<Programs>) -> anyhow::Result<Option<()>> {
    let Some(options) = parse(args)? else { return Ok(None) };
    let machine = Machine::read(Path::new("/"))?;
    let planned = schedule(&options.wanted, &machine);
    if options.is_list {
        print!("{}", list(&machine, &planned));
        return Ok(Some(()));
    }
    ensure!(
        !planned.steps.is_empty(),
        "this machine can show nothing of it: {:?}",
        planned.left_out
    );
    let is_stopped = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
    }
    let dir = cache_dir()?.join("reenact");
    fs::create_dir_all(&dir)?;
    let lock = fs::File::create(dir.join("lock"))?;
    if lock.try_lock().is_err() {
        bail!("another run uses {}; wait for its end", dir.display());
    }
    // What a run that was killed has left.
    cell::clear(&dir.join("cell"))?;
    let programs = match given {
        Some(programs) => programs,
        None => prepare(&options, &dir)?,
    };
    fs::write(dir.join(cell::IMAGE_FILE), make_image()?)?;
    let mut report = begin(args, &options, machine, &planned, &programs)?;
    play_all(&planned, &options.wanted.given, &dir, &programs, &is_stopped, &mut report);
    cell::clear(&dir.join("cell"))?;
    report.sum_up();
    let out = options.out.unwrap_or_else(|| workspace().join("target/reenact"));
    write(&report, &out)?;
    match options.is_json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", table::render(&report)),
    }
    eprintln!("reenact: results.json and box plots are in {}", out.display());
    ensure!(
        !is_stopped.load(Ordering::Relaxed),
        "stopped; the tables have what was measured before"
    );
    ensure!(report.failed.is_empty(), "{} measurements failed", report.failed.len());
    Ok(Some(()))
}

/// As the first process of a measurement's namespaces.
pub(crate) fn inside(task: &str) -> anyhow::Result<()> {
    let task: Task =
        serde_json::from_str(task).context("reenact-inside is for `cargo xtask reenact`")?;
    let scenario = Scenario::by_name(&task.scenario).context("an unknown scenario")?;
    let configuration =
        Configuration::by_name(&task.configuration).context("an unknown configuration")?;
    node::start(&task, configuration, scenario)?;
    let measured = play::play(&task, scenario.play)?;
    Ok(fs::write(task.result(), serde_json::to_string(&measured)?)?)
}

/// Builds and fetches what is missing.
fn prepare(options: &Options, dir: &Path) -> anyhow::Result<Programs> {
    let mut programs = Programs::prepare(options.bayplan.as_deref())?;
    // Copies, so that a build during a run changes nothing of it.
    programs.bayplan = copied(&programs.bayplan, &dir.join("bayplan"))?;
    programs.inside = copied(&programs.inside, &dir.join("xtask"))?;
    Ok(programs)
}

fn copied(program: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    fs::copy(program, to).with_context(|| format!("cannot copy {}", program.display()))?;
    Ok(to.to_owned())
}

/// Whether this is understood.
pub(crate) fn check(args: &[&str]) -> anyhow::Result<bool> {
    Ok(parse(args)?.is_some())
}

fn parse(args: &[&str]) -> anyhow::Result<Option<Options>> {
    let mut options = Options::default();
    options.wanted.rounds = 10;
    let mut rest = args.iter().copied();
    while let Some(name) = rest.next() {
        if name == "--list" {
            options.is_list = true;
            continue;
        }
        let Some(value) = rest.next() else { return Ok(None) };
        match name {
            "--scenario" => options.wanted.scenarios = named(value, "scenario", Scenario::by_name)?,
            "--configuration" => {
                options.wanted.configurations =
                    named(value, "configuration", Configuration::by_name)?;
            }
            "--rounds" => {
                options.wanted.rounds =
                    value.parse().ok().filter(|it| *it > 0).with_context(|| {
                        format!("--rounds {value}: expected a number of 1 or more")
                    })?;
            }
            "-o" => match value {
                "text" | "json" => options.is_json = value == "json",
                _ => bail!("-o {value}: expected text or json"),
            },
            "--out" => options.out = Some(value.into()),
            "--bayplan" => options.bayplan = Some(value.into()),
            "--proxy" => options.wanted.given.proxy = Some(value.to_owned()),
            "--plugin" => options.wanted.given.plugin = Some(value.to_owned()),
            _ => return Ok(None),
        }
    }
    Ok(Some(options))
}

fn named<T>(value: &str, what: &str, find: impl Fn(&str) -> Option<T>) -> anyhow::Result<Vec<T>> {
    let found = value.split(',').map(|name| {
        find(name).with_context(|| {
            format!("no {what} `{name}`; `cargo xtask reenact --list` has their names")
        })
    });
    found.collect()
}

/// Every scenario and configuration, and why one is left out.
fn list(machine: &Machine, planned: &Schedule) -> String {
    let mut text = format!("{machine}\n\nscenarios\n");
    let width = SCENARIOS.iter().map(|it| it.name.len()).max().unwrap_or_default();
    for scenario in &SCENARIOS {
        let Scenario { name, title, seed, .. } = scenario;
        text.push_str(&format!("  {name:width$}  {seed}: {title}\n"));
    }
    text.push_str("\nconfigurations\n");
    for configuration in CONFIGURATIONS {
        text.push_str(&format!("  {:width$}  {}\n", configuration.name(), configuration.title()));
    }
    if !planned.left_out.is_empty() {
        text.push_str("\nleft out on this machine\n");
    }
    for (what, reason) in &planned.left_out {
        text.push_str(&format!("  {what}: {reason}\n"));
    }
    text.push_str(&format!("\n{} measurements, ten to twenty seconds each\n", planned.steps.len()));
    text
}

/// busybox, and directories for the rest.
fn make_image() -> anyhow::Result<Vec<u8>> {
    let busybox = find_program("busybox")?;
    let bytes = fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let config = json!({ "Entrypoint": ["/bin/busybox", "sleep", "1000000"] });
    let files: [(&str, u32, &[u8]); 4] = [
        ("bin/busybox", 0o755, &bytes),
        ("etc/passwd", 0o644, b"root:x:0:0::/:\nnobody:x:65534:65534::/:\n"),
        ("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n"),
        ("tmp/.keep", 0o644, b""),
    ];
    image::layout(IMAGE, image::architecture(&bytes)?, &config, &files)
}

fn begin(
    args: &[&str],
    options: &Options,
    machine: Machine,
    planned: &Schedule,
    programs: &Programs,
) -> anyhow::Result<Report> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.context("cannot run date")?.stdout;
    Ok(Report {
        date: String::from_utf8_lossy(&date).trim().to_owned(),
        command: format!("cargo xtask reenact {}", args.join(" ")).trim().to_owned(),
        machine,
        versions: programs.versions(),
        rounds: options.wanted.rounds,
        left_out: planned.left_out.clone(),
        outcomes: Vec::new(),
        failed: Vec::new(),
        summary: Vec::new(),
        control: Vec::new(),
        behind: Vec::new(),
    })
}

/// Until all are made, or a signal comes.
fn play_all(
    planned: &Schedule,
    given: &Given,
    dir: &Path,
    programs: &Programs,
    is_stopped: &Arc<AtomicBool>,
    report: &mut Report,
) {
    let all = planned.steps.len();
    for (at, step) in planned.steps.iter().enumerate() {
        let Step { round, scenario, configuration } = *step;
        let (scenario, configuration) = (scenario.name, configuration.name());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        // There one takes minutes, and a guest that says nothing is taken for one that hangs.
        if cell::is_emulated() {
            eprintln!("reenact: {}/{all} round {round} {scenario}, {configuration} begins", at + 1);
        }
        let begun = Instant::now();
        let measured = cell::measure(step, dir, programs, given, is_stopped);
        let took = begun.elapsed().as_secs();
        let head = format!("{}/{all} round {round} {scenario}, {configuration} ({took} s)", at + 1);
        if is_stopped.load(Ordering::Relaxed) {
            eprintln!("reenact: stopped");
            return;
        }
        match measured {
            Ok(measured) => {
                let values = measured.values.iter();
                let values: Vec<String> =
                    values.map(|(key, value)| format!("{key} {}", figure(*value))).collect();
                eprintln!("reenact: {head}: {}", values.join(", "));
                report.outcomes.push(Outcome { round, scenario, configuration, load, measured });
            }
            Err(error) => {
                let reason = format!("{error:#}");
                eprintln!(
                    "reenact: {head}: failed: {reason}; logs are in {}",
                    dir.join("failed").display()
                );
                report.failed.push(Failed { round, scenario, configuration, reason });
            }
        }
    }
}

fn write(report: &Report, out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    fs::write(out.join("results.json"), serde_json::to_string_pretty(report)?)?;
    for scenario in report.scenarios().filter(|it| it.form == Form::Boxes) {
        if let Some(svg) = box_plot::render(report, scenario) {
            fs::write(out.join(format!("{}.svg", scenario.name)), svg)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_what_there_is() {
        let parsed =
            parse(&["--scenario", "alone,qperf", "--rounds", "2", "-o", "json"]).unwrap().unwrap();
        let names: Vec<&str> = parsed.wanted.scenarios.iter().map(|it| it.name).collect();
        assert_eq!(
            (names, parsed.wanted.rounds, parsed.is_json),
            (vec!["alone", "qperf"], 2, true)
        );
        let error = parse(&["--scenario", "alnoe"]).unwrap_err().to_string();
        assert!(error.contains("no scenario `alnoe`"), "{error}");
        for wrong in [&["--rounds", "0"], &["--configuration", "cmk"], &["-o", "yaml"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse(&["--round"]).unwrap(), None);
        assert_eq!(parse(&["--rounds"]).unwrap(), None);
    }
}
