//! The node's side of a pod's life: a daemon that is asked as kubelet asks, or a model of another system.

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_topology::Topology;
use bayplan_types::{Bytes, CpuSet, QosClass};

use super::model::ModelNode;
use super::pods::Ask;

/// What starts and ends pods of one node; each pod has a clone of its own.
#[derive(Clone)]
pub(super) enum Side {
    Bayplan(Box<BayplanSide>),
    Model(ModelNode),
}

#[derive(Clone)]
pub(super) struct BayplanSide {
    pub(super) kubelet: Kubelet,
    pub(super) runtime: EmbeddedRuntime,
    pub(super) topology: Topology,
    /// The pod's, once there is one.
    pub(super) sandbox: Option<RunningPod>,
    /// To create its container.
    pub(super) attempts: u32,
}

impl Side {
    /// Starts a pod. Out: of how many NUMA nodes its own CPUs are, or why the node refuses it.
    pub(super) async fn begin(&mut self, name: &str, ask: Ask) -> Result<usize, String> {
        match self {
            Side::Bayplan(side) => side.begin(name, ask).await,
            Side::Model(node) => node.begin(name, ask),
        }
    }

    pub(super) async fn end(&mut self, name: &str, ask: Ask) {
        match self {
            Side::Bayplan(side) => side.end().await,
            Side::Model(node) => node.end(name, ask),
        }
    }

    /// Whether a refused pod has failed, so that only another pod can run. Otherwise kubelet creates its container again.
    pub(super) fn refuses_for_good(&self) -> bool {
        matches!(self, Side::Model(node) if node.refuses_for_good())
    }
}

impl BayplanSide {
    async fn begin(&mut self, name: &str, ask: Ask) -> Result<usize, String> {
        let (qos, container) = match ask {
            Ask::Share(milli) => (QosClass::Burstable, ContainerSpec::burstable("c", milli.into())),
            Ask::Cpus(cpus) => {
                let own = ContainerSpec::guaranteed("c", u64::from(cpus) * 1000, Bytes(64 << 20));
                (QosClass::Guaranteed, own)
            }
        };
        let sandbox = match &self.sandbox {
            Some(sandbox) => sandbox.clone(),
            None => self.kubelet.run_pod(&PodSpec::new(name, qos)).await.unwrap(),
        };
        self.sandbox = Some(sandbox.clone());
        let created = self.kubelet.create(&sandbox, &container, self.attempts).await;
        self.attempts += 1;
        let id = created.map_err(|refusal| refusal.message().to_owned())?;
        self.kubelet.start(&id).await.unwrap();
        let cpus: CpuSet = self.runtime.container(&id).unwrap().cpus.parse().unwrap();
        Ok(match ask {
            Ask::Cpus(_) => self.topology.nodes_of(&cpus).len(),
            Ask::Share(_) => 0,
        })
    }

    async fn end(&mut self) {
        let sandbox = self.sandbox.take().unwrap();
        self.kubelet.end_pod(&sandbox).await.unwrap();
    }
}
