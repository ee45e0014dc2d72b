//! The command line as its users see it: what it prints, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod cmk;
mod cmk_refusals;
mod config;
mod import;
mod journal;
mod releases;
mod replay;
mod simulate;
mod when_needed;

use std::path::Path;
use std::process::{Command, Output};

use bayplan_host::journal::Journal;
use expect_test::{Expect, expect, expect_file};

fn bayplan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    command.args(args).env_remove("BAYPLAN_CONFIG").env_remove("BAYPLAN_LOG").output().unwrap()
}

/// Exit code, standard output, standard error.
fn check(args: &[&str], expected: Expect) {
    let output = bayplan(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    expected.assert_eq(&format!(
        "exit {}\n{}{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    ));
}

#[test]
fn the_demo_plays_its_story_and_moves_no_container() {
    let output = bayplan(&["demo"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for sentence in [
        "  D database   Guaranteed  8 exclusive                runs on 1-4,33-36 in numa 0\n",
        "     0  rr DD DD DD DD A\u{b7} \u{b7}\u{b7} \u{b7}\u{b7}\n",
        "       not numa 0: needs 8 exclusive CPUs; 4 are free\n",
        "    batch      Burstable   4 shared                   runs on 12-15,44-47 in numa 1\n",
        "  0 of 5 containers moved.\n",
    ] {
        assert!(text.contains(sentence), "{sentence}\nis missing in\n{text}");
    }
}

#[test]
fn the_demo_also_plays_on_other_machines() {
    for machine in ["xeon-8480-snc4", "epyc-9654", "core:8 pu:2", "pack:4 numa:1 core:4", "one-cpu"]
    {
        let output = bayplan(&["demo", "--machine", machine]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{machine}: {text}");
    }
}

#[test]
fn the_demo_plays_with_the_groups_of_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let text = "reservedCpus: \"0,32\"\ngroups:\n- {name: web, instances: {max: 1}, size: {requests: {min: 1}}}\n- {name: slots, size: {list: [\"5,37\"]}, inside: slots}\n";
    std::fs::write(&path, text).unwrap();
    let output = bayplan(&["demo", "--config", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for sentence in [
        "== A pod names the group web.\n",
        "  w group web[0]     has 7,38 with 2 members\n",
        "  s group slots[0]   has 5,37 with 1 members\n",
        "  slots-second is refused: ",
        "  0 of 8 containers moved.\n",
    ] {
        assert!(text.contains(sentence), "{sentence}\nis missing in\n{text}");
    }
}

/// A file system of three pages, unmounted when dropped.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> TinyDisk {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12k", "tmpfs"]).arg(dir.path());
        assert!(mount.status().unwrap().success(), "mounting needs root");
        TinyDisk(dir)
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_full_disk_keeps_no_container_from_being_placed_and_a_restart_from_half_a_journal_moves_none() {
    let disk = TinyDisk::mount();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    let output = command.arg("demo").env("TMPDIR", disk.0.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("I inference  Guaranteed  8 exclusive"), "{text}");
    assert!(text.contains("  0 of 5 containers moved.\n"), "{text}");
}

#[test]
fn a_machine_that_cannot_be_read_is_explained() {
    check(
        &["topology", "--root", "/nonexistent"],
        expect![[r#"
            exit 1
            bayplan: /nonexistent/sys/devices/system/cpu is not there; expected the kernel's CPU directories: mount sysfs, or name the directory that holds `sys`
        "#]],
    );
    check(
        &["topology", "--machine", "sockets:2"],
        expect![[r#"
            exit 1
            bayplan: --machine: `sockets:2`: expected a level (pack, die, numa, l3, cluster, l2, core, pu) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, gpu, nvme, vf), or as the first word one of the presets xeon-8480, xeon-8480-snc4, xeon-8280l-pmem, granite-rapids-6980p, epyc-9654, epyc-7763-nps4, grace, core-hybrid, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
        "#]],
    );
}

#[test]
fn a_synthetic_machine_is_printed() {
    check(
        &["topology", "--machine", "pack:2 l3:1 numa:2 core:2 pu:2 mem:8"],
        expect![[r#"
            exit 0
            Machine: 16 CPUs 0-15, 8 cores, 32 GiB
              Package 0 / Die 0 / L3 0: 8 CPUs 0-3,8-11, L3 of 32 MiB
                NumaNode 0: 4 CPUs 0-1,8-9, 8 GiB
                  cores 0-1 of 2 threads, 4 CPUs 0-1,8-9
                NumaNode 1: 4 CPUs 2-3,10-11, 8 GiB
                  cores 2-3 of 2 threads, 4 CPUs 2-3,10-11
              Package 1 / Die 0 / L3 1: 8 CPUs 4-7,12-15, L3 of 32 MiB
                NumaNode 2: 4 CPUs 4-5,12-13, 8 GiB
                  cores 0-1 of 2 threads, 4 CPUs 4-5,12-13
                NumaNode 3: 4 CPUs 6-7,14-15, 8 GiB
                  cores 2-3 of 2 threads, 4 CPUs 6-7,14-15
            Distances between NUMA nodes 0-3:
               0:  10  12  21  21
               1:  12  10  21  21
               2:  21  21  10  12
               3:  21  21  12  10
        "#]],
    );
}

#[test]
fn every_mistake_of_a_configuration_is_listed_and_the_exit_code_is_that_of_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, "socket: relative\nreservedCpus: [0]\nonFailure: maybe\n").unwrap();
    let output = bayplan(&["run", "--config", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr).replace(path.to_str().unwrap(), "FILE");
    assert_eq!(output.status.code(), Some(64));
    expect![[r#"
        bayplan: FILE:1:9: `socket` is `relative`, expected an absolute path
        FILE:2:15: `reservedCpus` is a list, expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs
        FILE:3:12: `onFailure` is `maybe`, expected one of open, closed
    "#]]
    .assert_eq(&text);
}

/// Whether each can be attached is the machine's and the caller's; that it is told of is not.
#[test]
fn a_check_tells_of_every_probe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, "counters: software\n").unwrap();
    let output = bayplan(&["check", "-o", "json", "--config", path.to_str().unwrap()]);
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let probes = findings.iter().filter(|it| it["check"] == "probes");
    let names: Vec<&str> =
        probes.map(|it| it["message"].as_str().unwrap().split(' ').next().unwrap()).collect();
    assert_eq!(names, ["scheduler", "migrations", "interrupts", "vectors", "counters"]);
}

#[test]
fn a_daemon_that_is_not_there_is_said_to_be_so() {
    check(
        &["status", "--control", "/nonexistent.sock"],
        expect![[r#"
        exit 1
        bayplan: cannot reach the daemon at /nonexistent.sock; is `bayplan run` running, and is this its controlSocket?: No such file or directory (os error 2)
    "#]],
    );
    check(
        &["explain", "x", "--control", "/nonexistent.sock"],
        expect![[r#"
        exit 1
        bayplan: cannot reach the daemon at /nonexistent.sock; is `bayplan run` running, and is this its controlSocket?: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn a_missing_configuration_file_is_an_error_when_it_was_named() {
    check(
        &["run", "--config", "/nonexistent.yaml"],
        expect![[r#"
        exit 1
        bayplan: cannot read /nonexistent.yaml: No such file or directory (os error 2)
    "#]],
    );
}

/// `UPDATE_EXPECT=1` makes them anew.
#[test]
fn pictures_in_documents_are_current() {
    let machine = "pack:2 numa:2 l3:1 core:8 pu:2 mem:64 nic:1";
    let picture = stdout(&["topology", "--machine", machine, "-o", "svg"]);
    expect_file!["../../docs/machine.svg"].assert_eq(&picture);
    let dir = tempfile::tempdir().unwrap();
    let machine = ["--machine", "simulate/machine.json", "--trace", "simulate/trace.json"];
    let pictures = ["--svg", dir.path().to_str().unwrap()];
    stdout(&[["simulate"].as_slice(), &machine, &pictures].concat());
    let node = std::fs::read_to_string(dir.path().join("after.svg")).unwrap();
    expect_file!["../../docs/node.svg"].assert_eq(&node);
}

#[test]
fn the_shell_gets_completions() {
    let output = bayplan(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("BAYPLAN_COMPLETE"));
    // As the script of bash asks.
    let mut asked = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    asked.args(["--", "bayplan", "topology", "--machine", "xeon-8480-"]);
    asked.env("BAYPLAN_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3");
    let output = asked.env("_CLAP_IFS", "\n").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "xeon-8480-snc4");
}

#[test]
fn every_command_has_a_manual_page_and_a_missing_directory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    stdout(&["man", dir.path().to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("bayplan.1").contains("kubelet") && page("bayplan-status.1").contains("json"));
    let missing = bayplan(&["man", dir.path().join("missing").to_str().unwrap()]);
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && told.contains("cannot write manual pages into"), "{told}");
}

fn stdout(args: &[&str]) -> String {
    let output = bayplan(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_snapshot_is_read_by_every_command_that_takes_a_machine() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (packed, plain, tree) = (path("machine.gz"), path("machine.txt"), path("tree"));
    let spec = "xeon-8280l-pmem nic:1 vf:2 nvme:1 isolated:2-3";
    stdout(&["snapshot", "--machine", spec, "-o", &packed]);
    stdout(&["snapshot", "--machine", &packed, "-o", &plain]);
    stdout(&["snapshot", "--machine", &plain, "--tree", &tree]);
    let expected = stdout(&["topology", "--machine", spec]);
    for machine in [&packed, &plain] {
        assert_eq!(stdout(&["topology", "--machine", machine]), expected);
        stdout(&["demo", "--machine", machine]);
    }
    assert_eq!(stdout(&["topology", "--root", &tree]), expected);
    let again = bayplan(&["snapshot", "--machine", spec, "--tree", &tree]);
    let text = String::from_utf8_lossy(&again.stderr);
    assert!(text.contains("has a sys/ already; name an empty or a new directory"), "{text}");
}

#[test]
fn a_snapshot_of_this_machine_has_its_topology() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("this.gz").to_str().unwrap().to_owned();
    stdout(&["snapshot", "-o", &path]);
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&stdout(args)).unwrap() };
    let here = json(&["topology", "-o", "json"]);
    let there = json(&["topology", "-o", "json", "--machine", &path]);
    for field in ["format", "fingerprint", "objects", "cores", "caches", "kernel"] {
        assert_eq!(here[field], there[field], "{field}");
    }
}

/// Energy preferences of CPUs, as a machine in JSON has them; and warnings.
fn preferences(args: &[&str]) -> (Vec<Option<String>>, String) {
    let output = bayplan(&[&["topology", "-o", "json"], args].concat());
    let machine: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = machine["frequencies"].as_array().unwrap().iter();
    let preferences = policies.map(|it| it["preference"].as_str().map(str::to_owned)).collect();
    (preferences, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_a_daemon_has_set_is_shown_as_it_was_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (tree, state, config, packed) =
        (path("tree"), path("state"), path("config.yaml"), path("machine.gz"));
    stdout(&["snapshot", "--machine", "numa:1 core:2 pu:1 mem:4", "--tree", &tree]);
    let policies = "sys/devices/system/cpu/cpufreq";
    for cpu in ["0", "1"] {
        let policy = format!("{tree}/{policies}/policy{cpu}");
        std::fs::create_dir_all(&policy).unwrap();
        for (file, text) in [("energy_performance_preference", "power"), ("related_cpus", cpu)] {
            std::fs::write(format!("{policy}/{file}"), text).unwrap();
        }
    }
    let originals = format!("{state}/originals");
    let was = format!(
        r#"{{"record":"original","path":"{policies}/policy1/energy_performance_preference","form":"text","value":"performance"}}"#
    );
    Journal::open(Path::new(&originals)).unwrap().0.rewrite(&[was]).unwrap();
    std::fs::write(&config, format!("hostRoot: {tree}\nstateDir: {state}\n")).unwrap();
    let some = |names: [&str; 2]| names.map(|it| Some(it.to_owned())).to_vec();
    // Without a configuration, or with that of the daemon.
    let now = (some(["power", "power"]), String::new());
    assert_eq!(preferences(&["--root", &tree]), now);
    let was = (some(["power", "performance"]), String::new());
    let of_daemon = ["--root", &tree, "--config", &config];
    assert_eq!(preferences(&of_daemon), was);
    stdout(&["snapshot", "--root", &tree, "--config", &config, "-o", &packed]);
    assert_eq!(preferences(&["--machine", &packed]), was);
    std::fs::remove_file(format!("{originals}/journal")).unwrap();
    std::fs::create_dir(format!("{originals}/journal")).unwrap();
    let (unknown, told) = preferences(&of_daemon);
    assert_eq!(unknown, [None, None]);
    assert!(told.contains("energy preferences are left out"), "{told}");
}

#[test]
fn machines_that_are_none_are_refused_with_what_was_expected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hello.gz");
    std::fs::write(&path, "hello").unwrap();
    let path = path.to_str().unwrap();
    for (machine, error) in [
        (path, "hello.gz: line 1: `hello`; expected the line `bayplan-files/1`"),
        ("no/such.gz", "no/such.gz: there is no such file, and it is no machine either"),
        ("sockets:2", "`sockets:2`: expected a level"),
    ] {
        let output = bayplan(&["topology", "--machine", machine]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(error) && output.status.code() == Some(1), "{machine}: {text}");
    }
}

#[test]
fn the_topology_comes_in_every_form() {
    let spec = "xeon-8480 gpu:1 nvme:1/numa";
    let of = |form| stdout(&["topology", "--machine", spec, "-o", form]);
    assert!(of("svg").starts_with("<svg ") && of("svg").trim_end().ends_with("</svg>"));
    assert!(of("json").contains("\"bayplan-topology/2\""));
    check(
        &["topology", "--machine", spec, "--device", "/dev/nvme1n1"],
        expect![[r#"
            exit 0
            storage /dev/nvme1n1 at 0000:13:00.0: NumaNode 1, 112 CPUs 56-111,168-223
        "#]],
    );
    check(
        &["topology", "--machine", spec, "--device", "eth7"],
        expect![[r#"
            exit 1
            bayplan: there is no device `eth7`; expected a PCI address, a path below /dev or a network interface (`bayplan topology -o json` lists them all)
        "#]],
    );
}
