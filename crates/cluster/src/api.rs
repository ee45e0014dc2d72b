//! Calls of the API server. All of them are about one node, but for the list of nodes of which something was published, and each can be made again.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::response::StatusCause;
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::conditions::Condition;
use crate::event::PodEvent;
use crate::foreign::ForeignName;
use crate::node_feature::{MANAGED_BY, NODE_LABEL};
use crate::node_writes::NodeWrite;
use crate::object::{
    CAPACITY_MANAGER, CONDITION_MANAGER, FEATURES_MANAGER, METADATA_MANAGER, NODE_FEATURE_MANAGER,
    NodeObject, TOPOLOGY_MANAGER, is_own_topology,
};
use crate::watch_pause::WatchPause;
use crate::{GROUP, VERSION};

/// How long a call may take; watches end before the API server ends them.
const CALL_MAX: Duration = Duration::from_secs(30);
const WATCH_SECONDS: u32 = 290;
/// Pods in one answer, which with all of a node's pods would be a megabyte.
const PODS_PAGE: u32 = 20;
/// Of the object, and of its status.
const MANAGERS: [&str; 2] = ["bayplan-agent/node", "bayplan-agent/status"];

/// The API server, as the agent of one node uses it.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    node: String,
    /// All agents come back within this time after the API server was away.
    returns_within: Duration,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.node)
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

fn node_feature_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature");
    ApiResource::from_gvk_with_plural(&kind, "nodefeatures")
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

/// How a write ended that another program may stand in the way of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is written.
    Done,
    /// Object or kind do not exist.
    Absent,
    /// Another program owns what is written, or has changed what was tested.
    Conflict(String),
}

async fn outcome<T>(
    what: &str,
    work: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<Outcome> {
    match call(what, async { Ok(work.await) }).await? {
        Ok(_) => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Absent),
        // The test of a JSON patch fails with 422, a refusal by a policy has a reason that says so.
        Err(kube::Error::Api(status))
            if status.code == 409
                || (status.code == 422
                    && !status.message.contains("ValidatingAdmissionPolicy")) =>
        {
            Ok(Outcome::Conflict(status.message.clone()))
        }
        Err(error) => Err(error).with_context(|| what.to_owned()),
    }
}

/// Reads an object. `None`: it is not there, or the API server does not have its kind, which it says with the same status and without a reason.
async fn find(
    what: &str,
    api: &Api<DynamicObject>,
    name: &str,
) -> anyhow::Result<Option<DynamicObject>> {
    let found = async {
        match api.get_opt(name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            found => found,
        }
    };
    call(what, found).await
}

/// Whether an apply was refused because of fields that kubelet has written, and of no others.
fn is_kubelets(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|it| it.causes.as_slice()).unwrap_or_default();
    let is_so = |it: &StatusCause| it.message.starts_with("conflict with \"kubelet\"");
    status.code == 409 && !causes.is_empty() && causes.iter().all(is_so)
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
        Ok(Cluster::by(client, node))
    }

    /// By this client.
    pub(crate) fn by(client: Client, node: &str) -> Cluster {
        Cluster { client, node: node.to_owned(), returns_within: Duration::ZERO }
    }

    /// The same, with the time within which agents begin.
    pub(crate) fn returning_within(self, start_within: Duration) -> Cluster {
        Cluster { returns_within: start_within, ..self }
    }

    /// The same for another node.
    pub(crate) fn of(&self, node: &str) -> Cluster {
        Cluster::by(self.client.clone(), node)
    }

    /// At an address where nothing listens.
    #[cfg(test)]
    pub(crate) fn unreachable(node: &str) -> Cluster {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Cluster::by(Client::try_from(config).unwrap(), node)
    }

    /// The own Node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    fn own_node(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("", "v1", "Node");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodes"))
    }

    /// Watches by one of the agent's streams, with pauses where it fails.
    fn watch<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
    ) -> BoxStream<'static, Result<Event<K>, watcher::Error>>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let pause = WatchPause::new(&self.node, api.resource_url(), self.returns_within);
        watcher(api, config.timeout(WATCH_SECONDS)).backoff(pause).boxed()
    }

    /// What happens to the own Node object.
    pub(crate) fn watch_node(
        &self,
    ) -> impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
        let name = format!("metadata.name={}", self.node);
        self.watch(self.own_node(), watcher::Config::default().fields(&name))
    }

    /// What happens to the pods of the own node.
    pub(crate) fn watch_pods(
        &self,
    ) -> impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Send + use<> {
        let field = format!("spec.nodeName={}", self.node);
        let config = watcher::Config::default().fields(&field).page_size(PODS_PAGE);
        self.watch(Api::<Pod>::all(self.client.clone()), config)
    }

    /// The own Node as it is; `None`: it is gone.
    pub(crate) async fn read_node(&self) -> anyhow::Result<Option<NodeObject>> {
        let found = call("reading the own Node", self.own_node().get_opt(&self.node)).await?;
        Ok(found.as_ref().map(node_object))
    }

    /// Writes a part of the own Node. Extended resources are taken back from kubelet, which zeroes them when it registers, and from no other program.
    pub(crate) async fn write_node(&self, write: &NodeWrite) -> anyhow::Result<Outcome> {
        let (api, name) = (self.own_node(), &self.node);
        let apply = async |object: &Json, manager: &str| {
            api.patch(name, &PatchParams::apply(manager), &Patch::Apply(object)).await
        };
        let work = async {
            match write {
                NodeWrite::Metadata(object) => apply(object, METADATA_MANAGER).await,
                NodeWrite::Features(object) => apply(object, FEATURES_MANAGER).await,
                NodeWrite::Capacity(object) => {
                    let (params, patch) =
                        (PatchParams::apply(CAPACITY_MANAGER), Patch::Apply(object));
                    match api.patch_status(name, &params, &patch).await {
                        Err(kube::Error::Api(status)) if is_kubelets(&status) => {
                            api.patch_status(name, &params.force(), &patch).await
                        }
                        done => done,
                    }
                }
                NodeWrite::Condition(object) => {
                    let params = PatchParams::apply(CONDITION_MANAGER).force();
                    api.patch_status(name, &params, &Patch::Apply(object)).await
                }
                NodeWrite::Taints(patch) => {
                    let params = PatchParams {
                        field_manager: Some(METADATA_MANAGER.to_owned()),
                        ..PatchParams::default()
                    };
                    let patch: Patch<Json> = Patch::Json(
                        serde_json::from_value(patch.clone()).map_err(kube::Error::SerdeError)?,
                    );
                    api.patch(name, &params, &patch).await
                }
            }
        };
        outcome("writing the own Node", work).await
    }

    fn node_topologies(&self) -> Api<DynamicObject> {
        let kind =
            GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
        let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
        Api::all_with(self.client.clone(), &resource)
    }

    /// Makes or corrects the own NodeResourceTopology, unless another program has written its zones.
    pub(crate) async fn apply_node_topology(&self, object: &Json) -> anyhow::Result<Outcome> {
        let (api, params) = (self.node_topologies(), PatchParams::apply(TOPOLOGY_MANAGER));
        let patch = Patch::Apply(object);
        outcome("writing the NodeResourceTopology", api.patch(&self.node, &params, &patch)).await
    }

    /// Deletes the own NodeResourceTopology if this agent has written its zones.
    pub(crate) async fn withdraw_node_topology(&self) -> anyhow::Result<()> {
        let api = self.node_topologies();
        let what = "reading the NodeResourceTopology";
        let Some(found) = find(what, &api, &self.node).await? else { return Ok(()) };
        if is_own_topology(&serde_json::to_value(&found)?) {
            let params = DeleteParams::default();
            let deleted = api.delete(&self.node, &params);
            outcome("deleting the NodeResourceTopology", deleted).await?;
        }
        Ok(())
    }

    /// In the agent's own namespace.
    fn node_features(&self) -> Api<DynamicObject> {
        let namespace = self.client.default_namespace().to_owned();
        Api::namespaced_with(self.client.clone(), &namespace, &node_feature_resource())
    }

    /// Makes or corrects the own NodeFeature. One of NFD's worker has the same name in NFD's namespace, and is left to it.
    pub(crate) async fn apply_node_feature(&self, object: &Json) -> anyhow::Result<Outcome> {
        let (api, params) = (self.node_features(), PatchParams::apply(NODE_FEATURE_MANAGER));
        let found = find("reading the NodeFeature", &api, &self.node).await?;
        if found.is_some_and(|it| !is_managed(&it)) {
            let [key, manager] = MANAGED_BY;
            return Ok(Outcome::Conflict(format!("it lacks the label {key}={manager}")));
        }
        let patch = Patch::Apply(object);
        outcome("writing the NodeFeature", api.patch(&self.node, &params, &patch)).await
    }

    /// Deletes the NodeFeature that an earlier agent of this node has made in the same namespace.
    pub(crate) async fn withdraw_node_feature(&self) -> anyhow::Result<()> {
        let api = self.node_features();
        let found = find("reading the NodeFeature", &api, &self.node).await?;
        let Some(found) = found else { return Ok(()) };
        if is_managed(&found) {
            let params = DeleteParams::default();
            outcome("deleting the NodeFeature", api.delete(&self.node, &params)).await?;
        }
        Ok(())
    }

    /// The same in every namespace, as an administrator.
    pub(crate) async fn withdraw_node_features(&self) -> anyhow::Result<()> {
        let resource = node_feature_resource();
        let [key, manager] = MANAGED_BY;
        let labels = format!("{NODE_LABEL}={},{key}={manager}", self.node);
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let params = ListParams::default().labels(&labels);
        // An API server without the kind answers 404.
        let found =
            match call("reading NodeFeatures", async { Ok(all.list(&params).await) }).await? {
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                found => found.context("reading NodeFeatures")?,
            };
        for object in found {
            let namespace = object.namespace().unwrap_or_default();
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &namespace, &resource);
            let (name, params) = (object.name_any(), DeleteParams::default());
            outcome("deleting the NodeFeature", api.delete(&name, &params)).await?;
        }
        Ok(())
    }

    /// Names of nodes of which agents may have published something: Nodes, and objects about nodes, which may be gone.
    pub(crate) async fn published_nodes(&self) -> anyhow::Result<BTreeSet<String>> {
        let [key, manager] = MANAGED_BY;
        let made = ListParams::default().labels(&format!("{key}={manager}"));
        let all = ListParams::default();
        let features = Api::all_with(self.client.clone(), &node_feature_resource());
        let kinds: [(Api<DynamicObject>, _); 4] = [
            (self.own_node(), &all),
            (self.node_topologies(), &all),
            (self.nodes(), &all),
            (features, &made),
        ];
        let mut names = BTreeSet::new();
        for (api, params) in kinds {
            let what = format!("listing {}", api.resource_url());
            match call(&what, async { Ok(api.list_metadata(params).await) }).await? {
                // An API server without the kind.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                found => names.extend(found.context(what)?.iter().map(|it| it.name_any())),
            }
        }
        Ok(names)
    }

    /// Deletes the own BayplanNode.
    pub(crate) async fn delete_own(&self) -> anyhow::Result<()> {
        let (nodes, params) = (self.nodes(), DeleteParams::default());
        outcome("deleting the BayplanNode", nodes.delete(&self.node, &params)).await?;
        Ok(())
    }

    /// Whether this client may write the own Node, if the API server says.
    pub(crate) async fn may_write_node(&self) -> anyhow::Result<bool> {
        let attributes = ResourceAttributes {
            name: Some(self.node.clone()),
            resource: Some("nodes".to_owned()),
            verb: Some("patch".to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        match call("asking for rights", async { Ok(api.create(&params, &review).await) }).await? {
            // The service account is gone.
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(false),
            answered => {
                let status = answered.context("asking for rights")?.status;
                Ok(status.is_some_and(|it| it.allowed))
            }
        }
    }

    /// What happens to all BayplanConfigs.
    pub(crate) fn watch_configs(
        &self,
    ) -> impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send + use<> {
        let api = Api::all_with(self.client.clone(), &resource("BayplanConfig", "bayplanconfigs"));
        self.watch(api, watcher::Config::default())
    }

    /// What happens to one object of another system.
    pub(crate) fn watch_foreign(
        &self,
        name: &ForeignName,
    ) -> BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>> {
        let [group, version, plural] = name.kind.resource();
        let kind = GroupVersionKind::gvk(group, version, name.kind.name());
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &name.namespace, &resource);
        let field = format!("metadata.name={}", name.name);
        self.watch(api, watcher::Config::default().fields(&field))
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

/// Whether an agent has made it.
fn is_managed(object: &DynamicObject) -> bool {
    let [key, manager] = MANAGED_BY;
    object.labels().get(key).is_some_and(|it| it == manager)
}

/// What the agent needs of a Node.
pub(crate) fn node_object(node: &DynamicObject) -> NodeObject {
    NodeObject::read(&serde_json::to_value(node).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::json;

    use super::*;

    fn check(code: u16, causes: &[&str], expected: bool) {
        let causes: Vec<Json> = causes
            .iter()
            .map(|it| json!({ "reason": "FieldManagerConflict", "message": it, "field": ".status.capacity.a/b" }))
            .collect();
        let status = json!({ "status": "Failure", "message": "", "reason": "Conflict", "code": code, "details": { "causes": causes } });
        let status: Status = serde_json::from_value(status).unwrap();
        assert_eq!(is_kubelets(&status), expected, "{status:?}");
    }

    /// As kube-apiserver answers for kinds of which it has no definition: no object, but a line of text.
    #[tokio::test]
    async fn where_a_kind_is_missing_there_is_nothing_to_take_back() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let missing = || async { (StatusCode::NOT_FOUND, "404 page not found\n") };
        let router = Router::new().fallback(missing);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = kube::Config::new(address.parse().unwrap());
        let cluster = Cluster::by(Client::try_from(config).unwrap(), "n1");
        cluster.withdraw_node_topology().await.unwrap();
        cluster.withdraw_node_feature().await.unwrap();
        cluster.withdraw_node_features().await.unwrap();
        let object = json!({ "metadata": { "name": "n1" } });
        assert_eq!(cluster.apply_node_feature(&object).await.unwrap(), Outcome::Absent);
        assert_eq!(cluster.apply_node_topology(&object).await.unwrap(), Outcome::Absent);
    }

    #[test]
    fn resources_are_taken_back_from_kubelet_alone() {
        let (kubelet, other) = (
            "conflict with \"kubelet\" with subresource \"status\" using v1",
            "conflict with \"other\" with subresource \"status\" using v1",
        );
        check(409, &[kubelet], true);
        check(409, &[kubelet, kubelet], true);
        check(409, &[kubelet, other], false);
        check(409, &[other], false);
        check(409, &[], false);
        check(422, &[kubelet], false);
    }
}
