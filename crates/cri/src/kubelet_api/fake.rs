//! A stand-in for kubelet's sockets, for tests: it knows the pods that it is given, and can be stuck or tell nonsense.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use prost::Message as _;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::generated::core::{
    Container, ContainerStatus, ObjectMeta, OwnerReference, Pod, PodCondition, PodSpec, PodStatus,
    Quantity, ResourceRequirements,
};
use crate::generated::pods::pods_server::{Pods, PodsServer};
use crate::generated::pods::{
    GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, WatchPodsEvent,
    WatchPodsRequest,
};
use crate::generated::resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use crate::generated::resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use crate::server;

/// One container as its pod's author writes it.
#[derive(Clone, Debug, Default)]
pub struct FakeContainer {
    /// Its name.
    pub name: String,
    /// Requests as Kubernetes writes them: `cpu` is `2`.
    pub requests: BTreeMap<String, String>,
    /// Requests as it runs, where that is told.
    pub running: BTreeMap<String, String>,
    /// Devices: resource, ids, NUMA nodes.
    pub devices: Vec<(String, Vec<String>, Vec<i64>)>,
}

/// One pod.
#[derive(Clone, Debug, Default)]
pub struct FakePod {
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Kind and name of its controller.
    pub owner: Option<(String, String)>,
    /// Name of its priority class, and the priority.
    pub priority: Option<(String, i32)>,
    /// Type, status and reason of a condition.
    pub condition: Option<(String, String, String)>,
    /// Requests of the pod as a whole.
    pub requests: BTreeMap<String, String>,
    /// Containers that run before the others.
    pub init_containers: Vec<FakeContainer>,
    /// Its containers.
    pub containers: Vec<FakeContainer>,
}

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    #[default]
    Well,
    /// Not at all.
    Never,
    /// With bytes that are no pod.
    Nonsense,
    /// With an error.
    Refuses,
}

/// Cheap to clone; clones share everything.
#[derive(Clone, Debug, Default)]
pub struct FakeKubelet {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: watch::Sender<Vec<FakePod>>,
    manner: watch::Sender<Manner>,
    asked: watch::Sender<usize>,
}

impl FakeKubelet {
    /// Has these pods from now on.
    pub fn set_pods(&self, pods: Vec<FakePod>) {
        self.inner.pods.send_replace(pods);
    }

    /// Answers like this from now on.
    pub fn set_manner(&self, manner: Manner) {
        self.inner.manner.send_replace(manner);
    }

    /// Questions until now.
    pub fn asked(&self) -> usize {
        *self.inner.asked.borrow()
    }

    /// Serves both APIs until `shutdown`, and then cuts all connections.
    pub async fn serve(&self, listener: UnixListener, shutdown: impl Future<Output = ()>) {
        let mut routes = Routes::builder();
        routes
            .add_service(PodsServer::new(self.clone()))
            .add_service(PodResourcesListerServer::new(self.clone()));
        let service = routes.routes().prepare();
        server::serve::<_, Body>(listener, service, shutdown, std::future::ready(())).await;
    }

    fn pods(&self) -> Vec<FakePod> {
        self.inner.pods.borrow().clone()
    }

    /// Answers in the manner of now; one that is stuck answers in the next manner.
    async fn answer<T>(&self, well: impl Fn(bool) -> Result<T, Status>) -> Result<T, Status> {
        self.inner.asked.send_modify(|asked| *asked += 1);
        let mut manner = self.inner.manner.subscribe();
        let manner = manner.wait_for(|it| *it != Manner::Never).await;
        let manner = *manner.map_err(|_| Status::unavailable("it ends"))?;
        match manner {
            Manner::Well | Manner::Never => well(true),
            Manner::Nonsense => well(false),
            Manner::Refuses => Err(Status::resource_exhausted("too many requests")),
        }
    }
}

fn bytes(pod: &FakePod, is_well: bool) -> Vec<u8> {
    match is_well {
        true => encode(pod),
        false => vec![0xff; 40],
    }
}

fn requirements(requests: &BTreeMap<String, String>) -> Option<ResourceRequirements> {
    let quantities =
        requests.iter().map(|(name, amount)| (name.clone(), Quantity { string: amount.clone() }));
    let requests: BTreeMap<_, _> = quantities.collect();
    Some(ResourceRequirements { requests, ..ResourceRequirements::default() })
}

/// A pod as kubelet sends it.
pub(crate) fn encode(pod: &FakePod) -> Vec<u8> {
    let container = |it: &FakeContainer| Container {
        name: it.name.clone(),
        resources: requirements(&it.requests),
    };
    let status = |it: &FakeContainer| ContainerStatus {
        name: it.name.clone(),
        resources: requirements(&it.running).filter(|_| !it.running.is_empty()),
    };
    let owner = pod.owner.iter().map(|(kind, name)| OwnerReference {
        kind: kind.clone(),
        name: name.clone(),
        controller: Some(true),
    });
    let condition = pod.condition.iter().map(|(kind, status, reason)| PodCondition {
        r#type: kind.clone(),
        status: status.clone(),
        reason: reason.clone(),
    });
    let (priority_class_name, priority) = pod.priority.clone().unzip();
    Pod {
        metadata: Some(ObjectMeta {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
            annotations: pod.annotations.clone(),
            owner_references: owner.collect(),
        }),
        spec: Some(PodSpec {
            containers: pod.containers.iter().map(container).collect(),
            init_containers: pod.init_containers.iter().map(container).collect(),
            priority_class_name: priority_class_name.unwrap_or_default(),
            priority,
            resources: requirements(&pod.requests),
        }),
        status: Some(PodStatus {
            conditions: condition.collect(),
            container_statuses: pod.containers.iter().map(status).collect(),
            init_container_statuses: pod.init_containers.iter().map(status).collect(),
        }),
    }
    .encode_to_vec()
}

#[tonic::async_trait]
impl Pods for FakeKubelet {
    async fn list_pods(
        &self,
        _: Request<ListPodsRequest>,
    ) -> Result<Response<ListPodsResponse>, Status> {
        let pods = self.pods();
        let list = |is_well| {
            let pods = pods.iter().map(|pod| bytes(pod, is_well)).collect();
            Ok(Response::new(ListPodsResponse { pods }))
        };
        self.answer(list).await
    }

    async fn get_pod(
        &self,
        request: Request<GetPodRequest>,
    ) -> Result<Response<GetPodResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        let found = self.pods().into_iter().find(|pod| pod.uid == uid);
        let get = |is_well| match &found {
            Some(pod) => Ok(Response::new(GetPodResponse { pod: bytes(pod, is_well) })),
            None => Err(Status::not_found("no such pod")),
        };
        self.answer(get).await
    }

    async fn watch_pods(
        &self,
        _: Request<WatchPodsRequest>,
    ) -> Result<Response<BoxStream<WatchPodsEvent>>, Status> {
        let pods = self.inner.pods.subscribe();
        let watch = |is_well| {
            let events: BoxStream<WatchPodsEvent> = Box::pin(changes(pods.clone(), is_well));
            Ok(Response::new(events))
        };
        self.answer(watch).await
    }
}

/// All pods, an event of a kind without a pod, and all pods again whenever they are others.
fn changes(
    pods: watch::Receiver<Vec<FakePod>>,
    is_well: bool,
) -> impl Stream<Item = Result<WatchPodsEvent, Status>> {
    let event = move |kind: i32, pods: &[FakePod]| -> Vec<Result<WatchPodsEvent, Status>> {
        let told = pods.iter().map(|pod| WatchPodsEvent { r#type: kind, pod: bytes(pod, is_well) });
        told.chain([WatchPodsEvent { r#type: 3, pod: Vec::new() }]).map(Ok).collect()
    };
    let next = move |(mut pods, kind): (watch::Receiver<Vec<FakePod>>, i32)| async move {
        if kind > 0 {
            pods.changed().await.ok()?;
        }
        let events = event(kind, &pods.borrow_and_update());
        Some((stream::iter(events), (pods, 1)))
    };
    stream::unfold((pods, 0), next).flatten()
}

fn resources_of(pod: &FakePod) -> PodResources {
    let containers = pod.init_containers.iter().chain(&pod.containers);
    let containers = containers.map(|it| ContainerResources {
        name: it.name.clone(),
        devices: it.devices.iter().map(device).collect(),
    });
    PodResources {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        containers: containers.collect(),
    }
}

fn device((resource, ids, nodes): &(String, Vec<String>, Vec<i64>)) -> ContainerDevices {
    let nodes = nodes.iter().map(|id| NumaNode { id: *id }).collect();
    ContainerDevices {
        resource_name: resource.clone(),
        device_ids: ids.clone(),
        topology: Some(TopologyInfo { nodes }),
    }
}

#[tonic::async_trait]
impl PodResourcesLister for FakeKubelet {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources: Vec<PodResources> = self.pods().iter().map(resources_of).collect();
        let list = |_| {
            let pod_resources = pod_resources.clone();
            Ok(Response::new(ListPodResourcesResponse { pod_resources }))
        };
        self.answer(list).await
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let pods = self.pods();
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        let devices: Vec<ContainerDevices> =
            containers.flat_map(|it| it.devices.iter().map(device)).collect();
        let get = |_| {
            let devices = devices.clone();
            Ok(Response::new(AllocatableResourcesResponse { devices }))
        };
        self.answer(get).await
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let is_it = |pod: &&FakePod| pod.name == pod_name && pod.namespace == pod_namespace;
        let pod_resources = self.pods().iter().find(is_it).map(resources_of);
        let get = |_| match &pod_resources {
            Some(pod) => {
                let pod_resources = Some(pod.clone());
                Ok(Response::new(GetPodResourcesResponse { pod_resources }))
            }
            None => Err(Status::not_found("no such pod")),
        };
        self.answer(get).await
    }
}
