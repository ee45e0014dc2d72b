//! Kubelet's local sockets, which only root can reach. In: a pod's uid or name. Out: what kubelet knows of it, as plain values.
//!
//! | Socket | What it tells |
//! |---|---|
//! | PodsAPI (KEP-4188, on by default since Kubernetes 1.37) | pods with kubelet's own current status |
//! | podresources (version 1) | which devices each container has, and on which NUMA nodes they are |
//!
//! Nothing here bounds its own time: callers put a limit around each question, and dropping a question ends it.

pub mod fake;
mod messages;
mod pod;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bayplan_types::NodeId;
use bayplan_workload::{AssignedDevices, PodFacts};
use futures::{Stream, StreamExt as _, TryFutureExt as _, TryStreamExt as _, future, stream};
use tonic::{Code, Status};

use crate::frame::MESSAGE_LEN_MAX;
use crate::upstream::Upstream;
use messages::pods::pods_client::PodsClient;
use messages::resources::pod_resources_lister_client::PodResourcesListerClient;
use messages::{pods, resources};

pub(crate) use pod::parse_pod;

/// Bounds questions for which a caller forgot to.
const LIMIT: Duration = Duration::from_secs(10);
/// Kinds of watch events that carry a whole pod.
const ADDED_OR_MODIFIED: [i32; 2] = [0, 1];

/// Why kubelet has not told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kubelet at {} has not told of pods: {why}", socket.display())]
pub struct KubeletError {
    socket: PathBuf,
    why: String,
}

/// Kubelet's PodsAPI. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct KubeletPods {
    upstream: Upstream,
}

impl KubeletPods {
    /// At this socket, to which no connection is made yet.
    pub fn new(socket: PathBuf) -> KubeletPods {
        KubeletPods { upstream: Upstream::new(socket, LIMIT) }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        self.upstream.socket()
    }

    fn client(&self) -> PodsClient<Upstream> {
        PodsClient::with_origin(self.upstream.clone(), Upstream::origin())
            .max_decoding_message_size(MESSAGE_LEN_MAX)
    }

    /// The pod of this uid; `None`: kubelet does not know it.
    ///
    /// # Errors
    /// [`KubeletError`].
    pub async fn get(&self, uid: &str) -> Result<Option<PodFacts>, KubeletError> {
        let mut client = self.client();
        let asked = client.get_pod(pods::GetPodRequest { pod_uid: uid.to_owned() }).await;
        match asked {
            Ok(answer) => self.parse(&answer.into_inner().pod).map(Some),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// All pods of the node; those that cannot be read are left out.
    ///
    /// # Errors
    /// [`KubeletError`]; also where none of several pods can be read.
    pub async fn list(&self) -> Result<Vec<PodFacts>, KubeletError> {
        let mut client = self.client();
        let asked = client.list_pods(pods::ListPodsRequest {}).await;
        let answer = asked.map_err(|status| self.failed(&status))?.into_inner();
        let parsed = answer.pods.iter().map(|bytes| self.parse(bytes));
        let (found, mut odd): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
        match (found.is_empty(), odd.pop()) {
            (true, Some(Err(why))) => Err(why),
            _ => Ok(found.into_iter().flatten().collect()),
        }
    }

    /// Pods that are there, that come, and that have another status, until kubelet goes away. A change of annotations alone is not told.
    pub fn watch(&self) -> impl Stream<Item = Result<PodFacts, KubeletError>> + use<> {
        let (pods, mut client) = (self.clone(), self.client());
        let call = async move { client.watch_pods(pods::WatchPodsRequest {}).await };
        let events = stream::once(call.map_ok(tonic::Response::into_inner)).try_flatten();
        events.filter_map(move |event| {
            future::ready(match event {
                Ok(event) if ADDED_OR_MODIFIED.contains(&event.r#type) => {
                    Some(pods.parse(&event.pod))
                }
                Ok(_) => None,
                Err(status) => Some(Err(pods.failed(&status))),
            })
        })
    }

    fn parse(&self, bytes: &[u8]) -> Result<PodFacts, KubeletError> {
        parse_pod(bytes).map_err(|why| KubeletError { socket: self.socket().into(), why })
    }

    fn failed(&self, status: &Status) -> KubeletError {
        failed(&self.upstream, status)
    }
}

/// Kubelet's podresources API. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct PodResources {
    upstream: Upstream,
}

impl PodResources {
    /// At this socket, to which no connection is made yet.
    pub fn new(socket: PathBuf) -> PodResources {
        PodResources { upstream: Upstream::new(socket, LIMIT) }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        self.upstream.socket()
    }

    fn client(&self) -> PodResourcesListerClient<Upstream> {
        PodResourcesListerClient::with_origin(self.upstream.clone(), Upstream::origin())
            .max_decoding_message_size(MESSAGE_LEN_MAX)
    }

    /// The devices of one container; empty where it has none, or kubelet does not know its pod.
    ///
    /// # Errors
    /// [`KubeletError`]; kubelet before 1.36 may not know the question ([`Self::list`] is the older one).
    pub async fn of(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<AssignedDevices>, KubeletError> {
        let request = resources::GetPodResourcesRequest {
            pod_name: pod.to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        match self.client().get(request).await {
            Ok(answer) => {
                let pod = answer.into_inner().pod_resources;
                Ok(pod.map(|pod| devices_of(pod, container)).unwrap_or_default())
            }
            Err(status) if status.code() == Code::NotFound => Ok(Vec::new()),
            // Kubelet without the gate `KubeletPodResourcesGet` says so in one of these ways.
            Err(status) if [Code::Unimplemented, Code::Unknown].contains(&status.code()) => {
                self.of_listed(namespace, pod, container).await
            }
            Err(status) => Err(failed(&self.upstream, &status)),
        }
    }

    async fn of_listed(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<AssignedDevices>, KubeletError> {
        let listed = self.client().list(resources::ListPodResourcesRequest {}).await;
        let listed = listed.map_err(|status| failed(&self.upstream, &status))?.into_inner();
        let mut pods = listed.pod_resources.into_iter();
        let found = pods.find(|it| it.namespace == namespace && it.name == pod);
        Ok(found.map(|pod| devices_of(pod, container)).unwrap_or_default())
    }

    /// Every device of the node that kubelet can give to containers.
    ///
    /// # Errors
    /// [`KubeletError`].
    pub async fn allocatable(&self) -> Result<Vec<AssignedDevices>, KubeletError> {
        let request = resources::AllocatableResourcesRequest {};
        let answer = self.client().get_allocatable_resources(request).await;
        let answer = answer.map_err(|status| failed(&self.upstream, &status))?;
        Ok(answer.into_inner().devices.into_iter().map(devices).collect())
    }
}

fn failed(upstream: &Upstream, status: &Status) -> KubeletError {
    let why = format!("{:?}: {}", status.code(), status.message());
    KubeletError { socket: upstream.socket().into(), why }
}

fn devices_of(pod: resources::PodResources, container: &str) -> Vec<AssignedDevices> {
    let found = pod.containers.into_iter().find(|it| it.name == container);
    found.into_iter().flat_map(|it| it.devices).map(devices).collect()
}

fn devices(devices: resources::ContainerDevices) -> AssignedDevices {
    let nodes = devices.topology.into_iter().flat_map(|it| it.nodes);
    AssignedDevices {
        resource: devices.resource_name,
        ids: devices.device_ids,
        nodes: nodes.filter_map(|node| u32::try_from(node.id).ok()).map(NodeId).collect(),
    }
}

#[cfg(test)]
mod tests;
