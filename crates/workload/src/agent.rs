//! The seam between front ends and the node. In: what a front end heard of pods and containers, as plain values. Out: where a container goes, or
//! why not.
//!
//! A front end holds no state of its own: it asks before a call that needs a decision, lets the call go on, and tells how it ended.

use std::future::Future;

use bayplan_types::ThreadScheduling;

use crate::admission::{Admission, CreateOutcome, Mount, ResizeOutcome, Ticket};
use crate::container::{NewContainer, Pod};
use crate::resources::Resources;

/// The node as a front end sees it. Every method answers within the daemon's own deadline.
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
    /// Whether a container that was just placed has its CPUs by CMK's words in its command or environment, which are to be taken out of its command then; and what is added to its
    /// environment.
    fn pool_environment(
        &self,
        _ticket: Ticket,
    ) -> impl Future<Output = Option<Vec<(String, String)>>> + Send {
        std::future::ready(None)
    }
    /// What the threads of a container that was just placed are to say of themselves. Asked by front ends that can set it.
    fn thread_scheduling(
        &self,
        _ticket: Ticket,
        _pod: &Pod,
    ) -> impl Future<Output = ThreadScheduling> + Send {
        std::future::ready(ThreadScheduling::default())
    }
    /// What a container that was just placed gets mounted. Must not block.
    fn mounts(&self, pod_id: &str, name: &str, attempt: u32) -> Vec<Mount>;
    /// The admitted creation came to an end. Called exactly once for each `admit` that was not refused.
    fn created(&self, ticket: Ticket, outcome: CreateOutcome) -> impl Future<Output = ()> + Send;
    /// `StartContainer` arrived. The container has its cgroup, and none of its instructions has run; the call is forwarded when this is over.
    ///
    /// # Errors
    /// Its kernel files are not in place, and `onFailure` is `closed`: a front end that can refuse the start does, with this text.
    fn starting(&self, container_id: &str) -> impl Future<Output = Result<(), String>> + Send;
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
    /// The forwarded `UpdateContainerResources` has ended. Awaited before the reply leaves. Not called where it was refused.
    fn resized(
        &self,
        container_id: &str,
        outcome: ResizeOutcome,
    ) -> impl Future<Output = ()> + Send;
    /// A call that creates a container or changes its resources cannot be read; `why` is a short fixed word. Whether it is forwarded unchanged. Must not block.
    ///
    /// # Errors
    /// It is not, and kubelet gets `RESOURCE_EXHAUSTED` and this text.
    fn may_pass(&self, method: &str, why: &'static str) -> Result<(), String>;
}
