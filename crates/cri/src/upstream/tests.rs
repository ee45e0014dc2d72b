//! bayplan's own calls against the embedded runtime.

use std::time::Duration;

use bayplan_workload::runtime::{ContainerState, RuntimeError};
use h2::Reason;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tonic::Code;
use tonic::body::Body;

use super::Upstream;
use crate::embedded::{EmbeddedRuntime, Fault, NAME};
use crate::test_support::{Running, create, pinning, run_pod, soon};

struct Runtime {
    runtime: EmbeddedRuntime,
    upstream: Upstream,
    server: Running,
    _folder: tempfile::TempDir,
}

fn runtime(limit: Duration) -> Runtime {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (runtime, upstream) = (EmbeddedRuntime::new(), Upstream::new(socket, limit));
    let served = runtime.clone();
    let server = Running::start(|stop| async move {
        served.serve(listener, stop.cancelled()).await;
    });
    Runtime { runtime, upstream, server, _folder: folder }
}

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_the_runtime_tells_comes_back_as_plain_values() {
    let it = runtime(LIMIT);
    let version = soon(it.upstream.version()).await.unwrap();
    assert_eq!(version.name, NAME);
    let mut client = it.upstream.runtime_client();
    let pod = soon(client.run_pod_sandbox(run_pod("web"))).await.unwrap().into_inner();
    let made = soon(client.create_container(create(&pod.pod_sandbox_id, "main"))).await.unwrap();
    let id = made.into_inner().container_id;

    let pods = soon(it.upstream.list_pods()).await.unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!((pods[0].name.as_str(), pods[0].uid.as_str()), ("web", "web-uid"));
    assert_eq!((pods[0].namespace.as_str(), pods[0].is_ready), ("default", true));
    let details = soon(it.upstream.pod_details(&pods[0].id)).await.unwrap();
    assert_eq!(details.pod, pods[0]);
    assert_eq!(details.cgroup_parent.as_deref(), Some("/kubepods.slice/kubepods-pod1.slice"));

    let containers = soon(it.upstream.list_containers()).await.unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!((&containers[0].id, &containers[0].pod_id), (&id, &pods[0].id));
    assert_eq!((containers[0].name.as_str(), containers[0].attempt), ("main", 0));
    assert_eq!(containers[0].state, ContainerState::Created);
    assert_eq!(containers[0].labels["name"], "main");

    soon(it.upstream.update_container(&id, &pinning("4-7", "1"))).await.unwrap();
    let details = soon(it.upstream.container_details(&id)).await.unwrap();
    assert_eq!(
        (details.cpus, details.mems),
        (Some("4-7".parse().unwrap()), Some("1".parse().unwrap()))
    );
    assert_eq!(
        (details.shares, details.quota, details.period),
        (Some(2048), Some(200_000), Some(100_000))
    );
    assert_eq!((details.pid, details.memory_limit), (None, Some(1 << 30)));
    let path = format!("kubepods-pod1.slice:cri-containerd:{id}");
    assert_eq!(details.cgroups_path, Some(path));
    // No memory nodes in the pinning: they stay.
    soon(it.upstream.update_container(&id, &pinning("0", ""))).await.unwrap();
    let held = it.runtime.container(&id).unwrap();
    assert_eq!((held.cpus.as_str(), held.mems.as_str()), ("0", "1"));
}

#[tokio::test]
async fn every_way_to_fail_has_its_name() {
    let mut it = runtime(LIMIT);
    let gone = Err(RuntimeError::Gone { id: "nobody".to_owned() });
    assert_eq!(soon(it.upstream.update_container("nobody", &pinning("0", ""))).await, gone);
    let gone = RuntimeError::Gone { id: "nobody".to_owned() };
    assert_eq!(soon(it.upstream.container_details("nobody")).await.unwrap_err(), gone);
    assert_eq!(soon(it.upstream.pod_details("nobody")).await.unwrap_err(), gone);
    it.runtime.inject("ListContainers", Fault::Fail(13));
    let error = soon(it.upstream.list_containers()).await.unwrap_err();
    let text = "ListContainers: the runtime refused with gRPC code 13: injected fault";
    assert_eq!(error.to_string(), text);
    it.server.stop().await;
    let error = soon(it.upstream.version()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable { call: "Version", .. }), "{error}");
    let socket = it.upstream.socket().to_str().unwrap();
    assert!(error.to_string().contains(socket), "{error}");
}

#[tokio::test]
async fn a_runtime_that_hangs_costs_no_more_than_the_limit() {
    let it = runtime(Duration::from_millis(200));
    it.runtime.inject("Version", Fault::Hang);
    let error = soon(it.upstream.version()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::TimedOut { call: "Version", .. }), "{error}");
    assert!(error.to_string().ends_with("did not answer within 200ms"), "{error}");
}

/// The first connection is open and says nothing but this, all later ones are good. Gives what two questions are answered, and how many connections there were.
async fn ask_twice(first_word: &[u8]) -> ([bool; 2], usize) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let upstream = Upstream::new(socket, Duration::from_millis(500));
    let first = upstream.version();
    let accepted = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(first_word).await.unwrap();
        stream
    };
    let (first, _open) = soon(async { tokio::join!(first, accepted) }).await;
    let runtime = EmbeddedRuntime::new();
    let good = async { runtime.serve(listener, std::future::pending()).await };
    let second = async {
        tokio::select! {
            () = good => unreachable!("it serves for ever"),
            second = upstream.version() => second,
        }
    };
    let second = soon(second).await;
    let connections = 1 + usize::from(runtime.calls("Version") > 0);
    ([first.is_ok(), second.is_ok()], connections)
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_answered_any_more_is_given_up() {
    // Settings, as every server sends them first.
    assert_eq!(ask_twice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await, ([false, true], 2));
    // A runtime that hangs altogether gets no connection for each question.
    assert_eq!(ask_twice(&[]).await, ([false, false], 1));
}

/// What the client of a call with this deadline is told when the runtime cancels it after this time.
async fn cancelled_after(after: Duration, timeout: &str) -> Code {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let runtime = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(call) = connection.accept().await {
            let (_, mut answer) = call.unwrap();
            tokio::time::sleep(after).await;
            answer.send_reset(Reason::CANCEL);
        }
    });
    let upstream = Upstream::new(socket, Duration::from_secs(60));
    let mut request = http::Request::new(Body::empty());
    request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
    let error = soon(upstream.forward(request)).await.unwrap_err();
    runtime.abort();
    error.status().code()
}

/// grpc-go's server ends a call at its deadline by a reset, and its client takes one that comes then for the deadline. With bayplan in between the client
/// was told `Cancelled` (critest: "public image should timeout if requested").
#[tokio::test]
async fn a_call_that_the_runtime_cancels_at_its_deadline_has_exceeded_it() {
    let short = Duration::from_millis(5);
    assert_eq!(cancelled_after(short, "5m").await, Code::DeadlineExceeded);
    assert_eq!(cancelled_after(short, "60S").await, Code::Cancelled);
    assert_eq!(cancelled_after(short, "for ever").await, Code::Cancelled);
}
