//! What `bayplan cmk` refuses, with which exit code and which words. CMK's own cases (too few cores or lists, other counts than before, unknown pools, directories that are none) and ours. What is refused changes no file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use tempfile::TempDir;

/// One package; core 2 has an isolated thread, cores 4 and 5 are isolated.
const MACHINE: &str = "pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11";
const PLAIN: &str = "pack:1 numa:1 core:4 pu:2";

/// What a row begins with: files by path below the directory; a pid of `me` is this process.
const NONE: &[(&str, &str)] = &[];
const POOLS: &[(&str, &str)] = &[
    ("pools/exclusive/exclusive", "1"),
    ("pools/exclusive/0/0/tasks", ""),
    ("pools/shared/exclusive", "0"),
    ("pools/infra/exclusive", "0"),
    ("pools/infra/0/0/tasks", ""),
];
/// The only list is in use.
const BUSY: &[(&str, &str)] =
    &[("pools/exclusive/exclusive", "1"), ("pools/exclusive/0/0/tasks", "me")];
/// As `init` makes them of four cores.
const MADE: &[(&str, &str)] = &[
    ("pools/exclusive/exclusive", "1"),
    ("pools/exclusive/0/0,4/tasks", ""),
    ("pools/infra/exclusive", "0"),
    ("pools/infra/0/2,3,6,7/tasks", ""),
    ("pools/shared/exclusive", "0"),
    ("pools/shared/0/1,5/tasks", ""),
];
/// A CPU that no machine has.
const ABSENT: &[(&str, &str)] =
    &[("pools/exclusive/exclusive", "1"), ("pools/exclusive/0/1023/tasks", "")];
const STRAY: &[(&str, &str)] =
    &[("pools/exclusive/exclusive", "1"), ("pools/exclusive/0/four/tasks", "me")];
const A_FILE: &[(&str, &str)] = &[("pools", "")];

/// Names and what they say.
type Pairs<'a> = &'a [(&'a str, &'a str)];
/// Files before, what the environment says, and the words after `bayplan cmk`.
type Row<'a> = (Pairs<'a>, Pairs<'a>, &'a [&'a str]);

fn written(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    for (below, text) in files {
        let path = dir.path().join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, if *text == "me" { &own } else { *text }).unwrap();
    }
    dir
}

/// All files but the lock.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let below = path.strip_prefix(dir).unwrap().display().to_string();
                    found.insert(below, fs::read_to_string(path).unwrap());
                }
            }
        }
    }
    found.remove("lock");
    found
}

/// The words, the exit code and what is said, but for warnings; of a usage error only the first line.
fn refused((before, environment, words): Row<'_>) -> String {
    let dir = written(before);
    let had = files(dir.path());
    let (verb, args) = words.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    command.args(["cmk", verb, "--conf-dir"]).arg(dir.path()).args(args);
    command.env_remove("BAYPLAN_CONFIG").envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(files(dir.path()), had, "{words:?} has changed something");
    assert_eq!(output.stdout, b"", "{words:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.replace(dir.path().to_str().unwrap(), "DIR");
    let said = said.replace(&std::process::id().to_string(), "PID");
    let mut lines = said.lines().filter(|it| !it.starts_with("bayplan: warning: "));
    let code = output.status.code().unwrap();
    assert_ne!(code, 0, "{words:?}");
    let set: Vec<String> =
        environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    format!("{}{}\n  {code}: {}\n", set.concat(), words.join(" "), lines.next().unwrap_or_default())
}

#[test]
fn a_machine_that_cannot_be_divided_so_is_refused() {
    let rows: [(&str, Pairs<'_>, &[&str]); 15] = [
        (PLAIN, NONE, &["--num-exclusive-cores=4"]),
        (PLAIN, NONE, &["--num-exclusive-cores=3"]),
        (PLAIN, NONE, &["--num-exclusive-cores=2", "--num-shared-cores=3"]),
        (MACHINE, NONE, &["--num-exclusive-cores=2"]),
        (MACHINE, NONE, &["--num-exclusive-cores=1", "--excl-non-isolcpus=4-"]),
        (MACHINE, NONE, &["--num-exclusive-cores=1", "--excl-non-isolcpus=4"]),
        (
            MACHINE,
            NONE,
            &["--num-exclusive-cores=1", "--num-shared-cores=0", "--excl-non-isolcpus=5"],
        ),
        (MACHINE, NONE, &["--num-exclusive-cores=1", "--excl-non-isolcpus=12"]),
        (PLAIN, MADE, &["--num-exclusive-cores=2"]),
        (PLAIN, MADE, &["--num-exclusive-cores=1", "--num-shared-cores=2"]),
        (PLAIN, A_FILE, &["--num-exclusive-cores=1"]),
        (PLAIN, NONE, &["--num-exclusive-cores=-1"]),
        (PLAIN, NONE, &["--exclusive-mode=scattered"]),
        (PLAIN, NONE, &["--num-exclusive-cores=1", "--num-dp-cores=1"]),
        (PLAIN, NONE, &["--num-cores=1"]),
    ];
    let told = rows.into_iter().map(|(machine, before, args)| {
        let words: Vec<&str> = ["init", "--machine", machine].iter().chain(args).copied().collect();
        refused((before, &[], &words))
    });
    expect![[r#"
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=4
          1: bayplan: 1 cores requested for shared, only 0 available
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=3
          1: bayplan: no core is left for infra; ask for fewer exclusive or shared cores
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=2 --num-shared-cores=3
          1: bayplan: 3 cores requested for shared, only 2 available
        init --machine pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11 --num-exclusive-cores=2
          1: bayplan: 2 cores are isolated, 3 are needed for exclusive and shared; change isolcpus, or ask for fewer
        init --machine pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11 --num-exclusive-cores=1 --excl-non-isolcpus=4-
          1: bayplan: --excl-non-isolcpus is `4-`, expected a list of CPUs such as 4-7,9
        init --machine pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11 --num-exclusive-cores=1 --excl-non-isolcpus=4
          1: bayplan: CPUs 4 cannot be in exclusive-non-isolcpus: another pool has them
        init --machine pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11 --num-exclusive-cores=1 --num-shared-cores=0 --excl-non-isolcpus=5
          1: bayplan: CPUs 5,11 cannot be in exclusive-non-isolcpus: they are isolated
        init --machine pack:1 numa:1 core:6 pu:2 isolated:2,4-5,10-11 --num-exclusive-cores=1 --excl-non-isolcpus=12
          1: bayplan: CPUs 12 cannot be in exclusive-non-isolcpus: they are not on this machine
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=2
          1: bayplan: DIR is there already, with 2 CPUs in pool exclusive instead of 4; `bayplan cmk uninstall` removes it
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=1 --num-shared-cores=2
          1: bayplan: DIR is there already, with 4 CPUs in pool infra instead of 2; `bayplan cmk uninstall` removes it
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=1
          1: bayplan: cannot make DIR/pools: File exists (os error 17)
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=-1
          2: error: invalid value '-1' for '--num-exclusive-cores <COUNT>': invalid digit found in string
        init --machine pack:1 numa:1 core:4 pu:2 --exclusive-mode=scattered
          2: error: invalid value 'scattered' for '--exclusive-mode <EXCLUSIVE_MODE>'
        init --machine pack:1 numa:1 core:4 pu:2 --num-exclusive-cores=1 --num-dp-cores=1
          2: error: the argument '--num-exclusive-cores <COUNT>' cannot be used with '--num-dp-cores <COUNT>'
        init --machine pack:1 numa:1 core:4 pu:2 --num-cores=1
          2: error: unexpected argument '--num-cores' found
    "#]]
    .assert_eq(&told.collect::<String>());
}

#[test]
fn what_cannot_run_in_a_pool_is_refused() {
    let rows: [Row<'_>; 20] = [
        (NONE, &[], &["isolate", "--pool=exclusive", "true"]),
        (A_FILE, &[], &["isolate", "--pool=exclusive", "true"]),
        (STRAY, &[], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[], &["isolate", "--pool=dataplane", "true"]),
        (POOLS, &[], &["isolate", "--pool=shared", "true"]),
        (BUSY, &[], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "--socket-id=1", "true"]),
        (POOLS, &[("CMK_NUM_CORES", "2")], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[("CMK_NUM_CORES", "0")], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[("CMK_NUM_CORES", "one")], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[("CMK_PROC_FS", "/none")], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[("CMK_LOCK_TIMEOUT", "long")], &["isolate", "--pool=exclusive", "true"]),
        (ABSENT, &[], &["isolate", "--pool=exclusive", "true"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "/no/such/program"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "--", "--"]),
        (POOLS, &[], &["isolate", "--pool=exclusive"]),
        (POOLS, &[], &["isolate", "true"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "--socket-id=-2", "true"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "--socket-id=4294967296", "true"]),
        (POOLS, &[], &["isolate", "--pool=exclusive", "--socket-id=first", "true"]),
    ];
    expect![[r#"
        isolate --pool=exclusive true
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        isolate --pool=exclusive true
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        isolate --pool=exclusive true
          1: bayplan: DIR/pools/exclusive/0/four/tasks belongs to no CPU list of a socket
        isolate --pool=dataplane true
          1: bayplan: no pool `dataplane`; known are exclusive, infra, shared
        isolate --pool=shared true
          1: bayplan: pool `shared` has 0 free CPU lists, 1 are needed
        isolate --pool=exclusive true
          1: bayplan: pool `exclusive` has 0 free CPU lists, 1 are needed
        isolate --pool=exclusive --socket-id=1 true
          1: bayplan: pool `exclusive` on socket 1 has 0 free CPU lists, 1 are needed
        CMK_NUM_CORES=2 isolate --pool=exclusive true
          1: bayplan: pool `exclusive` has 1 free CPU lists, 2 are needed
        CMK_NUM_CORES=0 isolate --pool=exclusive true
          1: bayplan: CMK_NUM_CORES is `0`, expected a number of cores
        CMK_NUM_CORES=one isolate --pool=exclusive true
          1: bayplan: CMK_NUM_CORES is `one`, expected a number of cores
        CMK_PROC_FS=/none isolate --pool=exclusive true
          1: bayplan: CMK_PROC_FS is `/none`, expected a directory with processes
        CMK_LOCK_TIMEOUT=long isolate --pool=exclusive true
          1: bayplan: CMK_LOCK_TIMEOUT is `long`, expected seconds: invalid digit found in string
        isolate --pool=exclusive true
          1: bayplan: cannot run on CPUs 1023; are they online?: EINVAL: Invalid argument
        isolate --pool=exclusive /no/such/program
          1: bayplan: cannot run /no/such/program: No such file or directory (os error 2)
        isolate --pool=exclusive -- --
          1: bayplan: no command to run
        isolate --pool=exclusive
          2: error: the following required arguments were not provided:
        isolate true
          2: error: the following required arguments were not provided:
        isolate --pool=exclusive --socket-id=-2 true
          2: error: invalid value '-2' for '--socket-id <NUMBER>': -2 is not in -1..=4294967295
        isolate --pool=exclusive --socket-id=4294967296 true
          2: error: invalid value '4294967296' for '--socket-id <NUMBER>': 4294967296 is not in -1..=4294967295
        isolate --pool=exclusive --socket-id=first true
          2: error: invalid value 'first' for '--socket-id <NUMBER>': invalid digit found in string
    "#]]
    .assert_eq(&rows.map(refused).concat());
}

#[test]
fn directories_that_cannot_be_read_or_removed_are_refused() {
    let proc = &[("CMK_PROC_FS", "/none")][..];
    let rows: [Row<'_>; 14] = [
        (NONE, &[], &["describe"]),
        (A_FILE, &[], &["describe"]),
        (STRAY, &[], &["describe"]),
        (POOLS, &[], &["describe", "--interval=0"]),
        (NONE, &[], &["reconcile"]),
        (BUSY, proc, &["reconcile"]),
        (BUSY, &[], &["reconcile", "--interval=-1"]),
        (NONE, &[], &["node-report"]),
        (BUSY, proc, &["node-report"]),
        (BUSY, &[], &["node-report", "--interval=often"]),
        (NONE, &[], &["uninstall"]),
        (BUSY, &[], &["uninstall", "--tries=1"]),
        (BUSY, proc, &["uninstall", "--tries=1"]),
        (STRAY, &[], &["uninstall", "--tries=1"]),
    ];
    expect![[r#"
        describe
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        describe
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        describe
          1: bayplan: DIR/pools/exclusive/0/four/tasks belongs to no CPU list of a socket
        describe --interval=0
          2: error: unexpected argument '--interval' found
        reconcile
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        CMK_PROC_FS=/none reconcile
          1: bayplan: CMK_PROC_FS is `/none`, expected a directory with processes
        reconcile --interval=-1
          2: error: invalid value '-1' for '--interval <SECONDS>': invalid digit found in string
        node-report
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        CMK_PROC_FS=/none node-report
          1: bayplan: CMK_PROC_FS is `/none`, expected a directory with processes
        node-report --interval=often
          2: error: invalid value 'often' for '--interval <SECONDS>': invalid digit found in string
        uninstall
          1: bayplan: DIR is no directory of CMK; `bayplan cmk init --conf-dir=DIR` makes it
        uninstall --tries=1
          1: bayplan: processes PID still run in pools of DIR; end them first
        CMK_PROC_FS=/none uninstall --tries=1
          1: bayplan: CMK_PROC_FS is `/none`, expected a directory with processes
        uninstall --tries=1
          1: bayplan: DIR/pools/exclusive/0/four/tasks belongs to no CPU list of a socket
    "#]]
    .assert_eq(&rows.map(refused).concat());
}

/// One command has the directory; another waits for as long as `CMK_LOCK_TIMEOUT` says.
#[test]
fn a_directory_that_another_command_has_is_refused() {
    let dir = written(POOLS);
    let conf = dir.path().to_str().unwrap();
    let lock = fs::File::create(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    for verb in [&["describe"][..], &["isolate", "--pool=infra", "true"], &["uninstall"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
        command.args(["cmk", verb[0], "--conf-dir", conf]).args(&verb[1..]);
        let output = command.env("CMK_LOCK_TIMEOUT", "0").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb:?}");
        let said = String::from_utf8_lossy(&output.stderr).replace(conf, "DIR");
        assert_eq!(said, "bayplan: DIR/lock is locked by another command (CMK_LOCK_TIMEOUT)\n");
    }
}
