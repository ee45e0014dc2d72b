//! Pods and containers and how they change. In: what is asked, and the time. Out: the changed state and an event, or containerd's
//! refusal. No I/O.
//!
//! ```text
//! sandbox    READY ──stop──▶ NOTREADY ──remove──▶ (gone, with its containers)
//! container  CREATED ──start──▶ RUNNING ──stop──▶ EXITED ──remove──▶ (gone)
//! ```
//! Stop leaves a container that was never started as it is; remove takes a running one too.

use std::collections::BTreeMap;

use tokio::sync::broadcast;
use tonic::Status;

use super::held::{Container, Pod};
use super::render;
use super::snapshot::ContainerSnapshot;
use crate::v1::{self, ContainerEventType, ContainerState};

/// Events that a slow reader may fall behind before it loses some. containerd has as many.
const EVENTS_MAX: usize = 1000;

/// What a container ends with when nothing in it hears the signal: 128 + SIGKILL.
const EXIT_CODE_KILLED: i32 = 137;

/// Everything the runtime holds. Keys are the order of creation.
#[derive(Debug)]
pub(super) struct State {
    pods: BTreeMap<u64, Pod>,
    containers: BTreeMap<u64, Container>,
    made: u64,
    events: broadcast::Sender<v1::ContainerEventResponse>,
    /// The containers after every change, once a caller has asked for it.
    record: Option<Vec<Vec<ContainerSnapshot>>>,
}

impl Default for State {
    fn default() -> State {
        let (pods, containers) = (BTreeMap::new(), BTreeMap::new());
        let events = broadcast::Sender::new(EVENTS_MAX);
        State { pods, containers, made: 0, events, record: None }
    }
}

impl State {
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }

    pub(super) fn containers_of(&self, pod_id: &str) -> impl Iterator<Item = &Container> {
        self.containers().filter(move |container| container.pod_id == pod_id)
    }

    pub(super) fn pod(&self, id: &str) -> Option<&Pod> {
        self.pods().find(|pod| pod.id == id)
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<v1::ContainerEventResponse> {
        self.events.subscribe()
    }

    /// The container, or the refusal that containerd gives for most methods.
    pub(super) fn container(&self, id: &str) -> Result<&Container, Status> {
        self.containers()
            .find(|container| container.id == id)
            .ok_or_else(|| unknown("an error occurred when try to find container", id))
    }

    fn container_mut(&mut self, id: &str) -> Option<&mut Container> {
        self.containers.values_mut().find(|container| container.id == id)
    }

    pub(super) fn run_pod(
        &mut self,
        request: v1::RunPodSandboxRequest,
        now: i64,
    ) -> Result<String, Status> {
        let config = request.config.unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("sandbox config must include metadata"));
        };
        let name = pod_name(metadata);
        let holder = self
            .pods()
            .find(|pod| pod.config.metadata.as_ref().map(pod_name) == Some(name.clone()));
        if let Some(holder) = holder {
            return Err(Status::unknown(format!(
                "failed to reserve sandbox name \"{name}\": name \"{name}\" is reserved for \"{}\"",
                holder.id
            )));
        }
        let (key, id) = self.next_id();
        let runtime_handler = request.runtime_handler;
        let pod = Pod { id: id.clone(), config, runtime_handler, is_ready: true, created_at: now };
        self.pods.insert(key, pod);
        // containerd's sandbox is a container of its own, with events of its own.
        self.tell(&id, &id, ContainerEventType::ContainerCreatedEvent, now);
        self.tell(&id, &id, ContainerEventType::ContainerStartedEvent, now);
        Ok(id)
    }

    /// Stops the containers that run, then the sandbox. An unknown sandbox is as good as stopped.
    pub(super) fn stop_pod(&mut self, id: &str, now: i64) {
        let running: Vec<String> = self.containers_of(id).map(|one| one.id.clone()).collect();
        for container in running {
            self.stop_container(&container, now);
        }
        let Some(pod) = self.pods.values_mut().find(|pod| pod.id == id) else { return };
        if std::mem::replace(&mut pod.is_ready, false) {
            self.tell(id, id, ContainerEventType::ContainerStoppedEvent, now);
        }
    }

    pub(super) fn remove_pod(&mut self, id: &str, now: i64) {
        self.stop_pod(id, now);
        let left: Vec<String> = self.containers_of(id).map(|one| one.id.clone()).collect();
        for container in left {
            self.remove_container(&container, now);
        }
        if self.pod(id).is_some() {
            self.tell(id, id, ContainerEventType::ContainerDeletedEvent, now);
        }
        self.pods.retain(|_, pod| pod.id != id);
    }

    pub(super) fn create_container(
        &mut self,
        request: v1::CreateContainerRequest,
        now: i64,
    ) -> Result<String, Status> {
        let pod_id = request.pod_sandbox_id;
        let Some(pod) = self.pod(&pod_id) else {
            return Err(unknown("failed to find sandbox id", &pod_id));
        };
        if !pod.is_ready {
            return Err(Status::not_found(format!(
                "failed to get sandbox container task: no running task found: task {pod_id} not found: not found"
            )));
        }
        let config = request.config.unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("container config must include metadata"));
        };
        let holder = self
            .containers_of(&pod_id)
            .find(|other| other.config.metadata.as_ref() == Some(metadata));
        if let Some(holder) = holder {
            let name = container_name(metadata, pod);
            return Err(Status::unknown(format!(
                "failed to reserve container name \"{name}\": name \"{name}\" is reserved for \"{}\"",
                holder.id
            )));
        }
        let cgroup_parent =
            pod.config.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
        let linux = config.linux.as_ref();
        let resources = linux.and_then(|linux| linux.resources.clone()).unwrap_or_default();
        let (key, id) = self.next_id();
        let container = Container {
            id: id.clone(),
            pod_id: pod_id.clone(),
            config,
            resources,
            cgroup_parent,
            state: ContainerState::ContainerCreated,
            created_at: now,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
        };
        self.containers.insert(key, container);
        self.tell(&id, &pod_id, ContainerEventType::ContainerCreatedEvent, now);
        Ok(id)
    }

    pub(super) fn start_container(&mut self, id: &str, now: i64) -> Result<(), Status> {
        let container = self.container(id)?;
        if container.state != ContainerState::ContainerCreated {
            return Err(Status::unknown(format!(
                "failed to set starting state for container \"{id}\": container is in {} state",
                container.state.as_str_name()
            )));
        }
        let pod_id = container.pod_id.clone();
        if !self.pod(&pod_id).is_some_and(|pod| pod.is_ready) {
            return Err(Status::unknown(format!("sandbox container \"{pod_id}\" is not running")));
        }
        if let Some(container) = self.container_mut(id) {
            container.state = ContainerState::ContainerRunning;
            container.started_at = now;
        }
        self.tell(id, &pod_id, ContainerEventType::ContainerStartedEvent, now);
        Ok(())
    }

    /// Ends a running container. Everything else, also an unknown one, is left as it is, and that is a success.
    pub(super) fn stop_container(&mut self, id: &str, now: i64) {
        let Some(container) = self.container_mut(id) else { return };
        if container.state != ContainerState::ContainerRunning {
            return;
        }
        container.state = ContainerState::ContainerExited;
        container.finished_at = now;
        container.exit_code = EXIT_CODE_KILLED;
        let pod_id = container.pod_id.clone();
        self.tell(id, &pod_id, ContainerEventType::ContainerStoppedEvent, now);
    }

    pub(super) fn remove_container(&mut self, id: &str, now: i64) {
        self.stop_container(id, now);
        let Ok(container) = self.container(id) else { return };
        let pod_id = container.pod_id.clone();
        self.containers.retain(|_, container| container.id != id);
        self.tell(id, &pod_id, ContainerEventType::ContainerDeletedEvent, now);
    }

    pub(super) fn update_container(
        &mut self,
        id: &str,
        update: v1::LinuxContainerResources,
    ) -> Result<(), Status> {
        let Some(container) = self.container_mut(id) else {
            return Err(Status::not_found("failed to find container: not found"));
        };
        merge(&mut container.resources, update);
        self.note_change();
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.pods.clear();
        self.containers.clear();
        self.note_change();
    }

    pub(super) fn record(&mut self) {
        self.record = Some(Vec::new());
        self.note_change();
    }

    pub(super) fn recorded(&self) -> Vec<Vec<ContainerSnapshot>> {
        self.record.clone().unwrap_or_default()
    }

    fn note_change(&mut self) {
        let Some(record) = &mut self.record else { return };
        let live = self.containers.values();
        let live = live.filter(|container| container.state != ContainerState::ContainerExited);
        record.push(live.map(render::snapshot).collect());
    }

    /// 64 hexadecimal digits that look like containerd's and repeat from run to run.
    fn next_id(&mut self) -> (u64, String) {
        self.made += 1;
        (self.made, render::hex_id(self.made))
    }

    fn tell(&mut self, id: &str, pod_id: &str, kind: ContainerEventType, now: i64) {
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now,
            pod_sandbox_status: self.pod(pod_id).map(render::pod_status),
            containers_statuses: self.containers_of(pod_id).map(render::container_status).collect(),
        };
        // Having no listener is ordinary.
        let _ = self.events.send(event);
        self.note_change();
    }
}

/// What an update leaves out (zero, empty) stays.
fn merge(held: &mut v1::LinuxContainerResources, update: v1::LinuxContainerResources) {
    let number = |held: &mut i64, new: i64| {
        if new != 0 {
            *held = new;
        }
    };
    number(&mut held.cpu_period, update.cpu_period);
    number(&mut held.cpu_quota, update.cpu_quota);
    number(&mut held.cpu_shares, update.cpu_shares);
    number(&mut held.memory_limit_in_bytes, update.memory_limit_in_bytes);
    number(&mut held.oom_score_adj, update.oom_score_adj);
    number(&mut held.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes);
    if !update.cpuset_cpus.is_empty() {
        held.cpuset_cpus = update.cpuset_cpus;
    }
    if !update.cpuset_mems.is_empty() {
        held.cpuset_mems = update.cpuset_mems;
    }
    if !update.hugepage_limits.is_empty() {
        held.hugepage_limits = update.hugepage_limits;
    }
    held.unified.extend(update.unified);
}

fn unknown(what: &str, id: &str) -> Status {
    Status::not_found(format!("{what} \"{id}\": not found"))
}

fn pod_name(pod: &v1::PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}", pod.name, pod.namespace, pod.uid, pod.attempt)
}

fn container_name(container: &v1::ContainerMetadata, pod: &Pod) -> String {
    let pod = pod.config.metadata.clone().unwrap_or_default();
    format!("{}_{}_{}_{}_{}", container.name, pod.name, pod.namespace, pod.uid, container.attempt)
}
