//! Kernel files beside CPU sets: that they say what was configured, that it has an effect, and that everything comes back.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuId, CpuSet, NodeId, QosClass};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;
use crate::isolated::has_remote_partitions;
use crate::units::Edited;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "limits_bursts_and_memory_are_set_repaired_and_given_back",
        needs: |hardware| hardware.has_cpus(4),
        config: "cpu: {burstPercent: 50}\nmemory: {lowPercent: 100, highPercent: 50}\n",
        run: |node, _| limits_bursts_and_memory(node),
    },
    Test {
        name: "a_partition_keeps_all_others_off",
        needs: has_remote_partitions,
        config: "",
        run: a_partition_keeps_all_others_off,
    },
    Test {
        name: "interrupts_and_work_queues_leave_and_come_back",
        needs: |hardware| hardware.has_cpus(4),
        config: "isolation: {interrupts: disable}\n",
        run: interrupts_leave_and_come_back,
    },
    Test {
        name: "a_class_of_block_io_caps_a_writer",
        needs: |_| match Path::new(DISK).exists() {
            true => Ok(()),
            false => Err("no disk"),
        },
        config: "blockIo: {classes: {slow: [{Devices: [/dev/vd*], ThrottleWriteBps: 1M}]}}\n",
        run: |node, _| a_class_of_block_io_caps_a_writer(node),
    },
    Test {
        name: "weights_of_block_io_divide_a_disk",
        needs: |_| match (Path::new(DISK).exists(), has_cost_model()) {
            (false, _) => Err("no disk"),
            (_, false) => Err("no io.cost.qos"),
            (true, true) => Ok(()),
        },
        config: "blockIo: {classes: {heavy: [{Devices: [/dev/vda], Weight: 800}], light: [{Devices: [/dev/vda], Weight: 100}]}}\n",
        run: |node, _| weights_divide_a_disk(node),
    },
    Test {
        name: "idle_memory_is_reclaimed_little_by_little",
        needs: |_| match Path::new(DISK).exists() {
            true => Ok(()),
            false => Err("no disk"),
        },
        config: "memory: {demotion: true, reclaim: {idle: {every: 1s, bytes: 2Mi, maxStalledPercent: 100}}}\n",
        run: |node, _| idle_memory_is_reclaimed(node),
    },
];

pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";
/// The lab writes artefacts to its beginning when all tests are over.
pub(crate) const DISK: &str = "/dev/vda";
const BLOCK: usize = 64 << 10;
/// An argument of this program.
pub(crate) const WRITE_FOR_EVER: &str = "--write-for-ever";

/// The directory of a container's cgroup.
pub(crate) fn group(of: &Placed) -> anyhow::Result<PathBuf> {
    read_cgroup(&of.pid.to_string())
}

/// That of this process.
pub(crate) fn read_own_cgroup() -> anyhow::Result<PathBuf> {
    read_cgroup("self")
}

fn read_cgroup(process: &str) -> anyhow::Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(Path::new(CGROUPS).join(own.context("no cgroup of version 2")?))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Waits for what files should say.
pub(crate) fn becomes(rows: &[(PathBuf, &str)]) -> anyhow::Result<()> {
    for (path, due) in rows {
        let found = wait_for(due, LIMIT, || Ok((read(path)? == *due).then_some(())));
        found.with_context(|| format!("{} is {:?}", path.display(), read(path)))?;
    }
    Ok(())
}

fn limits_bursts_and_memory(node: &mut Node) -> anyhow::Result<()> {
    let owner = own(node, "owner", 1)?;
    let half = ContainerSpec::guaranteed("app", 500, Bytes(32 << 20));
    let sharer = node.launch(&PodSpec::new("sharer", QosClass::Guaranteed), &half)?;
    let wide = ContainerSpec {
        memory_limit: Some(Bytes(64 << 20)),
        ..ContainerSpec::burstable("app", 100)
    };
    let wide = node.launch(&PodSpec::new("wide", QosClass::Burstable), &wide)?;
    let (owners, sharers, wides) = (group(&owner)?, group(&sharer)?, group(&wide)?);
    let pod = owners.parent().context("a pod around the owner")?.to_owned();
    let memory_low = format!("{}", 32 << 20);
    let set = [
        (owners.join("cpu.max"), "max 100000"),
        (pod.join("memory.low"), memory_low.as_str()),
        (owners.join("memory.low"), &memory_low),
        (sharers.join("cpu.max.burst"), "25000"),
        (wides.join("memory.high"), "33554432"),
    ];
    becomes(&set)?;
    ensure!(read(&pod.join("cpu.max"))?.starts_with("max "), "the pod has a limit");
    catches_up(&sharers)?;
    if Path::new(DISK).exists() {
        // More than `memory.high`.
        let _kept = read_disk(&wides, 0, 48)?;
        let slowed = number_in(&wides.join("memory.events"), "high")?;
        ensure!(slowed > 0, "nothing was slowed down at memory.high");
    }
    // By hand, as a reload of systemd or a person does it.
    write(&sharers.join("cpu.max.burst"), "0")?;
    write(&owners.join("memory.low"), "0")?;
    becomes(&set)?;
    // A daemon that is killed leaves the way back to the next one.
    node.kill()?;
    write(&wides.join("memory.high"), "max")?;
    node.start_again()?;
    becomes(&set)?;
    node.reconfigure("cpu: {liftQuota: false}\n")?;
    becomes(&[
        (owners.join("cpu.max"), "100000 100000"),
        (pod.join("memory.low"), "0"),
        (owners.join("memory.low"), "0"),
        (sharers.join("cpu.max.burst"), "0"),
        (wides.join("memory.high"), "max"),
    ])
}

/// The number behind a key, of a file with a line for each.
fn number_in(path: &Path, key: &str) -> anyhow::Result<u64> {
    let text = read(path)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let line = lines.find(|(it, _)| *it == key);
    let (_, number) = line.with_context(|| format!("no {key} in {}", path.display()))?;
    Ok(number.parse()?)
}

/// A container that has slept works for longer than its limit is (cgroup-v2.rst, `nr_bursts`).
fn catches_up(group: &Path) -> anyhow::Result<()> {
    let busy = Busy::start(&read(&group.join("cpuset.cpus.effective"))?.parse()?)?;
    busy.join(group)?;
    wait_for("a burst", LIMIT, || {
        busy.signal(Signal::SIGSTOP)?;
        std::thread::sleep(Duration::from_millis(500));
        busy.signal(Signal::SIGCONT)?;
        std::thread::sleep(Duration::from_millis(300));
        Ok((number_in(&group.join("cpu.stat"), "nr_bursts")? > 0).then_some(()))
    })
}

/// Reads so many MiB of the disk from within a group; they are the group's memory as long as the file is open.
fn read_disk(group: &Path, from: u64, mib: u64) -> anyhow::Result<fs::File> {
    let mut disk = fs::File::open(DISK)?;
    disk.seek(SeekFrom::Start(from << 20))?;
    let own = read_own_cgroup()?;
    let join = |group: &Path| write(&group.join("cgroup.procs"), &std::process::id().to_string());
    join(group)?;
    let copied = std::io::copy(&mut (&disk).take(mib << 20), &mut std::io::sink());
    join(&own)?;
    copied?;
    Ok(disk)
}

/// Processes outside of all containers that never sleep, and want to run on some CPUs. Few, because the emulator has one thread for all CPUs.
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    pub(crate) fn start(cpus: &CpuSet) -> anyhow::Result<Busy> {
        let cpus = cpus.to_string();
        let start = |_| {
            let mut shell = Command::new("/bin/busybox");
            let busy = ["/bin/busybox", "sh", "-c", "while :; do :; done"];
            shell.args(["taskset", "-c", &cpus]).args(busy).spawn()
        };
        let busy = (0..2).map(start).collect::<Result<_, _>>();
        Ok(Busy(busy.context("cannot start a busy loop")?))
    }

    /// They go into this group.
    pub(crate) fn join(&self, group: &Path) -> anyhow::Result<()> {
        let mut pids = self.0.iter().map(|child| child.id().to_string());
        pids.try_for_each(|pid| write(&group.join("cgroup.procs"), &pid))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        for child in &self.0 {
            kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        }
        Ok(())
    }

    /// CPUs on which they ran last.
    fn cpus(&self) -> anyhow::Result<CpuSet> {
        let mut cpus = CpuSet::new();
        for child in &self.0 {
            cpus.insert(processor(child.id())?);
        }
        Ok(cpus)
    }
}

/// The CPU on which a process ran last (proc_pid_stat(5), `processor`).
pub(crate) fn processor(pid: u32) -> anyhow::Result<CpuId> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a name in brackets")?;
    Ok(CpuId(fields.split_whitespace().nth(36).context("a processor")?.parse()?))
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may be gone.
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

/// How often tasks of others than the kernel have run on CPUs of the owner, by the probes.
fn foreign_runs(node: &Node) -> anyhow::Result<u64> {
    let metrics = node.metrics()?;
    let is_foreign = |line: &&str| {
        line.starts_with("bayplan_container_intrusions_total{")
            && line.contains("pod=\"owner\"")
            && (line.contains("kind=\"process\"") || line.contains("kind=\"container\""))
    };
    let runs = metrics.lines().filter(is_foreign).map(|line| {
        let number = line.rsplit(' ').next().context("a number")?;
        Ok(number.parse::<u64>()?)
    });
    runs.sum()
}

/// Counters that were read from now on: the next reading may be under way.
fn fresh_counts(node: &Node) -> anyhow::Result<()> {
    for _ in 0..2 {
        let last = node.audit()?["at"].clone();
        wait_for("a reading", LIMIT, || Ok((node.audit()?["at"] != last).then_some(())))?;
    }
    Ok(())
}

fn a_partition_keeps_all_others_off(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let _edited = Edited::with_admin()?;
    let owner = own(node, "owner", 2)?;
    let file = group(&owner)?.join("cpuset.cpus.partition");
    let busy = Busy::start(&owner.cpus)?;
    // Without a partition nothing keeps processes of the node off.
    wait_for("another task on the owner's CPUs", LIMIT, || {
        Ok(busy.cpus()?.intersects(&owner.cpus).then_some(()))
    })?;
    wait_for("the probes to count them", LIMIT, || Ok((foreign_runs(node)? > 0).then_some(())))?;
    let isolated = Path::new(CGROUPS).join("cpuset.cpus.isolated");
    for kind in ["isolated", "root"] {
        node.reconfigure(&format!("isolation: {{partition: {kind}}}\n"))?;
        becomes(&[(file.clone(), kind)])?;
        let its: CpuSet = read(&isolated)?.parse()?;
        ensure!(owner.cpus.is_subset(&its) == (kind == "isolated"), "isolated are {its}");
        wait_for("the owner to be alone", LIMIT, || {
            Ok(busy.cpus()?.is_disjoint(&owner.cpus).then_some(()))
        })?;
        fresh_counts(node)?;
        let before = foreign_runs(node)?;
        for _ in 0..20 {
            let cpus = busy.cpus()?;
            ensure!(cpus.is_disjoint(&owner.cpus), "another task ran on {cpus}");
        }
        fresh_counts(node)?;
        let after = foreign_runs(node)?;
        ensure!(after == before, "{} runs of others: {}", after - before, node.audit()?);
        // All CPUs of the guest share one of the host's.
        busy.signal(Signal::SIGSTOP)?;
        // The daemon does not take its own partition for one of another program, now or when it starts anew.
        node.restart_after_kill()?;
        let late = own(node, &format!("late-{kind}"), 1)?;
        ensure!(late.cpus.is_disjoint(&owner.cpus), "{} are owned twice", late.cpus);
        node.stop(&late.id)?;
        let now = node.look(&owner.id)?;
        ensure!(now.cpus == owner.cpus, "the owner moved from {} to {}", owner.cpus, now.cpus);
        busy.signal(Signal::SIGCONT)?;
    }
    node.reconfigure("")?;
    let all_pods = file.ancestors().find(|dir| dir.parent() == Some(Path::new(CGROUPS)));
    let exclusive = all_pods.context("a group of all pods")?.join("cpuset.cpus.exclusive");
    becomes(&[(file, "member"), (exclusive, "")])?;
    wait_for("another task on the owner's CPUs again", LIMIT, || {
        Ok(busy.cpus()?.intersects(&owner.cpus).then_some(()))
    })
}

/// Every interrupt and mask with its CPUs.
fn interrupts() -> anyhow::Result<Vec<(PathBuf, CpuSet)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/irq")? {
        let path = entry?.path().join("smp_affinity_list");
        if let Ok(text) = fs::read_to_string(&path) {
            found.push((path, text.trim().parse()?));
        }
    }
    for path in ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"] {
        found.push((path.into(), CpuSet::parse_mask(&read(Path::new(path))?)?));
    }
    found.sort();
    Ok(found)
}

fn interrupts_leave_and_come_back(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let before = interrupts()?;
    let owner = own(node, "owner", 2)?;
    // Some belong to one CPU, or to the kernel, for good.
    let refuses = |path: &Path, cpus: &CpuSet| fs::write(path, cpus.to_string()).is_err();
    let movable: Vec<&PathBuf> = before
        .iter()
        .filter(|(path, cpus)| path.ends_with("smp_affinity_list") && !refuses(path, cpus))
        .map(|(path, _)| path)
        .collect();
    ensure!(!movable.is_empty(), "no interrupt can be moved here");
    wait_for("interrupts to leave", LIMIT, || {
        let now = interrupts()?;
        let is_fixed =
            |path: &PathBuf| path.ends_with("smp_affinity_list") && !movable.contains(&path);
        let mut moved = now.iter().filter(|(path, _)| !is_fixed(path));
        Ok(moved.all(|(_, cpus)| cpus.is_disjoint(&owner.cpus)).then_some(()))
    })
    .with_context(|| format!("{:?} with an owner of {}", interrupts(), owner.cpus))?;
    node.stop(&owner.id)?;
    wait_for("interrupts to come back", LIMIT, || Ok((interrupts()? == before).then_some(())))
}

/// For writes past all caches. A container may not open the disk, so that is done before a process joins its group.
fn open_disk() -> anyhow::Result<fs::File> {
    Ok(fs::File::options().write(true).custom_flags(OFlag::O_DIRECT.bits()).open(DISK)?)
}

/// Writes 4 MiB into the middle of the disk.
fn write_some(mut disk: &fs::File) -> anyhow::Result<()> {
    disk.seek(SeekFrom::Start(32 << 20))?;
    let room = vec![7_u8; 2 * BLOCK];
    let at = room.as_ptr().align_offset(4096);
    let block = room.get(at..at + BLOCK).context("an aligned block")?;
    Ok((0..64).try_for_each(|_| disk.write_all(block))?)
}

/// How long [`write_some`] takes from within a group.
fn seconds_to_write(group: &Path) -> anyhow::Result<f32> {
    let disk = open_disk()?;
    let own = read_own_cgroup()?;
    let join = |group: &Path| write(&group.join("cgroup.procs"), &std::process::id().to_string());
    join(group)?;
    let started = Instant::now();
    let written = write_some(&disk);
    let seconds = started.elapsed().as_secs_f32();
    join(&own)?;
    written?;
    Ok(seconds)
}

fn a_class_of_block_io_caps_a_writer(node: &mut Node) -> anyhow::Result<()> {
    let mut slow = PodSpec::new("slow", QosClass::Burstable);
    slow.annotations.push(("bayplan.dev/blockioclass".to_owned(), "slow".to_owned()));
    let slow = node.launch(&slow, &ContainerSpec::burstable("app", 100))?;
    let fast = node.launch(
        &PodSpec::new("fast", QosClass::Burstable),
        &ContainerSpec::burstable("app", 100),
    )?;
    let (slows, fasts) = (group(&slow)?, group(&fast)?);
    wait_for("the limit", LIMIT, || {
        Ok(read(&slows.join("io.max"))?.contains("wbps=1000000 ").then_some(()))
    })?;
    ensure!(read(&fasts.join("io.max"))?.is_empty(), "another container has a limit");
    let (capped, free) = (seconds_to_write(&slows)?, seconds_to_write(&fasts)?);
    // 4 MiB at 1 MB/s; the kernel lets the first slice through at once.
    ensure!(capped > 3.0, "4 MiB took {capped} s with a limit of 1 MB/s, {free} s without");
    ensure!(free < capped, "4 MiB took {free} s without a limit, {capped} s with one");
    node.reconfigure("")?;
    wait_for("the limit to go", LIMIT, || Ok(read(&slows.join("io.max"))?.is_empty().then_some(())))
}

fn has_cost_model() -> bool {
    Path::new(CGROUPS).join("io.cost.qos").exists()
}

/// What a [`Writer`] runs: writes to the disk that is its standard input until it is killed.
pub(crate) fn write_for_ever() -> anyhow::Result<()> {
    let disk = fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        write_some(&disk)?;
    }
}

/// A process in a container's group that never stops writing to the disk.
struct Writer {
    process: Child,
    group: PathBuf,
}

impl Writer {
    fn start(of: &Placed) -> anyhow::Result<Writer> {
        let mut command = Command::new(std::env::current_exe()?);
        let process = command.arg(WRITE_FOR_EVER).stdin(open_disk()?).spawn()?;
        let writer = Writer { process, group: group(of)? };
        write(&writer.group.join("cgroup.procs"), &writer.process.id().to_string())?;
        Ok(writer)
    }

    /// Bytes that its group has written so far (cgroup-v2.rst, `io.stat`).
    fn written(&self) -> anyhow::Result<u64> {
        let text = read(&self.group.join("io.stat"))?;
        let mut pairs = text.split_whitespace();
        let bytes = pairs.find_map(|it| it.strip_prefix("wbytes=")).unwrap_or("0");
        Ok(bytes.parse()?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may be gone.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// The operator has said what the disk can do: 4 MB/s, and neither more nor less.
fn weights_divide_a_disk(node: &mut Node) -> anyhow::Result<()> {
    const ENOUGH: u64 = 12 << 20;
    let number = read(Path::new("/sys/class/block/vda/dev"))?;
    let (qos, model) = ("io.cost.qos", "io.cost.model");
    let cgroups = Path::new(CGROUPS);
    let can = "ctrl=user model=linear rbps=4000000 rseqiops=1000 rrandiops=1000 wbps=4000000 wseqiops=1000 wrandiops=1000";
    write(&cgroups.join(model), &format!("{number} {can}"))?;
    let pace = "min=100.00 max=100.00";
    write(&cgroups.join(qos), &format!("{number} ctrl=user rpct=0 wpct=0 {pace}"))?;
    let mut start = |class: &str| {
        let mut pod = PodSpec::new(class, QosClass::Burstable);
        pod.annotations.push(("bayplan.dev/blockioclass".to_owned(), class.to_owned()));
        node.launch(&pod, &ContainerSpec::burstable("app", 100))
    };
    let (heavy, light) = (start("heavy")?, start("light")?);
    let weights =
        [(group(&heavy)?, format!("{number} 800")), (group(&light)?, format!("{number} 100"))];
    let says = |file: &Path, what: &str| Ok(read(file)?.contains(what).then_some(()));
    for (group, weight) in &weights {
        wait_for("the weights", LIMIT, || says(&group.join("io.weight"), weight))?;
        let pod = group.parent().context("a pod around the container")?;
        wait_for("the weights of pods", LIMIT, || says(&pod.join("io.weight"), weight))?;
    }
    wait_for("the model to be in force", LIMIT, || says(&cgroups.join(qos), "enable=1"))?;
    let line = read(&cgroups.join(qos))?;
    ensure!(line.contains(pace), "what the operator had said is lost: {line}");
    let (heavy, light) = (Writer::start(&heavy)?, Writer::start(&light)?);
    let begun = (heavy.written()?, light.written()?);
    let written = || Ok((heavy.written()? - begun.0, light.written()? - begun.1));
    let (more, less) = wait_for("both to write", LIMIT, || {
        written().map(|(more, less)| (more + less >= ENOUGH).then_some((more, less)))
    })?;
    // Eight to one, but for what each may do at once.
    ensure!(more > 3 * less, "with eight times the weight {more} bytes were written, and {less}");
    drop((heavy, light));
    node.reconfigure("")?;
    for (group, weight) in &weights {
        wait_for("the weights to go", LIMIT, || {
            Ok((!read(&group.join("io.weight"))?.contains(weight)).then_some(()))
        })?;
    }
    wait_for("the model to be switched off", LIMIT, || says(&cgroups.join(qos), "enable=0"))
}

/// Bytes of files on nodes that the container does not have.
fn files_away(of: &Placed, group: &Path) -> anyhow::Result<u64> {
    let text = read(&group.join("memory.numa_stat"))?;
    let mut lines = text.lines();
    let files = lines.find_map(|line| line.strip_prefix("file ")).context("a line of files")?;
    let bytes = files.split(' ').map(|pair| {
        let (node, bytes) = pair.split_once('=').context("N<node>=<bytes>")?;
        let node = NodeId(node.trim_start_matches('N').parse()?);
        Ok(if of.mems.contains(node) { 0 } else { bytes.parse::<u64>()? })
    });
    bytes.sum()
}

/// Files that are not read any more go first, where the kernel has no slower memory for them.
fn idle_memory_is_reclaimed(node: &mut Node) -> anyhow::Result<()> {
    const READ: u64 = 16 << 20;
    let spec = ContainerSpec::burstable("app", 100);
    let mut idle = PodSpec::new("idle", QosClass::Burstable);
    idle.annotations.push(("bayplan.dev/memory-reclaim-class".to_owned(), "idle".to_owned()));
    let idle = node.launch(&idle, &spec)?;
    let other = node.launch(&PodSpec::new("other", QosClass::Burstable), &spec)?;
    let (idles, others) = (group(&idle)?, group(&other)?);
    let _kept = [read_disk(&others, 0, READ >> 20)?, read_disk(&idles, READ >> 20, READ >> 20)?];
    let files = |of: &Path| number_in(&of.join("memory.stat"), "file");
    let begin = files(&others)?;
    ensure!(begin >= READ * 9 / 10, "of {READ} bytes that were read, {begin} are kept");
    let mut elsewhere = 0;
    wait_for("what was read to be reclaimed", LIMIT, || {
        elsewhere = elsewhere.max(files_away(&idle, &idles)?);
        Ok((files(&idles)? < READ / 4).then_some(()))
    })?;
    let end = files(&others)?;
    ensure!(end >= begin * 9 / 10, "of another container in no class, {end} of {begin} are left");
    let metrics = node.metrics()?;
    let mut lines = metrics.lines();
    let done =
        lines.find_map(|it| it.strip_prefix("bayplan_memory_reclaims_total{outcome=\"done\"} "));
    let turns: u64 = done.context("turns are counted")?.parse()?;
    // Linux 6.1 takes more than it is asked for: 5 turns for these 12 MiB were seen.
    ensure!(turns >= 2, "12 MiB were reclaimed in {turns} turns of 2 MiB");
    let plan = node.get("/api/v1/plan")?;
    ensure!(plan.contains("memory.reclaim") && plan.contains("2097152"), "the plan is {plan}");
    // Where the kernel knows slower memory, it is to move pages there as long as a container is in a class.
    let switch = Path::new("/sys/kernel/mm/numa/demotion_enabled");
    let tiers = fs::read_dir("/sys/devices/virtual/memory_tiering").into_iter().flatten();
    let is_tier = |name: &str| name.starts_with("memory_tier");
    let tiers = tiers.flatten().filter(|it| it.file_name().to_str().is_some_and(is_tier)).count();
    becomes(&[(switch.to_owned(), if tiers > 1 { "true" } else { "false" })])?;
    ensure!(tiers < 2 || elsewhere > 1 << 20, "only {elsewhere} bytes went to slower memory");
    node.reconfigure("")?;
    becomes(&[(switch.to_owned(), "false")])
}
