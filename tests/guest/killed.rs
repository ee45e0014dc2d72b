//! A daemon that is killed between two writes of a plan, and what the next one makes of it.
//!
//! The kernel holds up the process that opens one of the files (fanotify(7), `FAN_OPEN_PERM`), so that the moment is exact, however slow the machine
//! is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, MilliCpu, QosClass};
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exclusive::own;
use crate::files::{CGROUPS, DISK, group, read};
use crate::{BAYPLAN, Test};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "after_a_kill_in_the_middle_of_a_plan_the_next_daemon_ends_it",
    needs: |hardware| match Path::new(DISK).exists() {
        true => hardware.has_cpus(4),
        false => Err("no disk"),
    },
    config: NOTHING,
    run: |node, _| kills_in_the_middle_of_plans(node),
}];

/// Nothing is wanted of the files below.
const NOTHING: &str = "cpu: {liftQuota: false}\n";
/// Something is wanted of all of them.
const EVERYTHING: &str = "\
cpu: {burstPercent: 50}
memory: {minPercent: 25, lowPercent: 100, highPercent: 50}
blockIo:
  classes:
    Guaranteed: [{Devices: [/dev/vda], ThrottleWriteBps: 10M}]
    Burstable: [{Devices: [/dev/vda], ThrottleWriteBps: 1M}]
";
const FILES: [&str; 6] =
    ["cpu.max", "cpu.max.burst", "io.max", "memory.high", "memory.low", "memory.min"];

/// What files say.
type Texts = BTreeMap<PathBuf, String>;

fn kills_in_the_middle_of_plans(node: &mut Node) -> anyhow::Result<()> {
    let groups = launch(node)?;
    let before = texts(&groups)?;
    node.write_config(EVERYTHING)?;
    let desired = wait_for("everything to be written", LIMIT, || {
        let found = texts(&groups)?;
        // Writes that were under way then are made when the daemon has answered.
        let is_all = found != before && has_nothing_to_write(node)? && texts(&groups)? == found;
        Ok(is_all.then_some(found))
    })?;
    let changed = |path: &&PathBuf| before.get(*path) != desired.get(*path);
    let files: Vec<&PathBuf> = before.keys().filter(changed).collect();
    let count = files.len();
    ensure!(count >= 20, "{count} files are no large plan: {files:?}");
    node.write_config(NOTHING)?;
    become_all(&groups, &before)?;
    for writes in [1, count / 2, count] {
        for (config, due) in [(EVERYTHING, &desired), (NOTHING, &before)] {
            let checkpoint = Checkpoint::new(node.daemon_pid()?, &files)?;
            node.write_config(config)?;
            checkpoint.kill(node, writes)?;
            node.start_again()?;
            let found = become_all(&groups, due);
            found.with_context(|| format!("killed after {writes} of {count} files"))?;
            println!(
                "killed after {writes} of {count} files: the next daemon has written the others"
            );
        }
    }
    // The same while an operator takes everything back.
    node.write_config(EVERYTHING)?;
    become_all(&groups, &desired)?;
    let checkpoint = Checkpoint::new(node.daemon_pid()?, &files)?;
    let mut restore = ask(node, "restore").stdout(Stdio::null()).spawn()?;
    checkpoint.kill(node, count / 2)?;
    ensure!(!restore.wait()?.success(), "`restore` has not noticed that the daemon was killed");
    node.start_again()?;
    become_all(&groups, &before).context("killed in the middle of `restore`")?;
    println!("killed in the middle of `restore`: the next daemon has given the others back");
    for (verb, due) in [("resume", &desired), ("restore", &before)] {
        let done = ask(node, verb).output()?;
        ensure!(done.status.success(), "{verb}: {done:?}");
        become_all(&groups, due).context(verb)?;
    }
    Ok(())
}

/// `bayplan restore` or `resume`.
pub(crate) fn ask(node: &Node, verb: &str) -> Command {
    let mut command = Command::new(BAYPLAN);
    command.args([verb, "--yes", "--control"]).arg(node.control());
    command
}

/// Containers of each kind; gives their groups, and all above.
fn launch(node: &mut Node) -> anyhow::Result<BTreeSet<PathBuf>> {
    let half = ContainerSpec::guaranteed("app", 500, Bytes(32 << 20));
    let wide = ContainerSpec {
        cpu_limit: Some(MilliCpu(200)),
        memory_limit: Some(Bytes(64 << 20)),
        ..ContainerSpec::burstable("app", 100)
    };
    let mut placed: Vec<Placed> = vec![own(node, "owner", 1)?];
    for (qos, spec) in [(QosClass::Guaranteed, half), (QosClass::Burstable, wide)] {
        for number in 0..2 {
            let name = format!("{}{number}", qos.name().to_lowercase());
            placed.push(node.launch(&PodSpec::new(&name, qos), &spec)?);
        }
    }
    let mut groups = BTreeSet::new();
    for it in &placed {
        let own = group(it)?;
        let below = own.ancestors().take_while(|dir| *dir != Path::new(CGROUPS));
        groups.extend(below.map(Path::to_owned));
    }
    Ok(groups)
}

fn texts(groups: &BTreeSet<PathBuf>) -> anyhow::Result<Texts> {
    let paths = groups.iter().flat_map(|dir| FILES.map(|file| dir.join(file)));
    let there = paths.filter(|path| path.exists());
    there.map(|path| Ok((path.clone(), read(&path)?))).collect()
}

fn become_all(groups: &BTreeSet<PathBuf>, due: &Texts) -> anyhow::Result<()> {
    let done = wait_for("files", LIMIT, || Ok((texts(groups)? == *due).then_some(())));
    done.with_context(|| {
        let now = texts(groups).unwrap_or_default();
        let wrong = now.into_iter().filter(|(path, text)| due.get(path) != Some(text));
        format!("wrong are {:?}", wrong.collect::<Texts>())
    })
}

fn has_nothing_to_write(node: &Node) -> anyhow::Result<bool> {
    let answer = node.get("/api/v1/plan")?;
    let (_, body) = answer.split_once("\r\n\r\n").context("a head and a body")?;
    let plan: serde_json::Value = serde_json::from_str(body)?;
    Ok(plan["writes"].as_array().context("writes")?.is_empty())
}

/// Holds up every process at some files.
struct Checkpoint {
    group: Fanotify,
    /// The daemon's process.
    daemon: u32,
    /// Files that it has written, by the kernel's numbers.
    written: BTreeSet<u64>,
}

impl Checkpoint {
    fn new(daemon: u32, files: &[&PathBuf]) -> anyhow::Result<Checkpoint> {
        let class = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLOEXEC;
        let group = Fanotify::init(class, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        let events = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_MODIFY;
        for file in files {
            group.mark(MarkFlags::FAN_MARK_ADD, events, AT_FDCWD, Some(file.as_path()))?;
        }
        Ok(Checkpoint { group, daemon, written: BTreeSet::new() })
    }

    /// Kills the daemon when it has written so many of the files and is about to open another one. Afterwards no process is held up any more.
    fn kill(mut self, node: &mut Node, writes: usize) -> anyhow::Result<()> {
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let written = self.written.len();
            ensure!(!left.is_zero(), "the daemon has written {written} files and not {writes}");
            let mut group = [PollFd::new(self.group.as_fd(), PollFlags::POLLIN)];
            poll(&mut group, PollTimeout::try_from(left)?)?;
            let events = match self.group.read_events() {
                Err(Errno::EAGAIN) => continue,
                events => events?,
            };
            for event in &events {
                if self.is_reached(event, writes)? {
                    // Not by systemd, which may wait at one of the files, too: it writes them when the runtime has a container changed. Asked for anything, it does not answer.
                    kill(Pid::from_raw(i32::try_from(self.daemon)?), Signal::SIGKILL)?;
                    drop(self.group);
                    return node.await_death(self.daemon);
                }
            }
        }
    }

    fn is_reached(&mut self, event: &FanotifyEvent, writes: usize) -> anyhow::Result<bool> {
        let file = event.fd().context("the queue is too short")?;
        let is_daemon = u32::try_from(event.pid()) == Ok(self.daemon);
        if is_daemon && event.mask().contains(MaskFlags::FAN_MODIFY) {
            self.written.insert(File::from(file.try_clone_to_owned()?).metadata()?.ino());
        }
        if !event.mask().contains(MaskFlags::FAN_OPEN_PERM) {
            return Ok(false);
        }
        if is_daemon && self.written.len() >= writes {
            return Ok(true);
        }
        self.group.write_response(FanotifyResponse::new(file, Response::FAN_ALLOW))?;
        Ok(false)
    }
}
