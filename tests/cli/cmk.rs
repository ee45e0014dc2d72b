//! `bayplan cmk`: pools in a directory, and programs on their lists.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use bayplan_host::write_snapshot;
use bayplan_topology::{PolicyFacts, parse_machine};
use bayplan_types::{CorePower, CpuSet, PowerCore, PowerDomain, SpeedSelect};
use expect_test::expect;
use tempfile::TempDir;

/// A directory with one exclusive list per given CPU list, and infra and shared on CPU 0, which every machine has.
fn directory(exclusive: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |below: String, text: &str| {
        let path = dir.path().join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("pools/exclusive/exclusive".to_owned(), "1");
    for list in exclusive {
        write(format!("pools/exclusive/0/{list}/tasks"), "");
    }
    for pool in ["shared", "infra"] {
        write(format!("pools/{pool}/exclusive"), "0");
        write(format!("pools/{pool}/0/0/tasks"), "");
    }
    dir
}

fn cmk(dir: &Path, verb: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    command.args(["cmk", verb, "--conf-dir", dir.to_str().unwrap()]).args(args);
    command.env_remove("BAYPLAN_CONFIG").output().unwrap()
}

fn texts(output: &Output) -> [String; 2] {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    [text(&output.stdout), text(&output.stderr)]
}

fn tasks(dir: &Path, list: &str) -> String {
    fs::read_to_string(dir.join("pools/exclusive/0").join(list).join("tasks")).unwrap()
}

const MACHINE: [&str; 2] = ["--machine", "pack:2 numa:1 core:4 pu:2"];

#[test]
fn a_machine_is_divided_once() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("cmk");
    let init = |count: &str| {
        cmk(&conf, "init", &[&["--num-exclusive-cores", count][..], &MACHINE].concat())
    };
    assert!(init("2").status.success());
    assert!(init("2").status.success());
    let refused = init("3");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        texts(&refused)[1].contains("is there already, with 4 CPUs in pool exclusive instead of 6")
    );
    let described: serde_json::Value =
        serde_json::from_slice(&cmk(&conf, "describe", &[]).stdout).unwrap();
    let lists = described["pools"]["exclusive"]["cpuLists"].as_object().unwrap();
    assert_eq!(lists.keys().collect::<Vec<_>>(), ["0,8", "1,9"]);
    assert_eq!(described["pools"]["exclusive"]["exclusive"], true);
    assert_eq!(described["pools"]["infra"]["exclusive"], false);
    assert!(cmk(&conf, "uninstall", &[]).status.success());
    assert!(!conf.exists());
    let gone = cmk(&conf, "describe", &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(texts(&gone)[1].contains("is no directory of CMK"), "{:?}", texts(&gone));
}

/// A machine with two packages of four cores of two threads, three of them isolated, and core power on; preferences of CPUs by range.
fn write_machine(root: &Path, preferences: &[(&str, &str)]) {
    let mut snapshot = parse_machine("pack:2 numa:1 core:4 pu:2 isolated:2-3,10-11,6,14").unwrap();
    let core = |number: u16| PowerCore {
        number,
        cpus: format!("{number},{}", number + 8).parse().unwrap(),
        clos: Some(0),
    };
    let domain = PowerDomain {
        name: "0.0".to_owned(),
        core_power: Some(CorePower::Ordered),
        cores: (0..4).map(core).collect(),
        ..PowerDomain::default()
    };
    snapshot.kernel.has_speed_select = true;
    snapshot.kernel.speed_select =
        Some(Ok(SpeedSelect { domains: vec![domain], ..SpeedSelect::default() }));
    for (cpus, preference) in preferences {
        let cpus: CpuSet = cpus.parse().unwrap();
        snapshot.policies.extend(cpus.iter().map(|cpu| PolicyFacts {
            id: cpu.0,
            preference: Some((*preference).to_owned()),
            ..PolicyFacts::default()
        }));
    }
    snapshot.policies.sort_by_key(|it| it.id);
    write_snapshot(&snapshot).write_to(root).unwrap();
}

#[test]
fn where_power_is_divided_a_pool_has_the_cores_of_a_preference() {
    let (dir, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_machine(
        root.path(),
        &[
            ("3,11,6,14", "performance"),
            ("2,10", "balance_performance"),
            ("0-1,8-9,4-5,12-13,7,15", "power"),
        ],
    );
    let conf = dir.path().join("cmk");
    let machine = ["--root", root.path().to_str().unwrap()];
    let init = |count: &str| {
        cmk(&conf, "init", &[&["--num-exclusive-cores", count][..], &machine].concat())
    };
    let refused = init("1");
    assert_eq!(refused.status.code(), Some(1));
    let told = &texts(&refused)[1];
    assert!(told.contains("preference performance: 2 have it, 1 are requested"), "{told}");
    let made = init("2");
    assert!(made.status.success(), "{:?}", texts(&made));
    let described: serde_json::Value =
        serde_json::from_slice(&cmk(&conf, "describe", &[]).stdout).unwrap();
    let lists = |pool: &str| {
        let lists = described["pools"][pool]["cpuLists"].as_object().unwrap();
        lists.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(lists("exclusive"), ["3,11", "6,14"]);
    assert_eq!(lists("shared"), ["2,10"]);
    assert_eq!(lists("infra"), ["0,1,8,9", "4,5,7,12,13,15"]);
}

#[test]
fn the_first_release_has_other_pools_and_no_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let args = [&["--num-dp-cores=2", "--num-cp-cores=1"][..], &MACHINE].concat();
    assert!(cmk(dir.path(), "init", &args).status.success());
    assert_eq!(fs::read_to_string(dir.path().join("pools/dataplane/exclusive")).unwrap(), "1");
    assert_eq!(fs::read_to_string(dir.path().join("pools/dataplane/0,8/tasks")).unwrap(), "");
    assert_eq!(fs::read_to_string(dir.path().join("pools/controlplane/2,10/tasks")).unwrap(), "");
}

/// The list is the program's while it runs, and the exit code is the program's.
#[test]
fn a_program_runs_on_its_list_and_its_exit_code_is_passed_on() {
    let dir = directory(&["0"]);
    let script = "grep Cpus_allowed_list /proc/self/status; cat $0; echo $CMK_CPUS_ASSIGNED $CMK_CPUS_ASSIGNED_MASK $CMK_CPUS_SHARED; exit 7";
    let file = dir.path().join("pools/exclusive/exclusive");
    let args = ["--pool=exclusive", "--socket-id=-1", "sh", "-c", script, file.to_str().unwrap()];
    let done = cmk(dir.path(), "isolate", &args);
    assert_eq!(done.status.code(), Some(7), "{:?}", texts(&done));
    expect!["Cpus_allowed_list:\t0\n10 0x1 0\n"].assert_eq(&texts(&done)[0]);
    assert_eq!(tasks(dir.path(), "0"), "");
    let killed = cmk(dir.path(), "isolate", &["--pool=shared", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137));
    let dashes = cmk(dir.path(), "isolate", &["--pool=infra", "echo", "--", "--x"]);
    assert_eq!(texts(&dashes)[0], "--x\n");
}

#[test]
fn flags_of_cmk_for_kubernetes_are_taken_and_unknown_ones_are_no_program() {
    let dir = directory(&["0"]);
    let no_effect = "has no effect on a node without Kubernetes\n";
    for (verb, args, expected) in [
        ("describe", &["--namespace=default"][..], ["--namespace"]),
        ("reconcile", &["--interval=0", "--publish"], ["--publish"]),
        ("node-report", &["--publish"], ["--publish"]),
        ("isolate", &["--namespace", "x", "--pool=exclusive", "true"], ["--namespace"]),
        ("init", &["--socket-id=-1", "--num-exclusive-cores=9"], ["--socket-id"]),
        ("uninstall", &["--install-dir=/opt/bin"], ["--install-dir"]),
    ] {
        let said = texts(&cmk(dir.path(), verb, args));
        let warnings: Vec<&str> =
            said[1].split_inclusive('\n').filter(|it| it.ends_with(no_effect)).collect();
        let expected = expected.map(|flag| format!("bayplan: warning: {flag} {no_effect}"));
        assert_eq!(warnings, expected, "{verb}");
    }
    let unknown = cmk(dir.path(), "isolate", &["--fast", "--pool=shared", "true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(texts(&unknown)[1].starts_with("error: unexpected argument '--fast' found"));
}

#[test]
fn a_list_has_one_user_until_that_ends() {
    let dir = directory(&["0"]);
    // Of a process that runs, and of one that does not.
    fs::write(dir.path().join("pools/exclusive/0/0/tasks"), std::process::id().to_string())
        .unwrap();
    let refused = cmk(dir.path(), "isolate", &["--pool=exclusive", "true"]);
    assert_eq!(refused.status.code(), Some(1));
    let [_, said] = texts(&refused);
    assert_eq!(said, "bayplan: pool `exclusive` has 0 free CPU lists, 1 are needed\n");
    let busy = cmk(dir.path(), "uninstall", &["--tries=1"]);
    assert_eq!(busy.status.code(), Some(1), "{:?}", texts(&busy));
    fs::write(dir.path().join("pools/exclusive/0/0/tasks"), "4194305").unwrap();
    let reconciled = cmk(dir.path(), "reconcile", &[]);
    let report: serde_json::Value = serde_json::from_slice(&reconciled.stdout).unwrap();
    assert_eq!(report["reclaimedCpuLists"][0]["pid"], 4194305);
    assert_eq!(tasks(dir.path(), "0"), "");
    assert!(cmk(dir.path(), "isolate", &["--pool=exclusive", "true"]).status.success());
    let report: serde_json::Value =
        serde_json::from_slice(&cmk(dir.path(), "node-report", &[]).stdout).unwrap();
    assert_eq!(report["checks"]["procfs"]["ok"], true);
    assert_eq!(report["checks"]["configDirectory"]["ok"], false);
    let unknown = cmk(dir.path(), "isolate", &["--pool=fast", "true"]);
    assert!(texts(&unknown)[1].contains("no pool `fast`; known are exclusive, infra, shared"));
}
