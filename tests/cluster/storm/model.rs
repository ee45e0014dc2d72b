//! A node of another system, as a model: it admits pods in memory, and what that system's publisher would write of it is written to the API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::pods::Ask;
use crate::world::call;

/// `-sleep-interval` of NFD's topology-updater as it is released.
const EVERY: Duration = Duration::from_secs(60);

/// What a system does on a node with two NUMA nodes.
pub(super) trait NodeModel: Send {
    /// Gives a pod what it asks for. Out: of how many NUMA nodes its own CPUs are, or why the node refuses it.
    fn admit(&mut self, pod: &str, ask: Ask) -> Result<usize, String>;

    fn release(&mut self, pod: &str);

    /// Whether a pod that was refused has failed.
    fn refuses_for_good(&self) -> bool;

    /// Whether a pod that comes or goes lets the publisher write at once.
    fn is_published_at_once(&self, ask: Ask) -> bool;

    /// Attributes and zones of the NodeResourceTopology as they are now.
    fn publication(&self) -> Json;
}

#[derive(Clone)]
pub(super) struct ModelNode {
    name: String,
    state: Arc<Mutex<Box<dyn NodeModel>>>,
    changes: watch::Sender<()>,
}

impl ModelNode {
    pub(super) fn new(name: &str, model: Box<dyn NodeModel>) -> ModelNode {
        let state = Arc::new(Mutex::new(model));
        ModelNode { name: name.to_owned(), state, changes: watch::Sender::new(()) }
    }

    pub(super) fn begin(&self, pod: &str, ask: Ask) -> Result<usize, String> {
        let mut model = self.state.lock().unwrap();
        let admitted = model.admit(pod, ask)?;
        self.tell(&**model, ask);
        Ok(admitted)
    }

    pub(super) fn end(&self, pod: &str, ask: Ask) {
        let mut model = self.state.lock().unwrap();
        model.release(pod);
        self.tell(&**model, ask);
    }

    fn tell(&self, model: &dyn NodeModel, ask: Ask) {
        if model.is_published_at_once(ask) {
            self.changes.send_replace(());
        }
    }

    pub(super) fn refuses_for_good(&self) -> bool {
        self.state.lock().unwrap().refuses_for_good()
    }

    /// Writes what is published, on change and from time to time, until it is dropped.
    pub(super) async fn publish(self, admin: Client) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            self.write(&admin).await;
            // Ends by a change, or by time.
            let _changed = timeout(EVERY, changes.changed()).await;
        }
    }

    pub(super) async fn write(&self, admin: &Client) {
        let name = &self.name;
        let mut object = self.state.lock().unwrap().publication();
        object["apiVersion"] = json!("topology.node.k8s.io/v1alpha2");
        object["kind"] = json!("NodeResourceTopology");
        object["metadata"] = json!({ "name": name });
        let path = format!("{NODE_TOPOLOGIES}/{name}");
        let (status, told) = call(admin, "PATCH", &path, &object).await;
        assert_eq!(status, 200, "{told}");
    }
}

pub(super) const NODE_TOPOLOGIES: &str =
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies";

/// A resource of a zone; quantities are texts.
pub(super) fn resource(name: &str, allocatable: &str, available: &str) -> Json {
    json!({ "name": name, "capacity": allocatable, "allocatable": allocatable, "available": available })
}

/// An attribute of an object or a zone.
pub(super) fn attribute(name: &str, value: &str) -> Json {
    json!({ "name": name, "value": value })
}
