//! The script of the packages that comes before a removal, over what a daemon has left in kernel files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::node::{DAEMON, MACHINE, Node, set};
use crate::power::{CLASSES, QUIET, file, wait_for, write_driver};

/// Runs it as a package manager does. Gives whether the package may go, and what is said.
fn before_removal(node: &Node, argument: &str) -> (bool, String) {
    let programs = node.path("programs");
    if !programs.exists() {
        fs::create_dir(&programs).unwrap();
        symlink(DAEMON, programs.join("bayplan")).unwrap();
        let systemctl = programs.join("systemctl");
        // No unit is active.
        fs::write(&systemctl, "#!/bin/sh\ncase \"$*\" in *is-active*) exit 3 ;; esac\n").unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/package/prerm");
    let paths = std::env::var("PATH").unwrap();
    let done = Command::new("sh")
        .args([script.to_str().unwrap(), argument])
        .env("PATH", format!("{}:{paths}", programs.display()))
        .env("BAYPLAN_CONFIG", node.path("bayplan.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    (done.status.success(), said)
}

/// A package that went took the originals with it: frequencies, interrupts and groups stayed as the daemon had left them, and it could not be told
/// how they had been.
#[tokio::test(flavor = "multi_thread")]
async fn a_package_goes_only_when_kernel_files_say_what_they_said_before() {
    let mut node = Node::without_daemon(MACHINE);
    write_driver(&node);
    node.spawn_daemon(CLASSES).await;
    let shared = set("1-7,9-15");
    let quiet = [(&shared, QUIET)];
    wait_for(&node, &quiet).await;
    // The daemon would write it all again.
    let (may_go, said) = before_removal(&node, "remove");
    assert!(!may_go && said.contains("another bayplan daemon"), "{said}");
    wait_for(&node, &quiet).await;
    node.kill_daemon();
    let removed = node.path("removed");

    for upgrade in ["upgrade", "1", "failed-upgrade", "deconfigure"] {
        assert_eq!(before_removal(&node, upgrade), (true, String::new()), "{upgrade}");
    }
    wait_for(&node, &quiet).await;

    // Nothing can be written over a directory.
    let governor = file(&node, 3, "scaling_max_freq");
    fs::remove_file(&governor).unwrap();
    fs::create_dir(&governor).unwrap();
    for argument in ["remove", "0"] {
        let (may_go, said) = before_removal(&node, argument);
        assert!(!may_go && said.contains("bayplan stays: "), "{said}");
        assert!(said.contains("cpufreq/policy3/scaling_max_freq"), "{said}");
    }
    assert!(!removed.exists());
    fs::remove_dir(&governor).unwrap();
    fs::write(&governor, "1000000\n").unwrap();
    let (may_go, said) = before_removal(&node, "remove");
    assert!(may_go, "{said}");
    wait_for(&node, &[]).await;
    // For the agent, until a daemon comes again.
    assert!(removed.exists());
    node.spawn_daemon(CLASSES).await;
    assert!(!removed.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_daemon_has_run_a_package_goes_and_leaves_nothing() {
    let node = Node::without_daemon(MACHINE);
    let groups: PathBuf = node.host_root().join("sys/fs/resctrl/bayplan.of-another-root");
    fs::create_dir_all(&groups).unwrap();
    let state = node.path("never");
    let config = format!(
        "stateDir: {}\nhostRoot: {}\ncontrolSocket: {}\n",
        state.display(),
        node.host_root().display(),
        node.control_socket().display()
    );
    fs::write(node.path("bayplan.yaml"), config).unwrap();
    let (may_go, said) = before_removal(&node, "0");
    assert!(may_go, "{said}");
    assert!(!state.exists() && groups.exists());
    // A daemon that cannot be asked where it was kept must not be taken for one that has kept nothing.
    fs::write(node.path("bayplan.yaml"), "stateDri: /x\n").unwrap();
    let (may_go, said) = before_removal(&node, "0");
    assert!(!may_go && said.contains("did you mean `stateDir`"), "{said}");
}
