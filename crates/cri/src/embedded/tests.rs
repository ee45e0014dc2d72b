//! The embedded runtime through its own service traits, without a socket.

use bayplan_workload::runtime::ContainerState;
use tonic::{Code, Request, Status};

use super::{EmbeddedRuntime, Fault};
use crate::test_support::{create, run_pod, soon};
use crate::v1::image_service_server::ImageService;
use crate::v1::runtime_service_server::RuntimeService;
use crate::v1::*;

async fn pod(runtime: &EmbeddedRuntime, name: &str) -> String {
    let answer = runtime.run_pod_sandbox(Request::new(run_pod(name))).await.unwrap();
    answer.into_inner().pod_sandbox_id
}

async fn make(runtime: &EmbeddedRuntime, pod: &str, name: &str) -> Result<String, Status> {
    let answer = runtime.create_container(Request::new(create(pod, name))).await?;
    Ok(answer.into_inner().container_id)
}

async fn start(runtime: &EmbeddedRuntime, id: &str) -> Result<(), Status> {
    let request = StartContainerRequest { container_id: id.to_owned() };
    runtime.start_container(Request::new(request)).await.map(drop)
}

async fn stop(runtime: &EmbeddedRuntime, id: &str) {
    let request = StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
    runtime.stop_container(Request::new(request)).await.unwrap();
}

async fn stop_pod(runtime: &EmbeddedRuntime, id: &str) {
    let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
    runtime.stop_pod_sandbox(Request::new(request)).await.unwrap();
}

fn check(status: Status, code: Code, message: &str) {
    assert_eq!((status.code(), status.message()), (code, message));
}

#[tokio::test]
async fn wrong_orders_are_refused_in_containerds_words() {
    let runtime = EmbeddedRuntime::new();
    let pod_id = pod(&runtime, "web").await;
    let id = make(&runtime, &pod_id, "main").await.unwrap();
    assert_eq!((pod_id.len(), id.len()), (64, 64));
    assert!(id.chars().all(|digit| digit.is_ascii_hexdigit()));

    let name = "main_web_default_web-uid_0";
    let again = make(&runtime, &pod_id, "main").await.unwrap_err();
    let text = format!(
        "failed to reserve container name \"{name}\": name \"{name}\" is reserved for \"{id}\""
    );
    check(again, Code::Unknown, &text);
    let name = "web_default_web-uid_0";
    let again = runtime.run_pod_sandbox(Request::new(run_pod("web"))).await.unwrap_err();
    let text = format!(
        "failed to reserve sandbox name \"{name}\": name \"{name}\" is reserved for \"{pod_id}\""
    );
    check(again, Code::Unknown, &text);
    let nowhere = make(&runtime, "nowhere", "main").await.unwrap_err();
    check(nowhere, Code::NotFound, "failed to find sandbox id \"nowhere\": not found");

    start(&runtime, &id).await.unwrap();
    let text = |state: &str| {
        format!(
            "failed to set starting state for container \"{id}\": container is in {state} state"
        )
    };
    check(start(&runtime, &id).await.unwrap_err(), Code::Unknown, &text("CONTAINER_RUNNING"));
    stop(&runtime, &id).await;
    check(start(&runtime, &id).await.unwrap_err(), Code::Unknown, &text("CONTAINER_EXITED"));
    let text = "an error occurred when try to find container \"absent\": not found";
    check(start(&runtime, "absent").await.unwrap_err(), Code::NotFound, text);
    let exec = ExecSyncRequest { container_id: "absent".to_owned(), ..Default::default() };
    check(runtime.exec_sync(Request::new(exec)).await.unwrap_err(), Code::NotFound, text);
    let exec = ExecSyncRequest { container_id: id.clone(), ..Default::default() };
    let text = "ExecSync needs a process, and bayplan-embedded runs none";
    check(runtime.exec_sync(Request::new(exec)).await.unwrap_err(), Code::Unimplemented, text);

    stop(&runtime, "absent").await;
    stop_pod(&runtime, "nowhere").await;
    stop_pod(&runtime, &pod_id).await;
    let late = make(&runtime, &pod_id, "late").await.unwrap_err();
    let text = format!(
        "failed to get sandbox container task: no running task found: task {pod_id} not found: not found"
    );
    check(late, Code::NotFound, &text);
}

#[tokio::test]
async fn stopping_a_pod_ends_what_runs_and_removing_it_removes_everything() {
    let runtime = EmbeddedRuntime::new();
    let pod_id = pod(&runtime, "web").await;
    let running = make(&runtime, &pod_id, "running").await.unwrap();
    let created = make(&runtime, &pod_id, "created").await.unwrap();
    let elsewhere = make(&runtime, &pod(&runtime, "other").await, "main").await.unwrap();
    start(&runtime, &running).await.unwrap();
    stop_pod(&runtime, &pod_id).await;
    assert_eq!(runtime.container(&running).unwrap().state, ContainerState::Exited);
    assert_eq!(runtime.container(&created).unwrap().state, ContainerState::Created);
    let refused = start(&runtime, &created).await.unwrap_err();
    let text = format!("sandbox container \"{pod_id}\" is not running");
    check(refused, Code::Unknown, &text);
    let request = RemovePodSandboxRequest { pod_sandbox_id: pod_id.clone() };
    runtime.remove_pod_sandbox(Request::new(request)).await.unwrap();
    let left: Vec<String> = runtime.containers().into_iter().map(|one| one.id).collect();
    assert_eq!(left, [elsewhere]);
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod_id, verbose: false };
    let status = runtime.pod_sandbox_status(Request::new(request)).await.unwrap_err();
    check(status, Code::NotFound, "an error occurred when try to find sandbox: not found");
    // The name is free again.
    pod(&runtime, "web").await;
}

#[tokio::test]
async fn lists_are_filtered() {
    let runtime = EmbeddedRuntime::new();
    let (web, db) = (pod(&runtime, "web").await, pod(&runtime, "db").await);
    let main = make(&runtime, &web, "main").await.unwrap();
    let side = make(&runtime, &web, "side").await.unwrap();
    let data = make(&runtime, &db, "data").await.unwrap();
    start(&runtime, &side).await.unwrap();
    stop_pod(&runtime, &db).await;
    let running = ContainerStateValue { state: crate::v1::ContainerState::ContainerRunning as i32 };
    let filters = [
        (ContainerFilter::default(), vec![&main, &side, &data]),
        (ContainerFilter { id: data.clone(), ..Default::default() }, vec![&data]),
        (ContainerFilter { pod_sandbox_id: web.clone(), ..Default::default() }, vec![&main, &side]),
        (ContainerFilter { state: Some(running), ..Default::default() }, vec![&side]),
        (
            ContainerFilter {
                label_selector: [("name".to_owned(), "main".to_owned())].into(),
                ..Default::default()
            },
            vec![&main],
        ),
        (
            ContainerFilter { id: data.clone(), pod_sandbox_id: web.clone(), ..Default::default() },
            vec![],
        ),
    ];
    for (filter, expected) in filters {
        let request = ListContainersRequest { filter: Some(filter.clone()) };
        let listed = runtime.list_containers(Request::new(request)).await.unwrap().into_inner();
        let ids: Vec<&String> = listed.containers.iter().map(|container| &container.id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    let not_ready = PodSandboxStateValue { state: PodSandboxState::SandboxNotready as i32 };
    let label = |value: &str| [("app".to_owned(), value.to_owned())].into();
    let filters = [
        (PodSandboxFilter { state: Some(not_ready), ..Default::default() }, vec![&db]),
        (PodSandboxFilter { label_selector: label("web"), ..Default::default() }, vec![&web]),
        (PodSandboxFilter { id: "nowhere".to_owned(), ..Default::default() }, vec![]),
    ];
    for (filter, expected) in filters {
        let request = ListPodSandboxRequest { filter: Some(filter.clone()) };
        let listed = runtime.list_pod_sandbox(Request::new(request)).await.unwrap().into_inner();
        let ids: Vec<&String> = listed.items.iter().map(|pod| &pod.id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn an_update_changes_what_it_names_and_nothing_else() {
    let runtime = EmbeddedRuntime::new();
    let pod_id = pod(&runtime, "web").await;
    let id = make(&runtime, &pod_id, "main").await.unwrap();
    let before = runtime.container(&id).unwrap();
    let update = |linux| UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    let nothing = LinuxContainerResources::default();
    runtime.update_container_resources(Request::new(update(nothing))).await.unwrap();
    assert_eq!(runtime.container(&id).unwrap(), before);
    let some = LinuxContainerResources {
        cpuset_cpus: "1,3".to_owned(),
        cpu_shares: 512,
        ..Default::default()
    };
    runtime.update_container_resources(Request::new(update(some))).await.unwrap();
    let after = runtime.container(&id).unwrap();
    assert_eq!((after.cpus.as_str(), after.cpu_shares), ("1,3", 512));
    assert_eq!((after.cpu_quota, after.memory_limit), (before.cpu_quota, before.memory_limit));
    let status = ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let status = runtime.container_status(Request::new(status)).await.unwrap().into_inner();
    let linux = status.status.unwrap().resources.unwrap().linux.unwrap();
    assert_eq!(linux.cpuset_cpus, "1,3");
    assert!(status.info["info"].contains(r#""cpus":"1,3""#), "{}", status.info["info"]);
}

#[tokio::test]
async fn images_are_known_by_short_name_full_name_and_id() {
    let runtime = EmbeddedRuntime::new();
    let spec = |image: &str| Some(ImageSpec { image: image.to_owned(), ..Default::default() });
    let pull = PullImageRequest { image: spec("quay.io/org/app:v1"), ..Default::default() };
    let id = runtime.pull_image(Request::new(pull)).await.unwrap().into_inner().image_ref;
    for (name, is_known) in [
        ("quay.io/org/app:v1", true),
        (id.as_str(), true),
        ("busybox", true),
        ("docker.io/library/busybox:latest", true),
        ("busybox:1.36", false),
        ("quay.io/org/app", false),
    ] {
        let request = ImageStatusRequest { image: spec(name), verbose: false };
        let found = runtime.image_status(Request::new(request)).await.unwrap().into_inner().image;
        assert_eq!(found.is_some(), is_known, "{name}");
    }
    let remove = RemoveImageRequest { image: spec(&id) };
    runtime.remove_image(Request::new(remove)).await.unwrap();
    let list = ListImagesRequest::default();
    let images = runtime.list_images(Request::new(list)).await.unwrap().into_inner().images;
    assert_eq!(images.len(), 3);
}

#[tokio::test]
async fn methods_that_are_newer_than_the_runtime_say_so() {
    let runtime = EmbeddedRuntime::new();
    let request = Request::new(StreamContainersRequest::default());
    let code = runtime.stream_containers(request).await.map(drop).unwrap_err().code();
    assert_eq!(code, Code::Unimplemented);
    let request = Request::new(CheckpointPodRequest::default());
    let code = runtime.checkpoint_pod(request).await.unwrap_err().code();
    assert_eq!(code, Code::Unimplemented);
}

#[tokio::test]
async fn ids_repeat_from_run_to_run() {
    let first = pod(&EmbeddedRuntime::new(), "web").await;
    assert_eq!(first, pod(&EmbeddedRuntime::new(), "other").await);
}

#[tokio::test]
async fn cleared_faults_are_gone() {
    let house = crate::test_support::House::new(bayplan_workload::Admission::PassThrough);
    house.runtime.inject("Version", Fault::Fail(13));
    let mut client = house.client();
    assert!(soon(client.version(VersionRequest::default())).await.is_err());
    house.runtime.clear_faults();
    assert!(soon(client.version(VersionRequest::default())).await.is_ok());
    assert_eq!(house.runtime.calls("Version"), 2);
}

#[tokio::test]
async fn a_container_has_its_cgroup_while_it_runs() {
    let root = tempfile::tempdir().unwrap();
    let runtime = EmbeddedRuntime::with_cgroups(root.path().to_owned());
    let pod = pod(&runtime, "a").await;
    let id = make(&runtime, &pod, "main").await.unwrap();
    let cgroups = root.path().join("sys/fs/cgroup");
    let cpus = || {
        let mut found = Vec::new();
        let mut dirs = vec![cgroups.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => dirs.push(path),
                    path if path.ends_with("cpuset.cpus") => {
                        found.push(std::fs::read_to_string(path).unwrap().trim().to_owned());
                    }
                    _ => {}
                }
            }
        }
        found
    };
    let update = |cpus: &str| UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(LinuxContainerResources { cpuset_cpus: cpus.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    runtime.update_container_resources(Request::new(update("0-3"))).await.unwrap();
    assert!(cpus().is_empty());
    start(&runtime, &id).await.unwrap();
    assert_eq!(cpus(), ["0-3"]);
    runtime.update_container_resources(Request::new(update("0-1"))).await.unwrap();
    assert_eq!(cpus(), ["0-1"]);
    stop_pod(&runtime, &pod).await;
    assert!(cpus().is_empty());
}
