//! `bayplan import`: files in, a configuration that our own parser takes out.

use std::fs;
use std::path::PathBuf;

use expect_test::expect;

use super::{bayplan, check};

/// The samples of the importer's own tests: the input and, as `NAME.out.yaml`, what is written.
fn samples() -> Vec<PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/config/src/import/samples");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|it| !it.to_str().unwrap().ends_with(".out.yaml")).collect();
    files.sort();
    assert!(files.len() > 15);
    files
}

/// Every sample, on a machine that has its CPUs.
#[test]
fn what_is_written_is_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    for sample in samples() {
        let name = sample.file_name().unwrap();
        let written = dir.path().join(name);
        let machine = "pack:4 numa:1 core:8 pu:2";
        let paths = [sample.to_str().unwrap(), written.to_str().unwrap()];
        let done = bayplan(&["import", paths[0], "-o", paths[1], "--machine", machine]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name:?}: {said}");
        let last = String::from_utf8_lossy(&done.stdout);
        assert!(last.trim_end().ends_with("without counterpart"), "{name:?}: {last}");
        let found = bayplan(&["config", "check", paths[1], "--machine", machine]);
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(
            found.status.success(),
            "{name:?}: {said}\n{}",
            fs::read_to_string(&written).unwrap()
        );
    }
}

#[test]
fn a_file_that_is_there_is_not_overwritten_and_mistakes_say_where() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.yaml");
    fs::write(&path, "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n").unwrap();
    let path = path.to_str().unwrap();
    let done = bayplan(&["import", path, "-o", path]);
    let said = String::from_utf8_lossy(&done.stderr).replace(path, "FILE");
    assert_eq!(said, "bayplan: FILE is there already; name a new file, and compare them\n");
    assert_eq!(done.status.code(), Some(1));
    check(
        &["import", "/nonexistent/file"],
        expect![[r#"
            exit 1
            bayplan: cannot read /nonexistent/file: No such file or directory (os error 2)
        "#]],
    );
}

#[test]
fn a_check_needs_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.yaml");
    fs::write(&path, "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n").unwrap();
    let socket = dir.path().join("none.sock");
    let args = ["import", "--check", path.to_str().unwrap(), "--control", socket.to_str().unwrap()];
    let done = bayplan(&args);
    assert_eq!(done.status.code(), Some(1));
    expect![[r#"
         KEY                 VALUE   BECAME
         cpuManagerPolicy    static  needs no key: Guaranteed containers own whole CPUs; kubelet's own policy has to be none
         reservedSystemCPUs  0-1     reservedCpus
        1 keys carried over, 1 need no key, 0 without counterpart

    "#]]
    .assert_eq(&String::from_utf8_lossy(&done.stdout));
}
