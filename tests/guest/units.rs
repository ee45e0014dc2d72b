//! The daemon as systemd runs it, by the units of the package, and what systemd itself writes into containers' groups.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::daemon::{SOCKET_UNIT, UNIT, property, systemctl};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, QosClass};

use crate::exclusive::own;
use crate::files::{becomes, group};
use crate::hardware::Hardware;
use crate::isolated::has_remote_partitions;
use crate::{BAYPLAN, Needs, Test, driver, probes};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "what_systemd_writes_again_is_seen_counted_and_repaired",
        needs: has_systemd,
        config: "memory: {lowPercent: 100, highPercent: 50}\n",
        run: |node, _| what_systemd_writes_again_is_repaired(node),
    },
    Test {
        name: "what_systemd_writes_along_is_repaired_and_never_given_up",
        needs: has_systemd,
        config: "memory: {lowPercent: 100}\n",
        run: |node, _| what_systemd_writes_along_is_repaired(node),
    },
    Test {
        name: "cpu_sets_that_systemd_was_told_of_are_repaired",
        needs: has_systemd,
        config: "",
        run: |node, _| cpu_sets_that_systemd_was_told_of_are_repaired(node),
    },
    Test {
        name: "a_call_of_kubelet_starts_the_daemon",
        needs: has_systemd,
        config: "",
        run: |node, _| a_call_of_kubelet_starts_the_daemon(node),
    },
    Test {
        name: "a_daemon_that_hangs_is_started_again_and_nobody_moves",
        needs: has_systemd,
        config: "",
        run: |node, _| a_daemon_that_hangs_is_started_again(node),
    },
    Test {
        name: "a_reload_holds_or_fails_as_a_whole",
        needs: has_systemd,
        config: "",
        run: |node, _| a_reload_holds_or_fails_as_a_whole(node),
    },
    Test {
        name: "no_call_fails_while_the_daemon_is_restarted_and_nobody_moves",
        needs: has_systemd,
        config: "",
        run: |node, _| no_call_fails_while_the_daemon_is_restarted(node),
    },
    Test {
        name: "a_unit_without_the_right_to_make_partitions_says_so",
        needs: |hardware| has_systemd(hardware).and_then(|()| has_remote_partitions(hardware)),
        config: "isolation: {partition: isolated}\n",
        run: |node, _| a_unit_without_the_right_says_so(node),
    },
    Test {
        name: "the_way_back_leaves_nothing_changed",
        needs: has_systemd,
        config: "memory: {lowPercent: 100}\n",
        run: the_way_back_leaves_nothing_changed,
    },
    Test {
        name: "the_unit_may_do_all_that_the_daemon_does",
        needs: has_systemd,
        config: "isolation: {interrupts: disable}\n",
        run: |node, _| the_unit_may_do_all_that_the_daemon_does(node),
    },
];

fn has_systemd(hardware: &Hardware) -> Needs {
    match driver() {
        CgroupDriver::Systemd => hardware.has_cpus(4),
        CgroupDriver::Cgroupfs => Err("no systemd"),
    }
}

fn sharer(node: &mut Node, name: &str) -> anyhow::Result<Placed> {
    let spec = ContainerSpec {
        memory_limit: Some(Bytes(64 << 20)),
        ..ContainerSpec::burstable("app", 100)
    };
    node.launch(&PodSpec::new(name, QosClass::Burstable), &spec)
}

/// The last name of a path, which is that of the unit.
fn unit(dir: &Path) -> anyhow::Result<&str> {
    dir.file_name().and_then(|name| name.to_str()).context("a unit")
}

/// How often a kernel file was changed by another program.
fn drifts(node: &Node) -> anyhow::Result<u64> {
    drifts_by(node, "")
}

/// By the programs of which the metric says so.
fn drifts_by(node: &Node, by: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    let is_of = |line: &&str| line.starts_with("bayplan_file_drifts_total") && line.contains(by);
    for line in node.metrics()?.lines().filter(is_of) {
        sum += line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}

fn what_systemd_writes_again_is_repaired(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 1)?;
    let wide = sharer(node, "wide")?;
    let (owners, wides) = (group(&owner)?, group(&wide)?);
    ensure!(owners.extension().is_some_and(|it| it == "scope"), "{}", owners.display());
    let pod = owners.parent().context("a pod around the owner")?.to_owned();
    let low = format!("{}", 32 << 20);
    let set = [
        (owners.join("cpu.max"), "max 100000"),
        (owners.join("memory.low"), low.as_str()),
        (pod.join("memory.low"), &low),
        (wides.join("memory.high"), "33554432"),
    ];
    becomes(&set)?;
    systemctl(&["daemon-reload"])?;
    becomes(&set)?;
    let before = drifts(node)?;
    let set_property = |dir: &Path, text: &str| {
        systemctl(&["set-property", "--runtime", unit(dir)?, text]).map(|_| ())
    };
    // Of a unit of which one property of the CPU has changed, systemd writes all, and it knows of a limit.
    set_property(&owners, "CPUWeight=77")?;
    set_property(&pod, "MemoryLow=0")?;
    set_property(&wides, "MemoryHigh=60M")?;
    wait_for("three changes to be counted", LIMIT, || {
        Ok((drifts(node)? >= before + 3).then_some(()))
    })?;
    becomes(&set)?;
    becomes(&[(owners.join("cpu.weight"), "77")])?;
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the owner was {owner:?} and is {now:?}");
    Ok(())
}

/// Our own updates of CPU sets, and kubelet's of the slices around all pods, which it makes every minute: systemd writes all files of a unit with each.
fn what_systemd_writes_along_is_repaired(node: &mut Node) -> anyhow::Result<()> {
    // Its share of the CPUs is smaller while one is reserved.
    let half = ContainerSpec::guaranteed("app", 500, Bytes(32 << 20));
    let shares = node.launch(&PodSpec::new("sharer", QosClass::Guaranteed), &half)?;
    let own = group(&shares)?;
    let pod = own.parent().context("a pod around the sharer")?;
    let all_pods = pod.parent().context("a slice around the pod")?;
    let low = format!("{}", 32 << 20);
    let set: Vec<_> =
        [&own, pod, all_pods].map(|dir| (dir.join("memory.low"), low.as_str())).into();
    becomes(&set)?;
    let others = drifts_by(node, "others")?;
    for round in 0..8 {
        let reserved = if round % 2 == 0 { "reservedCpus: \"0\"\n" } else { "" };
        node.write_config(&format!("memory: {{lowPercent: 100}}\n{reserved}"))?;
        systemctl(&["reload", UNIT])?;
        systemctl(&["set-property", "--runtime", unit(all_pods)?, "CPUWeight=50"])?;
        becomes(&set)?;
    }
    let [runtime, systemd] = ["runtime", "systemd"].map(|by| drifts_by(node, by));
    let (runtime, systemd) = (runtime?, systemd?);
    println!("repaired after the runtime {runtime} times, after systemd {systemd} times");
    ensure!(runtime >= 6 && systemd >= 6, "the runtime {runtime}, systemd {systemd}");
    let now = drifts_by(node, "others")?;
    ensure!(now == others, "{} changes are others'", now - others);
    ensure!(
        node.metrics()?.contains("bayplan_files{state=\"contested\"} 0"),
        "something is given up"
    );
    Ok(())
}

fn cpu_sets_that_systemd_was_told_of_are_repaired(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let before = drifts_by(node, "cpuset.cpus")?;
    let file = group(&owner)?.join("cpuset.cpus");
    let (own, mems) = (owner.cpus.to_string(), owner.mems.to_string());
    let mems = (group(&owner)?.join("cpuset.mems"), mems.as_str());
    for round in 1..=2 {
        // What the runtime has written within five seconds is its own, and looks at others' writes are a second apart.
        std::thread::sleep(Duration::from_secs(8));
        match round {
            1 => drop(systemctl(&[
                "set-property",
                "--runtime",
                unit(&group(&owner)?)?,
                "AllowedCPUs=0",
            ])?),
            _ => fs::write(&file, "0")?,
        }
        wait_for("the change to be counted", LIMIT, || {
            Ok((drifts_by(node, "cpuset.cpus")? >= before + round).then_some(()))
        })?;
        // Memory nodes may be repaired later: in one run they were not yet when the CPUs were.
        becomes(&[(file.clone(), &own), mems.clone()])?;
    }
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the owner was {owner:?} and is {now:?}");
    // systemd knows it, too, and so writes nothing else the next time.
    systemctl(&["daemon-reload"])?;
    systemctl(&["set-property", "--runtime", unit(&group(&owner)?)?, "CPUWeight=50"])?;
    becomes(&[(group(&owner)?.join("cpu.weight"), "50"), (file, &own)])
}

fn a_call_of_kubelet_starts_the_daemon(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    systemctl(&["stop", UNIT])?;
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the stop moved {owner:?} to {now:?}");
    ensure!(property("ActiveState")? == "inactive", "it is {}", property("ActiveState")?);
    let late = own(node, "late", 2)?;
    ensure!(property("ActiveState")? == "active", "it is {}", property("ActiveState")?);
    ensure!(late.cpus.is_disjoint(&owner.cpus), "{} are owned twice", late.cpus);
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the start moved {owner:?} to {now:?}");
    let status = property("StatusText")?;
    ensure!(status == "serving", "systemd was told `{status}`");
    Ok(())
}

fn a_daemon_that_hangs_is_started_again(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let pid = property("MainPID")?;
    systemctl(&["kill", "--kill-who=main", "--signal=STOP", UNIT])?;
    // `WatchdogSec=`, and what the start takes.
    wait_for("another daemon", LIMIT + LIMIT, || {
        let is_other = property("MainPID")? != pid && property("ActiveState")? == "active";
        Ok(is_other.then_some(()))
    })?;
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "{owner:?} moved to {now:?}");
    let late = own(node, "late", 2)?;
    ensure!(late.cpus.is_disjoint(&owner.cpus), "{} are owned twice", late.cpus);
    Ok(())
}

fn a_reload_holds_or_fails_as_a_whole(node: &mut Node) -> anyhow::Result<()> {
    let shares = sharer(node, "sharer")?;
    let pid = property("MainPID")?;
    node.write_config("reservedCpus: \"0-1\"\n")?;
    systemctl(&["reload", UNIT])?;
    let reserved = node.status()?.cpus.reserved;
    ensure!(reserved == "0-1", "reserved are {reserved} after a good reload");
    let moved = node.look(&shares.id)?;
    ensure!(moved.cpus.is_disjoint(&"0-1".parse()?), "the sharer is on {}", moved.cpus);
    node.write_config("reservedCpus: \"0-3\"\nnoSuchKey: 1\n")?;
    let Err(refused) = systemctl(&["reload", UNIT]) else {
        anyhow::bail!("a file with a mistake was taken");
    };
    ensure!(refused.to_string().contains("failed"), "systemctl says: {refused}");
    let reserved = node.status()?.cpus.reserved;
    ensure!(reserved == "0-1", "reserved are {reserved} after a bad reload");
    // It may be looking at the file by itself just now.
    wait_for("the unit to be active", LIMIT, || {
        Ok((property("ActiveState")? == "active").then_some(()))
    })?;
    ensure!(property("MainPID")? == pid, "a reload started another daemon");
    node.write_config("")
}

fn no_call_fails_while_the_daemon_is_restarted(node: &mut Node) -> anyhow::Result<()> {
    let mut placed = Vec::new();
    for round in 0..3 {
        let mut restart = Command::new("systemctl")
            .args(["--no-ask-password", "restart", UNIT])
            .spawn()
            .context("cannot run systemctl")?;
        placed.push(own(node, &format!("own{round}"), 1)?);
        placed.push(sharer(node, &format!("share{round}"))?);
        let status = restart.wait()?;
        ensure!(status.success(), "systemctl restart: {status}");
        for due in placed.iter().filter(|it| it.cpus.len() == 1) {
            let now = node.look(&due.id)?;
            ensure!(now == *due, "round {round}: {due:?} moved to {now:?}");
        }
    }
    ensure!(systemctl(&["is-active", SOCKET_UNIT])? == "active", "the socket is gone");
    Ok(())
}

/// More for the daemon's unit, for as long as this lives; the daemon has it from its next start on. Nothing where there is no systemd.
pub(crate) struct Edited(Option<PathBuf>);

impl Edited {
    /// `CAP_SYS_ADMIN`, as NODE.md says it of partitions and the documentation of Speed Select.
    pub(crate) fn with_admin() -> anyhow::Result<Edited> {
        let file = Path::new("/run/systemd/system/bayplan.service.d/admin.conf");
        match driver() {
            CgroupDriver::Cgroupfs => Ok(Edited(None)),
            CgroupDriver::Systemd => {
                fs::write(file, "[Service]\nCapabilityBoundingSet=CAP_SYS_ADMIN\n")?;
                systemctl(&["daemon-reload"])?;
                Ok(Edited(Some(file.to_owned())))
            }
        }
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // The next test says what is wrong then.
            let _removed = fs::remove_file(file);
            let _reloaded = systemctl(&["daemon-reload"]);
        }
    }
}

fn a_unit_without_the_right_says_so(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let file = group(&owner)?.join("cpuset.cpus.partition");
    wait_for("the plan to say it", LIMIT, || {
        Ok(ask(&["plan"])?.contains("lacks CAP_SYS_ADMIN").then_some(()))
    })
    .with_context(|| format!("{:?}", ask(&["plan"])))?;
    becomes(&[(file.clone(), "member")])?;
    let _edited = Edited::with_admin()?;
    systemctl(&["restart", UNIT])?;
    becomes(&[(file, "isolated")])?;
    // Nothing of it is left for others.
    node.write_config("")?;
    systemctl(&["reload", UNIT])?;
    becomes(&[(group(&owner)?.join("cpuset.cpus.partition"), "member")])
}

/// As NODE.md has it: `bayplan restore`, then the units go; and without a daemon, where the first step was forgotten.
fn the_way_back_leaves_nothing_changed(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let units = [SOCKET_UNIT, UNIT];
    let switch = |verb: &str| systemctl(&[verb, "--now", units[0], units[1]]).map(|_| ());
    let owner = own(node, "owner", 1)?;
    let dir = group(&owner)?;
    let pod = dir.parent().context("a pod around the owner")?;
    let low = format!("{}", 32 << 20);
    let set = [
        (dir.join("cpu.max"), "max 100000"),
        (dir.join("memory.low"), low.as_str()),
        (pod.join("memory.low"), &low),
    ];
    let back = [
        (dir.join("cpu.max"), "100000 100000"),
        (dir.join("memory.low"), "0"),
        (pod.join("memory.low"), "0"),
    ];
    becomes(&set)?;
    ask(&["restore", "--yes"])?;
    let all = hardware.cpus.difference(&hardware.isolated);
    switch("disable")?;
    becomes(&back)?;
    let now = node.look(&owner.id)?;
    ensure!(now.cpus == all, "it was given back {}, not {all}", now.cpus);
    ensure!(UnixStream::connect(node.socket()).is_err(), "a process listens for kubelet");
    // It keeps the mode, and the place.
    switch("enable")?;
    ask(&["resume", "--yes"])?;
    becomes(&set)?;
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the owner was {owner:?} and is {now:?}");
    switch("disable")?;
    ask(&["restore", "--files-only"])?;
    becomes(&back)?;
    switch("enable")
}

fn ask(args: &[&str]) -> anyhow::Result<String> {
    let done = Command::new(BAYPLAN).args(args).output().context("cannot run bayplan")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "bayplan {}: {text}{said}", args.join(" "));
    Ok(text)
}

/// Its probes count, and its log has nothing that was not permitted. What else it does is in the other tests.
fn the_unit_may_do_all_that_the_daemon_does(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "unlimited", 2)?;
    let file = group(&owner)?.join("cpu.max");
    becomes(&[(file, "max 100000")])?;
    probes::they_count(node)?;
    let log = fs::read_to_string(node.log())?.to_lowercase();
    let refusals: Vec<&str> = log
        .lines()
        .filter(|it| it.contains("not permitted") || it.contains("permission denied"))
        // What Debian's kernels keep from it, which the probes' table says.
        .filter(|it| !it.contains("probe counters "))
        .collect();
    ensure!(refusals.is_empty(), "refused: {}", refusals.join("\n"));
    Ok(())
}
