//! Every machine of this folder, from the kernel's files or from one line to the tree that people see. See `README.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_drawing::render_tree;
use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, read_files};
use bayplan_topology::{Snapshot, check_topology, derive, parse_machine};
use expect_test::expect_file;

#[test]
fn every_machine_has_the_expected_tree() {
    let mut folders: Vec<PathBuf> = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/machines"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 20, "{folders:?}");
    for folder in folders {
        let topology = derive(&load(&folder)).unwrap();
        assert_eq!(check_topology(&topology), Vec::<String>::new(), "{}", folder.display());
        let tree = render_tree(&topology);
        let widest = tree.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{}: {widest:?} columns", folder.display());
        expect_file![folder.join("tree.txt")].assert_eq(&tree);
    }
}

/// What the threads of a core have in common is the same whichever is asked.
#[test]
fn a_quick_reading_gives_the_same_topology() {
    for folder in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/machines")).unwrap() {
        let path = folder.unwrap().path();
        let Ok(text) = fs::read_to_string(path.join("files.txt")) else {
            continue;
        };
        let files = KernelFiles::parse(&text).unwrap();
        let [quickest, quick, thorough] = [Depth::Placement, Depth::Cores, Depth::Cpus]
            .map(|depth| derive(&read_files(files.clone(), depth).unwrap()).unwrap());
        assert_eq!(render_tree(&quick), render_tree(&thorough), "{}", path.display());
        assert_eq!(quickest.fingerprint(), thorough.fingerprint(), "{}", path.display());
        assert_eq!(quickest.cores(), thorough.cores(), "{}", path.display());
    }
}

fn load(folder: &Path) -> Snapshot {
    if let Ok(line) = fs::read_to_string(folder.join("machine.txt")) {
        return parse_machine(line.trim()).unwrap();
    }
    let text = fs::read_to_string(folder.join("files.txt")).unwrap();
    let files = KernelFiles::parse(&text).unwrap();
    // What people review is what is written.
    assert_eq!(files.render(), text, "{}", folder.display());
    read_files(files, Depth::Cpus).unwrap()
}
