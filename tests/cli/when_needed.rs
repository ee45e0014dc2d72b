//! Commands when they are needed most: with a broken configuration file, without a daemon, in a pipe that is closed early.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec};
use bayplan_types::{Bytes, QosClass};
use expect_test::{Expect, expect};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

use crate::{bayplan, stdout};

/// The machine of the daemon, which is not the one that the tests run on.
const MACHINE: &str = "pack:2 numa:1 core:8 pu:1 mem:4";
const ALL_CPUS: &str = "0-15";
/// A start or a stop takes a second or two; more is a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon on a machine of its own, with a runtime without processes.
struct Node {
    dir: TempDir,
    runtime: EmbeddedRuntime,
    tokio: Runtime,
    daemon: Option<Child>,
}

impl Node {
    fn start() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        stdout(&["snapshot", "--machine", MACHINE, "--tree", tree.to_str().unwrap()]);
        let (runtime, tokio) = (EmbeddedRuntime::new(), Runtime::new().unwrap());
        let server = runtime.clone();
        let socket = dir.path().join("runtime.sock");
        tokio.block_on(async {
            let listener = UnixListener::bind(socket).unwrap();
            tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        });
        let mut node = Node { dir, runtime, tokio, daemon: None };
        std::fs::write(node.config(), node.text()).unwrap();
        node.start_daemon();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("config.yaml")
    }

    fn text(&self) -> String {
        let dir = self.dir.path().display();
        format!(
            "socket: {dir}/bayplan.sock\nruntimeSocket: {dir}/runtime.sock\ncontrolSocket: {dir}/control.sock\nstateDir: {dir}/state\n\
             hostRoot: {dir}/tree\nmetricsAddress: off\nprobes: off\nenforcement: off\nreservedCpus: \"0\"\n"
        )
    }

    fn start_daemon(&mut self) {
        let mut command = command(&["run", "--config", self.config().to_str().unwrap()]);
        let log = File::create(self.path("log")).unwrap();
        let daemon = command.stderr(log).stdin(Stdio::null()).spawn().unwrap();
        self.daemon = Some(daemon);
        let control = self.path("control.sock");
        let args = ["status", "--control", control.to_str().unwrap()];
        self.until("the daemon answers", || bayplan(&args).status.success());
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}; its log:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let pid = nix::unistd::Pid::from_raw(daemon.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    /// A Guaranteed container with CPUs of its own.
    fn launch(&self, name: &str, cpus: u64) {
        let mut kubelet = Kubelet::new(self.path("bayplan.sock"), "demo/app:1", &[], "");
        let container = ContainerSpec::guaranteed(name, cpus * 1000, Bytes::gib(1));
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        self.tokio.block_on(async { kubelet.launch(&pod, &container).await }).unwrap();
    }

    /// What the runtime was told last.
    fn cpus(&self) -> Vec<String> {
        self.runtime.containers().into_iter().map(|it| it.cpus).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _gone = daemon.kill();
            let _gone = daemon.wait();
        }
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    command.args(args).env_remove("BAYPLAN_CONFIG").env_remove("BAYPLAN_LOG");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Commands that ask a daemon, with which exit codes.
const ASKING: &[(&[&str], &[i32])] = &[
    (&["status"], &[0]),
    (&["status", "-o", "json"], &[0]),
    (&["explain", "web"], &[0]),
    (&["top", "--once", "-d", "0.1"], &[0]),
    (&["top", "--once", "-d", "0.1", "-o", "json"], &[0]),
    (&["audit"], &[0]),
    (&["plan"], &[0]),
    (&["topology", "--ledger"], &[0]),
    (&["rebalance", "status"], &[0]),
    (&["rebalance", "pause"], &[0]),
    (&["rebalance", "resume"], &[0]),
    (&["drain", "--dry-run"], &[0]),
    (&["drain", "--yes"], &[0]),
    (&["restore", "--dry-run"], &[0]),
    (&["restore", "--yes"], &[0]),
    (&["resume", "--yes"], &[0]),
    (&["journal", "--last", "5"], &[0]),
    // Not everything is as it should be on every machine.
    (&["check"], &[0, 1]),
    (&["check", "-o", "json"], &[0, 1]),
];

fn check_code(args: &[&str], codes: &[i32], output: &Output) {
    let code = output.status.code();
    let is_expected = code.is_some_and(|code| codes.contains(&code));
    assert!(is_expected, "{args:?}: {:?}: {}", output.status, stderr(output));
    assert!(!stderr(output).contains("panicked"), "{args:?}: {}", stderr(output));
}

#[test]
fn one_mistake_in_the_file_keeps_no_command_from_its_daemon() {
    let node = Node::start();
    node.launch("web", 2);
    let good = node.text();
    let broken = node.path("broken.yaml");
    let name = broken.to_str().unwrap();
    for (text, place) in [
        (format!("{good}sokket: /a\n"), ":10:1: unknown key `sokket`; did you mean `socket`?"),
        (format!("log: loud\n{good}"), ":1:6: `log` is `loud`, "),
        // No YAML at all.
        (format!("{good}log: \"info\n"), ": not YAML: "),
        (format!("requests:\n  siblings: [pair\n{good}"), ": not YAML: "),
    ] {
        std::fs::write(&broken, &text).unwrap();
        for (args, codes) in ASKING {
            let output = bayplan(&[args, &["--config", name][..]].concat());
            check_code(args, codes, &output);
            let told = stderr(&output);
            let is_told_once = told.matches("the file is broken").count() == 1;
            assert!(is_told_once && told.contains(place), "{args:?}: {place}: {told}");
            assert!(told.contains(&format!("`bayplan config check {name}`")), "{args:?}: {told}");
        }
        let output =
            bayplan(&["config", "diff", node.config().to_str().unwrap(), "--config", name]);
        check_code(&["config", "diff"], &[0], &output);
        let output = bayplan(&["run", "--config", name]);
        assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    }
    // The daemon reads the good file, whatever the command reads.
    let output = bayplan(&["config", "reload", "--config", name]);
    check_code(&["config", "reload"], &[0], &output);
}

#[test]
fn without_a_daemon_restore_gives_cpu_sets_back_too() {
    let mut node = Node::start();
    node.launch("web", 2);
    assert_eq!(node.cpus(), ["1-2"]);
    node.stop_daemon();
    // A file that no daemon starts with is enough.
    let broken = format!("{}reservedCpu: 1\n", node.text()).replace("\"0\"", "\"0-4000\"");
    std::fs::write(node.config(), broken).unwrap();
    let name = node.config();
    let restore =
        |more: &[&str]| bayplan(&[&["restore", "--config", name.to_str().unwrap()], more].concat());
    let planned = restore(&["--dry-run"]);
    check_code(&["restore", "--dry-run"], &[0], &planned);
    let planned = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(planned.contains("web") && planned.contains("1-2 -> 0-15"), "{planned}");
    assert_eq!(node.cpus(), ["1-2"]);
    let done = restore(&["--yes"]);
    check_code(&["restore", "--yes"], &[0], &done);
    assert!(stderr(&done).contains("restoring without it"), "{}", stderr(&done));
    assert_eq!(node.cpus(), [ALL_CPUS]);
    // It stays so until the mode is another one.
    std::fs::write(node.config(), node.text()).unwrap();
    node.start_daemon();
    assert_eq!(node.cpus(), [ALL_CPUS]);
    stdout(&["resume", "--yes", "--config", name.to_str().unwrap()]);
    assert_eq!(node.cpus(), ["1-2"]);
}

#[test]
fn where_no_daemon_has_run_there_is_nothing_to_restore() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let path = dir.path().display();
    let text = format!("controlSocket: {path}/control.sock\nstateDir: {path}/state\n");
    std::fs::write(&config, text).unwrap();
    let output = bayplan(&["restore", "--yes", "--config", config.to_str().unwrap()]);
    check_code(&["restore"], &[0], &output);
    assert!(stderr(&output).contains("there is nothing to give back"), "{}", stderr(&output));
    assert!(!dir.path().join("state").exists());
}

/// Runs a command with a standard output that nothing reads.
fn run_unread(args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_pipe_that_is_closed_is_no_error_for_any_command() {
    let alone: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["version"],
        &["annotations"],
        &["annotations", "-o", "json"],
        &["completions", "bash"],
        &["config", "schema"],
        &["config", "show"],
        &["config", "show", "-o", "json"],
        &["topology", "--machine", MACHINE],
        &["topology", "--machine", MACHINE, "-o", "json"],
        &["topology", "--machine", MACHINE, "-o", "svg"],
        &["topology", "--machine", "core:2 nvme:1", "--device", "/dev/nvme0n1"],
        &["snapshot", "--machine", MACHINE, "-o", "-"],
        &["simulate", "--machine", "simulate/machine.json", "--trace", "simulate/trace.json"],
        &["replay", "cli/history/first"],
        &["replay", "cli/history/first", "-o", "json"],
        &["journal", "--state-dir", "cli/history/first"],
        &["journal", "--state-dir", "cli/history/first", "-o", "json"],
        &["journal", "--state-dir", "cli/history/first", "--follow"],
        &["demo", "--pause", "60000"],
    ];
    for args in alone {
        check_code(args, &[0], &run_unread(args));
    }
    let node = Node::start();
    node.launch("web", 2);
    let name = node.config();
    let name = name.to_str().unwrap();
    let more: &[(&[&str], &[i32])] = &[
        (&["top", "-d", "0.1"], &[0]),
        (&["config", "reload"], &[0]),
        (&["config", "diff"], &[0]),
    ];
    for (args, codes) in ASKING.iter().chain(more) {
        let args = [args, &["--config", name][..]].concat();
        check_code(&args, codes, &run_unread(&args));
    }
    let args = ["config", "check", name];
    check_code(&args, &[0, 64], &run_unread(&args));
}

#[test]
fn the_demo_leaves_nothing_behind_when_its_reader_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&["demo", "--keep"]);
    let output = command.env("TMPDIR", dir.path()).stdout(writer).output().unwrap();
    check_code(&["demo"], &[0], &output);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_ledger_is_drawn_on_the_machine_of_its_daemon() {
    let node = Node::start();
    node.launch("web", 2);
    let control = node.path("control.sock");
    let control = control.to_str().unwrap();
    let shown = stdout(&["topology", "--ledger", "--control", control]);
    assert!(shown.starts_with("Machine: 16 CPUs 0-15, 16 cores"), "{shown}");
    assert!(shown.contains("default/web/web 1-2"), "{shown}");
    let refused = bayplan(&["topology", "--ledger", "--machine", MACHINE]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    // Its history, too, is where it says.
    let args = ["journal", "--control", control, "--kind", "placed"];
    node.until("the history has it", || stdout(&args).contains("default/web/web"));
}

#[test]
fn the_environment_names_the_file_of_the_node() {
    let node = Node::start();
    node.launch("web", 2);
    let run = |args: &[&str]| {
        let output = command(args).env("BAYPLAN_CONFIG", node.config()).output().unwrap();
        check_code(args, &[0], &output);
        String::from_utf8(output.stdout).unwrap()
    };
    node.until("the history has it", || run(&["journal"]).contains("default/web/web"));
    // The history of the node, under the configuration that it was recorded with.
    let replayed = run(&["replay"]);
    assert!(replayed.contains("16 CPUs"), "{replayed}");
    assert!(replayed.contains("as it would have been"), "{replayed}");
    // Another one of the node's history.
    let tried = run(&["replay", "--config", "simulate/half.yaml"]);
    assert!(tried.contains("16 CPUs") && tried.contains("simulate/half.yaml"), "{tried}");
    // One that is named, whatever the node's is.
    let named = run(&["replay", "cli/history/first"]);
    assert!(named.starts_with("2026-11-21 03:12:17"), "{named}");
    assert!(run(&["status"]).contains("default/web/web"));
    assert!(run(&["config", "show"]).contains("/state  # line 4 of the file"));
}

fn check_refusal(text: &str, expected: Expect) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let state = dir.path().join("state");
    std::fs::write(&file, format!("{text}stateDir: {}\n", state.display())).unwrap();
    let name = file.to_str().unwrap();
    let checked = bayplan(&["config", "check", name]);
    assert_eq!(checked.status.code(), Some(64), "{text}: {}", stderr(&checked));
    let run = bayplan(&["run", "--config", name]);
    assert_eq!(run.status.code(), Some(64), "{text}: {}", stderr(&run));
    let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(name, "FILE");
    let checked = plain(&checked.stdout);
    let mistakes: Vec<&str> = checked.lines().filter(|line| line.starts_with("FILE:")).collect();
    let mistakes = mistakes.join("\n");
    let run = plain(&run.stderr);
    let told = run.lines().map(|line| line.strip_prefix("bayplan: ").unwrap_or(line));
    let told: Vec<&str> = told.filter(|line| line.starts_with("FILE:")).collect();
    assert_eq!(told.join("\n"), mistakes, "{text}");
    assert!(!Path::new(&state).exists(), "{text}");
    expected.assert_eq(&mistakes);
}

#[test]
fn what_run_refuses_a_check_refuses_with_the_same_words_and_places() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    stdout(&["snapshot", "--machine", "core:2", "--tree", tree.to_str().unwrap()]);
    check_refusal(
        "socket: /a.sock\nruntimeSocket: /a.sock\ncontrolSocket: /a.sock\n",
        expect![[r#"
            FILE:2:16: `runtimeSocket` is `/a.sock`, which is `socket` already; expected a path of its own for each socket
            FILE:3:16: `controlSocket` is `/a.sock`, which is `socket` already; expected a path of its own for each socket"#]],
    );
    check_refusal(
        "log: loud\n",
        expect![
            "FILE:1:6: `log` is `loud`, expected off, error, warn, info, debug or trace, or levels by crate such as bayplan_cri=debug,info"
        ],
    );
    check_refusal(
        "cpuClasses:\n  classes:\n    fast: {minFreq: 3GHz, maxFreq: 2GHz}\n",
        expect![
            "FILE:3:21: `cpuClasses.classes.fast`: `minFreq` is 3000MHz, above `maxFreq`, 2000MHz; expected at most that"
        ],
    );
    check_refusal(
        "resctrl:\n  partitions:\n    all: {mbAllocation: [fast]}\n",
        expect![[
            r#"FILE:3:5: `resctrl`: partition `all`: mbAllocation: [fast] has neither a percentage from 0% to 100% ("50%") nor a rate ("1500MBps"); add one"#
        ]],
    );
    check_refusal(
        "controlGroup: no-such-group-here\n",
        expect![
            "FILE:1:15: `controlGroup`: there is no group `no-such-group-here` in /etc/group or /usr/lib/group; make it with `groupadd --system no-such-group-here`, or give a number, as a group of a directory service needs"
        ],
    );
    let tree = tree.display();
    let text = format!("reservedCpus: \"0-63\"\nhostRoot: {tree}\n");
    check_refusal(
        &text,
        expect![
            "FILE:1:15: `reservedCpus`: reserved CPUs 2-63 are not online; this machine has 0-1"
        ],
    );
}

#[test]
fn a_file_for_another_machine_is_checked_against_that() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "reservedCpus: \"2-3,60-63\"\n").unwrap();
    let name = file.to_str().unwrap();
    let check = |machine: &str| {
        let output = bayplan(&["config", "check", name, "--machine", machine]);
        let shown = String::from_utf8_lossy(&output.stdout).replace(name, "FILE");
        format!("exit {}\n{shown}", output.status.code().unwrap())
    };
    expect![[r#"
        exit 0
        FILE: no mistakes
    "#]]
    .assert_eq(&check("core:64"));
    expect![[r#"
        exit 0
        warning: reserved, on core:64 isolated:2-3: reservedCpus: 2-3 are isolated, and the kernel does not balance load among isolated CPUs: threads of system pods stay on one of them; reserve others, or take them out of isolcpus
        FILE: no mistakes
    "#]].assert_eq(&check("core:64 isolated:2-3"));
    expect![[r#"
        exit 64
        FILE:1:15: `reservedCpus`: reserved CPUs 60-63 are not online; this machine has 0-7
        1 mistake
    "#]]
    .assert_eq(&check("core:8"));
    expect![[r#"
        exit 0
        warning: reserved, on core:64 offline:63: reservedCpus: 63 are offline; others stand in for them; set reservedCpus to CPUs that are online, not isolated and allowed to pods, as kubelet's reservedSystemCPUs
        FILE: no mistakes
    "#]].assert_eq(&check("core:64 offline:63"));
}
