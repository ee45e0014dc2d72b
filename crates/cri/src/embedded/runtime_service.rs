//! `RuntimeService` over the state. In: CRI requests. Out: CRI responses. Methods that are not here, which are those of newer
//! protocol versions and pod-level statistics, answer `UNIMPLEMENTED`.

use std::collections::BTreeMap;

use futures::stream;
use tokio::sync::broadcast::error::RecvError;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::clock::now_ns;
use super::held::{Container, Pod};
use super::snapshot::NAME;
use super::state::State;
use super::{EmbeddedRuntime, render};
use crate::v1::runtime_service_server::RuntimeService;
use crate::v1::*;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RuntimeService for EmbeddedRuntime {
    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        let condition = |name: &str| RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        let handler = RuntimeHandler {
            name: String::new(),
            features: Some(RuntimeHandlerFeatures::default()),
        };
        Ok(Response::new(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            runtime_handlers: vec![handler],
            ..Default::default()
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Systemd.into() };
        Ok(Response::new(RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let pod_sandbox_id = self.state().run_pod(request.into_inner(), now_ns())?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let mut state = self.state();
        self.end_cgroups_of(&state, &request.get_ref().pod_sandbox_id);
        state.stop_pod(&request.get_ref().pod_sandbox_id, now_ns());
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let mut state = self.state();
        self.end_cgroups_of(&state, &request.get_ref().pod_sandbox_id);
        state.remove_pod(&request.get_ref().pod_sandbox_id, now_ns());
        Ok(Response::new(Default::default()))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let request = request.into_inner();
        let state = self.state();
        let pod = state.pod(&request.pod_sandbox_id).ok_or_else(unknown_pod)?;
        let info = if request.verbose { render::pod_info(pod) } else { BTreeMap::new() };
        Ok(Response::new(PodSandboxStatusResponse {
            status: Some(render::pod_status(pod)),
            info,
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.state();
        let pods = state.pods().filter(|pod| is_pod_wanted(&filter, pod));
        Ok(Response::new(ListPodSandboxResponse { items: pods.map(render::listed_pod).collect() }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        self.state().pod(&request.get_ref().pod_sandbox_id).ok_or_else(unknown_pod)?;
        Ok(Response::new(Default::default()))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let container_id = self.state().create_container(request.into_inner(), now_ns())?;
        Ok(Response::new(CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = &request.get_ref().container_id;
        let mut state = self.state();
        state.start_container(id, now_ns())?;
        self.inner.cgroups.put(state.container(id)?)?;
        Ok(Response::new(Default::default()))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let id = &request.get_ref().container_id;
        let mut state = self.state();
        state.stop_container(id, now_ns());
        if let Ok(container) = state.container(id) {
            self.inner.cgroups.put(container)?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = &request.get_ref().container_id;
        let mut state = self.state();
        if let Ok(container) = state.container(id) {
            self.inner.cgroups.remove(container);
        }
        state.remove_container(id, now_ns());
        Ok(Response::new(Default::default()))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.state();
        let wanted = state.containers().filter(|container| is_container_wanted(&filter, container));
        let containers = wanted.map(render::listed_container).collect();
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let request = request.into_inner();
        let state = self.state();
        let container = state.container(&request.container_id)?;
        let info =
            if request.verbose { render::container_info(container) } else { BTreeMap::new() };
        let status = Some(render::container_status(container));
        Ok(Response::new(ContainerStatusResponse { status, info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let update = request.linux.unwrap_or_default();
        let mut state = self.state();
        state.update_container(&request.container_id, update)?;
        self.inner.cgroups.put(state.container(&request.container_id)?)?;
        Ok(Response::new(Default::default()))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let state = self.state();
        let container = state.container(&request.get_ref().container_id)?;
        let stats = Some(render::container_stats(container, now_ns()));
        Ok(Response::new(ContainerStatsResponse { stats }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let filter = ContainerFilter {
            id: filter.id,
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
            state: Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() }),
        };
        let (state, now) = (self.state(), now_ns());
        let wanted = state.containers().filter(|container| is_container_wanted(&filter, container));
        let stats = wanted.map(|container| render::container_stats(container, now)).collect();
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<BoxStream<ContainerEventResponse>> {
        let events = self.state().subscribe();
        let stream = stream::unfold(events, |mut events| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((Ok(event), events)),
                    // containerd drops what a slow reader does not take.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let state = self.state();
        let container = state.container(&request.get_ref().container_id)?;
        if container.state != ContainerState::ContainerRunning {
            return Err(Status::unknown("container is not running"));
        }
        Ok(Response::new(Default::default()))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        self.state().container(&request.get_ref().container_id)?;
        Err(needs_a_process("ExecSync"))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        self.state().container(&request.get_ref().container_id)?;
        Err(needs_a_process("Exec"))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        self.state().container(&request.get_ref().container_id)?;
        Err(needs_a_process("Attach"))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        self.state().pod(&request.get_ref().pod_sandbox_id).ok_or_else(unknown_pod)?;
        Err(needs_a_process("PortForward"))
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        self.state().container(&request.get_ref().container_id)?;
        Err(needs_a_process("CheckpointContainer"))
    }
}

impl EmbeddedRuntime {
    fn end_cgroups_of(&self, state: &State, pod_id: &str) {
        state.containers_of(pod_id).for_each(|container| self.inner.cgroups.remove(container));
    }
}

fn unknown_pod() -> Status {
    Status::not_found("an error occurred when try to find sandbox: not found")
}

fn needs_a_process(method: &str) -> Status {
    Status::unimplemented(format!("{method} needs a process, and {NAME} runs none"))
}

fn is_pod_wanted(filter: &PodSandboxFilter, pod: &Pod) -> bool {
    let listed = render::listed_pod(pod);
    (filter.id.is_empty() || filter.id == listed.id)
        && filter.state.is_none_or(|wanted| wanted.state == listed.state)
        && are_labels_wanted(&filter.label_selector, &listed.labels)
}

fn is_container_wanted(filter: &ContainerFilter, container: &Container) -> bool {
    (filter.id.is_empty() || filter.id == container.id)
        && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.pod_id)
        && filter.state.is_none_or(|wanted| wanted.state == i32::from(container.state))
        && are_labels_wanted(&filter.label_selector, &container.config.labels)
}

fn are_labels_wanted(
    selector: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
