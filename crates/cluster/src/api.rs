//! Calls of the API server. All of them are about the own node, and each can be made again.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::Value as Json;

use crate::conditions::Condition;
use crate::event::PodEvent;
use crate::object::NodeObject;
use crate::{GROUP, VERSION};

/// How long a call may take; watches end before the API server ends them.
const CALL_MAX: Duration = Duration::from_secs(30);
const WATCH_SECONDS: u32 = 290;
/// Of the object, and of its status.
const MANAGERS: [&str; 2] = ["bayplan-agent/node", "bayplan-agent/status"];

/// The API server, as the agent of one node uses it.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    node: String,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.node)
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

/// At most so long.
async fn call<T>(
    what: &str,
    work: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(CALL_MAX, work).await {
        Ok(done) => done.with_context(|| what.to_owned()),
        Err(_) => bail!("{what}: no answer within {} s", CALL_MAX.as_secs()),
    }
}

impl Cluster {
    /// By `KUBECONFIG`, or as a pod.
    ///
    /// # Errors
    /// Neither says where the API server is.
    pub(crate) async fn connect(node: &str) -> anyhow::Result<Cluster> {
        let client = Client::try_default().await.context(
            "cannot find the API server; expected a pod with a service account, or a file that KUBECONFIG names",
        )?;
        Ok(Cluster { client, node: node.to_owned() })
    }

    /// What happens to the own Node object.
    pub(crate) fn watch_node(
        &self,
    ) -> impl Stream<Item = Result<Event<PartialObjectMeta<Node>>, watcher::Error>> + Send + use<>
    {
        let name = format!("metadata.name={}", self.node);
        let config = watcher::Config::default().fields(&name).timeout(WATCH_SECONDS);
        watcher(Api::<PartialObjectMeta<Node>>::all(self.client.clone()), config).default_backoff()
    }

    /// What happens to all BayplanConfigs.
    pub(crate) fn watch_configs(
        &self,
    ) -> impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
        let api = Api::all_with(self.client.clone(), &resource("BayplanConfig", "bayplanconfigs"));
        watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)).default_backoff().boxed()
    }

    fn nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("BayplanNode", "bayplannodes"))
    }

    /// Conditions of the own BayplanNode, none where it is not there.
    pub(crate) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let found = call("reading the own BayplanNode", self.nodes().get_opt(&self.node)).await?;
        let conditions = found.and_then(|it| it.data.pointer("/status/conditions").cloned());
        Ok(conditions.and_then(|it| serde_json::from_value(it).ok()).unwrap_or_default())
    }

    /// Makes or corrects the own BayplanNode.
    pub(crate) async fn apply_node(&self, object: &Json) -> anyhow::Result<()> {
        let params = PatchParams::apply(MANAGERS[0]).force();
        let patch = Patch::Apply(object);
        call("writing the own BayplanNode", self.nodes().patch(&self.node, &params, &patch))
            .await?;
        Ok(())
    }

    /// Writes its whole status.
    pub(crate) async fn apply_status(&self, object: &Json) -> anyhow::Result<()> {
        let params = PatchParams::apply(MANAGERS[1]).force();
        let (nodes, patch) = (self.nodes(), Patch::Apply(object));
        let written = nodes.patch_status(&self.node, &params, &patch);
        call("writing the status of the own BayplanNode", written).await?;
        Ok(())
    }

    /// Makes an event; one that is there already is none too few.
    pub(crate) async fn create_event(&self, event: PodEvent) -> anyhow::Result<()> {
        let kind = GroupVersionKind::gvk("events.k8s.io", "v1", "Event");
        let resource = ApiResource::from_gvk_with_plural(&kind, "events");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &event.namespace, &resource);
        let object: DynamicObject = serde_json::from_value(event.object)?;
        let params = PostParams::default();
        let made = tokio::time::timeout(CALL_MAX, api.create(&params, &object)).await;
        match made.context("making an event: no answer")? {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            done => done.map(|_| ()).context("making an event"),
        }
    }
}

/// What the agent needs of a Node.
pub(crate) fn node_object(node: &PartialObjectMeta<Node>) -> NodeObject {
    NodeObject {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        labels: node.labels().clone(),
    }
}
