//! Makes the fixtures. Copied to `tests/daemon/` of this release together with `pods.rs`, and named in its `main.rs` (`mod make; mod pods;`):
//!
//! ```sh
//! MADE=/tmp/made cargo test -p bayplan-tests --test daemon -- make::
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::{Bytes, QosClass};

use crate::hotplug::all;
use crate::node::{DAEMON, Node, set, soon};
use crate::pods::{MACHINE, Made, pods};

/// The first core is for system pods.
const RESERVED: &str = "reservedCpus: \"0,16\"\n";
/// Ran before the daemon was started for the first time.
const FOUND: usize = 1;
/// Came last, while the node was drained.
const DRAINED: usize = 1;

/// What a command of the program prints.
fn printed(node: &Node, args: &[&str]) -> Vec<u8> {
    let output = Command::new(DAEMON)
        .args(args)
        .arg("--config")
        .arg(node.path("bayplan.yaml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn fixtures() {
    let made = std::env::var("MADE").unwrap();
    let dir = Path::new(&made);
    fs::create_dir_all(dir.join("history")).unwrap();
    let (mut node, mut kept, pods) = (Node::without_daemon(MACHINE), Made::default(), pods());
    let (found, rest) = pods.split_at(FOUND);
    let (rest, drained) = rest.split_at(rest.len() - DRAINED);
    kept.launch(&mut node.past_daemon(), found).await;
    node.spawn_daemon(RESERVED).await;
    kept.launch(&mut node.kubelet, rest).await;
    let pod = PodSpec::new("big", QosClass::Guaranteed);
    let big = ContainerSpec::guaranteed("big", 99_000, Bytes::gib(1));

    // A CPU goes, its owner gets another one, and it comes back.
    let own = set(&node.held("database").await.exclusive);
    let lost = own.first().unwrap().to_string();
    node.plug(&format!("{MACHINE} offline:{lost}"));
    node.wait_until("the CPU is known to be gone", |now| all(now).is_disjoint(&set(&lost))).await;
    node.wait_until_in_line().await;
    node.plug(MACHINE);
    node.wait_until("it is back", |now| all(now).intersects(&set(&lost))).await;

    printed(&node, &["drain", "--yes"]);
    kept.launch(&mut node.kubelet, drained).await;
    printed(&node, &["resume", "--yes"]);
    kept.change(&mut node.kubelet).await;
    soon(node.kubelet.launch(&pod, &big)).await.unwrap_err();
    node.wait_until_in_line().await;

    fs::write(dir.join("status.json"), printed(&node, &["status", "-o", "json"])).unwrap();
    for name in ["database", "mixed", "found"] {
        let explained = printed(&node, &["explain", name, "-o", "json"]);
        fs::write(dir.join(format!("explain-{name}.json")), explained).unwrap();
    }
    node.kill_daemon();
    fs::copy(node.journal(), dir.join("journal")).unwrap();
    fs::copy(node.history().join("00000001"), dir.join("history/00000001")).unwrap();
    assert_eq!(fs::read_dir(node.history()).unwrap().count(), 1);
}
