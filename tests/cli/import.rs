//! `bayplan import`: files in, a configuration that our own parser takes out.

use std::fs;
use std::path::PathBuf;

use expect_test::{expect, expect_file};

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

/// That has the CPUs of all samples.
const MACHINE: &str = "pack:4 numa:1 core:8 pu:2";

/// Every sample, on a machine that has its CPUs.
#[test]
fn what_is_written_is_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    for sample in samples() {
        let name = sample.file_name().unwrap();
        let written = dir.path().join(name);
        let paths = [sample.to_str().unwrap(), written.to_str().unwrap()];
        let done = bayplan(&["import", paths[0], "-o", paths[1], "--machine", MACHINE]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name:?}: {said}");
        let last = String::from_utf8_lossy(&done.stdout);
        assert!(last.trim_end().ends_with("without counterpart"), "{name:?}: {last}");
        let found = bayplan(&["config", "check", paths[1], "--machine", MACHINE]);
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(
            found.status.success(),
            "{name:?}: {said}\n{}",
            fs::read_to_string(&written).unwrap()
        );
    }
}

/// Pods of a node: of the system, with CPUs of its own, with shared ones, and one for each type of groups, which it names.
fn pods(config: &str) -> String {
    let pod = |name: &str, namespace: &str, group: &str, resources: &str| {
        format!(
            "kind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, annotations: {{bayplan.dev/group: \"{group}\"}}}}\n\
             spec: {{containers: [{{name: c, resources: {resources}}}]}}\n---\n"
        )
    };
    let config: serde_json::Value = serde_yaml::from_str(config).unwrap();
    let types = config["groups"].as_array().cloned().unwrap_or_default();
    let names = types.iter().map(|it| it["name"].as_str().unwrap());
    let members = names.map(|it| pod(&format!("in-{it}"), "default", it, "{requests: {cpu: 1}}"));
    let others = [
        pod("dns", "kube-system", "none", "{requests: {cpu: 100m}}"),
        pod("owner", "default", "none", "{limits: {cpu: 2, memory: 1Gi}}"),
        pod("sharer", "default", "none", "{requests: {cpu: 500m}}"),
    ];
    others.into_iter().chain(members).collect()
}

/// Where these pods are under each sample. A type that takes no pod by its name says so.
#[test]
fn pods_are_placed_under_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [written, files] = ["config.yaml", "pods.yaml"].map(|it| dir.path().join(it));
    let mut told = String::new();
    for sample in samples() {
        let _ = fs::remove_file(&written);
        let [from, to] = [&sample, &written].map(|it| it.to_str().unwrap());
        let done = bayplan(&["import", from, "-o", to, "--machine", MACHINE]);
        assert!(done.status.success(), "{from}");
        fs::write(&files, pods(&fs::read_to_string(&written).unwrap())).unwrap();
        let files = files.to_str().unwrap();
        let args = ["simulate", "--config", to, "--machine", MACHINE, "-o", "json", files];
        let placed = bayplan(&args);
        let said = String::from_utf8_lossy(&placed.stderr);
        let placed: serde_json::Value = serde_json::from_slice(&placed.stdout)
            .unwrap_or_else(|why| panic!("{from}: {why}, {said}"));
        let name = sample.file_name().unwrap().to_str().unwrap();
        told.push_str(&format!("{name}\n"));
        for it in placed.as_array().unwrap() {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let (now, container) = (&it["now"], text(&it["container"]));
            let (cpus, group) = (text(&now["cpus"]), text(&now["group"]));
            let place = match now.is_null() {
                true => text(&it["decision"]["outcome"]),
                false if group.is_empty() => format!("on {cpus}"),
                false => format!("on {cpus}, {group}"),
            };
            told.push_str(&format!("  {container}: {place}\n"));
        }
    }
    expect_file!["import_placed.txt"].assert_eq(&told);
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
