//! Every machine as a real tree, damaged on the disk. In: the machines of `../machines` and of `../fuzz/seeds/files`. Whatever happens
//! to their files: reading ends soon, nothing outside the root counts, and what was read is a sound topology or refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod harm;
mod load;

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bayplan_drawing::{render_map, render_tree};
use bayplan_host::kernel_files::{Entry, KernelFiles};
use bayplan_host::{Depth, ReadError, capture, read_files, read_snapshot};
use bayplan_topology::{Snapshot, check_topology, derive, to_json};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use harm::{Harm, Kind, harms, make_readable};
use load::{Machine, machines, small_machines};

/// Far more than a reading takes, and far less than for ever.
const DEADLINE: Duration = Duration::from_secs(20);

/// How many files the trees of one machine may have in all.
const FILES_WRITTEN: usize = 6_000;

/// A machine on the disk, and another one beside it that must not be looked at.
struct Tree {
    dir: TempDir,
}

impl Tree {
    fn new(files: &KernelFiles) -> Tree {
        // Thousands of files per tree: where they stay in memory, they take a tenth of the time.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let tree = Tree { dir };
        files.write_to(&tree.root()).unwrap();
        fs::create_dir(tree.outside()).unwrap();
        tree
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    fn read(&self, depth: Depth) -> Result<Snapshot, ReadError> {
        let root = self.root();
        in_time(move || read_snapshot(&root, depth))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What cannot be removed stays where temporary files do.
        let _ = make_readable(self.dir.path());
    }
}

/// Fails instead of waiting for ever.
#[track_caller]
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(DEADLINE) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("still at work after {DEADLINE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => panic!("the value was lost"),
        },
    }
}

/// The breaches of what must hold for everything that was read.
fn breaches(snapshot: &Snapshot) -> Vec<String> {
    let Ok(topology) = derive(snapshot) else { return Vec::new() };
    let _text = render_tree(&topology);
    let _text = render_map(&topology, &|_| ".".to_owned());
    let _json = to_json(&topology);
    check_topology(&topology)
}

#[test]
fn a_tree_a_record_of_it_and_its_text_are_the_same_machine() {
    for Machine { name, files } in machines() {
        let tree = Tree::new(&files);
        let recorded = capture(&tree.root()).unwrap();
        let text = recorded.render();
        assert!(KernelFiles::parse(&text).as_ref() == Ok(&recorded), "{name}: {text}");
        for depth in [Depth::Cores, Depth::Cpus] {
            let read = tree.read(depth).unwrap();
            assert!(read_files(files.clone(), depth).unwrap() == read, "{name}: files, {depth:?}");
            assert!(
                read_files(recorded.clone(), depth).unwrap() == read,
                "{name}: record, {depth:?}"
            );
        }
    }
}

#[test]
fn whatever_happens_to_files_a_machine_is_sound_or_refused() {
    for Machine { name, files } in machines() {
        let outside = files_of_another();
        // Trees of all sizes get the same share of time.
        let cases = u32::try_from(FILES_WRITTEN / files.iter().count()).unwrap().clamp(3, 24);
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let run = runner.run(&prop::collection::vec(harms(), 1..6), |harms| {
            let tree = Tree::new(&files);
            for harm in &harms {
                harm.apply(&tree.root(), &tree.outside());
            }
            for depth in [Depth::Cores, Depth::Cpus] {
                let alone = tree.read(depth);
                if let Ok(snapshot) = &alone {
                    prop_assert_eq!(breaches(snapshot), Vec::<String>::new());
                }
                outside.write_to(&tree.outside()).unwrap();
                let beside = tree.read(depth);
                fs::remove_dir_all(tree.outside()).unwrap();
                prop_assert_eq!(facts(alone), facts(beside), "what is outside the root counts");
            }
            if let Ok(recorded) = capture(&tree.root()) {
                prop_assert_eq!(KernelFiles::parse(&recorded.render()), Ok(recorded));
            }
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// What was read. That a link leads out of the root is seen only where it leads somewhere.
fn facts(read: Result<Snapshot, ReadError>) -> Result<Snapshot, String> {
    let mut snapshot = read.map_err(|error| error.to_string())?;
    snapshot.oddities.retain(|odd| odd.found != "leads out of the root");
    Ok(snapshot)
}

/// Has everything in it, with other values.
fn files_of_another() -> KernelFiles {
    let mut files = KernelFiles::default();
    for (path, entry) in small_machines().iter().flat_map(|machine| machine.files.iter()) {
        let entry = match entry {
            Entry::Text(text) => Entry::Text(text.replace(['2', '3'], "1")),
            other => other.clone(),
        };
        files.insert(path, entry);
    }
    files
}

#[test]
fn a_file_that_cannot_be_used_is_told() {
    for Machine { name, files } in small_machines() {
        let tree = Tree::new(&files);
        let sound = tree.read(Depth::Cpus).unwrap();
        let read = capture(&tree.root()).unwrap();
        let texts = read.iter().filter(|(path, entry)| {
            matches!(entry, Entry::Text(_)) && tree.root().join(path).is_file()
        });
        for (path, _) in texts {
            let place = tree.root().join(path);
            let text = fs::read(&place).unwrap();
            for kind in [Kind::Fifo, Kind::Dir, Kind::LinkToItself] {
                Harm::put(&place, kind, &tree.outside());
                let told = match tree.read(Depth::Cpus) {
                    Ok(snapshot) => snapshot.oddities.iter().any(|odd| odd.path.ends_with(path)),
                    Err(_) => true,
                };
                assert!(told, "{name}: nothing tells of a {kind:?} at {path}");
                Harm::put(&place, Kind::Gone, &tree.outside());
            }
            fs::write(&place, text).unwrap();
        }
        assert!(tree.read(Depth::Cpus).unwrap() == sound, "{name}: everything is back");
    }
}

#[test]
fn a_directory_that_is_none_is_told() {
    let Machine { files, .. } = small_machines().remove(0);
    for path in [
        "sys/devices/system/cpu/cpu0",
        "sys/devices/system/cpu/cpu0/topology",
        "sys/devices/system/cpu/cpu0/cache/index0",
        "sys/devices/system/node",
        "sys/devices/system/node/node0",
        "sys/bus/pci/devices",
        "sys/fs/cgroup",
        "sys/fs/resctrl/info",
    ] {
        for kind in [Kind::Fifo, Kind::LinkToItself, Kind::LinkOutside, Kind::LinkToRoot] {
            let tree = Tree::new(&files);
            files.write_to(&tree.outside()).unwrap();
            let place = tree.root().join(path);
            Harm::put(&place, kind, &tree.outside().join(path));
            let snapshot = tree.read(Depth::Cpus).unwrap();
            let told = snapshot.oddities.iter().any(|odd| odd.path.contains(path));
            assert!(told, "nothing tells of a {kind:?} at {path}: {:#?}", snapshot.oddities);
            assert_eq!(breaches(&snapshot), Vec::<String>::new());
        }
    }
}

/// As much as is accepted, and more. Without optimisation everything takes ten times as long, but neither minutes nor gigabytes.
#[test]
fn absurd_sizes_are_read_and_shown_in_time() {
    const CPU: &str = "sys/devices/system/cpu/cpu{0-65535}";
    const NODE: &str = "sys/devices/system/node/node{0-65535}";
    let list = |part: &str| vec![part; 60_000 / part.len()].join(",");
    let row = ["10"; 10_000].join(" ");
    let cpus = format!("{CPU}/topology/core_id 0");
    for (name, lines) in [
        ("CPUs that know nothing", vec![cpus.clone()]),
        ("CPUs that are one core", vec![format!("{CPU}/topology/core_cpus_list 0-65535")]),
        (
            "CPUs that repeat themselves",
            vec![
                cpus.clone(),
                format!("sys/devices/system/cpu/online {}", list("0-65535")),
                format!("sys/devices/system/cpu/isolated {}", list("0-65535:1/2")),
            ],
        ),
        (
            "nodes with one",
            vec![
                cpus.clone(),
                "sys/devices/system/node/online 0".to_owned(),
                format!("{NODE}/cpulist 0-65535"),
                format!("{NODE}/distance 10"),
            ],
        ),
        (
            "nodes with 10,000",
            vec![cpus.clone(), format!("sys/devices/system/node/node{{0-299}}/distance {row}")],
        ),
        (
            "texts of a megabyte",
            vec![
                cpus.clone(),
                format!(
                    "sys/devices/system/cpu/cpu{{0-99}}/topology/die_id {}",
                    "9".repeat(1 << 20)
                ),
            ],
        ),
        (
            "policies",
            vec![
                cpus.clone(),
                "sys/devices/system/cpu/cpufreq/policy{0-65535}/base_frequency 1".to_owned(),
            ],
        ),
    ] {
        let text = format!("bayplan-files/1\n{}\n", lines.join("\n"));
        let breaches = in_time(move || {
            let files = KernelFiles::parse(&text).unwrap();
            breaches(&read_files(files, Depth::Cpus).unwrap())
        });
        assert_eq!(breaches, Vec::<String>::new(), "{name}");
    }
    let kib = peak_memory_kib();
    assert!(kib < 2 << 20, "{kib} KiB");
}

/// The most that this process ever had.
fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
