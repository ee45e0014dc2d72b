//! Every machine of this folder, from the kernel's files or from one line to the tree that people see. See `README.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_host::{Depth, read_snapshot};
use bayplan_topology::{Snapshot, check_topology, derive, parse_machine, render_tree};
use bayplan_types::CpuSet;
use expect_test::expect_file;

#[test]
fn every_machine_has_the_expected_tree() {
    let mut folders: Vec<PathBuf> = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/machines"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 8, "{folders:?}");
    for folder in folders {
        let topology = derive(&load(&folder)).unwrap();
        assert_eq!(check_topology(&topology), Vec::<String>::new(), "{}", folder.display());
        expect_file![folder.join("tree.txt")].assert_eq(&render_tree(&topology));
    }
}

fn load(folder: &Path) -> Snapshot {
    if let Ok(line) = fs::read_to_string(folder.join("machine.txt")) {
        return parse_machine(line.trim()).unwrap();
    }
    let root = tempfile::tempdir().unwrap();
    let shape = fs::read_to_string(folder.join("sysfs.txt")).unwrap();
    for line in shape.lines() {
        write_line(&root.path().join("sys/devices/system"), line);
    }
    read_snapshot(root.path(), Depth::Cpus).unwrap()
}

/// Writes the kernel files of one line of `sysfs.txt`.
fn write_line(system: &Path, line: &str) {
    let mut words = line.split_ascii_whitespace();
    let mut next = || words.next();
    let subject = next().unwrap();
    let (dir, keys) = match subject {
        "cpus" => (system.join("cpu"), CPUS),
        "nodes" => (system.join("node"), NODES),
        "cpu" => (system.join(format!("cpu/cpu{}", next().unwrap())), CPU),
        "node" => (system.join(format!("node/node{}", next().unwrap())), NODE),
        _ => panic!("unknown subject: {line}"),
    };
    fs::create_dir_all(&dir).unwrap();
    while let Some(key) = next() {
        let value = next().unwrap_or_else(|| panic!("{key} without a value: {line}"));
        let (_, file, form) = keys
            .iter()
            .find(|(known, _, _)| *known == key)
            .unwrap_or_else(|| panic!("unknown key {key}: {line}"));
        write(&dir.join(file), &form.kernel_text(value));
        if file.starts_with("cache/index3/") {
            write(&dir.join("cache/index3/level"), "3");
            write(&dir.join("cache/index3/type"), "Unified");
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// How the kernel writes a value.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    List,
    Mask,
    MemInfo,
    Row,
}

impl Form {
    fn kernel_text(self, value: &str) -> String {
        let set = || match value {
            "none" => CpuSet::new(),
            list => list.parse().unwrap(),
        };
        match self {
            Form::Plain => value.to_owned(),
            Form::List => set().to_string(),
            Form::Mask => set().render_mask(),
            Form::MemInfo => {
                format!("Node 0 MemTotal:       {value} kB\nNode 0 MemFree:        1024 kB")
            }
            Form::Row => value.replace(',', " "),
        }
    }
}

/// A key, its file and the form of its value.
type Key = (&'static str, &'static str, Form);

const CPUS: &[Key] = &[
    ("present", "present", Form::List),
    ("possible", "possible", Form::List),
    ("online", "online", Form::List),
    ("isolated", "isolated", Form::List),
];
const NODES: &[Key] = &[("online", "online", Form::List)];
const CPU: &[Key] = &[
    ("online", "online", Form::Plain),
    ("package", "topology/physical_package_id", Form::Plain),
    ("die", "topology/die_id", Form::Plain),
    ("core", "topology/core_id", Form::Plain),
    ("core_cpus", "topology/core_cpus_list", Form::List),
    ("siblings", "topology/thread_siblings_list", Form::List),
    ("siblings_mask", "topology/thread_siblings", Form::Mask),
    ("l3", "cache/index3/shared_cpu_list", Form::List),
    ("l3_mask", "cache/index3/shared_cpu_map", Form::Mask),
    ("l3_id", "cache/index3/id", Form::Plain),
];
const NODE: &[Key] = &[
    ("cpus", "cpulist", Form::List),
    ("cpus_mask", "cpumap", Form::Mask),
    ("memory_kb", "meminfo", Form::MemInfo),
    ("distances", "distance", Form::Row),
];
