//! Notices that CPUs and memory nodes come and go. In: seven small files below the root of the host. Out: [`Event::MachineChanged`] with
//! the machine read and derived anew.
//!
//! Problem: kubelet is not told when a CPU goes offline, and the ledger would go on giving it away. The files are polled, because the
//! kernel does not notify of a change in any of them (nothing calls `sysfs_notify` for them, so neither poll(2) nor inotify wakes up), and
//! because uevents, which it sends for CPUs and memory blocks, cover neither isolation nor a tree that is not this host's.
//! Six reads of some bytes a second cost nothing; the whole tree is read only after they differ from what they were when the machine in
//! use was read.
//!
//! Nothing is missed between two readings, because the files are always read before the tree. What is read may be half way between two
//! machines: a CPU is online a moment before its cache and topology files are complete, and half a machine is switched off CPU by CPU. So the texts
//! must be the same twice in a row, and the same again after the tree was read. CPUs that leave and return between two polls were never away.
//!
//! For about two seconds the ledger knows of CPUs that are gone. A creation that names one is either refused by the kernel and repeated by
//! kubelet, or made and corrected as soon as the change is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bayplan_allocator::policy::Division;
use bayplan_host::disk::Disks;
use bayplan_host::{CLAIMS_FILE, pods_limit_files, read_claimed_cpus, render_machine};
use bayplan_node::event::{ChangedMachine, Event};
use bayplan_topology::{Snapshot, Topology, derive};
use bayplan_types::CpuSet;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::read_machine::{AsItWas, read_own_machine};

/// How often the files are read.
const POLL: Duration = Duration::from_secs(1);
/// `Documentation/ABI/stable/sysfs-devices-node`, `Documentation/admin-guide/cputopology.rst`. A node is online before it has memory, and is
/// then worth another look. The CPUs of isolated cpuset partitions (`Documentation/admin-guide/cgroup-v2.rst`) have a list since Linux 6.7;
/// before, it shows only in what partitions leave to the root that there are others now. The root loses its CPUs to partitions of either
/// kind, so one that becomes isolated after it was made is not noticed there.
///
/// CPUs that are claimed of the DRA CPU driver are in a file of its own. What the groups around all pods allow is in files that depend on how kubelet was set up
/// ([`pods_limit_files`]).
const FILES: [&str; 7] = [
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/node/online",
    "sys/devices/system/node/has_memory",
    "sys/fs/cgroup/cpuset.cpus.isolated",
    "sys/fs/cgroup/cpuset.cpus.effective",
    CLAIMS_FILE,
];
/// A list of 8,192 CPUs without ranges has 40 KB.
const BYTES_MAX: u64 = 64 * 1024;
/// Distinct errors that are remembered as told.
const TOLD_MAX: usize = 16;

/// The machine that a daemon runs on, and whether it is watched.
#[derive(Clone, Debug)]
pub struct Machine {
    topology: Topology,
    files: Option<Arc<str>>,
    watched: Option<Watched>,
    disks: Disks,
}

/// Where the machine is read, and what its files held when it was.
#[derive(Clone, Debug)]
struct Watched {
    root: PathBuf,
    state_dir: PathBuf,
    texts: Texts,
    claimed: CpuSet,
}

impl Machine {
    /// The machine with its `sys` below `root`, without what daemons with this state directory have changed. The daemon follows it when CPUs and
    /// memory nodes come and go.
    ///
    /// # Errors
    /// There is no CPU directory, or no CPU.
    pub fn of_host(root: &Path, state_dir: &Path) -> anyhow::Result<Machine> {
        // What changes from here on differs at the first poll. Files that cannot be read now differ too, so the machine is read again.
        let mut texts = read_texts(root).unwrap_or_default();
        // A file of another program must not keep the node from starting; it is read again at the first poll.
        let claimed = read_claimed_cpus(root).unwrap_or_else(|error| {
            let error = anyhow::Error::new(error);
            tracing::warn!("{error:#}; which CPUs are claimed of the DRA CPU driver is not known");
            texts = Texts::default();
            CpuSet::new()
        });
        let AsItWas { read, unknown } = read_own_machine(root, state_dir, &claimed)?;
        if let Some(why) = unknown {
            tell_unknown(&why);
            texts = Texts::default();
        }
        let (topology, files) = read;
        let (root, state_dir) = (root.to_owned(), state_dir.to_owned());
        let watched = Some(Watched { root, state_dir, texts, claimed });
        Ok(Machine { files: Some(files), watched, ..Machine::fixed(topology) })
    }

    /// A machine that stays as it is and is nowhere looked up, as in the demo and in tests.
    pub fn fixed(topology: Topology) -> Machine {
        Machine { topology, files: None, watched: None, disks: Disks::default() }
    }

    /// The same for what is known as the facts of a machine, so that it can be shown, too.
    ///
    /// # Errors
    /// There is no CPU in it.
    pub fn of_snapshot(snapshot: &Snapshot) -> anyhow::Result<Machine> {
        let files = Some(render_machine(snapshot).into());
        Ok(Machine { files, ..Machine::fixed(derive(snapshot)?) })
    }

    /// The same with other disks under the state directory, for tests.
    pub fn with_disks(self, disks: Disks) -> Machine {
        Machine { disks, ..self }
    }

    /// What is under the state directory.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// The hardware as it was read.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// It is the one that the daemon runs on.
    pub(crate) fn is_real(&self) -> bool {
        self.watched.is_some()
    }

    /// What was read of it, in the text form of `bayplan snapshot`; `None` for a fixed one.
    pub(crate) fn files(&self) -> Option<Arc<str>> {
        self.files.clone()
    }

    /// What follows the machine from now on; `None` for a fixed one.
    pub(crate) fn watch(
        &self,
        ground: Arc<Mutex<Ground>>,
        inbox: Inbox,
        metrics: Arc<Metrics>,
    ) -> Option<Watch> {
        let Watched { root, state_dir, texts, claimed } = self.watched.clone()?;
        let settling = Settling { in_use: texts, seen: None };
        let told = BTreeSet::new();
        Some(Watch { root, state_dir, settling, claimed, ground, inbox, metrics, told })
    }
}

/// What the files hold by their paths; `None`: there is no such file, as on a kernel without NUMA or with cgroup v1. Beside `FILES` there are those that say what the groups around
/// all pods allow.
type Texts = BTreeMap<String, Option<String>>;

fn read_texts(root: &Path) -> anyhow::Result<Texts> {
    let mut texts = Texts::default();
    let of_pods = pods_limit_files(root);
    for file in FILES.into_iter().chain(of_pods.iter().map(String::as_str)) {
        let path = root.join(file);
        let text = match read_text(&path) {
            // A file of another program must not hide what happens to the machine.
            Err(_) if file == CLAIMS_FILE => None,
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        texts.insert(file.to_owned(), text);
    }
    Ok(texts)
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tells when the texts have changed and come to rest.
#[derive(Debug)]
struct Settling {
    /// Those of the machine in use.
    in_use: Texts,
    /// Those of the last poll, if they were others.
    seen: Option<Texts>,
}

impl Settling {
    /// Whether the machine is to be read: these are not the texts of the machine in use, and they are those of the last poll.
    fn has_come_to_rest(&mut self, texts: &Texts) -> bool {
        if *texts == self.in_use {
            self.seen = None;
            return false;
        }
        let is_same = self.seen.as_ref() == Some(texts);
        self.seen = Some(texts.clone());
        is_same
    }
}

/// The machine in use, and the CPUs that are reserved on it. A task that changes the one needs the other, so it keeps the lock until the state knows.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) topology: Topology,
    /// What was read of it; `None` for a fixed one.
    pub(crate) files: Option<Arc<str>>,
    /// What the configuration makes of it.
    division: Division,
    /// The CPUs that it has chosen for an amount of reserved ones; empty for a list.
    pub(crate) chosen: CpuSet,
}

impl Ground {
    /// At the start, with the CPUs that the state has reserved.
    pub(crate) fn new(machine: &Machine, config: &Config, reserved: &CpuSet) -> Arc<Mutex<Ground>> {
        let mut ground = Ground {
            topology: machine.topology.clone(),
            files: machine.files(),
            division: config.division(),
            chosen: reserved.clone(),
        };
        ground.choose();
        Arc::new(Mutex::new(ground))
    }

    fn choose(&mut self) {
        self.chosen = self.division.chosen(&self.topology, &self.chosen);
    }

    /// With another configuration.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.division = config.division();
        self.choose();
    }
}

/// Follows one machine.
pub(crate) struct Watch {
    root: PathBuf,
    state_dir: PathBuf,
    settling: Settling,
    /// CPUs that were claimed of the DRA CPU driver when that could be read last.
    claimed: CpuSet,
    ground: Arc<Mutex<Ground>>,
    inbox: Inbox,
    metrics: Arc<Metrics>,
    /// Errors that were logged since the machine was last as known; each is logged once, although it comes with every poll.
    told: BTreeSet<String>,
}

impl Watch {
    /// Polls for ever. What cannot be read leaves the machine as it is, and is tried again with the next poll.
    pub(crate) async fn run(mut self) {
        let mut polls = tokio::time::interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            polls.tick().await;
            if let Err(error) = self.poll().await {
                self.failed(&error);
            }
        }
    }

    async fn poll(&mut self) -> anyhow::Result<()> {
        let root = self.root.clone();
        let texts = tokio::task::spawn_blocking(move || read_texts(&root)).await??;
        if !self.settling.has_come_to_rest(&texts) {
            if self.settling.seen.is_none() {
                self.told.clear();
            }
            return Ok(());
        }
        let (root, state_dir) = (self.root.clone(), self.state_dir.clone());
        let (expected, known) = (texts.clone(), self.claimed.clone());
        let read = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let (claimed, strange) = match read_claimed_cpus(&root) {
                Ok(claimed) => (claimed, None),
                Err(error) => (known, Some(anyhow::Error::new(error))),
            };
            let AsItWas { read, unknown } = read_own_machine(&root, &state_dir, &claimed)?;
            let is_at_rest = read_texts(&root)? == expected;
            Ok(is_at_rest.then_some((read, unknown, claimed, strange)))
        });
        // It is changing while we look: the next polls tell when it has come to rest again.
        let Some((read, unknown, claimed, strange)) = read.await?? else { return Ok(()) };
        let (topology, files) = read;
        self.claimed = claimed;
        if let Some(why) = unknown {
            tell_unknown(&why);
        }
        if let Some(error) = strange {
            tracing::warn!("{error:#}; claimed of the DRA CPU driver is what was before");
        }
        let mut ground = self.ground.lock().await;
        let division = ground.division.settled(&topology, &ground.chosen);
        let machine = ChangedMachine::divided(&topology, &division);
        let machine = Box::new(machine.with_files(Some(Arc::clone(&files))));
        // The others have been logged.
        let is_new = |oddity| !ground.topology.oddities().contains(oddity);
        for oddity in topology.oddities().iter().filter(|oddity| is_new(oddity)) {
            tracing::warn!("odd hardware description: {oddity}");
        }
        if self.inbox.ask(Event::MachineChanged(machine)).await.is_some() {
            ground.topology = topology;
            ground.choose();
            ground.files = Some(files);
            self.settling = Settling { in_use: texts, seen: None };
            self.told.clear();
        }
        Ok(())
    }

    fn failed(&mut self, error: &anyhow::Error) {
        self.metrics.machine_change("failed");
        let text = format!("{error:#}");
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        if !self.told.contains(&text) {
            tracing::warn!("cannot follow the machine: {text}; going on with what is known of it");
            self.told.insert(text);
        }
    }
}

/// Without preferences there are no priorities by them.
fn tell_unknown(why: &str) {
    tracing::warn!("{why}; energy preferences make no priorities until the machine is read again");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::derive_machine;
    use crate::inbox::{Envelope, inbox};
    use bayplan_node::event::{Answer, ChangedMachine};

    /// Letters stand for texts, `a` for those in use; capital letters for those at which the machine is read.
    fn check_settling(texts: &str) {
        let of = |letter: char| -> Texts {
            Texts::from([(FILES[0].to_owned(), Some(letter.to_string()))])
        };
        let mut settling = Settling { in_use: of('a'), seen: None };
        for (poll, letter) in texts.chars().enumerate() {
            let is_rest = settling.has_come_to_rest(&of(letter.to_ascii_lowercase()));
            assert_eq!(is_rest, letter.is_uppercase(), "poll {poll} of {texts}");
        }
    }

    #[test]
    fn texts_have_come_to_rest_when_they_are_new_and_the_same_twice() {
        for texts in ["aaaa", "abB", "abcC", "abab", "abcba", "bB", "bBBaabB", "bcdbcd", "bBcC"] {
            check_settling(texts);
        }
    }

    /// A machine of four CPUs in files, the watch of it, and the events that it sends.
    struct Host {
        dir: TempDir,
        watch: Watch,
        events: JoinHandle<()>,
        machines: std::sync::mpsc::Receiver<Box<ChangedMachine>>,
    }

    fn write(dir: &TempDir, file: &str, text: &str) {
        write_to(dir.path().join("sys/devices/system").join(file), text);
    }

    fn write_to(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn reserving_cpu_0() -> Config {
        Config { reserved_cpus: "0".parse().unwrap(), ..Config::default() }
    }

    impl Host {
        /// `early` happens after the machine was read and before the first poll.
        fn start(early: impl FnOnce(&TempDir)) -> Host {
            let dir = tempfile::tempdir().unwrap();
            write(&dir, "cpu/online", "0-3\n");
            for cpu in 0..4 {
                write(&dir, &format!("cpu/cpu{cpu}/topology/core_cpus_list"), &format!("{cpu}\n"));
            }
            let machine = Machine::of_host(dir.path(), &dir.path().join("state")).unwrap();
            early(&dir);
            let (inbox, mut events) = inbox(64);
            let (sender, machines) = std::sync::mpsc::channel();
            let events = tokio::spawn(async move {
                while let Some(Envelope { event, answer }) = events.0.recv().await {
                    let Event::MachineChanged(machine) = event else { panic!("{event:?}") };
                    sender.send(machine).unwrap();
                    answer.send(Answer::Done).unwrap();
                }
            });
            let watch = machine
                .watch(
                    Ground::new(&machine, &reserving_cpu_0(), &CpuSet::new()),
                    inbox,
                    Arc::default(),
                )
                .unwrap();
            Host { dir, watch, events, machines }
        }

        /// Polls, and gives the CPUs of every machine that was sent.
        async fn poll(&mut self, times: usize) -> Vec<String> {
            let machines = self.changes(times).await;
            machines.iter().map(|machine| machine.pools.cpus().to_string()).collect()
        }

        /// Polls, and gives every machine that was sent.
        async fn changes(&mut self, times: usize) -> Vec<Box<ChangedMachine>> {
            for _ in 0..times {
                if let Err(error) = self.watch.poll().await {
                    self.watch.failed(&error);
                }
            }
            self.machines.try_iter().collect()
        }

        fn failures(&self) -> String {
            let text = self.watch.metrics.render(false);
            let name = "bayplan_machine_changes_total{outcome=\"failed\"} ";
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            self.events.abort();
        }
    }

    #[tokio::test]
    async fn a_change_is_sent_once_after_it_has_come_to_rest() {
        let mut host = Host::start(|_| {});
        assert_eq!(host.poll(3).await, [""; 0]);
        write(&host.dir, "cpu/online", "0,2-3\n");
        assert_eq!(host.poll(1).await, [""; 0]);
        assert_eq!(host.poll(3).await, ["0,2-3"]);
        write(&host.dir, "cpu/isolated", "3\n");
        assert_eq!(host.poll(3).await, ["0,2-3"]);
        write(&host.dir, "cpu/online", "0-3\n");
        write(&host.dir, "node/online", "0\n");
        assert_eq!(host.poll(3).await, ["0-3"]);
        assert_eq!(host.failures(), "0");
    }

    #[tokio::test]
    async fn a_partition_that_comes_and_goes_is_a_change() {
        let mut host = Host::start(|_| {});
        let partitions = host.dir.path().join("sys/fs/cgroup/cpuset.cpus.isolated");
        for text in ["2\n", "\n"] {
            write_to(partitions.clone(), text);
            assert_eq!(host.poll(3).await, ["0-3"]);
        }
        fs::remove_file(partitions).unwrap();
        assert_eq!(host.poll(3).await, ["0-3"]);
        assert_eq!(host.failures(), "0");
    }

    /// Found by the guest test `cpus_in_a_partition_of_somebody_else_are_for_nobody` on Linux 6.1.
    #[tokio::test]
    async fn a_partition_that_comes_and_goes_is_a_change_without_a_list_of_isolated_cpus() {
        let mut host = Host::start(|_| {});
        let cgroups = host.dir.path().join("sys/fs/cgroup");
        for (partition, left, isolated) in [("isolated", "0-1,3", "2"), ("member", "0-3", "")] {
            write_to(cgroups.join("other/cpuset.cpus.partition"), partition);
            write_to(cgroups.join("other/cpuset.cpus.effective"), "2\n");
            write_to(cgroups.join("cpuset.cpus.effective"), left);
            let machines = host.changes(3).await;
            let isolated_now = machines.iter().map(|machine| machine.pools.isolated().to_string());
            assert_eq!(isolated_now.collect::<Vec<_>>(), [isolated]);
        }
        assert_eq!(host.failures(), "0");
    }

    #[tokio::test]
    async fn claimed_cpus_are_not_given_until_they_are_given_back() {
        let mut host = Host::start(|_| {});
        let claims = host.dir.path().join(CLAIMS_FILE);
        let one = r#"{"devices":[{"containerEdits":{"env":["DRA_CPUSET_1=2-3"]}}]}"#;
        for (text, isolated) in [(one, "2-3"), ("", ""), (one, "2-3")] {
            write_to(claims.clone(), text);
            let machines = host.changes(3).await;
            let now = machines.iter().map(|machine| machine.pools.isolated().to_string());
            assert_eq!(now.collect::<Vec<_>>(), [isolated]);
        }
        // While it is being written, and for as long as it cannot be read, what was known holds, and what else happens is not missed.
        write_to(claims, "{");
        host.changes(3).await;
        write(&host.dir, "cpu/online", "0-2\n");
        let machines = host.changes(3).await;
        let now = machines.iter().map(|machine| machine.pools.isolated().to_string());
        assert_eq!(now.collect::<Vec<_>>(), ["2"]);
        assert_eq!(host.failures(), "0");
    }

    #[tokio::test]
    async fn what_changes_before_the_first_poll_is_noticed() {
        let mut host = Host::start(|dir| write(dir, "cpu/online", "0-1\n"));
        assert_eq!(host.poll(2).await, ["0-1"]);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_counted_and_told_once_and_tried_again() {
        let mut host = Host::start(|_| {});
        let online = host.dir.path().join("sys/devices/system/cpu/online");
        fs::remove_file(&online).unwrap();
        fs::create_dir(&online).unwrap();
        assert_eq!(host.poll(3).await, [""; 0]);
        assert_eq!((host.failures().as_str(), host.watch.told.len()), ("3", 1));
        fs::remove_dir(&online).unwrap();
        // No CPU is online: there is nothing to derive.
        write(&host.dir, "cpu/online", "\n");
        assert_eq!(host.poll(3).await, [""; 0]);
        assert_eq!((host.failures().as_str(), host.watch.told.len()), ("5", 2));
        // As it was before: nothing to do, and all is well again.
        write(&host.dir, "cpu/online", "0-3\n");
        assert_eq!(host.poll(3).await, [""; 0]);
        assert_eq!((host.failures().as_str(), host.watch.told.len()), ("5", 0));
        write(&host.dir, "cpu/online", "0-2\n");
        assert_eq!(host.poll(2).await, ["0-2"]);
    }

    #[tokio::test]
    async fn a_fixed_machine_is_not_watched() {
        let host = Host::start(|_| {});
        let machine = Machine::fixed(derive_machine(host.dir.path()).unwrap());
        let (inbox, _events) = inbox(64);
        assert!(
            machine
                .watch(
                    Ground::new(&machine, &reserving_cpu_0(), &CpuSet::new()),
                    inbox,
                    Arc::default()
                )
                .is_none()
        );
    }
}
