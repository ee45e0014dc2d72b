//! What only a machine with packages, NUMA nodes and cgroup v2 can show. Runs as root in a virtual machine of `cargo xtask lab run`,
//! one test after the other with one containerd; elsewhere it says so and does nothing.
//!
//! `guest-tests [--list] [--front-end cri|nri] [--share I/N] [--skip PART OF A NAME]... [PART OF A NAME]...`; without a name all but those that measure how long clients wait.
//! Of those that this machine has the needs for, the `I`th of `N` shares are every `N`th.

#![allow(clippy::print_stdout, reason = "tests tell what they do")]

mod arrival;
mod asked;
mod budget;
mod cgroup;
mod clients;
mod clocks;
mod cuse;
mod exclusive;
mod files;
mod gathering;
mod groups;
mod hardware;
mod held;
mod isolated;
mod isst_driver;
mod killed;
mod lending;
mod lifecycle;
mod machine;
mod memory;
mod package;
mod plugin;
mod probes;
mod rebalancing;
mod resize;
mod shared;
mod speed_select;
mod spread;
mod units;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bayplan_cri::kubelet::CgroupDriver;
use bayplan_tests::containerd::Programs;
use bayplan_tests::node::{Node, Way};

use crate::asked::Asked;
use crate::hardware::Hardware;

/// The lab writes here what it has made.
const MACHINE: &str = "/lab/machine";
/// What is here comes back to the host.
const ARTEFACTS: &str = "/artefacts";
const BAYPLAN: &str = "/usr/bin/bayplan";
/// Where the lab has put another containerd, if one is asked for (`--containerd 2`).
const CONTAINERD_GIVEN: &str = "/usr/bin/containerd-given";

/// Holds 1 MB of memory that it has written to, in more than one process.
const COMMAND: [&str; 4] = [
    "/bin/busybox",
    "sh",
    "-c",
    "x=$(/bin/busybox head -c 1000000 /dev/zero | /bin/busybox tr '\\0' x); /bin/busybox sleep 1000000; echo $x",
];

/// A test: a sentence that is true when it passes.
struct Test {
    name: &'static str,
    /// On other machines there is nothing to see.
    needs: fn(&Hardware) -> Needs,
    /// More for the daemon's configuration.
    config: &'static str,
    run: fn(&mut Node, &Hardware) -> anyhow::Result<()>,
}

/// Those that only run when they are asked for: on a busy host they may fail, or they want a containerd of their own (`lab run --containerd 2 -- as_a_plugin`).
const BY_NAME: [&[Test]; 6] = [
    rebalancing::TESTS,
    lending::TESTS,
    budget::TESTS,
    clocks::TESTS,
    gathering::TESTS,
    plugin::TESTS,
];

/// Tests, by parts of their names, that show what a proxy does, or that go over to it. A plugin (`--front-end nri`) has all others.
const PROXY: [&str; 3] = ["a_call_of_kubelet_starts", "no_call_fails_while", "as_a_plugin"];

/// What a machine lacks for a test.
type Needs = Result<(), &'static str>;

fn tests() -> Vec<&'static Test> {
    [
        machine::TESTS,
        exclusive::TESTS,
        shared::TESTS,
        cgroup::TESTS,
        held::TESTS,
        arrival::TESTS,
        memory::TESTS,
        isolated::TESTS,
        groups::TESTS,
        files::TESTS,
        killed::TESTS,
        speed_select::TESTS,
        resize::TESTS,
        probes::TESTS,
        lifecycle::TESTS,
        units::TESTS,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        tests()
            .into_iter()
            .chain(BY_NAME.into_iter().flatten())
            .for_each(|test| println!("{}", test.name));
        return ExitCode::SUCCESS;
    }
    if args == [files::WRITE_FOR_EVER] {
        return files::write_for_ever().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if args == [gathering::SERVE] {
        return gathering::serve().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let [option, question] = args.as_slice()
        && option == speed_select::ASK
    {
        return speed_select::ask(question).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if !Path::new(MACHINE).is_file() {
        println!("these tests run in a virtual machine: cargo xtask lab run");
        return ExitCode::SUCCESS;
    }
    match Asked::parse(&args).and_then(|asked| run(&asked)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As kubelet is to be configured: systemd makes cgroups where it is the first process (sd_booted(3)).
pub(crate) fn driver() -> CgroupDriver {
    match Path::new("/run/systemd/system").is_dir() {
        true => CgroupDriver::Systemd,
        false => CgroupDriver::Cgroupfs,
    }
}

/// Whether all went well.
fn run(asked: &Asked) -> anyhow::Result<bool> {
    let hardware = Hardware::read()?;
    if package::is_given() {
        package::install()?;
        println!("the package is installed");
    }
    let given = Path::new(CONTAINERD_GIVEN);
    let programs = match given.is_dir() {
        true => Programs::of_dir(given),
        false => Programs::installed()?,
    };
    let bayplan = Path::new(BAYPLAN);
    let mut node = Node::start_with(bayplan, &COMMAND, driver(), asked.way, programs)?;
    let (possible, skipped) = possible(asked, &hardware);
    let (mut passed, mut failed) = (0, 0);
    for test in asked.share_of(&possible) {
        let started = Instant::now();
        let told = node.reset(test.config).and_then(|()| (test.run)(&mut node, &hardware));
        let seconds = started.elapsed().as_secs_f32();
        match told {
            Ok(()) => {
                println!("test {} ... ok ({seconds:.1} s)", test.name);
                passed += 1;
            }
            Err(error) => {
                println!("test {} ... FAILED ({seconds:.1} s): {error:#}", test.name);
                node.keep_logs(Path::new(ARTEFACTS), test.name)?;
                failed += 1;
            }
        }
    }
    node.end(Ok(()))?;
    if package::is_given() {
        package::purge()?;
        println!("the package is gone");
    }
    println!("guest: {passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0 && passed > 0)
}

/// The asked tests that this machine has the needs for, and how many it lacks something for, which is printed.
fn possible(asked: &Asked, hardware: &Hardware) -> (Vec<&'static Test>, usize) {
    let all = match asked.is_by_name() {
        true => tests().into_iter().chain(BY_NAME.into_iter().flatten()).collect(),
        false => tests(),
    };
    let (mut possible, mut skipped) = (Vec::new(), 0);
    for test in all.into_iter().filter(|test| asked.has(test.name)) {
        let is_for_proxy = PROXY.iter().any(|part| test.name.contains(part));
        let needs = match asked.way {
            Way::Plugin if is_for_proxy => Err("no proxy"),
            _ => (test.needs)(hardware),
        };
        match needs {
            Ok(()) => possible.push(test),
            Err(lack) => {
                println!("test {} ... skipped: this machine has {lack}", test.name);
                skipped += 1;
            }
        }
    }
    (possible, skipped)
}
