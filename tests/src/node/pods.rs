//! Pods and containers of a node: calls as kubelet makes them, answered at once or while other things happen.

use anyhow::anyhow;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use tokio::task::JoinHandle;
use tonic::Status;

use super::{LIMIT, Node, Placed};
use crate::process::wait_for;

/// A call of kubelet's that is under way.
#[derive(Debug)]
pub struct Asked<T>(JoinHandle<Result<T, Status>>);

impl<T> Asked<T> {
    /// There is an answer.
    pub fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Node {
    /// Runs the sandbox.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn run_pod(&mut self, pod: &PodSpec) -> anyhow::Result<RunningPod> {
        let running = self.tokio.block_on(self.kubelet.run_pod(pod));
        let running =
            running.map_err(|status| anyhow!("run {}: {}", pod.name, status.message()))?;
        self.pods.push(running.clone());
        Ok(running)
    }

    /// Runs the sandbox and creates its container; gives the runtime's id.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn create(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<String> {
        let running = self.run_pod(pod)?;
        let created = self.kubelet.create(&running, container, 0);
        let created = self.tokio.block_on(created);
        created.map_err(|status| anyhow!("{}: {}", container.name, status.message()))
    }

    /// Asks for a container in a sandbox; its id is the answer.
    pub fn ask_to_create(
        &self,
        pod: &RunningPod,
        container: &ContainerSpec,
        attempt: u32,
    ) -> Asked<String> {
        let (mut kubelet, pod, container) = (self.kubelet.clone(), pod.clone(), container.clone());
        Asked(self.tokio.spawn(async move { kubelet.create(&pod, &container, attempt).await }))
    }

    /// Asks for the start of a container that was created.
    pub fn ask_to_start(&self, id: &str) -> Asked<()> {
        let (mut kubelet, id) = (self.kubelet.clone(), id.to_owned());
        Asked(self.tokio.spawn(async move { kubelet.start(&id).await }))
    }

    /// Asks for other resources of a container.
    pub fn ask_to_resize(&self, id: &str, container: &ContainerSpec) -> Asked<()> {
        let (mut kubelet, id, container) = (self.kubelet.clone(), id.to_owned(), container.clone());
        Asked(self.tokio.spawn(async move { kubelet.resize(&id, &container).await }))
    }

    /// What was answered; waits for it.
    ///
    /// # Errors
    /// The call panicked.
    pub fn answer<T>(&self, asked: Asked<T>) -> anyhow::Result<Result<T, Status>> {
        Ok(self.tokio.block_on(asked.0)?)
    }

    /// Starts a container that was created.
    ///
    /// # Errors
    /// It does not start, or kernel and runtime go on disagreeing about it.
    pub fn begin(&mut self, id: &str) -> anyhow::Result<Placed> {
        let started = self.tokio.block_on(self.kubelet.start(id));
        started.map_err(|status| anyhow!("start: {}", status.message()))?;
        self.look(id)
    }

    /// A pod with one container, started.
    ///
    /// # Errors
    /// As of [`Node::create`] and [`Node::begin`].
    pub fn launch(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<Placed> {
        let id = self.create(pod, container)?;
        self.begin(&id)
    }

    /// As kubelet resizes a container in place.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn resize(&mut self, id: &str, container: &ContainerSpec) -> anyhow::Result<()> {
        let resized = self.tokio.block_on(self.kubelet.resize(id, container));
        resized.map_err(|status| anyhow!("{}: {}", container.name, status.message()))
    }

    /// Stops a container.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn stop(&mut self, id: &str) -> anyhow::Result<()> {
        let stopped = self.tokio.block_on(self.kubelet.stop(id));
        stopped.map_err(|status| anyhow!("stop: {}", status.message()))
    }

    /// Ends one pod in order.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn end_pod(&mut self, pod: &RunningPod) -> anyhow::Result<()> {
        self.pods.retain(|it| it.id != pod.id);
        let ended = self.tokio.block_on(self.kubelet.end_pod(pod));
        ended.map_err(|status| anyhow!("end pod: {}", status.message()))
    }

    /// Forgets a pod that could not be ended in order, as when the runtime died meanwhile; kubelet would try again.
    ///
    /// # Errors
    /// What the runtime answered at last.
    pub fn end_pod_at_last(&mut self, pod: &RunningPod) -> anyhow::Result<()> {
        let mut last = None;
        let ended = wait_for("the pod to end", LIMIT, || match self.end_pod(pod) {
            Ok(()) => Ok(Some(())),
            Err(why) => {
                last = Some(why);
                Ok(None)
            }
        });
        ended.map_err(|late| match last {
            Some(why) => why.context(late.to_string()),
            None => late,
        })
    }

    /// Ends all pods in order.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn end_pods(&mut self) -> anyhow::Result<()> {
        self.pods.clone().iter().try_for_each(|pod| self.end_pod(pod))
    }
}
