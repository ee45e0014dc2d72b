//! All families at once, on a kernel in memory that may refuse any change, and under a daemon that may be killed before any.
//!
//! Power and resctrl have their own refusals in `host` (`read_power/tests.rs`, `fake_resctrl/tests/faults.rs`); here they are for what they have in common with
//! the others: one plan, one file of originals.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_enforcement::Unmovable;
use bayplan_host::disk::SoundDisk;
use bayplan_host::fake_resctrl::FakeResctrl;
use bayplan_host::kernel::Kernel;
use bayplan_node::occupancy::Occupancy;
use bayplan_types::{CpuSet, QosClass};
use jiff::civil::Time;
use nix::errno::Errno;
use tempfile::TempDir;

use super::cgroups::tests::{kernel, occupant};
use super::{Context, Families, Gathered};
use crate::config::{Config, parse_config};
use crate::enforcer::{Enforcer, Originals, Outcome};

mod scheduling;

const CONFIG: &str = "
cpu: {burstPercent: 50}
memory: {minPercent: 50, highPercent: 90, demotion: true, reclaim: {Burstable: }}
isolation: {partition: isolated, interrupts: disable}
blockIo:
  classes:
    Burstable:
      - Weight: 50
      - Devices: [/dev/vda]
        Weight: 200
        ThrottleWriteBps: 10M
        LatencyMicroseconds: 75
resctrl:
  partitions:
    fast: {l3Allocation: 60%, mbAllocation: [100%], classes: {Guaranteed: }}
    slow: {l3Allocation: 40%, mbAllocation: [100%], classes: {Burstable: {mbAllocation: [20%]}, system/default: }}
cpuClasses:
  classes:
    fast: {governor: performance, maxLatency: 10us}
    quiet: {governor: schedutil, maxFreq: 1GHz}
  exclusive: fast
  shared: quiet
";

/// What all families want at their first look.
pub(super) fn gathered(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
) -> Gathered {
    let (originals, unmovable) = (&BTreeMap::new(), &Unmovable::new());
    let time = Time::midnight();
    let mut context = Context { kernel, config, occupancy, originals, unmovable, time };
    Families::default().gather(&mut context, BTreeSet::new())
}

type Files = BTreeMap<String, String>;

/// Every kernel file ends its text so.
fn put(files: &mut Files, path: &str, text: &str) {
    files.insert(path.to_owned(), format!("{}\n", text.trim()));
}

fn any_text(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    put(files, path, text);
    Ok(())
}

fn cpu_max(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    put(files, path, if text == "max" { "max 100000" } else { text });
    Ok(())
}

/// A partition has its CPUs only if every group on the way has them, and keeps them as long as it is one.
fn partition(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let group = path.trim_end_matches("/cpuset.cpus.partition");
    let own = own_cpus(files, group);
    let mut above = group.match_indices('/').map(|(at, _)| &group[..at]);
    let has_all = above.all(|it| !it.contains("kubepods") || own.is_subset(&own_cpus(files, it)));
    let is_valid = text == "member" || (has_all && !own.is_empty());
    put(files, path, &format!("{text}{}", if is_valid { "" } else { " invalid (CPUs)" }));
    Ok(())
}

/// Takes what `kstrtobool` of all kernels takes.
fn switch(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let word = match text {
        "1" => "true",
        "0" => "false",
        _ => return Err(Errno::EINVAL),
    };
    put(files, path, word);
    Ok(())
}

fn own_cpus(files: &Files, group: &str) -> CpuSet {
    let text = files.get(&format!("{group}/cpuset.cpus.exclusive"));
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

fn exclusive(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let cpus: CpuSet = text.trim().parse().map_err(|_| Errno::EINVAL)?;
    put(files, path, &cpus.to_string());
    Ok(())
}

/// One write is one line; a line with nothing in it is none.
fn keyed(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let (key, values) = text.split_once(' ').ok_or(Errno::EINVAL)?;
    let mut lines: BTreeMap<&str, &str> =
        files[path].lines().filter_map(|line| line.split_once(' ')).collect();
    let is_nothing =
        |value: &str| ["default", "max"].contains(&value.rsplit('=').next().unwrap_or_default());
    match values.split(' ').all(is_nothing) && key != "default" {
        true => lines.remove(key),
        false => lines.insert(key, values),
    };
    let text = lines.iter().map(|(key, values)| format!("{key} {values}\n")).collect();
    files.insert(path.to_owned(), text);
    Ok(())
}

/// A node with an owner of CPUs 2 and 3 and a container that shares 0 and 1, of which every family wants something.
fn machine() -> FakeResctrl {
    let mut fake = FakeResctrl::xeon();
    let mut rest = kernel(&["own", "sharer"]);
    rest.files.extend(std::mem::take(&mut fake.rest.files));
    for path in
        rest.files.keys().filter(|path| path.ends_with("/io.max")).cloned().collect::<Vec<_>>()
    {
        rest.files.insert(path.replace("io.max", "io.latency"), String::new());
    }
    let mut put = |path: String, text: &str| put(&mut rest.files, &path, text);
    put("sys/fs/cgroup/io.cost.qos".to_owned(), "254:0 enable=0");
    put("sys/dev/block/254:0/dev".to_owned(), "254:0");
    put("run/irqbalance/irqbalance7.sock".to_owned(), "1");
    put("sys/devices/virtual/workqueue/cpumask".to_owned(), "f");
    put("sys/kernel/mm/numa/demotion_enabled".to_owned(), "false");
    for (tier, nodes) in [(4, "0-1"), (22, "2")] {
        put(format!("sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist"), nodes);
    }
    for file in ["memory.pressure", "memory.reclaim"] {
        put(format!("sys/fs/cgroup/kubepods/{file}"), "");
    }
    for cpu in 0..4 {
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        put(format!("{policy}/affected_cpus"), &cpu.to_string());
        put(format!("{policy}/scaling_driver"), "intel_cpufreq");
        put(format!("{policy}/cpuinfo_min_freq"), "800000");
        put(format!("{policy}/cpuinfo_max_freq"), "3000000");
        put(format!("{policy}/scaling_available_governors"), "performance powersave schedutil");
        put(format!("{policy}/scaling_governor"), "powersave");
        put(format!("{policy}/scaling_min_freq"), "800000");
        put(format!("{policy}/scaling_max_freq"), "3000000");
        put(format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), "0");
    }
    fake.rest = rest
        .with_rule("/cpu.max", cpu_max)
        .with_rule("/cpuset.cpus.exclusive", exclusive)
        .with_rule("/cpuset.cpus.partition", partition)
        .with_rule("/demotion_enabled", switch)
        .with_rule("/io.weight", keyed)
        .with_rule("/io.max", keyed)
        .with_rule("/io.latency", keyed)
        .with_rule("/io.cost.qos", keyed)
        .with_rule("", any_text);
    for (thread, pod) in [(10, "own"), (11, "own"), (20, "sharer")] {
        fake.add_thread(thread, &format!("sys/fs/cgroup/kubepods/pod-{pod}/id-{pod}"));
    }
    fake
}

/// What becomes of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fails(Errno),
    /// The daemon is killed before it.
    Dies,
}

/// The machine, with one change that goes wrong.
#[derive(Clone)]
struct Fated {
    inner: Arc<Mutex<FakeResctrl>>,
    /// The paths that were to be changed, in order.
    log: Arc<Mutex<Vec<String>>>,
    at: usize,
    fate: Fate,
}

impl Fated {
    fn new(inner: &Arc<Mutex<FakeResctrl>>, at: usize, fate: Fate) -> Fated {
        Fated { inner: Arc::clone(inner), log: Arc::default(), at, fate }
    }

    fn before(&self, path: &str) -> Result<(), Errno> {
        let mut log = self.log.lock().unwrap();
        log.push(path.to_owned());
        match self.fate {
            _ if log.len() - 1 != self.at => Ok(()),
            Fate::Fails(errno) => Err(errno),
            Fate::Dies => {
                drop(log);
                resume_unwind(Box::new(()))
            }
        }
    }
}

impl Kernel for Fated {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        self.inner.read(path)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        self.before(path)?;
        self.inner.write(path, text)
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        self.inner.list(dir)
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.before(dir)?;
        self.inner.make_dir(dir)
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        self.before(dir)?;
        self.inner.remove_dir(dir)
    }
}

/// Where disks, the configuration and the two containers are the same for all cases.
struct Scene {
    _root: TempDir,
    config: Config,
    both: Occupancy,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [("dev/vda", ""), ("sys/class/block/vda/dev", "254:0\n")] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let config = format!("hostRoot: {}{CONFIG}", root.path().display());
        let config = parse_config(Path::new("c"), &config).unwrap();
        let mut sharer = occupant("sharer", "0-1", "", &[]);
        Arc::make_mut(&mut sharer.spec).pod.qos = Some(QosClass::Burstable);
        Arc::make_mut(&mut sharer.spec).resources.oom_score_adj = 969;
        let occupants = vec![occupant("own", "2-3", "2-3", &[]), sharer];
        let shared = "0-1".parse().unwrap();
        Scene { _root: root, config, both: Occupancy { occupants, shared, ..Occupancy::default() } }
    }

    fn without_containers(&self) -> Occupancy {
        Occupancy { is_restored: true, ..Occupancy::default() }
    }
}

/// A daemon that has its originals on disk.
struct Daemon<'a> {
    scene: &'a Scene,
    enforcer: Enforcer,
    now: u64,
}

impl<'a> Daemon<'a> {
    fn start(scene: &'a Scene, state: &TempDir, kernel: Box<dyn Kernel + Send>) -> Daemon<'a> {
        let (originals, told) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
        assert_eq!(told, [""; 0]);
        Daemon { scene, enforcer: Enforcer::new(kernel, originals), now: 0 }
    }

    /// Later than any write waits that has failed.
    fn look(&mut self, occupancy: &Occupancy) -> Outcome {
        self.now += 400;
        self.enforcer.enforce(&self.scene.config, occupancy, Duration::from_secs(self.now))
    }

    /// Looks until there is nothing to do; more than a few times is a mistake.
    fn settle(&mut self, occupancy: &Occupancy) {
        for _ in 0..4 {
            let done = self.look(occupancy);
            if done.plan.is_empty() && done.groups.changes.is_empty() && done.groups.moved == 0 {
                return;
            }
        }
        let view =
            self.enforcer.preview(&self.scene.config, occupancy, Duration::from_secs(self.now));
        panic!("still to be written: {:#?}", view.plan);
    }
}

/// Everything that the machine says.
fn tree(kernel: &Arc<Mutex<FakeResctrl>>) -> Files {
    let mut kernel = Arc::clone(kernel);
    let mut files = kernel.lock().unwrap().rest.files.clone();
    let groups: Vec<String> = kernel.list("sys/fs/resctrl").unwrap();
    for group in groups
        .iter()
        .filter(|it| it.starts_with("bayplan."))
        .map(|it| format!("/{it}"))
        .chain([String::new()])
    {
        let path = format!("sys/fs/resctrl{group}/schemata");
        files.insert(path.clone(), kernel.read(&path).unwrap());
    }
    for thread in [10, 11, 20] {
        let group = kernel.lock().unwrap().group_of(thread).unwrap();
        files.insert(format!("sys/fs/resctrl/thread {thread}"), group);
    }
    files
}

fn shared(machine: FakeResctrl) -> Arc<Mutex<FakeResctrl>> {
    Arc::new(Mutex::new(machine))
}

/// The machine as all want it, and the changes that lead there and back.
fn right(scene: &Scene) -> (Files, [Vec<String>; 2]) {
    let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
    let begin = tree(&kernel);
    let fated = Fated::new(&kernel, usize::MAX, Fate::Dies);
    let mut daemon = Daemon::start(scene, &state, Box::new(fated.clone()));
    let done = daemon.look(&scene.both);
    assert_eq!((done.failures, done.problems), (vec![], vec![]));
    daemon.settle(&scene.both);
    let there = std::mem::take(&mut *fated.log.lock().unwrap());
    let right = tree(&kernel);
    daemon.settle(&scene.without_containers());
    let back = std::mem::take(&mut *fated.log.lock().unwrap());
    assert_eq!(tree(&kernel), begin);
    (right, [there, back])
}

#[test]
fn the_scene_has_every_family() {
    let scene = Scene::new();
    let (_, [there, back]) = right(&scene);
    for part in [
        "/cpu.max",
        "/cpu.max.burst",
        "/memory.min",
        "/memory.high",
        "/io.weight",
        "/io.max",
        "/demotion_enabled",
        "/io.latency",
        "/io.cost.qos",
        "/cpuset.cpus.exclusive",
        "/cpuset.cpus.partition",
        "proc/irq/9/smp_affinity_list",
        "/default_smp_affinity",
        "/workqueue/cpumask",
        "irqbalance7.sock",
        "/schemata",
        "/tasks",
        "/scaling_governor",
        "/scaling_max_freq",
        "/pm_qos_resume_latency_us",
    ] {
        let has = |log: &[String]| log.iter().any(|path| path.ends_with(part));
        assert!(has(&there), "{part} is not written: {there:#?}");
        assert!(has(&back) || part == "/tasks", "{part} is not given back: {back:#?}");
    }
}

/// What a change can be answered with (cgroup-v2.rst; `write_irq_affinity`; resctrl.rst; `irqbalance.rs` for what a socket says).
fn errnos(path: &str) -> &'static [Errno] {
    const CPUSET: &[Errno] = &[
        Errno::EINVAL,
        Errno::EBUSY,
        Errno::ENOSPC,
        Errno::EACCES,
        Errno::EPERM,
        Errno::ENODEV,
        Errno::EIO,
    ];
    const IRQ: &[Errno] = &[
        Errno::EIO,
        Errno::EPERM,
        Errno::EACCES,
        Errno::EINVAL,
        Errno::ENOSPC,
        Errno::EBUSY,
        Errno::ENOENT,
        Errno::EOPNOTSUPP,
    ];
    const DISK: &[Errno] = &[
        Errno::EINVAL,
        Errno::ENODEV,
        Errno::EOPNOTSUPP,
        Errno::ERANGE,
        Errno::EBUSY,
        Errno::EACCES,
        Errno::ENOSPC,
        Errno::EPERM,
        Errno::ENOMEM,
    ];
    const SOCKET: &[Errno] =
        &[Errno::EAGAIN, Errno::EPROTO, Errno::EACCES, Errno::ENOENT, Errno::EIO];
    const LIMIT: &[Errno] = &[
        Errno::EINVAL,
        Errno::ERANGE,
        Errno::EBUSY,
        Errno::EPERM,
        Errno::EACCES,
        Errno::ENOENT,
        Errno::ENODEV,
        Errno::EIO,
    ];
    match path {
        it if it.contains("/cpuset.") => CPUSET,
        it if it.starts_with("proc/irq/") || it.contains("workqueue") => IRQ,
        it if it.contains("/io.") => DISK,
        it if it.starts_with("run/irqbalance") => SOCKET,
        it if it.starts_with("sys/fs/cgroup/") || it.contains("/mm/") => LIMIT,
        _ => &[Errno::EBUSY],
    }
}

/// What may be wrong, too, where this could not be written.
fn is_related(failed: &str, path: &str) -> bool {
    let both = |part: &str| failed.contains(part) && path.contains(part);
    failed == path || both("/cpuset.cpus.") || both("sys/fs/resctrl/")
}

/// The kernel lets no program move some interrupts: those are left where they are.
fn is_left(path: &str, errno: Errno) -> bool {
    path.starts_with("proc/irq/") && [Errno::EIO, Errno::EPERM, Errno::EACCES].contains(&errno)
}

/// One change fails once on the way from where the daemon is to `goal`. Afterwards everything else is done, the failure is named, and a later look gets there.
fn check_failing(
    daemon: &mut Daemon<'_>,
    fated: &Fated,
    errno: Errno,
    occupancy: &Occupancy,
    goal: &Files,
) {
    let done = daemon.look(occupancy);
    let log = fated.log.lock().unwrap().clone();
    let failed = &log[fated.at];
    let now = tree(&fated.inner);
    let what = format!("{failed} with {errno:?}");
    for (path, text) in goal {
        assert!(
            now.get(path) == Some(text) || is_related(failed, path),
            "{what}: {path} is {:?}",
            now.get(path)
        );
    }
    let is_gone = matches!(errno, Errno::ENOENT | Errno::ENODEV);
    let is_named = |it: &String| it.contains(failed.as_str()) && it.contains(&format!("{errno:?}"));
    let is_silent = is_gone || is_left(failed, errno) || now == *goal;
    assert!(is_silent || done.failures.iter().any(is_named), "{what}: {:?}", done.failures);
    daemon.settle(occupancy);
}

#[test]
fn whatever_fails_once_stops_nothing_else_is_named_and_is_made_good() {
    let scene = Scene::new();
    let begin = tree(&shared(machine()));
    let (right, [there, back]) = right(&scene);
    let mut cases = 0;
    for (at, path) in there.iter().enumerate() {
        for errno in errnos(path) {
            let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
            let fated = Fated::new(&kernel, at, Fate::Fails(*errno));
            let mut daemon = Daemon::start(&scene, &state, Box::new(fated.clone()));
            check_failing(&mut daemon, &fated, *errno, &scene.both, &right);
            let mut goal = right.clone();
            if is_left(path, *errno) {
                goal.insert(path.clone(), begin[path].clone());
            }
            assert_eq!(tree(&kernel), goal, "{path} with {errno:?}");
            daemon.settle(&scene.without_containers());
            assert_eq!(tree(&kernel), begin, "{path} with {errno:?}, and back");
            cases += 1;
        }
    }
    for (at, path) in back.iter().enumerate() {
        for errno in errnos(path) {
            let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
            Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel))).settle(&scene.both);
            let fated = Fated::new(&kernel, at, Fate::Fails(*errno));
            let mut daemon = Daemon::start(&scene, &state, Box::new(fated.clone()));
            check_failing(&mut daemon, &fated, *errno, &scene.without_containers(), &begin);
            assert_eq!(tree(&kernel), begin, "{path} with {errno:?} on the way back");
            assert_eq!(daemon.look(&scene.without_containers()).changed, 0);
            cases += 1;
        }
    }
    assert!(cases > 300, "{cases}");
}

/// The daemon is killed before one change on its way to `occupancy`. Gives whether it came to that.
fn kill_before(
    scene: &Scene,
    state: &TempDir,
    kernel: &Arc<Mutex<FakeResctrl>>,
    at: usize,
    occupancy: &Occupancy,
) -> bool {
    let fated = Fated::new(kernel, at, Fate::Dies);
    let mut daemon = Daemon::start(scene, state, Box::new(fated));
    catch_unwind(AssertUnwindSafe(|| daemon.settle(occupancy))).is_err()
}

#[test]
fn a_daemon_that_is_killed_before_any_change_leaves_a_way_there_and_back() {
    let scene = Scene::new();
    let begin = tree(&shared(machine()));
    let (right, [there, back]) = right(&scene);
    for (at, path) in there.iter().enumerate() {
        let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
        assert!(kill_before(&scene, &state, &kernel, at, &scene.both));
        // The next one goes on.
        Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel))).settle(&scene.both);
        assert_eq!(tree(&kernel), right, "killed before {path}");
        let restored =
            Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel))).enforcer.give_back();
        assert_eq!(restored.failures, [""; 0]);
        assert_eq!(tree(&kernel), begin, "killed before {path}, and back");

        // None comes, and `bayplan restore --files-only` is all there is.
        let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
        assert!(kill_before(&scene, &state, &kernel, at, &scene.both));
        let restored =
            Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel))).enforcer.give_back();
        assert_eq!(restored.failures, [""; 0]);
        assert_eq!(tree(&kernel), begin, "killed before {path}, given back");
    }
    for (at, path) in back.iter().enumerate() {
        let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
        Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel))).settle(&scene.both);
        assert!(kill_before(&scene, &state, &kernel, at, &scene.without_containers()));
        let mut next = Daemon::start(&scene, &state, Box::new(Arc::clone(&kernel)));
        assert_eq!(next.enforcer.give_back().failures, [""; 0]);
        assert_eq!(tree(&kernel), begin, "killed on the way back before {path}");
        assert_eq!(next.look(&scene.without_containers()).changed, 0);
    }
}

#[test]
fn a_preview_changes_nothing() {
    let scene = Scene::new();
    let (kernel, state) = (shared(machine()), tempfile::tempdir().unwrap());
    let begin = tree(&kernel);
    let fated = Fated::new(&kernel, 0, Fate::Dies);
    let mut daemon = Daemon::start(&scene, &state, Box::new(fated));
    let shown = daemon.enforcer.preview(&scene.config, &scene.both, Duration::ZERO);
    assert!(shown.plan.writes.len() > 30 && shown.changed == 0, "{:#?}", shown.plan);
    assert_eq!(tree(&kernel), begin);
}
