//! Calls that are read: what the agent hears, and what reaches the runtime.

use std::sync::{Arc, Mutex};

use bayplan_workload::Admission;
use bayplan_workload::runtime::ContainerState;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::embedded::Fault;
use crate::frame;
use crate::proxy::DECODED;
use crate::test_support::{House, create, pinning, run_pod, soon};
use crate::v1;

const CREATE: &str = "/runtime.v1.RuntimeService/CreateContainer";

fn place() -> Admission {
    Admission::Place(pinning("2-5", "1"))
}

async fn pod(house: &House) -> String {
    let answer = soon(house.client().run_pod_sandbox(run_pod("web"))).await.unwrap();
    answer.into_inner().pod_sandbox_id
}

#[tokio::test]
async fn a_whole_life_is_pinned_and_told() {
    let house = House::new(place());
    let mut client = house.client();
    let pod_id = pod(&house).await;
    let container = soon(client.create_container(create(&pod_id, "main"))).await.unwrap();
    let container_id = container.into_inner().container_id;
    let made = house.runtime.container(&container_id).unwrap();
    assert_eq!((made.cpus.as_str(), made.mems.as_str()), ("2-5", "1"));
    assert_eq!((made.cpu_shares, made.cpu_quota), (2048, 200_000));
    let id = || container_id.clone();
    let start = v1::StartContainerRequest { container_id: id() };
    soon(client.start_container(start)).await.unwrap();
    assert_eq!(house.runtime.container(&container_id).unwrap().state, ContainerState::Running);
    let stop = v1::StopContainerRequest { container_id: id(), timeout: 1 };
    soon(client.stop_container(stop)).await.unwrap();
    let remove = v1::RemoveContainerRequest { container_id: id() };
    soon(client.remove_container(remove)).await.unwrap();
    assert_eq!(house.runtime.container(&container_id), None);
    let pod_sandbox_id = pod_id.clone();
    soon(client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id })).await.unwrap();
    let pod_sandbox_id = pod_id.clone();
    soon(client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id })).await.unwrap();
    let expected = [
        "pod started web 64".to_owned(),
        "call RunPodSandbox 0".to_owned(),
        "admit #1 pod/main".to_owned(),
        "created #1 64 pinned true".to_owned(),
        "call CreateContainer 0".to_owned(),
        format!("starting {container_id}"),
        format!("started {container_id}"),
        "call StartContainer 0".to_owned(),
        format!("ended {container_id}"),
        "call StopContainer 0".to_owned(),
        format!("ended {container_id}"),
        "call RemoveContainer 0".to_owned(),
        format!("pod ended {pod_id}"),
        "call StopPodSandbox 0".to_owned(),
        format!("pod ended {pod_id}"),
        "call RemovePodSandbox 0".to_owned(),
    ];
    assert_eq!(house.agent.lines(), expected);
}

#[tokio::test]
async fn the_agent_has_heard_before_the_reply_leaves() {
    let house = House::new(place());
    let pod_id = pod(&house).await;
    house.agent.created_gate.forget_permits(1000);
    let mut client = house.client();
    let mut call = Box::pin(client.create_container(create(&pod_id, "main")));
    tokio::select! {
        _ = &mut call => panic!("the reply left first"),
        () = house.agent.wait_for("created #1 64 pinned true") => {}
    }
    // The container exists, the agent is still busy, and the client has nothing.
    assert_eq!(house.runtime.containers().len(), 1);
    assert!(!house.agent.lines().contains(&"call CreateContainer 0".to_owned()));
    house.agent.created_gate.add_permits(1);
    soon(call).await.unwrap();
}

#[tokio::test]
async fn a_passed_creation_reaches_the_runtime_as_it_came() {
    let house = House::new(Admission::PassThrough);
    let pod_id = pod(&house).await;
    soon(house.client().create_container(create(&pod_id, "main"))).await.unwrap();
    let made = house.runtime.containers();
    assert_eq!((made[0].cpus.as_str(), made[0].mems.as_str()), ("", ""));
    assert!(house.agent.lines().contains(&"created #1 64 pinned false".to_owned()));
}

#[tokio::test]
async fn a_refusal_never_reaches_the_runtime() {
    let text = "kein Platz für 8 CPUs: 100% vergeben";
    check_refusal(Admission::Refuse(text.to_owned()), Code::ResourceExhausted, text).await;
    check_refusal(Admission::Unavailable(text.to_owned()), Code::Unavailable, text).await;
}

async fn check_refusal(admission: Admission, code: Code, text: &str) {
    let house = House::new(admission);
    let mut client = house.client();
    let status = soon(client.create_container(create("p", "main"))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, text));
    let update = v1::UpdateContainerResourcesRequest::default();
    let status = soon(client.update_container_resources(update)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, text));
    assert_eq!(house.runtime.calls("CreateContainer"), 0);
    assert_eq!(house.runtime.calls("UpdateContainerResources"), 0);
    let code = code as u32;
    let expected = [
        "admit #1 pod/main".to_owned(),
        format!("call CreateContainer {code}"),
        "resize  quota 0".to_owned(),
        format!("call UpdateContainerResources {code}"),
    ];
    assert_eq!(house.agent.lines(), expected);
}

#[tokio::test]
async fn what_a_pod_needs_is_told_also_where_the_runtime_knows_no_such_call() {
    let house = House::new(place());
    let pod_id = pod(&house).await;
    let mut client = house.client();
    let update = |resources| v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod_id.clone(),
        resources,
        ..Default::default()
    };
    let needs = v1::LinuxContainerResources { cpu_shares: 4096, ..Default::default() };
    soon(client.update_pod_sandbox_resources(update(Some(needs.clone())))).await.unwrap();
    soon(client.update_pod_sandbox_resources(update(None))).await.unwrap();
    house.runtime.inject("UpdatePodSandboxResources", Fault::Fail(12));
    let status = soon(client.update_pod_sandbox_resources(update(Some(needs)))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let told = format!("pod resized {pod_id} shares 4096");
    let call = |code: u32| format!("call UpdatePodSandboxResources {code}");
    assert_eq!(house.agent.lines()[2..], [told.clone(), call(0), call(0), told, call(12)]);
}

#[tokio::test]
async fn a_resize_is_pinned_and_keeps_what_kubelet_wrote() {
    let house = House::new(place());
    let mut client = house.client();
    let pod_id = pod(&house).await;
    let made = soon(client.create_container(create(&pod_id, "main"))).await.unwrap();
    let container_id = made.into_inner().container_id;
    let resize = |cpu_quota| v1::UpdateContainerResourcesRequest {
        container_id: container_id.clone(),
        linux: Some(v1::LinuxContainerResources { cpu_quota, ..Default::default() }),
        ..Default::default()
    };
    house.agent.set_admission(Admission::Place(pinning("0-1", "")));
    soon(client.update_container_resources(resize(400_000))).await.unwrap();
    let held = house.runtime.container(&container_id).unwrap();
    assert_eq!((held.cpus.as_str(), held.mems.as_str(), held.cpu_quota), ("0-1", "1", 400_000));
    house.agent.set_admission(Admission::PassThrough);
    soon(client.update_container_resources(resize(-1))).await.unwrap();
    let held = house.runtime.container(&container_id).unwrap();
    assert_eq!((held.cpus.as_str(), held.cpu_quota), ("0-1", -1));
    assert!(house.agent.lines().contains(&format!("resize {container_id} quota 400000")));
}

#[tokio::test]
async fn what_the_runtime_does_not_know_has_ended_and_what_it_refuses_has_not() {
    let house = House::new(place());
    let mut client = house.client();
    let stop = |id: &str| v1::StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
    for (code, id) in [(5, "unknown"), (2, "refused"), (14, "unavailable")] {
        house.runtime.inject("StopContainer", Fault::Fail(code));
        soon(client.stop_container(stop(id))).await.unwrap_err();
    }
    house.runtime.inject("StartContainer", Fault::Fail(5));
    let start = v1::StartContainerRequest { container_id: "unknown".to_owned() };
    soon(client.start_container(start)).await.unwrap_err();
    house.runtime.inject("RunPodSandbox", Fault::Fail(2));
    soon(client.run_pod_sandbox(run_pod("web"))).await.unwrap_err();
    assert_eq!(house.agent.heard(), ["ended unknown", "starting unknown"]);
}

/// The runtime writes them to `hugetlb.*`; what is decided here is only where they come from.
#[tokio::test]
async fn limits_of_huge_pages_reach_the_runtime_as_kubelet_sent_them() {
    let seen = Arc::default();
    let house = note_requests(&seen);
    let limit =
        |(size, limit): (&str, u64)| v1::HugepageLimit { page_size: size.to_owned(), limit };
    let limits = [("1GB", 1 << 30), ("2MB", 0)].map(limit).to_vec();
    let resources =
        v1::LinuxContainerResources { hugepage_limits: limits.clone(), ..Default::default() };
    let mut creation = create("p", "main");
    let config = creation.config.get_or_insert_default();
    config.linux.get_or_insert_default().resources = Some(resources.clone());
    let resize = v1::UpdateContainerResourcesRequest {
        container_id: "c".to_owned(),
        linux: Some(resources),
        ..Default::default()
    };
    let update = CREATE.replace("CreateContainer", "UpdateContainerResources");
    for (path, message) in [(CREATE, creation.encode_to_vec()), (&*update, resize.encode_to_vec())]
    {
        house.send(path, HeaderMap::new(), frame::wrap(&message, &[]).unwrap()).await;
    }
    let requests = std::mem::take(&mut *seen.lock().unwrap());
    let [created, resized] = &requests[..] else { panic!("{requests:?}") };
    let read = v1::CreateContainerRequest::decode(frame::parse(&created.1).unwrap()).unwrap();
    let created = read.config.unwrap().linux.unwrap().resources.unwrap();
    let read = v1::UpdateContainerResourcesRequest::decode(frame::parse(&resized.1).unwrap());
    for found in [created, read.unwrap().linux.unwrap()] {
        assert_eq!((found.cpuset_mems.as_str(), found.hugepage_limits), ("1", limits.clone()));
    }
}

/// Notes each request and answers OK without a message.
fn note_requests(seen: &Arc<Mutex<Vec<(HeaderMap, Bytes)>>>) -> House {
    let seen = Arc::clone(seen);
    House::with_raw_runtime(place(), move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            seen.lock().unwrap().push((head.headers, body));
            Status::new(Code::Ok, "").into_http()
        }
    })
}

#[tokio::test]
async fn what_cannot_be_read_is_forwarded_unchanged() {
    let seen = Arc::default();
    let house = note_requests(&seen);
    let plain = frame::wrap(&create("p", "main").encode_to_vec(), &[]).unwrap();
    let mut compressed = BytesMut::from(&plain[..]);
    compressed[0] = 1;
    let long = frame::wrap(&vec![0; frame::MESSAGE_LEN_MAX + 1], &[]).unwrap();
    let cases = [
        ("malformed", Bytes::from_static(b"\0\0\0\0\x03\xff\xff\xff")),
        ("malformed", Bytes::from_static(b"\0\0\0")),
        ("malformed", Bytes::new()),
        ("compressed", compressed.freeze()),
        ("several", Bytes::from([&plain[..], &plain[..]].concat())),
        ("long", long),
    ];
    for (why, body) in cases {
        for path in DECODED {
            house.send(path, HeaderMap::new(), body.clone()).await;
            let (_, forwarded) = seen.lock().unwrap().pop().unwrap();
            assert!(forwarded == body, "{path} {why}");
            let name = path.rsplit('/').next().unwrap();
            let last_heard = house.agent.heard().pop();
            assert_eq!(last_heard, Some(format!("passed {name} {why}")));
        }
    }
}

/// Kubelet 1.31 to 1.33 can send them; containerd takes them.
#[tokio::test]
async fn arguments_that_are_no_text_are_kept_and_the_container_is_placed() {
    let seen = Arc::default();
    let house = note_requests(&seen);
    let mut create = create("p", "main");
    create.config.as_mut().unwrap().args = vec!["ARG".to_owned()];
    let mut message = create.encode_to_vec();
    let at = message.windows(3).position(|it| it == b"ARG").unwrap();
    message[at..at + 3].copy_from_slice(b"\xff\xfe\x80");
    house.send(CREATE, HeaderMap::new(), frame::wrap(&message, &[]).unwrap()).await;
    let (_, forwarded) = seen.lock().unwrap().pop().unwrap();
    let delta = crate::delta::for_create(&pinning("2-5", "1"), &crate::delta::Additions::default());
    assert_eq!(frame::parse(&forwarded).unwrap(), [message, delta].concat());
    assert_eq!(house.agent.heard()[0], "admit #1 pod/main");
}

#[tokio::test]
async fn an_unreadable_creation_is_refused_where_none_may_pass() {
    let seen = Arc::default();
    let house = note_requests(&seen);
    house.agent.set_admission(Admission::Refuse(String::new()));
    let body = Bytes::from_static(b"\0\0\0\0\x03\xff\xff\xff");
    for path in DECODED {
        let answer = house.send(path, HeaderMap::new(), body.clone()).await;
        let is_refused = seen.lock().unwrap().pop().is_none();
        let asks_for_cpus =
            path.ends_with("/CreateContainer") || path.ends_with("/UpdateContainerResources");
        assert_eq!(is_refused, asks_for_cpus, "{path} {:?}", answer.headers);
    }
    assert_eq!(house.agent.heard().len(), DECODED.len() - 2, "those that passed are told");
}

#[tokio::test]
async fn a_pinned_create_keeps_unknown_fields_and_has_the_right_length() {
    let seen = Arc::default();
    let house = note_requests(&seen);
    let mut message = BytesMut::from(&create("p", "main").encode_to_vec()[..]);
    prost::encoding::string::encode(900, &"from the future".to_owned(), &mut message);
    message.put_slice(b"\xf8\x7f\x01");
    let body = frame::wrap(&message, &[]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-request", HeaderValue::from_static("1"));
    headers.insert("content-length", HeaderValue::from(body.len()));
    house.send(CREATE, headers, body).await;
    let (headers, forwarded) = seen.lock().unwrap().pop().unwrap();
    let received = frame::parse(&forwarded).unwrap();
    assert!(received.starts_with(&message), "the original bytes come first");
    assert_eq!(headers["content-length"], forwarded.len().to_string());
    assert_eq!(headers["x-request"], "1");
    let read = v1::CreateContainerRequest::decode(received).unwrap();
    let resources = read.config.unwrap().linux.unwrap().resources.unwrap();
    assert_eq!((resources.cpuset_cpus.as_str(), resources.cpu_shares), ("2-5", 2048));
    // OK without an id says nothing.
    assert_eq!(house.agent.heard(), ["admit #1 pod/main", "created #1 Unknown"]);
}
