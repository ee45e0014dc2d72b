//! bayplan's own calls to the runtime. In: ids and pinnings. Out: plain values; no message type leaves this file.

use std::future::Future;

use bayplan_workload::Pinning;
use bayplan_workload::runtime::{
    ContainerDetails, ContainerState, EndedContainer, Exit, ListedContainer, ListedPod, PodDetails,
    RuntimeError,
};
use futures::{Stream, TryFutureExt as _, TryStreamExt as _, future, stream};
use tonic::{Code, Request, Response, Status};

use super::{Upstream, info};
use crate::translate::image;
use crate::{delta, v1};

/// What the runtime calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// For example `containerd`.
    pub name: String,
    /// For example `v2.1.4`.
    pub version: String,
}

impl Upstream {
    /// The runtime's name and version.
    pub async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        let request = v1::VersionRequest { version: "v1".to_owned() };
        let mut client = self.runtime_client();
        let answer = self.ask("Version", "", request, |r| async move { client.version(r).await });
        let answer = answer.await?;
        Ok(RuntimeVersion { name: answer.runtime_name, version: answer.runtime_version })
    }

    /// Moves a container to these CPUs and memory nodes and changes nothing else.
    pub async fn update_container(&self, id: &str, pinning: &Pinning) -> Result<(), RuntimeError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(delta::resources(pinning)),
            ..Default::default()
        };
        let mut client = self.runtime_client();
        let call = |r| async move { client.update_container_resources(r).await };
        self.ask("UpdateContainerResources", id, request, call).await.map(|_| ())
    }

    /// Every sandbox, also those that are not ready.
    pub async fn list_pods(&self) -> Result<Vec<ListedPod>, RuntimeError> {
        let request = v1::ListPodSandboxRequest::default();
        let mut client = self.runtime_client();
        let call = |r| async move { client.list_pod_sandbox(r).await };
        let answer = self.ask("ListPodSandbox", "", request, call).await?;
        Ok(answer.items.into_iter().map(listed_pod).collect())
    }

    /// Every container, also those that have ended.
    pub async fn list_containers(&self) -> Result<Vec<ListedContainer>, RuntimeError> {
        let request = v1::ListContainersRequest::default();
        let mut client = self.runtime_client();
        let call = |r| async move { client.list_containers(r).await };
        let answer = self.ask("ListContainers", "", request, call).await?;
        Ok(answer.containers.into_iter().map(listed_container).collect())
    }

    /// Containers that end from now on, until the runtime goes away or a stream fails; some may be told twice. Runtimes before
    /// containerd 1.7 do not know this call, which is [`RuntimeError::Failed`] with code 12.
    pub fn ended_containers(
        &self,
    ) -> impl Stream<Item = Result<EndedContainer, RuntimeError>> + use<> {
        const CALL: &str = "GetContainerEvents";
        let (upstream, mut client) = (self.clone(), self.runtime_client());
        // A runtime may not answer before there is something to tell, so there is no limit.
        let call = async move { client.get_container_events(v1::GetEventsRequest {}).await };
        stream::once(call.map_ok(Response::into_inner))
            .try_flatten()
            .try_filter_map(|event| future::ready(Ok(ended_container(event))))
            .map_err(move |status| upstream.failed(CALL, "", &status))
    }

    /// How the runtime set a container up.
    pub async fn container_details(&self, id: &str) -> Result<ContainerDetails, RuntimeError> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let mut client = self.runtime_client();
        let call = |r| async move { client.container_status(r).await };
        let answer = self.ask("ContainerStatus", id, request, call).await?;
        let details = info::parse_container(&answer.info);
        let resources = answer.status.and_then(|it| it.resources?.linux);
        Ok(match resources {
            Some(resources) => info::or_by_status(details, &resources),
            None => details,
        })
    }

    /// What the runtime remembers of a sandbox's configuration.
    pub async fn pod_details(&self, id: &str) -> Result<PodDetails, RuntimeError> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let mut client = self.runtime_client();
        let call = |r| async move { client.pod_sandbox_status(r).await };
        let answer = self.ask("PodSandboxStatus", id, request, call).await?;
        let status = answer.status.unwrap_or_default();
        let metadata = status.metadata.unwrap_or_default();
        let pod = ListedPod {
            id: if status.id.is_empty() { id.to_owned() } else { status.id },
            uid: metadata.uid,
            namespace: metadata.namespace,
            name: metadata.name,
            attempt: metadata.attempt,
            is_ready: status.state == v1::PodSandboxState::SandboxReady as i32,
            labels: status.labels,
            annotations: status.annotations,
        };
        Ok(PodDetails { pod, cgroup_parent: info::parse_cgroup_parent(&answer.info) })
    }

    /// Makes one call within the limit. `id` is what the call is about.
    async fn ask<Q, R, F>(
        &self,
        call: &'static str,
        id: &str,
        question: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<R, RuntimeError>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut request = Request::new(question);
        let limit = self.limit();
        request.set_timeout(limit);
        match tokio::time::timeout(limit, send(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failed(call, id, &status)),
            Err(_) => {
                self.connection.give_up().await;
                Err(self.timed_out(call))
            }
        }
    }

    fn timed_out(&self, call: &'static str) -> RuntimeError {
        let (socket, limit) = (self.socket().to_path_buf(), self.limit());
        RuntimeError::TimedOut { call, socket, limit }
    }

    fn failed(&self, call: &'static str, id: &str, status: &Status) -> RuntimeError {
        let message = status.message().to_owned();
        match status.code() {
            Code::NotFound if !id.is_empty() => RuntimeError::Gone { id: id.to_owned() },
            Code::Unavailable => RuntimeError::Unavailable { call, message },
            Code::DeadlineExceeded => self.timed_out(call),
            code => RuntimeError::Failed { call, code: code_number(code), message },
        }
    }
}

/// The container that has ended or was removed. Sandboxes are told of in the same way, and left out.
fn ended_container(event: v1::ContainerEventResponse) -> Option<EndedContainer> {
    let is_end = matches!(
        event.container_event_type(),
        v1::ContainerEventType::ContainerStoppedEvent
            | v1::ContainerEventType::ContainerDeletedEvent
    );
    let is_sandbox =
        event.pod_sandbox_status.is_some_and(|sandbox| sandbox.id == event.container_id);
    let statuses = event.containers_statuses.iter();
    let own = statuses.filter(|it| it.id == event.container_id);
    let exited = own.filter(|it| it.state == v1::ContainerState::ContainerExited as i32);
    let exit = exited.map(|it| Exit { code: it.exit_code, reason: it.reason.clone() }).next();
    (is_end && !is_sandbox).then_some(EndedContainer { id: event.container_id, exit })
}

/// A gRPC status code as the number it is on the wire.
pub(crate) fn code_number(code: Code) -> u32 {
    i32::from(code).unsigned_abs()
}

fn listed_pod(pod: v1::PodSandbox) -> ListedPod {
    let metadata = pod.metadata.unwrap_or_default();
    ListedPod {
        id: pod.id,
        uid: metadata.uid,
        namespace: metadata.namespace,
        name: metadata.name,
        attempt: metadata.attempt,
        is_ready: pod.state == v1::PodSandboxState::SandboxReady as i32,
        labels: pod.labels,
        annotations: pod.annotations,
    }
}

fn listed_container(container: v1::Container) -> ListedContainer {
    let state = match container.state() {
        _ if v1::ContainerState::try_from(container.state).is_err() => ContainerState::Unknown,
        v1::ContainerState::ContainerCreated => ContainerState::Created,
        v1::ContainerState::ContainerRunning => ContainerState::Running,
        v1::ContainerState::ContainerExited => ContainerState::Exited,
        v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
    };
    let metadata = container.metadata.unwrap_or_default();
    ListedContainer {
        id: container.id,
        pod_id: container.pod_sandbox_id,
        name: metadata.name,
        attempt: metadata.attempt,
        image: image(container.image.as_ref()),
        state,
        labels: container.labels,
        annotations: container.annotations,
    }
}
