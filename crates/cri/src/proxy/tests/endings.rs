//! Creations that end badly: whatever happens, the agent hears one outcome, and the right one.

use std::time::Duration;

use bayplan_workload::Admission;
use http::HeaderMap;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::embedded::{EmbeddedRuntime, Fault};
use crate::test_support::{DRAIN, House, create, pinning, run_pod, soon};
use crate::{frame, v1};

fn house() -> House {
    House::new(Admission::Place(pinning("0-1", "0")))
}

async fn pod(house: &House) -> String {
    let answer = soon(house.client().run_pod_sandbox(run_pod("web"))).await.unwrap();
    answer.into_inner().pod_sandbox_id
}

/// Starts a creation and waits until the runtime has got it.
async fn begin_create(
    house: &House,
    pod_id: &str,
) -> tokio::task::JoinHandle<Result<v1::CreateContainerResponse, Status>> {
    let (mut client, request) = (house.client(), create(pod_id, "main"));
    let call = tokio::spawn(async move {
        client.create_container(request).await.map(tonic::Response::into_inner)
    });
    soon(house.runtime.called("CreateContainer", 1)).await;
    call
}

/// The outcomes that the agent heard, after everything has come to its end.
async fn outcomes(mut house: House) -> Vec<String> {
    house.proxy_server.stop().await;
    let mut lines = house.agent.lines();
    let calls = lines.iter().filter(|line| line.starts_with("call CreateContainer")).count();
    assert_eq!(calls, 1, "{lines:?}");
    lines.retain(|line| line.starts_with("created"));
    lines
}

#[tokio::test]
async fn a_client_that_cancels_leaves_an_unknown_outcome_once() {
    let house = house();
    house.runtime.inject("CreateContainer", Fault::Hang);
    begin_create(&house, "p").await.abort();
    house.agent.wait_for("created #1 Unknown").await;
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

#[tokio::test]
async fn a_reply_that_was_lost_is_unknown_although_the_container_exists() {
    let house = house();
    let pod_id = pod(&house).await;
    house.runtime.inject("CreateContainer", Fault::LoseReply);
    let mut request = Request::new(create(&pod_id, "main"));
    request.set_timeout(Duration::from_millis(500));
    let status = soon(house.client().create_container(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(house.runtime.containers().len(), 1);
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

#[tokio::test]
async fn a_hanging_runtime_ends_at_the_clients_deadline() {
    let house = house();
    house.runtime.inject("CreateContainer", Fault::Hang);
    let mut request = Request::new(create("p", "main"));
    request.set_timeout(Duration::from_millis(500));
    let status = soon(house.client().create_container(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(house.agent.lines().contains(&"call CreateContainer 4".to_owned()));
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

#[tokio::test]
async fn a_deadline_that_has_passed_before_the_runtime_is_called_is_a_failure() {
    let house = house();
    let mut request = Request::new(create("p", "main"));
    request.set_timeout(Duration::ZERO);
    let status = soon(house.client().create_container(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(house.runtime.calls("CreateContainer"), 0);
    let told = outcomes(house).await;
    assert!(told.is_empty() || told == ["created #1 Failed"], "{told:?}");
}

#[tokio::test]
async fn a_runtime_that_vanishes_is_unavailable_and_unknown() {
    let mut house = house();
    house.runtime.inject("CreateContainer", Fault::Hang);
    let call = begin_create(&house, "p").await;
    house.runtime_server.stop().await;
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let socket = house.runtime_socket.to_str().unwrap();
    assert!(status.message().contains(socket), "{status}");
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

#[tokio::test]
async fn a_runtime_that_cannot_be_reached_has_not_made_anything() {
    let house = house();
    std::fs::remove_file(&house.runtime_socket).unwrap();
    let status = soon(house.client().create_container(create("p", "main"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("check that it is running"), "{status}");
    assert_eq!(outcomes(house).await, ["created #1 Failed"]);
}

/// A runtime that answers every call with these bytes, and then nothing.
fn house_of_a_runtime_that_says(frames: &'static [&'static [u8]]) -> House {
    let runtime = EmbeddedRuntime::new();
    House::with_runtime(Admission::Place(pinning("0-1", "0")), runtime, |listener, _| async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The preface, settings and a call are more than this.
        stream.read_exact(&mut [0; 100]).await.unwrap();
        stream.write_all(&frames.concat()).await.unwrap();
        std::future::pending().await
    })
}

#[tokio::test]
async fn a_call_that_the_runtime_does_not_take_has_made_nothing() {
    // RFC 9113, section 6: length, type, flags, stream, and what belongs to the type.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOODBYE: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const REFUSED: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
    const BROKEN: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    for (frames, word, expected) in [
        (&[SETTINGS, GOODBYE] as &[_], "did not take the call", "created #1 Failed"),
        (&[SETTINGS, REFUSED], "did not take the call", "created #1 Failed"),
        (&[SETTINGS, BROKEN], "broke off the call", "created #1 Unknown"),
    ] {
        let house = house_of_a_runtime_that_says(frames);
        let status = soon(house.client().create_container(create("p", "main"))).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(word), "{status}");
        assert_eq!(outcomes(house).await, [expected]);
        let house = house_of_a_runtime_that_says(frames);
        soon(house.client().update_container_resources(resize())).await.unwrap_err();
        house.agent.wait_for(&expected.replace("created #1", "resized main")).await;
    }
}

fn resize() -> v1::UpdateContainerResourcesRequest {
    v1::UpdateContainerResourcesRequest { container_id: "main".to_owned(), ..Default::default() }
}

#[tokio::test]
async fn a_panic_is_an_unknown_outcome_and_harms_no_other_call() {
    let house = house();
    let pod_id = pod(&house).await;
    house.agent.break_admission();
    let status = soon(house.client().create_container(create("p", "main"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    let status = soon(house.client().update_container_resources(resize())).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    house.agent.wait_for("resized main Unknown").await;
    assert_eq!(house.runtime.calls("CreateContainer"), 0);
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_id };
    soon(house.client().stop_pod_sandbox(stop)).await.unwrap();
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

#[tokio::test]
async fn the_runtimes_refusals_are_failures_and_its_doubts_are_not() {
    for (code, expected) in [
        (1, "created #1 Unknown"),
        (2, "created #1 Failed"),
        (4, "created #1 Unknown"),
        (5, "created #1 Failed"),
        (8, "created #1 Failed"),
        (14, "created #1 Unknown"),
    ] {
        let house = house();
        house.runtime.inject("CreateContainer", Fault::Fail(code));
        house.runtime.inject("UpdateContainerResources", Fault::Fail(code));
        soon(house.client().create_container(create("p", "main"))).await.unwrap_err();
        soon(house.client().update_container_resources(resize())).await.unwrap_err();
        house.agent.wait_for(&expected.replace("created #1", "resized main")).await;
        assert_eq!(outcomes(house).await, [expected], "{code}");
    }
}

#[tokio::test]
async fn a_stop_waits_for_a_creation_that_has_begun() {
    let house = house();
    let pod_id = pod(&house).await;
    house.agent.created_gate.forget_permits(1000);
    let call = begin_create(&house, &pod_id).await;
    house.agent.wait_for("created #1 64 pinned true").await;
    house.proxy_server.begin_stop();
    house.agent.created_gate.add_permits(1);
    assert_eq!(soon(call).await.unwrap().unwrap().container_id.len(), 64);
    assert_eq!(outcomes(house).await, ["created #1 64 pinned true"]);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let house = house();
    house.runtime.inject("CreateContainer", Fault::Hang);
    let call = begin_create(&house, "p").await;
    house.proxy_server.begin_stop();
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(outcomes(house).await, ["created #1 Unknown"]);
}

/// A client that connects when the stop begins has no answer to its connection's first words yet, and sends its first call with its own. It takes longer than one that is not read
/// would be given.
#[tokio::test]
async fn a_stop_takes_up_the_first_calls_of_a_client_that_has_just_connected() {
    let house = house();
    let pod_id = pod(&house).await;
    house.runtime.inject("CreateContainer", Fault::Delay(PULL));
    let stream = UnixStream::connect(house.kubelet_socket()).await.unwrap();
    // The proxy has accepted and spoken.
    soon(stream.readable()).await.unwrap();
    house.proxy_server.begin_stop();
    soon(async { while UnixStream::connect(house.kubelet_socket()).await.is_ok() {} }).await;
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://localhost/runtime.v1.RuntimeService/CreateContainer");
    let (answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let message = create(&pod_id, "main").encode_to_vec();
    body.send_data(frame::wrap(&message, &[]).unwrap(), true).unwrap();
    let mut answer = soon(answer).await.unwrap().into_body();
    while soon(answer.data()).await.is_some() {}
    let trailers = soon(answer.trailers()).await.unwrap().unwrap();
    assert_eq!(trailers.get("grpc-status").unwrap(), "0", "{trailers:?}");
    assert_eq!(outcomes(house).await, ["created #1 64 pinned true"]);
    soon(connection).await.unwrap().unwrap();
}

/// It writes before it reads, so to be told what became of its call it must be able to.
#[tokio::test]
async fn a_client_can_write_while_a_stop_takes_leave_of_it() {
    // RFC 9113, sections 3.4, 6.5 and 6.7: the preface, no settings, and the answer to the ping that goes with h2's first GOAWAY.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PONG: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0";
    let mut house = house();
    let mut stream = UnixStream::connect(house.kubelet_socket()).await.unwrap();
    stream.write_all(HELLO).await.unwrap();
    soon(stream.readable()).await.unwrap();
    house.proxy_server.begin_stop();
    let mut heard = Vec::new();
    let payload = loop {
        assert_ne!(soon(stream.read_buf(&mut heard)).await.unwrap(), 0, "{heard:?}");
        let ping = heard.windows(17).find(|it| it.starts_with(PING));
        if let Some(ping) = ping {
            break ping[9..].to_vec();
        }
    };
    stream.write_all(&[PONG, &payload].concat()).await.unwrap();
    soon(stream.read_to_end(&mut heard)).await.unwrap();
    for _ in 0..2 {
        stream.write_all(PONG).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(stream);
    house.proxy_server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever_for_a_client_that_says_nothing() {
    let mut house = house();
    let mut silent = UnixStream::connect(house.kubelet_socket()).await.unwrap();
    soon(silent.readable()).await.unwrap();
    house.proxy_server.stop().await;
    soon(silent.read_to_end(&mut Vec::new())).await.unwrap();
}

/// Longer than a call that is not read has after the proxy has stopped accepting.
const PULL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_stop_waits_for_a_long_call_and_serves_on_meanwhile() {
    let mut house = house();
    house.runtime.inject("PullImage", Fault::Delay(PULL));
    let image = v1::ImageSpec { image: "busybox".to_owned(), ..Default::default() };
    let pull = v1::PullImageRequest { image: Some(image), ..Default::default() };
    let pull = frame::wrap(&pull.encode_to_vec(), &[]).unwrap();
    let pull = house.send("/runtime.v1.ImageService/PullImage", HeaderMap::new(), pull);
    let meanwhile = async {
        soon(house.runtime.called("PullImage", 1)).await;
        house.proxy_server.begin_stop();
        tokio::time::sleep(PULL / 2).await;
        // On a connection that is made after the stop has begun.
        soon(house.client().version(v1::VersionRequest::default())).await.unwrap();
    };
    let (pulled, ()) = tokio::join!(pull, meanwhile);
    assert_eq!(pulled.trailers.get("grpc-status").unwrap(), "0", "{:?}", pulled.headers);
    house.proxy_server.stop().await;
    soon(house.client().version(v1::VersionRequest::default())).await.unwrap_err();
}

#[tokio::test]
async fn a_stop_waits_for_a_long_call_only_as_long_as_it_was_told() {
    let mut house = house();
    house.runtime.inject("StopContainer", Fault::Hang);
    let (mut client, request) = (house.client(), v1::StopContainerRequest::default());
    let call = tokio::spawn(async move { client.stop_container(request).await });
    soon(house.runtime.called("StopContainer", 1)).await;
    let begun = Instant::now();
    house.proxy_server.stop().await;
    assert!(begun.elapsed() >= DRAIN);
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(house.agent.lines().contains(&"call StopContainer 14".to_owned()));
}
