//! A bug ends a task of the daemon, which is a process, in the middle of a call.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_node::status::ContainerStatus;
use bayplan_tests::bug::{self, Place};
use bayplan_types::{Bytes, QosClass};

use crate::node::{DAEMON, MACHINE, Node, kubelet, set, soon, wait_for_socket};
use crate::observing::{get, metrics, sum};

const CONFIG: &str = "reservedCpus: \"0,8\"\nresyncInterval: 25ms\nprobes: \"off\"\n";
/// A pod that comes and goes asks the journal's disk for less than this.
const OPERATIONS: usize = 40;

/// A node with a daemon that has a bug wherever it is asked for.
struct Buggy(Node);

impl Buggy {
    async fn start() -> Buggy {
        let mut buggy = Buggy(Node::without_daemon(MACHINE));
        buggy.start_daemon().await;
        buggy
    }

    fn file(&self) -> PathBuf {
        self.0.path("bug")
    }

    /// As systemd does it; each has a log of its own.
    async fn start_daemon(&mut self) {
        let node = &mut self.0;
        let (arguments, metrics) = node.daemon_arguments(CONFIG);
        let mut command = Command::new(DAEMON);
        command.args(arguments).env_remove("BAYPLAN_LOG").env(bug::VARIABLE, node.path("bug"));
        command.stdin(Stdio::null()).stderr(File::create(node.path("bayplan.log")).unwrap());
        node.adopt_daemon(command.spawn().unwrap(), metrics);
        node.kubelet = kubelet(node.path("bayplan.sock"));
        wait_for_socket(&node.path("bayplan.sock")).await;
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.path("bayplan.log")).unwrap()
    }

    /// The daemon ends by itself, badly, and says why and where.
    async fn daemon_breaks(&self) {
        let status = self.0.daemon_ended().await;
        let log = self.log();
        assert_eq!(status.code(), Some(1), "{status}\n{log}");
        for words in
            ["panicked at tests/src/bug.rs:", bug::MESSAGE, "can no longer decide; this is a bug"]
        {
            assert!(log.contains(words), "no `{words}` in\n{log}");
        }
    }
}

/// What kubelet does with one pod, which it does again until it has been done.
#[derive(Clone, Copy, Debug)]
enum Call {
    Run,
    Create,
    Start,
    Resize,
    End,
}

impl Call {
    /// CPUs of its own that the pod's container has after it.
    fn owned(self) -> Vec<usize> {
        match self {
            Call::Run | Call::End => vec![],
            Call::Create | Call::Start => vec![2],
            Call::Resize => vec![3],
        }
    }
}

#[derive(Default)]
struct Pod {
    pod: Option<RunningPod>,
    id: String,
}

impl Pod {
    async fn call(&mut self, node: &mut Node, call: Call) -> Result<(), tonic::Status> {
        let spec = |milli| ContainerSpec::guaranteed("late", milli, Bytes::gib(1));
        let kubelet = &mut node.kubelet;
        let Some(pod) = &self.pod else {
            let pod = PodSpec::new("late", QosClass::Guaranteed);
            self.pod = Some(kubelet.run_pod(&pod).await?);
            return Ok(());
        };
        match call {
            Call::Run => {}
            Call::Create => self.id = kubelet.create(pod, &spec(2000), 0).await?,
            Call::Start => kubelet.start(&self.id).await?,
            Call::Resize => kubelet.resize(&self.id, &spec(3000)).await?,
            Call::End => kubelet.end_pod(pod).await?,
        }
        Ok(())
    }
}

/// Where they are; what they share changes with each owner.
fn seats(containers: &[ContainerStatus]) -> Vec<[String; 4]> {
    let seat =
        |it: &ContainerStatus| [&it.container, &it.exclusive, &it.pool, &it.mems].map(Clone::clone);
    containers.iter().map(seat).collect()
}

/// Gives whether the bug was met at all.
async fn check_bug_in_journal(after: usize) -> bool {
    let mut buggy = Buggy::start().await;
    buggy.0.guaranteed("database", 4000).await;
    buggy.0.burstable("batch", 500).await;
    let before = seats(&buggy.0.wait_until_in_line().await.containers);
    bug::expect(&buggy.file(), Place::Journal, after).unwrap();
    let mut is_met = false;
    let mut pod = Pod::default();
    for call in [Call::Run, Call::Create, Call::Start, Call::Resize, Call::End] {
        let answer = soon(pod.call(&mut buggy.0, call)).await;
        if !is_met && !buggy.file().exists() {
            is_met = true;
            buggy.daemon_breaks().await;
            buggy.start_daemon().await;
            buggy.0.wait_until_in_line().await;
            if answer.is_err() {
                soon(pod.call(&mut buggy.0, call)).await.unwrap();
            }
        } else {
            answer.unwrap();
        }
        let status = buggy.0.wait_until_in_line().await;
        let (late, others): (Vec<_>, Vec<_>) =
            status.containers.into_iter().partition(|it| it.container == "late");
        assert_eq!(seats(&others), before, "after {after}, {call:?}");
        // Whatever has happened to a call, it has what it was to get.
        let owned: Vec<usize> = late.iter().map(|it| set(&it.exclusive).len()).collect();
        assert_eq!(owned, call.owned(), "after {after}, {call:?}");
    }
    assert!(!is_met || !buggy.log().contains("panicked"), "{}", buggy.log());
    is_met
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_in_the_task_that_decides_ends_the_daemon_and_loses_and_moves_no_container() {
    let mut after = 0;
    while check_bug_in_journal(after).await {
        after += 1;
        assert!(after < OPERATIONS, "the journal is asked again and again");
    }
    // Or else the test tests nothing.
    assert!(after > 5, "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_where_the_history_is_written_ends_only_the_history() {
    let mut buggy = Buggy::start().await;
    bug::expect(&buggy.file(), Place::History, 0).unwrap();
    buggy.0.guaranteed("database", 4000).await;
    let is_counted = async {
        while sum(&metrics(&buggy.0).await, "bayplan_failures_total", &["kind=\"task\""]) < 1.0 {}
    };
    soon(is_counted).await;
    let (head, lacking) = get(&buggy.0, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(
        lacking,
        "a bug has ended what writes the history; it works again after a restart (see the log)\n"
    );
    buggy.0.guaranteed("inference", 2000).await;
    assert_eq!(buggy.0.wait_until_in_line().await.containers.len(), 2);
}
