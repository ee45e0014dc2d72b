//! One node of the storm: a runtime without processes, a daemon, an agent, and a stand-in for kubelet that starts what is bound to the node, and ends it a while later.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bayplan_cri::kubelet::Kubelet;
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::pods::{POD_PATH, Tally, live};
use crate::node::{DAEMON, Node, kubelet};
use crate::servers::Servers;
use crate::world::{call, kubeconfig, token_on, until};

/// Labels of its own for what these flags stand for together.
const PROFILES: &str = "kind: NodeFeatureRule\nspec: {rules: [{name: r, labels: {profile.node.kubernetes.io/vector: 'true'}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AESNI: {op: Exists}, AVX512BW: {op: Exists}, VMX: {op: Exists}}}, {feature: cpu.pstate, matchExpressions: {turbo: {op: IsTrue}}}, {feature: kernel.config, matchExpressions: {NO_HZ: {op: Exists}}}]}]}\n";

/// What a node is.
pub(crate) struct Setup {
    pub(crate) machine: &'static str,
    /// What pods can have of its CPUs.
    pub(crate) cpus: &'static str,
    /// The daemon's configuration.
    pub(crate) config: &'static str,
    /// Of the agent.
    pub(crate) publish: &'static str,
    pub(crate) has_features: bool,
    /// ConfigMaps of CRI Resource Manager configure it.
    pub(crate) accepts_cri_resmgr: bool,
    /// Writes files of its kernel below this root.
    pub(crate) files: fn(&Path),
}

pub(crate) struct StormNode {
    name: String,
    pub(crate) node: Node,
    agent: Child,
}

impl Drop for StormNode {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.agent.kill();
        let _status = self.agent.wait();
    }
}

impl StormNode {
    pub(crate) async fn start(
        servers: &Servers,
        admin: &Client,
        name: &str,
        setup: &Setup,
    ) -> StormNode {
        let path = format!("/api/v1/nodes/{name}");
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        let (status, told) = call(admin, "PATCH", &path, &object).await;
        assert_eq!(status, 200, "{told}");
        let amounts = json!({ "cpu": setup.cpus, "memory": "128Gi", "pods": "200" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let state = json!({ "status": { "capacity": amounts, "allocatable": amounts, "conditions": ready } });
        let merged = format!("{path}/status?fieldManager=kubelet");
        assert_eq!(call(admin, "PATCH", &merged, &state).await.0, 200);
        // New Nodes are tainted until a controller has seen them.
        let untainted = json!({ "spec": { "taints": null } });
        let merged = format!("{path}?fieldManager=controller");
        assert_eq!(call(admin, "PATCH", &merged, &untainted).await.0, 200);
        make_daemon_pod(admin, name).await;
        let mut node = Node::without_daemon(setup.machine);
        (setup.files)(&node.host_root());
        node.spawn_daemon(setup.config).await;
        let file = servers.path(&format!("agent.{name}.kubeconfig"));
        let token = token_on(admin, name).await;
        fs::write(&file, kubeconfig(&servers.address(), &token)).unwrap();
        let mut command = Command::new(DAEMON);
        command.args(["agent", "--node", name, "--publish", setup.publish]);
        command.args(["--start-within", "0s", "--control"]).arg(node.control_socket());
        if setup.accepts_cri_resmgr {
            command.args(["--accept", "cri-resmgr"]);
        }
        if setup.has_features {
            let profiles = servers.path("profiles.yaml");
            fs::write(&profiles, PROFILES).unwrap();
            command.arg("--feature-labels").arg("--profiles").arg(profiles);
        }
        command.env("KUBECONFIG", file).stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(servers.path(&format!("agent.{name}.log"))).unwrap();
        let agent = command.stderr(log).spawn().unwrap();
        StormNode { name: name.to_owned(), node, agent }
    }

    /// Waits for its NodeResourceTopology.
    pub(super) async fn is_published(&self, admin: &Client) {
        let name = &self.name;
        let path = format!("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{name}");
        until("a NodeResourceTopology", async || {
            call(admin, "GET", &path, &json!(null)).await.1["zones"].is_array()
        })
        .await;
    }

    /// Starts what is bound to the node until it is dropped.
    pub(super) fn serve(
        &self,
        admin: Client,
        tally: Arc<Tally>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let kubelet = kubelet(self.node.path("bayplan.sock"));
        serve(admin, self.name.clone(), kubelet, tally)
    }
}

/// As every node has one; the plugin looks at no node without pods.
async fn make_daemon_pod(admin: &Client, node: &str) {
    let name = format!("daemon-{node}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(call(admin, "POST", POD_PATH, &pod).await.0, 200);
    let running = json!({ "status": { "phase": "Running" } });
    let path = format!("{POD_PATH}/{name}/status?fieldManager=kubelet");
    assert_eq!(call(admin, "PATCH", &path, &running).await.0, 200);
}

async fn serve(admin: Client, node: String, kubelet: Kubelet, tally: Arc<Tally>) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &kind);
    let config = watcher::Config::default();
    let config = config.fields(&format!("spec.nodeName={node}")).labels("storm");
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut begun = BTreeSet::new();
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event
            && begun.insert(pod.name_any())
        {
            tokio::spawn(live(admin.clone(), kubelet.clone(), pod, Arc::clone(&tally)));
        }
    }
}
