//! What the tests of this crate share: a runtime, a proxy and a recording agent, each on its own socket in a temporary folder.

use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_workload::{
    Admission, Agent, CreateOutcome, Mount, NewContainer, Pinning, Pod, ResizeOutcome, Resources,
    Ticket,
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use crate::call_observer::CallObserver;
use crate::embedded::EmbeddedRuntime;
use crate::proxy::{self, Proxy};
use crate::server;
use crate::upstream::Upstream;
use crate::v1;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// Far beyond anything a test waits for; it turns a test that hangs into one that fails.
const STUCK: Duration = Duration::from_secs(30);

/// How long a stop of the proxy waits for calls that take long.
pub(crate) const DRAIN: Duration = Duration::from_secs(4);

/// Waits for what must happen.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(STUCK, future).await.expect("nothing happened")
}

/// Writes down what it hears, one line each.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    lines: Arc<watch::Sender<Vec<String>>>,
    admission: Arc<Mutex<Admission>>,
    /// `created` takes one permit before it returns.
    pub(crate) created_gate: Arc<Semaphore>,
}

impl Recorder {
    pub(crate) fn new(admission: Admission) -> Recorder {
        Recorder {
            lines: Arc::default(),
            admission: Arc::new(Mutex::new(admission)),
            created_gate: Arc::new(Semaphore::new(1000)),
        }
    }

    pub(crate) fn set_admission(&self, admission: Admission) {
        *self.admission.lock().unwrap() = admission;
    }

    /// From now on `admit` and `resize` panic.
    pub(crate) fn break_admission(&self) {
        let held = Arc::clone(&self.admission);
        let poisons = move || {
            let _held = held.lock().unwrap();
            panic!("a bug in the agent");
        };
        std::thread::spawn(poisons).join().unwrap_err();
    }

    fn admission(&self) -> Admission {
        self.admission.lock().unwrap().clone()
    }

    fn write(&self, line: String) {
        self.lines.send_modify(|lines| lines.push(line));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// Everything but the ends of calls.
    pub(crate) fn heard(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| !line.starts_with("call "));
        lines
    }

    pub(crate) async fn wait_for(&self, line: &str) {
        let mut lines = self.lines.subscribe();
        soon(lines.wait_for(|lines| lines.iter().any(|known| known == line))).await.unwrap();
    }
}

impl Agent for Recorder {
    async fn pod_started(&self, pod: Pod) {
        self.write(format!("pod started {} {}", pod.name, pod.id.len()));
    }

    async fn pod_ended(&self, pod_id: &str) {
        self.write(format!("pod ended {pod_id}"));
    }

    async fn pod_resized(&self, pod_id: &str, resources: Resources) {
        self.write(format!("pod resized {pod_id} shares {}", resources.cpu_shares));
    }

    fn mounts(&self, _: &str, _: &str, _: u32) -> Vec<Mount> {
        Vec::new()
    }

    async fn admit(&self, ticket: Ticket, container: NewContainer) -> Admission {
        self.write(format!("admit #{} {}/{}", ticket.0, container.pod.name, container.name));
        self.admission()
    }

    async fn created(&self, ticket: Ticket, outcome: CreateOutcome) {
        self.write(match outcome {
            CreateOutcome::Created { id, pinned } => {
                format!("created #{} {} pinned {pinned}", ticket.0, id.len())
            }
            other => format!("created #{} {other:?}", ticket.0),
        });
        self.created_gate.acquire().await.unwrap().forget();
    }

    async fn starting(&self, container_id: &str) -> Result<(), String> {
        self.write(format!("starting {container_id}"));
        Ok(())
    }

    async fn started(&self, container_id: &str) {
        self.write(format!("started {container_id}"));
    }

    async fn ended(&self, container_id: &str) {
        self.write(format!("ended {container_id}"));
    }

    async fn resize(&self, container_id: &str, resources: Resources) -> Admission {
        self.write(format!("resize {container_id} quota {}", resources.cpu_quota));
        self.admission()
    }

    async fn resized(&self, container_id: &str, outcome: ResizeOutcome) {
        self.write(format!("resized {container_id} {outcome:?}"));
    }

    fn may_pass(&self, _: &str, why: &'static str) -> Result<(), String> {
        match self.admission() {
            Admission::Refuse(_) => Err(format!("cannot be read: {why}")),
            _ => Ok(()),
        }
    }
}

impl CallObserver for Recorder {
    fn call_ended(&self, method: &str, code: u32) {
        let name = method.rsplit('/').next().unwrap_or_default();
        self.write(format!("call {name} {code}"));
    }

    fn passed_through(&self, method: &str, why: &'static str) {
        let name = method.rsplit('/').next().unwrap_or_default();
        self.write(format!("passed {name} {why}"));
    }

    fn other_version(&self, method: &str) {
        self.write(format!("other version {method}"));
    }
}

pub(crate) fn pinning(cpus: &str, mems: &str) -> Pinning {
    Pinning { cpus: cpus.parse().unwrap(), mems: mems.parse().unwrap() }
}

/// A server that can be stopped.
pub(crate) struct Running {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(CancellationToken) -> F,
    ) -> Running {
        let stop = CancellationToken::new();
        Running { stop: stop.clone(), task: Some(tokio::spawn(serve(stop))) }
    }

    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stop(&mut self) {
        self.begin_stop();
        if let Some(task) = self.task.take() {
            soon(task).await.unwrap();
        }
    }
}

/// Kubelet's view: a proxy in front of a runtime.
pub(crate) struct House {
    pub(crate) runtime: EmbeddedRuntime,
    pub(crate) agent: Recorder,
    pub(crate) runtime_server: Running,
    pub(crate) proxy_server: Running,
    pub(crate) runtime_socket: PathBuf,
    proxy_socket: PathBuf,
    _folder: TempDir,
}

impl House {
    /// With the embedded runtime.
    pub(crate) fn new(admission: Admission) -> House {
        let runtime = EmbeddedRuntime::new();
        let served = runtime.clone();
        House::with_runtime(admission, runtime, |listener, stop| async move {
            served.serve(listener, stop.cancelled()).await;
        })
    }

    /// With a runtime that answers bare requests, for what no generated client can send.
    pub(crate) fn with_raw_runtime<F>(
        admission: Admission,
        answer: impl FnMut(Request<Body>) -> F + Clone + Send + Sync + 'static,
    ) -> House
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        House::with_runtime(admission, EmbeddedRuntime::new(), |listener, stop| async move {
            let mut answer = answer;
            let service = tower::service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            server::serve::<_, Body>(listener, service, stop.cancelled(), std::future::ready(()))
                .await;
        })
    }

    /// With whatever listens.
    pub(crate) fn with_runtime<F: Future<Output = ()> + Send + 'static>(
        admission: Admission,
        runtime: EmbeddedRuntime,
        serve: impl FnOnce(UnixListener, CancellationToken) -> F,
    ) -> House {
        let folder = tempfile::tempdir().unwrap();
        let runtime_socket = folder.path().join("runtime.sock");
        let proxy_socket = folder.path().join("bayplan.sock");
        let agent = Recorder::new(admission);
        let runtime_listener = UnixListener::bind(&runtime_socket).unwrap();
        let proxy_listener = UnixListener::bind(&proxy_socket).unwrap();
        let proxy = Proxy::new(Upstream::new(runtime_socket.clone(), STUCK), None, agent.clone());
        House {
            runtime,
            agent,
            runtime_server: Running::start(|stop| serve(runtime_listener, stop)),
            proxy_server: Running::start(|stop| async move {
                proxy::serve(proxy_listener, proxy, stop.cancelled(), || DRAIN).await;
            }),
            runtime_socket,
            proxy_socket,
            _folder: folder,
        }
    }

    pub(crate) fn kubelet(&self) -> Upstream {
        Upstream::new(self.proxy_socket.clone(), STUCK)
    }

    pub(crate) fn kubelet_socket(&self) -> &Path {
        &self.proxy_socket
    }

    pub(crate) fn client(&self) -> RuntimeServiceClient<Upstream> {
        self.kubelet().runtime_client()
    }

    /// Sends one body and reads the whole answer.
    pub(crate) async fn send(&self, path: &str, headers: HeaderMap, body: Bytes) -> RawAnswer {
        let mut request = Request::post(path).body(Body::new(Full::new(body))).unwrap();
        request.headers_mut().extend(headers);
        let (head, body) = soon(self.kubelet().forward(request)).await.unwrap().into_parts();
        let body = soon(body.collect()).await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        RawAnswer { headers: head.headers, body: body.to_bytes(), trailers }
    }
}

/// A whole answer.
pub(crate) struct RawAnswer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A pod to run.
pub(crate) fn run_pod(name: &str) -> v1::RunPodSandboxRequest {
    v1::RunPodSandboxRequest { config: Some(pod_config(name)), ..Default::default() }
}

fn pod_config(name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        labels: [("app".to_owned(), name.to_owned())].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: "/kubepods.slice/kubepods-pod1.slice".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A container for a pod.
pub(crate) fn create(pod_id: &str, name: &str) -> v1::CreateContainerRequest {
    v1::CreateContainerRequest {
        pod_sandbox_id: pod_id.to_owned(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "busybox".to_owned(), ..Default::default() }),
            labels: [("name".to_owned(), name.to_owned())].into(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_shares: 2048,
                    cpu_quota: 200_000,
                    cpu_period: 100_000,
                    memory_limit_in_bytes: 1 << 30,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        sandbox_config: Some(pod_config("pod")),
    }
}
