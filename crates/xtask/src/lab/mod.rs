//! The lab: virtual machines with packages and NUMA nodes that are not at hand, and a real kernel. In: `cargo xtask lab ...`. Out: guest tests that
//! passed, or a shell.

pub(crate) mod archive;
mod change;
pub(crate) mod foreign;
mod guest;
mod kernel;
mod machine;
mod root;
mod systemd;
mod times;

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
use crate::lab::times::Ran;
use crate::reenact::in_guest::{self, Packed};
use crate::{cargo, setup, workspace};

pub(crate) const HELP: &str = "\
cargo xtask lab list     the machines and kernels that there are
cargo xtask lab build    fetch kernels and make the guest's file system; also when there are newer ones
cargo xtask lab run [--machine NAME|all] [--kernel NAME|all] [--init shell|systemd|all] [--limit SECONDS]
                   [--silence SECONDS] [--suite guest|probes] [--guests COUNT] [--program FILE] [--package FILE] [--containerd 1.7|2]
                   [--front-end cri|nri] [-- ARGUMENT...]
                         the guest tests, or the kernel tests of the probes; ARGUMENT is a part of a test's name. Guest tests are divided
                         among COUNT guests, and --skip PART leaves some out. Or any program of yours. With a Debian package under systemd, they test what it installs, and that it comes and goes. With --front-end nri
                         Bayplan is a plugin of the containerd given
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
    /// Among so many guests the tests are divided, on each machine with each kernel and each first process.
    guests: usize,
    package: Option<PathBuf>,
    /// The series of a containerd that is there beside the guest's own, and is used instead.
    containerd: Option<&'static str>,
    /// In guest tests Bayplan is a plugin of that containerd.
    is_plugin: bool,
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

/// Whether this is understood, and the guest tests that are named are there.
pub(crate) fn check(args: &[&str]) -> anyhow::Result<()> {
    let asked = match args {
        ["list" | "build"] => return Ok(()),
        ["run" | "shell", args @ ..] => Asked::parse(args)?,
        _ => bail!("`cargo xtask lab` does not know this"),
    };
    let names = match asked.suite {
        Suite::Guest => change::guest_tests()?,
        _ => return Ok(()),
    };
    let mut words = asked.args.iter().filter(|it| !it.starts_with("--"));
    match words.find(|word| !names.iter().any(|name| name.contains(word.as_str()))) {
        Some(word) => bail!("no guest test has {word} in its name"),
        None => Ok(()),
    }
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

/// What a change has to pass: [`change`].
pub(crate) fn test() -> anyhow::Result<()> {
    let asked: Vec<Asked> =
        change::runs().iter().map(|args| Asked::parse(args)).collect::<anyhow::Result<_>>()?;
    run_all(&asked)
}

impl Asked {
    fn parse(args: &[&str]) -> anyhow::Result<Asked> {
        let mut asked = Asked {
            machines: vec![machine::find(DEFAULT)?],
            releases: vec![Release::Stable],
            inits: vec![Init::Shell],
            limits: LIMITS,
            suite: Suite::Guest,
            guests: 1,
            package: None,
            containerd: None,
            is_plugin: false,
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
                "--guests" => asked.guests = value()?.parse()?,
                "--program" => asked.suite = Suite::Program(value()?.into()),
                "--reenact" => {
                    let names = value()?;
                    in_guest::check_names(names)?;
                    asked.suite = Suite::Reenact(names.to_owned());
                    asked.limits = REENACT_LIMITS;
                }
                "--front-end" => asked.is_plugin = find_front_end(value()?)?,
                "--containerd" => asked.containerd = Some(find_series(value()?)?),
                "--package" => asked.package = Some(value()?.into()),
                _ => bail!("what is {option}? See `cargo xtask help`"),
            }
        }
        asked.limits.whole = whole.unwrap_or(asked.limits.whole);
        asked.limits.silent = silent.unwrap_or(asked.limits.silent);
        asked.check()?;
        Ok(asked)
    }

    /// What does not go together.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.guests == 1 || self.guests > 1 && self.suite == Suite::Guest,
            "only guest tests are divided among several guests"
        );
        ensure!(
            !self.is_plugin || self.suite == Suite::Guest && self.containerd.is_some(),
            "the guest's own containerd takes no plugins: add --containerd 2 to guest tests"
        );
        ensure!(
            !matches!(self.suite, Suite::Reenact(_)) || self.inits == [Init::Shell],
            "scenarios run without systemd: leave out --init"
        );
        ensure!(
            self.package.is_none() || self.inits == [Init::Systemd],
            "a package is installed under systemd: add --init systemd"
        );
        Ok(())
    }
}

fn find_series(series: &str) -> anyhow::Result<&'static str> {
    let found = ["1.7", "2"].into_iter().find(|it| *it == series);
    found.with_context(|| format!("`{series}` is no series of containerd; there are 1.7 and 2"))
}

/// Whether it is the plugin.
fn find_front_end(name: &str) -> anyhow::Result<bool> {
    match name {
        "cri" => Ok(false),
        "nri" => Ok(true),
        _ => bail!("`{name}` is no front end; there are cri and nri"),
    }
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

/// Names below `/usr/bin` of a guest, and their files.
type Programs = Vec<(String, PathBuf)>;

/// A guest and what it is to run.
struct Job {
    guest: Guest,
    /// The guest's, and which of several.
    name: String,
    programs: Programs,
    command: String,
    limits: Limits,
}

impl Asked {
    /// The programs of each guest, and a command for each of those that divide the tests.
    fn load(&self, built: &Built) -> anyhow::Result<(Programs, Vec<String>)> {
        let (mut programs, commands) = match &self.suite {
            Suite::Guest => self.shares(&built.tests),
            Suite::Probes => tests(&built.probes, &self.args),
            Suite::Program(file) => tests(file, &self.args),
            Suite::Reenact(names) => {
                let Packed { files, command } = in_guest::pack(names, &self.args, &built.bayplan)?;
                // In memory that containerd can lay file systems over.
                let command =
                    format!("export XDG_CACHE_HOME=/tmp/cache\n{}", command_line(&command));
                (files, vec![command])
            }
        };
        programs.push(("bayplan".to_owned(), built.bayplan.clone()));
        let is_scenario = matches!(self.suite, Suite::Reenact(_));
        if let Some(series) = self.containerd.or(is_scenario.then_some("2")) {
            let given = containerd_of(series)?.into_iter();
            programs.extend(given.map(|(name, file)| (name.to_owned(), file)));
        }
        Ok((programs, commands))
    }

    /// The guest tests, divided.
    fn shares(&self, file: &Path) -> (Programs, Vec<String>) {
        let front_end: &[&str] = if self.is_plugin { &["--front-end", "nri"] } else { &[] };
        let front_end = front_end.iter().map(|it| (*it).to_owned());
        let args: Vec<String> = front_end.chain(self.args.iter().cloned()).collect();
        if self.guests == 1 {
            return tests(file, &args);
        }
        let (mut programs, mut commands) = (Vec::new(), Vec::new());
        for number in 1..=self.guests {
            let share = ["--share".to_owned(), format!("{number}/{}", self.guests)];
            let (these, command) = tests(file, &[&share[..], &args].concat());
            programs = these;
            commands.extend(command);
        }
        (programs, commands)
    }

    /// A guest for each machine with each kernel and each first process, and for each share of the tests.
    fn jobs(&self, built: &Built) -> anyhow::Result<Vec<Job>> {
        let (programs, commands) = self.load(built)?;
        let mut jobs = Vec::new();
        for release in &self.releases {
            let kernel = cached_or_fetched(*release)?;
            for (machine, init) in
                self.machines.iter().flat_map(|it| self.inits.iter().map(move |init| (*it, *init)))
            {
                let all = out_dir(machine, *release, init, &self.suite);
                for (index, command) in commands.iter().enumerate() {
                    let (which, out) = match self.guests {
                        1 => (String::new(), all.clone()),
                        count => {
                            let number = index + 1;
                            let out = format!("{}-{number}of{count}", all.display());
                            (format!(", share {number} of {count}"), out.into())
                        }
                    };
                    let (kernel, package) = (kernel.clone(), self.package.clone());
                    let guest = Guest { machine, kernel, init, package, out };
                    jobs.push(Job {
                        name: format!("{}{which}", guest.name()),
                        guest,
                        programs: programs.clone(),
                        command: command.clone(),
                        limits: self.limits,
                    });
                }
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
    let all_ran = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ran = job.run(at_a_time == 1);
                    all_ran.lock().unwrap_or_else(PoisonError::into_inner).push(ran);
                }
            });
        }
    });
    let all_ran = all_ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("\n{}", times::render(&all_ran));
    let failed: Vec<&str> = all_ran.iter().filter_map(|ran| ran.failure.as_deref()).collect();
    ensure!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
    Ok(())
}

impl Job {
    /// Shows the console while it runs, or else all of it at its end.
    fn run(&self, is_alone: bool) -> Ran {
        let (guest, name) = (&self.guest, self.name.clone());
        println!("== lab: {name} starts");
        let started = Instant::now();
        let programs: Vec<(&str, &Path)> =
            self.programs.iter().map(|(name, file)| (name.as_str(), file.as_path())).collect();
        let ended = guest.run(&programs, &self.command, self.limits, is_alone);
        let (took, console) = (started.elapsed(), guest.console());
        let how = if ended.is_ok() { "passed" } else { "failed" };
        let shown = if is_alone { "" } else { &console };
        println!("{shown}== lab: {name} {how} in {} s", took.as_secs());
        let failure = ended.err().map(|error| format!("{name}: {error:#}"));
        Ran { tests: times::parse(&console), name, took, failure }
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
fn tests(file: &Path, args: &[String]) -> (Programs, Vec<String>) {
    let name = "guest-tests".to_owned();
    let words: Vec<String> = std::iter::once(&name).chain(args).cloned().collect();
    (vec![(name, file.to_owned())], vec![command_line(&words)])
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
    fn guest_tests_and_nothing_else_are_divided() {
        let asked = Asked::parse(&["--guests", "2", "--", "--skip", "cmk"]).unwrap();
        let (programs, commands) = asked.shares(Path::new("tests"));
        assert_eq!(programs, [("guest-tests".to_owned(), PathBuf::from("tests"))]);
        assert_eq!(
            commands,
            ["1/2", "2/2"].map(|it| format!("'guest-tests' '--share' '{it}' '--skip' 'cmk'\n"))
        );
        let whole = Asked::parse(&["--", "cmk"]).unwrap().shares(Path::new("tests")).1;
        assert_eq!(whole, ["'guest-tests' 'cmk'\n"]);
        for wrong in [
            &["--guests", "0"][..],
            &["--guests", "two"],
            &["--guests", "2", "--suite", "probes"],
            &["--guests", "2", "--reenact", "redis-near"],
        ] {
            assert!(Asked::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn guest_tests_know_the_front_end_and_a_plugin_has_a_containerd_that_takes_it() {
        let plugin = ["--containerd", "2", "--front-end", "nri"];
        for (args, expected) in [
            (&plugin[..], &["'guest-tests' '--front-end' 'nri'\n"][..]),
            (&plugin[..2], &["'guest-tests'\n"]),
            (
                &[&plugin[..], &["--guests", "2", "--", "own"]].concat(),
                &[
                    "'guest-tests' '--share' '1/2' '--front-end' 'nri' 'own'\n",
                    "'guest-tests' '--share' '2/2' '--front-end' 'nri' 'own'\n",
                ],
            ),
        ] {
            let commands = Asked::parse(args).unwrap().shares(Path::new("tests")).1;
            assert_eq!(commands, expected, "{args:?}");
        }
        let probes = [&plugin[..], &["--suite", "probes"]].concat();
        for wrong in [&plugin[2..], &probes, &["--front-end", "proxy"]] {
            assert!(Asked::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_change_has_both_kernels_and_systemd() {
        let asked = change::runs().map(|args| Asked::parse(&args).unwrap());
        let [under_systemd, newer] = &asked;
        assert_eq!((under_systemd.guests, newer.guests), (1, 3));
        assert_eq!(
            (&under_systemd.inits[..], &newer.inits[..]),
            (&[Init::Systemd][..], &[Init::Shell][..])
        );
        assert_eq!(under_systemd.releases, [Release::Stable]);
        assert_eq!(newer.releases, [Release::Backports]);
        assert_eq!(newer.args[0], "--skip");
    }

    #[test]
    fn words_come_to_the_shell_as_they_are() {
        let words = ["xtask", "reenact-with", r#"{"a": "it's"}"#].map(str::to_owned);
        assert_eq!(command_line(&words), "'xtask' 'reenact-with' '{\"a\": \"it'\\''s\"}'\n");
    }
}
