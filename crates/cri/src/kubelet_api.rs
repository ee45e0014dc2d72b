//! Kubelet's local sockets, which only root can reach. In: a pod's uid or name. Out: what kubelet knows of it, as plain values.
//!
//! | Socket | What it tells |
//! |---|---|
//! | PodsAPI (KEP-4188, on by default since Kubernetes 1.37) | pods with kubelet's own current status |
//! | podresources (version 1) | which devices each container has, and on which NUMA nodes they are |
//!
//! Nothing here bounds its own time: callers put a limit around each question, and dropping a question ends it.

pub mod fake;
mod pod;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_types::NodeId;
use bayplan_workload::{AssignedDevices, Inventory, PodFacts};
use futures::{Stream, StreamExt as _, TryFutureExt as _, TryStreamExt as _, future, stream};
use tonic::{Code, Status};

use crate::frame::MESSAGE_LEN_MAX;
use crate::generated::pods::pods_client::PodsClient;
use crate::generated::resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::generated::{pods, resources};
use crate::upstream::Upstream;

pub(crate) use pod::parse_pod;
pub use pod::parse_pods_json;

/// Bounds questions for which a caller forgot to.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest list of pods; what its authors write into 250 pods may be more.
const LIST_LEN_MAX: usize = 64 << 20;
/// Devices of one container of which the names are kept, and the longest name.
const IDS_MAX: usize = 128;
const ID_LEN_MAX: usize = 255;
/// Kinds of watch events that carry a whole pod.
const ADDED_OR_MODIFIED: [i32; 2] = [0, 1];

/// Why kubelet has not told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kubelet at {} has not told of pods: {why}", socket.display())]
pub struct KubeletError {
    socket: PathBuf,
    why: String,
    kind: ErrorKind,
}

/// What a caller can make of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Nothing listens, or the connection broke: there is no answer.
    Away,
    /// Kubelet is asked too often at the moment.
    Busy,
    /// The answer is longer than what is read.
    TooLong,
    /// Any other answer that does not help.
    Refused,
}

impl KubeletError {
    /// What can be made of it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
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

    fn client(&self, len_max: usize) -> PodsClient<Upstream> {
        PodsClient::with_origin(self.upstream.clone(), Upstream::origin())
            .max_decoding_message_size(len_max)
    }

    /// The pod of this uid; `None`: kubelet does not know it.
    ///
    /// # Errors
    /// [`KubeletError`].
    pub async fn get(&self, uid: &str) -> Result<Option<PodFacts>, KubeletError> {
        let mut client = self.client(MESSAGE_LEN_MAX);
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
        self.list_within(LIST_LEN_MAX).await
    }

    async fn list_within(&self, len_max: usize) -> Result<Vec<PodFacts>, KubeletError> {
        let mut client = self.client(len_max);
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
        let (pods, mut client) = (self.clone(), self.client(MESSAGE_LEN_MAX));
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
        let kind = ErrorKind::Refused;
        parse_pod(bytes).map_err(|why| KubeletError { socket: self.socket().into(), why, kind })
    }

    fn failed(&self, status: &Status) -> KubeletError {
        failed(&self.upstream, status)
    }
}

/// Kubelet's podresources API. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct PodResources {
    upstream: Upstream,
    /// Kubelet has said that it has no `Get`; this holds until it is away once.
    lacks_get: Arc<AtomicBool>,
}

impl PodResources {
    /// At this socket, to which no connection is made yet.
    pub fn new(socket: PathBuf) -> PodResources {
        PodResources { upstream: Upstream::new(socket, LIMIT), lacks_get: Arc::default() }
    }

    fn client(&self) -> PodResourcesListerClient<Upstream> {
        PodResourcesListerClient::with_origin(self.upstream.clone(), Upstream::origin())
            .max_decoding_message_size(MESSAGE_LEN_MAX)
    }

    /// The devices of one container; empty where it has none, where kubelet does not know its pod, and where several pods have that name.
    ///
    /// # Errors
    /// [`KubeletError`]; kubelet before 1.36 may not know the question (`List` is the older one).
    pub async fn of(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<AssignedDevices>, KubeletError> {
        if self.lacks_get.load(Ordering::Relaxed) {
            return self.of_listed(namespace, pod, container).await;
        }
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
                // `Unknown` may also stand for a pod that it does not know.
                let is_lacking = status.code() == Code::Unimplemented
                    || status.message().contains("method disabled");
                self.lacks_get.store(is_lacking, Ordering::Relaxed);
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
        let listed = listed.map_err(|status| {
            let error = failed(&self.upstream, &status);
            if error.kind == ErrorKind::Away {
                // Another kubelet may have it.
                self.lacks_get.store(false, Ordering::Relaxed);
            }
            error
        });
        Ok(devices_named(listed?.into_inner().pod_resources, namespace, pod, container))
    }

    /// Every device of the node that kubelet gives to containers, and those that containers have.
    ///
    /// # Errors
    /// [`KubeletError`].
    pub async fn inventory(&self) -> Result<Inventory, KubeletError> {
        let request = resources::AllocatableResourcesRequest {};
        let there = self.client().get_allocatable_resources(request).await;
        let there = there.map_err(|status| failed(&self.upstream, &status))?.into_inner().devices;
        let listed = self.client().list(resources::ListPodResourcesRequest {}).await;
        let pods = listed.map_err(|status| failed(&self.upstream, &status))?.into_inner();
        let containers = pods.pod_resources.into_iter().flat_map(|it| it.containers);
        let given = containers.flat_map(|it| it.devices);
        Ok(Inventory {
            allocatable: there.into_iter().map(devices).collect(),
            given: given.map(devices).collect(),
        })
    }
}

fn failed(upstream: &Upstream, status: &Status) -> KubeletError {
    let why = format!("{:?}: {}", status.code(), status.message());
    let kind = match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => ErrorKind::Away,
        Code::ResourceExhausted => ErrorKind::Busy,
        Code::OutOfRange => ErrorKind::TooLong,
        _ => ErrorKind::Refused,
    };
    KubeletError { socket: upstream.socket().into(), why, kind }
}

/// A pod that has ended and the one in its place may have one name; which of them is asked about is not told.
fn devices_named(
    pods: Vec<resources::PodResources>,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Vec<AssignedDevices> {
    let mut found = pods.into_iter().filter(|it| it.namespace == namespace && it.name == pod);
    match (found.next(), found.next()) {
        (Some(pod), None) => devices_of(pod, container),
        _ => Vec::new(),
    }
}

fn devices_of(pod: resources::PodResources, container: &str) -> Vec<AssignedDevices> {
    let found = pod.containers.into_iter().find(|it| it.name == container);
    let found = found.into_iter().flat_map(|it| it.devices).map(devices);
    // What a plugin says goes into the journal.
    let mut left = IDS_MAX;
    let bounded = found.filter(|it| it.resource.len() <= ID_LEN_MAX).take(IDS_MAX).map(|mut it| {
        it.ids.retain(|id| id.len() <= ID_LEN_MAX);
        it.ids.truncate(left);
        left -= it.ids.len();
        it
    });
    bounded.collect()
}

fn devices(devices: resources::ContainerDevices) -> AssignedDevices {
    let nodes = devices.topology.into_iter().flat_map(|it| it.nodes);
    AssignedDevices {
        resource: devices.resource_name,
        ids: devices.device_ids,
        // A set has room for its largest member, and some plugins say -1.
        nodes: nodes
            .filter_map(|it| u16::try_from(it.id).ok())
            .map(|it| NodeId(it.into()))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
