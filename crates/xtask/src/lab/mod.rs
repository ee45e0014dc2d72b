//! The lab: virtual machines with packages and NUMA nodes that are not at hand, and a real kernel. In: `cargo xtask lab ...`. Out: guest tests that
//! passed, or a shell.

pub(crate) mod archive;
pub(crate) mod foreign;
mod guest;
mod kernel;
mod machine;
mod root;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::built::built_dir;
use crate::lab::guest::{Guest, Init};
pub(crate) use crate::lab::guest::{Limits, watch};
use crate::lab::kernel::{Kernel, RELEASES, Release};
use crate::lab::machine::{DEFAULT, MACHINES, Machine};
use crate::reenact::in_guest::{self, Packed};
use crate::{cargo, setup, workspace};

pub(crate) const HELP: &str = "\
cargo xtask lab list     the machines and kernels that there are
cargo xtask lab build    fetch kernels and make the guest's file system; also when there are newer ones
cargo xtask lab run [--machine NAME|all] [--kernel NAME|all] [--init shell|systemd|all] [--limit SECONDS]
                   [--silence SECONDS] [--suite guest|probes] [--program FILE] [--package FILE] [--containerd 1.7|2] [-- ARGUMENT...]
                         the guest tests, or the kernel tests of the probes; ARGUMENT is a part of a test's name. Or any program of
                         yours. With a Debian package under systemd, they test what it installs, and that it comes and goes
cargo xtask lab run --reenact SCENARIO[,SCENARIO] [--machine NAME] [--kernel NAME] [--limit SECONDS] [--silence SECONDS] [-- ARGUMENT...]
                         scenarios of `cargo xtask reenact` in a guest, for where containers run and where their memory is: its times mean
                         nothing. ARGUMENT is one of reenact, such as --rounds 3; results.json is in the guest's directory, below reenact
cargo xtask lab shell [--machine NAME] [--kernel NAME] [--init shell|systemd]
                         a shell in the guest, with bayplan, containerd and the tests
";

/// Under emulation everything takes 10 to 30 times as long, and longer where others need the host, too. No wait in a test is longer than
/// a minute, and few tests wait for more than two things, so a guest that hangs is silent first; on a busy host all tests under systemd took more than
/// half an hour.
const LIMITS: Limits =
    Limits { whole: Duration::from_secs(3600), silent: Duration::from_secs(300) };

/// What depends on the kernel most: a change is judged by all tests on the newer one and by these on the older one; the nightly run has all on each.
const BY_KERNEL: &[&str] = &[
    "the_kernel_has_what",
    "the_cgroup_has_what",
    "what_is_promised_holds_at_the_first",
    "shared_cpus_shrink",
    "a_resize_grows_in_its_node",
    "pages_are_on_the_node",
    "limits_bursts_and_memory",
    "a_partition_keeps",
    "interrupts_and_work_queues",
    "a_class_of_block_io",
    "weights_of_block_io",
    "idle_memory_is_reclaimed",
    "the_probes_count",
    "moves_are_counted",
    "after_a_kill_in_the_middle",
];

/// Tests by which a change is judged under systemd, too.
const UNDER_SYSTEMD: &[&str] = &[
    "what_systemd_writes_a",
    "cpu_sets_that_systemd_was_told_of",
    "a_call_of_kubelet_starts_the_daemon",
    "limits_bursts_and_memory",
    "the_unit_may_do_all",
];

/// Guests take up to 4 GiB of memory each.
const AT_A_TIME_MAX: usize = 4;

/// Of `--reenact`: a measurement of a node with several pods takes minutes, in which nothing is printed.
const REENACT_LIMITS: Limits =
    Limits { whole: Duration::from_secs(8 * 3600), silent: Duration::from_secs(3600) };

/// What was asked for.
#[derive(Debug)]
struct Asked {
    machines: Vec<&'static Machine>,
    releases: Vec<Release>,
    inits: Vec<Init>,
    limits: Limits,
    suite: Suite,
    package: Option<PathBuf>,
    /// The series of a containerd that is there beside the guest's own, and is used instead.
    containerd: Option<&'static str>,
    args: Vec<String>,
}

/// What runs in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Suite {
    /// `tests/guest`.
    Guest,
    /// `crates/probes/tests/kernel`.
    Probes,
    Program(PathBuf),
    /// Scenarios of `cargo xtask reenact`, by their names.
    Reenact(String),
}

impl Suite {
    fn find(name: &str) -> anyhow::Result<Suite> {
        match name {
            "guest" => Ok(Suite::Guest),
            "probes" => Ok(Suite::Probes),
            _ => bail!("`{name}` is no suite; there are guest and probes"),
        }
    }
}

/// `None`: not understood.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<Option<()>> {
    let Some((command, args)) = args.split_first() else { return Ok(None) };
    match *command {
        "list" => list()?,
        "build" => build()?,
        "run" => run_all(&[Asked::parse(args)?])?,
        "shell" => shell(&Asked::parse(args)?)?,
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// What is missing of all that takes long to make.
pub(crate) fn prepare() -> anyhow::Result<()> {
    setup::install_programs()?;
    setup::unpack_programs()?;
    setup::check_fuse()?;
    for release in RELEASES {
        cached_or_fetched(release)?;
    }
    root::archive()?;
    Ok(())
}

/// Whether guests can start without anything being fetched or installed.
pub(crate) fn is_prepared() -> bool {
    let has_kernel = |release| Kernel::cached(release).is_ok_and(|kernel| kernel.is_some());
    setup::find_program("qemu-system-x86_64").is_ok()
        && RELEASES.into_iter().all(has_kernel)
        && root::archive().is_ok()
}

/// The same, and newer kernels if there are any.
fn build() -> anyhow::Result<()> {
    setup::install_programs()?;
    for release in RELEASES {
        let kernel = Kernel::fetch(release)?;
        println!("xtask: kernel {} is {}", release.name(), kernel.version);
    }
    println!("xtask: the guest's file system is {}", root::archive()?.display());
    Ok(())
}

/// What a change has to pass, on one machine: everything on the newer kernel, and what depends most on the kernel and on systemd.
pub(crate) fn test() -> anyhow::Result<()> {
    let everything = Asked::parse(&["--kernel", Release::Backports.name()])?;
    let by_kernel = [&["--kernel", Release::Stable.name(), "--"], BY_KERNEL].concat();
    let under_systemd = [&["--init", "systemd", "--"], UNDER_SYSTEMD].concat();
    run_all(&[everything, Asked::parse(&by_kernel)?, Asked::parse(&under_systemd)?])
}

impl Asked {
    fn parse(args: &[&str]) -> anyhow::Result<Asked> {
        let mut asked = Asked {
            machines: vec![machine::find(DEFAULT)?],
            releases: vec![Release::Stable],
            inits: vec![Init::Shell],
            limits: LIMITS,
            suite: Suite::Guest,
            package: None,
            containerd: None,
            args: Vec::new(),
        };
        let (mut whole, mut silent) = (None, None);
        let mut args = args.iter().copied();
        while let Some(option) = args.next() {
            if option == "--" {
                asked.args = args.map(str::to_owned).collect();
                break;
            }
            let mut value = || args.next().with_context(|| format!("{option} needs a value"));
            match option {
                "--machine" => asked.machines = find_machines(value()?)?,
                "--kernel" => asked.releases = find_releases(value()?)?,
                "--init" => asked.inits = find_inits(value()?)?,
                "--limit" => whole = Some(Duration::from_secs(value()?.parse()?)),
                "--silence" => silent = Some(Duration::from_secs(value()?.parse()?)),
                "--suite" => asked.suite = Suite::find(value()?)?,
                "--program" => asked.suite = Suite::Program(value()?.into()),
                "--reenact" => {
                    let names = value()?;
                    in_guest::check_names(names)?;
                    asked.suite = Suite::Reenact(names.to_owned());
                    asked.limits = REENACT_LIMITS;
                }
                "--containerd" => asked.containerd = Some(find_series(value()?)?),
                "--package" => asked.package = Some(value()?.into()),
                _ => bail!("what is {option}? See `cargo xtask help`"),
            }
        }
        asked.limits.whole = whole.unwrap_or(asked.limits.whole);
        asked.limits.silent = silent.unwrap_or(asked.limits.silent);
        ensure!(
            !matches!(asked.suite, Suite::Reenact(_)) || asked.inits == [Init::Shell],
            "scenarios run without systemd: leave out --init"
        );
        ensure!(
            asked.package.is_none() || asked.inits == [Init::Systemd],
            "a package is installed under systemd: add --init systemd"
        );
        Ok(asked)
    }
}

fn find_series(series: &str) -> anyhow::Result<&'static str> {
    let found = ["1.7", "2"].into_iter().find(|it| *it == series);
    found.with_context(|| format!("`{series}` is no series of containerd; there are 1.7 and 2"))
}

/// Programs of a series of containerd, with the names that they have below `/usr/bin`.
fn containerd_of(series: &str) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let built = |name: &str| {
        built_dir(name).with_context(|| {
            format!("{name} was not built; tests/critest/run --containerd {series} --rounds direct --build-only does")
        })
    };
    let (containerd, runc) = (built(&format!("containerd-{series}"))?, built("runc")?);
    Ok(vec![
        ("containerd-given/containerd", containerd.join("containerd")),
        ("containerd-given/containerd-shim-runc-v2", containerd.join("containerd-shim-runc-v2")),
        ("containerd-given/runc", runc.join("runc")),
    ])
}

fn find_machines(name: &str) -> anyhow::Result<Vec<&'static Machine>> {
    match name {
        "all" => Ok(MACHINES.iter().collect()),
        name => Ok(vec![machine::find(name)?]),
    }
}

fn find_releases(name: &str) -> anyhow::Result<Vec<Release>> {
    match name {
        "all" => Ok(RELEASES.to_vec()),
        name => Ok(vec![Release::find(name)?]),
    }
}

fn find_inits(name: &str) -> anyhow::Result<Vec<Init>> {
    match name {
        "all" => Ok(vec![Init::Shell, Init::Systemd]),
        name => Ok(vec![Init::find(name)?]),
    }
}

fn list() -> anyhow::Result<()> {
    println!("machines (--machine):");
    for machine in &MACHINES {
        println!("  {:<18} {}", machine.name, machine.what);
    }
    println!("kernels (--kernel):");
    for release in RELEASES {
        let version = Kernel::cached(release)?.map(|kernel| kernel.version);
        println!("  {:<18} {}", release.name(), version.as_deref().unwrap_or("not fetched yet"));
    }
    Ok(())
}

/// A guest and what it is to run.
struct Job {
    guest: Guest,
    /// Names below `/usr/bin`, and their files.
    programs: Vec<(String, PathBuf)>,
    command: String,
    limits: Limits,
}

impl Asked {
    /// The programs of each guest, and its command.
    fn load(&self, built: &Built) -> anyhow::Result<(Vec<(String, PathBuf)>, String)> {
        let (mut programs, command) = match &self.suite {
            Suite::Guest => tests(&built.tests, &self.args),
            Suite::Probes => tests(&built.probes, &self.args),
            Suite::Program(file) => tests(file, &self.args),
            Suite::Reenact(names) => {
                let Packed { files, command } = in_guest::pack(names, &self.args, &built.bayplan)?;
                // In memory that containerd can lay file systems over.
                (files, format!("export XDG_CACHE_HOME=/tmp/cache\n{}", command_line(&command)))
            }
        };
        programs.push(("bayplan".to_owned(), built.bayplan.clone()));
        let is_scenario = matches!(self.suite, Suite::Reenact(_));
        if let Some(series) = self.containerd.or(is_scenario.then_some("2")) {
            let given = containerd_of(series)?.into_iter();
            programs.extend(given.map(|(name, file)| (name.to_owned(), file)));
        }
        Ok((programs, command))
    }

    /// A guest for each machine with each kernel and each first process.
    fn jobs(&self, built: &Built) -> anyhow::Result<Vec<Job>> {
        let (programs, command) = self.load(built)?;
        let mut jobs = Vec::new();
        for release in &self.releases {
            let kernel = cached_or_fetched(*release)?;
            for (machine, init) in
                self.machines.iter().flat_map(|it| self.inits.iter().map(move |init| (*it, *init)))
            {
                let out = out_dir(machine, *release, init, &self.suite);
                let (kernel, package) = (kernel.clone(), self.package.clone());
                jobs.push(Job {
                    guest: Guest { machine, kernel, init, package, out },
                    programs: programs.clone(),
                    command: command.clone(),
                    limits: self.limits,
                });
            }
        }
        Ok(jobs)
    }
}

/// All guests, as many at a time as this machine has CPUs for.
fn run_all(asked: &[Asked]) -> anyhow::Result<()> {
    prepare()?;
    let built = build_tests()?;
    let mut jobs = Vec::new();
    for asked in asked {
        jobs.extend(asked.jobs(&built)?);
    }
    // A guest keeps one of our CPUs busy, whatever it has itself.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let at_a_time = cpus.min(AT_A_TIME_MAX).min(jobs.len());
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ran = job.run(at_a_time == 1);
                    if let (Err(error), Ok(mut failed)) = (ran, failed.lock()) {
                        failed.push(format!("{}: {error:#}", job.guest.name()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
    Ok(())
}

impl Job {
    /// Shows the console while it runs, or else all of it at its end.
    fn run(&self, is_alone: bool) -> anyhow::Result<()> {
        let guest = &self.guest;
        println!("== lab: {} starts", guest.name());
        let started = Instant::now();
        let programs: Vec<(&str, &Path)> =
            self.programs.iter().map(|(name, file)| (name.as_str(), file.as_path())).collect();
        let ran = guest.run(&programs, &self.command, self.limits, is_alone);
        let console = if is_alone { String::new() } else { guest.console() };
        let how = if ran.is_ok() { "passed" } else { "failed" };
        println!("{console}== lab: {} {how} in {} s", guest.name(), started.elapsed().as_secs());
        ran
    }
}

fn shell(asked: &Asked) -> anyhow::Result<()> {
    setup::install_programs()?;
    let built = build_tests()?;
    let programs = [("bayplan", built.bayplan.as_path()), ("guest-tests", built.tests.as_path())];
    let ([machine], [release], [init]) =
        (asked.machines.as_slice(), asked.releases.as_slice(), asked.inits.as_slice())
    else {
        bail!("a shell is in one machine with one kernel and one first process")
    };
    let (release, init) = (*release, *init);
    let kernel = cached_or_fetched(release)?;
    println!("xtask: {} on {}; `exit` or Ctrl-A X ends it", machine.name, kernel.version);
    let out = out_dir(machine, release, init, &Suite::Guest);
    Guest { machine, kernel, init, package: asked.package.clone(), out }.shell(&programs)
}

fn cached_or_fetched(release: Release) -> anyhow::Result<Kernel> {
    match Kernel::cached(release)? {
        Some(kernel) => Ok(kernel),
        None => Kernel::fetch(release),
    }
}

/// A program with tests, and its command.
fn tests(file: &Path, args: &[String]) -> (Vec<(String, PathBuf)>, String) {
    let name = "guest-tests".to_owned();
    let words: Vec<String> = std::iter::once(&name).chain(args).cloned().collect();
    (vec![(name, file.to_owned())], command_line(&words))
}

/// For a shell.
fn command_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    format!("{}\n", quoted.collect::<Vec<_>>().join(" "))
}

fn out_dir(machine: &Machine, release: Release, init: Init, suite: &Suite) -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|_| workspace().join("target"));
    let suite = match suite {
        Suite::Probes => "-probes",
        Suite::Reenact(_) => "-reenact",
        Suite::Guest | Suite::Program(_) => "",
    };
    let systemd = if init == Init::Systemd { "-systemd" } else { "" };
    target.join("lab").join(format!("{}-{}{suite}{systemd}", machine.name, release.name()))
}

/// The programs under test.
struct Built {
    bayplan: PathBuf,
    tests: PathBuf,
    probes: PathBuf,
}

fn build_tests() -> anyhow::Result<Built> {
    let mut command = Command::new(cargo());
    // Of the whole workspace, as the tests on this machine: by itself the package would have other features, and be built anew.
    command.args(["test", "--workspace", "--test", "guest", "--test", "kernel"]);
    command.args(["--no-run", "--locked"]);
    command.arg("--message-format=json-render-diagnostics").current_dir(workspace());
    let told = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(told.status.success(), "cargo test --no-run: {}", told.status);
    let told = String::from_utf8(told.stdout)?;
    let messages: Vec<Value> =
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let executable = |name: &str| {
        let found = messages.iter().filter(|message| message["target"]["name"] == name);
        let path = found.filter_map(|message| message["executable"].as_str()).next_back();
        path.map(|path| Path::new(path).to_owned()).with_context(|| format!("no program {name}"))
    };
    Ok(Built {
        bayplan: executable("bayplan-under-test")?,
        tests: executable("guest")?,
        probes: executable("kernel")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_time_unless_a_limit_is_given() {
        let parse = |args: &[&str]| Asked::parse(args);
        let asked = parse(&["--reenact", "chain-spread", "--", "--rounds", "1"]).unwrap();
        assert_eq!(asked.suite, Suite::Reenact("chain-spread".to_owned()));
        assert_eq!((asked.limits.whole, asked.args.len()), (REENACT_LIMITS.whole, 2));
        let asked = parse(&["--limit", "60", "--reenact", "redis-near"]).unwrap();
        assert_eq!(asked.limits.whole, Duration::from_secs(60));
        assert_eq!(asked.limits.silent, REENACT_LIMITS.silent);
        assert_eq!(parse(&[]).unwrap().limits.whole, LIMITS.whole);
        for wrong in [&["--reenact", "alnoe"][..], &["--reenact", "alone", "--init", "systemd"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn words_come_to_the_shell_as_they_are() {
        let words = ["xtask", "reenact-with", r#"{"a": "it's"}"#].map(str::to_owned);
        assert_eq!(command_line(&words), "'xtask' 'reenact-with' '{\"a\": \"it'\\''s\"}'\n");
    }
}
