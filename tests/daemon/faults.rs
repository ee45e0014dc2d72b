//! A runtime that hangs, refuses, loses answers, dies and comes back; a disk that is stuck; a port that another process has.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_cri::upstream::Upstream;
use bayplan_cri::v1;
use bayplan_daemon::config::OnFailure;
use bayplan_host::disk::{Disk, Operation};
use bayplan_node::settings::OnNoCapacity;
use bayplan_node::status::Status;
use bayplan_types::{Bytes, QosClass};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tonic::body::Body;
use tonic::codegen::http::Request;

use crate::node::{MACHINE, Node, STUCK, set, soon};
use crate::observing::{metrics, sum};

/// gRPC `UNKNOWN`, which is containerd's ordinary error.
const UNKNOWN: u32 = 2;

fn owner(name: &str) -> ContainerSpec {
    ContainerSpec::guaranteed(name, 2000, Bytes::gib(1))
}

async fn run_pod(node: &mut Node, name: &str) -> RunningPod {
    let pod = PodSpec::new(name, QosClass::Guaranteed);
    soon(node.kubelet.run_pod(&pod)).await.unwrap()
}

/// Asks for a container and comes back as soon as the runtime has heard of it.
async fn begin_create(
    node: &Node,
    pod: &RunningPod,
    container: ContainerSpec,
) -> JoinHandle<Result<String, tonic::Status>> {
    let calls = node.runtime.calls("CreateContainer");
    let (mut kubelet, pod) = (node.kubelet.clone(), pod.clone());
    let call = tokio::spawn(async move { kubelet.create(&pod, &container, 0).await });
    soon(node.runtime.called("CreateContainer", calls + 1)).await;
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_hangs_holds_up_no_other_and_leaks_nothing() {
    let mut node = Node::start().await;
    let (_, other) = node.guaranteed("other", 1000).await;
    let pod = run_pod(&mut node, "stuck").await;
    let before = node.status().await;
    node.runtime.inject("CreateContainer", Fault::Hang);
    let call = begin_create(&node, &pod, owner("stuck")).await;
    assert_eq!(node.held("stuck").await.phase, "creating");

    let two = ContainerSpec::guaranteed("other", 2000, Bytes::gib(1));
    soon(node.kubelet.resize(&other, &two)).await.unwrap();
    soon(node.raw().version(v1::VersionRequest::default())).await.unwrap();
    let one = ContainerSpec::guaranteed("other", 1000, Bytes::gib(1));
    soon(node.kubelet.resize(&other, &one)).await.unwrap();
    assert_eq!(node.held("stuck").await.phase, "creating");

    call.abort();
    let is_gone = |status: &Status| status.containers.len() == 1;
    let after = node.wait_until("the creation in doubt is given up", is_gone).await;
    assert_eq!((after.cpus, after.pools), (before.cpus, before.pools));
    node.runtime.clear_faults();
    soon(node.kubelet.create(&pod, &owner("stuck"), 0)).await.unwrap();
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_only_forwarded_do_not_wait_for_a_daemon_that_is_busy_everywhere() {
    let node = Node::start().await;
    let release = node.block_daemon().await;
    let heard = node.runtime.calls("RunPodSandbox");
    let mut kubelet = node.kubelet.clone();
    let decoded = tokio::spawn(async move {
        kubelet.run_pod(&PodSpec::new("waiting", QosClass::Guaranteed)).await
    });
    soon(node.kubelet.clone().list()).await.unwrap();
    // On a connection of its own.
    soon(node.raw().version(v1::VersionRequest::default())).await.unwrap();
    assert_eq!(node.runtime.calls("RunPodSandbox"), heard, "decided by which one?");
    drop(release);
    soon(decoded).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_whose_deadline_passes_leaks_nothing() {
    let node = Node::start().await;
    let before = node.status().await;
    node.runtime.inject("CreateContainer", Fault::Hang);
    let create = v1::CreateContainerRequest {
        sandbox_config: Some(v1::PodSandboxConfig {
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods/pod1".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        config: Some(v1::ContainerConfig {
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_shares: 2048,
                    cpu_quota: 200_000,
                    cpu_period: 100_000,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut request = tonic::Request::new(create);
    request.set_timeout(Duration::from_millis(300));
    let refused = soon(node.raw().create_container(request)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::DeadlineExceeded);
    let after = node.wait_until("it is given up", |status| status.containers.is_empty()).await;
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_creation_was_not_answered_is_found() {
    let mut node = Node::start().await;
    let (_, shared) = node.burstable("shared", 100).await;
    let pod = run_pod(&mut node, "lost").await;
    node.runtime.inject("CreateContainer", Fault::LoseReply);
    let call = begin_create(&node, &pod, owner("lost")).await;
    soon(async {
        while node.live().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    call.abort();
    node.runtime.clear_faults();
    let status = node.wait_until_in_line().await;
    let own = set(&status.cpus.exclusive);
    assert_eq!(own.len(), 2);
    assert!(node.cpus(&shared).is_disjoint(&own));

    // Kubelet does not know that it exists, tries again, and is told so by the runtime.
    let refused = soon(node.kubelet.create(&pod, &owner("lost"), 0)).await.unwrap_err();
    assert!(refused.message().contains("reserved"), "{refused}");
    let status = node.wait_until_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), own);
    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    let status = node.wait_until_in_line().await;
    assert_eq!(status.cpus.exclusive, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_while_the_first_creation_hangs_gets_the_same_cpus() {
    let mut node = Node::start().await;
    let pod = run_pod(&mut node, "twice").await;
    node.runtime.inject("CreateContainer", Fault::Hang);
    let first = begin_create(&node, &pod, owner("twice")).await;
    let held = node.held("twice").await;
    node.runtime.clear_faults();
    let id = soon(node.kubelet.create(&pod, &owner("twice"), 0)).await.unwrap();
    assert_eq!(node.cpus(&id), set(&held.cpus));
    first.abort();
    let status = node.wait_until_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), set(&held.exclusive));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_refuses_to_create_is_given_back() {
    let mut node = Node::start().await;
    let (_, shared) = node.burstable("shared", 100).await;
    let pod = run_pod(&mut node, "refused").await;
    let (before, cpus) = (node.status().await, node.cpus(&shared));
    node.runtime.inject("CreateContainer", Fault::Fail(UNKNOWN));
    let refused = soon(node.kubelet.create(&pod, &owner("refused"), 0)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::Unknown, "injected fault"));
    assert_eq!(node.status().await, before);
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&shared), cpus);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_the_runtime_refuses_is_repeated_and_not_in_a_tight_loop() {
    let mut node = Node::start().await;
    let (_, shared) = node.burstable("shared", 100).await;
    node.runtime.inject("UpdateContainerResources", Fault::Fail(UNKNOWN));
    let (_, owner) = node.guaranteed("owner", 8000).await;
    assert!(node.cpus(&shared).intersects(&node.cpus(&owner)), "the test tests nothing");
    let syncs = node.runtime.calls("ListContainers");
    soon(node.runtime.called("ListContainers", syncs + 20)).await;
    let (updates, syncs) =
        (node.runtime.calls("UpdateContainerResources"), node.runtime.calls("ListContainers"));
    assert!(updates >= 2, "it is repeated");
    assert!(updates <= 2 * syncs, "{updates} updates in {syncs} syncs");
    node.runtime.clear_faults();
    node.wait_until_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_dies_in_a_call_and_comes_back_is_reconciled() {
    let mut node = Node::start().await;
    let (_, first) = node.guaranteed("first", 2000).await;
    let pod = run_pod(&mut node, "lost").await;
    let second = run_pod(&mut node, "never").await;
    let before = node.cpus(&first);
    node.runtime.inject("CreateContainer", Fault::LoseReply);
    let lost = begin_create(&node, &pod, owner("lost")).await;
    node.runtime.inject("CreateContainer", Fault::Hang);
    let never = begin_create(&node, &second, owner("never")).await;
    soon(async {
        while node.live().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    node.stop_runtime().await;
    for call in [lost, never] {
        let status = soon(call).await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    }
    let status = node.status().await;
    let phases: Vec<&str> = status.containers.iter().map(|held| held.phase.as_str()).collect();
    assert_eq!(phases, ["running", "unconfirmed", "unconfirmed"]);
    node.runtime.clear_faults();
    node.start_runtime();
    let status = node.wait_until_in_line().await;
    let names: Vec<&str> = status.containers.iter().map(|held| held.container.as_str()).collect();
    assert_eq!(names, ["first", "lost"]);
    assert_eq!(node.cpus(&first), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_back_empty_releases_everything() {
    let mut node = Node::start().await;
    let before = node.status().await;
    node.guaranteed("owner", 3000).await;
    node.guaranteed("mixed", 1500).await;
    node.burstable("shared", 100).await;
    node.stop_runtime().await;
    // While the runtime is away all containers keep what they have.
    assert_eq!(node.status().await.containers.len(), 3);
    node.forget_containers();
    node.start_runtime();
    let after = node.wait_until("all is released", |status| status.containers.is_empty()).await;
    assert_eq!((after.cpus, after.pools), (before.cpus, before.pools));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_while_the_runtime_is_away_is_unavailable_and_leaks_nothing() {
    let mut node = Node::start().await;
    let pod = run_pod(&mut node, "owner").await;
    let before = node.status().await;
    node.stop_runtime().await;
    let refused = soon(node.kubelet.create(&pod, &owner("owner"), 0)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert_eq!(node.status().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_no_messages_are_errors_and_leak_nothing() {
    let mut node = Node::start().await;
    let (_, other) = node.guaranteed("other", 1000).await;
    let pod = run_pod(&mut node, "owner").await;
    node.runtime.inject("CreateContainer", Fault::Garbage);
    let refused = soon(node.kubelet.create(&pod, &owner("owner"), 0)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Internal, "{refused}");
    node.runtime.clear_faults();
    // The runtime has made it all the same, which its list tells.
    let has_found = |status: &Status| status.containers.iter().any(|it| it.container == "owner");
    node.wait_until("it is found", has_found).await;
    let owned = node.wait_until_in_line().await.cpus.exclusive;
    assert_eq!(set(&owned), set("1-2,10"));

    for method in ["ListContainers", "ListPodSandbox", "ContainerStatus"] {
        node.runtime.inject(method, Fault::Garbage);
    }
    let syncs = sum(&metrics(&node).await, "bayplan_failures_total", &["kind=\"sync\""]);
    soon(async {
        while sum(&metrics(&node).await, "bayplan_failures_total", &["kind=\"sync\""]) <= syncs {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // Which containers run is not known now, so none is taken for gone.
    assert_eq!(node.status().await.cpus.exclusive, owned);
    node.runtime.clear_faults();
    assert_eq!(node.wait_until_in_line().await.cpus.exclusive, owned);
    assert_eq!(node.cpus(&other), set("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_a_version_of_cri_that_is_not_read_pass_and_are_counted() {
    let node = Node::start().await;
    let kubelet = Upstream::new(node.path("bayplan.sock"), STUCK);
    for _ in 0..2 {
        let path = "/runtime.v2.RuntimeService/CreateContainer";
        let answer = soon(kubelet.forward(Request::post(path).body(Body::empty()).unwrap())).await;
        // The runtime's own word: it does not know that version either.
        let answer = answer.unwrap();
        let status = answer.headers().get(tonic::Status::GRPC_STATUS).unwrap();
        assert_eq!(status, "12");
    }
    let kind = ["kind=\"other_version\""];
    assert_eq!(sum(&metrics(&node).await, "bayplan_failures_total", &kind).to_string(), "2");
}

/// Writes nothing for as long as it is held.
#[derive(Debug, Default)]
struct StuckDisk {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl StuckDisk {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.released.notify_all();
    }
}

impl Disk for StuckDisk {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        if operation == Operation::Write {
            let is_held = self.is_held.lock().unwrap();
            drop(self.released.wait_while(is_held, |is_held| *is_held).unwrap());
        }
        Ok(bytes)
    }
}

async fn node_on_stuck_disk(on_failure: OnFailure) -> (Node, Arc<StuckDisk>) {
    let mut node = Node::without_daemon(MACHINE);
    let disk = Arc::<StuckDisk>::default();
    node.disks.journal = Arc::<StuckDisk>::clone(&disk);
    node.adjust = match on_failure {
        OnFailure::Open => |config| config.decision_timeout = Duration::from_secs(2),
        OnFailure::Closed => |config| {
            config.decision_timeout = Duration::from_secs(2);
            config.on_failure = OnFailure::Closed;
        },
    };
    node.start_daemon().await;
    node.guaranteed("other", 1000).await;
    (node, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_decision_was_late_starts_and_then_leaves_cpus_of_others() {
    let (mut node, disk) = node_on_stuck_disk(OnFailure::Open).await;
    let pod = run_pod(&mut node, "late").await;
    disk.hold(true);
    let late = soon(node.kubelet.create(&pod, &owner("late"), 0)).await.unwrap();
    // As kubelet wrote it: everywhere.
    assert_eq!(node.cpus(&late), set(""));
    disk.hold(false);
    let is_placed = |status: &Status| set(&status.cpus.exclusive) == set("1-2,10");
    node.wait_until("it is placed", is_placed).await;
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&late).len(), 2);
    let metrics = metrics(&node).await;
    assert!(sum(&metrics, "bayplan_failures_total", &["kind=\"undecided\""]) >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_decision_was_late_is_refused_where_the_configuration_says_so() {
    let (mut node, disk) = node_on_stuck_disk(OnFailure::Closed).await;
    let before = node.status().await;
    let pod = run_pod(&mut node, "late").await;
    disk.hold(true);
    let refused = soon(node.kubelet.create(&pod, &owner("late"), 0)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    disk.hold(false);
    let after = node.wait_until("it is given up", |status| status.containers.len() == 1).await;
    assert_eq!((after.cpus, after.pools), (before.cpus, before.pools));
    soon(node.kubelet.create(&pod, &owner("late"), 0)).await.unwrap();
    node.wait_until_in_line().await;
}

/// Nothing is decided while the disk is stuck: one batch of questions is at it, as many wait as may, and all others are refused.
#[tokio::test(flavor = "multi_thread")]
async fn kubelet_sees_resource_exhausted_when_too_many_calls_wait_and_none_slips_by() {
    const WAITING_MAX: usize = 2;
    const CALLS: usize = 10;
    let mut node = Node::without_daemon(MACHINE);
    let disk = Arc::<StuckDisk>::default();
    node.disks.journal = Arc::<StuckDisk>::clone(&disk);
    node.adjust = |config| {
        config.waiting_max = WAITING_MAX;
        config.decision_timeout = STUCK;
    };
    node.start_daemon().await;
    let mut pods = Vec::new();
    for at in 0..CALLS {
        pods.push(run_pod(&mut node, &format!("pod-{at}")).await);
    }
    let one = ContainerSpec::guaranteed("one", 1000, Bytes::gib(1));
    disk.hold(true);
    let mut calls = JoinSet::new();
    for (at, pod) in pods.iter().cloned().enumerate() {
        let (mut kubelet, one) = (node.kubelet.clone(), one.clone());
        calls.spawn(async move { (at, kubelet.create(&pod, &one, 0).await) });
    }
    let mut refused = Vec::new();
    let mut note_refused = |(at, created): (usize, Result<String, tonic::Status>)| match created {
        Ok(id) => Some(id),
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
            let text = "bayplan: 2 calls wait for a decision already";
            assert_eq!(status.message(), text);
            refused.push(at);
            None
        }
    };
    // While nothing is decided only refusals are answers.
    for _ in 0..CALLS - 2 * WAITING_MAX {
        let answer = soon(calls.join_next()).await.unwrap().unwrap();
        assert_eq!(note_refused(answer), None);
    }
    disk.hold(false);
    let mut placed = Vec::new();
    while let Some(answer) = soon(calls.join_next()).await {
        placed.extend(note_refused(answer.unwrap()));
    }
    for at in refused {
        // The daemon's own questions wait in the same places.
        let id = loop {
            match soon(node.kubelet.create(&pods[at], &one, 0)).await {
                Ok(id) => break id,
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}")
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        placed.push(id);
    }
    let status = node.wait_until_in_line().await;
    assert_eq!((placed.len(), set(&status.cpus.exclusive).len()), (CALLS, CALLS));
    assert!(placed.iter().all(|id| node.cpus(id).len() == 1), "a container slipped by");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_room_shares_where_the_configuration_says_so() {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = |config| config.on_no_capacity = OnNoCapacity::Share;
    node.start_daemon().await;
    let (_, owner) = node.guaranteed("owner", 12_000).await;
    let (pod, big) = node.guaranteed("big", 4000).await;
    let status = node.check_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), node.cpus(&owner));
    assert!(node.cpus(&big).is_disjoint(&node.cpus(&owner)));
    assert_eq!(node.held("big").await.class, "shared");
    let why = &node.explain("big").await[0].decision.outcome;
    assert!(why.contains("without exclusive CPUs, which onNoCapacity allows"), "{why}");
    let kind = ["kind=\"no_capacity\""];
    assert_eq!(sum(&metrics(&node).await, "bayplan_failures_total", &kind).to_string(), "1");
    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    node.check_in_line().await;
}

/// Kubelet stops a container again when it did not hear the answer, and each sandbox at least twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_twice_is_released_once() {
    let mut node = Node::start().await;
    let (pod, first) = node.guaranteed("first", 2000).await;
    let cpus = node.cpus(&first);
    soon(node.kubelet.stop(&first)).await.unwrap();
    let (_, second) = node.guaranteed("second", 2000).await;
    assert_eq!(node.cpus(&second), cpus, "the test tests nothing");
    for _ in 0..2 {
        soon(node.kubelet.stop(&first)).await.unwrap();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
        soon(node.raw().stop_pod_sandbox(request)).await.unwrap();
    }
    let status = node.check_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), cpus);
    let second = node.held("second").await;
    assert_eq!((set(&second.exclusive), second.phase.as_str()), (cpus, "running"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metrics_port_that_is_taken_does_not_keep_kubelet_waiting() {
    static TAKEN: OnceLock<SocketAddr> = OnceLock::new();
    let holder = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let taken = *TAKEN.get_or_init(|| holder.local_addr().unwrap());
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = |config| config.metrics_address = TAKEN.get().copied();
    node.start_daemon().await;
    node.guaranteed("owner", 2000).await;
    drop(holder);
    // Another test may have the port for a moment.
    soon(async {
        while !scrape(taken).await.contains("bayplan_failures_total{kind=\"metrics_address\"} 1\n")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// What is answered at this address; nothing where there is no listener.
async fn scrape(address: SocketAddr) -> String {
    let mut text = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(address).await
        && stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.is_ok()
    {
        // What came until then is enough.
        let _cut =
            tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut text)).await;
    }
    String::from_utf8_lossy(&text).into_owned()
}
