//! `cargo xtask nightly`: the tests for which a change does not wait, one after the other. In: names of parts; none are all. Out: the log of each below
//! `target/nightly`, a table, and a failure where a part has failed. A part that fails does not stop the others; one that this machine lacks something for is not run.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::axe;
use crate::fuzz::{self, Effort};
use crate::{cargo, workspace};

pub(crate) const HELP: &str = "\
cargo xtask nightly [PART...]
                         what takes hours, one part after the other, as root: chaos, sigkill, soak, ledger (its properties on 20,000 machines), rebalance (10,000 machine-hours on seeds drawn at random), fuzz (every target), browser (the live map, with axe-core's rules for accessibility; and top in tmux; needs chromium, chromium-driver, npm and tmux), critest, clients (gRPC in Go, C, Java), kubelet, kubelet-nri (the same with Bayplan as containerd's plugin), cluster (the agent with a real API server) and cluster-newest (with a newer one), crowd (1,000 agents against one API server, with a build of its own), switch (a node goes over from nri-plugins; only where BAYPLAN_NRI_PLUGIN names its plugin), deployed (daemon and agent as pods of the chart), nri (3,000 rounds of trouble with containerd 2, which critest builds), reenact (that `cargo xtask reenact` runs and leaves nothing behind), package (makes both and tests them, also the memory of their program as agent), arm64 (both for 64-bit Arm, its unit tests and demo, emulated), lab,
                         probes (the probes' tests in guests), hog (there the rebalancer with real programs) and caches (there with several L3s), lab-nri (guests with Bayplan as a plugin); logs are in target/nightly, and a table of verdicts comes last
";

const CHAOS: &str = "chaos::after_every_round_of_chaos_all_agree_and_nothing_has_leaked";
const SIGKILL: &str =
    "chaos::after_sigkill_at_any_moment_of_a_call_all_agree_and_nothing_has_leaked";
const SOAK: &str = "soak::twenty_pods_a_second_come_and_go_and_nothing_grows";
/// What the parts of chaos, fuzzing and the soak have for themselves.
const CHAOS_ROUNDS: &str = "20000";
const SIGKILL_ROUNDS: &str = "5000";
const SOAK_MINUTES: &str = "30";
const STORM_PODS: &str = "1000";
const CROWD: &str = "1000";
/// Seconds.
const API_AWAY: &str = "180";
/// Random machines, each with a history, of each property of the ledger.
const PROPERTY_CASES: &str = "20000";
/// Of simulated machines, with seeds drawn at random.
const MACHINE_HOURS: &str = "10000";
const NRI_ROUNDS: &str = "3000";
const FUZZ_SECONDS: u32 = 600;
/// What takes longer hangs: twice the longest.
const LIMIT: &str = "6h";

/// The topology-aware plugin of nri-plugins.
const PLUGIN: &str = "BAYPLAN_NRI_PLUGIN";
const NEEDS_PLUGIN: &str =
    "BAYPLAN_NRI_PLUGIN to name nri-resource-policy-topology-aware, as nri-plugins builds it";

/// One program, with the name of its log.
struct Part {
    name: String,
    command: Command,
    /// What the log has to say in the end, besides that the program says it is well.
    must_say: &'static str,
    /// What it needs and this machine lacks, so that it is not run.
    lacks: Option<&'static str>,
}

impl Part {
    fn new(name: impl Into<String>, command: Command) -> Part {
        Part { name: name.into(), command, must_say: "", lacks: None }
    }
}

/// How one has ended.
struct Verdict {
    name: String,
    outcome: Outcome,
    took: Duration,
}

enum Outcome {
    Passed,
    /// What went wrong.
    Failed(String),
    /// What it needs.
    NotRun(&'static str),
}

pub(crate) fn run(wanted: &[&str]) -> anyhow::Result<()> {
    let mut parts = parts(wanted)?;
    if let Some(browser) = parts.iter_mut().find(|it| it.name == "browser") {
        browser.command.env("BAYPLAN_AXE", axe::file()?);
    }
    for target in fuzz::targets()? {
        fs::create_dir_all(corpus(&target))?;
    }
    let dir = workspace().join("target/nightly");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let verdicts = run_parts(parts, &dir);
    print!("\n{}", render(&verdicts));
    let failed = verdicts.iter().filter(|it| matches!(it.outcome, Outcome::Failed(_))).count();
    ensure!(
        failed == 0,
        "{failed} of {} parts failed; logs are in {}",
        verdicts.len(),
        dir.display()
    );
    Ok(())
}

/// Whether there are such parts.
pub(crate) fn check(wanted: &[&str]) -> anyhow::Result<()> {
    parts(wanted).map(drop)
}

/// In the order in which they run.
fn parts(wanted: &[&str]) -> anyhow::Result<Vec<Part>> {
    let test = |name: &str, tests: &str, variable: &str, value: &str| {
        let mut command = Command::new(cargo());
        command.args(["test", "--locked", "-p", "bayplan-tests", "--test", "daemon", "--", tests]);
        command.args(["--exact", "--nocapture"]).env(variable, value);
        Part { must_say: "test result: ok. 1 passed", ..Part::new(name, command) }
    };
    let script = |name: &str, args: &[&str]| {
        let mut command = Command::new(workspace().join("tests").join(name).join("run"));
        command.args(args);
        Part::new(name, command)
    };
    let mut lab = Command::new(std::env::current_exe()?);
    lab.args(["lab", "run", "--machine", "all", "--kernel", "all", "--init", "all"]);
    let mut probes = Command::new(std::env::current_exe()?);
    probes.args(["lab", "run", "--kernel", "all", "--suite", "probes"]);
    let mut hog = Command::new(std::env::current_exe()?);
    hog.args([
        "lab",
        "run",
        "--kernel",
        "all",
        "--",
        "a_hog_is_named",
        "lent_cpus_come",
        "a_budget",
    ]);
    let mut caches = Command::new(std::env::current_exe()?);
    caches.args(["lab", "run", "--machine", "2s-die4-l3x4", "--kernel", "backports", "--"]);
    caches.args(["that_hop", "with_wide_vectors"]);
    let mut parts = vec![
        test("chaos", CHAOS, "BAYPLAN_CHAOS_ROUNDS", CHAOS_ROUNDS),
        test("sigkill", SIGKILL, "BAYPLAN_CHAOS_KILLED_ROUNDS", SIGKILL_ROUNDS),
        test("soak", SOAK, "BAYPLAN_SOAK_MINUTES", SOAK_MINUTES),
    ];
    parts.extend(imagined_machines());
    parts.extend(fuzz_parts()?);
    let mut browser = Command::new(cargo());
    browser.args(["test", "--locked", "-p", "bayplan-tests", "--test", "browser"]);
    parts.push(Part { must_say: "test result: ok. 7 passed", ..Part::new("browser", browser) });
    parts.push(script("critest", &["--side-by-side"]));
    parts.push(script("clients", &[]));
    parts.push(script("kubelet", &[]));
    let plugin = script("kubelet", &["--front-end", "nri", "--kubernetes", "1.34"]);
    parts.push(Part { name: "kubelet-nri".to_owned(), ..plugin });
    parts.push(Part::new("cluster-build", Command::new(workspace().join("tests/cluster/build"))));
    parts.extend(cluster_parts());
    parts.extend(crowd_and_switch());
    let deployed = Command::new(workspace().join("tests/kubelet/run-deployed"));
    parts.push(Part::new("deployed", deployed));
    let mut nri = Command::new(cargo());
    nri.args(["test", "--workspace", "--locked", "--test", "nri", "--", "after_every_round"]);
    nri.arg("--nocapture").env("BAYPLAN_NRI_ROUNDS", NRI_ROUNDS);
    parts.push(Part { must_say: "test result: ok. 1 passed", ..Part::new("nri", nri) });
    let mut reenact = Command::new(cargo());
    reenact.args(["test", "--locked", "-p", "bayplan-xtask", "--test", "reenact"]);
    parts.push(Part { must_say: "test result: ok. 2 passed", ..Part::new("reenact", reenact) });
    parts.extend(package_parts()?);
    parts.extend(arm64_parts()?);
    parts.push(Part::new("lab", lab));
    parts.extend(lab_plugin_parts()?);
    parts.push(Part::new("probes", probes));
    parts.push(Part::new("hog", hog));
    parts.push(Part::new("caches", caches));
    choose(parts, wanted)
}

/// The ledger's properties, and the rebalancer on machines that do not exist.
fn imagined_machines() -> [Part; 2] {
    let mut ledger = Command::new(cargo());
    ledger.args(["test", "--locked", "-p", "bayplan-allocator", "--lib", "--"]);
    ledger.arg("tests::properties").env("PROPTEST_CASES", PROPERTY_CASES);
    let mut rebalance = Command::new(cargo());
    rebalance.args(["test", "--locked", "-p", "bayplan-tests", "--test", "rebalance", "--"]);
    rebalance.args(["no_machine_is_worse", "--nocapture"]);
    rebalance.env("BAYPLAN_REBALANCE_HOURS", MACHINE_HOURS);
    [
        Part { must_say: "test result: ok.", ..Part::new("ledger", ledger) },
        Part { must_say: "test result: ok. 1 passed", ..Part::new("rebalance", rebalance) },
    ]
}

/// Guests in which Bayplan is a plugin of a containerd that critest has built: all tests with 2, and the way there and back with both.
fn lab_plugin_parts() -> anyhow::Result<[Part; 3]> {
    let xtask = std::env::current_exe()?;
    Ok([
        ("lab-nri", &["--containerd", "2", "--front-end", "nri"][..]),
        ("lab-nri-switch", &["--containerd", "2", "--", "as_a_plugin"]),
        ("lab-nri-1.7", &["--containerd", "1.7", "--", "as_a_plugin"]),
    ]
    .map(|(name, args)| {
        let mut lab = Command::new(&xtask);
        lab.args(["lab", "run", "--init", "all"]).args(args);
        Part::new(name, lab)
    }))
}

/// The agent with real API servers, with and without stable admission policies.
fn cluster_parts() -> [Part; 2] {
    [("cluster", "1.34"), ("cluster-newest", "1.37")].map(|(name, release)| {
        let mut cluster = Command::new(cargo());
        cluster.args(["test", "--locked", "-p", "bayplan-tests", "--test", "cluster"]);
        // One test after the other: how soon an agent hears of a pod decides what the scheduler knows.
        cluster.args(["--", "--nocapture", "--test-threads", "1"]);
        cluster.env("BAYPLAN_KUBERNETES", release);
        cluster.env("BAYPLAN_CLUSTER", "required").env("BAYPLAN_STORM_PODS", STORM_PODS);
        cluster.env("BAYPLAN_API_AWAY", API_AWAY);
        Part { must_say: "test result: ok. 7 passed", ..Part::new(name, cluster) }
    })
}

/// Figures of many agents, which a debug build of them would take all CPUs for; and a node that was another system's.
fn crowd_and_switch() -> [Part; 2] {
    let test = |options: &[&str], name: &str| {
        let mut command = Command::new(cargo());
        command.arg("test").args(options).args(["--locked", "-p", "bayplan-tests", "--test", name]);
        command.args(["--", "--nocapture"]).env("BAYPLAN_CLUSTER", "required");
        command
    };
    let mut crowd = test(&["--release"], "crowd");
    crowd.env("BAYPLAN_CROWD", CROWD).env("BAYPLAN_CROWD_ROLLOUT", "300");
    let said = |count: &'static str, name: &str, command: Command| Part {
        must_say: count,
        ..Part::new(name, command)
    };
    let switch = said("test result: ok. 1 passed", "switch", test(&[], "switch"));
    let lacks = lacks_plugin(std::env::var_os(PLUGIN).as_deref());
    [said("test result: ok. 2 passed", "crowd", crowd), Part { lacks, ..switch }]
}

/// What is lacking where this names no program.
fn lacks_plugin(named: Option<&OsStr>) -> Option<&'static str> {
    let is_there = named.is_some_and(|it| Path::new(it).is_file());
    (!is_there).then_some(NEEDS_PLUGIN)
}

/// Those that are wanted by their own name, or by that before a dash.
fn choose(mut parts: Vec<Part>, wanted: &[&str]) -> anyhow::Result<Vec<Part>> {
    let is = |name: &str, word: &str| name == word || name.split('-').next() == Some(word);
    if let Some(word) = wanted.iter().find(|word| !parts.iter().any(|it| is(&it.name, word))) {
        let names: Vec<&str> = parts.iter().map(|it| it.name.as_str()).collect();
        bail!("`{word}` is no part; there are {}", names.join(", "));
    }
    parts.retain(|it| wanted.is_empty() || wanted.iter().any(|word| is(&it.name, word)));
    Ok(parts)
}

/// What runs them, and one for each target.
fn fuzz_parts() -> anyhow::Result<Vec<Part>> {
    let effort = Effort { seconds: FUZZ_SECONDS, seed: None };
    let part = |target: &String| {
        let command = fuzz::command(target, corpus(target), effort)?;
        Ok(Part::new(format!("fuzz-{target}"), command))
    };
    let install = Part::new("fuzz-install", fuzz::install()?);
    std::iter::once(Ok(install)).chain(fuzz::targets()?.iter().map(part)).collect()
}

/// Makes the packages, tests what the Debian one installs in a guest under systemd, what the RPM one does to a root of its own, and how much memory their program needs as agent.
fn package_parts() -> anyhow::Result<Vec<Part>> {
    let xtask = std::env::current_exe()?;
    let mut package = Command::new(&xtask);
    package.arg("package");
    // Its name has the version, and it is the only one there.
    let mut guest = Command::new("sh");
    guest.args(["-c", "exec \"$0\" lab run --init systemd --package \"$1\"/*.deb"]);
    guest.arg(&xtask).arg(workspace().join("target/package"));
    let rpm = Command::new(workspace().join("tests/check-rpm"));
    let mut agent = Command::new(cargo());
    agent.args(["test", "--release", "--locked", "-p", "bayplan-tests", "--test", "crowd", "--"]);
    agent.args(["--nocapture", "one_agent"]).env("BAYPLAN_CLUSTER", "required");
    agent.env("BAYPLAN_AGENT_PROGRAM", workspace().join("target/package/bayplan"));
    Ok(vec![
        Part::new("package", package),
        Part::new("package-guest", guest),
        Part { must_say: "check-rpm: installed", ..Part::new("package-rpm", rpm) },
        Part { must_say: "test result: ok. 1 passed", ..Part::new("package-agent", agent) },
    ])
}

/// The program for 64-bit Arm: packages, unit tests, the demo on an emulated board.
fn arm64_parts() -> anyhow::Result<[Part; 3]> {
    let xtask = std::env::current_exe()?;
    Ok(["package", "units", "demo"].map(|it| {
        let mut command = Command::new(&xtask);
        command.args(["arm64", it]);
        let part = Part::new(format!("arm64-{it}"), command);
        match it {
            "demo" => Part { must_say: "arm64: the demo passed", ..part },
            _ => part,
        }
    }))
}

/// Where a target keeps what it has found to be new.
fn corpus(target: &str) -> PathBuf {
    workspace().join("tests/fuzz/corpus").join(target)
}

fn run_parts(parts: Vec<Part>, dir: &Path) -> Vec<Verdict> {
    let count = parts.len();
    let run = |(index, part): (usize, Part)| {
        let log = dir.join(&part.name).with_extension("log");
        if let Some(needs) = part.lacks {
            let outcome = Outcome::NotRun(needs);
            return Verdict { name: part.name, outcome, took: Duration::ZERO };
        }
        println!("nightly: {} of {count}: {}, see {}", index + 1, part.name, log.display());
        let begun = Instant::now();
        let outcome = match run_part(&part, &log) {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let verdict = Verdict { name: part.name, outcome, took: begun.elapsed() };
        print!("nightly: {}", render(std::slice::from_ref(&verdict)));
        verdict
    };
    parts.into_iter().enumerate().map(run).collect()
}

/// `timeout` also ends what the program has started.
fn run_part(part: &Part, log: &Path) -> anyhow::Result<()> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=1m", LIMIT]).arg(part.command.get_program());
    limited.args(part.command.get_args());
    let variables = part.command.get_envs();
    limited.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(workspace()).stdin(Stdio::null());
    limited.stdout(out.try_clone()?).stderr(out);
    let status = limited.status().context("cannot run `timeout`")?;
    // What coreutils' timeout says of itself.
    match status.code() {
        Some(0) => {}
        Some(124 | 137) => bail!("not done after {LIMIT}"),
        _ => bail!("{status}"),
    }
    let said = fs::read(log)?;
    let says = String::from_utf8_lossy(&said).contains(part.must_say);
    ensure!(says, "it does not say `{}`", part.must_say);
    Ok(())
}

/// A line for each; those that were not run come last.
fn render(verdicts: &[Verdict]) -> String {
    let is_run = |it: &&Verdict| !matches!(it.outcome, Outcome::NotRun(_));
    let (run, not_run): (Vec<&Verdict>, Vec<&Verdict>) = verdicts.iter().partition(is_run);
    let line = |it: &Verdict| {
        let minutes = it.took.as_secs().div_ceil(60);
        let verdict = match &it.outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::NotRun(needs) => format!("not run: needs {needs}"),
        };
        format!("{:20} {minutes:4} min  {verdict}\n", it.name)
    };
    run.into_iter().chain(not_run).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, script: &str) -> Part {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Part::new(name, command)
    }

    #[test]
    fn a_part_that_fails_does_not_stop_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let lost = Part::new("lost", Command::new("/no/such/program"));
        let silent = Part { must_say: "1 passed", ..part("silent", "echo 0 passed") };
        let good = Part { must_say: "fine", ..part("good", "echo fine") };
        let parts = vec![part("bad", "echo why >&2; exit 3"), lost, silent, good];
        let verdicts = run_parts(parts, dir.path());
        let said = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((said("bad.log"), said("good.log")), ("why\n".to_owned(), "fine\n".to_owned()));
        let told = render(&verdicts);
        let lines: Vec<&str> = told.lines().map(|it| it.split_once(" min  ").unwrap().1).collect();
        assert_eq!(lines[0], "FAILED: exit status: 3");
        assert_eq!(
            lines[1..],
            ["FAILED: exit status: 127", "FAILED: it does not say `1 passed`", "ok"]
        );
    }

    #[test]
    fn a_part_that_lacks_something_is_not_run_and_says_what_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let lacking = Part { lacks: Some("a plugin"), ..part("lacking", "exit 3") };
        let told = render(&run_parts(vec![lacking, part("good", "true")], dir.path()));
        let lines: Vec<&str> = told.lines().map(|it| it.split_once(" min  ").unwrap().1).collect();
        assert_eq!(lines, ["ok", "not run: needs a plugin"]);
        assert!(!dir.path().join("lacking.log").exists());
    }

    #[test]
    fn the_switch_needs_a_program_that_is_there() {
        let program = std::env::current_exe().unwrap();
        for (named, is_there) in [
            (None, false),
            (Some(OsStr::new("")), false),
            (Some(OsStr::new("/no/such/program")), false),
            (Some(program.as_os_str()), true),
        ] {
            assert_eq!(lacks_plugin(named).is_none(), is_there, "{named:?}");
        }
    }

    #[test]
    fn parts_are_chosen_by_name_or_by_what_they_have_in_common() {
        let all = || ["chaos", "fuzz-files", "fuzz-lists"].map(|it| part(it, "")).into();
        let names = |wanted: &[&str]| -> Vec<String> {
            choose(all(), wanted).unwrap().into_iter().map(|it| it.name).collect()
        };
        assert_eq!(names(&[]), ["chaos", "fuzz-files", "fuzz-lists"]);
        assert_eq!(names(&["fuzz"]), ["fuzz-files", "fuzz-lists"]);
        assert_eq!(names(&["fuzz-lists", "chaos"]), ["chaos", "fuzz-lists"]);
        let refused = choose(all(), &["soup"]).err().unwrap().to_string();
        assert_eq!(refused, "`soup` is no part; there are chaos, fuzz-files, fuzz-lists");
    }

    #[test]
    fn every_part_is_there() {
        let names: Vec<String> = parts(&[]).unwrap().into_iter().map(|it| it.name).collect();
        for name in
            ["chaos", "sigkill", "soak", "fuzz-journal", "critest", "kubelet", "package", "lab"]
        {
            assert!(names.iter().any(|it| it == name), "{name} in {names:?}");
        }
        // What makes them comes first.
        let packages: Vec<&String> = names.iter().filter(|it| it.starts_with("package")).collect();
        assert_eq!(packages, ["package", "package-guest", "package-rpm", "package-agent"]);
    }
}
