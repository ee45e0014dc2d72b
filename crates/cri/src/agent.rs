//! What the proxy asks of the daemon. In: CRI calls translated to plain values. Out: where a container goes, or why not.
//!
//! The proxy holds no state of its own: it asks before a call that needs a decision, forwards the call, and tells how it ended.

use std::future::Future;

pub use bayplan_types::Pinning;

use crate::translate::{NewContainer, Pod, Resources};

/// Names one container creation from the question to its outcome; the runtime's id does not exist yet when the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The daemon's answer before a container is created or its resources are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one lives as long as one call")]
pub enum Admission {
    /// Run it here. Everybody else has let go of these CPUs, unless the runtime failed to make them, which is counted and repeated.
    Place(Pinning),
    /// Forward the call as it came: the container is not bayplan's to place, or there was no answer in time.
    PassThrough,
    /// Answer kubelet with `RESOURCE_EXHAUSTED` and this text; the runtime is not called.
    Refuse(String),
    /// Answer kubelet with `UNAVAILABLE` and this text, so that it tries again; the runtime is not called.
    Unavailable(String),
}

/// A directory of the host that a container sees, and cannot change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it sees it.
    pub container_path: String,
    /// Where it is.
    pub host_path: String,
}

/// How a forwarded creation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The runtime made it under this id. `pinned` is false when the call was forwarded without bayplan's CPU set.
    Created {
        /// The runtime's container id.
        id: String,
        /// Whether the forwarded request carried the pinning.
        pinned: bool,
    },
    /// The runtime answered with an error: there is no such container.
    Failed,
    /// The call was cancelled, timed out, or the connection broke: the runtime may or may not have made it.
    Unknown,
}

/// The daemon as the proxy sees it. Every method answers within the daemon's own deadline.
pub trait Agent: Clone + Send + Sync + 'static {
    /// `RunPodSandbox` succeeded.
    fn pod_started(&self, pod: Pod) -> impl Future<Output = ()> + Send;
    /// `StopPodSandbox` or `RemovePodSandbox` succeeded, or the runtime does not know the sandbox (`NOT_FOUND`):
    /// none of its containers runs any more.
    fn pod_ended(&self, pod_id: &str) -> impl Future<Output = ()> + Send;
    /// `UpdatePodSandboxResources` arrived: what the containers of the pod need together has changed.
    fn pod_resized(&self, pod_id: &str, resources: Resources) -> impl Future<Output = ()> + Send;
    /// `CreateContainer` arrived.
    fn admit(
        &self,
        ticket: Ticket,
        container: NewContainer,
    ) -> impl Future<Output = Admission> + Send;
    /// What a container that was just placed gets mounted. Must not block.
    fn mounts(&self, pod_id: &str, name: &str, attempt: u32) -> Vec<Mount>;
    /// The admitted creation came to an end. Called exactly once for each `admit` that was not refused.
    fn created(&self, ticket: Ticket, outcome: CreateOutcome) -> impl Future<Output = ()> + Send;
    /// `StartContainer` arrived. The container has its cgroup, and none of its instructions has run; the call is forwarded when this is over.
    fn starting(&self, container_id: &str) -> impl Future<Output = ()> + Send;
    /// `StartContainer` succeeded.
    fn started(&self, container_id: &str) -> impl Future<Output = ()> + Send;
    /// `StopContainer` or `RemoveContainer` succeeded, or the runtime does not know the container (`NOT_FOUND`).
    fn ended(&self, container_id: &str) -> impl Future<Output = ()> + Send;
    /// `UpdateContainerResources` arrived from kubelet.
    fn resize(
        &self,
        container_id: &str,
        resources: Resources,
    ) -> impl Future<Output = Admission> + Send;
    /// The forwarded `UpdateContainerResources` has ended; `is_answered` is false when the runtime may still be at work on it. Awaited
    /// before the reply leaves.
    fn resized(&self, container_id: &str, is_answered: bool) -> impl Future<Output = ()> + Send;
    /// A proxied call ended with this gRPC status code (`0` is OK). `method` is the path, e.g.
    /// `/runtime.v1.RuntimeService/Version`. Must not block.
    fn call_ended(&self, method: &str, code: u32);
    /// A call that creates a container or changes its resources cannot be read; `why` is a short fixed word. Whether it is forwarded unchanged. Must not block.
    ///
    /// # Errors
    /// It is not, and kubelet gets `RESOURCE_EXHAUSTED` and this text.
    fn may_pass(&self, method: &str, why: &'static str) -> Result<(), String>;
    /// The call was forwarded unchanged although it is one that is normally decoded; `why` is a short fixed word. Must not block.
    fn passed_through(&self, method: &str, why: &'static str);
    /// The call was forwarded unread: it is one that is normally decoded, in a version of CRI that is not (`/runtime.v2.RuntimeService/CreateContainer`).
    /// Must not block.
    fn other_version(&self, method: &str);
}
