//! `cargo xtask test`: every test that this machine can run, quick ones first. In: what this machine has. Out: a table of what passed, what failed, and what was left out, why
//! and what it needs, with seconds of each part and of each test program. With `CI=true` nothing may be left out.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::built::built_dir;
use crate::suites::{self, Suite};
use crate::{cargo, lab, setup, workspace};

/// What some tests need of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// User 0.
    Root,
    /// Mounting file systems (`CAP_SYS_ADMIN`).
    Mounts,
    /// `/dev/fuse`.
    Fuse,
    /// Programs of the kernel (`CAP_BPF`, `/sys/kernel/btf`).
    Bpf,
    /// containerd, runc and a static busybox, and a cgroup hierarchy that can be written.
    Containerd,
    /// Containerd 2 and runc as `tests/programs` builds them.
    Containerd2,
    Prometheus,
    /// QEMU, kernels and the guests' file system.
    Guests,
}

/// Tests of a target that need something.
#[derive(Clone, Copy, Debug)]
struct Special {
    target: &'static str,
    /// The beginning of their names; empty: all.
    filter: &'static str,
    needs: &'static [Need],
}

const SPECIAL: &[Special] = &[
    Special { target: "cli", filter: "a_full_disk_keeps", needs: &[Need::Mounts] },
    Special {
        target: "daemon",
        filter: "disks::a_disk_that_has_become_read_only",
        needs: &[Need::Mounts],
    },
    Special { target: "daemon", filter: "prometheus::", needs: &[Need::Prometheus] },
    Special { target: "daemon", filter: "resctrl::", needs: &[Need::Mounts, Need::Fuse] },
    Special { target: "kernel", filter: "", needs: &[Need::Root, Need::Bpf] },
    Special {
        target: "containerd",
        filter: "",
        needs: &[Need::Root, Need::Mounts, Need::Containerd],
    },
    Special {
        target: "nri",
        filter: "",
        needs: &[Need::Root, Need::Mounts, Need::Containerd, Need::Containerd2],
    },
];

/// The target with tests that run in virtual machines: [`lab::test`].
const GUEST: &str = "guest";

/// One run of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    /// Of `cargo test --workspace --locked`, with what comes after `--`; `None`: the virtual machines.
    args: Option<Vec<String>>,
    needs: Vec<Need>,
}

/// How a part has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    /// What is missing, with a remedy.
    LeftOut(Vec<String>),
}

struct Row {
    name: String,
    outcome: Outcome,
    took: Duration,
    /// The rest of that time, if there are any, is building.
    suites: Vec<Suite>,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let may_leave_out = std::env::var("CI").as_deref() != Ok("true");
    let prepared = prepare();
    if let (Err(error), false) = (&prepared, may_leave_out) {
        anyhow::bail!("{error:#}");
    }
    let parts = parts(&test_targets()?);
    let missing = |part: &Part| part.needs.iter().filter_map(|need| need.missing()).collect();
    let lacks: Vec<Vec<String>> = parts.iter().map(missing).collect();
    let lacking: Vec<String> = lacks.iter().flatten().cloned().collect();
    ensure!(
        may_leave_out || lacking.is_empty(),
        "with CI=true no test may be left out:\n{}",
        lacking.join("\n")
    );
    let run = |(part, lacks): (Part, Vec<String>)| {
        let (begun, mut suites) = (Instant::now(), Vec::new());
        let outcome = match lacks.is_empty() {
            true => run_part(&part, &mut suites)
                .map_or_else(|error| Outcome::Failed(format!("{error:#}")), |()| Outcome::Passed),
            false => Outcome::LeftOut(lacks),
        };
        Row { name: part.name, outcome, took: begun.elapsed(), suites }
    };
    let rows: Vec<Row> = parts.into_iter().zip(lacks).map(run).collect();
    print!("\n{}", render(&rows));
    let failed = rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed(_))).count();
    ensure!(failed == 0, "{failed} of {} parts failed", rows.len());
    Ok(())
}

/// Installs what is missing. Only root does: a run of tests asks for no password.
fn prepare() -> anyhow::Result<()> {
    if Need::Root.missing().is_some() {
        println!("xtask: not root, so nothing is installed; `sudo cargo xtask setup` does");
        return Ok(());
    }
    let prepared = lab::prepare();
    if let Err(error) = &prepared {
        println!("xtask: {error:#}");
    }
    prepared
}

/// Names of all test targets of the workspace that are not for the nightly run alone, in cargo's order.
fn test_targets() -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(cargo());
    command
        .args(["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .current_dir(workspace());
    let told = command.stderr(Stdio::inherit()).output().context("cannot run cargo metadata")?;
    ensure!(told.status.success(), "cargo metadata: {}", told.status);
    let told: Value = serde_json::from_slice(&told.stdout).context("cargo metadata")?;
    let packages = told["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test" && target["test"] == true);
    Ok(tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

/// What has no needs first. A target that is no row of [`SPECIAL`] has none.
fn parts(targets: &[String]) -> Vec<Part> {
    let words = |words: &[&str]| Some(words.iter().map(|it| (*it).to_owned()).collect());
    let mut parts = vec![
        Part {
            name: "units and properties".to_owned(),
            args: words(&["--lib", "--bins"]),
            needs: Vec::new(),
        },
        Part {
            name: "examples in documentation".to_owned(),
            args: words(&["--doc"]),
            needs: Vec::new(),
        },
    ];
    for target in targets.iter().filter(|it| *it != GUEST) {
        let special = || SPECIAL.iter().filter(|it| it.target == target);
        if special().any(|it| it.filter.is_empty()) {
            continue;
        }
        let mut args = vec!["--test", target.as_str()];
        if special().next().is_some() {
            args.push("--");
        }
        args.extend(special().flat_map(|it| ["--skip", it.filter]));
        parts.push(Part { name: target.clone(), args: words(&args), needs: Vec::new() });
    }
    for it in SPECIAL {
        let mut args = vec!["--test", it.target];
        if !it.filter.is_empty() {
            args.extend(["--", it.filter]);
        }
        let name = format!("{} {}", it.target, it.filter.trim_end_matches(':'));
        parts.push(Part {
            name: name.trim_end().to_owned(),
            args: words(&args),
            needs: it.needs.to_vec(),
        });
    }
    parts.push(Part { name: "virtual machines".to_owned(), args: None, needs: vec![Need::Guests] });
    parts
}

fn run_part(part: &Part, suites: &mut Vec<Suite>) -> anyhow::Result<()> {
    let Some(args) = &part.args else { return lab::test() };
    let mut command = Command::new(cargo());
    // The whole workspace each time: packages by themselves have other features, and are built anew.
    command.args(["test", "--workspace", "--locked"]).args(args).current_dir(workspace());
    suites::run(&mut command, suites)
}

impl Need {
    /// What is not there, and what would bring it.
    fn missing(self) -> Option<String> {
        let succeeds = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let mounts = || succeeds("unshare", &["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
        let (is_there, text) = match self {
            Need::Root => (setup::is_root().unwrap_or(false), "root (sudo -E cargo xtask test)"),
            Need::Mounts => {
                (mounts(), "the right to mount (root; in a container --cap-add SYS_ADMIN)")
            }
            Need::Fuse => (
                setup::check_fuse().is_ok(),
                "/dev/fuse (modprobe fuse; in a container --device /dev/fuse)",
            ),
            Need::Bpf => (
                Path::new("/sys/kernel/btf/vmlinux").exists() && mounts(),
                "eBPF (a kernel with BTF, and root; in a container --privileged)",
            ),
            Need::Containerd => (
                setup::has_containers() && has_writable_cgroups(),
                "containerd, runc and a static busybox (sudo cargo xtask setup), and cgroups that can be written",
            ),
            Need::Containerd2 => (
                built_dir("containerd-2").is_some() && built_dir("runc").is_some(),
                "containerd 2 (tests/critest/run --containerd 2 --rounds direct --build-only)",
            ),
            Need::Prometheus => {
                (setup::has_prometheus(), "prometheus and promtool (sudo cargo xtask setup)")
            }
            Need::Guests => {
                (lab::is_prepared(), "QEMU, and kernels for guests (sudo cargo xtask setup)")
            }
        };
        (!is_there).then(|| text.to_owned())
    }
}

/// Whether a group can be made where containers would have theirs: cgroup v2, or v1's hierarchy of CPU sets.
fn has_writable_cgroups() -> bool {
    let places = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"];
    let Some(place) = places.into_iter().find(|it| Path::new(it).is_dir()) else { return false };
    let group = Path::new(place).join(format!("bayplan-xtask-{}", std::process::id()));
    std::fs::create_dir(&group).is_ok_and(|()| std::fs::remove_dir(&group).is_ok())
}

/// A line for each, and what the left out ones need; then the test programs that ran for a second or longer, longest first.
fn render(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let line = |row: &Row| {
        let outcome = match &row.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::LeftOut(needs) => format!("not run, needs {}", needs.join("; ")),
        };
        format!("{:width$}  {:5} s  {outcome}{}\n", row.name, row.took.as_secs(), building(row))
    };
    let mut suites: Vec<(&Suite, &Row)> =
        rows.iter().flat_map(|row| row.suites.iter().map(move |suite| (suite, row))).collect();
    suites.retain(|(suite, _)| suite.seconds >= 1.0);
    suites.sort_by(|(a, _), (b, _)| b.seconds.total_cmp(&a.seconds));
    let suites = suites
        .into_iter()
        .map(|(suite, row)| format!("{:7.1} s  {}  ({})\n", suite.seconds, suite.name, row.name));
    rows.iter().map(line).chain(suites).collect()
}

/// How much of its time no test ran.
fn building(row: &Row) -> String {
    let running: f32 = row.suites.iter().map(|it| it.seconds).sum();
    let building = row.took.as_secs_f32() - running;
    match row.suites.is_empty() || building < 1.0 {
        true => String::new(),
        false => format!(", {building:.0} s of it building"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["cli", "daemon", "guest", "kernel", "new"].map(str::to_owned).to_vec()
    }

    #[test]
    fn what_one_part_skips_another_runs() {
        let parts = parts(&names());
        for it in SPECIAL.iter().filter(|it| !it.filter.is_empty()) {
            let of_target = |part: &&Part| {
                part.args.as_ref().is_some_and(|args| args.iter().any(|arg| arg == it.target))
            };
            let of_target: Vec<&Part> = parts.iter().filter(of_target).collect();
            let has = |part: &&&Part, words: &[&str]| {
                part.args
                    .as_ref()
                    .is_some_and(|args| args.windows(words.len()).any(|it| it == words))
            };
            assert_eq!(
                of_target.iter().filter(|part| has(part, &["--skip", it.filter])).count(),
                1,
                "{}",
                it.filter
            );
            assert_eq!(
                of_target.iter().filter(|part| has(part, &["--", it.filter])).count(),
                1,
                "{}",
                it.filter
            );
        }
    }

    #[test]
    fn every_target_is_run_and_those_in_need_of_nothing_come_first() {
        let parts = parts(&names());
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(
            names[..5],
            ["units and properties", "examples in documentation", "cli", "daemon", "new"]
        );
        assert!(names.contains(&"kernel") && names.ends_with(&["virtual machines"]), "{names:?}");
        assert_eq!(parts.iter().position(|part| !part.needs.is_empty()), Some(5));
    }

    #[test]
    fn the_table_says_what_was_left_out_and_what_it_needs() {
        let suite = |name: &str, seconds| Suite { name: name.to_owned(), seconds };
        let row = |name: &str, outcome, suites: &[Suite]| Row {
            name: name.to_owned(),
            outcome,
            took: Duration::from_secs(90),
            suites: suites.to_vec(),
        };
        let rows = [
            row("cli", Outcome::Passed, &[suite("cli", 89.5)]),
            row(
                "units",
                Outcome::Failed("exit status: 101".to_owned()),
                &[suite("bayplan_types", 0.5), suite("bayplan_node", 9.5)],
            ),
            row("guests", Outcome::LeftOut(vec!["QEMU".to_owned(), "root".to_owned()]), &[]),
        ];
        let expected = "cli        90 s  passed
units      90 s  FAILED: exit status: 101, 80 s of it building
guests     90 s  not run, needs QEMU; root
   89.5 s  cli  (cli)
    9.5 s  bayplan_node  (units)
";
        assert_eq!(render(&rows), expected);
    }
}
